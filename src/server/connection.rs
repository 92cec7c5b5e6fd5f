//! A connection: a socket that reports to its clock, and a future that closes it on a timeout.
//!
//! actix-http parses and writes, but has a timeout for the first head of a connection only, not for bodies and
//! responses. So its service runs on a socket that reports reads and writes to [`Clock`], inside a future that closes
//! the connection. Requests see the facts of their connection as [`ConnectionInfo`]. Not here: the timeouts ([`super::clock`]), and the number of connections ([`super::admission`]).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_http::Request;
use actix_web::HttpRequest;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::rt::net::TcpStream;
use actix_web::web::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::admission::Permit;
use super::clock::Clock;
use crate::tls::ClientCertificate;

/// Unsent bytes that the kernel buffers for a client that does not read. Bytes in flight do not count, so that this
/// does not slow down connections with a high latency. A client has to read half of it before its clock is reset.
const MAX_UNSENT: u32 = 64 << 10;

/// The response to a client that did not finish its request head in time.
const TIMEOUT_RESPONSE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The facts of a connection, which all of its requests share.
pub(super) struct ConnectionInfo {
    pub(super) clock: Rc<Clock>,
    /// The other end of the socket: the client, or a proxy.
    pub(super) peer: SocketAddr,
    /// `None` without TLS.
    pub(super) tls: Option<TlsInfo>,
}

/// The outcome of a TLS handshake.
pub(super) struct TlsInfo {
    /// The certificate of the client, verified in the handshake. `None` if it showed none.
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

impl ConnectionInfo {
    /// The connection of a request that has not reached the application yet.
    pub(super) fn of_raw(request: &Request) -> Rc<Self> {
        // Invariant: `on_connect_ext` adds it to every connection.
        request.conn_data::<Rc<Self>>().cloned().expect("a connection has its facts")
    }
}

/// The connection of a request.
pub(super) fn info_of(request: &HttpRequest) -> Rc<ConnectionInfo> {
    // Invariant: `on_connect_ext` adds it to every connection.
    request.conn_data::<Rc<ConnectionInfo>>().cloned().expect("a connection has its facts")
}

/// A socket that reports reads and writes to its clock.
pub(super) struct Socket {
    stream: TcpStream,
    info: Rc<ConnectionInfo>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, info: Rc<ConnectionInfo>) -> Self {
        // Both options are optimisations: errors are ignored.
        let _ = stream.set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT);
        Self { stream, info }
    }

    pub(super) fn info(&self) -> Rc<ConnectionInfo> {
        Rc::clone(&self.info)
    }

    /// Sends a 408 response if that is possible without waiting. Returns the error that ends the connection.
    fn time_out(&self) -> io::Error {
        if self.info.clock.can_send_timeout() {
            let _ = self.stream.try_write(TIMEOUT_RESPONSE);
        }
        io::ErrorKind::TimedOut.into()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.info.clock.is_expired() {
            return Poll::Ready(Err(this.time_out()));
        }

        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.info.clock.on_read(&buffer.filled()[before..], Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        match &written {
            Poll::Pending => this.info.clock.on_write_blocked(Instant::now()),
            Poll::Ready(_) => this.info.clock.on_write(Instant::now()),
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// A response body that reports its end to the clock.
pub(super) struct TimedBody {
    body: BoxBody,
    clock: Rc<Clock>,
}

impl TimedBody {
    pub(super) fn new(body: BoxBody, clock: Rc<Clock>) -> Self {
        Self { body, clock }
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        self.clock.on_response_end(Instant::now());
    }
}

impl MessageBody for TimedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(context)
    }
}

/// A connection that closes on a timeout.
pub(super) struct Connection<F> {
    service: Pin<Box<F>>,
    clock: Rc<Clock>,
    peer: SocketAddr,
    /// Created when there is a deadline, and reset only when it fires. Most connections never create one, since a
    /// request that arrives in one read is answered before that.
    timer: Option<Pin<Box<Sleep>>>,
    _permit: Permit,
}

impl<F> Connection<F> {
    pub(super) fn new(service: F, clock: Rc<Clock>, peer: SocketAddr, permit: Permit) -> Self {
        Self { service: Box::pin(service), clock, peer, timer: None, _permit: permit }
    }
}

impl<F, E> Future for Connection<F>
where
    F: Future<Output = Result<(), E>>,
{
    type Output = Result<(), E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(result) = this.service.as_mut().poll(context) {
            return Poll::Ready(result);
        }

        while let Some(deadline) = this.clock.deadline() {
            let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if deadline < timer.deadline() {
                timer.as_mut().reset(deadline);
            }
            // The deadline may have moved since the timer was set: then reset it.
            ready!(timer.as_mut().poll(context));
            if deadline > Instant::now() {
                timer.as_mut().reset(deadline);
                continue;
            }
            tracing::debug!(client = %this.peer.ip(), "connection closed: {}", this.clock.timeout_reason());
            this.clock.expire();
            // This poll lets the socket send the 408 response. Then everything is dropped, including pending responses.
            let _ = this.service.as_mut().poll(context);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}
