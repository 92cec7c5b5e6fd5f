//! Interrupts as pending items, and answers to them.

use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::answer::payload::{self, Style};
use interlingua_core::answer::{self, AnswerBody, CheckedDecision};
use interlingua_core::connector::{EventSink, TurnRequest};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};

use super::options::ResumeStyle;

/// Where a pending item comes from: kept with it, and found again when it is answered.
#[derive(Serialize, Deserialize)]
struct ItemSource {
    protocol: String,
    /// The id of the interrupt. Several items may have one.
    id: String,
}

/// Fields of an interrupt's payload beside its question.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PayloadFields {
    reason: Option<String>,
    #[serde(alias = "responseSchema")]
    response_schema: Option<Json>,
}

/// The items of an interrupt. `payload`: JSON, or a text with JSON in it.
pub(super) fn items(id: &str, reason: Option<&str>, payload: &Json) -> Vec<Pending> {
    let inner = payload.decode::<String>().and_then(|text| Json::parse(&text));
    let payload = inner.filter(|inner| inner.is_object() || inner.text().starts_with('[')).unwrap_or(payload.clone());
    let besides: PayloadFields =
        if payload.is_object() { payload.decode().unwrap_or_default() } else { PayloadFields::default() };
    let reason = besides.reason.as_deref().or(reason);
    let mut items = payload::items(id, reason, &payload);
    for item in items.iter_mut().filter(|item| item.kind == PendingKind::Input) {
        item.response_schema = besides.response_schema.clone().filter(Json::is_object);
        if reason.is_some_and(|reason| reason.ends_with("auth_required")) {
            item.kind = PendingKind::Auth;
            // A person says that it is done.
            item.decisions = vec![Decision::Accept, Decision::Reject, Decision::Cancel];
        }
    }
    items
}

/// Emits an item of the interrupt `id`.
pub(super) fn emit(id: &str, item: &Pending, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let mut data: Extra = item.to_data().decode().unwrap_or_default();
    let mut extension: Extra = data.get("interrupt").and_then(Json::decode).unwrap_or_default();
    let source = ItemSource { protocol: crate::NAME.to_owned(), id: id.to_owned() };
    extension.push("source", Json::from_serialize(&source));
    data.set("interrupt", Json::from_serialize(&extension));

    let message = format!("ask-{}", item.id);
    let value = ContentValue::OwnedData(Json::from_serialize(&data));
    sink.emit(&AgentEvent::whole(&message, MessageType::McpApprovalRequest, Role::Assistant, value))
}

/// The answer to an interrupt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    interrupt_id: String,
    /// JSON text, or the plain text of an answer that is one: the Python server takes nothing but texts.
    payload: String,
}

/// A call that was approved without changes.
#[derive(Debug)]
pub(super) struct ApprovedCall {
    pub(super) call_id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// The answer in a turn's new messages, if there is one, and the calls that it approves.
///
/// # Errors
/// If an answer decides nothing, or the answers belong to several interrupts: a request can carry one.
pub(super) fn resume(turn: &TurnRequest<'_>, style: ResumeStyle) -> Result<(Option<Resume>, Vec<ApprovedCall>), Fault> {
    let mut decided: Vec<(&Pending, CheckedDecision)> = Vec::new();
    let answers = turn.new_messages().filter(|(_, message)| message.kind == MessageType::McpApprovalResponse);
    for answer in answers.flat_map(|(_, message)| answer::native(message)) {
        let Some(item) = turn.answered.iter().find(|item| item.id == answer.id) else { continue };
        let AnswerBody::Decided { decision, arguments, text, payload } = answer.given else {
            let message = format!("the answer to '{}' is not understood as a decision", answer.id);
            return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::UNDECIDED));
        };
        decided.push((item, CheckedDecision { decision, arguments, text, payload }));
    }

    let Some((first, _)) = decided.first() else { return Ok((None, Vec::new())) };
    let id = source_id(first);
    if decided.iter().any(|(item, _)| source_id(item) != id) {
        let message = "this agent can be given the answer to one question at a time";
        return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::NOT_TAKEN));
    }
    // The agent expects the answers in the order of its questions.
    decided.sort_by_key(|(item, _)| turn.answered.iter().position(|known| known.id == item.id));

    let approved = decided
        .iter()
        .filter(|(item, decided)| decided.decision == Decision::Accept && item.kind == PendingKind::Approval);
    let approved = approved.map(|(item, _)| ApprovedCall {
        call_id: item.call_id.clone(),
        name: item.name.clone(),
        arguments: item.arguments.clone(),
    });
    let approved = approved.collect();
    let pairs: Vec<(&Pending, &CheckedDecision)> = decided.iter().map(|(item, decided)| (*item, decided)).collect();
    let payload = written(&pairs, style);
    let payload = payload.decode::<String>().unwrap_or_else(|| payload.text().to_owned());
    Ok((Some(Resume { interrupt_id: id, payload }), approved))
}

/// The id of the interrupt that an item stands for.
fn source_id(item: &Pending) -> String {
    #[derive(Deserialize)]
    struct Extension {
        source: ItemSource,
    }
    let extension = item.extension.as_ref().and_then(Json::decode::<Extension>);
    let source = extension.map(|extension| extension.source).filter(|source| source.protocol == crate::NAME);
    source.map_or_else(|| item.id.clone(), |source| source.id)
}

/// The answer's payload, in the form that the question expects.
fn written(decided: &[(&Pending, &CheckedDecision)], style: ResumeStyle) -> Json {
    if let Some(style) = style.fixed() {
        return payload::answer(style, decided);
    }
    let question = decided.first().and_then(|(item, _)| item.payload.as_ref());
    let expected = question.map_or(Style::Approved, |question| payload::parse(question).1);
    let answer = payload::answer(expected, decided);
    if let [(item, only)] = decided
        && let Some(own) = only.payload.as_ref().filter(|own| means_the_same(own, &answer, item, only))
    {
        return own.clone();
    }
    answer
}

/// True if a client's own answer may stand for the one that the connector writes: it has the same fields with the same
/// decision, and no arguments that an agent could run instead. An edit is always written by the connector.
fn means_the_same(own: &Json, answer: &Json, item: &Pending, decided: &CheckedDecision) -> bool {
    if item.kind != PendingKind::Approval && decided.decision == Decision::Respond {
        return true;
    }
    if decided.decision == Decision::Edit || answer::has_arguments(own) {
        return false;
    }
    let fields = |json: &Json| if json.is_object() { json.decode::<Extra>() } else { None };
    let (Some(own), Some(answer)) = (fields(own), fields(answer)) else { return false };
    ["type", "approved"].iter().all(|name| own.get(name) == answer.get(name))
        && own.get("decisions").is_none()
        && answer.get("decisions").is_none()
}
