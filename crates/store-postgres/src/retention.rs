//! The queries and deletions of retention, and what replicas leave behind. One replica deletes at a time, and each
//! statement is a transaction of its own; data that another replica writes at this moment stays. Each owner's amount is
//! counted in indexes on demand: counters in every flush would make the flushes of all replicas wait for each other.
//! Not here: the order of the steps ([`interlingua_store::retention`]), and waiting runs, which the engine ends.

use std::borrow::Cow;
use std::collections::HashSet;

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Parameters;
use super::inner::Inner;
use super::leases;
use super::text;
use super::tracked::int;
use interlingua_store::retention::{
    self, BATCH, Candidate, DocumentSelection, OldDocument, RetentionBackend, RuleSet, RunSelection, Shares,
};
use interlingua_store::{Retention, RetentionReport, StoreError, Version, attached_keys};

/// The lease of the replica that deletes.
const LEASE: &str = "store/retention";
/// Far longer than a batch takes.
const LEASE_SECONDS: f64 = 60.0;

const ENDED: &str = "
    SELECT id, owner, remembered, size FROM il.runs
    WHERE ended AND ($1::text IS NULL OR route = $1) AND ($2::text IS NULL OR owner = $2)
      AND ($3::bigint IS NULL OR changed_at < $3)
    ORDER BY changed_at, id LIMIT $4";
const STALE: &str = "
    SELECT id FROM il.runs
    WHERE state IN ('waiting', 'waiting_for_auth') AND changed_at < $1 AND ($2::text IS NULL OR route = $2)
    ORDER BY changed_at, id LIMIT $3";
const SURPLUS_OF_ROUTE: &str = "
    SELECT owner, count(*) - $2 FROM il.runs WHERE route = $1 GROUP BY owner HAVING count(*) > $2 ORDER BY owner";
/// Nothing here waits for another replica: runs that one has locked are left for the next time.
const DROP: &str = "
    WITH chosen AS (SELECT id FROM il.runs WHERE id = ANY ($1) AND ended ORDER BY id FOR UPDATE SKIP LOCKED),
    hidden AS (UPDATE il.runs SET hidden = true, route = NULL WHERE id IN (SELECT id FROM chosen) AND id = ANY ($2)),
    gone AS (DELETE FROM il.runs WHERE id IN (SELECT id FROM chosen) AND id <> ALL ($2) RETURNING id),
    lines AS (DELETE FROM il.lines WHERE run IN (SELECT id FROM gone)),
    attached AS (
        DELETE FROM il.documents d
        USING unnest($3::text[]) AS of(collection), unnest($1::uuid[], $4::text[], $5::text[]) AS k(run, first, past)
        WHERE k.run IN (SELECT id FROM chosen) AND d.collection = of.collection AND d.key >= k.first AND d.key < k.past)
    SELECT count(*) FROM gone";
const LEFT: &str = "SELECT id FROM il.runs WHERE id = ANY ($1) AND NOT (hidden AND id = ANY ($2))";
const DOCUMENTS: &str = "
    SELECT key, version, size + coalesce((
        SELECT sum(p.size) FROM il.documents p
        WHERE p.collection = ANY ($5) AND p.key >= d.key || chr(28) AND p.key < d.key || chr(29)), 0)::bigint
    FROM il.documents d
    WHERE collection = $1 AND ($2::text IS NULL OR owner = $2) AND ($3::bigint IS NULL OR put_at < $3)
    ORDER BY put_at, key LIMIT $4";
/// One that was written since it was found stays, with its parts.
const DELETE: &str = "
    WITH chosen AS (
        SELECT d.collection, d.key FROM il.documents d JOIN unnest($2::text[], $3::bigint[]) AS c(key, version)
        ON d.key = c.key AND d.version = c.version WHERE d.collection = $1 FOR UPDATE OF d SKIP LOCKED),
    gone AS (
        DELETE FROM il.documents d USING chosen c WHERE d.collection = c.collection AND d.key = c.key RETURNING d.key),
    parts AS (
        DELETE FROM il.documents p USING gone g
        WHERE p.collection = ANY ($4) AND p.key >= g.key || chr(28) AND p.key < g.key || chr(29))
    SELECT count(*) FROM gone";

const RUN_SHARES: &str = "SELECT owner, count(*) FROM il.runs GROUP BY owner ORDER BY owner";
const RUN_SHARES_OF_ROUTE: &str = "SELECT owner, count(*) FROM il.runs WHERE route = $1 GROUP BY owner ORDER BY owner";
const DOCUMENT_SHARES: &str =
    "SELECT owner, count(*) FROM il.documents WHERE collection = $1 GROUP BY owner ORDER BY owner";
