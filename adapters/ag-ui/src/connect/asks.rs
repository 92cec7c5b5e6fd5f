//! Questions of an agent that interrupts its run, as pending items.
//!
//! An interrupt arrives in the outcome of the run, in a custom event, or, with Agno, as a call without an output. The
//! item stores the form of the question, so that an answer needs no state of the session.
//!
//! Not here: writing the answers ([`super::answers`]).

use interlingua_core::answer::payload::{self, Question, Style};
use interlingua_core::model::MessageType;
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::{Extra, Fault, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::calls::{Call, Calls, is_same_json};
use super::context::Context;
use super::frame::{Fields, text_or_json};
use super::ids::{digest, key};

/// Maximum number of calls of a turn that are stored with an item.
const MAX_CALLS: usize = 64;
/// Maximum number of calls that are compared with the call in an approval.
const MAX_COMPARED: usize = 8;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AnswerForm {
    /// In `resume`.
    #[default]
    Resume,
    /// In `forwardedProps.command.resume`.
    Command,
    /// The output of the call, which says whether it may run.
    Confirmation,
    /// The output of the call, with the missing arguments.
    Values,
    /// The output of ADK's call that asks for a confirmation of another call.
    Confirmed,
}

/// Where an item comes from: kept with it, and found again when it is answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) protocol: String,
    /// The interrupt's id. None: the agent gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) way: AnswerForm,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) style: Option<Style>,
    /// Calls of the turn without an output, which the next turn may announce again: id and name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<(String, String)>,
    /// The agent's id of the last message before the interrupt. Empty: it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
}

/// A question of the agent, before it becomes an item.
#[derive(Debug)]
pub(super) struct AgentQuestion {
    /// The id of the item.
    id: String,
    /// The interrupt's id.
    own_id: Option<String>,
    way: AnswerForm,
    reason: Option<String>,
    message: Option<String>,
    /// The agent's id of the call that it concerns.
    call_id: Option<String>,
    schema: Option<Json>,
    expires_at: Option<String>,
    payload: Option<Json>,
    metadata: Option<Json>,
    /// The call that waits for a confirmation, which another call asks for: its name and arguments.
    confirmed: Option<(String, String)>,
}

/// The call by which ADK asks for the confirmation of another one.
pub(super) const CONFIRMATION: &str = "adk_request_confirmation";

/// The payload of a call with missing arguments.
#[derive(Serialize)]
struct CallPayload<'a> {
    name: &'a str,
    arguments: Json,
}

impl AgentQuestion {
    /// An entry of an outcome.
    pub(super) fn from_outcome(raw: &RawValue, place: usize) -> Option<Self> {
        let fields = Fields::parse(raw.get())?;
        let own_id = fields.text("id").map(std::borrow::Cow::into_owned);
        let metadata = fields.object("metadata").unwrap_or_default();
        let nested = metadata.object("langgraph").and_then(|own| own.get("raw")).or_else(|| metadata.get("payload"));
        let payload =
            nested.map(|payload| Fields::parse(payload.get()).and_then(|own| own.get("value")).unwrap_or(payload));

        Some(Self {
            id: own_id.clone().unwrap_or_else(|| format!("interrupt_{:016x}_{place}", digest([raw.get()]))),
            own_id,
            way: AnswerForm::Resume,
            reason: fields.text("reason").map(std::borrow::Cow::into_owned),
            message: fields.text("message").map(std::borrow::Cow::into_owned),
            call_id: fields.text("toolCallId").map(std::borrow::Cow::into_owned),
            schema: fields.get("responseSchema").map(Json::from_raw),
            expires_at: fields.text("expiresAt").map(std::borrow::Cow::into_owned),
            payload: payload.map(Json::from_raw),
            metadata: fields.get("metadata").map(Json::from_raw),
            confirmed: None,
        })
    }

