//! Runs and sessions: serves each [`Call`] once, for every protocol.
//!
//! [`Engine`] only dispatches. The work is done in six modules, each behind a facade: [`operator`] imports [`turns`],
//! which imports [`pending`], then [`deliveries`], [`runs`] and [`sessions`]. No import goes up, and none goes around a
//! facade. The other files are small types that all modules use.
//!
//! Not here: HTTP on either side ([`interlingua_server`], [`interlingua_upstream`]) and databases
//! ([`interlingua_store`]), which are used as traits.

mod agent;
mod backoff;
mod complete;
mod deliveries;
mod faults;
mod limits;
mod operator;
mod pending;
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
pub use self::operator::{Operator, RunSummary, Summaries, Wanted as WantedRuns, summary_of};
pub use self::runs::{
    ActiveRun, Answer, ConnectionCache, Follower, ListedRun, Listener, Loaded, RetentionRules, RunHandle, Scope, Take,
};
pub use self::sessions::{OPEN_ITEMS, OpenItem, OpenItems};

use self::agent::Agents;
use self::complete::complete;
use self::deliveries::{Deliveries, LeftDeliveries};
use self::operator::{Documents, Housekeeping, SessionCalls, levels, running_by_protocol};
use self::pending::{PendingIndex, ResentChooser, RunLinker};
use self::runs::{Handover, RunAccess, RunTable, SharedRules, UnreadBudget, UnstoredRuns, list, settled, taken};
use self::sessions::SessionTable;
use self::turns::{
    Canceller, Concluder, ContextBuilder, Driver, FirstTurns, LaterTurns, SessionChooser, Transcripts, TurnServices,
};
use interlingua_base::ports::WebhookClient;
use interlingua_callers::Callers;
use interlingua_observe::metrics::{Levels, Metrics};
use interlingua_store::{Health, ReplicaStatus, SharedStore, Store, StoreError, StoreSizes};

