//! What is written of documents. Not here: reading ([`super::reader`]), and what retention takes away
//! ([`super::retention`]).

use bytes::Bytes;
use interlingua_core::event::Millis;
use rusqlite::{OptionalExtension, params};

use super::reader::{Failed, int};
use super::writer::Writing;
use crate::store::{Conflict, Expect, Version};

/// Which document.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) collection: String,
    pub(super) key: String,
}

impl Place {
    pub(super) fn new(collection: &str, key: &str) -> Self {
        Self { collection: collection.to_owned(), key: key.to_owned() }
    }
}

impl Writing<'_> {
    /// The version that is there and the one it was made with, if that is what is expected.
    fn there(&self, place: &Place, expect: Expect) -> Result<Result<Option<(i64, i64)>, Conflict>, Failed> {
        let there: Option<(i64, i64)> = self
            .sql
            .prepare_cached("SELECT version, made FROM documents WHERE collection = ?1 AND key = ?2")?
            .query_row([&place.collection, &place.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let expected = match expect {
            Expect::Anything => true,
            Expect::Absent => there.is_none(),
            Expect::Version(Version(version)) => there.is_some_and(|(there, _)| there == int(version)),
        };
        Ok(if expected { Ok(there) } else { Err(Conflict) })
    }

    pub(super) fn put(
        &mut self,
        place: &Place,
        value: &Bytes,
        expect: Expect,
        now: Millis,
    ) -> Result<Result<Version, Conflict>, Failed> {
        let Ok(there) = self.there(place, expect)? else { return Ok(Err(Conflict)) };
        self.version += 1;
        let version = int(self.version);
        let made = there.map_or(version, |(_, made)| made);
        self.sql
            .prepare_cached(
                "INSERT INTO documents (collection, key, version, made, put_at, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET version = ?3, put_at = ?5, value = ?6",
            )?
            .execute(params![place.collection, place.key, version, made, int(now), &value[..]])?;
        Ok(Ok(Version(self.version)))
    }

    pub(super) fn delete(&mut self, place: &Place, expect: Expect) -> Result<Result<bool, Conflict>, Failed> {
        let Ok(there) = self.there(place, expect)? else { return Ok(Err(Conflict)) };
        self.sql
            .prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key = ?2")?
            .execute([&place.collection, &place.key])?;
        Ok(Ok(there.is_some()))
    }
}
