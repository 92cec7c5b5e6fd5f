//! Ended or idle runs loaded from the store for readers. Readers of the same run share one copy, and the memory of all
//! copies is limited.
//!
//! Not here: active runs ([`super::active_run`]) and lists of runs ([`super::lists`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use interlingua_core::call::RunState;
use interlingua_core::{Fault, FaultKind, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::faults::store_fault;
use interlingua_store::{Store, StoredRun};

/// The maximum memory of all loaded runs, in bytes.
const MAX_LOADED: usize = 256 << 20;
/// Bytes of memory for each stored byte: for the lines while they are parsed, and for the record.
const GROWTH: u64 = 3;
/// Runs up to this size, in bytes, are not counted. The number of requests limits their number.
const SMALL: u64 = 64 << 10;
/// A reader that waits longer for memory is refused.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of bytes for each permit of the semaphore.
const UNIT: u64 = 1024;
/// Entries of runs without readers are removed only if there are more entries than this.
const SWEEP_MIN: usize = 64;

/// A run from the store. It occupies its share of the memory limit until the last reader drops it.
pub struct Loaded {
    stored: Arc<StoredRun>,
    _room: Option<OwnedSemaphorePermit>,
    /// The run that this one was copied from.
    _source: Option<Arc<Self>>,
}

impl Loaded {
    pub(super) const fn stored(&self) -> &Arc<StoredRun> {
        &self.stored
    }

    /// The same run in the state [`RunState::Running`]. Keeps the room of this one.
    pub(super) fn as_running(self: &Arc<Self>) -> Self {
        let mut stored = (*self.stored).clone();
        stored.info.state = RunState::Running;
        Self { stored: Arc::new(stored), _room: None, _source: Some(Arc::clone(self)) }
    }
}

impl Deref for Loaded {
    type Target = StoredRun;

    fn deref(&self) -> &StoredRun {
        &self.stored
    }
}

/// All loaded runs that have readers.
pub(super) struct LoadedRuns {
    store: Arc<dyn Store>,
    by_id: Mutex<HashMap<RunId, SharedCopy>>,
    room: Arc<Semaphore>,
}

/// The copy of a run that its readers share.
struct SharedCopy {
    /// The version of the run that was loaded ([`interlingua_store::LoadCost::fingerprint`]).
    fingerprint: u64,
    loaded: Weak<Loaded>,
}

impl LoadedRuns {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let units = MAX_LOADED / usize::try_from(UNIT).unwrap_or(1);
        Self { store, by_id: Mutex::default(), room: Arc::new(Semaphore::new(units)) }
    }

    /// Loads a run, or returns the copy of other readers. `None`: the run does not exist. If the memory limit is reached,
    /// `waits` decides whether to wait for other readers or to fail.
    pub(crate) async fn load(&self, id: RunId, waits: bool) -> Result<Option<Arc<Loaded>>, Fault> {
        let Some(cost) = self.store.load_cost(id).await.map_err(store_fault)? else { return Ok(None) };
        let shared = || cost.fingerprint.and_then(|fingerprint| self.get(id, fingerprint));
        if let Some(loaded) = shared() {
            return Ok(Some(loaded));
        }

        let room = self.reserve(cost.bytes, waits).await?;
        // Another reader may have loaded the run during the wait.
        if let Some(loaded) = shared() {
            return Ok(Some(loaded));
        }

        let Some(stored) = self.store.load(id).await.map_err(store_fault)? else { return Ok(None) };
        let loaded = Loaded { stored, _room: room, _source: None };
        Ok(Some(match cost.fingerprint {
            Some(fingerprint) => self.insert(id, fingerprint, loaded),
            None => Arc::new(loaded),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, SharedCopy>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: RunId, fingerprint: u64) -> Option<Arc<Loaded>> {
        shared_copy(&self.lock(), id, fingerprint)
    }

    /// Adds a copy, unless another reader was faster. Returns the copy to read.
    fn insert(&self, id: RunId, fingerprint: u64, loaded: Loaded) -> Arc<Loaded> {
        let mut by_id = self.lock();
        if let Some(known) = shared_copy(&by_id, id, fingerprint) {
            return known;
        }

        let loaded = Arc::new(loaded);
        by_id.insert(id, SharedCopy { fingerprint, loaded: Arc::downgrade(&loaded) });
        if by_id.len() > SWEEP_MIN && by_id.len().is_power_of_two() {
            by_id.retain(|_, copy| copy.loaded.strong_count() > 0);
        }
        loaded
    }

    async fn reserve(&self, bytes: u64, waits: bool) -> Result<Option<OwnedSemaphorePermit>, Fault> {
        if bytes <= SMALL {
            return Ok(None);
        }

        // A run that is larger than the limit uses all of it.
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

fn shared_copy(by_id: &HashMap<RunId, SharedCopy>, id: RunId, fingerprint: u64) -> Option<Arc<Loaded>> {
    by_id.get(&id).filter(|copy| copy.fingerprint == fingerprint)?.loaded.upgrade()
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
            _source: None,
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
