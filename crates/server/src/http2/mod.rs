//! HTTP/2 for clients, over TLS, with the `h2` library. Each stream is a request to the same application as over
//! HTTP/1.1, with the same checks, limits and logs.
//!
//! The HTTP/2 of actix-web is not used: it needs a version of the library that is no longer maintained, and does not
//! limit the streams that a client opens, resets or leaves unread. Not here: WebSockets, which use HTTP/1.1, and HTTP/2
//! without TLS.

mod convert;
mod floods;
mod frames;
mod socket;
mod stream;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::{Request, Response};
use actix_service::Service;
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use h2::Reason;
use h2::server::{Builder, Connection};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use self::floods::FloodGuard;
use self::socket::GuardedSocket;
use self::stream::StreamContext;
use super::connection::{ClientSocket, TimedBody};
use super::{Gateway, ServerPhase};
use interlingua_config::ServerLimits;

/// Request body bytes that a client may send before they are read: on one stream, and on all together.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Response bytes that are buffered for one stream.
const MAX_SEND_BUFFER: usize = 32 << 10;
/// A head that exceeds its limit by up to this number of bytes is refused in the protocol of its endpoint. For larger
/// heads the library sends a bare 431.
const HEAD_MARGIN: usize = 8 << 10;
/// Time for a client without open streams to acknowledge GOAWAY.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for a connection to close before it is cut off.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a connection to its end.
pub(super) async fn serve<S>(socket: ClientSocket, app: Rc<S>, gateway: Arc<Gateway>)
where
    S: Service<Request, Response = Response<TimedBody>, Error = HttpResponse<BoxBody>> + 'static,
{
    let (info, now) = (socket.info(), Instant::now());
    let limits = gateway.settings().limits;
    info.clock.on_multiplexed(now);
    let guard = Rc::new(FloodGuard::new(&limits, Rc::clone(&info.clock), now));

    let handshake = builder(&limits).handshake(GuardedSocket::new(socket, Rc::clone(&guard)));
    let stopping = reached(gateway.phase.clone(), |phase| phase == ServerPhase::Stopping);
    let opened = tokio::select! {
        biased;
        opened = handshake => opened,
        () = stopping => return,
    };
    match opened {
        Ok(connection) => {
            let shared = Rc::new(StreamContext { gateway, app, connection: info, guard });
            Http2Connection { connection, shared, leaving: Shutdown::No }.run().await;
        }
        Err(error) => tracing::debug!(client = %info.peer.ip(), %error, "cannot start an HTTP/2 connection"),
    }
}

