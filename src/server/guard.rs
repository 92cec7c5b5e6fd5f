//! What is judged of every request by its head alone, before a byte of its body is read: the host it names, the page it
//! comes from, and the type of its body. For endpoints, unknown paths, health and WebSockets alike.
//!
//! Why: whoever runs a gateway on their machine also opens web pages. A page of another origin must neither use a
//! gateway nor read it, and its browser helps: it says where a request comes from (`Origin`, `Sec-Fetch-Site`), which
//! name was asked for (`Host`), and asks first before it sends a body of a type that no form has.
//!
//! Not here: which hosts may be named (`hosts.rs`), and the words of a refusal, which are the protocol's.

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{Method, Version};
use interlingua_core::exchange::{self, Endpoint, MediaTypes};
use interlingua_core::{Fault, FaultKind};

use super::{Gateway, Served, base_url, hosts};
use crate::config::{Host, Origins};

/// What a request is for, as far as it matters who may make it.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// An endpoint of a route.
    Endpoint(&'a Served, &'a Endpoint),
    /// Something below a route that nothing answers.
    Below(&'a Served),
    /// `/healthz` and `/readyz`.
    Health,
    /// Nothing is mounted there.
    Nowhere,
}

/// Judges the head of a request.
///
/// # Errors
/// If it names a host that is not ours, or a web page sent it that may not use this.
pub(super) fn judge(gateway: &Gateway, place: Place<'_>, head: &RequestHead) -> Result<(), Fault> {
    let host = host(gateway, place, head)?;
    page(gateway, place, head, host.as_ref())?;

    // Nothing here repeats what it was sent, or makes tunnels.
    if head.method == Method::TRACE || head.method == Method::CONNECT {
        let message = format!("{} is answered nowhere here", head.method);
        return Err(Fault::new(FaultKind::MethodNotAllowed, message));
    }
    Ok(())
}

/// The host the client asked for: the one the request names, or as a trusted proxy tells. Both have to be ours.
fn host(gateway: &Gateway, place: Place<'_>, head: &RequestHead) -> Result<Option<Host>, Fault> {
    let bad = |message: &str| Fault::new(FaultKind::BadHead, message);
    let judge = |host: &Host| {
        if gateway.settings.hosts.include(host, matches!(place, Place::Health)) {
            return Ok(());
        }
        let message = format!("this gateway does not answer for the host '{host}'");
        let detail = format!("the name '{host}' is not in server.allowed_hosts");
        Err(Fault::new(FaultKind::Misdirected, message).with_detail(detail))
    };

    let named = base_url::named(head).map_err(bad)?;
    let named =
        named.map(|host| host.parse::<Host>().map_err(|_| bad("the request names no valid host"))).transpose()?;
    match &named {
        Some(host) => judge(host)?,
        // Probes of load balancers; browsers have not spoken it for decades.
        None if head.version < Version::HTTP_11 => {}
        None => return Err(bad("the request has no Host header")),
    }

    let told = base_url::told(gateway, head);
    let Some(mut host) = told.host else { return Ok(named) };
    judge(&host)?;
    host.port = host.port.or(told.port);
    Ok(Some(host))
}

/// The web page that sends a request, if one does: the gateway's own or one that the route lets in.
fn page(gateway: &Gateway, place: Place<'_>, head: &RequestHead, host: Option<&Host>) -> Result<(), Fault> {
    let refused = |page: &str| {
        let message = format!("web pages of {page} may not use this");
        Err(Fault::new(FaultKind::Forbidden, message).with_detail("the route's cors does not list the origin"))
    };
    let allowed = |origin: &str| match place {
        Place::Endpoint(route, _) | Place::Below(route) => route.cors.include(origin),
        Place::Health | Place::Nowhere => false,
    };

    let mut origins = head.headers.get_all("origin");
    if let Some(origin) = origins.next() {
        let Some(origin) = origin.to_str().ok().filter(|_| origins.next().is_none()) else {
            return refused("an unreadable origin");
        };
        let is_own = || {
            origin.parse().is_ok_and(|origin| {
                gateway.settings.hosts.is_public(&origin) || host.is_some_and(|host| hosts::is_same(&origin, host))
            })
        };
        if is_own() || allowed(origin) {
            return Ok(());
        }
        return refused(&format!("the origin '{origin}'"));
    }

    // Pictures, scripts, frames and links carry no Origin. No page can read their answers, but it could have them made.
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_foreign = matches!(site, Some(b"cross-site" | b"same-site"));
    let is_link = head.headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document")
        && matches!(head.method, Method::GET | Method::HEAD);
    let is_public = match place {
        Place::Endpoint(_, endpoint) => endpoint.public,
        Place::Health => true,
        Place::Below(_) | Place::Nowhere => false,
    };
    if is_foreign && !(is_link && is_public) && !allowed("null") {
        return refused("other sites");
    }
    Ok(())
}

