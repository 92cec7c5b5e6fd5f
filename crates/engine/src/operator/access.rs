//! What an operator does with runs of any owner: lists, finds, follows, cancels, deletes, decides.
//!
//! An operator is no owner: an owner comes out of credentials, so no value of it may mean "everyone". Whatever changes
//! a run happens in the scope of the run's own owner. Not here: who is an operator (the admin listener), and runs in
//! memory alone ([`super::levels`]).

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerPolicy};
use interlingua_core::call::{Busy, Cursor, Delivery, Filter, Order, RunCall, RunState, Thread};
use interlingua_core::event::Millis;
use interlingua_core::model::AgentRequest;
use interlingua_core::{Call, Fault, Owner, RunId, RunPolicy};

use crate::complete::complete;
use crate::deliveries::Deliveries;
use crate::faults::{self, store_fault};
use crate::runs::{Follower, RunHandle, RunTable, Scope, SharedRules, follow};
use crate::sessions::OpenItems;
use crate::turns::Canceller;
use interlingua_base::clock;
use interlingua_store::{Query, RunHead};

/// Runs of any owner. Only the admin listener has one.
#[derive(Clone)]
pub struct Operator {
    runs: Arc<RunTable>,
    rules: Arc<SharedRules>,
    canceller: Arc<Canceller>,
    deliveries: Arc<Deliveries>,
}

/// What a list shows of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// The agent's name.
    pub agent: String,
    /// The protocol of its client.
    pub protocol: String,
    /// To whom it belongs: [`Owner::key`].
    pub owner: String,
    /// The session's id.
    pub session: String,
    /// Where it stands.
    pub state: RunState,
    /// The code of the error it ended with. `None`: it has none.
    pub code: Option<String>,
    /// When it was accepted.
    pub created_at: Millis,
    /// When its state last changed.
    pub changed_at: Millis,
    /// How many events it has.
    pub events: u64,
    /// How many items it waits for, whatever its own state.
    pub pending: usize,
    /// The name of the first of them.
    pub asks: Option<String>,
    /// How it began, at most 120 characters.
    pub text: String,
}

/// Which runs a list shows.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Agent, session, owner, text and so on.
    pub query: Query,
    /// Only runs that wait for something.
    pub pending: bool,
}

/// A page of summaries.
#[derive(Clone, Debug, Default)]
pub struct Summaries {
    /// The latest change first.
    pub runs: Vec<RunSummary>,
    /// How many match on all pages.
    pub total: usize,
    /// Where the next page begins.
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

    /// How far each delivery of a run's events has come that is under way at this gateway: the events that its receiver
    /// has, or will not get.
    #[must_use]
    pub fn deliveries(&self, run: RunId) -> Vec<u64> {
        self.deliveries.of_run(run)
    }

    /// A run, as long as its owner could find it: one that is not stored, or whose time is over, does not exist.
    ///
    /// # Errors
    /// If there is no such run, or the store fails.
    pub async fn find(&self, id: RunId) -> Result<RunHandle, Fault> {
        let run = self.runs.find(id).await?.ok_or_else(|| faults::run_not_found(id))?;
        let is_visible =
            run.view(|view| (view.info.stored || view.run().end.is_none()) && !self.rules.is_gone(view.info));
        if is_visible { Ok(run) } else { Err(faults::run_not_found(id)) }
    }

