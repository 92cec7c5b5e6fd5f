//! A run's life: begun, driven, followed, cancelled, forgotten. Serves each [`Call`] once, for every protocol.
//!
//! [`pump`] drives a run through its turns, [`live`] is a run in memory, [`follow`] a place in it, [`session`] whose
//! turn it is and what was said, [`context`] what is asked. Not here: HTTP on either side ([`crate::server`],
//! [`crate::upstream`]) and databases ([`crate::store`]); they meet here as traits.

pub mod clock;
mod context;
pub mod follow;
pub mod live;
mod pump;
mod resource;
mod session;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use interlingua_core::call::{About, AgentCard, Busy, Cursor, RunState, SessionView, Target};
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::Pending;
use interlingua_core::run::RunError;
use interlingua_core::{Call, Delivery, End, Fault, FaultKind, Json, Record, Run, RunCall, RunId, Thread};
use tokio::sync::oneshot;

use self::context::{Outcome, Preparing};
pub use self::follow::{Follower, RunHandle};
pub use self::live::{Live, Take};
use self::pump::{Place, Turn};
use self::session::{Key, Session};
use crate::store::{Journal, Query, Retention, Signal, Store, StoreError, Stored};
use crate::upstream::Upstream;

/// More runs than this are not under way at once.
const MOST_LIVE: usize = 200_000;

/// Serves calls. Cheap to clone: all clones are one engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    agents: HashMap<String, Arc<Agent>>,
    store: Arc<dyn Store>,
    lives: Mutex<HashMap<RunId, Arc<Live>>>,
    sessions: Mutex<HashMap<Key, Weak<Session>>>,
    closing: AtomicBool,
}

/// An agent as the engine knows it.
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What clients may know of it.
    pub card: Arc<AgentCard>,
    /// The way to it.
    pub upstream: Arc<dyn Upstream>,
    /// Who remembers what was said.
    pub history: History,
    /// How much of it is sent.
    pub history_limit: HistoryLimit,
    /// Whether a turn waits while another one of its session is under way.
    pub queue_turns: bool,
    /// The largest run, in bytes.
    pub max_run_bytes: usize,
    /// Whether it takes decisions beyond yes and no.
    pub approval_extension: bool,
}

/// Who remembers what was said in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The agent, by the session's id.
    Upstream,
    /// The gateway.
    Gateway,
}

/// How much history is sent at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    /// In turns.
    pub turns: usize,
    /// In bytes.
    pub bytes: usize,
}

/// On whose behalf a call is made, and where.
#[derive(Clone, Debug)]
pub struct Scope {
    /// To whom runs and sessions belong.
    pub owner: String,
    /// The agents of the route.
    pub agents: Arc<[Arc<AgentCard>]>,
    /// The protocol of the route.
    pub protocol: &'static str,
    /// Runs go on when their client leaves, whatever the protocol does by itself.
    pub detach: bool,
    /// How long a client may be kept waiting for the upstream's first word before its stream begins without it.
    pub patience: Duration,
}

/// What a call is answered with.
pub enum Answer {
    /// Steps, from the first one; `attach` begins with the run as it stands instead.
    Steps {
        /// The place in the run.
        follower: Follower,
        /// Begin with a view, go on from there.
        attach: bool,
    },
    /// A run.
    Run(RunHandle),
    /// A page of runs.
    Runs {
        /// The runs.
        runs: Vec<RunHandle>,
        /// How many match on all pages.
        total: usize,
        /// Where the next page begins.
        next: Option<Cursor>,
    },
    /// The agents of the route.
    Agents,
    /// Sessions.
    Sessions(Vec<SessionView>),
    /// Records of an adapter.
    Documents(Vec<(String, Json)>),
    /// The session waits for answers first; the run that asked.
    Waiting(RunHandle),
    /// Done.
    Done,
}

