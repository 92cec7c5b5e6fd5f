//! Renders agent output as A2A objects: artifacts, reasoning, tool calls and outputs, questions, errors. All gateway
//! metadata is under one key, `agent_api` (docs/protocols/a2a.md#metadata). Not here: when each is sent (`updates`).

use std::borrow::Cow;
use std::sync::LazyLock;

use interlingua_core::answer::offer;
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::normalize::REJECTED;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::run::{Message, Run, RunError, Slot};
use interlingua_core::{Extra, FaultKind, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::wire::{self, Artifact, Part, Raw, TaskState, to_raw};
use crate::{A2UI, parts};

/// `agent_api` in metadata.
#[derive(Default, Serialize)]
pub(crate) struct AgentApi<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a RunError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_id: Option<&'a str>,
    /// Task id of the run that answered this task's question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answered_by: Option<String>,
}

impl AgentApi<'_> {
    /// The metadata object. `None` if every field is empty.
    pub(crate) fn to_metadata(&self) -> Option<Raw<'static>> {
        let is_empty = self.usage.is_none()
            && self.incomplete.is_none()
            && self.error.is_none()
            && self.response_id.is_none()
            && self.answered_by.is_none();
        #[derive(Serialize)]
        struct Outer<'a, 'b> {
            agent_api: &'b AgentApi<'a>,
        }

        (!is_empty).then(|| to_raw(&Outer { agent_api: self }))
    }
}

/// Hints in `metadata.a2a` of a message, from agents that know A2A.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Hint {
    state: Option<String>,
    reply: Option<String>,
}

impl Hint {
    pub(crate) fn from_metadata(metadata: Option<&Json>) -> Self {
        #[derive(Deserialize)]
        struct Outer {
            a2a: Hint,
        }
        // Cheap check first: most metadata has no hints.
        let metadata = metadata.filter(|json| json.text().contains("\"a2a\""));
        metadata.and_then(Json::decode::<Outer>).map(|outer| outer.a2a).unwrap_or_default()
    }

    /// The interrupted state the agent asks for.
    pub(crate) fn state(&self) -> Option<TaskState> {
        match self.state.as_deref() {
            Some("input-required") => Some(TaskState::InputRequired),
            Some("auth-required") => Some(TaskState::AuthRequired),
            _ => None,
        }
    }

    /// True if the agent asks to reply with a message instead of a task.
    pub(crate) fn wants_message(&self) -> bool {
        self.reply.as_deref() == Some("message")
    }
}

pub(crate) fn artifact<'r>(message: &'r Message, parts: Vec<Part<'r>>) -> Artifact<'r> {
    let name = (message.announced == MessageType::Reasoning).then(|| "reasoning".into());
    Artifact { id: message.id.as_str().into(), name, parts, metadata: None }
}

/// A part with reasoning text, marked in the way that ADK and others read.
pub(crate) fn reasoning_text(text: &str) -> Part<'_> {
    Part::text(text).with_metadata(to_raw(&json!({ "thought": true, "adk_thought": true })))
}

/// The part for one content of a reasoning message.
pub(crate) fn reasoning_part(slot: &Slot) -> Option<Part<'_>> {
    if slot.kind == ContentType::Text {
        return (!slot.text().is_empty()).then(|| reasoning_text(slot.text()));
    }
    parts::of_slot(slot).map(|part| part.with_metadata(to_raw(&json!({ "thought": true, "adk_thought": true }))))
}

/// True if the text of a slot is streamed while it grows.
pub(crate) fn is_text(slot: &Slot) -> bool {
    slot.call.is_none() && matches!(slot.kind, ContentType::Text | ContentType::Refusal)
}

/// The part for a piece of a slot's text.
pub(crate) fn text_part<'r>(slot: &Slot, text: &'r str) -> Part<'r> {
    if slot.kind == ContentType::Refusal { parts::refusal(text) } else { Part::text(text) }
}

/// The part for a content that was not streamed.
pub(crate) fn finished_part<'r>(message: &Message, slot: &'r Slot) -> Option<Part<'r>> {
    let mut part = if is_text(slot) { text_part(slot, slot.text()) } else { parts::of_slot(slot)? };
    if matches!(message.announced, MessageType::A2uiResponse | MessageType::A2uiAction) {
        part.media_type = Some(A2UI.into());
    }
    Some(part)
}

