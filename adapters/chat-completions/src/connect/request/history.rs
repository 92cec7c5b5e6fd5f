//! The conversation as messages: what belongs to one assistant message, and where the outputs of its calls stand.
//!
//! Servers refuse a call without an output behind it, an output without its call, and a second assistant message before
//! the outputs. Clients and agents of other protocols send all of these.

use std::collections::{HashMap, VecDeque};

use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::connector::TurnRequest;
use interlingua_core::model::{Content, Message, MessageType, Role, ToolCall};
use interlingua_core::pending::{Decision, Pending, approval_id};
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
    let input = &turn.request.input;
    let mut writer = Writer {
        options,
        reasoning,
        outputs: HashMap::new(),
        stretch: Stretch::default(),
        asked: HashMap::new(),
        written: Vec::with_capacity(input.len()),
    };

    for output in input.iter().flat_map(Message::outputs) {
        writer.outputs.entry(output.call_id).or_default().push_back(output.output);
    }

    for item in turn.answered {
        writer.asked.insert(item.id.clone(), item.name.clone());
    }

    input.iter().for_each(|message| writer.message(message));
    writer.end_stretch();
    if options.merge_system {
        merge_system(&mut writer.written);
    }

    writer.written
}

struct Writer<'a> {
    options: &'a UpstreamOptions,
    reasoning: Option<ReasoningField>,
    /// Outputs of calls that were not written yet, by the call's id.
    outputs: HashMap<String, VecDeque<String>>,
    stretch: Stretch,
    /// Names of tools that approval was asked for, by the id of the request.
    asked: HashMap<String, String>,
    written: Vec<ChatMessage>,
}

/// What the assistant said and called until somebody else spoke: one message of this protocol.
#[derive(Debug, Default)]
struct Stretch {
    texts: Vec<String>,
    reasoning: Vec<String>,
    details: Vec<Json>,
    calls: Vec<(ToolCall, Option<Json>)>,
    /// An output for one of its calls came: whatever the assistant says next is another message.
    is_answered: bool,
}

