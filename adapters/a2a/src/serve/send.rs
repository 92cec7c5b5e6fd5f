//! SendMessage and SendStreamingMessage: a new task, or the next turn of one (sections 6 to 8 and 14).
//!
//! A message on a task is read in the light of what the task waits for, so the task is looked at first.

use std::borrow::Cow;
use std::time::Duration;

use interlingua_core::call::{Cursor, Delivery, Filter, Reply, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::model::AgentRequest;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::tree::Object;
use interlingua_core::{Call, Extra, Fault, FaultKind, Json, Out, Request, RunId};
use serde::Serialize;

use super::params::{Params, history_length, task_id};
use super::push::{self, Config};
use super::stream::Streaming;
use super::{Doing, Serve};
use crate::card::{Material, Upstream};
use crate::dialect::{Dialect, Form};
use crate::direct::{self, Mode};
use crate::errors::{self, Problem};
use crate::input;
use crate::options::{Deduplicate, WhileWorking};
use crate::task::{self, Shown};
use crate::updates::Updates;
use crate::wire::read::{self, Faults};
use crate::wire::{Content, Item, Message};

/// A message on its way.
pub(super) struct Sending {
    message: Message<'static>,
    settings: Settings,
    streams: bool,
    /// What the agent is told besides.
    besides: Option<Json>,
    /// Whether the answer may be a message instead of a task.
    direct: Option<Mode>,
    step: Step,
}

/// How long a stream waits for the agent's first word before the task is shown (section 13).
const SOON: Duration = Duration::from_secs(1);

/// Among so many of a context's tasks, the newest, a message is looked for that is sent again.
const NEWEST: usize = 100;

/// How far it is.
enum Step {
    /// The media types of the agent's own card are being looked up, before this call and this step.
    Judging(Box<(Call, Step)>),
    /// A task that was made of the same message is looked for, before this call and this step, among so many more.
    Searching(Box<(Call, Step)>, usize),
    /// The task it is for is being looked at.
    Looking(RunId),
    /// The task's push configs are being counted.
    Counting(Box<Config>, Box<RunCall>),
    /// The push config is being written down.
    Remembering(Box<RunCall>),
    /// The agent is asked.
    Asked,
    /// The task is being forgotten: this is the answer in its place.
    Forgetting(Vec<u8>),
}

impl Sending {
    /// Where the answer to what a task waits for stands, as far as that can be told from the message alone.
    pub(super) fn answer_path(&self) -> String {
        let parts = &self.message.parts;
        let mut data = (0..parts.len()).filter(|place| matches!(parts[*place].content, Content::Data(_)));
        match (data.next(), data.next(), parts.len()) {
            (Some(place), None, _) => format!("message.parts[{place}]"),
            (None, _, 1) => "message.parts[0]".to_owned(),
            _ => "message.parts".to_owned(),
        }
    }

    /// Puts a lookup in front of a call, if there is one.
    fn after(&mut self, lookup: Option<Call>, call: Call) -> Call {
        let Some(lookup) = lookup else { return call };
        let step = std::mem::replace(&mut self.step, Step::Asked);
        self.step = Step::Judging(Box::new((call, step)));
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

/// What goes to the agent beside the message.
#[derive(Serialize)]
struct Besides<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Json>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
}

impl Serve {
    pub(super) fn send(&mut self, streams: bool, params: &Params<'_>, request: &Request<'_>) -> Result<Call, Fault> {
        let form = self.write.dialect.form();
        let mut faults = Faults::default();
        let object = &params.object;
        let message = match read::field(object, "message") {
            Some(node) => read::message(&node, form, &mut faults),
            None => {
                faults.add(read::missing(object, "message"));
                None
            }
        };
        let metadata = faults.take(read::json_object(object, "metadata")).flatten();
        let settings = match faults.take(read::field(object, "configuration").map(|node| node.object()).transpose()) {
            Some(Some(object)) => Settings::read(&object, self.write.dialect, request, &mut faults),
            // Without a configuration every dialect waits.
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
            return Err(Fault::invalid("message", "cannot be read"));
        };
        // Where the route does not say it, the agent's own card may.
        let modes = match self.route.card_call() {
            Call::Nothing => None,
            _ if !self.route.options.card.input_modes.is_empty() => None,
            call => Some(call),
        };
        let modes = modes.filter(|_| self.route.options.enforce_input_modes);
        if self.route.options.enforce_input_modes && modes.is_none() {
            self.check_modes(&message, None)?;
        }
        let besides = Besides {
            metadata,
            accepted_output_modes: &settings.output_modes,
            extensions: &self.write.extensions,
            tenant: self.tenant.as_deref(),
        };
        let besides = Some(Json::from_serialize(&besides)).filter(|json| json.text() != "{}");
        if let Some(task) = &message.task {
            self.write.task = Some(task.clone().into_owned());
            let id = task_id(task)?;
            let mut sending = Sending { message, settings, streams, besides, direct: None, step: Step::Looking(id) };
            let call = sending.after(modes, Call::Fetch(Target::Run(id)));
            self.doing = Doing::Send(Box::new(sending));
            return Ok(call);
        }
        let id = request.fresh;
        let push = settings.push.take();
        let direct = push.is_none() && !settings.background;
        let direct = if direct { direct::mode(self.route.options.reply, !streams) } else { None };
        let mut sending = Sending { message, settings, streams, besides, direct, step: Step::Asked };
        let call = self.new_task(&sending, id);
        if streams {
            let shown = sending.message.clone();
            self.streaming = Some(Streaming::sent(&self.route, shown, sending.settings.history, direct));
        }
        let call = match push {
            None => Call::Run(Box::new(call)),
            Some(config) => {
                // Its receiver is shown the task before anything else happens.
                let policy = call.policy.with_first_response(FirstResponse::Immediate);
                let call = RunCall { policy, ..call };
                sending.step = Step::Remembering(Box::new(call));
                push::put(&config.on(id))
            }
        };
        let call = self.searching(&mut sending, call);
        let call = sending.after(modes, call);
        self.doing = Doing::Send(Box::new(sending));
        Ok(call)
    }

    /// Puts the search for an earlier task of the same message in front of a call, where that is wanted. A message
    /// that names no context cannot be in one already.
    fn searching(&self, sending: &mut Sending, call: Call) -> Call {
        if self.route.options.deduplicate != Deduplicate::Context || sending.message.context.is_none() {
            return call;
        }
        let search = Self::search(sending, NEWEST, None);
        let step = std::mem::replace(&mut sending.step, Step::Asked);
        sending.step = Step::Searching(Box::new((call, step)), NEWEST);
        search
    }

    fn search(sending: &Sending, limit: usize, cursor: Option<Cursor>) -> Call {
        let session = sending.message.context.as_deref().map(str::to_owned);
        let protocol = Some(crate::NAME.to_owned());
        Call::List(Filter { session, protocol, limit, cursor, ..Filter::default() })
    }

    /// Answers a message that was said before: with what it came to, or comes to.
    fn said_again(&mut self, sending: &Sending, turn: u32, view: RunView<'_>, out: &mut Out) -> Next {
        let works = matches!(view.about.state, RunState::Queued | RunState::Running);
        if !sending.streams || !works {
            self.streaming = None;
            self.write_sent(sending, view, out);
            return Next::Done;
        }
        let id = sending.message.id.clone().into_owned();
        self.streaming = Some(Streaming::continued(&self.route, id, turn, sending.settings.history));
        Next::Call(Call::Attach(Target::Run(view.run().id)))
    }

    fn check_modes(&self, message: &Message<'_>, upstream: Option<&Upstream>) -> Result<(), Fault> {
        let material =
            Material { agent: &self.route.agents[0], options: &self.route.options, extended: None, upstream };
        let modes = material.input_modes();
        for (place, part) in message.parts.iter().enumerate() {
            // What names no type has none that could be wrong.
            let Some(media) = part.media_type.as_deref() else { continue };
            let essence = media.split(';').next().unwrap_or("").trim();
            let family = essence.split('/').next().unwrap_or("");
            // Many cards write `text` where `text/*` is meant.
            let fits = |mode: &str| {
                mode == "*/*" || mode.eq_ignore_ascii_case(essence) || mode.strip_suffix("/*").unwrap_or(mode) == family
            };
            if !modes.iter().any(|mode| fits(mode)) {
                let message = format!("'{media}' of message.parts[{place}] is none of the input modes");
                // Of a part, not of the body: 400 and no 415.
                return Err(errors::fault(Problem::ContentType, message).with_field(format!("message.parts[{place}]")));
            }
        }
        Ok(())
    }

    fn call(&self, sending: &Sending, input: Vec<interlingua_core::model::Message>) -> RunCall {
        let mut extra = Extra::new();
        if let Some(besides) = &sending.besides {
            extra.push("a2a", besides.clone());
        }
        let options = &self.route.options;
        let mut call =
            RunCall::new(self.agent.clone(), AgentRequest { input: input.into(), extra, ..AgentRequest::default() });
        call.delivery = match (sending.streams, sending.settings.background) {
            (true, _) => Delivery::Stream,
            (false, true) => Delivery::Background,
            (false, false) => Delivery::Collect,
        };
        // A task does not depend on its connection (section 8, rule 5). It is shown once its agent answers, so that one
        // that cannot be reached is an error and no task; but soon, so that the client knows what to cancel (sections 10
        // and 13).
        call.policy = RunPolicy::task()
            .with_first_response(FirstResponse::AwaitAgent { timeout: Some(SOON) })
            .with_collect_timeout(options.blocking_timeout)
            .pausing_on(self.route.waits_after());
        call.answer_policy.ttl = Some(options.interrupted_ttl);
        call
    }

    fn new_task(&self, sending: &Sending, id: RunId) -> RunCall {
        let meaning = input::meaning(&sending.message, &[], self.route.edits);
        let mut call = self.call(sending, meaning.messages);
        call.id = Some(id);
        call.thread = match &sending.message.context {
            Some(context) => Thread::Session(context.clone().into_owned()),
            None => Thread::New,
        };
        call.answers = meaning.answers;
        call
    }

    /// What becomes of a message on its way when the engine has answered.
    pub(super) fn sent(&mut self, mut sending: Box<Sending>, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let next = match (std::mem::replace(&mut sending.step, Step::Asked), reply) {
            (Step::Judging(held), Reply::FetchedDocument(published)) => {
                let upstream = published.map(|published| Upstream::read(&published.document));
                self.check_modes(&sending.message, upstream.as_ref())?;
                let (call, step) = *held;
                sending.step = step;
                call
            }
            (Step::Searching(held, left), Reply::Runs(page)) => {
                let earlier = page.runs.iter().filter(|view| self.route.shows(**view, &self.agent));
                let mut earlier =
                    earlier.filter_map(|view| Some((input::turn_of(view.run(), &sending.message.id)?, *view)));
                if let Some((turn, view)) = earlier.next_back() {
                    return Ok(self.said_again(&sending, turn, view, out));
                }
                let left = left.saturating_sub(page.runs.len());
                if let Some(cursor) = page.next.filter(|_| left > 0) {
                    // Pages of large tasks are short.
                    sending.step = Step::Searching(held, left);
                    Self::search(&sending, left, Some(cursor))
                } else {
                    let (call, step) = *held;
                    sending.step = step;
                    call
                }
            }
            (Step::Looking(id), Reply::Run(view)) => {
                if self.route.options.deduplicate == Deduplicate::Context
                    && self.route.shows(view, &self.agent)
                    && let Some(turn) = input::turn_of(view.run(), &sending.message.id)
                {
                    return Ok(self.said_again(&sending, turn, view, out));
                }
                let call = self.next_turn(&mut sending, id, view)?;
                match sending.settings.push.take() {
                    None => Call::Run(call),
                    Some(config) => {
                        let list = push::list(id);
                        sending.step = Step::Counting(Box::new(config.on(id)), call);
                        list
                    }
                }
            }
            (Step::Counting(config, call), Reply::Documents(known)) => {
                let config = config.among(known, &self.route)?;
                sending.step = Step::Remembering(call);
                push::put(&config)
            }
            (Step::Remembering(call), _) => Call::Run(call),
            (Step::Asked, Reply::Run(view)) => {
                if let Some(message) = sending.direct.and_then(|mode| direct::reply(mode, view)) {
                    // Nobody has to find it as a task: its answer is this one.
                    let mut answer = Out::new();
                    self.write.whole(&Item::Message(message), &mut answer);
                    sending.step = Step::Forgetting(answer.body.to_vec());
                    let forget = Call::Delete(Target::Run(view.run().id));
                    self.doing = Doing::Send(sending);
                    return Ok(Next::Call(forget));
                }
                self.write_sent(&sending, view, out);
                return Ok(Next::Done);
            }
            (Step::Asked | Step::Looking(_), Reply::Waiting(view)) => {
                // A message without a task makes one, which is not possible now; it is none for the task that waits, which
                // it does not name.
                if sending.message.task.is_none() {
                    let asking = view.run().id.to_string();
                    let message =
                        format!("the context waits for an answer to what task '{asking}' asks: name that task");
                    self.write.task = Some(asking);
                    return Err(Fault::new(FaultKind::Waiting, message));
                }
                self.write_sent(&sending, view, out);
                return Ok(Next::Done);
            }
            (Step::Forgetting(answer), _) => {
                // The head anew, the body as it was.
                self.write.result(&Json::null(), out);
                out.body.clear();
                out.write_raw(&answer);
                return Ok(Next::Done);
            }
            _ => return Err(super::write::unexpected()),
        };
        self.doing = Doing::Send(sending);
        Ok(Next::Call(next))
    }

    /// The next turn of a task. A message that decides nothing leaves it as it is: the engine says so.
    fn next_turn(&mut self, sending: &mut Sending, id: RunId, view: RunView<'_>) -> Result<Box<RunCall>, Fault> {
        self.visible(view)?;
        let run = view.run();
        if let Some(context) = &sending.message.context
            && *context != run.session_id
        {
            return Err(Fault::invalid("message.contextId", "is not the context of the task"));
        }
        let waits = matches!(view.about.state, RunState::Waiting | RunState::WaitingForAuth);
        if let Some(other) = run.answered_by() {
            let message = format!("what the task asked was answered already, by task '{other}'");
            return Err(errors::fault(Problem::UnsupportedOperation, message));
        }
        match view.about.state {
            RunState::Ended(_) => {
                let message = "the task has ended: send a message without taskId in the same context";
                return Err(errors::fault(Problem::UnsupportedOperation, message));
            }
            _ if view.about.protocol != crate::NAME => {
                let message = "the task was begun over another protocol and has one turn: \
                               send a message without taskId in the same context";
                return Err(errors::fault(Problem::UnsupportedOperation, message));
            }
            RunState::Queued | RunState::Running if self.route.options.while_working == WhileWorking::Reject => {
                return Err(errors::fault(Problem::UnsupportedOperation, "the task is working"));
            }
            _ => {}
        }
        sending.message.context = Some(Cow::Owned(run.session_id.clone()));
        let pending = if waits { view.pending } else { &[] };
        if waits {
            input::check_outputs(&sending.message, pending)?;
        }
        let meaning = input::meaning(&sending.message, pending, self.route.edits);
        // An upstream that cannot be reached leaves the task as it is, and the client learns of it (section 10).
        let mut call = self.call(sending, meaning.messages);
        call.thread = Thread::Continue(id);
        call.answers = meaning.answers;
        if sending.streams {
            let id = sending.message.id.clone().into_owned();
            let turn = u32::try_from(run.turns.len()).unwrap_or(u32::MAX);
            self.streaming = Some(Streaming::continued(&self.route, id, turn, sending.settings.history));
        }
        Ok(Box::new(call))
    }

    /// Writes the task as what the message is answered with.
    fn write_sent(&self, sending: &Sending, view: RunView<'_>, out: &mut Out) {
        let mut updates = Updates::new(&self.route);
        let task = task::task(&mut updates, &self.route, view, Shown::all(sending.settings.history));
        let item = Item::Task(task);
        if sending.streams { self.write.only_item(&item, out) } else { self.write.whole(&item, out) }
    }
}

/// Where a push config stands in a `configuration`: once in each dialect.
const PUSH: [&str; 3] = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"];

/// Whether a message comes with a push config, faulty or not.
pub(super) fn wants_push(params: &Params<'_>) -> bool {
    let object = read::field(&params.object, "configuration").and_then(|node| node.object().ok());
    object.is_some_and(|object| PUSH.iter().any(|name| read::field(&object, name).is_some()))
}

impl Settings {
    fn read(object: &Object<'_>, dialect: Dialect, request: &Request<'_>, faults: &mut Faults) -> Option<Self> {
        let now = faults.take(read::boolean(object, "returnImmediately"));
        let blocking = faults.take(read::boolean(object, "blocking"));
        let push = PUSH.iter().find_map(|name| read::field(object, name));
        let push = push.map(|node| Config::read(&node, dialect, request, faults));
        let length = read::integer(object, "historyLength");
        let length = length.and_then(|length| history_length(length, &object.path_of("historyLength")));
        let length = faults.take(length);
        let output_modes = faults.take(read::strings(object, "acceptedOutputModes"));
        // Over REST 0.3 false is absence; over JSON-RPC absence means to wait (section 6).
        let background = match (dialect.form(), now?, blocking?) {
            (_, Some(now), None) => now,
            (Form::V1, now, blocking) => now.unwrap_or(blocking == Some(false)),
            (Form::V03, _, blocking) => blocking == Some(false),
            (Form::V03Rest, _, blocking) => !blocking.unwrap_or(false),
        };
        let push = match push {
            Some(read) => Some(read?),
            None => None,
        };
        Some(Self { background, history: length?, push, output_modes: output_modes? })
    }
}
