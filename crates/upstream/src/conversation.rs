//! One active turn with an agent: its requests, one after the other, and the answers as they arrive.
//!
//! The turn decides ([`AgentTurn`]); this drives it: sends its requests, cuts bodies into frames and passes them on,
//! makes the requested pauses, and limits all of it in time and bytes. The [`Transport`] sends.
//!
//! Not here: connections and retries ([`super::http`]), and runs whose agent fails (the engine).

mod stop;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready as ready_now};
use futures_util::stream::{BoxStream, StreamExt};
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, LinkInfo, LinkMessages, Next, Purpose};
use interlingua_core::event::Millis;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::sse::{self, DecodeError, Decoder};
use interlingua_core::{Fault, FaultKind, Json, filter, json_repair, model_error, tree};
use tokio::time::{Instant, Sleep};

pub use self::stop::{StopAnswer, StopOutcome};
use super::ResponseTimeouts;
use super::pool::{EndpointPermit, Outcome};
use super::send_error::{BEGINNING, SendCause, SendError, SendProgress, sanitized};
use interlingua_base::secrets;

/// Number of first frames among which an ignored frame is inspected. By then, an agent has shown its protocol.
const INSPECTED_FRAMES: u64 = 64;
/// A turn that sends more requests than this, or looks up and waits without end, has gone wrong.
const MAX_REQUESTS: u32 = 10_000;

/// Sends the requests of a turn.
pub trait Transport: Send + 'static {
    /// Sends a request and waits for the head of its answer, or for all of a document that was looked up. `since`: when
    /// the turn began.
    fn send(&self, request: HttpRequest, since: Instant) -> BoxFuture<'static, Result<Reply, SendError>>;

    /// Sends a request that tells the agent to stop. Bounded in time.
    fn cancel(&self, request: HttpRequest) -> BoxFuture<'static, Result<StopAnswer, Fault>>;

    /// Opens the agent's link, or returns the open one. Bounded in time.
    fn connect(&self) -> BoxFuture<'static, Result<LinkInfo, SendError>> {
        ready_now(Err(SendError::from(no_link()))).boxed()
    }

    /// Writes messages to the link of [`connect`](Self::connect), and reads their topic. `since`: when the turn began.
    fn converse(&self, messages: LinkMessages, since: Instant) -> BoxFuture<'static, Result<Reply, SendError>> {
        let _ = (messages, since);
        ready_now(Err(SendError::from(no_link()))).boxed()
    }

    /// Writes messages to the link that is open, and reads no answer. Bounded in time.
    fn notify(&self, messages: LinkMessages) -> BoxFuture<'static, Result<(), Fault>> {
        let _ = messages;
        ready_now(Err(no_link())).boxed()
    }
}

/// The answer to a request.
pub enum Reply {
    /// An answer whose body is to come.
    Answer(Box<Body>),
    /// A complete document.
    Document(Arc<[u8]>),
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An event stream.
    Frames,
    /// One JSON body.
    Whole,
    /// The head does not say; the first byte of the body will.
    Unsaid,
    /// Messages of a link: each chunk is one.
    Messages,
}

/// The body of an answer.
pub struct Body {
    chunks: BoxStream<'static, Result<Bytes, Fault>>,
    form: Form,
    timeouts: Option<ResponseTimeouts>,
    decoder: Decoder,
    /// The arrived part of an answer without streaming.
    whole: Vec<u8>,
    max_event: usize,
    /// The connection can serve no other request: something went wrong.
    broken: bool,
    /// The body has ended: a stream that has must not be polled again.
    ended: bool,
    /// The media type of the answer.
    media: String,
    /// A chunk has all bytes that have arrived.
    is_gathered: bool,
}

