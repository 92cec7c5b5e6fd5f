//! Fills an empty database with everything of another store, in one transaction: it is imported completely, or
//! nothing. Gateways that start meanwhile wait until it is done. Not here: reading the other store
//! (`interlingua_store_sqlite`).

use futures_util::future::join_all;
use interlingua_core::journal;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::connect::Connector;
use super::database::Database;
use super::error::store_error;
use super::options::PostgresOptions;
use super::tracked::{NewRow, int};
use super::{check, schema, text};
use interlingua_base::clock;
use interlingua_store::{StoreError, StoredDocument, StoredItem, StoredRun, TransferTotals, Version, owner_in};

/// Size of a batch. The import needs this much memory, plus the size of the largest run.
const MAX_BATCH_BYTES: u64 = 4 << 20;
const MAX_BATCH_ITEMS: usize = 500;
/// Maximum number of events in one row.
const MAX_ROW_EVENTS: u64 = 1000;

/// Reading the other store takes time, and so do large rows.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = '10min'; SET LOCAL statement_timeout = '10min'";
/// Keeps gateways from joining until the transaction ends.
const LOCK: &str = "LOCK TABLE il.replicas IN SHARE ROW EXCLUSIVE MODE";
const IN_USE: &str = "
    SELECT count(*) FROM il.replicas
    WHERE state = 'active' AND renewed_at > clock_timestamp() - $1::float8 * interval '1 second'";
const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT FROM il.runs) AND NOT EXISTS (SELECT FROM il.documents)";
/// A replica that has left: its runs are handed out, and closed.
const REPLICA: &str = "INSERT INTO il.replicas (id, state, version, journal) VALUES ($1, 'left', $2, 1)";
const RUN: &str = "
    INSERT INTO il.runs (id, holder, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at,
                         upto, size, route, remembered, about, head, tags, preview)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, string_to_array($18, chr(30)),
            $19)";
const LINES: &str = "INSERT INTO il.lines (run, first, events, bytes) VALUES ($1, $2, $3, $4)";
const DOCUMENT: &str = "
    INSERT INTO il.documents (collection, key, owner, version, created, put_at, writer, value)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const VERSION: &str = "SELECT setval('il.versions', greatest($1, 1))";
const WRITTEN: &str = "
    SELECT (SELECT count(*) FROM il.runs), (SELECT count(*) FROM il.runs WHERE holder = $1),
           (SELECT coalesce(sum(events), 0) FROM il.lines)::bigint, (SELECT count(*) FROM il.documents),
           ((SELECT coalesce(sum(octet_length(bytes)), 0) FROM il.lines)
            + (SELECT coalesce(sum(size), 0) FROM il.documents))::bigint,
           (SELECT coalesce(sum(upto), 0) FROM il.runs)::bigint";
const ANALYZE: &str = "ANALYZE il.runs; ANALYZE il.lines; ANALYZE il.documents";

/// The source and the options of an import.
pub struct Import<'a> {
    /// Everything, once.
    pub items: &'a mut dyn Iterator<Item = Result<StoredItem, StoreError>>,
    /// The greatest version that a document was given.
    pub last_version: Version,
    /// Called for what cannot be read or kept. True: it is left out.
    pub skips: &'a mut dyn FnMut(&StoreError) -> bool,
    /// Called now and then with what was copied so far.
    pub progress: &'a mut dyn FnMut(&TransferTotals),
}

/// Fills the database.
pub(super) async fn import(options: &PostgresOptions, mut import: Import<'_>) -> Result<TransferTotals, StoreError> {
    let connector = Connector::new(options)?;
    connector.find_out_sessions().await?;
    let database = connector.connect().await?;
    check::check_version(&database).await?;

    database.begin().await.map_err(|error| store_error(&error))?;
    let copied = copy(&database, options, &mut import).await;
    let end = if copied.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = database.batch(end).await.map_err(|error| store_error(&error));
    let copied = copied?;
    ended?;
    // Plans are good from the start. Without it they are a minute later.
    let _ = database.batch(ANALYZE).await;
    Ok(copied)
}

