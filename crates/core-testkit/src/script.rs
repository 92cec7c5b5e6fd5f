//! Scripts: the answers of imaginary agents, in readable files with one Agent API frame per line.
//!
//! Null fields are left out of the files; [`Script::bytes`] writes the frames as the runtime does, with null fields and
//! sequence numbers (docs/protocols/agent-api.md#transport, docs/protocols/agent-api.md#events). The tests of every
//! adapter run over [`scripts`], so a new file here is a new case in all of them.
//!
//! Not here: what adapters must do with them ([`super::laws`]). The answers of real servers are recorded in
//! `tests/transcripts`; [`transcripts`] returns them.

use std::borrow::Cow;

use super::Recorder;
use interlingua_core::agent_api::Frame;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::event::{End, Event};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{AgentRequest, Body, ContentType, Message, MessageType};
use interlingua_core::pending::PendingKind;
use interlingua_core::run::Record;

/// A part of an answer that some protocols cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Text in a message.
    Text,
    /// Text in a message of type `reasoning`.
    Reasoning,
    /// A tool call that the client runs.
    ClientTool,
    /// A tool call that the agent runs itself: a plugin.
    ServerTool,
    /// A call to an MCP server, or the list of its tools.
    Mcp,
    /// A call of a user interface component.
    Component,
    /// An image, as a URL or inline.
    Image,
    /// Audio, as a URL or inline.
    Audio,
    /// A video URL.
    Video,
    /// A file: a URL, inline, or an id.
    File,
    /// Data other than calls, outputs and approvals.
    Data,
    /// The agent refuses to answer.
    Refusal,
    /// The run waits for the client at the end.
    Pending,
    /// The run waits for an approval, an answer or a login, not for a tool output.
    Interrupt,
    /// Token usage in the response.
    Usage,
    /// A message of type `error`.
    ErrorMessage,
    /// Two messages are open at the same time.
    Overlap,
    /// A text is replaced by another one.
    Replaced,
    /// A message or content type that no version of the protocol defines.
    Unknown,
}

impl Feature {
    /// The features of a finished record, in the order above.
    #[must_use]
    pub fn of_record(record: &Record) -> Vec<Self> {
        let run = record.run();
        let mut found: Vec<Self> =
            run.messages.iter().flat_map(|message| Self::of_message(&message.to_model())).collect();

        let pending = run.pending();
        if !pending.is_empty() {
            found.push(Self::Pending);
        }
        if pending.iter().any(|item| item.kind != PendingKind::Tool) {
            found.push(Self::Interrupt);
        }
        if run.usage().is_some() {
            found.push(Self::Usage);
        }

        let mut open = 0_usize;
        for step in record.steps(0) {
            match step.event {
                Event::MessageStarted { .. } => open += 1,
                Event::MessageFinished { .. } => open = open.saturating_sub(1),
                Event::ContentReplaced { .. } => found.push(Self::Replaced),
                _ => {}
            }
            if open > 1 {
                found.push(Self::Overlap);
            }
        }

        found.sort();
        found.dedup();
        found
    }

    fn of_message(message: &Message) -> Vec<Self> {
        let known = match &message.kind {
            MessageType::FunctionCall | MessageType::FunctionCallOutput => Some(Self::ClientTool),
            MessageType::PluginCall | MessageType::PluginCallOutput => Some(Self::ServerTool),
            MessageType::McpCall | MessageType::McpCallOutput | MessageType::McpListTools => Some(Self::Mcp),
            MessageType::ComponentCall | MessageType::ComponentCallOutput => Some(Self::Component),
            MessageType::Error => Some(Self::ErrorMessage),
            MessageType::Other(_) => Some(Self::Unknown),
            MessageType::McpApprovalRequest | MessageType::McpApprovalResponse => None,
            kind => {
                let is_reasoning = *kind == MessageType::Reasoning;
                let contents = message.content.iter().map(|content| match content.body.kind() {
                    ContentType::Text if is_reasoning => Self::Reasoning,
                    ContentType::Text => Self::Text,
                    ContentType::Image => Self::Image,
                    ContentType::Audio => Self::Audio,
                    ContentType::Video => Self::Video,
                    ContentType::File => Self::File,
                    ContentType::Data => Self::Data,
                    ContentType::Refusal => Self::Refusal,
                    ContentType::Other(_) => Self::Unknown,
                });
                return contents.collect();
            }
        };
        known.into_iter().collect()
    }
}

