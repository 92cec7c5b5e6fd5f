//! The rules for starting, answering, keeping and ending a run, as far as its protocol decides them: one value that
//! accompanies the call, each turn, and the run.
//!
//! Protocols pick a preset ([`RunPolicy::attached`], [`RunPolicy::background`], [`RunPolicy::task`]) and change single
//! fields. Not here: the request and its session ([`crate::call::RunCall`]), and the rights to decide pending items
//! ([`crate::answer::AnswerPolicy`]).

use std::time::Duration;

use crate::event::End;

/// The rules for starting, answering, keeping and ending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunPolicy {
    /// True: the run continues when its client disconnects. False: it is canceled, unless the route's `on_disconnect`
    /// says otherwise.
    pub detached: bool,
    /// The time of the first response.
    pub first_response: FirstResponse,
    /// With [`Delivery::Collect`]: after this time the call is answered with the current state of the run, and the run
    /// continues. `None`: the client waits for the end.
    pub collect_timeout: Option<Duration>,
    /// True: if the agent was never reached and the client received the refusal as its answer, the run is discarded,
    /// and no request can find it.
    pub discard_if_unreached: bool,
    /// False: once its stream has ended, only later requests of the same WebSocket connection can find the run.
    pub stored: bool,
    /// True: the agent is not called. The input is recorded and the run ends at once, without an answer; the agent
    /// receives the input with the next request of the conversation.
    pub record_only: bool,
    /// The number of turns of the run.
    pub turns: Turns,
    /// Handling of a busy session. `None`: the agent's setting.
    pub busy: Option<Busy>,
}

/// The time of the first response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstResponse {
    /// Immediately, before the agent has begun to answer.
    Immediate,
    /// Once the agent has begun to answer, so that a refusal gets its own HTTP status.
    AwaitAgent {
        /// With [`Delivery::Stream`]: the maximum time for which the stream is held back. A stream is not held back
        /// while earlier turns of its session are queued or running. `None`: the route's setting.
        timeout: Option<Duration>,
    },
}

/// The number of turns of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// One: the run ends with it.
    One,
    /// Each [`crate::call::Thread::Continue`] starts a further turn. A turn that leaves pending items does not end the
    /// run.
    Many {
        /// The ends of a turn after which the run waits for another turn although nothing is pending.
        pause_on: &'static [End],
    },
}

impl RunPolicy {
    /// One turn, canceled when its client disconnects: a request and its answer.
    #[must_use]
    pub const fn attached() -> Self {
        Self {
            detached: false,
            first_response: FirstResponse::AwaitAgent { timeout: None },
            collect_timeout: None,
            discard_if_unreached: false,
            stored: true,
            record_only: false,
            turns: Turns::One,
            busy: None,
        }
    }

    /// One turn that continues without its client, which receives the id immediately and polls the result.
    #[must_use]
    pub const fn background() -> Self {
        Self { detached: true, first_response: FirstResponse::Immediate, ..Self::attached() }
    }

    /// Many turns that do not depend on any connection. Queued while the session is busy, and discarded if the agent
    /// could not be reached.
    #[must_use]
    pub const fn task() -> Self {
        Self {
            detached: true,
            discard_if_unreached: true,
            turns: Turns::Many { pause_on: &[End::Incomplete] },
            busy: Some(Busy::Queue),
            ..Self::attached()
        }
    }

    /// Input that is recorded without calling the agent.
    #[must_use]
    pub const fn record_only() -> Self {
        Self { record_only: true, ..Self::attached() }
    }

    /// Sets whether the run continues without its client.
    #[must_use]
    pub const fn with_detached(self, detached: bool) -> Self {
        Self { detached, ..self }
    }

    /// Sets whether the run can be found after its end.
    #[must_use]
    pub const fn with_stored(self, stored: bool) -> Self {
        Self { stored, ..self }
    }

    /// Sets the handling of a busy session.
    #[must_use]
    pub const fn with_busy(self, busy: Busy) -> Self {
        Self { busy: Some(busy), ..self }
    }

    /// Sets the time of the first response.
    #[must_use]
    pub const fn with_first_response(self, first_response: FirstResponse) -> Self {
        Self { first_response, ..self }
    }

    /// Sets the maximum time that a client waits for a whole answer.
    #[must_use]
    pub const fn with_collect_timeout(self, timeout: Duration) -> Self {
        Self { collect_timeout: Some(timeout), ..self }
    }

    /// Many turns, with a pause after these ends although nothing is pending.
    #[must_use]
    pub const fn pausing_on(self, pause_on: &'static [End]) -> Self {
        Self { turns: Turns::Many { pause_on }, ..self }
    }

    /// The policy for a delivery: a background answer waits neither for the agent nor for its client.
    #[must_use]
    pub const fn for_delivery(self, delivery: Delivery) -> Self {
        match delivery {
            Delivery::Background => Self { detached: true, first_response: FirstResponse::Immediate, ..self },
            Delivery::Stream | Delivery::Collect => self,
        }
    }

    /// The policy for a later turn: the run is never discarded.
    #[must_use]
    pub const fn for_later_turn(self) -> Self {
        Self { discard_if_unreached: false, ..self }
    }
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self::attached()
    }
}

impl FirstResponse {
    /// The maximum time that a stream is held back for the agent's first event. `None`: it is not held back, or the
    /// route's setting applies.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Immediate => None,
            Self::AwaitAgent { timeout } => *timeout,
        }
    }
}

impl Turns {
    /// True if the run may have more than one turn.
    #[must_use]
    pub const fn are_many(&self) -> bool {
        matches!(self, Self::Many { .. })
    }

    /// True if a run waits after a turn that ended so, although nothing is pending.
    #[must_use]
    pub fn pause_on(&self, end: End) -> bool {
        matches!(self, Self::Many { pause_on } if pause_on.contains(&end))
    }
}

/// The delivery of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Step by step.
    Stream,
    /// Whole, once the turn has ended. Answered by [`crate::call::Reply::Run`].
    Collect,
    /// Immediately, with the current state, and the run continues, as with [`RunPolicy::background`]. Answered by
    /// [`crate::call::Reply::Run`].
    Background,
}

/// Handling of a turn for a busy session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Wait until the earlier turns have ended.
    Queue,
    /// Fail with [`crate::FaultKind::Busy`].
    Refuse,
    /// Cancel all runs that work or are queued in the session, then start. Runs that wait for answers continue to wait.
    Interrupt,
    /// As [`Busy::Interrupt`], and delete the canceled runs.
    Rollback,
}
