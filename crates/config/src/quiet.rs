//! Warnings that the operator accepts: `[server] quiet`.

use super::diagnostics::{Diagnostic, Severity};
use super::located::WithSpan;
use super::suggest;

/// The codes of warnings that can be accepted, for all agents, or as `code:agent` for one.
pub(super) const CODES: [&str; 10] =
    [CLIENT_TOOLS, MODEL, QUESTIONS, EVENTS, OPEN_ROUTES, NO_TLS, SHARED_ADDRESS, CONSOLE_ACT, CALLER_KINDS, UPSTREAM];
/// The agent cannot receive tools that clients declare.
pub(super) const CLIENT_TOOLS: &str = "client_tools";
/// Requests to the agent name no model.
pub(super) const MODEL: &str = "model";
/// No client can answer the agent's questions.
pub(super) const QUESTIONS: &str = "questions";
/// No client reads the events that are stored for the agent's protocol.
pub(super) const EVENTS: &str = "events";
/// Routes without authentication beyond loopback.
pub(super) const OPEN_ROUTES: &str = "open_routes";
/// A listener beyond loopback without TLS.
pub(super) const NO_TLS: &str = "no_tls";
/// Clients behind an untrusted proxy share its address.
pub(super) const SHARED_ADDRESS: &str = "shared_address";
/// Every key may act in the console.
pub(super) const CONSOLE_ACT: &str = "console_act";
/// Options of the agent's upstream that have no effect, or an unusual one.
pub(super) const UPSTREAM: &str = "upstream";
/// Several kinds of credentials prove the name of one table.
pub(super) const CALLER_KINDS: &str = "caller_kinds";

/// Removes the accepted warnings, and reports entries that accept none.
pub(super) fn apply(quiet: &[WithSpan<String>], found: &mut Vec<Diagnostic>) {
    found
        .retain(|one| one.severity() == Severity::Error || !quiet.iter().any(|entry| one.is_accepted_by(&entry.value)));
    for entry in quiet {
        let code = entry.value.split(':').next().unwrap_or_default();
        if !CODES.contains(&code) {
            let label = suggest::label(code, CODES, "write the code of a warning, as the warning itself says");
            let diagnostic = Diagnostic::error(format!("{:?} names no warning", entry.value)).at(&entry.span);
            found.push(diagnostic.label(label).help(format!("codes: {}", suggest::list(CODES))));
        }
    }
}
