//! Types of the admin listener's responses to the console. `console/types.d.ts` is generated from them, so that the
//! sources of the page are checked against the responses.
//!
//! Times are in milliseconds since 1970 unless a field says otherwise. Not here: their creation (the other modules),
//! and the active configuration, which operators read as a whole.

use std::collections::BTreeMap;

use interlingua_core::event::Millis;
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::{Json, RunId};
use serde::Serialize;
use serde_json::Value;

use super::mask;
use interlingua_config::ConsoleRole;
use interlingua_engine::RunSummary;
use interlingua_observe::metrics::RecentStats;

/// A page of a list.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema), schemars(rename = "PageOf{T}"))]
pub(super) struct Page<T> {
    pub(super) data: Vec<T>,
    /// The number of entries on all pages. `null`: not counted.
    pub(super) total: Option<usize>,
    /// The `cursor` of the next page. `null`: this is the last one.
    pub(super) next: Option<String>,
}

/// A run in a list, without its record.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Summary {
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) id: RunId,
    pub(super) agent: String,
    /// The protocol of the run's client.
    pub(super) protocol: String,
    /// The key of the owner, as in the filter `owner`.
    pub(super) owner: String,
    pub(super) session: String,
    /// `queued`, `running`, `waiting`, `waiting_for_auth`, or the end: `completed`, `incomplete`, `failed`, `rejected`,
    /// `canceled`.
    pub(super) state: &'static str,
    /// The code of the run's error. `null`: the run has none.
    pub(super) code: Option<String>,
    pub(super) created_at: Millis,
    pub(super) changed_at: Millis,
    pub(super) events: u64,
    /// The number of open items.
    pub(super) pending: usize,
    /// The name of the first open item. `null`: no item is open.
    pub(super) asks: Option<String>,
    /// The first text, at most 120 characters. `null`: the reader's role may not read texts.
    pub(super) text: Option<String>,
}

impl Summary {
    /// `texts`: whether the reader may read texts.
    pub(super) fn new(run: &RunSummary, texts: bool) -> Self {
        Self {
            id: run.id,
            agent: run.agent.clone(),
            protocol: run.protocol.clone(),
            owner: run.owner.clone(),
            session: run.session.clone(),
            state: run.state.as_str(),
            code: run.code.as_deref().map(|code| if texts { code.to_owned() } else { mask::name(code) }),
            created_at: run.created_at,
            changed_at: run.changed_at,
            events: run.events,
            pending: run.pending,
            asks: run.asks.as_deref().map(|name| if texts { name.to_owned() } else { mask::name(name) }),
            text: texts.then(|| run.text.clone()),
        }
    }
}

/// The detail of a run, without its messages.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Detail {
    pub(super) run: Summary,
    /// Whether the reader's role may read texts. If not, texts are asterisks, one for each character.
    pub(super) texts: bool,
    /// The protocols of the agent's routes that can show the run.
    pub(super) protocols: Vec<&'static str>,
    /// Shell commands that send the first input of the run to its agent, by protocol. Empty if the input is longer than
    /// 64 KiB. `null`: the reader's role may not read texts.
    pub(super) curl: Option<BTreeMap<&'static str, String>>,
    /// The run's id as `id`, and its form in each protocol that has a form of its own.
    pub(super) ids: BTreeMap<&'static str, String>,
    pub(super) session: SessionRuns,
    pub(super) turns: Vec<Turn>,
    /// `null`: the reader's role may not read texts.
    pub(super) request: Option<Settings>,
    /// Advice for the operator about the error. `null`: no advice applies.
    pub(super) advice: Option<&'static str>,
    pub(super) pending: Vec<PendingItem>,
    /// The answers to the run's questions.
    pub(super) answers: Vec<AnsweredItem>,
    /// Push receivers of the run's events, while this gateway is sending to them.
    pub(super) deliveries: Vec<Delivery>,
}

/// A session with its latest runs.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct SessionRuns {
    pub(super) id: String,
    pub(super) runs: Vec<Summary>,
}

/// A turn of a run.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Turn {
    /// From 0.
    pub(super) number: usize,
    pub(super) started_at: Millis,
    /// The time of the agent's first event. `null`: none so far.
    pub(super) first_event_at: Option<Millis>,
    pub(super) ended_at: Option<Millis>,
    /// The end of the turn. `null`: it has not ended.
    pub(super) end: Option<&'static str>,
    pub(super) error: Option<TurnError>,
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) usage: Option<Json>,
    /// The run that answered the question of this turn.
    #[cfg_attr(test, ts(as = "Option<String>"))]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) answered_by: Option<RunId>,
    /// The client's messages, in the format of the Agent API.
    #[cfg_attr(test, ts(type = "any[]"))]
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Value>"))]
    pub(super) input: Vec<Value>,
}

