//! Arguments beside an acceptance (docs/human-in-the-loop.md#reading-decisions): an acceptance of other arguments than
//! the ones that were asked about is an edit.
//!
//! Not here: whether the item offers edits ([`super::decide`]).

use crate::json::{Extra, Json, is_same_value};
use crate::pending::Pending;

/// Fields that hold arguments and nothing else.
const NAMES: [&str; 20] = [
    "arguments",
    "editedArgs",
    "edited_args",
    "editedArguments",
    "edited_arguments",
    "newArgs",
    "new_args",
    "newArguments",
    "new_arguments",
    "modifiedArgs",
    "modified_args",
    "overrideArgs",
    "override_args",
    "updatedInput",
    "updated_input",
    "toolInput",
    "tool_input",
    "input",
    "parameters",
    "params",
];
/// Fields of `args` that hold a comment, unless the call has an argument of this name.
const COMMENTS: [&str; 5] = ["text", "message", "feedback", "reason", "comment"];

/// Arguments that an answer carries.
#[derive(Clone, Debug)]
pub(super) struct GivenArguments {
    /// JSON, or JSON text.
    pub(super) value: Json,
    /// The tool that they are for, if the answer names it.
    pub(super) tool: Option<String>,
    /// True for `args`, which also holds comments.
    may_be_comment: bool,
}

impl GivenArguments {
    /// Arguments that cannot be anything else.
    pub(super) const fn new(value: Json) -> Self {
        Self { value, tool: None, may_be_comment: false }
    }

    /// Whether the call would run with other arguments than those of the question.
    pub(super) fn differ(&self, item: &Pending) -> bool {
        if self.may_be_comment && self.is_comment(item) {
            return false;
        }
        self.tool.as_ref().is_some_and(|tool| *tool != item.name) || !same_arguments(&item.arguments, &self.value)
    }

    fn is_comment(&self, item: &Pending) -> bool {
        let fields: Extra = self.value.decode().unwrap_or_default();
        let asked: Extra = Json::parse(&item.arguments).and_then(|json| json.decode()).unwrap_or_default();
        fields.iter().all(|(name, _)| COMMENTS.contains(&name) && asked.get(name).is_none())
    }
}

/// All arguments in the fields of an answer.
pub(super) fn given(fields: &Extra) -> Vec<GivenArguments> {
    let mut found = Vec::new();
    for name in NAMES {
        let Some(value) = field(fields, name) else { continue };
        // Text that is not JSON can have any meaning in these fields, except in the fields whose name means arguments.
        let is_certain = name.to_ascii_lowercase().contains("arg");
        let is_empty_text = value.decode::<String>().is_some_and(|text| text.trim().is_empty());
        if !is_empty_text && (is_certain || object(value).is_some()) {
            found.push(GivenArguments::new(value.clone()));
        }
    }
    for name in ["edited_action", "editedAction"] {
        let Some(action) = field(fields, name).and_then(object) else { continue };
        let value = field(&action, "args").or_else(|| field(&action, "arguments"));
        let value = value.cloned().unwrap_or_else(Json::null);
        found.push(GivenArguments { tool: word(&action, "name"), ..GivenArguments::new(value) });
    }
    found.extend(in_args(fields));
    found
}

/// The arguments in `args`: the field itself, or what it wraps.
fn in_args(fields: &Extra) -> Option<GivenArguments> {
    let args = field(fields, "args")?;
    let inner = object(args)?;
    let wrapped = ["args", "edited_args", "editedArgs", "arguments"].iter().find_map(|name| field(&inner, name));
    match wrapped.filter(|wrapped| object(wrapped).is_some()) {
        Some(wrapped) => {
            let tool = word(&inner, "action").or_else(|| word(&inner, "name"));
            Some(GivenArguments { tool, ..GivenArguments::new(wrapped.clone()) })
        }
        // Clients of this form send an empty object if they have no comment, or the text of a comment.
        None if inner.is_empty() => None,
        None if wrapped.is_some() && inner.len() == 1 => None,
        None => Some(GivenArguments { may_be_comment: true, ..GivenArguments::new(args.clone()) }),
    }
}

