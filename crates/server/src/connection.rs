//! A connection: a socket that reports to its clock, and a future that closes it on a timeout.
//!
//! actix-http parses and writes, but has a timeout only for the first head of a connection, not for bodies and
//! responses. So its service runs on a socket that reports reads and writes to [`Clock`], inside a future that closes
//! the connection. Requests refer to their connection by [`ConnectionInfo`]. Not here: the timeouts
//! ([`super::clock`]), and the number of connections ([`super::admission`]).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_http::Request;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::rt::net::TcpStream;
use actix_web::web::Bytes;
use actix_web::{HttpMessage as _, HttpRequest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::admission::Permit;
use super::clock::Clock;
use interlingua_base::tls::{ClientCertificate, SharedTls};
use interlingua_observe::RequestLog;

/// Limit of unsent bytes that the kernel buffers for a client that does not read. Bytes in flight do not count, so that
/// the limit does not slow down connections with a high latency. A client has to read half of it before its clock is
/// reset.
const MAX_UNSENT: u32 = 64 << 10;

/// Limit of unsent bytes that TLS buffers in addition to the kernel.
const MAX_TLS_BUFFER: usize = 32 << 10;

/// The response to a client that did not finish its request head in time.
const TIMEOUT_RESPONSE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Data about a connection, shared by all of its requests.
pub struct ConnectionInfo {
    pub(super) clock: Rc<Clock>,
    /// The other end of the socket: the client, or a proxy.
    pub peer: SocketAddr,
    /// `None` without TLS.
    pub(super) tls: Option<TlsInfo>,
}

/// The outcome of a TLS handshake.
pub(super) struct TlsInfo {
    /// The client's certificate, verified in the handshake. `None`: the client sent none.
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

impl ConnectionInfo {
    /// Reports that the body of the request is complete: everything read from now on belongs to the next request.
    pub fn on_body_end(&self) {
        self.clock.on_body_end();
    }

    /// Reports that a request with `Expect: 100-continue` was refused. The client may still send the body.
    pub fn on_refusal(&self, now: Instant) {
        self.clock.on_refusal(now);
    }

    /// The client's certificate. `None`: the client sent none, or it is no longer valid
    /// ([`ClientCertificate::is_valid`]).
    pub fn valid_certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.tls.as_ref()?.certificate.as_ref().filter(|certificate| certificate.is_valid())
    }

    /// The connection of a request before it reaches the application.
    pub fn of_raw(request: &Request) -> Rc<Self> {
        let own = || request.extensions().get::<Rc<Self>>().cloned();
        // Invariant: `on_connect_ext` adds it to every connection, and HTTP/2 to every request.
        request.conn_data::<Rc<Self>>().cloned().or_else(own).expect("a request has its connection")
    }
}

/// The connection of a request.
///
/// # Panics
/// If the request was not received by a listener of this crate.
pub fn info_of(request: &HttpRequest) -> Rc<ConnectionInfo> {
    let own = || request.extensions().get::<Rc<ConnectionInfo>>().cloned();
    // Invariant: `on_connect_ext` adds it to every connection, and HTTP/2 to every request.
    request.conn_data::<Rc<ConnectionInfo>>().cloned().or_else(own).expect("a request has its connection")
}

/// A TCP socket that reports to the clock of its connection whether the kernel accepts writes.
struct ClockedTcpStream {
    stream: TcpStream,
    clock: Rc<Clock>,
}

impl ClockedTcpStream {
    fn report(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.clock.on_write_blocked(Instant::now()),
            Poll::Ready(_) => self.clock.on_write(Instant::now()),
        }
        written
    }
}

