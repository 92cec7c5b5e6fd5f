//! Plain text as the answer to a question with a schema: people in a chat write words, not JSON
//! (docs/human-in-the-loop.md#questions-with-a-schema). Also the hint for a text that does not match.

use serde_json::{Map, Value};

use crate::answer::schema::{SchemaMismatch, fits};
use crate::json::Json;

/// Maximum number of fields in a hint.
const MAX_FIELDS: usize = 16;
/// Maximum number of enumeration values in a hint.
const MAX_VALUES: usize = 8;
/// Maximum nesting depth of the example in a hint.
const MAX_DEPTH: usize = 4;
/// Maximum length of the example in a hint, in bytes.
const MAX_EXAMPLE: usize = 512;

/// Converts a text into a value that matches the schema. Matching JSON is used as it is. Other text becomes a string if
/// the schema accepts strings, else it fills the one string property: the only one, or the only required one.
///
/// # Errors
/// The mismatch.
pub(super) fn coerce(schema: &Json, text: &str) -> Result<Json, SchemaMismatch> {
    let json = Json::parse(text.trim());
    if let Some(json) = json.as_ref().filter(|json| fits(schema, json).is_ok()) {
        return Ok(json.clone());
    }
    let value = Json::from_serialize(text);
    let Err(mismatch) = fits(schema, &value) else { return Ok(value) };

    // Text that is a JSON object names its own fields.
    if let Some(object) = json.filter(Json::is_object) {
        fits(schema, &object)?;
    }

    let Some(name) = text_property(schema) else { return Err(mismatch) };
    let filled = Json::from_serialize(&Map::from_iter([(name, Value::String(text.to_owned()))]));
    fits(schema, &filled).map(|()| filled)
}

/// The property that a plain text fills.
fn text_property(schema: &Json) -> Option<String> {
    let schema: Map<String, Value> = schema.decode()?;
    let properties = schema.get("properties")?.as_object()?;
    let takes_text = |name: &&String| properties.get(*name).is_some_and(is_text);
    let mut texts = properties.keys().filter(takes_text);
    if let (Some(only), None) = (texts.next(), texts.next()) {
        return Some(only.clone());
    }

    let mut required = schema.get("required")?.as_array()?.iter().filter_map(Value::as_str);
    let (Some(only), None) = (required.next(), required.next()) else { return None };
    properties.get(only).is_some_and(is_text).then(|| only.to_owned())
}

/// True if the schema accepts strings.
fn is_text(schema: &Value) -> bool {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().any(Value::is_string);
    }
    match schema.get("type") {
        Some(Value::String(name)) => name == "string",
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        _ => false,
    }
}

/// A hint for the client: the fields of the schema, and an example that matches.
pub(super) fn hint(schema: &Json) -> Option<String> {
    let schema: Value = schema.decode()?;
    let mut hint = String::new();

    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields: Vec<String> = properties
            .iter()
            .take(MAX_FIELDS)
            .map(|(name, schema)| {
                let required = if required.contains(&name.as_str()) { "required, " } else { "" };
                format!("'{name}' ({required}{})", kind(schema))
            })
            .collect();
        if properties.len() > MAX_FIELDS {
            fields.push("…".to_owned());
        }
        hint = format!("its fields are {}; ", fields.join(", "));
    }

    let example = Json::from_serialize(&example(&schema, MAX_DEPTH));
    if example.text().len() <= MAX_EXAMPLE {
        hint.push_str(&format!("this would fit: {}", example.text()));
    }

    let hint = hint.trim_end_matches("; ");
    (!hint.is_empty()).then(|| hint.to_owned())
}

/// A short description of a property's type.
fn kind(schema: &Value) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let mut named: Vec<String> = values.iter().take(MAX_VALUES).map(Value::to_string).collect();
        if values.len() > MAX_VALUES {
            named.push("…".to_owned());
        }
        return format!("one of {}", named.join(", "));
    }
    match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any value".to_owned(),
    }
}

