//! Ending runs from outside: canceled, deleted, or ended between two turns.
//!
//! Not here: how the driver ends a turn that was stopped ([`super::turn_driver`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{ATTACHMENTS, Filter, RunInfo, RunState, Target, attachment_key};
use interlingua_core::{End, Event, Fault, FaultKind, RunId, Step};
use tokio::time::Instant;

use crate::deliveries::{Deliveries, StartReason};
use crate::faults::{self, store_fault};
use crate::runs::{
    ActiveRun, Follower, HeldRun, Publish, RunAccess, RunHandle, RunTable, Scope, SharedRules, commit, follow, list,
    settled,
};
use crate::sessions::Session;
use interlingua_store::{Expect, Signal};

/// The maximum time that a caller waits for the end of a run that it has canceled. After that it gets the present
/// state of the run.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a run is deleted again that its process has not released.
const RELEASE_INTERVAL: Duration = Duration::from_millis(100);
/// The pause before a cancellation is sent again to the process that drives the run.
const SIGNAL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of runs of a session that are canceled at once.
const MAX_CANCELED: usize = 100;

/// More attachments than any adapter gives a run.
const MAX_ATTACHMENTS: usize = 100;

/// Ends runs.
pub(crate) struct Canceller {
    runs: Arc<RunTable>,
    access: Arc<RunAccess>,
    deliveries: Arc<Deliveries>,
    rules: Arc<SharedRules>,
}

impl Canceller {
    pub(crate) const fn new(
        runs: Arc<RunTable>,
        access: Arc<RunAccess>,
        deliveries: Arc<Deliveries>,
        rules: Arc<SharedRules>,
    ) -> Self {
        Self { runs, access, deliveries, rules }
    }

    /// Cancels a run of the caller, and waits for its end.
    pub(crate) async fn cancel(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        let run = self.access.find(target, scope).await?;
        self.cancel_found(run, Some(scope)).await
    }

    /// Cancels a run, of any owner, and waits for its end: for operators.
    pub(crate) async fn cancel_any(&self, id: RunId) -> Result<RunHandle, Fault> {
        let run = self.runs.find(id).await?.ok_or_else(|| faults::run_not_found(id))?;
        self.cancel_found(run, None).await
    }

    /// `scope`: whose call it is; `None` for operators.
    async fn cancel_found(&self, run: RunHandle, scope: Option<&Scope>) -> Result<RunHandle, Fault> {
        // A run that another one answers is stopped with that one.
        let answered_by = run.view(|view| view.run().answered_by().filter(|_| view.run().end.is_none()));
        if let Some(by) = answered_by {
            match scope {
                Some(scope) => Box::pin(self.cancel(&Target::Run(by), scope)).await?,
                None => Box::pin(self.cancel_any(by)).await?,
            };
            return Ok(settled(&self.runs, self.find_again(run).await?).await);
        }

        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let mut run = run;
        loop {
            let is_elsewhere = match run.run_state() {
                RunState::Ended(_) => {
                    let run = settled(&self.runs, run).await;
                    self.withdraw(&run).await?;
                    return self.find_again(run).await;
                }
                RunState::Queued | RunState::Running => matches!(run, RunHandle::Stored(..)),
                RunState::Waiting | RunState::WaitingForAuth => false,
            };
            if !is_elsewhere {
                match self.runs.activate(run.clone()).await {
                    Ok(held) => return self.end_held(&held, scope, deadline).await,
                    // Another process has begun its next turn, and not written that yet.
                    Err(fault) if fault.kind == FaultKind::Busy => {}
                    Err(fault) => return Err(fault),
                }
            }

            // It may have come to a pause, or to another process, before the one that had it learns of it.
            run = self.signal_cancel(run).await?;
            if run.run_state().is_ended() || Instant::now() >= deadline {
                return Ok(run);
            }
        }
    }

