//! The answers to those who wait for a flush: from what it came to, as the database has answered, or found again if
//! that answer was lost. Not here: sending it ([`super`]).

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::id::RunId;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::super::database::Database;
use super::super::results::{Results, place_in, written_in};
use super::super::work::WriteOutcome;
use super::Flush;
use interlingua_store::{Conflict, Journal, StoreError, Ticket, Version};

/// Finds the results of a flush that was applied, but whose answer was lost.
const CLAIMED: &str = "SELECT id FROM il.runs WHERE holder = $1 AND id = ANY ($2)";
/// One that came to rest in the same flush has no holder any more.
const OPENED: &str = "SELECT id FROM il.runs WHERE (holder = $1 OR holder IS NULL) AND id = ANY ($2)";
const DOCUMENTS_WRITTEN: &str = "
    SELECT max(version), 1::bigint FROM il.documents
    WHERE writer = $1 AND (collection, key) IN (SELECT * FROM unnest($2::text[], $3::text[]))";
const DOCUMENTS_THERE: &str = "
    SELECT key FROM il.documents WHERE (collection, key) IN (SELECT * FROM unnest($1::text[], $2::text[]))";
const RUNS_THERE: &str = "SELECT id FROM il.runs WHERE id = ANY ($1)";
const QUEUED: &str = "SELECT number, false FROM il.tickets WHERE session = $1 AND id = $2";

impl Flush {
    /// The results of a flush that was applied, and whose answer was lost with its connection.
    pub(in super::super) async fn find_results(&self, database: &Database) -> Result<Results, Error> {
        let ids: Vec<Uuid> = self.claims.iter().map(|claim| claim.run.id().0).collect();
        let claimed = database.rows(CLAIMED, &[(&self.replica, Type::UUID), (&ids, Type::UUID_ARRAY)]).await?;
        let new: Vec<Uuid> = self.runs.new.iter().map(|row| row.head.id).collect();
        let opened = database.rows(OPENED, &[(&self.replica, Type::UUID), (&new, Type::UUID_ARRAY)]).await?;
        let mut results = Results {
            opened: opened.iter().map(|row| row.get(0)).collect(),
            claimed: claimed.iter().map(|row| row.get(0)).collect(),
            heads: None,
            removed: self.find_removed(database).await?,
            written: Vec::new(),
            queued: Vec::new(),
        };
        for work in &self.documents {
            let collections: Vec<&str> = work.writes.iter().map(|write| &*write.collection).collect();
            let keys: Vec<&str> = work.writes.iter().map(|write| &*write.key).collect();
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(&work.id, Type::UUID), (&collections, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
            let rows = database.rows(DOCUMENTS_WRITTEN, &parameters).await?;
            let only_deletes = work.writes.iter().all(|write| write.value.is_none());
            let has_conditions = work.writes.iter().any(|write| write.expected >= 0);
            results.written.push(if !only_deletes {
                written_in(&rows)
            } else if has_conditions && database.row(DOCUMENTS_THERE, &parameters[1..]).await?.is_some() {
                Err(Conflict)
            } else {
                Ok(WriteOutcome { version: Version(0), deleted: true })
            });
        }
        for queueing in &self.queueing {
            let rows = database.rows(QUEUED, &[(&queueing.session, Type::TEXT), (&queueing.id, Type::UUID)]).await?;
            results.queued.push(place_in(&rows));
        }
        Ok(results)
    }

    /// A run that is still there is held by another replica.
    async fn find_removed(&self, database: &Database) -> Result<Vec<Result<bool, StoreError>>, Error> {
        let ids: Vec<Uuid> = self.removes.iter().map(|(run, _)| run.0).collect();
        let there: HashSet<Uuid> = match ids.as_slice() {
            [] => HashSet::new(),
            ids => {
                let rows = database.rows(RUNS_THERE, &[(&ids, Type::UUID_ARRAY)]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        };
        Ok(ids.iter().map(|id| if there.contains(id) { Err(StoreError::Fenced) } else { Ok(true) }).collect())
    }

    /// Answers those who wait. `lose` is called before, with each run that this replica holds no longer.
    pub(in super::super) fn finish(self, results: Results, mut lose: impl FnMut(&Arc<dyn Journal>)) {
        let mut lost = HashSet::new();
        for claim in self.claims {
            let is_claimed = results.claimed.contains(&claim.run.id().0);
            if !is_claimed {
                lost.insert(claim.run.id());
                lose(&claim.run);
            }
            let _ = claim.reply.send(if is_claimed { Ok(()) } else { Err(StoreError::Fenced) });
        }
        let opened: HashSet<&Uuid> = results.opened.iter().collect();
        lost.extend(self.runs.new.iter().map(|row| RunId(row.head.id)).filter(|id| !opened.contains(&id.0)));
        if let Some(heads) = &results.heads {
            let written: HashSet<&Uuid> = heads.iter().collect();
            lost.extend(
                self.runs.heads.iter().map(|head| &head.id).filter(|id| !written.contains(id)).map(|id| RunId(*id)),
            );
        }

        for durable in self.runs.durable {
            if lost.contains(&durable.run.id()) {
                lose(&durable.run);
                continue;
            }
            durable.run.committed(durable.events);
            if durable.archived > 0 {
                durable.run.archived(durable.archived);
            }
        }

        for (run, reply) in self.waiting {
            let is_lost = run.is_some_and(|run| lost.contains(&run));
            let _ = reply.send(if is_lost { Err(StoreError::Fenced) } else { Ok(()) });
        }
        for ((_, reply), removed) in self.removes.into_iter().zip(results.removed) {
            let _ = reply.send(removed);
        }
        for (work, written) in self.documents.into_iter().zip(results.written) {
            let _ = work.reply.send(Ok(written));
        }
        for (queueing, place) in self.queueing.into_iter().zip(results.queued) {
            let ticket = place.map(|(number, is_first)| Ticket { session: queueing.session, number, is_first });
            let _ = queueing.reply.send(Ok(ticket));
        }
        if let Some(reply) = self.closing {
            let _ = reply.send(Ok(()));
        }
    }

    /// Answers those who wait with an error. `lose` is called before, with each run that it was about.
    pub(in super::super) fn fail(self, error: &StoreError, lose: impl FnMut(&Arc<dyn Journal>)) {
        let durable = self.runs.durable.iter().map(|durable| &durable.run);
        durable.chain(self.claims.iter().map(|claim| &claim.run)).for_each(lose);
        for claim in self.claims {
            let _ = claim.reply.send(Err(error.clone()));
        }
        for (_, reply) in self.waiting {
            let _ = reply.send(Err(error.clone()));
        }
        for (_, reply) in self.removes {
            let _ = reply.send(Err(error.clone()));
        }
        for work in self.documents {
            let _ = work.reply.send(Err(error.clone()));
        }
        for queueing in self.queueing {
            let _ = queueing.reply.send(Err(error.clone()));
        }
        if let Some(reply) = self.closing {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
