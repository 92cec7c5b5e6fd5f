//! The token usage of an answer, from counts that servers send in several places, or not at all.

use interlingua_core::{Extra, Json};
use serde_json::value::RawValue;

/// So many fields without a name of their own are kept.
const MAX_OTHERS: usize = 64;

/// The counts of one answer. The last value of each that is neither missing nor 0 stands: many servers begin with
/// zeros.
#[derive(Debug, Default)]
pub(super) struct Usage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_written: u64,
    thinking: Option<u64>,
    /// Fields that the model has no name for, such as what server tools were used.
    others: Extra,
    /// Bedrock's own counts. They count where no others came.
    of_bedrock: (u64, u64),
}

impl Usage {
    /// Takes the counts of an event.
    pub(super) fn add(&mut self, raw: &RawValue) {
        let Ok(fields) = serde_json::from_str::<Extra>(raw.get()) else { return };
        for (name, value) in fields {
            let into = match &*name {
                "input_tokens" => &mut self.input,
                "output_tokens" => &mut self.output,
                "cache_read_input_tokens" => &mut self.cache_read,
                "cache_creation_input_tokens" => &mut self.cache_written,
                "output_tokens_details" => {
                    let details: Extra = value.decode().unwrap_or_default();
                    self.thinking = details.get("thinking_tokens").and_then(count).or(self.thinking);
                    continue;
                }
                _ if value.is_null() => continue,
                _ if self.others.len() < MAX_OTHERS => {
                    self.others.set(name, value);
                    continue;
                }
                _ => continue,
            };
            *into = count(&value).filter(|count| *count > 0).unwrap_or(*into);
        }
    }

    /// Takes what Bedrock counts at the end.
    pub(super) fn add_metrics(&mut self, raw: &RawValue) {
        let fields: Extra = serde_json::from_str(raw.get()).unwrap_or_default();
        let read = |name: &str| fields.get(name).and_then(count).unwrap_or_default();
        self.of_bedrock = (read("inputTokenCount"), read("outputTokenCount"));
        self.cache_read = self.cache_read.max(read("cacheReadInputTokenCount"));
        self.cache_written = self.cache_written.max(read("cacheWriteInputTokenCount"));
    }

    /// The counts under the canonical names. None: the server counted nothing.
    pub(super) fn to_json(&self) -> Option<Json> {
        let (input, output) =
            if self.input == 0 && self.output == 0 { self.of_bedrock } else { (self.input, self.output) };
        // Here, the input excludes what was read from or written to a cache.
        let input = input.saturating_add(self.cache_read).saturating_add(self.cache_written);
        if input == 0 && output == 0 {
            return None;
        }

        let mut usage = Extra::new();
        let mut set = |name: &str, value: Json| usage.push(name, value);
        set("input_tokens", Json::from_serialize(&input));
        set("output_tokens", Json::from_serialize(&output));
        set("total_tokens", Json::from_serialize(&input.saturating_add(output)));

        let cached = [("cached_tokens", self.cache_read), ("cache_creation_tokens", self.cache_written)];
        let cached: Extra = cached
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, Json::from_serialize(&count)))
            .collect();
        if !cached.is_empty() {
            set("input_tokens_details", Json::from_serialize(&cached));
        }
        if let Some(thinking) = self.thinking {
            let details: Extra = [("reasoning_tokens", Json::from_serialize(&thinking))].into_iter().collect();
            set("output_tokens_details", Json::from_serialize(&details));
        }

        usage.merge(self.others.clone());
        Some(Json::from_serialize(&usage))
    }
}

/// A count, also if it is written as a float.
fn count(value: &Json) -> Option<u64> {
    value.decode::<u64>().or_else(|| {
        let float = value.decode::<f64>().filter(|float| *float >= 0.0)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and it saturates")]
        Some(float as u64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn usage(parts: &[&str]) -> Option<String> {
        let mut usage = Usage::default();
        for part in parts {
            usage.add(&RawValue::from_string((*part).to_owned()).expect("JSON"));
        }
        usage.to_json().map(|json| json.text().to_owned())
    }

    #[test]
    fn the_last_nonzero_count_is_used() {
        for (parts, wanted) in [
            (&[r#"{"input_tokens":7,"output_tokens":1}"#, r#"{"output_tokens":5}"#][..], Some((7, 5))),
            (&[r#"{"input_tokens":0,"output_tokens":0}"#, r#"{"input_tokens":7,"output_tokens":5}"#], Some((7, 5))),
            (&[r#"{"input_tokens":7,"output_tokens":5}"#, r#"{"input_tokens":0,"output_tokens":null}"#], Some((7, 5))),
            (&[r#"{"input_tokens":2,"cache_read_input_tokens":4,"cache_creation_input_tokens":1.0}"#], Some((7, 0))),
            (&[r#"{"input_tokens":0}"#, "[]", r#"{"output_tokens":-1}"#], None),
            (&[], None),
        ] {
            let read = usage(parts).map(|text| serde_json::from_str::<Value>(&text).expect("JSON"));
            let counts = read.map(|usage| (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64()));
            assert_eq!(counts, wanted.map(|(input, output)| (Some(input), Some(output))), "{parts:?}");
        }
    }

    #[test]
    fn details_and_unknown_fields_are_kept() {
        let text = r#"{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"service_tier":"standard","output_tokens_details":{"thinking_tokens":1},"server_tool_use":null}"#;
        let read = usage(&[text]).expect("counts");
        assert_eq!(
            read,
            r#"{"input_tokens":4,"output_tokens":2,"total_tokens":6,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1},"service_tier":"standard"}"#
        );
    }

    #[test]
    fn the_counts_of_bedrock_stand_where_there_are_no_others() {
        let metrics = RawValue::from_string(r#"{"inputTokenCount":7,"outputTokenCount":5}"#.to_owned()).expect("JSON");
        let mut usage = Usage::default();
        usage.add_metrics(&metrics);
        assert!(usage.to_json().expect("counts").text().starts_with(r#"{"input_tokens":7,"output_tokens":5"#));
        usage.add(&RawValue::from_string(r#"{"input_tokens":8,"output_tokens":6}"#.to_owned()).expect("JSON"));
        usage.add_metrics(&metrics);
        assert!(usage.to_json().expect("counts").text().starts_with(r#"{"input_tokens":8,"output_tokens":6"#));
    }
}
