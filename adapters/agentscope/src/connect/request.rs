//! Messages as the service takes them, and the requests of a turn.
//!
//! The service takes texts and media of users and assistants. Tools, instructions and parameters are those of its
//! agent: what else a client asks for is lost, and noted.

use std::borrow::Cow;

use interlingua_adapter_kit::output_parts;
use interlingua_core::connector::{HttpRequest, Purpose};
use interlingua_core::http_url::{below, segment};
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{AgentRequest, Body, Content, Message, MessageType, Role};
use interlingua_core::{Extra, Json};
use serde::Serialize;

use super::media::{Source, by_extension, source_of};
use super::options::{UpstreamOptions, is_header_value};

/// Number of messages requested when a reply is read from the session. The reply is at their end.
const PAGE: usize = 8;

/// Writes requests to a service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    url: String,
    agent: String,
    user: Option<String>,
}

impl Service {
    /// `user`: of the request, where the options name none.
    pub(super) fn new(url: &str, options: &UpstreamOptions, user: Option<&str>) -> Self {
        let user = options.user.as_deref().or(user).filter(|user| is_header_value(user));
        Self { url: url.to_owned(), agent: options.agent_id.clone(), user: user.map(str::to_owned) }
    }

    fn request(&self, method: &'static str, path: &str, purpose: Purpose, body: Vec<u8>) -> HttpRequest {
        let mut headers: Vec<(Cow<'static, str>, String)> = Vec::with_capacity(3);
        let is_stream = path.ends_with("/stream");
        headers.push(("accept".into(), if is_stream { "text/event-stream" } else { "application/json" }.to_owned()));
        if !body.is_empty() {
            headers.push(("content-type".into(), "application/json".to_owned()));
        }
        if let Some(user) = &self.user {
            headers.push(("x-user-id".into(), user.clone()));
        }
        HttpRequest { method, url: below(&self.url, path), headers, body, purpose, is_trusted: false }
    }

    /// A request about a session, whose agent the service wants to be named again. `query`: what else it is sent.
    fn in_session(
        &self,
        method: &'static str,
        session: &str,
        what: &str,
        query: &str,
        purpose: Purpose,
    ) -> HttpRequest {
        let path = format!("/sessions/{}/{what}", segment(session));
        let mut request = self.request(method, &path, purpose, Vec::new());
        let mark = if request.url.contains('?') { '&' } else { '?' };
        request.url = format!("{}{mark}agent_id={}{query}", request.url, segment(&self.agent));
        request
    }

    /// A document of the service.
    pub(super) fn document(&self, path: &str) -> HttpRequest {
        self.request("GET", path, Purpose::Lookup, Vec::new())
    }

    /// Makes a session.
    pub(super) fn create(&self, fields: &Extra) -> HttpRequest {
        let mut body = fields.clone();
        body.set("agent_id", Json::from_serialize(&self.agent));
        let body = Json::from_serialize(&body).text().as_bytes().to_vec();
        self.request("POST", "/sessions/", Purpose::Ask, body)
    }

    /// Requests the state of a session.
    pub(super) fn status(&self, session: &str) -> HttpRequest {
        self.in_session("GET", session, "status", "", Purpose::Lookup)
    }

    /// Starts a reply, or continues it.
    pub(super) fn chat(&self, session: &str, input: &Json) -> HttpRequest {
        #[derive(Serialize)]
        struct Chat<'a> {
            agent_id: &'a str,
            session_id: &'a str,
            input: &'a Json,
        }
        let body = Json::from_serialize(&Chat { agent_id: &self.agent, session_id: session, input });
        self.request("POST", "/chat/", Purpose::Ask, body.text().as_bytes().to_vec())
    }

    /// Subscribes to the events of a session.
    pub(super) fn stream(&self, session: &str) -> HttpRequest {
        self.in_session("GET", session, "stream", "", Purpose::Ask)
    }

    /// The last messages of a session.
    pub(super) fn messages(&self, session: &str) -> HttpRequest {
        self.in_session("GET", session, "messages", &format!("&limit={PAGE}"), Purpose::Ask)
    }

    /// Stops a session's reply.
    pub(super) fn interrupt(&self, session: &str) -> HttpRequest {
        self.in_session("POST", session, "interrupt", "", Purpose::Ask)
    }
}

/// A message as the service takes it.
#[derive(Serialize)]
struct WireMessage<'a> {
    id: &'a str,
    name: &'a str,
    role: &'static str,
    content: Vec<Block>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    Data {
        source: BlockSource,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockSource {
    Base64 { data: String, media_type: String },
    Url { url: String, media_type: String },
}

/// The words of a turn, and the id of the last message, behind which the reply stands.
#[derive(Debug)]
pub(super) struct TurnText {
    pub(super) input: Json,
    pub(super) last_id: String,
}

impl TurnText {
    /// The words of these messages. `turn`: the run and the number of the turn, for their ids. None: there are no words.
    pub(super) fn read<'a>(
        input: impl Iterator<Item = &'a Message>,
        (run, turn): (&str, u32),
        losses: &mut Losses,
    ) -> Option<Self> {
        let mut messages = Vec::new();
        let mut last_id = String::new();
        for message in input {
            let Some((role, content)) = words_of(message, losses) else { continue };
            last_id = format!("{run}-{turn}-{}", messages.len());
            // Models read the name, so it names no person.
            messages.push(Json::from_serialize(&WireMessage { id: &last_id, name: role, role, content }));
        }
        (!messages.is_empty()).then(|| Self { input: Json::from_serialize(&messages), last_id })
    }
}

