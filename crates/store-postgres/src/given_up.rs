//! Runs that this replica holds by the database, and does not have: those that it gives up because the database refuses
//! them, and those that it was given without learning of it. Not here: runs of other replicas ([`super::recover`]).

use std::collections::HashSet;

use interlingua_core::id::RunId;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Database;
use super::inner::Inner;
use super::latest_lines;
use interlingua_base::clock;
use interlingua_store::StoreError;

/// Number of runs per query.
const BATCH: i64 = 50;

/// Like runs of a replica that has left: they are handed out, and end.
const GIVE_UP: &str = "
    WITH given_up AS (UPDATE il.runs SET holder = $3 WHERE holder = $1 AND id = ANY ($2) RETURNING id)
    INSERT INTO il.replicas (id, state, version, journal) SELECT $3, 'left', '', 1 WHERE EXISTS (SELECT FROM given_up)";
const FIND: &str = "
    SELECT r.id FROM il.runs r
    WHERE r.holder = $1 AND NOT r.ended AND NOT EXISTS (SELECT FROM unnest($2::uuid[]) AS k(id) WHERE k.id = r.id)
    ORDER BY r.created_at, r.id LIMIT $3";
/// A run that waits has not gone on: no one was answered that it may.
const RELEASE: &str = "
    UPDATE il.runs SET holder = NULL
    WHERE holder = $1 AND id = ANY ($2) AND state IN ('waiting', 'waiting_for_auth') RETURNING id";
const STILL_HELD: &str = "
    SELECT id FROM il.runs WHERE holder = $1 AND id = ANY ($2) AND NOT ended ORDER BY created_at, id";

/// Gives runs up whose latest lines are in the log of this replica.
pub(super) async fn give_up(database: &Database, replica: Uuid, runs: &[Uuid]) -> Result<(), Error> {
    database.begin().await?;
    latest_lines::move_to_rows(database, replica, Some(runs)).await?;
    let nowhere = clock::new_id().0;
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&replica, Type::UUID), (&runs, Type::UUID_ARRAY), (&nowhere, Type::UUID)];
    database.rows(GIVE_UP, &parameters).await?;
    database.batch("COMMIT").await
}

/// Runs that a replica holds, besides those that it knows.
pub(super) async fn find(database: &Database, replica: Uuid, known: &[Uuid]) -> Result<Vec<Uuid>, Error> {
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&replica, Type::UUID), (&known, Type::UUID_ARRAY), (&BATCH, Type::INT8)];
    Ok(database.rows(FIND, &parameters).await?.iter().map(|row| row.get(0)).collect())
}

/// Releases those of these runs that wait, and returns the others. Between two flushes: after the next one this replica
/// may have claimed them.
pub(super) async fn release(database: &Database, replica: Uuid, mut runs: Vec<Uuid>) -> Result<Vec<Uuid>, Error> {
    if !runs.is_empty() {
        let released = database.rows(RELEASE, &[(&replica, Type::UUID), (&runs, Type::UUID_ARRAY)]).await?;
        let released: HashSet<Uuid> = released.iter().map(|row| row.get(0)).collect();
        runs.retain(|run| !released.contains(run));
    }
    Ok(runs)
}

/// Runs that the database says this replica holds, and that it does not have. They are handed out as those of lost
/// replicas; those that wait were released.
pub(super) async fn recover(inner: &Inner, replica: Uuid) -> Result<Vec<RunId>, StoreError> {
    let forgotten = inner.handed_out.take_forgotten();
    if forgotten.is_empty() {
        return Ok(Vec::new());
    }

    let found = inner.reads.read(async |database| {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&replica, Type::UUID), (&forgotten, Type::UUID_ARRAY)];
        Ok(database.rows(STILL_HELD, &parameters).await?)
    });
    let found: Vec<RunId> = found.await?.iter().map(|row| RunId(row.get(0))).collect();
    if !found.is_empty() {
        tracing::warn!(
            runs = found.len(),
            "this gateway has leases of runs that it does not execute: it ends these runs as failed"
        );
    }
    Ok(found)
}
