//! One turn with an agent that speaks A2A: the order of its requests.
//!
//! ```text
//! Lookup ─► Send ─► stream ─► end
//!                 │        └► cut: Subscribe ─► Subscribe … ─► Poll
//!                 └► task ─► Poll ─► Poll … ─► end
//! ```
//!
//! Not here: the meaning of answers (`events`), and the reaction to errors (`recovery`).

use std::sync::Arc;
use std::time::Duration;

use interlingua_adapter_kit::mislabeled;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::{Fault, FaultKind, Json, sse};

use super::errors::{AgentFault, garbage};
use super::events::{ItemReader, Source};
use super::history::Window;
use super::http::{Params, RequestWriter, SendParams};
use super::interface::{Interface, card_urls, is_trusted};
use super::options::{UpstreamContext, UpstreamOptions};
use super::outgoing::Outgoing;
use super::session::SessionState;
use super::wire::{Envelope, Item, Kind};
use crate::dialect::{Generation, Operation};

/// Consecutive resumptions of a task without progress.
pub(super) const MAX_RESUMES: u32 = 5;
/// Number of these resumptions that subscribe. Later ones poll the task.
const MAX_SUBSCRIBES: u32 = 2;
/// Number of polls without a change of a task of 0.3 whose stream was cut. Servers of that version leave a task
/// unchanged if the agent's code fails, so that it never ends.
const MAX_STALE_POLLS: u32 = 20;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Look for the card.
    Lookup,
    /// Send the message.
    Send,
    /// Wait, then take the task up again.
    Pause(Duration),
    Subscribe,
    Poll,
    Done,
}

pub(super) struct A2aTurn {
    pub(super) options: Arc<UpstreamOptions>,
    url: Arc<str>,
    pub(super) outgoing: Outgoing,
    /// The stored state at the beginning of the turn.
    stored: SessionState,
    pub(super) reader: ItemReader,
    pub(super) interface: Option<Interface>,
    /// Where the card may be, the next place last.
    card_urls: Vec<String>,
    /// None: an answer is awaited, which decides.
    pub(super) step: Option<Step>,
    /// The last operation that was sent.
    pub(super) asked: Operation,
    /// Items of the answer to that.
    items: u64,
    /// The id of the last JSON-RPC call.
    call: u64,
    /// The progress at the last resumption.
    progress: u64,
    /// The number of resumptions since then without progress.
    pub(super) resumes: u32,
    polls: u32,
    /// The part of the task's history that a poll requests.
    window: Window,
    /// The stream was cut.
    was_cut: bool,
    /// The first error that the agent reported while the task made no progress.
    pub(super) reported: Option<Fault>,
    /// The number of polls since then without a change.
    stale_polls: u32,
    losses: Losses,
    pub(super) can_subscribe: bool,
    pub(super) subscribes_by_get: bool,
    pub(super) tried_version: bool,
    pub(super) tried_without_task: bool,
}

impl A2aTurn {
    pub(super) fn new(
        url: &Arc<str>,
        options: &Arc<UpstreamOptions>,
        request: &TurnRequest<'_>,
    ) -> Result<Self, Fault> {
        let mut losses = Losses::new();
        let stored = SessionState::read(request.session_state);
        let outgoing = Outgoing::new(request, options, &stored, &mut losses)?;
        let mut session = stored.clone();
        if let Some(asked) = &outgoing.task_id
            && session.task_id.as_ref() != Some(asked)
        {
            // The item that is answered knows better which task asked.
            session.forget_task();
            session.task_id = Some(asked.clone());
        }

        let interface = Interface::from_options(url, options);
        let mut card_urls = card_urls(url, options);
        card_urls.reverse();
        Ok(Self {
            step: Some(if interface.is_some() { Step::Send } else { Step::Lookup }),
            reader: ItemReader::new(options, session),
            options: Arc::clone(options),
            url: Arc::clone(url),
            outgoing,
            stored,
            interface,
            card_urls,
            asked: Operation::Send,
            items: 0,
            call: 0,
            progress: 0,
            resumes: 0,
            polls: 0,
            window: Window::default(),
            was_cut: false,
            reported: None,
            stale_polls: 0,
            losses,
            can_subscribe: true,
            subscribes_by_get: false,
            tried_version: false,
            tried_without_task: false,
        })
    }

