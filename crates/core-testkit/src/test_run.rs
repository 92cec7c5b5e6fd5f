//! A record as an exchange sees it: with the facts the engine stores about a run, and what the run waits for.
//!
//! Not here: encoding it ([`super::laws`]).

use interlingua_core::call::{Delivery, RunInfo, RunState, RunView, Tags};
use interlingua_core::json::Json;
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::Pending;
use interlingua_core::run::Record;

/// The facts about a run for a record: started by an anonymous caller over the Agent API, streamed, stored, and in the
/// state of the record. Override what matters with `RunInfo { labels, ..testkit::run_info(&record) }`.
#[must_use]
pub fn run_info(record: &Record) -> RunInfo {
    RunInfo {
        protocol: "agent-api".into(),
        owner: "anonymous".into(),
        state: run_state(record),
        changed_at: record.now(),
        previous: None,
        delivery: Delivery::Stream,
        stored: true,
        request: AgentRequest::default(),
        labels: Json::null(),
        tags: Tags::new(),
        retention: None,
    }
}

/// The state of a record. Between two turns it is waiting.
#[must_use]
pub fn run_state(record: &Record) -> RunState {
    match record.run().end {
        Some(end) => RunState::Ended(end),
        None if record.in_turn() => RunState::Running,
        None => RunState::Waiting,
    }
}

/// Builds the [`RunView`] of a record.
#[derive(Debug)]
pub struct TestRun<'a> {
    record: &'a Record,
    info: RunInfo,
    pending: Vec<Pending>,
}

impl<'a> TestRun<'a> {
    /// With the facts of [`run_info`] and all pending items of the record.
    #[must_use]
    pub fn new(record: &'a Record) -> Self {
        Self::with_info(record, run_info(record))
    }

    /// With these facts and all pending items of the record.
    #[must_use]
    pub fn with_info(record: &'a Record, info: RunInfo) -> Self {
        Self { record, info, pending: record.run().pending() }
    }

    /// Sets the protocol over which the run was started.
    #[must_use]
    pub fn protocol(mut self, name: &str) -> Self {
        self.info.protocol = name.into();
        self
    }

    /// Sets how the answer is delivered.
    #[must_use]
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.info.delivery = delivery;
        self
    }

    /// Sets what the adapter stored with the run.
    #[must_use]
    pub fn labels(mut self, labels: Json) -> Self {
        self.info.labels = labels;
        self
    }

    /// Sets the state, independently of the record.
    #[must_use]
    pub const fn state(mut self, state: RunState) -> Self {
        self.info.state = state;
        self
    }

    /// Sets the pending items, independently of the record.
    #[must_use]
    pub fn pending(mut self, pending: Vec<Pending>) -> Self {
        self.pending = pending;
        self
    }

    /// The view an exchange gets.
    #[must_use]
    pub fn view(&self) -> RunView<'_> {
        RunView { record: self.record, info: &self.info, pending: &self.pending }
    }
}

/// Calls `read` with the view of a record that has the facts of [`run_info`].
pub fn view<T>(record: &Record, read: impl FnOnce(RunView<'_>) -> T) -> T {
    read(TestRun::new(record).view())
}
