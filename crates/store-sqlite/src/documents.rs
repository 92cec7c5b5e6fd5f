//! Writes of documents. Not here: reads ([`super::reader`]), and retention ([`super::retention`]).

use bytes::Bytes;
use interlingua_core::event::Millis;
use rusqlite::{OptionalExtension, params};

use super::reader::{QueryError, int};
use super::transaction::WriteTransaction;
use interlingua_store::{Conflict, DocumentWrite, Expect, Version};

/// The address of a document.
#[derive(Clone)]
pub(super) struct DocumentPath {
    pub(super) collection: String,
    pub(super) key: String,
}

impl DocumentPath {
    pub(super) fn new(collection: &str, key: &str) -> Self {
        Self { collection: collection.to_owned(), key: key.to_owned() }
    }
}

impl WriteTransaction<'_> {
    /// The current version and the creation version, if the precondition holds.
    fn current(&self, path: &DocumentPath, expect: Expect) -> Result<Result<Option<(i64, i64)>, Conflict>, QueryError> {
        let current: Option<(i64, i64)> = self
            .sql
            .prepare_cached("SELECT version, made FROM documents WHERE collection = ?1 AND key = ?2")?
            .query_row([&path.collection, &path.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;

        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Version(Version(version)) => current.is_some_and(|(current, _)| current == int(version)),
        };

        Ok(if holds { Ok(current) } else { Err(Conflict) })
    }

    pub(super) fn put(
        &mut self,
        path: &DocumentPath,
        value: &Bytes,
        expect: Expect,
        now: Millis,
    ) -> Result<Result<Version, Conflict>, QueryError> {
        let Ok(current) = self.current(path, expect)? else { return Ok(Err(Conflict)) };
        self.version += 1;
        let version = int(self.version);
        let created = current.map_or(version, |(_, created)| created);
        self.sql
            .prepare_cached(
                "INSERT INTO documents (collection, key, version, made, put_at, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET version = ?3, put_at = ?5, value = ?6",
            )?
            .execute(params![path.collection, path.key, version, created, int(now), &value[..]])?;

        Ok(Ok(Version(self.version)))
    }

    /// All writes, or none.
    pub(super) fn write_all(
        &mut self,
        writes: &[DocumentWrite],
        now: Millis,
    ) -> Result<Result<Version, Conflict>, QueryError> {
        for write in writes {
            if self.current(&DocumentPath::new(write.collection, &write.key), write.expect)?.is_err() {
                return Ok(Err(Conflict));
            }
        }

        for write in writes {
            let path = DocumentPath::new(write.collection, &write.key);
            let done = match &write.value {
                Some(value) => self.put(&path, value, Expect::Any, now)?.map(drop),
                None => self.delete(&path, Expect::Any)?.map(drop),
            };
            debug_assert!(done.is_ok(), "nothing was expected");
        }
        Ok(Ok(Version(self.version)))
    }

    pub(super) fn delete(&mut self, path: &DocumentPath, expect: Expect) -> Result<Result<bool, Conflict>, QueryError> {
        let Ok(current) = self.current(path, expect)? else { return Ok(Err(Conflict)) };
        self.sql
            .prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key = ?2")?
            .execute([&path.collection, &path.key])?;

        Ok(Ok(current.is_some()))
    }
}
