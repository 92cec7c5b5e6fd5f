//! Requests to agents that were not answered with success: what went wrong, how far they came, and what that says about
//! the endpoint.
//!
//! Not here: sending them again ([`super::http`]).

use std::time::Duration;

use interlingua_core::connector::{AgentTurn, Refusal};
use interlingua_core::filter::truncated;
use interlingua_core::{Fault, FaultKind};

use super::pool::{Outcome, Reason};
use interlingua_base::secrets;

/// This much of an answer is kept for the log, in bytes.
pub(super) const BEGINNING: usize = 512;
/// The longest pause before a retry that is passed on to clients, whatever an agent or its connector says.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a request was not answered with success.
#[derive(Clone, Debug)]
pub struct SendError {
    /// The cause of the failure.
    pub cause: SendCause,
    /// The progress of the request.
    pub reach: SendProgress,
}

/// The cause of a failed request.
#[derive(Clone, Debug)]
pub enum SendCause {
    /// The agent could not be asked, or did not answer.
    Fault(Fault),
    /// The agent refused. The connector says what that means.
    Refused(RefusalDetails),
}

/// The progress of a request, which decides whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// There was no connection: not a byte of it was sent.
    NotSent,
    /// It was sent, and the agent surely does not work on it: it answered 503, or had closed the connection before the
    /// request came.
    NotTaken,
    /// The agent may work on it.
    Maybe,
}

impl SendError {
    /// A refusal that is remembered.
    pub(super) const fn refused(refused: RefusalDetails) -> Self {
        Self { cause: SendCause::Refused(refused), reach: SendProgress::Maybe }
    }

    /// The cause in a word or two: a code, or the status of the answer.
    pub(super) fn to_reason(&self) -> String {
        match &self.cause {
            SendCause::Fault(fault) => fault.code().to_owned(),
            SendCause::Refused(refused) => format!("status {}", refused.status),
        }
    }

    /// True if something took too long.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(&self.cause, SendCause::Fault(fault) if fault.kind == FaultKind::UpstreamTimeout)
    }

    /// The result for the endpoint. `is_late`: the turn has used all of its time.
    pub(super) fn outcome(&self, is_late: bool) -> Outcome {
        match &self.cause {
            SendCause::Refused(RefusalDetails { status, .. }) if (502..=504).contains(status) => {
                Outcome::Failed(Reason::Status(*status))
            }
            // It works, and answers what it thinks of the request.
            SendCause::Refused(_) => Outcome::Good,
            SendCause::Fault(_) if self.reach == SendProgress::NotSent => Outcome::Failed(Reason::NoConnection),
            SendCause::Fault(fault) => match fault.kind {
                FaultKind::UpstreamTimeout if !is_late => Outcome::Failed(Reason::FirstByte),
                FaultKind::UpstreamTruncated | FaultKind::UpstreamGarbage => Outcome::Failed(Reason::Broken),
                _ => Outcome::Neutral,
            },
        }
    }
}

/// A fault of a request that the agent may work on.
impl From<Fault> for SendError {
    fn from(fault: Fault) -> Self {
        Self { cause: SendCause::Fault(fault), reach: SendProgress::Maybe }
    }
}

/// A refusal, with what the log needs of it.
#[derive(Clone, Debug)]
pub struct RefusalDetails {
    /// The HTTP status.
    pub status: u16,
    /// The body, cut at a bound, secrets masked.
    pub body: String,
    /// From the header `retry-after`.
    pub retry_after: Option<Duration>,
    /// The requested URL, and the target of a redirect, without secrets.
    pub asked: String,
}

impl RefusalDetails {
    pub(super) fn to_fault(&self, turn: &dyn AgentTurn) -> Fault {
        let refusal = Refusal { status: self.status, body: self.body.as_bytes(), retry_after: self.retry_after };
        let mut fault = sanitized(turn.map_refusal(&refusal));
        let body = fault.detail.take().unwrap_or_default();
        // Nearly every redirect has an empty body; where it leads is in `asked`.
        let body = beginning(&body);
        fault.detail = Some(if body.is_empty() { self.asked.clone() } else { format!("{}: {body}", self.asked) });
        fault
    }
}

/// A fault that a connector made of what its agent sent, without the gateway's secrets and with a pause that makes
/// sense.
pub(super) fn sanitized(fault: Fault) -> Fault {
    let mut fault = secrets::mask_fault(fault);
    fault.retry_after = fault.retry_after.map(|pause| pause.min(MAX_RETRY_AFTER));
    fault
}

/// The beginning of a refusal, for the log.
fn beginning(text: &str) -> &str {
    truncated(text, BEGINNING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connector_makes_clients_wait_longer_than_a_day() {
        let pause = |pause: Option<Duration>| {
            let mut fault = Fault::new(FaultKind::UpstreamRateLimited, "slow down");
            fault.retry_after = pause;
            sanitized(fault).retry_after
        };
        let minute = Duration::from_secs(60);
        assert_eq!([None, Some(minute), Some(Duration::MAX)].map(pause), [None, Some(minute), Some(MAX_RETRY_AFTER)]);
    }
}
