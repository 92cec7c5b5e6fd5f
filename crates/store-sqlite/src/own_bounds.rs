//! Limits of single principals in SQLite: a principal that exceeds its limit loses its own oldest runs and documents.
//! Not here: the limits over all principals ([`super::retention`]).

use rusqlite::{Params, Row};

use super::reader::QueryError;
use super::transaction::WriteTransaction;
use interlingua_store::fair::{self, OwnLoss};
use interlingua_store::rules::BATCH;
use interlingua_store::{Retention, RetentionReport};

impl WriteTransaction<'_> {
    /// Deletes the oldest runs of principals with too many of them on a route (`None`: at all), at most `room`. Returns
    /// how many.
    pub(super) fn drop_own_surplus(
        &mut self,
        route: Option<&str>,
        room: usize,
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<usize, QueryError> {
        if policy.bounds.are_none() {
            return Ok(0);
        }
        let bound_of = |principal: &str| {
            let bounds = policy.bounds.for_principal(principal);
            if route.is_some() { bounds.route_runs } else { bounds.runs }
        };

        let losses = fair::own_losses(&self.run_shares(route)?, bound_of);
        take_each(&losses, room, |owner, limit| {
            let runs = self.ended(route, Some(owner), None, limit)?;
            self.drop_runs(&runs, policy, report)?;
            Ok(runs.len())
        })
    }

    /// The same for the documents of a collection.
    pub(super) fn delete_own_surplus(
        &self,
        collection: &str,
        room: usize,
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<usize, QueryError> {
        if policy.bounds.are_none() {
            return Ok(0);
        }
        let losses = fair::own_losses(&self.document_shares(collection)?, |principal| {
            policy.bounds.for_principal(principal).documents
        });
        take_each(&losses, room, |owner, limit| {
            let documents = self.documents(collection, Some(owner), None, limit)?;
            self.delete_documents(collection, &documents, policy, report)?;
            Ok(documents.len())
        })
    }

    /// Deletes the oldest runs and then documents of principals that have too many bytes.
    pub(super) fn delete_own_bytes(
        &mut self,
        policy: &Retention,
        report: &mut RetentionReport,
    ) -> Result<(), QueryError> {
        if policy.bounds.are_none() {
            return Ok(());
        }
        let losses = fair::own_losses(&self.byte_shares()?, |principal| policy.bounds.for_principal(principal).bytes);
        let mut deleted = 0;
        for loss in &losses {
            let mut left = loss.over;
            for (owner, part) in loss.takes() {
                if left == 0 || deleted >= BATCH {
                    break;
                }
                let freed = self.free_bytes(Some(owner), part.min(left), &mut deleted, policy, report)?;
                left = left.saturating_sub(freed);
            }
        }

        report.more |= deleted >= BATCH;
        Ok(())
    }

    /// The number of runs of each owner on a route. `None`: on all routes.
    pub(super) fn run_shares(&self, route: Option<&str>) -> Result<Vec<(String, u64)>, QueryError> {
        match route {
            Some(route) => {
                self.shares("SELECT owner, count(*) FROM runs WHERE route = ?1 GROUP BY owner ORDER BY owner", [route])
            }
            None => self.shares("SELECT owner, runs FROM shares WHERE runs > 0 ORDER BY owner", []),
        }
    }

    /// The number of documents of each owner in a collection.
    pub(super) fn document_shares(&self, collection: &str) -> Result<Vec<(String, u64)>, QueryError> {
        self.shares(
            "SELECT owner, count(*) FROM documents WHERE collection = ?1 GROUP BY owner ORDER BY owner",
            [collection],
        )
    }

    /// The bytes of each owner.
    pub(super) fn byte_shares(&self) -> Result<Vec<(String, u64)>, QueryError> {
        self.shares("SELECT owner, bytes FROM shares WHERE bytes > 0 ORDER BY owner", [])
    }

    fn shares(&self, sql: &str, params: impl Params) -> Result<Vec<(String, u64)>, QueryError> {
        let share = |row: &Row<'_>| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)));
        Ok(self.sql.prepare_cached(sql)?.query_map(params, share)?.collect::<Result<_, _>>()?)
    }
}

/// Takes from each owner what it has to lose, at most `room` in all. `take` gets an owner and a number, and returns how
/// many it took. Returns the sum.
fn take_each(
    losses: &[OwnLoss],
    room: usize,
    mut take: impl FnMut(&str, usize) -> Result<usize, QueryError>,
) -> Result<usize, QueryError> {
    let mut taken = 0;
    for loss in losses {
        let mut left = loss.over;
        for (owner, part) in loss.takes() {
            let limit = usize::try_from(part.min(left)).unwrap_or(usize::MAX).min(room - taken);
            if limit > 0 {
                let now = take(owner, limit)?;
                taken += now;
                left = left.saturating_sub(now as u64);
            }
        }
    }

    Ok(taken)
}
