//! The log of each request: begun with its head, given its route and its outcome, and its id sent to the client with
//! every answer.
//!
//! Not here: the form of the log ([`crate::observe`]).

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
use super::{Gateway, Phase, base_url};
use crate::callers::Caller;
use crate::metrics::REASONS;
use crate::observe::RequestLog;
use crate::upstream::Trace;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a proxy, in bytes.
const MAX_ID: usize = 128;

/// Why a request failed, attached to its response.
struct Failure {
    code: String,
    blame: &'static str,
    /// Why credentials were refused.
    refused: Option<&'static str>,
    /// The limit that was reached.
    limit: Option<&'static str>,
}

/// Begins the log of a request and attaches it.
pub(super) fn begin(gateway: &Gateway, request: &Request) -> Arc<RequestLog> {
    let peer = ConnectionInfo::of_raw(request).peer.ip();
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_id(id));
    // Only a proxy of ours names requests: its log is searched for the same id.
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

/// The trace that a client's request is part of.
fn client_trace(headers: &HeaderMap) -> Option<Trace> {
    if !headers.contains_key("traceparent") {
        return None;
    }
    let is_of_trace = |name: &str| matches!(name, "traceparent" | "tracestate");
    let named = headers.iter().filter(|(name, _)| is_of_trace(name.as_str()));
    // A header that is no text is ignored.
    let named: Vec<(&str, &str)> =
        named.map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("\u{7f}"))).collect();
    Trace::read(named.iter().copied())
}

/// The trace that agents get: with the request's own span as the caller, if requests are traced.
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

/// The log of a request. `None` only if it did not come through the listener.
pub(super) fn get(request: &HttpRequest) -> Option<Arc<RequestLog>> {
    request.extensions().get::<Arc<RequestLog>>().cloned()
}

/// The log of a request that was begun while its client waited for `100 Continue`.
pub(super) fn of_raw(request: &Request) -> Option<Arc<RequestLog>> {
    request.extensions().get::<Arc<RequestLog>>().cloned()
}

/// Notes where a request goes.
/// `endpoint`: the path below the route, as its protocol names it; empty if the request was refused before.
pub(super) fn note_route(request: &HttpRequest, route: &ServedRoute, endpoint: &'static str) {
    if let Some(log) = get(request) {
        log.set_route(&route.scope.path, route.scope.protocol, endpoint);
    }
}

/// Notes who sent a request, if they proved it.
pub(super) fn note_caller(request: &HttpRequest, caller: &Caller) {
    if let Some(log) = get(request).filter(|_| caller.is_authenticated()) {
        log.set_caller(&Arc::from(caller.name.as_str()));
    }
}

/// Notes with a response why its request failed.
pub(super) fn note_fault(response: &mut HttpResponse, fault: &Fault) {
    let known = |detail: &str| REASONS.into_iter().find(|reason| *reason == detail);
    let failure = Failure {
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

/// Notes the outcome of a request, sends the client its id, and asks it to leave if the server drains.
pub(super) fn end(log: &RequestLog, response: &mut Response<BoxBody>, phase: Phase) {
    log.set_status(response.status().as_u16());
    if let Some(failure) = response.extensions().get::<Failure>() {
        log.set_fault(&failure.code, failure.blame);
        if let Some(reason) = failure.refused {
            log.credentials_refused(reason);
        }
        if let Some(limit) = failure.limit {
            log.limited(limit);
        }
    }

    match response.headers().get(REQUEST_ID).map(HeaderValue::to_str) {
        // The protocol gives its requests ids of its own.
        Some(Ok(id)) => log.set_id(id),
        _ => {
            if let Ok(id) = HeaderValue::from_str(&log.id()) {
                response.headers_mut().insert(REQUEST_ID, id);
            }
        }
    }
    if phase != Phase::Serving && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
}
