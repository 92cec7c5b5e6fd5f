//! Open items of all sessions, and decisions about them, which are those of the run's own owner.

use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerBody, NOT_TAKEN};
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::{Fault, FaultKind, Json, Owner, RunId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::State;
use crate::engine::{Answer as EngineAnswer, OpenItem, OpenItems, RunHandle, Scope};

/// The most items in one answer.
const MAX_ITEMS: usize = 200;

/// What is decided about a run's items.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decisions {
    items: Vec<Decided>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    id: String,
    decision: Decision,
    /// New arguments of an edit, as JSON text.
    arguments: Option<String>,
    /// Text of a response, or a reason.
    text: Option<String>,
    /// The whole answer, for items that have a schema of their own.
    payload: Option<Box<serde_json::value::RawValue>>,
}

/// A page of open items, the oldest first.
///
/// # Errors
/// Those of the store, and parameters that are unknown.
pub(super) async fn list(state: &State, query: &str, texts: bool) -> Result<Value, Fault> {
    let mut limit = MAX_ITEMS;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if name != "limit" {
            return Err(Fault::invalid(name.into_owned(), "is not a parameter of this"));
        }
        let read = value.parse().ok().filter(|limit| (1..=MAX_ITEMS).contains(limit));
        limit = read.ok_or_else(|| Fault::invalid("limit", format!("must be between 1 and {MAX_ITEMS}")))?;
    }

    let open = state.admin.engine.operator().open_items().await?;
    let mut all: Vec<(&OpenItems, &OpenItem)> =
        open.iter().flat_map(|session| session.items.iter().map(move |item| (session, item))).collect();
    all.sort_by_key(|(_, item)| item.asked_at);
    let mut shown = Vec::new();
    for (session, item) in all.iter().take(limit) {
        shown.push(view(state, session, item, texts).await);
    }
    Ok(json!({ "data": shown, "total": all.len(), "next": null }))
}

/// The open items of a run.
///
/// # Errors
/// Those of the store.
pub(super) async fn of_run(state: &State, run: RunId, texts: bool) -> Result<Vec<Value>, Fault> {
    let open = state.admin.engine.operator().open_items().await?;
    let mut shown = Vec::new();
    for session in &open {
        for item in session.items.iter().filter(|item| item.run == run) {
            shown.push(view(state, session, item, texts).await);
        }
    }
    Ok(shown)
}

async fn view(state: &State, session: &OpenItems, open: &OpenItem, texts: bool) -> Value {
    let run = state.admin.engine.operator().find(open.run).await.ok();
    let protocol = run.as_ref().map(|run| run.view(|view| view.info.protocol.clone())).unwrap_or_default();
    let item = &open.item;
    let schema = match item.kind {
        PendingKind::Input => item.response_schema.as_ref(),
        _ => open.parameters.as_ref(),
    };
    json!({
        "id": item.id,
        "kind": item.kind,
        "name": item.name,
        "message": item.message.as_ref().filter(|_| texts),
        "arguments": texts.then_some(&item.arguments),
        "arguments_bytes": item.arguments.len(),
        "decisions": item.decisions.iter().filter(|decision| **decision != Decision::Cancel).collect::<Vec<_>>(),
        "schema": schema,
        "reason": item.reason,
        "asked_at": open.asked_at,
        "expires_at": open.expires,
        "agent": session.agent,
        "session": session.session,
        "owner": Owner::from_key(&session.owner).principal(),
        "run": open.run.to_string(),
        "protocol": protocol,
        "learns": learns(&protocol),
    })
}

/// How a client of a protocol learns of a decision that was not its own.
fn learns(protocol: &str) -> &'static str {
    match protocol {
        "a2a" => "The client’s stream goes on, or it is notified.",
        "agent-api" => "A client that follows the session sees the next run.",
        "hitl" => "The client sees the result when it polls its status.",
        _ => "The client sees the result with its next message.",
    }
}

/// Decides items of a run. Returns the run that continues.
///
/// # Errors
/// What cannot be read or is not offered (with the field), what was decided already or has expired.
pub(super) async fn decide(state: &Arc<State>, id: RunId, body: &[u8]) -> Result<RunId, Fault> {
    let decisions: Decisions = serde_json::from_slice(body).map_err(|error| {
        Fault::new(FaultKind::Invalid, format!("write {{\"items\": [{{\"id\", \"decision\"}}]}}: {error}"))
            .with_field("items")
    })?;
    if decisions.items.is_empty() {
        return Err(Fault::invalid("items", "names no item"));
    }

    let operator = state.admin.engine.operator();
    let run = operator.find(id).await?;
    check_open(state, id, &decisions.items).await?;
    let answers = decisions.items.into_iter().map(answer).collect::<Result<Vec<_>, _>>()?;
    let scope = operator.in_scope_of(&run, scope_of(state, &run)?);
    let call = operator.decision(&run, answers);
    let answered = state.admin.engine.answer(call, &scope).await?;
    let continued = match answered {
        EngineAnswer::Run(run) | EngineAnswer::Waiting(run) => run.id(),
        _ => id,
    };
    Ok(continued)
}

/// Checks that the items are open.
///
/// # Errors
/// If one of them was decided meanwhile, was withdrawn, or never was one of the run.
async fn check_open(state: &State, run: RunId, items: &[Decided]) -> Result<(), Fault> {
    let open = state.admin.engine.operator().open_items().await?;
    let is_open = |wanted: &Decided| {
        open.iter().flat_map(|session| &session.items).any(|open| open.run == run && open.item.id == wanted.id)
    };
    match items.iter().find(|wanted| !is_open(wanted)) {
        None => Ok(()),
        Some(closed) => {
            let message = format!("'{}' is not open: it was decided or withdrawn meanwhile", closed.id);
            Err(Fault::new(FaultKind::Conflict, message).with_code(NOT_TAKEN))
        }
    }
}

fn answer(decided: Decided) -> Result<Answer, Fault> {
    let Decided { id, decision, arguments, text, payload } = decided;
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

/// The scope of a route of the run's agent: of the protocol that the run was started over, if it still has one.
///
/// # Errors
/// If no route has the agent any more.
pub(super) fn scope_of(state: &State, run: &RunHandle) -> Result<Scope, Fault> {
    let (agent, protocol) = run.view(|view| (view.run().agent.clone(), view.info.protocol.clone()));
    let routes = state.admin.control.routes_of(&agent);
    let route = routes.iter().find(|route| route.scope.protocol == protocol).or(routes.first());
    let route =
        route.ok_or_else(|| Fault::new(FaultKind::Conflict, format!("no route has agent '{agent}' any more")))?;
    let owner = run.view(|view| Owner::from_key(&view.info.owner));
    Ok(Scope { caller: state.admin.callers.acting_for(&owner), ..route.scope.clone() })
}