pub(crate) fn contents(message: &Message) -> Vec<Part<'_>> {
    let part = |slot| -> Option<Part<'_>> {
        let slot: &Slot = slot;
        match slot.kind {
            ContentType::Text => Some(Part::text(slot.text())),
            ContentType::Refusal => Some(parts::refusal(slot.text())),
            _ => parts::of_slot(slot),
        }
    };
    message.slots.iter().filter_map(part).collect()
}

#[derive(Serialize)]
struct ToolMetadata<'a> {
    r#type: &'static str,
    adk_type: &'static str,
    agent_api: ToolKind<'a>,
}

#[derive(Serialize)]
struct ToolKind<'a> {
    r#type: &'a MessageType,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_label: Option<&'a str>,
}

fn tool_metadata(name: &'static str, kind: &MessageType, server_label: Option<&str>) -> Raw<'static> {
    to_raw(&ToolMetadata { r#type: name, adk_type: name, agent_api: ToolKind { r#type: kind, server_label } })
}

/// The tool calls of a message.
pub(crate) fn calls(message: &Message) -> Vec<Part<'_>> {
    #[derive(Serialize)]
    struct Call<'a> {
        id: &'a str,
        name: &'a str,
        args: Json,
    }
    let part = |slot: &Slot| {
        let head = slot.call.as_ref()?;
        let call = Call { id: &head.call_id, name: &head.name, args: arguments(slot.text()) };
        let metadata = tool_metadata("function_call", &message.announced, head.server_label.as_deref());
        Some(Part::data(to_raw(&call)).with_metadata(metadata))
    };
    message.slots.iter().filter_map(part).collect()
}

/// Arguments as an object; text that is not a JSON object is wrapped in one.
fn arguments(text: &str) -> Json {
    if text.trim().is_empty() {
        return Json::from_serialize(&json!({}));
    }

    let parsed = Json::parse(text).filter(Json::is_object);
    parsed.unwrap_or_else(|| Json::from_serialize(&json!({ "arguments": text })))
}

/// Maximum number of messages before an output among which its call is searched.
const MAX_CALL_DISTANCE: usize = 512;

/// The tool outputs of a message, with the names of their calls.
pub(crate) fn outputs<'r>(run: &'r Run, message: &'r Message) -> Vec<Part<'r>> {
    #[derive(Serialize)]
    struct Output<'a> {
        id: &'a str,
        name: &'a str,
        response: Response<'a>,
    }
    #[derive(Serialize)]
    struct Response<'a> {
        output: &'a str,
    }
    let part = |slot: &Slot| {
        let output = slot.output()?;
        // The call usually precedes its output closely. The search is bounded, since it only supplies the name.
        let heads = run
            .messages
            .iter()
            .rev()
            .take(MAX_CALL_DISTANCE)
            .flat_map(|message| &message.slots)
            .filter_map(|slot| slot.call.as_ref());

        let head = heads.into_iter().find(|head| head.call_id == output.call_id);
        let name = output.name.as_deref().or(head.map(|head| head.name.as_str())).unwrap_or("");
        let label = head.and_then(|head| head.server_label.as_deref());

        let output = Output { id: &output.call_id, name, response: Response { output: &output.output } };
        Some(Part::data(to_raw(&output)).with_metadata(tool_metadata("function_response", &message.announced, label)))
    };
    message.slots.iter().filter_map(part).collect()
}

/// Contents as data parts, for message types that A2A does not have.
pub(crate) fn as_data(message: &Message) -> Vec<Part<'_>> {
    #[derive(Serialize)]
    struct TypeMetadata<'a> {
        agent_api: ToolKind<'a>,
    }
    let metadata = to_raw(&TypeMetadata { agent_api: ToolKind { r#type: &message.announced, server_label: None } });
    let part = |slot: &Slot| match slot.data() {
        Some(data) => Part::data(to_raw(data)),
        None => Part::data(to_raw(&slot.content())),
    };
    message.slots.iter().map(|slot| part(slot).with_metadata(metadata.clone())).collect()
}

/// A question: a prompt for people, and one data part per pending item (docs/human-in-the-loop.md#asking).
pub(crate) fn question<'r>(
    run: &'r Run,
    turn: usize,
    pending: &[Pending],
    taken: &'static [Decision],
) -> wire::Message<'r> {
    let prompts: Vec<String> = pending.iter().map(prompt).collect();
    let mut parts = vec![Part::text(prompts.join("\n"))];
    parts.extend(pending.iter().map(|item| Part::data(item_data(item, taken))));

    let id = pending.first().and_then(|first| asking_message_id(run, turn, first));
    let id = id.map_or_else(|| Cow::Owned(status_id(run, turn, "asks")), Cow::Borrowed);

    wire::Message::agent(id, parts)
}

