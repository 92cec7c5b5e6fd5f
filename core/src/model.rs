//! The canonical model: requests, messages and contents, as both published revisions of the Agent API and the deployed
//! servers define them. Enumerations are open: an unknown type, role or field is preserved and passed on.
//!
//! Not here: an upstream's frames before normalization ([`crate::agent_api`]), the state of a growing answer
//! ([`crate::run`]), and the parsing of client requests ([`crate::tree`] and the native adapter).

mod input;

use std::borrow::Cow;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{Extra, Json};

pub use input::Input;

macro_rules! open_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// A value this version does not know, preserved verbatim.
            Other(Box<str>),
        }

        impl $name {
            /// The value on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($text => Self::$variant,)+
                    _ => Self::Other(word.into()),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(Cow::<str>::deserialize(deserializer)?.as_ref()))
            }
        }
    };
}

open_set! {
    /// The author of a message.
    Role {
        /// The end user, or a program acting for one.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// System or developer instructions.
        System = "system",
        /// The result of a tool.
        Tool = "tool",
    }
}

open_set! {
    /// The type of a message (docs/protocols/agent-api.md#events).
    MessageType {
        /// Ordinary conversation.
        Message = "message",
        /// The agent's reasoning.
        Reasoning = "reasoning",
        /// A tool call for the client to run.
        FunctionCall = "function_call",
        /// The output of a client-side tool.
        FunctionCallOutput = "function_call_output",
        /// A tool call that the agent runs itself.
        PluginCall = "plugin_call",
        /// The output of such a tool.
        PluginCallOutput = "plugin_call_output",
        /// A component call.
        ComponentCall = "component_call",
        /// The output of a component.
        ComponentCallOutput = "component_call_output",
        /// The tools of an MCP server.
        McpListTools = "mcp_list_tools",
        /// An MCP call that needs approval.
        McpApprovalRequest = "mcp_approval_request",
        /// The decision on an approval request.
        McpApprovalResponse = "mcp_approval_response",
        /// An MCP tool call.
        McpCall = "mcp_call",
        /// The output of an MCP tool.
        McpCallOutput = "mcp_call_output",
        /// A keep-alive.
        Heartbeat = "heartbeat",
        /// An error; the run may continue.
        Error = "error",
        /// A user interface description.
        A2uiResponse = "a2ui_response",
        /// A user action in such an interface.
        A2uiAction = "a2ui_action",
        /// An event of one protocol for which the model has no type: one data content `{"protocol": "…", "event": {…}}`
        /// with the unchanged event. Clients of that protocol receive the event unchanged.
        ProtocolEvent = "protocol_event",
    }
}

impl MessageType {
    /// True for every type of call.
    #[must_use]
    pub const fn is_call(&self) -> bool {
        matches!(self, Self::FunctionCall | Self::PluginCall | Self::ComponentCall | Self::McpCall)
    }

    /// True for every type of call output.
    #[must_use]
    pub const fn is_output(&self) -> bool {
        matches!(
            self,
            Self::FunctionCallOutput | Self::PluginCallOutput | Self::ComponentCallOutput | Self::McpCallOutput
        )
    }
}

open_set! {
    /// The progress of an object (docs/protocols/agent-api.md#lifecycle). `canceled` has one `l`.
    Status {
        /// Announced, not started.
        Created = "created",
        /// Running.
        InProgress = "in_progress",
        /// Ended successfully.
        Completed = "completed",
        /// Canceled by a client or an operator.
        Canceled = "canceled",
        /// Ended with an error.
        Failed = "failed",
        /// Declined by the agent.
        Rejected = "rejected",
        /// Unknown to the server.
        Unknown = "unknown",
        /// Queued.
        Queued = "queued",
        /// Truncated, for example by a token limit.
        Incomplete = "incomplete",
    }
}

