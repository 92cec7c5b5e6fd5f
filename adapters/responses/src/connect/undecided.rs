//! Calls that a finished answer lists beside the approval requests for them. Agent Framework does so: its server runs an
//! approved call itself, so the client must not get the call as one of its own.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use serde_json::value::RawValue;

use super::slots::Kind;
use super::wire::Object;

/// The indexes and ids of the function calls whose approval request is in the same list. A request names its call by id,
/// or repeats its name and arguments; each request stands for one call.
pub(super) fn calls<'a>(output: &[&'a RawValue]) -> HashMap<u32, Cow<'a, str>> {
    let items: Vec<Object<'a>> = output.iter().map(|item| Object::parse(item).unwrap_or_default()).collect();
    let is_request = |item: &&Object<'a>| item.word("type") == "mcp_approval_request";
    let requests: Vec<&Object<'a>> = items.iter().filter(is_request).collect();
    if requests.is_empty() {
        return HashMap::new();
    }

    let mut by_id = HashMap::new();
    let mut by_content: HashMap<_, VecDeque<u32>> = HashMap::new();
    let is_call = |item: &Object<'a>| Kind::of(&item.word("type")) == Kind::FunctionCall;
    for (index, call) in (0..).zip(&items).filter(|(_, item)| is_call(item)) {
        for id in [call.word("call_id"), call.word("id")].into_iter().filter(|id| !id.is_empty()) {
            by_id.insert(id, index);
        }
        by_content.entry(content(call)).or_default().push_back(index);
    }

    let mut found = HashMap::new();
    for request in requests {
        let same = || by_content.get_mut(&content(request))?.pop_front();
        let index = by_id.get(&request.word("id")).copied().or_else(same);
        if let Some((index, call)) = index.and_then(|index| Some((index, items.get(index as usize)?))) {
            found.insert(index, call.word("id"));
        }
    }
    found
}

/// The name and the arguments, whatever the spaces and the order of the keys.
fn content<'a>(call: &Object<'a>) -> (Cow<'a, str>, String) {
    let arguments = call.word("arguments");
    let written = serde_json::from_str::<Value>(&arguments).map(|value| value.to_string());
    (call.word("name"), written.unwrap_or_else(|_| arguments.into_owned()))
}
