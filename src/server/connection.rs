//! A connection: its socket seen by the clocks, its end when one of them has run out.
//!
//! actix-http parses and writes; it gives only the first head of a connection a time, and bodies and answers none. So
//! its service runs on a socket that tells [`Clock`] what is read and written, and inside of a future that closes the
//! connection. Not here: how long is too long ([`super::clock`]), and how many may be open ([`super::admission`]).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::rt::net::TcpStream;
use actix_web::web::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::admission::Permit;
use super::clock::Clock;

/// Unsent bytes that the system keeps for a client that does not read. What is on its way does not count, so that this
/// costs no speed on long lines; and a client has to take half of it before its clock is set back.
const UNSENT: u32 = 64 << 10;

/// What a client is told that did not finish its head.
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket whose bytes its clock sees.
pub(super) struct Socket {
    stream: TcpStream,
    clock: Rc<Clock>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, clock: Rc<Clock>) -> Self {
        // A socket that refuses an option is served all the same, only less well.
        let _ = stream.set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        Self { stream, clock }
    }

    pub(super) fn clock(&self) -> Rc<Clock> {
        Rc::clone(&self.clock)
    }

    /// Tells the client that it was too slow, where it has room for that, and ends the connection.
    fn give_up(&self) -> io::Error {
        if self.clock.is_in_head() {
            let _ = self.stream.try_write(TOO_SLOW);
        }
        io::ErrorKind::TimedOut.into()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.clock.is_expired() {
            return Poll::Ready(Err(this.give_up()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.clock.read(&buffer.filled()[before..], Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        match &written {
            Poll::Pending => this.clock.blocked(Instant::now()),
            Poll::Ready(_) => this.clock.wrote(Instant::now()),
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

/// The body of an answer, whose end the clock is told.
pub(super) struct Answer {
    body: BoxBody,
    clock: Rc<Clock>,
}

impl Answer {
    pub(super) fn new(body: BoxBody, clock: Rc<Clock>) -> Self {
        Self { body, clock }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.clock.answered(Instant::now());
    }
}

impl MessageBody for Answer {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(context)
    }
}

/// A connection that ends when its time is up.
pub(super) struct Connection<F> {
    service: Pin<Box<F>>,
    clock: Rc<Clock>,
    peer: SocketAddr,
    /// One timer, set when there is something to wait for, and looked at again only when it fires: most connections
    /// never do, because a request that comes whole is answered before one is set.
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
        if let Poll::Ready(ended) = this.service.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        while let Some(due) = this.clock.due() {
            let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if due < timer.deadline() {
                timer.as_mut().reset(due);
            }
            // One that fires too early is set again.
            ready!(timer.as_mut().poll(context));
            if due > Instant::now() {
                timer.as_mut().reset(due);
                continue;
            }
            tracing::debug!(client = %this.peer.ip(), "connection closed: {}", this.clock.waits_for());
            this.clock.expire();
            // The socket says why, if that is possible; then all of it is dropped, answers under way included.
            let _ = this.service.as_mut().poll(context);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}
