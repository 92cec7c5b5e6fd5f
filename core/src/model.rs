//! The native model: requests, messages and contents, as both published revisions of the Agent API and the servers in
//! use have them. Sets are open: an unknown type, role or field is kept and passed on.
//!
//! Not here: what an upstream's frame looks like while it is read ([`crate::heard`]), how an answer grows
//! ([`crate::run`]), and the reading of a client's request ([`crate::tree`] and the native adapter).

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
            /// A word this version does not know, kept as it came.
            Other(Box<str>),
        }

        impl $name {
            /// The word on the wire.
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
    /// Who speaks.
    Role {
        /// The person, or the program in its place.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// Instructions.
        System = "system",
        /// What a tool returned.
        Tool = "tool",
    }
}

open_set! {
    /// What a message is (Agent API, section 4).
    MessageType {
        /// Something said.
        Message = "message",
        /// The agent thinking aloud.
        Reasoning = "reasoning",
        /// A call the client is asked to run.
        FunctionCall = "function_call",
        /// What the client's tool returned.
        FunctionCallOutput = "function_call_output",
        /// A call the agent runs itself.
        PluginCall = "plugin_call",
        /// What the agent's tool returned.
        PluginCallOutput = "plugin_call_output",
        /// A call of a component.
        ComponentCall = "component_call",
        /// What a component returned.
        ComponentCallOutput = "component_call_output",
        /// The tools of an MCP server.
        McpListTools = "mcp_list_tools",
        /// Somebody has to approve a call.
        McpApprovalRequest = "mcp_approval_request",
        /// The decision about it.
        McpApprovalResponse = "mcp_approval_response",
        /// A call to an MCP server.
        McpCall = "mcp_call",
        /// What the MCP server returned.
        McpCallOutput = "mcp_call_output",
        /// A sign of life.
        Heartbeat = "heartbeat",
        /// Something went wrong, the run may go on.
        Error = "error",
        /// An interface description.
        A2uiResponse = "a2ui_response",
        /// What was done in such an interface.
        A2uiAction = "a2ui_action",
    }
}

impl MessageType {
    /// A call of any sort.
    #[must_use]
    pub const fn is_call(&self) -> bool {
        matches!(self, Self::FunctionCall | Self::PluginCall | Self::ComponentCall | Self::McpCall)
    }

    /// What a call of any sort returned.
    #[must_use]
    pub const fn is_output(&self) -> bool {
        matches!(
            self,
            Self::FunctionCallOutput | Self::PluginCallOutput | Self::ComponentCallOutput | Self::McpCallOutput
        )
    }

    /// The output's type for a call's type, and the other way round. None for anything else.
    #[must_use]
    pub const fn counterpart(&self) -> Option<Self> {
        Some(match self {
            Self::FunctionCall => Self::FunctionCallOutput,
            Self::PluginCall => Self::PluginCallOutput,
            Self::ComponentCall => Self::ComponentCallOutput,
            Self::McpCall => Self::McpCallOutput,
            Self::FunctionCallOutput => Self::FunctionCall,
            Self::PluginCallOutput => Self::PluginCall,
            Self::ComponentCallOutput => Self::ComponentCall,
            Self::McpCallOutput => Self::McpCall,
            _ => return None,
        })
    }
}

open_set! {
    /// How far something is (Agent API, section 5). One `l` in `canceled`.
    Status {
        /// Announced.
        Created = "created",
        /// Under way.
        InProgress = "in_progress",
        /// Ended well.
        Completed = "completed",
        /// Stopped by somebody.
        Canceled = "canceled",
        /// Ended badly.
        Failed = "failed",
        /// Turned away by the agent.
        Rejected = "rejected",
        /// Not known.
        Unknown = "unknown",
        /// Waiting for its turn.
        Queued = "queued",
        /// Cut off.
        Incomplete = "incomplete",
    }
}

open_set! {
    /// What a content holds.
    ContentType {
        /// Text.
        Text = "text",
        /// A picture.
        Image = "image",
        /// A JSON object.
        Data = "data",
        /// Sound.
        Audio = "audio",
        /// A film.
        Video = "video",
        /// A file.
        File = "file",
        /// The agent declines.
        Refusal = "refusal",
    }
}

/// The value of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(String),
    /// The agent declines.
    Refusal(String),
    /// A link, or `data:<media type>;base64,…`.
    Image(Option<String>),
    /// A JSON object, or whatever stood in its place.
    Data(Json),
    /// `data`: link, data URL or plain base64. `format`: media type or file suffix.
    Audio {
        /// Where or what it is.
        data: Option<String>,
        /// Its media type or file suffix.
        format: Option<String>,
    },
    /// A link or data URL.
    Video(Option<String>),
    /// A file, told in at least one of four ways.
    File(File),
    /// A type this version does not know; its fields are in [`Content::extra`].
    Other(Box<str>),
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// A link.
    pub url: Option<String>,
    /// An id in somebody's file store.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// What is in it: data URL or base64.
    pub data: Option<String>,
}

