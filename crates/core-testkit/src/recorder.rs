//! Drives a turn as the gateway does, but without waiting: bytes go through the decoder, a connector's turn and the
//! normalizer into a record.

use std::collections::VecDeque;

use interlingua_core::agent_api::Frame;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, LinkInfo, LinkMessages, Next, Purpose};
use interlingua_core::event::Millis;
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::json_repair;
use interlingua_core::loss::Loss;
use interlingua_core::model::Input;
use interlingua_core::normalize::{Normalizer, Progress};
use interlingua_core::run::Record;
use interlingua_core::sse::{self, Decoder};

/// The default limit for the size of a record in tests, in bytes.
const MAX_RECORD_BYTES: usize = 64 << 20;
/// The maximum size of a frame, in bytes.
const MAX_FRAME_BYTES: usize = 8 << 20;
/// A turn that sends more requests than this is taken to be endless.
const MAX_REQUESTS: usize = 1000;

/// A record and the normalizer that writes to it.
#[derive(Debug)]
pub struct Recorder {
    record: Record,
    normalizer: Normalizer,
    tick: u64,
}

impl Recorder {
    /// Records the first turn of a run with this input.
    #[must_use]
    pub fn new(input: impl Into<Input>) -> Self {
        Self::with_limit(super::started_with(input), MAX_RECORD_BYTES)
    }

    /// Records the current turn of a record. `limit`: the maximum size of the record, in bytes.
    #[must_use]
    pub fn with_limit(record: Record, limit: usize) -> Self {
        Self { record, normalizer: Normalizer::new(limit), tick: 0 }
    }

    /// Advances the record's clock by this many milliseconds before each event.
    #[must_use]
    pub const fn ticking(mut self, milliseconds: u64) -> Self {
        self.tick = milliseconds;
        self
    }

    /// The record up to now.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// The normalizer, for its counters.
    #[must_use]
    pub const fn normalizer(&self) -> &Normalizer {
        &self.normalizer
    }

    /// The number of events that had no effect.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }

    /// Passes an event to the normalizer. Events after the end have no effect.
    ///
    /// # Panics
    /// If the record exceeds its limit.
    pub fn emit(&mut self, event: &AgentEvent<'_>) -> Progress {
        self.try_emit(event).expect("within the limit")
    }

    /// Passes an event to the normalizer. A record that exceeds its limit ends as failed, as in the gateway.
    ///
    /// # Errors
    /// If the record exceeds its limit.
    pub fn try_emit(&mut self, event: &AgentEvent<'_>) -> Result<Progress, Fault> {
        self.record.set_time(self.record.now() + self.tick);
        let progress = self.normalizer.emit(&mut self.record, event);
        if let Err(fault) = &progress {
            self.normalizer.fail(&mut self.record, fault);
        }
        progress
    }

    /// Evicts all events there are, as the gateway does while no one reads a run.
    pub fn evict(&mut self) {
        self.record.evict(self.record.len());
    }

    /// Ends the turn with a fault.
    pub fn fail(&mut self, fault: &Fault) {
        self.normalizer.fail(&mut self.record, fault);
    }

    /// Ends the body, and with it the turn and the run.
    ///
    /// # Panics
    /// If the turn does not end, which would be a bug in the normalizer.
    #[must_use]
    pub fn finish(mut self) -> Record {
        self.normalizer.end_of_body(&mut self.record);
        let end = self.record.run().turns.last().and_then(|turn| turn.end).expect("the turn has ended");
        self.record.finish_run(end);
        self.record
    }
}

impl EventSink for Recorder {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.try_emit(event).map(|_| ())
    }

    fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }

    fn has_ended(&self) -> bool {
        self.normalizer.has_ended()
    }
}

/// Records an event stream of the Agent API that arrives in these pieces. The run ends with the stream.
///
/// # Panics
/// If a frame or the record exceeds its limit in tests.
pub fn record<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    let mut recorder = Recorder::with_limit(super::started(), MAX_RECORD_BYTES);
    let mut decoder = Decoder::new(MAX_FRAME_BYTES);

    for mut piece in pieces {
        while let Some(frame) = decoder.decode(&mut piece).expect("within the limit") {
            if let Some(frame) = Frame::parse(frame.data) {
                recorder.emit(&frame.event());
            }
        }
    }

    if let Some(frame) = decoder.finish().frame().and_then(|frame| Frame::parse(frame.data)) {
        recorder.emit(&frame.event());
    }
    recorder.finish()
}