open_set! {
    /// The type of a content.
    ContentType {
        /// Text.
        Text = "text",
        /// An image.
        Image = "image",
        /// A JSON object.
        Data = "data",
        /// Audio.
        Audio = "audio",
        /// Video.
        Video = "video",
        /// A file by URL, by id, or inline.
        File = "file",
        /// A refusal by the agent.
        Refusal = "refusal",
    }
}

/// The value of a content, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(String),
    /// A refusal by the agent.
    Refusal(String),
    /// A URL, or `data:<media type>;base64,…`.
    Image(Option<String>),
    /// A JSON object. Upstreams that send another JSON value instead keep it.
    Data(Json),
    /// Audio.
    Audio {
        /// URL, data URL or plain base64.
        data: Option<String>,
        /// Media type or file extension.
        format: Option<String>,
    },
    /// A URL or data URL.
    Video(Option<String>),
    /// A file, given in at least one of four ways.
    File(File),
    /// A type this version does not know; its fields are in [`Content::extra`].
    Other(Box<str>),
}

/// A file by URL, by id, or inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// URL of the file.
    pub url: Option<String>,
    /// Id in the agent's file store.
    pub id: Option<String>,
    /// The file's name for people. `None`: unknown.
    pub name: Option<String>,
    /// Data URL or base64.
    pub data: Option<String>,
}

impl Body {
    /// The type of this value.
    #[must_use]
    pub fn kind(&self) -> ContentType {
        match self {
            Self::Text(_) => ContentType::Text,
            Self::Refusal(_) => ContentType::Refusal,
            Self::Image(_) => ContentType::Image,
            Self::Data(_) => ContentType::Data,
            Self::Audio { .. } => ContentType::Audio,
            Self::Video(_) => ContentType::Video,
            Self::File(_) => ContentType::File,
            Self::Other(word) => ContentType::Other(word.clone()),
        }
    }
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The value.
    pub body: Body,
    /// Unknown fields.
    pub extra: Extra,
}

impl Content {
    /// A content without unknown fields.
    #[must_use]
    pub const fn new(body: Body) -> Self {
        Self { body, extra: Extra::new() }
    }

    /// Creates a text without unknown fields.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Body::Text(text.into()))
    }

    /// Serializes a value as JSON.
    #[must_use]
    pub fn data<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::new(Body::Data(Json::from_serialize(value)))
    }

    /// The text of a text content.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The data of a data content.
    #[must_use]
    pub fn as_data(&self) -> Option<&Json> {
        match &self.body {
            Body::Data(data) => Some(data),
            _ => None,
        }
    }

    /// Serializes the content's own fields into `map`, without the envelope (`object`, `status`, `index` …).
    ///
    /// # Errors
    /// The serializer's errors.
    pub fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match &self.body {
            Body::Text(text) => map.serialize_entry("text", text)?,
            Body::Refusal(refusal) => map.serialize_entry("refusal", refusal)?,
            Body::Image(url) => map.serialize_entry("image_url", url)?,
            Body::Data(data) => map.serialize_entry("data", data)?,
            Body::Audio { data, format } => {
                map.serialize_entry("data", data)?;
                map.serialize_entry("format", format)?;
            }
            Body::Video(url) => map.serialize_entry("video_url", url)?,
            Body::File(file) => {
                map.serialize_entry("file_url", &file.url)?;
                map.serialize_entry("file_id", &file.id)?;
                map.serialize_entry("filename", &file.name)?;
                map.serialize_entry("file_data", &file.data)?;
            }
            Body::Other(_) => {}
        }

        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }

        Ok(())
    }
}

impl Serialize for Content {
    /// The request form: `type` and the content's own fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.body.kind())?;
        self.fields(&mut map)?;
        map.end()
    }
}

