//! Runs of replicas that were lost: such a replica is fenced, the latest lines of its runs are moved from its log to
//! their own rows, its places in lines are given up, and its runs are handed out. Not here: ending them (the engine).

use std::collections::HashMap;

use interlingua_core::id::RunId;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Database;
use super::error::store_error;
use super::given_up;
use super::inner::Inner;
use super::latest_lines;
use interlingua_store::StoreError;

/// Number of runs that are handed out at once.
const BATCH: i64 = 50;

/// By the store's clock, and only by a replica that has been connected for a lease itself, without a gap: after an
/// outage for all, one that comes back first does not take over what the others have. One that flushes at this moment
/// is there.
const FENCE: &str = "
    UPDATE il.replicas SET state = 'fenced' WHERE id IN (
        SELECT r.id FROM il.replicas r
        WHERE r.state = 'active' AND r.id <> $1
          AND r.renewed_at < clock_timestamp() - $2::float8 * interval '1 second'
          AND EXISTS (SELECT FROM il.replicas me WHERE me.id = $1 AND me.state = 'active'
                      AND me.joined_at < clock_timestamp() - $2::float8 * interval '1 second'
                      AND me.renewed_at >= clock_timestamp() - $2::float8 * interval '1 second')
        FOR UPDATE SKIP LOCKED)
    RETURNING id";
const FENCED: &str = "SELECT id FROM il.replicas WHERE state = 'fenced' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
const FORGET: [&str; 6] = [
    "DELETE FROM il.log WHERE replica = $1",
    "DELETE FROM il.signals WHERE replica = $1",
    "DELETE FROM il.follows WHERE replica = $1",
    // A line without tickets stays until retention deletes it: at this moment another replica may be queueing in it.
    "DELETE FROM il.tickets WHERE replica = $1",
    "DELETE FROM il.leases WHERE replica = $1",
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
    let may_fence = inner.standing.is_steady(inner.lease);
    let fenced = inner.reads.read(async |database| {
        let fence: [(&(dyn ToSql + Sync), Type); 2] = [(&replica, Type::UUID), (&lease, Type::FLOAT8)];
        let fenced = if may_fence { database.rows(FENCE, &fence).await? } else { Vec::new() };
        for row in &fenced {
            tracing::warn!(replica = %row.get::<_, Uuid>(0), "a gateway did not renew its lease: its runs are taken over");
        }
        Ok(database.row("SELECT FROM il.replicas WHERE state = 'fenced' LIMIT 1", &[]).await?.is_some())
    });
    if fenced.await? {
        // Transactions need a connection of their own.
        let database = inner.connector.connect().await?;
        while fold_one(&database).await.map_err(|error| store_error(&error))? {}
        inner.notices.turns.notify_one();
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
        tracing::warn!(runs, replica = %from, "took over unfinished runs of another gateway: they are closed as failed");
    }
    if let Some(metrics) = &inner.metrics {
        metrics.taken_over(u64::try_from(claimed.len()).unwrap_or(u64::MAX));
    }
    let mut claimed: Vec<(i64, Uuid)> = claimed.iter().map(|row| (row.get(1), row.get(0))).collect();
    claimed.sort_unstable();
    let mut runs: Vec<RunId> = claimed.into_iter().map(|(_, id)| RunId(id)).collect();
    // Recorded before any step can fail, so that every claimed run is handed out.
    inner.handed_out.add(runs.iter().map(|run| run.0));
    let forgotten = given_up::recover(inner, replica).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot read held runs");
        Vec::new()
    });
    inner.handed_out.add(forgotten.iter().map(|run| run.0));
    runs.extend(forgotten);
    Ok(runs)
}

/// Moves the log lines of one fenced replica to rows that all replicas read. Returns whether there was such a replica.
async fn fold_one(database: &Database) -> Result<bool, Error> {
    database.begin().await?;
    let folded = fold_locked(database).await;
    database.batch(if folded.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    folded
}

async fn fold_locked(database: &Database) -> Result<bool, Error> {
    let Some(row) = database.row(FENCED, &[]).await? else { return Ok(false) };
    let replica: Uuid = row.get(0);
    latest_lines::move_to_rows(database, replica, None).await?;
    for sql in FORGET {
        database.rows(sql, &[(&replica, Type::UUID)]).await?;
    }
    Ok(true)
}
