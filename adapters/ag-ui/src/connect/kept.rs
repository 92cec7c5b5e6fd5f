//! Events of this protocol that the model has no word for: state, activity, steps, and what applications add. A client
//! of the same protocol gets them unchanged. Not here: how much of them a run may have (the normalizer).

use std::borrow::Cow;

use interlingua_core::loss::ContentKind;
use interlingua_core::model::MessageType;
use interlingua_core::{Extra, Fault, Json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::context::Context;
use super::frame::Fields;
use super::options::Events;

/// The events that only this protocol has: which are stored, and their number.
#[derive(Debug)]
pub(super) struct StoredEvents {
    is_enabled: bool,
    keeps_raw: bool,
    count: u32,
}

/// The data of a message with an event.
#[derive(Serialize)]
struct EventData<'a> {
    protocol: &'static str,
    event: Cow<'a, RawValue>,
}

impl StoredEvents {
    /// `are_read`: some client reads them.
    pub(super) const fn new(option: Events, are_read: bool) -> Self {
        let is_enabled = match option {
            Events::Auto => are_read,
            Events::Keep | Events::All => true,
            Events::Drop => false,
        };
        Self { is_enabled, keeps_raw: matches!(option, Events::All), count: 0 }
    }

    /// Stores an event of the protocol in the run: emits it as a message of data.
    pub(super) fn keep(&mut self, text: &str, event: &Fields<'_>, context: &mut Context<'_>) -> Result<(), Fault> {
        if !self.is_enabled {
            return drop_event("no client of this agent reads such events", context);
        }

        let raw_event = event.get("rawEvent");
        let event = match raw_event {
            Some(_) if !self.keeps_raw => Cow::Owned(without_raw_event(event)),
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => Cow::Borrowed(raw),
                Err(_) => return Ok(()),
            },
        };
        self.count += 1;
        let data = Json::from_serialize(&EventData { protocol: crate::NAME, event });
        context.emit_data(&format!("event_{}", self.count), MessageType::ProtocolEvent, data)
    }

    /// An event of the agent's framework. Everything in it comes again as an event of the protocol.
    pub(super) fn keep_raw(&mut self, text: &str, event: &Fields<'_>, context: &mut Context<'_>) -> Result<(), Fault> {
        if self.keeps_raw {
            return self.keep(text, event, context);
        }
        drop_event("raw events of the agent's framework are left out", context)
    }
}

fn drop_event(how: &'static str, context: &mut Context<'_>) -> Result<(), Fault> {
    context.shared.losses.lost(ContentKind::ProtocolEvent, how);
    context.sink.emit(&interlingua_core::agent_event::AgentEvent::KeepAlive)
}

/// An event without that of the framework it was made from. All other fields stay unchanged.
fn without_raw_event(event: &Fields<'_>) -> Box<RawValue> {
    let rest = event.iter().filter(|(name, _)| !matches!(*name, "rawEvent" | "raw_event"));
    let rest: Extra = rest.map(|(name, value)| (Box::<str>::from(name), Json::from_raw(value))).collect();
    Json::from_serialize(&rest).raw().to_owned()
}
