//! The Agent API: [`Native`] serves it to clients, [`NativeUpstream`] calls agents over it.
//!
//! This file has the names, the options and the table of endpoints. Wire types are in `wire`, the encoder is in
//! `frames`, each group of endpoints has a module, and the upstream side is in `connect`. Not here: the model and the
//! parser of requests, which are the canonical model and therefore live in `interlingua_core`.

mod connect;
mod decode;
mod encode;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_adapter_kit::fallback::Fallback;
use interlingua_core::capability::ClientCapabilities;
use interlingua_core::console::{ConsoleSupport, DecisionNotice};
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Endpoint, Fault, Mount, ProtocolAdapter, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use connect::{NativeUpstream, UpstreamOptions};

/// Serves the Agent API to clients.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The options of an `agent-api` route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The end of responses that are neither `completed` nor `failed`.
    pub terminal: Terminal,
    /// True if idle streams get comment lines.
    pub heartbeat: bool,
    /// True if web pages of any origin may use the route, as with the runtime: the same as the route's `cors = ["*"]`.
    pub cors: bool,
    /// True if clients get the events that only the agent's own protocol has a word for, as messages of type
    /// `protocol_event`. A request can ask for them with `?protocol_events=true`.
    pub protocol_events: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminal: Terminal::Precise, heartbeat: true, cors: false, protocol_events: false }
    }
}

/// The status of a response that ended as `incomplete`, `rejected` or `canceled`
/// (docs/protocols/agent-api.md#writer-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Terminal {
    /// The status itself.
    #[default]
    Precise,
    /// `failed`, with the original status as the error's code: for clients that know only two ends.
    Failed,
}

/// Shared by all exchanges of one mount.
#[derive(Debug)]
struct Route {
    agent: String,
    options: Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseForm {
    pub(crate) terminal: Terminal,
    /// Messages of type `protocol_event` are part of it.
    pub(crate) protocol_events: bool,
}

impl Route {
    /// The form of the route's responses.
    const fn form(&self) -> ResponseForm {
        ResponseForm { terminal: self.options.terminal, protocol_events: self.options.protocol_events }
    }

    /// The form that a request asks for.
    ///
    /// # Errors
    /// If its query says neither yes nor no.
    fn form_of(&self, request: &Request<'_>) -> Result<ResponseForm, Fault> {
        let protocol_events = match request.query("protocol_events").as_deref() {
            None => self.options.protocol_events,
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            Some(_) => return Err(Fault::invalid("?protocol_events", "is true or false")),
        };
        Ok(ResponseForm { protocol_events, ..self.form() })
    }
}

impl ProtocolAdapter for Native {
    const NAME: &'static str = "agent-api";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let agent = mount
            .only_agent()
            .ok_or("an \"agent-api\" route serves one agent: put {agent} in its path, or name one in agents")?;

        let cors = Cors { any_origin: options.cors, ..Cors::default() };
        let route = Arc::new(Route { agent: agent.name.clone(), options });
        Ok(Mounted {
            cors,
            console: ConsoleSupport {
                curl: vec![
                    "curl -N {url}/process -H 'content-type: application/json' \
                     -d '{\"input\":[{\"role\":\"user\",\"content\":\"hello\"}]}'"
                        .into(),
                ],
                decision_notice: DecisionNotice::Follows,
                run_id: Some(wire::response_id),
                sample: Some(Box::new(sample)),
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints(&route), Fallback::<serve::fault::Errors>::open())
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::interactive();
        capabilities.tool_declarations = true;
        capabilities.any_protocol_events = options.protocol_events;
        capabilities.names_model = true;
        capabilities
    }
}

/// The table of endpoints. Other endpoints of the runtime, especially `/shutdown` and `/admin/…`, must stay unknown
/// paths.
fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    let runs = |operation: serve::runs::Operation| {
        let route = Arc::clone(route);
        move || serve::runs::OneRun::new(&route, operation)
    };

    vec![
        Endpoint::post("/process", {
            let route = Arc::clone(route);
            move || serve::process::Process::new(&route)
        }),
        Endpoint::post("/process/task", {
            let route = Arc::clone(route);
            move || serve::task::Submit::new(&route)
        }),
        Endpoint::get("/process/task/{id}", {
            let route = Arc::clone(route);
            move || serve::task::Poll::new(&route)
        }),
        Endpoint::post("/stop", serve::task::Stop::default),
        Endpoint::get("/runs/{id}/events", {
            let route = Arc::clone(route);
            move || serve::process::Events::new(&route)
        }),
        Endpoint::post("/runs/{id}/cancel", runs(serve::runs::Operation::Cancel)),
        Endpoint::get("/runs/{id}", runs(serve::runs::Operation::Fetch)),
        Endpoint::delete("/runs/{id}", runs(serve::runs::Operation::Delete)),
        Endpoint::get("/runs", {
            let route = Arc::clone(route);
            move || serve::runs::AllRuns::new(&route)
        }),
        Endpoint::get("/health", || serve::runs::Health),
    ]
}

/// A request as a client sends it, for the operator's console.
fn sample(input: &SampleInput<'_>) -> SampleRequest {
    let mut body = json!({ "input": [{ "role": "user", "content": input.text }] });
    if let Some(thread) = input.thread {
        body["session_id"] = thread.session.into();
    }
    SampleRequest::post("/process", body)
}
