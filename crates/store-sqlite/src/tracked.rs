//! The runs that the writer tracks, and how much of each is written.

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::call::RunState;
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;

use interlingua_store::Journal;

/// A run that the writer tracks, and how much of it is written.
#[derive(Clone)]
pub(super) struct TrackedRun {
    /// Primary key in the `runs` table.
    pub(super) number: i64,
    pub(super) journal: Arc<dyn Journal>,
    /// Number of events in segments.
    pub(super) segment_events: u64,
    /// Number of events in segments or in the log.
    pub(super) logged_events: u64,
    /// State in the table, and when it changed.
    pub(super) state: (RunState, Millis),
    /// Generation of the written events. If the run's differs, the run is rewritten.
    pub(super) generation: u64,
}

/// The tracked runs. Changes are reverted if the transaction fails.
#[derive(Default)]
pub(super) struct TrackedRuns {
    pub(super) by_id: HashMap<RunId, TrackedRun>,
    pub(super) before: Vec<(RunId, Option<TrackedRun>)>,
}

impl TrackedRuns {
    pub(super) fn set(&mut self, id: RunId, track: Option<TrackedRun>) {
        let before = match track {
            Some(track) => self.by_id.insert(id, track),
            None => self.by_id.remove(&id),
        };
        self.before.push((id, before));
    }

    pub(super) fn commit(&mut self) {
        self.before.clear();
    }

    pub(super) fn roll_back(&mut self) {
        for (id, before) in std::mem::take(&mut self.before).into_iter().rev() {
            match before {
                Some(track) => self.by_id.insert(id, track),
                None => self.by_id.remove(&id),
            };
        }
    }
}
