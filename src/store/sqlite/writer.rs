//! The thread that writes: it collects what has grown, and puts it into the file in one transaction. Whatever cannot be
//! written is kept and tried again. Not here: when it is woken ([`super::queue`]), and the statements about runs
//! ([`super::runs`]) and documents ([`super::documents`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::id::RunId;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::queue::{Order, Queue, Work};
use super::reader::Failed;
use super::runs::{self, Tracks};
use super::schema::{Database, failed};
use crate::store::{Journal, StoreError};

/// How long lines stay in the log before they are put where they belong: so long, a run costs no row of its own.
const ROTATION: Duration = Duration::from_secs(5);

/// The log is put away earlier if it grows to so many bytes.
const LOG_SIZE: usize = 8 << 20;

/// How long the writer waits before it tries again what failed.
const RETRY: Duration = Duration::from_millis(500);

/// How often a failure that lasts is told.
const REMINDER: Duration = Duration::from_secs(30);

/// The writing thread's own.
pub(super) struct Writer {
    queue: Arc<Queue>,
    connection: Connection,
    database: Database,
    tracks: Tracks,
    /// Runs that could not be written, and whether they are to be made known.
    owed: HashMap<RunId, (Arc<dyn Journal>, bool)>,
    /// The last version a document got.
    version: u64,
    log: Vec<u8>,
    log_size: usize,
    rotated: Instant,
    committed: Instant,
    failing: Option<Failing>,
}

/// A failure that lasts.
struct Failing {
    error: StoreError,
    /// When what failed was tried last.
    tried: Instant,
    told: Instant,
}

/// A transaction under way, and what the writer knows.
pub(super) struct Writing<'a> {
    pub(super) sql: &'a Transaction<'a>,
    pub(super) tracks: &'a mut Tracks,
    pub(super) owed: &'a mut HashMap<RunId, (Arc<dyn Journal>, bool)>,
    pub(super) version: u64,
    pub(super) log: &'a mut Vec<u8>,
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
    pub(super) fn new(queue: Arc<Queue>, database: Database, mut connection: Connection) -> Result<Self, StoreError> {
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
            owed: HashMap::new(),
            version: u64::try_from(version).unwrap_or(0),
            log: Vec::new(),
            log_size: 0,
            rotated: now,
            committed: now,
            failing: None,
        })
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        /// However the thread ends, nobody waits for it in vain.
        struct Shut(Arc<Queue>);
        impl Drop for Shut {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _shut = Shut(Arc::clone(&self.queue));
        loop {
            let idle = if self.owed.is_empty() { (self.log_size > 0).then_some(ROTATION) } else { Some(RETRY) };
            let Order::Write(mut batch) = self.queue.gather(self.committed, idle) else { return };
            let close = match batch.pop_if(|work| matches!(work, Work::Close(..))) {
                Some(Work::Close(readers, reply)) => Some((readers, reply)),
                _ => None,
            };
            self.write(batch, close.is_some());
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
        let due = self.failing.as_mut().filter(|failing| failing.tried.elapsed() >= RETRY);
        let due = due.map(|failing| failing.tried = Instant::now()).is_some();
        if due || last {
            let owed = std::mem::take(&mut self.owed);
            let again = owed.into_values().map(|(run, open)| Work::Task(Box::new(runs::Again { run, open })));
            self.write_together(again.collect(), false);
        }
        if self.failing.is_none() || last {
            let old = self.log_size > 0 && self.rotated.elapsed() >= ROTATION;
            self.write_together(batch, last || old || self.log_size >= LOG_SIZE);
        } else {
            // While something fails, what has grown is left for the next try, and what somebody waits for is done one
            // by one: there may be no room for a run, but for its removal there is.
            for work in batch {
                match work {
                    Work::Task(_) => self.write_together(vec![work], false),
                    work => self.keep_for_later(work, None),
                }
            }
        }
        self.committed = Instant::now();
    }

    fn write_together(&mut self, mut batch: Vec<Work>, rotate: bool) {
        if batch.is_empty() && !rotate {
            return;
        }
        match self.attempt(&mut batch, rotate) {
            Ok(()) => {
                if self.failing.take_if(|_| self.owed.is_empty()).is_some() {
                    tracing::info!(path = %self.database.path.display(), "the database can be written again");
                }
                for work in batch {
                    if let Work::Task(task) = work {
                        task.answer(None);
                    }
                }
            }
            // What one of them does not get through must not keep the others.
            Err(_) if batch.len() > 1 => batch.into_iter().for_each(|work| self.write_together(vec![work], false)),
            Err(why) => {
                let error = self.blame(why);
                batch.into_iter().for_each(|work| self.keep_for_later(work, Some(&error)));
            }
        }
    }

    /// All of it in one transaction, or nothing.
    fn attempt(&mut self, batch: &mut [Work], rotate: bool) -> Result<(), Failed> {
        self.log.clear();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writing = Writing {
            sql: &transaction,
            tracks: &mut self.tracks,
            owed: &mut self.owed,
            version: self.version,
            log: &mut self.log,
            failing: self.failing.as_ref().map(|failing| &failing.error),
        };
        let result = writing.all(batch, rotate, self.version).and_then(|version| {
            transaction.commit()?;
            Ok(version)
        });
        match result {
            Ok(version) => {
                self.tracks.commit();
                self.version = version;
                self.log_size = if rotate { 0 } else { self.log_size + self.log.len() };
                if rotate || self.log_size == self.log.len() {
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

    fn keep_for_later(&mut self, work: Work, error: Option<&StoreError>) {
        let (run, open) = match &work {
            Work::Touch(run) => (Some(run), false),
            Work::Task(task) => task.owes().map_or((None, false), |(run, open)| (Some(run), open)),
            Work::Close(..) => (None, false),
        };
        if let Some(run) = run {
            self.owed.entry(run.id()).and_modify(|owed| owed.1 |= open).or_insert_with(|| (Arc::clone(run), open));
        }
        if let Work::Task(task) = work {
            task.answer(error);
        }
    }

    fn blame(&mut self, why: Failed) -> StoreError {
        let error = match why {
            Failed::Sql(why) => failed("write the database", &self.database.path, &why),
            Failed::Store(error) => error,
        };
        let now = Instant::now();
        let (tried, told) = self.failing.as_ref().map(|failing| (failing.tried, failing.told)).unzip();
        let tell = told.is_none_or(|told| now.duration_since(told) >= REMINDER);
        if tell {
            tracing::error!(%error, unsaved = self.owed.len(), "runs are not saved, the store goes on trying");
        }
        let told = if tell { now } else { told.unwrap_or(now) };
        self.failing = Some(Failing { error: error.clone(), tried: tried.unwrap_or(now), told });
        error
    }
}

impl Writing<'_> {
    /// Answers the last version a document got.
    fn all(&mut self, batch: &mut [Work], rotate: bool, version: u64) -> Result<u64, Failed> {
        for work in batch {
            match work {
                Work::Touch(run) => self.touch(run)?,
                Work::Task(task) => task.attempt(self)?,
                Work::Close(..) => {}
            }
        }
        if rotate {
            self.put_log_away()?;
        } else if !self.log.is_empty() {
            self.sql.prepare_cached("INSERT INTO log (bytes) VALUES (?1)")?.execute([&*self.log])?;
        }
        if self.version != version {
            let mut statement = self.sql.prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'version'")?;
            statement.execute([super::reader::int(self.version)])?;
        }
        Ok(self.version)
    }
}
