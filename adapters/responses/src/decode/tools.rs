//! Tools, the choice among them, and the form of the answer (section 5).

use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};
use serde_json::json;

use super::fields::{choice, cut, listed, text};
use crate::echo::{Declared, Echo};
use crate::fault::{missing, unsupported};
use crate::options::{ClientTools, Options, Refusable, StructuredOutput};

/// Reads `tools` and `tool_choice`.
pub(super) fn read(
    object: &Object<'_>,
    options: &Options,
    echo: &mut Echo,
    request: &mut AgentRequest,
) -> Result<(), Fault> {
    for node in object.array("tools")? {
        echo.tools.push(tool(&node, options, false)?);
    }
    let declared = echo.declared();
    let choice = object.get("tool_choice").map(|node| chosen(&node, &declared)).transpose()?;
    let none = choice.as_ref().is_some_and(|choice| choice.text() == "\"none\"");
    if !none && options.client_tools == ClientTools::Forward {
        let tools = native(&echo.tools, &declared);
        if !tools.is_empty() {
            request.tools = Some(tools);
        }
        if let Some(choice) = &choice {
            request.extra.set("tool_choice", choice.clone());
        }
    }
    echo.tool_choice = choice;
    Ok(())
}

/// Checks one tool, and gives it as it is repeated.
fn tool(node: &Node<'_>, options: &Options, nested: bool) -> Result<Json, Fault> {
    let object = node.object()?;
    let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
    match kind.as_ref() {
        "function" | "custom" => {
            if options.client_tools == ClientTools::Refuse {
                return Err(unsupported("tools", "this agent takes no tools of the client's"));
            }
            let name = object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
            if name.is_empty() {
                return Err(Fault::invalid(object.path_of("name"), "must not be empty"));
            }
            text(&object, "description")?;
            if kind == "custom" {
                return Ok(node.to_json());
            }
            let parameters = object.get("parameters").map(|node| node.json_object()).transpose()?;
            let strict = object.boolean("strict")?;
            // These three keys are repeated even where they are not set (section 5).
            let mut whole = Extra::new();
            whole.push("type", Json::from_serialize("function"));
            whole.push("name", Json::from_serialize(&name));
            whole.push("description", object.get("description").map_or_else(Json::null, |node| node.to_json()));
            whole.push("parameters", parameters.unwrap_or_else(Json::null));
            whole.push("strict", Json::from_serialize(&strict));
            for (name, value) in object.rest(&["type", "name", "description", "parameters", "strict"]).iter() {
                whole.push(name, value.clone());
            }
            Ok(Json::from_serialize(&whole))
        }
        "namespace" if !nested => {
            object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
            let tools = object.required("tools")?.array()?;
            let tools = tools.map(|node| tool(&node, options, true)).collect::<Result<Vec<_>, _>>()?;
            let mut whole = Extra::new();
            for (name, value) in object.iter() {
                whole.push(name, if name == "tools" { Json::from_serialize(&tools) } else { value.to_json() });
            }
            Ok(Json::from_serialize(&whole))
        }
        kind => {
            if options.hosted_tools == Refusable::Refuse {
                let message = format!("tools of type '{}' are not run here", cut(kind));
                return Err(unsupported(object.path_of("type"), message));
            }
            Ok(without_secrets(&object))
        }
    }
}

/// A tool of a server is repeated without the keys to that server: they are of no use here and are not kept.
fn without_secrets(object: &Object<'_>) -> Json {
    let secret = ["authorization", "headers"];
    let mut whole = object.rest(&secret);
    for name in secret.into_iter().filter(|name| object.has(name)) {
        whole.push(name, Json::null());
    }
    Json::from_serialize(&whole)
}

/// The declared functions as agents know them (section 15).
fn native(tools: &[Json], declared: &Declared) -> Vec<Json> {
    let mut found = Vec::new();
    gather(tools, None, declared, &mut found);
    found
}

fn gather(tools: &[Json], namespace: Option<&str>, declared: &Declared, found: &mut Vec<Json>) {
    for tool in tools.iter().filter_map(Json::decode::<Extra>) {
        let word = |name: &str| tool.get(name).and_then(Json::decode::<String>);
        let kept = |name: &str| tool.get(name).filter(|value| !value.is_null()).cloned();
        let (Some(kind), Some(name)) = (word("type"), word("name")) else { continue };
        match kind.as_str() {
            "namespace" if namespace.is_none() => {
                let tools: Vec<Json> = tool.get("tools").and_then(Json::decode).unwrap_or_default();
                gather(&tools, Some(&name), declared, found);
            }
            "function" | "custom" => {
                let Some(known) = declared.known_as(namespace, &name) else { continue };
                let custom = kind == "custom";
                let mut function = Extra::new();
                function.push("name", Json::from_serialize(&known));
                function.push("description", kept("description").unwrap_or_else(|| Json::from_serialize("")));
                let parameters = if custom { Some(free_text()) } else { kept("parameters") };
                function.push("parameters", parameters.unwrap_or_else(any_arguments));
                for extra in ["strict", "format"] {
                    if let Some(value) = kept(extra) {
                        function.push(extra, value);
                    }
                }
                let mut whole = Extra::new();
                whole.push("type", Json::from_serialize("function"));
                whole.push("function", Json::from_serialize(&function));
                found.push(Json::from_serialize(&whole));
            }
            _ => {}
        }
    }
}

