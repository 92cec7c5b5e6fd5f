//! Agents that speak Chat Completions: the connector, and what it is made of.
//!
//! See `docs/protocols/chat-completions.md#agents-that-speak-chat-completions`.

mod besides;
mod call;
mod calls;
mod chunk;
mod messages;
mod options;
mod reader;
mod request;
mod snapshot;
mod state;
mod think;
mod turn;
mod usage;
mod whole;

use interlingua_adapter_kit::model_probe::ModelProbe;
use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::capability::{HistoryNeed, Media, ToolOutputs, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, Connector, HttpRequest, TurnRequest, UpstreamAdapter};
use interlingua_core::probe::AgentProbe;
use interlingua_core::server_signs::ServerSigns;
use interlingua_core::{Fault, FaultKind, Losses, opaque};

pub use options::{LimitField, Part, ReasoningInput, SystemRole, ThinkTags, UpstreamOptions, UserField};

use self::reader::Reader;
use self::request::RequestBody;
use self::state::SessionState;
use self::turn::ChatTurn;

/// The path that is appended to the operator's URL.
const ENDPOINT: &str = "/chat/completions";
/// Sessions with longer ids, or ids that no header can hold, are not named in a header.
const MAX_HEADER_VALUE: usize = 512;

/// Calls agents and model servers that speak Chat Completions.
#[derive(Clone, Copy, Debug)]
pub struct ChatCompletionsUpstream;

impl UpstreamAdapter for ChatCompletionsUpstream {
    const NAME: &'static str = "chat-completions";
    const SIGNS: ServerSigns = ServerSigns {
        endpoints: &["/chat/completions"],
        is_of_models: true,
        models: Some("/models"),
        products: &[
            "openai",
            "open_ai",
            "gpt",
            "azure_openai",
            "vllm",
            "ollama",
            "litellm",
            "llama.cpp",
            "llamacpp",
            "sglang",
            "openrouter",
            "openai_chat",
            "completions",
            "chat",
        ],
        ..ServerSigns::NONE
    };
    type Options = UpstreamOptions;

    fn connect(url: &str, options: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        options.check()?;
        let url = Url::parse(url)?;
        let limit_field = options.limit_field.unwrap_or_else(|| LimitField::for_host(&url.host));
        Ok(Box::new(ChatConnector { url, limit_field, options }))
    }
}

struct ChatConnector {
    url: Url,
    limit_field: LimitField,
    options: UpstreamOptions,
}

impl Connector for ChatConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::SentEachTime;
        capabilities.client_tools = true;
        capabilities.usage = self.options.usage;
        capabilities.reasoning = true;
        capabilities.input_media = Media {
            image: self.options.takes(Part::Image),
            audio: self.options.takes(Part::Audio),
            video: self.options.takes(Part::Video),
            file: self.options.takes(Part::File),
        };

        capabilities.wants_model = self.options.model.is_none() && !self.url.names_model();
        capabilities.tool_outputs = ToolOutputs::Together;
        capabilities.output_media = Media { image: true, audio: true, ..Media::NONE };
        capabilities
    }

    fn turn(&self, turn: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let stored = SessionState::parse(turn.session_state);
        let kept = if self.options.sticky_tools { stored.tools.clone() } else { StickyTools::default() };
        let origin = opaque::origin(ChatCompletionsUpstream::NAME, turn.agent);
        let body = RequestBody {
            options: &self.options,
            limit_field: self.limit_field,
            turn,
            tools: kept.in_force(turn.request),
            reasoning: stored.reasoning,
            origin: &origin,
        };

        let mut losses = Losses::new();
        let (body, names) = body.to_json(&mut losses);
        let body = serde_json::to_vec(&body).map_err(|error| {
            Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
        })?;

        let mut request = HttpRequest::post(&self.url.endpoint, body);
        if let (Some(name), Some(id)) = (&self.options.session_header, &turn.request.session_id)
            && id.len() <= MAX_HEADER_VALUE
            && id.bytes().all(|byte| byte.is_ascii_graphic())
        {
            request = request.with_header(name.to_ascii_lowercase(), id);
        }
        Ok(Box::new(ChatTurn {
            request: Some(request),
            reader: Reader::new(turn.request, self.options.think_tags, origin, names, losses),
            is_done: false,
            tools: self.options.sticky_tools.then(|| kept.after(turn.request)),
            stored,
        }))
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        Box::new(ModelProbe::new(&self.url.models(), self.options.model.as_deref(), Vec::new()))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.url.has_path {
            let endpoint = &self.url.endpoint;
            warnings.push(format!(
                "url has no path, so \"{endpoint}\" is called: most servers answer at \"/v1{ENDPOINT}\", and elsewhere with 404"
            ));
        }

        warnings
    }
}

