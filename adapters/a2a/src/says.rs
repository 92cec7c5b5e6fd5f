//! How what an agent says looks in A2A: artifacts, thoughts, calls, outputs, questions, errors, and the one key under
//! which everything of ours in metadata sits (section 13). Not here: when it is said (`updates`).

use std::borrow::Cow;
use std::sync::LazyLock;

use interlingua_core::answer::{offer, taken};
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::normalize::REJECTED;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::run::{Message, Run, RunError, Slot};
use interlingua_core::{Extra, FaultKind, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::wire::{self, Artifact, Part, Raw, State, made};
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
    /// The run that answered what the task asked, as the id of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answered_by: Option<String>,
}

impl AgentApi<'_> {
    /// The metadata, if there is anything to say.
    pub(crate) fn written(&self) -> Option<Raw<'static>> {
        let nothing = self.usage.is_none()
            && self.incomplete.is_none()
            && self.error.is_none()
            && self.response_id.is_none()
            && self.answered_by.is_none();
        #[derive(Serialize)]
        struct Outer<'a, 'b> {
            agent_api: &'b AgentApi<'a>,
        }
        (!nothing).then(|| made(&Outer { agent_api: self }))
    }
}

/// What an agent that knows A2A hints at in a message's metadata.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Hint {
    state: Option<String>,
    reply: Option<String>,
}

impl Hint {
    pub(crate) fn of(metadata: Option<&Json>) -> Self {
        #[derive(Deserialize)]
        struct Outer {
            a2a: Hint,
        }
        // Nearly all metadata has nothing of this.
        let metadata = metadata.filter(|json| json.text().contains("\"a2a\""));
        metadata.and_then(Json::decode::<Outer>).map(|outer| outer.a2a).unwrap_or_default()
    }

    /// The interrupted state it names.
    pub(crate) fn state(&self) -> Option<State> {
        match self.state.as_deref() {
            Some("input-required") => Some(State::InputRequired),
            Some("auth-required") => Some(State::AuthRequired),
            _ => None,
        }
    }

    /// Whether the answer is a message rather than a task.
    pub(crate) fn wants_message(&self) -> bool {
        self.reply.as_deref() == Some("message")
    }
}

/// An artifact made of a message.
pub(crate) fn artifact<'r>(message: &'r Message, parts: Vec<Part<'r>>) -> Artifact<'r> {
    let name = (message.announced == MessageType::Reasoning).then(|| "reasoning".into());
    Artifact { id: message.id.as_str().into(), name, parts, metadata: None }
}

/// A piece of reasoning, with the annotations other frameworks read.
pub(crate) fn thought(text: &str) -> Part<'_> {
    Part::text(text).with(made(&json!({ "thought": true, "adk_thought": true })))
}

/// The part of a reasoning message's content.
pub(crate) fn reasoning(slot: &Slot) -> Option<Part<'_>> {
    if slot.kind == ContentType::Text {
        return (!slot.text().is_empty()).then(|| thought(slot.text()));
    }
    parts::of_slot(slot).map(|part| part.with(made(&json!({ "thought": true, "adk_thought": true }))))
}

/// Whether a slot's text is told while it grows.
pub(crate) fn is_text(slot: &Slot) -> bool {
    slot.call.is_none() && matches!(slot.kind, ContentType::Text | ContentType::Refusal)
}

/// A piece of a slot's text.
pub(crate) fn text_part<'r>(slot: &Slot, text: &'r str) -> Part<'r> {
    if slot.kind == ContentType::Refusal { parts::refusal(text) } else { Part::text(text) }
}

/// The part of a content that was never told in pieces.
pub(crate) fn finished_part<'r>(message: &Message, slot: &'r Slot) -> Option<Part<'r>> {
    let mut part = if is_text(slot) { text_part(slot, slot.text()) } else { parts::of_slot(slot)? };
    if matches!(message.announced, MessageType::A2uiResponse | MessageType::A2uiAction) {
        part.media_type = Some(A2UI.into());
    }
    Some(part)
}

/// All contents of a message as parts.
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
struct ToolMark<'a> {
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