/// A request and an agent's complete answer to it.
#[derive(Clone, Debug)]
pub struct Script {
    /// The file name without its extension.
    pub name: &'static str,
    /// The content of the answer, in a few words.
    pub description: &'static str,
    /// The features of the answer, in the order of [`Feature`].
    pub carries: &'static [Feature],
    /// The end of the turn.
    pub end: End,
    /// The frames: one JSON object each, without null fields.
    pub frames: Vec<Cow<'static, str>>,
    /// The input of the request.
    pub input: Vec<Message>,
}

impl Script {
    /// True if the answer has this feature.
    #[must_use]
    pub fn carries(&self, feature: Feature) -> bool {
        self.carries.contains(&feature)
    }

    /// True if the answer has no other features: a protocol that supports these must transmit it without loss.
    #[must_use]
    pub fn carries_only(&self, features: &[Feature]) -> bool {
        self.carries.iter().all(|feature| features.contains(feature))
    }

    /// True if it is too long for golden files and for splitting it at every byte.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.frames.len() > 200
    }

    /// The finished record of this answer.
    #[must_use]
    pub fn record(&self) -> Record {
        let mut recorder = Recorder::new(self.input.clone());
        for frame in &self.frames {
            recorder.emit(&self.event(frame));
        }
        recorder.finish()
    }

    /// The event that a frame reports.
    ///
    /// # Panics
    /// If the frame is not a JSON object.
    #[must_use]
    pub fn event<'f>(&self, frame: &'f str) -> AgentEvent<'f> {
        let parsed = Frame::parse(frame.as_bytes());
        parsed.unwrap_or_else(|| panic!("{} has a line that is not a JSON object: {frame}", self.name)).event()
    }

    /// The event stream as the runtime would send it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let frames =
            self.frames.iter().zip(0..).map(|(frame, number)| format!("data: {}\n\n", complete(frame, number)));
        frames.collect::<String>().into_bytes()
    }

    /// The request of the Agent API.
    #[must_use]
    pub fn request(&self) -> AgentRequest {
        AgentRequest { input: self.input.clone().into(), ..AgentRequest::default() }
    }
}

/// A frame with all fields that the runtime writes, in its order. Nested objects, and frames of an unknown type, stay
/// as they are.
fn complete(frame: &str, number: u64) -> String {
    const RESPONSE: &[&str] = &["id", "created_at", "completed_at", "output", "usage", "session_id"];
    const MESSAGE: &[&str] = &["id", "type", "role", "content", "code", "message", "usage", "metadata"];
    const CONTENT: &[&str] = &["type", "index", "delta", "msg_id"];
    let Some(fields) = Json::parse(frame).and_then(|json| json.decode::<Extra>()) else { return frame.to_owned() };
    let object = fields.get("object").and_then(Json::decode::<String>).unwrap_or_default();
    let names: &[&str] = match object.as_str() {
        "response" => RESPONSE,
        "message" => MESSAGE,
        "content" => CONTENT,
        _ => return frame.to_owned(),
    };

    let mut complete = Extra::new();
    for name in ["sequence_number", "object", "status", "error"].iter().chain(names) {
        complete.push(*name, fields.get(name).cloned().unwrap_or_else(Json::null));
    }
    for (name, value) in fields.iter() {
        complete.set(name, value.clone());
    }
    complete.set("sequence_number", Json::from_serialize(&number));
    Json::from_serialize(&complete).text().to_owned()
}

macro_rules! rows {
    ($($name:literal $description:literal [$($carries:ident),*] $end:ident $(after $input:expr)?;)+) => {
        vec![$(Script {
            name: $name,
            description: $description,
            carries: &[$(Feature::$carries),*],
            end: End::$end,
            frames: include_str!(concat!("scripts/", $name, ".jsonl")).lines().map(Cow::Borrowed).collect(),
            input: {
                let input = vec![Message::user("hi")];
                $(let input = [input, $input].concat();)?
                input
            },
        }),+]
    };
}