const BYTE_SHARES: &str = "
    SELECT owner, sum(bytes)::bigint FROM (
        SELECT owner, sum(size) AS bytes FROM il.runs GROUP BY owner
        UNION ALL SELECT owner, sum(size) FROM il.documents GROUP BY owner) AS shares
    GROUP BY owner ORDER BY owner";

/// Leftovers of replicas: expired entries, replicas that have left and own no run, and signals to them.
const LEFT_BEHIND: [&str; 5] = [
    "DELETE FROM il.follows WHERE (run, replica) IN (
        SELECT run, replica FROM il.follows WHERE until < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM il.leases WHERE name IN (
        SELECT name FROM il.leases WHERE until < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM il.signals WHERE replica <> ALL (ARRAY(SELECT id FROM il.replicas WHERE state <> 'left'))",
    "DELETE FROM il.log WHERE replica = ANY (ARRAY(SELECT id FROM il.replicas WHERE state = 'left'))",
    "DELETE FROM il.replicas WHERE state = 'left' AND renewed_at < clock_timestamp() - interval '1 hour'
        AND id <> ALL (ARRAY(SELECT DISTINCT holder FROM il.runs WHERE holder IS NOT NULL))
        AND id <> ALL (ARRAY(SELECT DISTINCT replica FROM il.tickets))",
];
/// Lines for turns in which no one is. Whether one is empty is decided once it is locked (`il.leave_turns`).
const EMPTY_LINES: &str = "
    SELECT session FROM il.turn_lines l WHERE NOT EXISTS (SELECT FROM il.tickets t WHERE t.session = l.session)
    LIMIT $1";
const DELETE_LINE: &str = "SELECT il.leave_turns(ARRAY[$1::text], ARRAY[]::bigint[], $2)";

/// Deletes a batch of what the policy does not keep; nothing while another replica does.
pub(super) async fn retain(inner: &Inner, policy: &Retention, now: Millis) -> Result<RetentionReport, StoreError> {
    // One replica at a time: the excess is counted before it is deleted.
    let holder = inner.replica().to_string();
    if !leases::acquire(inner, LEASE, &holder, LEASE_SECONDS).await? {
        return Ok(RetentionReport::default());
    }

    let (mut backend, mut report) = (PostgresRetention { inner, policy }, RetentionReport::default());
    let mut done = retention::retain(&mut backend, policy, now, &mut report).await;
    if done.is_ok() {
        done = backend.delete_left_behind().await;
    }
    if let Err(error) = leases::release(inner, LEASE, &holder).await {
        tracing::debug!(%error, "cannot release the lock of the retention pass");
    }
    match done {
        Ok(()) => Ok(report),
        // The deletions so far are reported.
        Err(error) if report != RetentionReport::default() => {
            tracing::warn!(%error, "retention stopped early: some old data is not deleted yet");
            Ok(report)
        }
        Err(error) => Err(error),
    }
}

/// One call of [`retain`]. Owners and keys are as the database keeps them ([`text`]).
struct PostgresRetention<'a> {
    inner: &'a Inner,
    policy: &'a Retention,
}

