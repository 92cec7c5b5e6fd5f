//! The schema of a question as a form: a flat object of strings, numbers, booleans and choices, and nothing else.
//!
//! A schema that is such an object, or one field of it, is sent as the agent wrote it. Any other schema is described, and
//! the answer is JSON text.

use interlingua_core::Json;
use serde_json::{Map, Value};

use super::text::beginning;
use crate::revision::Revision;

/// Maximum length of a schema in a description, in bytes.
const MAX_SHOWN: usize = 4 * 1024;
/// Keywords that a form cannot express.
const STRUCTURE: [&str; 20] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "const",
    "properties",
    "patternProperties",
    "propertyNames",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "prefixItems",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
];
/// Formats of strings that a form may name.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// A schema as part of a form.
#[derive(Debug, PartialEq)]
pub(super) enum FormPart {
    /// The whole form.
    Fields(Value),
    /// One field.
    Value(Value),
    /// No form; the schema as JSON text.
    Other(String),
}

/// Fits a schema into a form.
pub(super) fn fit(schema: &Json, revision: Revision) -> FormPart {
    let other = || {
        let text = schema.text();
        let kept = beginning(text, MAX_SHOWN);
        FormPart::Other(if kept.len() < text.len() { format!("{kept}…") } else { text.to_owned() })
    };
    let Some(Value::Object(schema)) = schema.decode::<Value>() else { return other() };
    if let Some(form) = fields(&schema, revision) {
        return FormPart::Fields(form);
    }
    property(&schema, revision).map_or_else(other, FormPart::Value)
}

/// A flat object as a form. `None`: the schema has another structure.
fn fields(schema: &Map<String, Value>, revision: Revision) -> Option<Value> {
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    let is_structured = STRUCTURE.iter().filter(|name| **name != "properties").any(|name| schema.contains_key(*name));
    let chooses = ["anyOf", "oneOf", "enum"].iter().any(|name| schema.contains_key(*name));
    // Other fields than the named ones would have no place in the form.
    let is_open = schema.get("additionalProperties").is_some_and(Value::is_object);
    if !is_object || is_structured || chooses || is_open {
        return None;
    }
    let Some(Value::Object(properties)) = schema.get("properties") else { return None };
    let fitted: Option<Map<String, Value>> = properties
        .iter()
        .map(|(name, schema)| Some((name.clone(), property(schema.as_object()?, revision)?)))
        .collect();
    let fitted = fitted?;

    let mut required: Vec<&str> = Vec::new();
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        // Not a form if it asks for a field that it does not have.
        let name = name.as_str().filter(|name| fitted.contains_key(*name))?;
        if !required.contains(&name) {
            required.push(name);
        }
    }
    let required = Value::from(required);
    let mut form = Map::from_iter([("type".to_owned(), Value::from("object"))]);
    form.insert("properties".to_owned(), Value::Object(fitted));
    if required.as_array().is_some_and(|names| !names.is_empty()) {
        form.insert("required".to_owned(), required);
    }
    Some(Value::Object(form))
}

/// A schema as one field of a form: as it was written, without keywords that would make it illegal. `None`: it is no
/// string, number, boolean or choice.
fn property(schema: &Map<String, Value>, revision: Revision) -> Option<Value> {
    if STRUCTURE.iter().any(|name| schema.contains_key(*name)) {
        return None;
    }
    let is_choice = schema.contains_key("enum") || schema.contains_key("oneOf");
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        // A choice of texts is one of strings.
        None if is_choice => "string",
        _ => return None,
    };
    if schema.contains_key("anyOf") || (is_choice && kind != "string") {
        return None;
    }
    let mut field = schema.clone();
    field.insert("type".to_owned(), Value::from(kind));
    let is_default: fn(&Value) -> bool = match kind {
        "string" if is_choice => choice(&mut field, revision)?,
        "string" => Value::is_string,
        "number" | "integer" => Value::is_number,
        "boolean" => Value::is_boolean,
        "array" if revision > Revision::June2025 => {
            list(&mut field)?;
            is_list_of_text
        }
        _ => return None,
    };
    keep_legal(&mut field, is_default);
    Some(Value::Object(field))
}