/// Judges the type of a body, if there is one.
///
/// # Errors
/// If it is packed, in other letters than UTF-8, or of a type that the endpoint does not read.
pub(super) fn body_type(reads: MediaTypes, head: &HeaderMap, has_body: bool) -> Result<(), Fault> {
    let refused = |message: String| Err(Fault::new(FaultKind::UnsupportedMedia, message));
    if !has_body {
        return Ok(());
    }

    let codings = head.get_all("content-encoding");
    for coding in codings {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return refused("packed bodies are not read: send it without content-encoding".to_owned());
        }
    }

    let wanted = reads.exact.first().copied().unwrap_or("application/json");
    let mut types = head.get_all("content-type");
    let told = match (types.next(), types.next()) {
        (None, _) => return refused(format!("content-type must be '{wanted}', not nothing")),
        (Some(_), Some(_)) => return refused(format!("content-type must be '{wanted}', and be there once")),
        (Some(told), None) => told.to_str().unwrap_or(""),
    };
    let mut parts = told.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or("").to_ascii_lowercase();
    if !reads.include(&media_type) {
        return refused(format!("content-type must be '{wanted}', not '{media_type}'"));
    }

    let charsets = parts.filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    for charset in charsets {
        if !["utf-8", "utf8"].iter().any(|known| known.eq_ignore_ascii_case(charset)) {
            return refused(format!("bodies are read as UTF-8, not as '{charset}'"));
        }
    }
    Ok(())
}

/// Whether a body says that it is JSON.
pub(super) fn is_json(head: &HeaderMap) -> bool {
    let told = head.get("content-type").and_then(|told| told.to_str().ok()).unwrap_or("");
    exchange::is_json(&told.split(';').next().unwrap_or("").trim().to_ascii_lowercase())
}

/// Whether a request announces a body. `None`: it may have one of any length, or of none.
pub(super) fn announces_body(head: &HeaderMap) -> Option<bool> {
    if head.contains_key("transfer-encoding") {
        return None;
    }
    Some(head.get("content-length").is_some_and(|length| length.as_bytes().iter().any(|digit| *digit != b'0')))
}

/// Adds to an answer what browsers have to know: what the page may read, and that nothing is what it does not say.
pub(super) fn headers(route: Option<&Served>, request: &RequestHead, answer: &mut HeaderMap) {
    const NAME: fn(&'static str) -> HeaderName = HeaderName::from_static;
    const VALUE: fn(&'static str) -> HeaderValue = HeaderValue::from_static;

    answer.insert(NAME("x-content-type-options"), VALUE("nosniff"));
    if !answer.contains_key("cache-control") {
        // Answers are somebody's conversation, or about it.
        answer.insert(NAME("cache-control"), VALUE("no-store"));
    }

    let Some(route) = route.filter(|route| !route.cors.is_empty()) else { return };
    if route.cors != Origins::Any {
        answer.append(NAME("vary"), VALUE("Origin"));
    }
    let Some(origin) = request.headers.get("origin") else { return };
    if !origin.to_str().is_ok_and(|origin| route.cors.include(origin)) {
        return;
    }
    let allowed = if route.cors == Origins::Any { VALUE("*") } else { origin.clone() };
    answer.insert(NAME("access-control-allow-origin"), allowed);
    if let Ok(exposed) = HeaderValue::from_str(&route.mounted.cors.expose_headers.join(", "))
        && !exposed.is_empty()
    {
        answer.insert(NAME("access-control-expose-headers"), exposed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        body_type(MediaTypes::JSON, &map, true).is_ok()
    }

    #[test]
    fn a_body_has_to_be_plain_json_and_say_so() {
        for (told, wanted) in [
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
            assert_eq!(judged(&[("content-type", told)]), wanted, "{told}");
        }
        let json = ("content-type", "application/json");
        assert!(!judged(&[]) && !judged(&[json, json]) && !judged(&[("content-type", "text/plain"), json]));
        assert!(judged(&[json, ("content-encoding", "identity")]));
        for packed in ["gzip", "br", "identity, gzip", "x"] {
            assert!(!judged(&[json, ("content-encoding", packed)]), "{packed}");
        }
    }

    #[test]
    fn what_has_no_body_needs_no_type() {
        assert!(body_type(MediaTypes::JSON, &HeaderMap::new(), false).is_ok());
    }
}