    /// Follows a run from its first step on. The run does not depend on this reader.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn follow(&self, id: RunId) -> Result<Follower, Fault> {
        follow(&self.runs, self.find(id).await?).await
    }

    /// Cancels a run and waits for its end. Has to be awaited as [`super::Engine::answer`].
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn cancel(&self, id: RunId) -> Result<(), Fault> {
        let canceller = Arc::clone(&self.canceller);
        complete(async move { canceller.cancel_any(id).await.map(drop) }).await
    }

    /// Deletes a run that has ended, for its owner too. Has to be awaited as [`super::Engine::answer`].
    ///
    /// # Errors
    /// As [`Self::find`], and if the run has not ended.
    pub async fn delete(&self, id: RunId, scope: Scope) -> Result<(), Fault> {
        let run = self.find(id).await?;
        if !matches!(run.run_state(), RunState::Ended(_)) {
            return Err(faults::run_not_ended(id));
        }
        let scope = self.in_scope_of(&run, scope);
        let canceller = Arc::clone(&self.canceller);
        complete(async move { canceller.delete(&interlingua_core::call::Target::Run(id), &scope).await }).await
    }

    /// A page of summaries.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self, wanted: Wanted) -> Result<Summaries, Fault> {
        let open = self.open_items().await?;
        let by_run = asking(&open);
        if wanted.pending {
            return self.list_pending(&wanted, &by_run).await;
        }
        self.page(wanted.query, &by_run).await
    }

    async fn page(&self, query: Query, by_run: &HashMap<RunId, Asking>) -> Result<Summaries, Fault> {
        let expired_before = self.rules.load().retention.expiry_cutoffs(clock::now());
        let found = self.runs.store().find(Query { expired_before, ..query }).await;
        let found = found.map_err(store_fault)?;
        let runs = self.summaries(found.runs, by_run).await?;
        Ok(Summaries { runs, total: found.total, next: found.next })
    }

    /// The runs that changed at this time or later, the latest change first, and those under way in this process. True:
    /// there are more. `open`: all open items.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn changed_since(
        &self,
        since: Millis,
        limit: usize,
        open: &[OpenItems],
    ) -> Result<(Vec<RunSummary>, bool), Fault> {
        let filter = Filter { changed_since: Some(since), limit, order: Order::LatestChange, ..Filter::default() };
        let page = self.page(Query { filter, ..Query::default() }, &asking(open)).await?;
        let (mut found, has_more) = (page.runs, page.next.is_some());
        let known: Vec<RunId> = found.iter().map(|run| run.id).collect();
        let live = self.runs.active().into_iter().filter(|run| !known.contains(&run.id()));
        found.extend(live.take(limit).map(|run| summary_of(&RunHandle::InMemory(run.pin()))));
        Ok((found, has_more))
    }

    /// Every open item of every session.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open_items(&self) -> Result<Vec<OpenItems>, Fault> {
        OpenItems::list(self.runs.store()).await
    }

    /// The open items of one run, as its session has them now.
    ///
    /// # Errors
    /// Those of the store.
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
    /// Those of the store.
    pub async fn protocols_of(&self, runs: Vec<RunId>) -> Result<HashMap<RunId, String>, Fault> {
        let heads = self.runs.store().heads(runs).await.map_err(store_fault)?;
        Ok(heads.into_iter().map(|run| (run.record.run().id, run.info.protocol)).collect())
    }

    /// The call that answers items of a run as its owner would, in the background.
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
        // Someone else who decides at this moment has the turn.
        call.policy = RunPolicy::background().with_busy(Busy::Refuse);
        Call::Run(Box::new(call))
    }

    /// A scope of some route, for the owner of a run.
    #[must_use]
    pub fn in_scope_of(&self, run: &RunHandle, route: Scope) -> Scope {
        let owner = run.view(|view| Owner::from_key(&view.info.owner));
        Scope { owner, detach: true, request: None, trace: None, connection: None, ..route }
    }

    async fn list_pending(&self, wanted: &Wanted, by_run: &HashMap<RunId, Asking>) -> Result<Summaries, Fault> {
        let ids: Vec<RunId> = by_run.keys().copied().collect();
        let mut runs = Vec::new();
        for stored in self.runs.store().heads(ids).await.map_err(store_fault)? {
            let (run, info) = (stored.record.run(), &stored.info);
            let head = RunHead {
                id: run.id,
                agent: run.agent.clone(),
                session: run.session_id.clone(),
                state: info.state,
                created_at: run.created_at,
                changed_at: info.changed_at,
                size: 0,
                protocol: info.protocol.clone(),
                owner: info.owner.clone(),
                events: stored.record.len(),
                preview: String::new(),
            };
            let query = &wanted.query;
            let fits = (query.agents.is_empty() || query.agents.contains(&head.agent))
                && query.filter.protocol.as_ref().is_none_or(|protocol| *protocol == head.protocol)
                && query.owner.as_ref().is_none_or(|owner| *owner == head.owner)
                && query.filter.session.as_ref().is_none_or(|session| *session == head.session);
            if fits {
                runs.push(summary(head, None, by_run));
            }
        }
        runs.sort_by_key(|run| std::cmp::Reverse((run.changed_at, run.id)));
        Ok(Summaries { total: runs.len(), runs, next: None })
    }

    /// Adds what rows do not have: error codes of runs that failed, and what is true in memory.
    async fn summaries(&self, heads: Vec<RunHead>, by_run: &HashMap<RunId, Asking>) -> Result<Vec<RunSummary>, Fault> {
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
                let code = codes.get(&head.id).cloned();
                summary(head, code, by_run)
            }
        });
        Ok(all.collect())
    }
}

/// How many items a run asks, and the name of the first.
type Asking = (usize, String);

fn asking(open: &[OpenItems]) -> HashMap<RunId, Asking> {
    let mut by_run: HashMap<RunId, Asking> = HashMap::new();
    for item in open.iter().flat_map(|session| &session.items) {
        by_run.entry(item.run).or_insert_with(|| (0, item.item.name.clone())).0 += 1;
    }
    by_run
}

fn has_error(state: RunState) -> bool {
    use interlingua_core::End;
    matches!(state, RunState::Ended(End::Failed | End::Rejected | End::Incomplete))
}

fn summary(head: RunHead, code: Option<String>, by_run: &HashMap<RunId, Asking>) -> RunSummary {
    let (pending, asks) = by_run.get(&head.id).map_or((0, None), |(count, name)| (*count, Some(name.clone())));
    RunSummary {
        id: head.id,
        agent: head.agent,
        protocol: head.protocol,
        owner: head.owner,
        session: head.session,
        state: head.state,
        code,
        created_at: head.created_at,
        changed_at: head.changed_at,
        events: head.events,
        pending,
        asks,
        text: head.preview,
    }
}

/// The summary of a run that is at hand.
#[must_use]
pub fn summary_of(run: &RunHandle) -> RunSummary {
    run.view_safe(|view| {
        let (run, info) = (view.run(), view.info);
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
            events: view.record.len(),
            pending: view.pending.len(),
            asks: view.pending.first().map(|item| item.name.clone()),
            text: run.preview(),
        }
    })
}
