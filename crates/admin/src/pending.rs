//! Open items of all sessions, and decisions about them. The engine treats a decision like one of the run's owner.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlingua_core::answer::{Answer, AnswerBody, NOT_TAKEN};
use interlingua_core::console::DecisionNotice;
use interlingua_core::event::Millis;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Fault, FaultKind, Json, Owner, RunId};
use serde::Deserialize;

use super::views::{Item, Page, PendingItem};
use super::{AdminState, mask};
use interlingua_engine::{Answer as EngineAnswer, OpenItem, OpenItems, RunHandle, Scope};

/// Maximum number of items in one response.
const MAX_ITEMS: usize = 200;
/// Maximum number of remembered decisions.
const MAX_DECIDERS: usize = 1000;

/// The decisions about a run's items.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Decisions {
    items: Vec<DecisionEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DecisionEntry {
    id: String,
    #[cfg_attr(test, schemars(with = "String"))]
    decision: Decision,
    /// New arguments of an edit, as JSON text.
    arguments: Option<String>,
    /// Text of a response, or a reason.
    text: Option<String>,
    /// The whole answer, for items that have a schema of their own.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    payload: Option<Box<serde_json::value::RawValue>>,
}

/// The recent decisions at this listener with their authors, for messages to people who decide too late.
#[derive(Default)]
pub(super) struct Deciders(Mutex<VecDeque<Decider>>);

struct Decider {
    run: RunId,
    item: String,
    who: String,
    decision: Decision,
}

impl Deciders {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Decider>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the author of decisions, before they are executed, so that a second person is refused with the author's
    /// name. Returns the items that had no record.
    fn record(&self, run: RunId, items: &[(String, Decision)], who: &str) -> Vec<String> {
        let mut known = self.lock();
        let mut noted = Vec::new();
        for (item, decision) in items {
            let is_known = known.iter().any(|decider| decider.run == run && decider.item == *item);
            if !is_known {
                known.push_back(Decider { run, item: item.clone(), who: who.to_owned(), decision: *decision });
                noted.push(item.clone());
            }
        }
        while known.len() > MAX_DECIDERS {
            known.pop_front();
        }
        noted
    }

    /// Removes records after a failed decision: the items can be decided again.
    fn forget(&self, run: RunId, items: &[String]) {
        self.lock().retain(|decider| decider.run != run || !items.contains(&decider.item));
    }

    /// The author of a decision about an item.
    pub(super) fn who(&self, run: RunId, item: &str) -> Option<String> {
        let known = self.lock();
        known.iter().rev().find(|one| one.run == run && one.item == item).map(|one| one.who.clone())
    }

    /// The decision about an item and its author in words, such as "rejected by ada".
    fn by(&self, run: RunId, item: &str) -> Option<String> {
        let known = self.lock();
        let decider = known.iter().rev().find(|decider| decider.run == run && decider.item == item)?;
        Some(format!("{} by {}", past(decider.decision), decider.who))
    }
}

const fn past(decision: Decision) -> &'static str {
    match decision {
        Decision::Accept => "accepted",
        Decision::Edit => "edited",
        Decision::Respond => "answered",
        Decision::Reject => "rejected",
        Decision::Cancel => "canceled",
    }
}

/// A page of open items, the oldest first. Parameters: `limit`, `cursor`, and `run` for the items of one run.
///
/// # Errors
/// Unknown parameters, invalid values, and errors of the store.
pub(super) async fn list(state: &AdminState, query: &str, texts: bool) -> Result<Page<PendingItem>, Fault> {
    let (mut limit, mut run, mut after) = (MAX_ITEMS, None, None);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => {
                let read = value.parse().ok().filter(|limit| (1..=MAX_ITEMS).contains(limit));
                limit = read.ok_or_else(|| Fault::invalid("limit", format!("must be between 1 and {MAX_ITEMS}")))?;
            }
            "cursor" => {
                after = Some(
                    ItemPosition::parse(&value)
                        .ok_or_else(|| Fault::invalid("cursor", "is not the start of a page"))?,
                );
            }
            "run" => {
                let id = RunId::parse(&value).ok_or_else(|| Fault::invalid("run", "is not the id of a run"))?;
                run = Some(id);
            }
            other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this path")),
        }
    }

    let operator = state.admin.engine.operator();
    let open = match run {
        Some(run) => operator.open_of(&operator.find(run).await?).await?.into_iter().collect(),
        None => operator.open_items().await?,
    };
    page(state, &open, limit, after.as_ref(), texts).await
}

