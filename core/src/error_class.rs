//! Classes of agents' errors: from an HTTP status, a code and a wording to the fault kind, with its sentence for
//! clients.
//!
//! The classes of clients' protocols follow from the fault kind (docs/errors.md). Not here: finding code and wording in
//! an answer ([`crate::model_error`]).

mod pause;
pub mod tables;

use std::borrow::Cow;

pub use pause::retry_after;

use crate::fault::{Blame, FaultKind};
use crate::filter::truncated;
use tables::{CODES, STATUSES, WORDINGS};

#[cfg(test)]
pub(crate) use pause::MAX_RETRY_AFTER;

/// Only this prefix of a text is searched for wordings, in bytes.
const MAX_SEARCHED: usize = 4096;

/// The kind of fault that an HTTP status alone stands for.
#[must_use]
pub fn of_status(status: u16) -> FaultKind {
    let found = STATUSES.iter().find(|(statuses, _)| statuses.contains(&status));
    found.map_or(FaultKind::AgentFailed, |(_, kind)| *kind)
}

/// The kind of fault that an agent's code, or the type of its error, stands for. `None`: an unknown word.
#[must_use]
pub fn of_code(code: &str) -> Option<FaultKind> {
    let found = CODES.iter().find(|(_, codes)| codes.iter().any(|known| known.eq_ignore_ascii_case(code)));
    found.map(|(kind, _)| *kind)
}

/// The kind of fault that an agent's text stands for. `None`: no known wording.
#[must_use]
pub fn of_text(text: &str) -> Option<FaultKind> {
    let text = truncated(text, MAX_SEARCHED).to_ascii_lowercase();
    let found = WORDINGS.iter().find(|(_, wordings)| wordings.iter().any(|wording| text.contains(wording)))?;
    // Google's limits of a minute use the words of a used-up quota, and name the pause.
    let is_pause = found.0 == FaultKind::UpstreamQuota && retry_after(&text).is_some();
    Some(if is_pause { FaultKind::UpstreamRateLimited } else { found.0 })
}

/// The error code of a run as a kind of fault. Codes that no kind has are an agent's own: [`FaultKind::AgentFailed`].
#[must_use]
pub fn of_run_code(code: &str) -> FaultKind {
    let own = FaultKind::of_code(code).filter(|kind| kind.blame() != Blame::Client);
    // Runs of earlier versions have the codes of their agents.
    own.or_else(|| of_code(code)).or_else(|| FaultKind::of_code(code)).unwrap_or(FaultKind::AgentFailed)
}

/// The kind of fault that clients of a failed run get. Faults of the gateway within a run count as failures of the
/// agent.
#[must_use]
pub fn of_failed_run(code: &str) -> FaultKind {
    let kind = of_run_code(code);
    if kind.blame() == Blame::Upstream { kind } else { FaultKind::AgentFailed }
}

/// An agent's error: `words` are its code, its type and other single words, `text` all that it says, `status` the HTTP
/// status of the answer or in it. `None`: nothing of it is known.
#[must_use]
pub fn classify<'a>(words: impl Iterator<Item = &'a str>, text: &str, status: Option<u16>) -> Option<FaultKind> {
    use FaultKind as K;

    let mut general = None;
    let mut special = None;
    for kind in words.filter_map(of_code) {
        match kind {
            // Many errors have this type, and a text that says more.
            K::UpstreamRefused => general = Some(kind),
            kind => special = special.or(Some(kind)),
        }
    }

    let said = of_text(text);
    let by_status = status.map(of_status);
    match (special, said, by_status) {
        (Some(K::UpstreamRateLimited), Some(K::UpstreamInputTooLarge | K::UpstreamQuota), _) => said,
        (Some(K::UpstreamRateLimited), _, Some(K::UpstreamInputTooLarge)) => by_status,
        (Some(_), ..) => special,
        // The words of a limit of tokens are those of a full context.
        (None, Some(K::UpstreamContextTooLong), Some(K::UpstreamRateLimited)) => by_status,
        (None, Some(K::UpstreamFiltered | K::UpstreamQuota) | None, Some(K::UpstreamCredentials)) => said.or(by_status),
        (None, Some(_), Some(K::UpstreamCredentials)) => by_status,
        (None, Some(_), _) => said,
        (None, None, Some(K::UpstreamMisconfigured)) if status == Some(404) && names_missing_model(text) => {
            Some(K::UpstreamNoSuchModel)
        }
        (None, None, Some(K::AgentFailed)) => by_status,
        (None, None, Some(K::UpstreamRefused) | None) => general.or(by_status),
        (None, None, Some(_)) => by_status,
    }
}

/// "The model `x` does not exist", "model \"x\" not found, try pulling it first", "model: x".
fn names_missing_model(text: &str) -> bool {
    let text = truncated(text, MAX_SEARCHED).to_ascii_lowercase();
    let is_missing = ["does not exist", "not found"].iter().any(|words| text.contains(words));
    let names_model =
        ["model `", "model '", "model \"", "the model", "models/"].iter().any(|words| text.contains(words));
    text.starts_with("model:") || (is_missing && names_model)
}

/// The sentence for clients, without the agent's own. `status`: the HTTP status of the agent's answer.
#[must_use]
pub fn sentence(kind: FaultKind, status: Option<u16>) -> Cow<'static, str> {
    use FaultKind as K;
    Cow::Borrowed(match (kind, status) {
        (K::UpstreamMisconfigured, Some(300..=399)) => "the agent redirects elsewhere, and redirects are not followed",
        (K::UpstreamMisconfigured, _) => "the agent has nothing at the URL that the gateway asks",
        (K::UpstreamContextTooLong, _) => "the conversation is too long for the agent",
        (K::UpstreamFiltered, _) => "the agent's content filter refused the request",
        (K::UpstreamUnsupportedMedia, _) => "the agent does not take this content",
        (K::UpstreamInputTooLarge, _) => "the request is too large for the agent",
        (K::UpstreamNoSuchModel, _) => "the agent does not have the model",
        (K::UpstreamCredentials, _) => "the agent refused the gateway's credentials",
        (K::UpstreamQuota, _) => "the agent's quota is used up",
        (K::UpstreamRateLimited, _) => "the agent is rate limited",
        (K::UpstreamOverloaded | K::UpstreamUnreachable, _) => "the agent is not available",
        (K::UpstreamTimeout, _) => "the agent took too long",
        (K::UpstreamRefused, _) => "the agent refused the request",
        (_, Some(status)) => return Cow::Owned(format!("the agent failed ({status})")),
        _ => "the agent failed",
    })
}

/// True if the agent's own words may follow the sentence: they are about the client's request. All others are about the
/// gateway's request, its credentials, or the state of the agent.
#[must_use]
pub const fn is_about_the_request(kind: FaultKind) -> bool {
    use FaultKind as K;
    matches!(
        kind,
        K::UpstreamRefused
            | K::UpstreamContextTooLong
            | K::UpstreamFiltered
            | K::UpstreamUnsupportedMedia
            | K::UpstreamInputTooLarge
            | K::UpstreamRateLimited
            | K::AgentFailed
    )
}

#[cfg(test)]
mod tests;