/// The error of a failed turn.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct TurnError {
    pub(super) code: String,
    pub(super) message: String,
    /// The party that must act: `client`, `upstream` or `gateway`.
    pub(super) blame: &'static str,
    /// The HTTP status of the agent's answer. `null`: the agent sent no answer, or its status was no error.
    pub(super) status: Option<u16>,
    /// The request to the agent and the start of its answer, or the error of the connection. `null`: unknown, or the
    /// reader's role may not read texts.
    pub(super) detail: Option<String>,
    /// The agent's own error text, before it was filtered for clients. `null`: as for `detail`.
    pub(super) agent_error: Option<String>,
}

/// The settings of a request, without its messages.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Settings {
    pub(super) model: Option<String>,
    pub(super) user_id: Option<String>,
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) tools: Value,
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) extra: Value,
}

/// The answer to a question of a run.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct AnsweredItem {
    /// The id of the answered item.
    pub(super) id: String,
    /// `accept`, `edit`, `respond`, `reject` or `cancel`. `null`: the agent decides what the answer means.
    pub(super) decision: Option<&'static str>,
    /// The new arguments of an edit, as JSON text.
    pub(super) arguments: Option<String>,
    pub(super) text: Option<String>,
    /// The run that received the answer.
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) run: RunId,
    /// The author of a recent decision in the console of this gateway. `null`: another decision.
    pub(super) by: Option<String>,
}

/// The progress of sending a run's events to a receiver.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Delivery {
    /// The number of events that were delivered or skipped.
    pub(super) delivered: u64,
}

/// An open item with its run.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct PendingItem {
    pub(super) item: Item,
    /// The allowed decisions.
    #[cfg_attr(test, ts(type = "string[]"))]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) decisions: Vec<Decision>,
    /// JSON Schema of an approval's arguments, or of the answer to a question. `null`: the item has no schema, or the
    /// reader's role may not read texts.
    #[cfg_attr(test, ts(type = "any"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) schema: Option<Json>,
    pub(super) agent: String,
    pub(super) session: String,
    /// The key of the owner, as in summaries.
    pub(super) owner: String,
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) run: RunId,
    /// The protocol of the run's client.
    pub(super) protocol: String,
    /// A sentence about how that client learns of a decision by someone else. `null`: the agent no longer has a route
    /// of the protocol.
    pub(super) learns: Option<&'static str>,
    pub(super) asked_at: Millis,
    /// `null`: the item does not expire.
    pub(super) expires_at: Option<Millis>,
}

/// A question or an approval.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Item {
    pub(super) id: String,
    #[cfg_attr(test, ts(type = "string"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) kind: PendingKind,
    /// The name of the tool; for `input` and `auth` the reason.
    pub(super) name: String,
    /// `null`: the item has no message, or the reader's role may not read texts.
    pub(super) message: Option<String>,
    /// JSON text. `null`: the reader's role may not read texts.
    pub(super) arguments: Option<String>,
    pub(super) arguments_bytes: usize,
    pub(super) reason: Option<String>,
}

/// The state of the gateway.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Gateway {
    pub(super) version: &'static str,
    pub(super) build: Build,
    pub(super) started_at: Millis,
    /// Whether the gateway accepts new runs.
    pub(super) accepting: bool,
    /// Runs under way.
    pub(super) active: usize,
    /// The time and the outcome of the latest reload.
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) reload: Value,
    pub(super) store: StoreKind,
    pub(super) listeners: Vec<Listener>,
    pub(super) public_url: Option<String>,
    pub(super) ready: bool,
    /// The reasons for not being ready.
    pub(super) reasons: Vec<Reason>,
    /// The protocols of all routes.
    pub(super) protocols: Vec<&'static str>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) warnings: Vec<String>,
}

/// The build of the program.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Build {
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    /// True for a build without optimization.
    pub(super) debug: bool,
}

/// The store of runs.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct StoreKind {
    /// `memory`, `sqlite` or `postgres`.
    pub(super) kind: String,
}

/// A listening socket.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Listener {
    /// The users of the listener: `clients` or `operators`.
    #[serde(rename = "for")]
    pub(super) whom: &'static str,
    pub(super) url: String,
}

/// A reason for not being ready.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Reason {
    /// `draining`, `store` or `pool`.
    pub(super) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) agent: Option<String>,
    /// The duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) since_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) detail: Option<String>,
}

/// The traffic of a protocol.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Traffic {
    pub(super) protocol: &'static str,
    /// Runs under way.
    pub(super) live: usize,
    pub(super) lately: RecentStats,
}

/// A configured agent with its current load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Agent {
    pub(super) name: String,
    /// The protocol of the agent.
    pub(super) protocol: String,
    /// Hosts of its endpoints, or `built in`.
    pub(super) host: String,
    /// `ready`, `failing` (every endpoint is out) or `draining`.
    pub(super) state: &'static str,
    /// The beginning of this state, as observed by this gateway.
    pub(super) since: Millis,
    /// The reason why an endpoint is out. `null`: no endpoint is out.
    pub(super) reason: Option<String>,
    /// Runs under way.
    pub(super) live: usize,
    /// Turns that wait for an earlier turn of their session.
    pub(super) queued: usize,
    pub(super) lately: RecentStats,
    pub(super) last_fault: Option<LastFault>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<Endpoint>>", optional))]
    #[cfg_attr(test, schemars(with = "Option<Vec<Endpoint>>"))]
    pub(super) endpoints: Vec<Endpoint>,
    /// The active settings, by name.
    #[serde(flatten)]
    #[cfg_attr(test, ts(skip))]
    #[cfg_attr(test, schemars(skip))]
    pub(super) settings: serde_json::Map<String, Value>,
}

