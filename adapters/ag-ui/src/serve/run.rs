//! `POST`: one run, and its stream (docs/protocols/ag-ui.md#transport).
//!
//! Before the agent is called, the thread's latest run is loaded: it says what the client knows.

use std::sync::Arc;

use interlingua_core::answer::Answer;
use interlingua_core::call::{Busy as BusyPolicy, Otherwise, Resent, RunView, SessionCall, Target};
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::loss::Loss;
use interlingua_core::model::AgentRequest;
use interlingua_core::out::Head;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{Call, Exchange, Extra, Fault, Json, Out, Reply, Request, RunCall, RunPolicy, Step, Thread};

use super::encode::{Encoder, snapshot};
use super::options::{Busy, History, Start};
use super::replay::Search;
use super::request::{RunInput, answer_body};
use super::thread::{self, ClientKnowledge, Judge};
use super::writer::Format;
use super::{Route, fault};

/// One request and its stream.
pub(super) struct StartRun {
    route: Arc<Route>,
    encoder: Encoder,
    phase: Phase,
    now: u64,
    /// The request answers interrupts.
    has_answers: bool,
    /// One of them has expired.
    has_expired: bool,
    /// The client has sent nothing that the thread does not know.
    is_repeated: bool,
}

/// The lookup before the run.
enum Phase {
    /// The thread's latest run.
    Latest(Box<RunInput>),
    /// The conversation, for a client that receives all of it.
    Conversation(Box<RunCall>),
    /// The run whose stream broke off.
    Search(Search),
    /// Nothing more.
    Run,
}

impl StartRun {
    pub(super) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            encoder: Encoder::new(route),
            phase: Phase::Run,
            now: 0,
            has_answers: false,
            has_expired: false,
            is_repeated: false,
        }
    }

    /// The call that starts the run. `latest`: the thread's latest run, if the thread is known.
    fn run_call(&mut self, mut input: RunInput, latest: Option<&RunView<'_>>) -> Box<RunCall> {
        let options = &self.route.options;
        let latest = latest.filter(|view| view.run().agent == self.route.agent.name);
        let mut known = latest.map(ClientKnowledge::after).unwrap_or_default();
        let judge = Judge::new(&input);
        let has_failed = latest.is_some_and(|view| thread::has_failed(view.run()));
        let split = thread::split(&mut input, &mut known, has_failed);
        self.is_repeated = split.is_repeated;
        self.encoder.labels.known = known;

        let mut answers = std::mem::take(&mut input.resume);
        if let Some(view) = latest {
            self.has_expired = has_expired(&answers, view.pending, self.now);
            answers.extend(older_answer(&mut input, &answers, view.pending));
        }
        self.has_answers = !answers.is_empty();

        let mut request = AgentRequest { input: split.new.into(), ..AgentRequest::default() };
        request.tools = input.tools;
        request.extra = input.extra;
        request.user_id = input.user;

        let mut run = RunCall::new(&self.route.agent.name, request);
        run.thread = match options.history {
            History::Client => Thread::Resent(Box::new(Resent {
                session: Some(input.thread),
                otherwise: Otherwise::BeginAgain,
                ..Resent::new(split.history, Arc::new(judge))
            })),
            History::Delta | History::Gateway => Thread::Session(input.thread),
        };
        run.answers = answers;
        run.answer_policy = self.route.answer_policy();
        let policy = RunPolicy::attached().with_busy(match options.busy {
            Busy::Refuse => BusyPolicy::Refuse,
            Busy::Queue => BusyPolicy::Queue,
        });
        run.policy = match options.start {
            Start::Immediate => policy.with_first_response(FirstResponse::Immediate),
            Start::OnUpstream => policy,
        };
        run.labels = self.encoder.labels.to_json();
        Box::new(run)
    }

    /// The first call: for the conversation if the client receives it, else for the run.
    fn prepare(&mut self, run: Box<RunCall>) -> Call {
        if !self.encoder.shows_conversation() {
            self.phase = Phase::Run;
            return Call::Run(run);
        }
        let session = self.encoder.labels.thread.clone();
        self.phase = Phase::Conversation(run);
        Call::Session(SessionCall::Get { session })
    }

    /// The request has not reached the agent, because the thread waits for answers. `is_blocked`: it has a message that
    /// an interrupt blocks. The interrupt may be that of a later run than the view's.
    fn write_pending(&mut self, view: &RunView<'_>, is_blocked: bool, out: &mut Out) {
        self.encoder.writer.head(&mut out.head);
        out.status(200);
        // With calls only, the request had results of some: they are kept, and the client still owes the others.
        let has_interrupts = is_blocked || view.pending.iter().any(|item| item.kind != PendingKind::Tool);
        let message = if view.pending.is_empty() {
            "another request has changed what the thread waits for: send this one again"
        } else if has_interrupts && !self.is_repeated {
            "the thread waits for answers to its interrupts: name them in resume"
        } else {
            return self.encoder.repeat_interrupt(view.run(), view.pending, out);
        };
        self.encoder.start(out);
        self.encoder.fail("INTERRUPT_PENDING", message, out);
    }
}

