//! The writer thread: collects pending work and writes it to the file in one transaction. What cannot be written is
//! kept and retried. Not here: when the thread wakes ([`super::queue`]), and the statements for runs ([`super::runs`])
//! and documents ([`super::documents`]).
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::health::{UnwrittenRuns, WriterHealth};
use super::queue::{CommitPacer, NextStep, Queue, WriteCommand};
use super::reader::QueryError;
use super::runs;
use super::schema::{Database, WRITER_LOCK_TIMEOUT, file_error};
use super::tracked::TrackedRuns;
use super::transaction::{CommittedRun, Task, WriteTransaction};
use interlingua_observe::metrics::StoreMetrics;
use interlingua_store::StoreError;

/// Time that lines stay in the log before they move to segments. A run shorter than this needs no row of its own for
/// them.
const LOG_ROTATION_INTERVAL: Duration = Duration::from_secs(5);

/// Size in bytes at which the log is emptied early.
const MAX_LOG_BYTES: usize = 8 << 20;

/// Time between two attempts to write what failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Time that a retry waits for a lock of another process.
const RETRY_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Interval at which an idle writer checks that its file still exists.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The state of the writer thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    connection: Connection,
    database: Database,
    tracked: TrackedRuns,
    unwritten: Arc<UnwrittenRuns>,
    health: Arc<WriterHealth>,
    /// The last version that a document was given.
    version: u64,
    log: Vec<u8>,
    log_size: usize,
    rotated: Instant,
    pacer: CommitPacer,
    /// Runs in the current transaction, each with the number of events that are durable after it.
    committed: Vec<CommittedRun>,
    failing: Option<Failing>,
    metrics: Option<StoreMetrics>,
}

/// A failure that persists.
struct Failing {
    error: StoreError,
    /// Time of the last attempt.
    tried: Instant,
    /// True if nothing at all can be written, so that other work need not be tried.
    total: bool,
}

impl Writer {
    /// Also recovers the log that the previous process left.
    pub(super) fn new(
        queue: Arc<Queue>,
        unwritten: Arc<UnwrittenRuns>,
        health: Arc<WriterHealth>,
        database: Database,
        mut connection: Connection,
    ) -> Result<Self, StoreError> {
        let sql = |error: rusqlite::Error| file_error("read the database", &database.path, error);
        runs::recover_log(&mut connection).map_err(sql)?;
        let version: i64 = connection
            .query_row("SELECT value FROM counters WHERE name = 'version'", [], |row| row.get(0))
            .map_err(sql)?;

        let now = Instant::now();
        Ok(Self {
            queue,
            connection,
            database,
            tracked: TrackedRuns::default(),
            unwritten,
            health,
            version: u64::try_from(version).unwrap_or(0),
            log: Vec::new(),
            log_size: 0,
            rotated: now,
            pacer: CommitPacer::new(now),
            committed: Vec::new(),
            failing: None,
            metrics: None,
        })
    }

