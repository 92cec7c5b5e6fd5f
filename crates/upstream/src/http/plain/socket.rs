//! The socket below a connection of hyper: notes facts that hyper does not report, and keeps an early answer readable.
//!
//! A server may refuse a request before it has read all of it, and close the connection. hyper then ends with the
//! error of the write, although the refusal has arrived. The socket therefore keeps an error of a write, and discards
//! the rest of the request: the reader returns the answer, or the end of the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The progress of the last request.
#[derive(Debug, Default)]
pub(super) struct Progress {
    has_answer: AtomicBool,
    is_write_closed: AtomicBool,
}

impl Progress {
    /// The next request begins.
    pub(super) fn begin(&self) {
        self.has_answer.store(false, Ordering::Relaxed);
    }

    /// True if a byte was received since the request began.
    pub(super) fn has_answer(&self) -> bool {
        self.has_answer.load(Ordering::Relaxed)
    }

    /// True if the server does not accept the rest of a request: the connection cannot serve another one.
    pub(super) fn is_write_closed(&self) -> bool {
        self.is_write_closed.load(Ordering::Relaxed)
    }
}

/// A socket that notes the progress of requests.
#[derive(Debug)]
pub(super) struct Socket<S> {
    stream: S,
    progress: Arc<Progress>,
    write_error: Option<io::Error>,
}

impl<S> Socket<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress, write_error: None }
    }
}

impl<S: Unpin> Socket<S> {
    /// Writes, or discards `length` bytes if the server accepts no more.
    fn write_or_discard(
        &mut self,
        length: usize,
        write: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.progress.is_write_closed() {
            return Poll::Ready(Ok(length));
        }
        match ready!(write(Pin::new(&mut self.stream))) {
            Ok(written) => Poll::Ready(Ok(written)),
            Err(error) => {
                self.progress.is_write_closed.store(true, Ordering::Relaxed);
                self.write_error = Some(error);
                Poll::Ready(Ok(length))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.progress.has_answer.store(true, Ordering::Relaxed);
        } else if !self.progress.has_answer()
            && let Some(error) = self.write_error.take()
        {
            // The system reports the reason once, in this case to the write.
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_or_discard(bytes.len(), |stream| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.write_or_discard(length, |stream| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
