//! Everything in a file, to be copied to another store: one thing after the other, while no other process uses the
//! file. Not here: writing it there (`interlingua_store_postgres`).

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};

use super::options::SqliteOptions;
use super::reader::{self, QueryError};
use super::runs;
use super::schema::{Database, file_error};
use interlingua_store::{StoreError, StoredDocument, StoredItem, StoredRun, TransferTotals, Version};

/// All runs of a file in the order in which they came, then all documents.
pub struct SqliteExport {
    /// Keeps others away.
    database: Database,
    connection: Connection,
    /// The latest run, by its number.
    run: i64,
    /// The latest document, by its row.
    document: i64,
    is_at_documents: bool,
}

impl SqliteExport {
    /// Opens an existing file and migrates it to the current schema, like a start of the gateway.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::NewerSchema`], [`StoreError::File`], each of which names the file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        std::fs::metadata(path).map_err(|error| file_error("find the database", path, error))?;
        let (database, mut connection) = Database::open(path, &SqliteOptions::default())?;
        // Lines that a killed process left.
        runs::recover_log(&mut connection).map_err(|error| file_error("read the database", path, error))?;
        Ok(Self { database, connection, run: 0, document: 0, is_at_documents: false })
    }

    /// The numbers of runs and documents. Events and bytes are not counted.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn totals(&self) -> Result<TransferTotals, StoreError> {
        let count = |sql: &str| {
            let counted = self.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            counted.map(i64::unsigned_abs).map_err(|error| self.unreadable(error))
        };
        Ok(TransferTotals {
            runs: count("SELECT count(*) FROM runs")?,
            documents: count("SELECT count(*) FROM documents")?,
            ..TransferTotals::default()
        })
    }

    /// The greatest version that a document was ever given.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_version(&self) -> Result<Version, StoreError> {
        let sql = "SELECT value FROM counters WHERE name = 'version'";
        let version = self.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        version.map(|version| Version(version.unsigned_abs())).map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, error: rusqlite::Error) -> StoreError {
        file_error("read the database", &self.database.path, error)
    }

    fn next_run(&mut self) -> Result<Option<StoredItem>, QueryError> {
        let sql = "SELECT number, id, about, hidden FROM runs WHERE number > ?1 ORDER BY number LIMIT 1";
        let found = self.connection.prepare_cached(sql)?.query_row([self.run], |row| {
            Ok((row.get::<_, i64>(0)?, reader::id(row, 1)?, row.get::<_, Vec<u8>>(2)?, row.get::<_, bool>(3)?))
        });
        let Some((number, id, about, hidden)) = found.optional()? else { return Ok(None) };
        // Before it is read: what cannot be read is not tried again.
        self.run = number;
        let record = reader::load_record(&self.connection, id, number)?;
        let info = reader::parse_info(id, &about, hidden)?;
        Ok(Some(StoredItem::Run(Arc::new(StoredRun { record, info }))))
    }

    fn next_document(&mut self) -> Result<Option<StoredItem>, QueryError> {
        let sql = "SELECT rowid, collection, key, version, made, put_at, value FROM documents
                   WHERE rowid > ?1 ORDER BY rowid LIMIT 1";
        let found = self.connection.prepare_cached(sql)?.query_row([self.document], |row| {
            let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            let document = StoredDocument {
                collection: row.get(1)?,
                key: row.get(2)?,
                version: Version(number(3)?),
                created: Version(number(4)?),
                put_at: number(5)?,
                value: row.get(6)?,
            };
            Ok((row.get::<_, i64>(0)?, document))
        });
        let Some((row, document)) = found.optional()? else { return Ok(None) };
        self.document = row;
        Ok(Some(StoredItem::Document(document)))
    }
}

impl Iterator for SqliteExport {
    type Item = Result<StoredItem, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut next = Ok(None);
        if !self.is_at_documents {
            next = self.next_run();
            self.is_at_documents = matches!(next, Ok(None));
        }
        if self.is_at_documents {
            next = self.next_document();
        }
        let next = next.map_err(|error| match error {
            QueryError::Sql(error) => self.unreadable(error),
            QueryError::Store(error) | QueryError::Gone(error) => error,
        });
        next.transpose()
    }
}
