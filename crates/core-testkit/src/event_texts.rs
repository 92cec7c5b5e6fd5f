//! A sink that notes events.

use interlingua_core::Fault;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::EventSink;

/// The events of a reader, as text: two ways to read the same frames are compared by it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EventTexts(pub Vec<String>);

impl EventSink for EventTexts {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.0.push(format!("{event:?}"));
        Ok(())
    }
}
