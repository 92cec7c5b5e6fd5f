//! One connection to the database, and statements about the configured schema. Not here: making connections
//! ([`super::connect`]), and what the statements say.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use interlingua_store::local::lock;

/// Parameters of a statement with their types: no round trip is needed to learn them, and no name is left behind, so
/// that poolers may give each transaction another connection.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Time after which a statement without a result fails. The database cancels statements earlier.
const LIMIT: Duration = Duration::from_secs(35);

/// Built statements by the address and the length of their template.
type StatementTexts = HashMap<(usize, usize), Arc<str>>;

/// The schema that all tables are in, and the texts of the statements about it. Clones share the texts.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    /// The quoted name and a period.
    prefix: Arc<str>,
    texts: Arc<Mutex<StatementTexts>>,
}

impl Schema {
    pub(super) fn new(name: &str) -> Self {
        Self { prefix: format!("\"{}\".", name.replace('"', "\"\"")).into(), texts: Arc::default() }
    }

    /// The text of a statement: the template with the schema in place of `il.`. Each text is built once.
    fn text(&self, template: &'static str) -> Arc<str> {
        // A static text never moves, so its address identifies it without reading it.
        let key = (template.as_ptr().addr(), template.len());
        let mut texts = lock(&self.texts);
        let text = texts.entry(key).or_insert_with(|| template.replace("il.", &self.prefix).into());
        Arc::clone(text)
    }
}

/// A connection. Statements that are begun at the same time are sent one after the other, without waiting for the
/// results in between.
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

    /// Waits for the result of a statement. A database that is cut off without a word never sends one: the connection
    /// is given up then.
    async fn await_result<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut statement = pin!(statement);
        if let Ok(result) = timeout(self.limit, &mut statement).await {
            return result;
        }
        self.give_up();
        statement.await
    }

    /// Runs a statement; `il.` stands for the schema in it. Returns its rows.
    pub(super) async fn rows(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        let text = self.schema.text(sql);
        self.await_result(self.client.query_typed(&text, parameters)).await
    }

    /// Runs a statement that has one row at most.
    pub(super) async fn row(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, parameters).await?.into_iter().next())
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.await_result(self.client.batch_execute(&self.begin)).await
    }

    /// Runs statements without parameters; `il.` stands for the schema in them.
    pub(super) async fn batch(&self, sql: &'static str) -> Result<(), Error> {
        let text = self.schema.text(sql);
        self.batch_verbatim(&text).await
    }

    /// Runs statements that are made at run time, as they are.
    pub(super) async fn batch_verbatim(&self, sql: &str) -> Result<(), Error> {
        self.await_result(self.client.batch_execute(sql)).await
    }

    /// True once the connection is lost.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_is_built_once_for_a_schema() {
        const RUNS: &str = "SELECT id FROM il.runs";
        static LEASES: &str = "SELECT name FROM il.leases, il.replicas";

        let schema = Schema::new("a\"b");
        assert_eq!(&*schema.text(RUNS), "SELECT id FROM \"a\"\"b\".runs");
        let leases = schema.text(LEASES);
        assert_eq!(&*leases, "SELECT name FROM \"a\"\"b\".leases, \"a\"\"b\".replicas");
        assert!(Arc::ptr_eq(&leases, &schema.clone().text(LEASES)));

        assert_eq!(&*Schema::new("other").text(LEASES), "SELECT name FROM \"other\".leases, \"other\".replicas");
    }
}
