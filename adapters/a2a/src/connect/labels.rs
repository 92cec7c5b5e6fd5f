//! Types and metadata of the messages that hold an agent's parts.

use interlingua_core::Json;
use interlingua_core::agent_event::JsonRef;
use interlingua_core::model::MessageType;
use serde_json::value::RawValue;

use super::content::PartKind;
use super::options::UpstreamStatusText;
use super::texts::{MessagePosition, is_no_text};
use super::wire::Message;
use crate::wire::Part;

/// The canonical message a part goes into.
pub(super) fn message_type(kind: &PartKind, part: &Part<'_>, place: MessagePosition) -> MessageType {
    match kind {
        PartKind::Reasoning => MessageType::Reasoning,
        PartKind::Call(kind) | PartKind::Output(kind) | PartKind::Typed(kind) => kind.clone(),
        PartKind::Refusal => MessageType::Message,
        PartKind::Plain => match place {
            MessagePosition::Status(UpstreamStatusText::Auto | UpstreamStatusText::Reasoning) if !is_no_text(part) => {
                MessageType::Reasoning
            }
            _ => MessageType::Message,
        },
    }
}

/// `metadata.a2a` of a message.
pub(super) fn metadata(message: &Message<'_>, place: MessagePosition) -> Option<JsonRef<'static>> {
    #[derive(serde::Serialize)]
    struct Outer<'a> {
        a2a: Inner<'a>,
    }
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        reply: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extensions: Option<&'a RawValue>,
    }
    let reply = (place == MessagePosition::Reply).then_some("message");
    if reply.is_none() && message.metadata.is_none() && message.extensions.is_none() {
        return None;
    }
    let inner = Inner { reply, metadata: message.metadata, extensions: message.extensions };
    Some(JsonRef::Owned(Json::from_serialize(&Outer { a2a: inner })))
}
