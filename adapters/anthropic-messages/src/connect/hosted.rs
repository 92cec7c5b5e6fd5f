//! Blocks that come whole: outputs of tools that the server ran, thoughts that only the server can read, and blocks
//! that this version has no name for.

use std::borrow::Cow;

use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{ContentKind, End, Extra, Fault, Json, Losses, opaque};
use serde_json::value::RawValue;

use super::blocks::MAX_ITEM;
use super::wire::Block;

/// A call that the server made of itself.
#[derive(Debug)]
pub(super) struct HostedCall {
    /// The id that clients see.
    pub(super) call_id: String,
    pub(super) name: String,
}

/// Where messages go, and what they are made with.
pub(super) struct HostedOutput<'a> {
    /// The author's name of opaque values.
    pub(super) origin: &'a str,
    pub(super) ids: &'a mut TurnIds,
    pub(super) losses: &'a mut Losses,
    pub(super) sink: &'a mut dyn EventSink,
}

/// True for the output of a tool that the server ran.
pub(super) fn is_output(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// A thought that the server encrypted: a message without text, to be sent back.
pub(super) fn redacted(data: &str, to: &mut HostedOutput<'_>) -> Result<(), Fault> {
    let mut metadata = Extra::new();
    metadata.push("redacted", Json::from_serialize(data));
    metadata.push(opaque::ORIGIN, Json::from_serialize(to.origin));
    to.sink.emit(&AgentEvent::Message(MessageEvent {
        id: Some(to.ids.message().into()),
        kind: Some(MessageType::Reasoning),
        end: Some(End::Completed),
        metadata: Some(JsonRef::Owned(Json::from_serialize(&metadata))),
        ..MessageEvent::default()
    }))
}

/// The output of a tool that the server ran. `call`: the call, if it was seen.
pub(super) fn output(
    kind: &str,
    block: &Block<'_>,
    raw: &RawValue,
    call: Option<&HostedCall>,
    to: &mut HostedOutput<'_>,
) -> Result<(), Fault> {
    let given = block.tool_use_id.as_deref().unwrap_or_default();
    let mut data = Extra::new();
    data.push("call_id", Json::from_serialize(call.map_or(given, |call| &call.call_id)));
    if let Some(call) = call {
        data.push("name", Json::from_serialize(&call.name));
    }
    data.push("output", Json::from_serialize(&block.content.map(output_text).unwrap_or_default()));

    let mut metadata = Extra::new();
    if raw.get().len() <= MAX_ITEM {
        metadata.push("item", Json::from_raw(raw));
        metadata.push(opaque::ORIGIN, Json::from_serialize(to.origin));
    } else {
        to.losses.lost(ContentKind::Opaque, "the output of a server's tool is too large to be sent back as it was");
    }

    let has_failed = block.is_error.is_some_and(|is_error| is_error.get() == "true") || is_error(block.content);
    let is_mcp = kind == "mcp_tool_result";
    whole(
        if is_mcp { MessageType::McpCallOutput } else { MessageType::PluginCallOutput },
        Role::Tool,
        Json::from_serialize(&data),
        &metadata,
        if has_failed { End::Failed } else { End::Completed },
        to,
    )
}

/// Stores a block of an unknown type as a message of that type. Returns false for a type of the model that this block
/// does not match.
pub(super) fn unknown(kind: &str, raw: &RawValue, to: &mut HostedOutput<'_>) -> Result<bool, Fault> {
    let kind = MessageType::from(kind);
    if !matches!(kind, MessageType::Other(_)) {
        return Ok(false);
    }

    let mut metadata = Extra::new();
    metadata.push(opaque::ORIGIN, Json::from_serialize(to.origin));
    whole(kind, Role::Assistant, Json::from_raw(raw), &metadata, End::Completed, to)?;
    Ok(true)
}

fn whole(
    kind: MessageType,
    role: Role,
    data: Json,
    metadata: &Extra,
    end: End,
    to: &mut HostedOutput<'_>,
) -> Result<(), Fault> {
    let id = to.ids.message();
    let content = ContentEvent::new(&id, ContentUpdate::Final, ContentValue::OwnedData(data));
    to.sink.emit(&AgentEvent::Message(MessageEvent {
        id: Some(Cow::Borrowed(&id)),
        kind: Some(kind),
        role: Some(role),
        end: Some(end),
        contents: vec![content],
        metadata: (!metadata.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(metadata))),
        ..MessageEvent::default()
    }))
}

/// The output of a tool: its text if it has no other content, else its JSON.
fn output_text(content: &RawValue) -> String {
    #[derive(serde::Deserialize)]
    struct TextBlock {
        #[serde(rename = "type")]
        kind: String,
        text: String,
    }

    if let Ok(text) = serde_json::from_str::<String>(content.get()) {
        return text;
    }
    match serde_json::from_str::<Vec<TextBlock>>(content.get()) {
        Ok(blocks) if !blocks.is_empty() && blocks.iter().all(|block| block.kind == "text") => {
            blocks.into_iter().map(|block| block.text).collect::<Vec<_>>().join("\n")
        }
        _ => content.get().to_owned(),
    }
}

/// True for a result such as `{"type":"web_search_tool_result_error",…}`.
fn is_error(content: Option<&RawValue>) -> bool {
    let fields: Option<Extra> = content.and_then(|content| serde_json::from_str(content.get()).ok());
    let kind = fields.and_then(|fields| fields.get("type")?.decode::<String>());
    kind.is_some_and(|kind| kind.ends_with("_error"))
}