async fn copy(
    database: &Database,
    options: &PostgresOptions,
    import: &mut Import<'_>,
) -> Result<TransferTotals, StoreError> {
    let sql = |error: Error| store_error(&error);
    database.batch(SETTINGS).await.map_err(sql)?;
    schema::migrate_locked(database, &options.schema).await?;
    database.batch(LOCK).await.map_err(sql)?;
    check_unused(database, options).await?;

    let mut copy =
        Copy { database, replica: clock::new_id().0, batch: Batch::default(), done: TransferTotals::default() };
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&copy.replica, Type::UUID), (&env!("CARGO_PKG_VERSION"), Type::TEXT)];
    database.rows(REPLICA, &parameters).await.map_err(sql)?;
    for item in &mut *import.items {
        if let Err(error) = item.and_then(|item| copy.add(&item)) {
            if !(import.skips)(&error) {
                return Err(error);
            }
            continue;
        }
        if copy.batch.is_full() {
            copy.send().await?;
            (import.progress)(&copy.done);
        }
    }
    copy.send().await?;
    (import.progress)(&copy.done);

    database.rows(VERSION, &[(&int(import.last_version.0), Type::INT8)]).await.map_err(sql)?;
    copy.verify().await?;
    Ok(copy.done)
}

async fn check_unused(database: &Database, options: &PostgresOptions) -> Result<(), StoreError> {
    let sql = |error: Error| store_error(&error);
    let refused = |reason: String| StoreError::Unusable { reason };
    let lease = options.lease.as_secs_f64();
    let used = database.row(IN_USE, &[(&lease, Type::FLOAT8)]).await.map_err(sql)?;
    let used: i64 = used.map_or(0, |row| row.get(0));
    if used > 0 {
        return Err(refused(format!("{used} running gateways use schema {}: stop them first", options.schema)));
    }
    let is_empty = database.row(IS_EMPTY, &[]).await.map_err(sql)?;
    if !is_empty.is_some_and(|row| row.get(0)) {
        let schema = &options.schema;
        return Err(refused(format!("schema {schema} is not empty: name another one, or drop it if it is not needed")));
    }
    Ok(())
}

/// A row of a run, with its lines.
struct RunRows {
    row: NewRow,
    has_holder: bool,
    /// First event, number of events, bytes.
    lines: Vec<(i64, i32, Vec<u8>)>,
}

#[derive(Default)]
struct Batch {
    runs: Vec<RunRows>,
    documents: Vec<(StoredDocument, String)>,
    bytes: u64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= MAX_BATCH_BYTES || self.runs.len() + self.documents.len() >= MAX_BATCH_ITEMS
    }
}

struct Copy<'a> {
    database: &'a Database,
    /// Holds the runs that were under way.
    replica: Uuid,
    batch: Batch,
    done: TransferTotals,
}

