//! One handler for every endpoint of every protocol: read, decode, ask the engine, write.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::http::{ConnectionType, Method, StatusCode, Version};
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::StreamExt;
use interlingua_core::call::{Page, Reply};
use interlingua_core::exchange::{Caller, MediaTypes};
use interlingua_core::out::Head;
use interlingua_core::tree::{Bounds, check};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Next, Out, Owner, Request};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::bodies::{Bodies, LONG, Taken};
use super::clock::{BodyClock, Clock};
use super::guard::{self, Place};
use super::stream::Steps;
use super::unsent::{Streamed, Whole};
use super::{Gateway, Served};
use crate::clock;
use crate::engine::{Answer, Follower, ListedRun, Scope};
use crate::upstream::Trace;

/// When a client may come again that found no room.
const ROOM_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// An exchange asks at most so many things before its answer.
const MAX_CALLS: usize = 256;

/// Serves a request of an endpoint.
pub(super) async fn endpoint(
    gateway: Arc<Gateway>,
    route: Arc<Served>,
    index: usize,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let endpoint = &route.mounted.endpoints[index];
    let mut exchange = (endpoint.open)();
    if let Err(fault) = guard::judge(&gateway, Place::Endpoint(&route, endpoint), request.head()) {
        return refuse(&gateway, &route, &mut *exchange, &request, &fault);
    }
    if endpoint.websocket && request.headers().contains_key("upgrade") {
        return super::websocket::serve(&gateway, &route, index, &request, payload).await;
    }
    let limit = route.mounted.max_body.unwrap_or(gateway.settings.max_body);
    let time = gateway.settings.timeouts.body;
    let (body, taken) = match read_body(&request, payload, endpoint.reads, limit, time, &gateway.bodies).await {
        Ok(body) => body,
        Err(fault) => return refuse(&gateway, &route, &mut *exchange, &request, &fault),
    };
    let decoded = if body.len() > LONG {
        let long = decode_elsewhere(&gateway, (&route, index), exchange, &request, None, (body, taken)).await;
        exchange = long.0;
        long.1
    } else {
        let asked = Asked::new(&gateway, &route, &request, request.method().as_str());
        let decoded = asked.decode_within(bounds(&gateway, &request), &route, &mut *exchange, &body);
        drop((body, taken));
        decoded
    };
    let (call, scope) = match decoded {
        Ok(decoded) => decoded,
        Err(fault) => return fail(&route, request.head(), &mut *exchange, &fault),
    };
    // A client that leaves meanwhile has all of this dropped, which takes back what was not meant to outlive it.
    match converse(&gateway, &mut *exchange, call, &scope).await {
        Ok(Conversed::Whole(out)) if out.body.is_empty() => whole(&route, request.head(), out),
        Ok(Conversed::Whole(out)) => match Whole::new(out.body.freeze(), &gateway.unsent) {
            Some(body) => builder(&route, request.head(), &out.head).body(body),
            None => {
                let mut fault = Fault::new(FaultKind::Overloaded, "too many answers wait for clients to read them");
                fault.retry_after = Some(ROOM_AGAIN_AFTER);
                fail(&route, request.head(), &mut *exchange, &fault)
            }
        },
        Ok(Conversed::Steps { mut follower, attach }) => {
            let mut head = Head::default();
            exchange.head(&mut head);
            let mut out = Out::new();
            follower.begin(attach, |view| exchange.begin(view, &mut out));
            let steps = Steps::new(follower, exchange, out, route.heartbeat);
            let mut response = builder(&route, request.head(), &head).body(Streamed::new(steps, &gateway.unsent));
            if request.version() < Version::HTTP_11 {
                // Nothing tells such a client where a stream ends but the end of its connection.
                response.head_mut().no_chunking(true);
                response.head_mut().set_connection_type(ConnectionType::Close);
            }
            response
        }
        Err(fault) => fail(&route, request.head(), &mut *exchange, &fault),
    }
}

/// What a conversation with the engine has come to.
pub(super) enum Conversed {
    /// An answer is written.
    Whole(Out),
    /// An answer will come step by step.
    Steps { follower: Follower, attach: bool },
}