    /// The card says where the agent is. An earlier turn may have learned that it errs about the version.
    fn choose(&mut self, mut interface: Interface) {
        if let Some(learned) = self.reader.session.generation().filter(|_| self.options.version.is_none()) {
            interface.dialect.generation = learned;
        }
        if interface.is_replaced {
            self.losses.changed(
                ContentKind::Routing,
                "the agent's card names a host or port that allow_hosts does not: the configured one is asked",
            );
        }
        self.interface = Some(interface);
        self.step = Some(Step::Send);
    }

    /// Sends an operation; its answer decides what comes next.
    fn send(&mut self, operation: Operation) -> Next {
        let Some(interface) = &self.interface else { return Next::Finished };
        self.call += 1;
        self.asked = operation;
        self.items = 0;
        // The shape has the number of the call that it answers.
        self.reader.forget_shape();
        self.reader.form = interface.dialect.wire_format();
        let writer = RequestWriter {
            interface,
            extensions: &self.options.extensions,
            subscribes_by_get: self.subscribes_by_get,
        };

        let request = if matches!(operation, Operation::Send | Operation::Stream) {
            let session = &self.reader.session;
            let is_known = session.context_id.is_some();
            let chosen = self.outgoing.session_id.as_deref().filter(|_| self.options.context == UpstreamContext::Send);
            let context = session.context_id.as_deref().or(chosen);
            let last = session.last_task_id.as_deref();
            let message =
                self.outgoing.message(&self.reader.message_id, context, self.reader.task.as_deref(), last, is_known);
            if is_known && self.outgoing.has_transcript() {
                self.losses.lost(ContentKind::History, "the agent keeps its own");
            }
            let params = SendParams {
                message: &message,
                accepted_output_modes: &self.outgoing.accepted_output_modes,
                metadata: self.outgoing.request_metadata.as_ref(),
                return_immediately: operation == Operation::Send,
            };
            writer.request(operation, &Params::Send(params), self.call)
        } else {
            let task = self.reader.task.as_deref().unwrap_or_default();
            let params = match operation {
                Operation::Get => Params::Get { task, history_length: self.window.length() },
                _ => Params::Task(task),
            };
            writer.request(operation, &params, self.call)
        };
        Next::Send(request)
    }

    /// The operation that sends the message.
    fn sending(&self) -> Operation {
        if self.outgoing.cancels && self.reader.task.is_some() {
            return Operation::Cancel;
        }
        let streams = self.interface.as_ref().is_some_and(|interface| interface.streaming);
        if streams { Operation::Stream } else { Operation::Send }
    }

    /// Reads an answer of any form.
    fn read(&mut self, data: &[u8], source: Source, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.reader.forget_shape();
        if data.trim_ascii().is_empty() {
            return Ok(());
        }
        match self.parse(data, source)? {
            Ok(Some(item)) if source == Source::Stream && self.reader.is_to_be_confirmed(&item) => {
                self.step = Some(Step::Poll);
                Ok(())
            }
            Ok(Some(Kind::Task(task))) if self.asked == Operation::Get && self.reader.has_gap(&task, self.window) => {
                self.window.widen();
                self.step = Some(Step::Poll);
                Ok(())
            }
            Ok(Some(item)) => {
                self.items += 1;
                self.reader.read(item, data, source, sink)
            }
            // An item of a future version is skipped. If the first item is unknown, the answer is another protocol.
            Ok(None) if self.items > 0 => {
                self.losses.lost(ContentKind::ProtocolEvent, "an item of a kind that no known version has");
                sink.emit(&AgentEvent::Ignored)
            }
            Ok(None) => Err(garbage(data)),
            Err(found) => self.recover(found.problem, found.fault),
        }
    }

