//! What an operator can do about the error that a run ended with, and who has to.
//!
//! Codes that are not the gateway's own are an agent's.

use interlingua_core::{Blame, FaultKind};

/// Who has to act.
pub(super) fn blame(code: &str) -> Blame {
    FaultKind::of_code(code).map_or(Blame::Upstream, FaultKind::blame)
}

/// Advice for the operator. `status`: the HTTP status of the agent's answer. `None`: the operator can do nothing.
pub(super) fn on(code: &str, status: Option<u16>) -> Option<&'static str> {
    use FaultKind as K;
    Some(match FaultKind::of_code(code).unwrap_or(K::AgentFailed) {
        K::UpstreamUnreachable => "The agent cannot be reached. Check its address, and whether it runs.",
        K::UpstreamRefused => match status {
            Some(401 | 403) => {
                "The agent did not accept the gateway's credentials. Check `headers` of its upstream, such as `authorization`."
            }
            Some(404 | 405) => "The agent has no such endpoint or model. Check `url` and `options` of its upstream.",
            Some(500..) => "The agent failed. See its own log.",
            _ => "The agent refused the request. Its answer, below, says why.",
        },
        K::UpstreamRateLimited => "The agent takes fewer requests than it gets. See `limits` of its upstream.",
        K::UpstreamTimeout => "The agent was silent for too long. See `timeouts` of its upstream.",
        K::UpstreamTruncated => "The agent, or a proxy before it, ended the answer in the middle. See its own log.",
        K::UpstreamGarbage => {
            "The agent answered in another protocol than configured. `interlingua probe` shows what it speaks."
        }
        K::UpstreamTooLarge => "The answer is larger than `max_run_bytes` of the agent.",
        K::AgentFailed => "The agent reported the error itself. See its own log.",
        K::Restarted => "The gateway that drove the run was stopped or killed. Nothing was executed again.",
        K::ShuttingDown => "The gateway stopped before the run ended. A longer `drain` gives runs more time.",
        K::Overloaded => "The gateway had no room. See its metrics, and `limits` of the server.",
        _ => return None,
    })
}
