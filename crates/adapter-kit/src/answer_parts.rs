//! The parts of an answer as encoders read them: the shape of a message, its calls, its error, its annotations.
//!
//! The encoders of all protocols walk the same steps. They also share the order of messages ([`crate::sequencer`]), the
//! part of a text that was sent ([`crate::emitted_text`]), the calls that the client knows ([`crate::call_ledger`]),
//! and the outputs of calls ([`crate::call_output`]). Not here: the events of a protocol.

use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{MessageType, Role, ToolCall};
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::step::Step;

/// The part of an answer that a message is. It depends on the announced type and role, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageShape {
    /// A message of the agent: texts, refusals, media, data.
    Text,
    /// Reasoning of the agent.
    Reasoning,
    /// A call of a function. The client runs it, unless the run has its output.
    FunctionCall,
    /// A call that the agent runs, as far as is known when it begins.
    AgentCall,
    /// The output of a call.
    Output,
    /// The tools of an MCP server.
    ToolList,
    /// A pending item.
    Approval,
    /// An error after which the run continues.
    Error,
    /// A message of a type that only some agents have.
    Custom,
    /// No part of an answer: echoes of the client's input, answers of people, heartbeats, events of a protocol.
    Hidden,
}

impl MessageShape {
    /// The shape of a message.
    #[must_use]
    #[inline]
    pub const fn from_message(message: &Message) -> Self {
        match &message.announced {
            MessageType::Message => match message.role {
                // An echo of the client's own input must not look like an answer.
                Role::User | Role::System => Self::Hidden,
                Role::Assistant | Role::Tool | Role::Other(_) => Self::Text,
            },
            MessageType::Reasoning => Self::Reasoning,
            MessageType::FunctionCall => Self::FunctionCall,
            kind if kind.is_call() => Self::AgentCall,
            kind if kind.is_output() => Self::Output,
            MessageType::McpListTools => Self::ToolList,
            MessageType::McpApprovalRequest => Self::Approval,
            MessageType::Error => Self::Error,
            MessageType::McpApprovalResponse | MessageType::Heartbeat | MessageType::ProtocolEvent => Self::Hidden,
            _ => Self::Custom,
        }
    }
}

/// The content that a step concerns, with its place in the run.
#[derive(Clone, Copy, Debug)]
pub struct ContentStep<'r> {
    /// The run, which may already be ahead of the step.
    pub run: &'r Run,
    /// The message of the content.
    pub message: &'r Message,
    /// Index in [`Run::messages`].
    pub message_index: usize,
    /// The content.
    pub slot: &'r Slot,
    /// Index in [`Message::slots`].
    pub index: usize,
}

impl<'r> ContentStep<'r> {
    /// The content of a step. `None`: the step concerns a message, a turn or the run as a whole.
    #[must_use]
    pub fn from_step(step: &Step<'r>) -> Option<Self> {
        let ((message_index, message), (index, slot)) = (step.message()?, step.slot()?);
        Some(Self { run: step.run, message, message_index, slot, index })
    }
}

/// The call in a finished content. `None`: the content is neither a call nor data.
#[must_use]
pub fn whole_call(slot: &Slot) -> Option<ToolCall> {
    if let Some(head) = slot.call.clone() {
        let arguments = slot.text().to_owned();
        return Some(ToolCall { call_id: head.call_id, name: head.name, arguments, server_label: head.server_label });
    }
    slot.data().map(call_in_data)
}

/// The call in the data of a content. Data without a fixed form, such as those of a component call, are the arguments
/// unless they have a field for them.
#[must_use]
pub fn call_in_data(data: &Json) -> ToolCall {
    let call: ToolCall = data.decode().unwrap_or_default();
    let has_arguments = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
    if has_arguments { call } else { ToolCall { arguments: data.text().to_owned(), ..call } }
}

/// Derives an id for a call or an output that lacks one from the id of its message and the index of its content.
#[must_use]
pub fn derived_id(message: &str, content: usize) -> String {
    if content == 0 { message.to_owned() } else { format!("{message}_{content}") }
}

/// The text of an error after which the run continues.
#[must_use]
pub fn error_text(message: &Message) -> String {
    let error = message.message.clone().filter(|text| !text.is_empty());
    let error = error.or_else(|| Some(message.text()).filter(|text| !text.is_empty()));
    error.unwrap_or_else(|| "the agent reported an error".to_owned())
}

/// The annotations that arrived with the end of a message. They belong to its last text.
#[must_use]
pub fn late_annotations(message: &Message) -> Vec<Json> {
    let metadata: Option<Extra> = message.metadata.as_ref().and_then(Json::decode);
    metadata.and_then(|fields| fields.get("annotations")?.decode()).unwrap_or_default()
}

/// True if an answer was truncated by a filter of contents.
#[must_use]
pub fn is_filtered(run: &Run) -> bool {
    run.error().is_some_and(|error| {
        error.code.to_ascii_lowercase().contains("content_filter") || error.message == "content_filter"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_without_a_field_for_arguments_are_the_arguments() {
        for (data, name, arguments) in [
            (r#"{"call_id":"a","name":"f","arguments":"{}"}"#, "f", "{}"),
            (r#"{"component":"Card"}"#, "", r#"{"component":"Card"}"#),
            ("[1]", "", "[1]"),
        ] {
            let call = call_in_data(&Json::parse(data).expect("JSON"));
            assert_eq!((call.name.as_str(), call.arguments.as_str()), (name, arguments));
        }
    }
}
