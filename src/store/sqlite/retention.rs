//! What retention takes away: all runs by age, number and bytes, those of some routes by rules of their own, documents
//! that go with a run, and idle ones. A small batch at a time, found by indexes. Where there is too much, whoever has
//! most loses first ([`crate::store::fair`]). Not here: what is told of waiting runs is done by the engine.

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};

use super::reader::{Failed, SIZE, id, int};
use super::writer::Writing;
use crate::store::{Retention, Swept, attached_keys, before, fair, part_keys};

/// How many runs or documents of one kind one round of retention takes.
const BATCH: usize = 200;

/// Runs that are kept by the same rules: those of a route, or all.
struct Kin<'a> {
    route: Option<&'a str>,
    /// Those that ended before are taken.
    ended: Millis,
    /// Those that have waited since before are stale.
    waiting: Millis,
    /// How many there may be: of each owner for a route, of all together else.
    most: u64,
}

/// A run to be taken.
struct Old {
    id: RunId,
    owner: String,
    /// It is only hidden.
    remembered: bool,
    size: u64,
}

/// What is read of a run to be taken.
fn old(route: Option<&str>) -> impl Fn(&Row<'_>) -> Result<Old, rusqlite::Error> {
    let of_route = route.is_some();
    move |row| {
        let size = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0);
        Ok(Old { id: id(row, 0)?, owner: row.get(1)?, remembered: of_route && row.get(2)?, size })
    }
}