/// The open items of a run.
///
/// # Errors
/// The errors of the store.
pub(super) async fn of_run(state: &AdminState, run: &RunHandle, texts: bool) -> Result<Vec<PendingItem>, Fault> {
    let open: Vec<OpenItems> = state.admin.engine.operator().open_of(run).await?.into_iter().collect();
    Ok(page(state, &open, MAX_ITEMS, None, texts).await?.data)
}

/// The sort key of an item: the time of its question, its run, and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ItemPosition(Millis, RunId, String);

impl ItemPosition {
    fn from_item(item: &OpenItem) -> Self {
        Self(item.asked_at, item.run, item.item.id.clone())
    }

    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.splitn(3, '_');
        let (asked_at, run) = (parts.next()?.parse().ok()?, RunId::parse(parts.next()?)?);
        Some(Self(asked_at, run, parts.next()?.to_owned()))
    }

    fn cursor(&self) -> String {
        format!("{}_{}_{}", self.0, self.1, self.2)
    }
}

async fn page(
    state: &AdminState,
    open: &[OpenItems],
    limit: usize,
    after: Option<&ItemPosition>,
    texts: bool,
) -> Result<Page<PendingItem>, Fault> {
    let items = open
        .iter()
        .flat_map(|session| session.items.iter().map(move |item| (ItemPosition::from_item(item), session, item)));
    let mut all: Vec<(ItemPosition, &OpenItems, &OpenItem)> = items.collect();
    let total = all.len();
    all.retain(|(place, ..)| after.is_none_or(|after| place > after));
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let has_more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| has_more).map(|(place, ..)| place.cursor());

    let mut runs: Vec<RunId> = all.iter().map(|(.., item)| item.run).collect();
    runs.sort_unstable();
    runs.dedup();
    let protocols = state.admin.engine.operator().protocols_of(runs).await?;
    let protocol = |item: &OpenItem| protocols.get(&item.run).map_or("", String::as_str);
    let data = all.iter().map(|(_, session, item)| view(state, session, item, protocol(item), texts)).collect();
    Ok(Page { data, total: Some(total), next })
}

fn view(state: &AdminState, session: &OpenItems, open: &OpenItem, protocol: &str, texts: bool) -> PendingItem {
    let item = &open.item;
    let schema = match item.kind {
        PendingKind::Input => item.response_schema.as_ref(),
        _ => open.parameters.as_ref(),
    };
    PendingItem {
        item: Item {
            id: item.id.clone(),
            kind: item.kind,
            name: if texts { item.name.clone() } else { mask::name(&item.name) },
            message: item.message.clone().filter(|_| texts),
            arguments: texts.then(|| item.arguments.clone()),
            arguments_bytes: item.arguments.len(),
            reason: item.reason.clone().filter(|_| texts),
        },
        decisions: decisions(item),
        // A schema has texts of the agent: descriptions and names of fields.
        schema: schema.filter(|_| texts).cloned(),
        agent: session.agent.clone(),
        session: session.session.clone(),
        owner: session.owner.clone(),
        run: open.run,
        protocol: protocol.to_owned(),
        learns: learns(state, &session.agent, protocol),
        asked_at: open.asked_at,
        expires_at: open.expires,
    }
}

/// The decisions that the console shows: all except `cancel`, and always `reject`, which withdraws an item that does
/// not allow it.
fn decisions(item: &Pending) -> Vec<Decision> {
    let mut shown: Vec<Decision> =
        item.decisions.iter().copied().filter(|decision| *decision != Decision::Cancel).collect();
    if !shown.contains(&Decision::Reject) {
        shown.push(Decision::Reject);
    }
    shown
}

/// The way in which a client of the run's protocol learns of a decision by someone else, for the console. `None`: the
/// agent no longer has a route of the protocol.
fn learns(state: &AdminState, agent: &str, protocol: &str) -> Option<&'static str> {
    let routes = state.admin.control.routes_of(agent);
    let route = routes.iter().find(|route| route.scope.protocol == protocol)?;
    Some(match route.mounted.console.decision_notice {
        DecisionNotice::Notified => "The client’s stream continues, or the client is notified.",
        DecisionNotice::Follows => "A client that follows the session sees the next run.",
        DecisionNotice::Polls => "The client sees the result when it polls its status.",
        DecisionNotice::NextMessage => "The client sees the result with its next message.",
    })
}

