//! Runs that exist: found by their owner, followed, cancelled, forgotten.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{RunInfo, RunState, Target};
use interlingua_core::pending::Pending;
use interlingua_core::{End, Event, Fault, Owner, RunId};

use super::abort_guard::Held;
use super::active_runs::Bringing;
use super::{ActiveRun, Answer, Engine, Follower, RunHandle, Scope, clock, context, store_fault, written};
use crate::store::{Journal, Signal, StoreFuture, StoredRun};

/// A run that was brought into memory, and the store's word that it looks at it, unless it does already.
type Raised = (Held, Option<StoreFuture<()>>);

impl Engine {
    pub(super) async fn waiting(&self, run: Option<RunId>) -> Result<Answer, Fault> {
        let handle = match run {
            Some(run) => self.handle(run).await?,
            None => None,
        };
        handle.map(Answer::Waiting).ok_or_else(context::waiting)
    }

    /// A run by its id, whoever it belongs to.
    pub(super) async fn handle(&self, id: RunId) -> Result<Option<RunHandle>, Fault> {
        if let Some(live) = self.lives().get(&id) {
            return Ok(Some(RunHandle::InMemory(Arc::clone(live))));
        }
        if let Some(live) = self.unstored().get(id) {
            return Ok(Some(RunHandle::InMemory(live)));
        }
        let Some(stored) = self.load(id).await? else { return Ok(None) };
        let pending = self.still_open(&stored).await?;
        Ok(Some(RunHandle::Stored(stored, pending.into())))
    }

    /// What a stored run waits for, as far as its session says that it is still open.
    pub(super) async fn still_open(&self, stored: &StoredRun) -> Result<Vec<Pending>, Fault> {
        let run = stored.record.run();
        let asked = run.pending();
        if asked.is_empty() {
            return Ok(asked);
        }
        let user = stored.info.request.user_id.as_deref();
        let owner = Owner::from_key(&stored.info.owner);
        let session = self.session_of(&run.agent, &owner, &run.session_id, user).await?;
        Ok(session.doc().waiting.pending_of(run.id))
    }

    /// A run of the caller. What is not the caller's does not exist.
    pub(super) async fn find(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        let id = match target {
            Target::Run(id) => *id,
            Target::Latest(session) => self.latest(session, scope).await?,
        };
        let missing = || Fault::not_found(format_args!("run '{id}'"));
        let handle = self.handle(id).await?.ok_or_else(missing)?;
        let kept = scope.connection.as_ref().is_some_and(|connection| connection.holds(id));
        let visible = handle.view(|view| {
            view.info.owner == scope.owner.key()
                && scope.agents.iter().any(|card| card.name == view.run().agent)
                && (view.info.stored || view.run().end.is_none() || kept)
                && !self.0.keeping.retention.is_expired(view.info, clock::now())
        });
        if visible { Ok(handle) } else { Err(missing()) }
    }

    async fn latest(&self, session: &str, scope: &Scope) -> Result<RunId, Fault> {
        let agents = scope.agents.iter().map(|card| card.name.clone()).collect();
        let found = self.store().latest(agents, scope.owner.key().to_owned(), session.to_owned()).await;
        found
            .map_err(|error| store_fault(&error))?
            .ok_or_else(|| Fault::not_found(format_args!("a run in session '{session}'")))
    }

