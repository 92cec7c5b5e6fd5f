//! The conversation as messages of this protocol.
//!
//! Not here: what belongs to one assistant message, and which output to which call ([`interlingua_core::transcript`]).

use interlingua_core::transcript::{Entry, OpenCalls, PairedCall, Part, Passage, Stretch, Transcript, joined_text};
use interlingua_core::{ContentKind, Extra, Json, Losses, opaque};
use serde::Serialize;

use super::RequestBody;
use super::parts::user_content;
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Json>,
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
    function: ChatFunction,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Json>,
}

#[derive(Debug, Serialize)]
struct ChatFunction {
    name: String,
    arguments: String,
}

/// The messages of a request.
pub(super) fn messages(request: &RequestBody<'_>, losses: &mut Losses) -> Vec<ChatMessage> {
    let options = request.options;
    let input = &request.turn.request.input;
    let transcript = Transcript::read(input, request.turn.answered, OpenCalls::LeftOut);
    transcript.note_losses(losses);
    let mut writer = Writer { request, transcript: &transcript, losses, written: Vec::with_capacity(input.len() + 1) };

    let system_role = match options.system_role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
    };
    if let Some(instructions) = &options.instructions {
        writer.write(system_role, Json::from_serialize(instructions));
    }

    for passage in &transcript.passages {
        match passage {
            Passage::System(entry) => {
                let text = joined_text(&entry.content, writer.losses);
                writer.write(system_role, Json::from_serialize(&text));
            }
            Passage::User(entry) => {
                let content = user_content(&entry.content, options, writer.losses);
                writer.write("user", content);
            }
            Passage::Decision(entry) => {
                writer.losses.changed(ContentKind::Approval, "sent as text: the protocol has no approvals");
                for words in transcript.in_words(*entry) {
                    writer.write("user", Json::from_serialize(&words));
                }
            }
            Passage::Assistant(stretch) => writer.assistant(stretch),
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
    losses: &'a mut Losses,
    written: Vec<ChatMessage>,
}

impl Writer<'_> {
    fn write(&mut self, role: &'static str, content: Json) {
        self.written.push(ChatMessage { role, content: Some(content), ..ChatMessage::default() });
    }

    /// One message of the assistant, and the outputs of its calls behind it.
    fn assistant(&mut self, stretch: &Stretch<'_>) {
        let mut texts = Vec::new();
        for part in &stretch.parts {
            texts.extend(self.texts(part));
        }

        let mut outputs = Vec::new();
        let mut tool_calls = Vec::new();
        for PairedCall { entry, call, output } in stretch.calls() {
            let Some((said, output)) = output else { continue };
            if said.has_failed_output() {
                self.losses.lost(ContentKind::ToolFailure, "an output is a text and nothing else");
            }
            outputs.push(ChatMessage {
                role: "tool",
                content: Some(Json::from_serialize(&output.output)),
                tool_call_id: Some(call.call_id.clone()),
                ..ChatMessage::default()
            });
            let function = ChatFunction { name: call.name.clone(), arguments: self.arguments(&call.arguments) };
            let extra_content = self.opaque(*entry, "extra_content");
            tool_calls.push(ChatCall { id: call.call_id.clone(), kind: "function", function, extra_content });
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
    }

    /// What a part says in words.
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

    fn reasoning(&mut self, stretch: &Stretch<'_>, message: &mut ChatMessage) {
        let texts: Vec<String> =
            stretch.reasoning().map(|entry| entry.text()).filter(|text| !text.is_empty()).collect();
        let text = (!texts.is_empty()).then(|| texts.join("\n\n"));
        match self.request.reasoning.unwrap_or(ReasoningField::ReasoningContent) {
            ReasoningField::ReasoningContent => message.reasoning_content = text,
            ReasoningField::Reasoning => message.reasoning = text,
        }

        for entry in stretch.reasoning() {
            let details = self.opaque(entry, "reasoning_details").and_then(|details| details.decode::<Vec<Json>>());
            message.reasoning_details.extend(details.unwrap_or_default());
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

    /// Arguments that are a JSON object; others would make servers refuse this history for ever.
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
