//! The thread that writes: it collects what has grown, and puts it into the file in one transaction. Whatever cannot be
//! written is kept and tried again. Not here: when it is woken ([`super::queue`]), and the statements about runs
//! ([`super::runs`]) and documents ([`super::documents`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::health::{Owed, Pulse};
use super::queue::{Order, Pace, Queue, Work};
use super::reader::Failed;
use super::runs::{self, Tracks};
use super::schema::{BUSY, Database, failed};
use crate::store::{Journal, StoreError};

/// How long lines stay in the log before they are put where they belong: so long, a run costs no row of its own.
const ROTATION: Duration = Duration::from_secs(5);

/// The log is put away earlier if it grows to so many bytes.
const LOG_SIZE: usize = 8 << 20;

/// How long the writer waits before it tries again what failed.
const RETRY: Duration = Duration::from_millis(500);

/// How long it waits then for a lock that another process holds.
const BUSY_AGAIN: Duration = Duration::from_millis(100);

/// How often an idle writer looks whether its file is still there.
const LOOK: Duration = Duration::from_secs(2);

/// The writing thread's own.
pub(super) struct Writer {
    queue: Arc<Queue>,
    connection: Connection,
    database: Database,
    tracks: Tracks,
    owed: Arc<Owed>,
    pulse: Arc<Pulse>,
    /// The last version a document got.
    version: u64,
    log: Vec<u8>,
    log_size: usize,
    rotated: Instant,
    pace: Pace,
    /// What is safe once the transaction under way is.
    safe: Vec<(Arc<dyn Journal>, u64)>,
    failing: Option<Failing>,
}

/// A failure that lasts.
struct Failing {
    error: StoreError,
    /// When what failed was tried last.
    tried: Instant,
    /// Nothing at all can be written: what else there is need not be tried.
    wholly: bool,
}

/// A transaction under way, and what the writer knows.
pub(super) struct Writing<'a> {
    pub(super) sql: &'a Transaction<'a>,
    pub(super) tracks: &'a mut Tracks,
    pub(super) owed: &'a Owed,
    pub(super) version: u64,
    pub(super) log: &'a mut Vec<u8>,
    pub(super) safe: &'a mut Vec<(Arc<dyn Journal>, u64)>,
    /// Lines in the log do not hold any more: it is put away with this transaction.
    pub(super) empty_log: bool,
    failing: Option<&'a StoreError>,
}

impl Writing<'_> {
    /// Fails while something that was touched is not safe.
    pub(super) fn all_is_safe(&self) -> Result<(), Failed> {
        match self.failing {
            Some(error) if !self.owed.is_empty() => Err(Failed::Store(error.clone())),
            _ => Ok(()),
        }
    }
}