/// Where the server is.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    /// The whole URL of the endpoint.
    endpoint: String,
    /// In lower case, without the port.
    host: String,
    /// The operator gave a path.
    has_path: bool,
}

impl Url {
    /// Where the server lists its models.
    fn models(&self) -> String {
        let (path, query) = self.endpoint.split_once('?').unwrap_or((&self.endpoint, ""));
        let base = path.strip_suffix(ENDPOINT).unwrap_or(path);
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        format!("{base}/models{query}")
    }

    /// True if the path says which model answers, as that of a deployment on Azure does.
    fn names_model(&self) -> bool {
        self.endpoint.contains("/deployments/")
    }

    /// Reads the operator's URL. A query, such as Azure's `api-version`, stays.
    fn parse(url: &str) -> Result<Self, String> {
        let scheme = ["http://", "https://"].into_iter().find(|scheme| url.starts_with(scheme));
        let scheme = scheme.ok_or_else(|| format!("\"{url}\" is no http or https URL"))?;
        let (url, _) = url.split_once('#').unwrap_or((url, ""));
        let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));

        let rest = &base[scheme.len()..];
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = host
            .rsplit_once(':')
            .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
            .map_or(host, |(host, _)| host);

        let mut endpoint = base.trim_end_matches('/').to_owned();
        if !endpoint.ends_with(ENDPOINT) {
            endpoint.push_str(ENDPOINT);
        }

        if let Some(query) = query {
            endpoint.push('?');
            endpoint.push_str(query);
        }

        let has_path = !path.trim_matches('/').is_empty();
        Ok(Self { endpoint, host: host.to_ascii_lowercase(), has_path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_appended_unless_it_is_there() {
        for (url, endpoint) in [
            ("http://a/v1", "http://a/v1/chat/completions"),
            ("http://a/v1/", "http://a/v1/chat/completions"),
            ("http://a/v1/chat/completions", "http://a/v1/chat/completions"),
            ("http://a", "http://a/chat/completions"),
            (
                "https://x.openai.azure.com/openai/d?api-version=1#f",
                "https://x.openai.azure.com/openai/d/chat/completions?api-version=1",
            ),
        ] {
            assert_eq!(Url::parse(url).expect("a URL").endpoint, endpoint);
        }

        let azure = Url::parse("https://x.openai.azure.com/openai/d?api-version=1").expect("a URL");
        assert_eq!(azure.models(), "https://x.openai.azure.com/openai/d/models?api-version=1");

        let url = Url::parse("https://user:pass@API.OpenAI.com:443/v1").expect("a URL");
        assert_eq!((url.host.as_str(), url.has_path), ("api.openai.com", true));
        assert!(Url::parse("ftp://a").is_err());
    }

    #[test]
    fn missing_settings_are_reported_to_the_operator() {
        let warnings = |url: &str, model: Option<&str>| {
            let options = UpstreamOptions { model: model.map(str::to_owned), ..UpstreamOptions::default() };
            ChatCompletionsUpstream::connect(url, options).expect("a URL").warnings()
        };

        assert_eq!(warnings("http://a/v1", Some("m")), Vec::<String>::new());
        assert!(warnings("http://a/", Some("m"))[0].contains("no path"));
    }

    #[test]
    fn a_model_is_wanted_where_neither_the_options_nor_the_url_name_one() {
        let wants = |url: &str, model: Option<&str>| {
            let options = UpstreamOptions { model: model.map(str::to_owned), ..UpstreamOptions::default() };
            ChatCompletionsUpstream::connect(url, options).expect("a URL").capabilities().wants_model
        };
        assert!(wants("http://a/v1", None));
        assert!(!wants("http://a/v1", Some("m")));
        assert!(!wants("https://x.openai.azure.com/openai/deployments/d?api-version=1", None));
    }
}
