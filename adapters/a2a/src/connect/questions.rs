//! The questions of a waiting task, as pending items in canonical form.

use interlingua_core::agent_event::{AgentEvent, Awaits, CallPart, ContentValue};
use interlingua_core::answer::{ALL_DECISIONS, PLAIN_DECISIONS, offer};
use interlingua_core::connector::EventSink;
use interlingua_core::json::is_empty_value;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::Pending;
use interlingua_core::{Extra, Fault, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::events::ItemReader;
use super::session::AskedCall;
use super::texts::{MessagePosition, is_no_text, plain_text};
use super::wire::{self, filled};
use crate::wire::{Content, Part};

/// The origin of an item: stored with the item, and read when the item is answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ItemSource {
    pub(super) protocol: String,
    /// The id the agent gave the item. None: it gave none, and the item has one of the gateway's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    /// The call of ADK that asks for a confirmation, and takes nothing else as its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirmation: Option<AskedCall>,
}

/// A data part that asks.
enum QuestionPart {
    /// `{"interrupt":{…}}`
    Item(Extra),
    /// `{"function_call":{…}}`
    Call { call_id: String, name: String, arguments: String },
}

fn question_part(part: &Part<'_>) -> Option<QuestionPart> {
    #[derive(Deserialize)]
    struct Data {
        interrupt: Option<Extra>,
        function_call: Option<Call>,
    }
    #[derive(Deserialize)]
    struct Call {
        call_id: String,
        #[serde(default)]
        name: String,
        arguments: Option<Json>,
    }
    let Content::Data(data) = &part.content else { return None };
    if !data.get().starts_with('{') {
        return None;
    }
    let data: Data = serde_json::from_str(data.get()).ok()?;
    if let Some(call) = data.function_call.filter(|call| !call.call_id.is_empty()) {
        let arguments = call.arguments.as_ref().map(text_of).unwrap_or_default();
        return Some(QuestionPart::Call { call_id: call.call_id, name: call.name, arguments });
    }
    data.interrupt.map(QuestionPart::Item)
}

/// A string as it is, anything else as its JSON.
fn text_of(json: &Json) -> String {
    json.decode::<String>().unwrap_or_else(|| json.text().to_owned())
}

impl ItemReader {
    /// Emits what a task waits for: each data part that asks, else the message as a whole. A message that only repeats
    /// the answer asks nothing.
    pub(super) fn ask(&mut self, raw: &RawValue, awaits: Awaits, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(mut message) = wire::message(raw) else { return Ok(()) };
        let mut parts = message.take_parts(self.form);
        self.take_long_running_calls(&mut parts);
        if !self.long_running_calls.is_empty() && !parts.iter().any(|part| question_part(part).is_some()) {
            // The calls are all that it waits for.
            parts.retain(|part| is_no_text(part) || !self.artifacts.have_text(&plain_text(std::slice::from_ref(part))));
            return self.emit_parts(&message, &parts, MessagePosition::Answer, sink);
        }
        let prompt = plain_text(&parts);

        let mut items = Vec::new();
        let mut payload: Vec<Json> = Vec::new();
        let mut media = Vec::new();
        for part in parts {
            match (question_part(&part), &part.content) {
                (Some(item), _) => items.push(item),
                (None, Content::Data(data)) => payload.push(Json::from_raw(data)),
                (None, Content::Bytes(_) | Content::Url(_)) => media.push(part),
                (None, Content::Text(_)) => {}
            }
        }
        // Media of a question belong to the answer: an item cannot contain them.
        self.emit_parts(&message, &media, MessagePosition::Answer, sink)?;
        if items.is_empty() {
            if payload.is_empty() && (prompt.is_empty() || self.artifacts.have_text(&prompt)) {
                return Ok(());
            }
            let reason = match awaits {
                Awaits::Input => "input_required",
                Awaits::Auth => "auth_required",
            };
            let mut item = Extra::new();
            item.push("reason", Json::from_serialize(reason));
            items.push(QuestionPart::Item(item));
        }

        let id = filled(&message.message_id).unwrap_or_default();
        let mut prompt = (items.len() == 1 && !prompt.is_empty()).then_some(prompt);
        for (item, number) in items.into_iter().zip(0_u32..) {
            // A file has the message's id already.
            let number = if media.is_empty() { number } else { number + 1 };
            let id = if number == 0 || id.is_empty() { id.to_owned() } else { format!("{id}-ask{number}") };
            match item {
                QuestionPart::Call { call_id, name, arguments } => {
                    let call = CallPart {
                        call_id: call_id.into(),
                        name: name.into(),
                        arguments: arguments.into(),
                        server_label: None,
                    };
                    emit(&id, MessageType::FunctionCall, ContentValue::Call(call), sink)?;
                }
                QuestionPart::Item(fields) => {
                    let data = self.item(fields, awaits, prompt.take(), &payload);
                    emit(&id, MessageType::McpApprovalRequest, ContentValue::OwnedData(data), sink)?;
                }
            }
        }
        Ok(())
    }