    pub(super) async fn follow(&self, target: &Target, scope: &Scope, attach: bool) -> Result<Answer, Fault> {
        let run = self.find(target, scope).await?;
        let waits = run.view(|view| matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth));
        if waits && matches!(run, RunHandle::Stored(..)) {
            // Its next turn may come while it is followed.
            let held = self.revive(run.id(), scope).await?;
            let follower = Follower::new(self.clone(), RunHandle::InMemory(Arc::clone(&held)), false);
            return Ok(Answer::Steps { follower, attach });
        }
        Ok(Answer::Steps { follower: Follower::new(self.clone(), run, false), attach })
    }

    /// A run in memory again.
    pub(super) async fn revive(&self, id: RunId, scope: &Scope) -> Result<Held, Fault> {
        let run = self.find(&Target::Run(id), scope).await?;
        self.raise(run).await
    }

    /// A run in memory again, whoever it belongs to.
    pub(super) async fn raise(&self, mut run: RunHandle) -> Result<Held, Fault> {
        loop {
            let id = run.id();
            match run {
                RunHandle::InMemory(live) => match self.hold(&live) {
                    Some(held) => return Ok(held),
                    // It was forgotten since it was found: what is changed about this one would be lost.
                    None => {
                        let missing = || Fault::not_found(format_args!("run '{id}'"));
                        run = self.handle(id).await?.ok_or_else(missing)?;
                    }
                },
                RunHandle::Stored(..) => {
                    // What was found before may be outdated by now: others may have had it in memory meanwhile.
                    let bringing = Bringing::begin(self, id);
                    match self.handle(id).await? {
                        Some(RunHandle::Stored(stored, pending)) => {
                            if let Some((held, opened)) = self.raise_stored(&bringing, &stored, &pending)? {
                                if let Some(opened) = opened {
                                    opened.await.map_err(|error| store_fault(&error))?;
                                }
                                return Ok(held);
                            }
                            run = RunHandle::Stored(stored, pending);
                        }
                        Some(live) => run = live,
                        None => return Err(Fault::not_found(format_args!("run '{id}'"))),
                    }
                }
            }
        }
    }

    /// A run out of the store in memory, if it is not there yet, and the store's word that it looks at it. None: it has
    /// been in memory since it was loaded, and has to be loaded anew.
    fn raise_stored(
        &self,
        bringing: &Bringing,
        stored: &StoredRun,
        pending: &[Pending],
    ) -> Result<Option<Raised>, Fault> {
        // An agent that is not there any more is asked nothing; its runs can still be ended.
        let agents = &self.0.agents;
        let agent = agents.get(&stored.record.run().agent).or_else(|| agents.values().next());
        let agent = Arc::clone(agent.ok_or_else(|| Fault::not_found("the run's agent"))?);
        let live = ActiveRun::stored(agent, stored);
        live.update(|state| state.pending = pending.to_vec());
        let mut lives = self.lives();
        if let Some(known) = lives.get(&live.id()) {
            return Ok(Some((Held::new(self, known), None)));
        }
        if !bringing.is_current(&lives) {
            return Ok(None);
        }
        lives.insert(&live);
        // With the door closed: whoever finds it here finds it known to the store.
        let opened = self.store().open(&(Arc::clone(&live) as Arc<dyn Journal>));
        Ok(Some((Held::new(self, &live), Some(opened))))
    }

    /// Keeps a run in memory. None: it is not there any more, and another one may be.
    fn hold(&self, live: &Arc<ActiveRun>) -> Option<Held> {
        let lives = self.lives();
        let known = lives.get(&live.id()).is_some_and(|known| Arc::ptr_eq(known, live));
        // Nothing is changed about one that has ended.
        let over = || live.view(|view| matches!(view.info.state, RunState::Ended(_)));
        (known || over()).then(|| Held::new(self, live))
    }

    pub(super) async fn cancel(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        /// Cancelling is quick; a run that does not end in this time is told of as it stands.
        const PATIENCE: Duration = Duration::from_secs(10);
        let run = self.find(target, scope).await?;
        // A run that another one answers is stopped with that one.
        let answering = run.view(|view| view.run().answered_by().filter(|_| view.run().end.is_none()));
        if let Some(by) = answering {
            Box::pin(self.cancel(&Target::Run(by), scope)).await?;
            return Ok(self.handle(run.id()).await?.unwrap_or(run).settled(self).await);
        }
        match run.view(|view| view.info.state) {
            RunState::Ended(_) => {
                let run = run.settled(self).await;
                self.withdraw(&run).await?;
                return Ok(self.handle(run.id()).await?.unwrap_or(run));
            }
            RunState::Queued | RunState::Running if matches!(run, RunHandle::Stored(..)) => {
                // Another process drives it.
                self.store().signal(run.id(), Signal::Cancel).await.map_err(|error| store_fault(&error))?;
                return Ok(self.handle(run.id()).await?.unwrap_or(run));
            }
            _ => {}
        }
        let held = self.raise(run).await?;
        if held.view(|view| matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth)) {
            let its_own = self.scope_of(&held);
            let scope = its_own.as_ref().unwrap_or(scope);
            self.start_deliveries(&RunHandle::InMemory(Arc::clone(&held)), false, scope).await?;
        }
        let _ = tokio::time::timeout(PATIENCE, self.end_wherever(&held)).await;
        Ok(RunHandle::InMemory(Arc::clone(&held)))
    }

    /// Ends a run, in its turn or between two. It may go from one to the other meanwhile, by what another client says.
    async fn end_wherever(&self, live: &Arc<ActiveRun>) {
        let mut follower = Follower::new(self.clone(), RunHandle::InMemory(Arc::clone(live)), false);
        loop {
            let (state, turns) = live.view(|view| (view.info.state, view.run().turns.len()));
            match state {
                RunState::Waiting | RunState::WaitingForAuth => {
                    self.end_waiting(live, |_| true).await;
                }
                RunState::Queued | RunState::Running if live.end() => {
                    let last = |event| match event {
                        Event::TurnFinished { turn, .. } => turn as usize + 1 >= turns,
                        event => matches!(event, Event::RunFinished { .. }),
                    };
                    follower.until(last).await;
                }
                RunState::Queued | RunState::Running => {}
                RunState::Ended(_) => {
                    // Nobody is told what is not safe yet.
                    follower.until(|event| matches!(event, Event::RunFinished { .. })).await;
                    return;
                }
            }
        }
    }

    /// Ends a run between two turns, if it stands there and shall still end: what it asked is decided by nobody any
    /// more. True if that ended it.
    pub(super) async fn end_waiting(&self, live: &Arc<ActiveRun>, still: impl FnOnce(&RunInfo) -> bool) -> bool {
        let (agent, owner, session, user) = live.view(|view| {
            let (run, about) = (view.run(), view.info);
            (run.agent.clone(), Owner::from_key(&about.owner), run.session_id.clone(), about.request.user_id.clone())
        });
        let ended = live.update_unpublished(|state| {
            let waits = matches!(state.about.state, RunState::Waiting | RunState::WaitingForAuth);
            let ends = waits && still(&state.about);
            if ends {
                state.cut(End::Canceled, None);
            }
            ends
        });
        if !ended {
            return false;
        }
        if let Ok(session) = self.session_of(&agent, &owner, &session, user.as_deref()).await {
            session.doc().waiting.withdraw(live.id());
            if let Err(fault) = self.save_session(&session).await {
                tracing::error!(run = %live.id(), "{fault}");
            }
        }
        let journal = Arc::clone(live) as Arc<dyn Journal>;
        written::show(self, live, &journal, async {}).await;
        self.ended(live);
        true
    }

    pub(super) async fn delete(&self, target: &Target, scope: &Scope) -> Result<Answer, Fault> {
        let run = self.cancel(target, scope).await?;
        let (id, agent, session_id, user) = run.view(|view| {
            let run = view.run();
            (run.id, run.agent.clone(), run.session_id.clone(), view.info.request.user_id.clone())
        });
        let session = self.session_of(&agent, &scope.owner, &session_id, user.as_deref()).await?;
        let built_upon = self.holds(&session, id).await?;
        if built_upon {
            // What came after it keeps the context it had; by itself it is gone.
            let live = self.raise(run).await?;
            live.update(|state| state.about.stored = false);
            let settled = self.store().settle(&(Arc::clone(&live) as Arc<dyn Journal>));
            let settled = settled.await;
            live.publish();
            settled.map_err(|error| store_fault(&error))?;
        } else {
            self.store().remove(id).await.map_err(|error| store_fault(&error))?;
            self.lives().remove(id);
        }
        Ok(Answer::Done)
    }
}
