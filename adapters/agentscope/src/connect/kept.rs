//! Events of this protocol that the model has no word for: hints and custom events. A client of the same protocol gets
//! them as they came. Not here: how much of them a run may have (the normalizer).

use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{Fault, Json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::options::Events;

/// Why an event is not kept, mostly.
const NOT_READ: &str = "no client of this agent reads such events";

/// The events that only this protocol has: which are stored, and their number.
#[derive(Debug)]
pub(super) struct StoredEvents {
    is_on: bool,
    count: u32,
}

impl StoredEvents {
    /// `are_read`: some client reads them.
    pub(super) const fn new(option: Events, are_read: bool) -> Self {
        let is_on = match option {
            Events::Auto => are_read,
            Events::Keep => true,
            Events::Drop => false,
        };
        Self { is_on, count: 0 }
    }

    /// An event that is not there any more.
    pub(super) fn miss(&self, losses: &mut Losses) {
        let how = if self.is_on { "the service has forgotten it" } else { NOT_READ };
        losses.lost(ContentKind::ProtocolEvent, how);
    }

    pub(super) fn keep(&mut self, event: &[u8], losses: &mut Losses, sink: &mut dyn EventSink) -> Result<(), Fault> {
        #[derive(Serialize)]
        struct EventData<'a> {
            protocol: &'static str,
            event: &'a RawValue,
        }
        if !self.is_on {
            losses.lost(ContentKind::ProtocolEvent, NOT_READ);
            return sink.emit(&AgentEvent::KeepAlive);
        }
        let Ok(event) = serde_json::from_slice::<&RawValue>(event) else { return sink.emit(&AgentEvent::Ignored) };

        self.count += 1;
        let data = Json::from_serialize(&EventData { protocol: crate::NAME, event });
        let id = format!("event_{}", self.count);
        sink.emit(&AgentEvent::whole(&id, MessageType::ProtocolEvent, Role::Assistant, ContentValue::OwnedData(data)))
    }
}
