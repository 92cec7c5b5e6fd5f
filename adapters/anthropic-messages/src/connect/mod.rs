//! Agents that speak Anthropic Messages: the connector, and what it is made of.
//!
//! See `docs/protocols/anthropic-messages.md`.

mod blocks;
mod hosted;
mod options;
mod reader;
mod request;
mod state;
mod turn;
mod usage;
mod wire;

use interlingua_adapter_kit::model_probe::ModelProbe;
use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::capability::{HistoryNeed, Media, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, TurnRequest, UpstreamAdapter};
use interlingua_core::http_url::{Url, below};
use interlingua_core::probe::{AgentProbe, NoProbe};
use interlingua_core::server_signs::ServerSigns;
use interlingua_core::{Fault, FaultKind, opaque};

pub use options::{McpHistory, Sampling, SystemMessages, Thinking, UnsignedThinking, UpstreamOptions, UserField};

use self::reader::Reader;
use self::state::SessionState;
use self::turn::MessagesTurn;

/// Calls agents and model servers that speak Anthropic Messages.
#[derive(Clone, Copy, Debug)]
pub struct AnthropicMessagesUpstream;

impl UpstreamAdapter for AnthropicMessagesUpstream {
    const NAME: &'static str = "anthropic-messages";
    const SIGNS: ServerSigns = ServerSigns {
        endpoints: &["/messages", "/v1/messages"],
        is_of_models: true,
        products: &["anthropic", "claude", "messages"],
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check()?;
        let url = endpoint(url)?;
        Ok(Box::new(MessagesConnector { url, options }))
    }
}

struct MessagesConnector {
    /// The whole URL of the endpoint.
    url: String,
    options: UpstreamOptions,
}

impl Connector for MessagesConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::SentEachTime;
        capabilities.client_tools = true;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities.input_media = Media { image: true, file: true, ..Media::NONE };
        capabilities.tool_outputs = ToolOutputs::Together;
        // On Vertex AI the URL names it.
        capabilities.wants_model = self.options.model.is_none() && self.options.body_version.is_none();
        capabilities
    }

    fn turn(&self, turn: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let stored = SessionState::parse(turn.session_state);
        let kept = if self.options.sticky_tools { stored.tools.clone() } else { StickyTools::default() };
        let origin = opaque::origin(AnthropicMessagesUpstream::NAME, turn.agent);
        let written = request::write(turn, &self.options, kept.in_force(turn.request), &origin);
        let body = serde_json::to_vec(&written.body).map_err(|error| {
            Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
        })?;

        Ok(Box::new(MessagesTurn {
            request: Some(self.with_headers(HttpRequest::post(&self.url, body))),
            reader: Reader::new(turn, origin, written.tool_names, written.losses),
            tools: self.options.sticky_tools.then(|| kept.after(turn.request)),
            stored,
        }))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        let Some(models) = models(&self.url) else { return Box::new(NoProbe::default()) };
        let version = vec![("anthropic-version", self.options.version.clone())];
        Box::new(ModelProbe::new(&models, self.options.model.as_deref(), version))
    }
}

impl MessagesConnector {
    fn with_headers(&self, request: HttpRequest) -> HttpRequest {
        // If the body contains the version, the header has no meaning.
        let request = match &self.options.body_version {
            Some(_) => request,
            None => request.with_header("anthropic-version", &self.options.version),
        };
        if self.options.beta.is_empty() {
            return request;
        }
        request.with_header("anthropic-beta", self.options.beta.join(","))
    }
}

/// The URL of the endpoint: the operator's, completed unless it names the endpoint itself.
fn endpoint(url: &str) -> Result<String, String> {
    let parsed = Url::parse(url).ok_or_else(|| format!("\"{url}\" is no http or https URL without credentials"))?;
    let path = parsed.path();
    // The URL of Vertex AI has the model in the path, followed by a method.
    let is_whole = path.ends_with("/messages") || path.ends_with("RawPredict") || path.ends_with("rawPredict");
    let rest = if is_whole {
        ""
    } else if path.ends_with("/v1") {
        "/messages"
    } else {
        "/v1/messages"
    };
    Ok(below(url, rest))
}

/// Where a server with this endpoint lists its models. None: nowhere.
fn models(endpoint: &str) -> Option<String> {
    let (path, query) = endpoint.split_at(endpoint.find('?').unwrap_or(endpoint.len()));
    Some(format!("{}/models{query}", path.strip_suffix("/messages")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_listed_beside_the_endpoint() {
        assert_eq!(
            models("http://a/messages/v1/messages?b=/messages").as_deref(),
            Some("http://a/messages/v1/models?b=/messages")
        );
        assert_eq!(models("https://a/models/m:streamRawPredict"), None);
        let connect = |url: &str| {
            let connector = AnthropicMessagesUpstream::connect(url, UpstreamOptions::default()).expect("a URL");
            connector.probe().next().map(|request| request.url)
        };
        assert_eq!(connect("http://a").as_deref(), Some("http://a/v1/models"));
        assert_eq!(connect("https://a/models/m:streamRawPredict"), None);
    }

    #[test]
    fn the_endpoint_is_appended_unless_it_is_there() {
        for (url, wanted) in [
            ("http://a", "http://a/v1/messages"),
            ("http://a/", "http://a/v1/messages"),
            ("http://a/v1", "http://a/v1/messages"),
            ("http://a/anthropic", "http://a/anthropic/v1/messages"),
            ("http://a/v1/messages", "http://a/v1/messages"),
            ("http://a/v1/messages/?beta=true#x", "http://a/v1/messages?beta=true"),
            ("https://a/models/m:streamRawPredict", "https://a/models/m:streamRawPredict"),
        ] {
            assert_eq!(endpoint(url).as_deref(), Ok(wanted));
        }
        assert!(endpoint("ftp://a").is_err() && endpoint("http://key@a/").is_err());
    }

    #[test]
    fn a_model_is_wanted_where_neither_the_options_nor_the_url_name_one() {
        let wants = |options: UpstreamOptions| {
            AnthropicMessagesUpstream::connect("http://a", options).expect("a URL").capabilities().wants_model
        };
        assert!(wants(UpstreamOptions::default()));
        assert!(!wants(UpstreamOptions { model: Some("m".to_owned()), ..UpstreamOptions::default() }));
        assert!(!wants(UpstreamOptions { body_version: Some("v".to_owned()), ..UpstreamOptions::default() }));
    }
}