impl Body {
    /// An expected body. `max_event` limits one event of a stream, or an answer in one body, in bytes. Without
    /// `timeouts` silence is unlimited.
    #[must_use]
    pub fn new(
        chunks: BoxStream<'static, Result<Bytes, Fault>>,
        form: Form,
        max_event: usize,
        timeouts: Option<ResponseTimeouts>,
    ) -> Self {
        Self {
            chunks,
            form,
            timeouts,
            decoder: Decoder::new(max_event),
            whole: Vec::new(),
            max_event,
            broken: false,
            ended: false,
            media: String::new(),
            is_gathered: false,
        }
    }

    /// A chunk has all bytes that have arrived, up to a limit: after it, there is nothing to read without waiting.
    #[must_use]
    pub fn gathered(self, is_gathered: bool) -> Self {
        Self { is_gathered, ..self }
    }

    /// Names the media type that the agent gave its answer.
    #[must_use]
    pub fn with_media(mut self, media: String) -> Self {
        self.media = media;
        self
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }

        let chunk = match (self.chunks.poll_next_unpin(context), &mut self.timeouts) {
            (Poll::Ready(Some(Ok(chunk))), Some(timeouts)) => Poll::Ready(timeouts.check_total().map(|()| Some(chunk))),
            (Poll::Ready(next), _) => Poll::Ready(next.transpose()),
            (Poll::Pending, Some(timeouts)) => timeouts.poll_expired(context).map(Err),
            (Poll::Pending, None) => Poll::Pending,
        };

        self.broken |= matches!(chunk, Poll::Ready(Err(_)));
        self.ended |= matches!(chunk, Poll::Ready(Ok(None) | Err(_)));
        chunk
    }

    fn gather(&mut self, chunk: &[u8]) -> Result<(), Fault> {
        if self.whole.len() + chunk.len() > self.max_event {
            let limit = self.max_event;
            return Err(Fault::new(
                FaultKind::UpstreamTooLarge,
                format!("the agent's answer is larger than {limit} bytes"),
            ));
        }

        self.whole.extend_from_slice(chunk);
        if let Some(timeouts) = &mut self.timeouts {
            timeouts.on_bytes(chunk.len(), true);
        }
        Ok(())
    }

    /// Reads the rest, nearly always nothing, in the background for a moment, so that the connection can serve the next
    /// request. After a fault the connection is closed at once.
    fn release(mut self) {
        const MOMENT: Duration = Duration::from_secs(1);
        const REST: usize = 64 * 1024;
        // The rest of a topic belongs to the next turn.
        if self.broken || self.ended || self.form == Form::Messages {
            return;
        }

        let mut rest = 0;
        // The end has nearly always arrived together with the last event.
        loop {
            match self.chunks.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(chunk))) if rest + chunk.len() <= REST => rest += chunk.len(),
                Poll::Ready(_) => return,
                Poll::Pending => break,
            }
        }

        tokio::spawn(tokio::time::timeout(MOMENT, async move {
            while let Some(Ok(chunk)) = self.chunks.next().await {
                rest += chunk.len();
                if rest > REST {
                    break;
                }
            }
        }));
    }
}

/// Whether a turn continues after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Another request is in progress: continue with [`Conversation::poll_chunk`].
    Continues,
    /// Nothing more will come.
    Ended,
}

