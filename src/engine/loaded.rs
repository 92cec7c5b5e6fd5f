//! Runs out of the store, for those who read them: one copy of each, however many read it, and a common bound on all.
//! Lists of runs, which load as little as they can.
//!
//! Not here: runs that may still grow ([`super::live`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use interlingua_core::call::{Cursor, Filter, RunView};
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, FaultKind, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Answer, Engine, RunHandle, Scope, clock, store_fault};
use crate::store::{Query, StoredRun};

/// So much memory all runs take that were loaded and are still looked at, in bytes.
const MAX_LOADED: usize = 256 << 20;
/// What a run takes in memory, for each byte that is stored of it: lines while they are read, and the record.
const GROWTH: u64 = 3;
/// Smaller runs are not waited for, whoever reads the large ones: their number is bounded by that of requests.
const SMALL: u64 = 64 << 10;
/// The pages of lists end when their runs have come to so many bytes.
const PAGE: u64 = 8 << 20;
/// Who waits for longer for others to have read is turned away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Room is given out in pieces of this, in bytes.
const PIECE: u64 = 1024;

/// A run out of the store, and the room it takes until the last of its readers has gone.
pub struct Loaded {
    stored: Arc<StoredRun>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Deref for Loaded {
    type Target = StoredRun;

    fn deref(&self) -> &StoredRun {
        &self.stored
    }
}

/// A run on the page of a list.
pub struct Shown {
    stored: Arc<StoredRun>,
    pending: Arc<[Pending]>,
    _loaded: Option<Arc<Loaded>>,
}

impl Shown {
    /// Shows it as it was when the page was made.
    #[must_use]
    pub fn view(&self) -> RunView<'_> {
        RunView { record: &self.stored.record, info: &self.stored.info, pending: &self.pending }
    }

    /// A copy of a run: nobody waits for its lock while an answer is written.
    fn of(run: &RunHandle, head: bool) -> Self {
        match run {
            RunHandle::Stored(loaded, pending) if !head => {
                let (stored, pending) = (Arc::clone(&loaded.stored), Arc::clone(pending));
                Self { stored, pending, _loaded: Some(Arc::clone(loaded)) }
            }
            // Where it stands shows in its end, which is told when it is safe.
            RunHandle::InMemory(live) if head && live.settling().is_none() => live.view(|view| {
                let stored = StoredRun::head(view.record, view.info);
                Self { stored: Arc::new(stored), pending: view.pending.into(), _loaded: None }
            }),
            run => run.view_safe(|view| {
                let stored = if head {
                    StoredRun::head(view.record, view.info)
                } else {
                    StoredRun { record: view.record.clone(), info: view.info.clone() }
                };
                Self { stored: Arc::new(stored), pending: view.pending.into(), _loaded: None }
            }),
        }
    }
}

/// What was loaded and is still looked at.
pub(super) struct Shelf {
    by_id: Mutex<HashMap<RunId, Place>>,
    room: Arc<Semaphore>,
}

/// Where one run stands.
struct Place {
    /// What it was loaded as.
    state: u64,
    loaded: Weak<Loaded>,
}

impl Default for Shelf {
    fn default() -> Self {
        let pieces = MAX_LOADED / usize::try_from(PIECE).unwrap_or(1);
        Self { by_id: Mutex::default(), room: Arc::new(Semaphore::new(pieces)) }
    }
}

impl Shelf {
    fn get(&self, id: RunId, state: u64) -> Option<Arc<Loaded>> {
        let by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        by_id.get(&id).filter(|place| place.state == state)?.loaded.upgrade()
    }

    /// Puts a run there; answers the one that somebody else was faster to put there.
    fn put(&self, id: RunId, state: u64, loaded: Loaded) -> Arc<Loaded> {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        let there = by_id.get(&id).filter(|place| place.state == state).and_then(|place| place.loaded.upgrade());
        if let Some(there) = there {
            return there;
        }
        let loaded = Arc::new(loaded);
        by_id.insert(id, Place { state, loaded: Arc::downgrade(&loaded) });
        if by_id.len() > 64 && by_id.len().is_power_of_two() {
            by_id.retain(|_, place| place.loaded.strong_count() > 0);
        }
        loaded
    }

