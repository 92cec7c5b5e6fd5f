//! The tools of a route: one for each agent, and the helper tools `answer` and `wait` (docs/protocols/mcp.md#tools).
//!
//! Not here: the reading of the helper tools' arguments ([`crate::helper_tools`]), and results ([`crate::result`]).

mod agent_tool;
mod attachments;
mod declared;
mod definition;
mod names;
mod template;
mod tool_error;

pub(crate) use agent_tool::{AgentTool, ToolInput};
pub(crate) use declared::DeclaredArguments;
pub(crate) use names::{MAX_NAME, SESSION};
pub(crate) use tool_error::ToolError;

use std::collections::HashMap;

use interlingua_core::Mount;
use serde_json::Value;

use crate::envelope::RpcError;
use crate::options::{Options, Tasks};
use crate::pages;
use crate::revision::Revision;

/// Maximum number of tools of a route, without the helper tools.
const MAX_TOOLS: usize = 500;

/// All tools of a route.
#[derive(Debug)]
pub(crate) struct Tools {
    /// Sorted by name.
    agents: Vec<AgentTool>,
    by_name: HashMap<String, usize>,
    /// The helper tools that are switched on.
    helpers: Vec<HelperTool>,
}

#[derive(Debug)]
struct HelperTool {
    name: String,
    kind: Helper,
    definition: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helper {
    Answer,
    Wait,
}

/// A tool with this name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToolRef<'a> {
    /// The tool of an agent.
    Agent(&'a AgentTool),
    /// The tool that answers what a run waits for.
    Answer,
    /// The tool that waits for a run.
    Wait,
}

impl Tools {
    /// Builds the tools of a route.
    ///
    /// # Errors
    /// The problem, for the operator: names that collide or that hosts refuse, or wrong settings of a tool.
    pub(crate) fn new(mount: &Mount, options: &Options) -> Result<Self, String> {
        check_tables(mount, options)?;
        if mount.agents.len() > MAX_TOOLS {
            return Err(format!("the route has {} agents: {MAX_TOOLS} tools are allowed", mount.agents.len()));
        }
        let agents: Result<Vec<AgentTool>, String> =
            mount.agents.iter().map(|agent| AgentTool::new(agent, options)).collect();
        let mut agents = agents?;
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        if !options.ask_first.0.is_zero() && agents.iter().all(|tool| tool.settings.tasks == Tasks::Never) {
            return Err("ask_first has no effect without tasks".to_owned());
        }

        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (index, tool) in agents.iter().enumerate() {
            if let Some(other) = by_name.insert(tool.name.clone(), index) {
                let other: &AgentTool = &agents[other];
                return Err(format!(
                    "the agents '{}' and '{}' both have the tool name '{}'\ngive one of them another name",
                    other.agent, tool.agent, tool.name
                ));
            }
        }

        let helpers = helpers(options)?;
        for helper in &helpers {
            if let Some(index) = by_name.get(&helper.name) {
                let agent = &agents[*index].agent;
                return Err(format!("the agent '{agent}' has the name of the helper tool '{}'", helper.name));
            }
        }
        Ok(Self { agents, by_name, helpers })
    }

    /// The tool with this name.
    pub(crate) fn find(&self, name: &str) -> Option<ToolRef<'_>> {
        if let Some(index) = self.by_name.get(name) {
            return Some(ToolRef::Agent(&self.agents[*index]));
        }
        let helper = self.helpers.iter().find(|helper| helper.name == name)?;
        Some(match helper.kind {
            Helper::Answer => ToolRef::Answer,
            Helper::Wait => ToolRef::Wait,
        })
    }

    /// The tools of agents, sorted by name.
    pub(crate) fn agents(&self) -> &[AgentTool] {
        &self.agents
    }

    /// The tool of an agent. `None`: the route has no such agent.
    pub(crate) fn of_agent(&self, agent: &str) -> Option<&AgentTool> {
        self.agents.iter().find(|tool| tool.agent == agent)
    }

    /// A page of the list of tools: `tools`, and `nextCursor` unless it is the last page. `may_use`: whether the caller
    /// may use an agent.
    ///
    /// # Errors
    /// The cursor is unknown.
    pub(crate) fn list(
        &self,
        may_use: &dyn Fn(&str) -> bool,
        revision: Revision,
        cursor: Option<&str>,
    ) -> Result<Value, RpcError> {
        let has_structure = revision.has_structured_content();
        let agents = self.agents.iter().filter(|tool| may_use(&tool.agent));
        // The helper tools follow all others.
        let agents = agents.map(|tool| (format!("0{}", tool.name), tool.definition(has_structure)));
        let helpers = self.helpers.iter().enumerate().map(|(index, tool)| (format!("1{index}"), &tool.definition));

        if has_structure {
            return pages::page("tools", agents.chain(helpers), cursor);
        }
        let helpers: Vec<(String, Value)> =
            helpers.map(|(key, full)| (key, definition::without_structure(full))).collect();
        pages::page("tools", agents.chain(helpers.iter().map(|(key, plain)| (key.clone(), plain))), cursor)
    }
}

/// Checks the names of the tables of tools.
fn check_tables(mount: &Mount, options: &Options) -> Result<(), String> {
    // On a route with a server for each agent, the other tables belong to the other servers.
    if let Some(agent) = mount.only_agent()
        && mount.path.split('/').any(|segment| segment == agent.name)
    {
        return Ok(());
    }
    match options.tools.keys().find(|name| !mount.agents.iter().any(|agent| agent.name == **name)) {
        Some(unknown) => Err(format!("the route has no agent '{unknown}', which has a table of tools")),
        None => Ok(()),
    }
}

fn helpers(options: &Options) -> Result<Vec<HelperTool>, String> {
    let mut helpers = Vec::new();
    for (name, kind, option) in
        [(&options.answer_tool, Helper::Answer, "answer_tool"), (&options.wait_tool, Helper::Wait, "wait_tool")]
    {
        if name.is_empty() {
            continue;
        }
        names::check(name, &format!("the option {option}"))?;
        let definition = match kind {
            Helper::Answer => definition::answer(name, options),
            Helper::Wait => definition::wait(name, options),
        };
        helpers.push(HelperTool { name: name.clone(), kind, definition });
    }
    match helpers.as_slice() {
        [one, other] if one.name == other.name => {
            Err(format!("answer_tool and wait_tool both have the name '{}'", one.name))
        }
        _ => Ok(helpers),
    }
}

#[cfg(test)]
mod tests;
