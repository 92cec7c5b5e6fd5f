//! Parses tools and the choice among them (docs/protocols/anthropic-messages.md#tools).

use std::collections::HashMap;

use interlingua_adapter_kit::model_options::{ClientTools, IgnoreOrRefuse};
use interlingua_core::model::AgentRequest;
use interlingua_core::tree::fields::{choice, text, truncate};
use interlingua_core::tree::{Node, Object};
use interlingua_core::{Extra, Fault, Json};
use serde_json::json;

use crate::echo::Echo;
use crate::fault::missing;
use crate::options::Options;

/// The longest name, in characters.
const MAX_NAME: usize = 128;

/// The tools of the read part of a request: messages may add and remove some.
#[derive(Debug, Default)]
pub(super) struct Tools {
    functions: Vec<Function>,
    /// Places in the list.
    by_name: HashMap<String, usize>,
    /// The number of tools that no agent can receive.
    hosted: usize,
    /// The server is to search among the tools that are loaded later.
    has_hosted_search: bool,
}

/// A function of the client.
#[derive(Debug)]
struct Function {
    name: String,
    /// In the form that agents expect.
    tool: Json,
    is_there: bool,
    /// `defer_loading`: it becomes available when something refers to it.
    is_deferred: bool,
}

impl Tools {
    pub(super) fn parse(object: &Object<'_>, options: &Options) -> Result<Self, Fault> {
        let mut tools = Self::default();
        for node in object.array("tools")? {
            tools.add(&node, options, true)?;
        }
        Ok(tools)
    }

    /// `is_new`: no tool may have its name. Else it replaces such a tool.
    fn add(&mut self, node: &Node<'_>, options: &Options, is_new: bool) -> Result<(), Fault> {
        let object = node.object()?;
        match object.string("type")?.as_deref() {
            None | Some("custom") => {}
            Some(kind) => {
                if options.hosted_tools == IgnoreOrRefuse::Refuse {
                    let message = format!("tools of type '{}' are not supported on this route", truncate(kind));
                    return Err(Fault::unsupported(object.path_of("type"), message));
                }
                self.hosted += 1;
                self.has_hosted_search |= kind.starts_with("tool_search");
                return Ok(());
            }
        }
        if options.client_tools == ClientTools::Refuse {
            return Err(Fault::unsupported(node.path(), "client tools are not accepted on this route"));
        }

        let name = text(&object, "name")?.ok_or_else(|| missing(object.path_of("name")))?;
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err(Fault::invalid(
                object.path_of("name"),
                format!("must have between 1 and {MAX_NAME} characters"),
            ));
        }
        text(&object, "description")?;
        let schema = object.get("input_schema").ok_or_else(|| missing(object.path_of("input_schema")))?;
        let tool = function(&object, &name, schema.json_object()?);
        let is_deferred = object.boolean("defer_loading")?.unwrap_or(false);
        let function = Function { name, tool, is_there: true, is_deferred };
        match self.by_name.get(&function.name) {
            Some(_) if is_new => {
                let message = format!("two tools have the name '{}': names must be unique", truncate(&function.name));
                return Err(Fault::invalid(object.path_of("name"), message));
            }
            Some(place) => self.functions[*place] = function,
            None => {
                self.by_name.insert(function.name.clone(), self.functions.len());
                self.functions.push(function);
            }
        }
        Ok(())
    }

    /// `tool_addition`: another function, or one that was removed before.
    pub(super) fn addition(&mut self, block: &Object<'_>, options: &Options) -> Result<(), Fault> {
        let tool = block.get("tool").ok_or_else(|| missing(block.path_of("tool")))?.object()?;
        match tool.string("type")?.as_deref() {
            Some("tool_definition") => {
                let definition = tool.get("definition").ok_or_else(|| missing(tool.path_of("definition")))?;
                self.add(&definition, options, false)
            }
            _ => {
                if let Some(name) = tool.string("name")? {
                    self.load(&name);
                }
                Ok(())
            }
        }
    }

    /// `tool_removal`: a function that is no longer available. Others are ignored.
    pub(super) fn removal(&mut self, block: &Object<'_>) -> Result<(), Fault> {
        let tool = block.get("tool").ok_or_else(|| missing(block.path_of("tool")))?.object()?;
        let place = tool.string("name")?.and_then(|name| self.by_name.get(&*name));
        if let Some(function) = place.and_then(|place| self.functions.get_mut(*place)) {
            function.is_there = false;
        }
        Ok(())
    }

    /// A function that becomes available here, because something refers to it.
    pub(super) fn load(&mut self, name: &str) {
        if let Some(function) = self.by_name.get(name).and_then(|place| self.functions.get_mut(*place)) {
            (function.is_there, function.is_deferred) = (true, false);
        }
    }

    /// Puts the tools that are available at the end into the request. Functions for the gateway are not the agent's.
    pub(super) fn apply(
        self,
        object: &Object<'_>,
        options: &Options,
        is_continued: bool,
        echo: &mut Echo,
        request: &mut AgentRequest,
    ) -> Result<(), Fault> {
        echo.hosted_tools = self.hosted;
        // Where no one but the server could search for them, the agent gets all.
        let gets_all = self.has_hosted_search;
        let is_there = |function: &Function| function.is_there && (gets_all || !function.is_deferred);
        let functions: Vec<Function> = self.functions.into_iter().filter(is_there).collect();
        echo.functions = functions.iter().map(|function| function.name.clone()).collect();
        let choice = object.get("tool_choice").map(|node| {
            // The tools of a thread are known only later.
            parse_choice(&node, options, |name| is_continued || echo.declares(name))
        });
        let choice = choice.transpose()?.unwrap_or_default();
        if options.client_tools != ClientTools::Forward {
            return Ok(());
        }

        let asker = options.asker();
        let tools: Vec<Json> = functions
            .into_iter()
            .filter(|function| !asker.is_own(&function.name))
            .map(|function| function.tool)
            .collect();
        if choice.is_none {
            // The agent is offered no tools, not even those that its session keeps.
            request.tools = Some(Vec::new());
            if let Some(thread) = echo.thread.as_mut().filter(|_| !tools.is_empty()) {
                thread.withheld_tools = Some(tools);
            }
            return Ok(());
        }
        if !tools.is_empty() {
            request.tools = Some(tools);
        }
        if let Some(choice) = choice.choice {
            request.extra.set("tool_choice", choice);
        }
        if choice.is_one_by_one {
            request.extra.set("parallel_tool_calls", Json::from_serialize(&false));
        }
        Ok(())
    }
}

