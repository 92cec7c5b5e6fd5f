//! Single checks of a request head: size, host, origin of the web page, and the announced body.
//!
//! People who run a gateway on their machine also open web pages. A page of another origin must neither use the gateway
//! nor read from it. Browsers help: they send the origin of a request (`Origin`, `Sec-Fetch-Site`) and its host name
//! (`Host`), and send a preflight request before a body of a type that HTML forms cannot produce.
//!
//! Not here: the order of the checks (`check.rs`), the allowed hosts (`hosts.rs`), and the format of error responses,
//! which depends on the protocol.

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{Method, Version};
use interlingua_core::exchange::{self, Endpoint, MediaTypes};
use interlingua_core::{Fault, FaultKind};

use super::bodies::BodyReservation;
use super::hosts::{self, AllowedHosts};
use super::routes::RoutedEndpoint;
use super::{Gateway, ServedRoute, base_url};
use interlingua_config::{Host, Origins};

/// The target of a request. It determines the pages that may send the request.
#[derive(Clone, Copy)]
pub enum RequestTarget<'a> {
    /// An endpoint of a route.
    Endpoint(&'a ServedRoute, &'a Endpoint),
    /// A CORS preflight request for a route.
    Preflight(&'a ServedRoute),
    /// `/healthz` and `/readyz`.
    Health,
    /// The admin listener.
    Operators,
}

/// Checks the size of the head. Heads beyond the largest possible setting are rejected by the parser.
///
/// # Errors
/// If the head is larger than the setting.
pub(super) fn check_head_size(gateway: &Gateway, head: &RequestHead) -> Result<(), Fault> {
    let limit = gateway.settings().limits.head;
    // Each field has a colon, a space and a line end.
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if fields + target <= limit {
        return Ok(());
    }
    Err(Fault::new(FaultKind::HeadTooLarge, format!("the request head is larger than {limit} bytes")))
}

/// The host that the client requested: forwarded by a trusted proxy, or else named by the request. Both must be
/// allowed.
///
/// # Errors
/// If it is missing, invalid or not allowed.
pub(super) fn check_host(gateway: &Gateway, head: &RequestHead, is_probe: bool) -> Result<Option<Host>, Fault> {
    let settings = gateway.settings();
    let requested = check_named_host(&settings.hosts, head, is_probe)?;
    let forwarded = base_url::forwarded_info(gateway, head);
    let Some(mut host) = forwarded.host else { return Ok(requested) };
    check_allowed(&settings.hosts, &host, is_probe)?;
    host.port = host.port.or(forwarded.port);
    Ok(Some(host))
}

/// The host that a request names. `None` for an HTTP/1.0 request that names none.
///
/// # Errors
/// If it is missing, invalid or not allowed.
pub fn check_named_host(allowed: &AllowedHosts, head: &RequestHead, is_probe: bool) -> Result<Option<Host>, Fault> {
    let bad_head = |message: &str| Fault::new(FaultKind::BadHead, message);
    let requested = base_url::requested_host(head).map_err(bad_head)?;
    let requested = requested
        .map(|host| host.parse::<Host>().map_err(|_| bad_head("the request names an invalid host")))
        .transpose()?;
    match &requested {
        Some(host) => check_allowed(allowed, host, is_probe)?,
        // Probes of load balancers use HTTP/1.0. Browsers do not.
        None if head.version < Version::HTTP_11 => {}
        None => return Err(bad_head("the request has no Host header")),
    }
    Ok(requested)
}

fn check_allowed(allowed: &AllowedHosts, host: &Host, is_probe: bool) -> Result<(), Fault> {
    if allowed.include(host, is_probe) {
        return Ok(());
    }
    let message = format!("host '{host}' is not served by this gateway");
    let detail = format!("host '{host}' is not in server.allowed_hosts");
    Err(Fault::new(FaultKind::Misdirected, message).with_detail(detail))
}

