//! Runs and sessions: serves the [`Call`]s of all protocols.
//!
//! [`Engine`] dispatches calls to six modules, each behind a facade. From high to low: [`operator`], [`turns`],
//! [`pending`], [`deliveries`], [`runs`], [`sessions`]. A module imports only lower ones, and only through the facade.
//! The other files are small types that all modules use.
//!
//! Not here: HTTP ([`interlingua_server`], [`interlingua_upstream`]) and databases ([`interlingua_store`]), which the
//! engine uses through traits.

mod agent;
mod backoff;
mod complete;
mod deliveries;
mod faults;
mod limits;
mod operator;
mod pending;
mod route_agents;
mod runs;
mod sessions;
#[cfg(test)]
mod stored_forms;
mod stored_json;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{DocumentCall, Listen, SessionCall};
use interlingua_core::seal::Sealer;
use interlingua_core::{Call, Fault};

pub use self::agent::{Agent, History, HistoryLimit};
pub use self::deliveries::PUSHED;
pub use self::limits::Limits;
pub use self::operator::{Operator, RunQuery, RunSummary, Summaries, summary_of};
pub use self::route_agents::RouteAgents;
pub use self::runs::{
    ActiveRun, Answer, ConnectionCache, Follower, ListedRun, Listener, Loaded, RetentionRules, RunHandle, Scope, Take,
};
pub use self::sessions::{OPEN_ITEMS, OpenItem, OpenItems};

use self::agent::Agents;
use self::complete::complete;
use self::deliveries::{Deliveries, LeftDeliveries};
use self::operator::{Documents, Housekeeping, SessionCalls, levels, running_by_protocol};
use self::pending::{PendingIndex, ResentChooser, RunLinker};
use self::runs::{RunAccess, RunTable, SharedRules, UnreadBudget, UnstoredRuns, list, settled, taken};
use self::sessions::SessionTable;
use self::turns::{
    Canceller, Concluder, ContextBuilder, Driver, FirstTurns, LaterTurns, SessionChooser, Transcripts, TurnServices,
};
use interlingua_base::ports::WebhookClient;
use interlingua_callers::Callers;
use interlingua_observe::metrics::{Levels, Metrics};
use interlingua_store::{Health, ReplicaStatus, Store, StoreError, StoreSizes};

/// The maximum duration of [`Call::Wait`].
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Serves calls. Clones share all state.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    agents: Arc<Agents>,
    runs: Arc<RunTable>,
    rules: Arc<SharedRules>,
    access: Arc<RunAccess>,
    canceller: Arc<Canceller>,
    first_turns: FirstTurns,
    session_calls: Arc<SessionCalls>,
    documents: Arc<Documents>,
    housekeeping: Housekeeping,
    limits: Limits,
    sealer: Sealer,
}

impl Engine {
    /// Creates an engine.
    #[must_use]
    pub fn new(
        agents: Vec<Arc<Agent>>,
        store: Arc<dyn Store>,
        webhooks: Arc<dyn WebhookClient>,
        rules: RetentionRules,
        callers: Arc<Callers>,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (agents, rules) = (Arc::new(Agents::new(agents)), Arc::new(SharedRules::new(rules)));
        let sessions = Arc::new(SessionTable::new(Arc::clone(&store)));
        let unstored = Arc::new(UnstoredRuns::default());
        let runs = Arc::new(RunTable::new(Arc::clone(&agents), Arc::clone(&store), Arc::clone(&sessions), unstored));
        let deliveries = Arc::new(Deliveries::new(&runs, webhooks, callers, limits.pushes, metrics));
        let transcripts = Arc::new(Transcripts::new(Arc::clone(&runs)));
        let access = Arc::new(RunAccess::new(Arc::clone(&runs), Arc::clone(&rules)));
        let canceller =
            Canceller::new(Arc::clone(&runs), Arc::clone(&access), Arc::clone(&deliveries), Arc::clone(&rules));
        let canceller = Arc::new(canceller);
        let linker = Arc::new(RunLinker::new(Arc::clone(&runs), Arc::clone(&deliveries), Arc::clone(&rules)));
        let shared = (&runs, &access, &deliveries);
        let first_turns = first_turns(&agents, shared, linker, &transcripts, &canceller, limits);
        let session_calls = SessionCalls::new(Arc::clone(&runs), transcripts, Arc::clone(&canceller));
        let sealer = Sealer::default();

        Self(Arc::new(Inner {
            documents: Arc::new(Documents::new(store, Arc::clone(&deliveries), limits.receivers)),
            housekeeping: Housekeeping {
                agents: Arc::clone(&agents),
                runs: Arc::clone(&runs),
                left_deliveries: LeftDeliveries::new(&runs, &deliveries, &rules),
                deliveries,
                canceller: Arc::clone(&canceller),
                rules: Arc::clone(&rules),
                sealer: sealer.clone(),
            },
            sealer,
            agents,
            runs,
            rules,
            access,
            canceller,
            first_turns,
            session_calls: Arc::new(session_calls),
            limits,
        }))
    }

