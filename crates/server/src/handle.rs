//! The handler of all endpoints of all protocols: reads the request, decodes it, calls the engine, writes the response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::http::{ConnectionType, StatusCode, Version};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::StreamExt;
use interlingua_core::exchange::Caller;
use interlingua_core::out::Head;
use interlingua_core::seal::Sealer;
use interlingua_core::tree::{Bounds, check};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Next, Out, Request, RunId};
use tokio::time::Instant;

use super::access::{self, AdmittedRequest};
use super::bodies::{BodyReservation, LARGE_BODY};
use super::check::{RefusedRequest, Reporter};
use super::clock::BodyClock;
use super::connection::info_of;
use super::guard;
use super::replies::{ReplyOutcome, StreamSource, reply};
use super::routes::RoutedEndpoint;
use super::stream::Steps;
use super::trailers::Trailers;
use super::unsent::{CompleteBody, StreamBody};
use super::{Gateway, ServedRoute, request_log};
use interlingua_base::chunks::ChunkBuffer;
use interlingua_base::clock;
use interlingua_callers as callers;
use interlingua_engine::Scope;
use interlingua_observe::RequestLog;
use interlingua_observe::metrics::OpenStream;
use interlingua_upstream::Trace;

/// The `Retry-After` of a request that is refused because too many unread responses are buffered.
const UNSENT_RETRY_AFTER: Duration = Duration::from_secs(5);
/// The `WWW-Authenticate` header for requests without valid credentials.
const CHALLENGE: &str = "Bearer realm=\"interlingua\"";
/// The maximum number of engine calls in one exchange.
const MAX_CALLS: usize = 256;

/// Answers a request to an endpoint. Its head has passed the checks.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    routed: Arc<RoutedEndpoint>,
    admitted: AdmittedRequest,
    body: BodyReservation,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let (route, params) = (&routed.route, &routed.params);
    let (body, reservation) = match read_body(&gateway, &routed, body, &request, payload).await {
        Ok(body) => body,
        Err(fault) => {
            return refuse(&gateway, request.head(), &RefusedRequest { reporter: Reporter::Endpoint(routed), fault });
        }
    };

    let mut exchange = (routed.endpoint().open)();

    let decoded = if body.len() > LARGE_BODY {
        let caller = &admitted.caller;
        let decoding = decode_blocking(&gateway, &routed, exchange, &request, None, caller, (body, reservation));
        let (returned, decoded) = Box::pin(decoding).await;
        exchange = returned;
        decoded
    } else {
        let parts = RequestParts::new(&gateway, route, params, request.head(), request.method().as_str())
            .with_request(&request, &admitted.caller);
        let decoded = parts.decode_within(bounds(&gateway, &request), route, &mut *exchange, &body);
        drop((body, reservation));
        decoded
    };
    let (call, scope) = match decoded {
        Ok(decoded) => decoded,
        Err(fault) => return fail(route, request.head(), &mut *exchange, &fault),
    };

    // If the client disconnects, this future is dropped, which cancels everything that must not outlive the request.
    match run_exchange(&gateway, &mut *exchange, call, &scope).await {
        Ok(ExchangeOutcome::Complete(out)) if out.body.is_empty() => complete(route, request.head(), out),
        Ok(ExchangeOutcome::Complete(out)) => match CompleteBody::new(out.body.freeze(), &gateway.unsent) {
            Some(body) => {
                let mut response = builder(route, request.head(), &out.head).body(body);
                add_trailers(&mut response, out.trailers);
                response
            }
            None => {
                let mut fault =
                    Fault::new(FaultKind::Overloaded, "too many responses are waiting for clients to read them");
                fault.retry_after = Some(UNSENT_RETRY_AFTER);
                fail(route, request.head(), &mut *exchange, &fault)
            }
        },
        // In a box of its own: while the agent has not answered, the request needs no memory for its stream.
        Ok(ExchangeOutcome::Stream(source)) => {
            Box::pin(stream(&gateway, route, &request, exchange, (source, scope), admitted)).await
        }
        Err(fault) => fail(route, request.head(), &mut *exchange, &fault),
    }
}

/// A response extension: the run that the response streams first, or would stream if it were not 204.
pub struct StreamedRun(pub RunId);

