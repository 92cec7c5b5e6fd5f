//! A run to be read, wherever it is.

use std::sync::Arc;

use interlingua_core::RunId;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::pending::Pending;

use super::active_run::PinnedRun;
use super::loaded::Loaded;

/// A run to be read: in memory, or loaded from the store.
#[derive(Clone)]
pub enum RunHandle {
    /// In memory.
    InMemory(PinnedRun),
    /// From the store, with its pending items that are still open.
    Stored(Arc<Loaded>, Arc<[Pending]>),
}

impl RunHandle {
    /// The run's id. Takes no lock.
    #[must_use]
    pub fn id(&self) -> RunId {
        match self {
            Self::InMemory(run) => run.id(),
            Self::Stored(stored, _) => stored.record.run().id,
        }
    }

    /// A run from the store in the state [`RunState::Running`]. A run in memory is unchanged.
    pub(super) fn as_running(&self) -> Self {
        match self {
            Self::InMemory(_) => self.clone(),
            Self::Stored(stored, pending) => Self::Stored(Arc::new(stored.as_running()), Arc::clone(pending)),
        }
    }

    /// Where it stands.
    pub(crate) fn run_state(&self) -> RunState {
        self.view(|view| view.info.state)
    }

    /// Shows the run as it stands, for the gateway's own use: some of it may not be safe yet.
    pub fn view<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        match self {
            Self::InMemory(run) => run.view(read),
            Self::Stored(stored, pending) => read(RunView { record: &stored.record, info: &stored.info, pending }),
        }
    }

    /// Shows the run as clients may see it: nothing that a crash could take back.
    pub fn view_safe<T>(&self, read: impl FnOnce(RunView<'_>) -> T) -> T {
        match self {
            Self::InMemory(run) => run.view_safe(read),
            Self::Stored(..) => self.view(read),
        }
    }
}
