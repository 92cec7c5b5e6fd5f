//! Retention: deletes all runs by age, number and bytes, those of some routes by rules of their own, documents attached
//! to a run, idle documents, and what replicas leave behind. One small batch at a time, found through indexes, each in a
//! transaction of its own; what another replica writes at this moment stays. Where there is too much data, the largest
//! owners lose first ([`interlingua_store::fair`]). Not here: waiting runs, which the engine ends, and what single principals
//! may keep ([`super::own_bounds`]).

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
use interlingua_store::rules::{BATCH, Candidate, RuleSet, has_to_go, rule_sets};
use interlingua_store::{Retention, RetentionReport, StoreError, attached_keys, before, fair};

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

    let mut round = RetentionPass { inner, policy, report: RetentionReport::default() };
    let done = round.run(now).await;
    if let Err(error) = leases::release(inner, LEASE, &holder).await {
        tracing::debug!(%error, "cannot release the lock of the retention pass");
    }
    match done {
        Ok(()) => Ok(round.report),
        // The deletions so far are reported.
        Err(error) if round.report != RetentionReport::default() => {
            tracing::warn!(%error, "cannot delete all old runs and documents");
            Ok(round.report)
        }
        Err(error) => Err(error),
    }
}

/// A document selected for deletion.
pub(super) struct OldDocument {
    key: String,
    version: i64,
    /// Including its parts.
    size: u64,
}

/// One call of `retain`. Owners and keys are as the database keeps them ([`text`]).
pub(super) struct RetentionPass<'a> {
    inner: &'a Inner,
    pub(super) policy: &'a Retention,
    pub(super) report: RetentionReport,
}