    /// An item, or the error in its place. None: an item that no version has.
    fn parse<'d>(&self, data: &'d [u8], source: Source) -> Result<Result<Option<Kind<'d>>, AgentFault>, Fault> {
        let is_rpc = self.interface.as_ref().is_some_and(|interface| interface.dialect.is_rpc());
        if !is_rpc {
            let fault = || AgentFault::from_body(data).map(Err);
            return match serde_json::from_slice::<Item<'_>>(data).map(Item::into_kind) {
                Ok(Some(item)) => Ok(Ok(Some(item))),
                Ok(None) if source != Source::Body => Ok(fault().unwrap_or(Ok(None))),
                _ => fault().ok_or_else(|| garbage(data)),
            };
        }

        let envelope: Envelope<'_> = serde_json::from_slice(data).map_err(|_| garbage(data))?;
        // An answer to another call would be taken for this one's. Some servers leave the id out.
        let is_own = envelope
            .id
            .is_none_or(|id| matches!(id.get(), "null") || id.get().trim_matches('"').parse() == Ok(self.call));
        if !is_own {
            return Err(garbage(data));
        }
        if let Some(error) = envelope.error {
            // Frameworks name the status there, and the reason beside it.
            let whole = error.get().starts_with('"').then(|| AgentFault::from_body(data)).flatten();
            return Ok(Err(whole.unwrap_or_else(|| AgentFault::read(error))));
        }
        let result = envelope.result.ok_or_else(|| garbage(data))?;
        Ok(Ok(result.into_kind()))
    }

    /// Where an item stands that comes now.
    fn source(&self, is_body: bool) -> Source {
        let sends = matches!(self.asked, Operation::Send | Operation::Stream);
        match (sends && self.items == 0, is_body) {
            // In the first answer, a task may be in its state from before the message.
            (true, _) => Source::Start,
            (false, true) => Source::Body,
            (false, false) => Source::Stream,
        }
    }

    /// Takes the task up again after a while: by subscribing, as long as that helps.
    pub(super) fn resume(&mut self, after: Option<Duration>) {
        let pause = self.backoff(self.resumes).max(after.unwrap_or_default());
        self.resumes += 1;
        self.step = Some(Step::Pause(pause));
    }

    /// Pauses grow by half from one to the next.
    fn backoff(&self, number: u32) -> Duration {
        let grown = (0..number.min(32))
            .fold(self.options.poll_interval.0, |pause, _| (pause + pause / 2).min(self.options.max_poll_interval.0));
        grown.min(self.options.max_poll_interval.0)
    }

    pub(super) fn note_progress(&mut self) {
        if self.reader.progress() > self.progress {
            self.progress = self.reader.progress();
            self.resumes = 0;
            self.stale_polls = 0;
            self.reported = None;
        }
    }

    /// The step after a pause.
    fn resumption(&self) -> Step {
        let streams = self.interface.as_ref().is_some_and(|interface| interface.streaming);
        // A second reader of a task of 0.3 doubles what the server stores of it, and two of them can block the whole
        // server. The task itself has everything.
        let is_v03 = self.interface.as_ref().is_some_and(|interface| interface.dialect.is_v03());
        let subscribes = streams && !is_v03 && self.can_subscribe && self.resumes <= MAX_SUBSCRIBES;
        if subscribes { Step::Subscribe } else { Step::Poll }
    }
}

