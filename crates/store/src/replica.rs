//! Values that processes of one store exchange: claims, committed parts of runs, places in queues, and the state of a
//! process among the others. Not here: the rules of several processes (the [crate](super) documentation).

use std::time::Duration;

use bytes::Bytes;
use interlingua_core::call::RunInfo;

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
    /// True if the line was empty. False: it may be the first one later ([`TurnQueue::wait_for_turn`](super::TurnQueue::wait_for_turn)).
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
