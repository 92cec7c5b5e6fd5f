//! How items are asked and answered: what the client's protocol can do, and what the upstream accepts.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::pending::{Decision, Pending, PendingKind};

/// How a protocol asks for several open items (section 3, rule 4).
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

/// What to do with an answer to an unknown item: the store was lost, or another gateway asked (section 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
}

/// All decisions.
pub const ALL_DECISIONS: &[Decision] =
    &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions of an upstream that only knows the plain canonical approval.
pub const NATIVE_DECISIONS: &[Decision] = &[Decision::Accept, Decision::Respond, Decision::Reject, Decision::Cancel];

/// The decisions that an upstream with the Agent API accepts for this item (section 3, rule 2). An upstream that sends
/// the extension with `edit` in its decisions accepts edits.
#[must_use]
pub fn supported_decisions(item: &Pending, approval_extension: bool) -> &'static [Decision] {
    let offers_edit = item.extension.is_some() && item.decisions.contains(&Decision::Edit);
    if approval_extension || offers_edit { ALL_DECISIONS } else { NATIVE_DECISIONS }
}

/// The decisions to offer for an item, limited to what the upstream accepts. Cancelling is always possible, but listed
/// only if the source lists it. Never empty: an item without any other option can be rejected.
#[must_use]
pub fn offer(item: &Pending, taken: &[Decision]) -> Vec<Decision> {
    use Decision::{Accept, Edit, Reject, Respond};
    let asked: &[Decision] = match item.kind {
        // A client-side tool call has a result or not; the source's decisions do not apply.
        PendingKind::Tool => &[Respond, Reject],
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

/// A duration in adapter options: an integer in seconds, or a number with the unit `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(pub Duration);

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Seconds(u64),
            Text(String),
        }

        let text = match Raw::deserialize(deserializer)? {
            Raw::Seconds(seconds) => return Ok(Self(Duration::from_secs(seconds))),
            Raw::Text(text) => text,
        };

        let unit = |text: &str| match text {
            "ms" => Some(1),
            "s" => Some(1000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };

        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let parsed = unit(&text[digits.len()..]).zip(digits.trim().parse::<u64>().ok());
        parsed
            .and_then(|(unit, number)| number.checked_mul(unit))
            .map(|millis| Self(Duration::from_millis(millis)))
            .ok_or_else(|| {
                let known = "write \"500ms\", \"90s\", \"15m\", \"24h\" or \"7d\"";
                serde::de::Error::custom(format!("'{text}' is not a duration: {known}"))
            })
    }
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
            offer(&plain, supported_decisions(&plain, false)),
            [Decision::Accept, Decision::Respond, Decision::Reject]
        );
        assert!(offer(&plain, supported_decisions(&plain, true)).contains(&Decision::Edit));
        let edits = item(r#"{"id":"a","name":"send","interrupt":{"kind":"approval","decisions":["accept","edit"]}}"#);
        assert_eq!(offer(&edits, supported_decisions(&edits, false)), [Decision::Accept, Decision::Edit]);
        assert_eq!(offer(&edits, NATIVE_DECISIONS), [Decision::Accept]);
        let only = item(r#"{"id":"a","name":"send","interrupt":{"decisions":["edit"]}}"#);
        assert_eq!(offer(&only, NATIVE_DECISIONS), [Decision::Reject]);
    }

    #[test]
    fn durations_have_a_unit() {
        let parse = |text: &str| serde_json::from_str::<Ttl>(text).map(|ttl| ttl.0.as_secs()).ok();
        assert_eq!(
            [parse("90"), parse("\"90s\""), parse("\"15m\""), parse("\"1 d\"")],
            [90, 90, 900, 86_400].map(Some)
        );
        assert_eq!(serde_json::from_str::<Ttl>("\"500ms\"").map(|ttl| ttl.0).ok(), Some(Duration::from_millis(500)));
        for wrong in ["\"\"", "\"m\"", "\"1w\"", "\"1.5h\"", "-1", "\"99999999999999999999d\""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
