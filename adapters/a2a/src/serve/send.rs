//! SendMessage and SendStreamingMessage: a new task, or the next turn of one (docs/protocols/a2a.md#operations).
//!
//! A message to a task is parsed for the task's pending items, so the task is loaded first.

use std::borrow::Cow;
use std::time::Duration;

use interlingua_core::call::{Cursor, Delivery, Filter, Reply, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::model::AgentRequest;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::tree::Object;
use interlingua_core::{Call, Extra, Fault, FaultKind, Json, Out, Request, RunId};
use serde::Serialize;

use super::claim::{ClaimStage, MessageClaim};
use super::params::{Params, history_length, task_id};
use super::push::{self, Config};
use super::stream::Streaming;
use super::{A2aExchange, OperationState};
use crate::Route;
use crate::card::{CardBuilder, UpstreamCard};
use crate::decode::input;
use crate::dialect::{Dialect, WireFormat};
use crate::encode::direct::{self, DirectMode};
use crate::encode::task::{self, TaskDetail};
use crate::encode::updates::Updates;
use crate::errors::{self, Problem};
use crate::losses;
use crate::options::{Deduplicate, WhileWorking};
use crate::wire::read::{self, Faults};
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
    stage: Stage,
}

/// Time that a request waits for the agent's first event before the client sees the task
/// (docs/protocols/a2a.md#streams).
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of a context's newest tasks that are searched for a duplicate message.
const MAX_DUPLICATE_SEARCH: usize = 100;

/// The current step of the operation.
enum Stage {
    /// Fetching the agent's own card for its input modes; then this call and stage.
    CheckingModes(Box<(Call, Stage)>),
    /// Searching this many more tasks for a duplicate of the message; then this call and stage.
    FindingDuplicate(Box<(Call, Stage)>, usize),
    /// Claiming the message, so that no other request starts a task for it.
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

/// `configuration`
#[derive(Default)]
struct Settings {
    background: bool,
    history: Option<usize>,
    push: Option<Config>,
    output_modes: Vec<String>,
}

/// Request data for the agent in addition to the message.
#[derive(Serialize)]
struct RequestExtras<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Json>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
}

