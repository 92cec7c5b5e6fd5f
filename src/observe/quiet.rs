//! Threads whose log lines are written, and not sent to a collector: what they say is about sending.

use std::cell::Cell;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What this thread logs is not sent from now on.
pub(super) fn silence_this_thread() {
    IS_QUIET.set(true);
}

/// True if what this thread logs is not sent.
pub(super) fn is_quiet() -> bool {
    IS_QUIET.get()
}
