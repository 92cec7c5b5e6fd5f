//! Where runs, sessions and documents are kept: one trait, and what it promises.
//!
//! The engine grows runs in memory; a store follows behind. [`Store::touch`] tells it that a run has grown and costs
//! an atomic flag; [`Store::settle`] waits until what was told is safe. Contract tests in `tests/store.rs` hold every
//! implementation to the same words. Not here: what sessions and documents mean (the engine), how a record is
//! written (`interlingua_core::journal`), and the settings (`crate::config`).
//!
//! # The contract
//!
//! **Futures.** Work begins when a method is called, not when its future is polled; a future that is dropped cancels
//! nothing. Writes take effect in the order of the calls; a read sees every write that was confirmed before it was
//! called, and perhaps later ones. No method blocks the calling thread for longer than a look into memory. Only
//! [`Store::touch`] may be called with a run's lock held: a store takes that lock ([`Journal::with`]) itself.
//!
//! **Durability.** *Safe* means: survives `kill -9` of the process for stores that outlive it, and the end of all
//! process otherwise. What a future confirmed is safe, and seen by every later call. A store of several replicas
//! confirms when the shared store did.
//!
//! **Publishing.** Nobody is shown what a crash could take back: after each commit the store tells every run in it how
//! many of its events are safe ([`Journal::committed`]), and the run shows no more than that. A store that loses
//! everything with its process has nothing to wait for and says so once, when a run is opened.
//!
//! **Atomicity.** A run is loaded as it was at one moment: a row of whole events with the facts about it that
//! belong there, never half an event. A document is there whole, in one version, or not at all.
//!
//! **Failure.** A store that cannot write says so to everybody who waits and by [`Store::health`], keeps what it holds
//! in memory, goes on trying, and never ends the process. A run whose `open` or `settle` failed is not given up until
//! [`Store::remove`], and is loaded as it is in memory meanwhile.
//!
//! **Ownership, for a store of several replicas.** The process that opened a run is its only writer until it has
//! settled it for good; it holds the lease `run/<id>` meanwhile, and the store renews it. Other replicas follow
//! ([`Store::follow`]), stop it by [`Store::signal`], and take it over only when the lease ran out: that is what
//! [`Store::recover`] hands out, each run to one replica. Stores of one process need none of this.

mod fair;
mod local;
mod memory;
mod sqlite;

pub use memory::Memory;
pub use sqlite::{Sqlite, SqliteOptions};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use interlingua_core::call::{Cursor, Filter, RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::exchange::RunRetention;
use interlingua_core::id::RunId;
use interlingua_core::run::Record;
use tokio::sync::mpsc::UnboundedReceiver;

/// What a store answers with, later.
pub type Later<T> = BoxFuture<'static, Result<T, StoreError>>;

/// A run in memory, as a store sees it. Implemented by the engine's live runs.
pub trait Journal: Send + Sync + 'static {
    /// Its id.
    fn id(&self) -> RunId;
    /// Shows the run as it is, under its lock. The callee is quick and calls nothing.
    fn with(&self, look: &mut dyn FnMut(&Record, &RunInfo));
    /// Where the store marks it as queued.
    fn mark(&self) -> &Mark;
    /// Its first `events` events are safe: they may be shown. Never fewer than before. [`u64::MAX`]: whatever is told
    /// in it is as safe as it will ever be. Called by the store's own thread, once a run and commit, or by whoever
    /// opens a run; the callee is quick, and may take the run's lock.
    fn committed(&self, events: u64);
}

/// Says that a run has grown and is queued to be written. One in every [`Journal`].
#[derive(Debug, Default)]
pub struct Mark {
    queued: AtomicBool,
    edition: AtomicU64,
}

impl Mark {
    /// Sets the mark; true if it was not set.
    pub fn set(&self) -> bool {
        // A plain load first: most touches find the mark set, and need not own the cache line for that.
        !self.queued.load(Ordering::Acquire) && !self.queued.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark away. Whoever does reads the run afterwards, so growth in between is marked again.
    pub fn clear(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Says that events were taken back: what is stored of the run is to be written anew. Called with the run's lock
    /// held.
    pub fn rewritten(&self) {
        self.edition.fetch_add(1, Ordering::AcqRel);
    }

    /// How often events were taken back. Asked for with the run's lock held.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }
}

/// Whether a store can write.
#[derive(Clone, Debug, Default)]
pub enum Health {
    /// It can, as far as it knows.
    #[default]
    Good,
    /// It cannot, and goes on trying.
    Failing {
        /// Since when.
        since: Instant,
        /// Why.
        error: StoreError,
    },
}

/// A run out of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// What was told.
    pub record: Record,
    /// What is known besides.
    pub about: RunInfo,
}

impl Stored {
    /// What of a run [`Store::heads`] shows.
    #[must_use]
    pub fn head(record: &Record, about: &RunInfo) -> Self {
        Self { record: record.head(), about: without_tools(about.clone()) }
    }
}

fn without_tools(mut about: RunInfo) -> RunInfo {
    (about.request.tools, about.request.extra) = (None, interlingua_core::Extra::new());
    about
}

/// Which runs are looked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Of one of these agents. Empty: of any.
    pub agents: Vec<String>,
    /// Of this owner. None: of any, for the gateway's own purposes.
    pub owner: Option<String>,
    /// And so on. A `limit` of 0 stands for [`Query::LIMIT`].
    pub filter: Filter,
    /// Routes, and since when what ended before counts as forgotten, though it may still be there.
    pub gone: Vec<(String, Millis)>,
}

