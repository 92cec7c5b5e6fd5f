//! Endpoints over WebSocket: every text message is a request, and every line written by the exchange is one message.
//!
//! As many messages of a connection are answered at the same time as [`WebSocketRules::parallel`] says, and one more
//! can be queued. The connection caches the results of requests that are not stored, for later requests. Closing the
//! connection has the same effect on a run as closing a stream. Not here: the parsing of frames ([`super::messages`]).

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Version};
use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse};
use actix_ws::{CloseCode, CloseReason, MessageStream, Session};
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use interlingua_core::exchange::WebSocketRules;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::access::{self, AdmittedRequest};
use super::bodies::{BodyReservation, LARGE_BODY};
use super::check::{RefusedRequest, Reporter};
use super::connection::info_of;
use super::guard;
use super::handle::{self, ExchangeOutcome};
use super::messages::{MessageReader, ReceiveEnd, ReceivedMessage};
use super::routes::RoutedEndpoint;
use super::slots::{ResourceSlot, SlotOwner};
use super::stream::Steps;
use super::{Gateway, ServedRoute, ServerPhase, base_url, request_log};
use interlingua_callers::{Caller, Permit, Use};
use interlingua_engine::{ConnectionCache, Scope};
use interlingua_observe::RequestLog;

/// The method of requests over WebSocket, as exchanges see it.
const METHOD: &str = "WEBSOCKET";
/// The logged status of requests over WebSocket: the status of the handshake.
const SWITCHING_PROTOCOLS: u16 = 101;
/// The header with the version of the WebSocket protocol.
const VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
const KNOWN_VERSION: HeaderValue = HeaderValue::from_static("13");
/// The close reason if the caller may no longer use the connection.
const REVOKED: &str = "credentials are no longer valid";

/// Serves a WebSocket connection.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    routed: &Arc<RoutedEndpoint>,
    rules: &WebSocketRules,
    admitted: AdmittedRequest,
    request: &HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let route = &routed.route;
    if let Some(refused) = refuse_version(gateway, route, request) {
        return refused;
    }
    let limit = guard::max_body(gateway, route);
    let counted = match count(gateway, &admitted.caller, request) {
        Ok(counted) => counted,
        Err(fault) => return refuse(gateway, route, request, fault),
    };

    match handshake(request).await {
        Ok((response, session, lost)) => {
            let interval = gateway.settings().timeouts.ping;
            let mut ping = tokio::time::interval_at(Instant::now() + interval, interval);
            ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let shared = SharedConnection {
                gateway: Arc::clone(gateway),
                routed: Arc::clone(routed),
                caller: Arc::clone(&admitted.caller),
                request: request.clone(),
                open: opener(routed, rules),
                cache: gateway.engine.connection_cache(),
                session: session.clone(),
            };
            let connection = Connection {
                shared: Rc::new(shared),
                revoked: access::revoked(gateway, route, &admitted.caller, None),
                messages: MessageReader::new(payload, limit, gateway.settings().timeouts.message).with_budget({
                    let gateway = Arc::clone(gateway);
                    move || gateway.bodies.begin(0)
                }),
                lost,
                phase: gateway.phase.clone(),
                ping,
                is_silent: false,
                parallel: rules.parallel.max(1),
                answering: FuturesUnordered::new(),
                queued: None,
            };
            let max_lifetime = rules.max_lifetime;
            let write_timeout = gateway.settings().timeouts.write;
            actix_web::rt::spawn(async move {
                let lifetime = async {
                    match max_lifetime {
                        Some(lifetime) => tokio::time::sleep(lifetime).await,
                        None => std::future::pending().await,
                    }
                };
                let closed = tokio::select! {
                    biased;
                    closed = connection.run() => closed,
                    () = lifetime => {
                        ReceiveEnd::ByGateway(CloseCode::Policy.into(), "websocket_connection_limit_reached")
                    }
                };
                tracing::debug!(reason = ?closed, "WebSocket closed");
                // Errors are ignored: the connection may be closed already, or the client may not read.
                if let Some(reason) = close_reason(closed) {
                    let _ = tokio::time::timeout(write_timeout, session.close(reason)).await;
                }

                drop(counted);
            });
            response
        }
        Err(error) => {
            let fault = Fault::new(FaultKind::Malformed, format!("invalid WebSocket handshake: {error}"));
            refuse(gateway, route, request, fault)
        }
    }
}

