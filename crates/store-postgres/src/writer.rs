//! The writer: collects work and flushes it, over one connection, one flush at a time. A flush whose outcome is unknown
//! is sent again until it is known. Not here: what a flush is ([`super::flush`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_postgres::Error;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::database::Database;
use super::error::{Failure, describe, store_error};
use super::flush::Flush;
use super::given_up;
use super::inner::Inner;
use super::queue::QueuedWork;
use super::results::Results;
use super::tracked::Runs;
use super::work::WriteCommand;
use interlingua_base::clock;
use interlingua_store::{Health, StoreError};

/// The shortest time between the begins of two flushes while runs grow. An event is published after its commit, so this
/// is the latency that a stream pays under load.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);
/// The same while a caller waits.
const URGENT_INTERVAL: Duration = Duration::from_millis(2);
/// Time that lines stay in the log: other replicas see a run that they do not follow with this delay.
const LOG_ROTATION: Duration = Duration::from_secs(1);
/// Interval of the check for followers of a run, without notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Size in bytes at which the log is emptied early.
const MAX_LOG_BYTES: usize = 8 << 20;
/// Time after which a statement of the writer without a result fails, after several slow ones. The first statement has
/// a third of a lease: a dead connection is replaced before others take over the runs.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The shortest time for that: with shorter leases, a slow machine is no lost connection.
const MIN_ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Duration of a flush after which new runs are refused.
const SILENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to write what could not be written.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Number of lease periods without a connection after which the replica gives up its runs.
const MAX_LEASES: u32 = 3;
/// Interval of the query for the database's time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(20);
/// Timeout of a query whose answer the writer can do without. Writes wait no longer than this.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Why a flush was not committed.
enum FlushFailure {
    /// This replica cannot write any more.
    Lost(StoreError),
    /// Something in it is wrong.
    Refused(StoreError),
    /// It needs more locks or memory than the database has left.
    TooLarge(String),
}

/// The state of the writer.
pub(super) struct Writer {
    inner: Arc<Inner>,
    database: Option<Database>,
    replica: Uuid,
    /// The number of the last flush that was committed.
    flushed: i64,
    runs: Runs,
    /// Runs that this replica does not write any more, and still holds. The log has lines of them.
    refused: Vec<Uuid>,
    /// When it was looked last whether this replica has all runs that it holds.
    compared: Instant,
    log_size: usize,
    rotated: Instant,
    renewed: Instant,
    /// When the runs that other replicas follow were looked up last.
    looked: Instant,
    /// The time of the last request for the time.
    asked_time: Option<Instant>,
    /// Consecutive connections that were lost in the middle of a flush: the database may be slow, and not away.
    lost_in_flush: u32,
    /// When the first of the work came that is not written.
    arrived: Option<Instant>,
}

impl Writer {
    /// A writer that has joined the other replicas.
    pub(super) async fn join(inner: Arc<Inner>) -> Result<Self, StoreError> {
        let now = Instant::now();
        let mut writer = Self {
            inner,
            database: None,
            replica: Uuid::nil(),
            flushed: 0,
            runs: Runs::default(),
            refused: Vec::new(),
            compared: now,
            log_size: 0,
            rotated: now,
            renewed: now,
            looked: now,
            asked_time: None,
            lost_in_flush: 0,
            arrived: None,
        };
        let database = writer.connect().await?;
        writer.enter(&database).await?;
        writer.database = Some(database);
        writer.follow_clock().await;
        tracing::info!(replica = %writer.replica, "this gateway joined the gateways of the database");
        Ok(writer)
    }

    /// Opens a connection. Fails early enough: without a connection for too long, the runs of this replica are lost.
    async fn connect(&self) -> Result<Database, StoreError> {
        let first = (self.inner.lease / 3).max(MIN_ANSWER_LIMIT);
        let longest = ANSWER_LIMIT.min(self.inner.lease * MAX_LEASES).max(first);
        let limit = first.saturating_mul(1 << self.lost_in_flush.min(6)).min(longest);
        Ok(self.inner.connector.connect().await?.answering_within(limit))
    }