/// The bounds of a body: how much there may be in it before anything is made of it. None: it is no JSON.
fn bounds(gateway: &Gateway, request: &HttpRequest) -> Option<Bounds> {
    guard::is_json(request.headers()).then(|| json_bounds(gateway))
}

fn json_bounds(gateway: &Gateway) -> Bounds {
    let limits = &gateway.settings.limits;
    Bounds { depth: limits.json_depth, values: limits.json_values }
}

/// Reads a message of a WebSocket with an exchange: JSON, within the bounds of bodies.
pub(super) fn decode_message(
    gateway: &Gateway,
    route: &Served,
    exchange: &mut dyn Exchange,
    request: &HttpRequest,
    (method, body): (&str, &[u8]),
) -> Result<(Call, Scope), Fault> {
    Asked::new(gateway, route, request, method).decode_within(Some(json_bounds(gateway)), route, exchange, body)
}

/// Decodes a long body on a thread of its own, so that those who share this one do not wait. A message of a WebSocket is
/// a request of a method of its own, and JSON.
pub(super) async fn decode_elsewhere(
    gateway: &Gateway,
    (route, index): (&Arc<Served>, usize),
    mut exchange: Box<dyn Exchange>,
    request: &HttpRequest,
    message: Option<&str>,
    (body, taken): (Bytes, Taken),
) -> (Box<dyn Exchange>, Result<(Call, Scope), Fault>) {
    let method = message.unwrap_or_else(|| request.method().as_str());
    let asked = Asked::new(gateway, route, request, method).into_owned();
    let bounds = if message.is_some() { Some(json_bounds(gateway)) } else { bounds(gateway, request) };
    let permit = gateway.bodies.decoder().await;

    let its_route = Arc::clone(route);
    let decoding = tokio::task::spawn_blocking(move || {
        let decoded = asked.decode_within(bounds, &its_route, &mut *exchange, &body);
        // Only now: a client that has left meanwhile does not take its body along.
        drop((body, taken, permit));
        (exchange, decoded)
    });
    decoding.await.unwrap_or_else(|error| {
        let fault = Fault::new(FaultKind::Internal, "the body could not be decoded").with_detail(error);
        ((route.mounted.endpoints[index].open)(), Err(fault))
    })
}

/// Reads a request with an exchange.
pub(super) fn decode(
    gateway: &Gateway,
    route: &Served,
    exchange: &mut dyn Exchange,
    request: &HttpRequest,
    method: &str,
    body: &[u8],
) -> Result<(Call, Scope), Fault> {
    Asked::new(gateway, route, request, method).decode(route, exchange, body)
}

/// A request but for its body, as exchanges see it.
struct Asked<'a> {
    method: Cow<'a, str>,
    path: Cow<'a, str>,
    params: Vec<(String, String)>,
    query: Cow<'a, str>,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    base_url: String,
}

impl<'a> Asked<'a> {
    fn new(gateway: &Gateway, route: &Served, request: &'a HttpRequest, method: &'a str) -> Self {
        let params = request.match_info().iter();
        Self {
            path: request.path().into(),
            params: params.map(|(name, value)| (name.to_owned(), whole_segment(value))).collect(),
            ..Self::head(gateway, route, request.head(), method)
        }
    }

    /// What a head alone says, without what stood in the path's `{name}`s.
    fn head(gateway: &Gateway, route: &Served, head: &'a RequestHead, method: &'a str) -> Self {
        let headers = head.headers.iter();
        Self {
            method: method.into(),
            path: head.uri.path().into(),
            params: Vec::new(),
            query: head.uri.query().unwrap_or("").into(),
            headers: headers
                .map(|(name, value)| (name.as_str().into(), String::from_utf8_lossy(value.as_bytes())))
                .collect(),
            base_url: super::base_url::of(gateway, route, head),
        }
    }

