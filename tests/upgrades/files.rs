//! The files of a store: restored into a temporary folder or a new database, changed for the day of the test, and
//! saved.
//!
//! Not here: the meaning of the contents.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use interlingua_testing_postgres::Database;
use tempfile::TempDir;

use crate::contents::Contents;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A value in the store.
pub(crate) struct Cell {
    /// Names the row.
    pub(crate) row: String,
    pub(crate) value: Vec<u8>,
}

/// A store that no gateway has opened yet, or that a gateway has closed.
pub(crate) struct Files {
    pub(crate) kind: Kind,
    folder: TempDir,
    database: Option<Database<'static>>,
    /// The folder in the repository.
    source: PathBuf,
}

impl Files {
    /// A store without contents.
    pub(crate) fn empty(kind: Kind) -> Self {
        let database = (kind == Kind::Postgres).then(interlingua_testing_postgres::database);
        Self { kind, folder: tempfile::tempdir().unwrap(), database, source: PathBuf::new() }
    }

    /// A copy of the store in a folder of the repository.
    pub(crate) fn restore(source: PathBuf, kind: Kind) -> Self {
        let files = Self { source, ..Self::empty(kind) };
        match &files.database {
            None => drop(std::fs::copy(files.source.join("store.db"), files.path().join("store.db")).unwrap()),
            Some(database) => {
                let sql = std::fs::read_to_string(files.source.join("store.sql")).unwrap();
                database.load(&sql).unwrap_or_else(|error| panic!("{error:#}"));
            }
        }
        files
    }

    /// The list of contents.
    pub(crate) fn contents(&self) -> Contents {
        let list = std::fs::read_to_string(self.source.join(self.list())).unwrap();
        serde_json::from_str(&list).unwrap_or_else(|error| panic!("{}: {error}", self.list()))
    }

