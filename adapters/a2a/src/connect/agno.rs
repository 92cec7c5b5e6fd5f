//! Progress of Agno agents: Agno writes tool calls and reasoning into the metadata of a status, not into its message.

use std::borrow::Cow;

use interlingua_core::Fault;
use interlingua_core::agent_event::{AgentEvent, CallPart, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::digest::Digest;
use super::events::ItemReader;

/// Metadata of a status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Progress {
    agno_event_type: Option<String>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    /// JSON text.
    tool_args: Option<String>,
    reasoning_content: Option<String>,
}

impl ItemReader {
    /// Emits the progress in the metadata of a status. Its outputs of tools have no text, so they are not read.
    pub(super) fn agno_progress(&mut self, metadata: &RawValue, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if !metadata.get().contains("\"agno_event_type\"") || !self.mark_digest_read(digest(metadata)) {
            return Ok(());
        }
        let Ok(progress) = serde_json::from_str::<Progress>(metadata.get()) else { return Ok(()) };
        match (progress.agno_event_type.as_deref(), progress.tool_name, progress.reasoning_content) {
            (Some("tool_call_started"), Some(name), _) => {
                let call_id = progress.tool_call_id.unwrap_or_else(|| format!("call-{}", self.items));
                let id = format!("{call_id}-call");
                let part = CallPart {
                    call_id: Cow::Owned(call_id),
                    name: Cow::Owned(name),
                    arguments: Cow::Owned(progress.tool_args.unwrap_or_else(|| "{}".to_owned())),
                    server_label: None,
                };
                sink.emit(&AgentEvent::whole(&id, MessageType::PluginCall, Role::Assistant, ContentValue::Call(part)))
            }
            (Some("reasoning_step"), _, Some(text)) if !text.is_empty() => {
                let id = format!("reasoning-{}", self.items);
                let value = ContentValue::Text(Cow::Owned(text));
                sink.emit(&AgentEvent::whole(&id, MessageType::Reasoning, Role::Assistant, value))
            }
            _ => Ok(()),
        }
    }
}

fn digest(metadata: &RawValue) -> u64 {
    Digest::from_bytes(metadata.get().as_bytes()).value()
}