impl Writer {
    /// Puts away what the process before left in the log.
    pub(super) fn new(
        queue: Arc<Queue>,
        owed: Arc<Owed>,
        pulse: Arc<Pulse>,
        database: Database,
        mut connection: Connection,
    ) -> Result<Self, StoreError> {
        let sql = |why: rusqlite::Error| failed("read the database", &database.path, &why);
        runs::fold_log(&mut connection).map_err(sql)?;
        let version: i64 = connection
            .query_row("SELECT value FROM counters WHERE name = 'version'", [], |row| row.get(0))
            .map_err(sql)?;
        let now = Instant::now();
        Ok(Self {
            queue,
            connection,
            database,
            tracks: Tracks::default(),
            owed,
            pulse,
            version: u64::try_from(version).unwrap_or(0),
            log: Vec::new(),
            log_size: 0,
            rotated: now,
            pace: Pace::new(now),
            safe: Vec::new(),
            failing: None,
        })
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        /// However the thread ends, nobody waits for it in vain.
        struct Shut(Arc<Queue>, Arc<Pulse>);
        impl Drop for Shut {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.1.fails(&StoreError::Broken("its writing thread is gone".into()));
                }
                self.0.stop();
            }
        }
        let _shut = Shut(Arc::clone(&self.queue), Arc::clone(&self.pulse));
        loop {
            let idle = if self.failing.is_some() { RETRY } else { LOOK };
            let Order::Write(mut batch) = self.queue.gather(&self.pace, idle) else { return };
            let close = match batch.pop_if(|work| matches!(work, Work::Close(..))) {
                Some(Work::Close(readers, reply)) => Some((readers, reply)),
                _ => None,
            };
            let (begun, work) = (Instant::now(), batch.len());
            self.pulse.writes(true);
            self.write(batch, close.is_some());
            self.pulse.writes(false);
            if work > 0 {
                let now = Instant::now();
                self.pace.committed(now, work, now - begun);
            }
            if let Some((readers, reply)) = close {
                let result = self.failing.take().filter(|_| !self.owed.is_empty()).map_or(Ok(()), |it| Err(it.error));
                readers.close();
                // The lock goes with it; after the answer another process may open the file.
                drop(self);
                let _ = reply.send(result);
                return;
            }
        }
    }

    fn write(&mut self, batch: Vec<Work>, last: bool) {
        if self.failing.as_ref().is_some_and(|failing| last || failing.tried.elapsed() >= RETRY) {
            self.try_again();
            if let Some(failing) = &mut self.failing {
                // Counted from its end: it may have waited for a lock.
                failing.tried = Instant::now();
            }
        }
        let idle = batch.is_empty() && !last;
        if let Some(failing) = &self.failing
            && !last
        {
            // While something fails, what has grown is left for the next try, and what somebody waits for is done one
            // by one: there may be no room for a run, but for its removal there is.
            let mut hopeless = failing.wholly.then(|| failing.error.clone());
            for work in batch {
                match (work, &hopeless) {
                    (work @ Work::Task(_), None) => {
                        self.write_together(vec![work], false);
                        let failing = self.failing.as_ref().filter(|failing| failing.wholly);
                        hopeless = failing.map(|failing| failing.error.clone());
                    }
                    (work, error) => self.keep_for_later(work, error.as_ref()),
                }
            }
            return;
        }
        if idle && let Err(gone) = self.database.is_there() {
            self.blame(Failed::Gone(gone));
        }
        let old = self.log_size > 0 && self.rotated.elapsed() >= ROTATION;
        self.write_together(batch, last || old || self.log_size >= LOG_SIZE);
    }

    /// Tries what failed once more, all of it at once. If nothing is owed: whether anything can be written.
    fn try_again(&mut self) {
        if self.failing.as_ref().is_some_and(|failing| failing.wholly)
            && self.database.is_there().is_ok()
            && let Ok(connection) = self.database.writer()
        {
            // The file may be another one than it was, on a disk that was away.
            self.connection = connection;
        }
        // Others wait behind this, to be told at once that it fails.
        let _ = self.connection.busy_timeout(BUSY_AGAIN);
        let owed = self.owed.all().into_iter();
        let again = owed.map(|debt| Work::Task(Box::new(runs::Again(debt)) as Box<dyn super::queue::Task>));
        self.write_all(again.collect(), false, true);
        let _ = self.connection.busy_timeout(BUSY);
    }

    fn write_together(&mut self, batch: Vec<Work>, rotate: bool) {
        if !batch.is_empty() || rotate {
            self.write_all(batch, rotate, false);
        }
    }

    fn write_all(&mut self, mut batch: Vec<Work>, rotate: bool, probe: bool) {
        match self.attempt(&mut batch, rotate, probe) {
            Ok(()) => {
                self.told_safe(&batch);
                if self.failing.take_if(|_| self.owed.is_empty()).is_some() {
                    let took = self.pulse.recovers().unwrap_or_default();
                    let (path, after_s) = (self.database.path.display(), took.as_secs());
                    tracing::info!(%path, after_s, "the database can be written again");
                }
                for work in batch {
                    if let Work::Task(task) = work {
                        task.answer(None);
                    }
                }
            }
            // What one of them does not get through must not keep the others.
            Err(why) if batch.len() > 1 && !why.is_of_all() => {
                batch.into_iter().for_each(|work| self.write_together(vec![work], false));
            }
            Err(why) => {
                let error = self.blame(why);
                batch.into_iter().for_each(|work| self.keep_for_later(work, Some(&error)));
            }
        }
    }

    /// All of it in one transaction, or nothing.
    fn attempt(&mut self, batch: &mut [Work], rotate: bool, probe: bool) -> Result<(), Failed> {
        self.database.is_there().map_err(Failed::Gone)?;
        self.log.clear();
        self.safe.clear();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writing = Writing {
            sql: &transaction,
            tracks: &mut self.tracks,
            owed: &self.owed,
            version: self.version,
            log: &mut self.log,
            safe: &mut self.safe,
            empty_log: rotate,
            failing: self.failing.as_ref().map(|failing| &failing.error),
        };
        let result = writing.all(batch, probe, self.version).and_then(|done| {
            transaction.commit()?;
            Ok(done)
        });
        match result {
            Ok((version, rotated)) => {
                self.tracks.commit();
                self.version = version;
                self.log_size = if rotated { 0 } else { self.log_size + self.log.len() };
                if rotated || self.log_size == self.log.len() {
                    self.rotated = Instant::now();
                }
                Ok(())
            }
            Err(why) => {
                // The transaction was rolled back when it was dropped.
                self.tracks.roll_back();
                Err(why)
            }
        }
    }

    /// Tells runs how much of them is safe now: each once, whoever follows it is woken once.
    fn told_safe(&mut self, batch: &[Work]) {
        for work in batch {
            let run = match work {
                Work::Touch(run) => Some(run),
                Work::Task(task) => task.owes().map(|(run, _)| run),
                Work::Close(..) => None,
            };
            if let Some(run) = run
                && self.failing.is_some()
            {
                self.owed.remove(run.id());
            }
        }
        for (run, events) in self.safe.drain(..) {
            run.committed(events);
        }
    }

    fn keep_for_later(&mut self, work: Work, error: Option<&StoreError>) {
        match &work {
            Work::Touch(run) => self.owed.put(run, false),
            Work::Task(task) => {
                if let Some((run, open)) = task.owes() {
                    self.owed.put(run, open);
                }
            }
            Work::Close(..) => {}
        }
        if let Work::Task(task) = work {
            task.answer(error);
        }
    }

    fn blame(&mut self, why: Failed) -> StoreError {
        let wholly = why.is_of_all();
        let error = match why {
            Failed::Sql(why) => failed("write the database", &self.database.path, &why),
            Failed::Gone(error) => error,
            // What is wrong with one thing is nothing that the store suffers from.
            Failed::Store(error) => return error,
        };
        if self.pulse.fails(&error) {
            tracing::error!(%error, "runs are not saved: no new ones are taken, the store goes on trying");
        }
        let tried = self.failing.as_ref().map_or_else(Instant::now, |failing| failing.tried);
        self.failing = Some(Failing { error: error.clone(), tried, wholly });
        error
    }
}

impl Writing<'_> {
    /// Answers the last version a document got, and whether the log is empty now. `probe`: something is written at any
    /// rate.
    fn all(&mut self, batch: &mut [Work], probe: bool, version: u64) -> Result<(u64, bool), Failed> {
        for work in batch {
            match work {
                Work::Touch(run) => self.touch(run)?,
                Work::Task(task) => task.attempt(self)?,
                Work::Close(..) => {}
            }
        }
        if self.empty_log {
            self.put_log_away()?;
        } else if !self.log.is_empty() {
            self.sql.prepare_cached("INSERT INTO log (bytes) VALUES (?1)")?.execute([&*self.log])?;
        }
        if self.version != version || probe {
            let mut statement = self.sql.prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'version'")?;
            statement.execute([super::reader::int(self.version)])?;
        }
        Ok((self.version, self.empty_log))
    }
}
