//! A store in a SQLite file: survives the process, and is used by one process at a time. A running stream causes
//! little load: [`RunStore::touch`] queues a run once, one thread writes all new events every few
//! milliseconds in one transaction, and all journal lines of that interval are one row. Committed events may be
//! published.
//!
//! `schema` has the file and its tables, `queue` the pending work, `writer` the thread and its transactions, `health`
//! its shared state, `runs` and `documents` the writes, `retention` the deletions, `vacuum` shrinking of the file,
//! `private` the file permissions, `reader` the queries, `heads` the queries for lists, `readers` the threads that run
//! them, `export` the copy for another store. No async worker accesses the file.

mod documents;
mod export;
mod heads;
mod health;
mod options;
mod private;
mod queue;
mod reader;
mod readers;
mod retention;
mod runs;
mod schema;
mod tracked;
mod transaction;
mod vacuum;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use tokio::sync::mpsc::UnboundedReceiver;

use self::documents::DocumentPath;
pub use self::export::SqliteExport;
use self::health::{UnwrittenRuns, WriterHealth};
pub use self::options::SqliteOptions;
use self::queue::Queue;
use self::readers::{QueryKind, Readers};
use self::schema::{Database, file_error};
use self::writer::Writer;
use interlingua_store::local::{Leases, Signals, TurnQueues, lock};
use interlingua_store::{
    Claim, Conflict, Coordination, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Health, Journal,
    LoadCost, Query, Retention, RetentionReport, RunPage, RunStore, Signal, Store, StoreError, StoreFuture, StoreSizes,
    StoredRun, TurnQueue, Version,
};

/// A list of at most this many documents is treated as a point query: reading them costs little more than reading one.
const MAX_SHORT_LIST: usize = 256;

