//! Agents that speak AG-Kit: the connector, and what it is made of (docs/protocols/ag-kit.md).
//!
//! A turn is one request (`request`) and one event stream (`reader`), whose calls are followed to their results
//! (`calls`) and whose interrupts become pending items (`asks`). `state` is kept from turn to turn.

mod asks;
mod calls;
mod frame;
mod options;
mod probe;
mod reader;
mod request;
mod split;
mod state;
mod turn;

use interlingua_core::Fault;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{Cancel, HistoryNeed, Media, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::http_url::{Url, below};
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::ServerSigns;

pub use options::{Parameters, ResumeStyle, UnansweredCalls, UpstreamOptions};

/// The last segment of an endpoint's path.
const ENDPOINT: &str = "/send-message";

/// Calls agents that speak AG-Kit.
#[derive(Clone, Copy, Debug)]
pub struct AgKitUpstream;

impl UpstreamAdapter for AgKitUpstream {
    const NAME: &'static str = crate::NAME;
    const SIGNS: ServerSigns =
        ServerSigns { endpoints: &["/send-message"], has_vague_probe: true, ..ServerSigns::NONE };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        let parsed = Url::parse(url).ok_or_else(|| format!("\"{url}\" is no http or https URL"))?;
        let (base, endpoint) = match parsed.path().strip_suffix(ENDPOINT) {
            Some(base) => (format!("{}{base}", parsed.origin), url.to_owned()),
            None => (format!("{}{}", parsed.origin, parsed.path()), below(url, ENDPOINT)),
        };
        Ok(Box::new(AgKitConnector { base, endpoint, options }))
    }
}

struct AgKitConnector {
    /// The URL that `/send-message` and `/healthz` are appended to.
    base: String,
    endpoint: String,
    options: UpstreamOptions,
}

impl Connector for AgKitConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::KeptByAgent;
        capabilities.client_tools = true;
        // Which of them an agent takes, it says with each question.
        capabilities.decisions = ALL_DECISIONS;
        capabilities.input_media = Media::NONE;
        capabilities.output_media = Media::NONE;
        capabilities.cancel = Cancel::CloseConnection;
        capabilities.asks.approval = true;
        capabilities.asks.input = true;
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        Ok(Box::new(turn::AgKitTurn::new(&self.endpoint, &self.options, request)?))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::AgKitProbe::new(&self.base))
    }
}
