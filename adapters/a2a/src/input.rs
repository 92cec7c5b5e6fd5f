//! What a client says, as native messages and answers, and back again for a task's history (section 14;
//! human-in-the-loop page, section 6).
//!
//! Whatever a native message has no field for travels in its `metadata.a2a`, so that a task's history shows every
//! message as it was sent.

use std::borrow::Cow;

use interlingua_core::answer::{Answer, Decided, Given, Said, Undecided, decide, offer, taken};
use interlingua_core::model::{self, Content, MessageType, ToolOutput};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Extra, Fault, Json, Run};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::dialect::Form;
use crate::parts;
use crate::wire::read::{self, Faults};
use crate::wire::{self, Message, Part, Role};

/// What a message comes to, given what its task waits for.
#[derive(Debug)]
pub(crate) struct Meaning {
    /// Native messages.
    pub(crate) messages: Vec<model::Message>,
    /// Answers to pending items. None to an item that has to be answered first: nothing reaches the agent then.
    pub(crate) answers: Vec<Answer>,
}

/// Reads a message in the light of what its task waits for. Never approves by default. `edits`: the agent takes edited
/// arguments.
pub(crate) fn meaning(message: &Message<'_>, pending: &[Pending], edits: bool) -> Meaning {
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
    let mut blocking = pending.iter().filter(|item| item.kind != PendingKind::Tool);
    let decides = match (blocking.next(), blocking.next()) {
        (Some(item), None) if answers.is_empty() => match only_answer(&plain) {
            // Any other answer that decides nothing is a mistake, and told by the engine.
            Some(given @ Given::Text(_)) if decide(item, &given, &offer(item, taken(item, edits))) == UNCLEAR => false,
            Some(given) => {
                answers.push(Answer::new(item.id.clone(), given));
                plain.clear();
                true
            }
            None => false,
        },
        // Which of several a text is meant for, nobody can know.
        (Some(_), Some(_)) => !answers.is_empty(),
        _ => true,
    };
    if !decides {
        // It is said all the same, in vain.
        outputs.clear();
        plain = message.parts.iter().collect();
    }
    if !answers.is_empty() {
        // Beside an answer, text is a comment for people: the history keeps it.
        plain.retain(|part| !matches!(part.content, wire::Content::Text(_)));
    }
    let whole = outputs.is_empty() && plain.len() == message.parts.len();
    // What is not whole tells the whole message once, in the first native message that comes of it.
    for (nth, answer) in answers.iter_mut().enumerate() {
        let id = (nth == 0).then(|| message.id.clone().into_owned());
        answer.said = Some(Said { id, metadata: Some(origin(message, nth == 0, false, &[])) });
    }
    let begun = !answers.is_empty();
    let mut messages = Vec::new();
    for output in &outputs {
        let mut native =
            model::Message::new(MessageType::FunctionCallOutput, Some(model::Role::Tool), vec![Content::data(output)]);
        native.metadata = Some(origin(message, !begun && messages.is_empty(), false, &[]));
        messages.push(native);
    }
    if !plain.is_empty() {
        let contents = plain.iter().map(|part| parts::to_content(part)).collect();
        let mut native = model::Message::new(MessageType::Message, Some(model::Role::User), contents);
        native.metadata = Some(origin(message, !begun && messages.is_empty(), whole, &plain));
        messages.push(native);
    }
    if let Some(first) = messages.first_mut().filter(|_| !begun) {
        first.id = Some(message.id.clone().into_owned());
    }
    Meaning { messages, answers }
}

/// Sees to it that every output of a tool is one that the task waits for.
///
/// # Errors
/// One that names the part.
pub(crate) fn check_outputs(message: &Message<'_>, pending: &[Pending]) -> Result<(), Fault> {
    for (place, part) in message.parts.iter().enumerate() {
        if let Some(output) = tool_output(part)
            && !pending.iter().any(|item| item.id == output.call_id || item.call_id.as_deref() == Some(&output.call_id))
        {
            let message = format!("the task does not wait for an output of '{}'", output.call_id);
            return Err(Fault::invalid(format!("message.parts[{place}]"), message));
        }
    }
    Ok(())
}

const UNCLEAR: Result<Decided, Undecided> = Err(Undecided::Unclear);

