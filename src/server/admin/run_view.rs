//! One run as the console shows it: its turns, request, ids and open items. Its messages come by the stream of events.

use std::sync::Arc;

use interlingua_core::call::{Filter, Order, RunView};
use interlingua_core::run::Turn;
use interlingua_core::{Fault, RunId};
use serde_json::{Map, Value, json};

use super::State;
use super::panes::{Encoding, Pane, said};
use super::summaries::summary;
use super::{mask, pending, samples};
use crate::engine::{WantedRuns, summary_of};
use crate::store::Query;

/// The most runs of a session that are listed.
const MAX_SIBLINGS: usize = 20;

/// A run with everything but its messages.
///
/// # Errors
/// If there is no such run, or the store fails.
pub(super) async fn detail(state: &Arc<State>, texts: bool, id: RunId) -> Result<Value, Fault> {
    let operator = state.admin.engine.operator();
    let run = operator.find(id).await?;
    let own = summary_of(&run);
    let filter = Filter {
        session: Some(own.session.clone()),
        order: Order::NewestFirst,
        limit: MAX_SIBLINGS,
        ..Filter::default()
    };
    let query = Query { agents: vec![own.agent.clone()], owner: Some(own.owner.clone()), filter, ..Query::default() };
    let siblings = operator.list(WantedRuns { query, pending: false }).await?;
    let items = pending::of_run(state, &run, texts).await?;
    let mut shown = summary(&own, texts);
    shown["pending"] = items.as_array().map_or(0, Vec::len).into();

    Ok(json!({
        "run": shown,
        "texts": texts,
        "protocols": run.view_safe(|view| protocols(state, view)),
        "curl": texts.then(|| run.view_safe(|view| curls(state, view))),
        "ids": { "UUID": id.to_string(), "Hexadecimal": id.0.simple().to_string() },
        "session": {
            "id": own.session,
            "runs": siblings.runs.iter().map(|run| summary(run, texts)).collect::<Vec<_>>(),
        },
        "turns": run.view_safe(|view| turns(view, texts)),
        "request": run.view_safe(|view| texts.then(|| request(view))),
        "advice": run.view_safe(advice),
        "pending": items,
    }))
}

/// The protocols in which the run can be shown: those of its agent's routes.
fn protocols(state: &State, run: RunView<'_>) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for route in state.admin.control.routes_of(&run.run().agent) {
        if !found.contains(&route.scope.protocol) && Pane::open(Encoding::Route(Arc::clone(&route)), run).is_some() {
            found.push(route.scope.protocol);
        }
    }
    found
}

/// The request of the run's client as a shell command, for each protocol.
fn curls(state: &State, view: RunView<'_>) -> Map<String, Value> {
    let (agent, text) = (view.run().agent.as_str(), said(view));
    let mut found = Map::new();
    for route in state.admin.control.routes_of(agent) {
        if !found.contains_key(route.scope.protocol)
            && let Some(curl) = samples::curl(state, &route, agent, &text)
        {
            found.insert(route.scope.protocol.to_owned(), curl.into());
        }
    }
    found
}

fn turns(view: RunView<'_>, texts: bool) -> Vec<Value> {
    let shown = view.run().turns.iter().enumerate().map(|(number, turn)| {
        json!({
            "number": number,
            "started_at": turn.started_at,
            "ended_at": turn.ended_at,
            "end": turn.end.map(interlingua_core::End::as_str),
            "error": turn.error,
            "usage": turn.usage,
            "answered_by": turn.answered_by.map(|run| run.to_string()),
            "input": input(turn, texts),
        })
    });
    shown.collect()
}

fn input(turn: &Turn, texts: bool) -> Value {
    let whole = |message| serde_json::to_value(message).unwrap_or_default();
    turn.input.iter().map(|message| if texts { whole(message) } else { mask::message(message) }).collect()
}

fn request(view: RunView<'_>) -> Value {
    let request = &view.info.request;
    json!({ "model": request.model, "user_id": request.user_id, "tools": request.tools, "extra": request.extra })
}

/// What to do about the error that a run ended with. `None`: it has none, or nothing is known of its code.
fn advice(view: RunView<'_>) -> Option<&'static str> {
    let code = view.run().turns.last()?.error.as_ref()?.code.as_str();
    Some(match code {
        "UPSTREAM_TIMEOUT" => "The agent was silent for too long. See timeouts of the agent in the configuration.",
        "UPSTREAM_UNAVAILABLE" => "The agent cannot be reached. Check its address, and whether it runs.",
        "UPSTREAM_PROTOCOL_ERROR" => {
            "The agent answered in another protocol than configured. `interlingua probe` shows what it speaks."
        }
        "GATEWAY_RESTARTED" => "The gateway that drove the run was stopped or killed. Nothing was executed again.",
        "GATEWAY_SHUTTING_DOWN" => "The gateway stopped before the run ended. A longer `drain` gives runs more time.",
        _ => return None,
    })
}