impl A2aExchange {
    pub(super) fn start_send(
        &mut self,
        streams: bool,
        params: &Params<'_>,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        let form = self.writer.dialect.wire_format();
        let mut faults = Faults::default();
        let object = &params.object;

        let message = match read::field(object, "message") {
            Some(node) => read::message(&node, form, &mut faults),
            None => {
                faults.add(read::missing(object, "message"));
                None
            }
        };
        let metadata = faults.record(read::json_object(object, "metadata")).flatten();

        let settings = match faults.record(read::field(object, "configuration").map(|node| node.object()).transpose()) {
            Some(Some(object)) => Settings::read(&object, self.writer.dialect, request, &mut faults),
            // Without a configuration every dialect blocks.
            _ => Some(Settings::default()),
        };

        if let Some(config) = settings.as_ref().and_then(|settings| settings.push.as_ref()) {
            config.check(&self.route, &mut faults);
        }

        if let Some(context) = message.as_ref().and_then(|message| message.context.as_deref())
            && (context.chars().count() > 256 || context.chars().any(char::is_control))
        {
            let message = "must have at most 256 characters, and no control characters";
            faults.add(Fault::invalid("message.contextId", message));
        }

        faults.check()?;
        let (Some(message), Some(mut settings)) = (message, settings) else {
            return Err(Fault::invalid("message", "is invalid"));
        };

        // Input modes that the route does not configure may come from the agent's own card.
        let modes = match self.route.upstream_card_call() {
            Call::Nothing => None,
            _ if !self.route.options.card.input_modes.is_empty() => None,
            call => Some(call),
        };
        let modes = modes.filter(|_| self.route.options.enforce_input_modes);
        if self.route.options.enforce_input_modes && modes.is_none() {
            self.check_modes(&message, None)?;
        }

        let extras = RequestExtras {
            metadata,
            accepted_output_modes: &settings.output_modes,
            extensions: &self.writer.extensions,
            tenant: self.tenant.as_deref(),
        };
        let extras = Some(Json::from_serialize(&extras)).filter(|json| json.text() != "{}");

        if let Some(task) = &message.task {
            self.writer.task = Some(task.clone().into_owned());
            let id = task_id(task)?;
            let mut operation =
                SendOperation { message, settings, streams, extras, direct: None, stage: Stage::LoadingTask(id) };
            let call = operation.with_lookup(modes, Call::Fetch(Target::Run(id)));
            self.state = OperationState::Send(Box::new(operation));
            return Ok(call);
        }

        let id = request.new_id;
        let push = settings.push.take();
        let direct = push.is_none() && !settings.background;
        let direct = if direct { direct::mode(self.route.options.reply, !streams) } else { None };

        let mut operation = SendOperation { message, settings, streams, extras, direct, stage: Stage::Running };
        let call = self.new_task(&operation, id);
        if streams {
            let message = operation.message.clone();
            self.streaming = Some(Streaming::for_new_task(&self.route, message, operation.settings.history, direct));
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

        let call = self.with_duplicate_search(&mut operation, call);
        let call = operation.with_lookup(modes, call);
        self.state = OperationState::Send(Box::new(operation));
        Ok(call)
    }

    /// Searches for a task with the same message before `call`, if the route deduplicates. A message without a context
    /// cannot be a duplicate.
    fn with_duplicate_search(&self, operation: &mut SendOperation, call: Call) -> Call {
        if self.route.options.deduplicate != Deduplicate::Context || operation.message.context.is_none() {
            return call;
        }

        let duplicate_search = Self::search(operation);
        let stage = std::mem::replace(&mut operation.stage, Stage::Running);
        operation.stage = Stage::FindingDuplicate(Box::new((call, stage)), MAX_DUPLICATE_SEARCH);
        duplicate_search
    }

    fn search(operation: &SendOperation) -> Call {
        Self::duplicate_search(operation, MAX_DUPLICATE_SEARCH, None)
    }

    fn duplicate_search(operation: &SendOperation, limit: usize, cursor: Option<Cursor>) -> Call {
        let session = operation.message.context.as_deref().map(str::to_owned);
        let protocol = Some(crate::NAME.to_owned());
        Call::List(Filter { session, protocol, limit, cursor, ..Filter::default() })
    }

    /// The oldest visible task with the message, and the turn.
    fn find_duplicate<'a>(&self, operation: &SendOperation, runs: &[RunView<'a>]) -> Option<(u32, RunView<'a>)> {
        let visible = runs.iter().filter(|view| self.route.is_visible(**view, &self.agent));
        let mut found = visible.filter_map(|view| Some((input::find_turn(view.run(), &operation.message.id)?, *view)));
        found.next_back()
    }

    /// Starts a turn. A new task of a route that deduplicates is claimed first.
    fn start_task(&self, operation: &mut SendOperation, run: Box<RunCall>) -> Call {
        let is_new = matches!(run.thread, Thread::Session(_));
        if self.route.options.deduplicate != Deduplicate::Context || !is_new {
            return Call::Run(run);
        }

        match MessageClaim::new(&operation.message, run) {
            Ok(claim) => {
                let put = claim.put();
                operation.stage = Stage::Claiming(Box::new(ClaimStage::Putting(claim)));
                put
            }
            Err(run) => Call::Run(run),
        }
    }

    /// Continues while the message is claimed, by this request or another one.
    fn continue_claim(
        &mut self,
        operation: &mut SendOperation,
        stage: ClaimStage,
        reply: Reply<'_>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        let (stage, call) = match (stage, reply) {
            (ClaimStage::Putting(claim), Reply::Done) => (ClaimStage::Verifying(claim, true), Self::search(operation)),
            (ClaimStage::Putting(mut claim), Reply::Documents(found)) => {
                claim.see(found);
                (ClaimStage::Verifying(claim, false), Self::search(operation))
            }
            (ClaimStage::Verifying(mut claim, is_claimed), Reply::Runs(page)) => {
                match (self.find_duplicate(operation, &page.runs), is_claimed) {
                    (Some((turn, view)), false) => return Ok(self.answer_duplicate(operation, turn, view, out)),
                    (Some((turn, view)), true) => (ClaimStage::Withdrawing(view.run().id, turn), claim.delete()),
                    // The stage is `Running` from here on.
                    (None, true) => return Ok(Next::Call(claim.start())),
                    (None, false) => {
                        let wait = claim.wait()?;
                        (ClaimStage::Waiting(claim), wait)
                    }
                }
            }
            (ClaimStage::Waiting(claim), Reply::Done) => {
                let put = claim.put();
                (ClaimStage::Putting(claim), put)
            }
            (ClaimStage::Withdrawing(id, turn), Reply::Done) => {
                (ClaimStage::LoadingDuplicate(turn), Call::Fetch(Target::Run(id)))
            }
            (ClaimStage::LoadingDuplicate(turn), Reply::Run(view)) => {
                return Ok(self.answer_duplicate(operation, turn, view, out));
            }
            _ => return Err(Fault::unexpected_reply()),
        };
        operation.stage = Stage::Claiming(Box::new(stage));
        Ok(Next::Call(call))
    }

    /// Responds to a duplicate message with the task of the first one, or with the rest of its stream.
    fn answer_duplicate(&mut self, operation: &SendOperation, turn: u32, view: RunView<'_>, out: &mut Out) -> Next {
        let is_working = matches!(view.info.state, RunState::Queued | RunState::Running);
        if !operation.streams || !is_working {
            self.streaming = None;
            self.write_task_result(operation, view, None, out);
            return Next::Done;
        }

        let id = operation.message.id.clone().into_owned();
        self.streaming = Some(Streaming::for_next_turn(&self.route, id, turn, operation.settings.history));
        Next::Call(Call::Follow(Target::Run(view.run().id)))
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
        // answers, so an unreachable agent is an error without a task. The wait is short, so the client soon has an id to
        // cancel (docs/protocols/a2a.md#streams).
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
                call
            }
            (Stage::FindingDuplicate(pending_call, left), Reply::Runs(page)) => {
                if let Some((turn, view)) = self.find_duplicate(&operation, &page.runs) {
                    return Ok(self.answer_duplicate(&operation, turn, view, out));
                }

                let left = left.saturating_sub(page.runs.len());
                if let Some(cursor) = page.next.filter(|_| left > 0) {
                    // Pages of large tasks may hold fewer tasks than the limit.
                    operation.stage = Stage::FindingDuplicate(pending_call, left);
                    Self::duplicate_search(&operation, left, Some(cursor))
                } else {
                    let (call, stage) = *pending_call;
                    operation.stage = stage;
                    match call {
                        Call::Run(run) => self.start_task(&mut operation, run),
                        call => call,
                    }
                }
            }
            (Stage::Claiming(stage), reply) => match self.continue_claim(&mut operation, *stage, reply, out)? {
                Next::Call(call) => call,
                Next::Done => return Ok(Next::Done),
            },
            (Stage::LoadingTask(id), Reply::Run(view)) => {
                if self.route.options.deduplicate == Deduplicate::Context
                    && self.route.is_visible(view, &self.agent)
                    && let Some(turn) = input::find_turn(view.run(), &operation.message.id)
                {
                    return Ok(self.answer_duplicate(&operation, turn, view, out));
                }

                let call = self.next_turn(&mut operation, id, view)?;
                match operation.settings.push.take() {
                    None => Call::Run(call),
                    Some(config) => {
                        let list = push::list_call(id);
                        operation.stage = Stage::CountingConfigs(Box::new(config.for_task(id)), call);
                        list
                    }
                }
            }
            (Stage::CountingConfigs(config, call), Reply::Documents(known)) => {
                let config = config.check_room(known, &self.route)?;
                operation.stage = Stage::SavingConfig(call);
                push::put_call(&config)
            }
            (Stage::SavingConfig(call), _) => self.start_task(&mut operation, call),
            (Stage::Running, Reply::Run(view)) => {
                if let Some(message) = operation.direct.and_then(|mode| direct::direct_reply(mode, view)) {
                    // The message is the only result, so the task is deleted.
                    let mut answer = Out::new();
                    self.writer.write_item(&Item::Message(message), &mut answer);
                    operation.stage = Stage::DeletingTask(answer.body.to_vec());
                    let forget = Call::Delete(Target::Run(view.run().id));
                    self.state = OperationState::Send(operation);
                    return Ok(Next::Call(forget));
                }
                losses::note(view.run(), &self.route.options, &mut self.losses);
                self.write_task_result(&operation, view, None, out);
                return Ok(Next::Done);
            }
            (Stage::Running | Stage::LoadingTask(_), Reply::Waiting(view, reason)) => {
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
                self.write_task_result(&operation, view, reason, out);
                return Ok(Next::Done);
            }
            (Stage::DeletingTask(answer), _) => {
                // Set the headers again, then restore the stored body.
                self.writer.result(&Json::null(), out);
                out.body.clear();
                out.write_raw(&answer);
                return Ok(Next::Done);
            }
            _ => return Err(Fault::unexpected_reply()),
        };
        self.state = OperationState::Send(operation);
        Ok(Next::Call(next))
    }

    /// Prepares the next turn of a task. The engine reports messages that decide nothing.
    fn next_turn(
        &mut self,
        operation: &mut SendOperation,
        id: RunId,
        view: RunView<'_>,
    ) -> Result<Box<RunCall>, Fault> {
        self.check_visible(view)?;
        let run = view.run();
        if let Some(context) = &operation.message.context
            && *context != run.session_id
        {
            return Err(Fault::invalid("message.contextId", "is not the context of the task"));
        }

        let waits = matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth);
        if let Some(other) = run.answered_by() {
            let message = format!("the question of the task was already answered by task '{other}'");
            return Err(errors::fault(Problem::UnsupportedOperation, message));
        }

        match view.info.state {
            RunState::Ended(_) => {
                let message = "the task has ended: send a message without taskId in the same context";
                return Err(errors::fault(Problem::UnsupportedOperation, message));
            }
            _ if view.info.protocol != crate::NAME => {
                let message = "the task was started over another protocol and has only one turn: \
                               send a message without taskId in the same context";
                return Err(errors::fault(Problem::UnsupportedOperation, message));
            }
            RunState::Queued | RunState::Running if self.route.options.while_working == WhileWorking::Reject => {
                return Err(errors::fault(Problem::UnsupportedOperation, "the task is working"));
            }
            _ => {}
        }

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

