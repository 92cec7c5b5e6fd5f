//! Pauses between attempts while something outside this process fails: each is twice as long as the one before.

use std::time::Duration;

use tokio::time::sleep;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST: Duration = Duration::from_millis(800);

/// The pauses of one caller.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Before the first failure.
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// Waits before the next attempt.
    pub(super) async fn pause(&mut self) {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        sleep(pause).await;
    }
}