fn mark(word: &'static str, kind: &MessageType, server_label: Option<&str>) -> Raw<'static> {
    made(&ToolMark { r#type: word, adk_type: word, agent_api: ToolKind { r#type: kind, server_label } })
}

/// The calls in a message.
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
        let mark = mark("function_call", &message.announced, head.server_label.as_deref());
        Some(Part::data(made(&call)).with(mark))
    };
    message.slots.iter().filter_map(part).collect()
}

/// Arguments as an object, or the text in one.
fn arguments(text: &str) -> Json {
    if text.trim().is_empty() {
        return Json::from_serialize(&json!({}));
    }
    let parsed = Json::parse(text).filter(Json::is_object);
    parsed.unwrap_or_else(|| Json::from_serialize(&json!({ "arguments": text })))
}

/// How many messages back an output's call is looked for.
const NEAR: usize = 512;

/// The outputs in a message, with the names of their calls.
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
        // The call stands shortly before its output. One that does not is not looked for far: it only lends its name.
        let heads = run
            .messages
            .iter()
            .rev()
            .take(NEAR)
            .flat_map(|message| &message.slots)
            .filter_map(|slot| slot.call.as_ref());
        let head = heads.into_iter().find(|head| head.call_id == output.call_id);
        let name = output.name.as_deref().or(head.map(|head| head.name.as_str())).unwrap_or("");
        let label = head.and_then(|head| head.server_label.as_deref());
        let told = Output { id: &output.call_id, name, response: Response { output: &output.output } };
        Some(Part::data(made(&told)).with(mark("function_response", &message.announced, label)))
    };
    message.slots.iter().filter_map(part).collect()
}

/// A message of a type that has no form in A2A: its contents as data.
pub(crate) fn unknown(message: &Message) -> Vec<Part<'_>> {
    #[derive(Serialize)]
    struct Mark<'a> {
        agent_api: ToolKind<'a>,
    }
    let mark = made(&Mark { agent_api: ToolKind { r#type: &message.announced, server_label: None } });
    let part = |slot: &Slot| match slot.data() {
        Some(data) => Part::data(made(data)),
        None => Part::data(made(&slot.content())),
    };
    message.slots.iter().map(|slot| part(slot).with(mark.clone())).collect()
}

/// A question: what to show people, and one data part for each item (human-in-the-loop page, section 5).
pub(crate) fn asks<'r>(run: &'r Run, turn: usize, pending: &[Pending], edits: bool) -> wire::Message<'r> {
    let prompts: Vec<String> = pending.iter().map(prompt).collect();
    let mut parts = vec![Part::text(prompts.join("\n"))];
    parts.extend(pending.iter().map(|item| Part::data(item_data(item, edits))));
    let id = pending.first().and_then(|first| asking(run, turn, first));
    let id = id.map_or_else(|| Cow::Owned(status_id(run, turn, "asks")), Cow::Borrowed);
    wire::Message::agent(id, parts)
}

/// The id of a status message that has no native one.
fn status_id(run: &Run, turn: usize, word: &str) -> String {
    format!("{}_{word}_{turn}", run.id.to_prefixed("status_"))
}

/// The id of the message that asked.
fn asking<'r>(run: &'r Run, turn: usize, item: &Pending) -> Option<&'r str> {
    let asks = |message: &&Message| match message.kind {
        MessageType::FunctionCall => {
            message.slots.iter().any(|slot| slot.call.as_ref().is_some_and(|head| head.call_id == item.id))
        }
        MessageType::McpApprovalRequest => {
            let ids = message.slots.iter().filter_map(|slot| interlingua_core::pending::approval_id(slot.data()?));
            ids.into_iter().any(|id| id == item.id)
        }
        _ => false,
    };
    run.messages_of(turn).iter().find(asks).map(|message| message.id.as_str())
}

/// The prompt for a person.
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

/// The data part of an item.
fn item_data(item: &Pending, edits: bool) -> Raw<'static> {
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
        return made(&Tool { function_call: Call { call_id: &item.id, name: &item.name, arguments: &item.arguments } });
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
        decisions: offer(item, taken(item, edits)),
        response_schema: item.response_schema.as_ref(),
        expires_at: item.expires_at.as_deref(),
        payload: item.payload.as_ref(),
    });
    let mut outer = Extra::new();
    outer.push("interrupt", interrupt);
    made(&outer)
}

/// What a task says that failed because its answer was cut off.
pub(crate) static CUT_OFF: LazyLock<RunError> =
    LazyLock::new(|| RunError { code: "INCOMPLETE".to_owned(), message: "the agent's answer was cut off".to_owned() });

/// Whether an error stands for a reason the agent did not give.
pub(crate) fn gives_no_reason(error: &RunError) -> bool {
    error.code == FaultKind::AgentFailed.code() && error.message == REJECTED
}

/// What went wrong.
pub(crate) fn error<'r>(run: &'r Run, turn: u32, error: &'r RunError) -> wire::Message<'r> {
    let id = status_id(run, turn as usize, "end");
    let mut message = wire::Message::agent(id, vec![Part::text(error.message.as_str())]);
    message.metadata = AgentApi { error: Some(error), ..AgentApi::default() }.written();
    message
}
