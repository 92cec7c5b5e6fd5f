//! Agents behind the human-in-the-loop agent service: the connector and its modules (docs/protocols/hitl.md).
//!
//! A turn is one call, `invoke` or `resume` (`request`), whose answer is one JSON body with the whole conversation
//! (`wire`, `reader`). If the connection breaks, the service still has the answer: `status` returns it (`turn`).
//! `state` is stored between turns.

mod asks;
mod options;
mod probe;
mod reader;
mod request;
mod state;
mod turn;
mod wire;

use interlingua_adapter_kit::unique_calls::UniqueCalls;
use interlingua_core::Fault;
use interlingua_core::capability::{Cancel, HistoryNeed, Media, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::http_url::Url;
use interlingua_core::pending::Decision;
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::{ServerDocument, ServerSigns};

pub use options::{DecisionWords, ServiceUser, UpstreamOptions};

/// Calls agents behind the human-in-the-loop agent service.
#[derive(Clone, Copy, Debug)]
pub struct HitlUpstream;

impl UpstreamAdapter for HitlUpstream {
    const NAME: &'static str = crate::NAME;
    const SIGNS: ServerSigns = ServerSigns {
        endpoints: &["/agent/invoke"],
        document: Some(ServerDocument { path: "/system/info", name: "description of the service", urls: None }),
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check()?;
        let parsed = Url::parse(url).ok_or_else(|| format!("\"{url}\" is no http or https URL"))?;
        // The URL of one endpoint names the service as well.
        let path = parsed.path();
        let path = ["/agent/invoke", "/agent/resume"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        Ok(UniqueCalls::around(HitlConnector { base: format!("{}{path}", parsed.origin), options }))
    }
}

struct HitlConnector {
    /// The URL that all endpoints are appended to.
    base: String,
    options: UpstreamOptions,
}

impl Connector for HitlConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.streaming = false;
        capabilities.history = HistoryNeed::KeptByAgentOnly;
        capabilities.decisions = &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject];
        capabilities.asks.approval = true;
        capabilities.asks.input = true;
        capabilities.input_media = Media::NONE;
        capabilities.output_media = Media { image: true, ..Media::NONE };
        capabilities.cancel = Cancel::Ignored;
        capabilities.resume = true;
        capabilities.reasoning = true;
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        Ok(Box::new(turn::HitlTurn::new(&self.base, &self.options, request)?))
    }

    fn warnings(&self) -> Vec<String> {
        self.options.warnings()
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::HitlProbe::new(&self.base))
    }
}
