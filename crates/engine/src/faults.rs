//! The faults that several modules of the engine report.

use std::borrow::Borrow;
use std::time::Duration;

use interlingua_core::run::RunError;
use interlingua_core::{Blame, Fault, FaultKind, LimitState, RunId, answer, error_class};

use interlingua_store::StoreError;

/// Suggested pause before a retry while the store fails, an agent drains, or the gateway shuts down.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Suggested pause before a retry after a caller registered too many push receivers.
const RECEIVERS_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Another gateway took the run over.
pub(super) fn taken_over() -> Fault {
    let message = "the gateway that had this run was cut off: another one knows how it ended";
    retryable(FaultKind::Restarted, message, Duration::from_secs(1))
}

/// The fault that a client sees if the store fails. The error of the store becomes the detail, which only the log shows.
pub(super) fn store_fault(error: impl Borrow<StoreError>) -> Fault {
    let error = error.borrow();
    match error {
        // Not logged here: the store retries by itself, and logs the beginning and the end of an outage.
        StoreError::File { .. }
        | StoreError::Timeout { .. }
        | StoreError::Overloaded
        | StoreError::Unavailable { .. }
        | StoreError::Unusable { .. } => store_unavailable().with_detail(error),
        StoreError::Fenced => taken_over().with_detail(error),
        StoreError::Closed => shutting_down().with_detail(error),
        // Clients choose parts of names and keys.
        StoreError::TooLong { .. } => Fault::new(FaultKind::Invalid, format!("the gateway cannot store this: {error}")),
        _ => {
            tracing::error!(%error, "the store reported an error that is not expected");
            Fault::new(FaultKind::Internal, "the gateway could not read or write its records").with_detail(error)
        }
    }
}

/// While the store fails, the gateway refuses requests that it must store.
pub(super) fn store_unavailable() -> Fault {
    let message = "the gateway cannot read or write its records at the moment: try again later";
    retryable(FaultKind::Overloaded, message, RETRY_AFTER)
}

/// The run could not be written in time, and fails.
pub(super) fn not_written() -> Fault {
    Fault::new(FaultKind::Internal, "the gateway could not write its records")
}

pub(super) fn shutting_down() -> Fault {
    Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down")
}

/// The gateway shuts down and refuses new requests. A retry may reach another process at the same address.
pub(super) fn not_accepting() -> Fault {
    Fault { retry_after: Some(RETRY_AFTER), ..shutting_down() }
}

/// An operator drains the agent: it completes its runs but gets no new ones.
pub(super) fn draining(agent: &str) -> Fault {
    let message = format!("the agent '{agent}' takes no new runs at the moment: try again later");
    retryable(FaultKind::Overloaded, message, RETRY_AFTER)
}

/// The endpoint that remembers the session is ejected. `returns`: time until its next probe, if known.
pub(super) fn home_away(returns: Option<Duration>) -> Fault {
    let message = "the agent's server that knows this session cannot be reached";
    Fault { retry_after: returns, ..Fault::new(FaultKind::UpstreamUnreachable, message) }
}

pub(super) fn canceled() -> Fault {
    Fault::new(FaultKind::Canceled, "canceled")
}

/// The request answers none of the open items of the session.
pub(super) fn waiting() -> Fault {
    Fault::new(FaultKind::Waiting, "the session waits for an answer to what the agent asked")
}

/// Another turn of the session is running.
pub(super) fn busy(session: &str) -> Fault {
    Fault::new(FaultKind::Busy, format!("session '{session}' has a run under way"))
}

/// The caller registered too many push receivers. A caller can free some by deleting runs or receivers.
pub(super) fn too_many_receivers(quota: usize) -> Fault {
    let message = format!("too many push receivers: the limit is {quota}");
    let (name, quota, reset) = ("receivers", quota as u64, RECEIVERS_RETRY_AFTER);
    let limit = Some(Box::new(LimitState { name, quota, window: Duration::ZERO, remaining: 0, reset }));
    Fault { limit, ..retryable(FaultKind::RateLimited, message, RECEIVERS_RETRY_AFTER) }
}

/// The run does not exist, or belongs to another caller.
pub(super) fn run_not_found(id: RunId) -> Fault {
    Fault::not_found(format_args!("run '{id}'"))
}

/// Only a run that has ended can be deleted.
pub(super) fn run_not_ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has not ended: cancel it first"))
}

/// A run that has ended accepts no further turn.
pub(super) fn run_ended(id: RunId) -> Fault {
    Fault::new(FaultKind::Conflict, format!("run '{id}' has ended"))
}

/// The run has no open items any more: another run answered them, or the agent withdrew them.
pub(super) fn not_waiting(id: RunId, answered_by: Option<RunId>) -> Fault {
    let message = match answered_by {
        Some(by) => format!("what run '{id}' asked was answered already, by run '{by}'"),
        None => format!("what run '{id}' asked was answered or withdrawn already"),
    };
    Fault::new(FaultKind::Conflict, message).with_code(answer::NOT_WAITING)
}

pub(super) fn to_run_error(fault: &Fault) -> RunError {
    RunError { code: fault.code().to_owned(), message: fault.message.clone() }
}

/// The fault for a client that still waits for the run to begin.
pub(super) fn from_run_error(error: &RunError) -> Fault {
    let kind = error_class::of_run_code(&error.code);
    // An agent that blames its client blames the gateway, not the client of the gateway.
    let kind = if kind.blame() == Blame::Client && kind != FaultKind::Busy { FaultKind::AgentFailed } else { kind };
    let mut fault = Fault::new(kind, error.message.clone()).with_code(error.code.clone());
    fault.retry_after = error_class::retry_after(&error.message).filter(|_| kind.retry_helps());
    fault
}

/// Marks a fault whose cause is already in the log.
pub(super) fn logged(fault: Fault) -> Fault {
    Fault { logged: true, ..fault }
}

fn retryable(kind: FaultKind, message: impl Into<String>, after: Duration) -> Fault {
    Fault { retry_after: Some(after), ..Fault::new(kind, message) }
}
