//! Access of operators to the runs of all owners: list, find, follow, cancel, delete, decide.
//!
//! [`Operator`] is a separate type, so that no [`Owner`] value can mean "all owners". Changes happen in the scope of the
//! owner of the run. Not here: authentication of operators (the admin listener) and metrics ([`super::levels`]).

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerPolicy};
use interlingua_core::call::{Busy, Cursor, Delivery, Filter, Order, RunCall, RunInfo, RunState, Target, Thread};
use interlingua_core::event::Millis;
use interlingua_core::model::AgentRequest;
use interlingua_core::{Call, End, Fault, Owner, Record, RunId, RunPolicy};

use crate::complete::complete;
use crate::deliveries::Deliveries;
use crate::faults::{self, store_fault};
use crate::runs::{Follower, RunHandle, RunTable, Scope, SharedRules, follow};
use crate::sessions::OpenItems;
use crate::turns::Canceller;
use interlingua_base::clock;
use interlingua_store::{Query, RunHead};

/// Runs of all owners. Only the admin listener holds a value of this type.
#[derive(Clone)]
pub struct Operator {
    runs: Arc<RunTable>,
    rules: Arc<SharedRules>,
    canceller: Arc<Canceller>,
    deliveries: Arc<Deliveries>,
}

/// The fields of a run that lists show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Id of the run.
    pub id: RunId,
    /// Name of the agent.
    pub agent: String,
    /// Protocol of the client.
    pub protocol: String,
    /// [`Owner::key`] of the owner.
    pub owner: String,
    /// Id of the session.
    pub session: String,
    /// State of the run.
    pub state: RunState,
    /// Code of the error of the last turn. `None`: it has none, or the list contains only waiting runs.
    pub code: Option<String>,
    /// Time at which the run was accepted.
    pub created_at: Millis,
    /// Time of the latest change of its state.
    pub changed_at: Millis,
    /// Number of events.
    pub events: u64,
    /// Number of open items. In some protocols a run with open items has ended.
    pub pending: usize,
    /// Name of the first open item.
    pub asks: Option<String>,
    /// Start of its first text, at most 120 characters. Empty in a list of only waiting runs.
    pub text: String,
}

/// Selects the runs of a list.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Agent, session, owner, text and so on.
    pub query: Query,
    /// True: only runs with open items. Then only agents, protocol, owner and session of the query apply.
    pub pending: bool,
}

/// A page of summaries.
#[derive(Clone, Debug, Default)]
pub struct Summaries {
    /// The runs, the latest change first.
    pub runs: Vec<RunSummary>,
    /// Number of matching runs on all pages.
    pub total: usize,
    /// Start of the next page. `None`: this is the last one.
    pub next: Option<Cursor>,
}

impl Operator {
    pub(crate) const fn new(
        runs: Arc<RunTable>,
        rules: Arc<SharedRules>,
        canceller: Arc<Canceller>,
        deliveries: Arc<Deliveries>,
    ) -> Self {
        Self { runs, rules, canceller, deliveries }
    }

    /// Progress of each push delivery of a run that this gateway performs: the number of events delivered or skipped.
    #[must_use]
    pub fn deliveries(&self, run: RunId) -> Vec<u64> {
        self.deliveries.of_run(run)
    }

    /// A run that its owner can find, too.
    ///
    /// # Errors
    /// If the run does not exist, has ended without being stored, or is expired; or if the store fails.
    pub async fn find(&self, id: RunId) -> Result<RunHandle, Fault> {
        let run = self.runs.find(id).await?.ok_or_else(|| faults::run_not_found(id))?;
        let is_visible =
            run.view(|view| (view.info.stored || view.run().end.is_none()) && !self.rules.is_gone(view.info));
        if is_visible { Ok(run) } else { Err(faults::run_not_found(id)) }
    }

    /// Follows a run from its first step. The run continues when this follower leaves.
    ///
    /// # Errors
    /// Same as [`Self::find`].
    pub async fn follow(&self, id: RunId) -> Result<Follower, Fault> {
        follow(&self.runs, self.find(id).await?).await
    }

    /// Cancels a run and waits for its end. Must be awaited within a local task set.
    ///
    /// # Errors
    /// Same as [`Self::find`].
    pub async fn cancel(&self, id: RunId) -> Result<(), Fault> {
        let canceller = Arc::clone(&self.canceller);
        complete(async move { canceller.cancel_any(id).await.map(drop) }).await
    }

