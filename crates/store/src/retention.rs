//! The plan of a retention pass, the same for all stores: the runs of each route, all runs, the documents of each
//! collection, and then bytes. Each step deletes what is too old, then the oldest data of principals that exceed their
//! own limits ([`super::owner_bounds`]), and then the oldest data of the largest owners ([`super::fair`]). All
//! deletions of a step are one batch.
//!
//! A store implements [`RetentionBackend`] with its queries. Not here: waiting runs, which the engine ends.

use std::borrow::Cow;

use futures_util::FutureExt as _;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use super::fair::{self, OwnLoss};
use super::{Retention, RetentionReport, Version, before};

/// Maximum number of runs, or of documents, that one call of `retain` deletes per rule.
pub const BATCH: usize = 200;

/// The rules for a set of runs: those of a route, or all.
pub struct RuleSet<'a> {
    /// The route of the runs. `None`: all runs.
    pub route: Option<&'a str>,
    /// Runs that ended before this time are deleted.
    pub ended_before: Millis,
    /// Runs that have been waiting since before this time are stale.
    pub waiting_before: Millis,
    /// Maximum number of runs: per owner for a route, otherwise in total.
    pub max_runs: u64,
}

/// Ended runs, oldest change first.
#[derive(Clone, Copy)]
pub struct RunSelection<'a> {
    /// The route of the runs. `None`: any.
    pub route: Option<&'a str>,
    /// The owner of the runs, as the store keeps it. `None`: any.
    pub owner: Option<&'a str>,
    /// The runs changed before this time. `None`: any.
    pub before: Option<Millis>,
    /// Maximum number of runs, at least 1.
    pub limit: usize,
}

/// Documents of a collection, oldest write first.
#[derive(Clone, Copy)]
pub struct DocumentSelection<'a> {
    /// The collection.
    pub collection: &'a str,
    /// The owner of the documents, as the store keeps it. `None`: any.
    pub owner: Option<&'a str>,
    /// The documents were written before this time. `None`: any.
    pub before: Option<Millis>,
    /// Maximum number of documents, at least 1.
    pub limit: usize,
}

/// A run selected for deletion.
pub struct Candidate {
    /// The id of the run.
    pub id: RunId,
    /// The key of its owner, as the store keeps it.
    pub owner: String,
    /// True if the run is hidden instead of deleted, because other runs continue from it.
    pub hide_only: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// A document selected for deletion.
pub struct OldDocument {
    /// Its key, as the store keeps it.
    pub key: String,
    /// A document of another version was written since, and stays.
    pub version: Version,
    /// Its size in bytes, including its parts.
    pub size: u64,
}

/// Owners, as the store keeps them, each with a number of items or bytes.
pub type Shares = Vec<(String, u64)>;

/// The queries and deletions of a store. Owners are passed back as the store returned them.
pub trait RetentionBackend {
    /// The error of a query.
    type Error;