/// The parameters of a function that stands for a custom tool.
fn free_text() -> Json {
    Json::from_serialize(&json!({
        "type": "object",
        "properties": { "input": { "type": "string" } },
        "required": ["input"],
        "additionalProperties": false,
    }))
}

/// The parameters of a function that declares none: native servers want some.
fn any_arguments() -> Json {
    Json::from_serialize(&json!({ "type": "object", "properties": {} }))
}

/// Checks a choice among the tools.
fn chosen(node: &Node<'_>, declared: &Declared) -> Result<Json, Fault> {
    let declared_or = |object: &Object<'_>| {
        let name = object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
        let namespace = object.string("namespace")?;
        if declared.known_as(namespace.as_deref(), &name).is_none() {
            let message = format!("tool choice '{}' not found in 'tools'", cut(&name));
            return Err(Fault::invalid("tool_choice", message));
        }
        Ok(())
    };
    match node.kind() {
        Kind::String => {
            let word = node.string()?;
            let words = ["none", "auto", "required"];
            if !words.contains(&word.as_ref()) {
                let message = format!("unknown value '{}': must be one of {}", cut(&word), listed(&words));
                return Err(node.invalid(message));
            }
        }
        Kind::Object => {
            let object = node.object()?;
            let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
            match kind.as_ref() {
                "function" | "custom" => declared_or(&object)?,
                "allowed_tools" => {
                    choice(&object, "mode", &["auto", "required"])?;
                    for tool in object.required("tools")?.array()? {
                        let tool = tool.object()?;
                        if matches!(tool.string("type")?.as_deref(), Some("function" | "custom")) {
                            declared_or(&tool)?;
                        }
                    }
                }
                _ => {}
            }
        }
        _ => return Err(node.wrong("a string or an object")),
    }
    Ok(node.to_json())
}

/// Reads `text`: the form of the answer. What it asks for in words, where the operator wants it so.
pub(super) fn format(
    object: &Object<'_>,
    options: &Options,
    echo: &mut Echo,
    request: &mut AgentRequest,
) -> Result<Option<Message>, Fault> {
    let Some(node) = object.get("text") else { return Ok(None) };
    let text_object = node.object()?;
    choice(&text_object, "verbosity", &["low", "medium", "high"])?;
    let mut whole = Extra::new();
    let mut wish = None;
    whole.push("format", Json::from_serialize(&json!({ "type": "text" })));
    if let Some(node) = text_object.get("format") {
        let format = node.object()?;
        let kind = format.string("type")?.ok_or_else(|| missing(format.path_of("type")))?;
        match kind.as_ref() {
            "text" => {}
            "json_object" => wish = Some("Answer with one JSON object and nothing else.".to_owned()),
            "json_schema" => {
                let name = format.string("name")?.ok_or_else(|| missing(format.path_of("name")))?;
                let schema = format.get("schema").ok_or_else(|| missing(format.path_of("schema")))?.json_object()?;
                text(&format, "description")?;
                format.boolean("strict")?;
                let schema = schema.text();
                wish = Some(format!(
                    "Answer with one JSON value named {name:?} that fits this JSON Schema, and nothing else: {schema}"
                ));
            }
            other => {
                let words = listed(&["text", "json_object", "json_schema"]);
                let message = format!("unknown value '{}': must be one of {words}", cut(other));
                return Err(Fault::invalid(format.path_of("type"), message));
            }
        }
        whole.set("format", node.to_json());
    }
    for (name, value) in text_object.rest(&["format"]).iter() {
        if !value.is_null() {
            whole.push(name, value.clone());
        }
    }
    let whole = Json::from_serialize(&whole);
    echo.text = Some(whole.clone());
    match options.structured_output {
        StructuredOutput::Refuse if wish.is_some() => {
            Err(unsupported("text.format", "this agent cannot be held to a form of its answer"))
        }
        StructuredOutput::Instruct => Ok(wish.map(Message::system)),
        StructuredOutput::Forward | StructuredOutput::Refuse => {
            request.extra.set("text", whole);
            Ok(None)
        }
    }
}