/// The response to a handshake over HTTP/1.0, or with another WebSocket version than RFC 6455. `None`: both versions
/// are supported.
fn refuse_version(gateway: &Gateway, route: &Arc<ServedRoute>, request: &HttpRequest) -> Option<HttpResponse> {
    if request.version() < Version::HTTP_11 {
        let fault = Fault::new(FaultKind::Malformed, "a WebSocket handshake needs HTTP/1.1");
        return Some(refuse(gateway, route, request, fault));
    }
    let mut versions = request.headers().get_all(VERSION);
    let is_known = versions.next().is_some_and(|version| version == KNOWN_VERSION) && versions.next().is_none();
    if is_known {
        return None;
    }

    let message = "sec-websocket-version must be 13, and sent once";
    let mut response = refuse(gateway, route, request, Fault::new(FaultKind::Malformed, message));
    // RFC 6455, section 4.4: the response names the supported version.
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    response.headers_mut().insert(VERSION, KNOWN_VERSION);
    Some(response)
}

/// Counts one more WebSocket in the limits until the result is dropped.
fn count(gateway: &Gateway, caller: &Caller, request: &HttpRequest) -> Result<(ResourceSlot, Permit), Fault> {
    let slot = gateway.sockets.take(holder(gateway, caller, request))?;
    Ok((slot, caller.usage.begin(Use::Socket)?))
}

fn refuse(gateway: &Gateway, route: &Arc<ServedRoute>, request: &HttpRequest, fault: Fault) -> HttpResponse {
    // The endpoint would report the fault as a message, so the protocol's fallback reports it.
    let refusal = RefusedRequest { reporter: Reporter::Route(Arc::clone(route)), fault };
    handle::refuse(gateway, request.head(), &refusal)
}

/// Accepts the connection. The gateway parses the messages itself: the library receives an empty payload that never
/// ends, and its stream reports only a lost connection.
async fn handshake(request: &HttpRequest) -> Result<(HttpResponse, Session, MessageStream), actix_web::Error> {
    let nothing: std::pin::Pin<Box<dyn futures_util::Stream<Item = _>>> = Box::pin(futures_util::stream::pending());
    let mut nothing = actix_web::dev::Payload::from(nothing);
    actix_ws::handle(request, Payload::from_request(request, &mut nothing).await?)
}

/// The owner of a WebSocket, and its limit. `None` if only the total is limited: the address of the client is unknown.
fn holder(gateway: &Gateway, caller: &Caller, request: &HttpRequest) -> Option<(SlotOwner, usize)> {
    let limits = gateway.settings().limits;
    if caller.is_authenticated() {
        return Some((SlotOwner::Caller(caller.owner.base_key().to_owned()), limits.sockets_per_caller));
    }

    let peer = info_of(request).peer.ip();
    let address = base_url::client_address(gateway, request.head(), peer)?;
    let max = if address.is_loopback() { limits.sockets_per_loopback_address } else { limits.sockets_per_caller };
    Some((SlotOwner::at(address), max))
}

/// The close frame to send; inside, `None` is a close frame without a code. `None` if the connection is lost.
fn close_reason(closed: ReceiveEnd) -> Option<Option<CloseReason>> {
    let (code, description) = match closed {
        ReceiveEnd::Lost => return None,
        ReceiveEnd::ByClient(None) => return Some(None),
        ReceiveEnd::ByClient(Some(code)) => (code, None),
        ReceiveEnd::ByGateway(code, reason) => (code, Some(reason.to_owned())),
    };
    Some(Some(CloseReason { code: CloseCode::from(code), description }))
}

