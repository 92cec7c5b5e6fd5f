//! Memory for request bodies: one budget for the bodies that the process reads and decodes, and a limit on the threads
//! that decode large bodies.
//!
//! The budget counts received bytes, not announced lengths: a client that announces a large body and sends nothing uses
//! no budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies above this size in bytes are decoded on a blocking thread, so that the worker can serve other requests.
pub(super) const LARGE_BODY: usize = 256 << 10;

/// The `Retry-After` of a request that is refused because the budget is used up.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The budget and the decoder threads.
pub(super) struct Bodies {
    budget: Arc<Budget>,
    /// Permits for threads that decode large bodies, one per core. More threads would only use memory.
    decoders: Arc<Semaphore>,
}

struct Budget {
    max: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }
}

impl Bodies {
    /// `max` is the budget in bytes.
    pub(super) fn new(max: usize) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = Arc::new(Budget { max: AtomicUsize::new(max), used: AtomicUsize::new(0) });
        Self { budget, decoders: Arc::new(Semaphore::new(threads)) }
    }

    /// Changes the budget. Reservations stay, even if they exceed the new budget.
    pub(super) fn set_max(&self, max: usize) {
        self.budget.max.store(max, Ordering::Relaxed);
    }

    /// Starts the reservation of a body. `announced`: its `Content-Length`, or 0 if unknown.
    ///
    /// # Errors
    /// If a body of that length does not fit into the budget now.
    pub(super) fn begin(&self, announced: usize) -> Result<BodyReservation, Fault> {
        let reservation = BodyReservation { budget: Arc::clone(&self.budget), bytes: 0 };
        if self.budget.used.load(Ordering::Relaxed).saturating_add(announced) > self.budget.max() {
            return Err(budget_exhausted());
        }
        Ok(reservation)
    }

    /// Waits for a decoder thread. Never `None`, since the semaphore is not closed.
    pub(super) async fn decoder(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.decoders).acquire_owned().await.ok()
    }
}

/// The part of the budget that one body uses. Returned on drop.
pub(super) struct BodyReservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl BodyReservation {
    /// Reserves more bytes. After an error the bytes are reserved, too, until the drop.
    ///
    /// # Errors
    /// If the budget is used up.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) > self.budget.max() { Err(budget_exhausted()) } else { Ok(()) }
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn budget_exhausted() -> Fault {
    let mut fault = Fault::new(FaultKind::Overloaded, "too many request bodies are being read");
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_budget_and_return_their_part() {
        let bodies = Bodies::new(100);
        let mut first = bodies.begin(80).expect("there is room");
        first.grow(80).expect("as announced");
        assert_eq!(bodies.begin(30).err().map(|fault| fault.kind), Some(FaultKind::Overloaded));

        let mut second = bodies.begin(0).expect("its length is not known");
        second.grow(20).expect("there is room");
        assert!(second.grow(1).is_err_and(|fault| fault.retry_after.is_some()));
        drop((first, second));
        assert_eq!(bodies.budget.used.load(Ordering::Relaxed), 0);
        // An announced length alone uses no budget.
        let _announced = bodies.begin(100).expect("there is room");
        assert!(bodies.begin(100).is_ok());
    }
}
