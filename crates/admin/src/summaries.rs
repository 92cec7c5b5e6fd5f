//! Finds the changes for one page: of runs, of the number of open items, of agents and of the gateway.
//!
//! Not here: the content of a summary ([`super::views`]), its source (`interlingua_engine`), and the stream
//! ([`super::feed`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use interlingua_core::event::Millis;
use interlingua_core::{FaultKind, RunId};
use serde_json::json;

use super::AdminState;
use super::shared::{OVERVIEW_INTERVAL, Overview};
use super::views::{Agent, Summary};
use interlingua_engine::RunSummary;

/// Maximum number of summaries in one message.
const MAX_CHANGES: usize = 200;
/// Time in milliseconds after which an unchanged run is removed from the record of sent runs.
const FORGET_AFTER: Millis = 60_000;
/// Milliseconds that are read again at each search: a run can be written later than another one with a later change,
/// also by a gateway with another clock. Runs that were sent before are not sent again.
const OVERLAP: Millis = 2000;

/// The latest runs that were deleted at this listener, the latest last, and the number of earlier ones.
#[derive(Default)]
pub(super) struct DeletedRuns(Mutex<(u64, VecDeque<RunId>)>);

impl DeletedRuns {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<RunId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, run: RunId) {
        let mut known = self.lock();
        known.1.push_back(run);
        if known.1.len() > MAX_CHANGES {
            known.1.pop_front();
            known.0 += 1;
        }
    }

    /// The total number of deleted runs so far.
    fn count(&self) -> u64 {
        let known = self.lock();
        known.0 + known.1.len() as u64
    }

    /// The deleted runs after the first `count`, as far as they are known, and the total number so far.
    fn since(&self, count: u64) -> (Vec<RunId>, u64) {
        let known = self.lock();
        let skipped = usize::try_from(count.saturating_sub(known.0)).unwrap_or(usize::MAX);
        (known.1.iter().skip(skipped).copied().collect(), known.0 + known.1.len() as u64)
    }
}

/// The data that one page has received, so that only differences are sent.
pub(super) struct Watch {
    runs: bool,
    texts: bool,
    /// Time of the last search for changes.
    since: Millis,
    /// Sent runs: `changed_at`, and the numbers of events and open items, which may change without a later
    /// `changed_at`.
    sent: HashMap<RunId, (Millis, u64, usize)>,
    /// The open run of the page, until it is deleted.
    open: Option<RunId>,
    /// The number of deleted runs that were handled.
    deleted: u64,
    pending: Option<usize>,
    overview: Option<Arc<Overview>>,
    looked_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new(state: &AdminState, runs: bool, open: Option<RunId>, texts: bool) -> Self {
        // The first search covers the last two seconds, so that a page misses nothing when it reconnects.
        let since = interlingua_base::clock::now();
        let deleted = state.deleted.count();
        let sent = HashMap::new();
        Self { runs, texts, since, sent, open, deleted, pending: None, overview: None, looked_at: None }
    }

    /// The changes since the last call, as frames of a stream. Empty without changes.
    pub(super) async fn changes(&mut self, state: &Arc<AdminState>) -> String {
        let mut text = String::new();
        let operator = state.admin.engine.operator();
        // One read serves the count and the summaries.
        if let Ok(open) = state.shared.open_items(state).await {
            let pending = open.iter().map(|session| session.items.len()).sum();
            if self.pending != Some(pending) {
                self.pending = Some(pending);
                text.push_str(&format!("event: pending\ndata: {}\n\n", json!({ "count": pending })));
            }
            let now = interlingua_base::clock::now();
            if self.runs
                && let Ok((found, has_more)) =
                    operator.changed_since(self.since.saturating_sub(OVERLAP), MAX_CHANGES, &open).await
            {
                self.add_runs(&found, has_more, &mut text);
                self.since = now;
            }
        }
        let mut removed = self.removed(state);
        if self.looked_at.is_none_or(|at| at.elapsed() >= OVERVIEW_INTERVAL) {
            self.looked_at = Some(Instant::now());
            self.add_overview(state.shared.overview(state).await, &mut text);
            // The owner may delete the run, or its retention may end.
            if let Some(open) = self.open
                && let Err(fault) = operator.find(open).await
                && fault.kind == FaultKind::NotFound
            {
                self.open = None;
                removed.push(open);
            }
        }
        if !removed.is_empty() {
            let removed: Vec<String> = removed.iter().map(RunId::to_string).collect();
            text.push_str(&format!("event: runs\ndata: {}\n\n", json!({ "changed": [], "removed": removed })));
        }
        text
    }