    /// The same, to be taken to another thread.
    fn into_owned(self) -> Asked<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        Asked {
            method: own(self.method),
            path: own(self.path),
            params: self.params,
            query: own(self.query),
            headers: self.headers.into_iter().map(|(name, value)| (own(name), own(value))).collect(),
            base_url: self.base_url,
        }
    }

    /// Reads it, unless there is more in its body than there may be.
    fn decode_within(
        &self,
        bounds: Option<Bounds>,
        route: &Served,
        exchange: &mut dyn Exchange,
        body: &[u8],
    ) -> Result<(Call, Scope), Fault> {
        if let Some(fault) = bounds.and_then(|bounds| check(body, bounds).err()) {
            // How to complain may be a matter of what its head says.
            let _ = self.decode(route, exchange, b"");
            return Err(fault);
        }
        self.decode(route, exchange, body)
    }

    fn decode(&self, route: &Served, exchange: &mut dyn Exchange, body: &[u8]) -> Result<(Call, Scope), Fault> {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        let caller = Caller { owner: Owner::anonymous(), authenticated: false };
        let decoded = exchange.decode(&Request {
            method: &self.method,
            path: &self.path,
            params: &self.params,
            query: &self.query,
            headers: &headers,
            body,
            base_url: &self.base_url,
            caller: &caller,
            now: clock::now(),
            fresh: clock::new_id(),
        });
        let mut scope = route.scope.clone();
        scope.owner = caller.owner;
        scope.trace = Trace::read(headers.iter().copied()).map(Arc::new);
        if let Some(path) = &route.partition {
            scope.owner = scope.owner.on_route(path);
        }
        if let Some(tenant) = exchange.partition() {
            scope.owner = scope.owner.of_tenant(tenant);
        }
        decoded.map(|call| (call, scope))
    }
}

/// A segment of the path, decoded to its end: what could be taken for a part of the path is still encoded, so that the
/// router does not.
fn whole_segment(value: &str) -> String {
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

/// Asks the engine, as often as the exchange needs to.
pub(super) async fn converse(
    gateway: &Gateway,
    exchange: &mut dyn Exchange,
    call: Call,
    scope: &Scope,
) -> Result<Conversed, Fault> {
    let mut call = call;
    for _ in 0..MAX_CALLS {
        let answer = match gateway.engine.answer(call, scope).await {
            Ok(answer) => answer,
            Err(fault) => match (fault.kind == FaultKind::NotFound).then(|| exchange.missed(&fault)).flatten() {
                Some(instead) => {
                    call = instead;
                    continue;
                }
                None => return Err(fault),
            },
        };
        let mut out = Out::new();
        let next = match answer {
            Answer::Steps { follower, attach } => return Ok(Conversed::Steps { follower, attach }),
            Answer::Run(run) => run.view_safe(|view| exchange.reply(Reply::Run(view), &mut out)),
            Answer::Waiting(run) => run.view_safe(|view| exchange.reply(Reply::Waiting(view), &mut out)),
            Answer::Runs { runs, total, next } => {
                let runs = runs.iter().map(ListedRun::view).collect();
                exchange.reply(Reply::Runs(Page { runs, total, next }), &mut out)
            }
            Answer::Agents => exchange.reply(Reply::Agents(&scope.agents), &mut out),
            Answer::Sessions(sessions) => exchange.reply(Reply::Session(&sessions), &mut out),
            Answer::Documents(documents) => exchange.reply(Reply::Documents(&documents), &mut out),
            Answer::FetchedDocument(found) => exchange.reply(Reply::FetchedDocument(found.as_deref()), &mut out),
            Answer::Done => exchange.reply(Reply::Done, &mut out),
        };
        match next? {
            Next::Done => return Ok(Conversed::Whole(out)),
            Next::Call(again) => call = again,
        }
    }
    Err(Fault::new(FaultKind::Internal, "the request asks for too many things"))
}

async fn read_body(
    request: &HttpRequest,
    mut payload: Payload,
    reads: MediaTypes,
    limit: usize,
    time: Duration,
    bodies: &Bodies,
) -> Result<(Bytes, Taken), Fault> {
    // A body whose length is not told may be none: then it needs no type. One that is told has to be right.
    let announces = guard::announces_body(request.headers());
    let judges = announces.unwrap_or_else(|| request.headers().contains_key("content-type"));
    guard::body_type(reads, request.headers(), judges)?;

    // Before it is sent.
    let announced = announced(request.headers(), limit)?;
    let mut taken = bodies.begin(announced.unwrap_or(0))?;
    let mut body = BytesMut::new();
    let mut clock = BodyClock::new(time, Instant::now());
    loop {
        let chunk = tokio::time::timeout_at(clock.due(), payload.next()).await;
        let chunk = chunk.map_err(|_| Fault::new(FaultKind::Malformed, "the body did not come in time"))?;
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|error| Fault::new(FaultKind::Malformed, "the body broke off").with_detail(error))?;
        if body.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        taken.grow(chunk.len())?;
        clock.received(chunk.len(), Instant::now());
        body.extend_from_slice(&chunk);
    }
    if let Some(connection) = request.conn_data::<Rc<Clock>>() {
        connection.body_read();
    }
    guard::body_type(reads, request.headers(), !body.is_empty())?;
    Ok((body.freeze(), taken))
}

