//! Questions of the demo agent for people and programs, and its reaction to their answers
//! (docs/human-in-the-loop.md#canonical-form): it runs exactly the approved calls.

use std::collections::HashMap;

use interlingua_core::Json;
use interlingua_core::answer::decision_word;
use interlingua_core::connector::TurnRequest;
use interlingua_core::model::{Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::{Decision, Pending, PendingKind, approval_id};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::stage::Act;

/// An item that must be answered before the agent continues.
pub(super) struct Item {
    pub(super) kind: PendingKind,
    pub(super) name: &'static str,
    pub(super) arguments: Value,
    pub(super) server_label: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
    pub(super) decisions: &'static [Decision],
    pub(super) response_schema: Option<Value>,
    pub(super) payload: Option<Value>,
}

impl Item {
    /// The content of the request, in the canonical form.
    pub(super) fn into_content(self) -> Content {
        let mut interrupt = json!({
            "kind": self.kind,
            "reason": self.reason,
            "message": self.message,
            "decisions": self.decisions,
        });
        if self.kind == PendingKind::Approval {
            interrupt["call_id"] = fresh("call").into();
        }
        for (name, value) in [("response_schema", self.response_schema), ("payload", self.payload)] {
            if let Some(value) = value {
                interrupt[name] = value;
            }
        }
        Content::data(&json!({
            "id": fresh("appr"),
            "name": self.name,
            "arguments": self.arguments.to_string(),
            "server_label": self.server_label,
            "interrupt": interrupt,
        }))
    }
}

/// The name of a tool the client declared, and arguments that fit its schema.
pub(super) fn declared(tool: &Json) -> Option<(String, Value)> {
    let tool: Value = tool.decode()?;
    let function = tool.get("function").unwrap_or(&tool);
    let name = function.get("name")?.as_str()?.to_owned();
    let properties = function.get("parameters").and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let arguments = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), example(schema))).collect();
    Some((name, Value::Object(arguments)))
}

/// A value that fits a simple schema.
fn example(schema: &Value) -> Value {
    if let Some(one) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return one.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        Some("null") => Value::Null,
        _ => json!("example"),
    }
}

/// The acts for the answers in these messages. Empty without answers. Takes linear time: a client may send thousands of
/// answers.
pub(super) fn react(question: &TurnRequest<'_>, said: &[Message]) -> Vec<Act> {
    let is_answer =
        |kind: &MessageType| matches!(kind, MessageType::FunctionCallOutput | MessageType::McpApprovalResponse);
    if !said.iter().any(|message| is_answer(&message.kind)) {
        return Vec::new();
    }

    let questions = Questions::new(question, said);
    let mut acts = Vec::new();
    for message in said {
        match message.kind {
            MessageType::FunctionCallOutput => {
                for output in message.outputs() {
                    acts.push(say(questions.returned(&output)));
                }
            }
            MessageType::McpApprovalResponse => {
                for data in message.content.iter().filter_map(Content::as_data) {
                    acts.extend(decided(&questions, data));
                }
            }
            _ => {}
        }
    }
    acts
}

/// Earlier questions of the agent, by id. The gateway's own memory of an item wins over the client's history.
struct Questions {
    items: HashMap<String, Pending>,
    /// Names of called tools by the id of their call.
    called: HashMap<String, String>,
}

impl Questions {
    fn new(question: &TurnRequest<'_>, said: &[Message]) -> Self {
        let (mut items, mut called) = (HashMap::new(), HashMap::new());
        for call in said.iter().flat_map(Message::calls) {
            called.entry(call.call_id).or_insert(call.name);
        }
        let requests = said.iter().filter(|message| message.kind == MessageType::McpApprovalRequest);
        let asked = requests.flat_map(|message| &message.content).filter_map(Content::as_data);
        for item in question.answered.iter().cloned().chain(asked.filter_map(Pending::parse)) {
            items.entry(item.id.clone()).or_insert(item);
        }
        Self { items, called }
    }

