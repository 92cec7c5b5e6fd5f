//! SendMessage and SendStreamingMessage: a new task, or the next turn of one (docs/protocols/a2a.md#operations).
//!
//! A message to a task is parsed for the task's pending items, so the task is loaded first.

mod duplicates;
mod settings;

use std::borrow::Cow;
use std::time::Duration;

use interlingua_core::call::{Delivery, Reply, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::model::AgentRequest;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::{Call, Extra, Fault, FaultKind, Json, Out, Request, RunId};

pub(super) use self::settings::wants_push;
use self::settings::{RequestExtras, SendParams, Settings};
use super::claim::ClaimStage;
use super::params::{Params, task_id};
use super::push::{self, Config};
use super::stream::Streaming;
use super::{A2aExchange, OperationState};
use crate::Route;
use crate::card::{CardBuilder, UpstreamCard};
use crate::decode::input;
use crate::encode::direct::{self, DirectMode};
use crate::encode::task::{self, TaskDetail};
use crate::encode::updates::Updates;
use crate::errors::{self, Problem};
use crate::losses;
use crate::options::{Deduplicate, WhileWorking};
use crate::wire::{Content, Item, Message, Part};

/// A send operation in progress.
pub(super) struct SendOperation {
    message: Message<'static>,
    settings: Settings,
    streams: bool,
    /// The `a2a` field of the agent's request. `None` if it would be empty.
    extras: Option<Json>,
    /// When the reply may be a message instead of a task. `None`: never.
    direct: Option<DirectMode>,
    /// The id of a new task, and of this request's claim of its message.
    new_id: RunId,
    stage: Stage,
}

/// Time that a request waits for the agent's first event before the client sees the task
/// (docs/protocols/a2a.md#streams).
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The current step of the operation.
enum Stage {
    /// Fetching the agent's own card for its input modes; then this call and stage.
    CheckingModes(Box<(Call, Stage)>),
    /// Searching this many more tasks for a duplicate of the message; then this call and stage.
    FindingDuplicate(Box<(Call, Stage)>, usize),
    /// Claiming the message, so that no other request starts a task or a turn for it.
    Claiming(Box<ClaimStage>),
    /// Loading the task that the message names.
    LoadingTask(RunId),
    /// Counting the task's push configs.
    CountingConfigs(Box<Config>, Box<RunCall>),
    /// Storing the push config.
    SavingConfig(Box<RunCall>),
    /// The agent is running.
    Running,
    /// Deleting the task; this message is the response instead.
    DeletingTask(Vec<u8>),
}

impl SendOperation {
    /// Path of the part that most likely holds the answer to a pending item.
    pub(super) fn answer_path(&self) -> String {
        let parts = &self.message.parts;
        let mut data = (0..parts.len()).filter(|index| matches!(parts[*index].content, Content::Data(_)));
        match (data.next(), data.next(), parts.len()) {
            (Some(index), None, _) => format!("message.parts[{index}]"),
            (None, _, 1) => "message.parts[0]".to_owned(),
            _ => "message.parts".to_owned(),
        }
    }

    /// Runs `lookup` before `call`, if there is one.
    fn with_lookup(&mut self, lookup: Option<Call>, call: Call) -> Call {
        let Some(lookup) = lookup else { return call };
        let stage = std::mem::replace(&mut self.stage, Stage::Running);
        self.stage = Stage::CheckingModes(Box::new((call, stage)));
        lookup
    }
}

impl A2aExchange {
    pub(super) fn start_send(
        &mut self,
        streams: bool,
        params: &Params<'_>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        let SendParams { message, metadata, settings } =
            SendParams::read(params, &self.route, self.writer.dialect, request)?;
        let modes = self.modes_lookup(&message)?;

        let extras = RequestExtras {
            metadata,
            accepted_output_modes: &settings.output_modes,
            extensions: &self.writer.extensions,
            tenant: self.tenant.as_deref(),
        };
        let extras = Some(Json::from_serialize(&extras)).filter(|json| json.text() != "{}");

        let (direct, new_id, stage) = (None, request.new_id, Stage::Running);
        let mut operation = SendOperation { message, settings, streams, extras, direct, new_id, stage };
        let call = if let Some(task) = operation.message.task.clone() {
            self.writer.task = Some(task.clone().into_owned());
            let id = task_id(&task)?;
            operation.stage = Stage::LoadingTask(id);
            Call::Fetch(Target::Run(id))
        } else {
            self.start_new_task(&mut operation)
        };
        let call = operation.with_lookup(modes, call);
        self.state = OperationState::Send(Box::new(operation));
        Ok(call)
    }

    /// The call that fetches the agent's own card for its input modes, if the route enforces input modes and does not
    /// configure any. Configured modes are checked at once.
    fn modes_lookup(&self, message: &Message<'_>) -> Result<Option<Call>, Fault> {
        if !self.route.options.enforce_input_modes {
            return Ok(None);
        }

        match self.route.upstream_card_call() {
            call if !matches!(call, Call::Nothing) && self.route.options.card.input_modes.is_empty() => Ok(Some(call)),
            _ => self.check_modes(message, None).map(|()| None),
        }
    }

    /// Starts a task, with its push config, after a search for a duplicate of its message.
    fn start_new_task(&mut self, operation: &mut SendOperation) -> Call {
        let id = operation.new_id;
        let push = operation.settings.push.take();
        if push.is_none() && !operation.settings.background {
            operation.direct = direct::mode(self.route.options.reply, !operation.streams);
        }

        let call = self.new_task(operation, id);
        if operation.streams {
            let (message, history) = (operation.message.clone(), operation.settings.history);
            self.streaming = Some(Streaming::for_new_task(&self.route, message, history, operation.direct));
        }

        let call = match push {
            None => Call::Run(Box::new(call)),
            Some(config) => {
                // The receiver gets the task before any other event.
                let policy = call.policy.with_first_response(FirstResponse::Immediate);
                let call = RunCall { policy, ..call };
                operation.stage = Stage::SavingConfig(Box::new(call));
                push::put_call(&config.for_task(id))
            }
        };
        self.with_duplicate_search(operation, call)
    }

    fn check_modes(&self, message: &Message<'_>, upstream: Option<&UpstreamCard>) -> Result<(), Fault> {
        let Route { agents, options, schemes, .. } = &*self.route;
        let material = CardBuilder { agent: &agents[0], options, schemes, extended: None, upstream };
        let modes = material.input_modes();
        for (index, part) in message.parts.iter().enumerate() {
            // A part without a media type is always accepted.
            let Some(media) = part.media_type.as_deref() else { continue };
            let essence = media.split(';').next().unwrap_or("").trim();
            let family = essence.split('/').next().unwrap_or("");
            // Many cards write `text` and mean `text/*`.
            let fits = |mode: &str| {
                mode == "*/*" || mode.eq_ignore_ascii_case(essence) || mode.strip_suffix("/*").unwrap_or(mode) == family
            };
            if !modes.iter().any(|mode| fits(mode)) {
                let message = format!("'{media}' of message.parts[{index}] is not one of the input modes");
                // The media type of a part, not of the body: 400 instead of 415.
                return Err(errors::fault(Problem::ContentType, message).with_field(format!("message.parts[{index}]")));
            }
        }
        Ok(())
    }

    fn run_call(&self, operation: &SendOperation, input: Vec<interlingua_core::model::Message>) -> RunCall {
        let mut extra = Extra::new();
        if let Some(extras) = &operation.extras {
            extra.push("a2a", extras.clone());
        }

        let options = &self.route.options;
        let mut call =
            RunCall::new(self.agent.clone(), AgentRequest { input: input.into(), extra, ..AgentRequest::default() });
        call.delivery = match (operation.streams, operation.settings.background) {
            (true, _) => Delivery::Stream,
            (false, true) => Delivery::Background,
            (false, false) => Delivery::Collect,
        };

        // A task outlives its connection (docs/protocols/a2a.md#tasks-and-contexts). The client sees it when the agent
        // answers, so an unreachable agent is an error without a task. The wait is short, so the client soon has an id
        // to cancel (docs/protocols/a2a.md#streams).
        call.policy = RunPolicy::task()
            .with_first_response(FirstResponse::AwaitAgent { timeout: Some(FIRST_EVENT_TIMEOUT) })
            .with_collect_timeout(options.blocking_timeout.0)
            .pausing_on(self.route.pausing_ends());
        call.answer_policy.ttl = Some(options.interrupted_ttl.0);
        call
    }

    fn new_task(&self, operation: &SendOperation, id: RunId) -> RunCall {
        let parsed = input::parse(&operation.message, &[], self.route.decisions);
        let mut call = self.run_call(operation, parsed.messages);
        call.id = Some(id);

        call.thread = match &operation.message.context {
            Some(context) => Thread::Session(context.clone().into_owned()),
            None => Thread::New,
        };
        call.answers = parsed.answers;
        call
    }

    /// Continues a send with the engine's reply.
    pub(super) fn continue_send(
        &mut self,
        mut operation: Box<SendOperation>,
        reply: Reply<'_>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        let next = match (std::mem::replace(&mut operation.stage, Stage::Running), reply) {
            (Stage::CheckingModes(pending_call), Reply::FetchedDocument(fetched)) => {
                let upstream = fetched.map(|fetched| UpstreamCard::from_stored(&fetched.document));
                self.check_modes(&operation.message, upstream.as_ref())?;
                let (call, stage) = *pending_call;
                operation.stage = stage;
                Next::Call(call)
            }
            (Stage::FindingDuplicate(pending_call, left), Reply::Runs(page)) => {
                self.continue_duplicate_search(&mut operation, pending_call, left, &page, out)
            }
            (Stage::Claiming(stage), reply) => self.continue_claim(&mut operation, *stage, reply, out)?,
            (Stage::LoadingTask(id), Reply::Run(view)) => self.continue_task(&mut operation, id, view, out)?,
            (Stage::CountingConfigs(config, call), Reply::Documents(known)) => {
                let config = config.check_room(known, &self.route)?;
                operation.stage = Stage::SavingConfig(call);
                Next::Call(push::put_call(&config))
            }
            (Stage::SavingConfig(call), _) => Next::Call(self.start_task(&mut operation, call)),
            (Stage::Running, Reply::Run(view)) => self.write_result(&mut operation, view, out),
            (Stage::Running | Stage::LoadingTask(_), Reply::Waiting(view, reason)) => {
                self.write_waiting(&operation, view, reason, out)?
            }
            (Stage::DeletingTask(answer), _) => {
                // Set the headers again, then restore the stored body.
                self.writer.result(&Json::null(), out);
                out.body.clear();
                out.write_raw(&answer);
                Next::Done
            }
            _ => return Err(Fault::unexpected_reply()),
        };

        if matches!(next, Next::Call(_)) {
            self.state = OperationState::Send(operation);
        }
        Ok(next)
    }

    /// Starts the next turn of a loaded task, or responds to a duplicate of one of its messages.
    fn continue_task(
        &mut self,
        operation: &mut SendOperation,
        id: RunId,
        view: RunView<'_>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        if self.route.options.deduplicate == Deduplicate::Context
            && self.route.is_visible(view, &self.agent)
            && let Some(turn) = input::find_turn(view.run(), &operation.message.id)
        {
            return Ok(self.answer_duplicate(operation, turn, view, out));
        }

        let call = self.next_turn(operation, id, view)?;
        Ok(Next::Call(match operation.settings.push.take() {
            None => self.start_task(operation, call),
            Some(config) => {
                operation.stage = Stage::CountingConfigs(Box::new(config.for_task(id)), call);
                push::list_call(id)
            }
        }))
    }

    /// Writes the response to a turn that is over: the task, or a message instead of it.
    fn write_result(&mut self, operation: &mut SendOperation, view: RunView<'_>, out: &mut Out) -> Next {
        if let Some(message) = operation.direct.and_then(|mode| direct::direct_reply(mode, view)) {
            // The message is the only result, so the task is deleted.
            let mut answer = Out::new();
            self.writer.write_item(&Item::Message(message), &mut answer);
            operation.stage = Stage::DeletingTask(answer.body.to_vec());
            return Next::Call(Call::Delete(Target::Run(view.run().id)));
        }

        losses::note(view.run(), &self.route.options, &mut self.losses);
        self.write_task_result(operation, view, None, out);
        Next::Done
    }

    /// Responds to a message that leaves the task waiting.
    fn write_waiting(
        &mut self,
        operation: &SendOperation,
        view: RunView<'_>,
        reason: Option<&str>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        // A message without a task id needs a new task, which the waiting context does not allow. It is not an
        // answer to the waiting task either, since it does not name it.
        if operation.message.task.is_none() {
            let waiting_task = view.run().id.to_string();
            let message = format!(
                "the context is waiting for an answer to task '{waiting_task}': send the message with that taskId"
            );
            self.writer.task = Some(waiting_task);
            return Err(Fault::new(FaultKind::Waiting, message));
        }

        self.write_task_result(operation, view, reason, out);
        Ok(Next::Done)
    }

    /// Prepares the next turn of a task. The engine reports messages that decide nothing.
    pub(super) fn next_turn(
        &mut self,
        operation: &mut SendOperation,
        id: RunId,
        view: RunView<'_>,
    ) -> Result<Box<RunCall>, Fault> {
        self.check_next_turn(operation, view)?;

        let run = view.run();
        let waits = matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth);
        operation.message.context = Some(Cow::Owned(run.session_id.clone()));
        let pending = if waits { view.pending } else { &[] };
        if waits {
            input::check_outputs(&operation.message, pending)?;
        }
        let parsed = input::parse(&operation.message, pending, self.route.decisions);
        // An unreachable upstream leaves the task unchanged, and the client gets the error
        // (docs/protocols/a2a.md#errors).
        let mut call = self.run_call(operation, parsed.messages);
        call.thread = Thread::Continue(id);
        call.answers = parsed.answers;
        if operation.streams {
            let id = operation.message.id.clone().into_owned();
            let turn = u32::try_from(run.turns.len()).unwrap_or(u32::MAX);
            self.streaming = Some(Streaming::for_next_turn(&self.route, id, turn, operation.settings.history));
        }

        Ok(Box::new(call))
    }

    /// Refuses a message to a task that takes no further turn, or to a task of another context.
    fn check_next_turn(&self, operation: &SendOperation, view: RunView<'_>) -> Result<(), Fault> {
        self.check_visible(view)?;
        let run = view.run();
        if let Some(context) = &operation.message.context
            && *context != run.session_id
        {
            return Err(Fault::invalid("message.contextId", "is not the context of the task"));
        }

        if let Some(other) = run.answered_by() {
            let message = format!("the question of the task was already answered by task '{other}'");
            return Err(errors::fault(Problem::UnsupportedOperation, message));
        }

        match view.info.state {
            RunState::Ended(_) => {
                let message = "the task has ended: send a message without taskId in the same context";
                Err(errors::fault(Problem::UnsupportedOperation, message))
            }
            _ if view.info.protocol != crate::NAME => {
                let message = "the task was started over another protocol and has only one turn: \
                               send a message without taskId in the same context";
                Err(errors::fault(Problem::UnsupportedOperation, message))
            }
            RunState::Queued | RunState::Running if self.route.options.while_working == WhileWorking::Reject => {
                Err(errors::fault(Problem::UnsupportedOperation, "the task is working"))
            }
            _ => Ok(()),
        }
    }

    /// Writes the task as the result of the send. `reason`: why it asks its question again.
    fn write_task_result(&self, operation: &SendOperation, view: RunView<'_>, reason: Option<&str>, out: &mut Out) {
        let mut updates = Updates::new(&self.route);
        let mut task = task::task(&mut updates, &self.route, view, TaskDetail::full(operation.settings.history));
        if let (Some(reason), Some(question)) = (reason, &mut task.status.message) {
            // Another message than the first question: an id has one content.
            let id = format!("{}_asks_again_{}", view.run().id.to_prefixed("status_"), view.run().turns.len());
            question.id = Cow::Owned(id);
            question.parts.insert(0, Part::text(reason));
        }
        let item = Item::Task(task);
        if operation.streams { self.writer.write_single_item(&item, out) } else { self.writer.write_item(&item, out) }
    }
}
