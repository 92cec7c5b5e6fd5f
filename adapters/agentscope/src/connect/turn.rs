//! One turn with an agent of the service: the order of its requests.
//!
//! ```text
//! Look ─► [Interrupt ─► Look] ─► Post ─► Listen ─► end
//!   or                                     │  └► cut: Read ─► Listen | end
//! Create ────────────────────► Post        └► the stream does not hold it: Read ─► end
//! ```
//!
//! A session processes one turn at a time; a turn that arrives early waits. Not here: the meaning of events (`reader`,
//! `whole`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::answer;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model_error::{Complaint, garbage};
use interlingua_core::{Extra, Fault, FaultKind, Json, sse};
use serde::Serialize;

use super::answers::Answers;
use super::errors::{self, RequestPurpose};
use super::kept::StoredEvents;
use super::options::UpstreamOptions;
use super::reader::{Continuation, Reader, Skip};
use super::request::{Service, TurnText, note_losses};
use super::state::{SessionState, WaitingReply, storable};
use super::whole::ReplyState;
use super::wire::{Event, Page, TextDelta, field, object, word};

/// Consecutive resumptions of a stream without progress.
const MAX_RESUMES: u32 = 5;
/// Number of times that an idle session is queried for a reply.
const MAX_LOOKS: u32 = 7;
/// Number of times that a busy session is queried for a reply that may not be the one whose end was seen.
const MAX_FOREIGN_LOOKS: u32 = 3;
/// The first pause before a repeated request. Pauses grow by half.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The message of a fault: the session that waits for an answer is gone.
const FORGOTTEN: &str = "the agent has forgotten what it asked";

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Look what the session is doing.
    Look,
    Create,
    /// Stop a reply that waits for answers which do not come.
    Interrupt,
    Post,
    Listen,
    /// Read the session's messages.
    Read,
    Done,
}

pub(super) struct AgentscopeTurn {
    service: Service,
    options: Arc<UpstreamOptions>,
    session_fields: Extra,
    stored: SessionState,
    session: Option<String>,
    reader: Reader,
    /// The bodies to post, in order.
    posts: VecDeque<Json>,
    /// The message to post once the answers were accepted.
    words: Option<TurnText>,
    /// The id of the last message that was posted.
    asked: String,
    answers: bool,
    /// Only the session that asked can take the turn: it has answers, and not only cancellations before new words.
    needs_asker: bool,
    /// None: an answer is awaited, which decides.
    step: Option<Step>,
    /// The last step that was sent.
    sent: Step,
    pause: Option<Duration>,
    /// Consecutive repetitions of a request, which lengthen the pauses.
    repeats: u32,
    /// Consecutive resumptions of the stream without progress.
    resumes: u32,
    /// Number of queries of the busy session since its stream was left.
    looks: u32,
    /// Consecutive queries of the session that found it idle and without the reply.
    idle_looks: u32,
    /// Time spent waiting for a busy session.
    waited: Duration,
    progress: u64,
    has_posted: bool,
    /// The stream was cut: what comes next depends on whether the session is at work.
    was_cut: bool,
    forgotten: bool,
}

impl AgentscopeTurn {
    pub(super) fn new(url: &str, options: &Arc<UpstreamOptions>, turn: &TurnRequest<'_>) -> Result<Self, Fault> {
        let stored = SessionState::read(turn.session_state);
        let mut losses = Losses::new();
        note_losses(turn.request, &mut losses);
        let mut answer_losses = Losses::new();
        let mut answers = Answers::read(turn, &stored.call_ids, &mut answer_losses)?;
        let run = turn.request.id.as_deref().unwrap_or("run");
        let new = || turn.new_messages().map(|(_, message)| message);
        let has_words = || TurnText::read(new(), (run, turn.turn), &mut Losses::new()).is_some();
        let may_drop = answers.are_cancellations() && has_words();
        let needs_asker = !(answers.is_empty() || may_drop);
        // Words that go to a new session cancel nothing there.
        let drops_answers = may_drop && (stored.session.is_none() || !turn.history.is_empty());
        if drops_answers {
            answers = Answers::default();
        }
        // Earlier turns in the input: the session that held them is not used, except for answers. Only the session that
        // asked accepts them, and it has the earlier turns.
        let (words, session) = if answers.is_empty() {
            let words = TurnText::read(turn.request.input.iter(), (run, turn.turn), &mut losses);
            (words, stored.session.clone().filter(|_| turn.history.is_empty()))
        } else {
            losses.extend(answer_losses.as_slice());
            let session = stored.session.clone().ok_or_else(|| Fault::new(FaultKind::Conflict, FORGOTTEN))?;
            (TurnText::read(new(), (run, turn.turn), &mut losses), Some(session))
        };
        let mut reader = Reader::new(StoredEvents::new(options.events, turn.protocol_events));
        reader.losses = losses;
        reader.calls.ids = stored.call_ids.clone();
        reader.old_reply = stored.reply.clone().filter(|_| session.is_some()).unwrap_or_default();
        let mut this = Self {
            service: Service::new(url, options, turn.request.user_id.as_deref()),
            session_fields: session_fields(options, turn),
            options: Arc::clone(options),
            step: Some(if session.is_some() { Step::Look } else { Step::Create }),
            session,
            reader,
            posts: VecDeque::new(),
            words,
            asked: String::new(),
            answers: !answers.is_empty(),
            needs_asker,
            sent: Step::Look,
            pause: None,
            repeats: 0,
            resumes: 0,
            looks: 0,
            idle_looks: 0,
            waited: Duration::ZERO,
            progress: 0,
            has_posted: false,
            was_cut: false,
            // A session that asked had earlier turns.
            forgotten: drops_answers && turn.history.is_empty(),
            stored,
        };
        if this.answers {
            this.expect_answers(&answers, &format!("{run}-{}", turn.turn));
        } else {
            this.take_words();
        }
        Ok(this)
    }

