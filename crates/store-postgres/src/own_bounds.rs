//! Limits of single principals in PostgreSQL: a principal that exceeds its limit loses its own oldest runs and
//! documents. Each owner's amount is counted in indexes on demand: counters in every flush would make the flushes of
//! all replicas wait for each other. Not here: the limits over all principals ([`super::retention`]).

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::database::Parameters;
use super::retention::{RetentionPass, unsigned};
use super::text;
use interlingua_store::StoreError;
use interlingua_store::fair::{self, OwnLoss};
use interlingua_store::rules::BATCH;

const RUNS: &str = "SELECT owner, count(*) FROM il.runs GROUP BY owner ORDER BY owner";
const RUNS_OF_ROUTE: &str = "SELECT owner, count(*) FROM il.runs WHERE route = $1 GROUP BY owner ORDER BY owner";
const DOCUMENTS: &str = "SELECT owner, count(*) FROM il.documents WHERE collection = $1 GROUP BY owner ORDER BY owner";
const BYTES: &str = "
    SELECT owner, sum(bytes)::bigint FROM (
        SELECT owner, sum(size) AS bytes FROM il.runs GROUP BY owner
        UNION ALL SELECT owner, sum(size) FROM il.documents GROUP BY owner) AS shares
    GROUP BY owner ORDER BY owner";

impl RetentionPass<'_> {
    /// Deletes the oldest runs of principals with too many of them on a route (`None`: at all), at most `room`. Returns
    /// how many.
    pub(super) async fn drop_own_surplus(&mut self, route: Option<&str>, room: usize) -> Result<usize, StoreError> {
        let policy = self.policy;
        if policy.bounds.are_none() {
            return Ok(0);
        }
        let bound_of = |principal: &str| {
            let bounds = policy.bounds.for_principal(&text::original(principal));
            if route.is_some() { bounds.route_runs } else { bounds.runs }
        };

        let losses = fair::own_losses(&self.run_shares(route).await?, bound_of);
        take_each(&losses, room, async |owner, limit| {
            let runs = self.ended(route, Some(owner), None, limit).await?;
            self.drop_runs(&runs).await?;
            Ok(runs.len())
        })
        .await
    }

    /// The same for the documents of a collection.
    pub(super) async fn delete_own_surplus(&mut self, collection: &str, room: usize) -> Result<usize, StoreError> {
        let policy = self.policy;
        if policy.bounds.are_none() {
            return Ok(0);
        }
        let bound_of = |principal: &str| policy.bounds.for_principal(&text::original(principal)).documents;
        let losses = fair::own_losses(&self.document_shares(collection).await?, bound_of);
        take_each(&losses, room, async |owner, limit| {
            let documents = self.documents(collection, Some(owner), None, limit).await?;
            self.delete_documents(collection, &documents).await?;
            Ok(documents.len())
        })
        .await
    }

    /// Deletes the oldest runs and then documents of principals that have too many bytes.
    pub(super) async fn delete_own_bytes(&mut self) -> Result<(), StoreError> {
        let policy = self.policy;
        if policy.bounds.are_none() {
            return Ok(());
        }
        let bound_of = |principal: &str| policy.bounds.for_principal(&text::original(principal)).bytes;
        let losses = fair::own_losses(&self.byte_shares().await?, bound_of);
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

    /// The number of runs of each owner on a route. `None`: on all routes.
    pub(super) async fn run_shares(&self, route: Option<&str>) -> Result<Vec<(String, u64)>, StoreError> {
        match route.map(text::kept) {
            Some(route) => self.shares(RUNS_OF_ROUTE, &[(&route, Type::TEXT)]).await,
            None => self.shares(RUNS, &[]).await,
        }
    }

    /// The number of documents of each owner in a collection.
    pub(super) async fn document_shares(&self, collection: &str) -> Result<Vec<(String, u64)>, StoreError> {
        self.shares(DOCUMENTS, &[(&collection, Type::TEXT)]).await
    }

    /// The bytes of each owner.
    pub(super) async fn byte_shares(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.shares(BYTES, &[]).await
    }

    pub(super) async fn shares(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let share = |row: &Row| (row.get(0), unsigned(row, 1));
        Ok(self.rows(sql, parameters).await?.iter().map(share).collect())
    }
}

/// Takes from each owner what it has to lose, at most `room` in all. `take` gets an owner and a number, and returns how
/// many it took. Returns the sum.
async fn take_each(
    losses: &[OwnLoss],
    room: usize,
    mut take: impl AsyncFnMut(&str, usize) -> Result<usize, StoreError>,
) -> Result<usize, StoreError> {
    let mut taken = 0;
    for loss in losses {
        let mut left = loss.over;
        for (owner, part) in loss.takes() {
            let limit = usize::try_from(part.min(left)).unwrap_or(usize::MAX).min(room - taken);
            if limit > 0 {
                let now = take(owner, limit).await?;
                taken += now;
                left = left.saturating_sub(now as u64);
            }
        }
    }

    Ok(taken)
}
