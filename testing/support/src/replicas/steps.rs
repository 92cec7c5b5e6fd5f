//! Faults at a chosen step of what a replica does: before or after one of its calls, or between a commit and the news
//! of it. Not here: what the faults do (`connection`).

use std::sync::Mutex;

use tokio::sync::watch;

use super::lock;

/// The state of a replica's connection at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Pause,
    CutOff,
    Kill,
}

/// The step of a fault.
#[derive(Clone, Copy, Debug)]
pub enum StepSelector {
    /// The step of this number, counted from 0.
    Number(usize),
    /// The first step of this name, for example `before open`.
    Name(&'static str),
}

/// Counts the steps of a replica while a fault is planned.
#[derive(Default)]
pub(super) struct Steps {
    armed: Mutex<Option<(StepSelector, Fault)>>,
    reached: watch::Sender<Option<String>>,
}

impl Steps {
    /// Plans a fault at one of the steps from now on.
    pub(super) fn arm(&self, step: StepSelector, fault: Fault) {
        self.reached.send_replace(None);
        *lock(&self.armed) = Some((step, fault));
    }

    pub(super) fn disarm(&self) {
        *lock(&self.armed) = None;
    }

    /// The name of the step that was reached, once it is.
    pub(super) fn reached(&self) -> watch::Receiver<Option<String>> {
        self.reached.subscribe()
    }

    /// Called before each step. Returns the fault if it is planned for this step; the caller then causes and reports
    /// it.
    pub(super) fn take(&self, name: &str) -> Option<Fault> {
        let mut armed = lock(&self.armed);
        let (step, fault) = armed.as_mut()?;
        match step {
            StepSelector::Number(0) => {}
            StepSelector::Number(left) => {
                *left -= 1;
                return None;
            }
            StepSelector::Name(wanted) if *wanted == name => {}
            StepSelector::Name(_) => return None,
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
