//! A run's journal as the inner store sees it: frozen while its replica is not connected, and permanently once the
//! replica is fenced. Not here: the list of journals (`node`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use interlingua::store::{DirtyFlag, Journal};
use interlingua_core::RunId;
use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::run::Record;

use super::hub::{Hub, is_working};
use super::lock;

/// Takes the fault that is planned between a commit and its report to the replica. Returns a function that causes it.
pub(super) type CommitFault = dyn Fn() -> Option<Box<dyn FnOnce()>> + Send + Sync;

pub(super) struct GuardedJournal {
    pub(super) journal: Arc<dyn Journal>,
    /// The number of this hold among the holds of a run.
    pub(super) hold: u64,
    hub: Weak<Hub>,
    fault: Box<CommitFault>,
    dirty: DirtyFlag,
    state: Mutex<State>,
    /// It was to be settled while the store could not be reached.
    pub(super) is_owed: AtomicBool,
    /// It was given up while its replica could not learn of that.
    pub(super) is_released: AtomicBool,
    is_notified: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The run's state for the inner store while it is frozen.
    frozen: Option<Arc<(Record, RunInfo)>>,
    is_lost: bool,
    /// The inner store's reports while the replica could not receive them.
    held_back: (u64, u64),
    /// The last state that the inner store saw.
    seen: Option<(u64, RunState)>,
}

impl GuardedJournal {
    pub(super) fn new(journal: &Arc<dyn Journal>, hold: u64, hub: &Arc<Hub>, fault: Box<CommitFault>) -> Arc<Self> {
        Arc::new(Self {
            journal: Arc::clone(journal),
            hold,
            hub: Arc::downgrade(hub),
            fault,
            dirty: DirtyFlag::default(),
            state: Mutex::default(),
            is_owed: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            is_notified: AtomicBool::new(false),
        })
    }

    /// From now on the inner store sees the run as it is now.
    pub(super) fn freeze(&self) {
        self.journal.with(&mut |record, info| {
            let mut state = lock(&self.state);
            state.frozen.get_or_insert_with(|| Arc::new((record.clone(), info.clone())));
        });
    }

    /// The inner store sees the run again, and the run learns what has become durable meanwhile.
    pub(super) fn thaw(&self) {
        let held_back = {
            let mut state = lock(&self.state);
            if state.is_lost {
                return;
            }
            state.frozen = None;
            std::mem::take(&mut state.held_back)
        };
        self.report(held_back);
    }

    /// Nothing that happens in the run reaches the store any more.
    pub(super) fn lose(&self) {
        self.freeze();
        lock(&self.state).is_lost = true;
    }

    /// True while its replica does not learn what is committed.
    pub(super) fn is_frozen(&self) -> bool {
        lock(&self.state).frozen.is_some()
    }

    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }

    /// Lets the run know that it was lost.
    pub(super) fn notify_lost(&self) {
        if self.is_lost() && !self.is_notified.swap(true, Ordering::SeqCst) {
            self.journal.lost();
        }
    }

    /// The length of the run if it waits or has ended, as the inner store saw it last.
    pub(super) fn length_at_rest(&self) -> Option<u64> {
        let seen = lock(&self.state).seen;
        seen.filter(|(_, state)| !is_working(*state)).map(|(length, _)| length)
    }

    fn report(&self, (committed, archived): (u64, u64)) {
        if committed > 0 {
            self.journal.committed(committed);
        }
        if archived > 0 {
            self.journal.archived(archived);
        }
    }

    /// The store has committed something, and its replica may be stopped before it learns of that.
    fn fault_before_news(&self) {
        if let Some(cause) = (self.fault)() {
            // At once for this run. The rest of the replica is stopped where no lock of the inner store is held.
            self.freeze();
            cause();
        }
    }

    /// Reports to the run, now or once the replica is connected.
    fn pass_on(&self, news: (u64, u64)) {
        {
            let mut state = lock(&self.state);
            if state.frozen.is_some() {
                state.held_back = (state.held_back.0.max(news.0), state.held_back.1.max(news.1));
                return;
            }
        }
        self.report(news);
    }
}

impl Journal for GuardedJournal {
    fn id(&self) -> RunId {
        self.journal.id()
    }

    fn with(&self, inspect: &mut dyn FnMut(&Record, &RunInfo)) {
        self.journal.with(&mut |record, info| {
            // Under the run's lock, as is whatever freezes it: the inner store never sees less than it has seen.
            let frozen = lock(&self.state).frozen.clone();
            if frozen.is_none() {
                while self.dirty.generation() < self.journal.dirty_flag().generation() {
                    self.dirty.bump_generation();
                }
            }

            let (record, info) = frozen.as_deref().map_or((record, info), |(record, info)| (record, info));
            lock(&self.state).seen = Some((record.len(), info.state));
            inspect(record, info);
        });
    }

    fn dirty_flag(&self) -> &DirtyFlag {
        &self.dirty
    }

    fn committed(&self, events: u64) {
        self.fault_before_news();
        self.pass_on((events, 0));
        if let Some(hub) = self.hub.upgrade() {
            hub.note_change(self.id());
        }
    }

    fn archived(&self, events: u64) {
        self.pass_on((0, events));
    }
}
