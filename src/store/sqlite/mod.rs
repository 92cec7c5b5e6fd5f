//! A store in a SQLite file: survives the process, one process at a time. Built so that a running stream costs next to
//! nothing: [`Store::touch`] queues a run once, one thread writes what has grown every few milliseconds in one
//! transaction, and all lines of all runs of that time are one row. What is committed may be shown.
//!
//! `schema` has the file and its tables, `queue` what waits, `writer` the thread and its transactions, `health` what
//! everybody may know of it, `runs` and `documents` what is written, `retention` what is forgotten, `vacuum` how the file
//! shrinks, `private` who may read it, `log` the form of that one row, `reader` everything that only reads, `heads` what
//! of it is for lists, `readers` the threads for it. Not here: async workers never touch the file.

mod documents;
mod heads;
mod health;
mod log;
mod private;
mod queue;
mod reader;
mod readers;
mod retention;
mod runs;
mod schema;
mod vacuum;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use tokio::sync::mpsc::UnboundedReceiver;

use self::documents::Place;
use self::health::{Owed, Pulse};
use self::queue::Queue;
use self::readers::{Kind, Readers};
use self::schema::{Database, failed};
use self::writer::Writer;
use super::local::{Leases, Signals, lock};
use super::{
    Conflict, Document, Entry, Expect, Found, Health, Journal, Later, Query, Retention, Signal, Store, StoreError,
    Stored, Swept, Version, Weight,
};

/// Documents in a row that are not much more to read than one.
const SHORT: usize = 256;

/// How a file is used.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The most pages of 4 KiB the file may have; beyond, writing fails as on a full disk. None: as the disk allows.
    pub max_pages: Option<u32>,
}

impl SqliteOptions {
    /// Bounds the file's size, in pages of 4 KiB.
    #[must_use]
    pub const fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }
}

/// Keeps everything in a SQLite file. Dropping it without [`Store::close`] is like dying: what is not safe by then is
/// not written any more.
pub struct Sqlite {
    queue: Arc<Queue>,
    pulse: Arc<Pulse>,
    owed: Arc<Owed>,
    readers: Arc<Readers>,
    writer: Mutex<Option<JoinHandle<()>>>,
    leases: Leases,
    signals: Signals,
}