/// A scripted agent's answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An event stream that arrives in these pieces.
    Stream(Vec<Vec<u8>>),
    /// An event stream whose connection breaks after these pieces.
    Cut(Vec<Vec<u8>>),
    /// A JSON body.
    Body(Vec<u8>),
    /// No answer, or a refusal.
    Fault(Fault),
    /// The link that the turn asked for.
    Link(LinkInfo),
    /// Messages of the topic that the turn reads. The link stays open after them, so the turn has to leave or end.
    Messages(Vec<Vec<u8>>),
}

impl Answer {
    /// An event stream that arrives in one piece.
    #[must_use]
    pub fn stream(text: &str) -> Self {
        Self::Stream(vec![text.as_bytes().to_vec()])
    }

    /// A JSON body.
    #[must_use]
    pub fn body(text: &str) -> Self {
        Self::Body(text.as_bytes().to_vec())
    }
}

/// The result of [`drive`].
#[derive(Debug)]
pub struct DrivenTurn {
    /// The requests of the turn, in order.
    pub requests: Vec<HttpRequest>,
    /// The messages of the turn to its link, in order.
    pub sent: Vec<LinkMessages>,
    /// The finished record.
    pub record: Record,
    /// The condition that the agent waits for, in addition to pending items.
    pub awaits: Option<interlingua_core::agent_event::Awaits>,
    /// The content that exceeded the limits of the record.
    pub losses: Vec<Loss>,
    /// The sum of the waits that the turn asked for.
    pub waited: std::time::Duration,
}

/// Drives a turn against the answers of a scripted agent, one per request, in order. A fault ends the run, as in the
/// gateway.
///
/// ```
/// use interlingua_core::agent_event::AgentEvent;
/// use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next};
/// use interlingua_core_testkit::{Answer, drive};
/// use interlingua_core::{End, Fault, sse};
///
/// /// Sends one request; every frame of the answer is a piece of text.
/// struct Lines(Option<HttpRequest>);
///
/// impl AgentTurn for Lines {
///     fn next(&mut self, _now: u64) -> Result<Next, Fault> {
///         Ok(self.0.take().map_or(Next::Finished, Next::Send))
///     }
///
///     fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
///         sink.emit(&AgentEvent::text("answer", &String::from_utf8_lossy(frame.data)))
///     }
///
///     fn on_body(&mut self, _: &[u8], _: &mut dyn EventSink) -> Result<(), Fault> {
///         Ok(())
///     }
///
///     fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
///         sink.emit(&AgentEvent::completed())
///     }
/// }
///
/// let mut turn = Lines(Some(HttpRequest::post("http://agent/", Vec::new())));
/// let driven = drive(&mut turn, [Answer::stream("data: Hello\n\ndata:  there\n\n")]);
///
/// assert_eq!(driven.requests[0].url, "http://agent/");
/// assert_eq!(driven.record.run().messages[0].text(), "Hello there");
/// assert_eq!(driven.record.run().end, Some(End::Completed));
/// ```
///
/// # Panics
/// If the turn sends more requests than there are answers, or more than 1,000.
pub fn drive(turn: &mut dyn AgentTurn, answers: impl IntoIterator<Item = Answer>) -> DrivenTurn {
    let mut recorder = Recorder::with_limit(super::started(), MAX_RECORD_BYTES);
    let mut driver =
        Driver { answers: answers.into_iter().collect(), requests: Vec::new(), sent: Vec::new(), waited: 0 };
    if let Err(fault) = driver.run(turn, &mut recorder) {
        recorder.fail(&fault);
    }

    let losses = recorder.normalizer.losses().to_vec();
    let record = recorder.finish();
    DrivenTurn {
        requests: driver.requests,
        sent: driver.sent,
        awaits: record.run().turn().and_then(|turn| turn.awaits),
        record,
        losses,
        waited: std::time::Duration::from_millis(driver.waited),
    }
}

/// Drives a turn that sends one request, answered by an event stream that arrives in these pieces.
pub fn drive_stream<'a>(turn: &mut dyn AgentTurn, pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    let pieces = pieces.into_iter().map(<[u8]>::to_vec).collect();
    drive(turn, [Answer::Stream(pieces)]).record
}

/// Drives a turn that sends one request, answered by one JSON body.
pub fn drive_body(turn: &mut dyn AgentTurn, body: &[u8]) -> Record {
    drive(turn, [Answer::Body(body.to_vec())]).record
}