/// A store in a SQLite file. Dropping it without [`Store::close`] is like a crash: whatever is not durable by then is
/// not written any more.
pub struct Sqlite {
    queue: Arc<Queue>,
    health: Arc<WriterHealth>,
    unwritten: Arc<UnwrittenRuns>,
    readers: Arc<Readers>,
    writer: Mutex<Option<JoinHandle<()>>>,
    leases: Leases,
    signals: Signals,
    turns: TurnQueues,
    /// True once the runs of the process before this one were returned.
    is_recovered: Arc<AtomicBool>,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the file; creates it and its directory if necessary. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::NewerSchema`], [`StoreError::File`], each of which names the file.
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let (database, connection) = Database::open(path, options)?;
        let readers = Arc::new(Readers::start(&database)?);

        let queue = Arc::new(Queue::default());
        let (health, unwritten) = (Arc::<WriterHealth>::default(), Arc::<UnwrittenRuns>::default());

        let writer =
            Writer::new(Arc::clone(&queue), Arc::clone(&unwritten), Arc::clone(&health), database, connection)?
                .counting(options.metrics.clone());
        let thread = std::thread::Builder::new().name("store-write".into()).spawn(move || writer.run());
        let thread = thread.map_err(|error| file_error("start a thread for", path, error))?;

        let writer = Mutex::new(Some(thread));
        let (leases, signals, turns) = (Leases::default(), Signals::default(), TurnQueues::default());
        let (is_recovered, path) = (Arc::default(), path.to_owned());
        Ok(Self { queue, health, unwritten, readers, writer, leases, signals, turns, is_recovered, path })
    }

    /// Runs an operation that needs no file access.
    fn immediate<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T) -> StoreFuture<T> {
        let closed = self.queue.is_closed();
        Box::pin(std::future::ready(if closed { Err(StoreError::Closed) } else { Ok(work(self)) }))
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.queue.stop();

        let Some(thread) = lock(&self.writer).take() else { return };
        // The writer thread itself may hold the last reference to the store, through a run.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl RunStore for Sqlite {
    fn open(&self, run: &Arc<dyn Journal>, _claim: Claim) -> StoreFuture<()> {
        let journal = Arc::clone(run);
        self.queue.submit_for(Some((run, true)), move |tx| tx.open(&journal))
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        if run.dirty_flag().set() {
            self.queue.touch(run);
        }
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> StoreFuture<()> {
        let journal = Arc::clone(run);
        self.queue.submit_for(Some((run, false)), move |tx| tx.settle(&journal))
    }

    fn load(&self, id: RunId) -> StoreFuture<Option<Arc<StoredRun>>> {
        // A run that could not be written is newer in memory than in the file, or not in the file at all.
        let unwritten =
            self.unwritten.inspect(id, |record, info| StoredRun { record: record.clone(), info: info.clone() });
        match unwritten {
            Some(stored) if stored.record.is_whole() => Box::pin(std::future::ready(Ok(Some(Arc::new(stored))))),
            // Its first events are only in the file.
            Some(mut stored) => self.readers.run(QueryKind::Fetch, move |connection| {
                let written = reader::load(connection, id)?;
                let is_whole = written.is_some_and(|written| stored.record.restore(&written.record));
                if is_whole { Ok(Some(Arc::new(stored))) } else { Err(reader::incomplete(id).into()) }
            }),
            None => self.readers.run(QueryKind::Fetch, move |connection| reader::load(connection, id)),
        }
    }

    fn load_cost(&self, id: RunId) -> StoreFuture<Option<LoadCost>> {
        match self.unwritten.inspect(id, |record, _| LoadCost { bytes: record.size() as u64, fingerprint: None }) {
            Some(weight) => Box::pin(std::future::ready(Ok(Some(weight)))),
            None => self.readers.run(QueryKind::Fetch, move |connection| reader::load_cost(connection, id)),
        }
    }

    fn owner_of(&self, id: RunId) -> StoreFuture<Option<String>> {
        match self.unwritten.inspect(id, |_, info| info.owner.clone()) {
            Some(owner) => Box::pin(std::future::ready(Ok(Some(owner)))),
            None => self.readers.run(QueryKind::Fetch, move |connection| reader::owner_of(connection, id)),
        }
    }

    fn heads(&self, ids: Vec<RunId>) -> StoreFuture<Vec<StoredRun>> {
        let unwritten = ids.iter().filter_map(|id| Some((*id, self.unwritten.inspect(*id, StoredRun::head)?)));
        let unwritten: HashMap<RunId, StoredRun> = unwritten.collect();
        self.readers.run(QueryKind::List, move |connection| {
            let found = heads::heads(connection, &ids)?;
            if unwritten.is_empty() {
                return Ok(found);
            }

            let mut found: HashMap<RunId, StoredRun> =
                found.into_iter().map(|stored| (stored.record.run().id, stored)).collect();
            found.extend(unwritten);
            Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
        })
    }

    fn find(&self, query: Query) -> StoreFuture<RunPage> {
        self.readers.run(QueryKind::List, move |connection| reader::find(connection, &query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> StoreFuture<Option<RunId>> {
        self.readers.run(QueryKind::Fetch, move |connection| reader::latest(connection, &agents, &owner, &session))
    }

    fn remove(&self, id: RunId) -> StoreFuture<bool> {
        self.queue.submit(move |tx| tx.remove(id))
    }
}

impl DocumentStore for Sqlite {
    fn get(&self, collection: &str, key: &str) -> StoreFuture<Option<Document>> {
        let path = DocumentPath::new(collection, key);
        self.readers.run(QueryKind::Fetch, move |connection| reader::get(connection, &path.collection, &path.key))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> StoreFuture<Result<Version, Conflict>> {
        let path = DocumentPath::new(collection, key);
        self.queue.submit(move |tx| tx.put(&path, &value, expect, now))
    }

    fn write(&self, writes: Vec<DocumentWrite>, now: Millis) -> StoreFuture<Result<Version, Conflict>> {
        self.queue.submit(move |tx| tx.write_all(&writes, now))
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> StoreFuture<Result<bool, Conflict>> {
        let path = DocumentPath::new(collection, key);
        self.queue.submit(move |tx| tx.delete(&path, expect))
    }

    fn list(
        &self,
        collection: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> StoreFuture<Vec<DocumentEntry>> {
        let (path, after) = (DocumentPath::new(collection, prefix), after.map(str::to_owned));
        // A short list costs little more than a point query, and runs wait for some of these lists.
        let kind = if limit <= MAX_SHORT_LIST { QueryKind::Fetch } else { QueryKind::List };
        self.readers
            .run(kind, move |connection| reader::list(connection, &path.collection, &path.key, after.as_deref(), limit))
    }

    fn count(&self, collection: &str, principal: &str) -> StoreFuture<u64> {
        let (collection, principal) = (collection.to_owned(), principal.to_owned());
        self.readers.run(QueryKind::Fetch, move |connection| reader::count(connection, &collection, &principal))
    }
}

impl Coordination for Sqlite {
    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> StoreFuture<bool> {
        self.immediate(|store| store.leases.acquire(key, holder, ttl))
    }

    fn release(&self, key: &str, holder: &str) -> StoreFuture<()> {
        self.immediate(|store| store.leases.release(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> StoreFuture<()> {
        self.immediate(|store| store.signals.send(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.signals.listen()
    }

    fn recover(&self) -> StoreFuture<Vec<RunId>> {
        if self.is_recovered.load(Ordering::Acquire) {
            return self.immediate(|_| Vec::new());
        }
        let (found, is_recovered) =
            (self.readers.run(QueryKind::List, reader::recover), Arc::clone(&self.is_recovered));
        Box::pin(async move {
            let found = found.await?;
            is_recovered.store(true, Ordering::Release);
            Ok(found)
        })
    }

    fn turns(&self) -> &dyn TurnQueue {
        &self.turns
    }
}

impl Store for Sqlite {
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport> {
        self.queue.submit(move |tx| tx.retain(&policy, now))
    }

    fn health(&self) -> Health {
        self.health.current()
    }

    fn sizes(&self) -> StoreSizes {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        StoreSizes { bytes: size(&self.path) + size(Path::new(&log)), owed: self.unwritten.len() }
    }

    fn flush(&self) -> StoreFuture<()> {
        self.queue.submit(|tx| tx.check_all_written())
    }

    fn close(&self) -> StoreFuture<()> {
        self.signals.close();
        self.turns.close();
        self.queue.close(Arc::clone(&self.readers))
    }
}
