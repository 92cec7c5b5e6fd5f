//! The file: how it is opened, locked and brought to the present schema, and what its tables are. Not here: what is
//! written into them ([`super::writer`]) and read out ([`super::reader`]).
//!
//! Changing the schema: add a step to [`STEPS`], never change one that was released.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{SqliteOptions, private, vacuum};
use crate::store::StoreError;

/// Tells our files from those of other programs: "ILGW".
pub(super) const APPLICATION: i64 = 0x494c_4757;

/// What makes the schema of version 1, 2, …: each step builds on the one before.
const STEPS: &[&str] = &[
    // `upto` counts the events in `lines`. `log` holds what running turns told lately, of many runs in one row: what
    // would be thousands of small rows a second is one, and is moved to `lines` every few seconds. AUTOINCREMENT,
    // since the log names runs by number and a number must not get another run.
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
    // Whose rules a run is kept by, for routes that have some: what was there before is kept as all runs are.
    "
    ALTER TABLE runs ADD COLUMN route TEXT;
    ALTER TABLE runs ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX runs_by_route ON runs (route, ended, changed_at, id) WHERE route IS NOT NULL;
    ",
    // What lists show of a run: the lines of its record without what was said. NULL: it was written by an earlier
    // version, and its lines have to be read.
    "
    ALTER TABLE runs ADD COLUMN head BLOB;
    ",
    // How much each owner has: counted as it comes and goes, so that nobody has to look at everything to find out who
    // has most. Keys of documents begin with their owner, those of three collections with an agent and then the owner.
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
];

/// How long a connection waits for another one of this process. Nobody holds a lock for longer than a commit takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the writer waits for a lock that another process holds, against all rules: it tries again later.
pub(super) const BUSY: Duration = Duration::from_secs(1);

/// The file, ours alone as long as this lives.
pub(super) struct Database {
    pub(super) path: PathBuf,
    /// Which file it is, whatever its name.
    identity: Option<Identity>,
    /// The most pages it may have.
    max_pages: Option<u32>,
    _lock: File,
}

/// Tells files apart, as far as the system does.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(path)?;
    Ok(Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> std::io::Result<Option<Identity>> {
    std::fs::metadata(path).map(|_| None)
}

impl Database {
    /// Makes the folder, takes the lock, brings the schema up to date. The connection is the one that writes.
    pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<(Self, Connection), StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            private::folder(folder).map_err(|why| failed("create the folder", folder, &why))?;
        }
        let lock = lock(path)?;
        private::files(path).map_err(|why| failed("create the database", path, &why))?;
        let mut database = Self { path: path.to_owned(), identity: None, max_pages: options.max_pages, _lock: lock };
        let mut connection = database.writer()?;
        migrate(&mut connection, path)?;
        database.identity = identity(path).map_err(|why| failed("find", path, &why))?;
        Ok((database, connection))
    }

    /// A connection to write with.
    pub(super) fn writer(&self) -> Result<Connection, StoreError> {
        let connection = self.connect()?;
        let prepare = || {
            vacuum::prepare(&connection, &self.path)?;
            // A commit survives the death of the process without a sync; power cuts may cost the last commits, but
            // never the file.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
            if let Some(pages) = self.max_pages {
                connection.pragma_update(None, "max_page_count", pages)?;
            }
            connection.busy_timeout(BUSY)
        };
        prepare().map_err(|why: rusqlite::Error| failed("open the database", &self.path, &why))?;
        Ok(connection)
    }

    /// Whether the file is still where it was: what is written to one that was removed is lost.
    pub(super) fn is_there(&self) -> Result<(), StoreError> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(failed("use the database", &self.path, &"another file stands in its place")),
            Err(why) => Err(failed("find the database", &self.path, &why)),
        }
    }

    /// One more connection, to read with.
    pub(super) fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let prepare = || {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(PATIENCE)?;
            connection.pragma_update(None, "cache_size", -1024)?;
            connection.set_prepared_statement_cache_capacity(32);
            Ok(connection)
        };
        prepare().map_err(|why: rusqlite::Error| failed("open the database", &self.path, &why))
    }
}

/// The lock is a file of its own: SQLite's locks come and go with transactions, and let other processes in between.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let open = private::open(&name);
    let file = open.map_err(|why| failed("create the lock file", &name, &why))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.display().to_string() }),
        Err(TryLockError::Error(why)) => Err(failed("lock", &name, &why)),
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = |why: rusqlite::Error| failed("open the database", path, &why);
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
    let number = |pragma: &str| transaction.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(sql);
    let found = number("user_version")?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sql)?;
    if tables > 0 && number("application_id")? != APPLICATION {
        return Err(failed("use the database", path, &"it belongs to another program"));
    }
    if found > known {
        return Err(StoreError::Newer { path: path.display().to_string(), found, known });
    }
    if found < known {
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(step).map_err(sql)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION).map_err(sql)?;
        transaction.pragma_update(None, "user_version", known).map_err(sql)?;
    }
    transaction.commit().map_err(sql)
}

/// An error that names the file.
pub(super) fn failed(doing: &'static str, path: &Path, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::File { doing, path: path.display().to_string(), why: why.to_string() }
}