impl Agent {
    /// Hides texts of the agent's last fault.
    pub(super) fn without_texts(mut self) -> Self {
        if let Some(fault) = &mut self.last_fault {
            fault.message = None;
            fault.code = mask::name(&fault.code);
        }
        self
    }
}

/// The failure of the agent's latest failed run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct LastFault {
    pub(super) at: Millis,
    pub(super) code: String,
    /// `null`: the agent sent none, or the reader's role may not read texts.
    pub(super) message: Option<String>,
}

/// An endpoint of an agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Endpoint {
    pub(super) key: String,
    pub(super) url: String,
    /// `up`, `trial` or `out`.
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    pub(super) active: u32,
    pub(super) queued: u32,
    /// Runs for which the endpoint was chosen since the start of the gateway.
    pub(super) requests: u64,
    pub(super) retries: u64,
    pub(super) ejections: u64,
}

/// A route.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Route {
    pub(super) protocol: &'static str,
    pub(super) path: String,
    /// The URL for clients.
    pub(super) url: String,
    /// The accepted credentials, or `none`.
    pub(super) auth: String,
    pub(super) agents: Vec<String>,
    /// The other active settings. `options`: the settings of the protocol.
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub(super) settings: serde_json::Map<String, Value>,
    /// Whether the protocol has sample requests, for the playground and for snippets.
    pub(super) sample: bool,
    /// Snippets of a client's first request. `null`: the protocol has no sample request.
    pub(super) snippets: Option<Snippets>,
}

/// A request as snippets.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Snippets {
    pub(super) curl: String,
    pub(super) python: String,
    pub(super) typescript: String,
}

/// A sample request to a route.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Sample {
    /// The id of the sample. Runs that start later have greater ids.
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) id: RunId,
    /// The base key of the owner of the request's run.
    pub(super) owner: String,
    /// Whether the request continues the conversation so far.
    pub(super) goes_on: bool,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) body: Value,
    pub(super) snippets: Snippets,
}

/// The signed-in person.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Session {
    /// Only in the response to a sign-in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) bearer: Option<String>,
    pub(super) name: String,
    #[cfg_attr(test, ts(type = "\"view\" | \"act\""))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) role: ConsoleRole,
    /// The latest end of the bearer. `null`: the request authenticated with a key or a certificate.
    pub(super) until: Option<Millis>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ts_rs::TS;

    use super::super::{api, series};
    use super::*;
    use interlingua_observe::metrics::Series;
    use interlingua_observe::{Action, AuditEntry};

    /// A type as the page's sources read it, with its documentation.
    fn declaration<T: TS>(config: &ts_rs::Config) -> String {
        format!("{}export {}\n", T::docs().unwrap_or_default(), T::decl(config))
    }

    fn declarations() -> String {
        let config = ts_rs::Config::new().with_large_int("number");
        let all = [
            declaration::<Page<Summary>>,
            declaration::<Summary>,
            declaration::<Detail>,
            declaration::<SessionRuns>,
            declaration::<Turn>,
            declaration::<TurnError>,
            declaration::<Settings>,
            declaration::<AnsweredItem>,
            declaration::<Delivery>,
            declaration::<PendingItem>,
            declaration::<Item>,
            declaration::<Gateway>,
            declaration::<Build>,
            declaration::<StoreKind>,
            declaration::<Listener>,
            declaration::<Reason>,
            declaration::<Traffic>,
            declaration::<RecentStats>,
            declaration::<Agent>,
            declaration::<LastFault>,
            declaration::<Endpoint>,
            declaration::<Route>,
            declaration::<Snippets>,
            declaration::<Sample>,
            declaration::<Session>,
            declaration::<api::DrainState<'_>>,
            declaration::<series::View>,
            declaration::<series::Row>,
            declaration::<Series>,
            declaration::<AuditEntry>,
            declaration::<Action>,
        ];
        let all: Vec<String> = all.into_iter().map(|declaration| declaration(&config)).collect();
        format!(
            "// What the admin listener answers. Written from the types of the gateway by\n\
             // `INSTA_UPDATE=always cargo test --lib the_types_of_the_page`: do not edit.\n\n{}",
            all.join("\n")
        )
    }

    #[test]
    fn the_types_of_the_page_match_the_answers() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/types.d.ts");
        let current = declarations();
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(&file, &current).expect("it can be written");
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(written, current, "write console/types.d.ts again with INSTA_UPDATE=always");
    }
}
