//! Agents as prompts: each asks the model to use the tool of an agent (docs/protocols/mcp.md#resources-prompts-completion).

use interlingua_core::Json;
use interlingua_core::answer::fits;
use interlingua_core::filter::truncated;
use serde_json::{Map, Value, json};

use crate::envelope::RpcError;
use crate::pages;
use crate::revision::Revision;
use crate::tools::{AgentTool, DeclaredArguments, MAX_NAME, ToolRef, Tools};

/// A page of the prompts: one for each agent that the caller may use.
///
/// # Errors
/// The cursor is unknown.
pub(crate) fn list(
    tools: &Tools,
    may_use: &dyn Fn(&str) -> bool,
    revision: Revision,
    cursor: Option<&str>,
) -> Result<Value, RpcError> {
    let agents = tools.agents().iter().filter(|tool| may_use(&tool.agent));
    let entries: Vec<(String, Value)> = agents.map(|tool| (tool.name.clone(), definition(tool, revision))).collect();
    pages::page("prompts", entries.iter().map(|(key, value)| (key.clone(), value)), cursor)
}

fn definition(tool: &AgentTool, revision: Revision) -> Value {
    let arguments: Vec<Value> = match &tool.arguments {
        None => vec![json!({ "name": "message", "description": "What to say to the agent.", "required": false })],
        Some(declared) => declared
            .properties()
            .map(|(name, schema)| {
                let mut argument = json!({ "name": name, "required": declared.requires(name) });
                if let Some(description) = schema.get("description").and_then(Value::as_str) {
                    argument["description"] = json!(description);
                }
                argument
            })
            .collect(),
    };
    let mut prompt = json!({ "name": tool.name, "description": tool.description, "arguments": arguments });
    if let Some(title) = tool.title.as_ref().filter(|_| revision.has_structured_content()) {
        prompt["title"] = json!(title);
    }
    prompt
}

/// The prompt with this name, if the caller may use its agent.
///
/// # Errors
/// There is no such prompt.
pub(crate) fn find<'t>(
    tools: &'t Tools,
    may_use: &dyn Fn(&str) -> bool,
    name: &str,
) -> Result<&'t AgentTool, RpcError> {
    match tools.find(name) {
        Some(ToolRef::Agent(tool)) if may_use(&tool.agent) => Ok(tool),
        _ => {
            let shown = truncated(name, MAX_NAME);
            Err(RpcError::params(format!("Unknown prompt: {shown}")))
        }
    }
}

/// The result of `prompts/get`: a message of the user that asks the model to use the tool. `arguments`: those of the
/// request, texts by name.
///
/// # Errors
/// An argument is missing, or is no text.
pub(crate) fn get(tool: &AgentTool, arguments: Option<&Value>) -> Result<Value, RpcError> {
    let none = Map::new();
    let arguments = match arguments {
        None | Some(Value::Null) => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(RpcError::params("arguments must be an object")),
    };
    if let Some((name, _)) = arguments.iter().find(|(_, value)| !value.is_string()) {
        return Err(RpcError::params(format!("the argument '{name}' must be a string")));
    }

    let text = match &tool.arguments {
        Some(declared) => {
            let filled = read_texts(declared, arguments)?;
            let message = declared.message(&filled);
            let arguments = Value::Object(filled);
            format!("Use the tool {} with these arguments: {arguments}\n\n{message}", tool.name)
        }
        None => match arguments.get("message").and_then(Value::as_str).filter(|text| !text.trim().is_empty()) {
            Some(message) => format!("Use the tool {} with this message:\n\n{message}", tool.name),
            None => format!("Use the tool {}.", tool.name),
        },
    };
    Ok(json!({
        "description": tool.description,
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

/// The declared arguments of a prompt. Arguments of prompts are texts: one that the schema does not take as a text is
/// read as JSON.
fn read_texts(declared: &DeclaredArguments, texts: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
    let mut arguments = Map::new();
    for (name, schema) in declared.properties() {
        let Some(text) = texts.get(name).and_then(Value::as_str) else {
            if declared.requires(name) {
                return Err(RpcError::params(format!("the argument '{name}' is missing")));
            }
            continue;
        };
        let schema = Json::from_serialize(schema);
        let fits_schema = |value: &Value| fits(&schema, &Json::from_serialize(value)).is_ok();
        let as_text = Value::String(text.to_owned());
        let as_json = || Json::parse(text)?.decode::<Value>().filter(fits_schema);
        let value = if fits_schema(&as_text) { as_text } else { as_json().unwrap_or(as_text) };
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests;
