//! What a store offers that several processes use at the same time: runs that others hold, and lines for turns. Not here:
//! the rules of several processes (the [module](super) documentation).

use bytes::Bytes;
use futures_util::stream::BoxStream;
use interlingua_core::call::RunInfo;
use interlingua_core::id::RunId;

use super::{StoreError, StoreFuture};

/// What a store has of a run that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: the run is new.
    New,
    /// So many events, all of which the journal starts with, and no replica holds it.
    Existing {
        /// How many events the caller has loaded.
        events: u64,
    },
}

/// What has been committed of a run since the update before it.
#[derive(Clone, Debug)]
pub struct RunUpdate {
    /// Complete lines of [`interlingua_core::journal`] that continue those of the update before.
    pub lines: Bytes,
    /// The metadata as it stands after these lines. `None`: as before.
    pub info: Option<Box<RunInfo>>,
}

/// A place in the line for the turns of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The session, by the key of its document.
    pub session: String,
    /// Smaller numbers come first. Never used twice in a session while it has a line.
    pub number: u64,
    /// True if the line was empty. False: it may be the first one later ([`Shared::turn_comes`]).
    pub is_first: bool,
}

/// The part of [`super::Store`] that only a shared store has.
pub trait Shared: Send + Sync {
    /// Takes a place in the line for the turns of a session: the last one. `most`: so many others may be in line before
    /// it; with 0 the line has to be empty. `None`: there are more. `continues`: the run whose next turn it is.
    ///
    /// Confirmed: the place is kept until [`Shared::leave_turn`], or until its replica is fenced or leaves.
    fn queue_turn(&self, session: &str, continues: Option<RunId>, most: usize) -> StoreFuture<Option<Ticket>>;

    /// True if a place in any line is for a turn that continues this run, and has to wait for another one.
    fn is_continued(&self, run: RunId) -> StoreFuture<bool>;

    /// Resolves once no other place in line is before this one. [`StoreError::Fenced`]: the place was lost.
    fn turn_comes(&self, ticket: &Ticket) -> StoreFuture<()>;

    /// Gives a place in line up, first or not. Takes effect after all writes that were called before it.
    fn leave_turn(&self, ticket: Ticket) -> StoreFuture<()>;

    /// What is committed of a run from event `from` on, whichever replica holds it: first what there is, then what comes,
    /// without gaps, until the run ends or is deleted. The first update has the metadata.
    fn follow(&self, id: RunId, from: u64) -> BoxStream<'static, Result<RunUpdate, StoreError>>;
}
