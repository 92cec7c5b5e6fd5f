//! The admin listener's answers to the console, as types. `console/types.d.ts` is generated from them, so that the
//! page's sources are checked against the answers.
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
use crate::config::ConsoleRole;
use crate::engine::RunSummary;
use crate::metrics::RecentStats;

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

/// A run as lists show it: never its record.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Summary {
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) id: RunId,
    pub(super) agent: String,
    /// The protocol of its client.
    pub(super) protocol: String,
    /// To whom it belongs, as the filter `owner` takes it.
    pub(super) owner: String,
    pub(super) session: String,
    /// `queued`, `running`, `waiting`, `waiting_for_auth`, or how it ended.
    pub(super) state: &'static str,
    /// The code of the error it ended with.
    pub(super) code: Option<String>,
    pub(super) created_at: Millis,
    pub(super) changed_at: Millis,
    pub(super) events: u64,
    /// The number of open items.
    pub(super) pending: usize,
    /// The name of the first of them.
    pub(super) asks: Option<String>,
    /// The first text, at most 120 characters. `null`: the reader's role may not read texts.
    pub(super) text: Option<String>,
}

impl Summary {
    /// `texts`: whether its reader may see what people say.
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

/// A run with everything but its messages.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Detail {
    pub(super) run: Summary,
    /// Whether the reader's role may read texts. If not, texts are asterisks, one for each character.
    pub(super) texts: bool,
    /// The protocols in which it can be shown: those of its agent's routes.
    pub(super) protocols: Vec<&'static str>,
    /// Its client's request as a shell command, by protocol. `null` without texts.
    pub(super) curl: Option<BTreeMap<&'static str, String>>,
    /// The forms of its id: the gateway's own, and those of protocols that write it in another way.
    pub(super) ids: BTreeMap<&'static str, String>,
    pub(super) session: SessionRuns,
    pub(super) turns: Vec<Turn>,
    /// `null` without texts.
    pub(super) request: Option<Settings>,
    /// Advice about its error.
    pub(super) advice: Option<&'static str>,
    pub(super) pending: Vec<PendingItem>,
    /// The answers to its questions.
    pub(super) answers: Vec<AnsweredItem>,
    /// Receivers of its events by push, at this gateway, while it is sending to them.
    pub(super) deliveries: Vec<Delivery>,
}

/// A session, with the latest of its runs.
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
    /// When the agent's first event came.
    pub(super) first_event_at: Option<Millis>,
    pub(super) ended_at: Option<Millis>,
    /// The end of the turn. `null`: it has not ended.
    pub(super) end: Option<&'static str>,
    pub(super) error: Option<TurnError>,
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) usage: Option<Json>,
    /// The run that answered what this one asked.
    #[cfg_attr(test, ts(as = "Option<String>"))]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) answered_by: Option<RunId>,
    /// The client's messages, as the Agent API writes them.
    #[cfg_attr(test, ts(type = "any[]"))]
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Value>"))]
    pub(super) input: Vec<Value>,
}

/// Why a turn failed.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct TurnError {
    pub(super) code: String,
    pub(super) message: String,
    /// The party that must act: `client`, `upstream` or `gateway`.
    pub(super) blame: &'static str,
    /// The HTTP status of the agent's answer. `null`: the agent sent no answer, or its status was no error.
    pub(super) status: Option<u16>,
    /// The request to the agent and the beginning of its answer, or the error of the connection. `null`: unknown, or the
    /// reader's role may not read texts.
    pub(super) detail: Option<String>,
    /// The error text that the agent reported, before it was filtered for clients. `null`: as for `detail`.
    pub(super) agent_error: Option<String>,
}

/// The settings of a request beside its messages.
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

/// The answer to something that a run asked.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct AnsweredItem {
    /// The item's id.
    pub(super) id: String,
    /// `accept`, `edit`, `respond`, `reject` or `cancel`. `null`: the agent decides what the answer means.
    pub(super) decision: Option<&'static str>,
    /// The new arguments of an edit, as JSON text.
    pub(super) arguments: Option<String>,
    pub(super) text: Option<String>,
    /// The run whose request had the answer.
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) run: RunId,
    /// The author of the decision, if it was made recently in the console of this gateway.
    pub(super) by: Option<String>,
}

/// Sending a run's events to a receiver.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Delivery {
    /// Events that the receiver has, or will not get.
    pub(super) delivered: u64,
}

/// Something that waits for a decision.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct PendingItem {
    pub(super) item: Item,
    /// The allowed decisions.
    #[cfg_attr(test, ts(type = "string[]"))]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) decisions: Vec<Decision>,
    /// JSON Schema: of an approval's arguments, or of the answer to a question.
    #[cfg_attr(test, ts(type = "any"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) schema: Option<Json>,
    pub(super) agent: String,
    pub(super) session: String,
    /// To whom it belongs, as in summaries.
    pub(super) owner: String,
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) run: RunId,
    /// The protocol of the run's client.
    pub(super) protocol: String,
    /// The way in which that client learns of another one's decision. `null`: its agent no longer has a route of the
    /// protocol.
    pub(super) learns: Option<&'static str>,
    pub(super) asked_at: Millis,
    /// `null`: not by itself.
    pub(super) expires_at: Option<Millis>,
}

