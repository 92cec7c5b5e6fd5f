//! Runs of replicas that were lost: such a replica is fenced, the latest lines of its runs are moved from its log to their
//! own rows, its places in lines are given up, and its runs are handed out. Not here: ending them (the engine).

use std::collections::HashMap;

use interlingua_core::id::RunId;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Database;
use super::error::store_error;
use super::inner::Inner;
use super::tracked::int;
use crate::store::{StoreError, log};

/// How many runs are handed out at once.
const BATCH: i64 = 50;

/// By the store's clock, and only by a replica that has been there for a lease itself. One that flushes at this moment is
/// there.
const FENCE: &str = "
    UPDATE il.replicas SET state = 'fenced' WHERE id IN (
        SELECT r.id FROM il.replicas r
        WHERE r.state = 'active' AND r.id <> $1
          AND r.renewed_at < clock_timestamp() - $2::float8 * interval '1 second'
          AND EXISTS (SELECT FROM il.replicas me WHERE me.id = $1 AND me.state = 'active'
                      AND me.joined_at < clock_timestamp() - $2::float8 * interval '1 second')
        FOR UPDATE SKIP LOCKED)
    RETURNING id";
const FENCED: &str = "SELECT id FROM il.replicas WHERE state = 'fenced' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
const STORED: &str = "
    SELECT r.id, coalesce((SELECT l.first + l.events FROM il.lines l WHERE l.run = r.id ORDER BY l.first DESC LIMIT 1), 0),
           r.upto
    FROM il.runs r WHERE r.holder = $1";
const LOG: &str = "SELECT bytes FROM il.log WHERE replica = $1 ORDER BY flush";
const LINES: &str = "
    INSERT INTO il.lines (run, first, events, bytes)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::bytea[]) ON CONFLICT (run, first) DO NOTHING";
const UPTO: &str = "
    UPDATE il.runs r SET upto = u.upto,
        size = (SELECT coalesce(sum(octet_length(l.bytes)), 0) FROM il.lines l WHERE l.run = r.id)
    FROM unnest($1::uuid[], $2::bigint[]) AS u(run, upto) WHERE r.id = u.run";
const FORGET: [&str; 5] = [
    "DELETE FROM il.log WHERE replica = $1",
    "DELETE FROM il.signals WHERE replica = $1",
    "DELETE FROM il.follows WHERE replica = $1",
    // A line without tickets stays until retention deletes it: at this moment another replica may be queueing in it.
    "DELETE FROM il.tickets WHERE replica = $1",
    "UPDATE il.replicas SET state = 'left' WHERE id = $1",
];
/// The holders are looked up once: a row that another replica has claimed meanwhile is judged again by its own columns
/// alone, and a subquery about its holder would still see the old one.
const CLAIM: &str = "
    UPDATE il.runs SET holder = $1 FROM (
        SELECT run.id, run.holder FROM il.runs run
        WHERE run.holder = ANY (ARRAY(SELECT id FROM il.replicas WHERE state = 'left' AND id <> $1)) AND NOT run.ended
        ORDER BY run.created_at, run.id LIMIT $2
        FOR UPDATE OF run SKIP LOCKED) AS left_by
    WHERE runs.id = left_by.id AND EXISTS (SELECT FROM il.replicas WHERE id = $1 AND state = 'active')
    RETURNING runs.id, runs.created_at, left_by.holder";

