//! Storage of runs, sessions and documents: the [`Store`] trait and its contract.
//!
//! The engine updates runs in memory; the store persists them later. [`Store::touch`] reports that a run has new
//! events and costs one atomic flag; [`Store::settle`] waits until everything reported so far is durable. The contract
//! tests in `tests/store` run against every implementation. Not here: the meaning of sessions and documents (the
//! engine), the journal format (`interlingua_core::journal`), and the settings (`interlingua_config`).
//!
//! # The contract
//!
//! **Futures.** Work starts when a method is called, not when its future is polled; dropping a future cancels nothing.
//! Writes take effect in call order; a read sees every write that was confirmed before the call, and possibly later
//! ones. No method blocks the calling thread for longer than a memory access. Only [`Store::touch`] may be called while
//! a run's lock is held, because a store takes that lock ([`Journal::with`]) itself.
//!
//! **Durability.** *Durable* means: survives `kill -9` of the process if the store outlives it, and otherwise lasts
//! until the process ends. A write whose future succeeded is durable and visible to every later call. A store with
//! several replicas confirms a write once the shared storage has confirmed it.
//!
//! **Publishing.** Clients never see an event that a crash could lose: after each commit the store notifies every run
//! in it how many of its events are durable ([`Journal::committed`]), and the run publishes no more than those. A store
//! that loses everything with its process has nothing to wait for; it reports that once, when a run is opened.
//! **Atomicity.** A run is loaded in a consistent state: complete events and the metadata that belongs to them, never
//! half an event. A document is present in full, in one version, or absent.
//!
//! **Failure.** A store that cannot write reports this to every caller that waits and through [`Store::health`], keeps
//! its data in memory, keeps retrying, and never ends the process. A run whose `open` or `settle` failed stays pending
//! until [`Store::remove`]; until then it is loaded from memory.
//!
//! **Several processes.** A store may be shared ([`Store::shared`]). Each process that uses it is a *replica*, with an
//! id of its own that ends with it. The replica that opened a run *holds* it until it settles the run's end, or a turn
//! after which the run waits: only the holder writes the run, and the store itself refuses every other writer
//! ([`StoreError::Fenced`]). A replica that the others have not seen for the time of a lease may be *fenced*: from then
//! on it writes nothing, its runs are handed out by [`Store::recover`], each to one replica, and it learns of each that it
//! has lost it ([`Journal::lost`]). Until it is fenced it loses nothing, however late it is. Other replicas follow a run
//! ([`SharedStore::follow`]) and stop it ([`Store::signal`]). The turns of a session are taken in one order on all replicas
//! ([`SharedStore::queue_turn`]). Order and time are the store's.

mod error;
pub mod fair;
pub mod local;
pub mod log;
mod memory;
mod owner_bounds;
pub mod retention;
mod shared;
mod transfer;

