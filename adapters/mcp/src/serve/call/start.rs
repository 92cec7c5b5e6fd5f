//! The parameters of `tools/call`, and the first call of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlingua_core::call::{Busy as Queueing, SessionCall, Tags, Thread};
use interlingua_core::event::Millis;
use interlingua_core::loss::Losses;
use interlingua_core::model::AgentRequest;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::{Call, Delivery, Json, RunCall, RunId, Target};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::events::EventId;
use super::super::refusal::Refusal;
use super::super::session;
use super::super::shared::SharedState;
use super::{Deadline, Skip, Stage, ToolCall, unknown_tool};
use crate::envelope::{Message, RpcError, is_progress_token, missing_tasks};
use crate::helper_tools::{self, AnswerTool};
use crate::options::{Busy, Tasks};
use crate::result::tool_error;
use crate::tokens::{StateToken, TokenError};
use crate::tools::{AgentTool, ToolError, ToolInput, ToolRef};

/// Maximum time for which a stream is held back, so that an agent that refuses is answered as one object.
const HOLD_BACK: Duration = Duration::from_secs(1);
/// The metadata that names a session if the arguments name none.
const SESSION_KEY: &str = "interlingua/session";

/// The start of a call.
pub(in super::super) enum CallStart {
    /// The call, and its first call of the engine.
    Call(Box<ToolCall>, Call),
    /// The result: the arguments are wrong.
    Result(Value),
}