/// Id for a status message that has no message in the run.
fn status_id(run: &Run, turn: usize, name: &str) -> String {
    format!("{}_{name}_{turn}", run.id.to_prefixed("status_"))
}

/// Id of the message that asked for this item. `None`: an earlier status has that id, or no message asked.
fn asking_message_id<'r>(run: &'r Run, turn: usize, item: &Pending) -> Option<&'r str> {
    let has_item = |message: &&Message| match message.kind {
        MessageType::FunctionCall => {
            message.slots.iter().any(|slot| slot.call.as_ref().is_some_and(|head| head.call_id == item.id))
        }
        MessageType::McpApprovalRequest => {
            let ids = message.slots.iter().filter_map(|slot| interlingua_core::pending::approval_id(slot.data()?));
            ids.into_iter().any(|id| id == item.id)
        }
        _ => false,
    };
    let messages = run.messages_of(turn);
    let message = messages.iter().find(has_item)?;

    // A call of the agent, and a call that has its output, had a status of their own.
    let had_status = message.announced != message.kind
        || messages.iter().filter(|other| other.kind.is_output()).flat_map(|other| &other.slots).any(|slot| {
            let call = slot.output().map(|output| output.call_id);
            message.slots.iter().filter_map(|slot| slot.call.as_ref()).any(|head| Some(&head.call_id) == call.as_ref())
        });
    (!had_status).then_some(message.id.as_str())
}

/// Prompt text for people.
fn prompt(item: &Pending) -> String {
    if let Some(message) = item.message.as_deref().filter(|message| !message.is_empty()) {
        return message.to_owned();
    }
    match item.kind {
        PendingKind::Tool => format!("Please run the tool '{}' and send its output.", item.name),
        PendingKind::Approval => format!("Please approve or reject the call of '{}'.", item.name),
        PendingKind::Input => "Please answer.".to_owned(),
        PendingKind::Auth => "Please sign in.".to_owned(),
    }
}

/// Data part of a pending item.
fn item_data(item: &Pending, taken: &'static [Decision]) -> Raw<'static> {
    #[derive(Serialize)]
    struct Tool<'a> {
        function_call: Call<'a>,
    }
    #[derive(Serialize)]
    struct Call<'a> {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    }
    #[derive(Serialize)]
    struct Interrupt<'a> {
        id: &'a str,
        kind: PendingKind,
        name: &'a str,
        arguments: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        server_label: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        call_id: Option<&'a str>,
        decisions: Vec<Decision>,
        #[serde(skip_serializing_if = "Option::is_none")]
        response_schema: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a Json>,
    }

    if item.kind == PendingKind::Tool {
        return to_raw(&Tool {
            function_call: Call { call_id: &item.id, name: &item.name, arguments: &item.arguments },
        });
    }

    let interrupt = Json::from_serialize(&Interrupt {
        id: &item.id,
        kind: item.kind,
        name: &item.name,
        arguments: &item.arguments,
        server_label: item.server_label.as_deref(),
        reason: item.reason.as_deref(),
        message: item.message.as_deref(),
        call_id: item.call_id.as_deref(),
        decisions: offer(item, taken),
        response_schema: item.response_schema.as_ref(),
        expires_at: item.expires_at.as_deref(),
        payload: item.payload.as_ref(),
    });

    let mut outer = Extra::new();
    outer.push("interrupt", interrupt);
    to_raw(&outer)
}

/// The error of a task that failed because the agent's answer was cut off.
pub(crate) static CUT_OFF: LazyLock<RunError> =
    LazyLock::new(|| RunError { code: "INCOMPLETE".to_owned(), message: "the agent's answer was cut off".to_owned() });

/// True if the agent rejected the request without a reason.
pub(crate) fn has_no_reason(error: &RunError) -> bool {
    error.code == FaultKind::AgentFailed.code() && error.message == REJECTED
}

/// The status message for an error.
pub(crate) fn error<'r>(run: &'r Run, turn: u32, error: &'r RunError) -> wire::Message<'r> {
    let id = status_id(run, turn as usize, "end");
    let mut message = wire::Message::agent(id, vec![Part::text(error.message.as_str())]);
    message.metadata = AgentApi { error: Some(error), ..AgentApi::default() }.to_metadata();
    message
}
