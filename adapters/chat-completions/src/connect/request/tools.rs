//! Tools, the choice among them and the form of the answer. The canonical form of the last two is flat, this protocol's
//! is nested.

use interlingua_adapter_kit::wire_names::ToolNames;
use interlingua_core::{Extra, Json};

/// The name of one of the operator's tools, a function or a custom tool, nested or flat. None: it has none.
pub(super) fn name(tool: &Json) -> Option<String> {
    let fields: Extra = tool.decode()?;
    let nested: Option<Extra> = fields.get(&word(&fields, "type")).and_then(Json::decode);
    Some(word(nested.as_ref().unwrap_or(&fields), "name")).filter(|name| !name.is_empty())
}

/// The choice among tools, with the names that are sent. None: the protocol has no such choice.
pub(super) fn nested_choice(choice: &Json, names: &mut ToolNames) -> Option<Json> {
    let Some(fields) = choice.decode::<Extra>() else {
        return choice.decode::<String>().map(|word| Json::from_serialize(&word));
    };

    let kind = word(&fields, "type");
    let inner: Option<Extra> = fields.get(&kind).and_then(Json::decode);
    let fields = inner.unwrap_or(fields);
    match kind.as_str() {
        // The client's custom tools are sent as functions.
        "function" | "custom" => {
            let name = names.to_wire(&word(&fields, "name"));
            let named: Extra = [("name", Json::from_serialize(&name))].into_iter().collect();
            Some(nested("function", "function", &named, &["name"]))
        }
        "allowed_tools" => {
            let tools: Vec<Json> = fields.get("tools").and_then(Json::decode)?;
            let mut allowed = Extra::new();
            if let Some(mode) = fields.get("mode") {
                allowed.push("mode", mode.clone());
            }
            let tools: Vec<Json> = tools.iter().filter_map(|tool| nested_choice(tool, names)).collect();
            allowed.push("tools", Json::from_serialize(&tools));

            let mut whole = Extra::new();
            whole.push("type", Json::from_serialize("allowed_tools"));
            whole.push("allowed_tools", Json::from_serialize(&allowed));
            Some(Json::from_serialize(&whole))
        }
        _ => None,
    }
}

/// The form of the answer. None: plain text, which is what servers give anyway.
pub(super) fn response_format(format: &Json) -> Option<Json> {
    let fields: Extra = format.decode()?;
    match word(&fields, "type").as_str() {
        "json_object" => Some(format.clone()),
        "json_schema" if fields.get("json_schema").is_some() => Some(format.clone()),
        "json_schema" => {
            Some(nested("json_schema", "json_schema", &fields, &["name", "description", "schema", "strict"]))
        }
        _ => None,
    }
}

/// An object of a type, with these of its fields one level deeper.
fn nested(kind: &str, into: &str, fields: &Extra, names: &[&str]) -> Json {
    let mut inner = Extra::new();
    for name in names {
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            inner.push(*name, value.clone());
        }
    }

    let mut whole = Extra::new();
    whole.push("type", Json::from_serialize(kind));
    whole.push(into, Json::from_serialize(&inner));
    Json::from_serialize(&whole)
}

fn word(fields: &Extra, name: &str) -> String {
    fields.get(name).and_then(Json::decode).unwrap_or_default()
}