impl RetentionPass<'_> {
    async fn run(&mut self, now: Millis) -> Result<(), StoreError> {
        for rules in rule_sets(self.policy, now) {
            self.drop_by(&rules).await?;
        }
        self.delete_idle(before(now, self.policy.age)).await?;
        self.delete_own_bytes().await?;
        self.delete_largest().await?;
        self.delete_left_behind().await
    }

    /// Every statement by itself: none waits for others of this round.
    pub(super) async fn rows(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, StoreError> {
        self.inner.reads.read(async |database| Ok(database.rows(sql, parameters).await?)).await
    }

    /// Applies the rules for a set of runs.
    async fn drop_by(&mut self, rules: &RuleSet<'_>) -> Result<(), StoreError> {
        let expired = self.ended(rules.route, None, Some(rules.ended_before), BATCH).await?;
        let mut room = BATCH - expired.len();
        self.drop_runs(&expired).await?;
        room -= self.drop_own_surplus(rules.route, room).await?;

        let surplus = if room > 0 { self.surplus(rules).await? } else { Vec::new() };
        let mut left: u64 = surplus.iter().map(|(_, over)| *over).sum();
        let surplus = surplus.into_iter().map(|(owner, over)| (Some(owner), over));
        // The largest owners may have no ended runs; then any owner loses some.
        for (owner, over) in surplus.chain(rules.route.is_none().then_some((None, u64::MAX))) {
            let limit = usize::try_from(over.min(left)).unwrap_or(usize::MAX).min(room);
            let candidates = self.ended(rules.route, owner.as_deref(), None, limit).await?;
            room -= candidates.len();
            left = left.saturating_sub(candidates.len() as u64);
            self.drop_runs(&candidates).await?;
        }

        self.report.more |= room == 0;
        for run in self.stale(rules).await? {
            if !self.report.stale.contains(&run) {
                self.report.stale.push(run);
            }
        }
        Ok(())
    }

    /// Ended runs of a route and an owner that changed before a time (`None`: any), oldest first.
    pub(super) async fn ended(
        &self,
        route: Option<&str>,
        owner: Option<&str>,
        before: Option<Millis>,
        limit: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (of_route, route) = (route.is_some(), route.map(text::kept));
        let (before, limit) = (before.map(int), limit_of(limit));
        let parameters: [(&(dyn ToSql + Sync), Type); 4] =
            [(&route, Type::TEXT), (&owner, Type::TEXT), (&before, Type::INT8), (&limit, Type::INT8)];
        let candidate = |row: &Row| Candidate {
            id: RunId(row.get(0)),
            owner: row.get(1),
            hide_only: of_route && row.get(2),
            size: unsigned(row, 3),
        };
        Ok(self.rows(ENDED, &parameters).await?.iter().map(candidate).collect())
    }

    /// Owners with too many runs, and how many each has to lose.
    async fn surplus(&self, rules: &RuleSet<'_>) -> Result<Vec<(String, u64)>, StoreError> {
        if rules.max_runs == u64::MAX {
            return Ok(Vec::new());
        }
        if let Some(route) = rules.route {
            let (route, most) = (text::kept(route), int(rules.max_runs));
            return self.shares(SURPLUS_OF_ROUTE, &[(&route, Type::TEXT), (&most, Type::INT8)]).await;
        }
        let shares = self.run_shares(None).await?;
        let count: u64 = shares.iter().map(|(_, runs)| *runs).sum();
        Ok(fair::losing(shares, count.saturating_sub(rules.max_runs)))
    }

    async fn stale(&self, rules: &RuleSet<'_>) -> Result<Vec<RunId>, StoreError> {
        let (before, route, limit) = (int(rules.waiting_before), rules.route.map(text::kept), limit_of(BATCH));
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&before, Type::INT8), (&route, Type::TEXT), (&limit, Type::INT8)];
        Ok(self.rows(STALE, &parameters).await?.iter().map(|row| RunId(row.get(0))).collect())
    }

    /// Deletes or hides runs, and deletes the documents attached to them.
    pub(super) async fn drop_runs(&mut self, runs: &[Candidate]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
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
        for run in runs.iter().filter(|run| !left.contains(&run.id.0)) {
            if run.hide_only { &mut self.report.hidden } else { &mut self.report.runs }.push(run.id);
        }
        Ok(())
    }

    /// Deletes documents that have not been written for long, and those above a collection's maximum.
    async fn delete_idle(&mut self, before: Millis) -> Result<(), StoreError> {
        for collection in &self.policy.collections {
            let idle = self.documents(collection, None, Some(before), BATCH).await?;
            let mut room = BATCH - idle.len();
            self.delete_documents(collection, &idle).await?;
            room -= self.delete_own_surplus(collection, room).await?;

            if self.policy.documents < u64::MAX {
                let shares = self.document_shares(collection).await?;
                let count: u64 = shares.iter().map(|(_, count)| *count).sum();
                for (owner, loss) in fair::losing(shares, count.saturating_sub(self.policy.documents)) {
                    let limit = usize::try_from(loss).unwrap_or(usize::MAX).min(room);
                    let surplus = self.documents(collection, Some(&owner), None, limit).await?;
                    room -= surplus.len();
                    self.delete_documents(collection, &surplus).await?;
                }
            }
            self.report.more |= room == 0;
        }
        Ok(())
    }

    /// While there are too many bytes, deletes runs and then documents of the largest owners.
    async fn delete_largest(&mut self) -> Result<(), StoreError> {
        if self.policy.bytes == u64::MAX {
            return Ok(());
        }
        let shares = self.byte_shares().await?;
        let used: u64 = shares.iter().map(|(_, bytes)| *bytes).sum();
        let over = used.saturating_sub(self.policy.bytes);
        if over == 0 {
            return Ok(());
        }

        let losing = fair::losing(shares, over);
        let mut owners: Vec<(Option<String>, u64)> =
            losing.into_iter().map(|(owner, loss)| (Some(owner), loss)).collect();
        // The largest owners may have no ended runs.
        owners.push((None, over));

        let (mut freed, mut deleted) = (0, 0);
        for (owner, loss) in owners {
            let loss = loss.min(over.saturating_sub(freed));
            freed += self.free_bytes(owner.as_deref(), loss, &mut deleted).await?;
            if freed >= over || deleted >= BATCH {
                break;
            }
        }
        self.report.more |= deleted > 0 && freed < over;
        Ok(())
    }

    /// Deletes an owner's oldest runs and then documents (`None`: any owner's), until this number of bytes is freed or
    /// the batch is full. Returns the freed bytes.
    pub(super) async fn free_bytes(
        &mut self,
        owner: Option<&str>,
        mut left: u64,
        deleted: &mut usize,
    ) -> Result<u64, StoreError> {
        let runs = self.ended(None, owner, None, BATCH.saturating_sub(*deleted)).await?;
        let runs: Vec<Candidate> = runs.into_iter().take_while(|run| has_to_go(run.size, &mut left)).collect();
        let mut freed: u64 = runs.iter().map(|run| run.size).sum();
        *deleted += runs.len();
        self.drop_runs(&runs).await?;

        for collection in &self.policy.collections {
            if left == 0 {
                break;
            }
            let idle = self.documents(collection, owner, None, BATCH.saturating_sub(*deleted)).await?;
            let idle: Vec<OldDocument> =
                idle.into_iter().take_while(|document| has_to_go(document.size, &mut left)).collect();
            freed += idle.iter().map(|document| document.size).sum::<u64>();
            *deleted += idle.len();
            self.delete_documents(collection, &idle).await?;
        }
        Ok(freed)
    }

    /// Documents of a collection and an owner that were written before a time (`None`: any), oldest first.
    pub(super) async fn documents(
        &self,
        collection: &str,
        owner: Option<&str>,
        before: Option<Millis>,
        limit: usize,
    ) -> Result<Vec<OldDocument>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (before, limit, parts) = (before.map(int), limit_of(limit), self.parts_of(collection));
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&collection, Type::TEXT),
            (&owner, Type::TEXT),
            (&before, Type::INT8),
            (&limit, Type::INT8),
            (&parts, Type::TEXT_ARRAY),
        ];
        let document = |row: &Row| OldDocument { key: row.get(0), version: row.get(1), size: unsigned(row, 2) };
        Ok(self.rows(DOCUMENTS, &parameters).await?.iter().map(document).collect())
    }

    /// Deletes documents and their parts.
    pub(super) async fn delete_documents(
        &mut self,
        collection: &str,
        documents: &[OldDocument],
    ) -> Result<(), StoreError> {
        if documents.is_empty() {
            return Ok(());
        }
        let keys: Vec<&str> = documents.iter().map(|document| &*document.key).collect();
        let versions: Vec<i64> = documents.iter().map(|document| document.version).collect();
        let parts = self.parts_of(collection);
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&collection, Type::TEXT),
            (&keys, Type::TEXT_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&parts, Type::TEXT_ARRAY),
        ];
        let deleted = self.rows(DELETE, &parameters).await?;
        let deleted = deleted.first().map_or(0, |row| unsigned(row, 0));
        self.report.documents += usize::try_from(deleted).unwrap_or(usize::MAX);
        Ok(())
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

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A number that is never negative.
pub(super) fn unsigned(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}