    /// Posts the answers; the reply that asked continues.
    fn expect_answers(&mut self, answers: &Answers, id: &str) {
        #[derive(Serialize)]
        struct Answer<'a> {
            r#type: &'static str,
            id: &'a str,
            reply_id: &'a str,
            #[serde(skip_serializing_if = "<[Json]>::is_empty")]
            confirm_results: &'a [Json],
            #[serde(skip_serializing_if = "<[Json]>::is_empty")]
            execution_results: &'a [Json],
        }
        let reply = if answers.reply.is_empty() {
            self.stored.reply.clone().unwrap_or_default()
        } else {
            answers.reply.clone()
        };
        for (kind, confirmed, executed) in [
            ("USER_CONFIRM_RESULT", answers.confirmed.as_slice(), [].as_slice()),
            ("EXTERNAL_EXECUTION_RESULT", [].as_slice(), answers.executed.as_slice()),
        ] {
            if confirmed.is_empty() && executed.is_empty() {
                continue;
            }
            let id = format!("{id}-{}", kind.to_ascii_lowercase());
            let (confirm_results, execution_results) = (confirmed, executed);
            let answer = Answer { r#type: kind, id: &id, reply_id: &reply, confirm_results, execution_results };
            self.posts.push_back(Json::from_serialize(&answer));
            self.reader.awaited.push(id);
        }
        for call in &answers.calls {
            self.reader.calls.know(&call.own_id, &call.id, &call.name, call.is_external);
        }

        let waiting = self.stored.waiting.clone().unwrap_or_default();
        let reader = &mut self.reader;
        reader.skip = Skip::UntilAnswer;
        reader.reply = reply;
        reader.old_reply.clear();
        (reader.blocks, reader.blocks_before) = (waiting.blocks, waiting.blocks);
        reader.usage_before = waiting.usage;
        reader.old_ends.push(waiting.event);
        reader.has_next = self.words.is_some();
    }

    /// Posts the message next. Without a message, the request asks the agent to continue.
    fn take_words(&mut self) {
        let (input, id) =
            self.words.take().map_or_else(|| (Json::null(), String::new()), |words| (words.input, words.last_id));
        self.asked = id;
        self.posts.push_back(input);
    }

    /// Begins the turn according to the state of the session.
    fn on_status(&mut self, status: &str) -> Result<(), Fault> {
        match (status, self.answers) {
            ("running", _) => self.wait_for_session(Step::Look)?,
            ("awaiting_permission" | "awaiting_external_result", false) if self.sent != Step::Interrupt => {
                self.step = Some(Step::Interrupt);
            }
            // The interrupt is not through yet.
            ("awaiting_permission" | "awaiting_external_result", false) => self.wait_for_session(Step::Look)?,
            // Nothing waits for the cancellations any more, so only the words are sent.
            ("idle", true) if !self.needs_asker => {
                self.posts.clear();
                self.reader.awaited.clear();
                self.go_on();
            }
            ("idle", true) => {
                let message = "the agent does not wait for an answer any more";
                return Err(Fault::new(FaultKind::Conflict, message).with_code(answer::NOT_WAITING));
            }
            _ => self.step = Some(Step::Post),
        }
        Ok(())
    }

    /// The session processes another turn: query it again after a pause.
    fn wait_for_session(&mut self, then: Step) -> Result<(), Fault> {
        if self.waited >= self.options.busy_timeout.0 {
            return Err(errors::busy());
        }
        let pause = self.next_pause();
        self.waited += pause;
        (self.pause, self.step) = (Some(pause), Some(then));
        Ok(())
    }