/// Streams a response, or answers 204 if a resuming client already has all events.
async fn stream(
    gateway: &Gateway,
    route: &ServedRoute,
    request: &HttpRequest,
    mut exchange: Box<dyn Exchange>,
    (source, scope): (StreamSource, Scope),
    admitted: AdmittedRequest,
) -> HttpResponse {
    let mut head = Head::default();
    exchange.head(&mut head);
    let resumes = exchange.resumes();
    let run = source.run();
    let open = open_stream(gateway, route);
    let revoked = access::revoked(gateway, route, &admitted.caller, run.as_ref());
    let run = run.map(|run| StreamedRun(run.id()));
    let steps = Steps::new((source, gateway.engine.clone(), scope), exchange, route.heartbeat, open);
    let trailers = Trailers::default();
    let mut steps =
        steps.until_revoked(revoked).with_request_log(request_log::get(request)).with_trailers(trailers.clone());
    if resumes && steps.wait_exhausted().await {
        let mut response = builder(route, request.head(), &Head { status: 204, ..Head::default() }).finish();
        run.map(|run| response.extensions_mut().insert(run));
        return response;
    }

    let body = StreamBody::new(steps, &gateway.unsent, admitted.permits);
    let mut response = builder(route, request.head(), &head).body(body);
    run.map(|run| response.extensions_mut().insert(run));
    response.extensions_mut().insert(trailers);
    if request.version() < Version::HTTP_11 {
        // HTTP/1.0 has no chunked encoding: the stream ends with the connection.
        response.head_mut().no_chunking(true);
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

/// Counts a stream of a route until it is dropped.
pub(super) fn open_stream(gateway: &Gateway, route: &ServedRoute) -> OpenStream {
    gateway.observer.load().metrics().open_stream(&route.scope.path, route.scope.protocol)
}

/// The outcome of an exchange with the engine.
pub(super) enum ExchangeOutcome {
    /// A complete response.
    Complete(Out),
    /// A response that is streamed.
    Stream(StreamSource),
}

/// The limits on a JSON body, checked before decoding. `None` if the body is not JSON.
fn bounds(gateway: &Gateway, request: &HttpRequest) -> Option<Bounds> {
    guard::is_json(request.headers()).then(|| json_bounds(gateway))
}

fn json_bounds(gateway: &Gateway) -> Bounds {
    let limits = gateway.settings().limits;
    Bounds { depth: limits.json_depth, values: limits.json_values }
}

/// Decodes a WebSocket message as JSON, within the limits on JSON bodies.
pub(super) fn decode_message(
    gateway: &Gateway,
    routed: &RoutedEndpoint,
    exchange: &mut dyn Exchange,
    request: &HttpRequest,
    caller: &Arc<callers::Caller>,
    (method, body): (&str, &[u8]),
) -> Result<(Call, Scope), Fault> {
    let parts =
        RequestParts::new(gateway, &routed.route, &routed.params, request.head(), method).with_request(request, caller);
    parts.decode_within(Some(json_bounds(gateway)), &routed.route, exchange, body)
}

/// Decodes a large body on a blocking thread, so that other requests of this worker do not wait. `message`: the method
/// of a WebSocket message, which is always JSON; `None` for a request body.
pub(super) async fn decode_blocking(
    gateway: &Gateway,
    routed: &Arc<RoutedEndpoint>,
    mut exchange: Box<dyn Exchange>,
    request: &HttpRequest,
    message: Option<&str>,
    caller: &Arc<callers::Caller>,
    (body, reservation): (Bytes, BodyReservation),
) -> (Box<dyn Exchange>, Result<(Call, Scope), Fault>) {
    let method = message.unwrap_or_else(|| request.method().as_str());
    let parts = RequestParts::new(gateway, &routed.route, &routed.params, request.head(), method)
        .with_request(request, caller)
        .into_owned();
    let bounds = if message.is_some() { Some(json_bounds(gateway)) } else { bounds(gateway, request) };
    let permit = gateway.bodies.decoder().await;

    let own_route = Arc::clone(&routed.route);
    let decoding = tokio::task::spawn_blocking(move || {
        let decoded = parts.decode_within(bounds, &own_route, &mut *exchange, &body);
        // Keep the reservation until here even if the client has disconnected, because the body is in memory until now.
        drop((body, reservation, permit));
        (exchange, decoded)
    });
    decoding.await.unwrap_or_else(|error| {
        let fault = Fault::new(FaultKind::Internal, "the body could not be decoded").with_source(error);
        ((routed.endpoint().open)(), Err(fault))
    })
}

/// The parts of a request, except its body, that an exchange decodes.
struct RequestParts<'a> {
    method: Cow<'a, str>,
    path: Cow<'a, str>,
    params: Cow<'a, [(String, String)]>,
    query: Cow<'a, str>,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    base_url: String,
    sealer: Sealer,
    caller: Arc<callers::Caller>,
    log: Option<Arc<RequestLog>>,
    /// The trace context for requests to agents.
    trace: Option<Arc<Trace>>,
}

impl<'a> RequestParts<'a> {
    fn new(
        gateway: &Gateway,
        route: &ServedRoute,
        params: &'a [(String, String)],
        head: &'a RequestHead,
        method: &'a str,
    ) -> Self {
        let headers = head.headers.iter();
        Self {
            method: method.into(),
            path: head.uri.path().into(),
            params: params.into(),
            query: head.uri.query().unwrap_or("").into(),
            headers: headers
                .map(|(name, value)| (name.as_str().into(), String::from_utf8_lossy(value.as_bytes())))
                .collect(),
            base_url: super::base_url::of_mount(gateway, route, head),
            sealer: gateway.engine.sealer().clone(),
            caller: gateway.callers.anonymous(),
            log: None,
            trace: None,
        }
    }

    /// Sets the caller, the log and the trace. Without this, the caller is anonymous.
    fn with_request(self, request: &HttpRequest, caller: &Arc<callers::Caller>) -> Self {
        let log = request_log::get(request);
        let trace = request_log::trace_of(log.as_deref(), request.headers());
        Self { caller: Arc::clone(caller), log, trace, ..self }
    }

    /// Clones all borrowed parts, to move them to another thread.
    fn into_owned(self) -> RequestParts<'static> {
        fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }

        RequestParts {
            method: owned(self.method),
            path: owned(self.path),
            params: Cow::Owned(self.params.into_owned()),
            query: owned(self.query),
            headers: self.headers.into_iter().map(|(name, value)| (owned(name), owned(value))).collect(),
            base_url: self.base_url,
            sealer: self.sealer,
            caller: self.caller,
            log: self.log,
            trace: self.trace,
        }
    }

    /// Decodes the request if its body is within `bounds`.
    fn decode_within(
        &self,
        bounds: Option<Bounds>,
        route: &ServedRoute,
        exchange: &mut dyn Exchange,
        body: &[u8],
    ) -> Result<(Call, Scope), Fault> {
        if let Some(fault) = bounds.and_then(|bounds| check(body, bounds).err()) {
            self.read_head(exchange);
            return Err(fault);
        }
        self.decode(route, exchange, body)
    }

    /// Lets the exchange choose the form of a refusal by the head of the request.
    fn read_head(&self, exchange: &mut dyn Exchange) {
        self.with_body(b"", |request| exchange.read_head(request));
    }

    fn with_body<T>(&self, body: &[u8], read: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        let caller = Caller { owner: self.caller.owner.clone(), authenticated: self.caller.is_authenticated() };
        read(&Request {
            method: &self.method,
            path: &self.path,
            params: &self.params,
            query: &self.query,
            headers: &headers,
            body,
            base_url: &self.base_url,
            caller: &caller,
            now: clock::now(),
            new_id: clock::new_id(),
            sealer: &self.sealer,
        })
    }

    fn decode(&self, route: &ServedRoute, exchange: &mut dyn Exchange, body: &[u8]) -> Result<(Call, Scope), Fault> {
        let (decoded, forwarded) = self.with_body(body, |request| {
            (exchange.decode(request), route.scope.forwarded.read(request.headers.iter().copied()))
        });

        let mut scope = route.scope.clone();
        scope.owner = self.caller.owner.clone();
        scope.caller = Arc::clone(&self.caller);
        scope.request.clone_from(&self.log);
        scope.agents = scope.agents.of_caller(&self.caller, scope.protocol);
        scope.trace.clone_from(&self.trace);
        scope.forwarded = forwarded;
        if let Some(path) = &route.partition {
            scope.owner = scope.owner.on_route(path);
        }
        if let Some(tenant) = exchange.partition() {
            scope.owner = scope.owner.of_tenant(tenant);
        }
        decoded.map(|call| (call, scope))
    }
}

