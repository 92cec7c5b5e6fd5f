//! The WebSocket form of an endpoint: every text is a request of its own, every line written one message.
//!
//! Requests of one connection are answered one after the other; one more may wait meanwhile. What a request leaves
//! that is not stored, the connection keeps for those that follow. Whoever closes the connection leaves the run under
//! way, as with a stream. Not here: the bytes of messages ([`super::messages`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse};
use actix_ws::{CloseCode, CloseReason, MessageStream, Session};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::bodies::{LONG, Taken};
use super::handle::{self, Conversed};
use super::messages::{Closed, Messages, Received};
use super::stream::Steps;
use super::{Gateway, Served};
use crate::engine::{ConnectionCache, Scope};

/// The method that exchanges see.
const METHOD: &str = "WEBSOCKET";
/// So many WebSockets are open at once.
const MAX_SOCKETS: usize = 4096;
/// A connection lives no longer.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The client is asked so often whether it is still there. One that has said nothing since it was asked last is not.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Serves a connection.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    route: &Arc<Served>,
    index: usize,
    request: &HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let limit = route.mounted.max_body.unwrap_or(gateway.settings.max_body);
    let Some(open) = Open::new(gateway) else {
        let fault = Fault::new(FaultKind::Overloaded, "too many WebSockets are open");
        return handle::stray(gateway, route, request, fault);
    };
    match handshake(request).await {
        Ok((response, session, gone)) => {
            let mut ping = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
            ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let connection = Connection {
                gateway: Arc::clone(gateway),
                route: Arc::clone(route),
                index,
                request: request.clone(),
                cache: gateway.engine.connection_cache(),
                session: session.clone(),
                messages: Messages::new(payload, limit).within({
                    let gateway = Arc::clone(gateway);
                    move || gateway.bodies.begin(0)
                }),
                gone,
                stops: gateway.stops.clone(),
                ping,
                is_silent: false,
                waiting: None,
            };
            let patience = gateway.settings.timeouts.write;
            actix_web::rt::spawn(async move {
                let over = tokio::time::timeout(LIFETIME, connection.run()).await;
                let over = over.unwrap_or(Closed::For(CloseCode::Policy.into(), "websocket_connection_limit_reached"));
                tracing::debug!(?over, "a WebSocket is closed");
                // It may be closed already, and a client that reads nothing is not told.
                if let Some(reason) = reason(over) {
                    let _ = tokio::time::timeout(patience, session.close(reason)).await;
                }
                drop(open);
            });
            response
        }
        Err(error) => {
            let fault = Fault::new(FaultKind::Malformed, format!("no WebSocket handshake: {error}"));
            handle::stray(gateway, route, request, fault)
        }
    }
}

/// Accepts the connection. Its messages are read by us: what the library is given to read has no end and says nothing,
/// so that all it tells is that the connection is gone.
async fn handshake(request: &HttpRequest) -> Result<(HttpResponse, Session, MessageStream), actix_web::Error> {
    let nothing: std::pin::Pin<Box<dyn futures_util::Stream<Item = _>>> = Box::pin(futures_util::stream::pending());
    let mut nothing = actix_web::dev::Payload::from(nothing);
    actix_ws::handle(request, Payload::from_request(request, &mut nothing).await?)
}

/// One of the WebSockets that are open.
struct Open(Arc<Gateway>);

