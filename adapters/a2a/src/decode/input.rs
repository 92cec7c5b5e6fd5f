//! Converts client messages to messages and answers of the Agent API, and back for a task's history
//! (docs/protocols/a2a.md#what-the-agent-receives; docs/human-in-the-loop.md#answering).
//!
//! Fields that the Agent API lacks travel in `metadata.a2a`, so the history shows every message unchanged.

use std::borrow::Cow;

use interlingua_core::answer::{Answer, AnswerBody, AnswerError, AnswerMessage, decide, offer};
use interlingua_core::model::{self, Content, MessageType, ToolOutput};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, Json, Run};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::dialect::WireFormat;
use crate::parts;
use crate::wire::read::{self, Faults};
use crate::wire::{self, Message, Part, Role};

/// A client message, parsed for the pending items of its task.
#[derive(Debug)]
pub(crate) struct ParsedInput {
    /// Messages for the agent.
    pub(crate) messages: Vec<model::Message>,
    /// Answers to pending items. While a required answer is missing, the agent gets no message.
    pub(crate) answers: Vec<Answer>,
}

/// Parses a message, given the pending items of its task. Never approves by default. `taken`: the decisions that the
/// agent accepts.
pub(crate) fn parse(message: &Message<'_>, pending: &[Pending], taken: &'static [Decision]) -> ParsedInput {
    let mut answers = Vec::new();
    let mut outputs = Vec::new();
    let mut plain = Vec::new();

    for part in &message.parts {
        if let Some(output) = tool_output(part) {
            outputs.push(output);
        } else if let Some(answer) = answer(part) {
            answers.push(answer);
        } else {
            plain.push(part);
        }
    }

    let mut must_be_answered = pending.iter().filter(|item| item.kind != PendingKind::Tool);
    let is_decided = match (must_be_answered.next(), must_be_answered.next()) {
        (Some(item), None) if answers.is_empty() => match unnamed_answer(&plain) {
            // Unclear text is an ordinary message. Any other undecided answer is an error that the engine reports.
            Some(given @ AnswerBody::Text(_))
                if matches!(decide(item, &given, &offer(item, taken)), Err(AnswerError::Unclear(_))) =>
            {
                false
            }
            Some(given) => {
                answers.push(Answer::new(item.id.clone(), given));
                plain.clear();
                true
            }
            None => false,
        },
        // Text does not say which of several items it answers.
        (Some(_), Some(_)) => !answers.is_empty(),
        _ => true,
    };

    if !is_decided {
        // The message stays in the history although it answers nothing.
        outputs.clear();
        plain = message.parts.iter().collect();
    }

    if !answers.is_empty() {
        // Text next to an answer is a comment for people: it stays in the history only.
        plain.retain(|part| !matches!(part.content, wire::Content::Text(_)));
    }

    let is_complete = outputs.is_empty() && plain.len() == message.parts.len();
    // If the message is split, the first resulting answer or message carries the complete original.
    for (nth, answer) in answers.iter_mut().enumerate() {
        let id = (nth == 0).then(|| message.id.clone().into_owned());
        answer.said = Some(AnswerMessage {
            id,
            metadata: Some(origin_metadata(message, nth == 0, false, &[])),
            ..AnswerMessage::default()
        });
    }

    let has_answers = !answers.is_empty();
    let mut messages = Vec::new();
    for (output, is_error) in &outputs {
        let mut native =
            model::Message::new(MessageType::FunctionCallOutput, Some(model::Role::Tool), vec![Content::data(output)]);
        if *is_error {
            native.mark_failed_output();
        }
        native.metadata = Some(origin_metadata(message, !has_answers && messages.is_empty(), false, &[]));
        messages.push(native);
    }

    if !plain.is_empty() {
        let contents = plain.iter().map(|part| parts::to_content(part)).collect();
        let mut native = model::Message::new(MessageType::Message, Some(model::Role::User), contents);
        native.metadata = Some(origin_metadata(message, !has_answers && messages.is_empty(), is_complete, &plain));
        messages.push(native);
    }

    if let Some(first) = messages.first_mut().filter(|_| !has_answers) {
        first.id = Some(message.id.clone().into_owned());
    }

    ParsedInput { messages, answers }
}