/// Calls the engine until the exchange has its response or a stream. Records the losses of a complete response or a
/// fault in the request log; a stream records its losses at its end.
pub(super) async fn run_exchange(
    gateway: &Gateway,
    exchange: &mut dyn Exchange,
    call: Call,
    scope: &Scope,
) -> Result<ExchangeOutcome, Fault> {
    let outcome = call_engine(gateway, exchange, call, scope).await;
    if let (Some(log), Ok(ExchangeOutcome::Complete(_)) | Err(_)) = (&scope.request, &outcome) {
        log.set_losses(exchange.losses());
    }
    outcome
}

async fn call_engine(
    gateway: &Gateway,
    exchange: &mut dyn Exchange,
    call: Call,
    scope: &Scope,
) -> Result<ExchangeOutcome, Fault> {
    let mut call = call;
    for _ in 0..MAX_CALLS {
        let answer = match gateway.engine.answer(call, scope).await {
            Ok(answer) => answer,
            Err(fault) => match (fault.kind == FaultKind::NotFound).then(|| exchange.on_not_found(&fault)).flatten() {
                Some(next_call) => {
                    call = next_call;
                    continue;
                }
                None => return Err(fault),
            },
        };
        let mut out = Out::new();
        match reply(exchange, answer, scope, &mut out)? {
            ReplyOutcome::Stream(source) => return Ok(ExchangeOutcome::Stream(source)),
            ReplyOutcome::Next(Next::Done) => return Ok(ExchangeOutcome::Complete(out)),
            ReplyOutcome::Next(Next::Call(next_call)) => call = next_call,
        }
    }

    Err(Fault::new(FaultKind::Internal, "the request needs too many engine calls"))
}

