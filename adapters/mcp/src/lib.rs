//! The Model Context Protocol (docs/protocols/mcp.md), in the revisions from 2025-03-26 to 2026-07-28: each agent of a
//! route is a tool of an MCP server.
//!
//! This file has the endpoints. `envelope` reads requests, `tools` and `result` translate calls
//! and answers, `progress` what happens meanwhile, `forms` questions, `tasks` runs that outlive their call. `serve`
//! holds the exchanges. The adapter stores only the ids of sessions that clients have ended.

mod completion;
mod envelope;
mod forms;
mod helper_tools;
mod listen;
mod media;
mod options;
mod pages;
mod progress;
mod prompts;
mod resources;
mod result;
mod revision;
mod serve;
mod tasks;
mod tokens;
mod tools;

pub use options::{Busy, Limit, Options, Reasoning, Tasks, ToolOptions};

use std::sync::Arc;

use interlingua_core::capability::{AskKinds, ClientCapabilities, Media};
use interlingua_core::console::{ConsoleSupport, DecisionNotice};
use interlingua_core::exchange::{Cors, Mounted, RunRules, sharing};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use serde_json::json;

use serve::{Delete, Fallback, Get, Metadata, Post, Route};

/// The server adapter for MCP.
#[derive(Clone, Copy, Debug)]
pub struct Mcp;

impl ProtocolAdapter for Mcp {
    const NAME: &'static str = revision::NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let route = Arc::new(Route::new(mount, options)?);
        let defaults = Cors::default();
        let own = ["mcp-session-id", "www-authenticate"].map(str::to_owned);
        let expose_headers = own.into_iter().chain(defaults.expose_headers).collect();

        let (for_fallback, for_sample) = (Arc::clone(&route), Arc::clone(&route));
        Ok(Mounted {
            cors: Cors { expose_headers, ..Cors::default() },
            warnings: route.warnings(mount),
            runs: RunRules::default(),
            console: ConsoleSupport {
                curl: vec![
                    "curl {url} -H 'content-type: application/json' -d '{\"jsonrpc\":\"2.0\",\"id\":1,\
                     \"method\":\"tools/list\"}'"
                        .to_owned(),
                ],
                decision_notice: DecisionNotice::Follows,
                sample: Some(Box::new(move |input| sample(&for_sample, input))),
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints(&route), Box::new(move || Box::new(Fallback::new(&for_fallback))))
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::interactive();
        capabilities.client_tools = false;
        capabilities.tool_declarations = false;
        capabilities.names_model = false;
        capabilities.reasoning = options.reasoning == Reasoning::Progress;
        capabilities.input_media = if options.attachments { Media::ALL } else { Media::NONE };
        capabilities.output_media = Media::ALL;
        capabilities.asks = AskKinds::ALL;
        capabilities
    }
}

fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    let metadata = Endpoint::get(serve::METADATA_PATH, sharing(route, |route| Metadata::new(&route)));
    vec![
        Endpoint::post("", sharing(route, |route| Post::new(&route))),
        Endpoint::get("", sharing(route, |route| Get::new(&route))),
        Endpoint::delete("", sharing(route, |route| Delete::new(&route))),
        Endpoint { public: true, at_root: true, before_mount: true, ..metadata },
    ]
}

/// A request as a client sends it, for the operator's console.
fn sample(route: &Route, input: &SampleInput<'_>) -> SampleRequest {
    let tool = route.tools.of_agent(input.agent).map_or(input.agent, |tool| &tool.name);
    let mut arguments = json!({ "message": input.text });
    // A call that begins a run names no session, or one that has to be looked up.
    if let Some(thread) = input.thread.filter(|_| input.began.is_none()) {
        arguments["session"] = thread.session.into();
    }
    let call = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } },
    });
    SampleRequest::post("", call).with_header("accept", "application/json, text/event-stream")
}