fn has_expired(answers: &[Answer], pending: &[Pending], now: u64) -> bool {
    pending.iter().any(|item| item.is_expired(now) && answers.iter().any(|answer| answer.id == item.id))
}

/// An answer of the time before `resume`, which does not say what it answers. It is no value of the application.
fn older_answer(input: &mut RunInput, answers: &[Answer], pending: &[Pending]) -> Option<Answer> {
    let mut asked = pending.iter().filter(|item| item.kind != PendingKind::Tool);
    let (Some(only), None, true) = (asked.next(), asked.next(), answers.is_empty()) else { return None };
    let given = input.command.take()?;

    let mut props: Extra = input.extra.get("forwarded_props")?.decode()?;
    let mut command: Extra = props.get("command")?.decode()?;
    command.remove("resume");
    if command.is_empty() {
        props.remove("command");
    } else {
        props.set("command", Json::from_serialize(&command));
    }
    input.extra.set("forwarded_props", Json::from_serialize(&props));
    Some(Answer::new(only.id.clone(), answer_body(Some(given))))
}

impl Exchange for StartRun {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let options = &self.route.options;
        self.now = request.now;
        self.encoder.writer.format = Format::choose(request.header("accept"), options.protobuf.0)?;
        let mut input = RunInput::parse(request.body, options.reasoning_input)?;
        let named = options.user_header.as_ref().and_then(|name| request.header(&name.to_ascii_lowercase()));
        let from_props = input.user.take().filter(|_| options.user_from_props.0);
        input.user = named.map(str::to_owned).or(from_props);

        let labels = &mut self.encoder.labels;
        labels.thread.clone_from(&input.thread);
        labels.run.clone_from(&input.run);
        labels.version.clone_from(&input.version);

        if let Some(after) = request.header("last-event-id").filter(|id| !id.is_empty()) {
            self.encoder.writer.skip_to(Search::number("last-event-id", after)?);
            let search = Search::new(input.thread, input.run);
            let call = search.call();
            self.phase = Phase::Search(search);
            return Ok(call);
        }
        let latest = Target::Latest(input.thread.clone());
        self.phase = Phase::Latest(Box::new(input));
        Ok(Call::Fetch(latest))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match (std::mem::replace(&mut self.phase, Phase::Run), reply) {
            (Phase::Latest(input), Reply::Run(view)) => {
                let run = self.run_call(*input, Some(&view));
                Ok(Next::Call(self.prepare(run)))
            }
            (Phase::Conversation(run), Reply::Session([session])) => {
                self.encoder.conversation = Some(snapshot::snapshot_messages(&session.items));
                Ok(Next::Call(Call::Run(run)))
            }
            (Phase::Search(mut search), reply) => {
                let call = search.next(&reply, &mut self.encoder)?;
                self.phase = Phase::Search(search);
                Ok(Next::Call(call))
            }
            (_, Reply::Waiting(view, reason)) => {
                self.write_pending(&view, reason.is_some(), out);
                Ok(Next::Done)
            }
            (_, reply) => Err(fault::unexpected(&reply)),
        }
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        match std::mem::replace(&mut self.phase, Phase::Run) {
            // The thread is new.
            Phase::Latest(input) => {
                let run = self.run_call(*input, None);
                Some(self.prepare(run))
            }
            // The thread has no conversation yet.
            Phase::Conversation(run) => {
                self.encoder.conversation = Some(Vec::new());
                Some(Call::Run(run))
            }
            // If the run was found, only its conversation is missing.
            Phase::Search(search) => search.without_conversation(&mut self.encoder),
            Phase::Run => None,
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        match fault::interrupt_code(fault, self.has_answers, self.has_expired) {
            // An answer that cannot be taken is an error of the run.
            Some(code) if !self.encoder.labels.run.is_empty() => {
                self.encoder.writer.head(&mut out.head);
                out.status(200);
                self.encoder.start(out);
                self.encoder.fail(code, &fault.message, out);
            }
            _ => fault::write(fault, out),
        }
    }

    fn head(&mut self, head: &mut Head) {
        self.encoder.writer.head(head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        self.encoder.begin(&run);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.encode(step, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.encoder.interrupt(fault, out);
    }

    fn heartbeat(&mut self, out: &mut Out) {
        self.encoder.writer.heartbeat(out);
    }

    fn losses(&self) -> &[Loss] {
        self.encoder.losses()
    }
}
