//! Parses tools, `tool_choice` and `response_format`
//! (docs/protocols/chat-completions.md#tools-and-output-formats), and their deprecated forms. Agents get the tools in
//! one form, and choice and format as extra fields in the flat form of Responses.

use std::collections::HashSet;

use interlingua_adapter_kit::model_options::{ClientTools, IgnoreOrRefuse, StructuredOutput};
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::tree::fields::{choice, quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json, client_tool};
use serde_json::{Value, json};

use crate::echo::{Echo, Tool};
use crate::options::Options;

/// Parses `tools`, `tool_choice`, and the deprecated `functions` and `function_call`.
pub(super) fn parse(
    object: &Object<'_>,
    options: &Options,
    echo: &mut Echo,
    request: &mut AgentRequest,
    losses: &mut Losses,
) -> Result<(), Fault> {
    let mut tools = Vec::new();
    let (mut declared, mut functions) = (HashSet::new(), HashSet::new());
    for node in object.array("tools")? {
        if parse_tool(&node, options, echo, &mut declared, &mut tools)? == Runner::OpenAi {
            losses.lost(ContentKind::ToolDeclaration, "tools that OpenAI would run are not run");
        }
    }
    if object.get("web_search_options").is_some() {
        losses.lost(ContentKind::ToolDeclaration, "tools that OpenAI would run are not run");
    }
    for node in object.array("functions")? {
        echo.functions = true;
        let tool = parse_function(&node.object()?, "function", options, echo, &mut functions)?;
        // Clients in transition declare a function in both fields.
        tools.extend(tool.filter(|tool| client_tool::name(tool).is_none_or(|name| !declared.contains(&name))));
    }

    let chosen = match (object.get("tool_choice"), object.get("function_call")) {
        (Some(node), _) => Some(tool_choice(&node, options, echo)?),
        (None, Some(node)) => Some(function_choice(&node, options, echo)?),
        (None, None) => None,
    };

    if options.client_tools == ClientTools::Ignore {
        return Ok(());
    }
    // With `none` the agent must not call a tool, so it is not offered any, not even those that its session keeps.
    if chosen.as_ref().is_some_and(|chosen| chosen == "none") {
        request.tools = Some(Vec::new());
        return Ok(());
    }
    if !tools.is_empty() {
        request.tools = Some(tools);
    }
    if let Some(chosen) = chosen {
        request.extra.set("tool_choice", Json::from_serialize(&chosen));
    }
    Ok(())
}

/// The executor of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    Client,
    OpenAi,
}

/// Adds a tool in the form that agents expect.
fn parse_tool(
    node: &Node<'_>,
    options: &Options,
    echo: &mut Echo,
    declared: &mut HashSet<String>,
    tools: &mut Vec<Json>,
) -> Result<Runner, Fault> {
    let object = node.object()?;
    let kind = match object.string("type")? {
        // The flat form of Anthropic Messages.
        Some(kind) if kind == "custom" && object.has("input_schema") => "function".into(),
        Some(kind) => kind,
        None if object.has("input_schema") => "function".into(),
        None => return Err(missing(object.path_of("type"))),
    };
    match kind.as_ref() {
        kind @ ("function" | "custom") => {
            // Clients of the Responses API leave out the inner object.
            let nested = object.get(kind).map(|node| node.object()).transpose()?;
            tools.extend(parse_function(nested.as_ref().unwrap_or(&object), kind, options, echo, declared)?);
            Ok(Runner::Client)
        }
        other if options.hosted_tools == IgnoreOrRefuse::Refuse => {
            let message = format!("hosted tools of type '{}' are not supported on this route", truncate(other));
            Err(Fault::unsupported(object.path_of("type"), message))
        }
        _ => Ok(Runner::OpenAi),
    }
}