impl AgentTurn for A2aTurn {
    fn next(&mut self, now: Millis) -> Result<Next, Fault> {
        if self.reader.ended {
            return Ok(Next::Finished);
        }
        if self.reader.message_id.is_empty() {
            // Several turns of a run may ask: the time tells their messages apart.
            let own = self.outgoing.id.clone();
            self.reader.message_id = own.unwrap_or_else(|| format!("{}-{now}", self.outgoing.fallback_id));
        }
        Ok(match self.step.take().unwrap_or(Step::Done) {
            Step::Lookup => match self.card_urls.last() {
                Some(url) => {
                    let mut card = HttpRequest::published(url).with_header("a2a-version", Generation::V1.as_str());
                    card.is_trusted = is_trusted(&self.url, url, &self.options.allow_hosts);
                    Next::Send(card)
                }
                None => Next::Finished,
            },
            Step::Send => self.send(self.sending()),
            Step::Pause(pause) => {
                self.step = Some(self.resumption());
                Next::Wait(pause)
            }
            Step::Subscribe => {
                self.reader.was_taken_up = true;
                self.send(Operation::Subscribe)
            }
            Step::Poll => self.send(Operation::Get),
            Step::Done => Next::Finished,
        })
    }

    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        self.card_urls.pop();
        let found = match answer {
            Ok(card) => Interface::from_card(card, &self.url, &self.options),
            // A server without a card at this place says so with one of these.
            Err(fault) if matches!(fault.upstream_status, Some(400 | 404 | 405 | 410 | 501)) => {
                let message = "the agent has no card where the gateway looks for one";
                let mut missing = Fault::new(FaultKind::UpstreamMisconfigured, message);
                missing.upstream_status = fault.upstream_status;
                missing.detail.clone_from(&fault.detail);
                Err(missing)
            }
            Err(fault) => return Err(fault.clone()),
        };
        match found {
            Ok(interface) => self.choose(interface),
            // Some servers answer every path, with a page for people.
            Err(fault) if self.card_urls.is_empty() => return Err(fault),
            Err(_) => self.step = Some(Step::Lookup),
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.step.is_some() || frame.is_done() {
            // What comes behind an error of the stream belongs to it.
            return Ok(());
        }
        if frame.event == Some("error")
            && let Some(found) = AgentFault::from_body(frame.data)
        {
            return self.recover(found.problem, found.fault);
        }
        if self.reader.read_text(frame.data, sink)? {
            self.items += 1;
            return Ok(());
        }
        self.reader.is_streamed = true;
        self.read(frame.data, self.source(false), sink)
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        if body.trim_ascii().is_empty() {
            return Err(garbage(body));
        }
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if self.asked.is_streaming() && visible.first() != Some(&b'{') {
            return mislabeled::read_stream(self, body, sink);
        }
        self.reader.is_streamed = false;
        self.read(visible, self.source(true), sink)
    }

    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.step.is_some() {
            return Ok(());
        }
        self.reader.end_replies(sink)?;
        if self.reader.ended || self.reader.task.is_none() || self.reader.items == 0 {
            self.step = Some(Step::Done);
            return Ok(());
        }
        self.note_progress();

        if self.asked.is_streaming() {
            self.was_cut = true;
            if self.resumes >= MAX_RESUMES {
                self.can_subscribe = false;
            }
            self.resume(None);
        } else {
            // A working task is polled until it ends: the gateway's timeouts limit the turn.
            self.resumes = 0;
            let pause = self.backoff(self.polls);
            self.polls += 1;
            self.stale_polls += 1;
            let is_v03 = self.interface.as_ref().is_some_and(|interface| interface.dialect.is_v03());
            if is_v03 && self.was_cut && self.stale_polls > MAX_STALE_POLLS {
                let message = "the agent broke off its answer, and its task does not go on";
                return Err(self.reported.take().unwrap_or_else(|| Fault::new(FaultKind::UpstreamTruncated, message)));
            }
            self.can_subscribe = false;
            self.step = Some(Step::Pause(pause));
        }
        Ok(())
    }

    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.step.is_some() {
            return Ok(());
        }
        self.note_progress();
        self.was_cut |= self.asked.is_streaming();
        let problem = fault.code.as_deref().and_then(AgentFault::problem_of);
        self.recover(problem, fault)
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        AgentFault::from_refusal(refusal).fault
    }

    fn cancel(&self) -> Option<HttpRequest> {
        if self.reader.ended {
            return None;
        }
        let task = self.reader.task.as_deref()?;
        let writer = RequestWriter {
            interface: self.interface.as_ref()?,
            extensions: &self.options.extensions,
            subscribes_by_get: self.subscribes_by_get,
        };
        Some(writer.request(Operation::Cancel, &Params::Task(task), self.call + 1))
    }

    fn cancels_once_known(&self) -> bool {
        let sends = matches!(self.asked, Operation::Send | Operation::Stream);
        self.call > 0 && sends && self.reader.task.is_none() && !self.reader.ended && self.step.is_none()
    }

    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        let found = serde_json::from_slice::<Envelope<'_>>(body).ok().and_then(|envelope| envelope.error);
        let found = found.map(AgentFault::read).or_else(|| (status >= 400).then(|| AgentFault::from_body(body))?);
        match found {
            Some(AgentFault { problem: Some(problem), fault }) => {
                Some(format!("{}: {}", problem.row().reason, fault.message))
            }
            Some(AgentFault { fault, .. }) => Some(fault.message),
            None if status >= 400 => Some(format!("it answers with status {status}")),
            None => None,
        }
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    fn session_state(&self) -> Option<Json> {
        (self.reader.session != self.stored).then(|| self.reader.session.to_json())
    }
}
