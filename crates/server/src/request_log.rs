//! The log of each request: starts with the request head, and records route, caller and outcome. Each response has the
//! id of its log in `x-request-id`.
//!
//! Not here: the form of the log ([`interlingua_observe`]).

use std::sync::Arc;

use actix_http::{Request, Response};
use actix_web::HttpMessage;
use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode, Version};
use interlingua_core::{Fault, FaultKind, network};

use super::connection::ConnectionInfo;
use super::served::ServedRoute;
use super::{Gateway, ServerPhase, base_url};
use interlingua_callers::Caller;
use interlingua_observe::RequestLog;
use interlingua_observe::metrics::REASONS;
use interlingua_upstream::Trace;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest request id that is accepted from a proxy, in bytes.
const MAX_ID: usize = 128;

/// A response extension: the reason of a failed request.
struct ResponseFailure {
    code: String,
    blame: &'static str,
    /// The reason why credentials were refused. `None`: they were not.
    refused: Option<&'static str>,
    /// The exceeded limit. `None`: another fault.
    limit: Option<&'static str>,
}

/// Starts the log of a request and stores it in the request's extensions.
pub(super) fn begin(gateway: &Gateway, request: &Request) -> Arc<RequestLog> {
    let peer = ConnectionInfo::of_raw(request).peer.ip();
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_id(id));
    // Accept ids from trusted proxies only: then the logs of proxy and gateway have the same id.
    let given = given.filter(|_| {
        let settings = gateway.settings();
        settings.trusted_proxies.iter().any(|proxy| network::contains(proxy, peer))
    });

    let observer = gateway.observer.load_full();
    let path = request.head().uri.path();
    let log = RequestLog::begin(observer, request.head().method.as_str(), path, given.map(str::to_owned));
    log.set_client(base_url::client_address(gateway, request.head(), peer).unwrap_or(peer));
    log.set_connection(version(request.head().version), ConnectionInfo::of_raw(request).tls.is_some());
    log.trace(|| client_trace(request.headers()).map(|trace| trace.ids()));
    request.extensions_mut().insert(Arc::clone(&log));
    log
}

/// The trace context of a client's request. `None` without a valid one.
fn client_trace(headers: &HeaderMap) -> Option<Trace> {
    if !headers.contains_key("traceparent") {
        return None;
    }
    let is_of_trace = |name: &str| matches!(name, "traceparent" | "tracestate");
    let named = headers.iter().filter(|(name, _)| is_of_trace(name.as_str()));
    // A value with bytes other than text becomes DEL, which the parser rejects.
    let named: Vec<(&str, &str)> =
        named.map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("\u{7f}"))).collect();
    Trace::read(named.iter().copied())
}

/// The trace context for requests to agents. If requests are traced, its parent is the span of this request; otherwise
/// the client's context is passed on.
pub(super) fn trace_of(log: Option<&RequestLog>, headers: &HeaderMap) -> Option<Arc<Trace>> {
    let client = client_trace(headers);
    let trace = match log.and_then(RequestLog::span) {
        Some(span) => client
            .filter(|client| client.ids().0 == span.trace)
            .map(|client| client.child(span.span))
            .or_else(|| Some(Trace::new(span.trace, span.span, span.sampled))),
        None => client,
    };
    trace.map(Arc::new)
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

fn is_id(id: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(is_fine)
}

/// The log of a request. `None` only if the request did not arrive through the listener.
pub(super) fn get(request: &HttpRequest) -> Option<Arc<RequestLog>> {
    request.extensions().get::<Arc<RequestLog>>().cloned()
}

/// The log that was started while the client waited for `100 Continue`, if any.
pub(super) fn of_raw(request: &Request) -> Option<Arc<RequestLog>> {
    request.extensions().get::<Arc<RequestLog>>().cloned()
}

/// Records the route of a request. `endpoint`: the path pattern of the endpoint below the route; empty if the request
/// was refused before.
pub(super) fn record_route(request: &HttpRequest, route: &ServedRoute, endpoint: &'static str) {
    if let Some(log) = get(request) {
        log.set_route(&route.scope.path, route.scope.protocol, endpoint);
    }
}

/// Records the caller of a request, if it is authenticated.
pub(super) fn record_caller(request: &HttpRequest, caller: &Caller) {
    if let Some(log) = get(request).filter(|_| caller.is_authenticated()) {
        log.set_caller(&Arc::from(caller.name.as_str()));
    }
}

/// Stores the reason of a failed request in the extensions of its response.
pub(super) fn record_fault(response: &mut HttpResponse, fault: &Fault) {
    let known = |detail: &str| REASONS.into_iter().find(|reason| *reason == detail);
    let failure = ResponseFailure {
        code: fault.code().to_owned(),
        blame: fault.kind.blame().as_str(),
        refused: (fault.kind == FaultKind::Unauthenticated)
            .then(|| fault.detail.as_deref().and_then(known).unwrap_or("other")),
        limit: match fault.kind {
            FaultKind::RateLimited => Some(fault.limit.as_ref().map_or("rate", |limit| limit.name)),
            FaultKind::Overloaded => Some("overload"),
            FaultKind::TooLarge => Some("body"),
            _ => None,
        },
    };
    response.extensions_mut().insert(failure);
}

/// Records the outcome of a request and adds its id to the response. While the server drains, the response closes its
/// connection.
pub(super) fn end(log: &RequestLog, response: &mut Response<BoxBody>, phase: ServerPhase) {
    log.set_status(response.status().as_u16());
    if let Some(failure) = response.extensions().get::<ResponseFailure>() {
        log.set_fault(&failure.code, failure.blame);
        if let Some(reason) = failure.refused {
            log.credentials_refused(reason);
        }
        if let Some(limit) = failure.limit {
            log.limited(limit);
        }
    }

    match response.headers().get(REQUEST_ID).map(HeaderValue::to_str) {
        // The protocol has request ids of its own.
        Some(Ok(id)) => log.set_id(id),
        _ => {
            if let Ok(id) = HeaderValue::from_str(&log.id()) {
                response.headers_mut().insert(REQUEST_ID, id);
            }
        }
    }
    if phase != ServerPhase::Serving && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
}