/// A message of a request, or a finished message of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `None` if the sender gave no id.
    pub id: Option<String>,
    /// The message type, `type` on the wire.
    pub kind: MessageType,
    /// The author; optional in requests.
    pub role: Option<Role>,
    /// Set by servers; optional in requests.
    pub status: Option<Status>,
    /// The parts of the message.
    pub content: Vec<Content>,
    /// Error code of a message of type `error`.
    pub code: Option<String>,
    /// Error text of a message of type `error`.
    pub message: Option<String>,
    /// Token usage as the agent reports it.
    pub usage: Option<Json>,
    /// Application data, passed through.
    pub metadata: Option<Json>,
    /// Unknown fields.
    pub extra: Extra,
}

impl Message {
    /// A message without id, status or extras.
    #[must_use]
    pub const fn new(kind: MessageType, role: Option<Role>, content: Vec<Content>) -> Self {
        Self {
            id: None,
            kind,
            role,
            status: None,
            content,
            code: None,
            message: None,
            usage: None,
            metadata: None,
            extra: Extra::new(),
        }
    }

    /// A user message with one text.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::User), vec![Content::text(text)])
    }

    /// An assistant message with one text.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::Assistant), vec![Content::text(text)])
    }

    /// A system message with one text.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::System), vec![Content::text(text)])
    }

    /// The texts of the message, concatenated without a separator.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect()
    }

    /// The tool calls of a call message; messages in a history may hold several.
    pub fn calls(&self) -> impl Iterator<Item = ToolCall> {
        let is_call = self.kind.is_call();
        self.content.iter().filter_map(Content::as_data).filter(move |_| is_call).filter_map(Json::decode)
    }

    /// The tool outputs of an output message.
    pub fn outputs(&self) -> impl Iterator<Item = ToolOutput> {
        let is_output = self.kind.is_output();
        self.content.iter().filter_map(Content::as_data).filter(move |_| is_output).filter_map(Json::decode)
    }

    /// Whether each of the [outputs](Self::outputs) reports the failure of its tool: by `is_error` in its data or in
    /// the message, or by the status of the message.
    pub fn failures(&self) -> impl Iterator<Item = bool> {
        let is_true = |fields: &Extra| fields.get("is_error").is_some_and(|value| value.text() == "true");
        let has_failed = self.kind.is_output() && (self.status == Some(Status::Failed) || is_true(&self.extra));
        let outputs = self.content.iter().filter_map(Content::as_data).filter(|_| self.kind.is_output());
        outputs
            .filter(|data| data.decode::<ToolOutput>().is_some())
            .map(move |data| has_failed || data.decode::<Extra>().is_some_and(|fields| is_true(&fields)))
    }

    /// Marks the output in this message as the report of a failure.
    pub fn mark_failed_output(&mut self) {
        for content in &mut self.content {
            if let Body::Data(data) = &mut content.body
                && let Some(mut fields) = data.decode::<Extra>()
            {
                fields.set("is_error", Json::from_serialize(&true));
                *data = Json::from_serialize(&fields);
            }
        }
    }

    /// True if an output in this message reports the failure of its tool.
    #[must_use]
    pub fn has_failed_output(&self) -> bool {
        self.failures().any(|is_failed| is_failed)
    }
}

impl Serialize for Message {
    /// The request form: unset fields are omitted.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("type", &self.kind)?;
        if let Some(role) = &self.role {
            map.serialize_entry("role", role)?;
        }
        if let Some(status) = &self.status {
            map.serialize_entry("status", status)?;
        }
        map.serialize_entry("content", &self.content)?;
        if let Some(code) = &self.code {
            map.serialize_entry("code", code)?;
        }
        if let Some(message) = &self.message {
            map.serialize_entry("message", message)?;
        }
        if let Some(usage) = &self.usage {
            map.serialize_entry("usage", usage)?;
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The data of a `function_call`, `plugin_call`, `mcp_call` or `component_call`
/// (docs/protocols/agent-api.md#tools-and-approvals).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCall {
    /// Correlates a call with its output.
    #[serde(deserialize_with = "lenient_text")]
    pub call_id: String,
    /// The name as the agent declared it; empty if it is unknown.
    #[serde(deserialize_with = "lenient_text")]
    pub name: String,
    /// Arguments as JSON text. Written by the model, so it may be invalid JSON.
    #[serde(deserialize_with = "lenient_text")]
    pub arguments: String,
    /// The MCP server that has the tool.
    #[serde(deserialize_with = "lenient_option", skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
}

/// The data of a call output (docs/protocols/agent-api.md#tools-and-approvals).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOutput {
    /// Correlates a call with its output.
    #[serde(deserialize_with = "lenient_text")]
    pub call_id: String,
    /// Tool name; not every server sends it.
    #[serde(deserialize_with = "lenient_option", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Free-form text.
    #[serde(deserialize_with = "lenient_text")]
    pub output: String,
}

