//! A run's life: begun, driven, followed, cancelled, forgotten. Serves each [`Call`] once, for every protocol.
//!
//! [`driver`] drives a run through its turns, [`active_run`] is a run in memory, [`follow`] a place in it, [`session`] whose
//! turn it is and what was said, [`context`] what is asked. Not here: HTTP on either side ([`crate::server`],
//! [`crate::upstream`]) and databases ([`crate::store`]); they meet here as traits.

mod abort_guard;
pub mod active_run;
mod active_runs;
pub mod clock;
mod coalescer;
mod connection;
mod context;
pub mod deliver;
mod driver;
mod early;
mod elsewhere;
mod entries;
pub mod follow;
mod gate;
mod housekeeping;
mod later;
pub mod loaded;
mod names;
mod published;
mod report;
mod resource;
mod runs;
mod session;
mod shown;
mod waits;
mod written;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use interlingua_core::call::{AgentCard, Cursor, DocumentCall, RunInfo, RunState, SessionCall, SessionView, Target};
use interlingua_core::model::{AgentRequest, Input};
use interlingua_core::{Call, Delivery, Event, Fault, FaultKind, Json, Owner, Record, Run, RunCall, RunId, Thread};
use tokio::sync::oneshot;

use self::abort_guard::AbortGuard;
pub use self::active_run::{ActiveRun, Take};
use self::active_runs::ActiveRuns;
pub use self::connection::ConnectionCache;
use self::connection::Unstored;
use self::context::{Outcome, Preparing};
use self::driver::{Beginning, Place, Turn};
pub use self::follow::{Follower, RunHandle};
pub use self::housekeeping::Housekeeping;
use self::loaded::Shelf;
pub use self::loaded::Shown;
use self::session::{Key, Session};
use crate::store::{Health, Journal, Store, StoreError};
use crate::upstream::{Trace, Upstream};

/// More runs than this are not under way at once.
const MAX_ACTIVE_RUNS: usize = 200_000;

/// Serves calls. Cheap to clone: all clones are one engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    agents: HashMap<String, Arc<Agent>>,
    store: Arc<dyn Store>,
    lives: Mutex<ActiveRuns>,
    sessions: Mutex<HashMap<Key, Weak<Session>>>,
    /// Responses that are not stored, and that a connection keeps.
    unstored: Mutex<Unstored>,
    /// No new runs are taken.
    closing: AtomicBool,
    /// Nothing will happen any more.
    over: AtomicBool,
    post: Arc<dyn deliver::WebhookClient>,
    deliveries: deliver::Deliveries,
    keeping: Housekeeping,
    /// Runs out of the store.
    loaded: Shelf,
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
#[derive(Clone)]
pub struct Scope {
    /// To whom runs and sessions belong.
    pub owner: Owner,
    /// The agents of the route.
    pub agents: Arc<[Arc<AgentCard>]>,
    /// The protocol of the route.
    pub protocol: &'static str,
    /// The path of the route, for the log.
    pub path: Arc<str>,
    /// Runs go on when their client leaves, whatever the protocol does by itself.
    pub detach: bool,
    /// How long a client may be kept waiting for the upstream's first word before its stream begins without it.
    pub first_event_timeout: Duration,
    /// What the protocol delivers without a request.
    pub push: Option<Arc<interlingua_core::push::PushNotifiers>>,
    /// The route, if it has rules of its own about how long its runs are kept.
    pub route: Option<Arc<str>>,
    /// The trace the request is part of: agents are told.
    pub trace: Option<Arc<Trace>>,
    /// What the connection keeps that the request came over. None: it keeps nothing from one request to the next.
    pub connection: Option<Arc<ConnectionCache>>,
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
        /// The runs, each as it was at one moment.
        runs: Vec<Shown>,
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
    /// What an agent's own server publishes about it.
    FetchedDocument(Option<Arc<interlingua_core::well_known::FetchedDocument>>),
    /// The session waits for answers first; the run that asked.
    Waiting(RunHandle),
    /// Done.
    Done,
}

impl Engine {
    /// An engine for these agents.
    #[must_use]
    pub fn new(
        agents: Vec<Arc<Agent>>,
        store: Arc<dyn Store>,
        post: Arc<dyn deliver::WebhookClient>,
        keeping: Housekeeping,
    ) -> Self {
        Self(Arc::new(Inner {
            agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
            store,
            lives: Mutex::default(),
            sessions: Mutex::default(),
            unstored: Mutex::default(),
            closing: AtomicBool::new(false),
            over: AtomicBool::new(false),
            post,
            deliveries: deliver::Deliveries::default(),
            keeping,
            loaded: Shelf::default(),
        }))
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn lives(&self) -> MutexGuard<'_, ActiveRuns> {
        self.0.lives.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock_sessions(&self) -> MutexGuard<'_, HashMap<Key, Weak<Session>>> {
        self.0.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether runs can be kept at the moment.
    #[must_use]
    pub fn health(&self) -> Health {
        self.store().health()
    }

    fn unstored(&self) -> MutexGuard<'_, Unstored> {
        self.0.unstored.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many runs are in memory.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.lives().len()
    }

