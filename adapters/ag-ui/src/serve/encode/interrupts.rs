//! The pending items of a run, as interrupts (docs/protocols/ag-ui.md#interrupts).

use interlingua_core::answer::{NATIVE_DECISIONS, offer, payload};
use interlingua_core::call::AgentCard;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Json};
use serde_json::json;

use super::super::events::Interrupt;

/// The id under which a call that a person has to approve is announced.
pub(super) fn call_id(item: &Pending) -> &str {
    item.call_id.as_deref().unwrap_or(&item.id)
}

/// A pending item as an interrupt. `agent`: `None` if it has left the configuration since then.
pub(super) fn interrupt(item: &Pending, agent: Option<&AgentCard>) -> Interrupt {
    let is_approval = item.kind == PendingKind::Approval;
    let taken = agent.map_or(NATIVE_DECISIONS, |card| card.decisions);
    let offered = offer(item, taken);
    let reason = match (&item.reason, item.kind) {
        (Some(reason), _) if !reason.is_empty() => reason.as_str(),
        (_, PendingKind::Approval | PendingKind::Tool) => "tool_call",
        (_, PendingKind::Input) => "input_required",
        (_, PendingKind::Auth) => "agentapi:auth_required",
    };
    Interrupt {
        id: item.id.clone(),
        reason: reason.to_owned(),
        message: item.message.clone(),
        tool_call_id: if is_approval { Some(call_id(item).to_owned()) } else { item.call_id.clone() },
        response_schema: schema(item, &offered),
        expires_at: item.expires_at.clone(),
        metadata: metadata(item, &offered),
    }
}

/// The JSON Schema of an answer: the agent's own schema, or one for the offered decisions.
fn schema(item: &Pending, offered: &[Decision]) -> Option<Json> {
    if let Some(schema) = item.response_schema.as_ref().filter(|schema| schema.is_object()) {
        return Some(schema.clone());
    }
    if item.kind == PendingKind::Input {
        return Some(Json::from_serialize(&json!({ "type": "string" })));
    }

    let words: Vec<&str> = offered.iter().map(|decision| decision.as_str()).collect();
    let mut properties = json!({ "approved": { "type": "boolean" } });
    if offered.contains(&Decision::Edit) {
        properties["editedArgs"] = json!({ "type": "object" });
    }
    // An answer says either, so neither is required.
    properties["decision"] = json!({ "type": "string", "enum": words });
    properties["text"] = json!({ "type": "string" });
    Some(Json::from_serialize(&json!({ "type": "object", "properties": properties })))
}

/// The agent's own metadata if it speaks this protocol, its payload, and what the item is.
fn metadata(item: &Pending, offered: &[Decision]) -> Json {
    let extension: Extra = item.extension.as_ref().and_then(Json::decode).unwrap_or_default();
    let own = extension.get("metadata").filter(|metadata| metadata.is_object()).and_then(Json::decode);
    let mut metadata: Extra = own.unwrap_or_default();
    if let Some(payload) = item.payload.as_ref().filter(|_| metadata.get("payload").is_none()) {
        metadata.push("payload", payload.clone());
    }
    let words: Vec<&str> = offered.iter().map(|decision| decision.as_str()).collect();
    let mut about = Extra::new();
    about.push("kind", Json::from_serialize(&item.kind));
    about.push("name", Json::from_serialize(&item.name));
    if item.kind == PendingKind::Approval {
        about.push("arguments", Json::from_serialize(&item.arguments));
    }
    if let Some(label) = &item.server_label {
        about.push("server_label", Json::from_serialize(label));
    }
    about.push("decisions", Json::from_serialize(&words));
    metadata.set("agentapi", Json::from_serialize(&about));
    Json::from_serialize(&metadata)
}

/// The value of the older custom event.
pub(super) fn legacy_value(item: &Pending, agent: Option<&AgentCard>) -> Json {
    let taken = agent.map_or(NATIVE_DECISIONS, |card| card.decisions);
    payload::to_json(item, &offer(item, taken))
}
