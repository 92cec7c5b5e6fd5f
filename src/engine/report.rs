//! What the log is told of a turn that has ended: one line each, with everything an operator needs to find its cause.
//!
//! Not here: refusals of requests that never became a turn (`crate::server`).

use std::borrow::Cow;
use std::time::Duration;

use interlingua_core::run::RunError;
use interlingua_core::{Blame, Fault, FaultKind};

use super::ActiveRun;
use super::driver::Turn;

/// A text of a client or an agent takes no more of a line, in bytes.
const MAX_TEXT: usize = 512;

/// What a turn came to.
pub(super) struct Report<'a> {
    /// What was in its way, as far as the gateway noticed it itself.
    pub(super) fault: Option<&'a Fault>,
    /// How the turn failed, as its clients are told.
    pub(super) error: Option<&'a RunError>,
    /// What the agent complained of, in its own words.
    pub(super) agent_error: Option<&'a str>,
    /// How many frames said nothing the protocol knows, and the first of them.
    pub(super) ignored: u64,
    pub(super) first_ignored: Option<&'a str>,
    pub(super) took: Duration,
}

/// Writes the line.
pub(super) fn turn_ended(live: &ActiveRun, turn: &Turn, report: &Report<'_>) {
    let (session, protocol, outcome) =
        live.view(|view| (view.run().session_id.clone(), view.info.protocol.clone(), view.info.state.as_str()));
    let session = shown(&session);
    let first_ignored = report.first_ignored.map(shown);
    let agent_error = report.agent_error.map(shown);
    let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
    let (code, blame, message) = match (report.fault, report.error) {
        (Some(fault), _) => (fault.code().to_owned(), fault.kind.blame(), fault.message.as_str()),
        // Said by the agent, unless it is one of our own codes.
        (None, Some(error)) => {
            let kind = FaultKind::ALL.iter().find(|kind| kind.code() == error.code);
            (error.code.clone(), kind.map_or(Blame::Upstream, |kind| kind.blame()), error.message.as_str())
        }
        (None, None) => {
            tracing::info!(
                run = %live.id(), agent = %live.agent.name, session = &*session, route = &*turn.route,
                protocol = &*protocol, took_ms, outcome, ignored_frames = report.ignored,
                first_ignored = first_ignored.as_deref(), agent_error = agent_error.as_deref(), "turn ended"
            );
            return;
        }
    };
    let detail = report.fault.and_then(|fault| fault.detail.as_deref()).map(shown);
    tracing::warn!(
        run = %live.id(), agent = %live.agent.name, session = &*session, route = &*turn.route, protocol = &*protocol,
        code = &*shown(&code), blame = blame.as_str(), status = report.fault.and_then(|fault| fault.upstream_status),
        cause = &*shown(message), detail = detail.as_deref(), agent_error = agent_error.as_deref(),
        ignored_frames = report.ignored, first_ignored = first_ignored.as_deref(), took_ms, outcome, "turn failed"
    );
}

/// A text from outside as the log may hold it: as much as helps, on one line.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = &text[..end];
    if end == text.len() && !text.contains(|c: char| c.is_control()) {
        return Cow::Borrowed(text);
    }
    let mut shown: String = start.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if end < text.len() {
        shown.push('…');
    }
    Cow::Owned(shown)
}
