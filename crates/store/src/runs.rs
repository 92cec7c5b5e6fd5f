//! Runs in a store: the trait, the run as a store sees it, and the results of searches.
//!
//! Not here: documents ([`super::documents`]) and the deletion of old runs ([`super::rules`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use interlingua_core::call::{Cursor, Filter, Order, RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;

use super::{Claim, StoreFuture};

/// A run in memory, as a store sees it. Implemented by the engine's active runs.
pub trait Journal: Send + Sync + 'static {
    /// Id of the run.
    fn id(&self) -> RunId;
    /// Calls `inspect` with the run's current state, under the run's lock. `inspect` must be quick and call nothing
    /// else. Of the record, events may be evicted that the store has reported as [`Journal::archived`].
    fn with(&self, inspect: &mut dyn FnMut(&Record, &RunInfo));
    /// The flag with which the store marks the run as queued for writing.
    fn dirty_flag(&self) -> &DirtyFlag;
    /// Reports that the first `events` events are durable and may be published. Never decreases. [`u64::MAX`]: nothing
    /// in the run will become more durable than it is. Called by the store's own thread, once per run and commit, or
    /// by the caller of [`RunStore::open`]; the implementation must be quick and may take the run's lock.
    fn committed(&self, events: u64);
    /// Reports that the store can always load the first `events` events, and does not read them from the run again: the
    /// run may free their memory ([`Record::evict`]). Called as [`Journal::committed`] is. Without effect by default.
    fn archived(&self, events: u64) {
        let _ = events;
    }
    /// Reports that another replica has taken the run over: this process must not publish or write any more of it.
    /// Called as [`Journal::committed`] is, and only by a shared store.
    fn lost(&self) {}
}

/// A flag that is set while a run with new events is queued for writing. One per [`Journal`].
#[derive(Debug, Default)]
pub struct DirtyFlag {
    queued: AtomicBool,
    generation: AtomicU64,
}

impl DirtyFlag {
    /// Sets the flag; true if it was not set.
    pub fn set(&self) -> bool {
        // A plain load first: most touches find the flag set and need not take exclusive ownership of the cache line.
        !self.queued.load(Ordering::Acquire) && !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Clears the flag. The caller reads the run afterwards, so events that arrive in between set the flag again.
    pub fn clear(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Reports that events were withdrawn: the stored copy of the run must be rewritten. Called with the run's lock
    /// held.
    pub fn bump_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of times that events were withdrawn. Read with the run's lock held.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// A run as loaded from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// The events and everything derived from them.
    pub record: Record,
    /// Metadata that is not derived from events.
    pub info: RunInfo,
}

impl StoredRun {
    /// The part of a run that [`RunStore::heads`] returns.
    #[must_use]
    pub fn head(record: &Record, info: &RunInfo) -> Self {
        Self { record: record.head(), info: without_tools(info.clone()) }
    }
}

/// The metadata of a run without the tools and the further fields of its request, which lists do not show.
pub fn without_tools(mut info: RunInfo) -> RunInfo {
    (info.request.tools, info.request.extra) = (None, interlingua_core::Extra::new());
    info
}

/// The runs that [`RunStore::find`] returns.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Names of agents, one of which the run must belong to. Empty: any agent.
    pub agents: Vec<String>,
    /// `None`: any owner, for the gateway's internal use.
    pub owner: Option<String>,
    /// All further conditions. A `limit` of 0 means [`Query::LIMIT`].
    pub filter: Filter,
    /// Only runs whose preview, session or owner contains this text, in any case of ASCII letters; whose id it is; or
    /// which failed with an error code that begins with it, as written or in capitals.
    pub text: Option<String>,
    /// Routes with their expiry times: a run of the route that ended earlier is left out, even if it still exists.
    pub expired_before: Vec<(String, Millis)>,
}

impl Query {
    /// Runs per page if the request names no limit.
    pub const LIMIT: usize = 50;
}

/// The two spellings of an error code that a search text may begin: as written and in capitals. `None`: the text is no
/// beginning of a code.
pub fn code_prefixes(text: &str) -> Option<[String; 2]> {
    const LENGTHS: std::ops::RangeInclusive<usize> = 3..=64;
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let valid = LENGTHS.contains(&text.len()) && text.bytes().all(is_code);
    valid.then(|| [text.to_owned(), text.to_ascii_uppercase()])
}

/// The bytes in a stored head where the code of an error begins ([`interlingua_core::journal`]).
pub fn code_in_head(code: &str) -> Vec<u8> {
    format!("\",[\"{code}").into_bytes()
}

/// A list entry for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Id of the run.
    pub id: RunId,
    /// Name of the agent.
    pub agent: String,
    /// Id of the session.
    pub session: String,
    /// Current state.
    pub state: RunState,
    /// When it was created.
    pub created_at: Millis,
    /// When the state last changed.
    pub changed_at: Millis,
    /// Approximate size in bytes.
    pub size: u64,
    /// Name of the protocol over which it was started.
    pub protocol: String,
    /// Its owner: [`interlingua_core::Owner::key`].
    pub owner: String,
    /// The number of its stored events.
    pub events: u64,
    /// Its first text ([`interlingua_core::Run::preview`]). Empty for runs of versions that did not store it.
    pub preview: String,
}

impl RunHead {
    /// The start of the page that follows this run.
    pub const fn cursor(&self, order: Order) -> Cursor {
        Cursor { at: order.time(self.created_at, self.changed_at), id: self.id }
    }
}

/// The cost of loading a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadCost {
    /// Bytes to read. 0 if the run is in memory anyway and loading it makes no copy.
    pub bytes: u64,
    /// For a run that has ended: a fingerprint that differs whenever loading would return something else. `None`: the
    /// run may continue.
    pub fingerprint: Option<u64>,
}