/// Decides items of a run. Returns the run that continues, and the decisions in words for the audit log.
///
/// # Errors
/// Malformed decisions, decisions that the item does not allow (both with the field), and items that are no longer
/// open.
pub(super) async fn decide(
    state: &Arc<AdminState>,
    id: RunId,
    who: &str,
    body: &[u8],
) -> Result<(RunId, String), Fault> {
    let decisions: Decisions = serde_json::from_slice(body).map_err(|error| {
        Fault::new(FaultKind::Invalid, format!("write {{\"items\": [{{\"id\", \"decision\"}}]}}: {error}"))
            .with_field("items")
    })?;
    let items = decisions.items;
    if items.is_empty() {
        return Err(Fault::invalid("items", "must name at least one item"));
    }

    let operator = state.admin.engine.operator();
    let run = operator.find(id).await?;
    let open = operator.open_of(&run).await?;
    let is_open =
        |wanted: &DecisionEntry| open.iter().flat_map(|open| &open.items).any(|open| open.item.id == wanted.id);
    if let Some(closed) = items.iter().find(|wanted| !is_open(wanted)) {
        return Err(too_late(state, &run, &closed.id));
    }

    let wanted: Vec<(String, Decision)> = items.iter().map(|item| (item.id.clone(), item.decision)).collect();
    let decided: Vec<String> = wanted.iter().map(|(item, decision)| format!("{} {item}", decision.as_str())).collect();
    let scope = operator.in_scope_of(&run, scope_of(state, &run)?);
    let noted = state.deciders.record(id, &wanted, who);
    let answered = async {
        let answers = items.into_iter().map(answer).collect::<Result<Vec<_>, _>>()?;
        state.admin.engine.answer(operator.decision(&run, answers), &scope).await
    };
    let continued = match answered.await {
        Ok(EngineAnswer::Run(run) | EngineAnswer::Waiting(run, _)) => run.id(),
        Ok(_) => id,
        Err(fault) => {
            state.deciders.forget(id, &noted);
            let open = operator.open_of(&run).await.unwrap_or_default();
            let is_open = |item: &str| open.iter().flat_map(|open| &open.items).any(|open| open.item.id == item);
            let closed = wanted.iter().find(|(item, _)| !is_open(item));
            let is_late = matches!(fault.kind, FaultKind::Conflict | FaultKind::Busy);
            return Err(closed.filter(|_| is_late).map_or(fault, |(item, _)| too_late(state, &run, item)));
        }
    };
    // Replace the record of an earlier attempt that the agent did not accept.
    let items: Vec<String> = wanted.iter().map(|(item, _)| item.clone()).collect();
    state.deciders.forget(id, &items);
    state.deciders.record(id, &wanted, who);
    Ok((continued, decided.join(", ")))
}

/// The fault for an item that is not open. Its message names the author of the decision, if known.
fn too_late(state: &AdminState, run: &RunHandle, item: &str) -> Fault {
    let (id, answered_by) = run.view(|view| {
        let turns = &view.run().turns;
        (view.run().id, turns.iter().rev().find_map(|turn| turn.answered_by))
    });
    let message = match (state.deciders.by(id, item), answered_by) {
        (Some(by), _) => format!("'{item}' was already {by}"),
        (None, Some(run)) => format!("'{item}' was already answered by run '{run}' of its client"),
        (None, None) => format!("'{item}' is no longer open: it was answered or withdrawn"),
    };
    Fault::new(FaultKind::Conflict, message).with_code(NOT_TAKEN)
}

fn answer(decided: DecisionEntry) -> Result<Answer, Fault> {
    let DecisionEntry { id, decision, arguments, text, payload } = decided;
    if decision == Decision::Edit && arguments.is_none() {
        return Err(Fault::invalid("arguments", "an edit needs the new arguments"));
    }
    if let Some(arguments) = &arguments
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(arguments)
    {
        return Err(Fault::invalid("arguments", format!("are not JSON: {error}")));
    }
    let payload = payload.and_then(|raw| Json::parse(raw.get()));
    Ok(Answer::new(id, AnswerBody::Decided { decision, arguments, text, payload }))
}

/// The scope of a route of the run's agent, with the run's protocol if possible.
///
/// # Errors
/// If no route has the agent.
pub(super) fn scope_of(state: &AdminState, run: &RunHandle) -> Result<Scope, Fault> {
    let (agent, protocol) = run.view(|view| (view.run().agent.clone(), view.info.protocol.clone()));
    let routes = state.admin.control.routes_of(&agent);
    let route = routes.iter().find(|route| route.scope.protocol == protocol).or(routes.first());
    let route = route.ok_or_else(|| {
        Fault::new(FaultKind::Conflict, format!("no route has agent '{agent}': mount the agent again"))
    })?;
    let owner = run.view(|view| Owner::from_key(&view.info.owner));
    Ok(Scope { caller: state.admin.callers.acting_for(&owner), ..route.scope.clone() })
}