/// Refuses a request whose body is not read.
fn refuse(
    gateway: &Gateway,
    route: &Served,
    exchange: &mut dyn Exchange,
    request: &HttpRequest,
    fault: &Fault,
) -> HttpResponse {
    // How to complain may be a matter of what its head says.
    let _ = decode(gateway, route, exchange, request, request.method().as_str(), b"");
    fail(route, request.head(), exchange, fault)
}

/// Answers what no endpoint answers.
pub(super) fn stray(gateway: &Gateway, route: &Served, request: &HttpRequest, fault: Fault) -> HttpResponse {
    let fault = match guard::judge(gateway, Place::Below(route), request.head()) {
        // Whoever knows the path can say which methods it has.
        Err(judged) if judged.kind != fault.kind => judged,
        _ => fault,
    };
    refuse(gateway, route, &mut *(route.mounted.fallback)(), request, &fault)
}

/// Refuses by its head alone a request whose client asks whether it may send the body (`Expect: 100-continue`). `None`:
/// it may.
pub(super) fn refuse_early(gateway: &Gateway, head: &RequestHead) -> Option<HttpResponse> {
    let path = head.uri.path();
    let below = |route: &&Arc<Served>| {
        path.strip_prefix(route.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(route) = gateway.routes.iter().filter(below).max_by_key(|route| route.path.len()) else {
        return guard::judge(gateway, Place::Nowhere, head).err().map(|fault| own_fault(head, &fault));
    };

    let limit = route.mounted.max_body.unwrap_or(gateway.settings.max_body);
    let judged =
        guard::judge(gateway, Place::Below(route), head).and_then(|()| announced(&head.headers, limit).map(|_| ()));
    let fault = judged.err()?;
    let mut exchange = (route.mounted.fallback)();
    let _ = Asked::head(gateway, route, head, head.method.as_str()).decode(route, &mut *exchange, b"");
    Some(fail(route, head, &mut *exchange, &fault))
}

/// The length of a body, where the head says it.
fn announced(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, Fault> {
    let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > limit) { Err(too_large(limit)) } else { Ok(length) }
}

fn too_large(limit: usize) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("the body is larger than {limit} bytes"))
}

/// Writes a refusal.
pub(super) fn fail(route: &Served, request: &RequestHead, exchange: &mut dyn Exchange, fault: &Fault) -> HttpResponse {
    let blame = fault.kind.blame();
    if fault.logged {
        // One line for one fault: the run's has it.
    } else if blame == interlingua_core::Blame::Client {
        tracing::debug!(route = %route.path, code = fault.code(), field = fault.field.as_deref(), "{}", fault.message);
    } else {
        tracing::warn!(
            route = %route.path, protocol = route.scope.protocol, code = fault.code(), blame = blame.as_str(),
            detail = fault.detail.as_deref(), "{}", fault.message
        );
    }
    let mut out = Out::new();
    out.head.status = fault.kind.status();
    exchange.fail(fault, &mut out);
    if !fault.allow.is_empty() && out.head.get("allow").is_none() {
        out.header("allow", fault.allow.join(", "));
    }
    if let (Some(pause), None) = (fault.retry_after, out.head.get("retry-after")) {
        out.header("retry-after", pause.as_secs().max(1).to_string());
    }
    if out.head.get("x-request-id").is_none() {
        // What one person reads to another who looks into the log.
        let id = clock::new_id().to_prefixed("req_");
        tracing::debug!(route = %route.path, request = %id, code = fault.code(), "refused");
        out.header("x-request-id", id);
    }
    whole(route, request, out)
}

