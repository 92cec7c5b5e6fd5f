//! Showing a record as the engine shows it: what is known of a run besides, and what it waits for.
//!
//! Not here: encoding it ([`super::laws`]).

use crate::call::{Delivery, RunInfo, RunState, RunView};
use crate::json::Json;
use crate::model::AgentRequest;
use crate::pending::Pending;
use crate::run::Record;

/// What is known of a record besides: begun by anybody over the native protocol, streamed, stored, and in the state
/// the record is in. Override what matters with `RunInfo { labels, ..testkit::about(&record) }`.
#[must_use]
pub fn about(record: &Record) -> RunInfo {
    RunInfo {
        protocol: "agent-api".into(),
        owner: "anonymous".into(),
        state: state(record),
        changed_at: record.now(),
        previous: None,
        delivery: Delivery::Stream,
        stored: true,
        request: AgentRequest::default(),
        labels: Json::null(),
        retention: None,
    }
}

/// The state a record is in. Between two turns it waits.
#[must_use]
pub fn state(record: &Record) -> RunState {
    match record.run().end {
        Some(end) => RunState::Ended(end),
        None if record.in_turn() => RunState::Running,
        None => RunState::Waiting,
    }
}

/// A record and what is known besides.
#[derive(Debug)]
pub struct Shown<'a> {
    record: &'a Record,
    about: RunInfo,
    pending: Vec<Pending>,
}

impl<'a> Shown<'a> {
    /// With what [`about`] says, waiting for all that the record waits for.
    #[must_use]
    pub fn new(record: &'a Record) -> Self {
        Self::known(record, about(record))
    }

    /// With this known besides.
    #[must_use]
    pub fn known(record: &'a Record, about: RunInfo) -> Self {
        Self { record, about, pending: record.run().pending() }
    }

    /// Begun over this protocol.
    #[must_use]
    pub fn protocol(mut self, name: &str) -> Self {
        self.about.protocol = name.into();
        self
    }

    /// Its answer wanted so.
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.about.delivery = delivery;
        self
    }

    /// With facts of the adapter.
    #[must_use]
    pub fn labels(mut self, labels: Json) -> Self {
        self.about.labels = labels;
        self
    }

    /// In this state, whatever the record says.
    #[must_use]
    pub const fn state(mut self, state: RunState) -> Self {
        self.about.state = state;
        self
    }

    /// With these items still open.
    #[must_use]
    pub fn pending(mut self, pending: Vec<Pending>) -> Self {
        self.pending = pending;
        self
    }

    /// The view an exchange gets.
    #[must_use]
    pub fn view(&self) -> RunView<'_> {
        RunView { record: self.record, info: &self.about, pending: &self.pending }
    }
}

/// Shows a record with what [`about`] says.
pub fn view<T>(record: &Record, look: impl FnOnce(RunView<'_>) -> T) -> T {
    look(Shown::new(record).view())
}
