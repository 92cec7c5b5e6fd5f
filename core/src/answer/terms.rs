//! Terms of questions and answers: the abilities of the client's protocol, and the decisions that the upstream accepts.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pending::{Decision, Pending, PendingKind};

/// A protocol's way to ask for several open items (docs/human-in-the-loop.md#rule-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskPolicy {
    /// All items at once, answered in one request. Outputs of tool calls may be missing.
    #[default]
    Together,
    /// One item at a time; answers are collected until the last one arrives. Tool calls are not shown: the client runs
    /// them.
    OneByOne,
    /// One item at a time, including tool calls.
    OneByOneWithTools,
}

/// Handling of an answer to an unknown item: the store was lost, or another gateway asked
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
    /// The protocol's way to ask.
    pub asking: AskPolicy,
    /// Time within which an approval, a question or a login can be answered if its source sets no expiry. Afterwards it
    /// can only be cancelled. `None`: no limit. Tool calls never expire.
    pub ttl: Option<Duration>,
    /// Handling of answers to unknown items.
    pub orphans: OrphanPolicy,
    /// True if the upstream accepts single answers: each answer is then sent immediately.
    pub accepts_single_answers: bool,
    /// True: after an answer without an allowed decision, the client sees the items again. False: such an answer is
    /// refused.
    pub asks_again: bool,
}

/// The decisions that an agent with the approval extension accepts.
pub const ALL_DECISIONS: &[Decision] =
    &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions of an upstream that only knows the plain canonical approval.
pub const NATIVE_DECISIONS: &[Decision] = &[Decision::Accept, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions that every agent with approvals accepts. Connectors list them for an approval whose agent lists none
/// (docs/human-in-the-loop.md#rule-2).
pub const PLAIN_DECISIONS: &[Decision] = &[Decision::Accept, Decision::Reject];

/// The decisions to offer for an item (docs/human-in-the-loop.md#rule-2): those that the item lists, limited to what
/// the upstream accepts. `taken`: the decisions that the upstream accepts in general
/// ([`AgentCard::decisions`](crate::call::AgentCard::decisions)). A plain agent of the Agent API that lists `edit`
/// itself accepts edits.
///
/// Approvals and logins always offer `reject`. `cancel` is always possible, and listed only if the source lists it.
/// Never empty. The result does not change if it becomes the list of the item.
#[must_use]
pub fn offer(item: &Pending, taken: &[Decision]) -> Vec<Decision> {
    use Decision::{Accept, Edit, Reject, Respond};
    let lists_edit = item.extension.is_some() && item.decisions.contains(&Edit);
    let taken = if lists_edit && taken == NATIVE_DECISIONS { ALL_DECISIONS } else { taken };
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

    let mut offered: Vec<Decision> = Vec::with_capacity(asked.len() + 1);
    for decision in asked.iter().copied().filter(|decision| taken.contains(decision)) {
        if !offered.contains(&decision) {
            offered.push(decision);
        }
    }
    // A client can always reject: `CheckedDecision::message` writes the rejection in a word that the agent accepts.
    let can_reject = item.kind == PendingKind::Input && !offered.is_empty();
    if !can_reject && !offered.contains(&Reject) {
        offered.push(Reject);
    }
    offered
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
        assert_eq!(offer(&plain, NATIVE_DECISIONS), [Decision::Accept, Decision::Respond, Decision::Reject]);
        assert!(offer(&plain, ALL_DECISIONS).contains(&Decision::Edit));
        let edits = item(r#"{"id":"a","name":"send","interrupt":{"kind":"approval","decisions":["accept","edit"]}}"#);
        assert_eq!(offer(&edits, NATIVE_DECISIONS), [Decision::Accept, Decision::Edit, Decision::Reject]);
        assert_eq!(offer(&edits, PLAIN_DECISIONS), PLAIN_DECISIONS, "the protocol carries no edits");
        assert_eq!(offer(&edits, &[]), [Decision::Reject]);
    }

    #[test]
    fn an_unknown_list_offers_nothing_but_no() {
        for words in [r#"["perhaps"]"#, r#"["perhaps","click"]"#] {
            let item = item(&format!(r#"{{"id":"a","name":"send","interrupt":{{"decisions":{words}}}}}"#));
            assert_eq!(offer(&item, ALL_DECISIONS), [Decision::Reject], "{words}");
        }
    }

    #[test]
    fn approvals_and_logins_always_offer_no_and_an_offer_is_final() {
        let lists = [
            "[]",
            r#"["accept"]"#,
            r#"["accept","cancel"]"#,
            r#"["edit"]"#,
            r#"["respond"]"#,
            r#"["accept","edit","respond","reject","cancel"]"#,
        ];
        for kind in ["approval", "input", "auth"] {
            for list in lists {
                for taken in [ALL_DECISIONS, NATIVE_DECISIONS, PLAIN_DECISIONS, &[]] {
                    let data = format!(r#"{{"id":"a","name":"x","interrupt":{{"kind":"{kind}","decisions":{list}}}}}"#);
                    let mut item = item(&data);
                    let offered = offer(&item, taken);
                    assert!(!offered.is_empty(), "{data}");
                    assert!(kind == "input" || offered.contains(&Decision::Reject), "{data} {taken:?}");
                    item.decisions.clone_from(&offered);
                    assert_eq!(offer(&item, taken), offered, "{data} {taken:?}");
                }
            }
        }
    }
}
