//! Threads whose log lines are written, but not sent to a collector: their lines are about sending.

use std::cell::Cell;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Stops sending the log lines of this thread.
pub(super) fn silence_this_thread() {
    IS_QUIET.set(true);
}

/// True if what this thread logs is not sent.
pub(super) fn is_quiet() -> bool {
    IS_QUIET.get()
}