impl ToolCall {
    fn new(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            digest: String::new(),
            message: None,
            is_helper: false,
            stage: Stage::Streaming,
            next: None,
            kept: Vec::new(),
            run: None,
            streamed: None,
            tags: Tags::new(),
            skip: Skip::None,
            skipped: 0,
            base: 0,
            position: 0,
            token: None,
            progress: None,
            resumed_from: None,
            deadline: None,
            closes_at: None,
            asked: None,
            state: None,
            reasons: BTreeMap::new(),
            look_at: None,
            error: None,
            losses: Losses::new(),
            awaited_mark: false,
        }
    }

    /// Reads the parameters of a call.
    ///
    /// # Errors
    /// The parameters are wrong, or there is no such tool.
    pub(in super::super) fn decode(shared: &mut SharedState, message: &Message) -> Result<CallStart, Refusal> {
        let Some(name) = message.params.get("name").and_then(Value::as_str) else {
            return Err(RpcError::params("\"name\" must be a string").into());
        };
        let arguments = message.params.get("arguments").unwrap_or(&Value::Null);
        if !arguments.is_object() && !arguments.is_null() {
            return Err(RpcError::params("\"arguments\" must be an object").into());
        }

        let mut call = Self::new(name);
        call.token = message.meta_value("progressToken").filter(|token| is_progress_token(token)).cloned();
        call.set_deadlines(shared);
        let route = std::sync::Arc::clone(&shared.route);
        let started = match route.tools.find(name) {
            Some(ToolRef::Agent(tool)) => call.start(tool, arguments, message, shared)?,
            Some(ToolRef::Answer) => call.start_answer(arguments, message, shared)?,
            Some(ToolRef::Wait) => call.start_wait(arguments, message, shared)?,
            None => return Err(unknown_tool(name).into()),
        };
        match started {
            Ok(first) => Ok(CallStart::Call(Box::new(call), first)),
            Err(error) => {
                let result = tool_error(&shared.result_context(), &error, None);
                Ok(CallStart::Result(result))
            }
        }
    }

    fn start(
        &mut self,
        tool: &AgentTool,
        arguments: &Value,
        message: &Message,
        shared: &SharedState,
    ) -> Result<Result<Call, ToolError>, Refusal> {
        let tasks = tool.settings.tasks;
        if tasks == Tasks::Required && !shared.client.tasks {
            return Err(missing_tasks().into());
        }
        let is_task = shared.client.tasks && matches!(tasks, Tasks::Always | Tasks::Required);
        let after = if is_task { tool.settings.ask_first } else { tool.settings.task_after };
        self.deadline = if shared.client.tasks && tasks != Tasks::Never {
            Some(Deadline { at: later(shared.now, after), with_task: true })
        } else {
            self.wait_limit(shared)
        };
        self.digest = tool.digest(arguments);
        if let Some(resumed) = self.resume_by_state(message, shared)? {
            return Ok(Ok(resumed));
        }

        let input = match tool.input(arguments) {
            Ok(input) => input,
            Err(error) => return Ok(Err(error)),
        };
        let session = match session_of(&input, message) {
            Ok(session) => session,
            Err(error) => return Ok(Err(error)),
        };
        self.message = input.messages.first().map(interlingua_core::model::Message::text);

        let request = AgentRequest { input: input.messages.into(), extra: input.extra, ..AgentRequest::default() };
        let mut run = RunCall::new(tool.agent.clone(), request);
        run.thread = session.clone().map_or(Thread::New, Thread::Session);
        run.answer_policy = crate::forms::answer_policy();
        run.policy = policy(shared);
        run.labels = self.labels();
        if is_task && after.is_zero() {
            run.delivery = Delivery::Background;
            run.policy.detached = true;
            self.stage = Stage::Task;
        }
        if let (Some(session), Some(id)) = (&shared.session, &shared.writer.id) {
            run.tags = session::tags(session, id);
        }
        let run = Box::new(run);
        Ok(Ok(match session {
            // The engine would begin a session with this name.
            Some(session) => {
                self.stage = Stage::Session(run);
                Call::Session(SessionCall::GetPart { session, newest: true, least: 0 })
            }
            None => Call::Run(run),
        }))
    }

    /// The parameters of the call, for a stream that resumes it.
    pub(super) fn labels(&self) -> Json {
        Json::from_serialize(&json!({ "tool": self.tool, "digest": self.digest, "token": self.token }))
    }

    fn start_answer(
        &mut self,
        arguments: &Value,
        message: &Message,
        shared: &SharedState,
    ) -> Result<Result<Call, ToolError>, Refusal> {
        self.is_helper = true;
        self.digest = helper_digest(&self.tool, arguments);
        if let Some(resumed) = self.resume_by_state(message, shared)? {
            return Ok(Ok(resumed));
        }
        Ok(AnswerTool::decode(arguments).map(|(tool, call)| {
            self.stage = Stage::Answer(Box::new(tool));
            call
        }))
    }

    fn start_wait(
        &mut self,
        arguments: &Value,
        message: &Message,
        shared: &SharedState,
    ) -> Result<Result<Call, ToolError>, Refusal> {
        self.is_helper = true;
        self.digest = helper_digest(&self.tool, arguments);
        if let Some(resumed) = self.resume_by_state(message, shared)? {
            return Ok(Ok(resumed));
        }
        Ok(helper_tools::wait(arguments).map(|run| {
            self.stage = Stage::Settle;
            self.skip = Skip::Existing;
            Call::Fetch(Target::Run(run))
        }))
    }

    /// The first call of a repeated call. `None`: the call has no state.
    fn resume_by_state(&mut self, message: &Message, shared: &SharedState) -> Result<Option<Call>, Refusal> {
        if !shared.writer.revision.is_modern() {
            return Ok(None);
        }
        let responses = message.params.get("inputResponses");
        if let Some(responses) = responses {
            let is_map = responses.as_object().is_some_and(|all| all.values().all(Value::is_object));
            if !is_map {
                return Err(RpcError::params("\"inputResponses\" must be an object of objects").into());
            }
        }
        let Some(state) = message.params.get("requestState") else { return Ok(None) };
        let Some(state) = state.as_str() else {
            return Err(RpcError::params("\"requestState\" must be a string").into());
        };
        let state = match StateToken::open(shared.seals(), state, &self.digest, shared.now) {
            Ok(state) => state,
            Err(TokenError::Unavailable(fault)) => return Err(fault.into()),
            Err(TokenError::Expired) => return Err(state_error("STATE_EXPIRED", "requestState has expired").into()),
            Err(TokenError::Invalid) => {
                return Err(state_error("STATE_INVALID", "requestState does not belong to this call").into());
            }
        };
        let call = Call::Fetch(Target::Run(state.run));
        self.stage = Stage::Resume(Box::new(state), responses.cloned());
        Ok(Some(call))
    }

    fn set_deadlines(&mut self, shared: &SharedState) {
        let options = &shared.route.options;
        let with_task = shared.client.tasks && options.tasks != Tasks::Never;
        self.deadline = if with_task {
            Some(Deadline { at: later(shared.now, options.task_after.0), with_task: true })
        } else {
            self.wait_limit(shared)
        };
        if shared.session.is_some() && shared.writer.has_events() {
            self.closes_at = options.stream_for.duration().map(|limit| later(shared.now, limit));
        }
    }

    /// The deadline of a call that does not become a task.
    fn wait_limit(&self, shared: &SharedState) -> Option<Deadline> {
        let options = &shared.route.options;
        let limit = if self.token.is_some() { options.max_wait_with_progress } else { options.max_wait };
        limit.duration().map(|limit| Deadline { at: later(shared.now, limit), with_task: false })
    }

    /// Takes up the stream of a call at an event.
    pub(in super::super) fn take_up(id: &EventId, shared: &SharedState) -> (Self, Call) {
        let mut call = Self::new("");
        call.resumed_from = Some(id.position);
        call.set_deadlines(shared);
        // Its client waits for the response, whatever the time.
        call.deadline = None;
        call.stage = Stage::Streaming;
        (call, Call::Fetch(Target::Run(id.run)))
    }

    /// Reads the parameters of the call from its run.
    pub(in super::super) fn read_labels(&mut self, run: RunId, labels: &Json, shared: &SharedState) -> Call {
        let labels: Value = labels.decode().unwrap_or(Value::Null);
        let text = |name: &str| labels.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (self.tool, self.digest) = (text("tool"), text("digest"));
        self.token = labels.get("token").filter(|token| is_progress_token(token)).cloned();
        self.set_deadlines(shared);
        self.follow(run, Skip::None)
    }
}