impl PostgresRetention<'_> {
    /// Every statement by itself: none waits for others of this pass.
    async fn rows(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, StoreError> {
        self.inner.reads.read(async |database| Ok(database.rows(sql, parameters).await?)).await
    }

    async fn shares(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Shares, StoreError> {
        let share = |row: &Row| (row.get(0), unsigned(row, 1));
        Ok(self.rows(sql, parameters).await?.iter().map(share).collect())
    }

    /// The collections of the parts of a collection's documents.
    fn parts_of(&self, collection: &str) -> Vec<&str> {
        let of = self.policy.parts.iter().filter(|(_, whole)| whole == collection);
        of.map(|(parts, _)| parts.as_str()).collect()
    }

    async fn delete_left_behind(&self) -> Result<(), StoreError> {
        for sql in LEFT_BEHIND {
            self.rows(sql, &[]).await?;
        }
        let none = Uuid::nil();
        for row in self.rows(EMPTY_LINES, &[(&limit_of(BATCH), Type::INT8)]).await? {
            let session: &str = row.get(0);
            self.rows(DELETE_LINE, &[(&session, Type::TEXT), (&none, Type::UUID)]).await?;
        }
        Ok(())
    }
}

impl RetentionBackend for PostgresRetention<'_> {
    type Error = StoreError;

    async fn ended_runs(&mut self, of: RunSelection<'_>) -> Result<Vec<Candidate>, StoreError> {
        let (of_route, route) = (of.route.is_some(), of.route.map(text::kept));
        let (before, limit) = (of.before.map(int), limit_of(of.limit));
        let parameters: [(&(dyn ToSql + Sync), Type); 4] =
            [(&route, Type::TEXT), (&of.owner, Type::TEXT), (&before, Type::INT8), (&limit, Type::INT8)];
        let candidate = |row: &Row| Candidate {
            id: RunId(row.get(0)),
            owner: row.get(1),
            hide_only: of_route && row.get(2),
            size: unsigned(row, 3),
        };
        Ok(self.rows(ENDED, &parameters).await?.iter().map(candidate).collect())
    }

    async fn stale_runs(&mut self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, StoreError> {
        let (before, route, limit) = (int(rules.waiting_before), rules.route.map(text::kept), limit_of(BATCH));
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&before, Type::INT8), (&route, Type::TEXT), (&limit, Type::INT8)];
        Ok(self.rows(STALE, &parameters).await?.iter().map(|row| RunId(row.get(0))).collect())
    }

    async fn run_shares(&mut self, route: Option<&str>) -> Result<Shares, StoreError> {
        match route.map(text::kept) {
            Some(route) => self.shares(RUN_SHARES_OF_ROUTE, &[(&route, Type::TEXT)]).await,
            None => self.shares(RUN_SHARES, &[]).await,
        }
    }

    async fn route_surplus(&mut self, route: &str, max: u64) -> Result<Shares, StoreError> {
        let (route, max) = (text::kept(route), int(max));
        self.shares(SURPLUS_OF_ROUTE, &[(&route, Type::TEXT), (&max, Type::INT8)]).await
    }

    async fn drop_runs(&mut self, mut runs: Vec<Candidate>) -> Result<Vec<Candidate>, StoreError> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.id.0).collect();
        let hidden: Vec<Uuid> = runs.iter().filter(|run| run.hide_only).map(|run| run.id.0).collect();
        let (from, to): (Vec<String>, Vec<String>) = runs.iter().map(|run| attached_keys(&run.owner, run.id)).unzip();
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&ids, Type::UUID_ARRAY),
            (&hidden, Type::UUID_ARRAY),
            (&self.policy.attached, Type::TEXT_ARRAY),
            (&from, Type::TEXT_ARRAY),
            (&to, Type::TEXT_ARRAY),
        ];
        self.rows(DROP, &parameters).await?;

        // Asked for afterwards: the statement may have been sent twice, because of a lost connection.
        let left = self.rows(LEFT, &[(&ids, Type::UUID_ARRAY), (&hidden, Type::UUID_ARRAY)]).await?;
        let left: HashSet<Uuid> = left.iter().map(|row| row.get(0)).collect();
        runs.retain(|run| !left.contains(&run.id.0));
        Ok(runs)
    }

    async fn documents(&mut self, of: DocumentSelection<'_>) -> Result<Vec<OldDocument>, StoreError> {
        let (before, limit, parts) = (of.before.map(int), limit_of(of.limit), self.parts_of(of.collection));
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&of.collection, Type::TEXT),
            (&of.owner, Type::TEXT),
            (&before, Type::INT8),
            (&limit, Type::INT8),
            (&parts, Type::TEXT_ARRAY),
        ];
        let document =
            |row: &Row| OldDocument { key: row.get(0), version: Version(unsigned(row, 1)), size: unsigned(row, 2) };
        Ok(self.rows(DOCUMENTS, &parameters).await?.iter().map(document).collect())
    }

    async fn document_shares(&mut self, collection: &str) -> Result<Shares, StoreError> {
        self.shares(DOCUMENT_SHARES, &[(&collection, Type::TEXT)]).await
    }

    async fn delete_documents(&mut self, collection: &str, documents: Vec<OldDocument>) -> Result<usize, StoreError> {
        let keys: Vec<&str> = documents.iter().map(|document| &*document.key).collect();
        let versions: Vec<i64> = documents.iter().map(|document| int(document.version.0)).collect();
        let parts = self.parts_of(collection);
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&collection, Type::TEXT),
            (&keys, Type::TEXT_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&parts, Type::TEXT_ARRAY),
        ];
        let deleted = self.rows(DELETE, &parameters).await?;
        let deleted = deleted.first().map_or(0, |row| unsigned(row, 0));
        Ok(usize::try_from(deleted).unwrap_or(usize::MAX))
    }

    async fn byte_shares(&mut self) -> Result<Shares, StoreError> {
        self.shares(BYTE_SHARES, &[]).await
    }

    async fn used_bytes(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    fn principal_key<'a>(&self, kept: &'a str) -> Cow<'a, str> {
        text::original(kept)
    }
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A number that is never negative.
fn unsigned(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}
