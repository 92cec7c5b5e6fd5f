//! On what terms items are asked and answered: what the client's protocol can do, and what the upstream can take.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::pending::{Decision, Pending, PendingKind};

/// How a protocol asks for several items that are open at once (section 3, rule 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskPolicy {
    /// All of them are shown, and answered in one request; tools may be left out.
    #[default]
    Together,
    /// One at a time; the answers are collected. Tools are not asked for: they are called.
    OneByOne,
    /// One at a time, and tools among them.
    OneByOneWithTools,
}

/// What to do with an answer to an item nobody knows: the store was lost, or it was asked elsewhere (section 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanPolicy {
    /// Say so.
    #[default]
    Refuse,
    /// Pass it on, if it decides an approval by itself.
    Forward,
}

/// The terms of one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerPolicy {
    /// How its protocol asks.
    pub asking: AskPolicy,
    /// After how long an item it asks for can only be cancelled, where the source does not say.
    pub ttl: Option<Duration>,
    /// What becomes of answers to unknown items.
    pub orphans: OrphanPolicy,
    /// Whether the upstream takes answers one by one: then each goes at once.
    pub taken_one_by_one: bool,
}

/// Everything that can be decided.
pub const ALL_DECISIONS: &[Decision] =
    &[Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel];

/// What an upstream understands that knows the plain native approval alone.
pub const NATIVE_DECISIONS: &[Decision] = &[Decision::Accept, Decision::Respond, Decision::Reject, Decision::Cancel];

/// What an upstream of the native protocol takes as a decision about this item (section 3, rule 2). An upstream that
/// writes the extension and lists `edit` in it says itself that it takes edits.
#[must_use]
pub fn taken(item: &Pending, approval_extension: bool) -> &'static [Decision] {
    let says_so = item.extension.is_some() && item.decisions.contains(&Decision::Edit);
    if approval_extension || says_so { ALL_DECISIONS } else { NATIVE_DECISIONS }
}

/// What may be decided about an item, cut down to what the upstream takes. To cancel is always possible and listed
/// only where the source lists it. Never empty: what cannot be decided otherwise can be rejected.
#[must_use]
pub fn offer(item: &Pending, taken: &[Decision]) -> Vec<Decision> {
    use Decision::{Accept, Edit, Reject, Respond};
    let asked: &[Decision] = match item.kind {
        // What the source says of a tool it does not run is of no use.
        PendingKind::Tool => &[Respond, Reject],
        _ if !item.decisions.is_empty() => &item.decisions,
        PendingKind::Approval => &[Accept, Edit, Respond, Reject],
        // Going on without an answer is no answer to a question with a schema.
        PendingKind::Input if item.response_schema.is_some() => &[Respond, Reject],
        PendingKind::Input => &[Accept, Respond, Reject],
        PendingKind::Auth => &[Accept, Reject],
    };
    let offered: Vec<Decision> = asked.iter().copied().filter(|decision| taken.contains(decision)).collect();
    if offered.is_empty() { vec![Reject] } else { offered }
}

/// A duration as options write it: whole seconds, or a number with `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(pub Duration);

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Seconds(u64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => return Ok(Self(Duration::from_secs(seconds))),
            Written::Text(text) => text,
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
        let written = unit(&text[digits.len()..]).zip(digits.trim().parse::<u64>().ok());
        written
            .and_then(|(unit, number)| number.checked_mul(unit))
            .map(|millis| Self(Duration::from_millis(millis)))
            .ok_or_else(|| {
                let known = "write \"500ms\", \"90s\", \"15m\", \"24h\" or \"7d\"";
                serde::de::Error::custom(format!("'{text}' is no duration: {known}"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn item(data: &str) -> Pending {
        Pending::read(&Json::parse(data).expect("JSON")).expect("an item")
    }

    #[test]
    fn an_edit_is_not_offered_where_the_upstream_cannot_take_it() {
        let plain = item(r#"{"id":"a","name":"send","arguments":"{}"}"#);
        assert_eq!(offer(&plain, taken(&plain, false)), [Decision::Accept, Decision::Respond, Decision::Reject]);
        assert!(offer(&plain, taken(&plain, true)).contains(&Decision::Edit));
        let edits = item(r#"{"id":"a","name":"send","interrupt":{"kind":"approval","decisions":["accept","edit"]}}"#);
        assert_eq!(offer(&edits, taken(&edits, false)), [Decision::Accept, Decision::Edit]);
        assert_eq!(offer(&edits, NATIVE_DECISIONS), [Decision::Accept]);
        let only = item(r#"{"id":"a","name":"send","interrupt":{"decisions":["edit"]}}"#);
        assert_eq!(offer(&only, NATIVE_DECISIONS), [Decision::Reject]);
    }

    #[test]
    fn durations_are_written_with_a_unit() {
        let read = |text: &str| serde_json::from_str::<Ttl>(text).map(|ttl| ttl.0.as_secs()).ok();
        assert_eq!([read("90"), read("\"90s\""), read("\"15m\""), read("\"1 d\"")], [90, 90, 900, 86_400].map(Some));
        assert_eq!(serde_json::from_str::<Ttl>("\"500ms\"").map(|ttl| ttl.0).ok(), Some(Duration::from_millis(500)));
        for wrong in ["\"\"", "\"m\"", "\"1w\"", "\"1.5h\"", "-1", "\"99999999999999999999d\""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
