//! Calls agents that speak A2A, 1.0 or 0.3, over JSON-RPC or HTTP+JSON.
//!
//! An agent's card names its URL, binding and version (`interface`). A turn sends one message (`outgoing`, `answers`),
//! reads the resulting task, streamed or polled (`events`, `artifacts`, `messages`, `questions`), resumes it when a
//! stream is cut (`turn`, `recovery`), and stores the state for the next message (`session`). `http` writes requests,
//! `wire` reads answers, `errors` reads errors.
//!
//! Not here: serving A2A to clients, which shares the types in [`crate::wire`].

mod agno;
mod answers;
mod artifacts;
mod content;
mod digest;
mod errors;
mod events;
mod held;
mod held_texts;
mod history;
mod http;
mod interface;
mod labels;
mod long_running;
mod messages;
mod options;
mod outgoing;
mod probe;
mod questions;
mod recovery;
mod replies;
mod session;
mod slots;
mod texts;
mod turn;
mod wire;
mod written;

use std::sync::Arc;

use interlingua_adapter_kit::unique_calls::UniqueCalls;
use interlingua_core::Fault;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{Cancel, HistoryNeed, Media, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, TurnRequest, UpstreamAdapter};
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::{ServerDocument, ServerSigns};

pub use options::{UpstreamContext, UpstreamOptions, UpstreamStatusText};

/// Asks agents that speak A2A.
#[derive(Clone, Copy, Debug)]
pub struct A2aUpstream;

impl UpstreamAdapter for A2aUpstream {
    const NAME: &'static str = crate::NAME;
    const SIGNS: ServerSigns = ServerSigns {
        document: Some(ServerDocument {
            path: "/.well-known/agent-card.json",
            name: "agent card",
            urls: Some(interface::urls_of_card),
        }),
        request_fields: &["jsonrpc", "method"],
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check(url)?;
        Ok(UniqueCalls::around(A2aConnector { url: url.into(), options: Arc::new(options) }))
    }
}

struct A2aConnector {
    url: Arc<str>,
    options: Arc<UpstreamOptions>,
}

impl Connector for A2aConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.streaming = self.options.streaming != Some(false);
        capabilities.history = HistoryNeed::KeptByAgent;
        capabilities.client_tools = self.options.client_tools;
        // Which of them an agent takes, it says with each item.
        capabilities.decisions = ALL_DECISIONS;
        capabilities.asks.approval = true;
        capabilities.asks.input = true;
        capabilities.asks.auth = true;
        capabilities.input_media = Media::ALL;
        capabilities.output_media = Media::ALL;
        capabilities.cancel = Cancel::Request;
        capabilities.resume = true;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        Ok(Box::new(turn::A2aTurn::new(&self.url, &self.options, request)?))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(probe::A2aProbe::new(&self.url, &self.options))
    }

    fn document_lookup(&self) -> Option<HttpRequest> {
        let url = interface::named_card_url(&self.url, &self.options)?;
        let mut lookup = HttpRequest::lookup(url);
        lookup.is_trusted = interface::is_trusted(&self.url, url, &self.options.allow_hosts);
        Some(lookup)
    }

    fn warnings(&self) -> Vec<String> {
        self.options.warnings(&self.url)
    }
}