enum Stage {
    /// A request is on its way.
    Sending(BoxFuture<'static, Result<Reply, SendError>>, bool),
    /// The link is opened.
    Connecting(BoxFuture<'static, Result<LinkInfo, SendError>>),
    /// A pause before the next request.
    Pausing(Pin<Box<Sleep>>),
    /// An answer comes.
    Reading(Box<Body>),
    /// Nothing more will come.
    Done,
}

/// A turn with an agent, under way.
///
/// [`begin`](Self::begin), then [`poll_chunk`](Self::poll_chunk) until it says `None`, handing each chunk to
/// [`feed`](Self::feed), then [`finish`](Self::finish), which says whether there is more of it. Waiting and reading are
/// apart so that a run is locked only while bytes are read. Dropping it closes the connection at once, which cancels
/// most agents.
pub struct Conversation {
    turn: Box<dyn AgentTurn>,
    transport: Box<dyn Transport>,
    stage: Stage,
    since: Instant,
    /// The turn may take this long.
    total: Duration,
    requests: u32,
    /// The number of inspected frames, up to [`INSPECTED_FRAMES`].
    frames: u64,
    /// Characters that were replaced before the connector could read them.
    repaired: Losses,
    /// The beginning of the first answer, for the log of an unreadable one.
    beginning: Vec<u8>,
    media: String,
    /// The first frame that had no effect.
    first_ignored: Option<String>,
    /// Its place at an endpoint, to which all its requests go.
    seat: Option<EndpointPermit>,
    /// It answers what the agent asked.
    is_decision: bool,
    /// The endpoint may work on it, or has refused a decision: it cannot move to another one.
    is_bound: bool,
    /// The endpoint may have taken a request of it.
    is_taken: bool,
    /// The endpoint's outcome of the last request, while it is not answered.
    unanswered: Option<Outcome>,
}

impl Conversation {
    /// A turn of which nothing was sent yet. `total`: how long all of it may take.
    #[must_use]
    pub fn new(turn: Box<dyn AgentTurn>, transport: Box<dyn Transport>, total: Duration) -> Self {
        Self {
            turn,
            transport,
            stage: Stage::Done,
            since: Instant::now(),
            total,
            requests: 0,
            frames: 0,
            repaired: Losses::new(),
            beginning: Vec::new(),
            media: String::new(),
            first_ignored: None,
            seat: None,
            is_decision: false,
            is_bound: false,
            is_taken: false,
            unanswered: None,
        }
    }

    /// Gives it its place at an endpoint. `is_decision`: it answers what the agent asked.
    #[must_use]
    pub(super) fn at(mut self, seat: Option<EndpointPermit>, is_decision: bool) -> Self {
        (self.seat, self.is_decision) = (seat, is_decision);
        self
    }

    /// True if the turn can be begun again at another endpoint: this one surely does not work on it.
    #[must_use]
    pub fn can_move(&self) -> bool {
        !self.is_bound
    }

    /// True if the endpoint may know of the turn by now.
    #[must_use]
    pub fn may_be_known(&self) -> bool {
        self.is_taken
    }

    /// The agent's answer has begun.
    pub fn began(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.began();
        }
    }

    /// Notes what the turn says about its endpoint.
    pub fn report(&mut self, outcome: Outcome) {
        if let Some(seat) = &mut self.seat {
            seat.report(self.unanswered.unwrap_or(outcome));
        }
    }

    /// Sends the first requests, and waits until the agent has begun to answer with success. Safe to drop: the
    /// connection is closed then.
    ///
    /// # Errors
    /// The request cannot be expressed in the agent's protocol, or the agent cannot be reached
    /// ([`FaultKind::UpstreamUnreachable`]), is silent for too long ([`FaultKind::UpstreamTimeout`]), or refuses (the
    /// fault that the connector derives from the refusal).
    pub async fn begin(&mut self) -> Result<(), Fault> {
        self.since = Instant::now();
        self.advance()?;
        poll_fn(|context| self.poll_reading(context)).await
    }

    /// Waits for the next piece of an answer. `None`: the answer has ended properly. Safe to cancel and call again.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTruncated`] if the connection broke, [`FaultKind::UpstreamTimeout`] if it was silent for
    /// too long or took too long altogether, [`FaultKind::UpstreamGarbage`] if it is compressed and cannot be unpacked,
    /// and the errors of a further request. Earlier events stay valid: see [`fail`](Self::fail).
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        ready!(self.poll_reading(context))?;
        match &mut self.stage {
            Stage::Reading(_) if self.turn.leaves_answer() => Poll::Ready(Ok(None)),
            Stage::Reading(body) => body.poll_chunk(context),
            _ => Poll::Ready(Ok(None)),
        }
    }