/// A function as agents expect it. `None`: it is for the gateway, which asks by it.
fn parse_function(
    object: &Object<'_>,
    kind: &str,
    options: &Options,
    echo: &mut Echo,
    declared: &mut HashSet<String>,
) -> Result<Option<Json>, Fault> {
    if options.client_tools == ClientTools::Refuse {
        return Err(Fault::unsupported("tools", "client tools are not accepted on this route"));
    }
    let name = text(object, "name")?.ok_or_else(|| missing(object.path_of("name")))?;
    if name.is_empty() {
        return Err(Fault::invalid(object.path_of("name"), "must not be empty"));
    }
    client_tool::declare(&name, declared, || object.path_of("name"))?;
    text(object, "description")?;
    object.boolean("strict")?;
    for schema in ["parameters", "input_schema"] {
        object.get(schema).map(|node| node.json_object()).transpose()?;
    }

    let fields = object.fields_except(&["type", "name"]);
    let custom = kind == "custom";
    let tool =
        if custom { client_tool::free_text_function(&name, &fields) } else { client_tool::function(&name, &fields) };
    let is_own = is_own(&name, options);
    echo.tools.push(Tool { name, custom });
    Ok((!is_own).then_some(tool))
}

/// True for a function by which the gateway asks. The agent does not have it.
fn is_own(name: &str, options: &Options) -> bool {
    options.asker(options.approvals).is_own(name)
}

/// True if a choice must not name the function: the agent gets the choice, but not the function.
fn is_withheld(name: &str, options: &Options) -> bool {
    options.client_tools == ClientTools::Forward && is_own(name, options)
}

/// The words that are no name of a tool.
const CHOICES: [&str; 3] = ["none", "auto", "required"];

fn declared(object: &Object<'_>, echo: &Echo) -> Result<String, Fault> {
    let name = text(object, "name")?.ok_or_else(|| missing(object.path_of("name")))?;
    if echo.tool(&name).is_none() {
        let message = format!("tool choice '{}' not found in 'tools'", truncate(&name));
        return Err(Fault::invalid(object.path_of("name"), message));
    }
    Ok(name)
}

/// A declared tool that the agent has.
fn declared_to_agent(object: &Object<'_>, options: &Options, echo: &Echo) -> Result<String, Fault> {
    let name = declared(object, echo)?;
    if is_withheld(&name, options) {
        let message = format!("'{}' is a function of the gateway, which agents cannot call", truncate(&name));
        return Err(Fault::invalid(object.path_of("name"), message));
    }
    Ok(name)
}

fn word(node: &Node<'_>, words: &[&str]) -> Result<Value, Fault> {
    let word = node.string()?;
    if words.contains(&word.as_ref()) {
        return Ok(json!(word));
    }
    let known = quoted_list(words);
    Err(node.invalid(format!("unknown value '{}': must be one of {known}", truncate(&word))))
}

/// Validates `tool_choice`, and flattens it.
fn tool_choice(node: &Node<'_>, options: &Options, echo: &Echo) -> Result<Value, Fault> {
    match node.kind() {
        Kind::String => word(node, &CHOICES),
        Kind::Object => {
            let object = node.object()?;
            let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
            match kind.as_ref() {
                "function" | "custom" => {
                    let nested = nested(&object, &kind)?;
                    let name = declared_to_agent(nested.as_ref().unwrap_or(&object), options, echo)?;
                    Ok(json!({ "type": kind, "name": name }))
                }
                "allowed_tools" => {
                    let nested = object.get("allowed_tools").map(|node| node.object()).transpose()?.unwrap_or(object);
                    let mode = choice(&nested, "mode", &["auto", "required"])?.unwrap_or_else(|| "auto".to_owned());
                    allowed_tools(&nested, &mode, options, echo)
                }
                other => {
                    let known = quoted_list(&["function", "custom", "allowed_tools"]);
                    let message = format!("unknown value '{}': must be one of {known}", truncate(other));
                    Err(Fault::invalid(object.path_of("type"), message))
                }
            }
        }
        _ => Err(node.wrong_type("a string or an object")),
    }
}

