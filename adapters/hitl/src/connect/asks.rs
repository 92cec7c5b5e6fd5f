//! The questions of an interrupted run, and answers to them.

use interlingua_core::agent_event::{AgentEvent, CallPart, ContentValue};
use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::connector::{EventSink, TurnRequest};
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::options::DecisionWords;
use super::wire::InterruptData;

/// Where a pending item comes from: kept with it, and found again when it is answered.
#[derive(Serialize, Deserialize)]
struct ItemSource {
    protocol: String,
    /// The service's session.
    id: String,
}

/// Emits what a run waits for. `id`: of the pending item.
pub(super) fn emit(id: &str, session: &str, data: &RawValue, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let asked: InterruptData = serde_json::from_str(data.get()).unwrap_or_default();
    let args = asked.action_request.args.filter(|args| !args.is_null());
    let arguments = args.map_or_else(|| "{}".to_owned(), |args| args.text().to_owned());
    let name = asked.action_request.action;

    let kind = match asked.interrupt_type.as_deref() {
        Some("tool") => {
            // The service names no id, and has one question at a time.
            let call = CallPart {
                call_id: id.into(),
                name: name.as_str().into(),
                arguments: arguments.as_str().into(),
                server_label: None,
            };
            return whole(&format!("ask-{id}"), MessageType::FunctionCall, ContentValue::Call(call), sink);
        }
        Some("input") => PendingKind::Input,
        Some("auth") => PendingKind::Auth,
        _ => PendingKind::Approval,
    };
    let is_question = kind != PendingKind::Approval;
    let decisions = match (kind, asked.config) {
        (PendingKind::Input, _) => vec![Decision::Respond],
        (PendingKind::Auth, None) => vec![Decision::Accept, Decision::Reject],
        // Each has an unambiguous word.
        (_, None) => vec![Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject],
        (_, Some(config)) => [
            (config.allow_accept, Decision::Accept),
            (config.allow_edit, Decision::Edit),
            (config.allow_respond, Decision::Respond),
            (config.allow_ignore, Decision::Reject),
        ]
        .into_iter()
        .filter_map(|(is_allowed, decision)| is_allowed.then_some(decision))
        .collect(),
    };
    let mut decisions = decisions;
    if kind == PendingKind::Approval && !decisions.contains(&Decision::Reject) {
        // The service takes a rejection of every call.
        decisions.push(Decision::Reject);
    }
    let item = Pending {
        id: id.to_owned(),
        kind,
        name: if name.is_empty() && is_question { "input_required".to_owned() } else { name.clone() },
        arguments,
        server_label: None,
        reason: (is_question && !name.is_empty()).then_some(name),
        message: asked.description.filter(|text| !text.is_empty()),
        call_id: None,
        decisions,
        response_schema: asked.response_schema.filter(Json::is_object),
        expires_at: None,
        payload: Some(Json::from_raw(data)),
        extension: None,
        request: None,
    };

    let mut fields: Extra = item.to_data().decode().unwrap_or_default();
    let mut extension: Extra = fields.get("interrupt").and_then(Json::decode).unwrap_or_default();
    let source = ItemSource { protocol: crate::NAME.to_owned(), id: session.to_owned() };
    extension.push("source", Json::from_serialize(&source));
    fields.set("interrupt", Json::from_serialize(&extension));
    let value = ContentValue::OwnedData(Json::from_serialize(&fields));
    whole(&format!("ask-{id}"), MessageType::McpApprovalRequest, value, sink)
}

/// Emits a message with one content.
pub(super) fn whole(
    id: &str,
    kind: MessageType,
    value: ContentValue<'_>,
    sink: &mut dyn EventSink,
) -> Result<(), Fault> {
    sink.emit(&AgentEvent::whole(id, kind, Role::Assistant, value))
}

/// An answer in the words of the service.
#[derive(Debug)]
pub(super) struct ServiceAnswer {
    /// The session that asked, if the item says so.
    pub(super) session_id: Option<String>,
    pub(super) response_type: &'static str,
    pub(super) args: Option<Value>,
}

/// The answer in a turn's new messages.
///
/// # Errors
/// If it decides nothing.
pub(super) fn service_answer(
    turn: &TurnRequest<'_>,
    words: DecisionWords,
    losses: &mut Losses,
) -> Result<Option<ServiceAnswer>, Fault> {
    for answer in turn.new_messages().flat_map(|(_, message)| answer::native(message)) {
        let Some(item) = turn.answered.iter().find(|item| item.id == answer.id) else { continue };
        let session_id = session_of(item);
        let (decision, arguments, text, payload) = match answer.given {
            AnswerBody::Decided { decision, arguments, text, payload } => (decision, arguments, text, payload),
            // The output of a tool.
            AnswerBody::Text(text) if item.kind == PendingKind::Tool => (Decision::Respond, None, Some(text), None),
            _ => {
                let message = format!("the answer to '{}' is not understood as a decision", answer.id);
                return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::UNDECIDED));
            }
        };
        // What stands for a call's result is a text, in whatever form the client gave it.
        let value = payload.as_ref().filter(|_| item.kind == PendingKind::Input || text.is_none());
        let said = || value.map_or_else(|| json!(text.as_deref().unwrap_or_default()), to_value);
        let (response_type, args) = match (decision, words) {
            (Decision::Accept, DecisionWords::Accept) => ("accept", None),
            (Decision::Accept, DecisionWords::Approve) => ("approve", None),
            (Decision::Edit, words) => {
                let arguments: Value = serde_json::from_str(arguments.as_deref().unwrap_or("{}")).unwrap_or_default();
                let name = if words == DecisionWords::Accept { "args" } else { "edited_args" };
                ("edit", Some(json!({ name: arguments })))
            }
            (Decision::Respond, DecisionWords::Accept) => ("response", Some(json!({ "args": said() }))),
            (Decision::Respond, DecisionWords::Approve) => ("response", Some(json!({ "message": said() }))),
            (Decision::Reject | Decision::Cancel, _) => {
                if decision == Decision::Cancel {
                    losses.changed(ContentKind::Approval, "withdrawing is sent as a rejection");
                }
                if decision == Decision::Reject && text.as_deref().is_some_and(|text| !text.is_empty()) {
                    losses.lost(ContentKind::ApprovalReason, "a rejection has no reason in this protocol");
                }
                ("reject", None)
            }
        };
        return Ok(Some(ServiceAnswer { session_id, response_type, args }));
    }
    Ok(None)
}

fn to_value(json: &Json) -> Value {
    serde_json::from_str(json.text()).unwrap_or_default()
}

/// The service's session that an item comes from.
fn session_of(item: &Pending) -> Option<String> {
    #[derive(Deserialize)]
    struct Extension {
        source: ItemSource,
    }
    let extension = item.extension.as_ref().and_then(Json::decode::<Extension>)?;
    (extension.source.protocol == crate::NAME).then_some(extension.source.id)
}