async fn read_body(
    gateway: &Gateway,
    routed: &RoutedEndpoint,
    mut reservation: BodyReservation,
    request: &HttpRequest,
    mut payload: Payload,
) -> Result<(Bytes, BodyReservation), Fault> {
    let limit = guard::max_body(gateway, &routed.route);
    let mut body = ChunkBuffer::default();
    let mut clock = BodyClock::new(gateway.settings().timeouts.body, Instant::now());
    loop {
        let chunk = tokio::time::timeout_at(clock.deadline(), payload.next()).await;
        let chunk = chunk.map_err(|_| {
            info_of(request).clock.on_body_late();
            Fault::new(FaultKind::Malformed, "the body did not arrive in time")
        })?;
        let Some(chunk) = chunk else { break };
        let chunk =
            chunk.map_err(|error| Fault::new(FaultKind::Malformed, "the body ended early").with_detail(error))?;
        if body.len() + chunk.len() > limit {
            return Err(guard::too_large(limit));
        }
        reservation.grow(chunk.len())?;
        clock.received(chunk.len(), Instant::now());
        body.push(chunk);
    }
    let body = body.into_bytes();
    if let Some(log) = request_log::get(request) {
        log.received(body.len() as u64);
    }
    info_of(request).clock.on_body_end();
    guard::body_type(routed.endpoint().reads, request.headers(), !body.is_empty())?;
    Ok((body, reservation))
}

/// Answers a request that was refused before its body was read, in the format of its protocol.
pub(super) fn refuse(gateway: &Gateway, head: &RequestHead, refusal: &RefusedRequest) -> HttpResponse {
    let (route, params, mut exchange) = match &refusal.reporter {
        Reporter::Endpoint(routed) => (&routed.route, &routed.params[..], (routed.endpoint().open)()),
        Reporter::Route(route) => (route, &[][..], (route.mounted.fallback)()),
        Reporter::Gateway => return gateway_fault(head, &refusal.fault),
    };

    let parts = RequestParts::new(gateway, route, params, head, head.method.as_str());
    parts.read_head(&mut *exchange);
    let mut response = fail(route, head, &mut *exchange, &refusal.fault);
    if let Reporter::Endpoint(routed) = &refusal.reporter
        && guard::check_version(routed, head).is_err()
    {
        *response.status_mut() = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
    }
    response
}