/// True if the refusal applies to all further messages of the caller, too.
fn is_final(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Unauthenticated | FaultKind::Forbidden)
}

/// The function that opens the exchanges of a connection.
fn opener(routed: &Arc<RoutedEndpoint>, rules: &WebSocketRules) -> OpenExchange {
    match &rules.connect {
        Some(connect) => {
            let connection = connect();
            Box::new(move || connection.open())
        }
        None => {
            let routed = Arc::clone(routed);
            Box::new(move || (routed.endpoint().open)())
        }
    }
}

async fn resolved(revoked: &mut Option<LocalBoxFuture<'static, Fault>>) -> Fault {
    match revoked {
        Some(revoked) => revoked.await,
        None => std::future::pending().await,
    }
}

/// A message or control frame to the client.
enum OutgoingMessage {
    Text(String),
    Ping,
    Pong(Vec<u8>),
}

/// A request, with its reservation in the budget of bodies until it is decoded.
struct Incoming {
    text: String,
    reservation: Option<BodyReservation>,
}

/// A connection, as the answers to its messages share it.
struct SharedConnection {
    gateway: Arc<Gateway>,
    routed: Arc<RoutedEndpoint>,
    caller: Arc<Caller>,
    request: HttpRequest,
    /// Opens the exchanges of the connection.
    open: OpenExchange,
    /// Results of earlier requests of the connection that are not stored.
    cache: Arc<ConnectionCache>,
    session: Session,
}

/// Opens the exchange of the next message.
type OpenExchange = Box<dyn Fn() -> Box<dyn Exchange>>;

/// The answer to one message.
type Answering = LocalBoxFuture<'static, Result<(), ReceiveEnd>>;

struct Connection {
    shared: Rc<SharedConnection>,
    /// Resolves when the caller's credentials or rights end. `None`: open connections outlive them, and each later
    /// message is refused.
    revoked: Option<LocalBoxFuture<'static, Fault>>,
    messages: MessageReader,
    /// Ends when the connection is lost.
    lost: MessageStream,
    phase: watch::Receiver<ServerPhase>,
    ping: Interval,
    /// True if the client has sent nothing since the last ping.
    is_silent: bool,
    /// The maximum number of messages that are answered at the same time.
    parallel: usize,
    /// The answers under way.
    answering: FuturesUnordered<Answering>,
    /// The next message, received while as many as allowed are answered.
    queued: Option<Incoming>,
}

impl Connection {
    /// Answers messages until the connection closes.
    async fn run(mut self) -> ReceiveEnd {
        loop {
            let is_busy = !self.answering.is_empty();
            let step = tokio::select! {
                biased;
                Some(answered) = self.answering.next() => answered.map(|()| None),
                incoming = next_message(
                    &self.shared,
                    Receiving {
                        messages: &mut self.messages,
                        lost: &mut self.lost,
                        phase: &mut self.phase,
                        revoked: &mut self.revoked,
                        ping: &mut self.ping,
                        is_silent: &mut self.is_silent,
                        is_busy,
                    },
                ) => incoming.map(Some),
            };
            let begun = match step {
                Ok(None) => self.begin_queued(),
                Ok(Some(incoming)) => self.begin(incoming).await,
                Err(closed) => Err(closed),
            };
            if let Err(closed) = begun {
                return closed;
            }
        }
    }

    /// Begins to answer the queued message, if there is one and an answer has ended.
    fn begin_queued(&mut self) -> Result<(), ReceiveEnd> {
        if let Some(incoming) = self.queued.take() {
            self.answering.push(Box::pin(answer(Rc::clone(&self.shared), incoming)));
        }
        Ok(())
    }

