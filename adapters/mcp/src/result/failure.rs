//! Errors of runs: those that a model reads in a result, and those of the protocol (docs/protocols/mcp.md#errors).

use interlingua_core::filter::truncated;
use interlingua_core::run::Run;
use interlingua_core::{Blame, End, Fault, FaultKind};
use serde_json::{Value, json};

use crate::envelope::RpcError;
use crate::envelope::rpc_error::INTERNAL_ERROR;

/// Longest message of an error, in bytes. Agents can send any text.
const MAX_MESSAGE: usize = 64 << 10;

/// The error of a run, or of a call that started none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) message: String,
    kind: Option<FaultKind>,
}

impl Failure {
    pub(super) fn new(code: &str, message: &str) -> Self {
        let message = match message.len() > MAX_MESSAGE {
            true => format!("{}…", truncated(message, MAX_MESSAGE)),
            false => message.to_owned(),
        };
        Self { code: code.to_owned(), message, kind: FaultKind::of_code(code) }
    }

    /// The error of a run that has ended this way. `None`: it is no error.
    pub(super) fn of_run(run: &Run, end: End) -> Option<Self> {
        let (code, message) = match end {
            End::Completed | End::Incomplete => return None,
            End::Canceled => return Some(Self::new(FaultKind::Canceled.code(), "the run was cancelled")),
            End::Failed => (FaultKind::AgentFailed.code(), "the agent failed"),
            End::Rejected => ("REJECTED", "the agent rejected the request"),
        };
        Some(match run.error() {
            Some(error) => {
                let failure = Self::new(&error.code, &error.message);
                // An agent that uses such a code does not mean the client of the gateway.
                let kind = failure.kind.filter(|kind| kind.blame() != Blame::Client || *kind == FaultKind::Busy);
                Self { kind, ..failure }
            }
            None => Self::new(code, message),
        })
    }

    pub(super) fn of_fault(fault: &Fault) -> Self {
        let message = match &fault.field {
            Some(field) => format!("{field}: {}", fault.message),
            None => fault.message.clone(),
        };
        Self { kind: Some(fault.kind), ..Self::new(fault.code(), &message) }
    }

    /// `CODE: message`, which models and people read.
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.code, self.message)
    }

    /// The error in `_meta` and in structured content.
    pub(super) fn to_value(&self) -> Value {
        json!({
            "code": self.code,
            "message": self.message,
            "retryable": self.is_retryable(),
            "blame": self.blame().as_str(),
        })
    }

    fn is_retryable(&self) -> bool {
        self.kind.is_some_and(is_retryable)
    }

    /// Codes of agents are unknown to the gateway.
    fn blame(&self) -> Blame {
        self.kind.map_or(Blame::Upstream, FaultKind::blame)
    }

    /// The error of the protocol that a run with this error is answered with. `None`: a result has it.
    pub(super) fn to_rpc_error(&self, run: &str, session: &str) -> Option<RpcError> {
        if !self.kind.is_some_and(is_protocol_error) {
            return None;
        }
        let data = json!({
            "code": self.code,
            "retryable": self.is_retryable(),
            "blame": self.blame().as_str(),
            "run": run,
            "session": session,
        });
        Some(RpcError::new(INTERNAL_ERROR, self.message.clone()).with_data(data))
    }
}

/// True if the same call may succeed later.
pub(super) const fn is_retryable(kind: FaultKind) -> bool {
    match kind.blame() {
        Blame::Client => matches!(kind, FaultKind::Busy | FaultKind::RateLimited),
        Blame::Upstream | Blame::Gateway => kind.retry_helps(),
    }
}

/// True for answers that cannot be believed, and for the faults of the gateway: models cannot act on them.
pub(super) const fn is_protocol_error(kind: FaultKind) -> bool {
    use FaultKind as K;
    matches!(
        kind,
        K::UpstreamGarbage | K::UpstreamTooLarge | K::Restarted | K::ShuttingDown | K::Overloaded | K::Internal
    )
}
