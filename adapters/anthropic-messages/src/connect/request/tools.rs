//! Tools, and the choice among them.

use interlingua_adapter_kit::wire_names::ToolNames;
use interlingua_core::{ContentKind, Extra, Json, Losses};
use serde_json::json;

/// Fields of a function that this protocol has under the same name.
const KEPT: &[&str] = &["strict", "cache_control", "input_examples", "eager_input_streaming", "defer_loading"];

/// A tool of the client.
pub(super) fn tool(name: &str, fields: &Extra, names: &mut ToolNames) -> Json {
    let mut written = Extra::new();
    written.push("name", Json::from_serialize(&names.to_wire(name)));
    if let Some(description) = fields.get("description").filter(|text| !text.is_null()) {
        written.push("description", description.clone());
    }
    written.push("input_schema", schema(fields.get("parameters")));
    for name in KEPT {
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            written.push(*name, value.clone());
        }
    }
    Json::from_serialize(&written)
}

/// A schema of an object: servers refuse one that does not say so.
fn schema(parameters: Option<&Json>) -> Json {
    let Some(mut schema) = parameters.and_then(Json::decode::<Extra>) else {
        return Json::from_serialize(&json!({ "type": "object" }));
    };
    if schema.get("type").is_none() {
        schema.push("type", Json::from_serialize("object"));
    }
    Json::from_serialize(&schema)
}

/// The choice among tools. `parallel`: whether several calls at once are allowed. `None`: the request needs no choice.
pub(super) fn choice(
    choice: Option<&Json>,
    parallel: Option<bool>,
    names: &mut ToolNames,
    losses: &mut Losses,
) -> Option<Json> {
    let mut written = match choice.filter(|choice| !choice.is_null()) {
        None => None,
        Some(choice) => {
            let read = read(choice, names);
            if read.is_none() {
                losses.lost(ContentKind::ToolChoice, "a choice among tools that this protocol cannot say");
            }
            read
        }
    };

    if parallel == Some(false) && written.as_ref().is_none_or(|choice| word(choice, "type") != "none") {
        let choice = written.get_or_insert_with(|| of_type("auto"));
        choice.push("disable_parallel_tool_use", Json::from_serialize(&true));
    }
    written.map(|choice| Json::from_serialize(&choice))
}

fn read(choice: &Json, names: &mut ToolNames) -> Option<Extra> {
    if let Some(word) = choice.decode::<String>() {
        return match word.as_str() {
            "auto" | "none" => Some(of_type(&word)),
            "required" | "any" => Some(of_type("any")),
            _ => None,
        };
    }

    let fields: Extra = choice.decode()?;
    match word(&fields, "type").as_str() {
        "function" => {
            let nested: Extra = fields.get("function").and_then(Json::decode).unwrap_or_default();
            let name = [word(&nested, "name"), word(&fields, "name")].into_iter().find(|name| !name.is_empty())?;
            let mut written = of_type("tool");
            written.push("name", Json::from_serialize(&names.to_wire(&name)));
            Some(written)
        }
        _ => None,
    }
}

/// True for a choice that demands a call.
pub(super) fn is_forced(choice: &Json) -> bool {
    let fields: Extra = choice.decode().unwrap_or_default();
    matches!(word(&fields, "type").as_str(), "any" | "tool")
}

fn of_type(kind: &str) -> Extra {
    [("type", Json::from_serialize(kind))].into_iter().collect()
}

fn word(fields: &Extra, name: &str) -> String {
    fields.get(name).and_then(Json::decode).unwrap_or_default()
}
