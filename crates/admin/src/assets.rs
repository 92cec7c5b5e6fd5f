//! Serves the files of the console, with a policy that blocks content of other origins. The files need no credentials,
//! because they contain no data.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::console;

/// The content security policy: scripts and styles of this listener only, no frames, no forms, and only lit-html may
/// write to DOM sinks.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
    media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lit-html";

/// True if the console has a file at a path.
pub(super) fn has(path: &str) -> bool {
    console::find(path.trim_start_matches('/')).is_some()
}

/// The file at a path, if it exists.
pub(super) fn serve(path: &str, headers: &HeaderMap) -> Option<HttpResponse> {
    let asset = console::find(path.trim_start_matches('/'))?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known = text("if-none-match").split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.etag);

    let mut response = HttpResponse::build(if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    response.insert_header(("etag", asset.etag.as_str()));
    // Revalidated each time, so that a new version never mixes with cached files.
    response.insert_header(("cache-control", "no-cache"));
    response.insert_header(("vary", "accept-encoding"));
    if is_known {
        return Some(response.finish());
    }
    response.insert_header(("content-type", asset.media_type));
    match asset.gzip.filter(|_| accepts_gzip(text("accept-encoding"))) {
        Some(packed) => Some(response.insert_header(("content-encoding", "gzip")).body(packed)),
        None => Some(response.body(asset.bytes)),
    }
}

fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// Adds the security headers of every response of the listener.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}
