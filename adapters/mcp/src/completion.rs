//! `completion/complete`: the values of an argument that begin with a typed text (docs/protocols/mcp.md#resources-prompts-completion).

use interlingua_core::Call;
use interlingua_core::call::{Order, SessionCall, SessionFilter, SessionPage};
use serde_json::{Value, json};

use crate::envelope::RpcError;
use crate::prompts;
use crate::tools::{AgentTool, SESSION, Tools};

/// Maximum number of values of an answer.
const MAX_VALUES: usize = 100;

/// The number of the caller's sessions that are offered.
const MAX_SESSIONS: usize = 20;

/// A request for completion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The result is known.
    Known(Value),
    /// The caller's sessions with this agent are needed.
    Sessions {
        /// The agent's name in the configuration.
        agent: String,
        /// The typed text.
        typed: String,
    },
}

/// Reads the parameters of a request.
///
/// # Errors
/// The parameters are wrong, or there is no such prompt.
pub(crate) fn read(params: &Value, tools: &Tools, may_use: &dyn Fn(&str) -> bool) -> Result<Completion, RpcError> {
    let text = |value: Option<&Value>, path: &str| match value.and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err(RpcError::params(format!("{path} must be a string"))),
    };
    let reference = params.get("ref");
    let kind = text(reference.and_then(|reference| reference.get("type")), "ref.type")?;
    let argument = params.get("argument");
    let name = text(argument.and_then(|argument| argument.get("name")), "argument.name")?;
    let typed = text(argument.and_then(|argument| argument.get("value")), "argument.value")?;

    match kind.as_str() {
        "ref/prompt" => {
            let prompt = text(reference.and_then(|reference| reference.get("name")), "ref.name")?;
            let tool = prompts::find(tools, may_use, &prompt)?;
            if name == SESSION {
                return Ok(Completion::Sessions { agent: tool.agent.clone(), typed });
            }
            Ok(Completion::Known(result(values_of(tool, &name), &typed)))
        }
        // The ids of runs cannot be guessed from their beginning.
        "ref/resource" => Ok(Completion::Known(result(Vec::new(), &typed))),
        _ => Err(RpcError::params("ref.type must be ref/prompt or ref/resource")),
    }
}

impl Completion {
    /// The call that the result needs. `None`: none.
    pub(crate) fn call(&self) -> Option<Call> {
        let Self::Sessions { agent, .. } = self else { return None };
        let filter = SessionFilter {
            agent: Some(agent.clone()),
            order: Order::LatestChange,
            limit: MAX_SESSIONS,
            ..SessionFilter::default()
        };
        Some(Call::Session(SessionCall::List(filter)))
    }

    /// The result with the reply to that call.
    pub(crate) fn finish(&self, sessions: Option<&SessionPage>) -> Value {
        match self {
            Self::Known(result) => result.clone(),
            Self::Sessions { typed, .. } => {
                let sessions = sessions.map_or(&[][..], |page| &page.sessions);
                result(sessions.iter().map(|session| session.id.clone()).collect(), typed)
            }
        }
    }
}

/// The values that the schema of an argument lists.
fn values_of(tool: &AgentTool, argument: &str) -> Vec<String> {
    let schema = tool.arguments.as_ref().and_then(|declared| declared.property(argument));
    let values = schema.and_then(|schema| schema.get("enum")).and_then(Value::as_array);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.into_iter().flatten().map(text).collect()
}

fn result(mut values: Vec<String>, typed: &str) -> Value {
    values.retain(|value| value.starts_with(typed));
    let total = values.len();
    values.truncate(MAX_VALUES);
    json!({ "completion": { "values": values, "total": total, "hasMore": total > MAX_VALUES } })
}

#[cfg(test)]
mod tests;
