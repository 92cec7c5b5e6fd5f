//! Runs that this replica follows, whichever replica owns them. When an owner has written lines of followed runs, it
//! notifies, and one query reads the lines of all owners: a row per flush, from the part of the log that is for
//! followers. Lines that are no longer or not yet in the log, and the state of the runs, are read from the runs' own
//! rows: after a notification about them, when a follow begins, and at intervals. A replica of an earlier version
//! writes rows only.
//!
//! Not here: the choice of the runs that an owner writes for followers ([`super::writer`]).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use interlingua_core::call::RunInfo;
use interlingua_core::id::RunId;
use interlingua_core::journal;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::connect::Notices;
use super::reader::parse_info;
use super::reads::{ReadError, Reads};
use interlingua_store::local::lock;
use interlingua_store::{RunUpdate, StoreError, log};

/// Interval of the search for changes without a notification.
const INTERVAL: Duration = Duration::from_millis(250);
/// The same where none can notify.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Duration of the request to an owner to write a run immediately, and interval of its renewal.
const INTEREST: Duration = Duration::from_secs(30);
const RENEWAL: Duration = Duration::from_secs(10);
/// Updates that wait for a slow follower. It is not asked for more meanwhile.
const BUFFER: usize = 64;
/// Maximum number of rows of one run, or of the log of one owner, per read.
const MAX_ROWS: i64 = 512;

/// The lines of owners for followers, after the last row that was read of each owner.
const LOGGED: &str = "
    SELECT l.replica, l.flush, l.followed
    FROM il.replicas r
    LEFT JOIN unnest($1::uuid[], $2::bigint[]) AS seen(replica, flush) ON seen.replica = r.id
    CROSS JOIN LATERAL (
        SELECT replica, flush, followed FROM il.log WHERE replica = r.id AND flush > coalesce(seen.flush, 0)
        ORDER BY flush LIMIT $3) AS l
    WHERE r.state = 'active' ORDER BY l.replica, l.flush";
/// Read before the lines: those that come in between are of a later state, which is read the next time. Tags change at
/// any time, without another state.
const HEADS: &str = "
    SELECT f.number, r.id IS NULL, r.state, r.changed_at, r.about, r.hidden, coalesce(r.ended, true), t.tags
    FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::text[], $5::text[]) AS f(number, run, changed_at, state, tags)
    LEFT JOIN il.runs r ON r.id = f.run
    CROSS JOIN LATERAL (SELECT coalesce(array_to_string(r.tags, chr(30)), '') AS tags) t
    WHERE r.id IS NULL OR r.changed_at <> f.changed_at OR r.state <> f.state OR t.tags <> f.tags";
const LINES: &str = "
    SELECT f.number, l.first, l.events, l.bytes
    FROM unnest($1::bigint[], $2::uuid[], $3::bigint[]) AS f(number, run, next)
    CROSS JOIN LATERAL (
        SELECT first, events, bytes FROM il.lines WHERE run = f.run AND first >= coalesce(
            (SELECT max(first) FROM il.lines WHERE run = f.run AND first <= f.next), 0)
        ORDER BY first LIMIT $4) AS l
    WHERE l.first + l.events > f.next
    ORDER BY f.number, l.first";

#[derive(Default)]
pub(super) struct Follows {
    state: Mutex<FollowState>,
    added: Notify,
}

#[derive(Default)]
struct FollowState {
    by_number: HashMap<u64, FollowedRun>,
    /// The numbers of those who follow a run.
    by_run: HashMap<RunId, Vec<u64>>,
    last: u64,
}

impl FollowState {
    fn remove(&mut self, number: u64) {
        let Some(followed) = self.by_number.remove(&number) else { return };
        if let Some(numbers) = self.by_run.get_mut(&followed.run) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_run.remove(&followed.run);
            }
        }
    }
}

/// One who follows a run.
struct FollowedRun {
    run: RunId,
    /// The next event.
    next: u64,
    /// The value when its row was last read.
    changed_at: i64,
    state: String,
    tags: String,
    /// Lines were passed over: they are in the run's rows, or will be.
    missed: bool,
    updates: mpsc::Sender<Result<RunUpdate, StoreError>>,
}

/// The last flush that was read of each holder's log.
type LogPosition = HashMap<Uuid, i64>;