impl Engine {
    /// An engine for these agents.
    #[must_use]
    pub fn new(agents: Vec<Arc<Agent>>, store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner {
            agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
            store,
            lives: Mutex::default(),
            sessions: Mutex::default(),
            closing: AtomicBool::new(false),
        }))
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Live>>> {
        self.0.lives.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock_sessions(&self) -> MutexGuard<'_, HashMap<Key, Weak<Session>>> {
        self.0.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many runs are in memory.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.lives().len()
    }

    /// Answers a call. To be called on a thread with a local task set: runs live on the thread they began on.
    ///
    /// # Errors
    /// Whatever is in the way, as far as it is known before the answer begins.
    pub async fn answer(&self, call: Call, scope: &Scope) -> Result<Answer, Fault> {
        match call {
            Call::Run(call) => self.run(*call, scope).await,
            Call::Fetch(target) => self.find(&target, scope).await.map(Answer::Run),
            Call::Follow(target) => self.follow(&target, scope, false).await,
            Call::Attach(target) => self.follow(&target, scope, true).await,
            Call::Cancel(target) => self.cancel(&target, scope).await.map(Answer::Run),
            Call::Delete(target) => self.delete(&target, scope).await,
            Call::List(filter) => self.list(filter, scope).await,
            Call::Describe => Ok(Answer::Agents),
            Call::Session(call) => self.session_call(call, scope).await,
            Call::Document(call) => self.document_call(call, scope).await,
            Call::Nothing => Ok(Answer::Done),
        }
    }

    async fn run(&self, mut call: RunCall, scope: &Scope) -> Result<Answer, Fault> {
        if self.0.closing.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down"));
        }
        let agent = scope.agents.iter().find(|card| card.name == call.agent).and_then(|_| self.0.agents.get(&call.agent));
        let agent = Arc::clone(agent.ok_or_else(|| {
            let known: Vec<&str> = scope.agents.iter().map(|card| card.name.as_str()).collect();
            Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{}': known are {}", call.agent, known.join(", ")))
        })?);
        if self.lives().len() >= MOST_LIVE {
            return Err(Fault::new(FaultKind::Overloaded, "too many runs are under way"));
        }
        if call.delivery == Delivery::Background {
            call.durable = true;
            call.early = true;
        }
        call.durable |= scope.detach;
        if let Thread::Continue(id) = call.thread {
            return self.go_on(id, call, &agent, scope).await;
        }
        let (session, previous) = self.session_for(&mut call, &agent, scope).await?;
        let (begun, waiting) = oneshot::channel();
        let mut place = match session.try_turn() {
            Some(guard) => {
                let preparing = Preparing {
                    session: &session,
                    agent: &agent,
                    request: &call.request,
                    preamble: &call.preamble,
                    answers: &call.answers,
                    terms: call.terms,
                    thread: &call.thread,
                };
                match self.prepare(preparing).await? {
                    Outcome::Ready(prepared) => Place::Ready(guard, prepared),
                    Outcome::Waiting(run) => return self.waiting(run).await,
                }
            }
            None if pump::queues(agent.queue_turns, call.busy) => Place::Behind(session.enqueue()?),
            None => return Err(session::busy(&session.id)),
        };
        let id = call.id.unwrap_or_else(clock::fresh);
        let now = clock::now();
        let mut record = Record::new(Run::new(id, agent.name.clone(), session.id.clone(), now));
        record.start_turn(place.said().unwrap_or_else(|| call.request.input.clone()));
        let about = About {
            protocol: scope.protocol.to_owned(),
            owner: scope.owner.clone(),
            state: RunState::Queued,
            changed_at: now,
            previous,
            delivery: call.delivery,
            stored: call.stored,
            request: AgentRequest { input: Vec::new(), ..call.request.clone() },
            labels: call.labels.clone(),
        };
        let live = Live::new(Arc::clone(&agent), record, about);
        self.lives().insert(id, Arc::clone(&live));
        // From here on: a session that is looked at, or forgotten, has this run under way.
        session.doc().latest = Some(id);
        let opened = self.store().open(&(Arc::clone(&live) as Arc<dyn Journal>));
        if call.delivery == Delivery::Background {
            opened.await.map_err(|error| {
                self.lives().remove(&id);
                store_fault(&error)
            })?;
        }
        let follower = Follower::new(self.clone(), RunHandle::Live(Arc::clone(&live)), !call.durable);
        let turn = Turn {
            session,
            place: Some(place),
            request: call.request,
            preamble: call.preamble,
            answers: call.answers,
            terms: call.terms,
            thread: call.thread,
            turns: call.turns,
            stored: call.stored,
            begun: Some(begun),
        };
        tokio::task::spawn_local(pump::drive(self.clone(), live, turn));
        self.deliver(call.delivery, call.early, follower, 0, waiting, scope).await
    }

    /// Answers the way that was asked for.
    async fn deliver(
        &self,
        delivery: Delivery,
        early: bool,
        mut follower: Follower,
        turn: usize,
        begun: oneshot::Receiver<Result<(), Fault>>,
        scope: &Scope,
    ) -> Result<Answer, Fault> {
        match delivery {
            Delivery::Background => Ok(Answer::Run(follower.run())),
            Delivery::Stream => {
                if !early {
                    // Past the patience the stream begins without the upstream: a departed client is noticed then.
                    if let Ok(Ok(begun)) = tokio::time::timeout(scope.patience, begun).await {
                        begun?;
                    }
                }
                Ok(Answer::Steps { follower, attach: false })
            }
            Delivery::Collect => {
                if !early && let Ok(begun) = begun.await {
                    begun?;
                }
                follower.until(|view| view.run().turns.get(turn).is_some_and(|turn| turn.end.is_some())).await;
                // The turn's last step is shown together with what became of the run.
                Ok(Answer::Run(follower.run()))
            }
        }
    }

    /// One more turn of a run that waits, or works.
    async fn go_on(&self, id: RunId, call: RunCall, agent: &Arc<Agent>, scope: &Scope) -> Result<Answer, Fault> {
        let live = self.revive(id, scope).await?;
        let session_id = live.view(|view| view.run().session_id.clone());
        let session = self.session(&agent.name, &scope.owner, &session_id, false).await?;
        let (begun, waiting) = oneshot::channel();
        let mut turn = Turn {
            place: Some(Place::Behind(session.enqueue()?)),
            session: Arc::clone(&session),
            request: call.request,
            preamble: call.preamble,
            answers: call.answers,
            terms: call.terms,
            thread: call.thread,
            turns: call.turns,
            stored: call.stored,
            begun: Some(begun),
        };
        let waits = live.view(|view| matches!(view.about.state, RunState::Waiting | RunState::WaitingForAuth));
        if waits && let Some(guard) = session.try_turn() {
            match self.prepare(turn.preparing(agent)).await? {
                Outcome::Ready(prepared) => turn.place = Some(Place::Ready(guard, prepared)),
                Outcome::Waiting(_) => return Ok(Answer::Waiting(RunHandle::Live(live))),
            }
        }
        let now = clock::now();
        let follower = Follower::new(self.clone(), RunHandle::Live(Arc::clone(&live)), false);
        let (number, start) = live.grow(|state| {
            state.about.request = AgentRequest { input: Vec::new(), ..turn.request.clone() };
            if !call.labels.is_null() {
                state.about.labels = call.labels.clone();
            }
            match state.about.state {
                RunState::Ended(_) => Err(ended(id)),
                RunState::Waiting | RunState::WaitingForAuth => {
                    state.record.at(now);
                    state.record.start_turn(turn.place.as_mut().and_then(Place::said).unwrap_or_else(|| turn.request.input.clone()));
                    state.pending.clear();
                    state.set(RunState::Queued, now);
                    Ok((state.record.run().turns.len() - 1, Some(turn)))
                }
                RunState::Queued | RunState::Running => {
                    if call.busy == Some(Busy::Refuse) {
                        return Err(session::busy(&session.id));
                    }
                    state.queued.push(turn);
                    Ok((state.record.run().turns.len() - 1 + state.queued.len(), None))
                }
            }
        })?;
        if let Some(turn) = start {
            tokio::task::spawn_local(pump::drive(self.clone(), live, turn));
        }
        // A turn that is queued behind another one of the same run begins late: nobody waits for that.
        let answer = self.deliver(call.delivery, true, follower, number, waiting, scope).await?;
        Ok(match answer {
            Answer::Steps { follower, .. } => Answer::Steps { follower, attach: true },
            answer => answer,
        })
    }

    /// The session a run belongs to, and the run it follows.
    async fn session_for(
        &self,
        call: &mut RunCall,
        agent: &Arc<Agent>,
        scope: &Scope,
    ) -> Result<(Arc<Session>, Option<RunId>), Fault> {
        let owner = &scope.owner;
        match call.thread.clone() {
            Thread::New | Thread::Continue(_) => {
                if let Some(session) = self.session_of_answers(call, agent, owner).await? {
                    call.thread = Thread::Session(session.id.clone());
                    let previous = session.doc().latest;
                    return Ok((session, previous));
                }
                Ok((self.session(&agent.name, owner, &clock::fresh().to_string(), true).await?, None))
            }
            Thread::Session(id) => {
                if id.is_empty() || id.len() > 512 {
                    return Err(Fault::invalid("session_id", "must have between 1 and 512 characters"));
                }
                let session = self.session(&agent.name, owner, &id, false).await?;
                let previous = session.doc().latest;
                Ok((session, previous))
            }
            Thread::After(run) => {
                let unknown = |_| Fault::not_found("the run to go on from").at("thread");
                let handle = self.find(&Target::Run(run), scope).await.map_err(unknown)?;
                let (session_id, stored, of, over) = handle.view(|view| {
                    let run = view.run();
                    (run.session_id.clone(), view.about.stored, run.agent.clone(), run.end.is_some())
                });
                if !stored || of != agent.name {
                    return Err(Fault::not_found("the run to go on from").at("thread"));
                }
                let session = self.session(&agent.name, owner, &session_id, false).await?;
                // While it is still under way, its end is waited for: that is what queueing is for.
                let newest = !over || session.doc().ends_with(run);
                if newest {
                    return Ok((session, Some(run)));
                }
                Ok((self.session(&agent.name, owner, &clock::fresh().to_string(), true).await?, Some(run)))
            }
        }
    }

    async fn waiting(&self, run: Option<RunId>) -> Result<Answer, Fault> {
        let handle = match run {
            Some(run) => self.handle(run).await?,
            None => None,
        };
        handle.map(Answer::Waiting).ok_or_else(context::waiting)
    }

    /// A run by its id, whoever it belongs to.
    pub(super) async fn handle(&self, id: RunId) -> Result<Option<RunHandle>, Fault> {
        if let Some(live) = self.lives().get(&id) {
            return Ok(Some(RunHandle::Live(Arc::clone(live))));
        }
        let stored = self.store().load(id).await.map_err(|error| store_fault(&error))?;
        let Some(stored) = stored else { return Ok(None) };
        let pending = self.still_open(&stored).await?;
        Ok(Some(RunHandle::Stored(stored, pending.into())))
    }

    /// What a stored run waits for, as far as its session says that it is still open.
    async fn still_open(&self, stored: &Stored) -> Result<Vec<Pending>, Fault> {
        let run = stored.record.run();
        let asked = run.pending();
        if asked.is_empty() {
            return Ok(asked);
        }
        let session = self.known_session(&run.agent, &stored.about.owner, &run.session_id).await?;
        Ok(session.map_or_else(Vec::new, |session| session.doc().waiting.pending_of(run.id)))
    }

    /// A run of the caller. What is not the caller's does not exist.
    async fn find(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        let id = match target {
            Target::Run(id) => *id,
            Target::Latest(session) => self.latest(session, scope).await?,
        };
        let missing = || Fault::not_found(format_args!("run '{id}'"));
        let handle = self.handle(id).await?.ok_or_else(missing)?;
        let visible = handle.view(|view| {
            view.about.owner == scope.owner
                && scope.agents.iter().any(|card| card.name == view.run().agent)
                && (view.about.stored || view.run().end.is_none())
        });
        if visible { Ok(handle) } else { Err(missing()) }
    }

    async fn latest(&self, session: &str, scope: &Scope) -> Result<RunId, Fault> {
        let agents = scope.agents.iter().map(|card| card.name.clone()).collect();
        let found = self.store().latest(agents, scope.owner.clone(), session.to_owned()).await;
        found
            .map_err(|error| store_fault(&error))?
            .ok_or_else(|| Fault::not_found(format_args!("a run in session '{session}'")))
    }

    async fn follow(&self, target: &Target, scope: &Scope, attach: bool) -> Result<Answer, Fault> {
        let mut run = self.find(target, scope).await?;
        let waits = run.view(|view| matches!(view.about.state, RunState::Waiting | RunState::WaitingForAuth));
        if waits && matches!(run, RunHandle::Stored(..)) {
            // Its next turn may come while it is followed.
            let id = run.view(|view| view.run().id);
            run = RunHandle::Live(self.revive(id, scope).await?);
        }
        Ok(Answer::Steps { follower: Follower::new(self.clone(), run, false), attach })
    }

    /// A run in memory again.
    async fn revive(&self, id: RunId, scope: &Scope) -> Result<Arc<Live>, Fault> {
        match self.find(&Target::Run(id), scope).await? {
            RunHandle::Live(live) => Ok(live),
            RunHandle::Stored(stored, pending) => {
                let agent = self.0.agents.get(&stored.record.run().agent);
                let agent = Arc::clone(agent.ok_or_else(|| Fault::not_found("the run's agent"))?);
                let live = Live::new(agent, stored.record.clone(), stored.about.clone());
                live.grow(|state| state.pending = pending.to_vec());
                let (live, new) = match self.lives().entry(id) {
                    std::collections::hash_map::Entry::Occupied(entry) => (Arc::clone(entry.get()), false),
                    std::collections::hash_map::Entry::Vacant(entry) => (Arc::clone(entry.insert(live)), true),
                };
                if new {
                    let opened = self.store().open(&(Arc::clone(&live) as Arc<dyn Journal>));
                    opened.await.map_err(|error| store_fault(&error))?;
                }
                Ok(live)
            }
        }
    }

    async fn cancel(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        /// Cancelling is quick; a run that does not end in this time is told of as it stands.
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut run = self.find(target, scope).await?;
        let (id, state) = run.view(|view| (view.run().id, view.about.state));
        match state {
            RunState::Ended(_) => return Ok(run),
            RunState::Waiting | RunState::WaitingForAuth => {
                let live = self.revive(id, scope).await?;
                self.cancel_waiting(&live).await;
                return Ok(RunHandle::Live(live));
            }
            RunState::Queued | RunState::Running => {}
        }
        match &run {
            RunHandle::Live(live) => {
                live.stop(None);
                let mut follower = Follower::new(self.clone(), run.clone(), false);
                let over = follower.until(|view| view.run().end.is_some());
                let _ = tokio::time::timeout(PATIENCE, over).await;
            }
            RunHandle::Stored(..) => {
                self.store().signal(id, Signal::Cancel).await.map_err(|error| store_fault(&error))?;
                run = self.handle(id).await?.unwrap_or(run);
            }
        }
        Ok(run)
    }

    /// Ends a run between two turns: what it asked is decided by nobody any more.
    async fn cancel_waiting(&self, live: &Arc<Live>) {
        let (agent, owner, session) =
            live.view(|view| (view.run().agent.clone(), view.about.owner.clone(), view.run().session_id.clone()));
        let ended = live.grow_unseen(|state| {
            let waits = matches!(state.about.state, RunState::Waiting | RunState::WaitingForAuth);
            if waits {
                state.cut(End::Canceled, None);
            }
            waits
        });
        if !ended {
            return live.stop(None);
        }
        if let Ok(Some(session)) = self.known_session(&agent, &owner, &session).await {
            session.doc().waiting.withdraw(live.id());
            if let Err(fault) = self.save_session(&session).await {
                tracing::error!(run = %live.id(), "{fault}");
            }
        }
        let journal = Arc::clone(live) as Arc<dyn Journal>;
        if let Err(error) = self.store().settle(&journal).await {
            tracing::error!(run = %live.id(), %error, "the run could not be written down");
        }
        live.show();
        self.ended(live);
    }

    async fn delete(&self, target: &Target, scope: &Scope) -> Result<Answer, Fault> {
        let run = self.cancel(target, scope).await?;
        let (id, agent, session_id) = run.view(|view| (view.run().id, view.run().agent.clone(), view.run().session_id.clone()));
        let session = self.known_session(&agent, &scope.owner, &session_id).await?;
        let built_upon = session.is_some_and(|session| {
            let doc = session.doc();
            doc.entries.iter().any(|entry| matches!(entry, session::Entry::Turn { run, .. } if *run == id))
        });
        if built_upon {
            // What came after it keeps the context it had; by itself it is gone.
            let live = match run {
                RunHandle::Live(live) => live,
                RunHandle::Stored(..) => self.revive(id, scope).await?,
            };
            live.grow(|state| state.about.stored = false);
            let settled = self.store().settle(&(Arc::clone(&live) as Arc<dyn Journal>));
            settled.await.map_err(|error| store_fault(&error))?;
            self.forget_if_idle(&live);
        } else {
            self.store().remove(id).await.map_err(|error| store_fault(&error))?;
            self.lives().remove(&id);
        }
        Ok(Answer::Done)
    }

    async fn list(&self, filter: interlingua_core::call::Filter, scope: &Scope) -> Result<Answer, Fault> {
        let agents = scope.agents.iter().map(|card| card.name.clone()).collect();
        let query = Query { agents, owner: Some(scope.owner.clone()), filter };
        let found = self.store().find(query).await.map_err(|error| store_fault(&error))?;
        let mut runs = Vec::with_capacity(found.runs.len());
        for head in &found.runs {
            if let Some(run) = self.handle(head.id).await? {
                runs.push(run);
            }
        }
        Ok(Answer::Runs { runs, total: found.total, next: found.next })
    }

    /// A run has no turn under way any more.
    pub(super) fn ended(&self, live: &Arc<Live>) {
        if !live.view(|view| view.about.stored) && live.view(|view| view.run().end.is_some()) {
            // Nobody may find it again; those who follow it still see its end.
            self.lives().remove(&live.id());
            drop(self.store().remove(live.id()));
            return;
        }
        self.forget_if_idle(live);
    }

    /// Lets go of a run that is safe in the store and that nobody follows.
    pub(super) fn forget_if_idle(&self, live: &Arc<Live>) {
        let busy = live.view(|view| matches!(view.about.state, RunState::Queued | RunState::Running));
        if !busy && live.is_alone() {
            self.lives().remove(&live.id());
        }
    }

    /// Closes what the last process left open, and keeps the store in bounds from then on. Runs until it is dropped.
    pub async fn housekeeping(self, retention: Retention) {
        const PAUSE: Duration = Duration::from_secs(60);
        let mut signals = self.store().signals();
        loop {
            loop {
                match self.store().retain(retention.clone(), clock::now()).await {
                    Ok(swept) if swept.more => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "old runs could not be forgotten");
                        break;
                    }
                }
            }
            let pause = tokio::time::sleep(PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    signal = signals.recv() => {
                        let Some((id, Signal::Cancel)) = signal else { return };
                        if let Some(live) = self.lives().get(&id).cloned() {
                            live.stop(None);
                        }
                    }
                }
            }
        }
    }

    /// Closes the runs that were under way when the last process died: they failed, with a code of their own.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let left = self.store().recover().await?;
        for id in &left {
            let Some(stored) = self.store().load(*id).await? else { continue };
            let Some(agent) = self.0.agents.get(&stored.record.run().agent).or_else(|| self.0.agents.values().next())
            else {
                continue;
            };
            let live = Live::new(Arc::clone(agent), stored.record.clone(), stored.about.clone());
            let journal = Arc::clone(&live) as Arc<dyn Journal>;
            self.store().open(&journal).await?;
            let error = RunError {
                code: FaultKind::Restarted.code().to_owned(),
                message: "the gateway was restarted while the run was under way".to_owned(),
            };
            live.grow(|state| state.cut(End::Failed, Some(error)));
            self.store().settle(&journal).await?;
        }
        Ok(left.len())
    }

    /// Takes no new runs, waits for those under way, and ends what is left when the time is up.
    pub async fn drain(&self, patience: Duration) {
        self.0.closing.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + patience;
        while self.working() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left: Vec<Arc<Live>> = self.lives().values().cloned().collect();
        for live in left {
            live.stop(Some(Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down")));
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while self.working() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// True while new runs are taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.0.closing.load(Ordering::Relaxed)
    }

    fn working(&self) -> usize {
        let lives: Vec<Arc<Live>> = self.lives().values().cloned().collect();
        lives
            .iter()
            .filter(|live| live.view(|view| matches!(view.about.state, RunState::Queued | RunState::Running)))
            .count()
    }
}

fn ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has ended"))
}

/// A store that does not do what it should is our fault; what it said goes to the log.
pub(super) fn store_fault(error: &StoreError) -> Fault {
    tracing::error!(%error, "the store failed");
    Fault::new(FaultKind::Internal, "the gateway could not read or write its records").because(error)
}