    fn list(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "sqlite.json",
            Kind::Postgres => "postgres.json",
        }
    }

    /// Names the store in failures.
    pub(crate) fn name(&self) -> String {
        format!("{:?} of {}", self.kind, self.source.file_name().unwrap().display())
    }

    /// The temporary folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The table `[store]` of a configuration in the temporary folder. Nothing in the store is too old.
    pub(crate) fn store_table(&self) -> String {
        let own = match &self.database {
            None => "kind = \"sqlite\"\npath = \"store.db\"".to_owned(),
            Some(database) => {
                std::fs::write(self.path().join("url"), database.url()).unwrap();
                "kind = \"postgres\"\nurl = { file = \"url\" }\nlease = \"2s\"\nconnections = 4".to_owned()
            }
        };
        format!("[store]\n{own}\nretention = {{ age = \"3650d\" }}\n")
    }

    /// Moves the tokens that were counted on a day to another day.
    pub(crate) fn move_tokens(&self, from: u64, to: u64) {
        let length = from.to_string().len();
        self.change(&format!(
            "UPDATE documents SET key = substr(key, 1, length(key) - {length}) || '{to}'
             WHERE collection = 'spent' AND key LIKE '%{from}'"
        ));
    }

    /// Replaces the address of push receivers.
    pub(crate) fn move_receivers(&self, from: &str, to: &str) {
        let (decoded, encode) = match self.kind {
            Kind::Sqlite => ("CAST(value AS TEXT)", ["CAST(", " AS BLOB)"]),
            Kind::Postgres => ("convert_from(value, 'UTF8')", ["convert_to(", ", 'UTF8')"]),
        };
        let [open, close] = encode;
        self.change(&format!(
            "UPDATE documents SET value = {open}replace({decoded}, '{from}', '{to}'){close} WHERE collection = 'a2a/push'"
        ));
    }

    fn change(&self, sql: &str) {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
                assert!(file.execute(sql, []).unwrap() > 0, "{sql}");
            }
            Some(database) => {
                let sql = sql.replacen("documents", "interlingua.documents", 1);
                let changed = format!("WITH changed AS ({sql} RETURNING 1) SELECT count(*) FROM changed");
                assert_ne!(database.sql(&changed).unwrap(), "0", "{sql}");
            }
        }
    }

    /// The condition for rows of a run in a table.
    pub(crate) fn of_run(&self, table: &str, run: &str) -> String {
        let id = run.trim_start_matches("response_");
        match (self.kind, table) {
            (Kind::Sqlite, "runs") => format!("id = x'{}'", id.replace('-', "")),
            (Kind::Sqlite, _) => format!("run = (SELECT number FROM runs WHERE id = x'{}')", id.replace('-', "")),
            (Kind::Postgres, "runs") => format!("id = '{id}'"),
            (Kind::Postgres, _) => format!("run = '{id}'"),
        }
    }

    /// Runs SQL. `store.` in front of tables is their schema.
    pub(crate) fn execute(&self, sql: &str) {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
                file.execute_batch(&sql.replace("store.", "main.")).unwrap();
            }
            Some(database) => drop(database.sql(&sql.replace("store.", "interlingua.")).unwrap()),
        }
    }

    /// Adds a document.
    pub(crate) fn add_document(&self, collection: &str, key: &str, value: &str) {
        self.execute(&match self.kind {
            Kind::Sqlite => format!(
                "INSERT INTO store.documents (collection, key, version, made, put_at, value)
                 SELECT '{collection}', '{key}', max(version) + 1, max(version) + 1, max(put_at), CAST('{value}' AS BLOB)
                 FROM store.documents;
                 UPDATE store.counters SET value = value + 1 WHERE name = 'version'"
            ),
            Kind::Postgres => format!(
                "INSERT INTO store.documents (collection, key, owner, version, created, put_at, writer, value)
                 SELECT '{collection}', '{key}', split_part('{key}', chr(31), 1), nextval('store.versions'), 1, max(put_at),
                        gen_random_uuid(), convert_to('{value}', 'UTF8')
                 FROM store.documents"
            ),
        });
    }

    /// Runs SQL as a process that is killed afterwards: the changes are in the write-ahead log of the file.
    pub(crate) fn execute_into_log(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
        file.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        file.execute_batch(&format!("PRAGMA journal_mode = wal; {sql}")).unwrap();
        drop(file);
        assert!(std::fs::metadata(self.path().join("store.db-wal")).unwrap().len() > 0);
    }

    /// Everything in the store.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match &self.database {
            None => {
                let mut bytes = std::fs::read(self.path().join("store.db")).unwrap();
                bytes.extend(std::fs::read(self.path().join("store.db-wal")).unwrap_or_default());
                bytes
            }
            Some(database) => database.dump("interlingua").unwrap().into_bytes(),
        }
    }

    /// The values of a column, each with its row.
    pub(crate) fn cells(&self, table: &str, column: &str, filter: &str) -> Vec<Cell> {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
                let sql = format!("SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE {filter} ORDER BY rowid");
                let mut found = file.prepare(&sql).unwrap();
                let cell =
                    |row: &rusqlite::Row<'_>| Ok(Cell { row: row.get::<_, i64>(0)?.to_string(), value: row.get(1)? });
                found.query_map([], cell).unwrap().map(Result::unwrap).collect()
            }
            Some(database) => {
                let sql = format!(
                    "SELECT ctid, encode({column}, 'hex') FROM interlingua.{table} WHERE {filter} ORDER BY ctid"
                );
                let found = database.sql(&sql).unwrap();
                let cell = |line: &str| {
                    let (row, hex) = line.split_once('|').unwrap();
                    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                    Cell { row: row.to_owned(), value: (0..hex.len()).step_by(2).map(byte).collect() }
                };
                found.lines().map(cell).collect()
            }
        }
    }

    /// Replaces values that [`Files::cells`] gave. No gateway may have used the store meanwhile.
    pub(crate) fn set_cells(&self, table: &str, column: &str, cells: &[Cell]) {
        match &self.database {
            None => {
                let mut file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
                let transaction = file.transaction().unwrap();
                for Cell { row, value } in cells {
                    let sql = format!("UPDATE {table} SET {column} = ?1 WHERE rowid = ?2");
                    assert_eq!(transaction.execute(&sql, (value, row)).unwrap(), 1, "{sql}");
                }
                transaction.commit().unwrap();
            }
            Some(database) => {
                let mut script = String::from("BEGIN;\n");
                // Rows are named by their place, and an update moves them: all places are looked up before.
                script.push_str("CREATE TEMP TABLE cells (place tid, value bytea) ON COMMIT DROP;\n");
                for Cell { row, value } in cells {
                    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                    let _ = writeln!(script, "INSERT INTO cells VALUES ('{row}', decode('{hex}', 'hex'));");
                }
                let _ = writeln!(
                    script,
                    "UPDATE interlingua.{table} t SET {column} = c.value FROM cells c WHERE t.ctid = c.place;\nCOMMIT;"
                );
                database.load(&script).unwrap_or_else(|error| panic!("{error:#}"));
            }
        }
    }

    /// Writes the store and its list of contents to a folder.
    pub(crate) fn save(&self, folder: &Path, contents: &Contents) {
        std::fs::create_dir_all(folder).unwrap();
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.path().join("store.db")).unwrap();
                file.execute_batch("VACUUM").unwrap();
                drop(file);
                std::fs::copy(self.path().join("store.db"), folder.join("store.db")).unwrap();
            }
            Some(database) => {
                let dump = database.dump("interlingua").unwrap_or_else(|error| panic!("{error:#}"));
                std::fs::write(folder.join("store.sql"), dump).unwrap();
            }
        }
        let list = serde_json::to_string_pretty(contents).unwrap();
        std::fs::write(folder.join(self.list()), list + "\n").unwrap();
    }
}
