//! Converts heads of requests and responses between the HTTP/2 library and actix-web, which use different versions of
//! the `http` crate.

use std::rc::Rc;

use actix_http::{Payload, Request, ResponseHead};
use actix_web::HttpMessage as _;
use actix_web::body::BodySize;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, Uri, Version};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use h2::RecvStream;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use super::super::connection::ConnectionInfo;

/// Fields that are not copied to HTTP/2: connection-specific fields (RFC 9113, section 8.2.2), and the content length,
/// which is set from the size of the body.
const OMITTED: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// Converts a request. `None` if its head is malformed.
pub(super) fn request(request: http::Request<RecvStream>, connection: &Rc<ConnectionInfo>) -> Option<Request> {
    let (parts, body) = request.into_parts();
    let is_ended = body.is_end_stream();
    let mut request = if is_ended { Request::new() } else { Request::with_payload(payload(body)) };

    let head = request.head_mut();
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).ok()?;
    head.uri = target(&parts.uri)?;
    head.version = Version::HTTP_2;
    head.peer_addr = Some(connection.peer);
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        head.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    // Add fields of HTTP/1.1. A client may send both `:authority` and `Host`: the check of the host compares them.
    if let (Some(authority), false) = (parts.uri.authority(), head.headers.contains_key(header::HOST)) {
        head.headers.insert(header::HOST, HeaderValue::from_str(authority.as_str()).ok()?);
    }
    if is_ended && !head.headers.contains_key(header::CONTENT_LENGTH) {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }

    request.extensions_mut().insert(Rc::clone(connection));
    Some(request)
}

/// Converts the target of a request part by part: joined as text, a path without a leading slash would become part of
/// the host. `None` for such a path, for any scheme but `https`, the scheme of the connection (RFC 9110, section 7.4),
/// and for invalid targets.
fn target(uri: &http::Uri) -> Option<Uri> {
    if uri.scheme_str().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("https")) {
        return None;
    }
    let mut target = Uri::builder();
    if let Some(authority) = uri.authority() {
        target = target.authority(authority.as_str());
    }
    if let Some(path) = uri.path_and_query().map(http::uri::PathAndQuery::as_str).filter(|path| !path.is_empty()) {
        if !path.starts_with('/') && path != "*" {
            return None;
        }
        target = target.path_and_query(path);
        // The builder requires scheme and authority together.
        if uri.authority().is_some() {
            target = target.scheme("https");
        }
    }
    target.build().ok()
}

/// The body of a request. Reading a part lets the client send more.
fn payload(body: RecvStream) -> Payload {
    let parts = stream::unfold(body, |mut body| async move {
        let part = match body.data().await? {
            Ok(part) => body.flow_control().release_capacity(part.len()).map(|()| part),
            Err(error) => Err(error),
        };
        let part = part.map_err(|error| actix_http::error::PayloadError::Io(std::io::Error::other(error)));
        Some((part, body))
    });
    Payload::Stream { payload: parts.boxed_local() }
}

/// The head of a response, and whether the head ends the response.
pub(super) fn response(head: &ResponseHead, size: BodySize, is_head: bool) -> (http::Response<()>, bool) {
    let mut response = http::Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(head.status.as_u16()).unwrap_or_default();
    let fields = response.headers_mut();
    for (name, value) in head.headers.iter().filter(|(name, _)| !OMITTED.contains(name)) {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes());
        // Never an error: both versions have the same rules.
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value.as_bytes())) {
            fields.append(name, value);
        }
    }

    let has_content = !matches!(head.status.as_u16(), 100..=199 | 204 | 304);
    if let (BodySize::Sized(length), true) = (size, has_content) {
        fields.insert(http::header::CONTENT_LENGTH, length.into());
    }
    if !fields.contains_key(http::header::DATE)
        && let Some(date) = date()
    {
        fields.insert(http::header::DATE, date);
    }
    (response, is_head || !has_content || size.is_eof())
}

fn date() -> Option<http::HeaderValue> {
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()).ok()?;
    http::HeaderValue::from_maybe_shared(Bytes::from(date)).ok()
}

#[cfg(test)]
mod tests {
    use actix_http::StatusCode;

    use super::*;

    fn converted(status: u16, size: BodySize, is_head: bool) -> (http::Response<()>, bool) {
        let mut head = actix_http::Response::new(StatusCode::from_u16(status).expect("a status"));
        for (name, value) in [("connection", "close"), ("keep-alive", "5"), ("upgrade", "x"), ("content-length", "9")] {
            head.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        for value in ["a", "b"] {
            head.headers_mut().append(HeaderName::from_static("vary"), HeaderValue::from_static(value));
        }
        response(head.head(), size, is_head)
    }

    #[test]
    fn a_target_keeps_its_host_and_its_path() {
        for (given, host, path) in [
            ("https://gw:8443/a/%2F?b=c", Some("gw:8443"), "/a/%2F?b=c"),
            ("https://gw/", Some("gw"), "/"),
            ("/a", None, "/a"),
        ] {
            let target = target(&given.parse().expect("a target")).expect("a target");
            assert_eq!(target.authority().map(|host| host.as_str()), host, "{given}");
            assert_eq!(target.path_and_query().map(|path| path.as_str()), Some(path), "{given}");
        }
        let tunnel = target(&"gw:80".parse().expect("a target")).expect("a target");
        assert!(tunnel.authority().is_some_and(|host| host == "gw:80") && tunnel.path().is_empty());

        for scheme in ["http", "ftp", "file", "wss"] {
            let uri = format!("{scheme}://gw/a").parse().expect("a target");
            assert!(target(&uri).is_none(), "the connection has TLS: {scheme}");
        }

        // The library rejects paths without a leading slash, too.
        assert!(".evil.example/a".parse::<http::uri::PathAndQuery>().is_err());
    }

    #[test]
    fn a_response_has_no_fields_of_the_connection() {
        let (response, ends) = converted(200, BodySize::Sized(3), false);
        let mut names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "date", "vary"]);
        assert_eq!(response.headers().get_all("vary").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(response.headers()["content-length"], "3");
        assert!(!ends);

        let date = response.headers()["date"].to_str().expect("text");
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    }

    #[test]
    fn a_response_without_content_ends_with_its_head() {
        for (status, size, is_head, length) in [
            (200, BodySize::Sized(3), true, Some("3")),
            (200, BodySize::Stream, true, None),
            (200, BodySize::Sized(0), false, Some("0")),
            (200, BodySize::None, false, None),
            (204, BodySize::Sized(3), false, None),
            (304, BodySize::Sized(3), false, None),
        ] {
            let (response, ends) = converted(status, size, is_head);
            let found = response.headers().get("content-length").map(|length| length.to_str().expect("text"));
            assert!(ends && found == length, "{status}, {size:?}: {found:?}");
        }
        let (response, ends) = converted(200, BodySize::Stream, false);
        assert!(!ends && !response.headers().contains_key("content-length"));
    }
}