/// True if an answer in a client's own form contains arguments.
#[must_use]
pub fn has_arguments(answer: &Json) -> bool {
    let carries = |answer: &Json| object(answer).is_some_and(|fields| !given(&fields).is_empty());
    if answer.text().starts_with('[') {
        return answer.decode::<Vec<Json>>().is_none_or(|all| all.iter().any(carries));
    }
    let fields = object(answer).unwrap_or_default();
    carries(answer) || field(&fields, "decisions").is_some_and(has_arguments)
}

/// True if two sets of arguments are the same JSON, in any order of fields. `asked` is JSON text; `given` is JSON, or a
/// string that contains JSON text. Missing arguments equal an empty object.
#[must_use]
pub fn same_arguments(asked: &str, given: &Json) -> bool {
    let given = given.decode::<String>().unwrap_or_else(|| given.text().to_owned());
    is_same_value(asked, &given)
}

/// An object, or a text with one in it.
fn object(json: &Json) -> Option<Extra> {
    let json = json.decode::<String>().and_then(|text| Json::parse(&text)).unwrap_or_else(|| json.clone());
    if json.is_object() { json.decode() } else { None }
}

pub(super) fn field<'a>(fields: &'a Extra, name: &str) -> Option<&'a Json> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(super) fn word(fields: &Extra, name: &str) -> Option<String> {
    field(fields, name)?.decode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).expect("JSON")
    }

    #[test]
    fn the_same_arguments_are_the_same_in_every_spelling() {
        for (asked, given) in [
            (r#"{"a":1,"b":[true]}"#, r#"{"b":[true],"a":1.0}"#),
            (r#"{"a":1}"#, r#""{ \"a\": 1 }""#),
            ("", "{}"),
            ("{broken", r#""{broken""#),
        ] {
            assert!(same_arguments(asked, &json(given)), "{asked} {given}");
        }
        for (asked, given) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":1}"#, "{}"),
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
            ("{broken", "{}"),
        ] {
            assert!(!same_arguments(asked, &json(given)), "{asked} {given}");
        }
    }

    #[test]
    fn arguments_are_found_in_every_form() {
        let data = r#"{"id":"a","name":"order","arguments":"{\"what\":\"steel\",\"text\":\"x\"}"}"#;
        let item = Pending::parse(&json(data)).expect("an item");
        let differ = |answer: &str| {
            let fields: Extra = json(answer).decode().expect("an object");
            given(&fields).iter().any(|given| given.differ(&item))
        };
        for name in NAMES {
            assert!(differ(&format!(r#"{{"approved":true,"{name}":{{"what":"wood"}}}}"#)), "{name}");
            assert!(!differ(&format!(r#"{{"approved":true,"{name}":{{"text":"x","what":"steel"}}}}"#)), "{name}");
        }
        for answer in [
            r#"{"args":{"what":"wood"}}"#,
            r#"{"args":{"args":{"what":"wood"}}}"#,
            r#"{"args":{"action":"drop","args":{"what":"steel","text":"x"}}}"#,
            r#"{"args":{"edited_args":{"what":"wood"}}}"#,
            r#"{"args":{"text":"y"}}"#,
            r#"{"edited_action":{"name":"order","args":{"what":"wood"}}}"#,
            r#"{"edited_action":{"name":"order"}}"#,
            r#"{"arguments":"{\"what\":\"wood\"}"}"#,
            r#"{"arguments":"all of it"}"#,
            r#"{"arguments":{}}"#,
        ] {
            assert!(differ(answer), "{answer}");
        }
        for answer in [
            r#"{"args":null}"#,
            r#"{"args":{}}"#,
            r#"{"args":"fine"}"#,
            r#"{"args":{"message":"fine"}}"#,
            r#"{"args":{"action":"order","args":{"what":"steel","text":"x"}}}"#,
            r#"{"arguments":""}"#,
            r#"{"input":"fine"}"#,
        ] {
            assert!(!differ(answer), "{answer}");
        }
        assert!(has_arguments(&json(r#"{"decisions":[{"type":"approve","args":{"a":1}}]}"#)));
        assert!(!has_arguments(&json(r#"{"approved":true,"reason":"fine"}"#)));
    }
}