impl Copy<'_> {
    /// Adds something to the batch. Nothing is added if it cannot be kept.
    fn add(&mut self, item: &StoredItem) -> Result<(), StoreError> {
        let bytes = match item {
            StoredItem::Run(run) => self.add_run(run),
            StoredItem::Document(document) => self.add_document(document),
        };
        let bytes = bytes.map_err(|error| StoreError::Unusable { reason: format!("{}: {error}", item.name()) })?;
        self.batch.bytes += bytes;
        self.done.bytes += bytes;
        Ok(())
    }

    fn add_run(&mut self, run: &StoredRun) -> Result<u64, StoreError> {
        let (record, info) = (&run.record, &run.info);
        text::check_run(record, info)?;
        let (mut bytes, has_holder) = (Vec::new(), info.state.is_working());
        journal::write(record, 0, &mut bytes);
        let row = NewRow::new(record, info, &bytes, has_holder);
        let size = bytes.len() as u64;

        let (mut lines, mut first) = (Vec::new(), 0);
        while record.len() - first > MAX_ROW_EVENTS
            && let Some(end) = journal::end_of(&bytes, MAX_ROW_EVENTS)
        {
            let rest = bytes.split_off(end);
            lines.push((int(first), i32::try_from(MAX_ROW_EVENTS).unwrap_or(i32::MAX), bytes));
            (bytes, first) = (rest, first + MAX_ROW_EVENTS);
        }
        if record.len() > first {
            lines.push((int(first), i32::try_from(record.len() - first).unwrap_or(i32::MAX), bytes));
        }
        self.batch.runs.push(RunRows { row, has_holder, lines });
        self.done.runs += 1;
        self.done.unfinished += u64::from(has_holder);
        self.done.events += record.len();
        Ok(size)
    }

    fn add_document(&mut self, document: &StoredDocument) -> Result<u64, StoreError> {
        let key = text::kept(&document.key).into_owned();
        text::check("key", &[&document.collection, &key])?;
        let size = document.value.len() as u64;
        self.batch.documents.push((document.clone(), key));
        self.done.documents += 1;
        Ok(size)
    }

    /// Sends the batch: all rows at once, without waiting for the results in between.
    async fn send(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        let runs = join_all(batch.runs.iter().map(|run| self.insert_run(run)));
        let documents = join_all(batch.documents.iter().map(|(document, key)| self.insert_document(document, key)));
        let (runs, documents) = futures_util::join!(runs, documents);
        // The first error is the cause; those after it say that the transaction is aborted.
        let mut done = runs.into_iter().chain(documents);
        done.try_for_each(|done| done).map_err(|error| store_error(&error))
    }

    async fn insert_run(&self, run: &RunRows) -> Result<(), Error> {
        let RunRows { row, has_holder, lines } = run;
        let head = &row.head;
        let holder = has_holder.then_some(self.replica);
        let parameters: [(&(dyn ToSql + Sync), Type); 19] = [
            (&head.id, Type::UUID),
            (&holder, Type::UUID),
            (&row.agent, Type::TEXT),
            (&row.owner, Type::TEXT),
            (&row.session, Type::TEXT),
            (&row.protocol, Type::TEXT),
            (&head.state, Type::TEXT),
            (&head.ended, Type::BOOL),
            (&head.hidden, Type::BOOL),
            (&row.created_at, Type::INT8),
            (&head.changed_at, Type::INT8),
            (&head.upto, Type::INT8),
            (&head.added, Type::INT8),
            (&row.route, Type::TEXT),
            (&row.remembered, Type::BOOL),
            (&head.about, Type::BYTEA),
            (&head.head, Type::BYTEA),
            (&head.tags, Type::TEXT),
            (&row.preview, Type::TEXT),
        ];
        let lines = join_all(lines.iter().map(async |(first, events, bytes)| {
            let parameters: [(&(dyn ToSql + Sync), Type); 4] =
                [(&head.id, Type::UUID), (first, Type::INT8), (events, Type::INT4), (bytes, Type::BYTEA)];
            self.database.rows(LINES, &parameters).await
        }));
        let (inserted, lines) = futures_util::join!(self.database.rows(RUN, &parameters), lines);
        inserted?;
        lines.into_iter().try_for_each(|inserted| inserted.map(drop))
    }

    async fn insert_document(&self, document: &StoredDocument, key: &str) -> Result<(), Error> {
        let owner = owner_in(&document.collection, key);
        let (version, created, put_at) = (int(document.version.0), int(document.created.0), int(document.put_at));
        let parameters: [(&(dyn ToSql + Sync), Type); 8] = [
            (&document.collection, Type::TEXT),
            (&key, Type::TEXT),
            (&owner, Type::TEXT),
            (&version, Type::INT8),
            (&created, Type::INT8),
            (&put_at, Type::INT8),
            (&self.replica, Type::UUID),
            (&document.value, Type::BYTEA),
        ];
        self.database.rows(DOCUMENT, &parameters).await.map(drop)
    }

    /// Compares what the database has with what was read.
    async fn verify(&self) -> Result<(), StoreError> {
        let row = self.database.row(WRITTEN, &[(&self.replica, Type::UUID)]).await;
        let row = row.map_err(|error| store_error(&error))?;
        let number = |row: &Row, column: usize| row.get::<_, i64>(column).unsigned_abs();
        let written = row.map(|row| {
            let written = TransferTotals {
                runs: number(&row, 0),
                unfinished: number(&row, 1),
                events: number(&row, 2),
                documents: number(&row, 3),
                bytes: number(&row, 4),
            };
            (written, number(&row, 5))
        });
        if written == Some((self.done, self.done.events)) {
            return Ok(());
        }
        Err(StoreError::Internal(format!("{:?} was copied, but the database has {written:?}", self.done)))
    }
}