impl Query {
    /// How many runs a page has if nobody says.
    pub const LIMIT: usize = 50;
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Its id.
    pub id: RunId,
    /// Its agent.
    pub agent: String,
    /// Its session.
    pub session: String,
    /// Where it stands.
    pub state: RunState,
    /// Since when.
    pub changed_at: Millis,
    /// Roughly how many bytes it has.
    pub size: u64,
}

/// What loading a run would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// How many bytes would be read: 0 if the run is in memory anyway, and loading it makes no copy.
    pub bytes: u64,
    /// Of a run that has ended: another number whenever loading would give something else. None: it may go on.
    pub state: Option<u64>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest change of state first; of two at the same time the greater id.
    pub runs: Vec<RunHead>,
    /// How many match on all pages.
    pub total: usize,
    /// Where the next page begins. None: this is the last one.
    pub next: Option<Cursor>,
}

/// Which state of a document: greater for every later write to the store, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A document as it was at one moment. What its bytes mean is for its owner to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it holds.
    pub value: Bytes,
    /// Its version.
    pub version: Version,
    /// The version it was made with: puts documents in the order they were made.
    pub made: Version,
}

/// A document in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// The document.
    pub document: Document,
}

/// What has to stand in a document's place for it to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever it is.
    Anything,
    /// Nothing.
    Absent,
    /// This version.
    Version(Version),
}

/// Something else stood in the document's place than was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// What is forgotten when.
#[derive(Clone, Debug)]
pub struct Retention {
    /// How long a run is kept after its last change, and a document after it was last put.
    pub age: Duration,
    /// How many runs are kept. Beyond, owners who have most lose their own: ended ones that changed longest ago go
    /// first.
    pub runs: u64,
    /// How many documents each of the `collections` has, by the same rule.
    pub documents: u64,
    /// How many bytes are kept, roughly: of runs, then of documents in `collections`, by the same rule.
    pub bytes: u64,
    /// The collections whose documents are forgotten by age. All other documents stay.
    pub collections: Vec<String>,
    /// Collections of documents that are parts of others, and the collection those are in: they go together.
    pub parts: Vec<(String, String)>,
    /// Routes that keep their runs ([`RunInfo::retention`]) for less than that, and how many of each owner. Runs that others are built upon are hidden
    /// where all others are forgotten, and are nobody's but the store's from then on.
    pub routes: Vec<(String, RunRetention)>,
    /// The collections whose documents go with a run: those of [`owned_key`] for the run's owner and `<run>/…`.
    pub attached: Vec<String>,
}

impl Retention {
    /// By the rules of each route: since when what ended before counts as forgotten.
    #[must_use]
    pub fn gone(&self, now: Millis) -> Vec<(String, Millis)> {
        self.routes.iter().map(|(route, keep)| (route.clone(), before(now, keep.ended_ttl))).collect()
    }

    /// The rules a run is under besides those that hold for all.
    #[must_use]
    pub fn keep_of(&self, about: &RunInfo) -> Option<&RunRetention> {
        let keeper = about.retention.as_ref()?;
        self.routes.iter().find(|(route, _)| *route == keeper.route).map(|(_, keep)| keep)
    }

    /// True if the time of a run that has ended is over.
    #[must_use]
    pub fn is_gone(&self, about: &RunInfo, now: Millis) -> bool {
        matches!(about.state, RunState::Ended(_))
            && self.keep_of(about).is_some_and(|keep| about.changed_at < before(now, keep.ended_ttl))
    }

    /// True if a run has waited for too long.
    #[must_use]
    pub fn is_stale(&self, about: &RunInfo, now: Millis) -> bool {
        let patience = self.keep_of(about).map_or(self.age, |keep| keep.waiting_ttl.min(self.age));
        matches!(about.state, RunState::Waiting | RunState::WaitingForAuth) && about.changed_at < before(now, patience)
    }

