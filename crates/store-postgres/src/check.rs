//! Whether a database can be used as a store, found out without changing anything in it. Not here: using it.

use tokio_postgres::types::Type;

use super::connect::Connector;
use super::database::Database;
use super::error::store_error;
use super::options::PostgresOptions;
use super::schema;
use interlingua_store::StoreError;

/// The oldest version of PostgreSQL, as its `server_version_num`.
const OLDEST: i32 = 140_000;

/// A right that a gateway needs, and does not have.
const MISSING_RIGHT: &str = "
    SELECT r.name, t.tablename::text FROM pg_catalog.pg_tables t, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r(name)
    WHERE t.schemaname = $1 AND t.tablename <> 'migrations'
      AND NOT has_table_privilege(format('%I.%I', t.schemaname, t.tablename), r.name)
    UNION ALL
    SELECT 'USAGE', s.sequencename::text FROM pg_catalog.pg_sequences s
    WHERE s.schemaname = $1 AND NOT has_sequence_privilege(format('%I.%I', s.schemaname, s.sequencename), 'USAGE')
    LIMIT 1";

/// Connects and inspects the database. Returns a description of the store.
pub(super) async fn check(options: &PostgresOptions) -> Result<String, StoreError> {
    let connector = Connector::new(options)?;
    connector.find_out_sessions().await?;
    let database = connector.connect().await?;
    let version = check_version(&database).await?;
    let state = state(&database, &options.schema).await?;
    let through = if connector.is_pooled() { ", through a pooler without notifications" } else { "" };
    Ok(format!("PostgreSQL {version}, {state}{through}"))
}

/// Fails if the server is too old, or cannot be written. Returns its version.
pub(super) async fn check_version(database: &Database) -> Result<String, StoreError> {
    let sql =
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()";
    let row = database.row(sql, &[]).await.map_err(|error| store_error(&error))?;
    let row = row.ok_or_else(|| unusable("the database does not say what it is"))?;
    let (number, name, is_standby): (i32, String, bool) = (row.get(0), row.get(1), row.get(2));
    if number < OLDEST {
        return Err(unusable(format!("PostgreSQL 14 or newer is needed, this is {name}")));
    }
    if is_standby {
        return Err(StoreError::Unavailable { reason: "it is a standby, and cannot be written".to_owned() });
    }
    Ok(name)
}

/// Whether the tables exist, or can be created.
pub(super) async fn state(database: &Database, schema: &str) -> Result<String, StoreError> {
    let sql = |error: tokio_postgres::Error| store_error(&error);
    let Some(version) = schema::version(database, schema).await? else {
        let may = "
            SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)
                   THEN has_schema_privilege($1, 'CREATE')
                   ELSE has_database_privilege(current_database(), 'CREATE') END";
        let row = database.row(may, &[(&schema, Type::TEXT)]).await.map_err(sql)?;
        return if row.is_some_and(|row| row.get(0)) {
            Ok(format!("schema {schema} will be made"))
        } else {
            Err(unusable(format!("the role of the URL may not make the tables of schema {schema}")))
        };
    };

    if let Some(row) = database.row(MISSING_RIGHT, &[(&schema, Type::TEXT)]).await.map_err(sql)? {
        let (right, name): (String, String) = (row.get(0), row.get(1));
        return Err(unusable(format!(
            "the role of the URL may not write the tables of schema {schema}: it has no right to {right} {name}"
        )));
    }
    Ok(format!("schema {schema} of version {version}"))
}

fn unusable(reason: impl Into<String>) -> StoreError {
    StoreError::Unusable { reason: reason.into() }
}
