//! Anthropic Messages, both ways: [`AnthropicMessages`] serves agents to its clients, [`AnthropicMessagesUpstream`]
//! calls agents and model servers that speak it.
//!
//! What clients send and receive is described in `docs/protocols/anthropic-messages.md`, what agents are sent in
//! `docs/protocols/anthropic-messages.md`. [`decode`](self) parses requests, `encode` writes answers, and the exchanges
//! in `serve` are the endpoints. Not here: any state. What outlives a request is stored in runs and their labels.

mod connect;
mod decode;
mod echo;
mod encode;
mod fault;
mod judge;
mod losses;
pub mod options;
mod serve;
mod wire;

use std::sync::Arc;

use interlingua_adapter_kit::console_snippets;
use interlingua_adapter_kit::fallback::Fallback;
use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_adapter_kit::model_options::ClientTools;
use interlingua_core::capability::{ClientCapabilities, Media};
use interlingua_core::console::ConsoleSupport;
use interlingua_core::exchange::{Cors, Endpoint, Mount, Mounted, ProtocolAdapter, sharing};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::size::Size;
use serde_json::json;

pub use connect::{
    AnthropicMessagesUpstream, McpHistory, Sampling, SystemMessages, Thinking, UnsignedThinking, UpstreamOptions,
    UserField,
};
pub use options::Options;
use serve::count::Count;
use serve::create::Create;
use serve::models::Models;
use serve::{Hello, MountedRoute, ResponseHeaders};

/// The Anthropic Messages adapter.
#[derive(Clone, Copy, Debug)]
pub struct AnthropicMessages;

impl ProtocolAdapter for AnthropicMessages {
    const NAME: &'static str = "anthropic-messages";
    type Options = Options;

    fn mount(mount: &Mount, mut options: Options) -> Result<Mounted, String> {
        options.check()?;
        let models = ModelNames::new(&mount.agents, std::mem::take(&mut options.models), options.any_model)?;
        let shared = Arc::new(MountedRoute { options, models });

        let model = mount.agents.first().map_or("", |agent| agent.name.as_str());
        let curl = vec![format!(
            "curl -N {{url}}/v1/messages -H 'content-type: application/json' -d '{{\"model\":\"{model}\",\
             \"max_tokens\":1024,\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
        )];
        let max_body = shared.options.max_body.map(Size::bytes);
        let headers = shared.options.session.iter().filter(|place| !place.starts_with("metadata."));
        // The general one, rather than that of one client.
        let session = headers.max_by_key(|name| *name == "x-session-id").cloned();
        let mounted = Mounted::new(endpoints(&shared), Fallback::<ResponseHeaders>::open());
        let mut cors = Cors::default();
        cors.expose_headers.push("request-id".to_owned());
        let console = ConsoleSupport {
            curl,
            run_id: Some(|run| run.to_prefixed(wire::MESSAGE_PREFIX)),
            sample: Some(Box::new(move |input| sample(input, session.as_deref()))),
            snippets: console_snippets!(),
            ..ConsoleSupport::default()
        };
        Ok(Mounted { max_body, cors, console, ..mounted })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::of_model_server(options.client_tools == ClientTools::Forward);
        capabilities.decisions = options.approvals.decisions();
        capabilities.asks = options.approvals.asks();
        capabilities.input_media = Media { image: true, file: true, ..Media::NONE };
        capabilities.reasoning = options.reasoning != options::Reasoning::Hide;
        capabilities
    }
}

/// The table of docs/protocols/anthropic-messages.md#endpoints, more specific paths first.
fn endpoints(shared: &Arc<MountedRoute>) -> Vec<Endpoint> {
    let mut table = Vec::new();
    if shared.options.count_tokens.0 {
        table.push(Endpoint::post("/v1/messages/count_tokens", sharing(shared, Count::new)));
    }
    table.extend([
        Endpoint::post("/v1/messages", sharing(shared, Create::new)),
        // Model names may contain slashes.
        Endpoint::get("/v1/models/{*id}", sharing(shared, Models::new)),
        Endpoint::get("/v1/models", sharing(shared, Models::new)),
        // Clients check with it whether a server exists, without credentials.
        Endpoint { public: true, ..Endpoint::get("/api/hello", Hello::default) },
        Endpoint { public: true, ..Endpoint::get("", Hello::default) },
    ]);
    table
}

/// A request as a client sends it, for the operator's console. `session`: the header that names sessions.
fn sample(input: &SampleInput<'_>, session: Option<&str>) -> SampleRequest {
    let said = input.thread.map_or(&[][..], |thread| thread.said);
    let mut messages: Vec<_> = said.iter().map(|(role, text)| json!({ "role": role, "content": text })).collect();
    messages.push(json!({ "role": "user", "content": input.text }));
    let body = json!({ "model": input.agent, "max_tokens": 4096, "messages": messages, "stream": true });
    let request = SampleRequest::post("/v1/messages", body).with_header("anthropic-version", "2023-06-01");
    match (input.thread, session) {
        (Some(thread), Some(header)) => request.with_header(header.to_owned(), thread.session),
        _ => request,
    }
}
