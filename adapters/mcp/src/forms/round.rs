//! All open items of a run at once: `inputRequests` and `inputResponses`.

use std::collections::BTreeMap;

use interlingua_core::Answer;
use interlingua_core::pending::Pending;
use serde_json::{Map, Value, json};

use super::{MAX_ITEMS, Modes, Reading, key, open_key, page, read, requests};
use crate::envelope::RpcError;
use crate::revision::Revision;

/// The answers of a client to the items of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AnswerRound {
    /// The answers that decide their items.
    pub(crate) answers: Vec<Answer>,
    /// The reasons why other answers decide nothing, by item.
    pub(crate) undecided: BTreeMap<String, String>,
    /// The items whose forms were closed.
    pub(crate) closed: Vec<String>,
}

/// Asks for items: `inputRequests`. `reasons`: why items are asked again, by item. `suffix`: the end of an item's keys.
pub(crate) fn request_all(
    items: &[Pending],
    revision: Revision,
    modes: Modes,
    reasons: &BTreeMap<String, String>,
    suffix: &dyn Fn(&Pending) -> String,
) -> Map<String, Value> {
    let mut all = Map::new();
    for item in items.iter().take(MAX_ITEMS) {
        let suffix = suffix(item);
        for (key, params) in requests(item, revision, modes, reasons.get(&item.id).map(String::as_str)) {
            let request = json!({ "method": "elicitation/create", "params": params });
            all.entry(format!("{key}{suffix}")).or_insert(request);
        }
    }
    all
}

/// Reads `inputResponses`. Keys of other items are ignored.
///
/// # Errors
/// The responses are no object of objects.
pub(crate) fn read_all(
    items: &[Pending],
    revision: Revision,
    modes: Modes,
    responses: &Value,
    suffix: &dyn Fn(&Pending) -> String,
) -> Result<AnswerRound, RpcError> {
    let Value::Object(responses) = responses else {
        return Err(RpcError::params("\"inputResponses\" must be an object"));
    };
    if let Some((key, _)) = responses.iter().find(|(_, response)| !response.is_object()) {
        return Err(RpcError::params(format!("\"inputResponses\": '{key}' must be an object")));
    }

    let mut round = AnswerRound::default();
    for item in items.iter().take(MAX_ITEMS) {
        let suffix = suffix(item);
        // A login that was refused at its page is not confirmed by its form.
        let opened = page(item).and_then(|_| responses.get(&format!("{}{suffix}", open_key(item))));
        let filled = responses.get(&format!("{}{suffix}", key(item)));
        let opened = opened.map(|response| read(item, revision, modes, true, response));
        let mut reading = opened.filter(|reading| *reading != Reading::Opened);
        if !matches!(reading, Some(Reading::Answer(_)))
            && let Some(response) = filled
        {
            reading = Some(read(item, revision, modes, false, response));
        }
        match reading {
            Some(Reading::Answer(answer)) => round.answers.push(answer),
            Some(Reading::Undecided(reason)) => {
                round.undecided.insert(item.id.clone(), reason);
            }
            Some(Reading::StaysOpen) => round.closed.push(item.id.clone()),
            Some(Reading::Opened) | None => {}
        }
    }
    Ok(round)
}
