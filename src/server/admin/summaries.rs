//! Summaries of runs: what lists and the stream of changes show of them. Never a record, and of texts only how a run
//! began.
//!
//! Not here: where they come from (`crate::engine`), and the stream ([`super::feed`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlingua_core::event::Millis;
use interlingua_core::{FaultKind, RunId};
use serde_json::{Value, json};

use super::State;
use crate::engine::RunSummary;

/// Summaries in one message at most: the rest follows with the next.
const MAX_CHANGES: usize = 200;
/// For how long the page's knowledge of a run is remembered without a change, in milliseconds.
const FORGET_AFTER: Millis = 60_000;
/// The changes of this time before a stream begins are part of it, in milliseconds.
const OVERLAP: Millis = 2000;
/// How often agents, and whether the open run still exists, are looked at.
const AGENTS_INTERVAL: Duration = Duration::from_secs(2);

/// A summary as JSON. `texts`: whether its reader may see what people say.
pub(super) fn summary(run: &RunSummary, texts: bool) -> Value {
    json!({
        "id": run.id.to_string(),
        "agent": run.agent,
        "protocol": run.protocol,
        "owner": run.owner,
        "session": run.session,
        "state": run.state.as_str(),
        "code": run.code,
        "created_at": run.created_at,
        "changed_at": run.changed_at,
        "events": run.events,
        "pending": run.pending,
        "asks": run.asks,
        "text": texts.then_some(run.text.as_str()),
    })
}

/// Runs that were deleted on this listener, the latest last, and how many there were before those.
#[derive(Default)]
pub(super) struct Deleted(Mutex<(u64, VecDeque<RunId>)>);

impl Deleted {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<RunId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a run was deleted.
    pub(super) fn note(&self, run: RunId) {
        let mut known = self.lock();
        known.1.push_back(run);
        if known.1.len() > MAX_CHANGES {
            known.1.pop_front();
            known.0 += 1;
        }
    }

    /// How many there were ever.
    fn count(&self) -> u64 {
        let known = self.lock();
        known.0 + known.1.len() as u64
    }

    /// Those after the first so many, and how many there were ever.
    fn since(&self, count: u64) -> (Vec<RunId>, u64) {
        let known = self.lock();
        let skipped = usize::try_from(count.saturating_sub(known.0)).unwrap_or(usize::MAX);
        (known.1.iter().skip(skipped).copied().collect(), known.0 + known.1.len() as u64)
    }
}

/// What one page has been sent, to send what differs.
pub(super) struct Watch {
    runs: bool,
    texts: bool,
    /// The latest change that was sent.
    since: Millis,
    /// Of runs that may change without a later `changed_at`: events and open items.
    sent: HashMap<RunId, (Millis, u64, usize)>,
    /// The run that is open on the page, until it is gone.
    open: Option<RunId>,
    /// Deleted runs that were sent.
    deleted: u64,
    pending: Option<usize>,
    agents: Vec<Value>,
    agents_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new(state: &State, runs: bool, open: Option<RunId>, texts: bool) -> Self {
        let agents = Vec::new();
        // What changed while a page opened its next stream is sent again.
        let since = crate::clock::now().saturating_sub(OVERLAP);
        let deleted = state.deleted.count();
        Self { runs, texts, since, sent: HashMap::new(), open, deleted, pending: None, agents, agents_at: None }
    }

    /// What has changed since the last call, as frames of a stream. Empty: nothing.
    pub(super) async fn changes(&mut self, state: &Arc<State>) -> String {
        let mut text = String::new();
        let operator = state.admin.engine.operator();
        // Read once for the count and for the summaries.
        if let Ok(open) = operator.open_items().await {
            let pending = open.iter().map(|session| session.items.len()).sum();
            if self.pending != Some(pending) {
                self.pending = Some(pending);
                text.push_str(&format!("event: pending\ndata: {}\n\n", json!({ "count": pending })));
            }
            if self.runs
                && let Ok(found) = operator.changed_since(self.since, MAX_CHANGES, &open).await
            {
                self.add_runs(&found, &mut text);
            }
        }
        let mut removed = self.removed(state);
        if self.agents_at.is_none_or(|at| at.elapsed() >= AGENTS_INTERVAL) {
            self.agents_at = Some(Instant::now());
            let agents = super::overview::agents(state);
            if agents != self.agents {
                text.push_str(&format!("event: agents\ndata: {}\n\n", json!({ "data": agents })));
                self.agents = agents;
            }
            // It may be deleted by its owner, or because its time is over.
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

    /// What was deleted since the last call.
    fn removed(&mut self, state: &State) -> Vec<RunId> {
        let (removed, count) = state.deleted.since(self.deleted);
        self.deleted = count;
        removed
    }

    fn add_runs(&mut self, found: &[RunSummary], text: &mut String) {
        let key = |run: &RunSummary| (run.changed_at, run.events, run.pending);
        let changed: Vec<&RunSummary> = found.iter().filter(|run| self.sent.get(&run.id) != Some(&key(run))).collect();
        if changed.is_empty() {
            return;
        }

        let shown: Vec<Value> = changed.iter().map(|run| summary(run, self.texts)).collect();
        for run in &changed {
            self.sent.insert(run.id, key(run));
            self.since = self.since.max(run.changed_at);
        }
        // What has not changed for a while is sent again only if it changes, and then `changed_at` is later.
        let since = self.since;
        self.sent.retain(|_, (changed_at, ..)| changed_at.saturating_add(FORGET_AFTER) >= since);
        text.push_str(&format!("event: runs\ndata: {}\n\n", json!({ "changed": shown, "removed": [] })));
    }
}