/// Fences replicas that were not seen for a lease, and takes some of the runs of fenced ones over.
pub(super) async fn recover(inner: &Inner) -> Result<Vec<RunId>, StoreError> {
    let (replica, lease) = (inner.replica(), inner.lease.as_secs_f64());
    // After an outage that others had too, they get a lease to come back.
    let may_fence = inner.health.good_for() >= inner.lease && inner.standing.is_steady(inner.lease);
    let fenced = inner.reads.read(async |database| {
        let fence: [(&(dyn ToSql + Sync), Type); 2] = [(&replica, Type::UUID), (&lease, Type::FLOAT8)];
        let fenced = if may_fence { database.rows(FENCE, &fence).await? } else { Vec::new() };
        for row in &fenced {
            tracing::warn!(replica = %row.get::<_, Uuid>(0), "a gateway was not seen for a lease: its runs are taken over");
        }
        Ok(database.row("SELECT FROM il.replicas WHERE state = 'fenced' LIMIT 1", &[]).await?.is_some())
    });
    if fenced.await? {
        // Transactions need a connection of their own.
        let database = inner.connector.connect().await?;
        while fold_one(&database).await.map_err(|error| store_error(&error))? {}
        inner.notices.turns.notify_waiters();
    }

    let claimed = inner.reads.read(async |database| {
        let claim: [(&(dyn ToSql + Sync), Type); 2] = [(&replica, Type::UUID), (&BATCH, Type::INT8)];
        Ok(database.rows(CLAIM, &claim).await?)
    });
    let claimed = claimed.await?;
    let mut by_holder: HashMap<Uuid, usize> = HashMap::new();
    for row in &claimed {
        *by_holder.entry(row.get(2)).or_default() += 1;
    }
    for (from, runs) in by_holder {
        tracing::warn!(runs, replica = %from, "runs were taken over from a gateway that was lost");
    }
    if let Some(metrics) = &inner.metrics {
        metrics.taken_over(u64::try_from(claimed.len()).unwrap_or(u64::MAX));
    }
    let mut claimed: Vec<(i64, Uuid)> = claimed.iter().map(|row| (row.get(1), row.get(0))).collect();
    claimed.sort_unstable();
    Ok(claimed.into_iter().map(|(_, id)| RunId(id)).collect())
}

/// Moves what one fenced replica left to where all replicas read it. False: there is none.
async fn fold_one(database: &Database) -> Result<bool, Error> {
    database.begin().await?;
    let folded = fold_locked(database).await;
    database.batch(if folded.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    folded
}

async fn fold_locked(database: &Database) -> Result<bool, Error> {
    let Some(row) = database.row(FENCED, &[]).await? else { return Ok(false) };
    let replica: Uuid = row.get(0);
    let this: [(&(dyn ToSql + Sync), Type); 1] = [(&replica, Type::UUID)];

    let mut tails: HashMap<Uuid, Tail> = HashMap::new();
    for row in database.rows(STORED, &this).await? {
        let first = row.get::<_, i64>(1).unsigned_abs();
        tails.insert(
            row.get(0),
            Tail { first, next: first, known: row.get::<_, i64>(2).unsigned_abs(), lines: Vec::new() },
        );
    }
    for row in database.rows(LOG, &this).await? {
        for frame in log::frames::<16>(row.get(0)) {
            let Some(tail) = tails.get_mut(&Uuid::from_bytes(frame.run)) else { continue };
            // Lines that are in rows of their own already are skipped.
            if frame.first == tail.next {
                tail.lines.extend_from_slice(frame.lines);
                tail.next += u64::from(frame.count);
            }
        }
    }

    // Also of runs whose lines are all in rows: their own row may not have counted them yet.
    let behind = tails.iter().filter(|(_, tail)| tail.next > tail.known);
    let (behind, upto): (Vec<Uuid>, Vec<i64>) = behind.map(|(run, tail)| (*run, int(tail.next))).unzip();
    let (mut runs, mut firsts, mut events, mut lines) = (vec![], vec![], vec![], vec![]);
    for (run, tail) in tails.into_iter().filter(|(_, tail)| tail.next > tail.first) {
        runs.push(run);
        firsts.push(int(tail.first));
        events.push(i32::try_from(tail.next - tail.first).unwrap_or(i32::MAX));
        lines.push(tail.lines);
    }
    let insert: [(&(dyn ToSql + Sync), Type); 4] = [
        (&runs, Type::UUID_ARRAY),
        (&firsts, Type::INT8_ARRAY),
        (&events, Type::INT4_ARRAY),
        (&lines, Type::BYTEA_ARRAY),
    ];
    database.rows(LINES, &insert).await?;
    database.rows(UPTO, &[(&behind, Type::UUID_ARRAY), (&upto, Type::INT8_ARRAY)]).await?;
    for sql in FORGET {
        database.rows(sql, &this).await?;
    }
    Ok(true)
}

/// The lines of a run that are only in the log.
struct Tail {
    first: u64,
    next: u64,
    /// Number of events that the run's row has counted.
    known: u64,
    lines: Vec<u8>,
}