/// The scripts that every adapter's tests run, in a fixed order.
#[must_use]
pub fn scripts() -> Vec<Script> {
    let mut scripts = rows! {
        "greeting" "a text" [Text] Completed;
        "two_messages" "two texts, one after the other" [Text] Completed;
        "overlapping_messages" "two texts at once" [Text, Overlap] Completed;
        "whole_messages" "texts that come whole" [Text] Completed;
        "several_contents" "text, picture, data and text in one message" [Text, Image, Data] Completed;
        "unicode" "all that may stand in a text" [Text] Completed;
        "empty" "no answer at all" [] Completed;
        "empty_text" "a text without a letter" [Text] Completed;
        "corrected" "a text that turns out to be another" [Text, Replaced] Completed;
        "refusal" "the agent declines" [Refusal] Completed;
        "reasoning_before" "thinking, then the answer" [Text, Reasoning] Completed;
        "reasoning_beside" "the answer begins while the agent still thinks" [Text, Reasoning, Overlap] Completed;
        "reasoning_between_tools" "thinking, a tool, thinking, the answer" [Text, Reasoning, ServerTool] Completed;
        "plugin" "a call the agent runs, sent in snapshots" [Text, ServerTool] Completed;
        "parallel_tools" "two calls at once, outputs in another order" [Text, ServerTool, Overlap] Completed;
        "mcp_tools" "the tools of an MCP server" [Text, Mcp] Completed;
        "mcp" "a call to an MCP server" [Text, Mcp] Completed;
        "component" "a call of a component" [Text, Component] Completed;
        "client_tool" "a call the client has to run" [ClientTool, Pending] Completed;
        "client_tools_parallel" "two of them" [Text, ClientTool, Pending] Completed;
        "client_tools_in_one_message" "two of them in one message" [ClientTool, Pending] Completed;
        "client_tool_partly_answered" "two of them, one with its output" [ClientTool, Pending] Completed;
        "after_client_tool" "the answer once the client's output came" [Text] Completed after tool_output_input();
        "streamed_arguments" "arguments in fragments" [ClientTool, Pending] Completed;
        "snapshots_of_arguments" "arguments replaced, not growing" [ClientTool, Pending] Completed;
        "invalid_arguments" "arguments that are no JSON" [ClientTool, Pending] Completed;
        "image_url" "a picture elsewhere" [Image] Completed;
        "image_data" "a picture within" [Image] Completed;
        "audio" "sound within" [Audio] Completed;
        "audio_url" "sound elsewhere" [Audio] Completed;
        "video" "a video" [Video] Completed;
        "files" "files sent in three ways" [File] Completed;
        "data" "data in fragments" [Data] Completed;
        "approval" "a call that needs a yes" [Text, Pending, Interrupt] Completed;
        "approval_extended" "the same with all an approval may say" [Pending, Interrupt] Completed;
        "approvals_parallel" "two of them" [Pending, Interrupt] Completed;
        "input_question" "the agent asks something" [Pending, Interrupt] Completed;
        "auth" "the agent needs a login" [Pending, Interrupt] Completed;
        "usage" "what it cost" [Text, Usage] Completed;
        "heartbeat" "heartbeats in between" [Text] Completed;
        "error_message" "something goes wrong, the run goes on" [Text, ErrorMessage] Completed;
        "refused" "a bare error instead of a stream" [] Failed;
        "failure_before_output" "nothing but a failure" [] Failed;
        "failure_after_output" "a failure within a text" [Text] Failed;
        "failure_within_a_call" "a bare error within a call" [Text, ServerTool] Failed;
        "incomplete" "cut off by a limit" [Text] Incomplete;
        "rejected" "turned away" [] Rejected;
        "canceled" "stopped by somebody" [Text] Canceled;
        "broken_off" "the stream ends within a text" [Text] Failed;
        "unannounced" "contents before their messages" [Text, ServerTool] Completed;
        "orphan" "a message that never gets anything, an output without an index" [Text, ServerTool] Completed;
        "unclosed" "an image and a text without an end" [Text, Image] Completed;
        "unknown_types" "types that no version knows" [Text, Unknown] Completed;
        "unknown_fields" "fields that no version knows" [Text] Completed;
        "second_response" "another response inside the response" [Text] Completed;
        "only_in_the_output" "messages that are only in the last frame" [Text, ClientTool, Pending] Completed;
    };
    scripts.push(very_long());
    scripts
}