    /// A custom event `on_interrupt`. Asked again, it is the same item.
    pub(super) fn from_event(event: &Fields<'_>, thread: &str) -> Self {
        let value = event.get("value").unwrap_or(RawValue::NULL);
        let text = text_or_json(value);
        // JSON, or its text.
        let payload =
            Json::parse(&text).filter(|json| !json.text().starts_with('"')).unwrap_or_else(|| Json::from_raw(value));
        // LangGraph's adapter names the interrupt where it sends the events of its framework, too.
        let own_id = event.object("rawEvent").and_then(|raw| raw.text("id")).map(std::borrow::Cow::into_owned);
        let fields = Fields::parse(payload.text()).unwrap_or_default();
        let word = |name: &str| fields.text(name).map(std::borrow::Cow::into_owned);
        Self {
            id: format!("interrupt_{:016x}", digest([thread, payload.text()])),
            own_id,
            way: AnswerForm::Command,
            reason: word("reason"),
            message: word("message"),
            call_id: word("toolCallId"),
            schema: fields.get("responseSchema").map(Json::from_raw),
            expires_at: word("expiresAt"),
            metadata: None,
            payload: Some(payload),
            confirmed: None,
        }
    }

    /// A call that waits for a person.
    pub(super) fn of_call(call: &Call, way: AnswerForm) -> Self {
        if way == AnswerForm::Confirmed { Self::from_confirmation(call) } else { Self::from_call(call, way) }
    }

    fn from_call(call: &Call, way: AnswerForm) -> Self {
        let asks_for_values = way == AnswerForm::Values;
        let payload = || {
            let arguments = call.known_arguments().and_then(Json::parse).unwrap_or_else(Json::null);
            Json::from_serialize(&CallPayload { name: &call.name, arguments })
        };
        Self {
            id: format!("{}-confirmation", call.id),
            own_id: None,
            way,
            reason: Some(if asks_for_values { "input_required" } else { "confirmation" }.to_owned()),
            message: asks_for_values.then(|| format!("The tool {} needs more arguments.", call.name)),
            call_id: Some(call.key.clone()),
            schema: None,
            expires_at: None,
            payload: asks_for_values.then(payload),
            metadata: None,
            confirmed: None,
        }
    }

    /// ADK's call that asks for the confirmation of another one.
    fn from_confirmation(call: &Call) -> Self {
        let arguments = Fields::parse(call.known_arguments().unwrap_or("{}")).unwrap_or_default();
        let function = arguments.object("originalFunctionCall").unwrap_or_default();
        let confirmation = arguments.object("toolConfirmation").unwrap_or_default();
        let word = |fields: &Fields<'_>, name: &str| fields.text(name).map(std::borrow::Cow::into_owned);
        let name = word(&function, "name").unwrap_or_else(|| CONFIRMATION.to_owned());
        let args = function.get("args").map_or("{}", RawValue::get).to_owned();
        Self {
            own_id: Some(call.key.clone()),
            reason: Some("confirmation".to_owned()),
            message: word(&confirmation, "hint"),
            call_id: word(&function, "id").or_else(|| Some(call.key.clone())),
            confirmed: Some((name, args)),
            ..Self::from_call(call, AnswerForm::Confirmed)
        }
    }

    /// Emits the items of an interrupt: one for each action in its payload.
    pub(super) fn emit(&self, calls: &Calls, scene: &Scene, context: &mut Context<'_>) -> Result<(), Fault> {
        let (questions, style) = self.questions(calls);
        let is_one = questions.len() == 1;
        for (question, place) in questions.into_iter().zip(0..) {
            let id = if is_one { self.id.clone() } else { format!("{}:{place}", self.id) };
            let call = self.call_id.clone().or_else(|| concerned_call(&question, calls));
            let call_id = call.map(|own| calls.get(&key(&own)).map_or(own, |call| call.id.clone()));
            let source = Source {
                protocol: crate::NAME.to_owned(),
                id: self.own_id.clone(),
                way: self.way,
                style: Some(style),
                calls: scene.calls.clone(),
                after: scene.after.clone(),
            };
            let data = self.to_data(&id, &question, call_id, &source);
            context.emit_data(&id, MessageType::McpApprovalRequest, data)?;
        }
        Ok(())
    }

    /// The questions, and the form of the expected answer.
    fn questions(&self, calls: &Calls) -> (Vec<Question>, Style) {
        let reason = self.reason.as_deref();
        let by_payload = || self.payload.as_ref().map(payload::parse);
        let call = self.call_id.as_deref().and_then(|id| calls.get(id));
        let is_approval = match reason {
            Some("tool_call" | "confirmation") => true,
            Some("input_required") => false,
            _ => self.call_id.is_some(),
        };

        if let Some((name, arguments)) = &self.confirmed {
            let approval = self.approval(None);
            return (vec![Question { name: name.clone(), arguments: arguments.clone(), ..approval }], Style::Approved);
        }
        if let Some((questions, style)) = by_payload().filter(|(_, style)| *style != Style::Plain) {
            return (questions, style);
        }
        if is_approval {
            return (vec![self.approval(call)], Style::Approved);
        }
        let message = self.message.clone();
        let (mut questions, style) = by_payload().unwrap_or_else(|| (vec![plain_question()], Style::Plain));
        if let Some(question) = questions.first_mut() {
            question.message = message.or(question.message.take());
        }
        (questions, style)
    }

