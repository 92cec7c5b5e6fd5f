//! Calls that ADK marks as long-running: the task waits for their output, which a client may send like that of a tool
//! of its own.
//!
//! ADK names such a call in a status while the task works, in the message of the status that waits, or in both; with it
//! may come what the tool returned at once, which is not the output. A call of ADK's own, [`CONFIRMATION`], asks a
//! person whether another call may run: it is an approval, and its output says yes or no. Not here: what else a waiting
//! task asks (`questions`).

use interlingua_core::agent_event::{AgentEvent, CallPart, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::pending::Decision;
use interlingua_core::{Fault, Json};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::content::{self, PartKind};
use super::events::ItemReader;
use super::questions::ItemSource;
use super::session::{AskedCall, LongCall, storable};
use crate::wire::{Content, Part, to_raw};

/// The call by which ADK asks for the confirmation of another one.
const CONFIRMATION: &str = "adk_request_confirmation";

/// The arguments of [`CONFIRMATION`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct Confirmation {
    #[serde(rename = "originalFunctionCall", alias = "original_function_call")]
    function: Option<Function>,
    #[serde(rename = "toolConfirmation", alias = "tool_confirmation")]
    confirmation: Option<Hint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    id: Option<String>,
    name: Option<String>,
    args: Option<Json>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Hint {
    hint: Option<String>,
    payload: Option<Json>,
}

/// Calls that a task may wait for at once. Others are calls like any.
const MAX_CALLS: usize = 64;

fn long_call(part: &Part<'_>) -> Option<LongCall> {
    if !content::is_long_running(part) {
        return None;
    }
    let Content::Data(data) = &part.content else { return None };
    let call = content::call(part, data)?;
    let id = storable(&call.call_id)?;
    let (name, arguments) = (storable(&call.name)?, call.arguments.into_owned());
    Some(LongCall { id, name, arguments, prefix: storable(&content::prefix(part)).unwrap_or_default() })
}

/// The id of the call that an output in ADK's form belongs to.
fn response_id(data: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Response {
        id: Option<String>,
    }
    serde_json::from_str::<Response>(data.get()).ok()?.id
}

impl ItemReader {
    /// Removes long-running calls from a message. Their immediate results become plain data: they are no outputs.
    pub(super) fn take_long_running_calls(&mut self, parts: &mut Vec<Part<'_>>) {
        parts.retain_mut(|part| {
            let Some(kind) = part.metadata.is_some().then(|| content::kind(part)) else { return true };
            match (kind, &part.content) {
                (PartKind::Call(_), _) => {
                    let Some(call) = long_call(part) else { return true };
                    let is_known = self.long_running_calls.iter().any(|known| known.id == call.id);
                    if !is_known && self.long_running_calls.len() >= MAX_CALLS {
                        return true;
                    }
                    if !is_known {
                        self.long_running_calls.push(call);
                    }
                    false
                }
                (PartKind::Output(_), Content::Data(data)) => {
                    let id = response_id(data);
                    if self.long_running_calls.iter().any(|call| Some(&call.id) == id.as_ref()) {
                        part.metadata = None;
                    }
                    true
                }
                _ => true,
            }
        });
    }

    /// Emits the calls as the client's: the task waits for them.
    pub(super) fn ask_long_running_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.session.calls.clear();
        for call in std::mem::take(&mut self.long_running_calls) {
            if call.name == CONFIRMATION {
                self.ask_confirmation(call, sink)?;
                continue;
            }
            emit(&call, MessageType::FunctionCall, sink)?;
            self.session.calls.push(AskedCall { id: call.id, name: call.name, prefix: call.prefix });
        }
        Ok(())
    }

    /// Emits an approval item for the call that needs the confirmation.
    fn ask_confirmation(&self, call: LongCall, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let asked: Confirmation = serde_json::from_str(&call.arguments).unwrap_or_default();
        let function = asked.function.unwrap_or_default();
        let source = ItemSource {
            protocol: crate::NAME.to_owned(),
            id: Some(call.id.clone()),
            task_id: self.task.clone(),
            context_id: self.session.context_id.clone(),
            confirmation: Some(AskedCall { id: call.id.clone(), name: call.name, prefix: call.prefix }),
        };
        let mut interrupt = json!({
            "kind": "approval",
            "reason": "tool_confirmation",
            "decisions": [Decision::Accept, Decision::Reject],
            "source": source,
        });
        let hint = asked.confirmation.as_ref().and_then(|confirmation| confirmation.hint.clone());
        let payload = asked.confirmation.and_then(|confirmation| confirmation.payload).filter(|json| !json.is_null());
        if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
            interrupt["message"] = json!(hint);
        }
        if let Some(id) = function.id.filter(|id| !id.is_empty()) {
            interrupt["call_id"] = json!(id);
        }
        if let Some(payload) = payload {
            interrupt["payload"] = json!(payload);
        }
        let name = function.name.filter(|name| !name.is_empty()).unwrap_or_else(|| CONFIRMATION.to_owned());
        let arguments = function.args.as_ref().map_or("{}", Json::text);
        let data = json!({ "id": call.id, "name": name, "arguments": arguments, "interrupt": interrupt });
        let value = ContentValue::OwnedData(Json::from_serialize(&data));
        let id = format!("{}-call", call.id);
        sink.emit(&AgentEvent::whole(&id, MessageType::McpApprovalRequest, Role::Assistant, value))
    }

    /// Emits the calls as the agent's: the task has ended without waiting for them.
    pub(super) fn release_long_running_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        std::mem::take(&mut self.long_running_calls)
            .iter()
            .try_for_each(|call| emit(call, MessageType::PluginCall, sink))
    }
}

fn emit(call: &LongCall, kind: MessageType, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let part = CallPart {
        call_id: call.id.as_str().into(),
        name: call.name.as_str().into(),
        arguments: call.arguments.as_str().into(),
        server_label: None,
    };
    let id = format!("{}-call", call.id);
    sink.emit(&AgentEvent::whole(&id, kind, Role::Assistant, ContentValue::Call(part)))
}

/// The output of a call, as ADK reads it: a failure is the `error` of the response. None: the task waits for no such
/// call.
pub(super) fn response(calls: &[AskedCall], output: &ToolOutput, is_error: bool) -> Option<Part<'static>> {
    let call = calls.iter().find(|call| call.id == output.call_id)?;
    // Its outputs are objects.
    let object = Json::parse(&output.output).filter(|json| json.text().starts_with('{'));
    let object = object.filter(|_| !is_error);
    let field = if is_error { "error" } else { "output" };
    let response = object.unwrap_or_else(|| Json::from_serialize(&json!({ field: output.output })));
    Some(response_part(call, &response))
}

/// The answer to a request for a confirmation: nothing but yes or no.
pub(super) fn confirmed(call: &AskedCall, is_confirmed: bool) -> Part<'static> {
    response_part(call, &Json::from_serialize(&json!({ "confirmed": is_confirmed })))
}

fn response_part(call: &AskedCall, response: &Json) -> Part<'static> {
    let data = to_raw(&json!({ "id": call.id, "name": call.name, "response": response }));
    let mut metadata = json!({ "type": "function_response", "adk_type": "function_response" });
    if !call.prefix.is_empty() {
        metadata[format!("{}type", call.prefix)] = json!("function_response");
    }
    Part::data(data).with_metadata(to_raw(&metadata))
}
