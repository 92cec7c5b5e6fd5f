//! The conversation as messages of this protocol.
//!
//! Not here: what belongs to one assistant message, and which output to which call
//! ([`interlingua_adapter_kit::transcript`]).

use interlingua_adapter_kit::output_parts;
use interlingua_adapter_kit::transcript::{
    AssistantTurn, Entry, OpenCalls, PairedCall, Part, Transcript, TranscriptPart, joined_text,
};
use interlingua_adapter_kit::wire_names::{MAX_CALL_ID, ToolNames, WireIds};
use interlingua_core::model::Content;
use interlingua_core::{ContentKind, Extra, Json, Losses, client_tool, opaque};
use serde::Serialize;
use serde_json::{Map, Value};

use super::RequestBody;
use super::parts::{media_content, user_content};
use crate::connect::options::{ReasoningInput, SystemRole};
use crate::connect::state::ReasoningField;

/// A message of the request.
#[derive(Debug, Default, Serialize)]
pub(super) struct ChatMessage {
    role: &'static str,
    /// `null` is written: servers want the field.
    content: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_opaque: Option<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    thinking_blocks: Vec<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct ChatCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<ChatFunction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<ChatCustom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Json>,
}

#[derive(Debug, Serialize)]
struct ChatFunction {
    name: String,
    arguments: String,
}

/// A call with free text.
#[derive(Debug, Serialize)]
struct ChatCustom {
    name: String,
    input: String,
}

/// The messages of a request. `names`: the declared tools are in it.
pub(super) fn messages(request: &RequestBody<'_>, names: &mut ToolNames, losses: &mut Losses) -> Vec<ChatMessage> {
    let options = request.options;
    let input = &request.turn.request.input;
    let transcript = Transcript::read(input, request.turn.answered, OpenCalls::LeftOut);
    transcript.note_losses(losses);
    let mut writer = Writer {
        request,
        transcript: &transcript,
        names,
        ids: WireIds::new(MAX_CALL_ID),
        losses,
        written: Vec::with_capacity(input.len() + 1),
    };

    let system_role = match options.system_role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
    };
    if let Some(instructions) = &options.instructions {
        writer.write(system_role, Json::from_serialize(instructions));
    }

    for passage in &transcript.passages {
        match passage {
            TranscriptPart::System(entry) => {
                let text = joined_text(&entry.content, writer.losses);
                writer.write(system_role, Json::from_serialize(&text));
            }
            TranscriptPart::User(entry) => {
                let content = user_content(&entry.content, options, writer.losses);
                writer.write("user", content);
            }
            TranscriptPart::Decision(entry) => {
                writer.losses.changed(ContentKind::Approval, "sent as text: the protocol has no approvals");
                for words in transcript.in_words(*entry) {
                    writer.write("user", Json::from_serialize(&words));
                }
            }
            TranscriptPart::Assistant(stretch) => writer.assistant(stretch),
        }
    }

    if options.merge_system {
        merge_system(&mut writer.written);
    }

    writer.written
}

struct Writer<'a> {
    request: &'a RequestBody<'a>,
    transcript: &'a Transcript<'a>,
    names: &'a mut ToolNames,
    ids: WireIds,
    losses: &'a mut Losses,
    written: Vec<ChatMessage>,
}

