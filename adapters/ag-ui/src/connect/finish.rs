//! The end of a run: its outcome and its token usage.

use interlingua_core::{Extra, Json};
use serde_json::value::RawValue;

use super::frame::{Fields, entries};

/// The outcome of a finished run.
#[derive(Debug)]
pub(super) enum Outcome<'a> {
    /// It is complete. The calls that the client has to run, if the agent names them.
    Success(Option<Vec<String>>),
    /// It waits for these.
    Interrupt(Vec<&'a RawValue>),
    /// It was stopped.
    Cancelled,
}

impl<'a> Outcome<'a> {
    /// Reads the end of a run. An outcome of another kind means that the run is complete.
    pub(super) fn read(event: &Fields<'a>) -> Self {
        let Some(outcome) = event.object("outcome") else { return Self::Success(None) };
        match outcome.text("type").as_deref() {
            Some("interrupt") => Self::Interrupt(outcome.list("interrupts")),
            Some("cancelled" | "canceled") => Self::Cancelled,
            _ => {
                let ids = outcome.get("pendingToolCallIds").map(entries);
                let ids = ids
                    .map(|ids| ids.into_iter().filter_map(super::frame::text).map(|id| super::ids::key(&id)).collect());
                Self::Success(ids)
            }
        }
    }
}

/// Names of token counts: in this protocol, in the canonical form, and the enclosing object there.
const COUNTS: &[(&str, &str, &str)] = &[
    ("inputTokens", "", "input_tokens"),
    ("outputTokens", "", "output_tokens"),
    ("totalTokens", "", "total_tokens"),
    ("cachedInputTokens", "input_tokens_details", "cached_tokens"),
    ("cacheWriteInputTokens", "input_tokens_details", "cache_write_tokens"),
    ("reasoningTokens", "output_tokens_details", "reasoning_tokens"),
];

/// The sum over all models that took part. `None`: the event contains no usage.
pub(super) fn read_usage(event: &Fields<'_>) -> Option<Json> {
    let usage = event.get("usage")?;
    let list = if usage.get().starts_with('[') { entries(usage) } else { vec![usage] };
    let all: Vec<Fields<'_>> = list.into_iter().filter_map(|entry| Fields::parse(entry.get())).collect();

    let mut sums = Extra::new();
    for (name, place, canonical) in COUNTS {
        let counts = all.iter().filter_map(|entry| entry.text(name)?.parse::<u64>().ok());
        let Some(sum) = counts.reduce(u64::saturating_add) else { continue };
        if place.is_empty() {
            sums.set(*canonical, Json::from_serialize(&sum));
        } else {
            let mut details: Extra = sums.get(place).and_then(Json::decode).unwrap_or_default();
            details.set(*canonical, Json::from_serialize(&sum));
            sums.set(*place, Json::from_serialize(&details));
        }
    }
    (!sums.is_empty()).then(|| Json::from_serialize(&sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(json: &str) -> Option<String> {
        read_usage(&Fields::parse(json).expect("an object")).map(|usage| usage.text().to_owned())
    }

    #[test]
    fn the_counts_of_all_models_are_added_up() {
        let two = r#"{"usage":[{"model":"a","inputTokens":7,"outputTokens":2,"cachedInputTokens":3},
            {"inputTokens":1,"totalTokens":9,"reasoningTokens":5,"cacheWriteInputTokens":4}]}"#;
        assert_eq!(
            usage(two).as_deref(),
            Some(
                r#"{"input_tokens":8,"output_tokens":2,"total_tokens":9,"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":4},"output_tokens_details":{"reasoning_tokens":5}}"#
            )
        );
        assert_eq!(usage(r#"{"usage":{"input_tokens":7}}"#).as_deref(), Some(r#"{"input_tokens":7}"#));
        for none in
            ["{}", r#"{"usage":null}"#, r#"{"usage":[]}"#, r#"{"usage":[{"inputTokens":-1}]}"#, r#"{"usage":7}"#]
        {
            assert_eq!(usage(none), None, "{none}");
        }
    }
}
