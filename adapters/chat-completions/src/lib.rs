//! OpenAI Chat Completions: [`ChatCompletions`] serves it to clients, [`ChatCompletionsUpstream`] calls agents and
//! model servers that speak it.
//!
//! `docs/protocols/chat-completions.md` describes the mapping, the repairs and the losses.
//!
//! [`decode`](self) parses requests, one encoder in `encode` writes answers, whole or as a stream, `serve` has the
//! exchanges, [`connect`](self) the other direction. The adapter has no state: the engine finds a conversation by the
//! messages that its client sends back.

mod connect;
mod decode;
mod echo;
mod encode;
mod fault;
mod ids;
mod losses;
mod options;
mod serve;
mod tags;

use std::sync::Arc;

use interlingua_adapter_kit::console_snippets;
use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_adapter_kit::model_options::ClientTools;
use interlingua_adapter_kit::openai_api;
use interlingua_core::capability::{ClientCapabilities, Media};
use interlingua_core::console::ConsoleSupport;
use interlingua_core::exchange::{Endpoint, Mount, Mounted, ProtocolAdapter, sharing};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::size::Size;
use serde_json::json;

pub use connect::{
    ChatCompletionsUpstream, LimitField, Part, ReasoningInput, SystemRole, ThinkTags, UpstreamOptions, UserField,
};
pub use options::{InlineImages, Options, Reasoning, ToolItems, ToolParts};
use serve::MountedRoute;
use serve::complete::Complete;
use serve::list::List;
use serve::stored::StoredCompletion;

/// Serves OpenAI Chat Completions.
pub struct ChatCompletions;

impl ProtocolAdapter for ChatCompletions {
    const NAME: &'static str = ids::NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        options.check()?;
        let names = Arc::new(ModelNames::new(&mount.agents, options.models.clone(), options.any_model)?);
        let model = mount.agents.first().map_or("", |agent| agent.name.as_str());
        let curl = vec![format!(
            "curl -N {{url}}/chat/completions -H 'content-type: application/json' \
             -d '{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
        )];

        let max_body = options.max_body.map(Size::bytes);
        let session = options.session.iter().find(|name| name.contains('-')).cloned();
        let shared = Arc::new(MountedRoute { options, names });
        let console = ConsoleSupport {
            curl,
            run_id: Some(ids::completion),
            sample: Some(Box::new(move |input| sample(input, session.as_deref()))),
            snippets: console_snippets!(),
            ..ConsoleSupport::default()
        };
        Ok(Mounted { max_body, console, ..openai_api::mounted(endpoints(&shared)) })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::of_model_server(options.client_tools == ClientTools::Forward);
        capabilities.decisions = options.approvals.decisions();
        capabilities.asks = options.approvals.asks();
        capabilities.input_media = Media::ALL;
        capabilities.reasoning = options.reasoning != Reasoning::Hide;
        capabilities
    }
}

/// The table of docs/protocols/chat-completions.md#endpoints.
fn endpoints(shared: &Arc<MountedRoute>) -> Vec<Endpoint> {
    let mut table = vec![Endpoint::post("/chat/completions", sharing(shared, Complete::new))];
    if shared.options.stored_completions.0 {
        table.extend([
            Endpoint::get("/chat/completions/{id}/messages", sharing(shared, StoredCompletion::messages)),
            Endpoint::get("/chat/completions/{id}", sharing(shared, StoredCompletion::retrieve)),
            Endpoint::post("/chat/completions/{id}", sharing(shared, StoredCompletion::update)),
            Endpoint::delete("/chat/completions/{id}", sharing(shared, StoredCompletion::delete)),
            Endpoint::get("/chat/completions", sharing(shared, List::new)),
        ]);
    }
    table.extend(openai_api::model_endpoints(&shared.names));
    table
}

/// A request as a client sends it, for the operator's console. `session`: the header that names sessions.
fn sample(input: &SampleInput<'_>, session: Option<&str>) -> SampleRequest {
    let said = input.thread.map_or(&[][..], |thread| thread.said);
    let mut messages: Vec<_> = said.iter().map(|(role, text)| json!({ "role": role, "content": text })).collect();
    messages.push(json!({ "role": "user", "content": input.text }));
    let body = json!({ "model": input.agent, "messages": messages, "stream": true });
    let request = SampleRequest::post("/chat/completions", body);
    match (input.thread, session) {
        (Some(thread), Some(header)) => request.with_header(header.to_owned(), thread.session),
        _ => request,
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::RunId;
    use interlingua_core::model::Role;
    use interlingua_core::sample::SampleThread;

    use super::*;

    #[test]
    fn a_sample_continues_with_the_history_or_the_session() {
        let said = [(Role::User, "one".to_owned()), (Role::Assistant, "two".to_owned())];
        let id = RunId::parse("00000000-0000-7000-8000-000000000000").expect("an id");
        let thread = SampleThread { session: "s1", previous: Some(id), said: &said };
        let input = SampleInput { agent: "demo", text: "three", id, began: None, thread: Some(thread) };
        let made = sample(&input, Some("x-chat"));
        assert_eq!(made.headers, [("x-chat".into(), "s1".to_owned())]);
        let messages = json!([
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": "two" },
            { "role": "user", "content": "three" },
        ]);
        assert_eq!(made.body["messages"], messages);

        assert!(sample(&input, None).headers.is_empty());
        let alone = sample(&SampleInput { thread: None, ..input }, Some("x-chat"));
        assert!(alone.headers.is_empty());
        assert_eq!(alone.body["messages"].as_array().map(Vec::len), Some(1));
    }
}
