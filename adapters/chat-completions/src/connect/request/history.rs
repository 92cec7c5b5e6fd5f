//! The conversation as messages of this protocol.
//!
//! Not here: what belongs to one assistant message, and which output to which call ([`interlingua_core::transcript`]).

use interlingua_core::connector::TurnRequest;
use interlingua_core::model::Message;
use interlingua_core::transcript::{OpenCalls, PairedCall, Part, Passage, Stretch, Transcript};
use interlingua_core::{Extra, Json};
use serde::Serialize;

use super::parts::{plain_text, user_content};
use crate::connect::options::{ReasoningInput, SystemRole, UpstreamOptions};
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

/// The messages of a request. `reasoning`: the field that this server's reasoning comes in, if it sent some in this session.
pub(super) fn messages(
    turn: &TurnRequest<'_>,
    options: &UpstreamOptions,
    reasoning: Option<ReasoningField>,
) -> Vec<ChatMessage> {
    let transcript = Transcript::read(&turn.request.input, turn.answered, OpenCalls::LeftOut);
    let mut writer =
        Writer { options, reasoning, transcript: &transcript, written: Vec::with_capacity(turn.request.input.len()) };

    for passage in &transcript.passages {
        match passage {
            Passage::System(entry) => {
                let role = match options.system_role {
                    SystemRole::System => "system",
                    SystemRole::Developer => "developer",
                };
                writer.write(role, Json::from_serialize(&plain_text(&entry.content)));
            }
            Passage::User(entry) => writer.write("user", user_content(&entry.content, options)),
            Passage::Decision(entry) => {
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
    options: &'a UpstreamOptions,
    reasoning: Option<ReasoningField>,
    transcript: &'a Transcript<'a>,
    written: Vec<ChatMessage>,
}

impl Writer<'_> {
    fn write(&mut self, role: &'static str, content: Json) {
        self.written.push(ChatMessage { role, content: Some(content), ..ChatMessage::default() });
    }

    /// One message of the assistant, and the outputs of its calls behind it.
    fn assistant(&mut self, stretch: &Stretch<'_>) {
        let texts: Vec<String> = stretch.parts.iter().flat_map(|part| self.texts(part)).collect();
        let mut outputs = Vec::new();
        let mut tool_calls = Vec::new();
        for PairedCall { entry, call, output } in stretch.calls() {
            let Some((_, output)) = output else { continue };
            outputs.push(ChatMessage {
                role: "tool",
                content: Some(Json::from_serialize(&output.output)),
                tool_call_id: Some(call.call_id.clone()),
                ..ChatMessage::default()
            });
            let function = ChatFunction { name: call.name.clone(), arguments: object_or_empty(&call.arguments) };
            let extra_content = metadata(entry).get("extra_content").cloned();
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
        }

        message.tool_calls = tool_calls;
        self.written.push(message);
        self.written.extend(outputs);
    }

    /// What a part says in words.
    fn texts(&self, part: &Part<'_>) -> Vec<String> {
        match part {
            Part::Said(entry) => {
                let text = plain_text(&entry.content);
                if text.is_empty() { Vec::new() } else { vec![text] }
            }
            Part::Asked(entry) => self.transcript.in_words(*entry),
            Part::Reasoning(_) | Part::Call(_) => Vec::new(),
        }
    }

    fn reasoning(&self, stretch: &Stretch<'_>, message: &mut ChatMessage) {
        let texts: Vec<String> =
            stretch.reasoning().map(|entry| entry.text()).filter(|text| !text.is_empty()).collect();
        let text = (!texts.is_empty()).then(|| texts.join("\n\n"));
        match self.reasoning.unwrap_or(ReasoningField::ReasoningContent) {
            ReasoningField::ReasoningContent => message.reasoning_content = text,
            ReasoningField::Reasoning => message.reasoning = text,
        }

        for entry in stretch.reasoning() {
            let details = metadata(&entry).get("reasoning_details").and_then(Json::decode::<Vec<Json>>);
            message.reasoning_details.extend(details.unwrap_or_default());
        }
    }

    fn sends_reasoning(&self, has_calls: bool) -> bool {
        match self.options.reasoning_input {
            ReasoningInput::Never => false,
            ReasoningInput::Always => true,
            ReasoningInput::Auto => has_calls || self.reasoning.is_some(),
        }
    }
}

fn metadata(message: &Message) -> Extra {
    message.metadata.as_ref().and_then(Json::decode).unwrap_or_default()
}

/// Arguments that are a JSON object; others would make servers refuse this history for ever.
fn object_or_empty(arguments: &str) -> String {
    let is_object = serde_json::from_str::<Extra>(arguments).is_ok();
    if is_object { arguments.to_owned() } else { "{}".to_owned() }
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