/// Accepts a string; any other value becomes its JSON text, and `null` the empty string.
fn lenient_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    lenient_option(deserializer).map(Option::unwrap_or_default)
}

fn lenient_option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let json = Json::deserialize(deserializer)?;
    if json.is_null() {
        return Ok(None);
    }
    Ok(Some(json.decode::<String>().unwrap_or_else(|| json.text().to_owned())))
}

/// A validated request (docs/protocols/agent-api.md#request).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRequest {
    /// The messages; may be empty.
    pub input: Input,
    /// The response id the client asks for. The gateway uses the run's id instead.
    pub id: Option<String>,
    /// The conversation.
    pub session_id: Option<String>,
    /// The end user.
    pub user_id: Option<String>,
    /// The model's name, passed on to the agent. `None`: the agent chooses.
    pub model: Option<String>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Tools the client offers: JSON objects, usually of the form `{"type":"function","function":{…}}`.
    pub tools: Option<Vec<Json>>,
    /// Unknown fields, passed on to the agent.
    pub extra: Extra,
}

/// Sampling parameters of a request. `None` leaves the choice to the agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Sampling temperature, passed on unchecked.
    pub temperature: Option<f64>,
    /// Nucleus sampling threshold.
    pub top_p: Option<f64>,
    /// Penalty for frequent tokens.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens that already occur.
    pub presence_penalty: Option<f64>,
    /// Maximum number of output tokens.
    pub max_tokens: Option<i64>,
    /// Stop sequences.
    pub stop: Option<Stop>,
    /// Number of answers, 1 to 5. `None` means 1.
    pub n: Option<i64>,
    /// Makes answers reproducible if the agent supports it.
    pub seed: Option<i64>,
}

/// Stop sequences: one string, or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Stop {
    /// A single string.
    One(String),
    /// A list of strings.
    Many(Vec<String>),
}

impl Serialize for AgentRequest {
    /// The form sent upstream: unset fields are omitted and `stream` is always true.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn entry<M: SerializeMap, T: Serialize>(map: &mut M, name: &str, value: Option<&T>) -> Result<(), M::Error> {
            value.map_or(Ok(()), |value| map.serialize_entry(name, value))
        }

        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("input", &self.input)?;
        map.serialize_entry("stream", &true)?;
        entry(&mut map, "id", self.id.as_ref())?;
        entry(&mut map, "session_id", self.session_id.as_ref())?;
        entry(&mut map, "user_id", self.user_id.as_ref())?;
        entry(&mut map, "model", self.model.as_ref())?;

        let sampling = &self.sampling;
        entry(&mut map, "temperature", sampling.temperature.as_ref())?;
        entry(&mut map, "top_p", sampling.top_p.as_ref())?;
        entry(&mut map, "frequency_penalty", sampling.frequency_penalty.as_ref())?;
        entry(&mut map, "presence_penalty", sampling.presence_penalty.as_ref())?;
        entry(&mut map, "max_tokens", sampling.max_tokens.as_ref())?;
        entry(&mut map, "stop", sampling.stop.as_ref())?;
        entry(&mut map, "n", sampling.n.as_ref())?;
        entry(&mut map, "seed", sampling.seed.as_ref())?;
        entry(&mut map, "tools", self.tools.as_ref())?;

        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }

        map.end()
    }
}