    /// The data of an item. `fields`: what the agent says of it.
    fn item(&mut self, mut fields: Extra, awaits: Awaits, prompt: Option<String>, payload: &[Json]) -> Json {
        let kind = match awaits {
            Awaits::Input => "input",
            Awaits::Auth => "auth",
        };
        let set = |fields: &Extra, name: &str| fields.get(name).is_some_and(|value| !value.is_null());
        if !set(&fields, "kind") {
            fields.set("kind", Json::from_serialize(kind));
        }
        let kind = fields.get("kind").map(text_of);
        let own_list = fields.get("decisions").filter(|list| !list.is_null() && !is_empty_value(list.text())).cloned();
        if own_list.is_none() && !matches!(kind.as_deref(), Some("input" | "auth")) {
            // Any other decision is for an agent that says that it understands it.
            fields.set("decisions", Json::from_serialize(PLAIN_DECISIONS));
        }
        if !set(&fields, "payload") && !payload.is_empty() {
            let whole = if let [only] = payload { only.clone() } else { Json::from_serialize(payload) };
            fields.set("payload", whole);
        }
        if let Some(prompt) = prompt.filter(|_| !set(&fields, "message")) {
            fields.set("message", Json::from_serialize(&prompt));
        }
        let reason = fields.get("reason").map(text_of);
        let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        let own_id = take("id").and_then(|id| id.decode::<String>()).filter(|id| !id.is_empty());
        let name = take("name").map(|name| text_of(&name)).or(reason).unwrap_or_default();
        let arguments = take("arguments").map(|arguments| text_of(&arguments));
        let server_label = take("server_label");
        let arguments = arguments.or_else(|| fields.get("payload").map(|payload| payload.text().to_owned()));
        let source = ItemSource {
            protocol: "a2a".to_owned(),
            id: own_id.clone(),
            task_id: self.task.clone(),
            context_id: self.session.context_id.clone(),
            confirmation: None,
        };
        fields.set("source", Json::from_serialize(&source));

        let mut data = Extra::new();
        // Every client is shown the same list, from the first time on.
        let mut asked = Extra::new();
        asked.push("id", Json::from_serialize("item"));
        asked.push("interrupt", Json::from_serialize(&fields));
        if let Some(item) = Pending::parse(&Json::from_serialize(&asked)) {
            let offered = offer(&item, ALL_DECISIONS);
            if let Some(own_list) = own_list.filter(|_| offered != item.decisions) {
                fields.set("agent_decisions", own_list);
            }
            fields.set("decisions", Json::from_serialize(&offered));
        }
        data.push("id", Json::from_serialize(&own_id.unwrap_or_else(|| self.made_id())));
        data.push("name", Json::from_serialize(&name));
        data.push("arguments", Json::from_serialize(&arguments.unwrap_or_default()));
        if let Some(label) = server_label {
            data.push("server_label", label);
        }
        data.push("interrupt", Json::from_serialize(&fields));
        Json::from_serialize(&data)
    }

    /// The task's id; with a number where the task asks again, since an item is answered once.
    fn made_id(&mut self) -> String {
        self.session.questions += 1;
        let task = self.task.as_deref().unwrap_or("task");
        if self.session.questions == 1 { task.to_owned() } else { format!("{task}-{}", self.session.questions) }
    }
}

fn emit(id: &str, kind: MessageType, value: ContentValue<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
    sink.emit(&AgentEvent::whole(id, kind, Role::Assistant, value))
}