/// Checks that the task is waiting for each tool output in the message.
///
/// # Errors
/// `Invalid`, naming the part, for an output of an unknown call.
pub(crate) fn check_outputs(message: &Message<'_>, pending: &[Pending]) -> Result<(), Fault> {
    for (index, part) in message.parts.iter().enumerate() {
        if let Some((output, _)) = tool_output(part)
            && !pending.iter().any(|item| item.id == output.call_id || item.call_id.as_deref() == Some(&output.call_id))
        {
            let message = format!("the task is not waiting for an output of '{}'", output.call_id);
            return Err(Fault::invalid(format!("message.parts[{index}]"), message));
        }
    }
    Ok(())
}

/// An answer without an item id, for the only pending item: the single data part, else the text.
fn unnamed_answer(plain: &[&Part<'_>]) -> Option<AnswerBody> {
    let mut data = plain.iter().filter_map(|part| match &part.content {
        wire::Content::Data(data) => Some(data),
        _ => None,
    });
    if let Some(first) = data.next() {
        return data.next().is_none().then(|| AnswerBody::Payload(Json::from_raw(first)));
    }

    let texts: Vec<&str> = plain
        .iter()
        .filter_map(|part| match &part.content {
            wire::Content::Text(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| AnswerBody::Text(texts.concat()))
}

/// The answer in a data part with an item id.
fn answer(part: &Part<'_>) -> Option<Answer> {
    let wire::Content::Data(data) = &part.content else { return None };
    let id = text_field(data, ID_FIELDS)?;
    // The id fields are removed: the agent gets the same answer from every protocol.
    let fields: Extra = serde_json::from_str(data.get()).ok()?;
    let mut answer = Extra::new();
    fields
        .iter()
        .filter(|(name, _)| !ID_FIELDS.contains(name))
        .for_each(|(name, value)| answer.push(name, value.clone()));
    Some(Answer::new(id, AnswerBody::Payload(Json::from_serialize(&answer))))
}

/// Fields that may hold the id of the answered item.
const ID_FIELDS: &[&str] = &["interrupt_id", "interruptId", "approval_request_id", "approvalRequestId"];

/// The tool output in a data part: `function_call_output`, or a `function_response` marked in part metadata. True if
/// the tool failed: `is_error` of the first, `error` in the response of the second.
fn tool_output(part: &Part<'_>) -> Option<(ToolOutput, bool)> {
    #[derive(Deserialize)]
    struct Native {
        function_call_output: Json,
    }
    #[derive(Deserialize)]
    struct Failure {
        is_error: bool,
    }
    #[derive(Deserialize)]
    struct Response {
        id: String,
        name: Option<String>,
        response: Json,
    }
    let wire::Content::Data(data) = &part.content else { return None };
    if let Ok(native) = serde_json::from_str::<Native>(data.get()) {
        let output = native.function_call_output.decode::<ToolOutput>()?;
        let is_error = native.function_call_output.decode::<Failure>().is_some_and(|failure| failure.is_error);
        return (!output.call_id.is_empty()).then_some((output, is_error));
    }

    let marked = text_field(part.metadata.as_ref()?, &["type", "adk_type"]);
    if marked.as_deref() != Some("function_response") {
        return None;
    }

    let response: Response = serde_json::from_str(data.get()).ok()?;
    let fields = response.response.decode::<Extra>().unwrap_or_default();
    let text = |name: &str| fields.get(name).and_then(Json::decode::<String>);
    let error = text("error").filter(|_| fields.get("output").is_none());
    let is_error = error.is_some();
    let inner = text("output").or(error);
    let output = inner.or_else(|| response.response.decode()).unwrap_or_else(|| response.response.text().to_owned());

    Some((ToolOutput { call_id: response.id, name: response.name, output }, is_error))
}

/// The first of these fields that holds a non-empty string.
fn text_field(object: &RawValue, names: &[&str]) -> Option<String> {
    if !object.get().starts_with('{') {
        return None;
    }
    let fields: Extra = serde_json::from_str(object.get()).ok()?;
    names.iter().find_map(|name| fields.get(name)?.decode::<String>().filter(|text| !text.is_empty()))
}

/// `metadata.a2a` of an Agent API message.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Origin {
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reference_task_ids: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Json>,
    /// One entry per content; `null` if the content loses nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Json>,
    /// The complete message as sent, if it cannot be rebuilt from the contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<Json>,
    /// True if another message already carries the complete original.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continued: bool,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    a2a: Origin,
}

fn origin_metadata(message: &Message<'_>, first: bool, is_complete: bool, plain: &[&Part<'_>]) -> Json {
    let to_owned_texts = |texts: &[Cow<'_, str>]| texts.iter().map(|text| text.clone().into_owned()).collect();
    let mut extras: Vec<Json> = plain.iter().map(|part| parts::extras(part).unwrap_or_else(Json::null)).collect();
    while extras.last().is_some_and(Json::is_null) {
        extras.pop();
    }

    Json::from_serialize(&Metadata {
        a2a: Origin {
            message_id: message.id.clone().into_owned(),
            role: (message.role == Role::Agent).then(|| "agent".to_owned()),
            task_id: message.task.clone().map(Cow::into_owned),
            context_id: message.context.clone().map(Cow::into_owned),
            reference_task_ids: to_owned_texts(&message.references),
            extensions: to_owned_texts(&message.extensions),
            metadata: message.metadata.as_ref().map(|raw| Json::from_raw(raw)),
            parts: extras,
            sent: (first && !is_complete).then(|| Json::from_serialize(message)),
            continued: !first,
        },
    })
}

/// The latest turn whose input holds the message with this id. Turns that failed before they reached the agent do not
/// count.
pub(crate) fn find_turn(run: &Run, id: &str) -> Option<u32> {
    let has_message = |turn: &usize| {
        let turn_record = &run.turns[*turn];
        let was_dropped = turn_record.withdrawn && turn_record.error.is_some();
        !was_dropped && as_sent(run, u32::try_from(*turn).unwrap_or(u32::MAX)).iter().any(|message| message.id == id)
    };
    (0..run.turns.len()).rev().find(has_message).and_then(|turn| u32::try_from(turn).ok())
}

/// The client messages of a turn, unchanged.
pub(crate) fn as_sent(run: &Run, turn: u32) -> Vec<Message<'_>> {
    let input = run.turns.get(turn as usize).map_or(&[][..], |turn| &turn.input);
    let mut sent: Vec<Message<'_>> = Vec::new();
    for (index, native) in input.iter().enumerate() {
        let origin = native.metadata.as_ref().and_then(Json::decode::<Metadata>).map(|metadata| metadata.a2a);

        let found = match (origin, &native.kind) {
            (Some(origin), _) if origin.continued => None,
            (Some(origin), _) => match &origin.sent {
                Some(message) => parse_sent(message),
                None => Some(from_origin(native, origin)),
            },
            (None, MessageType::McpApprovalRequest) => None,
            (None, _) => Some(from_native(native)),
        };

        // Several answers from one client message are shown as one message.
        if let Some(mut found) = found
            && !sent
                .last()
                .is_some_and(|last| last.id == found.id && !last.id.is_empty() && native.kind != MessageType::Message)
        {
            if found.id.is_empty() {
                found.id = Cow::Owned(format!("{}_in{turn}_{index}", run.id.to_prefixed("msg_")));
            }
            sent.push(found);
        }
    }
    sent
}

fn parse_sent(json: &Json) -> Option<Message<'static>> {
    let node = interlingua_core::tree::Node::with_path("", json.raw());
    read::message(&node, WireFormat::V1, &mut Faults::default())
}

