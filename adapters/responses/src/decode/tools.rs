//! Parses tools, `tool_choice`, and `text.format` (docs/protocols/responses.md#tools-and-output-formats).

use std::collections::HashSet;

use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::tree::fields::{choice, quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json, client_tool};
use serde_json::json;

use crate::echo::{DeclaredTools, Echo};
use crate::options::{ClientTools, IgnoreOrRefuse, Options, StructuredOutput};

/// Parses `tools` and `tool_choice`.
pub(super) fn parse(
    object: &Object<'_>,
    options: &Options,
    echo: &mut Echo,
    request: &mut AgentRequest,
) -> Result<(), Fault> {
    let mut names = HashSet::new();
    for node in object.array("tools")? {
        echo.tools.push(parse_tool(&node, options, None, &mut names)?);
    }

    let declared = echo.declared();
    let choice = object.get("tool_choice").map(|node| parse_tool_choice(&node, &declared)).transpose()?;

    let none = choice.as_ref().is_some_and(|choice| choice.text() == "\"none\"");
    if options.client_tools == ClientTools::Forward {
        if none {
            // The agent must not call a tool, so it is not offered any, not even those that its session keeps.
            request.tools = Some(Vec::new());
        } else {
            let tools = agent_tools(&echo.tools, &declared);
            if !tools.is_empty() {
                request.tools = Some(tools);
            }
            if let Some(choice) = &choice {
                request.extra.set("tool_choice", choice.clone());
            }
        }
    }
    echo.tool_choice = choice;
    Ok(())
}

/// Validates a tool. Returns it in the form in which responses repeat it. `namespace`: the one that it is declared in.
/// `names`: those of the tools before it, with their namespaces.
fn parse_tool(
    node: &Node<'_>,
    options: &Options,
    namespace: Option<&str>,
    names: &mut HashSet<String>,
) -> Result<Json, Fault> {
    let object = node.object()?;
    let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
    match kind.as_ref() {
        "function" | "custom" => {
            if options.client_tools == ClientTools::Refuse {
                return Err(Fault::unsupported("tools", "client tools are not accepted on this route"));
            }
            let name = object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
            if name.is_empty() {
                return Err(Fault::invalid(object.path_of("name"), "must not be empty"));
            }
            let full_name = namespace.map_or_else(|| name.to_string(), |namespace| format!("{namespace}.{name}"));
            client_tool::declare(&full_name, names, || object.path_of("name"))?;

            text(&object, "description")?;
            if kind == "custom" {
                return Ok(node.to_json());
            }

            let parameters = object.get("parameters").map(|node| node.json_object()).transpose()?;
            let strict = object.boolean("strict")?;

            // Responses repeat these three keys even if they are not set
            // (docs/protocols/responses.md#tools-and-output-formats).
            let mut fields = Extra::new();
            fields.push("type", Json::from_serialize("function"));
            fields.push("name", Json::from_serialize(&name));
            fields.push("description", object.get("description").map_or_else(Json::null, |node| node.to_json()));
            fields.push("parameters", parameters.unwrap_or_else(Json::null));
            fields.push("strict", Json::from_serialize(&strict));
            for (name, value) in object.fields_except(&["type", "name", "description", "parameters", "strict"]).iter() {
                fields.push(name, value.clone());
            }
            Ok(Json::from_serialize(&fields))
        }
        "namespace" if namespace.is_none() => {
            let name = object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
            let tools = object.required("tools")?.array()?;
            let tools =
                tools.map(|node| parse_tool(&node, options, Some(&name), names)).collect::<Result<Vec<_>, _>>()?;

            let mut fields = Extra::new();
            for (name, value) in object.iter() {
                fields.push(name, if name == "tools" { Json::from_serialize(&tools) } else { value.to_json() });
            }
            Ok(Json::from_serialize(&fields))
        }
        kind => {
            if options.hosted_tools == IgnoreOrRefuse::Refuse {
                let message = format!("hosted tools of type '{}' are not supported on this route", truncate(kind));
                return Err(Fault::unsupported(object.path_of("type"), message));
            }
            Ok(without_secrets(&object))
        }
    }
}

/// An MCP server is repeated without its credentials: the gateway does not need them and does not store them.
fn without_secrets(object: &Object<'_>) -> Json {
    let secret = ["authorization", "headers"];
    let mut tool = object.fields_except(&secret);
    for name in secret.into_iter().filter(|name| object.has(name)) {
        tool.push(name, Json::null());
    }
    Json::from_serialize(&tool)
}

/// The declared functions in the form that agents expect (docs/protocols/responses.md#what-the-agent-receives).
fn agent_tools(tools: &[Json], declared: &DeclaredTools) -> Vec<Json> {
    let mut functions = Vec::new();
    collect_functions(tools, None, declared, &mut functions);
    functions
}