/// The role and the text of a message. `None`: the message contains nothing that the service accepts.
fn words_of(message: &Message, losses: &mut Losses) -> Option<(&'static str, Vec<Block>)> {
    match &message.kind {
        MessageType::Message => {}
        // Where they answer the agent, they are sent as answers.
        MessageType::McpApprovalResponse | MessageType::McpApprovalRequest | MessageType::FunctionCallOutput => {
            return None;
        }
        MessageType::Reasoning => {
            losses.lost(ContentKind::History, "the service takes no reasoning");
            return None;
        }
        kind if kind.is_call() || kind.is_output() => {
            losses.lost(ContentKind::History, "the service takes no calls of tools and no outputs");
            return None;
        }
        _ => {
            losses.lost(ContentKind::History, "the service takes words of people and agents only");
            return None;
        }
    }

    let role = match message.role {
        Some(Role::Assistant) => "assistant",
        Some(Role::System) => {
            losses.lost(ContentKind::Instructions, "the instructions are those of the agent in its service");
            return None;
        }
        _ => "user",
    };
    let content: Vec<Block> = message.content.iter().filter_map(|content| block(content, losses)).collect();
    (!content.is_empty()).then_some((role, content))
}

/// The output of a tool as blocks.
pub(super) fn output_blocks(output: &str, message: &Message, losses: &mut Losses) -> Vec<Block> {
    match output_parts::parts(output, message) {
        Some(parts) => parts.iter().filter_map(|part| block(part, losses)).collect(),
        None => vec![Block::Text { text: output.to_owned() }],
    }
}

fn block(content: &Content, losses: &mut Losses) -> Option<Block> {
    let media = |text: &str, fallback: &'static str, name: Option<String>| {
        let (source, media_type) = source_of(text, fallback);
        let source = match source {
            Source::Base64(data) => BlockSource::Base64 { data, media_type },
            Source::Url(url) => BlockSource::Url { url, media_type },
        };
        Some(Block::Data { source, name })
    };
    match &content.body {
        Body::Text(text) | Body::Refusal(text) if text.is_empty() => None,
        Body::Text(text) | Body::Refusal(text) => Some(Block::Text { text: text.clone() }),
        Body::Image(Some(url)) => media(url, "image/png", None),
        Body::Video(Some(url)) => media(url, "video/mp4", None),
        Body::Audio { data: Some(data), format } => Some(audio(data, format.as_deref())),
        Body::File(file) => {
            let known = file.name.as_deref().and_then(by_extension).unwrap_or("application/octet-stream");
            match (&file.url, &file.data) {
                (_, Some(data)) if data.starts_with("data:") => media(data, known, file.name.clone()),
                (_, Some(data)) => {
                    let source = BlockSource::Base64 { data: data.clone(), media_type: known.to_owned() };
                    Some(Block::Data { source, name: file.name.clone() })
                }
                (Some(url), None) => media(url, known, file.name.clone()),
                (None, None) => {
                    losses.lost(ContentKind::FileIn, "the service has no files by id");
                    None
                }
            }
        }
        Body::Data(data) => {
            losses.changed(ContentKind::DataIn, "it is sent as text");
            Some(Block::Text { text: data.text().to_owned() })
        }
        Body::Image(None) | Body::Video(None) | Body::Audio { data: None, .. } | Body::Other(_) => None,
    }
}

/// Audio by URL, as a data URL, or in base64.
fn audio(data: &str, format: Option<&str>) -> Block {
    let media_type = match format {
        Some(format) if format.contains('/') => format.to_owned(),
        Some("mp3") => "audio/mpeg".to_owned(),
        Some(format) if !format.is_empty() => format!("audio/{format}"),
        _ => "audio/wav".to_owned(),
    };
    let source = match source_of(data, "audio/wav") {
        (Source::Base64(data), media_type) => BlockSource::Base64 { data, media_type },
        (Source::Url(url), _) if url.contains("://") => BlockSource::Url { url, media_type },
        (Source::Url(data), _) => BlockSource::Base64 { data, media_type },
    };
    Block::Data { source, name: None }
}

/// Records the parts of a request that this protocol cannot carry.
pub(super) fn note_losses(request: &AgentRequest, losses: &mut Losses) {
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        losses.lost(ContentKind::ToolDeclaration, "the tools are those of the agent in its service");
    }
    let sampling = &request.sampling;
    let numbers = [sampling.temperature, sampling.top_p, sampling.frequency_penalty, sampling.presence_penalty];
    let counts = [sampling.max_tokens, sampling.n, sampling.seed];
    let is_set = numbers.iter().any(Option::is_some) || counts.iter().any(Option::is_some) || sampling.stop.is_some();
    if is_set {
        losses.lost(ContentKind::Sampling, "the parameters are those of the session");
    }
    for (name, kind, how) in [
        ("tool_choice", ContentKind::ToolChoice, "the tools are those of the agent in its service"),
        ("response_format", ContentKind::OutputFormat, "the protocol has no format of answers"),
        ("text", ContentKind::OutputFormat, "the protocol has no format of answers"),
        ("instructions", ContentKind::Instructions, "the instructions are those of the agent in its service"),
        ("metadata", ContentKind::Metadata, "the protocol has no place for it"),
    ] {
        if request.extra.get(name).is_some_and(|value| !value.is_null()) {
            losses.lost(kind, how);
        }
    }
}
