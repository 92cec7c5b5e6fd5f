//! Tools and the choice among them, in the flat form of this protocol.

use interlingua_core::{Extra, Json};

/// A function, whose fields other protocols nest. `None`: it is none.
pub(super) fn flat(tool: &Json) -> Option<Extra> {
    let fields: Extra = tool.decode()?;
    let kind: Option<String> = fields.get("type").and_then(Json::decode);
    if kind.is_some_and(|kind| kind != "function") {
        return None;
    }

    let inner: Extra = fields.get("function").and_then(Json::decode).unwrap_or_else(|| fields.clone());
    let name = inner.get("name").and_then(Json::decode::<String>).filter(|name| !name.is_empty())?;
    let mut flat = Extra::new();
    flat.push("type", Json::from_serialize("function"));
    flat.push("name", Json::from_serialize(&name));
    for field in ["description", "parameters", "strict"] {
        if let Some(value) = inner.get(field).filter(|value| !value.is_null()) {
            flat.push(field, value.clone());
        }
    }
    Some(flat)
}

/// A choice among tools. What is no choice of one function stays as it is: it came over this protocol.
pub(super) fn flat_choice(choice: &Json) -> Json {
    let nested = || {
        let fields: Extra = choice.decode()?;
        let function: Extra = fields.get("function")?.decode()?;
        let name = function.get("name")?.clone();
        let mut flat = Extra::new();
        flat.push("type", Json::from_serialize("function"));
        flat.push("name", name);
        Some(Json::from_serialize(&flat))
    };
    nested().unwrap_or_else(|| choice.clone())
}
