//! The parts of an answer as encoders read them: the shape of a message, its calls, its error, its annotations.
//!
//! The encoders of all protocols walk the same steps. They also share the order of messages ([`crate::sequencer`]), the
//! part of a text that was sent ([`crate::emitted_text`]), the calls that the client knows ([`crate::call_ledger`]), and
//! the outputs of calls ([`crate::call_output`]). Not here: the events of a protocol.

use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{MessageType, Role, ToolCall};
use interlingua_core::run::{Message, Slot};

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

/// The call in a finished content. A content without a fixed form, such as a component call, is its own arguments unless
/// it has a field for them. `None`: the content is neither a call nor data.
#[must_use]
pub fn whole_call(slot: &Slot) -> Option<ToolCall> {
    if let Some(head) = slot.call.clone() {
        let arguments = slot.text().to_owned();
        return Some(ToolCall { call_id: head.call_id, name: head.name, arguments, server_label: head.server_label });
    }
    let data = slot.data()?;
    let call: ToolCall = data.decode().unwrap_or_default();
    let has_arguments = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
    Some(if has_arguments { call } else { ToolCall { arguments: data.text().to_owned(), ..call } })
}

/// An id for a call or an output without one, derived from the id of its message and the index of its content.
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