impl Open {
    /// None: there are too many.
    fn new(gateway: &Arc<Gateway>) -> Option<Self> {
        let open = Self(Arc::clone(gateway));
        (gateway.sockets.fetch_add(1, Ordering::Relaxed) < MAX_SOCKETS).then_some(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a client is told in the end. None: it is not there to be told.
fn reason(closed: Closed) -> Option<Option<CloseReason>> {
    let (code, description) = match closed {
        Closed::Gone => return None,
        Closed::ByClient(None) => return Some(None),
        Closed::ByClient(Some(code)) => (code, None),
        Closed::For(code, why) => (code, Some(why.to_owned())),
    };
    Some(Some(CloseReason { code: CloseCode::from(code), description }))
}

/// What is sent to a client.
enum Sent {
    Text(String),
    Ping,
    Pong(Vec<u8>),
}

/// A request, and the room it takes until it is read.
struct Asked {
    text: String,
    taken: Option<Taken>,
}

struct Connection {
    gateway: Arc<Gateway>,
    route: Arc<Served>,
    index: usize,
    request: HttpRequest,
    /// What its requests leave that is not stored.
    cache: Arc<ConnectionCache>,
    session: Session,
    messages: Messages,
    /// Ends when the connection is gone.
    gone: MessageStream,
    /// True once the server stops.
    stops: watch::Receiver<bool>,
    ping: Interval,
    /// Whether the client has said nothing since it was asked whether it is there.
    is_silent: bool,
    /// The request that comes next.
    waiting: Option<Asked>,
}

impl Connection {
    /// Answers requests until the connection is to be closed.
    async fn run(mut self) -> Closed {
        loop {
            let asked = match self.waiting.take() {
                Some(asked) => Ok(asked),
                None => self.next().await,
            };
            let answered = match asked {
                Ok(asked) => self.answer(asked).await,
                Err(closed) => return closed,
            };
            if let Err(closed) = answered {
                return closed;
            }
        }
    }

    /// The next request. May be dropped while it waits.
    async fn next(&mut self) -> Result<Asked, Closed> {
        loop {
            let received = tokio::select! {
                biased;
                received = self.messages.next() => Some(received?),
                _ = self.gone.recv() => return Err(Closed::Gone),
                Ok(_) = self.stops.wait_for(|stops| *stops) => {
                    return Err(Closed::For(CloseCode::Away.into(), "the gateway is shutting down"));
                }
                _ = self.ping.tick() => None,
            };
            let Some(received) = received else {
                if std::mem::replace(&mut self.is_silent, true) {
                    return Err(Closed::For(CloseCode::Policy.into(), "pings are not answered"));
                }
                self.written(Sent::Ping).await?;
                continue;
            };
            self.is_silent = false;
            match received {
                Received::Text(text) => return Ok(Asked { text, taken: self.messages.taken() }),
                Received::Ping(bytes) => self.written(Sent::Pong(bytes)).await?,
                Received::Pong => {}
            }
        }
    }

    /// Answers one request, listening meanwhile.
    async fn answer(&mut self, asked: Asked) -> Result<(), Closed> {
        let (mut exchange, decoded) = self.decode(asked).await;
        let (call, mut scope) = match decoded {
            Ok(decoded) => decoded,
            Err(fault) => return self.refuse(&mut *exchange, &fault).await,
        };
        scope.connection = Some(Arc::clone(&self.cache));
        let gateway = Arc::clone(&self.gateway);
        let conversed = {
            let conversation = handle::converse(&gateway, &mut *exchange, call, &scope);
            tokio::pin!(conversation);
            loop {
                tokio::select! {
                    biased;
                    conversed = &mut conversation => break conversed,
                    asked = self.next() => self.keep_waiting(asked?).await?,
                }
            }
        };
        match conversed {
            Ok(Conversed::Whole(out)) => self.send(&out.body).await,
            Ok(Conversed::Steps { mut follower, attach }) => {
                let mut out = Out::new();
                follower.begin(attach, |view| exchange.begin(view, &mut out));
                // Pings of the protocol itself keep the connection; comments have no place in it.
                let mut steps = Steps::new(follower, exchange, out, Duration::ZERO);
                loop {
                    tokio::select! {
                        biased;
                        chunk = poll_fn(|context| steps.poll_chunk(context)) => match chunk {
                            Some(chunk) => self.send(&chunk).await?,
                            None => return Ok(()),
                        },
                        asked = self.next() => self.keep_waiting(asked?).await?,
                    }
                }
            }
            Err(fault) => {
                if let Some(run) = exchange.builds_on() {
                    self.cache.evict(run);
                }
                self.refuse(&mut *exchange, &fault).await
            }
        }
    }

    /// Keeps a request that comes while another one is answered. One may wait; clients that ask more at once are told so,
    /// and what is under way for them goes on.
    async fn keep_waiting(&mut self, asked: Asked) -> Result<(), Closed> {
        if self.waiting.is_none() {
            self.waiting = Some(asked);
            return Ok(());
        }
        // Read for the sake of the name that its client gave it.
        let (mut exchange, _) = self.decode(asked).await;
        let message = "a request is under way and another one waits: send more when they are answered";
        self.refuse(&mut *exchange, &Fault::new(FaultKind::RateLimited, message)).await
    }

    /// Reads a request, and lets go of its text.
    async fn decode(&self, asked: Asked) -> (Box<dyn Exchange>, Result<(Call, Scope), Fault>) {
        let (gateway, route) = (&self.gateway, &self.route);
        let mut exchange = (route.mounted.endpoints[self.index].open)();
        let Asked { text, taken } = asked;
        if let Some(taken) = taken
            && text.len() > LONG
        {
            let place = (route, self.index);
            let body = (Bytes::from(text), taken);
            return handle::decode_elsewhere(gateway, place, exchange, &self.request, Some(METHOD), body).await;
        }
        let message = (METHOD, text.as_bytes());
        let decoded = handle::decode_message(gateway, route, &mut *exchange, &self.request, message);
        (exchange, decoded)
    }

    async fn refuse(&mut self, exchange: &mut dyn Exchange, fault: &Fault) -> Result<(), Closed> {
        let mut out = Out::new();
        exchange.fail(fault, &mut out);
        self.send(&out.body).await
    }

    /// Sends what was written, a message a line.
    async fn send(&mut self, lines: &[u8]) -> Result<(), Closed> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // What exchanges write is JSON, and so UTF-8.
            let text = String::from_utf8_lossy(line).into_owned();
            self.written(Sent::Text(text)).await?;
        }
        Ok(())
    }

    /// Sends a message. A client that has no room for it for too long has left.
    async fn written(&mut self, message: Sent) -> Result<(), Closed> {
        let writing = async {
            match message {
                Sent::Text(text) => self.session.text(text).await,
                Sent::Ping => self.session.ping(b"").await,
                Sent::Pong(bytes) => self.session.pong(&bytes).await,
            }
        };
        match tokio::time::timeout(self.gateway.settings.timeouts.write, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed::Gone),
        }
    }
}
