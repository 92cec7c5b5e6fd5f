//! The native Agent API: what serves it ([`Native`]) and what asks agents that speak it ([`NativeUpstream`]).
//!
//! Names, options and the table of endpoints live here. Wire types are in `wire`, the encoder in `frames`, one module
//! for each group of endpoints, and the upstream half in `connect`. Not here: the native model and the reading of
//! requests, which belong to the canonical model and so live in `interlingua_core`.

mod body;
mod connect;
mod fault;
mod frames;
mod process;
mod run_id;
mod runs;
mod task;
mod wire;

use std::sync::Arc;

use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{ClientCapabilities, Media};
use interlingua_core::exchange::Mounted;
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use connect::{NativeUpstream, UpstreamOptions};

/// Serves the native Agent API to clients.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// What an operator may choose for a native route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How ends are sent that are neither `completed` nor `failed`.
    pub terminal: Terminal,
    /// Whether quiet streams get comment lines.
    pub heartbeat: bool,
    /// Whether web pages of any origin may ask, as with the runtime: the route's `cors = ["*"]`.
    pub cors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminal: Terminal::Precise, heartbeat: true, cors: false }
    }
}

/// How a response is sent that ended as `incomplete`, `rejected` or `canceled` (docs/protocols/agent-api.md#writer-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Terminal {
    /// With that very status.
    #[default]
    Precise,
    /// As `failed`, with the precise status as the error's code: for clients that know but two ends.
    Failed,
}

/// What all exchanges of one mount share.
#[derive(Debug)]
struct Route {
    agent: String,
    options: Options,
}

impl ProtocolAdapter for Native {
    const NAME: &'static str = "agent-api";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let [agent] = mount.agents.as_slice() else {
            return Err(
                "an \"agent-api\" route serves one agent: put {agent} in its path, or name one in agents".into()
            );
        };
        let any_origin = options.cors;
        let route = Arc::new(Route { agent: agent.name.clone(), options });
        Ok(Mounted {
            curl: vec![
                "curl -N {url}/process -H 'content-type: application/json' \
                 -d '{\"input\":[{\"role\":\"user\",\"content\":\"hello\"}]}'"
                    .into(),
            ],
            any_origin,
            ..Mounted::new(endpoints(&route), Box::new(|| Box::new(fault::Fallback)))
        })
    }

    fn capabilities(_: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.client_tools = true;
        capabilities.tool_declarations = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.input_media = Media::ALL;
        capabilities.output_media = Media::ALL;
        capabilities.cancel = true;
        capabilities.resume = true;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities
    }
}

/// The table. Other endpoints of the runtime, above all `/shutdown` and `/admin/…`, must stay unknown paths.
fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    let on = |open: fn(&Arc<Route>) -> process::Process| {
        let route = Arc::clone(route);
        move || open(&route)
    };
    let runs = |task: runs::Task| {
        let route = Arc::clone(route);
        move || runs::OneRun::new(&route, task)
    };
    let followed = Arc::clone(route);
    vec![
        Endpoint::post("/process", on(process::Process::new)),
        Endpoint::post("/process/task", {
            let route = Arc::clone(route);
            move || task::Submit::new(&route)
        }),
        Endpoint::get("/process/task/{id}", {
            let route = Arc::clone(route);
            move || task::Poll::new(&route)
        }),
        Endpoint::post("/stop", task::Stop::default),
        Endpoint::get("/runs/{id}/events", move || process::Events::new(&followed)),
        Endpoint::post("/runs/{id}/cancel", runs(runs::Task::Cancel)),
        Endpoint::get("/runs/{id}", runs(runs::Task::Fetch)),
        Endpoint::delete("/runs/{id}", runs(runs::Task::Delete)),
        Endpoint::get("/runs", {
            let route = Arc::clone(route);
            move || runs::AllRuns::new(&route)
        }),
        Endpoint::get("/health", || runs::Health),
    ]
}