/// A function in the form that agents expect; what this protocol has besides comes along.
fn function(object: &Object<'_>, name: &str, schema: Json) -> Json {
    let mut fields = Extra::new();
    fields.push("name", Json::from_serialize(name));
    let description = object.get("description").map(|node| node.to_json());
    fields.push("description", description.unwrap_or_else(|| Json::from_serialize("")));
    fields.push("parameters", schema);
    for (name, value) in object.fields_except(&["type", "name", "description", "input_schema", "cache_control"]).iter()
    {
        if !value.is_null() {
            fields.push(name, value.clone());
        }
    }

    let mut tool = Extra::new();
    tool.push("type", Json::from_serialize("function"));
    tool.push("function", Json::from_serialize(&fields));
    Json::from_serialize(&tool)
}

/// A choice among tools.
#[derive(Debug, Default)]
struct Choice {
    /// No tool may be called.
    is_none: bool,
    /// In the form of Responses, which agents know.
    choice: Option<Json>,
    is_one_by_one: bool,
}

fn parse_choice(node: &Node<'_>, options: &Options, declares: impl Fn(&str) -> bool) -> Result<Choice, Fault> {
    let object = node.object()?;
    let is_one_by_one = object.boolean("disable_parallel_tool_use")?.unwrap_or(false);
    let kind = choice(&object, "type", &["auto", "any", "none", "tool"])?;
    let choice = match kind.ok_or_else(|| missing(object.path_of("type")))?.as_str() {
        "none" => return Ok(Choice { is_none: true, ..Choice::default() }),
        "any" => Some(Json::from_serialize("required")),
        "tool" => {
            let name = text(&object, "name")?.ok_or_else(|| missing(object.path_of("name")))?;
            if !declares(&name) {
                let message = format!("no tool is called '{}'", truncate(&name));
                return Err(Fault::invalid(object.path_of("name"), message));
            }
            // The agent gets the choice, but not the function.
            if options.client_tools == ClientTools::Forward && options.asker().is_own(&name) {
                let message = format!("'{}' is a function of the gateway, which agents cannot call", truncate(&name));
                return Err(Fault::invalid(object.path_of("name"), message));
            }
            Some(Json::from_serialize(&json!({ "type": "function", "name": name })))
        }
        _ => None,
    };
    Ok(Choice { is_none: false, choice, is_one_by_one })
}
