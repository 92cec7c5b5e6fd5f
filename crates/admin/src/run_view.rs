//! The detail of a run for the console: its turns, request, ids and open items. The page receives the messages with the
//! stream of events.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlingua_core::call::{Filter, Order, RunView};
use interlingua_core::event::Millis;
use interlingua_core::run::{FailureCause, RunError};
use interlingua_core::{End, Event, Fault, RunId, run};

use super::panes::{Encoding, Pane, first_input};
use super::views::{Delivery, Detail, SessionRuns, Settings, Summary, Turn, TurnError};
use super::{AdminState, advice, answered, mask, pending, samples};
use interlingua_engine::{RunQuery, summary_of};
use interlingua_store::Query;

/// Maximum number of listed runs of a session.
const MAX_SIBLINGS: usize = 20;

/// Maximum length of a text in a shell command, in bytes. Linux limits an argument to 128 KiB, and escaping lengthens it.
const MAX_COMMAND_TEXT: usize = 64 << 10;

/// A run without its messages.
///
/// # Errors
/// If there is no such run, or the store fails.
pub(super) async fn detail(state: &Arc<AdminState>, texts: bool, id: RunId) -> Result<Detail, Fault> {
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
    let siblings = operator.list(RunQuery { query, pending: false }).await?;
    let pending = pending::of_run(state, &run, texts).await?;

    Ok(Detail {
        run: Summary { pending: pending.len(), ..Summary::new(&own, texts) },
        texts,
        protocols: run.view_safe(|view| protocols(state, view)),
        curl: texts.then(|| run.view_safe(|view| curls(state, view))),
        ids: ids(state, &own.agent, id),
        session: SessionRuns {
            id: own.session,
            runs: siblings.runs.iter().map(|run| Summary::new(run, texts)).collect(),
        },
        turns: run.view_safe(|view| turns(view, texts)),
        request: run.view_safe(|view| texts.then(|| settings(view))),
        advice: run.view_safe(|view| advice::on(&view.run().turns.last()?.error.as_ref()?.code)),
        answers: answered::answers(state, &run, &siblings.runs, texts).await?,
        pending,
        deliveries: operator.deliveries(id).into_iter().map(|delivered| Delivery { delivered }).collect(),
    })
}

/// The protocols of the agent's routes that can show the run.
fn protocols(state: &AdminState, run: RunView<'_>) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for route in state.admin.control.routes_of(&run.run().agent) {
        if !found.contains(&route.scope.protocol) && Pane::open(Encoding::Route(Arc::clone(&route)), run).is_some() {
            found.push(route.scope.protocol);
        }
    }
    found
}

/// Shell commands that send the last text of the run's first input to its agent, one for each protocol. Empty if a shell
/// does not accept a text of that length.
fn curls(state: &AdminState, view: RunView<'_>) -> BTreeMap<&'static str, String> {
    let (agent, text) = (view.run().agent.as_str(), first_input(view));
    let mut found = BTreeMap::new();
    if text.len() > MAX_COMMAND_TEXT {
        return found;
    }

    for route in state.admin.control.routes_of(agent) {
        if !found.contains_key(route.scope.protocol)
            && let Some(curl) = samples::curl(state, &route, agent, &text)
        {
            found.insert(route.scope.protocol, curl);
        }
    }
    found
}

/// The id of the run, and its form in each protocol that has a form of its own.
fn ids(state: &AdminState, agent: &str, id: RunId) -> BTreeMap<&'static str, String> {
    let mut ids = BTreeMap::from([("id", id.to_string())]);
    for route in state.admin.control.routes_of(agent) {
        if let Some(write) = route.mounted.console.run_id {
            ids.insert(route.scope.protocol, write(id));
        }
    }
    ids
}

fn turns(view: RunView<'_>, texts: bool) -> Vec<Turn> {
    let first_events = first_events(view);
    let shown = view.run().turns.iter().enumerate().map(|(number, turn)| Turn {
        number,
        started_at: turn.started_at,
        first_event_at: first_events.get(number).copied().flatten(),
        ended_at: turn.ended_at,
        end: turn.end.map(End::as_str),
        error: turn.error.as_ref().map(|error| failure(error, turn.cause.as_deref(), texts)),
        usage: turn.usage.as_ref().and_then(|usage| if texts { Some(usage.clone()) } else { mask::usage(usage) }),
        answered_by: turn.answered_by,
        input: input(turn, texts),
    });
    shown.collect()
}

/// The error of a turn. Its message and details are texts: an agent's error may repeat the input of a client.
fn failure(error: &RunError, cause: Option<&FailureCause>, texts: bool) -> TurnError {
    let cause = cause.cloned().unwrap_or_default();
    TurnError {
        code: if texts { error.code.clone() } else { mask::name(&error.code) },
        message: if texts { error.message.clone() } else { mask::text(&error.message) },
        blame: advice::blame(&error.code).as_str(),
        status: cause.status,
        detail: cause.detail.filter(|_| texts),
        agent_error: cause.agent_error.filter(|_| texts),
    }
}

/// The time of the agent's first event in each turn. `None`: the turn has none so far.
fn first_events(view: RunView<'_>) -> Vec<Option<Millis>> {
    let mut found = Vec::new();
    for step in view.record.steps(0) {
        match (step.event, found.last_mut()) {
            (Event::TurnStarted { .. }, _) => found.push(None),
            (Event::AnswerStarted { .. } | Event::MessageStarted { .. }, Some(first @ None)) => *first = Some(step.at),
            _ => {}
        }
    }
    found
}

fn input(turn: &run::Turn, texts: bool) -> Vec<serde_json::Value> {
    let whole = |message| serde_json::to_value(message).unwrap_or_default();
    turn.input.iter().map(|message| if texts { whole(message) } else { mask::message(message) }).collect()
}

fn settings(view: RunView<'_>) -> Settings {
    let request = &view.info.request;
    Settings {
        model: request.model.clone(),
        user_id: request.user_id.clone(),
        tools: serde_json::to_value(&request.tools).unwrap_or_default(),
        extra: serde_json::to_value(&request.extra).unwrap_or_default(),
    }
}
