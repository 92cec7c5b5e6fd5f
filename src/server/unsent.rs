//! Answers that wait for clients to take them: bytes that are held for them have a common bound, and go out in pieces.
//!
//! The system takes a piece when the client has room. What is left stays here, once, and is counted. Not here: how
//! long a client may take nothing ([`super::clock`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use tokio::time::Sleep;

use super::stream::Steps;

/// What is handed over to be written at once. A connection buffers about twice as much.
const PIECE: usize = 32 << 10;
/// What is no longer is not counted: it is gone as soon as the connection takes it.
const SMALL: usize = 64 << 10;
/// How often a stream looks for room.
const PAUSE: Duration = Duration::from_millis(100);

/// The bytes that are held for all clients.
pub(super) struct Unsent {
    most: usize,
    held: AtomicUsize,
}

/// Bytes that are counted until this is dropped.
pub(super) struct Held {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Unsent {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: AtomicUsize::new(0) })
    }

    /// Counts an answer, if there is room for it. One that is larger than all of the room is taken when nothing else
    /// waits.
    fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let fits = |held: usize| (held == 0 || held.saturating_add(bytes) <= self.most).then_some(held + bytes);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Held { unsent: Arc::clone(self), bytes })
    }

    /// Counts what is there already.
    fn hold_anyway(self: &Arc<Self>, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { unsent: Arc::clone(self), bytes }
    }

    fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.most
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.unsent.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes on their way out, piece by piece.
struct Pieces {
    bytes: Bytes,
    _held: Option<Held>,
}

impl Pieces {
    fn next(&mut self) -> Option<Bytes> {
        let length = self.bytes.len().min(PIECE);
        (length > 0).then(|| self.bytes.split_to(length))
    }
}

/// The body of an answer that is there as a whole.
pub(super) struct Whole(Pieces);

impl Whole {
    /// None: too much waits for other clients.
    pub(super) fn new(bytes: Bytes, unsent: &Arc<Unsent>) -> Option<Self> {
        let held = if bytes.len() > SMALL { Some(unsent.hold(bytes.len())?) } else { None };
        Some(Self(Pieces { bytes, _held: held }))
    }
}

impl MessageBody for Whole {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0.bytes.len() as u64)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(self.get_mut().0.next().map(Ok))
    }
}

/// The body of a streamed answer.
pub(super) struct Streamed {
    steps: Steps,
    unsent: Arc<Unsent>,
    /// What is left of one large event.
    rest: Option<Pieces>,
    /// Until it is looked again whether there is room.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Streamed {
    pub(super) fn new(steps: Steps, unsent: &Arc<Unsent>) -> Self {
        Self { steps, unsent: Arc::clone(unsent), rest: None, pause: None }
    }
}

impl MessageBody for Streamed {
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
        // An event can be as large as an agent made it: no more of them are encoded while too many wait to be taken.
        while !this.unsent.has_room() {
            let pause = this.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE)));
            ready!(pause.as_mut().poll(context));
            this.pause = None;
        }
        let chunk = ready!(this.steps.poll_chunk(context));
        Poll::Ready(chunk.map(|chunk| {
            if chunk.len() <= SMALL {
                return Ok(chunk);
            }
            let held = this.unsent.hold_anyway(chunk.len());
            let mut rest = Pieces { bytes: chunk, _held: Some(held) };
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
    fn answers_that_are_not_taken_have_a_common_bound() {
        let unsent = Unsent::new(1 << 20);
        let answer = |bytes: usize| Whole::new(Bytes::from(vec![b'x'; bytes]), &unsent);
        let first = answer(600 << 10).expect("room for the first");
        assert!(answer(600 << 10).is_none());
        assert!(answer(SMALL).is_some(), "what is small is gone at once");
        drop(first);
        let larger_than_all = answer(2 << 20).expect("nothing else waits");
        assert!(answer(100 << 10).is_none() && !unsent.has_room());
        drop(larger_than_all);
        assert!(answer(600 << 10).is_some());
    }

    #[test]
    fn an_answer_goes_out_in_pieces_and_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 5).collect();
        let mut whole = Whole::new(bytes.clone().into(), &Unsent::new(1)).expect("nothing else waits");
        assert_eq!(whole.size(), BodySize::Sized(bytes.len() as u64));
        let mut sent = Vec::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(piece))) = Pin::new(&mut whole).poll_next(&mut context) {
            assert!(piece.len() <= PIECE);
            sent.extend_from_slice(&piece);
        }
        assert!(sent == bytes);
    }
}