/// Checks that a request from a web page comes from the gateway's own origin or from one that the route allows.
///
/// # Errors
/// If it comes from another page.
pub fn check_origin(
    allowed_hosts: &AllowedHosts,
    target: RequestTarget<'_>,
    head: &RequestHead,
    host: Option<&Host>,
) -> Result<(), Fault> {
    let refused = |page: &str| Err(foreign_page(page));
    let allowed = |origin: &str| match target {
        RequestTarget::Endpoint(route, _) | RequestTarget::Preflight(route) => route.cors.include(origin),
        RequestTarget::Health | RequestTarget::Operators => false,
    };

    let mut origins = head.headers.get_all("origin");
    if let Some(origin) = origins.next() {
        let Some(origin) = origin.to_str().ok().filter(|_| origins.next().is_none()) else {
            return refused("an unreadable origin");
        };
        let is_own_origin = || {
            origin.parse().is_ok_and(|origin| {
                allowed_hosts.is_public(&origin) || host.is_some_and(|host| hosts::is_same(&origin, host))
            })
        };
        if is_own_origin() || allowed(origin) {
            return Ok(());
        }
        return refused(&format!("the origin '{origin}'"));
    }

    // Requests for images, scripts, frames and links have no Origin. A page cannot read the responses, but it could
    // trigger the requests.
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_foreign = site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"));
    let is_link = head.headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document")
        && matches!(head.method, Method::GET | Method::HEAD);
    let is_public = match target {
        RequestTarget::Endpoint(_, endpoint) => endpoint.public,
        RequestTarget::Health => true,
        RequestTarget::Preflight(_) | RequestTarget::Operators => false,
    };
    if is_foreign && !(is_link && is_public) && !allowed("null") {
        return refused("other sites");
    }
    Ok(())
}

/// Checks that a request to an endpoint for HTTP/2 was sent over HTTP/2. Otherwise it is refused with 505.
pub(super) fn check_version(routed: &RoutedEndpoint, head: &RequestHead) -> Result<(), Fault> {
    if routed.endpoint().http2_only && head.version < Version::HTTP_2 {
        return Err(Fault::new(FaultKind::Unsupported, "this endpoint needs HTTP/2"));
    }
    Ok(())
}

/// Replaces the fault of a preflight request for a route without `cors`: the new fault names the page instead of the
/// method. Other faults are returned unchanged.
pub(super) fn check_no_preflight(head: &RequestHead, fault: Fault) -> Fault {
    let is_preflight = head.method == Method::OPTIONS && head.headers.contains_key("access-control-request-method");
    let origin = head.headers.get("origin").and_then(|origin| origin.to_str().ok());
    match origin.filter(|_| is_preflight && fault.kind == FaultKind::MethodNotAllowed) {
        Some(origin) => foreign_page(&format!("the origin '{origin}'")),
        None => fault,
    }
}

fn foreign_page(page: &str) -> Fault {
    let message = format!("web pages of {page} may not send this request");
    Fault::new(FaultKind::Forbidden, message).with_detail("the route's cors does not list the origin")
}

/// Checks the announced type and length of a body before it is read. A body of unknown length is checked again after it
/// has been read.
///
/// # Errors
/// If the endpoint does not accept the body, or the budget for bodies is used up.
pub(super) fn check_body(
    gateway: &Gateway,
    routed: &RoutedEndpoint,
    head: &RequestHead,
) -> Result<BodyReservation, Fault> {
    // A body of unknown length may be empty and then needs no content type. A given content type must be valid.
    let has_type = announces_body(head).unwrap_or_else(|| head.headers.contains_key("content-type"));
    body_type(routed.endpoint().reads, &head.headers, has_type)?;

    let limit = max_body(gateway, &routed.route);
    let length = head.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    match length {
        Some(length) if length > limit => Err(too_large(limit)),
        length => gateway.bodies.begin(length.unwrap_or(0)),
    }
}

/// The largest body of a route, in bytes.
pub(super) fn max_body(gateway: &Gateway, route: &ServedRoute) -> usize {
    route.mounted.max_body.unwrap_or(gateway.settings().max_body)
}

pub(super) fn too_large(limit: usize) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("the body is larger than {limit} bytes"))
}

