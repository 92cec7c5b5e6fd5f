//! The signal that stops the driver of a run.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// A flag with a single waiting task. Checked for every chunk of an answer, so a check is a single atomic load.
#[derive(Default)]
pub(crate) struct CancelFlag {
    is_set: AtomicBool,
    listener: AtomicWaker,
}

impl CancelFlag {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.listener.wake();
    }

    /// Clears the flag before the next turn.
    pub(crate) fn reset(&self) {
        self.is_set.store(false, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Ready when the flag is set.
    pub(crate) fn poll_set(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_set() {
            return Poll::Ready(());
        }
        self.listener.register(context.waker());
        // Check again: the flag may have been set before the waker was registered.
        if self.is_set() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the flag is set.
    pub(super) async fn wait(&self) {
        poll_fn(|context| self.poll_set(context)).await;
    }
}
