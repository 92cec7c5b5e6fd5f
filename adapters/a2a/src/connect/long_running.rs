//! Calls that ADK marks as long-running: the task waits for their output, which a client may send like that of a tool of
//! its own.
//!
//! ADK names such a call in a status while the task works, in the message of the status that waits, or in both; with it
//! may come what the tool returned at once, which is not the output. Not here: what else a waiting task asks (`questions`).

use interlingua_core::agent_event::{AgentEvent, CallPart, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::{Fault, Json};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::content::{self, PartKind};
use super::events::ItemReader;
use super::session::{AskedCall, LongCall, storable};
use crate::wire::{Content, Part, to_raw};

/// Calls that a task may wait for at once. Others are calls like any.
const MAX_CALLS: usize = 64;

fn long_call(part: &Part<'_>) -> Option<LongCall> {
    if !content::is_long_running(part) {
        return None;
    }
    let Content::Data(data) = &part.content else { return None };
    let call = content::call(part, data)?;
    let id = storable(&call.call_id)?;
    Some(LongCall { id, name: storable(&call.name)?, arguments: call.arguments.into_owned() })
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
    /// Takes long-running calls out of a message. What they returned at once becomes plain data: it is no output.
    pub(super) fn take_long_calls(&mut self, parts: &mut Vec<Part<'_>>) {
        parts.retain_mut(|part| {
            let Some(kind) = part.metadata.is_some().then(|| content::kind(part)) else { return true };
            match (kind, &part.content) {
                (PartKind::Call(_), _) => {
                    let Some(call) = long_call(part) else { return true };
                    let is_known = self.long_calls.iter().any(|known| known.id == call.id);
                    if !is_known && self.long_calls.len() >= MAX_CALLS {
                        return true;
                    }
                    if !is_known {
                        self.long_calls.push(call);
                    }
                    false
                }
                (PartKind::Output(_), Content::Data(data)) => {
                    let id = response_id(data);
                    if self.long_calls.iter().any(|call| Some(&call.id) == id.as_ref()) {
                        part.metadata = None;
                    }
                    true
                }
                _ => true,
            }
        });
    }

    /// Emits the calls as the client's: the task waits for them.
    pub(super) fn ask_long_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.session.calls.clear();
        for call in std::mem::take(&mut self.long_calls) {
            emit(&call, MessageType::FunctionCall, sink)?;
            self.session.calls.push(AskedCall { id: call.id, name: call.name });
        }
        Ok(())
    }

    /// Emits the calls as the agent's: the task has ended without waiting for them.
    pub(super) fn release_long_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        std::mem::take(&mut self.long_calls).iter().try_for_each(|call| emit(call, MessageType::PluginCall, sink))
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

/// The output of a call, as ADK reads it: a failure is the `error` of the response. None: the task waits for no such call.
pub(super) fn response(calls: &[AskedCall], output: &ToolOutput, is_error: bool) -> Option<Part<'static>> {
    let call = calls.iter().find(|call| call.id == output.call_id)?;
    // Its outputs are objects.
    let object = Json::parse(&output.output).filter(|json| json.text().starts_with('{'));
    let object = object.filter(|_| !is_error);
    let field = if is_error { "error" } else { "output" };
    let response = object.unwrap_or_else(|| Json::from_serialize(&json!({ field: output.output })));
    let data = to_raw(&json!({ "id": call.id, "name": call.name, "response": response }));
    let metadata = json!({ "type": "function_response", "adk_type": "function_response" });
    Some(Part::data(data).with_metadata(to_raw(&metadata)))
}
