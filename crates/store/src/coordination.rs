//! Leases, signals, recovery and queues of turns: the part of every store by which its processes agree.
//!
//! Not here: the values that they exchange ([`super::replica`]), and the part of a store of one process
//! ([`super::local`]).

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use interlingua_core::id::RunId;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Expect, Journal, ReplicaStatus, RunUpdate, StoreError, StoreFuture, Ticket, Version};

/// Time that a store of one process has to write the end of a run.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A message from one replica to the one that holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Cancel the run.
    Cancel,
    /// Receivers of the run's push notifications were added or removed.
    ReceiversChanged,
}

/// The queues of sessions' turns: in each, the turns of all processes are taken in one order.
pub trait TurnQueue: Send + Sync + 'static {
    /// Takes the last place in the queue of a session's turns. `most`: the maximum number of places before it; with 0
    /// the queue must be empty. `None`: the queue is longer. `continues`: the run whose next turn it is.
    ///
    /// Confirmed: the place is kept until [`TurnQueue::leave_turn`], or until its replica is fenced or leaves. Not
    /// confirmed: a place that was taken nevertheless is given up.
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>>;

    /// True if a place in any queue is for a turn that continues this run, and has to wait for another one.
    fn is_continued(&self, run: RunId) -> StoreFuture<bool>;

    /// Resolves once this place is the first in the queue. [`StoreError::Fenced`]: the place was lost.
    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()>;

    /// Gives up a place in the queue, first or not. For other processes, takes effect after all writes that were called
    /// before it. If the storage is unreachable, the store does it later: the caller need not repeat the call.
    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()>;
}

/// Coordination of the processes that use a store: leases, signals to the holder of a run, queues of turns, and runs
/// whose process died. The default implementations are those of a store that one process uses at a time.
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
    /// end, which no client has seen. Waiting runs are not included, because they can simply continue. Called at startup
    /// and every second after it. A store of one process returns each run once; any other store returns some runs of
    /// fenced replicas at a time.
    fn recover(&self) -> StoreFuture<Vec<RunId>>;

    /// The queues of sessions' turns.
    fn turns(&self) -> &dyn TurnQueue;

    /// The state of this replica among the others, for operators. Cheap. `None`: the store has no other replicas.
    fn replica(&self) -> Option<ReplicaStatus> {
        None
    }

    /// Time that the store has to write the end of a run before that end is withdrawn. `None`: no limit, because other
    /// processes may have read an end that this process cannot know to be written.
    fn write_timeout(&self) -> Option<Duration> {
        Some(WRITE_TIMEOUT)
    }

    /// True if a run without a turn under way has no holder: any process takes its next turn and shows it to clients.
    /// False: it stays in the memory of the process that has it while someone follows it.
    fn runs_move(&self) -> bool {
        false
    }

    /// Releases a run that has no turn under way and leaves the memory of this process, so that any process can open
    /// it.
    fn let_go(&self, _run: &Arc<dyn Journal>) {}

    /// The committed part of a run from event `from` on, whichever replica owns it: first the existing events, then new
    /// ones, without gaps, until the run ends or is deleted. The first update has the metadata. `None`: no other process
    /// writes runs.
    fn follow(&self, _id: RunId, _from: u64) -> Option<BoxStream<'static, Result<RunUpdate, StoreError>>> {
        None
    }

    /// The condition for replacing a document of which this process knows the version; `known` is `None` if it has
    /// found none. [`Expect::Any`]: no other process writes documents, so that the version that this process knows is
    /// the latest one.
    fn replaces(&self, _known: Option<Version>) -> Expect {
        Expect::Any
    }
}
