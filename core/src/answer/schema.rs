//! Whether an answer fits the schema its question came with.
//!
//! A small part of JSON Schema: `type`, `enum`, `const`, `required`, `properties`, `additionalProperties: false`,
//! `items`. Keywords beyond these are not looked at: they refuse nothing, since the agent checks what it is given
//! anyway. Deliberately no references and no patterns: a schema comes from outside and must not keep us busy.
//!
//! Not here: what a text means for a question with a schema, and how its author is helped ([`super::text`]).

use std::fmt;

use serde_json::{Map, Value};

use crate::json::Json;

/// Where a value does not fit, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The path in the value, such as `items[2].name`. Empty: the value itself.
    pub path: String,
    /// What it should be.
    pub expected: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "it" } else { &self.path };
        write!(f, "{path} must {}", self.expected)
    }
}

/// Checks a value against a schema. A schema that is no object asks for nothing.
///
/// # Errors
/// The first place that does not fit.
pub fn fits(schema: &Json, value: &Json) -> Result<(), Misfit> {
    let Some(Value::Object(schema)) = schema.decode() else { return Ok(()) };
    let Some(value) = value.decode::<Value>() else {
        return Err(Misfit { path: String::new(), expected: "not be nested so deeply".to_owned() });
    };
    check(&schema, &value, &mut String::new())
}

fn check(schema: &Map<String, Value>, value: &Value, path: &mut String) -> Result<(), Misfit> {
    let misfit = |path: &str, expected: String| Err(Misfit { path: path.to_owned(), expected });
    if let Some(types) = schema.get("type") {
        let named: Vec<&str> = match types {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !named.is_empty() && !named.iter().any(|name| is_of(name, value)) {
            return misfit(path, format!("be of type {}", named.join(" or ")));
        }
    }
    if let Some(Value::Array(values)) = schema.get("enum")
        && !values.contains(value)
    {
        return misfit(path, "be one of the values offered".to_owned());
    }
    if let Some(only) = schema.get("const")
        && only != value
    {
        return misfit(path, format!("be {only}"));
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

fn check_fields(schema: &Map<String, Value>, fields: &Map<String, Value>, path: &mut String) -> Result<(), Misfit> {
    if let Some(Value::Array(required)) = schema.get("required") {
        for name in required.iter().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return Err(Misfit { path: path.clone(), expected: format!("have the field '{name}'") });
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
                return Err(Misfit { path: path.clone(), expected: format!("not have the field '{name}'") });
            }
            _ => {}
        }
    }
    Ok(())
}

fn within<T>(path: &mut String, step: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let before = path.len();
    path.push_str(step);
    let result = then(path);
    path.truncate(before);
    result
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // JSON Schema: a number without a fraction is an integer, however it is written.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // A word of a later time refuses nothing.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(schema: &str, value: &str) -> Option<String> {
        let read = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
        let (schema, value) = (read(schema), read(value));
        fits(&schema, &value).err().map(|misfit| misfit.to_string())
    }

    #[test]
    fn a_misfit_is_named_by_its_path() {
        let schema = r#"{"type":"object","required":["people"],"additionalProperties":false,"properties":{
            "people":{"type":"array","items":{"type":"object","properties":{"age":{"type":"integer"}}}},
            "size":{"enum":["s","m"]},"x":{"type":["string","null"]}}}"#;
        assert_eq!(misfit(schema, r#"{"people":[{"age":3.0}],"size":"m","x":null}"#), None);
        let wrong = misfit(schema, r#"{"people":[{"age":3},{"age":"4"}]}"#);
        assert_eq!(wrong.as_deref(), Some("people[1].age must be of type integer"));
        assert_eq!(misfit(schema, r#"{}"#).as_deref(), Some("it must have the field 'people'"));
        assert_eq!(misfit(schema, r#"{"people":[],"y":1}"#).as_deref(), Some("it must not have the field 'y'"));
        assert_eq!(
            misfit(schema, r#"{"people":[],"size":"xl"}"#).as_deref(),
            Some("size must be one of the values offered")
        );
        assert_eq!(misfit(schema, "\"text\"").as_deref(), Some("it must be of type object"));
    }

    #[test]
    fn what_is_no_schema_asks_for_nothing() {
        assert_eq!(misfit("true", "1"), None);
        assert_eq!(misfit(r#"{"type":"money","items":7,"required":"x"}"#, "[1]"), None);
    }

    #[test]
    fn a_value_nested_beyond_any_parser_does_not_fit() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(misfit(r#"{"type":"array"}"#, &deep).is_some());
    }
}
