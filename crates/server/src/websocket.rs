//! Endpoints over WebSocket: every text message is a request, and every line written by the exchange is one message.
//!
//! Requests of a connection are answered one after the other, and one more can be queued. The connection caches the
//! results of requests that are not stored, for later requests. Closing the connection has the same effect on a run as
//! closing a stream. Not here: the parsing of frames ([`super::messages`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Version};
use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse};
use actix_ws::{CloseCode, CloseReason, MessageStream, Session};
use futures_util::future::LocalBoxFuture;
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
/// The maximum lifetime of a connection.
const MAX_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Serves a WebSocket connection.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    routed: &Arc<RoutedEndpoint>,
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
            let connection = Connection {
                gateway: Arc::clone(gateway),
                routed: Arc::clone(routed),
                revoked: access::revoked(gateway, route, &admitted.caller, None),
                caller: admitted.caller,
                request: request.clone(),
                cache: gateway.engine.connection_cache(),
                session: session.clone(),
                messages: MessageReader::new(payload, limit, gateway.settings().timeouts.message).with_budget({
                    let gateway = Arc::clone(gateway);
                    move || gateway.bodies.begin(0)
                }),
                lost,
                phase: gateway.phase.clone(),
                log: None,
                ping,
                is_silent: false,
                queued: None,
            };
            let write_timeout = gateway.settings().timeouts.write;
            actix_web::rt::spawn(async move {
                let closed = tokio::time::timeout(MAX_LIFETIME, connection.run()).await;
                let closed = closed
                    .unwrap_or(ReceiveEnd::ByGateway(CloseCode::Policy.into(), "websocket_connection_limit_reached"));
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

async fn revoked(revoked: &mut Option<LocalBoxFuture<'static, Fault>>) -> Fault {
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

struct Connection {
    gateway: Arc<Gateway>,
    routed: Arc<RoutedEndpoint>,
    caller: Arc<Caller>,
    /// Resolves when the caller's credentials or rights end. `None`: open connections outlive them, and each later
    /// message is refused.
    revoked: Option<LocalBoxFuture<'static, Fault>>,
    request: HttpRequest,
    /// Results of earlier requests of the connection that are not stored.
    cache: Arc<ConnectionCache>,
    session: Session,
    messages: MessageReader,
    /// Ends when the connection is lost.
    lost: MessageStream,
    phase: watch::Receiver<ServerPhase>,
    /// The log of the current request. `None` between requests.
    log: Option<Arc<RequestLog>>,
    ping: Interval,
    /// True if the client has sent nothing since the last ping.
    is_silent: bool,
    /// The next request, received during the current one.
    queued: Option<Incoming>,
}

impl Connection {
    /// Answers requests until the connection closes.
    async fn run(mut self) -> ReceiveEnd {
        loop {
            let incoming = match self.queued.take() {
                Some(incoming) => Ok(incoming),
                None => self.next().await,
            };
            let answered = match incoming {
                Ok(incoming) => {
                    // During the request, its stream reports the end of the credentials in the protocol's format.
                    let revoked = self.revoked.take();
                    let answered = self.answer(incoming, revoked).await;
                    self.revoked = access::revoked(&self.gateway, &self.routed.route, &self.caller, None);
                    answered
                }
                Err(closed) => return closed,
            };
            if let Err(closed) = answered {
                return closed;
            }
        }
    }

    /// The next request. Cancel-safe.
    async fn next(&mut self) -> Result<Incoming, ReceiveEnd> {
        let is_busy = self.log.is_some();
        // Draining lets the current request end first.
        let must_close =
            |phase: &ServerPhase| *phase == ServerPhase::Stopping || (*phase == ServerPhase::Draining && !is_busy);
        loop {
            let received = tokio::select! {
                biased;
                received = self.messages.next() => Some(received?),
                _ = self.lost.recv() => return Err(ReceiveEnd::Lost),
                Ok(_) = self.phase.wait_for(must_close) => {
                    return Err(ReceiveEnd::ByGateway(CloseCode::Away.into(), "the gateway is shutting down"));
                }
                _ = revoked(&mut self.revoked) => {
                    return Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), REVOKED));
                }
                _ = self.ping.tick() => None,
            };
            let Some(received) = received else {
                if std::mem::replace(&mut self.is_silent, true) {
                    return Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), "pings are not answered"));
                }
                self.write(OutgoingMessage::Ping).await?;
                continue;
            };

            self.is_silent = false;
            match received {
                ReceivedMessage::Text(text) => {
                    return Ok(Incoming { text, reservation: self.messages.take_reservation() });
                }
                ReceivedMessage::Ping(bytes) => self.write(OutgoingMessage::Pong(bytes)).await?,
                ReceivedMessage::Pong => {}
            }
        }
    }

    /// Answers one request and logs it. Receives messages meanwhile.
    async fn answer(
        &mut self,
        incoming: Incoming,
        revoked: Option<LocalBoxFuture<'static, Fault>>,
    ) -> Result<(), ReceiveEnd> {
        self.begin_log(incoming.text.len());
        let answered = self.answer_one(incoming, revoked).await;
        if let Some(log) = self.log.take() {
            log.set_status(SWITCHING_PROTOCOLS);
            log.record_end(0, answered.is_ok());
        }
        answered
    }

    /// Starts the log of a request.
    fn begin_log(&mut self, bytes: usize) {
        self.log = request_log::get(&self.request).map(|log| log.message(METHOD));
        if let Some(log) = &self.log {
            log.received(bytes as u64);
        }
    }

    async fn answer_one(
        &mut self,
        incoming: Incoming,
        revoked: Option<LocalBoxFuture<'static, Fault>>,
    ) -> Result<(), ReceiveEnd> {
        let admitted = access::admit_message(&self.gateway, &self.routed.route, &self.caller);
        // Decode it anyway, since the error may have to refer to the id of the request.
        let (mut exchange, decoded) = self.decode(incoming).await;
        let _permits = match admitted {
            Ok(permits) => permits,
            Err(fault) => {
                self.reject(&mut *exchange, &fault).await?;
                return if is_final(&fault) {
                    Err(ReceiveEnd::ByGateway(CloseCode::Policy.into(), REVOKED))
                } else {
                    Ok(())
                };
            }
        };
        let (call, mut scope) = match decoded {
            Ok(decoded) => decoded,
            Err(fault) => return self.reject(&mut *exchange, &fault).await,
        };
        scope.connection = Some(Arc::clone(&self.cache));
        scope.request.clone_from(&self.log);
        scope.trace = request_log::trace_of(self.log.as_deref(), self.request.headers());
        let gateway = Arc::clone(&self.gateway);
        let outcome = {
            let running = handle::run_exchange(&gateway, &mut *exchange, call, &scope);
            tokio::pin!(running);
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut running => break outcome,
                    incoming = self.next() => self.enqueue(incoming?).await?,
                }
            }
        };

        match outcome {
            Ok(ExchangeOutcome::Complete(out)) => self.send(&out.body).await,
            Ok(ExchangeOutcome::Stream { mut follower, attach }) => {
                let mut out = Out::new();
                follower.begin(attach, |view| exchange.begin(view, &mut out));
                // No heartbeat: WebSocket pings keep the connection alive, and WebSocket has no comments.
                let open = handle::open_stream(&gateway, &self.routed.route);
                // On a route with several agents, the agent is known only now.
                let of_run = access::revoked(&gateway, &self.routed.route, &self.caller, Some(&follower.run()));
                let revoked = of_run.or(revoked);
                let steps = Steps::new(follower, exchange, out, Duration::ZERO, open);
                self.stream(steps.until_revoked(revoked).with_request_log(self.log.clone())).await
            }
            Err(fault) => {
                if let Some(run) = exchange.builds_on() {
                    self.cache.evict(run);
                }
                self.reject(&mut *exchange, &fault).await
            }
        }
    }

    /// Sends a stream to its end. Receives messages meanwhile.
    async fn stream(&mut self, mut steps: Steps) -> Result<(), ReceiveEnd> {
        loop {
            tokio::select! {
                biased;
                chunk = poll_fn(|context| steps.poll_chunk(context)) => match chunk {
                    Some(chunk) => self.send(&chunk).await?,
                    None => return Ok(()),
                },
                incoming = self.next() => self.enqueue(incoming?).await?,
            }
        }
    }

    /// Queues a request that arrives during the current one. The queue has one place: further requests are rejected,
    /// and the current one continues.
    async fn enqueue(&mut self, incoming: Incoming) -> Result<(), ReceiveEnd> {
        if self.queued.is_none() {
            self.queued = Some(incoming);
            return Ok(());
        }

        // Decode it anyway, since the error may have to refer to the id of the request.
        let (mut exchange, _) = self.decode(incoming).await;
        let message = "one request is running and another one is queued: wait for them to be answered";
        self.reject(&mut *exchange, &Fault::new(FaultKind::RateLimited, message)).await
    }

    /// Decodes a request and frees its text.
    async fn decode(&self, incoming: Incoming) -> (Box<dyn Exchange>, Result<(Call, Scope), Fault>) {
        let (gateway, routed) = (&self.gateway, &self.routed);
        let mut exchange = (routed.endpoint().open)();
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

    async fn reject(&mut self, exchange: &mut dyn Exchange, fault: &Fault) -> Result<(), ReceiveEnd> {
        if let Some(log) = &self.log {
            log.set_fault(fault.code(), fault.kind.blame().as_str());
        }
        let mut out = Out::new();
        exchange.fail(fault, &mut out);
        self.send(&out.body).await
    }

    /// Sends encoded output, one message per line.
    async fn send(&mut self, lines: &[u8]) -> Result<(), ReceiveEnd> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // Exchanges write JSON, so this is UTF-8.
            let text = String::from_utf8_lossy(line).into_owned();
            if let Some(log) = &self.log {
                log.sent(text.len() as u64);
            }
            self.write(OutgoingMessage::Text(text)).await?;
        }
        Ok(())
    }

    /// Sends a message. If the client does not read it within the write timeout, the connection counts as lost.
    async fn write(&mut self, message: OutgoingMessage) -> Result<(), ReceiveEnd> {
        let writing = async {
            match message {
                OutgoingMessage::Text(text) => self.session.text(text).await,
                OutgoingMessage::Ping => self.session.ping(b"").await,
                OutgoingMessage::Pong(bytes) => self.session.pong(&bytes).await,
            }
        };

        match tokio::time::timeout(self.gateway.settings().timeouts.write, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ReceiveEnd::Lost),
        }
    }
}
