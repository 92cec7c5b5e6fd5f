//! Calls that a finished answer lists beside the approval requests for them. Agent Framework does so: its server runs
//! an approved call itself, so the client must not get the call as one of its own.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::slots::SlotKind;
use super::wire::Object;

/// The indexes and ids of the function calls whose approval request is in the same list. A request names its call by
/// id, or repeats its name and arguments; each request stands for one call. Calls that have run are not looked at.
pub(super) fn calls<'a>(items: &[Object<'a>]) -> HashMap<u32, Cow<'a, str>> {
    let of_type = |word: &'static str| items.iter().filter(move |item| item.word("type") == word);
    let requests: Vec<&Object<'a>> = of_type("mcp_approval_request").collect();
    if requests.is_empty() {
        return HashMap::new();
    }

    let answered: HashSet<_> = of_type("function_call_output").map(|item| item.word("call_id")).collect();
    let is_open = |item: &Object<'a>| {
        SlotKind::from_word(&item.word("type")) == SlotKind::FunctionCall && !answered.contains(&item.word("call_id"))
    };
    let open: Vec<(u32, &Object<'a>)> = (0..).zip(items).filter(|(_, item)| is_open(item)).collect();
    let mut by_id = HashMap::new();
    for (index, call) in &open {
        for id in [call.word("call_id"), call.word("id")].into_iter().filter(|id| !id.is_empty()) {
            by_id.insert(id, (*index, call.word("id")));
        }
    }

    let (named, others): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|request| by_id.contains_key(&request.word("id")));
    let mut found: HashMap<_, _> = named.iter().filter_map(|request| by_id.get(&request.word("id")).cloned()).collect();
    let mut by_content: HashMap<_, VecDeque<(u32, Cow<'a, str>)>> = HashMap::new();
    for (index, call) in open.into_iter().filter(|(index, _)| !found.contains_key(index)) {
        by_content.entry(content(call)).or_default().push_back((index, call.word("id")));
    }
    found.extend(others.iter().filter_map(|request| by_content.get_mut(&content(request))?.pop_front()));
    found
}

/// The name and the arguments, whatever the spaces and the order of the keys. A text, because comparing every request
/// with every call (`is_same_value`) takes quadratic time.
fn content<'a>(call: &Object<'a>) -> (Cow<'a, str>, String) {
    let arguments = call.word("arguments");
    let written = serde_json::from_str::<Value>(&arguments).map(|value| value.to_string());
    (call.word("name"), written.unwrap_or_else(|_| arguments.into_owned()))
}