    /// Counts transactions from now on.
    pub(super) fn counting(mut self, metrics: Option<StoreMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        /// Closes the queue however the thread ends, so that no caller waits forever.
        struct CloseOnDrop(Arc<Queue>, Arc<WriterHealth>);
        impl Drop for CloseOnDrop {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.1.set_failing(&StoreError::Internal("the writer thread has ended".into()));
                }
                self.0.stop();
            }
        }

        let _guard = CloseOnDrop(Arc::clone(&self.queue), Arc::clone(&self.health));
        loop {
            let idle = if self.failing.is_some() { RETRY_INTERVAL } else { FILE_CHECK_INTERVAL };
            let NextStep::Write(mut batch) = self.queue.next_batch(&self.pacer, idle) else { return };

            let close = match batch.pop_if(|work| matches!(work, WriteCommand::Close(..))) {
                Some(WriteCommand::Close(readers, reply)) => Some((readers, reply)),
                _ => None,
            };

            let (start, items) = (Instant::now(), batch.len());
            self.health.set_writing(true);
            self.write(batch, close.is_some());
            self.health.set_writing(false);
            if items > 0 {
                let now = Instant::now();
                self.pacer.committed(now, items, now - start);
            }

            if let Some((readers, reply)) = close {
                let result = self
                    .failing
                    .take()
                    .filter(|_| !self.unwritten.is_empty())
                    .map_or(Ok(()), |failing| Err(failing.error));
                readers.close();
                // Dropping the writer releases the lock, so that another process can open the file after the response.
                drop(self);
                let _ = reply.send(result);
                return;
            }
        }
    }

    fn write(&mut self, batch: Vec<WriteCommand>, last: bool) {
        if self.failing.as_ref().is_some_and(|failing| last || failing.tried.elapsed() >= RETRY_INTERVAL) {
            self.retry();
            if let Some(failing) = &mut self.failing {
                // Measured from the end of the attempt, which may have waited for a lock.
                failing.tried = Instant::now();
            }
        }
        let idle = batch.is_empty() && !last;
        if let Some(failing) = &self.failing
            && !last
        {
            // While writes fail, touched runs wait for the next retry, and work with a waiting caller is done item by
            // item: there may be no room for a run, but there is for its removal.
            let mut total_failure = failing.total.then(|| failing.error.clone());
            for work in batch {
                match (work, &total_failure) {
                    (work @ WriteCommand::Task(_), None) => {
                        self.write_batch(vec![work], false);
                        let failing = self.failing.as_ref().filter(|failing| failing.total);
                        total_failure = failing.map(|failing| failing.error.clone());
                    }
                    (work, error) => self.defer(work, error.as_ref()),
                }
            }
            return;
        }

        if idle && let Err(error) = self.database.check_present() {
            self.record_failure(QueryError::Gone(error));
        }

        let log_is_old = self.log_size > 0 && self.rotated.elapsed() >= LOG_ROTATION_INTERVAL;
        self.write_batch(batch, last || log_is_old || self.log_size >= MAX_LOG_BYTES);
    }

    /// Retries all unwritten runs at once. Without unwritten runs, checks whether a write succeeds.
    fn retry(&mut self) {
        if self.failing.as_ref().is_some_and(|failing| failing.total)
            && self.database.check_present().is_ok()
            && let Ok(connection) = self.database.writer()
        {
            // After a disk was unmounted and mounted again, the old connection refers to a stale file.
            self.connection = connection;
        }

        // Other callers are queued behind this and should learn quickly that it fails.
        let _ = self.connection.busy_timeout(RETRY_LOCK_TIMEOUT);
        let unwritten = self.unwritten.all().into_iter();
        let retries = unwritten.map(|run| WriteCommand::Task(Box::new(runs::Retry(run)) as Box<dyn Task>));
        self.write_all(retries.collect(), false, true);
        let _ = self.connection.busy_timeout(WRITER_LOCK_TIMEOUT);
    }

    fn write_batch(&mut self, batch: Vec<WriteCommand>, rotate: bool) {
        if !batch.is_empty() || rotate {
            self.write_all(batch, rotate, false);
        }
    }

    fn write_all(&mut self, mut batch: Vec<WriteCommand>, rotate: bool, probe: bool) {
        let began = Instant::now();
        match self.attempt(&mut batch, rotate, probe) {
            Ok(()) => {
                if let Some(metrics) = &self.metrics {
                    metrics.committed(began.elapsed());
                }
                self.notify_committed(&batch);
                if self.failing.take_if(|_| self.unwritten.is_empty()).is_some() {
                    let outage = self.health.set_recovered().unwrap_or_default();
                    let (path, after_s) = (self.database.path.display(), outage.as_secs());
                    tracing::info!(%path, after_s, "the database accepts writes again");
                }
                for work in batch {
                    if let WriteCommand::Task(task) = work {
                        task.respond(None);
                    }
                }
            }
            // A failure of one item must not block the others.
            Err(error) if batch.len() > 1 && !error.affects_everything() => {
                batch.into_iter().for_each(|work| self.write_batch(vec![work], false));
            }
            Err(error) => {
                let error = self.record_failure(error);
                batch.into_iter().for_each(|work| self.defer(work, Some(&error)));
            }
        }
    }

    /// Writes the whole batch in one transaction, or nothing.
    fn attempt(&mut self, batch: &mut [WriteCommand], rotate: bool, probe: bool) -> Result<(), QueryError> {
        self.database.check_present().map_err(QueryError::Gone)?;
        self.log.clear();
        self.committed.clear();

        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut tx = WriteTransaction {
            sql: &transaction,
            tracked: &mut self.tracked,
            unwritten: &self.unwritten,
            version: self.version,
            log: &mut self.log,
            committed: &mut self.committed,
            empty_log: rotate,
            failing: self.failing.as_ref().map(|failing| &failing.error),
        };
        let result = tx.all(batch, probe, self.version).and_then(|done| {
            transaction.commit()?;
            Ok(done)
        });

        match result {
            Ok((version, rotated)) => {
                self.tracked.commit();
                self.version = version;
                self.log_size = if rotated { 0 } else { self.log_size + self.log.len() };
                if rotated || self.log_size == self.log.len() {
                    self.rotated = Instant::now();
                }
                Ok(())
            }
            Err(error) => {
                // The transaction was rolled back when it was dropped.
                self.tracked.roll_back();
                Err(error)
            }
        }
    }

    /// Notifies each run in the batch once of its number of durable events.
    fn notify_committed(&mut self, batch: &[WriteCommand]) {
        for work in batch {
            let run = match work {
                WriteCommand::Touch(run) => Some(run),
                WriteCommand::Task(task) => task.unwritten_run().map(|(run, _)| run),
                WriteCommand::Close(..) => None,
            };
            if let Some(run) = run
                && self.failing.is_some()
            {
                self.unwritten.remove(run.id());
            }
        }

        for CommittedRun { run, events, archived } in self.committed.drain(..) {
            run.committed(events);
            if archived > 0 {
                run.archived(archived);
            }
        }
    }

    fn defer(&mut self, work: WriteCommand, error: Option<&StoreError>) {
        match &work {
            WriteCommand::Touch(run) => self.unwritten.put(run, false),
            WriteCommand::Task(task) => {
                if let Some((run, open)) = task.unwritten_run() {
                    self.unwritten.put(run, open);
                }
            }
            WriteCommand::Close(..) => {}
        }
        if let WriteCommand::Task(task) = work {
            task.respond(error);
        }
    }

    fn record_failure(&mut self, error: QueryError) -> StoreError {
        let total = error.affects_everything();
        let error = match error {
            QueryError::Sql(error) => file_error("write the database", &self.database.path, error),
            QueryError::Gone(error) => error,
            // An error of a single item says nothing about the store.
            QueryError::Store(error) => return error,
        };

        if let Some(metrics) = &self.metrics {
            metrics.failed();
        }
        if self.health.set_failing(&error) {
            tracing::error!(%error, "cannot save runs: new stored runs are refused, the store retries");
        }
        let tried = self.failing.as_ref().map_or_else(Instant::now, |failing| failing.tried);
        self.failing = Some(Failing { error: error.clone(), tried, total });
        error
    }
}

impl WriteTransaction<'_> {
    /// Writes a batch. Returns the last document version, and whether the log is empty now. `probe`: write something in
    /// any case.
    fn all(&mut self, batch: &mut [WriteCommand], probe: bool, version: u64) -> Result<(u64, bool), QueryError> {
        for work in batch {
            match work {
                WriteCommand::Touch(run) => self.touch(run)?,
                WriteCommand::Task(task) => task.attempt(self)?,
                WriteCommand::Close(..) => {}
            }
        }

        if self.empty_log {
            self.flush_log()?;
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