pub use self::error::StoreError;
pub use self::shared::{Claim, LeaseState, ReplicaStatus, RunUpdate, SharedStore, Ticket};
pub use self::transfer::{StoredDocument, StoredItem, TransferTotals};
pub use memory::Memory;
pub use owner_bounds::{OwnerBounds, OwnerBoundsOf};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use interlingua_core::call::{Cursor, Filter, Order, RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::exchange::RunRetention;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;
use tokio::sync::mpsc::UnboundedReceiver;

/// The result of a store method; see "Futures" in the [module](self) documentation.
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

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
    /// by the caller of [`Store::open`]; the implementation must be quick and may take the run's lock.
    fn committed(&self, events: u64);
    /// Reports that the store can always load the first `events` events, and does not read them from the run again: the
    /// run may free their memory ([`Record::evict`]). Called as [`Journal::committed`] is. Without effect by default.
    fn archived(&self, events: u64) {
        let _ = events;
    }
    /// Reports that another replica has taken the run over: nothing of it may be published or written any more. Called as
    /// [`Journal::committed`] is, and only by a shared store.
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

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSizes {
    /// Its file in bytes; 0 for memory.
    pub bytes: u64,
    /// Runs that could not be written yet.
    pub owed: usize,
}

/// Whether a store can write.
#[derive(Clone, Debug, Default)]
pub enum Health {
    /// The store works, according to its last operation.
    #[default]
    Good,
    /// No; the store keeps retrying.
    Failing {
        /// When the first write failed, or when the stuck write began.
        since: Instant,
        /// The latest failure.
        error: StoreError,
    },
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
    /// The part of a run that [`Store::heads`] returns.
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

/// The runs that [`Store::find`] returns.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Names of agents, one of which the run must belong to. Empty: any agent.
    pub agents: Vec<String>,
    /// `None`: any owner, for the gateway's internal use.
    pub owner: Option<String>,
    /// All further conditions. A `limit` of 0 means [`Query::LIMIT`].
    pub filter: Filter,
    /// Only runs whose preview, session or owner contains this text, in any case of ASCII letters; whose id it is; or which
    /// failed with an error code that begins with it, as written or in capitals.
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
    /// The protocol it was started over.
    pub protocol: String,
    /// Its owner: [`interlingua_core::Owner::key`].
    pub owner: String,
    /// The number of its stored events.
    pub events: u64,
    /// Its first text ([`interlingua_core::Run::preview`]). Empty for runs of versions that did not store it.
    pub preview: String,
}

impl RunHead {
    /// Where the page begins that follows this run.
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

/// One page of [`Store::find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPage {
    /// Sorted as [`Filter::order`] says.
    pub runs: Vec<RunHead>,
    /// Number of matches on all pages together.
    pub total: usize,
    /// Start of the next page. `None`: this is the last page.
    pub next: Option<Cursor>,
}

/// Version of a document: greater for every later write to the store, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A document at one moment. Its owner defines the meaning of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Content.
    pub value: Bytes,
    /// Current version.
    pub version: Version,
    /// The version with which it was created: sorts documents by creation.
    pub created: Version,
}

/// A list entry for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentEntry {
    /// Full key within the collection.
    pub key: String,
    /// The document itself.
    pub document: Document,
}

/// Precondition of a write to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No precondition.
    Any,
    /// The document does not exist.
    Absent,
    /// The document has this version.
    Version(Version),
}

/// One of several writes that are done together.
#[derive(Clone, Debug)]
pub struct DocumentWrite {
    /// The document's collection.
    pub collection: &'static str,
    /// Full key within the collection.
    pub key: String,
    /// The new content. `None`: the document is deleted.
    pub value: Option<Bytes>,
    /// The precondition.
    pub expect: Expect,
}

/// The precondition of a write did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// The rules by which [`Store::retain`] deletes.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Time that a run is kept after its last change, and a document after its last write.
    pub age: Duration,
    /// Maximum number of runs. Above it, the owners with the most runs lose runs first: those that ended and changed
    /// longest ago.
    pub runs: u64,
    /// Maximum number of documents in each of the `collections`, by the same rule.
    pub documents: u64,
    /// Approximate maximum size in bytes, enforced first on runs and then on documents in `collections`, by the same
    /// rule.
    pub bytes: u64,
    /// Collections whose documents expire by age. All other documents stay.
    pub collections: Vec<String>,
    /// Collections of part documents, each with the collection of the documents they belong to: both are deleted
    /// together.
    pub parts: Vec<(String, String)>,
    /// Routes that keep their runs ([`RunInfo::retention`]) for less time, with a maximum per owner. A run that other
    /// runs continue from is hidden instead of deleted; from then on only the general rules apply to it.
    pub routes: Vec<(String, RunRetention)>,
    /// Collections whose documents are deleted with a run: those under [`owned_key`] of the run's owner and `<run>/…`.
    pub attached: Vec<String>,
    /// The limits of each principal. A principal that exceeds its limit loses its own oldest data, before the rules
    /// above delete data of anyone.
    pub bounds: OwnerBoundsOf,
}