    /// Enters this process as a new replica.
    async fn enter(&mut self, database: &Database) -> Result<(), StoreError> {
        let id = clock::new_id().0;
        let sql = "INSERT INTO il.replicas (id, state, version, journal) VALUES ($1, 'active', $2, $3)";
        let (version, journal) = (env!("CARGO_PKG_VERSION"), 1_i32);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&id, Type::UUID), (&version, Type::TEXT), (&journal, Type::INT4)];
        database.rows(sql, &parameters).await.map_err(|error| store_error(&error))?;
        (self.replica, self.flushed, self.renewed) = (id, 0, Instant::now());
        self.inner.entered(id);
        // Before the lease counts as held: a gateway that holds one is ready.
        self.note_success();
        self.inner.standing.renewed(self.renewed, self.inner.lease, 0, 0);
        Ok(())
    }

    /// Writes until the store is closed.
    pub(super) async fn run(mut self) {
        loop {
            let idle = self.inner.lease / 4;
            let due = self.renewed + FLUSH_INTERVAL;
            let urgent = self.renewed + URGENT_INTERVAL;
            // However often it is woken for nothing, the lease is renewed in time.
            let longest = idle.saturating_sub(self.renewed.elapsed()).min(LOG_ROTATION);
            let mut work;
            (work, self.arrived) = self.inner.queue.next(due, urgent, longest).await;

            self.give_up_refused().await;
            self.compare_held().await;
            self.look_for_followers().await;
            self.follow_clock().await;
            let is_due = self.log_size > 0 && self.rotated.elapsed() >= LOG_ROTATION || self.log_size >= MAX_LOG_BYTES;
            // Lines of a run that could not be given up yet are in the log only.
            let moves_all = is_due && self.refused.is_empty();
            let mut flush = Flush::build(self.replica, self.flushed + 1, &mut self.runs, &mut work, moves_all);
            self.inner.queue.put_back(work, self.arrived);
            for run in self.inner.take_newly_followed(&mut self.runs.followed) {
                self.runs.move_lines(run, &mut flush.runs);
            }
            if flush.is_empty() && flush.closing.is_none() && self.renewed.elapsed() < idle {
                // No one waits for anything but that all before is committed.
                flush.finish(Default::default(), |lost| self.runs.fence_run(lost));
                continue;
            }

            let closing = flush.closing.take();
            let written = self.write(flush).await;
            if let Some(reply) = closing {
                self.leave().await;
                let _ = reply.send(written);
                return;
            }
        }
    }

    /// Writes a flush. What the database refuses in it fails alone.
    async fn write(&mut self, flush: Flush) -> Result<(), StoreError> {
        let mut left = vec![flush];
        while let Some(mut flush) = left.pop() {
            flush.number = self.flushed + 1;
            let error = match self.commit(&flush).await {
                Ok(results) => {
                    self.finish(flush, results).await;
                    continue;
                }
                Err(FlushFailure::Lost(error)) => error,
                Err(FlushFailure::TooLarge(reason)) => {
                    match flush.halve() {
                        Ok((first, second)) => left.extend([second, first]),
                        Err(whole) => {
                            // Others use it up at the moment.
                            left.push(*whole);
                            self.note_failure(reason, false);
                            sleep(RETRY_INTERVAL).await;
                        }
                    }
                    continue;
                }
                Err(FlushFailure::Refused(error)) => match flush.halve() {
                    Ok((first, second)) => {
                        left.extend([second, first]);
                        continue;
                    }
                    Err(one) if one.items() == 1 => {
                        self.refuse(*one, &error).await;
                        continue;
                    }
                    Err(whole) => {
                        flush = *whole;
                        error
                    }
                },
            };

            tracing::error!(%error, replica = %self.replica, "this gateway gives up its runs: other gateways take them over, and unfinished runs fail");
            for flush in left.into_iter().chain([flush]) {
                flush.fail(&error, |run| self.runs.fence_run(run));
            }
            self.lose_all(&error).await;
            return Err(error);
        }
        Ok(())
    }

    /// Sends a flush until its outcome is known.
    async fn commit(&mut self, flush: &Flush) -> Result<Results, FlushFailure> {
        let (began, lease) = (Instant::now(), self.inner.lease.as_secs_f64());
        let mut is_known_as_applied = false;
        let inner = Arc::clone(&self.inner);
        loop {
            let Some(database) = self.connected(began).await else {
                return Err(FlushFailure::Lost(StoreError::Unavailable { reason: self.inner.health.reason() }));
            };
            let sent = async {
                if is_known_as_applied { flush.find_results(database).await } else { flush.send(database, lease).await }
            };
            match noting_silence(&inner, Box::pin(sent)).await {
                Ok(results) => {
                    self.inner.committed(began.elapsed());
                    self.lost_in_flush = 0;
                    return Ok(results);
                }
                Err(error) => match Failure::from_error(&error) {
                    Failure::Applied => is_known_as_applied = true,
                    Failure::Fenced => return Err(FlushFailure::Lost(StoreError::Fenced)),
                    Failure::Disconnected => {
                        self.note_failure(describe(&error), true);
                        self.lost_in_flush += 1;
                        // Others have taken the runs over long ago, or will; what this one answers is of no use.
                        if self.was_away_too_long(began) {
                            let reason = self.inner.health.reason();
                            return Err(FlushFailure::Lost(StoreError::Unavailable { reason }));
                        }
                    }
                    Failure::Later => {
                        self.roll_back().await;
                        self.note_failure(describe(&error), false);
                        sleep(RETRY_INTERVAL).await;
                    }
                    Failure::TooLarge => {
                        self.roll_back().await;
                        return Err(FlushFailure::TooLarge(describe(&error)));
                    }
                    Failure::Wrong => {
                        self.roll_back().await;
                        return Err(FlushFailure::Refused(StoreError::Internal(describe(&error))));
                    }
                },
            }
        }
    }

    /// Notes that a flush was committed, and answers those who wait for it.
    async fn finish(&mut self, flush: Flush, results: Results) {
        let logged = flush.runs.log.len() + flush.runs.followed.len();
        self.flushed = flush.number;
        self.inner.wrote(flush.runs.bytes(), self.arrived.map(|at| at.elapsed()));
        (self.renewed, self.log_size) = (Instant::now(), if flush.trims { logged } else { self.log_size + logged });
        if flush.trims || self.log_size == logged {
            self.rotated = Instant::now();
        }
        self.note_success();
        if flush.claims() {
            self.inner.notice_follow();
        }
        let notices = flush.notices();
        // Those who wait here do not wait for a notice to others.
        flush.finish(results, |lost| self.runs.fence_run(lost));
        let (held, followed) = (self.runs.by_id.len(), self.runs.followed.len());
        self.inner.standing.renewed(self.renewed, self.inner.lease, held, followed);
        if !notices.is_empty() {
            self.notify(&notices).await;
        }
    }

    /// Fails the one thing that the database refuses, and nothing else.
    async fn refuse(&mut self, one: Flush, error: &StoreError) {
        tracing::error!(%error, "the database refused a write");
        one.fail(error, |run| {
            self.runs.fence_run(run);
            self.refused.push(run.id().0);
        });
        self.give_up_refused().await;
    }

    /// Gives up the runs that this replica does not write any more. What fails is tried again.
    async fn give_up_refused(&mut self) {
        let Some(database) = self.database.as_ref().filter(|_| !self.refused.is_empty()) else { return };
        match given_up::give_up(database, self.replica, &self.refused).await {
            Ok(()) => self.refused.clear(),
            Err(error) => {
                tracing::warn!(
                    error = describe(&error),
                    "cannot hand over the runs whose writes the database refused, so these runs have not ended as failed yet: the next flush tries again"
                );
                self.roll_back().await;
            }
        }
    }

    /// Checks at intervals whether the database assigns runs to this replica that it does not have: the answer to a
    /// takeover may have been lost. Runs between two flushes, so that both sides have the same state.
    async fn compare_held(&mut self) {
        if self.compared.elapsed() < self.inner.lease {
            return;
        }
        let Some(database) = &self.database else { return };
        let known: Vec<Uuid> = self.runs.by_id.keys().map(|run| run.0).chain(self.refused.iter().copied()).collect();
        let forgotten = async {
            let found = given_up::find(database, self.replica, &known).await?;
            given_up::release(database, self.replica, self.inner.handed_out.without_handed_out(found)).await
        };
        match forgotten.await {
            Ok(forgotten) => self.inner.handed_out.set_forgotten(forgotten),
            Err(error) => {
                tracing::debug!(error = describe(&error), "cannot read which runs this gateway has leases for")
            }
        }
        self.compared = Instant::now();
    }

    /// The connection, opened again if it is lost. `None`: it was lost for too long.
    async fn connected(&mut self, began: Instant) -> Option<&Database> {
        while self.database.as_ref().is_none_or(Database::is_closed) {
            self.database = None;
            match Box::pin(self.connect()).await {
                Ok(database) => {
                    self.database = Some(database);
                    self.inner.reconnected();
                }
                Err(error) => {
                    self.note_failure(error.to_string(), true);
                    if self.was_away_too_long(began) {
                        return None;
                    }
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
        self.database.as_ref()
    }

    /// Whether writes have failed for so much time that the runs are lost. `began`: the time of the first attempt.
    fn was_away_too_long(&self, began: Instant) -> bool {
        self.renewed.elapsed().min(began.elapsed()) > self.inner.lease * MAX_LEASES
    }

    /// Timeout of a query whose answer the writer can do without. The sum of several is much less than a lease.
    fn look_timeout(&self) -> Duration {
        LOOK_TIMEOUT.min(self.inner.lease / 10)
    }

    async fn roll_back(&self) {
        if let Some(database) = &self.database {
            // A transaction that failed ended with its COMMIT; this is for one that did not get that far.
            let _ = database.batch("ROLLBACK").await;
        }
    }

    fn note_success(&self) {
        if let Some(outage) = self.inner.health.recovered() {
            self.inner.standing.had_outage(outage, self.inner.lease);
            tracing::info!(after_s = outage.as_secs(), "the database accepts writes again");
        }
    }

    fn note_failure(&mut self, reason: String, disconnects: bool) {
        if disconnects {
            self.database = None;
        }
        note_failing(&self.inner, &reason, Instant::now());
        self.inner.failed();
    }

    /// Another replica has taken over the runs of this one: it continues as a new replica without runs.
    async fn lose_all(&mut self, error: &StoreError) {
        self.runs.lose_all();
        self.inner.lost_all();
        self.refused.clear();
        // Who has called before it was lost must not believe that it was written by the replica that had the run.
        let (last, lost): (VecDeque<QueuedWork>, VecDeque<QueuedWork>) =
            self.inner.queue.take().into_iter().partition(|(_, work)| matches!(work, WriteCommand::Close(_)));
        lost.into_iter().for_each(|(_, work)| work.fail(error));
        self.inner.queue.put_back(last, None);
        (self.log_size, self.flushed) = (0, 0);
        loop {
            let began = Instant::now();
            if self.connected(began).await.is_some()
                && let Some(database) = self.database.take()
            {
                // One that is not fenced yet, because the database could not be reached, would keep its runs.
                let old = self.replica;
                let give_up = "UPDATE il.replicas SET state = 'fenced' WHERE id = $1 AND state = 'active'";
                let gave_up = database.rows(give_up, &[(&old, Type::UUID)]).await;
                if gave_up.is_ok() && self.enter(&database).await.is_ok() {
                    self.database = Some(database);
                    tracing::warn!(replica = %self.replica, "this gateway continues as a new replica, without the runs of the old one");
                    return;
                }
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Looks up which runs other replicas follow, once a second or when one says so.
    async fn look_for_followers(&mut self) {
        let interval = if self.inner.connector.is_pooled() { POLL_INTERVAL } else { LOG_ROTATION };
        if self.runs.by_id.is_empty() || (self.looked.elapsed() < interval && !self.inner.take_follow_notice()) {
            return;
        }
        self.looked = Instant::now();
        let Some(database) = &self.database else { return };
        let sql = "SELECT f.run FROM il.follows f JOIN il.runs r ON r.id = f.run
                   WHERE r.holder = $1 AND f.until > clock_timestamp()";
        if let Ok(Ok(rows)) = timeout(self.look_timeout(), database.rows(sql, &[(&self.replica, Type::UUID)])).await {
            self.inner.set_followed(rows.iter().map(|row| interlingua_core::RunId(row.get(0))).collect());
        }
    }

    /// Asks the database for the time now and then: all replicas go by it.
    async fn follow_clock(&mut self) {
        let is_due = self.asked_time.is_none_or(|asked| asked.elapsed() >= CLOCK_INTERVAL);
        let Some(database) = self.database.as_ref().filter(|_| is_due) else { return };
        self.asked_time = Some(Instant::now());
        let sent = clock::machine();
        let Ok(Ok(Some(row))) = timeout(self.look_timeout(), database.row(CLOCK, &[])).await else { return };
        let store = u64::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        if let Some(ahead) = clock::follow_store(store, sent, clock::machine()) {
            if ahead == 0 {
                tracing::info!("the clock of the database agrees with this machine's again");
            } else {
                tracing::warn!(
                    database_ahead_s = ahead / 1000,
                    "the clock of the database differs from this machine's: stored times use the clock of the database"
                );
            }
        }
    }

    async fn notify(&self, kinds: &str) {
        if let Some(database) = &self.database {
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&self.inner.channel, Type::TEXT), (&kinds, Type::TEXT)];
            // A lost notification only costs time: every replica also checks at intervals. A notification is a
            // transaction of its own, which need not wait for the disk: its data is already there.
            let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
            let _ = timeout(self.look_timeout(), database.rows(sql, &parameters)).await;
        }
    }

    /// Leaves the other replicas: they need not wait for the lease. Its remaining runs are handed out.
    pub(super) async fn leave(&mut self) {
        if let Some(database) = &self.database {
            let free = "DELETE FROM il.leases WHERE replica = $1";
            let _ = database.rows(free, &[(&self.replica, Type::UUID)]).await;
            let sql = "
                UPDATE il.replicas SET renewed_at = clock_timestamp(), state = CASE
                    WHEN EXISTS (SELECT FROM il.runs WHERE holder = $1) OR EXISTS (SELECT FROM il.tickets WHERE replica = $1)
                    THEN 'fenced' ELSE 'left' END
                WHERE id = $1";
            let _ = database.rows(sql, &[(&self.replica, Type::UUID)]).await;
        }
    }
}

/// Waits for a flush. New runs are refused while there is no answer for long.
async fn noting_silence(
    inner: &Inner,
    mut sent: impl Future<Output = Result<Results, Error>> + Unpin,
) -> Result<Results, Error> {
    let began = Instant::now();
    if let Ok(results) = timeout(SILENCE, &mut sent).await {
        return results;
    }
    note_failing(inner, "the database does not answer", began);
    sent.await
}

fn note_failing(inner: &Inner, reason: &str, since: Instant) {
    if inner.health.failed(reason, since) {
        tracing::error!(%reason, "the database accepts no writes: new runs are refused, the store retries");
    }
    if let Health::Failing { error, .. } = inner.health.current() {
        inner.queue.refuse_new(&error);
    }
}
