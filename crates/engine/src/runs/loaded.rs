//! Runs from the store, for those who read them: one copy of each, however many read it, and a common memory bound.
//!
//! Not here: runs that may still grow ([`super::active_run`]), and lists of runs ([`super::lists`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::faults::store_fault;
use interlingua_store::{Store, StoredRun};

/// The memory of all loaded runs that are still read, in bytes.
const MAX_LOADED: usize = 256 << 20;
/// The memory a run takes for each stored byte: lines while they are read, and the record.
const GROWTH: u64 = 3;
/// Smaller runs, in bytes, are not counted: their number is bounded by the number of requests.
const SMALL: u64 = 64 << 10;
/// How long a reader waits for others to finish before it is turned away.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// Room is counted in units of so many bytes.
const UNIT: u64 = 1024;
/// Below this many loaded runs no one looks for those that are not read any more.
const SWEEP_MIN: usize = 64;

/// A run from the store, and the room it takes until its last reader is done.
pub struct Loaded {
    stored: Arc<StoredRun>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Loaded {
    pub(super) const fn stored(&self) -> &Arc<StoredRun> {
        &self.stored
    }
}

impl Deref for Loaded {
    type Target = StoredRun;

    fn deref(&self) -> &StoredRun {
        &self.stored
    }
}

/// All loaded runs that are still read.
pub(super) struct LoadedRuns {
    store: Arc<dyn Store>,
    by_id: Mutex<HashMap<RunId, SharedCopy>>,
    room: Arc<Semaphore>,
}

/// The one copy of a run.
struct SharedCopy {
    /// The state of the run that was loaded ([`interlingua_store::Weight::state`]).
    state: u64,
    loaded: Weak<Loaded>,
}

impl LoadedRuns {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let units = MAX_LOADED / usize::try_from(UNIT).unwrap_or(1);
        Self { store, by_id: Mutex::default(), room: Arc::new(Semaphore::new(units)) }
    }

    /// A run from the store: the copy that others read, if there is one. `waits`: for room, if others have to finish
    /// first; otherwise it fails.
    pub(crate) async fn load(&self, id: RunId, waits: bool) -> Result<Option<Arc<Loaded>>, Fault> {
        let failed = |error| store_fault(&error);
        let Some(weight) = self.store.load_cost(id).await.map_err(failed)? else { return Ok(None) };
        if let Some(loaded) = weight.fingerprint.and_then(|state| self.get(id, state)) {
            return Ok(Some(loaded));
        }

        let room = self.reserve(weight.bytes, waits).await?;
        // Others may have loaded it while there was no room.
        if let Some(loaded) = weight.fingerprint.and_then(|state| self.get(id, state)) {
            return Ok(Some(loaded));
        }

        let Some(stored) = self.store.load(id).await.map_err(failed)? else { return Ok(None) };
        let loaded = Loaded { stored, _room: room };
        Ok(Some(match weight.fingerprint {
            Some(state) => self.insert(id, state, loaded),
            None => Arc::new(loaded),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, SharedCopy>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: RunId, state: u64) -> Option<Arc<Loaded>> {
        self.lock().get(&id).filter(|copy| copy.state == state)?.loaded.upgrade()
    }

    /// Adds a copy. Returns the one that another reader added first, if there is one.
    fn insert(&self, id: RunId, state: u64, loaded: Loaded) -> Arc<Loaded> {
        let mut by_id = self.lock();
        let known = by_id.get(&id).filter(|copy| copy.state == state).and_then(|copy| copy.loaded.upgrade());
        if let Some(known) = known {
            return known;
        }

        let loaded = Arc::new(loaded);
        by_id.insert(id, SharedCopy { state, loaded: Arc::downgrade(&loaded) });
        if by_id.len() > SWEEP_MIN && by_id.len().is_power_of_two() {
            by_id.retain(|_, copy| copy.loaded.strong_count() > 0);
        }
        loaded
    }

    async fn reserve(&self, bytes: u64, waits: bool) -> Result<Option<OwnedSemaphorePermit>, Fault> {
        if bytes <= SMALL {
            return Ok(None);
        }

        // A run that is larger than all the room has it to itself.
        let most = u64::try_from(MAX_LOADED).unwrap_or(u64::MAX) / UNIT;
        let units = u32::try_from((bytes.saturating_mul(GROWTH) / UNIT).min(most)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        if !waits {
            return room.try_acquire_many_owned(units).map(Some).map_err(|_| overloaded());
        }
        match tokio::time::timeout(ROOM_TIMEOUT, room.acquire_many_owned(units)).await {
            Ok(Ok(room)) => Ok(Some(room)),
            _ => Err(overloaded()),
        }
    }
}

fn overloaded() -> Fault {
    Fault::new(FaultKind::Overloaded, "too many large runs are being read: try again later")
}

#[cfg(test)]
mod tests {
    use interlingua_core::call::{Delivery, RunInfo, RunState, Tags};
    use interlingua_core::model::AgentRequest;
    use interlingua_core::{End, Json, Record, Run};

    use super::*;
    use interlingua_base::clock;
    use interlingua_store::Memory;

    fn runs() -> LoadedRuns {
        LoadedRuns::new(Arc::new(Memory::new()))
    }

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
            tags: Tags::new(),
            retention: None,
        };

        Loaded {
            stored: Arc::new(StoredRun { record: Record::new(Run::new(id, "a", "s", 0)), info: about }),
            _room: None,
        }
    }

    #[test]
    fn all_readers_share_one_copy_until_the_run_changes() {
        let (loaded_runs, id) = (runs(), clock::new_id());
        let first = loaded_runs.insert(id, 1, loaded(id));
        assert!(Arc::ptr_eq(&loaded_runs.insert(id, 1, loaded(id)), &first), "the slower reader gets the first copy");
        assert!(loaded_runs.get(id, 1).is_some_and(|there| Arc::ptr_eq(&there, &first)));
        assert!(loaded_runs.get(id, 2).is_none(), "another state is another copy");
        let second = loaded_runs.insert(id, 2, loaded(id));
        assert!(!Arc::ptr_eq(&first, &second));
        drop(second);
        assert!(loaded_runs.get(id, 2).is_none(), "no one reads it any more");
    }

    #[tokio::test]
    async fn all_loaded_runs_have_a_common_bound() {
        let loaded_runs = runs();
        let most = u64::try_from(MAX_LOADED).expect("a size");
        assert!(loaded_runs.reserve(SMALL, true).await.expect("room").is_none(), "small ones are not counted");
        let large = loaded_runs.reserve(most, true).await.expect("a run larger than all the room has it to itself");
        assert_eq!(
            loaded_runs.reserve(1 << 20, false).await.map_err(|fault| fault.kind).err(),
            Some(FaultKind::Overloaded)
        );
        let waits = tokio::time::timeout(Duration::from_millis(20), loaded_runs.reserve(1 << 20, true)).await;
        assert!(waits.is_err(), "it waits until a reader is done");
        let (waiting, ()) = tokio::join!(loaded_runs.reserve(1 << 20, true), async { drop(large) });
        assert!(waiting.is_ok_and(|room| room.is_some()));
    }
}
