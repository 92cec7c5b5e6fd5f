//! The database file: opening, locking, migration to the current schema, and the tables. Not here: writes
//! ([`super::writer`]) and reads ([`super::reader`]).
//!
//! To change the schema, append a step to [`STEPS`]; never change one that was released.

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::options::SqliteOptions;
use super::vacuum::APPLICATION_ID;
use super::{private, vacuum};
use interlingua_store::StoreError;

/// The migrations to schema versions 1, 2, …: each builds on the one before.
const STEPS: &[&str] = &[
    // `upto` is the number of events in `lines`. `log` holds the latest lines of running turns, of many runs in one
    // row: instead of thousands of small rows a second there is one, which moves to `lines` every few seconds.
    // AUTOINCREMENT, because the log identifies runs by number and a number must never be reused.
    "
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id BLOB NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        owner TEXT NOT NULL,
        session TEXT NOT NULL,
        protocol TEXT NOT NULL,
        state TEXT NOT NULL,
        ended INTEGER NOT NULL,
        hidden INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        upto INTEGER NOT NULL,
        about BLOB NOT NULL
    );
    CREATE INDEX runs_by_change ON runs (owner, changed_at, id);
    CREATE INDEX runs_by_session ON runs (owner, session, created_at, id);
    CREATE INDEX runs_by_age ON runs (ended, changed_at);
    CREATE TABLE lines (
        number INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        first INTEGER NOT NULL,
        bytes BLOB NOT NULL
    );
    CREATE INDEX lines_by_run ON lines (run, first);
    CREATE TABLE log (number INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE documents (
        collection TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        made INTEGER NOT NULL,
        put_at INTEGER NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (collection, key)
    );
    CREATE INDEX documents_by_age ON documents (collection, put_at);
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counters VALUES ('version', 0);
    ",
    // Routes with retention rules of their own. Existing runs stay under the general rules.
    "
    ALTER TABLE runs ADD COLUMN route TEXT;
    ALTER TABLE runs ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX runs_by_route ON runs (route, ended, changed_at, id) WHERE route IS NOT NULL;
    ",
    // The data that lists show of a run: its record without messages. NULL: the row was written by an earlier version,
    // and the lines have to be read.
    "
    ALTER TABLE runs ADD COLUMN head BLOB;
    ",
    // Runs and bytes per owner, maintained by triggers, so that finding the largest owner needs no full scan. Keys of
    // documents start with their owner; in three collections with an agent followed by the owner.
    "
    ALTER TABLE documents ADD COLUMN owner TEXT GENERATED ALWAYS AS (
        CASE WHEN collection IN ('sessions', 'asked', 'entries')
        THEN substr(key, instr(key, char(31)) + 1,
                    instr(substr(key, instr(key, char(31)) + 1) || char(31), char(31)) - 1)
        ELSE substr(key, 1, instr(key || char(31), char(31)) - 1) END) VIRTUAL;
    CREATE INDEX documents_by_owner ON documents (collection, owner, put_at);
    CREATE INDEX runs_by_owner_of_route ON runs (route, owner, ended, changed_at, id) WHERE route IS NOT NULL;
    CREATE TABLE shares (
        owner TEXT PRIMARY KEY, runs INTEGER NOT NULL, bytes INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO shares
        SELECT owner, sum(runs), sum(bytes) FROM (
            SELECT owner, 1 AS runs,
                   length(about) + (SELECT ifnull(sum(length(bytes)), 0) FROM lines WHERE run = runs.number) AS bytes
            FROM runs
            UNION ALL SELECT owner, 0, length(value) FROM documents
        ) GROUP BY owner;
    CREATE TRIGGER run_comes AFTER INSERT ON runs BEGIN
        INSERT INTO shares VALUES (NEW.owner, 1, length(NEW.about))
        ON CONFLICT (owner) DO UPDATE SET runs = runs + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER run_changes AFTER UPDATE OF about ON runs WHEN length(NEW.about) <> length(OLD.about) BEGIN
        UPDATE shares SET bytes = bytes + length(NEW.about) - length(OLD.about) WHERE owner = NEW.owner;
    END;
    CREATE TRIGGER run_goes AFTER DELETE ON runs BEGIN
        UPDATE shares SET runs = runs - 1, bytes = bytes - length(OLD.about) WHERE owner = OLD.owner;
        DELETE FROM shares WHERE owner = OLD.owner AND runs <= 0 AND bytes <= 0;
    END;
    CREATE TRIGGER lines_come AFTER INSERT ON lines BEGIN
        UPDATE shares SET bytes = bytes + length(NEW.bytes)
        WHERE owner = (SELECT owner FROM runs WHERE number = NEW.run);
    END;
    CREATE TRIGGER lines_go AFTER DELETE ON lines BEGIN
        UPDATE shares SET bytes = bytes - length(OLD.bytes)
        WHERE owner = (SELECT owner FROM runs WHERE number = OLD.run);
    END;
    CREATE TRIGGER document_comes AFTER INSERT ON documents BEGIN
        INSERT INTO shares VALUES (NEW.owner, 0, length(NEW.value))
        ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER document_changes AFTER UPDATE OF value ON documents WHEN length(NEW.value) <> length(OLD.value) BEGIN
        UPDATE shares SET bytes = bytes + length(NEW.value) - length(OLD.value) WHERE owner = NEW.owner;
    END;
    CREATE TRIGGER document_goes AFTER DELETE ON documents BEGIN
        UPDATE shares SET bytes = bytes - length(OLD.value) WHERE owner = OLD.owner;
        DELETE FROM shares WHERE owner = OLD.owner AND runs <= 0 AND bytes <= 0;
    END;
    ",
    // The tags of a run, as a JSON object: lists that ask for them read no other runs. NULL: it has none.
    "
    ALTER TABLE runs ADD COLUMN tags TEXT;
    CREATE INDEX runs_with_tags ON runs (owner, created_at, id) WHERE tags IS NOT NULL;
    ",
    // How a run began, for lists of the runs of all owners, and an index for their order. NULL: an earlier version
    // wrote the row.
    "
    ALTER TABLE runs ADD COLUMN preview TEXT;
    CREATE INDEX runs_of_all ON runs (changed_at, id);
    ",
    // Lists count what they show, without what is too old: that reads an index of those runs alone, and no rows.
    "
    DROP INDEX runs_of_all;
    CREATE INDEX runs_shown ON runs (changed_at, id, route, ended) WHERE NOT hidden;
    ",
];

/// Time that a connection waits for a lock of another connection of this process. No lock is held for longer than a
/// commit takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that the writer waits for a lock of another process, which should not exist: the writer retries later.
pub(super) const WRITER_LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The database file. Invariant: no other process has it open while this value lives.
pub(super) struct Database {
    pub(super) path: PathBuf,
    /// Identifies the file independent of its name.
    file_id: Option<FileId>,
    /// Maximum number of pages. `None`: no limit.
    max_pages: Option<u32>,
    _lock: File,
}

/// Device and inode, which identify a file; not available on all systems.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> std::io::Result<Option<FileId>> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(path)?;
    Ok(Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn file_id(path: &Path) -> std::io::Result<Option<FileId>> {
    std::fs::metadata(path).map(|_| None)
}

impl Database {
    /// Creates the directory, takes the lock and migrates the schema. The returned connection is the writer's.
    pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Self, Connection), StoreError> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            private::create_directory(directory)
                .map_err(|error| file_error("create the directory", directory, error))?;
        }

        let lock = lock(path)?;
        private::create_database(path).map_err(|error| file_error("create the database", path, error))?;
        let mut database = Self { path: path.to_owned(), file_id: None, max_pages: options.max_pages, _lock: lock };

        // Nothing is written to a file that cannot be used.
        check_length(path)?;
        let found = database.connect()?;
        // Its close would otherwise move a write-ahead log into the file.
        found
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(|error| file_error("open the database", path, error))?;
        found_version(&found, path)?;
        drop(found);

        let mut connection = database.writer()?;
        migrate(&mut connection, path)?;
        database.file_id = file_id(path).map_err(|error| file_error("find", path, error))?;
        Ok((database, connection))
    }

    /// Opens a connection for writing.
    pub(super) fn writer(&self) -> Result<Connection, StoreError> {
        let connection = self.connect()?;
        let prepare = || {
            vacuum::prepare(&connection, &self.path)?;
            // A commit survives a crash of the process without a sync; a power failure may lose the last commits but
            // never corrupts the file.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
            if let Some(pages) = self.max_pages {
                connection.pragma_update(None, "max_page_count", pages)?;
            }
            connection.busy_timeout(WRITER_LOCK_TIMEOUT)
        };

        prepare().map_err(|error: rusqlite::Error| file_error("open the database", &self.path, error))?;
        Ok(connection)
    }

    /// Fails if the file was removed or replaced: whatever is written to a removed file is lost.
    pub(super) fn check_present(&self) -> Result<(), StoreError> {
        match file_id(&self.path) {
            Ok(found) if found == self.file_id => Ok(()),
            Ok(_) => Err(file_error("use the database", &self.path, "the file was replaced by another one")),
            Err(error) => Err(file_error("find the database", &self.path, error)),
        }
    }

    /// Opens a connection with the common settings. Readers use it as it is; [`Self::writer`] adds its own settings.
    pub(super) fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let prepare = || {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(LOCK_TIMEOUT)?;
            connection.pragma_update(None, "cache_size", -1024)?;
            connection.set_prepared_statement_cache_capacity(32);
            Ok(connection)
        };
        prepare().map_err(|error: rusqlite::Error| file_error("open the database", &self.path, error))
    }
}