/// A value that matches the supported part of a JSON Schema.
fn example(schema: &Value, depth: usize) -> Value {
    if let Some(only) = schema.get("const") {
        return only.clone();
    }

    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.clone();
    }

    let kind = match schema.get("type") {
        Some(Value::String(name)) => name.as_str(),
        Some(Value::Array(names)) => names.first().and_then(Value::as_str).unwrap_or("string"),
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    };

    match kind {
        "null" => Value::Null,
        "boolean" => Value::Bool(true),
        "integer" | "number" => Value::from(1),
        "array" => Value::Array(Vec::new()),
        "object" if depth > 0 => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let required = schema.get("required").and_then(Value::as_array).filter(|names| !names.is_empty());
            let names: Vec<&str> = match required {
                Some(names) => names.iter().filter_map(Value::as_str).collect(),
                None => properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect(),
            };
            let field = |name: &str| {
                let schema = properties.and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
                (name.to_owned(), example(schema, depth - 1))
            };
            Value::Object(names.into_iter().take(MAX_FIELDS).map(field).collect())
        }
        "object" => Value::Object(Map::new()),
        _ => Value::from("…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).expect("JSON")
    }

    fn coerced(schema: &str, text: &str) -> Option<String> {
        coerce(&json(schema), text).ok().map(|value| value.text().to_owned())
    }

    const COLOUR: &str =
        r#"{"type":"object","properties":{"colour":{"enum":["red","blue"]},"count":{"type":"integer"}}}"#;

    #[test]
    fn a_text_fills_the_only_string_property() {
        assert_eq!(coerced(COLOUR, "blue").as_deref(), Some(r#"{"colour":"blue"}"#));
        assert_eq!(coerced(COLOUR, r#" {"colour": "blue"} "#).as_deref(), Some(r#"{"colour": "blue"}"#));
        assert_eq!(coerced(COLOUR, "purple"), None);
        let two = |required: &str| {
            format!(
                r#"{{"type":"object","required":{required},
                    "properties":{{"name":{{"type":"string"}},"why":{{"type":["string","null"]}}}}}}"#
            )
        };
        assert_eq!(coerced(&two(r#"["name"]"#), "Ada").as_deref(), Some(r#"{"name":"Ada"}"#));
        assert_eq!(coerced(&two("[]"), "Ada"), None, "ambiguous");
        assert_eq!(coerced(&two(r#"["name","why"]"#), "Ada"), None);
    }

    #[test]
    fn json_text_is_a_string_if_the_schema_asks_for_a_string() {
        assert_eq!(coerced(r#"{"type":"string"}"#, "5").as_deref(), Some(r#""5""#));
        assert_eq!(coerced(r#"{"type":"integer"}"#, "5").as_deref(), Some("5"));
        let zip = r#"{"type":"object","properties":{"zip":{"type":"string"}},"required":["zip"]}"#;
        assert_eq!(coerced(zip, "10115").as_deref(), Some(r#"{"zip":"10115"}"#));
        assert_eq!(coerced(zip, r#"{"city":"Berlin"}"#), None, "an object does not fill a property");
    }

    #[test]
    fn the_hint_names_the_fields_and_has_an_example() {
        let hint = hint(&json(COLOUR)).expect("a hint");
        assert_eq!(
            hint,
            "its fields are 'colour' (one of \"red\", \"blue\"), 'count' (integer); \
             this would fit: {\"colour\":\"red\",\"count\":1}"
        );
    }

    #[test]
    fn the_example_in_a_hint_matches_the_schema() {
        for schema in [
            COLOUR,
            r#"{"type":"string"}"#,
            r#"{"const":{"a":1}}"#,
            r#"{"type":"object","required":["a","b"],"properties":{"a":{"type":"array"},"b":{"type":"object",
                "required":["c"],"properties":{"c":{"type":["null","string"]}}}},"additionalProperties":false}"#,
        ] {
            let schema = json(schema);
            let shown = Json::from_serialize(&example(&schema.decode().expect("a schema"), MAX_DEPTH));
            assert_eq!(fits(&schema, &shown), Ok(()), "{schema:?} {shown:?}");
        }
    }
}