impl Body {
    /// The type's word.
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
    /// What it holds.
    pub body: Body,
    /// Fields this version has no name for.
    pub extra: Extra,
}

impl Content {
    /// A content without unknown fields.
    #[must_use]
    pub const fn new(body: Body) -> Self {
        Self { body, extra: Extra::new() }
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Body::Text(text.into()))
    }

    /// A data object.
    #[must_use]
    pub fn data<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::new(Body::Data(Json::from_serialize(value)))
    }

    /// The text, if this is a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The data, if this is data.
    #[must_use]
    pub fn as_data(&self) -> Option<&Json> {
        match &self.body {
            Body::Data(data) => Some(data),
            _ => None,
        }
    }

    /// Writes the fields of the content, without its envelope (`object`, `status`, `index` …), into a map.
    ///
    /// # Errors
    /// Those of the serializer.
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
    /// The form of a request: `type` and the content's own fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.body.kind())?;
        self.fields(&mut map)?;
        map.end()
    }
}

/// A message of a request, or a finished one of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id, where it has one.
    pub id: Option<String>,
    /// What it is.
    pub kind: MessageType,
    /// Who speaks.
    pub role: Option<Role>,
    /// How far it is.
    pub status: Option<Status>,
    /// What it holds.
    pub content: Vec<Content>,
    /// Code of a message of type `error`.
    pub code: Option<String>,
    /// Text of a message of type `error`.
    pub message: Option<String>,
    /// What it cost.
    pub usage: Option<Json>,
    /// Free for applications.
    pub metadata: Option<Json>,
    /// Fields this version has no name for.
    pub extra: Extra,
}

impl Message {
    /// A message of a type and role with contents.
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

    /// Something the user says.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::User), vec![Content::text(text)])
    }

    /// Something the agent said.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::Assistant), vec![Content::text(text)])
    }

    /// Instructions.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(MessageType::Message, Some(Role::System), vec![Content::text(text)])
    }

    /// The texts of the message, joined without anything between them.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect()
    }

    /// The calls in it; several in one message occur in history.
    pub fn calls(&self) -> impl Iterator<Item = ToolCall> {
        let is_call = self.kind.is_call();
        self.content.iter().filter_map(Content::as_data).filter(move |_| is_call).filter_map(Json::decode)
    }

    /// The outputs in it.
    pub fn outputs(&self) -> impl Iterator<Item = ToolOutput> {
        let is_output = self.kind.is_output();
        self.content.iter().filter_map(Content::as_data).filter(move |_| is_output).filter_map(Json::decode)
    }
}

impl Serialize for Message {
    /// The form of a request: what is not there is left out.
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

/// The body of a call: `function_call`, `plugin_call`, `mcp_call`, `component_call` (Agent API, section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCall {
    /// Joins call and output.
    #[serde(deserialize_with = "lenient_text")]
    pub call_id: String,
    /// The tool.
    #[serde(deserialize_with = "lenient_text")]
    pub name: String,
    /// JSON text, which may be invalid: it is the model's.
    #[serde(deserialize_with = "lenient_text")]
    pub arguments: String,
    /// The MCP server.
    #[serde(deserialize_with = "lenient_option", skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
}

/// The body of an output (Agent API, section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOutput {
    /// Joins call and output.
    #[serde(deserialize_with = "lenient_text")]
    pub call_id: String,
    /// The tool, where the server tells.
    #[serde(deserialize_with = "lenient_option", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Text with no fixed inner format.
    #[serde(deserialize_with = "lenient_text")]
    pub output: String,
}

/// Text; anything else becomes its JSON text, `null` the empty text.
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

/// A whole request (Agent API, section 3), checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRequest {
    /// What is said; may be empty.
    pub input: Input,
    /// The id the response shall have. The gateway uses the run's.
    pub id: Option<String>,
    /// The conversation.
    pub session_id: Option<String>,
    /// The user.
    pub user_id: Option<String>,
    /// The model wished for.
    pub model: Option<String>,
    /// Sampling settings.
    pub sampling: Sampling,
    /// Tools the client offers: [`Json`] objects, of the form `{"type":"function","function":{…}}` or another.
    pub tools: Option<Vec<Json>>,
    /// Fields this version has no name for: agents see them.
    pub extra: Extra,
}

/// Sampling settings of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Randomness.
    pub temperature: Option<f64>,
    /// Nucleus.
    pub top_p: Option<f64>,
    /// Penalty for frequent tokens.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens already there.
    pub presence_penalty: Option<f64>,
    /// The most tokens the agent may write.
    pub max_tokens: Option<i64>,
    /// Words to stop at.
    pub stop: Option<Stop>,
    /// How many answers, 1 to 5. None is 1.
    pub n: Option<i64>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
}

/// Words to stop at: one, or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Stop {
    /// One word.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Serialize for AgentRequest {
    /// As it goes upstream: what is not set is left out; `stream` is always true.
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