    /// Ends a run that this process drives, or that waits.
    async fn end_held(&self, held: &HeldRun, scope: Option<&Scope>, deadline: Instant) -> Result<RunHandle, Fault> {
        if held.run_state().is_waiting() {
            let run_scope = self.rules.scope_of(held);
            if let Some(scope) = run_scope.as_ref().or(scope) {
                self.deliveries.start(held, StartReason::RunContinues, scope).await?;
            }
        }

        // Past that time the run is shown as it stands.
        let _ = tokio::time::timeout_at(deadline, self.end(held)).await;
        Ok(held.handle())
    }

    /// Asks the process that drives a run to stop it, and waits a moment for its end. Returns the run as it is then.
    async fn signal_cancel(&self, run: RunHandle) -> Result<RunHandle, Fault> {
        let followed = follow::follow_elsewhere(&self.runs, &run)?;
        let signaled = self.runs.store().signal(run.id(), Signal::Cancel).await;
        signaled.map_err(|error| store_fault(&error))?;
        let end = async {
            match followed {
                Some(mut follower) => follower.until(|step| matches!(step.event, Event::RunFinished { .. })).await,
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(SIGNAL_INTERVAL, end).await;
        self.find_again(run).await
    }

    async fn find_again(&self, run: RunHandle) -> Result<RunHandle, Fault> {
        Ok(self.runs.find(run.id()).await?.unwrap_or(run))
    }

    /// Cancels all runs of a session that have not ended.
    pub(crate) async fn cancel_all(&self, session: &Arc<Session>, scope: &Scope) -> Result<(), Fault> {
        let states = vec![RunState::Queued, RunState::Running, RunState::Waiting, RunState::WaitingForAuth];
        for id in self.runs_of(session, states, scope).await? {
            self.cancel(&Target::Run(id), scope).await?;
        }
        Ok(())
    }

    /// Cancels the runs of a session that work or are queued. `deletes`: and deletes them.
    pub(super) async fn interrupt(&self, session: &Arc<Session>, deletes: bool, scope: &Scope) -> Result<(), Fault> {
        for id in self.runs_of(session, vec![RunState::Queued, RunState::Running], scope).await? {
            let canceled = match deletes {
                true => self.delete(&Target::Run(id), scope).await,
                false => self.cancel(&Target::Run(id), scope).await.map(drop),
            };
            match canceled {
                // Its client may have deleted it meanwhile.
                Err(fault) if fault.kind == FaultKind::NotFound => {}
                canceled => canceled?,
            }
        }
        Ok(())
    }

    /// The runs of a session in these states, queued ones first: none shall start when the one under way ends.
    async fn runs_of(&self, session: &Arc<Session>, states: Vec<RunState>, scope: &Scope) -> Result<Vec<RunId>, Fault> {
        let session_id = Some(session.id.clone());
        let filter = Filter { session: session_id, states, limit: MAX_CANCELED, heads: true, ..Filter::default() };
        let page = list(&self.runs, &self.rules, u64::MAX, filter, scope).await?;

        let (mut queued, mut others) = (Vec::new(), Vec::new());
        for run in &page.runs {
            let view = run.view();
            let user = view.info.request.user_id.clone();
            // Another user's session may have the same id.
            let sessions = self.runs.sessions();
            let its_session = sessions.of_user(&view.run().agent, &scope.owner, &session.id, user.as_deref()).await?;
            if Arc::ptr_eq(&its_session, session) {
                let order = if view.info.state == RunState::Queued { &mut queued } else { &mut others };
                order.push(view.run().id);
            }
        }
        queued.append(&mut others);
        Ok(queued)
    }

    /// Ends a run, in a turn or between two. It may go from one to the other meanwhile, by what another client sends.
    async fn end(&self, run: &Arc<ActiveRun>) {
        let mut follower = Follower::new(&self.runs, RunHandle::InMemory(run.pin()));
        loop {
            let (state, turns) = run.view(|view| (view.info.state, view.run().turns.len()));
            match state {
                RunState::Waiting | RunState::WaitingForAuth => {
                    self.end_waiting(run, |_| true).await;
                }
                RunState::Queued | RunState::Running if run.end() => {
                    let is_last = |step: Step<'_>| match step.event {
                        Event::TurnFinished { turn, .. } => turn as usize + 1 >= turns,
                        event => matches!(event, Event::RunFinished { .. }),
                    };
                    follower.until(is_last).await;
                }
                RunState::Queued | RunState::Running => {}
                RunState::Ended(_) => {
                    // Clients see an end only once it is safe.
                    follower.until(|step| matches!(step.event, Event::RunFinished { .. })).await;
                    return;
                }
            }
        }
    }

    /// Ends a run between two turns, if it waits there and `still` agrees. Its pending items are withdrawn. True if this
    /// call ended it.
    pub(crate) async fn end_waiting(&self, run: &Arc<ActiveRun>, still: impl FnOnce(&RunInfo) -> bool) -> bool {
        let ended = run.update(Publish::Later, |state| {
            let ends = state.about.state.is_waiting() && still(&state.about);
            if ends {
                state.cut(End::Canceled, None);
            }
            ends
        });

        if !ended {
            return false;
        }

        if let Ok(session) = self.runs.session_of(&RunHandle::InMemory(run.pin())).await {
            session.withdraw(run.id());
            if let Err(fault) = self.runs.sessions().save(&session).await {
                tracing::error!(run = %run.id(), "the run is canceled, but the session still lists its items as open: {fault}");
            }
        }

        let store = self.runs.store();
        commit::publish_when_safe(store, run, store.write_timeout(), async {}).await;
        self.runs.turn_ended(run);
        true
    }

    /// Withdraws what a run that has ended still asks: no one decides it any more, and its session is free.
    pub(crate) async fn withdraw(&self, run: &RunHandle) -> Result<(), Fault> {
        // In whichever turn: nothing is left open of a run that has ended for good.
        let asks = run.view(|view| (0..view.run().turns.len()).any(|turn| !view.run().pending_of(turn).is_empty()));
        if !asks {
            return Ok(());
        }

        let session = self.runs.session_of(run).await?;
        if session.withdraw(run.id()) {
            self.runs.sessions().save(&session).await?;
        }
        if let RunHandle::InMemory(run) = run {
            run.update(Publish::Later, |state| state.pending.clear());
        }
        Ok(())
    }

    /// Deletes the attachments of a run of the caller.
    async fn detach(&self, id: RunId, scope: &Scope) -> Result<(), Fault> {
        let (store, prefix) = (self.runs.store(), scope.document_key(&attachment_key(id, "")));
        let found = store.list(ATTACHMENTS, &prefix, None, MAX_ATTACHMENTS).await;
        for entry in found.map_err(|error| store_fault(&error))? {
            let deleted = store.delete(ATTACHMENTS, &entry.key, Expect::Any).await;
            let _ = deleted.map_err(|error| store_fault(&error))?;
        }
        Ok(())
    }

    /// Cancels a run of the caller and deletes it.
    pub(crate) async fn delete(&self, target: &Target, scope: &Scope) -> Result<(), Fault> {
        let mut run = self.cancel(target, scope).await?;
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        loop {
            match self.delete_ended(run.clone(), scope).await {
                // The process that had it has not released it yet.
                Err(fault) if fault.kind == FaultKind::Restarted && Instant::now() < deadline => {
                    tokio::time::sleep(RELEASE_INTERVAL).await;
                    run = self.find_again(run).await?;
                }
                deleted => return deleted,
            }
        }
    }

    async fn delete_ended(&self, run: RunHandle, scope: &Scope) -> Result<(), Fault> {
        let id = run.id();
        let session = self.runs.session_of(&run).await?;
        let is_history = self.runs.sessions().entries().contain_run(&session, id).await?;
        self.detach(id, scope).await?;
        if is_history {
            // Later runs keep the history they have; by itself the run cannot be found.
            let run = self.runs.activate(run).await?;
            run.update(Publish::Now, |state| state.about.stored = false);
            let settled = commit::settle(self.runs.store(), &run).await;
            run.publish(Publish::Concluded);
            settled
        } else {
            self.runs.store().remove(id).await.map_err(|error| store_fault(&error))?;
            self.runs.remove(id);
            Ok(())
        }
    }
}
