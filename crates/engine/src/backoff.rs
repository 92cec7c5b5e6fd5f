//! Exponential pauses between retries.

use std::time::Duration;

use tokio::time::sleep;

const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_millis(800);

/// The pauses of one operation. Each is twice as long as the previous one.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: MIN_PAUSE }
    }

    /// Waits before the next attempt.
    pub(super) async fn pause(&mut self) {
        let pause = self.next;
        self.next = (pause * 2).min(MAX_PAUSE);
        sleep(pause).await;
    }
}
