//! How items are asked and answered: what the client's protocol can do, and what the upstream accepts.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pending::{Decision, Pending, PendingKind};

/// How a protocol asks for several open items (docs/human-in-the-loop.md#rule-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskPolicy {
    /// All items at once, answered in one request. Tool calls may be left out.
    #[default]
    Together,
    /// One item at a time; answers are collected. Tool calls are not asked for: the client runs them.
    OneByOne,
    /// One item at a time, including tool calls.
    OneByOneWithTools,
}

/// What to do with an answer to an unknown item: the store was lost, or another gateway asked
/// (docs/human-in-the-loop.md#unknown-items).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanPolicy {
    /// Reject the answer.
    #[default]
    Refuse,
    /// Forward it upstream if it is an unambiguous decision on an approval.
    Forward,
}

/// The answer settings of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerPolicy {
    /// How the protocol asks for items.
    pub asking: AskPolicy,
    /// How long an item can be answered if its source sets no expiry. Afterwards it can only be cancelled.
    pub ttl: Option<Duration>,
    /// What to do with answers to unknown items.
    pub orphans: OrphanPolicy,
    /// True if the upstream accepts single answers: then each one is sent immediately.
    pub accepts_single_answers: bool,
    /// True if an answer that decides nothing, or nothing that is allowed, is not refused: the client is asked again.
    pub asks_again: bool,
}

/// What an agent with the approval extension accepts.
pub const ALL_DECISIONS: &[Decision] =
    &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions of an upstream that only knows the plain canonical approval.
pub const NATIVE_DECISIONS: &[Decision] = &[Decision::Accept, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions that an agent accepts for this item (docs/human-in-the-loop.md#rule-2), where `taken` are those it accepts in general
/// ([`AgentCard::decisions`](crate::call::AgentCard::decisions)). An agent that lists `edit` itself accepts edits.
#[must_use]
pub fn supported_decisions(item: &Pending, taken: &'static [Decision]) -> &'static [Decision] {
    let offers_edit = item.extension.is_some() && item.decisions.contains(&Decision::Edit);
    if offers_edit { ALL_DECISIONS } else { taken }
}

/// The decisions to offer for an item, limited to what the upstream accepts. Cancelling is always possible, but listed
/// only if the source lists it. Never empty: an item without any other option can be rejected.
#[must_use]
pub fn offer(item: &Pending, taken: &[Decision]) -> Vec<Decision> {
    use Decision::{Accept, Edit, Reject, Respond};
    let asked: &[Decision] = match item.kind {
        // A client-side tool call has a result or not; the source's decisions do not apply, and an agent that asks for
        // no approvals takes results nevertheless.
        PendingKind::Tool => return vec![Respond, Reject],
        _ if !item.decisions.is_empty() => &item.decisions,
        PendingKind::Approval => &[Accept, Edit, Respond, Reject],
        // A question with a schema cannot be answered by just continuing.
        PendingKind::Input if item.response_schema.is_some() => &[Respond, Reject],
        PendingKind::Input => &[Accept, Respond, Reject],
        PendingKind::Auth => &[Accept, Reject],
    };

    let offered: Vec<Decision> = asked.iter().copied().filter(|decision| taken.contains(decision)).collect();
    if offered.is_empty() { vec![Reject] } else { offered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn item(data: &str) -> Pending {
        Pending::parse(&Json::parse(data).expect("JSON")).expect("an item")
    }

    #[test]
    fn edits_are_not_offered_if_the_upstream_does_not_accept_them() {
        let plain = item(r#"{"id":"a","name":"send","arguments":"{}"}"#);
        assert_eq!(
            offer(&plain, supported_decisions(&plain, NATIVE_DECISIONS)),
            [Decision::Accept, Decision::Respond, Decision::Reject]
        );
        assert!(offer(&plain, supported_decisions(&plain, ALL_DECISIONS)).contains(&Decision::Edit));
        let edits = item(r#"{"id":"a","name":"send","interrupt":{"kind":"approval","decisions":["accept","edit"]}}"#);
        assert_eq!(offer(&edits, supported_decisions(&edits, NATIVE_DECISIONS)), [Decision::Accept, Decision::Edit]);
        assert_eq!(offer(&edits, NATIVE_DECISIONS), [Decision::Accept]);
        let only = item(r#"{"id":"a","name":"send","interrupt":{"decisions":["edit"]}}"#);
        assert_eq!(offer(&only, NATIVE_DECISIONS), [Decision::Reject]);
    }
}
