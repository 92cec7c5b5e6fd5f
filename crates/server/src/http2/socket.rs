//! The socket of an HTTP/2 connection: reports received bytes to the guard, and closes in a way that lets the client
//! read the last frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::super::connection::ClientSocket;
use super::floods::FloodGuard;

/// Time for the client to close its side. If the gateway closed first with bytes unread, the system would discard the
/// last sent bytes.
const LINGER_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of bytes that are discarded in this time.
const MAX_DISCARDED: usize = 1 << 20;

pub(super) struct GuardedSocket {
    socket: ClientSocket,
    guard: Rc<FloodGuard>,
    /// True once the client has closed its side.
    is_ended: bool,
    closing: Closing,
}

#[derive(Default)]
enum Closing {
    #[default]
    Open,
    /// The gateway's side is closed: the timer for the client to close its own, and the number of discarded bytes
    /// since.
    Lingering(Pin<Box<Sleep>>, usize),
}

impl GuardedSocket {
    pub(super) const fn new(socket: ClientSocket, guard: Rc<FloodGuard>) -> Self {
        Self { socket, guard, is_ended: false, closing: Closing::Open }
    }

    /// Discards received bytes until the client has closed its side, or a limit is reached.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Closing::Lingering(timer, discarded) = &mut self.closing else { return Poll::Ready(()) };
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }

        let mut space = [0; 4096];
        while *discarded < MAX_DISCARDED {
            let mut buffer = ReadBuf::new(&mut space);
            let read = ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            *discarded += buffer.filled().len();
        }
        Poll::Ready(())
    }
}

impl AsyncRead for GuardedSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.guard.exceeded().is_some() {
            // The driver closes the connection as soon as the library returns.
            return Poll::Pending;
        }

        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        this.is_ended |= read.is_empty() && buffer.remaining() > 0;
        this.guard.on_read(read, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Closing::Open = this.closing {
            ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
            if this.is_ended {
                return Poll::Ready(Ok(()));
            }
            this.closing = Closing::Lingering(Box::pin(tokio::time::sleep(LINGER_TIMEOUT)), 0);
        }
        this.poll_linger(context).map(Ok)
    }
}