impl Retention {
    /// For each route, the time before which its ended runs are expired.
    #[must_use]
    pub fn expiry_cutoffs(&self, now: Millis) -> Vec<(String, Millis)> {
        self.routes.iter().map(|(route, rules)| (route.clone(), before(now, rules.ended_ttl))).collect()
    }

    /// The route's rules for a run. `None`: only the general rules apply.
    #[must_use]
    pub fn rules_for(&self, info: &RunInfo) -> Option<&RunRetention> {
        let owner = info.retention.as_ref()?;
        self.routes.iter().find(|(route, _)| *route == owner.route).map(|(_, rules)| rules)
    }

    /// True if a run has ended and its time to live is over.
    #[must_use]
    pub fn is_expired(&self, info: &RunInfo, now: Millis) -> bool {
        matches!(info.state, RunState::Ended(_))
            && self.rules_for(info).is_some_and(|rules| info.changed_at < before(now, rules.ended_ttl))
    }

    /// True if a run has waited for input longer than it may.
    #[must_use]
    pub fn is_stale(&self, info: &RunInfo, now: Millis) -> bool {
        let ttl = self.rules_for(info).map_or(self.age, |rules| rules.waiting_ttl.min(self.age));

        matches!(info.state, RunState::Waiting | RunState::WaitingForAuth) && info.changed_at < before(now, ttl)
    }

    /// The shortest time to live of all rules.
    #[must_use]
    pub fn min_ttl(&self) -> Duration {
        let times = self.routes.iter().flat_map(|(_, rules)| [rules.ended_ttl, rules.waiting_ttl]);
        times.fold(self.age, Duration::min)
    }
}

/// The time `age` before `now`.
pub fn before(now: Millis, age: Duration) -> Millis {
    now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Key range of the documents attached to a run: first key (inclusive), last key (exclusive).
pub fn attached_keys(owner: &str, run: RunId) -> (String, String) {
    // '0' is the character after '/'.
    (owned_key(owner, &format!("{run}/")), owned_key(owner, &format!("{run}0")))
}

/// The key of a part of a document. `index` orders the parts.
#[must_use]
pub fn part_key(document: &str, index: u64) -> String {
    format!("{document}{PART}{index:016x}")
}

/// Key range of the parts of a document: first key (inclusive), last key (exclusive).
pub fn part_keys(document: &str) -> (String, String) {
    // U+001D is the character after `PART`.
    (format!("{document}{PART}"), format!("{document}\u{1d}"))
}

/// Separates a document's key from the part index. Document keys never contain this character.
const PART: char = '\u{1c}';

/// The owner in a document's key: keys start with the owner, or with an agent's name followed by the owner.
pub fn owner_in<'a>(collection: &str, key: &'a str) -> &'a str {
    let nth = usize::from(BY_AGENT.contains(&collection));
    key.split('\u{1f}').nth(nth).unwrap_or("")
}

/// Collections whose keys start with an agent's name.
const BY_AGENT: [&str; 4] = ["sessions", "asked", "branches", "entries"];

/// The key of a document that belongs to an owner, so that no owner can address another owner's documents. `owner` is
/// [`interlingua_core::Owner::key`], which never contains the separator.
#[must_use]
pub fn owned_key(owner: &str, key: &str) -> String {
    format!("{owner}\u{1f}{key}")
}

/// The deletions of one call of [`Store::retain`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Deleted runs.
    pub runs: Vec<RunId>,
    /// Runs that their owners no longer find, but that stay stored for their conversations.
    pub hidden: Vec<RunId>,
    /// Number of deleted documents.
    pub documents: usize,
    /// Runs that have waited too long. The store keeps them; the engine ends them.
    pub stale: Vec<RunId>,
    /// True if there is more to delete: call again.
    pub more: bool,
}

/// A message from one replica to the one that holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Cancel the run.
    Cancel,
    /// Receivers of what happens in the run were named or removed.
    ReceiversChanged,
}

