//! Sample requests of routes, as clients would send them: for the playground, and as snippets.
//!
//! Not here: sending the requests ([`super::playground`]), and the languages of snippets ([`super::snippets`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use interlingua_core::call::RunView;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::sample::{SampleInput, SampleRequest, SampleThread};
use interlingua_core::{Fault, FaultKind, Owner, RunId};

use super::AdminState;
use super::guard::OperatorIdentity;
use super::snippets::{self, SnippetTarget};
use super::views::{Sample, Snippets};
use interlingua_base::clock;
use interlingua_engine::RunHandle;
use interlingua_server::served::ServedRoute;

/// Maximum number of runs of a conversation that a request repeats.
const MAX_RUNS: usize = 100;

/// The text and the target of a sample.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SampleParams {
    /// The path of the route.
    route: String,
    protocol: String,
    agent: String,
    text: String,
    /// The runs of the conversation so far, the oldest first.
    #[serde(default)]
    runs: Vec<String>,
}

/// Builds a request to a route, and its snippets. The snippets start a new conversation, because clients cannot
/// continue a conversation of the console.
///
/// # Errors
/// Malformed parameters; routes, agents and runs that do not exist; protocols without a sample request.
pub(super) async fn make(state: &AdminState, who: &OperatorIdentity, body: &[u8]) -> Result<Sample, Fault> {
    let wanted: SampleParams = serde_json::from_slice(body).map_err(|error| {
        let message = format!("write {{\"route\", \"protocol\", \"agent\", \"text\", \"runs\"}}: {error}");
        Fault::new(FaultKind::Invalid, message)
    })?;
    let routes = state.admin.control.routes_of(&wanted.agent);
    let is_it = |route: &&Arc<ServedRoute>| route.path == wanted.route && route.scope.protocol == wanted.protocol;
    let route = routes
        .iter()
        .find(is_it)
        .ok_or_else(|| Fault::invalid("route", "does not exist with this protocol and agent"))?;

    let owner = state.admin.callers.in_console(&who.name).owner.clone();
    let mut runs = conversation(state, &owner, &wanted.runs).await?;
    // A route with sessions of its own cannot continue sessions of other routes.
    let here = match &route.partition {
        Some(path) => owner.clone().on_route(path),
        None => owner.clone(),
    };
    runs.retain(|run| run.view(|view| view.info.owner == here.key()));
    let said: Vec<(Role, String)> = runs.iter().flat_map(|run| run.view_safe(messages_of)).collect();
    let latest = runs.last().map(|run| (run.id(), run.view(|view| view.run().session_id.clone())));
    let thread =
        latest.as_ref().map(|(previous, session)| SampleThread { session, previous: Some(*previous), said: &said });

    let id = clock::new_id();
    let input = SampleInput { agent: &wanted.agent, text: &wanted.text, id, began: None, thread };
    let none = || Fault::invalid("protocol", "has no sample request with these options");
    let sample = sample(route, &input).ok_or_else(none)?;
    let alone = SampleInput { thread: None, ..input };
    let snippets = snippets(state, route, &alone).ok_or_else(none)?;
    let mut headers: BTreeMap<String, String> =
        sample.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    headers.insert("content-type".to_owned(), "application/json".to_owned());
    Ok(Sample {
        id,
        owner: owner.base_key().to_owned(),
        goes_on: !runs.is_empty(),
        method: sample.method.as_str(),
        path: format!("{}{}", route.path, sample.path()),
        headers,
        body: sample.body,
        snippets,
    })
}

/// The snippets of a first request to a route. `None`: the route has no agent, or its protocol no sample request.
pub(super) fn route_snippets(state: &AdminState, route: &ServedRoute) -> Option<Snippets> {
    let agent = route.scope.agents.iter().next()?;
    let input = SampleInput { agent: &agent.name, text: "hello", id: clock::new_id(), began: None, thread: None };
    snippets(state, route, &input)
}

/// The shell command that sends a text to an agent over a route. `None`: the protocol has no sample request.
pub(super) fn curl(state: &AdminState, route: &ServedRoute, agent: &str, text: &str) -> Option<String> {
    let input = SampleInput { agent, text, id: clock::new_id(), began: None, thread: None };
    Some(snippets::curl(&target(state, route), &sample(route, &input)?))
}

fn sample(route: &ServedRoute, input: &SampleInput<'_>) -> Option<SampleRequest> {
    Some(route.mounted.console.sample.as_ref()?(input))
}

fn snippets(state: &AdminState, route: &ServedRoute, input: &SampleInput<'_>) -> Option<Snippets> {
    let (target, sample) = (target(state, route), sample(route, input)?);
    let templates = &route.mounted.console.snippets;
    Some(Snippets {
        curl: snippets::curl(&target, &sample),
        python: snippets::python(&target, templates, &sample, input.text),
        typescript: snippets::typescript(&target, templates, &sample, input.text),
    })
}

fn target(state: &AdminState, route: &ServedRoute) -> SnippetTarget {
    let base = state.admin.control.public_url().unwrap_or_else(|| state.admin.client_url.clone());
    SnippetTarget { url: format!("{base}{}", route.path), auth: route.auth }
}

/// The runs of a conversation in the console, at most the last [`MAX_RUNS`].
///
/// # Errors
/// If one of them does not exist, or belongs to another person.
async fn conversation(state: &AdminState, owner: &Owner, ids: &[String]) -> Result<Vec<RunHandle>, Fault> {
    let operator = state.admin.engine.operator();
    let mut runs = Vec::new();
    for id in &ids[ids.len().saturating_sub(MAX_RUNS)..] {
        let id = RunId::parse(id).ok_or_else(|| Fault::invalid("runs", "has an invalid run id"))?;
        let run = operator.find(id).await?;
        if run.view(|view| Owner::base_of(&view.info.owner) != owner.base_key()) {
            return Err(Fault::not_found("a run of this conversation"));
        }
        runs.push(run);
    }
    Ok(runs)
}

/// The messages of a run: for each turn the user's last text, and the agent's texts.
fn messages_of(view: RunView<'_>) -> Vec<(Role, String)> {
    let run = view.run();
    let mut said = Vec::new();
    for (number, turn) in run.turns.iter().enumerate() {
        let is_users = |message: &&interlingua_core::model::Message| message.role == Some(Role::User);
        let asked = turn.input.iter().rev().filter(is_users).map(|message| message.text());
        said.extend(asked.filter(|text| !text.is_empty()).take(1).map(|text| (Role::User, text)));
        let texts: Vec<String> = run
            .messages_of(number)
            .iter()
            .filter(|message| message.kind == MessageType::Message)
            .map(interlingua_core::run::Message::text)
            .filter(|text| !text.is_empty())
            .collect();
        if !texts.is_empty() {
            said.push((Role::Assistant, texts.join("\n\n")));
        }
    }
    said
}