fn collect_functions(tools: &[Json], namespace: Option<&str>, declared: &DeclaredTools, functions: &mut Vec<Json>) {
    for tool in tools.iter().filter_map(Json::decode::<Extra>) {
        let string = |name: &str| tool.get(name).and_then(Json::decode::<String>);
        let (Some(kind), Some(name)) = (string("type"), string("name")) else { continue };
        match kind.as_str() {
            "namespace" if namespace.is_none() => {
                let tools: Vec<Json> = tool.get("tools").and_then(Json::decode).unwrap_or_default();
                collect_functions(&tools, Some(&name), declared, functions);
            }
            "function" | "custom" => {
                let Some(flat_name) = declared.flat_name(namespace, &name) else { continue };
                let function = if kind == "custom" {
                    client_tool::free_text_function(&flat_name, &tool)
                } else {
                    client_tool::function(&flat_name, &tool)
                };
                functions.push(function);
            }
            _ => {}
        }
    }
}

/// Validates `tool_choice`.
fn parse_tool_choice(node: &Node<'_>, declared: &DeclaredTools) -> Result<Json, Fault> {
    let require_declared = |object: &Object<'_>| {
        let name = object.string("name")?.ok_or_else(|| missing(object.path_of("name")))?;
        let namespace = object.string("namespace")?;
        if declared.flat_name(namespace.as_deref(), &name).is_none() {
            let message = format!("tool choice '{}' not found in 'tools'", truncate(&name));
            return Err(Fault::invalid("tool_choice", message));
        }
        Ok(())
    };

    match node.kind() {
        Kind::String => {
            let word = node.string()?;
            let words = ["none", "auto", "required"];
            if !words.contains(&word.as_ref()) {
                let message = format!("unknown value '{}': must be one of {}", truncate(&word), quoted_list(&words));
                return Err(node.invalid(message));
            }
        }
        Kind::Object => {
            let object = node.object()?;
            let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
            match kind.as_ref() {
                "function" | "custom" => require_declared(&object)?,
                "allowed_tools" => {
                    choice(&object, "mode", &["auto", "required"])?;
                    for tool in object.required("tools")?.array()? {
                        let tool = tool.object()?;
                        if matches!(tool.string("type")?.as_deref(), Some("function" | "custom")) {
                            require_declared(&tool)?;
                        }
                    }
                }
                _ => {}
            }
        }
        _ => return Err(node.wrong_type("a string or an object")),
    }
    Ok(node.to_json())
}

/// Parses `text`, the format of the answer. Returns it as a system message if the options say so.
pub(super) fn parse_text(
    object: &Object<'_>,
    options: &Options,
    echo: &mut Echo,
    request: &mut AgentRequest,
) -> Result<Option<Message>, Fault> {
    let Some(node) = object.get("text") else { return Ok(None) };
    let text_object = node.object()?;
    choice(&text_object, "verbosity", &["low", "medium", "high"])?;

    let mut fields = Extra::new();
    let mut instruction = None;
    fields.push("format", Json::from_serialize(&json!({ "type": "text" })));
    if let Some(node) = text_object.get("format") {
        let format = node.object()?;
        let kind = format.string("type")?.ok_or_else(|| missing(format.path_of("type")))?;
        match kind.as_ref() {
            "text" => {}
            "json_object" => instruction = Some("Answer with one JSON object and nothing else.".to_owned()),
            "json_schema" => {
                let name = format.string("name")?.ok_or_else(|| missing(format.path_of("name")))?;
                let schema = format.get("schema").ok_or_else(|| missing(format.path_of("schema")))?.json_object()?;
                text(&format, "description")?;
                format.boolean("strict")?;
                let schema = schema.text();
                instruction = Some(format!(
                    "Answer with one JSON value named {name:?} that fits this JSON Schema, and nothing else: {schema}"
                ));
            }
            other => {
                let words = quoted_list(&["text", "json_object", "json_schema"]);
                let message = format!("unknown value '{}': must be one of {words}", truncate(other));
                return Err(Fault::invalid(format.path_of("type"), message));
            }
        }
        fields.set("format", node.to_json());
    }
    for (name, value) in text_object.fields_except(&["format"]).iter() {
        if !value.is_null() {
            fields.push(name, value.clone());
        }
    }

    let text = Json::from_serialize(&fields);
    echo.text = Some(text.clone());

    match options.structured_output {
        StructuredOutput::Refuse if instruction.is_some() => {
            Err(Fault::unsupported("text.format", "structured output is not supported on this route"))
        }
        StructuredOutput::Instruct => Ok(instruction.map(Message::system)),
        StructuredOutput::Forward | StructuredOutput::Refuse => {
            request.extra.set("text", text);
            Ok(None)
        }
    }
}