/// Answers where nothing is mounted, in the gateway's own words.
pub(super) fn nowhere(gateway: &Gateway, request: &HttpRequest) -> HttpResponse {
    let message = format!("nothing is mounted at '{}'", request.path());
    let fault = Fault::new(FaultKind::NoSuchPath, message);
    own_fault(request.head(), &guard::judge(gateway, Place::Nowhere, request.head()).err().unwrap_or(fault))
}

/// Answers a probe.
pub(super) fn health(gateway: &Gateway, request: &HttpRequest, status: u16, body: &serde_json::Value) -> HttpResponse {
    let mut judged = guard::judge(gateway, Place::Health, request.head());
    if judged.is_ok() && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let message = format!("'{}' is not a method of '{}'", request.method(), request.path());
        judged = Err(Fault::new(FaultKind::MethodNotAllowed, message));
    }
    match judged {
        Ok(()) => {
            let mut response = own(request.head(), status, body);
            if status == 503 {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            response
        }
        Err(mut fault) => {
            if fault.kind == FaultKind::MethodNotAllowed {
                fault.allow = vec!["GET", "HEAD"];
            }
            own_fault(request.head(), &fault)
        }
    }
}

/// A refusal of the gateway's own, where no protocol is spoken.
fn own_fault(request: &RequestHead, fault: &Fault) -> HttpResponse {
    let body = serde_json::json!({ "detail": fault.message, "code": fault.kind.code() });
    let mut response = own(request, fault.kind.status(), &body);
    if let Ok(allow) = HeaderValue::from_str(&fault.allow.join(", "))
        && fault.kind == FaultKind::MethodNotAllowed
    {
        response.headers_mut().insert(HeaderName::from_static("allow"), allow);
    }
    response
}

fn own(request: &RequestHead, status: u16, body: &serde_json::Value) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status).json(body);
    guard::headers(None, request, response.headers_mut());
    response
}

/// Answers a browser that asks whether a page may send a request.
pub(super) fn preflight(
    gateway: &Gateway,
    route: &Served,
    request: &HttpRequest,
    allow: &[&'static str],
) -> HttpResponse {
    if let Err(fault) = guard::judge(gateway, Place::Below(route), request.head()) {
        return refuse(gateway, route, &mut *(route.mounted.fallback)(), request, &fault);
    }
    let mut head = Head { status: 204, headers: Vec::new() };
    head.set("access-control-allow-headers", route.mounted.cors.allow_headers.join(", "));
    head.set("access-control-allow-methods", format!("{}, OPTIONS", allow.join(", ")));
    head.set("access-control-max-age", "600");
    builder(route, request.head(), &head).finish()
}

fn whole(route: &Served, request: &RequestHead, out: Out) -> HttpResponse {
    builder(route, request, &out.head).body(out.body.freeze())
}

fn builder(route: &Served, request: &RequestHead, head: &Head) -> HttpResponseBuilder {
    let status = if head.status == 0 { 200 } else { head.status };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 4);
    for (name, value) in &head.headers {
        // A header that is none says nothing; the rest of the answer still does.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    guard::headers(Some(route), request, &mut headers);

    let mut response = HttpResponse::build(status);
    for header in headers {
        response.append_header(header);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_router_left_encoded_is_decoded_once() {
        for (left, decoded) in [
            ("a%2Fb", "a/b"),
            ("a%2fb", "a/b"),
            ("a%2Bb+c", "a+b+c"),
            ("a%25b", "a%b"),
            ("a%252Fb", "a%2Fb"),
            ("%", "%"),
            ("ü", "ü"),
        ] {
            assert_eq!(whole_segment(left), decoded, "{left}");
        }
    }
}