    /// The approval of a call, or of whatever the message says.
    fn approval(&self, call: Option<&Call>) -> Question {
        let mut decisions = vec![Decision::Accept, Decision::Reject];
        if self.way == AnswerForm::Resume
            && self.schema.as_ref().is_some_and(|schema| has_property(schema, "editedArgs"))
        {
            decisions.insert(1, Decision::Edit);
        }
        if self.way == AnswerForm::Resume {
            decisions.push(Decision::Cancel);
        }
        Question {
            kind: PendingKind::Approval,
            name: call.map_or_else(|| self.reason.clone().unwrap_or_default(), |call| call.name.clone()),
            arguments: call.and_then(Call::known_arguments).unwrap_or("{}").to_owned(),
            message: self.message.clone(),
            decisions,
            schema: None,
        }
    }

    fn to_data(&self, id: &str, question: &Question, call_id: Option<String>, source: &Source) -> Json {
        let is_input = question.kind == PendingKind::Input;
        let reason = self.reason.as_deref();
        let mut interrupt = Extra::new();
        interrupt.push("kind", Json::from_serialize(&question.kind));
        let texts = [
            ("reason", reason),
            ("message", self.message.as_deref().or(question.message.as_deref())),
            ("call_id", call_id.as_deref()),
            ("expires_at", self.expires_at.as_deref()),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                interrupt.push(name, Json::from_serialize(text));
            }
        }
        if !question.decisions.is_empty() {
            interrupt.push("decisions", Json::from_serialize(&question.decisions));
        }
        let values = [
            ("response_schema", self.schema.as_ref().or(question.schema.as_ref())),
            ("payload", self.payload.as_ref()),
            ("metadata", self.metadata.as_ref()),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                interrupt.push(name, value.clone());
            }
        }
        interrupt.push("source", Json::from_serialize(source));

        let name = if is_input { reason.unwrap_or("input_required") } else { &question.name };
        let payload = self.payload.as_ref().map_or("{}", Json::text);
        let arguments = if is_input { payload } else { &question.arguments };
        let mut data = Extra::new();
        data.push("id", Json::from_serialize(id));
        data.push("name", Json::from_serialize(name));
        data.push("arguments", Json::from_serialize(arguments));
        data.push("interrupt", Json::from_serialize(&interrupt));
        Json::from_serialize(&data)
    }

    /// The call that it names.
    pub(super) fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }
}

fn plain_question() -> Question {
    Question {
        kind: PendingKind::Input,
        name: String::new(),
        arguments: String::new(),
        message: None,
        decisions: vec![Decision::Respond],
        schema: None,
    }
}

/// The call that an approval concerns where it does not say so: the last open one with this name and these arguments.
fn concerned_call(question: &Question, calls: &Calls) -> Option<String> {
    if question.kind != PendingKind::Approval || question.name.is_empty() {
        return None;
    }
    let has_name = |call: &&Call| !call.is_answered && call.name == question.name;
    let open = calls.iter().rev().filter(has_name);
    let fits = |call: &&Call| call.known_arguments().is_none_or(|known| is_same_json(known, &question.arguments));
    open.take(MAX_COMPARED).find(fits).map(|call| call.key.clone())
}

/// The facts about a turn that the next turn needs for its answer.
#[derive(Debug)]
pub(super) struct Scene {
    calls: Vec<(String, String)>,
    after: Option<String>,
}

impl Scene {
    /// `after`: the agent's id of the last message.
    pub(super) fn new(calls: &Calls, after: Option<String>) -> Self {
        let open = calls.iter().filter(|call| !call.is_answered);
        let calls = open.take(MAX_CALLS).map(|call| (call.key.clone(), call.name.clone())).collect();
        Self { calls, after }
    }
}

/// True if a schema of an object names this property.
pub(super) fn has_property(schema: &Json, name: &str) -> bool {
    #[derive(Deserialize)]
    struct Schema {
        properties: Extra,
    }
    schema.decode::<Schema>().is_some_and(|schema| schema.properties.get(name).is_some())
}
