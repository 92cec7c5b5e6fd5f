//! Faults at a chosen step of what a replica does: before or after one of its calls, or between a commit and the news of
//! it. Not here: what the faults are (`node`).

use std::sync::Mutex;

use tokio::sync::watch;

use super::hub::lock;
use super::node::Link;

/// The state of a replica's connection at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Pause,
    CutOff,
    Kill,
}

impl Fault {
    pub(super) const fn link(self) -> Link {
        match self {
            Self::Pause => Link::Paused,
            Self::CutOff => Link::Cut,
            Self::Kill => Link::Killed,
        }
    }
}

/// Counts the steps of a replica while a fault is to come.
#[derive(Default)]
pub(super) struct Steps {
    armed: Mutex<Option<(usize, Fault)>>,
    reached: watch::Sender<Option<String>>,
}

impl Steps {
    /// The fault comes at the step of this number, counted from 0, of all from now on.
    pub(super) fn arm(&self, number: usize, fault: Fault) {
        self.reached.send_replace(None);
        *lock(&self.armed) = Some((number, fault));
    }

    pub(super) fn disarm(&self) {
        *lock(&self.armed) = None;
    }

    /// The name of the step that was reached, once it is.
    pub(super) fn reached(&self) -> watch::Receiver<Option<String>> {
        self.reached.subscribe()
    }

    /// A step is about to be taken. Returns the fault that comes now; the caller reports when it has.
    pub(super) fn take(&self) -> Option<Fault> {
        let mut armed = lock(&self.armed);
        let (left, fault) = armed.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }

        let fault = *fault;
        *armed = None;
        Some(fault)
    }

    /// The fault has come at this step.
    pub(super) fn report(&self, name: String) {
        self.reached.send_replace(Some(name));
    }
}