    /// Answers a call. To be called on a thread with a local task set: runs live on the thread they began on.
    ///
    /// # Errors
    /// Whatever is in the way, as far as it is known before the answer begins.
    pub async fn answer(&self, call: Call, scope: &Scope) -> Result<Answer, Fault> {
        match call {
            Call::Run(call) => self.run(*call, scope).await,
            Call::Fetch(target) => Ok(Answer::Run(self.find(&target, scope).await?.settled(self).await)),
            Call::Follow(target) => self.follow(&target, scope, false).await,
            Call::Attach(target) => self.follow(&target, scope, true).await,
            Call::Cancel(target) => {
                let (engine, scope) = (self.clone(), scope.clone());
                complete(async move { engine.cancel(&target, &scope).await.map(Answer::Run) }).await
            }
            Call::Delete(target) => {
                let (engine, scope) = (self.clone(), scope.clone());
                complete(async move { engine.delete(&target, &scope).await }).await
            }
            Call::List(filter) => self.list(filter, scope).await,
            Call::Describe => Ok(Answer::Agents),
            Call::Session(call @ (SessionCall::Get { .. } | SessionCall::GetPart { .. } | SessionCall::List)) => {
                self.session_call(call, scope).await
            }
            Call::Session(call) => {
                if matches!(call, SessionCall::Create { .. } | SessionCall::Append { .. }) {
                    self.check_accepting()?;
                }
                let (engine, scope) = (self.clone(), scope.clone());
                complete(async move { engine.session_call(call, &scope).await }).await
            }
            Call::Document(call @ (DocumentCall::Get { .. } | DocumentCall::List { .. })) => {
                self.document_call(call, scope).await
            }
            Call::Document(call) => {
                if matches!(call, DocumentCall::Put { .. }) {
                    self.check_accepting()?;
                }
                let (engine, scope) = (self.clone(), scope.clone());
                complete(async move { engine.document_call(call, &scope).await }).await
            }
            Call::FetchedDocument(wanted) => self.published(&wanted, scope).await,
            Call::Nothing => Ok(Answer::Done),
        }
    }

    /// Whether anything new is begun or made. What is there can be looked at, stopped and deleted to the end.
    fn check_accepting(&self) -> Result<(), Fault> {
        /// By then another process answers here, or none.
        const COME_BACK: Duration = Duration::from_secs(5);
        if self.is_open() {
            return Ok(());
        }
        let mut fault = Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down");
        fault.retry_after = Some(COME_BACK);
        Err(fault)
    }

