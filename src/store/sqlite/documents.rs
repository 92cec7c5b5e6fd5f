//! What is written of documents, and what retention takes away. Not here: reading ([`super::reader`]).

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use rusqlite::{OptionalExtension, params};

use super::reader::{Failed, id, int};
use super::writer::Writing;
use crate::store::{Conflict, Expect, Retention, Swept, Version};

/// How many runs or documents one round of retention forgets.
const BATCH: usize = 200;

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

    pub(super) fn retain(&mut self, policy: &Retention, now: Millis) -> Result<Swept, Failed> {
        let age = u64::try_from(policy.age.as_millis()).unwrap_or(u64::MAX);
        let before = int(now.saturating_sub(age));
        let batch = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let count: i64 = self.sql.prepare_cached("SELECT count(*) FROM runs")?.query_row([], |row| row.get(0))?;
        let over = count.saturating_sub(int(policy.runs)).max(0);

        let mut swept = Swept::default();
        let oldest = "SELECT id, changed_at FROM runs WHERE ended = 1 ORDER BY changed_at, id LIMIT ?1";
        let oldest: Vec<(RunId, i64)> = self
            .sql
            .prepare_cached(oldest)?
            .query_map([batch], |row| Ok((id(row, 0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for ((run, changed_at), place) in oldest.into_iter().zip(0_i64..) {
            if place >= over && changed_at >= before {
                break;
            }
            self.remove(run)?;
            swept.runs.push(run);
        }

        let stale = "SELECT id FROM runs WHERE ended = 0 AND changed_at < ?1
                     AND state IN ('waiting', 'waiting_for_auth') ORDER BY changed_at, id LIMIT ?2";
        let mut stale = self.sql.prepare_cached(stale)?;
        swept.stale = stale.query_map([before, batch], |row| id(row, 0))?.collect::<Result<_, _>>()?;
        drop(stale);

        let mut idle = self.sql.prepare_cached(
            "DELETE FROM documents WHERE rowid IN
             (SELECT rowid FROM documents WHERE collection = ?1 AND put_at < ?2 LIMIT ?3)",
        )?;
        let mut full = false;
        for collection in &policy.collections {
            let forgotten = idle.execute(params![collection, before, batch])?;
            swept.documents += forgotten;
            full |= forgotten >= BATCH;
        }
        swept.more = full || swept.runs.len() >= BATCH;
        Ok(swept)
    }
}