/// One page of [`RunStore::find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPage {
    /// Sorted as [`Filter::order`] says. Runs that cannot be read are left out: any page may have fewer runs than its
    /// limit, or none.
    pub runs: Vec<RunHead>,
    /// Number of matches on all pages together.
    pub total: usize,
    /// Start of the next page. `None`: this is the last page.
    pub next: Option<Cursor>,
}

/// Stores runs. The [crate](crate) documentation has the contract of all methods.
///
/// # Examples
///
/// A run is opened, updated, committed and loaded again. In the gateway the engine implements [`Journal`]:
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use interlingua_store::{Claim, DirtyFlag, Journal, Memory, RunStore, StoreError};
/// use interlingua_core::RunId;
/// use interlingua_core::call::RunInfo;
/// # use interlingua_core::call::{Delivery, RunState};
/// # use interlingua_core::event::End;
/// # use interlingua_core::json::Json;
/// # use interlingua_core::model::AgentRequest;
/// use interlingua_core::run::{Record, Run};
///
/// struct ActiveRun {
///     id: RunId,
///     state: Mutex<(Record, RunInfo)>,
///     dirty: DirtyFlag,
/// }
///
/// impl Journal for ActiveRun {
///     fn id(&self) -> RunId {
///         self.id
///     }
///     fn with(&self, inspect: &mut dyn FnMut(&Record, &RunInfo)) {
///         let state = self.state.lock().unwrap();
///         inspect(&state.0, &state.1);
///     }
///     fn dirty_flag(&self) -> &DirtyFlag {
///         &self.dirty
///     }
///     // A server would publish this many events to its clients.
///     fn committed(&self, _events: u64) {}
/// }
///
/// # fn info() -> RunInfo {
/// #     RunInfo {
/// #         protocol: "agent-api".into(),
/// #         owner: "olga".into(),
/// #         state: RunState::Queued,
/// #         changed_at: 1000,
/// #         previous: None,
/// #         delivery: Delivery::Stream,
/// #         stored: true,
/// #         request: AgentRequest::default(),
/// #         labels: Json::null(),
/// #         tags: Default::default(),
/// #         retention: None,
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let store = Memory::new();
/// let id = RunId::parse("00000000-0000-0000-0000-000000000001").unwrap();
/// let record = Record::new(Run::new(id, "demo", "session-1", 1000));
/// let active = Arc::new(ActiveRun { id, state: Mutex::new((record, info())), dirty: DirtyFlag::default() });
///
/// let run: Arc<dyn Journal> = active.clone();
/// store.open(&run, Claim::New).await?;
///
/// {
///     let (record, info) = &mut *active.state.lock().unwrap();
///     record.start_turn(Vec::new());
///     record.finish_turn(End::Completed, None);
///     record.finish_run(End::Completed);
///     info.state = RunState::Ended(End::Completed);
/// }
/// store.touch(&run);
/// store.settle(&run).await?;
///
/// let loaded = store.load(id).await?.expect("the run was opened");
/// assert!(loaded.record.is_finished());
/// assert_eq!(store.load(RunId::parse("00000000-0000-0000-0000-000000000002").unwrap()).await?, None);
/// # Ok(())
/// # }
/// ```
pub trait RunStore: Send + Sync + 'static {
    /// Registers a run, or replaces the journal of a registered one. Must be called before the first touch of every
    /// journal, including one recreated from [`RunStore::load`]; such a journal starts with all stored events.
    ///
    /// Confirmed: the caller holds the run, which can be found and is recovered after a crash. Its events so far are
    /// durable, as reported by [`Journal::committed`]. In a shared store: [`StoreError::Fenced`] if another replica
    /// holds the run, or has continued it since it was loaded.
    fn open(&self, run: &Arc<dyn Journal>, claim: Claim) -> StoreFuture<()>;

    /// Reports that a run has new events. Never blocks, never fails: the events become durable within a fraction of a
    /// second, or with the next [`RunStore::settle`], and the journal is notified. No effect for a run that was not
    /// opened; for a removed one the journal is notified that nothing in it can be lost.
    fn touch(&self, run: &Arc<dyn Journal>);

    /// Confirms that a run is durable as it was at the time of the call, or later, with all of its metadata. No effect
    /// for a run that was not opened; for a removed one the journal is notified that nothing in it can be lost.
    ///
    /// Between two turns or after the end of a run the store may then drop the journal; a later touch registers it
    /// again. In a shared store the run has no holder then, and has to be opened again before it is touched.
    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()>;

    /// Loads a run: everything settled, and possibly more. `None`: there is no such run.
    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>>;

    /// The cost of loading a run, determined without loading it. `None`: there is no such run.
    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>>;

    /// The owner of a run, determined without loading it. `None`: there is no such run.
    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>>;

    /// Runs without their messages ([`Record::head`]) and without the tools and unknown fields of their requests: what
    /// lists show, at a cost that does not depend on the size of the runs. Missing runs are left out; the result has
    /// the order of `ids`.
    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>>;

    /// One page of runs. Every matching run that does not change between the pages is on exactly one of them; one that
    /// changes in between moves to the front and may be missed or seen twice. Ended runs that are not
    /// [`RunInfo::stored`], or that have expired under their route's rules, are on no page.
    fn find(&self, query: Query) -> StoreFuture<RunPage>;

    /// The most recently accepted run of a session, among these agents (empty: any agent) and the runs that
    /// [`RunStore::find`] returns.
    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>>;

    /// Deletes a run, atomically. True if there was one. The caller stops updating the run first.
    fn remove(&self, id: RunId) -> StoreFuture<bool>;
}
