//! Repairs of JSON schemas that model servers refuse.
//!
//! Not here: the tools that carry them ([`crate::client_tool`]), and judging values by a schema ([`crate::answer`]).

use crate::json::{Extra, Json};

/// Deeper levels are not read: no server takes such a schema.
const MAX_DEPTH: usize = 64;

/// The schema without `"type": null`, which some generators write for "any type". `None`: the schema needs no change.
///
/// ```
/// use interlingua_core::Json;
/// use interlingua_core::tool_schema::without_null_types;
///
/// let schema = Json::parse(r#"{"type":null,"properties":{"a":{"type":null,"default":null}}}"#).unwrap();
/// assert_eq!(without_null_types(&schema).unwrap().text(), r#"{"properties":{"a":{"default":null}}}"#);
/// assert!(without_null_types(&Json::parse(r#"{"type":"object","enum":[null]}"#).unwrap()).is_none());
/// ```
#[must_use]
pub fn without_null_types(schema: &Json) -> Option<Json> {
    repaired(schema, 0)
}

fn repaired(schema: &Json, depth: usize) -> Option<Json> {
    let text = schema.text();
    if depth > MAX_DEPTH || !text.contains("null") {
        return None;
    }

    if let Some(list) = text.starts_with('[').then(|| schema.decode::<Vec<Json>>()).flatten() {
        let new: Vec<Option<Json>> = list.iter().map(|entry| repaired(entry, depth + 1)).collect();
        let is_changed = new.iter().any(Option::is_some);
        let all: Vec<Json> = new.into_iter().zip(list).map(|(new, old)| new.unwrap_or(old)).collect();
        return is_changed.then(|| Json::from_serialize(&all));
    }

    let fields: Extra = schema.decode()?;
    let (mut kept, mut is_changed) = (Extra::new(), false);
    for (name, value) in fields.iter() {
        if name == "type" && value.is_null() {
            is_changed = true;
            continue;
        }
        // These hold values, not schemas.
        let is_value = matches!(name, "default" | "enum" | "const" | "examples" | "example");
        let new = if is_value { None } else { repaired(value, depth + 1) };
        is_changed |= new.is_some();
        kept.push(name, new.unwrap_or_else(|| value.clone()));
    }
    is_changed.then(|| Json::from_serialize(&kept))
}
