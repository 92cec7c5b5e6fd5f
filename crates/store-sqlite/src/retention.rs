//! The queries and deletions of retention: documents attached to a run are deleted with it, and parts with their
//! document. All selections use indexes. Not here: the order of the steps ([`interlingua_store::retention`]), and
//! waiting runs, which the engine ends.

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use rusqlite::types::Value;
use rusqlite::{Params, Row, params, params_from_iter};

use super::reader::{QueryError, SIZE_SQL, id, int};
use super::transaction::WriteTransaction;
use interlingua_store::retention::{
    BATCH, Candidate, DocumentSelection, OldDocument, RetentionBackend, RuleSet, RunSelection, Shares, retain_at_once,
};
use interlingua_store::{Retention, RetentionReport, Version, attached_keys, part_keys};

impl WriteTransaction<'_> {
    pub(super) fn retain(&mut self, policy: &Retention, now: Millis) -> Result<RetentionReport, QueryError> {
        let mut report = retain_at_once(&mut SqliteRetention { transaction: self, policy }, policy, now)?;
        report.more |= self.shrink()?;
        Ok(report)
    }

    fn ended(&self, of: RunSelection<'_>) -> Result<Vec<Candidate>, QueryError> {
        let RunSelection { route, owner, before, limit } = of;
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
        and(" ORDER BY changed_at, id LIMIT ?", Value::Integer(limit_of(limit)));

        let mut oldest = self.sql.prepare_cached(&sql)?;
        Ok(oldest.query_map(params_from_iter(values), candidate_from_row(route))?.collect::<Result<_, _>>()?)
    }

    /// Waiting runs without a change since `waiting_before`, oldest first, at most a batch.
    fn stale(&self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, QueryError> {
        let of_route = if rules.route.is_some() { "AND route = ?3" } else { "" };
        let stale = format!(
            "SELECT id FROM runs WHERE ended = 0 AND changed_at < ?1 AND state IN ('waiting', 'waiting_for_auth')
             {of_route} ORDER BY changed_at, id LIMIT ?2"
        );
        let values = [Value::Integer(int(rules.waiting_before)), Value::Integer(limit_of(BATCH))];
        let values = values.into_iter().chain(rules.route.map(|route| Value::Text(route.to_owned())));
        let mut stale = self.sql.prepare_cached(&stale)?;
        Ok(stale.query_map(params_from_iter(values), |row| id(row, 0))?.collect::<Result<_, _>>()?)
    }

    /// Deletes or hides a run, and deletes the documents attached to it.
    fn drop_run(&mut self, run: &Candidate, attached: &[String]) -> Result<(), QueryError> {
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
        let mut delete =
            self.sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key >= ?2 AND key < ?3")?;
        for collection in attached {
            delete.execute([collection, &from, &to])?;
        }
        Ok(())
    }

    fn old_documents(&self, of: DocumentSelection<'_>) -> Result<Vec<OldDocument>, QueryError> {
        let DocumentSelection { collection, owner, before, limit } = of;
        let mut sql = String::from(
            "SELECT key, version, length(value) + (
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
        values.push(Value::Integer(limit_of(limit)));

        let mut oldest = self.sql.prepare_cached(&sql)?;
        let oldest = oldest.query_map(params_from_iter(values), |row| {
            Ok(OldDocument { key: row.get(0)?, version: Version(unsigned(row, 1)?), size: unsigned(row, 2)? })
        })?;
        Ok(oldest.collect::<Result<_, _>>()?)
    }

    fn shares(&self, sql: &str, params: impl Params) -> Result<Shares, QueryError> {
        let share = |row: &Row<'_>| Ok((row.get(0)?, unsigned(row, 1)?));
        Ok(self.sql.prepare_cached(sql)?.query_map(params, share)?.collect::<Result<_, _>>()?)
    }
}

/// A retention pass in a transaction.
struct SqliteRetention<'a, 'b> {
    transaction: &'a mut WriteTransaction<'b>,
    policy: &'a Retention,
}

impl RetentionBackend for SqliteRetention<'_, '_> {
    type Error = QueryError;

    async fn ended_runs(&mut self, of: RunSelection<'_>) -> Result<Vec<Candidate>, QueryError> {
        self.transaction.ended(of)
    }

    async fn stale_runs(&mut self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, QueryError> {
        self.transaction.stale(rules)
    }

    async fn run_shares(&mut self, route: Option<&str>) -> Result<Shares, QueryError> {
        match route {
            Some(route) => self
                .transaction
                .shares("SELECT owner, count(*) FROM runs WHERE route = ?1 GROUP BY owner ORDER BY owner", [route]),
            None => self.transaction.shares("SELECT owner, runs FROM shares WHERE runs > 0 ORDER BY owner", []),
        }
    }

    async fn route_surplus(&mut self, route: &str, max: u64) -> Result<Shares, QueryError> {
        self.transaction.shares(
            "SELECT owner, count(*) - ?2 FROM runs WHERE route = ?1 GROUP BY owner HAVING count(*) > ?2",
            params![route, int(max)],
        )
    }

    async fn drop_runs(&mut self, runs: Vec<Candidate>) -> Result<Vec<Candidate>, QueryError> {
        for run in &runs {
            self.transaction.drop_run(run, &self.policy.attached)?;
        }
        Ok(runs)
    }

    async fn documents(&mut self, of: DocumentSelection<'_>) -> Result<Vec<OldDocument>, QueryError> {
        self.transaction.old_documents(of)
    }

    async fn document_shares(&mut self, collection: &str) -> Result<Shares, QueryError> {
        self.transaction.shares(
            "SELECT owner, count(*) FROM documents WHERE collection = ?1 GROUP BY owner ORDER BY owner",
            [collection],
        )
    }

    async fn delete_documents(&mut self, collection: &str, documents: Vec<OldDocument>) -> Result<usize, QueryError> {
        let sql = self.transaction.sql;
        let mut one = sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key = ?2")?;
        let mut range = sql.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND key >= ?2 AND key < ?3")?;

        let mut deleted = 0;
        for OldDocument { key, .. } in &documents {
            deleted += one.execute([collection, key])?;
            let (from, to) = part_keys(key);
            for (parts, _) in self.policy.parts.iter().filter(|(_, whole)| whole == collection) {
                range.execute([parts, &from, &to])?;
            }
        }
        Ok(deleted)
    }

    async fn byte_shares(&mut self) -> Result<Shares, QueryError> {
        self.transaction.shares("SELECT owner, bytes FROM shares WHERE bytes > 0 ORDER BY owner", [])
    }

    /// The pages in use: shares are estimates.
    async fn used_bytes(&mut self) -> Result<Option<u64>, QueryError> {
        self.transaction.used().map(Some)
    }
}

/// Parses a row into a candidate.
fn candidate_from_row(route: Option<&str>) -> impl Fn(&Row<'_>) -> Result<Candidate, rusqlite::Error> {
    let of_route = route.is_some();
    move |row| {
        let (id, owner, size) = (id(row, 0)?, row.get(1)?, unsigned(row, 3)?);
        Ok(Candidate { id, owner, hide_only: of_route && row.get(2)?, size })
    }
}

/// A number that is never negative.
fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