    /// The shortest time anything is kept.
    #[must_use]
    pub fn shortest(&self) -> Duration {
        let times = self.routes.iter().flat_map(|(_, keep)| [keep.ended_ttl, keep.waiting_ttl]);
        times.fold(self.age, Duration::min)
    }
}

/// The time a while ago.
fn before(now: Millis, age: Duration) -> Millis {
    now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Between which keys the documents stand that go with a run: from the first one on, before the last one.
fn attached_keys(owner: &str, run: RunId) -> (String, String) {
    // A zero is what follows a slash.
    (owned_key(owner, &format!("{run}/")), owned_key(owner, &format!("{run}0")))
}

/// The key of a part of a document: the place among its parts puts them in order.
#[must_use]
pub fn part_key(whole: &str, place: u64) -> String {
    format!("{whole}{PART}{place:016x}")
}

/// Between which keys the parts of a document stand: from the first one on, before the last one.
fn part_keys(whole: &str) -> (String, String) {
    // What follows the sign that parts begin with.
    (format!("{whole}{PART}"), format!("{whole}\u{1d}"))
}

/// Stands between a document's key and its part's. Parts of keys hold no such character.
const PART: char = '\u{1c}';

/// Whose a document is: keys begin with their owner's, or with an agent's name and then their owner's.
fn owner_in<'a>(collection: &str, key: &'a str) -> &'a str {
    let nth = usize::from(BY_AGENT.contains(&collection));
    key.split('\u{1f}').nth(nth).unwrap_or("")
}

/// The collections whose keys begin with an agent's name.
const BY_AGENT: [&str; 3] = ["sessions", "asked", "entries"];

/// The key a document of an owner has: what is another owner's is never looked at. `owner` is
/// [`interlingua_core::Owner::key`], which never holds what stands between the two.
#[must_use]
pub fn owned_key(owner: &str, key: &str) -> String {
    format!("{owner}\u{1f}{key}")
}

/// What one round of [`Store::retain`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The runs it forgot.
    pub runs: Vec<RunId>,
    /// The runs it hid.
    pub hidden: Vec<RunId>,
    /// How many documents it forgot by their age.
    pub documents: usize,
    /// Runs that have been waiting for longer than they may. They stay: the engine ends them.
    pub stale: Vec<RunId>,
    /// True: there is more to forget, call again.
    pub more: bool,
}

/// What one replica tells the one that owns a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop the run.
    Cancel,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store was closed, or its threads are gone.
    #[error("the store is closed")]
    Closed,
    /// Another process has the file open.
    #[error("another process uses the database '{path}'")]
    InUse {
        /// The file.
        path: String,
    },
    /// The file was written by a later version of the gateway.
    #[error("the database '{path}' has schema version {found}, this gateway knows versions up to {known}")]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The latest one known here.
        known: i64,
    },
    /// The file or its folder cannot be made, opened, read or written.
    #[error("cannot {doing} '{path}': {why}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file or folder.
        path: String,
        /// What the system said.
        why: String,
    },
    /// It did not answer in time: it is stuck, or more is asked of it than it can do.
    #[error("the store did not answer within {} s", after.as_secs())]
    Late {
        /// How long it was waited for.
        after: Duration,
    },
    /// More waits for an answer than the store takes on.
    #[error("too much is asked of the store at once")]
    Overloaded,
    /// A mistake in the store's own code.
    #[error("the store made a mistake: {0}")]
    Broken(String),
    /// What was stored cannot be understood.
    #[error("the stored {what} cannot be read: {why}")]
    Corrupt {
        /// What it is.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreError {
    /// What is wrong with something that was stored.
    pub(crate) fn corrupt(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string(), why: why.to_string() }
    }
}