    fn next_pause(&mut self) -> Duration {
        let grown = (0..self.repeats.min(16)).fold(FIRST_PAUSE, |pause, _| (pause + pause / 2).min(MAX_PAUSE));
        self.repeats += 1;
        grown
    }

    /// The stream was cut. The session knows whether there is more to come.
    fn resume(&mut self, fault: &Fault) -> Result<(), Fault> {
        if self.reader.progress > self.progress {
            (self.progress, self.repeats, self.resumes) = (self.reader.progress, 0, 0);
        }
        if self.resumes >= MAX_RESUMES {
            let message = "the agent broke off its answer and could not be asked for the rest";
            return Err(Fault::new(FaultKind::UpstreamTruncated, message).with_detail(fault));
        }
        self.resumes += 1;
        self.pause = Some(self.next_pause());
        // A stream that was read to its end is not read again because of a query that failed.
        self.was_cut |= self.reader.wants == Continuation::Events;
        self.step = Some(Step::Read);
        Ok(())
    }

    /// Reads the session's messages.
    fn read_page(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let page: Page<'_> = object(body).ok_or_else(|| garbage(body))?;
        match self.reader.read_page(&page, &self.asked, sink)? {
            ReplyState::Reply => self.go_on(),
            // The stream has the rest.
            ReplyState::AtWork if self.was_cut || self.may_be_foreign() => {
                (self.was_cut, self.looks, self.idle_looks) = (false, 0, 0);
                self.reader.restart();
                self.step = Some(Step::Listen);
            }
            ReplyState::AtWork => {
                self.looks += 1;
                // The stream was read to its end before, so this is no attempt to resume it, and it shows that the service
                // answers again.
                (self.resumes, self.idle_looks) = (0, 0);
                (self.pause, self.step) = (Some(self.next_pause()), Some(Step::Read));
            }
            // What an answer begins may not have begun.
            ReplyState::Nothing if self.idle_looks < MAX_LOOKS => {
                if self.idle_looks == 0 {
                    self.repeats = 0;
                }
                self.idle_looks += 1;
                (self.pause, self.step) = (Some(self.next_pause()), Some(Step::Read));
            }
            ReplyState::Nothing => {
                let message = "the agent broke off its answer";
                return Err(Fault::new(FaultKind::UpstreamTruncated, message).with_detail("the session is not at work"));
            }
        }
        Ok(())
    }

    /// The end that the stream was left for may have been that of another reply: ours would have been written down by
    /// now.
    fn may_be_foreign(&self) -> bool {
        matches!(self.reader.skip, Skip::UntilReply | Skip::UntilAnswer) && self.looks >= MAX_FOREIGN_LOOKS
    }

    /// The reply is complete: the next one, or the end.
    fn go_on(&mut self) {
        if self.reader.ended || self.words.is_none() {
            self.step = Some(Step::Done);
            return;
        }
        self.reader.next_reply();
        self.take_words();
        (self.repeats, self.resumes, self.idle_looks, self.answers) = (0, 0, 0, false);
        self.step = Some(Step::Post);
    }

    fn posted(&mut self, body: &[u8]) -> Result<(), Fault> {
        if field(body, "status").is_none() {
            return Err(garbage(body));
        }
        self.posts.pop_front();
        (self.repeats, self.has_posted) = (0, true);
        self.step = Some(if self.posts.is_empty() { Step::Listen } else { Step::Post });
        Ok(())
    }
}

/// The fields of a new session. One without a name would get one from the agent's model, at its cost, and be busy
/// meanwhile.
fn session_fields(options: &UpstreamOptions, turn: &TurnRequest<'_>) -> Extra {
    let mut fields = options.session.to_extra();
    if let Some(id) = turn.request.session_id.as_deref().filter(|_| fields.get("name").is_none()) {
        fields.push("name", Json::from_serialize(id));
    }
    fields
}

