//! The state of a run, as clients of MCP see it.

use interlingua_core::call::RunState;
use interlingua_core::{End, RunView};

/// The phase of a run or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The agent works, or is about to.
    Working,
    /// The run waits for answers.
    Asks,
    /// The run has its result.
    Ended(End),
}

impl Phase {
    /// The phase of a run.
    pub(crate) fn of(view: RunView<'_>) -> Self {
        let asks = !view.pending.is_empty();
        match view.info.state {
            RunState::Queued | RunState::Running => Self::Working,
            // Runs of protocols in which a run has one turn end with their questions.
            RunState::Ended(End::Completed | End::Incomplete) if asks => Self::Asks,
            RunState::Ended(end) => Self::Ended(end),
            _ if asks => Self::Asks,
            RunState::Waiting | RunState::WaitingForAuth => match view.run().outcome() {
                // It waits for another message of the client, not for an answer.
                Some((end, _)) if view.run().pending().is_empty() => Self::Ended(end),
                _ => Self::Working,
            },
        }
    }

    /// The status of a task.
    pub(super) const fn status(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Asks => "input_required",
            Self::Ended(End::Canceled) => "cancelled",
            Self::Ended(_) => "completed",
        }
    }
}
