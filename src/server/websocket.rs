//! The WebSocket form of an endpoint: every text frame is a request of its own, every line written one message.
//!
//! Requests of one connection are answered one after the other. Whoever closes the connection leaves the run under
//! way, as with a stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, Session};
use futures_util::StreamExt as _;
use interlingua_core::{Exchange, Fault, FaultKind, Out};

use super::handle::{self, Conversed};
use super::stream::Steps;
use super::{Gateway, Served};

/// The method that exchanges see.
const METHOD: &str = "WEBSOCKET";
/// Requests that may wait for the one under way.
const MOST_WAITING: usize = 16;
/// A connection lives no longer.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Serves a connection.
pub(super) fn serve(
    gateway: &Arc<Gateway>,
    route: &Arc<Served>,
    index: usize,
    request: &HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let limit = route.mounted.max_body.unwrap_or(gateway.settings.max_body);
    match actix_ws::handle(request, payload) {
        Ok((response, session, messages)) => {
            let messages = messages.max_frame_size(limit).aggregate_continuations().max_continuation_size(limit);
            let connection = Connection {
                gateway: Arc::clone(gateway),
                route: Arc::clone(route),
                index,
                request: request.clone(),
                session,
                messages,
                waiting: VecDeque::new(),
            };
            actix_web::rt::spawn(async move {
                let session = connection.session.clone();
                if tokio::time::timeout(LIFETIME, connection.run()).await.is_err() {
                    let reason = CloseReason {
                        code: CloseCode::Policy,
                        description: Some("websocket_connection_limit_reached".to_owned()),
                    };
                    // It may be closed already.
                    let _ = session.close(Some(reason)).await;
                }
            });
            response
        }
        Err(error) => {
            let fault = Fault::new(FaultKind::Malformed, format!("no WebSocket handshake: {error}"));
            handle::stray(gateway, route, request, fault)
        }
    }
}

struct Connection {
    gateway: Arc<Gateway>,
    route: Arc<Served>,
    index: usize,
    request: HttpRequest,
    session: Session,
    messages: AggregatedMessageStream,
    waiting: VecDeque<String>,
}

/// The other side has left.
struct Gone;

impl Connection {
    async fn run(mut self) {
        loop {
            let asked = match self.waiting.pop_front() {
                Some(asked) => asked,
                None => match self.next().await {
                    Ok(Some(asked)) => asked,
                    Ok(None) => continue,
                    Err(Gone) => break,
                },
            };
            if self.answer(&asked).await.is_err() {
                break;
            }
        }
        let _ = self.session.close(None).await;
    }

    /// The next thing the client says. None: nothing that needs an answer.
    async fn next(&mut self) -> Result<Option<String>, Gone> {
        match self.messages.next().await {
            Some(Ok(AggregatedMessage::Text(text))) => Ok(Some(text.to_string())),
            Some(Ok(AggregatedMessage::Ping(bytes))) => {
                self.session.pong(&bytes).await.map_err(|_| Gone)?;
                Ok(None)
            }
            Some(Ok(AggregatedMessage::Binary(_) | AggregatedMessage::Pong(_))) => Ok(None),
            Some(Ok(AggregatedMessage::Close(_)) | Err(_)) | None => Err(Gone),
        }
    }

    /// Answers one request, listening meanwhile.
    async fn answer(&mut self, asked: &str) -> Result<(), Gone> {
        let mut exchange = (self.route.mounted.endpoints[self.index].open)();
        let decoded =
            handle::decode(&self.gateway, &self.route, &mut *exchange, &self.request, METHOD, asked.as_bytes());
        let (call, scope) = match decoded {
            Ok(decoded) => decoded,
            Err(fault) => return self.refuse(&mut *exchange, &fault).await,
        };
        let gateway = Arc::clone(&self.gateway);
        let conversed = {
            let conversation = handle::converse(&gateway, &mut *exchange, call, &scope);
            tokio::pin!(conversation);
            loop {
                tokio::select! {
                    biased;
                    conversed = &mut conversation => break conversed,
                    said = self.next() => self.hear(said)?,
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
                        said = self.next() => self.hear(said)?,
                    }
                }
            }
            Err(fault) => self.refuse(&mut *exchange, &fault).await,
        }
    }

    /// Keeps what is said while another request is answered.
    fn hear(&mut self, said: Result<Option<String>, Gone>) -> Result<(), Gone> {
        match said? {
            Some(_) if self.waiting.len() >= MOST_WAITING => Err(Gone),
            Some(said) => {
                self.waiting.push_back(said);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn refuse(&mut self, exchange: &mut dyn Exchange, fault: &Fault) -> Result<(), Gone> {
        let mut out = Out::new();
        exchange.fail(fault, &mut out);
        self.send(&out.body).await
    }

    /// Sends what was written, a message a line.
    async fn send(&mut self, written: &[u8]) -> Result<(), Gone> {
        for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // What exchanges write is JSON, and so UTF-8.
            let text = String::from_utf8_lossy(line).into_owned();
            self.session.text(text).await.map_err(|_| Gone)?;
        }
        Ok(())
    }
}