    /// The ended runs of a selection.
    fn ended_runs(&mut self, of: RunSelection<'_>) -> impl Future<Output = Result<Vec<Candidate>, Self::Error>>;

    /// Waiting runs that are stale by the rules, oldest first, at most [`BATCH`].
    fn stale_runs(&mut self, rules: &RuleSet<'_>) -> impl Future<Output = Result<Vec<RunId>, Self::Error>>;

    /// The number of runs of each owner on a route (`None`: on all), sorted by owner.
    fn run_shares(&mut self, route: Option<&str>) -> impl Future<Output = Result<Shares, Self::Error>>;

    /// The owners with more than `max` runs on a route, each with the excess.
    fn route_surplus(&mut self, route: &str, max: u64) -> impl Future<Output = Result<Shares, Self::Error>>;

    /// Deletes or hides runs, and deletes the documents attached to them. Returns the runs that are gone or hidden.
    fn drop_runs(&mut self, runs: Vec<Candidate>) -> impl Future<Output = Result<Vec<Candidate>, Self::Error>>;

    /// The documents of a selection.
    fn documents(&mut self, of: DocumentSelection<'_>) -> impl Future<Output = Result<Vec<OldDocument>, Self::Error>>;

    /// The number of documents of each owner in a collection, sorted by owner.
    fn document_shares(&mut self, collection: &str) -> impl Future<Output = Result<Shares, Self::Error>>;

    /// Deletes documents and their parts. Returns the number of deleted documents without parts.
    fn delete_documents(
        &mut self,
        collection: &str,
        documents: Vec<OldDocument>,
    ) -> impl Future<Output = Result<usize, Self::Error>>;

    /// The bytes of each owner, sorted by owner.
    fn byte_shares(&mut self) -> impl Future<Output = Result<Shares, Self::Error>>;

    /// The bytes in use. `None`: the sum of all shares.
    fn used_bytes(&mut self) -> impl Future<Output = Result<Option<u64>, Self::Error>>;

    /// The key of a principal, from the form in which the store keeps it.
    fn principal_key<'a>(&self, kept: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(kept)
    }
}

/// Deletes a batch of the data that the policy does not keep. After an error, `report` has the deletions before it.
///
/// # Errors
/// The first error of the backend.
pub async fn retain<B: RetentionBackend>(
    backend: &mut B,
    policy: &Retention,
    now: Millis,
    report: &mut RetentionReport,
) -> Result<(), B::Error> {
    let mut pass = RetentionPass { backend, policy, report };
    for rules in rule_sets(policy, now) {
        pass.delete_excess(Pool::Runs(rules.route), rules.ended_before, rules.max_runs).await?;
        pass.report_stale(&rules).await?;
    }
    for collection in &policy.collections {
        pass.delete_excess(Pool::Documents(collection), before(now, policy.age), policy.documents).await?;
    }

    pass.delete_own_bytes().await?;
    pass.delete_largest().await
}

/// The same for a backend whose futures are ready at once.
///
/// # Errors
/// The first error of the backend.
///
/// # Panics
/// If a future of the backend waits.
pub fn retain_at_once<B: RetentionBackend>(
    backend: &mut B,
    policy: &Retention,
    now: Millis,
) -> Result<RetentionReport, B::Error> {
    let mut report = RetentionReport::default();
    let done = retain(backend, policy, now, &mut report).now_or_never();
    done.expect("the backend never waits")?;
    Ok(report)
}

/// The rules of each route, and then those for all runs.
fn rule_sets(policy: &Retention, now: Millis) -> impl Iterator<Item = RuleSet<'_>> {
    let expired_before = before(now, policy.age);
    let routes = policy.routes.iter().map(move |(route, rules)| RuleSet {
        route: Some(route),
        ended_before: before(now, rules.ended_ttl),
        waiting_before: before(now, rules.waiting_ttl),
        max_runs: rules.max_runs,
    });
    let general =
        RuleSet { route: None, ended_before: expired_before, waiting_before: expired_before, max_runs: policy.runs };
    routes.chain([general])
}

/// Items that are counted together.
#[derive(Clone, Copy)]
enum Pool<'a> {
    /// The runs of a route. `None`: all runs.
    Runs(Option<&'a str>),
    /// The documents of a collection.
    Documents(&'a str),
}

/// One call of [`retain`].
struct RetentionPass<'a, B> {
    backend: &'a mut B,
    policy: &'a Retention,
    report: &'a mut RetentionReport,
}

impl<B: RetentionBackend> RetentionPass<'_, B> {
    /// Deletes a batch of the items that are too old or too many.
    async fn delete_excess(&mut self, pool: Pool<'_>, expired_before: Millis, max: u64) -> Result<(), B::Error> {
        let mut room = BATCH;
        room -= self.delete_oldest(pool, None, Some(expired_before), room).await?;
        room -= self.delete_own_surplus(pool, room).await?;
        room -= self.delete_surplus(pool, max, room).await?;

        self.report.more |= room == 0;
        Ok(())
    }

    async fn report_stale(&mut self, rules: &RuleSet<'_>) -> Result<(), B::Error> {
        for run in self.backend.stale_runs(rules).await? {
            if !self.report.stale.contains(&run) {
                self.report.stale.push(run);
            }
        }
        Ok(())
    }

