//! One connection to the database, and statements about the configured schema. Not here: making connections
//! ([`super::connect`]), and what the statements say.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// Parameters of a statement with their types: no round trip is needed to learn them, and no name is left behind, so that
/// poolers may give each transaction another connection.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Time after which a statement without a result fails. The database cancels statements earlier.
const LIMIT: Duration = Duration::from_secs(35);

/// The schema that all tables are in, quoted.
#[derive(Clone, Debug)]
pub(super) struct Schema(Arc<str>);

impl Schema {
    pub(super) fn new(name: &str) -> Self {
        Self(format!("\"{}\".", name.replace('"', "\"\"")).into())
    }

    /// A statement in which `il.` stands for the schema.
    pub(super) fn qualify(&self, sql: &str) -> String {
        sql.replace("il.", &self.0)
    }
}

/// A connection. Statements that are begun at the same time are sent one after the other, without waiting for the results
/// in between.
pub(super) struct Database {
    client: Client,
    schema: Schema,
    begin: String,
    limit: Duration,
    /// Ends the task that drives the connection.
    given_up: Arc<Notify>,
}

impl Database {
    pub(super) const fn new(client: Client, schema: Schema, begin: String, given_up: Arc<Notify>) -> Self {
        Self { client, schema, begin, limit: LIMIT, given_up }
    }

    /// The same, whose statements may go without a result for this long.
    pub(super) const fn answering_within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Closes the connection: everything that waits for it fails as if it were lost.
    pub(super) fn give_up(&self) {
        self.given_up.notify_one();
    }

    /// Waits for the result of a statement. A database that is cut off without a word never sends one: the connection is
    /// given up then.
    async fn await_result<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut statement = pin!(statement);
        if let Ok(result) = timeout(self.limit, &mut statement).await {
            return result;
        }
        self.give_up();
        statement.await
    }

    /// Runs a statement; `il.` stands for the schema in it. Returns its rows.
    pub(super) async fn rows(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.await_result(self.client.query_typed(&self.schema.qualify(sql), parameters)).await
    }

    /// Runs a statement that has one row at most.
    pub(super) async fn row(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, parameters).await?.into_iter().next())
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.await_result(self.client.batch_execute(&self.begin)).await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.await_result(self.client.batch_execute(&self.schema.qualify(sql))).await
    }

    /// True once the connection is lost.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}