    /// Room for a run; waits for it unless somebody has to be turned away at once.
    async fn room(&self, bytes: u64, waits: bool) -> Result<Option<OwnedSemaphorePermit>, Fault> {
        if bytes <= SMALL {
            return Ok(None);
        }
        let most = u64::try_from(MAX_LOADED).unwrap_or(u64::MAX) / PIECE;
        // One that is larger than all the room there is has it for itself.
        let pieces = u32::try_from((bytes.saturating_mul(GROWTH) / PIECE).min(most)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        if !waits {
            return room.try_acquire_many_owned(pieces).map(Some).map_err(|_| overloaded());
        }
        match tokio::time::timeout(PATIENCE, room.acquire_many_owned(pieces)).await {
            Ok(Ok(room)) => Ok(Some(room)),
            _ => Err(overloaded()),
        }
    }
}

fn overloaded() -> Fault {
    Fault::new(FaultKind::Overloaded, "too many large runs are being read: try again later")
}

impl Engine {
    /// A run out of the store: the copy that others look at, if there is one.
    pub(super) async fn load(&self, id: RunId) -> Result<Option<Arc<Loaded>>, Fault> {
        self.load_if(id, true).await
    }

    /// `waits`: for room, if others have to be done with theirs first.
    async fn load_if(&self, id: RunId, waits: bool) -> Result<Option<Arc<Loaded>>, Fault> {
        let failed = |error| store_fault(&error);
        let Some(weight) = self.store().load_cost(id).await.map_err(failed)? else { return Ok(None) };
        let shelf = &self.0.loaded;
        if let Some(loaded) = weight.fingerprint.and_then(|state| shelf.get(id, state)) {
            return Ok(Some(loaded));
        }
        let room = shelf.room(weight.bytes, waits).await?;
        // Others may have loaded it while there was no room.
        if let Some(loaded) = weight.fingerprint.and_then(|state| shelf.get(id, state)) {
            return Ok(Some(loaded));
        }
        let Some(stored) = self.store().load(id).await.map_err(failed)? else { return Ok(None) };
        let loaded = Loaded { stored, _room: room };
        Ok(Some(match weight.fingerprint {
            Some(state) => shelf.put(id, state, loaded),
            None => Arc::new(loaded),
        }))
    }

    pub(super) async fn list(&self, filter: Filter, scope: &Scope) -> Result<Answer, Fault> {
        let agents = scope.agents.iter().map(|card| card.name.clone()).collect();
        let gone = self.0.keeping.retention.expiry_cutoffs(clock::now());
        let heads = filter.heads;
        let query = Query { agents, owner: Some(scope.owner.key().to_owned()), filter, expired_before: gone };
        let found = self.store().find(query).await.map_err(|error| store_fault(&error))?;
        let (runs, cut) = if heads {
            (self.list_heads(found.runs.iter().map(|head| head.id).collect()).await?, None)
        } else {
            self.list_whole(&found.runs).await?
        };
        Ok(Answer::Runs { runs, total: found.total, next: cut.or(found.next) })
    }

    /// Runs without what was said in them.
    async fn list_heads(&self, ids: Vec<RunId>) -> Result<Vec<Shown>, Fault> {
        let mut known: HashMap<RunId, Shown> = HashMap::new();
        for id in &ids {
            let live = self.lives().get(id).cloned();
            if let Some(live) = live {
                let run = RunHandle::InMemory(live).settled(self).await;
                known.insert(*id, Shown::of(&run, true));
            }
        }
        let stored = ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
        for head in self.store().heads(stored).await.map_err(|error| store_fault(&error))? {
            let shown = Shown { pending: Arc::new([]), _loaded: None, stored: Arc::new(head) };
            known.insert(shown.stored.record.run().id, shown);
        }
        Ok(ids.iter().filter_map(|id| known.remove(id)).collect())
    }

