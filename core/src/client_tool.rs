//! Tools that clients declare, in the form that agents expect: `{"type":"function","function":{…}}`.
//!
//! Not here: the forms of the clients' protocols, and who runs a tool.

use serde::Deserialize;
use serde_json::json;

use crate::json::{Extra, Json};

/// A function for agents. `fields` are those of the declaration: `description`, `parameters`, `strict`, `format`. What
/// agents require and the client left out is added: an empty description, a schema that accepts any arguments.
#[must_use]
pub fn function(name: &str, fields: &Extra) -> Json {
    with_parameters(name, fields, set(fields, "parameters").unwrap_or_else(any_arguments))
}

/// A function for agents that represents a tool whose input is free text: its only argument is `input`.
#[must_use]
pub fn free_text_function(name: &str, fields: &Extra) -> Json {
    with_parameters(name, fields, text_argument())
}

/// The free text in the arguments of a [`free_text_function`]; arguments of another form as they are.
#[must_use]
pub fn free_text(arguments: &str) -> String {
    #[derive(Deserialize)]
    struct Input {
        input: String,
    }
    serde_json::from_str::<Input>(arguments).map_or_else(|_| arguments.to_owned(), |wrapped| wrapped.input)
}

/// The arguments of a [`free_text_function`] with this text.
#[must_use]
pub fn to_arguments(text: &str) -> String {
    Json::from_serialize(&json!({ "input": text })).text().to_owned()
}

fn set(fields: &Extra, name: &str) -> Option<Json> {
    fields.get(name).filter(|value| !value.is_null()).cloned()
}

fn with_parameters(name: &str, fields: &Extra, parameters: Json) -> Json {
    let mut function = Extra::new();
    function.push("name", Json::from_serialize(name));
    function.push("description", set(fields, "description").unwrap_or_else(|| Json::from_serialize("")));
    function.push("parameters", parameters);
    for extra in ["strict", "format"] {
        if let Some(value) = set(fields, extra) {
            function.push(extra, value);
        }
    }

    let mut tool = Extra::new();
    tool.push("type", Json::from_serialize("function"));
    tool.push("function", Json::from_serialize(&function));
    Json::from_serialize(&tool)
}

fn text_argument() -> Json {
    Json::from_serialize(&json!({
        "type": "object",
        "properties": { "input": { "type": "string" } },
        "required": ["input"],
        "additionalProperties": false,
    }))
}

fn any_arguments() -> Json {
    Json::from_serialize(&json!({ "type": "object", "properties": {} }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_require_is_added_and_text_survives_the_arguments() {
        let bare = function("find", &Extra::new());
        let expected = r#"{"type":"function","function":{"name":"find","description":"","parameters":{"properties":{},"type":"object"}}}"#;
        let value = |json: &Json| json.decode::<serde_json::Value>().expect("JSON");
        assert_eq!(value(&bare), value(&Json::parse(expected).expect("JSON")));

        let fields: Extra =
            [("strict", Json::parse("true").expect("JSON")), ("description", Json::null())].into_iter().collect();
        let text = free_text_function("run", &fields);
        assert!(
            text.text().contains(r#""strict":true"#) && text.text().contains(r#""required":["input"]"#),
            "{text:?}"
        );
        assert_eq!(free_text(&to_arguments("print(\"x\")\n")), "print(\"x\")\n");
        assert_eq!(free_text("not JSON"), "not JSON");
    }
}