    /// Deletes a run that has ended. Must be awaited within a local task set.
    ///
    /// # Errors
    /// Same as [`Self::find`], and if the run has not ended.
    pub async fn delete(&self, id: RunId, scope: Scope) -> Result<(), Fault> {
        let run = self.find(id).await?;
        if !matches!(run.run_state(), RunState::Ended(_)) {
            return Err(faults::run_not_ended(id));
        }
        let scope = self.in_scope_of(&run, scope);
        let canceller = Arc::clone(&self.canceller);
        complete(async move { canceller.delete(&Target::Run(id), &scope).await }).await
    }

    /// A page of summaries.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(&self, wanted: RunQuery) -> Result<Summaries, Fault> {
        let open = open_by_run(&self.open_items().await?);
        if wanted.pending {
            return self.list_pending(&wanted.query, &open).await;
        }
        self.page(wanted.query, &open).await
    }

    async fn page(&self, query: Query, open: &OpenByRun) -> Result<Summaries, Fault> {
        let expired_before = self.rules.load().retention.expiry_cutoffs(clock::now());
        let found = self.runs.store().find(Query { expired_before, ..query }).await;
        let found = found.map_err(store_fault)?;
        let runs = self.summaries(found.runs, open).await?;
        Ok(Summaries { runs, total: found.total, next: found.next })
    }

    /// The runs that changed at this time or later, the latest change first, followed by other active runs of this
    /// process. The flag is true if more runs changed. `open` are all open items.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn changed_since(
        &self,
        since: Millis,
        limit: usize,
        open: &[OpenItems],
    ) -> Result<(Vec<RunSummary>, bool), Fault> {
        let filter = Filter { changed_since: Some(since), limit, order: Order::LatestChange, ..Filter::default() };
        let page = self.page(Query { filter, ..Query::default() }, &open_by_run(open)).await?;
        let (mut found, has_more) = (page.runs, page.next.is_some());
        let known: Vec<RunId> = found.iter().map(|run| run.id).collect();
        let live = self.runs.active().into_iter().filter(|run| !known.contains(&run.id()));
        found.extend(live.take(limit).map(|run| summary_of(&RunHandle::InMemory(run.pin()))));
        Ok((found, has_more))
    }

    /// The open items of all sessions.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn open_items(&self) -> Result<Vec<OpenItems>, Fault> {
        OpenItems::list(self.runs.store()).await
    }

    /// The open items of a run. `None`: it has none.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn open_of(&self, run: &RunHandle) -> Result<Option<OpenItems>, Fault> {
        let session = self.runs.session_of(run).await?;
        let open = OpenItems::of_session(self.runs.store(), &session).await?;
        let of_run = |mut open: OpenItems| {
            open.items.retain(|item| item.run == run.id());
            open
        };
        Ok(open.map(of_run).filter(|open| !open.items.is_empty()))
    }

    /// The protocols of these runs' clients, without loading the runs.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn protocols_of(&self, runs: Vec<RunId>) -> Result<HashMap<RunId, String>, Fault> {
        let heads = self.runs.store().heads(runs).await.map_err(store_fault)?;
        Ok(heads.into_iter().map(|run| (run.record.run().id, run.info.protocol)).collect())
    }

    /// A background call that answers items of a run on behalf of its owner.
    #[must_use]
    pub fn decision(&self, run: &RunHandle, answers: Vec<Answer>) -> Call {
        let (agent, session, user, waits) = run.view(|view| {
            let run = view.run();
            let user = view.info.request.user_id.clone();
            (run.agent.clone(), run.session_id.clone(), user, view.info.state.is_waiting())
        });
        let request = AgentRequest { session_id: Some(session.clone()), user_id: user, ..AgentRequest::default() };
        let mut call = RunCall::new(agent, request);
        call.thread = if waits { Thread::Continue(run.id()) } else { Thread::Session(session) };
        call.answers = answers;
        call.answer_policy = AnswerPolicy::default();
        call.delivery = Delivery::Background;
        // Refuse if another decision is being sent at this moment.
        call.policy = RunPolicy::background().with_busy(Busy::Refuse);
        Call::Run(Box::new(call))
    }

    /// The scope of a route, restricted to the owner of a run.
    #[must_use]
    pub fn in_scope_of(&self, run: &RunHandle, route: Scope) -> Scope {
        let owner = run.view(|view| Owner::from_key(&view.info.owner));
        Scope { owner, detach: true, request: None, trace: None, connection: None, ..route }
    }

    async fn list_pending(&self, query: &Query, open: &OpenByRun) -> Result<Summaries, Fault> {
        let heads = self.runs.store().heads(open.keys().copied().collect()).await.map_err(store_fault)?;
        let all = heads.iter().map(|head| {
            let summary = summarize(&head.record, &head.info);
            with_open_items(RunSummary { code: None, text: String::new(), ..summary }, open)
        });
        let is_selected = |run: &RunSummary| {
            (query.agents.is_empty() || query.agents.contains(&run.agent))
                && query.filter.protocol.as_ref().is_none_or(|protocol| *protocol == run.protocol)
                && query.owner.as_ref().is_none_or(|owner| *owner == run.owner)
                && query.filter.session.as_ref().is_none_or(|session| *session == run.session)
        };
        let mut runs: Vec<RunSummary> = all.filter(is_selected).collect();
        runs.sort_by_key(|run| std::cmp::Reverse((run.changed_at, run.id)));
        Ok(Summaries { total: runs.len(), runs, next: None })
    }

    /// Adds the error codes of failed runs, and replaces runs that are in memory by their current state.
    async fn summaries(&self, heads: Vec<RunHead>, open: &OpenByRun) -> Result<Vec<RunSummary>, Fault> {
        let failed = heads.iter().filter(|head| has_error(head.state)).map(|head| head.id).collect();
        let stored = self.runs.store().heads(failed).await.map_err(store_fault)?;
        let codes: HashMap<RunId, String> = stored
            .iter()
            .filter_map(|run| {
                let run = run.record.run();
                Some((run.id, run.turns.last()?.error.as_ref()?.code.clone()))
            })
            .collect();

        let all = heads.into_iter().map(|head| match self.runs.get(head.id) {
            Some(run) => summary_of(&RunHandle::InMemory(run.pin())),
            None => {
                let summary = RunSummary {
                    code: codes.get(&head.id).cloned(),
                    id: head.id,
                    agent: head.agent,
                    protocol: head.protocol,
                    owner: head.owner,
                    session: head.session,
                    state: head.state,
                    created_at: head.created_at,
                    changed_at: head.changed_at,
                    events: head.events,
                    pending: 0,
                    asks: None,
                    text: head.preview,
                };
                with_open_items(summary, open)
            }
        });
        Ok(all.collect())
    }
}

