//! Runs that other replicas may drive, for those who follow them here: one read-only copy of each, which grows as the
//! store reports what was committed.
//!
//! A run that waits has no holder, so its next turn may be taken by any replica: all who follow it follow such a
//! copy, even if this replica takes that turn. Not here: runs that this replica drives ([`super::table`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use interlingua_core::journal::{self, JournalError};
use interlingua_core::pending::Pending;
use interlingua_core::{End, Fault, Owner, Record, Run, RunId};
use tokio::task::AbortHandle;

use super::active_run::{ActiveRun, PinnedRun, Publish, State};
use crate::sessions::SessionTable;
use interlingua_store::{RunUpdate, Store, StoreError};

/// All runs that are followed here and may be driven elsewhere.
pub(super) struct RunsElsewhere {
    store: Arc<dyn Store>,
    sessions: Arc<SessionTable>,
    by_id: Mutex<Copies>,
}

/// The copies of each run: more than one if this process drove the run while a copy was followed, and released it.
type Copies = HashMap<RunId, Vec<Copy>>;

/// The committed parts of a run, in order.
type RunUpdates = BoxStream<'static, Result<RunUpdate, StoreError>>;

/// The copy of a run.
struct Copy {
    run: Arc<ActiveRun>,
    feed: AbortHandle,
}

impl RunsElsewhere {
    pub(crate) fn new(store: Arc<dyn Store>, sessions: Arc<SessionTable>) -> Self {
        Self { store, sessions, by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All copies.
    pub(super) fn all(&self) -> Vec<Arc<ActiveRun>> {
        self.lock().values().flatten().map(|copy| Arc::clone(&copy.run)).collect()
    }

    /// Follows the copy of a run, if there is one. Pinned, with the follower's index: counted before anyone else can
    /// release the copy.
    pub(crate) fn follow(&self, id: RunId) -> Option<(PinnedRun, usize)> {
        let copies = self.lock();
        let run = &copies.get(&id)?.first()?.run;
        Some((run.pin(), run.add_follower(false)))
    }

    /// Lets a copy grow from now on, unless there is another one of the run already, and follows the one that grows.
    pub(super) fn add_and_follow(self: &Arc<Self>, run: &Arc<ActiveRun>, updates: RunUpdates) -> (PinnedRun, usize) {
        let mut copies = self.lock();
        let of_run = copies.entry(run.id()).or_default();
        if of_run.is_empty() {
            of_run.push(self.copy(run, updates));
        }
        let run = &of_run[0].run;
        (run.pin(), run.add_follower(false))
    }

    /// Lets a copy grow from now on that has followers, beside other copies of the run with followers of their own.
    pub(crate) fn add(self: &Arc<Self>, run: &Arc<ActiveRun>) {
        let from = run.view(|view| view.record.len());
        if let Some(updates) = self.store.follow(run.id(), from) {
            let mut copies = self.lock();
            if !run.is_followed() {
                // The last follower has left since.
                return;
            }
            let of_run = copies.entry(run.id()).or_default();
            if !of_run.iter().any(|copy| Arc::ptr_eq(&copy.run, run)) {
                of_run.push(self.copy(run, updates));
            }
        }
    }

    /// A copy that grows.
    fn copy(self: &Arc<Self>, run: &Arc<ActiveRun>, updates: RunUpdates) -> Copy {
        let (this, fed) = (Arc::clone(self), Arc::clone(run));
        let feed = tokio::task::spawn_local(async move { this.feed(&fed, updates).await }).abort_handle();
        Copy { run: Arc::clone(run), feed }
    }

    /// Removes a copy from the list.
    fn remove(copies: &mut Copies, run: &Arc<ActiveRun>) -> Option<Copy> {
        let of_run = copies.get_mut(&run.id())?;
        let index = of_run.iter().position(|copy| Arc::ptr_eq(&copy.run, run))?;
        let copy = of_run.swap_remove(index);
        if of_run.is_empty() {
            copies.remove(&run.id());
        }
        Some(copy)
    }

    /// Lets go of a copy that no one follows any more.
    pub(super) fn release_if_unfollowed(&self, run: &Arc<ActiveRun>) {
        let mut copies = self.lock();
        if !run.is_followed()
            && let Some(copy) = Self::remove(&mut copies, run)
        {
            copy.feed.abort();
        }
    }

    /// Takes over what is committed, until the run has ended.
    async fn feed(&self, run: &Arc<ActiveRun>, mut updates: RunUpdates) {
        let is_over = loop {
            match updates.next().await {
                Some(Ok(update)) => {
                    if let Err(error) = self.take_over(run, update).await {
                        tracing::error!(run = %run.id(), %error, "cannot read the events of a run that another gateway executes");
                        break false;
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(run = %run.id(), %error, "this gateway can no longer follow a run that another gateway executes");
                    break false;
                }
                None => break true,
            }
            if run.run_state().is_ended() {
                break false;
            }
        };

        let is_stored = run.view(|view| view.info.stored);
        if is_over && is_stored && matches!(self.store.owner_of(run.id()).await, Ok(None)) {
            // A run is stopped before it is deleted: its end was deleted before it was read here.
            run.update(Publish::Forced, |state| {
                if !state.about.state.is_ended() {
                    state.cut(End::Canceled, None);
                }
            });
        } else if !run.run_state().is_ended() {
            run.lose();
        }
        Self::remove(&mut self.lock(), run);
    }

    async fn take_over(&self, run: &ActiveRun, update: RunUpdate) -> Result<(), JournalError> {
        let waits = match &update.info {
            Some(info) => info.state.is_waiting(),
            // A client has answered some of its items, and it still waits.
            None => run.run_state().is_waiting(),
        };
        // The pending items of the run are in its session before it waits, or goes on waiting for fewer.
        let reason = if waits { self.wait_reason(run).await } else { Ok(<_>::default()) };
        let reason = reason.unwrap_or_else(|fault| {
            tracing::warn!(run = %run.id(), "cannot read the pending items of a run that another gateway executes: {fault}");
            <_>::default()
        });
        run.update(Publish::Forced, |state| state.take_over(update, reason))
    }

    async fn wait_reason(&self, run: &ActiveRun) -> Result<(Vec<Pending>, bool), Fault> {
        let (agent, owner, session, user) = run.view(|view| {
            let (run, info) = (view.run(), view.info);
            let owner = Owner::from_key(&info.owner);
            (run.agent.clone(), owner, run.session_id.clone(), info.request.user_id.clone())
        });
        let session = self.sessions.of_user(&agent, &owner, &session, user.as_deref()).await?;
        Ok(session.wait_reason(run.id()))
    }
}

impl State {
    /// Appends what another replica wrote.
    fn take_over(&mut self, update: RunUpdate, reason: (Vec<Pending>, bool)) -> Result<(), JournalError> {
        if !update.lines.is_empty() {
            let unread = Record::new(Run::new(self.record.run().id, "", "", 0));
            let record = std::mem::replace(&mut self.record, unread);
            self.record = journal::extend(record, &update.lines)?;
        }
        if let Some(info) = update.info {
            self.about = *info;
            let (pending, is_handed_over) = reason;
            self.pending = pending;
            // Only whether there is one: the process that has the run applies it.
            self.fallback = is_handed_over.then_some(self.about.state);
        } else if self.about.state.is_waiting() {
            self.pending = reason.0;
        }
        Ok(())
    }
}
