//! What retention takes away: all runs by age and number, those of some routes by rules of their own, documents that
//! go with a run, and idle ones. A small batch at a time, found by indexes. Not here: what is told of waiting runs is
//! done by the engine.

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::reader::{Failed, id, int};
use super::writer::Writing;
use crate::store::{Retention, Swept, attached_keys, before};

/// How many runs or documents of one kind one round of retention takes.
const BATCH: usize = 200;

/// Runs that are kept by the same rules: those of a route, or all.
struct Kin<'a> {
    route: Option<&'a str>,
    /// Those that ended before are taken.
    ended: Millis,
    /// Those that have waited since before are stale.
    waiting: Millis,
    most: u64,
}

/// A run to be taken.
struct Old {
    id: RunId,
    owner: String,
    /// It is only hidden.
    remembered: bool,
}

impl Writing<'_> {
    pub(super) fn retain(&mut self, policy: &Retention, now: Millis) -> Result<Swept, Failed> {
        let mut swept = Swept::default();
        let all = before(now, policy.age);
        let routes = policy.routes.iter().map(|(route, keep)| Kin {
            route: Some(route),
            ended: before(now, keep.ended),
            waiting: before(now, keep.waiting),
            most: keep.most,
        });
        for kin in routes.chain([Kin { route: None, ended: all, waiting: all, most: policy.runs }]) {
            let old = self.old(&kin)?;
            swept.more |= old.len() >= BATCH;
            for run in old {
                self.take(&run, policy)?;
                if run.remembered { &mut swept.hidden } else { &mut swept.runs }.push(run.id);
            }
            for run in self.stale(&kin)? {
                if !swept.stale.contains(&run) {
                    swept.stale.push(run);
                }
            }
        }
        self.forget_idle(policy, all, &mut swept)?;
        Ok(swept)
    }

    /// Those of its kin whose time is over, and those that are too many, whichever ended first.
    fn old(&self, kin: &Kin<'_>) -> Result<Vec<Old>, Failed> {
        let (count, of_route) = match kin.route {
            Some(_) => ("SELECT count(*) FROM runs WHERE route = ?1", "AND route = ?1"),
            None => ("SELECT count(*) FROM runs", ""),
        };
        let count: i64 = self.sql.prepare_cached(count)?.query_row(params_from_iter(kin.route), |row| row.get(0))?;
        let over = usize::try_from(count.saturating_sub(int(kin.most))).unwrap_or(0);
        let oldest = format!(
            "SELECT id, changed_at, owner, remembered FROM runs WHERE ended = 1 {of_route} ORDER BY changed_at, id"
        );
        let mut oldest = self.sql.prepare_cached(&oldest)?;
        let mut rows = oldest.query(params_from_iter(kin.route))?;
        let mut old = Vec::new();
        while old.len() < BATCH
            && let Some(row) = rows.next()?
        {
            if old.len() >= over && row.get::<_, i64>(1)? >= int(kin.ended) {
                break;
            }
            let remembered = kin.route.is_some() && row.get(3)?;
            old.push(Old { id: id(row, 0)?, owner: row.get(2)?, remembered });
        }
        Ok(old)
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

    fn forget_idle(&self, policy: &Retention, before: Millis, swept: &mut Swept) -> Result<(), Failed> {
        let mut idle = self.sql.prepare_cached(
            "DELETE FROM documents WHERE rowid IN
             (SELECT rowid FROM documents WHERE collection = ?1 AND put_at < ?2 LIMIT ?3)",
        )?;
        for collection in &policy.collections {
            let forgotten = idle.execute(params![collection, int(before), batch()])?;
            swept.documents += forgotten;
            swept.more |= forgotten >= BATCH;
        }
        Ok(())
    }
}

fn batch() -> i64 {
    i64::try_from(BATCH).unwrap_or(i64::MAX)
}
