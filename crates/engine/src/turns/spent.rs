//! Stored token counts of callers per day, which survive a restart. Not here: counting and enforcing the quota
//! ([`interlingua_callers`]).

use std::sync::Arc;

use bytes::Bytes;
use interlingua_core::event::Millis;
use interlingua_core::{Fault, Json, Owner};
use serde::Deserialize;

use crate::faults::store_fault;
use interlingua_base::clock;
use interlingua_callers::{Caller, day_of};
use interlingua_store::{Expect, Store, owned_key};

/// The collection of the store.
pub(crate) const COLLECTION: &str = "spent";

/// The usage that an agent reports. Agents use either of two sets of names, and some report no sum.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Reported {
    total_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// Checks that the caller has tokens left today.
///
/// # Errors
/// If no tokens are left, or the store fails.
pub(super) async fn check(store: &Arc<dyn Store>, caller: &Caller) -> Result<(), Fault> {
    let now = clock::now();
    if caller.usage.wants_tokens() {
        let found = store.get(COLLECTION, &key(&caller.owner, now)).await.map_err(store_fault)?;
        let spent = found.and_then(|document| std::str::from_utf8(&document.value).ok()?.parse().ok());
        caller.usage.load_tokens(day_of(now), spent.unwrap_or(0));
    }
    caller.usage.check_tokens(now)
}

/// Counts tokens of a turn. Does not wait for the store.
pub(super) fn note(store: &Arc<dyn Store>, caller: &Caller, tokens: u64) {
    if tokens == 0 {
        return;
    }
    let now = clock::now();
    if let Some(spent) = caller.usage.spend_tokens(day_of(now), tokens) {
        let value = Bytes::from(spent.to_string());
        drop(store.put(COLLECTION, &key(&caller.owner, now), value, Expect::Any, now));
    }
}

/// The key of the document for a caller and a day. Independent of tenant and route.
fn key(owner: &Owner, now: Millis) -> String {
    owned_key(owner.base_key(), &day_of(now).to_string())
}

/// The total number of tokens in a usage report. 0 if it has an unknown form.
pub(super) fn tokens_in(usage: &Json) -> u64 {
    let reported: Reported = usage.decode().unwrap_or_default();
    let input = reported.input_tokens.or(reported.prompt_tokens).unwrap_or(0);
    let output = reported.output_tokens.or(reported.completion_tokens).unwrap_or(0);
    reported.total_tokens.unwrap_or_else(|| input.saturating_add(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_as_agents_name_them() {
        for (usage, tokens) in [
            (r#"{"total_tokens": 30, "input_tokens": 10, "output_tokens": 10}"#, 30),
            (r#"{"input_tokens": 10, "output_tokens": 5, "time": 0.3}"#, 15),
            (r#"{"prompt_tokens": 7, "completion_tokens": 1}"#, 8),
            (r#"{"output_tokens": 3}"#, 3),
            (r#"{"prompt_tokens": 7, "input_tokens": 7, "output_tokens": 1, "completion_tokens": 1}"#, 8),
            (r#"{"total_tokens": -1}"#, 0),
            ("[]", 0),
        ] {
            let usage = Json::parse(usage).expect("JSON");
            assert_eq!(tokens_in(&usage), tokens, "{usage:?}");
        }
    }
}