/// Stores runs, documents and leases. The [module](self) documentation has the contract of all methods.
///
/// # Examples
///
/// A run is opened, updated, committed and loaded again. In the gateway the engine implements [`Journal`]:
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use interlingua_store::{Claim, DirtyFlag, Journal, Memory, Store, StoreError};
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
pub trait Store: Send + Sync + 'static {
    /// The interface of a store that several processes share. `None`: only this process uses the store.
    fn shared(&self) -> Option<&dyn SharedStore> {
        None
    }

    /// Registers a run, or replaces the journal of a registered one. Must be called before the first touch of every
    /// journal, including one recreated from [`Store::load`]; such a journal starts with all stored events.
    ///
    /// Confirmed: the caller holds the run, which can be found and is recovered after a crash. Its events so far are
    /// durable, as reported by [`Journal::committed`]. In a shared store: [`StoreError::Fenced`] if another replica holds
    /// the run, or has continued it since it was loaded.
    fn open(&self, run: &Arc<dyn Journal>, claim: Claim) -> StoreFuture<()>;

    /// Reports that a run has new events. Never blocks, never fails: the events become durable within a fraction of a
    /// second, or with the next [`Store::settle`], and the journal is notified. No effect for a run that was not
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
    /// [`Store::find`] returns.
    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>>;

    /// Deletes a run, atomically. True if there was one. The caller stops updating the run first.
    fn remove(&self, id: RunId) -> StoreFuture<bool>;

    /// Reads a document, if it exists.
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>>;

    /// Writes a document if the precondition holds (compare and swap): of several writers that expect the same version,
    /// one succeeds. `now` is the time of the write, for [`Retention`].
    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>>;

    /// Writes and deletes several documents: all of them, or none if the precondition of one does not hold. Returns the
    /// greatest version that one was given.
    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>>;

    /// Deletes a document if the precondition holds. `Ok(false)`: there was none, and none was expected.
    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>>;

    /// Documents whose key starts with `prefix` and is greater than `after`, sorted by key, at most `limit`. Keys are
    /// compared bytewise.
    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>>;

    /// The number of documents of a principal in a collection. A principal is the part of an owner's key before the
    /// first `/`.
    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64>;

    /// Acquires a lease, or renews it for its holder: until `ttl` has passed no one else gets it. False: another holder
    /// has it. A holder's name is used by one run of one process only. A lease outlives its process by no more than its
    /// `ttl`; in a single-process store, not at all.
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool>;

    /// Releases a lease. No effect if `holder` does not have it (any more).
    fn release(&self, key: &str, holder: &str) -> StoreFuture<()>;

    /// Sends a signal to the process that holds the run. Delivered at least once to every replica that is listening; no
    /// effect for a run without a holder.
    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()>;

    /// The signals that arrive from now on, for runs of any process; the caller ignores those of other processes. Ends
    /// when the store is closed.
    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)>;

    /// The runs that were queued or running when their process died, oldest first. The caller now holds each of them and
    /// must load, close, open and settle it. The record may be ahead of its metadata and even contain the run's end: no
    /// client has seen that. Waiting runs are not included, because they can simply continue. Called once at startup, and
    /// every second if the store is shared: such a store returns some runs of fenced replicas at a time.
    fn recover(&self) -> StoreFuture<Vec<RunId>>;

    /// Deletes some of the data that has expired: a small batch, so that other operations are not delayed for long.
    /// Runs that have not ended are never deleted.
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport>;

    /// Whether the store can write at the moment. Cheap.
    fn health(&self) -> Health {
        Health::Good
    }

    /// The stored amount, and the amount that is not written yet. For metrics: it may read the size of a file.
    fn sizes(&self) -> StoreSizes {
        StoreSizes::default()
    }

    /// Confirms that everything touched so far is durable.
    fn flush(&self) -> StoreFuture<()>;

    /// Flushes, then releases the process's files, threads and locks. Every later call fails with
    /// [`StoreError::Closed`].
    fn close(&self) -> StoreFuture<()>;
}
