//! OpenAI Responses, served: the name, the options, and the table of endpoints.
//!
//! Requests are read in [`decode`](self) and become native ones; runs are told by one encoder, whole or as a stream;
//! what has to be looked up before an agent can be asked is looked up by the exchanges in `serve`. Deliberately
//! absent: asking agents that speak Responses (section 17 of the protocol's page), and any state. What outlives a
//! request stands in runs, their labels, and sessions.

mod decode;
mod echo;
mod encode;
mod fault;
mod ids;
mod options;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_core::exchange::{Endpoint, Exchange, Method, Mount, Mounted, ProtocolAdapter};

pub use options::{
    ClientTools, Compact, CustomItems, Disconnect, OpenCalls, Options, Reasoning, ReasoningInput, Refusable,
    RefusalInput, Shown, StructuredOutput, Switch, ToolItems, ToolOutput,
};
use serve::conversations::{Asked, Conversations};
use serve::count::{Count, Wanted};
use serve::create::Create;
use serve::models::Models;
use serve::{Cancel, Delete, Fallback, InputItems, Retrieve, Shared};

/// How the configuration names it, and how sessions are labelled.
const NAME: &str = "responses";

/// OpenAI Responses.
pub struct Responses;

impl ProtocolAdapter for Responses {
    const NAME: &'static str = NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        for (name, agent) in &options.models {
            if !mount.agents.iter().any(|card| card.name == *agent) {
                return Err(format!("models: \"{name}\" means \"{agent}\", which is no agent of this route"));
            }
        }
        if options.any_model && mount.agents.len() > 1 {
            return Err("any_model: a route with several agents has to tell them apart".to_owned());
        }
        if options.request_input.is_empty() {
            return Err("request_input: a function needs a name".to_owned());
        }
        let shared = Arc::new(Shared { options, agents: mount.agents.clone() });
        let model = mount.agents.first().map_or("", |agent| agent.name.as_str());
        let curl = vec![format!(
            "curl -N {{url}}/responses -H 'content-type: application/json' \
             -d '{{\"model\":\"{model}\",\"input\":\"hello\",\"stream\":true}}'"
        )];
        let max_body = shared.options.max_body;
        let mounted = Mounted::new(endpoints(&shared), Box::new(|| Box::new(Fallback::default())));
        Ok(Mounted { curl, max_body, ..mounted })
    }

    fn options_schema() -> serde_json::Value {
        options::schema()
    }
}

/// The table of section 1, more specific paths first.
fn endpoints(shared: &Arc<Shared>) -> Vec<Endpoint> {
    /// A way to open an exchange that knows the route.
    fn open<E: Exchange>(
        shared: &Arc<Shared>,
        make: impl Fn(Arc<Shared>) -> E + Send + Sync + 'static,
    ) -> impl Fn() -> E + Send + Sync + 'static {
        let shared = Arc::clone(shared);
        move || make(Arc::clone(&shared))
    }
    let conversation = |asked| open(shared, move |shared| Conversations::new(shared, asked));
    let options = &shared.options;

    let mut table = Vec::new();
    if options.input_tokens.0 {
        let count = |shared| Count::new(shared, Wanted::Tokens);
        table.push(Endpoint::post("/responses/input_tokens", open(shared, count)));
    }
    if options.compact == Compact::Keep {
        let count = |shared| Count::new(shared, Wanted::Compaction);
        table.push(Endpoint::post("/responses/compact", open(shared, count)));
    }
    table.extend([
        Endpoint::post("/responses", open(shared, Create::new)),
        Endpoint::get("/responses/{id}/input_items", open(shared, InputItems::new)),
        Endpoint::post("/responses/{id}/cancel", open(shared, Cancel::new)),
        Endpoint::get("/responses/{id}", open(shared, Retrieve::new)),
        Endpoint::delete("/responses/{id}", Delete::default),
    ]);
    if options.websocket.0 {
        let socket = Endpoint::new(Method::Get, "/responses", open(shared, Create::new));
        table.push(Endpoint { websocket: true, ..socket });
    }
    if options.conversations.0 {
        table.extend([
            Endpoint::post("/conversations", conversation(Asked::Create)),
            Endpoint::get("/conversations/{id}/items/{item}", conversation(Asked::Item)),
            Endpoint::delete("/conversations/{id}/items/{item}", conversation(Asked::Remove)),
            Endpoint::get("/conversations/{id}/items", conversation(Asked::List)),
            Endpoint::post("/conversations/{id}/items", conversation(Asked::Append)),
            Endpoint::get("/conversations/{id}", conversation(Asked::Read)),
            Endpoint::post("/conversations/{id}", conversation(Asked::Update)),
            Endpoint::delete("/conversations/{id}", conversation(Asked::Delete)),
        ]);
    }
    table.extend([
        // Names of models may hold slashes.
        Endpoint::get("/models/{id:.+}", open(shared, Models::new)),
        Endpoint::get("/models", open(shared, Models::new)),
    ]);
    table
}
