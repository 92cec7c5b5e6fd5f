//! The agent's own fields of a message beside its content: its metadata, and values that only the agent can read.
//!
//! Not here: the content, which `texts` and `calls` write.

use interlingua_core::run::Message;
use interlingua_core::{Extra, Json};

use super::super::events::Origin;

/// The agent's own fields of a message: in their original form if the agent speaks this protocol.
pub(super) fn origin_of(message: &Message, is_v1: bool) -> Origin {
    let Some(metadata) = &message.announced_metadata else { return Origin::default() };
    let fields: Extra = metadata.decode().unwrap_or_default();
    if !is_by_own(&fields) {
        let mut own = Extra::new();
        own.push("agentapi", metadata.clone());
        return Origin { metadata: Some(Json::from_serialize(&own)), ..Origin::default() };
    }
    Origin {
        name: fields.get("name").and_then(Json::decode),
        metadata: fields.get("metadata").filter(|metadata| metadata.is_object()).cloned(),
        subagent_run_id: fields.get("subagent_run_id").filter(|_| is_v1).and_then(Json::decode),
    }
}

fn is_by_own(fields: &Extra) -> bool {
    let author: Option<String> = fields.get(interlingua_core::opaque::ORIGIN).and_then(Json::decode);
    author.is_some_and(|author| author.split('/').next() == Some(crate::NAME))
}

/// True for a message of an agent that speaks this protocol.
pub(super) fn is_own(message: &Message) -> bool {
    message.announced_metadata.as_ref().and_then(Json::decode).is_some_and(|fields: Extra| is_by_own(&fields))
}

/// The value that only the agent can read, in a finished message.
pub(super) fn sealed(message: &Message) -> Option<String> {
    let metadata: Extra = message.metadata.as_ref()?.decode()?;
    metadata.get("encrypted_content")?.decode()
}