impl Follows {
    /// The committed part of a run, from an event on.
    pub(super) fn follow(&self, run: RunId, from: u64) -> BoxStream<'static, Result<RunUpdate, StoreError>> {
        let (updates, receiver) = mpsc::channel(BUFFER);
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        let followed = FollowedRun {
            run,
            next: from,
            changed_at: -1,
            state: String::new(),
            tags: String::new(),
            missed: false,
            updates,
        };
        state.by_number.insert(number, followed);
        state.by_run.entry(run).or_default().push(number);
        drop(state);
        self.added.notify_one();
        stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed()
    }

    /// The number of followed runs.
    pub(super) fn len(&self) -> usize {
        lock(&self.state).by_number.len()
    }

    /// Reads arrived notifications until the store is closed.
    ///
    /// `replica`: which one this is now. `channel`: where replicas notify each other.
    pub(super) async fn run(&self, reads: &Reads, notices: &Notices, channel: &str, replica: impl Fn() -> Uuid) {
        let mut renewed = Instant::now();
        let mut seen = LogPosition::new();
        let mut looked = Instant::now();
        loop {
            let interval = if reads.is_pooled() { POLL_INTERVAL } else { INTERVAL };
            let (mut is_new, mut is_changed) = (false, false);
            if lock(&self.state).by_number.is_empty() {
                seen.clear();
                self.added.notified().await;
                is_new = true;
            } else {
                tokio::select! {
                    () = notices.runs.notified() => is_changed = true,
                    () = notices.lines.notified() => {}
                    () = self.added.notified() => is_new = true,
                    () = tokio::time::sleep(interval) => is_changed = true,
                }
            }
            if is_new || renewed.elapsed() >= RENEWAL {
                self.note_interest(reads, channel, replica()).await;
                renewed = Instant::now();
            }

            let read = async {
                if is_new || is_changed || looked.elapsed() >= INTERVAL {
                    looked = Instant::now();
                    self.read_rows(reads, &mut seen).await?;
                }
                self.read_logs(reads, &mut seen).await
            };
            if let Err(error) = read.await {
                tracing::debug!(%error, "cannot read runs of other replicas");
            }
        }
    }

    /// Asks the holders to write at once.
    async fn note_interest(&self, reads: &Reads, channel: &str, replica: Uuid) {
        let mut runs: Vec<Uuid> = lock(&self.state).by_number.values().map(|followed| followed.run.0).collect();
        runs.sort_unstable();
        runs.dedup();
        let until = INTEREST.as_secs_f64();
        let sql = "
            INSERT INTO il.follows (run, replica, until)
            SELECT run, $1, clock_timestamp() + $3::float8 * interval '1 second' FROM unnest($2::uuid[]) run
            ON CONFLICT (run, replica) DO UPDATE SET until = excluded.until";
        let noted = reads.read(async |database| {
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(&replica, Type::UUID), (&runs, Type::UUID_ARRAY), (&until, Type::FLOAT8)];
            database.rows(sql, &parameters).await?;
            let notice: [(&(dyn ToSql + Sync), Type); 1] = [(&channel, Type::TEXT)];
            database.rows("SELECT pg_notify($1, 's')", &notice).await?;
            Ok(())
        });
        if let Err(error) = noted.await {
            tracing::debug!(%error, "cannot register that this gateway follows runs of other replicas");
        }
    }

    /// Reads what holders have logged for followers, and passes it on.
    async fn read_logs(&self, reads: &Reads, seen: &mut LogPosition) -> Result<(), StoreError> {
        let (replicas, flushes): (Vec<Uuid>, Vec<i64>) = seen.iter().map(|(replica, flush)| (*replica, *flush)).unzip();
        let rows = reads.read(async |database| {
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(&replicas, Type::UUID_ARRAY), (&flushes, Type::INT8_ARRAY), (&MAX_ROWS, Type::INT8)];
            Ok(database.rows(LOGGED, &parameters).await?)
        });
        let rows = rows.await?;

        let mut state = lock(&self.state);
        for row in &rows {
            seen.insert(row.get(0), row.get(1));
            for frame in log::frames::<16>(row.get(2)) {
                state.pass_on(RunId(Uuid::from_bytes(frame.run)), &frame);
            }
        }
        Ok(())
    }

    /// Reads what is new in the rows of all runs, and passes it on.
    async fn read_rows(&self, reads: &Reads, seen: &mut LogPosition) -> Result<(), StoreError> {
        let (mut numbers, mut runs, mut next) = (vec![], vec![], vec![]);
        let (mut changed, mut states, mut tags) = (vec![], vec![], vec![]);
        {
            let mut state = lock(&self.state);
            let gone = state.by_number.iter().filter(|(_, followed)| followed.updates.is_closed());
            for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
                state.remove(number);
            }
            for (number, followed) in &state.by_number {
                if followed.updates.capacity() < 2 {
                    continue;
                }
                numbers.push(number.cast_signed());
                runs.push(followed.run.0);
                next.push(followed.next.cast_signed());
                changed.push(followed.changed_at);
                states.push(followed.state.clone());
                tags.push(followed.tags.clone());
            }
        }
        if runs.is_empty() {
            return Ok(());
        }

        let (heads, lines) = reads
            .read(async |database| {
                let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
                    (&numbers, Type::INT8_ARRAY),
                    (&runs, Type::UUID_ARRAY),
                    (&changed, Type::INT8_ARRAY),
                    (&states, Type::TEXT_ARRAY),
                    (&tags, Type::TEXT_ARRAY),
                ];
                let line_parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                    (&numbers, Type::INT8_ARRAY),
                    (&runs, Type::UUID_ARRAY),
                    (&next, Type::INT8_ARRAY),
                    (&MAX_ROWS, Type::INT8),
                ];
                Ok(futures_util::try_join!(database.rows(HEADS, &parameters), database.rows(LINES, &line_parameters))?)
            })
            .await?;
        if self.pass_on(&heads, &lines) {
            // What follows those lines may be in a part of the logs that was read already.
            seen.clear();
        }
        Ok(())
    }

    /// Passes on what was read of the runs' rows. True if one of them had missed something of it.
    fn pass_on(&self, heads: &[Row], lines: &[Row]) -> bool {
        let mut updates: HashMap<u64, RunRows<'_>> = HashMap::new();
        for row in lines {
            updates.entry(row.get::<_, i64>(0).cast_unsigned()).or_default().lines.push(row);
        }
        for row in heads {
            updates.entry(row.get::<_, i64>(0).cast_unsigned()).or_default().head = Some(row);
        }

        let mut state = lock(&self.state);
        let mut had_missed = false;
        for (number, read) in updates {
            let Some(followed) = state.by_number.get_mut(&number) else { continue };
            let (next, was_known) = (followed.next, followed.is_known());
            let updated = followed.update(&read);
            if followed.next > next || followed.is_known() != was_known {
                had_missed |= std::mem::take(&mut followed.missed);
            }
            let is_over = match updated {
                Ok(Some((update, is_over))) => {
                    // There is room: it was looked for before.
                    let _ = followed.updates.try_send(Ok(update));
                    is_over
                }
                Ok(None) => read.is_gone(),
                Err(ReadError::Store(error)) => {
                    let _ = followed.updates.try_send(Err(error));
                    true
                }
                Err(ReadError::Sql(_)) => false,
            };
            if is_over {
                state.remove(number);
            }
        }
        had_missed
    }
}