/// Locks a separate file: SQLite's own locks end with each transaction and let other processes in between.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let open = private::open(&name);
    let file = open.map_err(|error| file_error("create the lock file", &name, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(file_error("lock", &name, error)),
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = |error: rusqlite::Error| file_error("open the database", path, error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
    let (found, known) = (found_version(&transaction, path)?, known_version());
    if found < known {
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(step).map_err(sql)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql)?;
        transaction.pragma_update(None, "user_version", known).map_err(sql)?;
    }

    transaction.commit().map_err(sql)
}

/// Fails if the file ends within a page: SQLite only notices missing pages. A crash may leave such a file, too, but then
/// a write-ahead log or a rollback journal has the page.
fn check_length(path: &Path) -> Result<(), StoreError> {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let has_log = |suffix: &str| {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        length(Path::new(&log)) > 0
    };
    if has_log("-wal") || has_log("-journal") {
        return Ok(());
    }

    let mut header = [0; 18];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let page = match (read, u64::from(u16::from_be_bytes([header[16], header[17]]))) {
        // SQLite says what is wrong with a shorter file. A new one is empty.
        (Err(_), _) | (_, 0) => return Ok(()),
        // 65536 does not fit into two bytes.
        (Ok(()), 1) => 1 << 16,
        (Ok(()), page) => page,
    };
    if header.starts_with(b"SQLite format 3\0") && length(path) % page > 0 {
        return Err(file_error("open the database", path, "the file is cut off: it ends within a page"));
    }
    Ok(())
}

/// The latest schema version of this build.
fn known_version() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The schema version of the file; 0 for a new one. Fails if this gateway cannot use it.
fn found_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let sql = |error: rusqlite::Error| file_error("open the database", path, error);
    let pragma_value =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(sql);

    let (found, known) = (pragma_value("user_version")?, known_version());
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sql)?;
    if tables > 0 && pragma_value("application_id")? != APPLICATION_ID {
        return Err(file_error("use the database", path, "it belongs to another program"));
    }
    if found > known {
        return Err(StoreError::NewerSchema { path: path.display().to_string(), found, known });
    }
    Ok(found)
}

/// An error about a file.
pub(super) fn file_error(
    action: &'static str,
    path: &Path,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::File { action, path: path.display().to_string(), reason: Arc::from(error.into()) }
}
