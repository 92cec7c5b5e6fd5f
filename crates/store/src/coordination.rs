//! Leases, signals and recovery: the part of every store by which its processes agree.
//!
//! Not here: the part that only a shared store has ([`super::shared`]).

use std::time::Duration;

use interlingua_core::id::RunId;
use tokio::sync::mpsc::UnboundedReceiver;

use super::StoreFuture;

/// A message from one replica to the one that holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Cancel the run.
    Cancel,
    /// Receivers of the run's push notifications were added or removed.
    ReceiversChanged,
}

/// Coordination of the processes that use a store: leases, signals to the holder of a run, and runs whose process died.
pub trait Coordination: Send + Sync + 'static {
    /// Acquires a lease, or renews it for its holder: no other holder gets it until `ttl` has passed. False: another
    /// holder has it. A holder's name is used by one run of one process only. A lease outlives its process by at most
    /// its `ttl`; in a single-process store, it ends with the process.
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool>;

    /// Releases a lease. No effect if `holder` does not have it (any more).
    fn release(&self, key: &str, holder: &str) -> StoreFuture<()>;

    /// Sends a signal to the process that holds the run. Delivered at least once to every replica that is listening; no
    /// effect for a run without a holder.
    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()>;

    /// The signals that arrive from now on, for runs of any process; the caller ignores those of other processes. The
    /// channel closes when the store is closed.
    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)>;

    /// The runs that were queued or running when their process died, oldest first. The caller now holds each of them
    /// and must load, close, open and settle it. The record may be ahead of its metadata and even contain the run's
    /// end, which no client has seen. Waiting runs are not included, because they can simply continue. Called once at
    /// startup, and every second if the store is shared: such a store returns some runs of fenced replicas at a time.
    fn recover(&self) -> StoreFuture<Vec<RunId>>;
}
