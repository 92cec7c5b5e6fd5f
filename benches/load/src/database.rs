//! The PostgreSQL server that gateways are measured with, and its measurements. It writes durably, as in production.
//! Not here: starting a server, which `interlingua-testing-postgres` does.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use interlingua_testing_postgres::{Database, Options, Server};

/// Number of commits in an average.
const COMMITS: u32 = 300;

/// The server of this process. Its supervisor stops it when the process ends.
///
/// # Errors
/// There is no PostgreSQL, with what to install.
pub(crate) fn server() -> Result<&'static Server> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Some(server) = SERVER.get() {
        return Ok(server);
    }
    // Counts what each statement costs, for the rounds of housekeeping.
    let options = Options::durable()
        .setting("shared_preload_libraries", "'pg_stat_statements'")
        .setting("max_wal_size", "'1GB'")
        .setting("shared_buffers", "'256MB'");
    let server = Server::start(&options)?;
    Ok(SERVER.get_or_init(|| server))
}

/// A database of its own.
pub(crate) fn database() -> Result<Database<'static>> {
    server()?.database()
}

/// CPU time that the server has used so far, in seconds.
pub(crate) fn cpu_seconds() -> Result<f64> {
    Ok(server()?.cpu_time()?.as_secs_f64())
}

/// Duration of one commit, one after the other.
pub(crate) fn commit_time(database: &Database<'_>) -> Result<Duration> {
    database.sql("CREATE TABLE IF NOT EXISTS commits (n int, took float8)")?;
    database.sql(&format!(
        "DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN
             FOR n IN 1 .. {COMMITS} LOOP INSERT INTO commits VALUES (n); COMMIT; END LOOP;
             INSERT INTO commits VALUES (0, extract(epoch FROM clock_timestamp() - began));
         END $$"
    ))?;
    let took = number(database, "SELECT took FROM commits WHERE took IS NOT NULL ORDER BY ctid DESC LIMIT 1")?;
    Ok(Duration::from_secs_f64(took / f64::from(COMMITS)))
}

/// The number that a query returns.
pub(crate) fn number(database: &Database<'_>, sql: &str) -> Result<f64> {
    let text = database.sql(sql)?;
    text.trim().parse().with_context(|| format!("{sql}: {text:?} is no number"))
}

/// Connections that gateways have to it.
pub(crate) fn connections(database: &Database<'_>) -> Result<f64> {
    number(
        database,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlingua' AND datname = current_database()",
    )
}

/// Transactions that were committed in it so far.
pub(crate) fn transactions(database: &Database<'_>) -> Result<f64> {
    number(database, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
}
