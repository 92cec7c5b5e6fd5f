//! The methods of both styles, with the operation of each.

use interlingua_core::Call;
use serde_json::{Value, json};

use super::call::{CallStart, ToolCall};
use super::lookup::{List, Lookup, PageRequest};
use super::operation::Operation;
use super::refusal::Refusal;
use super::route::Route;
use super::shared::SharedState;
use crate::envelope::rpc_error::INVALID_PARAMS;
use crate::envelope::{ClientAbilities, Message, RpcError, missing_tasks};
use crate::listen::Subscription;
use crate::revision::Revision;
use crate::tasks::{TaskMethod, TaskRequest};
use crate::tokens::SessionToken;

/// The operation of a request, and its first call. `None`: its revision has no such method here.
pub(super) fn dispatch(shared: &mut SharedState, message: &Message) -> Result<Option<(Operation, Call)>, Refusal> {
    let is_modern = shared.writer.revision.is_modern();
    let (has_prompts, has_resources) = (shared.route.options.prompts, shared.route.options.resources);
    let list = |list: List| -> Result<_, Refusal> {
        Ok((Operation::List(PageRequest::decode(list, message)?), Call::Describe))
    };
    let lookup = |(lookup, call): (Lookup, Call)| (Operation::Lookup(lookup), call);
    let result = |result: Value| (Operation::Result(result), Call::Nothing);

    Ok(Some(match message.method.as_str() {
        "initialize" if !is_modern => result(initialize(shared, message)?),
        "ping" if !is_modern => result(json!({})),
        "server/discover" if is_modern => result(discover(&shared.route)),
        "tools/list" => list(List::Tools)?,
        "prompts/list" if has_prompts => list(List::Prompts)?,
        "resources/list" if has_resources => list(List::Resources)?,
        "resources/templates/list" if has_resources => list(List::Templates)?,
        "resources/read" if has_resources => lookup(Lookup::resource(shared, &message.params)?),
        "prompts/get" if has_prompts => lookup(Lookup::prompt(&message.params)?),
        "completion/complete" => lookup(Lookup::completion(&message.params)),
        "tools/call" => match ToolCall::decode(shared, message)? {
            CallStart::Call(tool, call) => (Operation::Call(tool), call),
            CallStart::Result(value) => result(value),
        },
        "subscriptions/listen" if is_modern => {
            let Some(id) = shared.writer.id.clone() else { return Ok(None) };
            if !shared.writer.has_events() {
                let error = RpcError::new(INVALID_PARAMS, "a subscription needs a client that accepts event streams");
                return Err(error.into());
            }
            let options = &shared.route.options;
            let (subscription, call) = Subscription::decode(id, &message.params, shared.client, options, shared.now)?;
            (Operation::Listen(Box::new(subscription)), call)
        }
        method if is_modern && shared.route.has_tasks() => {
            let Some(method) = TaskMethod::parse(method) else { return Ok(None) };
            if !shared.client.tasks {
                return Err(missing_tasks().into());
            }
            let (task, call) = TaskRequest::decode(method, &message.params, shared.client.modes, shared.now)?;
            (Operation::Task(Box::new(task)), call)
        }
        _ => return Ok(None),
    }))
}

/// The result of `server/discover`.
fn discover(route: &Route) -> Value {
    json!({
        "supportedVersions": Revision::ALL,
        "capabilities": route.capabilities(true),
        "instructions": route.instructions(),
        "ttlMs": route.list_ttl_ms(),
        "cacheScope": route.cache_scope(),
    })
}

/// Begins a session. Its revision is the one that the client asks for, if that is served.
fn initialize(shared: &mut SharedState, message: &Message) -> Result<Value, Refusal> {
    let Some(asked) = message.params.get("protocolVersion").and_then(Value::as_str) else {
        return Err(RpcError::params("\"protocolVersion\" must be a string").into());
    };
    let revision = Revision::parse(asked).filter(|revision| !revision.is_modern()).unwrap_or(Revision::LATEST_LEGACY);
    let capabilities = message.params.get("capabilities").cloned().unwrap_or(Value::Null);
    let client = ClientAbilities::read(&capabilities, revision);

    shared.writer.revision = revision;
    shared.client = client;
    if let Some(id) = shared.new_id {
        let session = SessionToken { revision, modes: client.modes, created_at: shared.now, id: id.to_string() };
        // Fails here, and not when the result is written.
        session.seal(shared.seals())?;
        shared.session = Some(session);
        shared.is_new_session = true;
    }
    Ok(json!({
        "protocolVersion": revision,
        "capabilities": shared.route.capabilities(false),
        "serverInfo": Route::server_info(),
        "instructions": shared.route.instructions(),
    }))
}