/// An answer that names no item, to the only one there is: one data part, else the text.
fn only_answer(plain: &[&Part<'_>]) -> Option<Given> {
    let mut data = plain.iter().filter_map(|part| match &part.content {
        wire::Content::Data(data) => Some(data),
        _ => None,
    });
    if let Some(first) = data.next() {
        return data.next().is_none().then(|| Given::Payload(Json::from_raw(first)));
    }
    let texts: Vec<&str> = plain
        .iter()
        .filter_map(|part| match &part.content {
            wire::Content::Text(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| Given::Text(texts.concat()))
}

/// The answer in a data part that names its item.
fn answer(part: &Part<'_>) -> Option<Answer> {
    let wire::Content::Data(data) = &part.content else { return None };
    let id = text_of(data, NAMES)?;
    // What names the item is no part of the answer: the agent gets it as it would from any other protocol.
    let fields: Extra = serde_json::from_str(data.get()).ok()?;
    let mut answer = Extra::new();
    fields.iter().filter(|(name, _)| !NAMES.contains(name)).for_each(|(name, value)| answer.push(name, value.clone()));
    Some(Answer::new(id, Given::Payload(Json::from_serialize(&answer))))
}

/// The fields that name the item an answer is for.
const NAMES: &[&str] = &["interrupt_id", "interruptId", "approval_request_id", "approvalRequestId"];

/// The output of a tool in a data part, in either form.
fn tool_output(part: &Part<'_>) -> Option<ToolOutput> {
    #[derive(Deserialize)]
    struct Native {
        function_call_output: ToolOutput,
    }
    #[derive(Deserialize)]
    struct Response {
        id: String,
        name: Option<String>,
        response: Json,
    }
    let wire::Content::Data(data) = &part.content else { return None };
    if let Ok(native) = serde_json::from_str::<Native>(data.get()) {
        return (!native.function_call_output.call_id.is_empty()).then_some(native.function_call_output);
    }
    let marked = text_of(part.metadata.as_ref()?, &["type", "adk_type"]);
    if marked.as_deref() != Some("function_response") {
        return None;
    }
    let told: Response = serde_json::from_str(data.get()).ok()?;
    let inner = told.response.decode::<Extra>().and_then(|fields| fields.get("output")?.decode::<String>());
    let output = inner.or_else(|| told.response.decode()).unwrap_or_else(|| told.response.text().to_owned());
    Some(ToolOutput { call_id: told.id, name: told.name, output })
}

/// The first of these fields that is a text with something in it.
fn text_of(object: &RawValue, names: &[&str]) -> Option<String> {
    if !object.get().starts_with('{') {
        return None;
    }
    let fields: Extra = serde_json::from_str(object.get()).ok()?;
    names.iter().find_map(|name| fields.get(name)?.decode::<String>().filter(|text| !text.is_empty()))
}

/// `metadata.a2a` of a native message.
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
    /// One entry for each content, `null` where there is nothing to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Json>,
    /// The whole message, where its contents do not make it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<Json>,
    /// Another native message holds the whole one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continued: bool,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    a2a: Origin,
}

fn origin(message: &Message<'_>, first: bool, whole: bool, plain: &[&Part<'_>]) -> Json {
    let own = |texts: &[Cow<'_, str>]| texts.iter().map(|text| text.clone().into_owned()).collect();
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
            reference_task_ids: own(&message.references),
            extensions: own(&message.extensions),
            metadata: message.metadata.as_ref().map(|raw| Json::from_raw(raw)),
            parts: extras,
            sent: (first && !whole).then(|| Json::from_serialize(message)),
            continued: !first,
        },
    })
}

/// The turn a message of this id was said in, the latest one, if it was. What was not said in the end does not count.
pub(crate) fn turn_of(run: &Run, id: &str) -> Option<u32> {
    let said = |turn: &usize| {
        let told = &run.turns[*turn];
        let unsaid = told.withdrawn && told.error.is_some();
        !unsaid && as_sent(run, u32::try_from(*turn).unwrap_or(u32::MAX)).iter().any(|message| message.id == id)
    };
    (0..run.turns.len()).rev().find(said).and_then(|turn| u32::try_from(turn).ok())
}

/// The client's messages of a turn, as they were sent.
pub(crate) fn as_sent(run: &Run, turn: u32) -> Vec<Message<'_>> {
    let input = run.turns.get(turn as usize).map_or(&[][..], |turn| &turn.input);
    let mut sent: Vec<Message<'_>> = Vec::new();
    for (place, native) in input.iter().enumerate() {
        let origin = native.metadata.as_ref().and_then(Json::decode::<Metadata>).map(|metadata| metadata.a2a);
        let found = match (origin, &native.kind) {
            (Some(origin), _) if origin.continued => None,
            (Some(origin), _) => match &origin.sent {
                Some(whole) => read_back(whole),
                None => Some(from_origin(native, origin)),
            },
            (None, MessageType::McpApprovalRequest) => None,
            (None, _) => Some(plain(native)),
        };
        // Several answers of one message are one message.
        if let Some(mut found) = found
            && !sent
                .last()
                .is_some_and(|last| last.id == found.id && !last.id.is_empty() && native.kind != MessageType::Message)
        {
            if found.id.is_empty() {
                found.id = Cow::Owned(format!("{}_in{turn}_{place}", run.id.to_prefixed("msg_")));
            }
            sent.push(found);
        }
    }
    sent
}

fn read_back(json: &Json) -> Option<Message<'static>> {
    let node = interlingua_core::tree::Node::with_path("", json.raw());
    read::message(&node, Form::V1, &mut Faults::default())
}

fn from_origin(native: &model::Message, origin: Origin) -> Message<'_> {
    let own = |texts: Vec<String>| texts.into_iter().map(Cow::Owned).collect();
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
        extensions: own(origin.extensions),
        references: own(origin.reference_task_ids),
    }
}

/// A message that came another way.
fn plain(native: &model::Message) -> Message<'_> {
    let parts: Vec<Part<'_>> = native.content.iter().filter_map(parts::of_content).collect();
    let mut message = Message::agent(native.id.as_deref().unwrap_or(""), parts);
    if native.role.as_ref() != Some(&model::Role::Assistant) {
        message.role = Role::User;
    }
    message
}