fn from_origin(native: &model::Message, origin: Origin) -> Message<'_> {
    let to_owned_texts = |texts: Vec<String>| texts.into_iter().map(Cow::Owned).collect();
    let extras = origin.parts.iter().map(|json| Some(json).filter(|json| !json.is_null()));
    let extras = extras.chain(std::iter::repeat(None));
    Message {
        id: Cow::Owned(origin.message_id),
        context: origin.context_id.map(Cow::Owned),
        task: origin.task_id.map(Cow::Owned),
        role: if origin.role.as_deref() == Some("agent") { Role::Agent } else { Role::User },
        parts: native
            .content
            .iter()
            .zip(extras)
            .filter_map(|(content, extras)| parts::as_sent(content, extras))
            .collect(),
        metadata: origin.metadata.map(|json| Cow::Owned(json.raw().to_owned())),
        extensions: to_owned_texts(origin.extensions),
        references: to_owned_texts(origin.reference_task_ids),
    }
}

/// A message that did not come from an A2A client.
fn from_native(native: &model::Message) -> Message<'_> {
    let parts: Vec<Part<'_>> = native.content.iter().filter_map(parts::of_content).collect();
    let mut message = Message::agent(native.id.as_deref().unwrap_or(""), parts);
    if native.role.as_ref() != Some(&model::Role::Assistant) {
        message.role = Role::User;
    }
    message
}