    async fn run(&self, mut call: RunCall, scope: &Scope) -> Result<Answer, Fault> {
        self.check_accepting()?;
        let agent =
            scope.agents.iter().find(|card| card.name == call.agent).and_then(|_| self.0.agents.get(&call.agent));
        let agent = Arc::clone(agent.ok_or_else(|| {
            let known: Vec<&str> = scope.agents.iter().map(|card| card.name.as_str()).collect();
            Fault::new(
                FaultKind::NoSuchAgent,
                format!("no agent is called '{}': known are {}", call.agent, known.join(", ")),
            )
        })?);
        if self.lives().len() >= MAX_ACTIVE_RUNS {
            return Err(Fault::new(FaultKind::Overloaded, "too many runs are under way"));
        }
        if call.delivery == Delivery::Background {
            call.detached = true;
            call.respond_immediately = true;
        }
        call.detached |= scope.detach;
        // While nothing can be written, only what need not be is begun.
        let unwritten = matches!(self.health(), Health::Failing { .. });
        if unwritten && (call.stored || call.detached || matches!(call.thread, Thread::Continue(_))) {
            return Err(written::refusal());
        }
        if let Thread::Continue(id) = call.thread {
            return self.continue_run(id, call, &agent, scope).await;
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
                    terms: call.answer_policy,
                    thread: &call.thread,
                };
                match self.prepare(preparing).await? {
                    Outcome::Ready(prepared) => Place::Ready(guard, prepared),
                    Outcome::Waiting(run) => return self.waiting(run).await,
                }
            }
            None if driver::queues(agent.queue_turns, call.busy) => Place::Behind(session.enqueue()?),
            None => return Err(session::busy(&session.id)),
        };
        let id = call.id.unwrap_or_else(clock::fresh);
        let now = clock::now();
        let mut record = Record::new(Run::new(id, agent.name.clone(), session.id.clone(), now));
        record.start_turn(place.said().unwrap_or_else(|| call.request.input.clone()));
        let about = RunInfo {
            protocol: scope.protocol.to_owned(),
            owner: scope.owner.key().to_owned(),
            state: RunState::Queued,
            changed_at: now,
            previous,
            delivery: call.delivery,
            stored: call.stored,
            request: AgentRequest { input: Input::default(), ..call.request.clone() },
            labels: call.labels.clone(),
            retention: housekeeping::keeper(&agent, &session, scope),
        };
        let behind = matches!(place, Place::Behind(_));
        // Invariant: nothing is awaited from here to the start of the run's task. A client may leave at every await,
        // which drops this future, and a run that is known by then would never be driven, nor end.
        let live = ActiveRun::new(Arc::clone(&agent), record, about);
        let abort_guard = AbortGuard::new(self.clone(), Arc::clone(&live));
        self.lives().insert(&live);
        // From here on: a session that is looked at, or forgotten, has this run under way.
        session.doc().latest = Some(id);
        let (safe, saved) = oneshot::channel();
        let (safe, saved) = (call.delivery == Delivery::Background).then_some((safe, saved)).unzip();
        let beginning = Beginning {
            opened: if unwritten {
                // Nothing of it is to be found later, so there is nothing to wait for.
                live.committed(u64::MAX);
                Box::pin(std::future::ready(Ok(())))
            } else {
                self.store().open(&(Arc::clone(&live) as Arc<dyn Journal>))
            },
            safe,
            scope: scope.push.is_some().then(|| Box::new(scope.clone())),
        };
        let follower = Follower::new(self.clone(), RunHandle::InMemory(live), !call.detached);
        let turn = Turn {
            session,
            place: Some(place),
            request: call.request,
            preamble: call.preamble,
            answers: call.answers,
            answer_policy: call.answer_policy,
            thread: call.thread,
            multi_turn: call.multi_turn,
            pause_on: call.pause_on,
            stored: call.stored,
            record_only: call.record_only,
            connection: scope.connection.as_ref().map(Arc::downgrade),
            trace: scope.trace.clone(),
            route: Arc::clone(&scope.path),
            resumes: None,
            moved: elsewhere::Moved::default(),
            discard_if_unreached: call.discard_if_unreached,
            started: Some(begun),
        };
        driver::start(abort_guard, Box::new(turn), Some(beginning));
        if let Some(saved) = saved {
            // What is answered before its end is safe before it is answered.
            saved.await.unwrap_or_else(|_| Err(mistake()))?;
        }
        let first_word = match call.first_event_timeout {
            Some(_) if behind => Duration::ZERO,
            Some(first_word) => first_word,
            None => scope.first_event_timeout,
        };
        let wanted = Wanted {
            delivery: call.delivery,
            early: call.respond_immediately,
            first_word,
            patience: call.collect_timeout,
        };
        self.deliver(wanted, follower, 0, waiting).await
    }

    /// Answers the way that was asked for.
    async fn deliver(
        &self,
        Wanted { delivery, early, first_word, patience }: Wanted,
        mut follower: Follower,
        turn: usize,
        begun: oneshot::Receiver<Result<(), Fault>>,
    ) -> Result<Answer, Fault> {
        // Whoever does not wait for the beginning lets go of it at once: the pump wants to know.
        let begun = (!early).then_some(begun);
        match delivery {
            Delivery::Background => Ok(Answer::Run(follower.run())),
            Delivery::Stream => {
                // Past that the stream begins without the upstream: a departed client is noticed then.
                if let Some(begun) = begun
                    && let Ok(Ok(begun)) = tokio::time::timeout(first_word, begun).await
                {
                    begun?;
                }
                Ok(Answer::Steps { follower, attach: false })
            }
            Delivery::Collect => {
                let over = async {
                    if let Some(begun) = begun
                        && let Ok(begun) = begun.await
                    {
                        begun?;
                    }
                    let ends =
                        |event| matches!(event, Event::TurnFinished { turn: ended, .. } if ended as usize >= turn);
                    follower.until(ends).await;
                    Ok::<(), Fault>(())
                };
                match patience {
                    // Past its patience the client gets the run as it stands.
                    Some(patience) => tokio::time::timeout(patience, over).await.unwrap_or(Ok(()))?,
                    None => over.await?,
                }
                // The turn's last step is shown together with what became of the run.
                Ok(Answer::Run(follower.run()))
            }
        }
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
                Ok((self.new_session(call, agent, scope).await?, None))
            }
            Thread::Session(id) => {
                if id.is_empty() || id.len() > 512 {
                    return Err(Fault::invalid("session_id", "must have between 1 and 512 characters"));
                }
                let session = self.session_of(&agent.name, owner, &id, call.request.user_id.as_deref()).await?;
                if lives_with_connection(call, scope) && session.is_blank() {
                    session.keep_in_memory();
                }
                let previous = session.doc().latest;
                Ok((session, previous))
            }
            Thread::After(run) => {
                let unknown = |_| Fault::not_found("the run to go on from").with_field("thread");
                let handle = self.find(&Target::Run(run), scope).await.map_err(unknown)?;
                let (session_id, user, stored, of, over) = handle.view(|view| {
                    let (run, about) = (view.run(), view.info);
                    let user = about.request.user_id.clone();
                    (run.session_id.clone(), user, about.stored, run.agent.clone(), run.end.is_some())
                });
                let kept = scope.connection.as_ref().and_then(|connection| connection.session_of(run));
                if !(stored || kept.is_some()) || of != agent.name {
                    return Err(Fault::not_found("the run to go on from").with_field("thread"));
                }
                // A turn that goes with its connection keeps off sessions that stay, unless it answers what was asked
                // there: it would be missing from them.
                let stays = kept.is_none() && lives_with_connection(call, scope);
                let session = match kept {
                    Some(session) => session,
                    None => self.session_of(&agent.name, owner, &session_id, user.as_deref()).await?,
                };
                // While it is still under way, its end is waited for: that is what queueing is for.
                let newest = !over || session.doc().ends_with(run);
                let leaves = stays && session.doc().waiting.open().next().is_none();
                if newest && !leaves {
                    return Ok((session, Some(run)));
                }
                Ok((self.new_session(call, agent, scope).await?, Some(run)))
            }
        }
    }

    async fn new_session(&self, call: &RunCall, agent: &Agent, scope: &Scope) -> Result<Arc<Session>, Fault> {
        let session = self.session(&agent.name, &scope.owner, &clock::fresh().to_string(), true).await?;
        if lives_with_connection(call, scope) {
            session.keep_in_memory();
        }
        Ok(session)
    }

    /// Sees to it that nobody finds a run again that has ended.
    fn forget(&self, run: &RunHandle) {
        match run {
            RunHandle::InMemory(live) => {
                live.update_unpublished(|state| state.about.stored = false);
                self.ended(live);
            }
            RunHandle::Stored(stored, _) => drop(self.store().remove(stored.record.run().id)),
        }
    }

    /// A run has no turn under way any more.
    pub(super) fn ended(&self, live: &Arc<ActiveRun>) {
        if !live.view(|view| view.info.stored) && live.view(|view| view.run().end.is_some()) {
            // Nobody may find it again; those who follow it still see its end.
            self.lives().remove(live.id());
            drop(self.store().remove(live.id()));
            return;
        }
        self.forget_if_idle(live);
    }

    /// Lets go of a run that is safe in the store and that nobody follows.
    pub(super) fn forget_if_idle(&self, live: &Arc<ActiveRun>) {
        // With the door closed: nobody finds it meanwhile, and another one of the same id stays.
        let mut lives = self.lives();
        let known = lives.get(&live.id()).is_some_and(|known| Arc::ptr_eq(known, live));
        let held = live.is_held();
        let busy = live.view(|view| matches!(view.info.state, RunState::Queued | RunState::Running));
        if known && !held && !busy && live.settling().is_none() && live.is_unreferenced() {
            lives.remove(live.id());
        }
    }
}

