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
    /// Whether the run continues when its client disconnects. Otherwise it is cancelled, unless the route says
    /// otherwise.
    pub detached: bool,
    /// When the first answer goes out.
    pub first_response: FirstResponse,
    /// With [`Delivery::Collect`]: after this time the call is answered with the current state of the run, and the run
    /// continues. `None`: the client waits for the end.
    pub collect_timeout: Option<Duration>,
    /// True: if the agent was never reached and the client got the refusal as its answer, the run does not exist: no
    /// one can find it.
    pub discard_if_unreached: bool,
    /// False: once its stream has ended the run can be found only by requests of the same connection, where it came
    /// over one that takes several requests (a WebSocket).
    pub stored: bool,
    /// True: the agent is not called. The input is recorded and the run ends at once, without an answer; the agent
    /// receives the input with the next request that continues from there.
    pub record_only: bool,
    /// The number of turns of the run.
    pub turns: Turns,
    /// Handling of a busy session. `None`: according to the agent's setting.
    pub busy: Option<Busy>,
}

/// When the first answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstResponse {
    /// Before the agent has begun.
    Immediate,
    /// Once the agent has begun, so that a refusal becomes a status of its own.
    AwaitAgent {
        /// With [`Delivery::Stream`]: how long the stream is held back for it; not at all where other turns of the
        /// session are before it. `None`: as the route says.
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
        /// After which ends of a turn the run waits although nothing is pending.
        pause_on: &'static [End],
    },
}

impl RunPolicy {
    /// One turn, cancelled when its client leaves: a request and its answer.
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

    /// One turn that continues without its client, which gets the id immediately and polls the result.
    #[must_use]
    pub const fn background() -> Self {
        Self { detached: true, first_response: FirstResponse::Immediate, ..Self::attached() }
    }

    /// Many turns that do not depend on any connection; queued while the session is busy, and never there if the agent
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

    /// Sets what to do if the session is busy.
    #[must_use]
    pub const fn with_busy(self, busy: Busy) -> Self {
        Self { busy: Some(busy), ..self }
    }

    /// Sets when the first answer goes out.
    #[must_use]
    pub const fn with_first_response(self, first_response: FirstResponse) -> Self {
        Self { first_response, ..self }
    }

    /// Sets how long a client waits for a whole answer.
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

    /// The policy for a later turn: the run exists, whatever the outcome of the turn.
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
    /// Time that a stream is held back for the agent's first event, if the policy has one.
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