impl AsyncRead for ClockedTcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClockedTcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.report(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.report(written)
    }

    fn is_write_vectored(&self) -> bool {
        // rustls writes several TLS records in one call.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// A stream in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

enum SocketTransport {
    Plain(ClockedTcpStream),
    Tls(Box<TlsStream<ClockedTcpStream>>),
}

/// A connection that is ready for HTTP. It reports the bytes of requests to its clock.
pub struct ClientSocket {
    transport: SocketTransport,
    info: Rc<ConnectionInfo>,
}

impl ClientSocket {
    /// Prepares an accepted connection. With TLS, it performs the handshake.
    ///
    /// # Errors
    /// If the handshake fails.
    pub(super) async fn open(
        stream: TcpStream,
        peer: SocketAddr,
        clock: Rc<Clock>,
        tls: Option<&Arc<SharedTls>>,
    ) -> io::Result<Self> {
        // Both options are optimisations, so errors are ignored.
        let _ = stream.set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT);

        let wire = ClockedTcpStream { stream, clock: Rc::clone(&clock) };
        let Some(tls) = tls else {
            let info = Rc::new(ConnectionInfo { clock, peer, tls: None });
            return Ok(Self { transport: SocketTransport::Plain(wire), info });
        };

        let loaded = tls.load();
        let acceptor = TlsAcceptor::from(Arc::clone(&loaded.config));
        // Boxed, so that connections without TLS do not reserve memory for a handshake.
        let stream =
            Box::pin(acceptor.accept_with(wire, |session| session.set_buffer_limit(Some(MAX_TLS_BUFFER)))).await?;
        clock.on_handshake_end(Instant::now());
        let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
        let certificate = ClientCertificate::new(chain, Arc::clone(tls), &loaded).map(Arc::new);
        let info = Rc::new(ConnectionInfo { clock, peer, tls: Some(TlsInfo { certificate }) });
        Ok(Self { transport: SocketTransport::Tls(Box::new(stream)), info })
    }

    pub(super) fn info(&self) -> Rc<ConnectionInfo> {
        Rc::clone(&self.info)
    }

    /// True if the client chose HTTP/2 in the handshake.
    pub(super) fn is_http2(&self) -> bool {
        match &self.transport {
            SocketTransport::Plain(_) => false,
            SocketTransport::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// The plain-text side of the transport.
    fn transport(&mut self) -> &mut dyn Duplex {
        match &mut self.transport {
            SocketTransport::Plain(wire) => wire,
            SocketTransport::Tls(stream) => &mut **stream,
        }
    }

    /// Sends a 408 response if possible without waiting. Returns the error that ends the connection.
    fn time_out(&mut self, context: &mut Context<'_>) -> io::Error {
        if self.info.clock.can_send_timeout() {
            let _ = Pin::new(self.transport()).poll_write(context, TIMEOUT_RESPONSE);
        }
        io::ErrorKind::TimedOut.into()
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.info.clock.is_expired() {
            return Poll::Ready(Err(this.time_out(context)));
        }

        let before = buffer.filled().len();
        ready!(Pin::new(this.transport()).poll_read(context, buffer))?;
        this.info.clock.on_read(&buffer.filled()[before..], Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().transport()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().transport()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().transport()).poll_shutdown(context)
    }
}

/// A response body that reports its end to the clock.
pub struct TimedBody {
    body: BoxBody,
    clock: Rc<Clock>,
    /// `None`: the request is not logged.
    log: Option<Arc<RequestLog>>,
    sent: u64,
    /// Whether the body has ended, or was never polled.
    is_complete: bool,
}

impl TimedBody {
    pub(super) fn new(body: BoxBody, clock: Rc<Clock>, log: Option<Arc<RequestLog>>) -> Self {
        // Complete from the start, because the body of a response to HEAD is never polled.
        Self { body, clock, log, sent: 0, is_complete: true }
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        self.clock.on_response_end(Instant::now());
        let is_whole = matches!(self.body.size(), BodySize::Sized(size) if self.sent >= size);
        if let Some(log) = &self.log {
            log.record_end(self.sent, self.is_complete || is_whole);
        }
    }
}

impl MessageBody for TimedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        this.is_complete = false;
        let polled = Pin::new(&mut this.body).poll_next(context);
        match &polled {
            Poll::Ready(Some(Ok(bytes))) => this.sent += bytes.len() as u64,
            Poll::Ready(None) => this.is_complete = true,
            _ => {}
        }
        polled
    }
}

/// A connection that closes on a timeout.
pub(super) struct Connection<F> {
    service: Pin<Box<F>>,
    clock: Rc<Clock>,
    peer: SocketAddr,
    /// Created at the first deadline, and reset only when it fires or the deadline becomes earlier. Many connections
    /// never create one, because a request that arrives in one read is answered before.
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
            // The deadline may be later than when the timer was set: then reset the timer.
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
