//! Retention: deletes all runs by age, number and bytes, those of some routes by rules of their own, documents attached
//! to a run, and idle documents. One small batch at a time, found through indexes. Where there is too much data, the
//! largest owners lose first ([`interlingua_store::fair`]). Not here: waiting runs, which the engine ends, and what single
//! principals may keep ([`super::own_bounds`]).
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};

use super::reader::{QueryError, SIZE_SQL, id, int};
use super::transaction::WriteTransaction;
use interlingua_store::rules::{BATCH, Candidate, RuleSet, has_to_go, rule_sets};
use interlingua_store::{Retention, RetentionReport, attached_keys, before, fair, part_keys};

/// Parses a row into a candidate.
fn candidate_from_row(route: Option<&str>) -> impl Fn(&Row<'_>) -> Result<Candidate, rusqlite::Error> {
    let of_route = route.is_some();
    move |row| {
        let size = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0);
        Ok(Candidate { id: id(row, 0)?, owner: row.get(1)?, hide_only: of_route && row.get(2)?, size })
    }
}

impl WriteTransaction<'_> {
    pub(super) fn retain(&mut self, policy: &Retention, now: Millis) -> Result<RetentionReport, QueryError> {
        let mut report = RetentionReport::default();
        for rules in rule_sets(policy, now) {
            let expired = self.ended(rules.route, None, Some(rules.ended_before), BATCH)?;
            let mut room = BATCH - expired.len();
            self.drop_runs(&expired, policy, &mut report)?;
            room -= self.drop_own_surplus(rules.route, room, policy, &mut report)?;

            let surplus = if room > 0 { self.surplus(&rules)? } else { Vec::new() };
            let mut left: u64 = surplus.iter().map(|(_, over)| *over).sum();
            let surplus = surplus.into_iter().map(|(owner, over)| (Some(owner), over));
            // The largest owners may have no ended runs; then any owner loses some.
            for (owner, over) in surplus.chain(rules.route.is_none().then_some((None, u64::MAX))) {
                let limit = usize::try_from(over.min(left)).unwrap_or(usize::MAX).min(room);
                let candidates = self.ended(rules.route, owner.as_deref(), None, limit)?;
                room -= candidates.len();
                left = left.saturating_sub(candidates.len() as u64);
                self.drop_runs(&candidates, policy, &mut report)?;
            }

            report.more |= room == 0;
            for run in self.stale(&rules)? {
                if !report.stale.contains(&run) {
                    report.stale.push(run);
                }
            }
        }

        self.delete_idle(policy, before(now, policy.age), &mut report)?;
        self.delete_own_bytes(policy, &mut report)?;
        self.delete_largest(policy, &mut report)?;
        report.more |= self.shrink()?;
        Ok(report)
    }

    /// Ended runs of a route and an owner that changed before a time (`None`: any), oldest first.
    pub(super) fn ended(
        &self,
        route: Option<&str>,
        owner: Option<&str>,
        before: Option<Millis>,
        limit: usize,
    ) -> Result<Vec<Candidate>, QueryError> {
        let mut sql = format!("SELECT id, owner, remembered, length(about) + {SIZE_SQL} FROM runs WHERE ended = 1");
        let mut values = Vec::new();
        let mut and = |condition: &str, value: Value| {
            sql.push_str(condition);
            values.push(value);
        };

        if let Some(route) = route {
            and(" AND route = ?", Value::Text(route.to_owned()));
        }
        if let Some(owner) = owner {
            and(" AND owner = ?", Value::Text(owner.to_owned()));
        }
        if let Some(before) = before {
            and(" AND changed_at < ?", Value::Integer(int(before)));
        }
        and(" ORDER BY changed_at, id LIMIT ?", Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));

        let mut oldest = self.sql.prepare_cached(&sql)?;
        Ok(oldest.query_map(params_from_iter(values), candidate_from_row(route))?.collect::<Result<_, _>>()?)
    }

    /// Owners with too many runs, and how many each has to lose.
    fn surplus(&self, rules: &RuleSet<'_>) -> Result<Vec<(String, u64)>, QueryError> {
        if let Some(route) = rules.route {
            let share =
                |row: &Row<'_>| Ok((row.get::<_, String>(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)));
            let mut surplus = self.sql.prepare_cached(
                "SELECT owner, count(*) - ?2 FROM runs WHERE route = ?1 GROUP BY owner HAVING count(*) > ?2",
            )?;
            let surplus = surplus.query_map(params![route, int(rules.max_runs)], share)?;
            return Ok(surplus.collect::<Result<_, _>>()?);
        }
        let shares = self.run_shares(None)?;
        let count: u64 = shares.iter().map(|(_, runs)| *runs).sum();
        let over = count.saturating_sub(rules.max_runs);
        if over == 0 {
            return Ok(Vec::new());
        }
        Ok(fair::losing(shares, over))
    }

    /// Waiting runs without a change since `waiting_before`, oldest first, at most a batch.
    fn stale(&self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, QueryError> {
        let of_route = if rules.route.is_some() { "AND route = ?3" } else { "" };
        let stale = format!(
            "SELECT id FROM runs WHERE ended = 0 AND changed_at < ?1 AND state IN ('waiting', 'waiting_for_auth')
             {of_route} ORDER BY changed_at, id LIMIT ?2"
        );
        let values = [Value::Integer(int(rules.waiting_before)), Value::Integer(batch())];
        let values = values.into_iter().chain(rules.route.map(|route| Value::Text(route.to_owned())));
        let mut stale = self.sql.prepare_cached(&stale)?;
        Ok(stale.query_map(params_from_iter(values), |row| id(row, 0))?.collect::<Result<_, _>>()?)
    }

    /// Deletes or hides a run, and deletes the documents attached to it.
    fn drop_run(&mut self, run: &Candidate, policy: &Retention) -> Result<(), QueryError> {
        if run.hide_only {
            // The route does not count a hidden run any more; only the general rules apply to it.
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

    pub(super) fn drop_runs(
        &mut self,
        runs: &[Candidate],
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<(), QueryError> {
        for run in runs {
            self.drop_run(run, policy)?;
            if run.hide_only { &mut report.hidden } else { &mut report.runs }.push(run.id);
        }
        Ok(())
    }

    /// Deletes documents that have not been written for long, and those above a collection's maximum.
    fn delete_idle(&self, policy: &Retention, before: Millis, report: &mut RetentionReport) -> Result<(), QueryError> {
        for collection in &policy.collections {
            let idle = self.documents(collection, None, Some(before), BATCH)?;
            let mut room = BATCH - idle.len();
            self.delete_documents(collection, &idle, policy, report)?;
            room -= self.delete_own_surplus(collection, room, policy, report)?;

            let shares = self.document_shares(collection)?;
            let over = shares.iter().map(|(_, count)| *count).sum::<u64>().saturating_sub(policy.documents);
            for (owner, loss) in fair::losing(shares, over) {
                let limit = usize::try_from(loss).unwrap_or(usize::MAX).min(room);
                let surplus = self.documents(collection, Some(&owner), None, limit)?;
                room -= surplus.len();
                self.delete_documents(collection, &surplus, policy, report)?;
            }
            report.more |= room == 0;
        }
        Ok(())
    }

    /// While the file has too many bytes in use, deletes runs and then documents of the largest owners.
    fn delete_largest(&mut self, policy: &Retention, report: &mut RetentionReport) -> Result<(), QueryError> {
        let over = self.used()?.saturating_sub(policy.bytes);
        if over == 0 {
            return Ok(());
        }

        let losing = fair::losing(self.byte_shares()?, over);
        let mut owners: Vec<(Option<String>, u64)> =
            losing.into_iter().map(|(owner, loss)| (Some(owner), loss)).collect();
        // The largest owners may have no ended runs.
        owners.push((None, over));

        let (mut freed, mut deleted) = (0, 0);
        for (owner, loss) in owners {
            let loss = loss.min(over.saturating_sub(freed));
            freed += self.free_bytes(owner.as_deref(), loss, &mut deleted, policy, report)?;
            if freed >= over || deleted >= BATCH {
                break;
            }
        }

        // The sizes are estimates, so the pages in use are counted again.
        report.more |= deleted > 0 && self.used()? > policy.bytes;
        Ok(())
    }

    /// Deletes an owner's oldest runs and then documents (`None`: any owner's), until this number of bytes is freed or
    /// the batch is full. Returns the freed bytes.
    pub(super) fn free_bytes(
        &mut self,
        owner: Option<&str>,
        mut left: u64,
        deleted: &mut usize,
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<u64, QueryError> {
        let runs = self.ended(None, owner, None, BATCH.saturating_sub(*deleted))?;
        let runs: Vec<Candidate> = runs.into_iter().take_while(|run| has_to_go(run.size, &mut left)).collect();
        let mut freed: u64 = runs.iter().map(|run| run.size).sum();
        *deleted += runs.len();
        self.drop_runs(&runs, policy, report)?;

        for collection in &policy.collections {
            let idle = self.documents(collection, owner, None, BATCH.saturating_sub(*deleted))?;
            let idle: Vec<(String, u64)> =
                idle.into_iter().take_while(|(_, size)| has_to_go(*size, &mut left)).collect();
            freed += idle.iter().map(|(_, size)| *size).sum::<u64>();
            *deleted += idle.len();
            self.delete_documents(collection, &idle, policy, report)?;
        }
        Ok(freed)
    }

    /// Documents of a collection and an owner that were written before a time (`None`: any), oldest first, each with
    /// its size in bytes including parts.
    pub(super) fn documents(
        &self,
        collection: &str,
        owner: Option<&str>,
        before: Option<Millis>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>, QueryError> {
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
        values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));

        let mut oldest = self.sql.prepare_cached(&sql)?;
        let oldest = oldest.query_map(params_from_iter(values), |row| {
            Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
        })?;
        Ok(oldest.collect::<Result<_, _>>()?)
    }

    /// Deletes documents and their parts.
    pub(super) fn delete_documents(
        &self,
        collection: &str,
        documents: &[(String, u64)],
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<(), QueryError> {
        let mut one = self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key = ?2")?;
        let mut range =
            self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key >= ?2 AND key < ?3")?;
        for (key, _) in documents {
            report.documents += one.execute([collection, key])?;
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