/// The rules for the run of a call.
pub(super) fn policy(shared: &SharedState) -> RunPolicy {
    let busy = match shared.route.options.busy {
        Busy::Queue => Queueing::Queue,
        Busy::Refuse => Queueing::Refuse,
    };
    RunPolicy::task()
        .pausing_on(&[])
        .with_busy(busy)
        // In revisions with sessions, a client that disconnects has not cancelled its call.
        .with_detached(!shared.writer.revision.is_modern())
        .with_first_response(FirstResponse::AwaitAgent { timeout: Some(HOLD_BACK) })
}

/// The session that a call continues. `None`: it begins one.
fn session_of(input: &ToolInput, message: &Message) -> Result<Option<String>, ToolError> {
    if input.session.is_some() {
        return Ok(input.session.clone());
    }
    match message.meta_value(SESSION_KEY) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(session)) if (1..=512).contains(&session.len()) => Ok(Some(session.clone())),
        Some(_) => Err(ToolError::new("PARAMETER_VALIDATION", "the session must be a string of 1 to 512 bytes")),
    }
}

fn state_error(code: &str, message: &str) -> RpcError {
    RpcError::params(message).with_data(json!({ "code": code }))
}

/// The digest of a helper tool and its arguments.
fn helper_digest(tool: &str, arguments: &Value) -> String {
    // Objects are sorted by their keys.
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("{tool} {arguments}")))
}

fn later(now: Millis, by: Duration) -> Millis {
    now.saturating_add(Millis::try_from(by.as_millis()).unwrap_or(Millis::MAX))
}
