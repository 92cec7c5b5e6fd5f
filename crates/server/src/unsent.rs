//! Unread responses: their bytes share one budget and are written in pieces.
//!
//! The kernel accepts a piece when the client reads. The rest stays here, in one copy, and is counted. Not here: the
//! timeout of a client that does not read ([`super::clock`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use tokio::time::Sleep;

use super::access::Permits;
use super::stream::Steps;

/// The size of a written piece in bytes. A connection buffers about twice as much.
const PIECE_BYTES: usize = 32 << 10;
/// Bodies and chunks up to this size in bytes are not counted, because the connection buffers them at once.
const MIN_COUNTED: usize = 64 << 10;
/// Interval of the budget check of a paused stream.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The budget of unread response bytes of all clients.
pub(super) struct Unsent {
    max: AtomicUsize,
    reserved: AtomicUsize,
}

/// Bytes counted in the budget until this is dropped.
pub(super) struct UnsentReservation {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Unsent {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: AtomicUsize::new(max), reserved: AtomicUsize::new(0) })
    }

    /// Changes the budget. Reservations stay, even if they exceed the new budget.
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Reserves bytes. `None`: they do not fit into the budget. A response larger than the complete budget is accepted
    /// if nothing else is reserved.
    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<UnsentReservation> {
        let max = self.max.load(Ordering::Relaxed);
        let fits =
            |reserved: usize| (reserved == 0 || reserved.saturating_add(bytes) <= max).then_some(reserved + bytes);
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(UnsentReservation { unsent: Arc::clone(self), bytes })
    }

    /// Reserves bytes that are in memory already, even if they exceed the budget.
    fn force_reserve(self: &Arc<Self>, bytes: usize) -> UnsentReservation {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        UnsentReservation { unsent: Arc::clone(self), bytes }
    }

    fn has_budget(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) < self.max.load(Ordering::Relaxed)
    }
}

impl Drop for UnsentReservation {
    fn drop(&mut self) {
        self.unsent.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes to be written piece by piece.
struct Pieces {
    bytes: Bytes,
    _reservation: Option<UnsentReservation>,
}

impl Pieces {
    fn next(&mut self) -> Option<Bytes> {
        let length = self.bytes.len().min(PIECE_BYTES);
        (length > 0).then(|| self.bytes.split_to(length))
    }
}

/// The body of a complete response.
pub(super) struct CompleteBody(Pieces);

impl CompleteBody {
    /// `None` if the budget is used up.
    pub(super) fn new(bytes: Bytes, unsent: &Arc<Unsent>) -> Option<Self> {
        let reserved = if bytes.len() > MIN_COUNTED { Some(unsent.reserve(bytes.len())?) } else { None };
        Some(Self(Pieces { bytes, _reservation: reserved }))
    }
}

impl MessageBody for CompleteBody {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0.bytes.len() as u64)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(self.get_mut().0.next().map(Ok))
    }
}

/// The body of a streamed response.
pub(super) struct StreamBody {
    steps: Steps,
    unsent: Arc<Unsent>,
    /// The rest of a large chunk.
    rest: Option<Pieces>,
    /// Runs until the next check of the budget.
    pause: Option<Pin<Box<Sleep>>>,
    _permits: Permits,
}

impl StreamBody {
    pub(super) fn new(steps: Steps, unsent: &Arc<Unsent>, permits: Permits) -> Self {
        Self { steps, unsent: Arc::clone(unsent), rest: None, pause: None, _permits: permits }
    }
}

impl MessageBody for StreamBody {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if let Some(rest) = &mut this.rest {
            if let Some(piece) = rest.next() {
                return Poll::Ready(Some(Ok(piece)));
            }
            this.rest = None;
        }

        // Agents determine the size of events: encode no more while the budget is used up.
        while !this.unsent.has_budget() {
            let pause = this.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(RETRY_INTERVAL)));
            ready!(pause.as_mut().poll(context));
            this.pause = None;
        }
        let chunk = ready!(this.steps.poll_chunk(context));
        Poll::Ready(chunk.map(|chunk| {
            if chunk.len() <= MIN_COUNTED {
                return Ok(chunk);
            }
            let reserved = this.unsent.force_reserve(chunk.len());
            let mut rest = Pieces { bytes: chunk, _reservation: Some(reserved) };
            let first = rest.next();
            this.rest = Some(rest);
            Ok(first.unwrap_or_default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_responses_share_a_budget() {
        let unsent = Unsent::new(1 << 20);
        let response = |bytes: usize| CompleteBody::new(Bytes::from(vec![b'x'; bytes]), &unsent);
        let first = response(600 << 10).expect("room for the first");
        assert!(response(600 << 10).is_none());
        assert!(response(MIN_COUNTED).is_some(), "small responses are not counted");
        drop(first);
        let larger_than_budget = response(2 << 20).expect("nothing else waits");
        assert!(response(100 << 10).is_none() && !unsent.has_budget());
        drop(larger_than_budget);

        assert!(response(600 << 10).is_some());
    }

    #[test]
    fn a_response_is_written_completely_in_pieces() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * PIECE_BYTES + 5).collect();
        let mut body = CompleteBody::new(bytes.clone().into(), &Unsent::new(1)).expect("nothing else waits");
        assert_eq!(body.size(), BodySize::Sized(bytes.len() as u64));
        let mut sent = Vec::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(piece))) = Pin::new(&mut body).poll_next(&mut context) {
            assert!(piece.len() <= PIECE_BYTES);
            sent.extend_from_slice(&piece);
        }

        assert!(sent == bytes);
    }
}