/// The number of open items of each run, and the name of the first one.
type OpenByRun = HashMap<RunId, (usize, String)>;

fn open_by_run(open: &[OpenItems]) -> OpenByRun {
    let mut by_run = OpenByRun::new();
    for item in open.iter().flat_map(|session| &session.items) {
        by_run.entry(item.run).or_insert_with(|| (0, item.item.name.clone())).0 += 1;
    }
    by_run
}

fn has_error(state: RunState) -> bool {
    matches!(state, RunState::Ended(End::Failed | End::Rejected | End::Incomplete))
}

fn with_open_items(run: RunSummary, open: &OpenByRun) -> RunSummary {
    let (pending, asks) = open.get(&run.id).map_or((0, None), |(count, name)| (*count, Some(name.clone())));
    RunSummary { pending, asks, ..run }
}

/// The summary of a loaded or active run.
#[must_use]
pub fn summary_of(run: &RunHandle) -> RunSummary {
    run.view_safe(|view| RunSummary {
        pending: view.pending.len(),
        asks: view.pending.first().map(|item| item.name.clone()),
        ..summarize(view.record, view.info)
    })
}

/// A summary without open items.
fn summarize(record: &Record, info: &RunInfo) -> RunSummary {
    let run = record.run();
    RunSummary {
        id: run.id,
        agent: run.agent.clone(),
        protocol: info.protocol.clone(),
        owner: info.owner.clone(),
        session: run.session_id.clone(),
        state: info.state,
        code: run.turns.last().and_then(|turn| Some(turn.error.as_ref()?.code.clone())),
        created_at: run.created_at,
        changed_at: info.changed_at,
        events: record.len(),
        pending: 0,
        asks: None,
        text: run.preview(),
    }
}
