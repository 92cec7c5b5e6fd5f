//! Errors: refusals of the service, and failed replies.

use std::borrow::Cow;

use interlingua_core::agent_event::AgentError;
use interlingua_core::connector::Refusal;
use interlingua_core::model_error;
use interlingua_core::{Fault, FaultKind};

use super::wire::{ReplyError, word};

/// The purpose of a request, where the meaning of a refusal depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPurpose {
    /// A new session.
    Session,
    /// Anything in a session.
    InSession,
}

/// The fault in an answer whose status is no success.
pub(super) fn map_refusal(refusal: &Refusal<'_>, asked: RequestPurpose) -> Fault {
    let lacks_user = refusal.status == 422 && find(refusal.body, b"x-user-id");
    if lacks_user {
        // No client can do anything about it.
        let mut fault = refusal.to_fault();
        fault.kind = FaultKind::UpstreamMisconfigured;
        "the agent's service wants to know who asks: options.user names the user".clone_into(&mut fault.message);
        return fault;
    }

    let by_class = model_error::map_refusal(refusal);
    let is_missing = by_class.kind == FaultKind::UpstreamMisconfigured;
    let mut fault = match (refusal.status, asked) {
        (409, _) => busy().with_detail(String::from_utf8_lossy(refusal.body)),
        (404, RequestPurpose::Session) if is_missing => {
            let mut fault = refusal.to_fault();
            "the agent's service does not know the agent, or the credential of its model"
                .clone_into(&mut fault.message);
            fault
        }
        (404, RequestPurpose::InSession) if is_missing => {
            let mut fault = refusal.to_fault();
            "the agent's service does not know the session".clone_into(&mut fault.message);
            fault
        }
        _ => by_class,
    };
    fault.upstream_status = Some(refusal.status);
    fault
}

/// The session is at work on something else.
pub(super) fn busy() -> Fault {
    Fault::new(FaultKind::Busy, "the agent is still at work in this session")
}

/// Why a reply failed, for the run.
pub(super) fn reply_error<'a>(error: &'a ReplyError<'a>) -> AgentError<'a> {
    let message = match word(&error.message) {
        "" => "the agent failed",
        message => message,
    };
    let code = match word(&error.kind) {
        "rate_limit" => FaultKind::UpstreamRateLimited.code(),
        // They say no more than that it failed.
        "" | "unknown" | "internal" => "",
        kind => kind,
    };
    AgentError::named(Cow::Borrowed(code), Cow::Borrowed(message))
}

fn find(body: &[u8], word: &[u8]) -> bool {
    body.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use interlingua_core::Blame;

    use super::*;

    #[test]
    fn each_refusal_becomes_the_fault_of_the_table() {
        use FaultKind as K;
        let missing = r#"{"detail":[{"type":"missing","loc":["header","x-user-id"],"msg":"Field required"}]}"#;
        for (status, body, asked, kind, message) in [
            (
                404,
                r#"{"detail":"Agent 'a' not found."}"#,
                RequestPurpose::Session,
                K::UpstreamMisconfigured,
                "does not know the agent",
            ),
            (
                404,
                r#"{"detail":"Session 's' not found."}"#,
                RequestPurpose::InSession,
                K::UpstreamMisconfigured,
                "know the session",
            ),
            (409, r#"{"detail":"busy"}"#, RequestPurpose::InSession, K::Busy, "still at work"),
            (422, missing, RequestPurpose::InSession, K::UpstreamMisconfigured, "options.user"),
            (
                422,
                r#"{"detail":[{"msg":"no such field"}]}"#,
                RequestPurpose::InSession,
                K::UpstreamRefused,
                "no such field",
            ),
            (401, "{}", RequestPurpose::InSession, K::UpstreamCredentials, "refused the gateway's credentials"),
            (429, "{}", RequestPurpose::InSession, K::UpstreamRateLimited, "rate limited"),
            (500, "Internal Server Error", RequestPurpose::InSession, K::AgentFailed, "the agent failed (500)"),
            (503, "{}", RequestPurpose::InSession, K::UpstreamOverloaded, "not available"),
            (504, "{}", RequestPurpose::InSession, K::UpstreamTimeout, "took too long"),
            (307, "", RequestPurpose::InSession, K::UpstreamMisconfigured, "redirects"),
        ] {
            let fault = map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None }, asked);
            assert_eq!(fault.kind, kind, "{status} {body}");
            assert!(fault.message.contains(message), "{status}: {}", fault.message);
            assert_eq!(fault.upstream_status, Some(status));
        }
        assert_eq!(busy().kind.blame(), Blame::Client);
    }
}
