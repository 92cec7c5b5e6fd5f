//! `structuredContent`: a run as one object, which is also the content of its resource.

use interlingua_core::Json;
use interlingua_core::call::RunView;
use interlingua_core::model::{Body, MessageType};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::{Message, Run, Slot};
use serde_json::{Map, Value, json};

use crate::forms;
use crate::result::blocks::{is_answer, json_size, texts};
use crate::result::failure::Failure;
use crate::result::size::cut_json_text;

/// The state of a call, besides its runs.
pub(super) struct CallState<'a> {
    pub(super) status: &'static str,
    /// The instruction to the model.
    pub(super) next: Option<&'a str>,
    pub(super) failure: Option<&'a Failure>,
    pub(super) usage: Option<&'a Value>,
    pub(super) has_steps: bool,
}

/// The object of a call.
pub(super) fn object(runs: &[RunView<'_>], state: &CallState<'_>) -> Value {
    let Some(first) = runs.first().map(|view| view.run()) else { return json!({}) };
    let all = || runs.iter().map(|view| view.run());
    let mut object = Map::new();
    object.insert("text".to_owned(), json!(texts(all()).join("\n\n")));
    object.insert("status".to_owned(), json!(state.status));
    object.insert("session".to_owned(), json!(first.session_id));
    object.insert("run".to_owned(), json!(first.id.to_string()));

    let data: Vec<Value> = all().flat_map(|run| run.messages.iter()).flat_map(data_of).collect();
    if !data.is_empty() {
        object.insert("data".to_owned(), Value::Array(data));
    }
    let pending = runs.last().map_or(&[][..], |view| view.pending);
    if !pending.is_empty() {
        object.insert("pending".to_owned(), pending.iter().map(item).collect());
    }
    if let Some(next) = state.next {
        object.insert("next".to_owned(), json!(next));
    }
    if state.has_steps {
        let steps = steps(all());
        if !steps.is_empty() {
            object.insert("steps".to_owned(), Value::Array(steps));
        }
    }
    if let Some(usage) = state.usage {
        object.insert("usage".to_owned(), usage.clone());
    }
    if let Some(failure) = state.failure {
        object.insert("error".to_owned(), failure.to_value());
    }
    Value::Object(object)
}

/// Makes the object at most this many bytes long: without its largest optional members, then with a shorter text. True
/// if something was left out.
pub(super) fn shrink(object: &mut Value, max: usize) -> bool {
    let is_too_long = |object: &Value| json_size(object) > max;
    if !is_too_long(object) {
        return false;
    }
    for name in ["steps", "data"] {
        if is_too_long(object)
            && let Value::Object(fields) = object
        {
            fields.remove(name);
        }
    }
    let excess = json_size(object).saturating_sub(max);
    if excess > 0
        && let Some(Value::String(text)) = object.get_mut("text")
    {
        let note = "… (cut off)";
        let kept = json_size(&json!(text)).saturating_sub(excess + note.len() + 2);
        let end = cut_json_text(text, kept);
        text.truncate(end);
        text.push_str(note);
    }
    if is_too_long(object)
        && let Value::Object(fields) = object
    {
        fields.remove("pending");
    }
    true
}

/// The schema of the object.
pub(crate) fn output_schema() -> Value {
    let text = json!({ "type": "string" });
    let list = json!({ "type": "array" });
    json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "description": "The answer of the agent." },
            "status": {
                "type": "string",
                "enum": ["completed", "incomplete", "input_required", "working", "failed", "rejected", "canceled"],
            },
            "session": { "type": "string", "description": "The session, to go on with this conversation." },
            "run": text,
            "data": list,
            "pending": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": { "item": text, "kind": text, "message": text },
                    "required": ["item", "kind", "message"],
                },
            },
            "next": { "type": "string", "description": "What to do now." },
            "steps": list,
            "usage": { "type": "object" },
            "error": { "type": "object" },
        },
        "required": ["text", "status", "session", "run"],
    })
}

/// The data contents of a message.
fn data_of(message: &Message) -> impl Iterator<Item = Value> {
    let is_shown = message.kind == MessageType::Message && is_answer(message);
    let contents = message.slots.iter().filter(move |_| is_shown).filter_map(|slot| slot.value.as_ref());
    contents.filter_map(|content| match &content.body {
        Body::Data(data) if !data.is_null() => Some(to_value(data)),
        _ => None,
    })
}

/// A value for another object. JSON that is nested too deeply stays text.
fn to_value(json: &Json) -> Value {
    json.decode().unwrap_or_else(|| Value::String(json.text().to_owned()))
}

fn item(item: &Pending) -> Value {
    let mut value = json!({ "item": item.id, "kind": item.kind, "message": forms::question_text(item) });
    let has_call = matches!(item.kind, PendingKind::Approval | PendingKind::Tool);
    if has_call {
        value["name"] = json!(item.name);
        value["arguments"] = arguments(&item.arguments);
        value["decisions"] = forms::offered(item).iter().map(|decision| json!(decision.as_str())).collect();
    }
    if let Some(schema) = &item.response_schema {
        value["response_schema"] = to_value(schema);
    }
    value
}

/// Arguments as JSON. Text that is no JSON stays text.
fn arguments(text: &str) -> Value {
    match Json::parse(text) {
        Some(json) => to_value(&json),
        None if text.trim().is_empty() => json!({}),
        None => json!(text),
    }
}

/// The calls of the agents, each with its output.
fn steps<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Value> {
    let mut steps: Vec<(String, Value)> = Vec::new();
    for message in runs.flat_map(|run| run.messages.iter()) {
        match &message.kind {
            // The client's own calls are questions.
            MessageType::FunctionCall | MessageType::FunctionCallOutput => {}
            kind if kind.is_call() => {
                for slot in &message.slots {
                    let Some(head) = &slot.call else { continue };
                    let step = json!({ "name": head.name, "arguments": arguments(slot.text()) });
                    steps.push((head.call_id.clone(), step));
                }
            }
            kind if kind.is_output() => {
                for output in message.slots.iter().filter_map(Slot::output) {
                    let open =
                        |(id, step): &&mut (String, Value)| *id == output.call_id && step.get("output").is_none();
                    match steps.iter_mut().find(open) {
                        Some((_, step)) => step["output"] = json!(output.output),
                        None => {
                            let name = output.name.unwrap_or_default();
                            steps.push((output.call_id, json!({ "name": name, "output": output.output })));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    steps.into_iter().map(|(_, step)| step).collect()
}
