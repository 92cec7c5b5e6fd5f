//! Counters of translations: content that was lost or changed, and requests to stop agents.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    agent: Arc<str>,
    protocol: &'static str,
    side: &'static str,
    kind: &'static str,
    change: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CancelLabels {
    agent: Arc<str>,
    result: &'static str,
}

/// Content that was changed or lost.
#[derive(Clone, Debug)]
pub struct ContentLost {
    /// The agent's name.
    pub agent: Arc<str>,
    /// The protocol of the client.
    pub protocol: &'static str,
    /// Where: towards the client, or towards the agent.
    pub side: &'static str,
    /// The kind of content.
    pub kind: &'static str,
    /// Whether it was lost, or only changed.
    pub change: &'static str,
    /// The number of occurrences.
    pub count: u32,
}

/// The counters.
#[derive(Default)]
pub(super) struct TranslationMetrics {
    lost: Family<LossLabels, Counter>,
    cancels: Family<CancelLabels, Counter>,
}

impl TranslationMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Content that was lost or changed in a translation";
        registry.register("content_lost", help, self.lost.clone());
        let help = "Requests to stop agents, by result";
        registry.register("agent_cancels", help, self.cancels.clone());
    }

    pub(super) fn lost(&self, lost: &ContentLost) {
        let ContentLost { agent, protocol, side, kind, change, count } = lost.clone();
        let labels = LossLabels { agent, protocol, side, kind, change };
        self.lost.get_or_create(&labels).inc_by(u64::from(count));
    }

    pub(super) fn canceled(&self, agent: &Arc<str>, result: &'static str) {
        self.cancels.get_or_create(&CancelLabels { agent: Arc::clone(agent), result }).inc();
    }
}
