//! Serves AG-UI to front ends: the adapter's name, its options, and the table of its endpoints.
//!
//! `request` parses a request, `thread` holds the client's knowledge, `run` starts runs, `replay` resumes streams,
//! `describe` lists the agent's abilities, and `encode` writes events, which `writer` frames as an event stream or,
//! with `proto`, as protobuf. Not here: the conversation, which the engine and the agent keep.

mod describe;
mod encode;
mod events;
mod fault;
mod losses;
mod options;
mod proto;
mod replay;
mod request;
mod run;
mod thread;
mod writer;

use std::sync::Arc;

use interlingua_adapter_kit::fallback;
use interlingua_core::answer::{ALL_DECISIONS, AnswerPolicy, AskPolicy, OrphanPolicy};
use interlingua_core::call::AgentCard;
use interlingua_core::capability::{AskKinds, ClientCapabilities, Media as MediaKinds};
use interlingua_core::console::{ClientSnippets, ConsoleSupport};
use interlingua_core::exchange::{Cors, Mounted};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};
use serde_json::json;

pub use self::options::{Busy, History, Media, Options, ReasoningForm, Start};

/// The server adapter for AG-UI.
#[derive(Clone, Copy, Debug)]
pub struct AgUi;

/// State that all exchanges of one mount share.
#[derive(Debug)]
struct Route {
    options: Options,
    agents: Vec<Arc<AgentCard>>,
    /// The agent that the route serves.
    agent: Arc<AgentCard>,
}

impl Route {
    /// The card of an agent, unless it has left the configuration.
    fn agent_card(&self, name: &str) -> Option<&Arc<AgentCard>> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// An outcome names all that a run waits for, and a request answers all of it.
    fn answer_policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            asking: AskPolicy::Together,
            ttl: self.options.interrupt_ttl.map(|ttl| ttl.0),
            orphans: OrphanPolicy::Refuse,
            accepts_single_answers: false,
            asks_again: false,
        }
    }
}

impl ProtocolAdapter for AgUi {
    const NAME: &'static str = crate::NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let agent = match (&options.agent, mount.agents.as_slice()) {
            (None, [only]) => Arc::clone(only),
            (None, _) => return Err("a URL of this protocol is one agent's: put {agent} into the path".to_owned()),
            (Some(name), agents) => match agents.iter().find(|agent| agent.name == *name) {
                Some(agent) => Arc::clone(agent),
                None => return Err(format!("agent: the route has no agent \"{name}\"")),
            },
        };
        if let Some(path) = &options.capabilities_path
            && (path.is_empty() || path.contains('/'))
        {
            return Err(format!("capabilities_path: \"{path}\" is no single segment of a path"));
        }

        let route = Arc::new(Route { options, agents: mount.agents.clone(), agent });
        let (run, replay) = (Arc::clone(&route), Arc::clone(&route));
        let mut endpoints = vec![
            Endpoint::post("", move || run::StartRun::new(&run)),
            Endpoint::get("", move || replay::Replay::new(&replay)),
        ];
        if route.options.capabilities_path.is_some() {
            endpoints.push(Endpoint::get("/{name}", move || describe::Describe::new(&route)));
        }

        let mut cors = Cors::default();
        cors.allow_headers.push("last-event-id".to_owned());
        Ok(Mounted {
            cors,
            console: ConsoleSupport {
                curl: vec![
                    r#"curl -N {url} -H 'content-type: application/json' -d '{"threadId":"t1","runId":"r1","messages":[{"id":"m1","role":"user","content":"hi"}]}'"#.to_owned(),
                ],
                sample: Some(Box::new(sample)),
                snippets: ClientSnippets { python: None, typescript: Some(include_str!("../console/typescript.template")) },
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints, fallback::writing(fault::write))
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.client_tools = true;
        capabilities.tool_declarations = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.input_media = MediaKinds::ALL;
        if options.media != Media::Drop {
            capabilities.output_media = MediaKinds::ALL;
        }
        capabilities.resume = options.event_ids.0;
        capabilities.usage = true;
        capabilities.reasoning = options.reasoning != ReasoningForm::Drop;
        capabilities.asks = AskKinds::ALL;
        capabilities.protocol_events = Some(crate::NAME);
        capabilities
    }
}

/// A request as a client sends it, for the operator's console.
fn sample(input: &SampleInput<'_>) -> SampleRequest {
    let (id, run) = (input.id.to_string(), format!("run-{}", input.id));
    let thread = input.thread.map_or(&*id, |thread| thread.session);
    let sent = input.began.and_then(|run| run.turns.first()?.input.last()?.id.clone());
    let message = sent.unwrap_or_else(|| format!("msg-{}", input.id));
    let message = json!({ "id": message, "role": "user", "content": input.text });
    let body = json!({
        "threadId": thread, "runId": run, "messages": [message], "tools": [], "context": [], "state": {},
        "forwardedProps": {},
    });
    SampleRequest::post("", body).with_header("accept", "text/event-stream")
}