impl Writer<'_> {
    fn message(&mut self, message: &Message) {
        match &message.kind {
            kind if kind.is_call() => self.calls(message),
            // They are written behind their calls.
            kind if kind.is_output() => self.stretch.is_answered = !self.stretch.calls.is_empty(),
            MessageType::Reasoning => self.reasoning(message),
            MessageType::McpApprovalRequest => self.approval_request(message),
            MessageType::McpApprovalResponse => self.approval_response(message),
            MessageType::Heartbeat | MessageType::Error | MessageType::McpListTools => {}
            _ => self.said(message),
        }
    }

    fn said(&mut self, message: &Message) {
        let is = |word: &str| message.role.as_ref().is_some_and(|role| role.as_str() == word);
        if message.role == Some(Role::Assistant) {
            self.assistant_text(plain_text(&message.content));
        } else if message.role == Some(Role::System) || is("developer") {
            let role = match self.options.system_role {
                SystemRole::System => "system",
                SystemRole::Developer => "developer",
            };
            self.write(role, Json::from_serialize(&plain_text(&message.content)));
        } else {
            self.write("user", user_content(&message.content, self.options));
        }
    }

    fn write(&mut self, role: &'static str, content: Json) {
        self.end_stretch();
        self.written.push(ChatMessage { role, content: Some(content), ..ChatMessage::default() });
    }

    fn assistant_text(&mut self, text: String) {
        self.go_on();
        if !text.is_empty() {
            self.stretch.texts.push(text);
        }
    }

    fn reasoning(&mut self, message: &Message) {
        self.go_on();
        let text = message.text();
        if !text.is_empty() {
            self.stretch.reasoning.push(text);
        }

        let metadata: Option<Extra> = message.metadata.as_ref().and_then(Json::decode);
        let details = metadata.and_then(|metadata| metadata.get("reasoning_details")?.decode::<Vec<Json>>());
        self.stretch.details.extend(details.unwrap_or_default());
    }

    fn calls(&mut self, message: &Message) {
        self.go_on();
        let metadata: Option<Extra> = message.metadata.as_ref().and_then(Json::decode);
        let extra = metadata.and_then(|metadata| metadata.get("extra_content").cloned());
        self.stretch.calls.extend(message.calls().map(|call| (call, extra.clone())));
    }

    fn approval_request(&mut self, message: &Message) {
        for item in message.content.iter().filter_map(Content::as_data).filter_map(Pending::parse) {
            let question = item.message.map(|text| format!("{text}\n")).unwrap_or_default();
            self.assistant_text(format!("{question}I ask for approval of {} with {}.", item.name, item.arguments));
            self.asked.insert(item.id, item.name);
        }
    }

    fn approval_response(&mut self, message: &Message) {
        let ids = message.content.iter().filter_map(Content::as_data).filter_map(approval_id);
        let names: Vec<String> = ids.map(|id| self.asked.get(&id).cloned().unwrap_or(id)).collect();
        for (answer, name) in answer::native(message).into_iter().zip(names) {
            let AnswerBody::Decided { decision, arguments, text, .. } = answer.given else { continue };
            let decided = match decision {
                Decision::Accept => format!("I approve {name}."),
                Decision::Edit => format!("I approve {name} with {}.", arguments.unwrap_or_default()),
                Decision::Respond => format!("I answer {name}."),
                Decision::Reject | Decision::Cancel => format!("I do not approve {name}."),
            };
            let said = text.map_or(decided.clone(), |text| format!("{decided} {text}"));
            self.write("user", Json::from_serialize(&said));
        }
    }

    /// The assistant goes on: in another message if its calls were answered.
    fn go_on(&mut self) {
        if self.stretch.is_answered {
            self.end_stretch();
        }
    }

    fn end_stretch(&mut self) {
        let stretch = std::mem::take(&mut self.stretch);
        let mut tool_calls = Vec::new();
        let mut outputs = Vec::new();
        for (call, extra_content) in stretch.calls {
            // A call without an output: servers refuse it.
            let Some(output) = self.outputs.get_mut(&call.call_id).and_then(VecDeque::pop_front) else { continue };
            outputs.push(ChatMessage {
                role: "tool",
                content: Some(Json::from_serialize(&output)),
                tool_call_id: Some(call.call_id.clone()),
                ..ChatMessage::default()
            });
            let function = ChatFunction { name: call.name, arguments: object_or_empty(call.arguments) };
            tool_calls.push(ChatCall { id: call.call_id, kind: "function", function, extra_content });
        }

        if stretch.texts.is_empty() && tool_calls.is_empty() {
            // Servers refuse a message that holds nothing but reasoning.
            return;
        }

        let mut message = ChatMessage { role: "assistant", ..ChatMessage::default() };
        if !stretch.texts.is_empty() {
            message.content = Some(Json::from_serialize(&stretch.texts.join("\n\n")));
        }

        if self.sends_reasoning(!tool_calls.is_empty()) {
            let text = (!stretch.reasoning.is_empty()).then(|| stretch.reasoning.join("\n\n"));
            match self.reasoning.unwrap_or(ReasoningField::ReasoningContent) {
                ReasoningField::ReasoningContent => message.reasoning_content = text,
                ReasoningField::Reasoning => message.reasoning = text,
            }
            message.reasoning_details = stretch.details;
        }

        message.tool_calls = tool_calls;
        self.written.push(message);
        self.written.extend(outputs);
    }

    fn sends_reasoning(&self, has_calls: bool) -> bool {
        match self.options.reasoning_input {
            ReasoningInput::Never => false,
            ReasoningInput::Always => true,
            ReasoningInput::Auto => has_calls || self.reasoning.is_some(),
        }
    }
}

/// Arguments that are a JSON object; others would make servers refuse this history for ever.
fn object_or_empty(arguments: String) -> String {
    match serde_json::from_str::<Extra>(&arguments) {
        Ok(_) => arguments,
        Err(_) => "{}".to_owned(),
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
