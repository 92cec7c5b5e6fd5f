//! Lists of what a caller may use, resources, prompts and completion.

use std::collections::HashSet;

use interlingua_core::Fault;
use interlingua_core::call::{Call, Reply};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::shared::SharedState;
use crate::completion::{self, Completion};
use crate::envelope::{Message, Params, RpcError};
use crate::resources::{ReadStep, Resource};
use crate::{prompts, resources};

/// A list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// A page of a list.
pub(super) struct PageRequest {
    list: List,
    cursor: Option<String>,
}

impl PageRequest {
    /// Reads the parameters of a list.
    ///
    /// # Errors
    /// The cursor is no text.
    pub(super) fn decode(list: List, message: &Message) -> Result<Self, RpcError> {
        let cursor = match message.params.get("cursor") {
            None | Some(Value::Null) => None,
            Some(Value::String(cursor)) => Some(cursor.clone()),
            Some(_) => return Err(RpcError::params("\"cursor\" must be a string")),
        };
        Ok(Self { list, cursor })
    }

    /// The page, for the agents that the caller may use.
    ///
    /// # Errors
    /// The cursor is unknown, or the reply does not match.
    pub(super) fn result(&self, shared: &SharedState, reply: &Reply<'_>) -> Result<Value, Refusal> {
        let agents = usable(reply)?;
        let may_use = |agent: &str| agents.contains(agent);
        let (tools, revision, cursor) = (&shared.route.tools, shared.writer.revision, self.cursor.as_deref());
        let mut page = match self.list {
            List::Tools => tools.list(&may_use, revision, cursor)?,
            List::Prompts => prompts::list(tools, &may_use, revision, cursor)?,
            List::Resources => resources::list(tools, &may_use, cursor)?,
            List::Templates => resources::templates(cursor)?,
        };
        if revision.is_modern() {
            page["ttlMs"] = json!(shared.route.list_ttl_ms());
            page["cacheScope"] = json!(shared.route.cache_scope());
        }
        Ok(page)
    }
}

/// The names of the agents that the caller may use.
fn usable<'r>(reply: &Reply<'r>) -> Result<HashSet<&'r str>, Fault> {
    match reply {
        Reply::Agents(agents) => Ok(agents.iter().map(|agent| agent.name.as_str()).collect()),
        _ => Err(Fault::unexpected_reply()),
    }
}

/// A request that looks something up.
pub(super) enum Lookup {
    /// The resource of an agent, by the agent's name.
    Agent { name: String, uri: String },
    /// The resource of a run.
    Run(Box<resources::RunResource>),
    /// A prompt, with its arguments.
    Prompt { name: String, arguments: Option<Value> },
    /// Completion, before the agents are known.
    Complete(Value),
    /// Completion, with the sessions of an agent.
    Completing(Completion),
}

/// The next step of a lookup.
pub(super) enum LookupStep {
    Call(Call),
    Result(Value),
}

impl Lookup {
    /// Reads the parameters of `resources/read`.
    ///
    /// # Errors
    /// No resource has the URI.
    pub(super) fn resource(shared: &SharedState, params: &Params) -> Result<(Self, Call), RpcError> {
        let Some(uri) = params.get("uri").and_then(Value::as_str) else {
            return Err(RpcError::params("\"uri\" must be a string"));
        };
        Ok(match Resource::parse(uri, shared.writer.revision)? {
            Resource::Agent(name) => (Self::Agent { name, uri: uri.to_owned() }, Call::Describe),
            Resource::Run(run) => {
                let call = run.call();
                (Self::Run(run), call)
            }
        })
    }

    /// Reads the parameters of `prompts/get`.
    ///
    /// # Errors
    /// The name is missing.
    pub(super) fn prompt(params: &Params) -> Result<(Self, Call), RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(RpcError::params("\"name\" must be a string"));
        };
        let prompt = Self::Prompt { name: name.to_owned(), arguments: params.get("arguments").cloned() };
        Ok((prompt, Call::Describe))
    }

    /// Reads the parameters of `completion/complete`.
    pub(super) fn completion(params: &Params) -> (Self, Call) {
        (Self::Complete(Value::Object(params.clone())), Call::Describe)
    }

    /// Continues with a reply of the engine.
    ///
    /// # Errors
    /// The caller has nothing like that, or the reply does not match.
    pub(super) fn reply(&mut self, shared: &SharedState, reply: &Reply<'_>) -> Result<LookupStep, Refusal> {
        let route = &shared.route;
        let result = match self {
            Self::Agent { name, uri } => {
                let agents = usable(reply)?;
                let tool = route.tools.of_agent(name).filter(|tool| agents.contains(tool.agent.as_str()));
                resources::agent(tool.ok_or_else(|| resources::not_found(uri, shared.writer.revision))?)
            }
            Self::Run(run) => {
                let context = shared.result_context();
                let step = match reply {
                    Reply::Run(view) => run.take(*view, &context)?,
                    _ => ReadStep::Done(run.finish(&context)?),
                };
                match step {
                    ReadStep::Call(call) => return Ok(LookupStep::Call(call)),
                    ReadStep::Done(result) => result,
                }
            }
            Self::Prompt { name, arguments } => {
                let agents = usable(reply)?;
                let tool = prompts::find(&route.tools, &|agent| agents.contains(agent), name)?;
                prompts::get(tool, arguments.as_ref())?
            }
            Self::Complete(params) => {
                let agents = usable(reply)?;
                let completion = completion::read(params, &route.tools, &|agent| agents.contains(agent))?;
                match completion.call() {
                    Some(call) => {
                        *self = Self::Completing(completion);
                        return Ok(LookupStep::Call(call));
                    }
                    None => completion.finish(None),
                }
            }
            Self::Completing(completion) => match reply {
                Reply::Sessions(page) => completion.finish(Some(page)),
                _ => completion.finish(None),
            },
        };
        Ok(LookupStep::Result(self.with_cache(result, shared)))
    }

    /// The result with the time for which a client of the newest revision may keep it.
    fn with_cache(&self, mut result: Value, shared: &SharedState) -> Value {
        if !shared.writer.revision.is_modern() {
            return result;
        }
        match self {
            Self::Agent { .. } => {
                result["ttlMs"] = json!(shared.route.list_ttl_ms());
                result["cacheScope"] = json!(shared.route.cache_scope());
            }
            Self::Run(_) => {
                result["ttlMs"] = json!(0);
                result["cacheScope"] = json!("private");
            }
            _ => {}
        }
        result
    }

    /// The call to make instead of one that found nothing.
    pub(super) fn on_not_found(&self) -> Option<Call> {
        matches!(self, Self::Run(_)).then_some(Call::Nothing)
    }
}