/// The longest wait that an adapter may ask for ([`Call::Wait`]).
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Serves calls. Cheap to clone: all clones are one engine.
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
    /// An engine for these agents.
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

    /// Serves a call. Has to be awaited on a thread with a local task set: runs live on the thread they began on.
    ///
    /// # Errors
    /// What went wrong before the answer begins.
    pub async fn answer(&self, call: Call, scope: &Scope) -> Result<Answer, Fault> {
        let Inner { agents, runs, rules, access, .. } = &*self.0;
        match call {
            Call::Run(call) => {
                self.check_accepting()?;
                self.0.first_turns.start(*call, scope).await
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
                    agents.offered(&session.agent, &scope.agents, &scope.denied)?;
                }
                let reloads = reports_agents.then(|| agents.reloads());
                Listener::new(Arc::clone(runs), session, &scope.owner, reloads).await.map(Answer::Notices)
            }
            Call::Describe => Ok(Answer::Agents),
            Call::Session(call) => self.session_call(call, scope).await,
            Call::Document(call) => self.document_call(call, scope).await,
            Call::FetchedDocument(wanted) => {
                let agent = agents.offered(&wanted.agent, &scope.agents, &scope.denied)?;
                Ok(Answer::FetchedDocument(agent.upstream.published(&wanted).await))
            }
            Call::Wait(pause) => {
                tokio::time::sleep(pause.min(MAX_WAIT)).await;
                Ok(Answer::Done)
            }
            Call::CheckAgent(agent) => {
                agents.offered(&agent, &scope.agents, &scope.denied)?;
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

    /// While the gateway closes nothing new is begun. What is there can be read, stopped and deleted to the end.
    fn check_accepting(&self) -> Result<(), Fault> {
        if self.is_open() { Ok(()) } else { Err(faults::not_accepting()) }
    }

    /// Keeps the responses of a new connection that are not stored.
    #[must_use]
    pub fn connection_cache(&self) -> Arc<ConnectionCache> {
        ConnectionCache::new(self.0.runs.unstored())
    }

    /// Whether the store can write.
    #[must_use]
    pub fn health(&self) -> Health {
        self.0.runs.store().health()
    }

    /// How this process stands with others that share its store. `None`: it has the store for itself.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaStatus> {
        self.0.runs.store().shared().map(SharedStore::status)
    }

    /// How many runs are in memory.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.0.runs.len()
    }

    /// How many runs have a turn under way, or one that waits to begin.
    #[must_use]
    pub fn working(&self) -> usize {
        self.0.runs.working()
    }

    /// True while new runs are taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.runs.is_accepting()
    }

    /// True once the process is about to stop, even if it still takes new runs: load balancers should send none.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.runs.is_stopping()
    }

    /// The process stops soon. New runs are still taken.
    pub fn announce_stop(&self) {
        self.0.runs.announce_stop();
    }

    /// Replaces agents and retention rules at once. Runs keep the agents that they have; new turns get the new ones.
    pub fn replace(&self, agents: Vec<Arc<Agent>>, rules: RetentionRules) {
        self.0.agents.replace(agents);
        self.0.rules.replace(rules);
    }

    /// The agents that are offered now, in no order.
    #[must_use]
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        self.0.agents.all()
    }

    /// What is under way now. The figures of connections are not set.
    #[must_use]
    pub fn levels(&self) -> Levels {
        levels(&self.0.agents, &self.0.runs)
    }

    /// How large the store is, and how much it has to write yet.
    #[must_use]
    pub fn store_sizes(&self) -> StoreSizes {
        self.0.runs.store().sizes()
    }

    /// How many runs are running in this process, by the protocol of their client.
    #[must_use]
    pub fn running_by_protocol(&self) -> HashMap<String, usize> {
        running_by_protocol(&self.0.runs)
    }

    /// Runs of any owner: for the admin listener alone.
    #[must_use]
    pub fn operator(&self) -> Operator {
        let Inner { runs, rules, canceller, housekeeping, .. } = &*self.0;
        let deliveries = Arc::clone(&housekeeping.deliveries);
        Operator::new(Arc::clone(runs), Arc::clone(rules), Arc::clone(canceller), deliveries)
    }

    /// Lets an agent take no new runs at this gateway, or take them again. Runs under way go on, and so do those that
    /// wait for an answer. A restart forgets it; a reload of the configuration does not. False: there is no such agent.
    #[must_use]
    pub fn set_draining(&self, agent: &str, is_draining: bool) -> bool {
        self.0.agents.set_draining(agent, is_draining)
    }

    /// True if an agent takes no new runs at this gateway.
    #[must_use]
    pub fn is_draining(&self, agent: &str) -> bool {
        self.0.agents.is_draining(agent)
    }

    /// Seals data that clients keep. Has its key once [`Engine::recover`] succeeded.
    #[must_use]
    pub fn sealer(&self) -> &Sealer {
        &self.0.sealer
    }

    /// Closes the runs that were under way when the last process died. Returns how many it closed.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        self.0.housekeeping.recover().await
    }

    /// Keeps the store in bounds. Never returns; dropped, it stops.
    pub async fn housekeeping(self) {
        self.0.housekeeping.run().await;
    }

    /// Takes no new runs, waits for those under way, and ends what is left when the time is up. Takes at most `time`
    /// and 1.5 seconds, and no time at all if there is nothing to do.
    pub async fn drain(&self, time: Duration) {
        self.0.housekeeping.drain(time).await;
    }

    /// After [`Engine::drain`]: waits for push receivers, at most 0.8 seconds, and no time at all if they have everything.
    pub async fn deliver_rest(&self) {
        self.0.housekeeping.deliver_rest().await;
    }
}

/// What starts turns and takes them.
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
    let handover = Arc::new(Handover::new(Arc::clone(runs)));
    let turns = TurnServices {
        runs: Arc::clone(runs),
        context: ContextBuilder::new(Arc::clone(sessions), Arc::clone(transcripts)),
        linker: Arc::clone(&linker),
        concluder: Concluder::new(Arc::clone(runs), Arc::clone(transcripts), Arc::clone(&pending_index), handover),
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
