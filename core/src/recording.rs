//! Records the events of a connector: through a normalizer into a record.

use crate::agent_event::AgentEvent;
use crate::connector::EventSink;
use crate::fault::Fault;
use crate::normalize::Normalizer;
use crate::run::Record;

/// Writes the events of an agent into a record.
#[derive(Debug)]
pub struct Recording<'a> {
    /// The run.
    pub record: &'a mut Record,
    /// The normalizer of its current turn.
    pub normalizer: &'a mut Normalizer,
}

impl EventSink for Recording<'_> {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.normalizer.emit(self.record, event).map(|_| ())
    }

    fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }

    fn has_ended(&self) -> bool {
        self.normalizer.has_ended()
    }
}