    /// As many of these runs as a page may hold, and where the next one begins if that is not all.
    async fn list_whole(&self, heads: &[crate::store::RunHead]) -> Result<(Vec<Shown>, Option<Cursor>), Fault> {
        let (mut runs, mut size) = (Vec::new(), 0_u64);
        let mut last = None;
        for head in heads {
            size = size.saturating_add(head.size);
            if size > PAGE && last.is_some() {
                return Ok((runs, last));
            }
            match self.page_handle(head.id, last.is_none()).await {
                Ok(Some(run)) => runs.push(Shown::of(&run.settled(self).await, false)),
                Ok(None) => {}
                // What there was room for is a page too.
                Err(fault) if fault.kind == FaultKind::Overloaded && last.is_some() => return Ok((runs, last)),
                Err(fault) => return Err(fault),
            }
            last = Some(Cursor { changed_at: head.changed_at, id: head.id });
        }
        Ok((runs, None))
    }

    /// A run of a page. Only the first one is waited for: who holds some must not wait for others who do the same.
    async fn page_handle(&self, id: RunId, first: bool) -> Result<Option<RunHandle>, Fault> {
        let live = self.lives().get(&id).cloned();
        if let Some(live) = live {
            return Ok(Some(RunHandle::InMemory(live)));
        }
        let Some(loaded) = self.load_if(id, first).await? else { return Ok(None) };
        let pending = self.still_open(&loaded).await?;
        Ok(Some(RunHandle::Stored(loaded, pending.into())))
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::call::{Delivery, RunInfo, RunState};
    use interlingua_core::model::AgentRequest;
    use interlingua_core::{End, Json, Record, Run};

    use super::*;

    fn loaded(id: RunId) -> Loaded {
        let about = RunInfo {
            protocol: "agent-api".into(),
            owner: "anonymous".into(),
            state: RunState::Ended(End::Completed),
            changed_at: 0,
            previous: None,
            delivery: Delivery::Stream,
            stored: true,
            request: AgentRequest::default(),
            labels: Json::null(),
            retention: None,
        };
        Loaded {
            stored: Arc::new(StoredRun { record: Record::new(Run::new(id, "a", "s", 0)), info: about }),
            _room: None,
        }
    }

    #[test]
    fn all_who_read_a_run_share_one_copy_until_it_changes() {
        let (shelf, id) = (Shelf::default(), clock::fresh());
        let first = shelf.put(id, 1, loaded(id));
        assert!(Arc::ptr_eq(&shelf.put(id, 1, loaded(id)), &first), "whoever was slower takes the one that is there");
        assert!(shelf.get(id, 1).is_some_and(|there| Arc::ptr_eq(&there, &first)));
        assert!(shelf.get(id, 2).is_none(), "what it was before is not what it is now");
        let second = shelf.put(id, 2, loaded(id));
        assert!(!Arc::ptr_eq(&first, &second));
        drop(second);
        assert!(shelf.get(id, 2).is_none(), "nobody reads it any more");
    }

    #[tokio::test]
    async fn all_runs_that_are_read_have_a_common_bound() {
        let shelf = Shelf::default();
        let most = u64::try_from(MAX_LOADED).expect("a size");
        assert!(shelf.room(SMALL, true).await.expect("room").is_none(), "small ones are not counted");
        let large = shelf.room(most, true).await.expect("what is too large for all of it has it for itself");
        assert_eq!(shelf.room(1 << 20, false).await.map_err(|fault| fault.kind).err(), Some(FaultKind::Overloaded));
        let waits = tokio::time::timeout(Duration::from_millis(20), shelf.room(1 << 20, true)).await;
        assert!(waits.is_err(), "it waits until somebody has read");
        let (waiting, ()) = tokio::join!(shelf.room(1 << 20, true), async { drop(large) });
        assert!(waiting.is_ok_and(|room| room.is_some()));
    }
}