    /// Begins to answer a message. If as many as allowed are answered, one more is queued, and further ones are
    /// rejected while the others continue.
    async fn begin(&mut self, incoming: Incoming) -> Result<(), ReceiveEnd> {
        if self.answering.len() < self.parallel {
            self.answering.push(Box::pin(answer(Rc::clone(&self.shared), incoming)));
            return Ok(());
        }
        if self.queued.is_none() {
            self.queued = Some(incoming);
            return Ok(());
        }

        // Decode it anyway, since the error may have to refer to the id of the request.
        let (mut exchange, _) = self.shared.decode(incoming).await;
        let message = match self.parallel {
            1 => "one request is running and another one is queued: wait for them to be answered".to_owned(),
            most => format!("{most} requests are running and another one is queued: wait for them to be answered"),
        };
        self.shared.reject(&mut *exchange, &Fault::new(FaultKind::RateLimited, message), None).await
    }
}

/// The parts of a connection that receive messages.
struct Receiving<'a> {
    messages: &'a mut MessageReader,
    lost: &'a mut MessageStream,
    phase: &'a mut watch::Receiver<ServerPhase>,
    revoked: &'a mut Option<LocalBoxFuture<'static, Fault>>,
    ping: &'a mut Interval,
    is_silent: &'a mut bool,
    /// True while a message is answered.
    is_busy: bool,
}

/// The next message. Cancel-safe.
async fn next_message(shared: &SharedConnection, receiving: Receiving<'_>) -> Result<Incoming, ReceiveEnd> {
    let Receiving { messages, lost, phase, revoked, ping, is_silent, is_busy } = receiving;
    // Draining lets the current answers end first.
    let must_close =
        |phase: &ServerPhase| *phase == ServerPhase::Stopping || (*phase == ServerPhase::Draining && !is_busy);
    loop {
        let received = tokio::select! {
            biased;
            received = messages.next() => Some(received?),
            _ = lost.recv() => return Err(ReceiveEnd::Lost),
            Ok(_) = phase.wait_for(must_close) => {
                return Err(ReceiveEnd::ByGateway(CloseCode::Away.into(), "the gateway is shutting down"));
            }
            // During an answer, its stream reports the end of the credentials in the protocol's format.
            _ = resolved(revoked), if !is_busy => {
                return Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), REVOKED));
            }
            _ = ping.tick() => None,
        };
        let Some(received) = received else {
            if *is_silent {
                return Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), "pings are not answered"));
            }
            shared.write(OutgoingMessage::Ping).await?;
            *is_silent = true;
            continue;
        };

        *is_silent = false;
        match received {
            ReceivedMessage::Text(text) => {
                return Ok(Incoming { text, reservation: messages.take_reservation() });
            }
            ReceivedMessage::Ping(bytes) => shared.write(OutgoingMessage::Pong(bytes)).await?,
            ReceivedMessage::Pong => {}
        }
    }
}

/// Answers one message and logs it.
async fn answer(shared: Rc<SharedConnection>, incoming: Incoming) -> Result<(), ReceiveEnd> {
    let log = request_log::get(&shared.request).map(|log| log.message(METHOD));
    if let Some(log) = &log {
        log.received(incoming.text.len() as u64);
    }
    let answered = shared.answer(incoming, log.as_ref()).await;
    if let Some(log) = log {
        log.set_status(SWITCHING_PROTOCOLS);
        log.record_end(0, answered.is_ok());
    }
    answered
}

