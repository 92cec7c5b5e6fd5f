//! The interface of a store that several processes share: other processes' runs, queues of turns, and the state of this
//! process among the others. Not here: the rules of several processes (the [module](super) documentation).

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use interlingua_core::call::RunInfo;
use interlingua_core::id::RunId;

use super::{StoreError, StoreFuture};

/// The stored part of a run that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: the run is new.
    New,
    /// So many events, all of which the journal starts with, and no replica holds it.
    Existing {
        /// The number of events that the caller has loaded.
        events: u64,
    },
}

/// The committed part of a run since the previous update.
#[derive(Clone, Debug)]
pub struct RunUpdate {
    /// Complete lines of [`interlingua_core::journal`] that continue those of the update before.
    pub lines: Bytes,
    /// The metadata as it stands after these lines. `None`: as before.
    pub info: Option<Box<RunInfo>>,
}

/// A place in the queue of a session's turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The session, by the key of its document.
    pub session: String,
    /// Smaller numbers come first. Never used twice in a session while it has a line.
    pub number: u64,
    /// True if the line was empty. False: it may be the first one later ([`SharedStore::wait_for_turn`]).
    pub is_first: bool,
}

/// The state of a replica's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseState {
    /// It has none yet: the storage was not reached since the process began.
    Joining,
    /// Renewed in time.
    #[default]
    Held,
    /// Not renewed for more than three quarters of its time. Nothing is lost until another replica takes it.
    Late,
    /// Another replica has taken it, or it was late for too long: the runs are lost, and the process joins as a new
    /// replica.
    Lost,
}

impl LeaseState {
    /// The name that operators see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Held => "held",
            Self::Late => "late",
            Self::Lost => "lost",
        }
    }
}

/// The state of a replica among the others, as last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Its lease.
    pub lease: LeaseState,
    /// Since the lease was renewed. `None`: never, or it is not known.
    pub since_renewal: Option<Duration>,
    /// Replicas that were seen within a lease, with this one.
    pub replicas: usize,
    /// Runs that it holds.
    pub held: usize,
    /// Runs that it follows.
    pub following: usize,
    /// Runs that it holds and others follow.
    pub followed: usize,
    /// Turns of this process that wait in the queue.
    pub turns_waiting: usize,
    /// Connections to the storage.
    pub connections: usize,
}

/// The part of [`super::Store`] that only a shared store has.
pub trait SharedStore: Send + Sync {
    /// The state of this replica among the others. Cheap.
    fn status(&self) -> ReplicaStatus {
        ReplicaStatus::default()
    }

    /// Takes the last place in the queue of a session's turns. `most`: the maximum number of places before it; with 0
    /// the queue must be empty. `None`: the queue is longer. `continues`: the run whose next turn it is.
    ///
    /// Confirmed: the place is kept until [`SharedStore::leave_turn`], or until its replica is fenced or leaves. Not
    /// confirmed: a place that was taken nevertheless is given up.
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>>;

    /// True if a place in any line is for a turn that continues this run, and has to wait for another one.
    fn is_continued(&self, run: RunId) -> StoreFuture<bool>;

    /// Resolves once this place is the first in the queue. [`StoreError::Fenced`]: the place was lost.
    fn wait_for_turn(&self, ticket: &Ticket) -> StoreFuture<()>;

    /// Gives up a place in the queue, first or not. Takes effect after all writes that were called before it. If the
    /// storage is unreachable, the store does it later: the caller need not repeat the call.
    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()>;

    /// The committed part of a run from event `from` on, whichever replica owns it: first the existing events, then new
    /// ones, without gaps, until the run ends or is deleted. The first update has the metadata.
    fn follow(&self, id: RunId, from: u64) -> BoxStream<'static, Result<RunUpdate, StoreError>>;
}