    /// Deletes the oldest items of principals that exceed their own limits, at most `room`. Returns the number.
    async fn delete_own_surplus(&mut self, pool: Pool<'_>, room: usize) -> Result<usize, B::Error> {
        if self.policy.bounds.are_none() {
            return Ok(0);
        }
        let shares = self.shares(pool).await?;
        let losses = self.own_losses(&shares, pool);

        let mut taken = 0;
        for loss in &losses {
            let mut left = loss.over;
            for (owner, part) in loss.takes() {
                let limit = limit_of(part.min(left)).min(room - taken);
                let deleted = self.delete_oldest(pool, Some(owner), None, limit).await?;
                taken += deleted;
                left = left.saturating_sub(deleted as u64);
            }
        }
        Ok(taken)
    }

    /// Deletes the oldest items of the largest owners while there are more than `max`, at most `room`. Returns the
    /// number.
    async fn delete_surplus(&mut self, pool: Pool<'_>, max: u64, room: usize) -> Result<usize, B::Error> {
        if max == u64::MAX || room == 0 {
            return Ok(0);
        }
        // The maximum of a route holds for each owner, any other for all owners together.
        let (surplus, any_owner) = match pool {
            Pool::Runs(Some(route)) => (self.backend.route_surplus(route, max).await?, None),
            _ => {
                let shares = self.shares(pool).await?;
                let count = sum(&shares);
                // The largest owners may have no ended runs; then any owner loses some.
                (fair::losing(shares, count.saturating_sub(max)), Some((None, u64::MAX)))
            }
        };

        let (mut taken, mut left) = (0, sum(&surplus));
        let owners = surplus.iter().map(|(owner, over)| (Some(owner.as_str()), *over));
        for (owner, over) in owners.chain(any_owner) {
            let limit = limit_of(over.min(left)).min(room - taken);
            let deleted = self.delete_oldest(pool, owner, None, limit).await?;
            taken += deleted;
            left = left.saturating_sub(deleted as u64);
        }
        Ok(taken)
    }

    /// Deletes the bytes of principals that exceed their own limits.
    async fn delete_own_bytes(&mut self) -> Result<(), B::Error> {
        let policy = self.policy;
        if policy.bounds.are_none() {
            return Ok(());
        }
        let shares = self.backend.byte_shares().await?;
        let bound_of = |kept: &str| policy.bounds.for_principal(&self.backend.principal_key(kept)).bytes;
        let losses = fair::own_losses(&shares, bound_of);

        let mut deleted = 0;
        for loss in &losses {
            let mut left = loss.over;
            for (owner, part) in loss.takes() {
                if left == 0 || deleted >= BATCH {
                    break;
                }
                let freed = self.free_bytes(Some(owner), part.min(left), &mut deleted).await?;
                left = left.saturating_sub(freed);
            }
        }

        self.report.more |= deleted >= BATCH;
        Ok(())
    }

    /// While there are too many bytes, deletes runs and then documents of the largest owners.
    async fn delete_largest(&mut self) -> Result<(), B::Error> {
        let max = self.policy.bytes;
        if max == u64::MAX {
            return Ok(());
        }
        let used = self.backend.used_bytes().await?;
        if used.is_some_and(|used| used <= max) {
            return Ok(());
        }
        let shares = self.backend.byte_shares().await?;
        let over = used.unwrap_or_else(|| sum(&shares)).saturating_sub(max);
        if over == 0 {
            return Ok(());
        }

        let losing = fair::losing(shares, over);
        let owners = losing.iter().map(|(owner, loss)| (Some(owner.as_str()), *loss));
        let (mut freed, mut deleted) = (0, 0);
        // The largest owners may have no ended runs.
        for (owner, loss) in owners.chain([(None, over)]) {
            let loss = loss.min(over.saturating_sub(freed));
            freed += self.free_bytes(owner, loss, &mut deleted).await?;
            if freed >= over || deleted >= BATCH {
                break;
            }
        }

        if deleted > 0 {
            // Sizes are estimates, so the bytes in use are counted again.
            let is_over = self.backend.used_bytes().await?.map_or(freed < over, |used| used > max);
            self.report.more |= is_over;
        }
        Ok(())
    }