    fn returned(&self, output: &ToolOutput) -> String {
        let asked = self.items.get(&output.call_id).map(|item| &item.name);
        let name = output.name.as_ref().or(asked).or_else(|| self.called.get(&output.call_id));
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("Your tool {name} says: {}", output.output),
            None => format!("Your tool says: {}", output.output),
        }
    }
}

fn say(text: String) -> Act {
    Act::Say(MessageType::Message, text)
}

/// The relevant fields of an answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    approve: bool,
    reason: Option<String>,
    interrupt: Option<Extension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extension {
    decision: Option<String>,
    arguments: Option<String>,
    text: Option<String>,
    payload: Option<Json>,
}

fn decided(questions: &Questions, data: &Json) -> Vec<Act> {
    let body: Body = data.decode().unwrap_or_default();
    let extension = body.interrupt.unwrap_or_default();
    let decision = extension.decision.as_deref().and_then(decision_word);
    let decision = decision.unwrap_or(if body.approve { Decision::Accept } else { Decision::Reject });
    let text = extension.text.or(body.reason);
    let Some(item) = approval_id(data).and_then(|id| questions.items.get(&id)) else {
        return vec![say("I do not remember having asked that, so I did nothing.".to_owned())];
    };
    match item.kind {
        PendingKind::Approval | PendingKind::Tool => approved(item, decision, extension.arguments, text),
        PendingKind::Input => {
            let payload = extension.payload.map(|payload| payload.text().to_owned());
            vec![say(match (decision, text.or(payload)) {
                (Decision::Reject | Decision::Cancel, _) => {
                    "You did not want to answer, so I go on without.".to_owned()
                }
                (_, Some(text)) => format!("Thank you. You answered: {text}"),
                (_, None) => "Thank you.".to_owned(),
            })]
        }
        PendingKind::Auth => vec![say(match decision {
            Decision::Reject | Decision::Cancel => "Without a login I cannot go on.".to_owned(),
            _ => "Thank you, you are logged in.".to_owned(),
        })],
    }
}

/// Runs the call if, and as, it was decided.
fn approved(item: &Pending, decision: Decision, edited: Option<String>, text: Option<String>) -> Vec<Act> {
    let because = |text: Option<String>| text.map(|text| format!(": {text}")).unwrap_or_default();
    let arguments = match decision {
        Decision::Edit => edited.unwrap_or_else(|| item.arguments.clone()),
        _ => item.arguments.clone(),
    };
    let call = ToolCall {
        call_id: item.call_id.clone().unwrap_or_else(|| fresh("call")),
        name: item.name.clone(),
        arguments,
        server_label: None,
    };
    let to = serde_json::from_str::<Value>(&call.arguments).ok();
    let to =
        to.as_ref().and_then(|arguments| arguments.get("to")).and_then(Value::as_str).unwrap_or("no one").to_owned();
    match decision {
        Decision::Accept | Decision::Edit => {
            let output = output(&call, format!("sent to {to}"));
            vec![Act::Call(MessageType::PluginCall, call), output, say(format!("The mail was sent to {to}."))]
        }
        Decision::Respond => {
            let text = text.unwrap_or_default();
            let output = output(&call, text.clone());
            let answer = say(format!("I did not send it, and took this for the result: {text}"));
            vec![Act::Call(MessageType::PluginCall, call), output, answer]
        }
        Decision::Reject => vec![say(format!("I did not send it, because you rejected it{}", because(text)))],
        Decision::Cancel => vec![say("I did not send it, because no one decided.".to_owned())],
    }
}

fn output(call: &ToolCall, output: String) -> Act {
    let output = ToolOutput { call_id: call.call_id.clone(), name: Some(call.name.clone()), output };
    Act::Show(MessageType::PluginCallOutput, Role::Tool, vec![Content::data(&output)])
}

/// A new id. The same item is never asked twice.
fn fresh(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::now_v7().simple())
}
