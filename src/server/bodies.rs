//! The memory that bodies of requests may take while they are read and decoded: one budget for the whole process, and
//! threads of their own for those that take long.
//!
//! What has come counts, not what is announced: a client that announces much and sends nothing holds nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body longer than this is decoded elsewhere than on the thread that read it, which serves other requests meanwhile.
pub(super) const LONG: usize = 256 << 10;

/// When a client that found no room should ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The bodies that are read or decoded at the moment.
pub(super) struct Bodies {
    room: Arc<Room>,
    /// Long bodies are decoded by no more threads than there are cores: more would only take memory.
    decoding: Arc<Semaphore>,
}

struct Room {
    most: usize,
    taken: AtomicUsize,
}

impl Bodies {
    /// Bodies that may take so many bytes together.
    pub(super) fn new(most: usize) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let room = Arc::new(Room { most, taken: AtomicUsize::new(0) });
        Self { room, decoding: Arc::new(Semaphore::new(threads)) }
    }

    /// Begins a body.
    ///
    /// # Errors
    /// If one of the length it announces would not fit now.
    pub(super) fn begin(&self, announced: usize) -> Result<Taken, Fault> {
        let taken = Taken { room: Arc::clone(&self.room), bytes: 0 };
        if self.room.taken.load(Ordering::Relaxed).saturating_add(announced) > self.room.most {
            return Err(full());
        }
        Ok(taken)
    }

    /// Waits for a thread that decodes. `None`: never, since nobody closes the semaphore.
    pub(super) async fn decoder(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.decoding).acquire_owned().await.ok()
    }
}

/// What one body takes of the budget, given back when it is dropped.
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Taken {
    /// Takes more of it.
    ///
    /// # Errors
    /// If there is no more.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let before = self.room.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) > self.room.most { Err(full()) } else { Ok(()) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn full() -> Fault {
    let mut fault = Fault::new(FaultKind::Overloaded, "too many bodies are being read at the moment");
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_budget_and_give_back_what_they_took() {
        let bodies = Bodies::new(100);
        let mut first = bodies.begin(80).expect("there is room");
        first.grow(80).expect("as announced");
        assert_eq!(bodies.begin(30).err().map(|fault| fault.kind), Some(FaultKind::Overloaded));
        let mut second = bodies.begin(0).expect("its length is not known");
        second.grow(20).expect("there is room");
        assert!(second.grow(1).is_err_and(|fault| fault.retry_after.is_some()));
        drop((first, second));
        assert_eq!(bodies.room.taken.load(Ordering::Relaxed), 0);
        // What is only announced takes nothing from others.
        let _announced = bodies.begin(100).expect("there is room");
        assert!(bodies.begin(100).is_ok());
    }
}
