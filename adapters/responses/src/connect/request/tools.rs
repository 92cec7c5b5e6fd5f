//! Tools and the choice among them, in the flat form of this protocol.

use interlingua_adapter_kit::wire_names::ToolNames;
use interlingua_core::{Extra, Json};

/// A function, whose fields other protocols nest.
pub(super) fn flat(name: &str, fields: &Extra) -> Extra {
    let mut flat = Extra::new();
    flat.push("type", Json::from_serialize("function"));
    flat.push("name", Json::from_serialize(name));
    for field in ["description", "parameters", "strict"] {
        if let Some(value) = fields.get(field).filter(|value| !value.is_null()) {
            flat.push(field, value.clone());
        }
    }
    flat
}

/// A choice among tools, with the names that are sent. Other choices are unchanged: they came over this protocol.
pub(super) fn flat_choice(choice: &Json, names: &mut ToolNames) -> Json {
    changed_choice(choice, names).unwrap_or_else(|| choice.clone())
}

fn changed_choice(choice: &Json, names: &mut ToolNames) -> Option<Json> {
    let mut fields: Extra = choice.decode()?;
    let kind: String = fields.get("type")?.decode()?;
    let nested: Option<Extra> = fields.get(&kind).and_then(Json::decode);
    if kind == "allowed_tools" {
        let mut fields = nested.map_or(fields, |nested| {
            let mut flat = Extra::new();
            flat.push("type", Json::from_serialize("allowed_tools"));
            flat.merge(nested);
            flat
        });
        let tools: Vec<Json> = fields.get("tools")?.decode()?;
        let tools: Vec<Json> = tools.iter().map(|tool| flat_choice(tool, names)).collect();
        fields.set("tools", Json::from_serialize(&tools));
        return Some(Json::from_serialize(&fields));
    }
    if kind != "function" && kind != "custom" {
        return None;
    }

    let name: String = nested.as_ref().unwrap_or(&fields).get("name")?.decode()?;
    let wire = Json::from_serialize(&names.to_wire(&name));
    if nested.is_some() || kind == "custom" {
        // The client's custom tools are sent as functions.
        fields = [("type", Json::from_serialize("function")), ("name", wire)].into_iter().collect();
    } else {
        fields.set("name", wire);
    }
    Some(Json::from_serialize(&fields))
}
