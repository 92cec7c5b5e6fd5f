//! Summaries of runs: what lists and the stream of changes show of them. Never a record, and of texts only how a run
//! began.
//!
//! Not here: where they come from (`crate::engine`), and the stream ([`super::feed`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::RunId;
use interlingua_core::event::Millis;
use serde_json::{Value, json};

use super::State;
use crate::engine::RunSummary;

/// Summaries in one message at most: the rest follows with the next.
const MAX_CHANGES: usize = 200;
/// For how long the page's knowledge of a run is remembered without a change, in milliseconds.
const FORGET_AFTER: Millis = 60_000;
/// How often agents are looked at.
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

/// What one page has been sent, to send what differs.
pub(super) struct Watch {
    runs: bool,
    texts: bool,
    /// The latest change that was sent.
    since: Millis,
    /// Of runs that may change without a later `changed_at`: events and open items.
    sent: HashMap<RunId, (Millis, u64, usize)>,
    pending: Option<usize>,
    agents: Vec<Value>,
    agents_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new(runs: bool, texts: bool) -> Self {
        let agents = Vec::new();
        let since = crate::clock::now();
        Self { runs, texts, since, sent: HashMap::new(), pending: None, agents, agents_at: None }
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
        if self.agents_at.is_none_or(|at| at.elapsed() >= AGENTS_INTERVAL) {
            self.agents_at = Some(Instant::now());
            let agents = super::overview::agents(state);
            if agents != self.agents {
                text.push_str(&format!("event: agents\ndata: {}\n\n", json!({ "data": agents })));
                self.agents = agents;
            }
        }
        text
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