impl Writer<'_> {
    fn write(&mut self, role: &'static str, content: Json) {
        self.written.push(ChatMessage { role, content: Some(content), ..ChatMessage::default() });
    }

    /// One message of the assistant, and then the outputs of its calls.
    fn assistant(&mut self, stretch: &AssistantTurn<'_>) {
        let mut texts = Vec::new();
        for part in &stretch.parts {
            texts.extend(self.texts(part));
        }

        let mut outputs = Vec::new();
        let mut media = Vec::new();
        let mut tool_calls = Vec::new();
        for pair in stretch.calls() {
            let Some((answer, output)) = &pair.output else { continue };
            if answer.has_failed_output() {
                self.losses.lost(ContentKind::ToolFailure, "an output is a text and nothing else");
            }
            let call = self.call(pair);
            let (text, found) = self.output(&output.output, answer);
            outputs.push(ChatMessage {
                role: "tool",
                content: Some(Json::from_serialize(&text)),
                tool_call_id: Some(call.id.clone()),
                ..ChatMessage::default()
            });
            media.push((pair.call.name.clone(), found));
            tool_calls.push(call);
        }

        if texts.is_empty() && tool_calls.is_empty() {
            // Servers refuse a message that holds nothing but reasoning.
            return;
        }

        let mut message = ChatMessage { role: "assistant", ..ChatMessage::default() };
        if !texts.is_empty() {
            message.content = Some(Json::from_serialize(&texts.join("\n\n")));
        }

        if self.sends_reasoning(!tool_calls.is_empty()) {
            self.reasoning(stretch, &mut message);
        } else {
            for _ in stretch.reasoning() {
                self.losses.lost(ContentKind::History, "earlier reasoning is not sent back");
            }
        }

        message.tool_calls = tool_calls;
        self.written.push(message);
        self.written.extend(outputs);
        // A `tool` message takes text alone, and nothing may stand between the outputs.
        if let Some(content) = media_content(&media, self.request.options, self.losses) {
            self.write("user", content);
        }
    }

    fn call(&mut self, PairedCall { entry, call, .. }: &PairedCall<'_>) -> ChatCall {
        let is_own = opaque::is_author(entry, self.request.origin);
        let id = if is_own && !call.call_id.is_empty() {
            self.ids.keep(&call.call_id)
        } else {
            self.ids.to_wire(&call.call_id)
        };
        let extra_content = self.opaque(*entry, "extra_content");
        if is_own && self.is_custom(entry, &call.name) {
            // A tool of the operator, whose name is sent as it is.
            let custom = ChatCustom { name: call.name.clone(), input: client_tool::free_text(&call.arguments) };
            return ChatCall { id, kind: "custom", function: None, custom: Some(custom), extra_content };
        }
        let function =
            ChatFunction { name: self.names.to_wire(&call.name), arguments: self.arguments(&call.arguments) };
        ChatCall { id, kind: "function", function: Some(function), custom: None, extra_content }
    }

    /// True for a call of a custom tool that the operator configured.
    fn is_custom(&self, entry: &Entry<'_>, name: &str) -> bool {
        let kind = entry.metadata.as_ref().and_then(Json::decode::<Extra>);
        let kind = kind.and_then(|metadata| metadata.get("type")?.decode::<String>());
        let is_configured = |tool: &Map<String, Value>| {
            let custom = tool.get("custom").and_then(Value::as_object).unwrap_or(tool);
            tool.get("type").and_then(Value::as_str) == Some("custom")
                && custom.get("name").and_then(Value::as_str) == Some(name)
        };
        kind.as_deref() == Some("custom_tool_call") && self.request.options.tools.iter().any(is_configured)
    }

    /// The text of an output, and the media in it.
    fn output(&mut self, output: &str, answer: &Entry<'_>) -> (String, Vec<Content>) {
        let Some(parts) = output_parts::parts(output, answer) else { return (output.to_owned(), Vec::new()) };
        let mut text = output_parts::text_of(&parts);
        let media: Vec<Content> = parts.into_iter().filter(output_parts::is_medium).collect();
        if text.is_empty() {
            "(in the next message of the user)".clone_into(&mut text);
        }
        self.losses.changed(ContentKind::ClientOutput, "media in it are sent in a message of the user behind it");
        (text, media)
    }

    fn texts(&mut self, part: &Part<'_>) -> Vec<String> {
        match part {
            Part::Said(entry) => {
                let text = joined_text(&entry.content, self.losses);
                if text.is_empty() { Vec::new() } else { vec![text] }
            }
            Part::Asked(entry) => {
                self.losses.changed(ContentKind::Approval, "sent as text: the protocol has no approvals");
                self.transcript.in_words(*entry)
            }
            Part::Reasoning(_) | Part::Call(_) => Vec::new(),
        }
    }

    fn reasoning(&mut self, stretch: &AssistantTurn<'_>, message: &mut ChatMessage) {
        let texts: Vec<String> =
            stretch.reasoning().map(|entry| entry.text()).filter(|text| !text.is_empty()).collect();
        let text = (!texts.is_empty()).then(|| texts.join("\n\n"));
        match self.request.reasoning.unwrap_or(ReasoningField::ReasoningContent) {
            ReasoningField::ReasoningContent => message.reasoning_content = text,
            ReasoningField::Reasoning => message.reasoning = text,
            ReasoningField::ReasoningText => message.reasoning_text = text,
        }

        for entry in stretch.reasoning() {
            let details = self.opaque(entry, "reasoning_details").and_then(|details| details.decode::<Vec<Json>>());
            message.reasoning_details.extend(details.unwrap_or_default());
            let blocks = self.opaque(entry, "thinking_blocks").and_then(|blocks| blocks.decode::<Vec<Json>>());
            message.thinking_blocks.extend(blocks.unwrap_or_default());
            message.reasoning_opaque = self.opaque(entry, "reasoning_opaque").or(message.reasoning_opaque.take());
        }
    }

    fn sends_reasoning(&self, has_calls: bool) -> bool {
        match self.request.options.reasoning_input {
            ReasoningInput::Never => false,
            ReasoningInput::Always => true,
            ReasoningInput::Auto => has_calls || self.request.reasoning.is_some(),
        }
    }

    /// A value in a message's metadata that its author alone may get back.
    fn opaque(&mut self, entry: Entry<'_>, name: &str) -> Option<Json> {
        let found = entry.metadata.as_ref().and_then(Json::decode::<Extra>)?.get(name).cloned()?;
        if opaque::of_message_may_return(&entry, self.request.origin) {
            return Some(found);
        }
        self.losses.lost(ContentKind::Opaque, "made by another agent");
        None
    }

    /// The arguments as a JSON object. Servers would refuse a history with other arguments in every later request.
    fn arguments(&mut self, arguments: &str) -> String {
        if serde_json::from_str::<Extra>(arguments).is_ok() {
            return arguments.to_owned();
        }
        self.losses.changed(ContentKind::ClientCall, "arguments that are no JSON object are sent as an empty one");
        "{}".to_owned()
    }
}

/// Joins all instructions into one message at the front.
fn merge_system(messages: &mut Vec<ChatMessage>) {
    let is_system = |message: &ChatMessage| matches!(message.role, "system" | "developer");
    let (system, mut rest): (Vec<_>, Vec<_>) = std::mem::take(messages).into_iter().partition(is_system);
    let texts = system.iter().filter_map(|message| message.content.as_ref()?.decode::<String>());
    let text = texts.collect::<Vec<_>>().join("\n\n");
    if let Some(role) = system.first().map(|message| message.role) {
        let content = Some(Json::from_serialize(&text));
        rest.insert(0, ChatMessage { role, content, ..ChatMessage::default() });
    }

    *messages = rest;
}