/// Checks a choice of one text.
fn choice(field: &mut Map<String, Value>, revision: Revision) -> Option<fn(&Value) -> bool> {
    if let Some(one_of) = field.get("oneOf") {
        if field.contains_key("enum") {
            return None;
        }
        let titled = titled(one_of)?;
        if revision > Revision::June2025 {
            let options = titled.iter().map(|(value, title)| option(value, title)).collect();
            field.insert("oneOf".to_owned(), Value::Array(options));
        } else {
            field.remove("oneOf");
            let (values, titles): (Vec<String>, Vec<String>) = titled.into_iter().unzip();
            field.insert("enum".to_owned(), Value::from(values));
            field.insert("enumNames".to_owned(), Value::from(titles));
        }
        return Some(Value::is_string);
    }

    let values = field.get("enum")?.as_array().filter(|values| !values.is_empty())?;
    if !values.iter().all(Value::is_string) {
        return None;
    }
    let count = values.len();
    let has_names = |names: &Value| is_list_of_text(names) && names.as_array().is_some_and(|all| all.len() == count);
    if field.get("enumNames").is_some_and(|names| !has_names(names)) {
        field.remove("enumNames");
    }
    Some(Value::is_string)
}

/// Checks a list of chosen texts.
fn list(field: &mut Map<String, Value>) -> Option<()> {
    let items = field.get("items")?.as_object()?;
    if items.get("type").is_some_and(|kind| kind != "string") {
        return None;
    }
    let mut legal = Map::new();
    match (items.get("enum"), items.get("anyOf").or_else(|| items.get("oneOf"))) {
        (Some(values), None) if is_list_of_text(values) && values.as_array().is_some_and(|all| !all.is_empty()) => {
            legal.insert("type".to_owned(), Value::from("string"));
            legal.insert("enum".to_owned(), values.clone());
        }
        (None, Some(options)) => {
            let options = titled(options)?.iter().map(|(value, title)| option(value, title)).collect();
            legal.insert("anyOf".to_owned(), Value::Array(options));
        }
        _ => return None,
    }
    let is_known = |name: &String| ["type", "enum", "anyOf", "oneOf", "title", "description"].contains(&name.as_str());
    if !items.keys().all(is_known) {
        return None;
    }
    field.insert("items".to_owned(), Value::Object(legal));
    Some(())
}

/// The values and titles of a choice. `None`: the options have another structure.
fn titled(options: &Value) -> Option<Vec<(String, String)>> {
    let options = options.as_array().filter(|options| !options.is_empty())?;
    let read = |option: &Value| {
        let value = option.get("const")?.as_str()?;
        let is_known = |name: &String| ["const", "title", "description", "type"].contains(&name.as_str());
        if !option.as_object()?.keys().all(is_known) {
            return None;
        }
        let title = option.get("title").and_then(Value::as_str).unwrap_or(value);
        Some((value.to_owned(), title.to_owned()))
    };
    options.iter().map(read).collect()
}

fn option(value: &str, title: &str) -> Value {
    serde_json::json!({ "const": value, "title": title })
}

fn is_list_of_text(value: &Value) -> bool {
    value.as_array().is_some_and(|values| values.iter().all(Value::is_string))
}

/// Drops keywords whose values a form does not allow.
fn keep_legal(field: &mut Map<String, Value>, is_default: fn(&Value) -> bool) {
    let is_count = |value: &Value| value.as_u64().is_some();
    field.retain(|name, value| match name.as_str() {
        "title" | "description" => value.is_string(),
        "default" => is_default(value),
        "minLength" | "maxLength" | "minItems" | "maxItems" => is_count(value),
        "minimum" | "maximum" => value.is_number(),
        "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format)),
        // Definitions that no keyword of a field refers to.
        "$defs" | "definitions" | "$schema" | "$id" | "additionalProperties" => false,
        _ => true,
    });
}