    /// Serves a call. Must be awaited within a local task set, because a run stays on the thread that started it.
    ///
    /// # Errors
    /// If the call fails before the answer begins.
    pub async fn answer(&self, call: Call, scope: &Scope) -> Result<Answer, Fault> {
        let Inner { agents, runs, rules, access, .. } = &*self.0;
        match call {
            Call::Run(call) => {
                self.check_accepting()?;
                self.0.first_turns.start(call, scope).await
            }
            Call::Fetch(target) => {
                let run = settled(runs, access.find(&target, scope).await?).await;
                Ok(Answer::Run(taken(runs, run).await?))
            }
            Call::Follow(target) => Ok(Answer::Steps { follower: access.follow(&target, scope).await?, attach: false }),
            Call::Attach(target) => Ok(Answer::Steps { follower: access.follow(&target, scope).await?, attach: true }),
            Call::Cancel(target) => {
                let (canceller, scope) = (Arc::clone(&self.0.canceller), scope.clone());
                complete(async move { canceller.cancel(&target, &scope).await.map(Answer::Run) }).await
            }
            Call::Delete(target) => {
                let (canceller, scope) = (Arc::clone(&self.0.canceller), scope.clone());
                complete(async move { canceller.delete(&target, &scope).await.map(|()| Answer::Done) }).await
            }
            Call::Tag(target, tags) => {
                let (access, scope) = (Arc::clone(access), scope.clone());
                complete(async move { access.tag(&target, tags, &scope).await.map(Answer::Run) }).await
            }
            Call::List(filter) => {
                let page = list(runs, rules, self.0.limits.page, filter, scope).await?;
                Ok(Answer::Runs { runs: page.runs, total: page.total, next: page.next })
            }
            Call::Listen(Listen { session, agents: reports_agents }) => {
                if let Some(session) = &session {
                    agents.offered(&session.agent, &scope.agents)?;
                }
                let reloads = reports_agents.then(|| agents.reloads());
                Listener::new(Arc::clone(runs), session, &scope.owner, reloads).await.map(Answer::Notices)
            }
            Call::Describe => Ok(Answer::Agents),
            Call::Session(call) => self.session_call(call, scope).await,
            Call::Document(call) => self.document_call(call, scope).await,
            Call::FetchedDocument(wanted) => {
                let agent = agents.offered(&wanted.agent, &scope.agents)?;
                Ok(Answer::FetchedDocument(agent.upstream.published(&wanted).await))
            }
            Call::Wait(pause) => {
                tokio::time::sleep(pause.min(MAX_WAIT)).await;
                Ok(Answer::Done)
            }
            Call::CheckAgent(agent) => {
                agents.offered(&agent, &scope.agents)?;
                Ok(Answer::Done)
            }
            Call::Nothing => Ok(Answer::Done),
        }
    }

    async fn session_call(&self, call: SessionCall, scope: &Scope) -> Result<Answer, Fault> {
        let answer = |views: Option<_>| views.map_or(Answer::Done, Answer::Session);
        let calls = Arc::clone(&self.0.session_calls);
        if let SessionCall::List(filter) = &call {
            return calls.list(filter, scope).await.map(Answer::Sessions);
        }
        if matches!(call, SessionCall::Get { .. } | SessionCall::GetPart { .. }) {
            return calls.serve(call, scope).await.map(answer);
        }
        if matches!(call, SessionCall::Create { .. } | SessionCall::Append { .. }) {
            self.check_accepting()?;
        }
        let scope = scope.clone();
        complete(async move { calls.serve(call, &scope).await.map(answer) }).await
    }

    async fn document_call(&self, call: DocumentCall, scope: &Scope) -> Result<Answer, Fault> {
        let answer = |found: Option<_>| found.map_or(Answer::Done, Answer::Documents);
        let documents = Arc::clone(&self.0.documents);
        if matches!(call, DocumentCall::Get { .. } | DocumentCall::List { .. }) {
            return documents.serve(call, scope).await.map(answer);
        }
        if matches!(call, DocumentCall::Put { .. }) {
            self.check_accepting()?;
        }
        let scope = scope.clone();
        complete(async move { documents.serve(call, &scope).await.map(answer) }).await
    }

    /// Refuses new runs and data while the gateway shuts down. Reading, canceling and deleting stay possible.
    fn check_accepting(&self) -> Result<(), Fault> {
        if self.is_open() { Ok(()) } else { Err(faults::not_accepting()) }
    }

    /// A cache for the unstored responses of a new connection.
    #[must_use]
    pub fn connection_cache(&self) -> Arc<ConnectionCache> {
        ConnectionCache::new(self.0.runs.unstored())
    }

    /// Whether the store can write.
    #[must_use]
    pub fn health(&self) -> Health {
        self.0.runs.store().health()
    }