/// The input of a client that has run a tool: the call as it received it, and the output.
fn tool_output_input() -> Vec<Message> {
    let call = serde_json::json!({ "call_id": "call_1", "name": "get_location", "arguments": "{}" });
    let output = serde_json::json!({ "call_id": "call_1", "output": "Paris" });
    let message = |kind, role, data: &serde_json::Value| {
        Message::new(
            kind,
            Some(role),
            vec![interlingua_core::model::Content::new(Body::Data(Json::from_serialize(data)))],
        )
    };
    vec![
        message(MessageType::FunctionCall, interlingua_core::model::Role::Assistant, &call),
        message(MessageType::FunctionCallOutput, interlingua_core::model::Role::Tool, &output),
    ]
}

/// 4,000 fragments: generated, because a file of them would not be readable.
fn very_long() -> Script {
    let fragments: Vec<String> = (0..4_000).map(|number| format!("word {number} ")).collect();
    let text = fragments.concat();

    let message = format!(
        r#"{{"object":"message","status":"completed","id":"msg_02","type":"message","role":"assistant","content":[{{"object":"content","status":"completed","type":"text","index":0,"msg_id":"msg_02","text":"{text}"}}]}}"#
    );

    let mut frames: Vec<Cow<'static, str>> = vec![
        r#"{"object":"response","status":"created","id":"response_01"}"#.into(),
        r#"{"object":"response","status":"in_progress","id":"response_01"}"#.into(),
        r#"{"object":"message","status":"in_progress","id":"msg_02","type":"message","role":"assistant"}"#.into(),
    ];
    frames.extend(fragments.iter().map(|fragment| {
        Cow::Owned(format!(
            r#"{{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"msg_02","text":"{fragment}"}}"#
        ))
    }));
    frames.push(
        format!(r#"{{"object":"content","status":"completed","type":"text","index":0,"delta":false,"msg_id":"msg_02","text":"{text}"}}"#)
            .into(),
    );
    frames.push(message.clone().into());
    frames.push(
        format!(r#"{{"object":"response","status":"completed","id":"response_01","output":[{message}]}}"#).into(),
    );

    Script {
        name: "very_long",
        description: "an answer of many fragments",
        carries: &[Feature::Text],
        end: End::Completed,
        frames,
        input: vec![Message::user("hi")],
    }
}

/// The script of this name.
///
/// # Panics
/// If there is no such script.
#[must_use]
pub fn script(name: &str) -> Script {
    let found = scripts().into_iter().find(|script| script.name == name);
    found.unwrap_or_else(|| panic!("no script is called {name}"))
}

macro_rules! recorded {
    ($($name:literal)+) => {
        &[$(($name, include_bytes!(concat!("../../../tests/transcripts/agentscope/", $name, ".sse")))),+]
    };
}

/// The recorded answers of real servers, byte for byte: name and event stream.
#[must_use]
pub const fn transcripts() -> &'static [(&'static str, &'static [u8])] {
    recorded! {
        "agentscope-approval" "agentscope-audio" "agentscope-builder-data" "agentscope-builder-text"
        "agentscope-builder-whole" "agentscope-busy" "agentscope-captioned" "agentscope-client-tool"
        "agentscope-component" "agentscope-data" "agentscope-empty" "agentscope-error" "agentscope-file"
        "agentscope-heartbeat" "agentscope-image" "agentscope-image64" "agentscope-late-error" "agentscope-long"
        "agentscope-mcp" "agentscope-mcp-list" "agentscope-metadata" "agentscope-open" "agentscope-parallel"
        "agentscope-partial-failure" "agentscope-picture" "agentscope-plain" "agentscope-quota" "agentscope-reasoning"
        "agentscope-refusal" "agentscope-refused-content-string" "agentscope-refused-n"
        "agentscope-refused-null-content" "agentscope-refused-role" "agentscope-stopped" "agentscope-text"
        "agentscope-think" "agentscope-tool" "agentscope-unicode" "agentscope-unknown-type" "agentscope-usage"
        "agentscope-video" "agno-text" "agno-tool" "builder-without-runner" "langgraph-text" "langgraph-tool"
        "langgraph-tool-chunks" "text-late-error" "text-text"
    }
}