impl SharedConnection {
    async fn answer(&self, incoming: Incoming, log: Option<&Arc<RequestLog>>) -> Result<(), ReceiveEnd> {
        let (gateway, route) = (&self.gateway, &self.routed.route);
        let admitted = access::admit_message(gateway, route, &self.caller);
        // Decode it anyway, since the error may have to refer to the id of the request.
        let (mut exchange, decoded) = self.decode(incoming).await;
        let _permits = match admitted {
            Ok(permits) => permits,
            Err(fault) => {
                self.reject(&mut *exchange, &fault, log).await?;
                return if is_final(&fault) {
                    Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), REVOKED))
                } else {
                    Ok(())
                };
            }
        };
        let (call, mut scope) = match decoded {
            Ok(decoded) => decoded,
            Err(fault) => return self.reject(&mut *exchange, &fault, log).await,
        };
        scope.connection = Some(Arc::clone(&self.cache));
        scope.request = log.cloned();
        scope.trace = request_log::trace_of(log.map(Arc::as_ref), self.request.headers());

        match handle::run_exchange(gateway, &mut *exchange, call, &scope).await {
            Ok(ExchangeOutcome::Complete(out)) => self.send(&out.body, log).await,
            Ok(ExchangeOutcome::Stream(source)) => {
                // No heartbeat: WebSocket pings keep the connection alive, and WebSocket has no comments.
                let open = handle::open_stream(gateway, route);
                // On a route with several agents, the agent is known only now.
                let of_run = access::revoked(gateway, route, &self.caller, source.run().as_ref());
                let revoked = of_run.or_else(|| access::revoked(gateway, route, &self.caller, None));
                let steps = Steps::new((source, gateway.engine.clone(), scope), exchange, Duration::ZERO, open);
                self.stream(steps.until_revoked(revoked).with_request_log(log.cloned()), log).await
            }
            Err(fault) => {
                if let Some(run) = exchange.builds_on() {
                    self.cache.evict(run);
                }
                self.reject(&mut *exchange, &fault, log).await
            }
        }
    }

    /// Sends a stream to its end.
    async fn stream(&self, mut steps: Steps, log: Option<&Arc<RequestLog>>) -> Result<(), ReceiveEnd> {
        while let Some(chunk) = poll_fn(|context| steps.poll_chunk(context)).await {
            self.send(&chunk, log).await?;
        }
        Ok(())
    }

    /// Decodes a message and frees its text.
    async fn decode(&self, incoming: Incoming) -> (Box<dyn Exchange>, Result<(Call, Scope), Fault>) {
        let (gateway, routed) = (&self.gateway, &self.routed);
        let mut exchange = (self.open)();
        let Incoming { text, reservation } = incoming;
        if let Some(reservation) = reservation
            && text.len() > LARGE_BODY
        {
            let body = (Bytes::from(text), reservation);
            return handle::decode_blocking(gateway, routed, exchange, &self.request, Some(METHOD), &self.caller, body)
                .await;
        }

        let message = (METHOD, text.as_bytes());
        let decoded = handle::decode_message(gateway, routed, &mut *exchange, &self.request, &self.caller, message);
        (exchange, decoded)
    }

    async fn reject(
        &self,
        exchange: &mut dyn Exchange,
        fault: &Fault,
        log: Option<&Arc<RequestLog>>,
    ) -> Result<(), ReceiveEnd> {
        if let Some(log) = log {
            log.set_fault(fault.code(), fault.kind.blame().as_str());
        }
        let mut out = Out::new();
        exchange.fail(fault, &mut out);
        self.send(&out.body, log).await
    }

    /// Sends encoded output, one message per line.
    async fn send(&self, lines: &[u8], log: Option<&Arc<RequestLog>>) -> Result<(), ReceiveEnd> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // Exchanges write JSON, so this is UTF-8.
            let text = String::from_utf8_lossy(line).into_owned();
            if let Some(log) = log {
                log.sent(text.len() as u64);
            }
            self.write(OutgoingMessage::Text(text)).await?;
        }
        Ok(())
    }

    /// Sends a message. If the client does not read it within the write timeout, the connection counts as lost.
    async fn write(&self, message: OutgoingMessage) -> Result<(), ReceiveEnd> {
        let mut session = self.session.clone();
        let writing = async {
            match message {
                OutgoingMessage::Text(text) => session.text(text).await,
                OutgoingMessage::Ping => session.ping(b"").await,
                OutgoingMessage::Pong(bytes) => session.pong(&bytes).await,
            }
        };

        match tokio::time::timeout(self.gateway.settings().timeouts.write, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ReceiveEnd::Lost),
        }
    }
}
