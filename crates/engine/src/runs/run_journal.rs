//! A run in memory as the store reads it: its events, the progress of their writes, and the eviction of written ones.
//!
//! Not here: the run itself ([`super::active_run`]).

use std::sync::atomic::Ordering;

use interlingua_core::call::RunInfo;
use interlingua_core::{Record, RunId};

use super::active_run::{ActiveRun, State};
use interlingua_store::{DirtyFlag, Journal};

/// Events of a run without readers are evicted after it has grown by this many bytes.
const MIN_EVICTED: usize = 1 << 20;

impl Journal for ActiveRun {
    fn id(&self) -> RunId {
        self.id
    }

    fn with(&self, read: &mut dyn FnMut(&Record, &RunInfo)) {
        let state = self.state();
        read(&state.record, &state.about);
    }

    fn dirty_flag(&self) -> &DirtyFlag {
        &self.dirty
    }

    fn committed(&self, events: u64) {
        self.state().committed(events);
    }

    fn lost(&self) {
        self.lose();
    }

    fn archived(&self, events: u64) {
        let mut state = self.state();
        // Under the lock: a later reader notices that events are missing.
        if self.readers.load(Ordering::Acquire) == 0 {
            state.evict(events);
        }
    }
}

impl State {
    fn committed(&mut self, events: u64) {
        self.visibility.committed(events);
        self.notify();
        if let Some(paused) = self.paused.take() {
            paused.wake();
        }
        if self.visibility.is_safe(&self.record)
            && let Some(waiting) = self.safe_waker.take()
        {
            waiting.wake();
        }
    }

    /// Evicts the first `events` events, which are stored, if they are large enough.
    fn evict(&mut self, events: u64) {
        let is_found_later = self.about.stored && self.record.in_turn();
        let has_grown = self.record.size() >= self.evicted_at + MIN_EVICTED;
        if is_found_later && has_grown && events <= self.visibility.visible() {
            self.record.evict(events);
            self.evicted_at = self.record.size();
        }
    }
}
