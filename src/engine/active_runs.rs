//! The runs that are in memory, by id, and who is bringing one there: what was loaded for that is outdated once the run
//! has been in memory in between and has left it again.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use interlingua_core::RunId;

use super::{ActiveRun, Engine};

/// All runs in memory.
#[derive(Default)]
pub(super) struct ActiveRuns {
    by_id: HashMap<RunId, Arc<ActiveRun>>,
    loading: HashMap<RunId, Loading>,
}

#[derive(Default)]
struct Loading {
    /// How many bring this run into memory.
    loaders: usize,
    /// How often it has left memory since the first of them began.
    left: u64,
}

impl Deref for ActiveRuns {
    type Target = HashMap<RunId, Arc<ActiveRun>>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl ActiveRuns {
    pub(super) fn insert(&mut self, live: &Arc<ActiveRun>) {
        self.by_id.insert(live.id(), Arc::clone(live));
    }

    pub(super) fn remove(&mut self, id: RunId) {
        self.by_id.remove(&id);
        if let Some(loading) = self.loading.get_mut(&id) {
            loading.left += 1;
        }
    }

    fn left(&self, id: RunId) -> u64 {
        self.loading.get(&id).map_or(0, |loading| loading.left)
    }
}

/// A run is being loaded, to be in memory. What was found out before this was made counts for nothing.
pub(super) struct Bringing {
    engine: Engine,
    id: RunId,
    left: u64,
}

impl Bringing {
    pub(super) fn begin(engine: &Engine, id: RunId) -> Self {
        let mut lives = engine.lives();
        let loading = lives.loading.entry(id).or_default();
        loading.loaders += 1;
        let left = loading.left;
        drop(lives);
        Self { engine: engine.clone(), id, left }
    }

    /// Whether what was loaded meanwhile is still the last word.
    pub(super) fn is_current(&self, lives: &ActiveRuns) -> bool {
        lives.left(self.id) == self.left
    }
}

impl Drop for Bringing {
    fn drop(&mut self) {
        let mut lives = self.engine.lives();
        if let Some(loading) = lives.loading.get_mut(&self.id) {
            loading.loaders -= 1;
            if loading.loaders == 0 {
                lives.loading.remove(&self.id);
            }
        }
    }
}
