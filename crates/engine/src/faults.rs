//! The faults of the engine that several of its parts report.

use std::time::Duration;

use interlingua_core::run::RunError;
use interlingua_core::{Blame, Fault, FaultKind, LimitState, RunId, answer, error_class};

use interlingua_store::StoreError;

/// When a client should try again while the store fails, an agent drains, or once the gateway is closing.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// When a client should try again that has named too many push receivers.
const RECEIVERS_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Something panicked.
pub(super) fn internal() -> Fault {
    Fault::new(FaultKind::Internal, "the gateway made a mistake")
}

/// Another gateway has the run now.
pub(super) fn taken_over() -> Fault {
    let message = "the gateway that had this run was cut off: another one knows how it ended";
    let mut fault = Fault::new(FaultKind::Restarted, message);
    fault.retry_after = Some(Duration::from_secs(1));
    fault
}

/// A store that fails is the gateway's fault. What it reported goes to the log.
pub(super) fn store_fault(error: &StoreError) -> Fault {
    match error {
        // It goes on trying by itself, and logs when it begins to fail and when it recovers.
        StoreError::File { .. }
        | StoreError::Timeout { .. }
        | StoreError::Overloaded
        | StoreError::Unavailable { .. }
        | StoreError::Unusable { .. } => store_unavailable().with_detail(error),
        StoreError::Fenced => taken_over().with_detail(error),
        StoreError::Closed => shutting_down().with_detail(error),
        // Names and keys are made of what clients send.
        StoreError::TooLong { .. } => Fault::new(FaultKind::Invalid, format!("the gateway cannot store this: {error}")),
        _ => {
            tracing::error!(%error, "the store reported an error that is not expected");
            Fault::new(FaultKind::Internal, "the gateway could not read or write its records").with_detail(error)
        }
    }
}

/// While the store fails nothing is begun that has to be stored.
pub(super) fn store_unavailable() -> Fault {
    let mut fault = Fault::new(
        FaultKind::Overloaded,
        "the gateway cannot read or write its records at the moment: try again later",
    );
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

/// Why a run failed that could not be written in time.
pub(super) fn not_written() -> Fault {
    Fault::new(FaultKind::Internal, "the gateway could not write its records")
}

/// The gateway is closing.
pub(super) fn shutting_down() -> Fault {
    Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down")
}

/// The gateway is closing and takes nothing new. Soon another process answers at its address, or none does.
pub(super) fn not_accepting() -> Fault {
    let mut fault = shutting_down();
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

/// An operator lets an agent finish what it has, and begin nothing.
pub(super) fn draining(agent: &str) -> Fault {
    let message = format!("the agent '{agent}' takes no new runs at the moment: try again later");
    let mut fault = Fault::new(FaultKind::Overloaded, message);
    fault.retry_after = Some(RETRY_AFTER);
    fault
}

/// The endpoint that remembers the session is out. `returns`: when it may be back.
pub(super) fn home_away(returns: Option<Duration>) -> Fault {
    let message = "the agent's server that knows this session cannot be reached";
    let mut fault = Fault::new(FaultKind::UpstreamUnreachable, message);
    fault.retry_after = returns;
    fault
}

/// The run was canceled.
pub(super) fn canceled() -> Fault {
    Fault::new(FaultKind::Canceled, "canceled")
}

/// The session waits for answers first.
pub(super) fn waiting() -> Fault {
    Fault::new(FaultKind::Waiting, "the session waits for an answer to what the agent asked")
}

/// The session has a turn under way.
pub(super) fn busy(session: &str) -> Fault {
    Fault::new(FaultKind::Busy, format!("session '{session}' has a run under way"))
}

/// The caller has named too many push receivers. There is room once runs or receivers are deleted.
pub(super) fn too_many_receivers(quota: usize) -> Fault {
    let message = format!("too many push receivers: the limit is {quota}");
    let mut fault = Fault::new(FaultKind::RateLimited, message);
    fault.retry_after = Some(RECEIVERS_RETRY_AFTER);
    let (name, quota, reset) = ("receivers", quota as u64, RECEIVERS_RETRY_AFTER);
    fault.limit = Some(Box::new(LimitState { name, quota, window: Duration::ZERO, remaining: 0, reset }));
    fault
}

/// There is no such run, or it is another caller's.
pub(super) fn run_not_found(id: RunId) -> Fault {
    Fault::not_found(format_args!("run '{id}'"))
}

/// The run has to be canceled first.
pub(super) fn run_not_ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has not ended: cancel it first"))
}

/// The run takes no further turn.
pub(super) fn run_ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has ended"))
}

/// The run waits for nothing any more: its pending items were answered by another run, or withdrawn.
pub(super) fn not_waiting(id: RunId, answered_by: Option<RunId>) -> Fault {
    let message = match answered_by {
        Some(by) => format!("what run '{id}' asked was answered already, by run '{by}'"),
        None => format!("what run '{id}' asked was answered or withdrawn already"),
    };
    Fault::new(FaultKind::Conflict, message).with_code(answer::NOT_WAITING)
}

/// A fault as the error of a run.
pub(super) fn to_run_error(fault: &Fault) -> RunError {
    RunError { code: fault.code().to_owned(), message: fault.message.clone() }
}

/// A run's error as a fault, for a client that still waits for the run to begin.
pub(super) fn from_run_error(error: &RunError) -> Fault {
    let kind = error_class::of_run_code(&error.code);
    // An agent that says so of its own clients says nothing of the gateway's.
    let kind = if kind.blame() == Blame::Client && kind != FaultKind::Busy { FaultKind::AgentFailed } else { kind };
    let mut fault = Fault::new(kind, error.message.clone()).with_code(error.code.clone());
    fault.retry_after = error_class::retry_after(&error.message).filter(|_| kind.retry_helps());
    fault
}

/// A fault whose cause is in the log already.
pub(super) fn logged(fault: Fault) -> Fault {
    Fault { logged: true, ..fault }
}
