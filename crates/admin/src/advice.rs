//! Advice for the operator about the error of a run, and the party that must act.
//!
//! Unknown codes come from agents.

use interlingua_core::{Blame, FaultKind, error_class};

/// The party that must act on an error.
pub(super) fn blame(code: &str) -> Blame {
    error_class::of_run_code(code).blame()
}

/// The advice for a code. `None`: the operator can do nothing about it.
pub(super) fn on(code: &str) -> Option<&'static str> {
    use FaultKind as K;
    Some(match error_class::of_run_code(code) {
        K::UpstreamUnreachable => "The agent is unreachable. Check its address, and whether it runs.",
        K::UpstreamRefused => {
            "The agent refused the request as invalid. Its answer says why; see the options of its upstream."
        }
        K::UpstreamContextTooLong => {
            "The conversation is too long for the agent's model. The client has to shorten it."
        }
        K::UpstreamFiltered => "A content filter of the agent refused the client's input.",
        K::UpstreamUnsupportedMedia => "The agent's model does not accept the pictures or files in the request.",
        K::UpstreamInputTooLarge => "The request is larger than the agent, or a proxy before it, accepts.",
        K::UpstreamNoSuchModel => "The agent does not have the model. Check the model in the options of its upstream.",
        K::UpstreamCredentials => {
            "The agent refused the gateway's credentials or permissions. Check `headers.authorization` of its upstream."
        }
        K::UpstreamMisconfigured => {
            "The agent has nothing at its URL, or redirects elsewhere. Check `url` of its upstream."
        }
        K::UpstreamQuota => "The agent's account has no quota left. Retries do not help.",
        K::UpstreamOverloaded => "The agent, or a proxy before it, has no capacity at the moment.",
        K::UpstreamRateLimited => "The agent accepts fewer requests than it receives. See `limits` of its upstream.",
        K::UpstreamTimeout => "The agent was silent for too long. See `timeouts` of its upstream.",
        K::UpstreamTruncated => "The agent, or a proxy before it, ended the answer in the middle. See its own log.",
        K::UpstreamGarbage => {
            "The agent answered in another protocol than configured. `interlingua probe` shows what it speaks."
        }
        K::UpstreamTooLarge => "The answer is larger than `max_run_bytes` of the agent.",
        K::AgentFailed => "The agent reported the error itself. See its own log.",
        K::Restarted => "The gateway that drove the run was stopped or killed. Nothing was executed again.",
        K::ShuttingDown => "The gateway stopped before the run ended. A longer `drain` gives runs more time.",
        K::Overloaded => "The gateway had no capacity. See its metrics, and `limits` of the server.",
        _ => return None,
    })
}