/// Keeps runs, documents and leases. See the [module](self) for what holds of all methods.
pub trait Store: Send + Sync + 'static {
    /// Makes a run known, or takes a known one up again: the store now looks at this journal. Needed before the first
    /// touch of every journal, also of one made anew out of [`Store::load`]; then the journal begins with all events
    /// that are stored.
    ///
    /// Confirmed: the run is found, and recovered after a crash. What was told before is safe, and the journal was told
    /// so by [`Journal::committed`].
    fn open(&self, run: &Arc<dyn Journal>) -> Later<()>;

    /// Says that a run has grown. Never blocks, never fails: the events are safe within a fraction of a second, or
    /// with the next [`Store::settle`], and the journal is told how many are. For a run that was not opened nothing
    /// happens; one that was removed is told that nothing of it can be lost.
    fn touch(&self, run: &Arc<dyn Journal>);

    /// Confirms that a run is safe as it was when this was called, or later; all that is known about it included. For
    /// a run that was not opened nothing happens; one that was removed is told that nothing of it can be lost.
    ///
    /// A run between two turns or at its end may then be dropped by the store; a later touch takes it up again.
    fn settle(&self, run: &Arc<dyn Journal>) -> Later<()>;

    /// A run as it is known to the store: everything settled, and perhaps more. None: there is no such run.
    fn load(&self, id: RunId) -> Later<Option<Arc<Stored>>>;

    /// What loading a run would come to, found out without doing it. None: there is no such run.
    fn weigh(&self, id: RunId) -> Later<Option<Weight>>;

    /// Runs without what was said in them ([`Record::head`]), nor tools and unknown fields of their requests: what
    /// lists show of them, at a cost that does not grow with what was said. Those that are not there are left out; the
    /// order is that of the ids.
    fn heads(&self, ids: Vec<RunId>) -> Later<Vec<Stored>>;

    /// A page of runs. Every run that matches and does not change between the pages is on exactly one of them; one that
    /// changes in between moves to the front and may be missed or met again. Ended runs that are not
    /// [`RunInfo::stored`], or whose route counts them as forgotten, are on none.
    fn find(&self, query: Query) -> Later<Found>;

    /// The run of a session that was accepted last, among these agents (empty: any), and those that [`Store::find`]
    /// finds.
    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> Later<Option<RunId>>;

    /// Forgets a run, all of it at once. True if there was one. Whoever still grows it stops first.
    fn remove(&self, id: RunId) -> Later<bool>;

    /// A document. None: there is none.
    fn get(&self, collection: &str, key: &str) -> Later<Option<Document>>;

    /// Writes a document if what is expected stands in its place: compare and swap. Of several writers that expect the
    /// same version, one succeeds. `now` is when it was put, for [`Retention`].
    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> Later<Result<Version, Conflict>>;

    /// Takes a document away if what is expected stands there. `Ok(false)`: there was none and none was expected.
    fn delete(&self, collection: &str, key: &str, expect: Expect) -> Later<Result<bool, Conflict>>;

    /// Documents whose key begins with `prefix` and is greater than `after`, by key, at most `limit`. Keys are ordered
    /// by their bytes.
    fn list(&self, collection: &str, prefix: &str, after: Option<&str>, limit: usize) -> Later<Vec<Entry>>;

    /// Takes a lease, or renews it for its holder: until `ttl` has passed nobody else gets it. False: somebody else
    /// has it. A holder's name is used by one run of one process only. A lease does not survive its process longer
    /// than its `ttl`; in a store of one process, not at all.
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> Later<bool>;

    /// Gives a lease back. Nothing happens if the holder does not have it (any more).
    fn release(&self, key: &str, holder: &str) -> Later<()>;

    /// Sends a signal to the process that owns the run. At least once to every replica that listens at this moment; a
    /// run that nobody owns hears nothing.
    fn signal(&self, id: RunId, signal: Signal) -> Later<()>;

    /// The signals that arrive from now on, for runs of any process: those of others are to be ignored. Ends when the
    /// store is closed.
    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)>;

    /// The journal lines of a run that another process grows, from an event on: first what is stored, then what
    /// comes, each item whole lines (`interlingua_core::journal`), without gaps, to the run's end. None: this store
    /// belongs to one process, which follows its own runs in memory.
    fn follow(&self, id: RunId, from: u64) -> Option<BoxStream<'static, Result<Bytes, StoreError>>> {
        let _ = (id, from);
        None
    }

    /// The runs that were queued or running when their process died, oldest first. Each one is the caller's now: to be
    /// loaded, closed, opened and settled. The record may hold more than the facts about it do, its end even: nobody
    /// was told of that. Waiting runs are not among them: they go on waiting. Called once, at the
    /// start; by a store of several replicas also every now and then.
    fn recover(&self) -> Later<Vec<RunId>>;

    /// Forgets some of what need not be kept any more: a small batch, so that nothing else waits for long. Runs that
    /// have not ended are never forgotten.
    fn retain(&self, policy: Retention, now: Millis) -> Later<Swept>;

    /// Whether it can write at the moment. Costs next to nothing.
    fn health(&self) -> Health {
        Health::Good
    }

    /// Confirms that everything touched so far is safe.
    fn flush(&self) -> Later<()>;

    /// Flushes, and gives back what the process holds: files, threads, locks. Whatever is called afterwards fails with
    /// [`StoreError::Closed`].
    fn close(&self) -> Later<()>;
}
