//! The files of a store: restored into a temporary folder or a new database, changed for the day of the test, and
//! saved.
//!
//! Not here: the meaning of the contents.

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