/// Whether what comes of a call is kept by the connection it came over, and nowhere else.
const fn lives_with_connection(call: &RunCall, scope: &Scope) -> bool {
    !call.stored && scope.connection.is_some()
}

/// How an answer is wanted, and how long its parts may take.
struct Wanted {
    delivery: Delivery,
    /// Without waiting for the upstream to begin.
    early: bool,
    /// How long a stream waits for that.
    first_word: Duration,
    /// How long a whole answer is waited for.
    patience: Option<Duration>,
}

/// Does something to its end, whether or not the client that asked for it waits so long: what is done in several steps
/// is not left half done.
async fn complete<T: 'static>(doing: impl Future<Output = Result<T, Fault>> + 'static) -> Result<T, Fault> {
    tokio::task::spawn_local(doing).await.unwrap_or_else(|_| Err(mistake()))
}

/// Something panicked.
fn mistake() -> Fault {
    Fault::new(FaultKind::Internal, "the gateway made a mistake")
}

/// A store that does not do what it should is our fault; what it said goes to the log.
pub(super) fn store_fault(error: &StoreError) -> Fault {
    match error {
        // It goes on trying, and says in the log that it fails and when it does no more.
        StoreError::File { .. } | StoreError::Timeout { .. } | StoreError::Overloaded => {
            written::refusal().with_detail(error)
        }
        StoreError::Closed => Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down").with_detail(error),
        _ => {
            tracing::error!(%error, "the store failed");
            Fault::new(FaultKind::Internal, "the gateway could not read or write its records").with_detail(error)
        }
    }
}