    /// Deletes an owner's oldest runs and then documents (`None`: any owner's), until this number of bytes is freed or
    /// the batch is full. Returns the freed bytes.
    async fn free_bytes(&mut self, owner: Option<&str>, mut left: u64, deleted: &mut usize) -> Result<u64, B::Error> {
        let mut freed = 0;
        if left > 0 && *deleted < BATCH {
            let of = RunSelection { route: None, owner, before: None, limit: BATCH - *deleted };
            let mut runs = self.backend.ended_runs(of).await?;
            freed += keep_until(&mut runs, |run| run.size, &mut left);
            *deleted += runs.len();
            self.drop_runs(runs).await?;
        }

        let policy = self.policy;
        for collection in &policy.collections {
            if left == 0 || *deleted >= BATCH {
                break;
            }
            let of = DocumentSelection { collection, owner, before: None, limit: BATCH - *deleted };
            let mut documents = self.backend.documents(of).await?;
            freed += keep_until(&mut documents, |document| document.size, &mut left);
            *deleted += documents.len();
            self.delete_documents(collection, documents).await?;
        }
        Ok(freed)
    }

    /// Deletes the oldest items of an owner that are older than a time (`None`: any), at most `limit`. Returns the
    /// number.
    async fn delete_oldest(
        &mut self,
        pool: Pool<'_>,
        owner: Option<&str>,
        before: Option<Millis>,
        limit: usize,
    ) -> Result<usize, B::Error> {
        if limit == 0 {
            return Ok(0);
        }

        match pool {
            Pool::Runs(route) => {
                let runs = self.backend.ended_runs(RunSelection { route, owner, before, limit }).await?;
                let count = runs.len();
                self.drop_runs(runs).await?;
                Ok(count)
            }
            Pool::Documents(collection) => {
                let of = DocumentSelection { collection, owner, before, limit };
                let documents = self.backend.documents(of).await?;
                let count = documents.len();
                self.delete_documents(collection, documents).await?;
                Ok(count)
            }
        }
    }

    async fn drop_runs(&mut self, runs: Vec<Candidate>) -> Result<(), B::Error> {
        if runs.is_empty() {
            return Ok(());
        }
        for run in self.backend.drop_runs(runs).await? {
            if run.hide_only { &mut self.report.hidden } else { &mut self.report.runs }.push(run.id);
        }
        Ok(())
    }

    async fn delete_documents(&mut self, collection: &str, documents: Vec<OldDocument>) -> Result<(), B::Error> {
        if !documents.is_empty() {
            self.report.documents += self.backend.delete_documents(collection, documents).await?;
        }
        Ok(())
    }

    async fn shares(&mut self, pool: Pool<'_>) -> Result<Shares, B::Error> {
        match pool {
            Pool::Runs(route) => self.backend.run_shares(route).await,
            Pool::Documents(collection) => self.backend.document_shares(collection).await,
        }
    }

    /// The principals that exceed their own limit of a pool.
    fn own_losses(&self, shares: &[(String, u64)], pool: Pool<'_>) -> Vec<OwnLoss> {
        fair::own_losses(shares, |kept| {
            let bounds = self.policy.bounds.for_principal(&self.backend.principal_key(kept));
            match pool {
                Pool::Runs(Some(_)) => bounds.route_runs,
                Pool::Runs(None) => bounds.runs,
                Pool::Documents(_) => bounds.documents,
            }
        })
    }
}

/// Keeps the first items until `left` bytes are reached, and subtracts their bytes from it. Returns their bytes.
fn keep_until<T>(items: &mut Vec<T>, size_of: impl Fn(&T) -> u64, left: &mut u64) -> u64 {
    let (mut count, mut freed) = (0, 0);
    while let Some(item) = items.get(count).filter(|_| *left > 0) {
        let size = size_of(item);
        *left = left.saturating_sub(size);
        freed += size;
        count += 1;
    }
    items.truncate(count);
    freed
}

fn sum(shares: &[(String, u64)]) -> u64 {
    shares.iter().fold(0, |sum, (_, share)| sum.saturating_add(*share))
}

fn limit_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