    /// Status of this process among the replicas that share its store. `None`: the store is local.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaStatus> {
        self.0.runs.store().replica()
    }

    /// Number of runs in memory.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.0.runs.len()
    }

    /// Number of runs with a running or queued turn.
    #[must_use]
    pub fn working(&self) -> usize {
        self.0.runs.working()
    }

    /// True while the engine accepts new runs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.runs.is_accepting()
    }

    /// True after [`Engine::announce_stop`]: load balancers should send no new runs, although they are still accepted.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.runs.is_stopping()
    }

    /// Announces that the process stops soon. The engine still accepts new runs.
    pub fn announce_stop(&self) {
        self.0.runs.announce_stop();
    }

    /// Replaces agents and retention rules. Running turns keep their agents; new turns get the new ones.
    pub fn replace(&self, agents: Vec<Arc<Agent>>, rules: RetentionRules) {
        self.0.agents.replace(agents);
        self.0.rules.replace(rules);
    }

    /// The current agents, in arbitrary order.
    #[must_use]
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        self.0.agents.all()
    }

    /// Current load, for metrics. The fields about connections are not set.
    #[must_use]
    pub fn levels(&self) -> Levels {
        levels(&self.0.agents, &self.0.runs)
    }

    /// Size of the store, and of the data that it has yet to write.
    #[must_use]
    pub fn store_sizes(&self) -> StoreSizes {
        self.0.runs.store().sizes()
    }

    /// Number of running runs in this process, by the protocol of the client.
    #[must_use]
    pub fn running_by_protocol(&self) -> HashMap<String, usize> {
        running_by_protocol(&self.0.runs)
    }

    /// Access to the runs of all owners. Only for the admin listener.
    #[must_use]
    pub fn operator(&self) -> Operator {
        let Inner { runs, rules, canceller, housekeeping, .. } = &*self.0;
        let deliveries = Arc::clone(&housekeeping.deliveries);
        Operator::new(Arc::clone(runs), Arc::clone(rules), Arc::clone(canceller), deliveries)
    }

    /// Starts or ends draining an agent at this gateway: a draining agent gets no new runs. Running and waiting runs
    /// continue. Draining survives a reload of the configuration, but not a restart. False: the agent does not exist.
    #[must_use]
    pub fn set_draining(&self, agent: &str, is_draining: bool) -> bool {
        self.0.agents.set_draining(agent, is_draining)
    }

    /// True if an agent gets no new runs at this gateway.
    #[must_use]
    pub fn is_draining(&self, agent: &str) -> bool {
        self.0.agents.is_draining(agent)
    }

    /// Seals data that clients hold. Has no key before [`Engine::recover`] succeeded.
    #[must_use]
    pub fn sealer(&self) -> &Sealer {
        &self.0.sealer
    }

    /// Ends the runs that were running when the last process died. Returns their number.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        self.0.housekeeping.recover().await
    }

    /// Deletes expired data periodically. Never returns; stops when dropped.
    pub async fn housekeeping(self) {
        self.0.housekeeping.run().await;
    }

    /// Refuses new runs, waits for running ones, and ends the remaining ones after `time`. Takes at most `time` plus 1.5
    /// seconds. Returns immediately if no run is active.
    pub async fn drain(&self, time: Duration) {
        self.0.housekeeping.drain(time).await;
    }

    /// Waits up to 0.8 seconds for unfinished push deliveries. Called after [`Engine::drain`].
    pub async fn deliver_rest(&self) {
        self.0.housekeeping.deliver_rest().await;
    }
}

fn first_turns(
    agents: &Arc<Agents>,
    (runs, access, deliveries): (&Arc<RunTable>, &Arc<RunAccess>, &Arc<Deliveries>),
    linker: Arc<RunLinker>,
    transcripts: &Arc<Transcripts>,
    canceller: &Arc<Canceller>,
    limits: Limits,
) -> FirstTurns {
    let sessions = runs.sessions();
    let pending_index = Arc::new(PendingIndex::new(Arc::clone(runs.store()), Arc::clone(sessions)));
    let turns = TurnServices {
        runs: Arc::clone(runs),
        context: ContextBuilder::new(Arc::clone(sessions), Arc::clone(transcripts)),
        linker: Arc::clone(&linker),
        concluder: Concluder::new(Arc::clone(runs), Arc::clone(transcripts), Arc::clone(&pending_index)),
        unread: UnreadBudget::new(limits.unread),
    };

    let driver = Arc::new(Driver::new(turns, Arc::clone(deliveries)));
    FirstTurns {
        agents: Arc::clone(agents),
        runs: Arc::clone(runs),
        sessions: SessionChooser {
            sessions: Arc::clone(sessions),
            access: Arc::clone(access),
            pending_index: Arc::clone(&pending_index),
            resent: Arc::new(ResentChooser { runs: Arc::clone(runs), pending_index }),
        },
        canceller: Arc::clone(canceller),
        driver: Arc::clone(&driver),
        later_turns: LaterTurns {
            runs: Arc::clone(runs),
            access: Arc::clone(access),
            deliveries: Arc::clone(deliveries),
            linker,
            driver,
            queued_turns: limits.queued_turns,
        },
        limits,
    }
}
