//! Validates an answer against the schema of its question.
//!
//! Supports a small part of JSON Schema: `type`, `enum`, `const`, `required`, `properties`,
//! `additionalProperties: false`, `items`. Other keywords are ignored, because the agent validates its input anyway.
//! Deliberately without references and patterns: schemas come from outside and must not cause expensive work.
//!
//! Not here: conversion of plain text to match a schema, and hints for clients ([`super::text`]).

use std::fmt;

use serde_json::{Map, Value};

use crate::json::Json;

/// A value that does not match the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMismatch {
    /// The path in the value, such as `items[2].name`. Empty for the value itself.
    pub path: String,
    /// The expected value: the rest of a sentence after "must".
    pub expected: String,
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "it" } else { &self.path };
        write!(f, "{path} must {}", self.expected)
    }
}

/// Validates a value. A schema that is not an object accepts everything.
///
/// # Errors
/// The first mismatch.
pub fn fits(schema: &Json, value: &Json) -> Result<(), SchemaMismatch> {
    let Some(Value::Object(schema)) = schema.decode() else { return Ok(()) };
    let Some(value) = value.decode::<Value>() else {
        return Err(SchemaMismatch { path: String::new(), expected: "be nested less deeply".to_owned() });
    };
    check(&schema, &value, &mut String::new())
}

fn check(schema: &Map<String, Value>, value: &Value, path: &mut String) -> Result<(), SchemaMismatch> {
    let mismatch = |path: &str, expected: String| Err(SchemaMismatch { path: path.to_owned(), expected });

    if let Some(types) = schema.get("type") {
        let allowed: Vec<&str> = match types {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !allowed.is_empty() && !allowed.iter().any(|name| is_of_type(name, value)) {
            return mismatch(path, format!("be of type {}", allowed.join(" or ")));
        }
    }

    if let Some(Value::Array(values)) = schema.get("enum")
        && !values.contains(value)
    {
        return mismatch(path, "be one of the allowed values".to_owned());
    }

    if let Some(only) = schema.get("const")
        && only != value
    {
        return mismatch(path, format!("be {only}"));
    }

    match value {
        Value::Object(fields) => check_fields(schema, fields, path),
        Value::Array(items) => {
            let Some(Value::Object(schema)) = schema.get("items") else { return Ok(()) };
            items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| within(path, &format!("[{index}]"), |path| check(schema, item, path)))
        }
        _ => Ok(()),
    }
}

fn check_fields(
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    path: &mut String,
) -> Result<(), SchemaMismatch> {
    if let Some(Value::Array(required)) = schema.get("required") {
        for name in required.iter().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return Err(SchemaMismatch { path: path.clone(), expected: format!("have the field '{name}'") });
            }
        }
    }

    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));

    for (name, field) in fields {
        match properties.get(name) {
            Some(Value::Object(schema)) => {
                let step = if path.is_empty() { name.clone() } else { format!(".{name}") };
                within(path, &step, |path| check(schema, field, path))?;
            }
            None if closed => {
                return Err(SchemaMismatch { path: path.clone(), expected: format!("not have the field '{name}'") });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs `then` with `step` appended to the path.
fn within<T>(path: &mut String, step: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let before = path.len();
    path.push_str(step);
    let result = then(path);
    path.truncate(before);
    result
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // JSON Schema: a number without a fraction is an integer in any notation.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // Types of later JSON Schema versions accept everything.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatch(schema: &str, value: &str) -> Option<String> {
        let parse = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
        let (schema, value) = (parse(schema), parse(value));

        fits(&schema, &value).err().map(|mismatch| mismatch.to_string())
    }

    #[test]
    fn a_mismatch_is_named_by_its_path() {
        let schema = r#"{"type":"object","required":["people"],"additionalProperties":false,"properties":{
            "people":{"type":"array","items":{"type":"object","properties":{"age":{"type":"integer"}}}},
            "size":{"enum":["s","m"]},"x":{"type":["string","null"]}}}"#;
        assert_eq!(mismatch(schema, r#"{"people":[{"age":3.0}],"size":"m","x":null}"#), None);
        let wrong = mismatch(schema, r#"{"people":[{"age":3},{"age":"4"}]}"#);
        assert_eq!(wrong.as_deref(), Some("people[1].age must be of type integer"));
        assert_eq!(mismatch(schema, r#"{}"#).as_deref(), Some("it must have the field 'people'"));
        assert_eq!(mismatch(schema, r#"{"people":[],"y":1}"#).as_deref(), Some("it must not have the field 'y'"));
        assert_eq!(
            mismatch(schema, r#"{"people":[],"size":"xl"}"#).as_deref(),
            Some("size must be one of the allowed values")
        );
        assert_eq!(mismatch(schema, "\"text\"").as_deref(), Some("it must be of type object"));
    }

    #[test]
    fn an_invalid_schema_accepts_everything() {
        assert_eq!(mismatch("true", "1"), None);
        assert_eq!(mismatch(r#"{"type":"money","items":7,"required":"x"}"#, "[1]"), None);
    }

    #[test]
    fn a_value_nested_beyond_the_parser_s_limit_does_not_match() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(mismatch(r#"{"type":"array"}"#, &deep).is_some());
    }
}