impl Sqlite {
    /// Opens the file, or makes it and its folder. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Newer`], [`StoreError::File`], each naming the file.
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let (database, connection) = Database::open(path, options)?;
        let readers = Arc::new(Readers::start(&database)?);
        let queue = Arc::new(Queue::default());
        let (pulse, owed) = (Arc::<Pulse>::default(), Arc::<Owed>::default());
        let writer = Writer::new(Arc::clone(&queue), Arc::clone(&owed), Arc::clone(&pulse), database, connection)?;
        let thread = std::thread::Builder::new().name("store-write".into()).spawn(move || writer.run());
        let thread = thread.map_err(|why| failed("start a thread for", path, &why))?;
        let writer = Mutex::new(Some(thread));
        Ok(Self { queue, pulse, owed, readers, writer, leases: Leases::default(), signals: Signals::default() })
    }

    /// Answers what needs no file.
    fn here<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T) -> Later<T> {
        let closed = self.queue.is_closed();
        Box::pin(std::future::ready(if closed { Err(StoreError::Closed) } else { Ok(work(self)) }))
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.queue.stop();
        let Some(thread) = lock(&self.writer).take() else { return };
        // The writer itself may hold the last reference, by way of a run.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl Store for Sqlite {
    fn open(&self, run: &Arc<dyn Journal>) -> Later<()> {
        let journal = Arc::clone(run);
        self.queue.ask_for(Some((run, true)), move |writing| writing.open(&journal))
    }

    fn touch(&self, run: &Arc<dyn Journal>) {
        if run.mark().set() {
            self.queue.touch(run);
        }
    }

    fn settle(&self, run: &Arc<dyn Journal>) -> Later<()> {
        let journal = Arc::clone(run);
        self.queue.ask_for(Some((run, false)), move |writing| writing.settle(&journal))
    }

    fn load(&self, id: RunId) -> Later<Option<Arc<Stored>>> {
        // What could not be written stands in memory alone, or is older in the file.
        let owed = self.owed.look(id, |record, about| Stored { record: record.clone(), about: about.clone() });
        match owed {
            Some(stored) => Box::pin(std::future::ready(Ok(Some(Arc::new(stored))))),
            None => self.readers.ask(Kind::Fetch, move |connection| reader::load(connection, id)),
        }
    }

    fn weigh(&self, id: RunId) -> Later<Option<Weight>> {
        match self.owed.look(id, |record, _| Weight { bytes: record.size() as u64, state: None }) {
            Some(weight) => Box::pin(std::future::ready(Ok(Some(weight)))),
            None => self.readers.ask(Kind::Fetch, move |connection| reader::weigh(connection, id)),
        }
    }

    fn heads(&self, ids: Vec<RunId>) -> Later<Vec<Stored>> {
        let owed = ids.iter().filter_map(|id| Some((*id, self.owed.look(*id, Stored::head)?)));
        let owed: HashMap<RunId, Stored> = owed.collect();
        self.readers.ask(Kind::List, move |connection| {
            let found = heads::heads(connection, &ids)?;
            if owed.is_empty() {
                return Ok(found);
            }
            let mut found: HashMap<RunId, Stored> =
                found.into_iter().map(|stored| (stored.record.run().id, stored)).collect();
            found.extend(owed);
            Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
        })
    }

    fn find(&self, query: Query) -> Later<Found> {
        self.readers.ask(Kind::List, move |connection| reader::find(connection, &query))
    }

    fn latest(&self, agents: Vec<String>, owner: String, session: String) -> Later<Option<RunId>> {
        self.readers.ask(Kind::Fetch, move |connection| reader::latest(connection, &agents, &owner, &session))
    }

    fn remove(&self, id: RunId) -> Later<bool> {
        self.queue.ask(move |writing| writing.remove(id))
    }

    fn get(&self, collection: &str, key: &str) -> Later<Option<Document>> {
        let place = Place::new(collection, key);
        self.readers.ask(Kind::Fetch, move |connection| reader::get(connection, &place.collection, &place.key))
    }

    fn put(
        &self,
        collection: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
        now: Millis,
    ) -> Later<Result<Version, Conflict>> {
        let place = Place::new(collection, key);
        self.queue.ask(move |writing| writing.put(&place, &value, expect, now))
    }

    fn delete(&self, collection: &str, key: &str, expect: Expect) -> Later<Result<bool, Conflict>> {
        let place = Place::new(collection, key);
        self.queue.ask(move |writing| writing.delete(&place, expect))
    }

    fn list(&self, collection: &str, prefix: &str, after: Option<&str>, limit: usize) -> Later<Vec<Entry>> {
        let (place, after) = (Place::new(collection, prefix), after.map(str::to_owned));
        // A short row of neighbours costs no more than one of them, and runs wait for some of them.
        let kind = if limit <= SHORT { Kind::Fetch } else { Kind::List };
        self.readers.ask(kind, move |connection| {
            reader::list(connection, &place.collection, &place.key, after.as_deref(), limit)
        })
    }

    fn lease(&self, key: &str, holder: &str, ttl: Duration) -> Later<bool> {
        self.here(|store| store.leases.take(key, holder, ttl))
    }

    fn release(&self, key: &str, holder: &str) -> Later<()> {
        self.here(|store| store.leases.give_back(key, holder))
    }

    fn signal(&self, id: RunId, signal: Signal) -> Later<()> {
        self.here(|store| store.signals.send(id, signal))
    }

    fn signals(&self) -> UnboundedReceiver<(RunId, Signal)> {
        self.signals.listen()
    }

    fn recover(&self) -> Later<Vec<RunId>> {
        self.readers.ask(Kind::List, reader::recover)
    }

    fn retain(&self, policy: Retention, now: Millis) -> Later<Swept> {
        self.queue.ask(move |writing| writing.retain(&policy, now))
    }

    fn health(&self) -> Health {
        self.pulse.health()
    }

    fn flush(&self) -> Later<()> {
        self.queue.ask(|writing| writing.all_is_safe())
    }

    fn close(&self) -> Later<()> {
        self.signals.close();
        self.queue.close(Arc::clone(&self.readers))
    }
}