/// A question.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Item {
    pub(super) id: String,
    #[cfg_attr(test, ts(type = "string"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) kind: PendingKind,
    /// The tool, or the reason.
    pub(super) name: String,
    /// `null` without texts.
    pub(super) message: Option<String>,
    /// JSON text; `null` without texts.
    pub(super) arguments: Option<String>,
    pub(super) arguments_bytes: usize,
    pub(super) reason: Option<String>,
}

/// The gateway at a glance.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Gateway {
    pub(super) version: &'static str,
    pub(super) build: Build,
    pub(super) started_at: Millis,
    /// Whether it takes new runs.
    pub(super) accepting: bool,
    /// Runs under way.
    pub(super) active: usize,
    /// When the configuration was read last, and with which outcome.
    #[cfg_attr(test, ts(type = "unknown"))]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub(super) reload: Value,
    pub(super) store: StoreKind,
    pub(super) listeners: Vec<Listener>,
    pub(super) public_url: Option<String>,
    pub(super) ready: bool,
    /// Why it is not ready.
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
    /// Without optimization.
    pub(super) debug: bool,
}

/// Where runs are kept.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct StoreKind {
    /// `memory`, `sqlite` or `postgres`.
    pub(super) kind: String,
}

/// A socket.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Listener {
    /// For whom: `clients` or `operators`.
    #[serde(rename = "for")]
    pub(super) whom: &'static str,
    pub(super) url: String,
}

/// Why the gateway is not ready.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Reason {
    /// `draining`, `store` or `pool`.
    pub(super) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) agent: Option<String>,
    /// For how many seconds.
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

/// An agent: as configured, with what is under way.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Agent {
    pub(super) name: String,
    /// The protocol it speaks.
    pub(super) protocol: String,
    /// Hosts of its endpoints, or `built in`.
    pub(super) host: String,
    /// `ready`, `failing` (every endpoint is out) or `draining`.
    pub(super) state: &'static str,
    /// The beginning of this state, as observed by this gateway.
    pub(super) since: Millis,
    /// Why an endpoint is out.
    pub(super) reason: Option<String>,
    /// Runs under way.
    pub(super) live: usize,
    /// Turns that wait for their session.
    pub(super) queued: usize,
    pub(super) lately: RecentStats,
    pub(super) last_fault: Option<LastFault>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<Endpoint>>", optional))]
    #[cfg_attr(test, schemars(with = "Option<Vec<Endpoint>>"))]
    pub(super) endpoints: Vec<Endpoint>,
    /// The settings in force, by name.
    #[serde(flatten)]
    #[cfg_attr(test, ts(skip))]
    #[cfg_attr(test, schemars(skip))]
    pub(super) settings: serde_json::Map<String, Value>,
}

impl Agent {
    /// The agent without what it said.
    pub(super) fn without_texts(mut self) -> Self {
        if let Some(fault) = &mut self.last_fault {
            fault.message = None;
            fault.code = mask::name(&fault.code);
        }
        self
    }
}

/// Why the latest failed run of an agent failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct LastFault {
    pub(super) at: Millis,
    pub(super) code: String,
    /// `null` without texts, and if the agent gave none.
    pub(super) message: Option<String>,
}

/// A server of an agent.
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
    /// Runs it was chosen for since the gateway has started.
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
    /// The other settings in force, and the protocol's own as `options`.
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub(super) settings: serde_json::Map<String, Value>,
    /// Whether requests can be made for it: in the playground, and as snippets.
    pub(super) sample: bool,
    /// A client's first request. `null`: the protocol has no sample.
    pub(super) snippets: Option<Snippets>,
}

/// A request as text to be copied.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Snippets {
    pub(super) curl: String,
    pub(super) python: String,
    pub(super) typescript: String,
}

/// A request to a route as its clients send it.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct Sample {
    /// Runs that begin later have greater ids.
    #[cfg_attr(test, ts(as = "String"))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) id: RunId,
    /// To whom its run will belong.
    pub(super) owner: String,
    /// Whether it continues the conversation so far.
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
    /// Only when someone signs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub(super) bearer: Option<String>,
    pub(super) name: String,
    #[cfg_attr(test, ts(type = "\"view\" | \"act\""))]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) role: ConsoleRole,
    /// When the bearer ends at the latest. `null`: the key itself was shown.
    pub(super) until: Option<Millis>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ts_rs::TS;

    use super::super::{api, series};
    use super::*;
    use crate::metrics::Series;
    use crate::observe::{Action, AuditEntry};

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
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/types.d.ts");
        let current = declarations();
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(&file, &current).expect("it can be written");
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(written, current, "write console/types.d.ts again with INSTA_UPDATE=always");
    }
}
