//! Metrics of the end of a run.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::{End, FaultKind, error_class};

use interlingua_observe::metrics::{AgentMetrics, LastFault, RunEnd};

/// Counts the end of a run. `caller`: the proved name of the caller of the last turn. A run without an end is not
/// counted.
pub(super) fn report(view: RunView<'_>, caller: Option<&Arc<str>>, metrics: &AgentMetrics) {
    let (RunState::Ended(end), run) = (view.info.state, view.run()) else { return };
    // Codes that the gateway does not define are codes of the agent.
    let code = run.error().map_or("", |error| FaultKind::of_code(&error.code).map_or("agent", FaultKind::code));
    let blame = run.error().map(|error| error_class::of_run_code(&error.code).blame());
    let ended_at = run.finished_at.unwrap_or(run.created_at);
    let took = Duration::from_millis(ended_at.saturating_sub(run.created_at));
    if let Some(error) = run.error().filter(|_| end == End::Failed) {
        // The error text of an agent may contain the text of its client.
        let message = FaultKind::of_code(&error.code)
            .filter(|kind| !matches!(kind, FaultKind::AgentFailed | FaultKind::UpstreamFiltered))
            .map(|_| error.message.clone());
        metrics.note_fault(LastFault { at: ended_at, code: error.code.clone(), message });
    }
    metrics.run_ended(&RunEnd { protocol: &view.info.protocol, outcome: end.as_str(), code, blame, caller, took });
}
