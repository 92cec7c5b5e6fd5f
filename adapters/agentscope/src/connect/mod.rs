//! Asks agents of an AgentScope 2.0 service.
//!
//! The service runs agents in sessions, and reports what happens there in a stream of its own that never ends. A turn
//! makes a session or looks how it is, posts messages (`request`) or decisions (`answers`), and reads the session's
//! stream (`turn`) as far as it is about this turn's reply (`reader`, `calls`, `media`, `kept`; `wire` has the frames).
//! What a stream no longer holds is read from the session's messages (`whole`). `state` is what the next turn needs,
//! `errors` reads refusals.

mod answers;
mod calls;
mod errors;
mod kept;
mod media;
mod options;
mod probe;
mod reader;
mod request;
mod state;
mod turn;
mod whole;
mod wire;

use std::sync::Arc;

use interlingua_core::Fault;
use interlingua_core::capability::{AskKinds, Cancel, HistoryNeed, Media, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::http_url::Url;
use interlingua_core::pending::Decision;
use interlingua_core::probe::AgentProbe;

pub use options::{Events, UpstreamOptions};

/// Asks agents of an AgentScope 2.0 service.
#[derive(Clone, Copy, Debug)]
pub struct AgentscopeUpstream;

impl UpstreamAdapter for AgentscopeUpstream {
    const NAME: &'static str = crate::NAME;
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        if Url::parse(url).is_none() {
            return Err(format!("\"{url}\" is no http or https URL"));
        }
        options.check()?;
        Ok(Box::new(AgentscopeConnector { url: url.into(), options: Arc::new(options) }))
    }
}

struct AgentscopeConnector {
    /// Where the service is mounted.
    url: Arc<str>,
    options: Arc<UpstreamOptions>,
}

impl Connector for AgentscopeConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::KeptByAgent;
        // Tools are the operator's: no request can bring any.
        capabilities.client_tools = false;
        capabilities.decisions = &[Decision::Accept, Decision::Edit, Decision::Reject];
        capabilities.asks = AskKinds { approval: true, ..AskKinds::default() };
        capabilities.input_media = Media::ALL;
        capabilities.output_media = Media::ALL;
        capabilities.cancel = Cancel::Request;
        capabilities.resume = true;
        capabilities.usage = true;
        capabilities.reasoning = true;
        // A reply that gets only some of its answers keeps waiting and sends no event about it.
        capabilities.tool_outputs = ToolOutputs::Together;
        capabilities.protocol_events = (self.options.events != Events::Drop).then_some(crate::NAME);
        capabilities.keeps_unread_events = self.options.events == Events::Keep;
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        Ok(Box::new(turn::AgentscopeTurn::new(&self.url, &self.options, request)?))
    }

    fn warnings(&self) -> Vec<String> {
        self.options.warnings()
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::Probe::new(&self.url, &self.options))
    }
}