impl AgentTurn for AgentscopeTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        if self.reader.ended {
            return Ok(Next::Finished);
        }
        if let Some(pause) = self.pause.take() {
            return Ok(Next::Wait(pause));
        }
        let Some(step) = self.step.take() else { return Ok(Next::Finished) };
        if step != Step::Look || self.sent != Step::Interrupt {
            self.sent = step;
        }
        let session = self.session.as_deref().unwrap_or_default();
        let request = match step {
            Step::Look => self.service.status(session),
            Step::Create => self.service.create(&self.session_fields),
            Step::Interrupt => self.service.interrupt(session),
            Step::Post => match self.posts.front() {
                Some(input) => self.service.chat(session, input),
                None => return Ok(Next::Finished),
            },
            Step::Listen => self.service.stream(session),
            Step::Read => self.service.messages(session),
            Step::Done => return Ok(Next::Finished),
        };
        Ok(Next::Send(request))
    }

    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        let document = match answer {
            Ok(document) => document,
            Err(fault) if fault.upstream_status == Some(404) && !self.has_posted => {
                // What waits for an answer is gone with its session.
                self.forgotten = !self.needs_asker;
                let (kind, message) = if self.needs_asker {
                    (FaultKind::Conflict, FORGOTTEN)
                } else {
                    (FaultKind::UpstreamMisconfigured, "the agent's service does not know the session")
                };
                let mut gone = Fault::new(kind, message).with_detail(fault);
                gone.upstream_status = fault.upstream_status;
                return Err(gone);
            }
            Err(fault) => return Err(fault.clone()),
        };
        let status = field(document, "status").ok_or_else(|| garbage(document))?;
        self.on_status(&status)
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.sent != Step::Listen {
            return Err(garbage(frame.data));
        }
        // What follows the reply in the same piece is not this turn's, whatever it is.
        if self.reader.ended || self.leaves_answer() || frame.data.trim_ascii().is_empty() || frame.is_done() {
            return Ok(());
        }
        if let Some(delta) = TextDelta::parse(frame.data) {
            return self.reader.read_delta(&delta, sink);
        }
        let event: Event<'_> = object(frame.data).ok_or_else(|| garbage(frame.data))?;
        if Complaint::from_unknown_event(word(&event.kind), frame.data).is_some() {
            return Err(garbage(frame.data));
        }
        self.reader.read(&event, frame.data, sink)
    }

    fn leaves_answer(&self) -> bool {
        self.sent == Step::Listen && self.reader.wants != Continuation::Events
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        match self.sent {
            Step::Create => {
                let session = field(body, "session_id").and_then(|id| storable(&id));
                self.session = Some(session.ok_or_else(|| garbage(body))?);
                self.step = Some(Step::Post);
                Ok(())
            }
            Step::Interrupt => self.wait_for_session(Step::Look),
            Step::Post => self.posted(body),
            Step::Read => self.read_page(body, sink),
            Step::Listen | Step::Look | Step::Done => Err(garbage(body)),
        }
    }

    fn on_end(&mut self, _: &mut dyn EventSink) -> Result<(), Fault> {
        if self.step.is_some() || self.reader.ended {
            return Ok(());
        }
        if self.sent != Step::Listen {
            return Err(garbage(b""));
        }
        match self.reader.wants {
            Continuation::Events => self.resume(&Fault::new(FaultKind::UpstreamTruncated, "the stream has ended")),
            Continuation::Messages => {
                self.repeats = 0;
                self.step = Some(Step::Read);
                Ok(())
            }
            Continuation::NextReply => {
                self.go_on();
                Ok(())
            }
        }
    }

    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        let may_pass = match fault.kind {
            FaultKind::UpstreamTruncated
            | FaultKind::UpstreamUnreachable
            | FaultKind::UpstreamOverloaded
            | FaultKind::UpstreamRateLimited => true,
            // A proxy gave up waiting; the agent may still be working.
            FaultKind::UpstreamTimeout => fault.upstream_status.is_some(),
            FaultKind::AgentFailed => fault.upstream_status.is_some_and(|status| status >= 500),
            _ => false,
        };
        match self.sent {
            Step::Post if fault.kind == FaultKind::Busy => self.wait_for_session(Step::Post),
            Step::Listen | Step::Read if may_pass => self.resume(&fault),
            _ => Err(fault),
        }
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        let asked = if self.sent == Step::Create { RequestPurpose::Session } else { RequestPurpose::InSession };
        errors::map_refusal(refusal, asked)
    }

    fn cancel(&self) -> Option<HttpRequest> {
        let is_under_way = (self.has_posted || self.sent == Step::Post) && !self.reader.ended;
        self.session.as_deref().filter(|_| is_under_way).map(|session| self.service.interrupt(session))
    }

    fn cancel_refused(&self, status: u16, _: &[u8]) -> Option<String> {
        match status {
            200..=299 => None,
            404 => Some("its service does not know the session".to_owned()),
            _ => Some(format!("its service answered {status}")),
        }
    }

    fn needs_history(&self) -> bool {
        self.forgotten
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses.as_slice()
    }

    fn session_state(&self) -> Option<Json> {
        let reader = &self.reader;
        let reply = storable(&reader.reply).or_else(|| storable(&reader.old_reply));
        let waiting = (reader.ended && reader.is_waiting).then(|| {
            let mut usage = reader.usage_before;
            usage.add(reader.usage);
            let event = reader.old_ends.last().and_then(|id| storable(id)).unwrap_or_default();
            WaitingReply { blocks: reader.blocks, usage, event }
        });
        // Not begun: whatever waited still does.
        let waiting = if self.has_posted { waiting } else { self.stored.waiting.clone() };
        let call_ids = reader.calls.ids.clone();
        let state = SessionState { session: self.session.clone(), reply, waiting, call_ids };
        (state != self.stored).then(|| state.to_json())
    }
}