/// The choice among some tools, without the functions of the gateway: it asks by them whatever the choice is.
fn allowed_tools(object: &Object<'_>, mode: &str, options: &Options, echo: &Echo) -> Result<Value, Fault> {
    let node = object.required("tools")?;
    let (mut tools, mut has_own) = (Vec::new(), false);
    for tool in node.array()? {
        let tool = tool.object()?;
        let kind = text(&tool, "type")?.unwrap_or_else(|| "function".to_owned());
        let name = declared(nested(&tool, &kind)?.as_ref().unwrap_or(&tool), echo)?;
        if is_withheld(&name, options) {
            has_own = true;
        } else {
            tools.push(json!({ "type": kind, "name": name }));
        }
    }
    match (has_own && tools.is_empty(), mode) {
        (false, _) => Ok(json!({ "type": "allowed_tools", "mode": mode, "tools": tools })),
        (true, "auto") => Ok(json!("none")),
        (true, _) => Err(node.invalid("names only functions of the gateway, which agents cannot call")),
    }
}

/// The inner object of a tool. `None`: the tool has the flat form.
fn nested<'a>(object: &Object<'a>, kind: &str) -> Result<Option<Object<'a>>, Fault> {
    object.get(kind).map(|node| node.object()).transpose()
}

/// The deprecated form of `tool_choice`.
fn function_choice(node: &Node<'_>, options: &Options, echo: &Echo) -> Result<Value, Fault> {
    match node.kind() {
        Kind::String => word(node, &CHOICES[..2]),
        _ => Ok(json!({ "type": "function", "name": declared_to_agent(&node.object()?, options, echo)? })),
    }
}

/// Parses `response_format` and `verbosity`. Returns the format as a system message if the options say so.
pub(super) fn parse_format(
    object: &Object<'_>,
    options: &Options,
    request: &mut AgentRequest,
) -> Result<Option<Message>, Fault> {
    let verbosity = choice(object, "verbosity", &["low", "medium", "high"])?;
    let mut fields = Extra::new();
    let mut instruction = None;
    if let Some(node) = object.get("response_format") {
        let (format, words) = response_format(&node.object()?)?;
        if words.is_some() && options.structured_output == StructuredOutput::Refuse {
            return Err(Fault::unsupported("response_format", "structured output is not supported on this route"));
        }
        if options.structured_output == StructuredOutput::Instruct {
            instruction = words.map(Message::system);
        } else {
            fields.push("format", format);
        }
    }
    if let Some(verbosity) = verbosity {
        fields.push("verbosity", Json::from_serialize(&verbosity));
    }
    if !fields.is_empty() {
        request.extra.set("text", Json::from_serialize(&fields));
    }
    Ok(instruction)
}

/// The format in the flat form of Responses, and as an instruction for `structured_output = "instruct"`. `None`: any
/// text will do.
fn response_format(object: &Object<'_>) -> Result<(Json, Option<String>), Fault> {
    let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
    match kind.as_ref() {
        "text" => Ok((Json::from_serialize(&json!({ "type": "text" })), None)),
        "json_object" => {
            let words = "Answer with one JSON object and nothing else.".to_owned();
            Ok((Json::from_serialize(&json!({ "type": "json_object" })), Some(words)))
        }
        "json_schema" => {
            let nested = object.get("json_schema").ok_or_else(|| missing(object.path_of("json_schema")))?.object()?;
            let name = text(&nested, "name")?.ok_or_else(|| missing(nested.path_of("name")))?;
            let schema = nested.get("schema").map(|node| node.json_object()).transpose()?;
            text(&nested, "description")?;
            nested.boolean("strict")?;

            let mut format = Extra::new();
            format.push("type", Json::from_serialize("json_schema"));
            for (field, value) in nested.fields_except(&["type"]).iter() {
                format.push(field, value.clone());
            }
            let schema = schema.as_ref().map_or("{}", Json::text);
            let words = format!(
                "Answer with one JSON value named {name:?} that fits this JSON Schema, and nothing else: {schema}"
            );
            Ok((Json::from_serialize(&format), Some(words)))
        }
        other => {
            let known = quoted_list(&["text", "json_object", "json_schema"]);
            let message = format!("unknown value '{}': must be one of {known}", truncate(other));
            Err(Fault::invalid(object.path_of("type"), message))
        }
    }
}