impl Writing<'_> {
    pub(super) fn retain(&mut self, policy: &Retention, now: Millis) -> Result<Swept, Failed> {
        let mut swept = Swept::default();
        let all = before(now, policy.age);
        let routes = policy.routes.iter().map(|(route, keep)| Kin {
            route: Some(route),
            ended: before(now, keep.ended_ttl),
            waiting: before(now, keep.waiting_ttl),
            most: keep.max_runs,
        });
        for kin in routes.chain([Kin { route: None, ended: all, waiting: all, most: policy.runs }]) {
            let expired = self.ended(kin.route, None, Some(kin.ended), BATCH)?;
            let mut room = BATCH - expired.len();
            self.take_all(&expired, policy, &mut swept)?;
            let crowded = if room > 0 { self.crowded(&kin)? } else { Vec::new() };
            let mut left: u64 = crowded.iter().map(|(_, over)| *over).sum();
            let crowded = crowded.into_iter().map(|(owner, over)| (Some(owner), over));
            // Those who have most may have nothing that has ended: then whoever has.
            for (owner, over) in crowded.chain(kin.route.is_none().then_some((None, u64::MAX))) {
                let many = usize::try_from(over.min(left)).unwrap_or(usize::MAX).min(room);
                let old = self.ended(kin.route, owner.as_deref(), None, many)?;
                room -= old.len();
                left = left.saturating_sub(old.len() as u64);
                self.take_all(&old, policy, &mut swept)?;
            }
            swept.more |= room == 0;
            for run in self.stale(&kin)? {
                if !swept.stale.contains(&run) {
                    swept.stale.push(run);
                }
            }
        }
        self.forget_idle(policy, all, &mut swept)?;
        self.forget_most(policy, &mut swept)?;
        swept.more |= self.shrink()?;
        Ok(swept)
    }

    /// Those that have ended, of a route, of an owner, before a time: the first ones that did.
    fn ended(
        &self,
        route: Option<&str>,
        owner: Option<&str>,
        before: Option<Millis>,
        many: usize,
    ) -> Result<Vec<Old>, Failed> {
        let mut sql = format!("SELECT id, owner, remembered, length(about) + {SIZE} FROM runs WHERE ended = 1");
        let mut values = Vec::new();
        let mut also = |condition: &str, value: Value| {
            sql.push_str(condition);
            values.push(value);
        };
        if let Some(route) = route {
            also(" AND route = ?", Value::Text(route.to_owned()));
        }
        if let Some(owner) = owner {
            also(" AND owner = ?", Value::Text(owner.to_owned()));
        }
        if let Some(before) = before {
            also(" AND changed_at < ?", Value::Integer(int(before)));
        }
        also(" ORDER BY changed_at, id LIMIT ?", Value::Integer(i64::try_from(many).unwrap_or(i64::MAX)));
        let mut oldest = self.sql.prepare_cached(&sql)?;
        Ok(oldest.query_map(params_from_iter(values), old(route))?.collect::<Result<_, _>>()?)
    }

    /// Who has too many, and how many those are.
    fn crowded(&self, kin: &Kin<'_>) -> Result<Vec<(String, u64)>, Failed> {
        let share = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)));
        if let Some(route) = kin.route {
            let mut crowded = self.sql.prepare_cached(
                "SELECT owner, count(*) - ?2 FROM runs WHERE route = ?1 GROUP BY owner HAVING count(*) > ?2",
            )?;
            let crowded = crowded.query_map(params![route, int(kin.most)], share)?;
            return Ok(crowded.collect::<Result<_, _>>()?);
        }
        let shares = self
            .sql
            .prepare_cached("SELECT owner, runs FROM shares WHERE runs > 0 ORDER BY owner")?
            .query_map([], share)?
            .collect::<Result<Vec<_>, _>>()?;
        let count: u64 = shares.iter().map(|(_, runs)| *runs).sum();
        let over = count.saturating_sub(kin.most);
        if over == 0 {
            return Ok(Vec::new());
        }
        let losses = fair::losses(&shares, over);
        let losing = shares.into_iter().zip(losses).filter(|(_, loss)| *loss > 0);
        Ok(losing.map(|((owner, _), loss)| (owner, loss)).collect())
    }

    fn stale(&self, kin: &Kin<'_>) -> Result<Vec<RunId>, Failed> {
        let of_route = if kin.route.is_some() { "AND route = ?3" } else { "" };
        let stale = format!(
            "SELECT id FROM runs WHERE ended = 0 AND changed_at < ?1 AND state IN ('waiting', 'waiting_for_auth')
             {of_route} ORDER BY changed_at, id LIMIT ?2"
        );
        let values = [Value::Integer(int(kin.waiting)), Value::Integer(batch())];
        let values = values.into_iter().chain(kin.route.map(|route| Value::Text(route.to_owned())));
        let mut stale = self.sql.prepare_cached(&stale)?;
        Ok(stale.query_map(params_from_iter(values), |row| id(row, 0))?.collect::<Result<_, _>>()?)
    }

    /// Forgets a run, or hides it; what goes with it goes.
    fn take(&mut self, run: &Old, policy: &Retention) -> Result<(), Failed> {
        if run.remembered {
            // Nobody counts it any more: it is kept as all runs are.
            self.sql.prepare_cached("UPDATE runs SET hidden = 1, route = NULL WHERE id = ?1")?.execute([run
                .id
                .0
                .as_bytes()
                .as_slice()])?;
        } else {
            self.remove(run.id)?;
        }
        let (from, to) = attached_keys(&run.owner, run.id);
        let mut attached =
            self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key >= ?2 AND key < ?3")?;
        for collection in &policy.attached {
            attached.execute([collection, &from, &to])?;
        }
        Ok(())
    }

    fn take_all(&mut self, runs: &[Old], policy: &Retention, swept: &mut Swept) -> Result<(), Failed> {
        for run in runs {
            self.take(run, policy)?;
            if run.remembered { &mut swept.hidden } else { &mut swept.runs }.push(run.id);
        }
        Ok(())
    }

    /// Forgets documents that nobody has touched for long, and those of a collection that are too many.
    fn forget_idle(&self, policy: &Retention, before: Millis, swept: &mut Swept) -> Result<(), Failed> {
        for collection in &policy.collections {
            let idle = self.documents(collection, None, Some(before), BATCH)?;
            let mut room = BATCH - idle.len();
            self.forget_documents(collection, &idle, policy, swept)?;
            let shares = self
                .sql
                .prepare_cached("SELECT owner, count(*) FROM documents WHERE collection = ?1 GROUP BY owner")?
                .query_map([collection], |row| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?
                .collect::<Result<Vec<(String, u64)>, _>>()?;
            let over = shares.iter().map(|(_, count)| *count).sum::<u64>().saturating_sub(policy.documents);
            for ((owner, _), loss) in shares.iter().zip(fair::losses(&shares, over)).filter(|(_, loss)| *loss > 0) {
                let many = usize::try_from(loss).unwrap_or(usize::MAX).min(room);
                let most = self.documents(collection, Some(owner), None, many)?;
                room -= most.len();
                self.forget_documents(collection, &most, policy, swept)?;
            }
            swept.more |= room == 0;
        }
        Ok(())
    }

    /// While the file holds too many bytes, whoever has most loses runs, and then documents.
    fn forget_most(&mut self, policy: &Retention, swept: &mut Swept) -> Result<(), Failed> {
        let over = self.used()?.saturating_sub(policy.bytes);
        if over == 0 {
            return Ok(());
        }
        let shares = self
            .sql
            .prepare_cached("SELECT owner, bytes FROM shares WHERE bytes > 0 ORDER BY owner")?
            .query_map([], |row| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?
            .collect::<Result<Vec<(String, u64)>, _>>()?;
        let losses = fair::losses(&shares, over);
        let owners = shares.into_iter().zip(losses).filter(|(_, loss)| *loss > 0);
        let mut owners: Vec<(Option<String>, u64)> = owners.map(|((owner, _), loss)| (Some(owner), loss)).collect();
        // Those who have most may have nothing that has ended.
        owners.push((None, over));
        let (mut freed, mut taken) = (0, 0);
        for (owner, loss) in owners {
            let mut left = loss.min(over.saturating_sub(freed));
            let runs = self.ended(None, owner.as_deref(), None, BATCH.saturating_sub(taken))?;
            let enough = |size: u64, left: &mut u64| {
                let takes = *left > 0;
                *left = left.saturating_sub(size);
                takes
            };
            let runs: Vec<Old> = runs.into_iter().take_while(|run| enough(run.size, &mut left)).collect();
            freed += runs.iter().map(|run| run.size).sum::<u64>();
            taken += runs.len();
            self.take_all(&runs, policy, swept)?;
            for collection in &policy.collections {
                let idle = self.documents(collection, owner.as_deref(), None, BATCH.saturating_sub(taken))?;
                let idle: Vec<(String, u64)> =
                    idle.into_iter().take_while(|(_, size)| enough(*size, &mut left)).collect();
                freed += idle.iter().map(|(_, size)| *size).sum::<u64>();
                taken += idle.len();
                self.forget_documents(collection, &idle, policy, swept)?;
            }
            if freed >= over || taken >= BATCH {
                break;
            }
        }
        // Sizes are rough: pages are counted again.
        swept.more |= taken > 0 && self.used()? > policy.bytes;
        Ok(())
    }

    /// Documents of a collection, of an owner, that were put before a time: those put first, each with the bytes of its
    /// parts.
    fn documents(
        &self,
        collection: &str,
        owner: Option<&str>,
        before: Option<Millis>,
        many: usize,
    ) -> Result<Vec<(String, u64)>, Failed> {
        let mut sql = String::from(
            "SELECT key, length(value) + (
                SELECT ifnull(sum(length(value)), 0) FROM documents AS part
                WHERE part.collection = 'entries' AND documents.collection = 'sessions'
                AND part.key >= documents.key || char(28) AND part.key < documents.key || char(29)
             ) FROM documents WHERE collection = ?",
        );
        let mut values = vec![Value::Text(collection.to_owned())];
        if let Some(owner) = owner {
            sql.push_str(" AND owner = ?");
            values.push(Value::Text(owner.to_owned()));
        }
        if let Some(before) = before {
            sql.push_str(" AND put_at < ?");
            values.push(Value::Integer(int(before)));
        }
        sql.push_str(" ORDER BY put_at LIMIT ?");
        values.push(Value::Integer(i64::try_from(many).unwrap_or(i64::MAX)));
        let mut oldest = self.sql.prepare_cached(&sql)?;
        let oldest = oldest.query_map(params_from_iter(values), |row| {
            Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
        })?;
        Ok(oldest.collect::<Result<_, _>>()?)
    }

    /// Forgets documents and their parts.
    fn forget_documents(
        &self,
        collection: &str,
        documents: &[(String, u64)],
        policy: &Retention,
        swept: &mut Swept,
    ) -> Result<(), Failed> {
        let mut one = self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key = ?2")?;
        let mut range =
            self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key >= ?2 AND key < ?3")?;
        for (key, _) in documents {
            swept.documents += one.execute([collection, key])?;
            let (from, to) = part_keys(key);
            for (parts, _) in policy.parts.iter().filter(|(_, whole)| whole == collection) {
                range.execute([parts, &from, &to])?;
            }
        }
        Ok(())
    }
}

fn batch() -> i64 {
    i64::try_from(BATCH).unwrap_or(i64::MAX)
}