/// Logs a fault and writes it as the response.
pub(super) fn fail(
    route: &ServedRoute,
    request: &RequestHead,
    exchange: &mut dyn Exchange,
    fault: &Fault,
) -> HttpResponse {
    let blame = fault.kind.blame();
    if fault.logged {
        // The run has logged this fault already.
    } else if blame == interlingua_core::Blame::Client {
        tracing::debug!(
            route = %route.path, code = fault.code(), field = fault.field.as_deref(),
            detail = fault.detail.as_deref(), "{}", fault.message
        );
    } else {
        tracing::warn!(
            route = %route.path, protocol = route.scope.protocol, code = fault.code(), blame = blame.as_str(),
            detail = fault.detail.as_deref(), "{}", fault.message
        );
    }
    let mut out = Out::new();
    out.head.status = fault.kind.status();
    exchange.fail(fault, &mut out);
    out.fault_headers(fault);
    if fault.kind == FaultKind::Unauthenticated && out.head.get("www-authenticate").is_none() {
        // Missing and wrong credentials have the same challenge (RFC 6750, section 3).
        out.head.set("www-authenticate", CHALLENGE);
    }

    let mut response = complete(route, request, out);
    access::add_headers(route, fault.limit.as_deref(), response.headers_mut());
    request_log::record_fault(&mut response, fault);
    response
}

/// Answers a health check.
pub(super) fn health(request: &HttpRequest, status: u16, body: &serde_json::Value) -> HttpResponse {
    let mut response = gateway_response(request.head(), status, body);
    if status == 503 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

/// A fault in the gateway's own format, for paths without a protocol.
fn gateway_fault(request: &RequestHead, fault: &Fault) -> HttpResponse {
    let body = serde_json::json!({ "detail": fault.message, "code": fault.kind.code() });
    let mut response = gateway_response(request, fault.kind.status(), &body);
    request_log::record_fault(&mut response, fault);
    if let Ok(allow) = HeaderValue::from_str(&fault.allow.join(", "))
        && fault.kind == FaultKind::MethodNotAllowed
    {
        response.headers_mut().insert(HeaderName::from_static("allow"), allow);
    }

    response
}

fn gateway_response(request: &RequestHead, status: u16, body: &serde_json::Value) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status).json(body);
    guard::add_headers(None, request, response.headers_mut());
    response
}

/// Answers a CORS preflight request from a page that may use the route.
pub(super) fn preflight(route: &ServedRoute, request: &HttpRequest, allow: &[&'static str]) -> HttpResponse {
    let mut head = Head { status: 204, headers: Vec::new() };
    let mut allowed = route.mounted.cors.allow_headers.join(", ");
    if route.auth.keys && !route.mounted.cors.allow_headers.iter().any(|header| header == "*") {
        allowed.push_str(", x-api-key");
    }
    head.set("access-control-allow-headers", allowed);
    head.set("access-control-allow-methods", format!("{}, OPTIONS", allow.join(", ")));
    head.set("access-control-max-age", "600");
    builder(route, request.head(), &head).finish()
}

fn complete(route: &ServedRoute, request: &RequestHead, out: Out) -> HttpResponse {
    let mut response = builder(route, request, &out.head).body(out.body.freeze());
    add_trailers(&mut response, out.trailers);
    response
}

fn add_trailers(response: &mut HttpResponse, trailers: Vec<(Cow<'static, str>, String)>) {
    if !trailers.is_empty() {
        response.extensions_mut().insert(Trailers::new(trailers));
    }
}

fn builder(route: &ServedRoute, request: &RequestHead, head: &Head) -> HttpResponseBuilder {
    let status = if head.status == 0 { 200 } else { head.status };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = HeaderMap::with_capacity(head.headers.len() + 4);
    for (name, value) in &head.headers {
        // Skip invalid headers: the rest of the response is still useful.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    guard::add_headers(Some(route), request, &mut headers);

    let mut response = HttpResponse::build(status);
    for header in headers {
        response.append_header(header);
    }
    response
}
