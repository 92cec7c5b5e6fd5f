//! Calls agents that speak AG-UI, 1.0 or older.
//!
//! A turn is one run: its input is written (`input`, `parts`, `answers`), and its events are read (`frame`, `reader`):
//! texts (`texts`), calls (`calls`), questions (`asks`), snapshots (`snapshot`), and what only this protocol has
//! (`kept`).
//!
//! Not here: serving AG-UI to clients ([`crate::serve`]), which uses the form of parts from here.

mod answers;
mod asks;
mod calls;
mod context;
mod finish;
mod frame;
mod ids;
mod input;
mod kept;
mod options;
mod parts;
mod probe;
mod reader;
mod snapshot;
mod texts;
mod turn;

pub(crate) use ids::digest;
use interlingua_core::Fault;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{AskKinds, HistoryNeed, Media, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::http_url::Url;
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::ServerSigns;

pub(crate) use parts::{media_part, user_parts};

pub use options::{Events, Parts, Reasoning, ReasoningInput, ResumeStyle, UnansweredCalls, UpstreamOptions};

/// Calls agents that speak AG-UI.
#[derive(Clone, Copy, Debug)]
pub struct AgUiUpstream;

impl UpstreamAdapter for AgUiUpstream {
    const NAME: &'static str = crate::NAME;
    const SIGNS: ServerSigns =
        ServerSigns { request_fields: &["threadId", "runId"], has_vague_probe: true, ..ServerSigns::NONE };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check()?;
        if Url::parse(url).is_none() {
            return Err(format!("\"{url}\" is no http or https URL"));
        }
        Ok(Box::new(AgUiConnector { url: url.to_owned(), options }))
    }
}

struct AgUiConnector {
    url: String,
    options: UpstreamOptions,
}

impl Connector for AgUiConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::KeptByAgent;
        capabilities.client_tools = true;
        // Which of them an agent takes, it says with each item.
        capabilities.decisions = ALL_DECISIONS;
        capabilities.asks = AskKinds { approval: true, input: true, auth: false };
        // Pydantic AI wants the outputs and decisions of one turn in one request.
        capabilities.tool_outputs = ToolOutputs::Together;
        capabilities.input_media = Media::ALL;
        // Tools return them: the agent's own messages are text.
        capabilities.output_media = Media::ALL;
        capabilities.usage = true;
        capabilities.reasoning = self.options.reasoning == Reasoning::Keep;
        capabilities.message_ids = true;
        capabilities.protocol_events = (self.options.events != Events::Drop).then_some(crate::NAME);
        capabilities.keeps_unread_events = matches!(self.options.events, Events::Keep | Events::All);
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        Ok(Box::new(turn::AgUiTurn::new(&self.url, &self.options, request)?))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::AgUiProbe::new(&self.url))
    }
}