impl FollowState {
    /// Passes on what was read of a log. Lines that do not follow the last ones, or for which there is no room, come
    /// from the run's rows later.
    fn pass_on(&mut self, run: RunId, frame: &log::Frame<'_, 16>) {
        let Some(numbers) = self.by_run.get(&run) else { return };
        let end = frame.first + u64::from(frame.count);
        for number in numbers {
            let Some(followed) = self.by_number.get_mut(number).filter(|followed| followed.next < end) else {
                continue;
            };
            let skipped = match followed.next.checked_sub(frame.first) {
                // The first update has the state of the run, which is in its row; and the last place is for an end.
                Some(_) if !followed.is_known() || followed.updates.capacity() < 2 => None,
                Some(0) => Some(0),
                Some(skipped) => journal::end_of(frame.lines, skipped),
                None => None,
            };
            let Some(lines) = skipped.and_then(|skipped| frame.lines.get(skipped..)) else {
                followed.missed = true;
                continue;
            };
            followed.next = end;
            let _ = followed.updates.try_send(Ok(RunUpdate { lines: Bytes::copy_from_slice(lines), info: None }));
        }
    }
}

/// The rows that were read of one run.
#[derive(Default)]
struct RunRows<'a> {
    head: Option<&'a Row>,
    lines: Vec<&'a Row>,
}

impl RunRows<'_> {
    /// True if the run was deleted.
    fn is_gone(&self) -> bool {
        self.head.is_some_and(|row| row.get(1))
    }
}

impl FollowedRun {
    /// True once the state of the run was read.
    const fn is_known(&self) -> bool {
        !self.state.is_empty()
    }

    /// The new part, and whether it is the last one. `None`: there is no new part.
    fn update(&mut self, read: &RunRows<'_>) -> Result<Option<(RunUpdate, bool)>, ReadError> {
        let mut lines: Vec<u8> = Vec::new();
        let mut is_complete = true;
        for row in &read.lines {
            let first = row.get::<_, i64>(1).cast_unsigned();
            let end = first + u64::try_from(row.get::<_, i32>(2)).unwrap_or(0);
            let bytes: &[u8] = row.get(3);
            if end <= self.next {
                continue;
            }
            if first > self.next {
                is_complete = false;
                break;
            }
            let skipped = if first < self.next {
                let skipped = journal::end_of(bytes, self.next - first);
                skipped.ok_or_else(|| StoreError::corrupt(format_args!("run {}", self.run), "invalid lines"))?
            } else {
                0
            };
            lines.extend_from_slice(&bytes[skipped..]);
            self.next = end;
        }
        is_complete &= i64::try_from(read.lines.len()).unwrap_or(i64::MAX) < MAX_ROWS;

        let mut info: Option<Box<RunInfo>> = None;
        let mut is_over = false;
        // While some lines are not read yet, the run is shown in its earlier state.
        if let Some(row) = read.head.filter(|row| is_complete && !row.get::<_, bool>(1)) {
            let about: &[u8] = row.get(4);
            info = Some(Box::new(parse_info(self.run, about, row.get(5))?));
            (self.state, self.changed_at, self.tags) = (row.get(2), row.get(3), row.get(7));
            is_over = row.get(6);
        }
        if lines.is_empty() && info.is_none() {
            return Ok(None);
        }
        Ok(Some((RunUpdate { lines: Bytes::from(lines), info }, is_over)))
    }
}