struct Driver {
    answers: VecDeque<Answer>,
    requests: Vec<HttpRequest>,
    sent: Vec<LinkMessages>,
    waited: Millis,
}

impl Driver {
    fn run(&mut self, turn: &mut dyn AgentTurn, recorder: &mut Recorder) -> Result<(), Fault> {
        while !recorder.normalizer.has_ended() {
            let steps = self.requests.len() + self.sent.len();
            assert!(steps < MAX_REQUESTS, "the turn sends too many requests");
            match turn.next(self.waited)? {
                Next::Finished => break,
                Next::Wait(pause) => self.waited += u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                Next::Send(request) => {
                    let purpose = request.purpose;
                    self.requests.push(request);
                    let answer = self.answers.pop_front();
                    let answer = answer.unwrap_or_else(|| panic!("no answer is left for {:?}", self.requests.last()));

                    match purpose {
                        Purpose::Lookup | Purpose::Published => lookup(turn, answer)?,
                        Purpose::Ask => ask(turn, answer, recorder)?,
                    }
                }
                Next::Connect => match self.answers.pop_front() {
                    Some(Answer::Link(link)) => turn.on_link(&link)?,
                    Some(Answer::Fault(fault)) => turn.on_failure(fault)?,
                    other => panic!("the turn asks for a link and not for {other:?}"),
                },
                Next::Converse(messages) => {
                    self.sent.push(messages);
                    let answer = self.answers.pop_front();
                    let answer = answer.unwrap_or_else(|| panic!("no answer is left for {:?}", self.sent.last()));
                    ask(turn, answer, recorder)?;
                }
            }
        }
        Ok(())
    }
}

fn lookup(turn: &mut dyn AgentTurn, answer: Answer) -> Result<(), Fault> {
    match answer {
        Answer::Body(body) => turn.on_lookup(Ok(&body)),
        Answer::Stream(pieces) | Answer::Cut(pieces) => turn.on_lookup(Ok(&pieces.concat())),
        Answer::Fault(fault) => turn.on_lookup(Err(&fault)),
        Answer::Link(_) | Answer::Messages(_) => panic!("a document was asked for"),
    }
}

fn ask(turn: &mut dyn AgentTurn, answer: Answer, recorder: &mut Recorder) -> Result<(), Fault> {
    let broken = || Fault::new(FaultKind::UpstreamTruncated, "the connection to the agent broke");
    match answer {
        Answer::Stream(pieces) => {
            read_stream(turn, &pieces, recorder)?;
            turn.on_end(recorder)
        }
        Answer::Cut(pieces) => {
            let is_wanted = read_stream(turn, &pieces, recorder)?;
            if recorder.normalizer.has_ended() {
                Ok(())
            } else if is_wanted {
                turn.on_cut(broken(), recorder)
            } else {
                turn.on_end(recorder)
            }
        }
        Answer::Body(body) => {
            json_repair::read_body(turn, &body, recorder)?;
            turn.on_end(recorder)
        }
        Answer::Fault(fault) => turn.on_failure(fault),
        Answer::Messages(messages) => {
            for message in &messages {
                let frame = sse::Frame { data: message, ..sse::Frame::default() };
                json_repair::read_frame(turn, frame, recorder)?;
                turn.on_frames_read(recorder)?;
                if turn.leaves_answer() || recorder.normalizer.has_ended() {
                    break;
                }
            }
            if recorder.normalizer.has_ended() { Ok(()) } else { turn.on_end(recorder) }
        }
        Answer::Link(_) => panic!("a link was not asked for"),
    }
}

/// Reads a stream. False: the turn does not want the rest of it.
fn read_stream(turn: &mut dyn AgentTurn, pieces: &[Vec<u8>], recorder: &mut Recorder) -> Result<bool, Fault> {
    let too_large =
        |error| Fault::new(FaultKind::UpstreamTooLarge, "a frame of the agent is too large").with_source(error);
    let mut decoder = Decoder::new(MAX_FRAME_BYTES);

    for piece in pieces {
        let mut piece = piece.as_slice();
        while let Some(frame) = decoder.decode(&mut piece).map_err(too_large)? {
            json_repair::read_frame(turn, frame, recorder)?;
        }
        turn.on_frames_read(recorder)?;
        if turn.leaves_answer() {
            return Ok(false);
        }
    }

    if let Some(frame) = decoder.finish().frame() {
        json_repair::read_frame(turn, frame, recorder)?;
    }
    Ok(!turn.leaves_answer())
}
