//! OpenAI Responses: the adapter's name, its options and the table of endpoints of its server side.
//!
//! [`decode`](self) parses requests into agent requests. One encoder in `encode` writes runs, as one object or as a
//! stream. The exchanges in `serve` look up what a request refers to before the agent is called. [`connect`] asks
//! agents that speak Responses themselves. Not here: any state. What outlives a request is stored in runs, their
//! labels, and sessions.

pub mod connect;
mod decode;
mod echo;
mod encode;
mod fault;
mod ids;
mod losses;
mod options;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_adapter_kit::console_snippets;
use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_adapter_kit::openai_api;
use interlingua_core::capability::{AskKinds, ClientCapabilities, Media};
use interlingua_core::console::ConsoleSupport;
use interlingua_core::exchange::{Endpoint, Method, Mount, Mounted, ProtocolAdapter, WebSocketRules, sharing};
use interlingua_core::pending::Decision;
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::size::Size;
use serde_json::json;

pub use connect::{ResponsesUpstream, UpstreamOptions};
pub use options::{
    ClientTools, Compact, CustomItems, DataDisplay, Disconnect, IgnoreOrRefuse, OpenCalls, Options, Reasoning,
    ReasoningInput, RefusalInput, StructuredOutput, ToolItems, ToolOutput,
};
use serve::conversations::{Conversations, Operation};
use serve::count::{ContextReport, ReportKind};
use serve::create::Create;
use serve::{Cancel, Delete, InputItems, MountedRoute, Retrieve};

/// The OpenAI Responses adapter.
pub struct Responses;

impl ProtocolAdapter for Responses {
    const NAME: &'static str = ids::NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let names = Arc::new(ModelNames::new(&mount.agents, options.models.clone(), options.any_model)?);
        if options.request_input.is_empty() {
            return Err("request_input: must not be empty".to_owned());
        }

        let shared = Arc::new(MountedRoute { options, names });
        let model = mount.agents.first().map_or("", |agent| agent.name.as_str());
        let curl = vec![format!(
            "curl -N {{url}}/responses -H 'content-type: application/json' \
             -d '{{\"model\":\"{model}\",\"input\":\"hello\",\"stream\":true}}'"
        )];

        let max_body = shared.options.max_body.map(Size::bytes);
        let console = ConsoleSupport {
            curl,
            run_id: Some(|run| run.to_prefixed(ids::RESPONSE_PREFIX)),
            sample: Some(Box::new(sample)),
            snippets: console_snippets!(),
            ..ConsoleSupport::default()
        };
        Ok(Mounted { max_body, console, ..openai_api::mounted(endpoints(&shared)) })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::of_model_server(options.client_tools == ClientTools::Forward);
        // `mcp_approval_response` says yes or no, with a reason for a no. It has no place for new arguments or a
        // result.
        capabilities.decisions = &[Decision::Accept, Decision::Reject];
        capabilities.input_media = Media::ALL;
        // Only responses in the background can be canceled.
        capabilities.cancel = options.background.0;
        capabilities.resume = true;
        capabilities.reasoning = options.reasoning != Reasoning::Hide;
        // A question or a login is a call of the function `request_input`.
        capabilities.asks = AskKinds::ALL;
        capabilities.names_model = options.forward_model;
        capabilities
    }
}

/// The table of docs/protocols/responses.md#endpoints, more specific paths first.
fn endpoints(shared: &Arc<MountedRoute>) -> Vec<Endpoint> {
    let conversation = |operation| sharing(shared, move |shared| Conversations::new(shared, operation));
    let options = &shared.options;

    let mut table = Vec::new();
    if options.input_tokens.0 {
        let report = |shared| ContextReport::new(shared, ReportKind::Tokens);
        table.push(Endpoint::post("/responses/input_tokens", sharing(shared, report)));
    }
    if options.compact == Compact::Keep {
        let report = |shared| ContextReport::new(shared, ReportKind::Compaction);
        table.push(Endpoint::post("/responses/compact", sharing(shared, report)));
    }

    table.extend([
        Endpoint::post("/responses", sharing(shared, Create::new)),
        Endpoint::get("/responses/{id}/input_items", sharing(shared, InputItems::new)),
        Endpoint::post("/responses/{id}/cancel", sharing(shared, Cancel::new)),
        Endpoint::get("/responses/{id}", sharing(shared, Retrieve::new)),
        Endpoint::delete("/responses/{id}", Delete::default),
    ]);

    if options.websocket.0 {
        let socket = Endpoint::new(Method::Get, "/responses", sharing(shared, Create::new));
        table.push(Endpoint { websocket: Some(WebSocketRules::default()), ..socket });
    }
    if options.conversations.0 {
        table.extend([
            Endpoint::post("/conversations", conversation(Operation::Create)),
            Endpoint::get("/conversations/{id}/items/{item}", conversation(Operation::Item)),
            Endpoint::delete("/conversations/{id}/items/{item}", conversation(Operation::Remove)),
            Endpoint::get("/conversations/{id}/items", conversation(Operation::List)),
            Endpoint::post("/conversations/{id}/items", conversation(Operation::Append)),
            Endpoint::get("/conversations/{id}", conversation(Operation::Read)),
            Endpoint::post("/conversations/{id}", conversation(Operation::Update)),
            Endpoint::delete("/conversations/{id}", conversation(Operation::Delete)),
        ]);
    }

    table.extend(openai_api::model_endpoints(&shared.names));
    table
}

/// A request as a client sends it, for the operator's console.
fn sample(input: &SampleInput<'_>) -> SampleRequest {
    let mut body = json!({ "model": input.agent, "input": input.text, "stream": true });
    if let Some(previous) = input.thread.and_then(|thread| thread.previous) {
        body["previous_response_id"] = previous.to_prefixed(ids::RESPONSE_PREFIX).into();
    }
    SampleRequest::post("/responses", body)
}