    fn add_overview(&mut self, overview: Arc<Overview>, text: &mut String) {
        let before = self.overview.as_ref();
        if before.is_none_or(|before| before.agents != overview.agents) {
            let agents: Vec<Agent> = overview.agents.iter().cloned().map(|agent| self.shown(agent)).collect();
            text.push_str(&format!("event: agents\ndata: {}\n\n", json!({ "data": agents })));
        }
        if before.is_none_or(|before| before.gateway != overview.gateway) {
            text.push_str(&format!("event: gateway\ndata: {}\n\n", json!(overview.gateway)));
        }
        self.overview = Some(overview);
    }

    fn shown(&self, agent: Agent) -> Agent {
        if self.texts { agent } else { agent.without_texts() }
    }

    /// The runs that were deleted at this listener since the last call.
    fn removed(&mut self, state: &AdminState) -> Vec<RunId> {
        let (removed, count) = state.deleted.since(self.deleted);
        self.deleted = count;
        removed
    }

    /// Appends the changed runs. `has_more`: there are older changes that did not fit.
    fn add_runs(&mut self, found: &[RunSummary], has_more: bool, text: &mut String) {
        let key = |run: &RunSummary| (run.changed_at, run.events, run.pending);
        let changed: Vec<&RunSummary> = found.iter().filter(|run| self.sent.get(&run.id) != Some(&key(run))).collect();
        if changed.is_empty() {
            return;
        }
        // If the oldest run that fits was sent before, then all older ones were, too.
        let oldest = found.get(MAX_CHANGES - 1);
        if has_more && oldest.is_some_and(|run| self.sent.get(&run.id) != Some(&key(run))) {
            text.push_str("event: missed\ndata: {}\n\n");
        }

        let shown: Vec<Summary> = changed.iter().map(|run| Summary::new(run, self.texts)).collect();
        for run in &changed {
            self.sent.insert(run.id, key(run));
        }
        // A run that is unchanged for a while is read again only after a change, with a later `changed_at`.
        let now = interlingua_base::clock::now();
        self.sent.retain(|_, (changed_at, ..)| changed_at.saturating_add(FORGET_AFTER) >= now);
        text.push_str(&format!("event: runs\ndata: {}\n\n", json!({ "changed": shown, "removed": [] })));
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::call::RunState;

    use super::*;

    fn run(number: u128, changed_at: Millis) -> RunSummary {
        RunSummary {
            id: RunId(uuid::Uuid::from_u128(number)),
            agent: "demo".to_owned(),
            protocol: "agent-api".to_owned(),
            owner: String::new(),
            session: String::new(),
            state: RunState::Running,
            code: None,
            created_at: changed_at,
            changed_at,
            events: 1,
            pending: 0,
            asks: None,
            text: String::new(),
        }
    }

    fn watch() -> Watch {
        let (sent, since) = (HashMap::new(), 0);
        Watch {
            runs: true,
            texts: true,
            since,
            sent,
            open: None,
            deleted: 0,
            pending: None,
            overview: None,
            looked_at: None,
        }
    }

    fn sent(watch: &mut Watch, runs: &[RunSummary], has_more: bool) -> String {
        let mut text = String::new();
        watch.add_runs(runs, has_more, &mut text);
        text
    }

    #[test]
    fn a_late_run_is_sent_once() {
        let (mut watch, now) = (watch(), interlingua_base::clock::now());
        assert!(sent(&mut watch, &[run(2, now)], false).contains("000000000002"));
        assert_eq!(sent(&mut watch, &[run(2, now)], false), "");
        let late = sent(&mut watch, &[run(2, now), run(1, now - 500)], false);
        assert!(late.contains("000000000001") && !late.contains("000000000002"), "{late}");
    }

    #[test]
    fn more_changes_than_fit_are_announced() {
        let (mut watch, now) = (watch(), interlingua_base::clock::now());
        let many: Vec<RunSummary> = (0..MAX_CHANGES as u128).map(|number| run(number, now)).collect();
        assert!(sent(&mut watch, &many, true).contains("event: missed"));
        let mut next = vec![run(9999, now)];
        next.extend(many.into_iter().take(MAX_CHANGES - 1));
        assert!(!sent(&mut watch, &next, true).contains("event: missed"), "the oldest that fits was sent before");
    }
}