/// Checks the content type of a body, if there is one.
///
/// # Errors
/// If the body is compressed, not UTF-8, or of a type that the endpoint does not accept.
pub(super) fn body_type(accepted: MediaTypes, head: &HeaderMap, has_body: bool) -> Result<(), Fault> {
    let refused = |message: String| Err(Fault::new(FaultKind::UnsupportedMedia, message));
    if !has_body {
        return Ok(());
    }

    let codings = head.get_all("content-encoding");
    for coding in codings {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return refused("content-encoding is not supported: send the body uncompressed".to_owned());
        }
    }

    let expected = accepted.exact.first().copied().unwrap_or("application/json");
    let mut types = head.get_all("content-type");
    let content_type = match (types.next(), types.next()) {
        (None, _) => return refused(format!("content-type is missing: it must be '{expected}'")),
        (Some(_), Some(_)) => return refused(format!("content-type is given more than once: it must be '{expected}'")),
        (Some(content_type), None) => content_type.to_str().unwrap_or(""),
    };
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or("").to_ascii_lowercase();
    if !accepted.include(&media_type) {
        return refused(format!("content-type must be '{expected}', not '{media_type}'"));
    }

    let charsets = parts.filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    for charset in charsets {
        if !["utf-8", "utf8"].iter().any(|known| known.eq_ignore_ascii_case(charset)) {
            return refused(format!("charset must be utf-8, not '{charset}'"));
        }
    }
    Ok(())
}

/// True if the content type is JSON.
pub fn is_json(head: &HeaderMap) -> bool {
    let content_type = head.get("content-type").and_then(|content_type| content_type.to_str().ok()).unwrap_or("");
    exchange::is_json(&content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase())
}

/// True if a request has a body. `None` if unknown: a chunked body may be empty, and so may an HTTP/2 body without a
/// length.
fn announces_body(head: &RequestHead) -> Option<bool> {
    let length = head.headers.get("content-length");
    if head.headers.contains_key("transfer-encoding") || (head.version == Version::HTTP_2 && length.is_none()) {
        return None;
    }
    Some(length.is_some_and(|length| length.as_bytes().iter().any(|digit| *digit != b'0')))
}

/// Adds the response headers for browsers: CORS, caching, and no content sniffing.
pub(super) fn add_headers(route: Option<&ServedRoute>, request: &RequestHead, response: &mut HeaderMap) {
    const NAME: fn(&'static str) -> HeaderName = HeaderName::from_static;
    const VALUE: fn(&'static str) -> HeaderValue = HeaderValue::from_static;

    response.insert(NAME("x-content-type-options"), VALUE("nosniff"));
    if !response.contains_key("cache-control") {
        // Responses contain a conversation, or information about one.
        response.insert(NAME("cache-control"), VALUE("no-store"));
    }

    let Some(route) = route.filter(|route| !route.cors.is_empty()) else { return };
    if route.cors != Origins::Any {
        response.append(NAME("vary"), VALUE("Origin"));
    }
    let Some(origin) = request.headers.get("origin") else { return };
    if !origin.to_str().is_ok_and(|origin| route.cors.include(origin)) {
        return;
    }
    let allowed = if route.cors == Origins::Any { VALUE("*") } else { origin.clone() };
    response.insert(NAME("access-control-allow-origin"), allowed);
    if let Ok(exposed) = HeaderValue::from_str(&route.mounted.cors.expose_headers.join(", "))
        && !exposed.is_empty()
    {
        response.insert(NAME("access-control-expose-headers"), exposed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        body_type(MediaTypes::JSON, &map, true).is_ok()
    }

    #[test]
    fn a_body_must_be_uncompressed_json_with_a_content_type() {
        for (content_type, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf8\"", true),
            ("application/a2a+json", true),
            ("application/json; charset=utf-16", false),
            ("application/json; charset=iso-8859-1", false),
            ("text/plain", false),
            ("text/plain; a=application/json", false),
            ("text/json", false),
            ("image/svg+json", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=x", false),
            ("", false),
        ] {
            assert_eq!(is_accepted(&[("content-type", content_type)]), expected, "{content_type}");
        }

        let json = ("content-type", "application/json");
        assert!(
            !is_accepted(&[]) && !is_accepted(&[json, json]) && !is_accepted(&[("content-type", "text/plain"), json])
        );
        assert!(is_accepted(&[json, ("content-encoding", "identity")]));
        for coding in ["gzip", "br", "identity, gzip", "x"] {
            assert!(!is_accepted(&[json, ("content-encoding", coding)]), "{coding}");
        }
    }

    #[test]
    fn a_request_without_a_body_needs_no_content_type() {
        assert!(body_type(MediaTypes::JSON, &HeaderMap::new(), false).is_ok());
    }
}
