//! The tables of the database, and migrations between their versions. Forward only: each version of the gateway reads
//! the data of the version before it, so that replicas can be replaced one after the other. Not here: the content of
//! the tables.
//!
//! To change the schema, append a step; never change a released one.

use tokio_postgres::types::Type;

use super::database::Database;
use super::error::{connect_error, store_error};
use interlingua_store::StoreError;

/// The migrations to versions 1, 2, …
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// Brings the schema up to date. Replicas that start at the same time do so one after the other.
pub(super) async fn migrate(database: &Database, name: &str) -> Result<(), StoreError> {
    database.begin().await.map_err(|error| store_error(&error))?;
    let migrated = migrate_locked(database, name).await;
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = database.batch(end).await.map_err(|error| store_error(&error));
    migrated.and(ended)
}

/// The same in a transaction of the caller: others wait until it ends.
pub(super) async fn migrate_locked(database: &Database, name: &str) -> Result<(), StoreError> {
    let sql = |error: tokio_postgres::Error| connect_error(&error);
    // The first of several replicas may take longer on a slow server than locks are waited for otherwise.
    database.batch("SET LOCAL lock_timeout = '25s'").await.map_err(sql)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('interlingua/' || $1::text, 0))";
    database.rows(lock, &[(&name, Type::TEXT)]).await.map_err(sql)?;
    let quoted = format!("CREATE SCHEMA IF NOT EXISTS \"{}\"", name.replace('"', "\"\""));
    if !exists(database, name).await? {
        database.batch_verbatim(&quoted).await.map_err(sql)?;
    }

    let found = version(database, name).await?.unwrap_or(0);
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        database.batch(step).await.map_err(sql)?;
    }
    Ok(())
}

/// The version of the schema. `None`: there are no tables.
///
/// # Errors
/// [`StoreError::NewerSchema`] if this gateway cannot use it.
pub(super) async fn version(database: &Database, name: &str) -> Result<Option<i32>, StoreError> {
    let known = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    let (found, reader) = found(database, name).await?;
    if reader > known {
        return Err(StoreError::NewerSchema {
            path: format!("schema {name}"),
            found: found.into(),
            known: known.into(),
        });
    }
    Ok(Some(found).filter(|found| *found > 0))
}

async fn exists(database: &Database, name: &str) -> Result<bool, StoreError> {
    let sql = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text";
    let row = database.row(sql, &[(&name, Type::TEXT)]).await;
    Ok(row.map_err(|error| store_error(&error))?.is_some())
}

/// The version of the schema, and the oldest version of a gateway that can use it.
async fn found(database: &Database, name: &str) -> Result<(i32, i32), StoreError> {
    let sql = |error: tokio_postgres::Error| store_error(&error);
    let there = "SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1::text AND tablename = 'migrations'";
    if database.row(there, &[(&name, Type::TEXT)]).await.map_err(sql)?.is_none() {
        return Ok((0, 0));
    }
    let newest = database.row("SELECT max(version), max(reader) FROM il.migrations", &[]).await.map_err(sql)?;
    Ok(newest.map_or((0, 0), |row| {
        let number = |column| row.get::<_, Option<i32>>(column).unwrap_or(0);
        (number(0), number(1))
    }))
}