/// Names of the push config in `configuration`, one per dialect.
const PUSH: [&str; 3] = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"];

/// True if a send includes a push config, valid or not.
pub(super) fn wants_push(params: &Params<'_>) -> bool {
    let object = read::field(&params.object, "configuration").and_then(|node| node.object().ok());
    object.is_some_and(|object| PUSH.iter().any(|name| read::field(&object, name).is_some()))
}

impl Settings {
    fn read(object: &Object<'_>, dialect: Dialect, request: &Request<'_>, faults: &mut Faults) -> Option<Self> {
        let now = faults.record(read::boolean(object, "returnImmediately"));
        let blocking = faults.record(read::boolean(object, "blocking"));
        let push = PUSH.iter().find_map(|name| read::field(object, name));
        let push = push.map(|node| Config::read(&node, dialect, request, faults));

        let length = read::integer(object, "historyLength");
        let length = length.and_then(|length| history_length(length, &object.path_of("historyLength")));
        let length = faults.record(length);

        let output_modes = faults.record(read::strings(object, "acceptedOutputModes"));
        // REST 0.3 cannot distinguish false from absent; over JSON-RPC absent means blocking
        // (docs/protocols/a2a.md#waiting-for-the-answer).
        let background = match (dialect.wire_format(), now?, blocking?) {
            (_, Some(now), None) => now,
            (WireFormat::V1, now, blocking) => now.unwrap_or(blocking == Some(false)),
            (WireFormat::V03, _, blocking) => blocking == Some(false),
            (WireFormat::V03Rest, _, blocking) => !blocking.unwrap_or(false),
        };

        let push = match push {
            Some(read) => Some(read?),
            None => None,
        };
        Some(Self { background, history: length?, push, output_modes: output_modes? })
    }
}
