//! The body of an answer: polls its connection itself. At the end, the connection returns to the pool.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Body as _, Incoming};
use tokio::task::coop;

use super::idle::Reuse;
use super::link::Link;
use interlingua_base::chunks::ChunkBuffer;

/// Chunks are joined until they have this many bytes. More would let one run delay the others of its thread.
const MAX_GATHERED_BYTES: usize = 16 * 1024;

/// The body of an answer: its items have all bytes that have arrived, up to a limit. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Body {
    /// `None`: the body has ended, or failed.
    open: Option<(Box<Link>, Reuse)>,
    incoming: Incoming,
    /// The error after data that was returned.
    failed: Option<hyper::Error>,
}

impl Body {
    pub(super) fn new(link: Box<Link>, incoming: Incoming, reuse: Reuse) -> Self {
        Self { open: Some((link, reuse)), incoming, failed: None }
    }

    /// The body is complete: the connection serves the next request, if it can.
    fn end(&mut self) {
        if let Some((mut link, reuse)) = self.open.take()
            && link.is_idle()
        {
            reuse.put(link);
        }
    }
}

impl Stream for Body {
    type Item = Result<Bytes, hyper::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Yields during a flood: only this task reads it, and one read of the socket can contain many chunks.
        let turn = ready!(coop::poll_proceed(context));
        let this = &mut *self;
        let without_effect = &mut Context::from_waker(Waker::noop());
        let mut gathered = ChunkBuffer::default();
        // Data that has arrived is read without registering this task, which would be woken by reading it.
        let mut is_registered = false;
        while let Some((link, _)) = &mut this.open {
            let waker = if is_registered { context.waker() } else { Waker::noop() };
            link.poll(&mut Context::from_waker(waker));
            match Pin::new(&mut this.incoming).poll_frame(without_effect) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailer fields have no meaning here.
                    if let Ok(chunk) = frame.into_data() {
                        gathered.push(chunk);
                    }
                    if gathered.len() >= MAX_GATHERED_BYTES {
                        break;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    this.open = None;
                    this.failed = Some(error);
                }
                Poll::Ready(None) => this.end(),
                Poll::Pending if !gathered.is_empty() => break,
                Poll::Pending if is_registered => return Poll::Pending,
                Poll::Pending => is_registered = true,
            }
        }

        if !gathered.is_empty() {
            turn.made_progress();
            return Poll::Ready(Some(Ok(gathered.into_bytes())));
        }
        Poll::Ready(this.failed.take().map(Err))
    }
}
