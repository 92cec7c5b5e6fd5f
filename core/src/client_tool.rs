//! Tools that clients declare, in the form that agents expect: `{"type":"function","function":{…}}`.
//!
//! Not here: the forms of the clients' protocols, and who runs a tool.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::json;

use crate::fault::Fault;
use crate::json::{Extra, Json};
use crate::loss::{ContentKind, Losses};
use crate::tool_schema;

/// A function for agents. `fields` are those of the declaration: `description`, `parameters`, `strict`, `format`. What
/// agents require and the client left out is added: an empty description, a schema that accepts any arguments.
#[must_use]
pub fn function(name: &str, fields: &Extra) -> Json {
    // Clients mix the forms of two protocols.
    let schema = set(fields, "parameters").or_else(|| set(fields, "input_schema"));
    with_parameters(name, fields, schema.unwrap_or_else(any_arguments))
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

/// The part of the arguments of a [`free_text_function`] before the text.
pub const FREE_TEXT_START: &str = "{\"input\":\"";
/// The part of such arguments after the text.
pub const FREE_TEXT_END: &str = "\"}";

/// Appends a text in the form it has inside a JSON string. The escaped pieces of a text are the escaped text.
pub fn push_escaped(text: &str, into: &mut String) {
    for character in text.chars() {
        match character {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(into, "\\u{:04x}", u32::from(control));
            }
            other => into.push(other),
        }
    }
}

/// A declared tool in the form `{"type":"function","function":{…}}`, for connectors to model servers. Also reads the
/// flat forms of Responses and Anthropic Messages, makes a function of a custom tool, and repairs the schema. `None`: a
/// tool that only its own server can run.
#[must_use]
pub fn normal(tool: &Json, losses: &mut Losses) -> Option<Json> {
    let fields: Extra = tool.decode()?;
    let kind = fields.get("type").and_then(Json::decode::<String>);
    let nested = kind.as_deref().and_then(|kind| fields.get(kind)).and_then(Json::decode::<Extra>);
    let inner = nested.as_ref().unwrap_or(&fields);
    let name = inner.get("name").and_then(Json::decode::<String>).filter(|name| !name.is_empty())?;
    match kind.as_deref() {
        Some("function") | None => {}
        Some("custom") if inner.get("input_schema").is_none() => {
            losses.changed(ContentKind::ToolDeclaration, "a tool with free text is declared as a function");
            return Some(free_text_function(&name, inner));
        }
        Some("custom") => {}
        Some(_) => return None,
    }

    let schema = set(inner, "parameters").or_else(|| set(inner, "input_schema"));
    let repaired = schema.as_ref().and_then(tool_schema::without_null_types);
    if repaired.is_some() {
        losses.lost(ContentKind::ToolDeclaration, "a type in a tool's schema that is null");
    }
    if nested.is_some() && inner.get("input_schema").is_none() && repaired.is_none() {
        return Some(tool.clone());
    }

    let mut function = Extra::new();
    for (name, value) in inner.iter() {
        match name {
            "type" | "input_schema" | "parameters" => {}
            _ => function.push(name, value.clone()),
        }
    }
    if let Some(schema) = repaired.or(schema) {
        function.push("parameters", schema);
    }
    // Fields around the function stay there.
    let mut whole = if nested.is_some() { fields } else { Extra::new() };
    whole.set("type", Json::from_serialize("function"));
    whole.remove("custom");
    whole.set("function", Json::from_serialize(&function));
    Some(Json::from_serialize(&whole))
}

/// The name and the other fields of a tool in that form.
#[must_use]
pub fn name_and_fields(tool: &Json) -> Option<(String, Extra)> {
    let function: Extra = tool.decode::<Extra>()?.get("function")?.decode()?;
    let name = function.get("name").and_then(Json::decode::<String>).filter(|name| !name.is_empty())?;
    Some((name, function))
}

/// The tool under another name.
#[must_use]
pub fn renamed(tool: &Json, name: &str) -> Json {
    let Some(mut fields) = tool.decode::<Extra>() else { return tool.clone() };
    let Some(mut function) = fields.get("function").and_then(Json::decode::<Extra>) else { return tool.clone() };
    function.set("name", Json::from_serialize(name));
    fields.set("function", Json::from_serialize(&function));
    Json::from_serialize(&fields)
}

/// The name of a declared tool, nested or flat. `None`: it has none.
#[must_use]
pub fn name(tool: &Json) -> Option<String> {
    let fields: Extra = tool.decode()?;
    let kind: Option<String> = fields.get("type").and_then(Json::decode);
    let nested: Option<Extra> = kind.and_then(|kind| fields.get(&kind)?.decode());
    nested.as_ref().unwrap_or(&fields).get("name")?.decode::<String>().filter(|name| !name.is_empty())
}

/// Records the name of a declared tool. Model servers refuse a request with two tools of one name.
///
/// # Errors
/// [`FaultKind::Invalid`](crate::FaultKind::Invalid) at `path` for a name that was declared before.
pub fn declare(name: &str, declared: &mut HashSet<String>, path: impl FnOnce() -> String) -> Result<(), Fault> {
    if declared.insert(name.to_owned()) {
        return Ok(());
    }
    let shown = crate::tree::fields::truncate(name);
    Err(Fault::invalid(path(), format!("two tools have the name '{shown}': names must be unique")))
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
    fn required_fields_are_added_and_text_arguments_survive() {
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

    #[test]
    fn tools_of_every_form_become_functions() {
        for (tool, wanted, lossy) in [
            (
                r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}},"cache_control":{}}"#,
                r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}},"cache_control":{}}"#,
                false,
            ),
            (
                r#"{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}"#,
                r#"{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object"}}}"#,
                false,
            ),
            (
                r#"{"name":"f","input_schema":{"type":"object"}}"#,
                r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}"#,
                false,
            ),
            (
                r#"{"type":"custom","name":"f","input_schema":{"type":null,"properties":{}}}"#,
                r#"{"type":"function","function":{"name":"f","parameters":{"properties":{}}}}"#,
                true,
            ),
            (
                r#"{"type":"function","function":{"name":"f","parameters":{"type":null}},"x":1}"#,
                r#"{"type":"function","function":{"name":"f","parameters":{}},"x":1}"#,
                true,
            ),
        ] {
            let mut losses = Losses::new();
            let normal = normal(&Json::parse(tool).expect("JSON"), &mut losses).expect("a function");
            assert_eq!((normal.text(), !losses.as_slice().is_empty()), (wanted, lossy));
        }

        let mut losses = Losses::new();
        for tool in [r#"{"type":"custom","name":"f"}"#, r#"{"type":"custom","custom":{"name":"f"}}"#] {
            let text = normal(&Json::parse(tool).expect("JSON"), &mut losses).expect("a function");
            assert!(text.text().contains(r#""required":["input"]"#), "{text:?}");
            let (name, _) = name_and_fields(&renamed(&text, "g")).expect("a name");
            assert_eq!(name, "g");
        }
        for tool in [r#"{"type":"web_search"}"#, r#"{"type":"mcp","name":"f"}"#, r#"{"type":"function"}"#, "7"] {
            assert!(normal(&Json::parse(tool).expect("JSON"), &mut losses).is_none(), "{tool}");
        }
    }

    #[test]
    fn a_name_is_declared_once() {
        let mut declared = HashSet::new();
        assert!(declare("f", &mut declared, String::new).is_ok() && declare("g", &mut declared, String::new).is_ok());
        let fault = declare("f", &mut declared, || "tools[2].name".to_owned()).expect_err("it is there");
        assert!(fault.message.contains("'f'"), "{fault:?}");
    }
}