/// A builder with the limits that the library enforces.
fn builder(limits: &ServerLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(u32::try_from(limits.http2_streams).unwrap_or(u32::MAX))
        // Also bounds the CONTINUATION frames of a head.
        .max_header_list_size(u32::try_from(limits.head + HEAD_MARGIN).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        // Limits streams that are reset before the application receives them. The guard counts all resets.
        .max_pending_accept_reset_streams(limits.http2_resets);
    builder
}

/// Waits until the phase of the server satisfies the predicate.
async fn reached(mut phase: watch::Receiver<ServerPhase>, is_reached: fn(ServerPhase) -> bool) {
    // An error means that the server is gone.
    let _ = phase.wait_for(|phase| is_reached(*phase)).await;
}

/// The progress of a connection's shutdown.
enum Shutdown {
    No,
    /// GOAWAY was sent. The timer runs while no stream is open.
    Asked(Option<Pin<Box<Sleep>>>),
    /// The connection is being closed. The timer ends with cutting it off.
    Closing(Pin<Box<Sleep>>),
}

struct Http2Connection<S> {
    connection: Connection<GuardedSocket, Bytes>,
    shared: Rc<StreamContext<S>>,
    leaving: Shutdown,
}

impl<S> Http2Connection<S>
where
    S: Service<Request, Response = Response<TimedBody>, Error = HttpResponse<BoxBody>> + 'static,
{
    /// Accepts streams until the connection ends. All streams end with the connection.
    async fn run(mut self) {
        let phase = &self.shared.gateway.phase;
        let mut draining = pin!(reached(phase.clone(), |phase| phase != ServerPhase::Serving).fuse());
        let mut stopping = pin!(reached(phase.clone(), |phase| phase == ServerPhase::Stopping).fuse());
        let (mut is_draining, mut is_stopping, mut is_used) = (false, false, false);
        let mut streams = FuturesUnordered::new();

        poll_fn(|context| {
            is_draining |= draining.as_mut().poll(context).is_ready();
            is_stopping |= stopping.as_mut().poll(context).is_ready();
            // A new client may send one request before GOAWAY.
            if matches!(self.leaving, Shutdown::No) && (is_stopping || (is_draining && is_used)) {
                self.connection.graceful_shutdown();
                self.leaving = Shutdown::Asked(None);
            }
            loop {
                if self.close_if_exceeded() {
                    streams.clear();
                }
                match self.connection.poll_accept(context) {
                    Poll::Ready(Some(Ok((request, mut respond)))) => {
                        is_used = true;
                        if self.is_closing() {
                            continue;
                        }
                        let StreamContext { gateway, connection, .. } = &*self.shared;
                        match gateway.connections.admit_stream(connection.peer.ip()) {
                            Some(permit) => {
                                streams.push(stream::serve(Rc::clone(&self.shared), request, respond, permit));
                            }
                            // The request was not processed, so the client may repeat it (RFC 9113, section 8.7).
                            None => respond.send_reset(Reason::REFUSED_STREAM),
                        }
                    }
                    Poll::Ready(Some(Err(error))) => {
                        tracing::debug!(client = %self.shared.connection.peer.ip(), %error, "connection closed");
                        return Poll::Ready(());
                    }
                    Poll::Ready(None) => return Poll::Ready(()),
                    // The socket stops reading after a limit was exceeded: loop, to close the connection.
                    Poll::Pending if self.shared.guard.exceeded().is_some() && !self.is_closing() => {}
                    Poll::Pending => break,
                }
            }

            while let Poll::Ready(Some(())) = streams.poll_next_unpin(context) {}
            self.poll_shutdown_timer(context, streams.is_empty() && !self.connection.has_streams())
        })
        .await;
    }

    const fn is_closing(&self) -> bool {
        matches!(self.leaving, Shutdown::Closing(_))
    }

    /// Starts to close the connection if the client has exceeded a limit or a timeout. True if it has just started.
    fn close_if_exceeded(&mut self) -> bool {
        if self.is_closing() {
            return false;
        }
        let connection = &self.shared.connection;
        let reason = match self.shared.guard.exceeded() {
            Some(limit) => {
                tracing::debug!(client = %connection.peer.ip(), "connection closed: more than limits.{limit}");
                self.shared.gateway.observer.load().metrics().limited(limit);
                Reason::ENHANCE_YOUR_CALM
            }
            None if connection.clock.is_expired() => Reason::NO_ERROR,
            None => return false,
        };

        self.close(reason);
        true
    }

    fn close(&mut self, reason: Reason) {
        self.connection.abrupt_shutdown(reason);
        self.leaving = Shutdown::Closing(Box::pin(tokio::time::sleep(CLOSE_TIMEOUT)));
    }

    /// Closes the connection if an idle client does not acknowledge GOAWAY in time. Ready when a closing connection
    /// must be cut off.
    fn poll_shutdown_timer(&mut self, context: &mut Context<'_>, is_idle: bool) -> Poll<()> {
        match &mut self.leaving {
            Shutdown::No => {}
            Shutdown::Closing(timer) => return timer.as_mut().poll(context),
            Shutdown::Asked(timer) if !is_idle => *timer = None,
            Shutdown::Asked(timer) => {
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LEAVE_TIMEOUT)));
                if timer.as_mut().poll(context).is_ready() {
                    self.close(Reason::NO_ERROR);
                    context.waker().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }
}