    /// True if a chunk has all bytes that have arrived, so that waiting for other tasks yields no more of them.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        matches!(&self.stage, Stage::Reading(body) if body.is_gathered)
    }

    /// [`poll_chunk`](Self::poll_chunk), to be awaited.
    ///
    /// # Errors
    /// As there.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// Drives requests and pauses until there is an answer to read, or nothing more will come.
    fn poll_reading(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            match &mut self.stage {
                Stage::Reading(_) | Stage::Done => return Poll::Ready(Ok(())),
                Stage::Pausing(pause) => {
                    ready!(pause.as_mut().poll(context));
                    self.advance()?;
                }
                Stage::Sending(sending, _) => {
                    let reply = ready!(sending.as_mut().poll(context));
                    self.on_reply(reply)?;
                }
                Stage::Connecting(connecting) => {
                    let link = ready!(connecting.as_mut().poll(context));
                    self.on_link(link)?;
                }
            }
        }
    }

    fn on_reply(&mut self, reply: Result<Reply, SendError>) -> Result<(), Fault> {
        let is_lookup = matches!(self.stage, Stage::Sending(_, true));
        self.stage = Stage::Done;
        self.note_reach(reply.as_ref().err(), is_lookup);
        let reply = reply.map_err(|error| match error.cause {
            SendCause::Fault(fault) => fault,
            SendCause::Refused(refused) => refused.to_fault(&*self.turn),
        });
        match reply {
            Ok(Reply::Answer(body)) => {
                if self.media.is_empty() {
                    self.media.clone_from(&body.media);
                }
                self.stage = Stage::Reading(body);
                return Ok(());
            }
            Ok(Reply::Document(document)) => {
                bounded("the agent's document", &document)?;
                self.turn.on_lookup(Ok(&document)).map_err(sanitized)?;
            }
            Err(fault) if is_lookup => self.turn.on_lookup(Err(&fault)).map_err(sanitized)?,
            Err(fault) => self.turn.on_failure(fault).map_err(sanitized)?,
        }
        self.advance()
    }

    fn on_link(&mut self, link: Result<LinkInfo, SendError>) -> Result<(), Fault> {
        self.stage = Stage::Done;
        // Opening the link begins nothing, as a lookup does.
        self.note_reach(link.as_ref().err(), true);
        match link {
            Ok(link) => self.turn.on_link(&link).map_err(sanitized)?,
            Err(error) => {
                let fault = match error.cause {
                    SendCause::Fault(fault) => fault,
                    SendCause::Refused(refused) => refused.to_fault(&*self.turn),
                };
                self.turn.on_failure(fault).map_err(sanitized)?;
            }
        }
        self.advance()
    }

    fn note_reach(&mut self, error: Option<&SendError>, is_lookup: bool) {
        let is_late = self.since.elapsed() >= self.total;
        self.unanswered = error.map(|error| error.outcome(is_late));
        let (is_bound, is_taken) = match error.map(|error| error.reach) {
            Some(SendProgress::NotSent) => (false, false),
            // It is for people to decide again.
            Some(SendProgress::NotTaken) => (self.is_decision, false),
            Some(SendProgress::Maybe) | None => (true, true),
        };
        // Looking something up begins nothing.
        self.is_bound |= is_bound && !is_lookup;
        self.is_taken |= is_taken && !is_lookup;
    }

    /// Begins the turn's next step.
    fn advance(&mut self) -> Result<(), Fault> {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            // A connector that never ends must not keep a run without limit.
            return Err(Fault::new(FaultKind::Internal, "the agent was asked too often in one turn"));
        }

        self.stage = match self.turn.next(now()).map_err(sanitized)? {
            Next::Finished => Stage::Done,
            Next::Send(request) => {
                let is_lookup = request.purpose != Purpose::Ask;
                Stage::Sending(self.transport.send(request, self.since), is_lookup)
            }
            Next::Connect => Stage::Connecting(self.transport.connect()),
            Next::Converse(messages) => Stage::Sending(self.transport.converse(messages, self.since), false),
            Next::Wait(pause) => {
                if self.since.elapsed() + pause > self.total {
                    return Err(Fault::new(FaultKind::UpstreamTimeout, "the agent took too long to answer")
                        .with_detail(format_args!("the turn did not end within {:?} (timeouts.total)", self.total)));
                }
                Stage::Pausing(Box::pin(tokio::time::sleep(pause)))
            }
        };
        Ok(())
    }

    /// Reads a piece of an answer.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTooLarge`] for an event past the bound, [`FaultKind::UpstreamGarbage`] for an event with
    /// more values or levels than [`tree::Bounds::DEFAULT`], else the fault of the turn or of the sink. The
    /// conversation is over then.
    pub fn feed(&mut self, chunk: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let fed = self.read(chunk, sink).map_err(sanitized);
        if fed.is_err()
            && let Stage::Reading(body) = &mut self.stage
        {
            body.broken = true;
        }
        fed
    }

    fn read(&mut self, chunk: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Stage::Reading(body) = &mut self.stage else { return Ok(()) };
        if self.beginning.len() < BEGINNING {
            self.beginning.extend_from_slice(&chunk[..chunk.len().min(BEGINNING - self.beginning.len())]);
        }

        if body.form == Form::Unsaid {
            match chunk.trim_ascii_start().first() {
                // A JSON answer: a line of an event stream never begins so.
                Some(b'{' | b'[') => body.form = Form::Whole,
                Some(_) => body.form = Form::Frames,
                None => {}
            }
        }
        if body.form == Form::Whole {
            return body.gather(chunk);
        }

        let lines = body.decoder.lines();
        let mut input = chunk;
        let mut message = (body.form == Form::Messages).then(|| sse::Frame { data: chunk, ..sse::Frame::default() });
        while let Some(frame) = match body.form {
            Form::Messages => message.take(),
            _ => body.decoder.decode(&mut input).map_err(too_large)?,
        } {
            bounded("the agent's event", frame.data)?;

            let inspected = self.frames < INSPECTED_FRAMES && self.first_ignored.is_none();
            let ignored = if inspected { sink.ignored() } else { 0 };
            if json_repair::read_frame(&mut *self.turn, frame, sink)? {
                self.repaired.changed(ContentKind::Text, json_repair::LOSS);
            }
            if inspected {
                self.frames += 1;
                if sink.ignored() > ignored {
                    // Masked before it is cut: half a secret is one too.
                    let data = String::from_utf8_lossy(&frame.data[..frame.data.len().min(32 * BEGINNING)]);
                    self.first_ignored = Some(filter::log_text(&secrets::mask(&data)));
                }
            }
        }

        self.turn.on_frames_read(sink)?;
        if let Some(timeouts) = &mut body.timeouts {
            timeouts.on_bytes(chunk.len(), body.form == Form::Messages || body.decoder.lines() > lines);
        }
        Ok(())
    }

    /// Reads the rest of an answer that has ended: a JSON body, a last event without its blank line, and the events
    /// that the turn held back. Then carries out the turn's next step, unless the turn has ended.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn finish(&mut self, sink: &mut dyn EventSink) -> Result<Flow, Fault> {
        if matches!(self.stage, Stage::Done) {
            return Ok(Flow::Ended);
        }

        self.read_rest(sink).and_then(|()| self.turn.on_end(sink)).map_err(sanitized)?;
        self.go_on(sink)
    }

    /// An answer broke off, or a further request failed: reads the rest of it, and lets the turn decide whether it
    /// continues.
    ///
    /// # Errors
    /// The fault, if the turn does not continue.
    pub fn fail(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<Flow, Fault> {
        // A last complete frame may have arrived before the connection broke.
        let _ = self.read_rest(sink);
        if sink.has_ended() {
            return Ok(Flow::Ended);
        }

        self.turn.on_cut(fault, sink).map_err(sanitized)?;
        self.go_on(sink)
    }

    fn read_rest(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Stage::Reading(body) = &mut self.stage else { return Ok(()) };
        if self.turn.leaves_answer() {
            return Ok(());
        }
        if body.form == Form::Whole {
            bounded("the agent's answer", &body.whole)?;
            if json_repair::read_body(&mut *self.turn, &body.whole, sink)? {
                self.repaired.changed(ContentKind::Text, json_repair::LOSS);
            }
            return Ok(());
        }

        if let Some(frame) = body.decoder.finish().frame() {
            bounded("the agent's event", frame.data)?;
            if json_repair::read_frame(&mut *self.turn, frame, sink)? {
                self.repaired.changed(ContentKind::Text, json_repair::LOSS);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, sink: &dyn EventSink) -> Result<Flow, Fault> {
        if sink.has_ended() {
            self.stage = Stage::Done;
            return Ok(Flow::Ended);
        }

        self.stage = Stage::Done;
        self.advance()?;
        Ok(if matches!(self.stage, Stage::Done) { Flow::Ended } else { Flow::Continues })
    }

    /// The reason why no part of an answer was understood: it is in another protocol. `None` if it contained nothing
    /// that could have been understood: the agent broke off.
    #[must_use]
    pub fn foreign(&self) -> Option<Fault> {
        let mut lines = self.beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        // Comments keep a connection open, and report nothing.
        let first = lines.find(|line| !line.is_empty() && !line.starts_with(b":"))?;
        // Proxies report errors of the agent as plain text.
        if !first.starts_with(b"data") && !first.starts_with(b"event") {
            let fault = model_error::garbage(&self.beginning);
            if fault.kind != FaultKind::UpstreamGarbage {
                return Some(secrets::mask_fault(fault));
            }
        }

        let message = "the agent's answer is not in the protocol that it is asked in";
        let beginning = String::from_utf8_lossy(&self.beginning);
        let beginning = secrets::mask_truncated(&beginning);
        let detail = format!("content-type: {}; the answer begins {beginning:?}", self.media);
        Some(secrets::mask_fault(Fault::new(FaultKind::UpstreamGarbage, message).with_detail(detail)))
    }

    /// The beginning of the first frame without an effect, for the log.
    #[must_use]
    pub fn first_ignored(&self) -> Option<&str> {
        self.first_ignored.as_deref()
    }

    /// True if the agent cannot take the turn without the whole history.
    #[must_use]
    pub fn needs_history(&self) -> bool {
        self.turn.needs_history()
    }

    /// The content of the request that the agent did not receive, and the content of its answer that a run cannot
    /// contain.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = self.repaired.clone();
        losses.extend(self.turn.losses());
        losses
    }

    /// The state that the connector needs for the next turn of this session and user.
    #[must_use]
    pub fn session_state(&self) -> Option<Json> {
        self.turn.session_state()
    }

    /// Releases the connection of a turn that has ended, so that it can serve another request.
    pub fn release(self) {
        if let Stage::Reading(body) = self.stage {
            body.release();
        }
    }
}

fn now() -> Millis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn no_link() -> Fault {
    Fault::new(FaultKind::Internal, "the agent is reached without a link")
}

/// Refuses data that is too deeply nested or has too many values: clients would receive it unchanged.
fn bounded(what: &str, data: &[u8]) -> Result<(), Fault> {
    tree::check_upstream(what, data, tree::Bounds::DEFAULT)
}

fn too_large(error: DecodeError) -> Fault {
    match error {
        DecodeError::TooLarge { limit } => {
            Fault::new(FaultKind::UpstreamTooLarge, format!("the agent sent an event larger than {limit} bytes"))
        }
        other => Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be read").with_source(other),
    }
}
