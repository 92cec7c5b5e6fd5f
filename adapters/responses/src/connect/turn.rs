//! One turn with a server that speaks Responses: the order of its requests.
//!
//! ```text
//! Conversation ─► Ask ─► stream ─► end
//!                  │        └► cut, in the background: Pause ─► Resume ─► … ─► Poll
//!                  └► queued: Pause ─► Poll ─► Pause ─► Poll … ─► end
//! ```
//!
//! Not here: the meaning of answers (`reader`), and the bodies of requests (`request`).

use std::sync::Arc;
use std::time::Duration;

use interlingua_adapter_kit::mislabeled;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Purpose, Refusal};
use interlingua_core::event::Millis;
use interlingua_core::loss::Loss;
use interlingua_core::model_error::{garbage, map_refusal};
use interlingua_core::sse::Frame;
use interlingua_core::{End, Extra, Fault, FaultKind, Json};

use super::endpoint::Endpoint;
use super::errors::{FORGOTTEN, is_forgotten};
use super::options::{Background, Chain, UpstreamOptions};
use super::reader::{Progress, Reader};
use super::session::SessionState;
use super::wire::{Event, text};

/// Consecutive resumptions of an answer without progress.
const MAX_RESUMES: u32 = 5;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a conversation.
    Conversation,
    Ask,
    /// Wait, then take the answer up again.
    Pause(Duration),
    Resume,
    Poll,
}

pub(super) struct ResponsesTurn {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) options: Arc<UpstreamOptions>,
    pub(super) body: Extra,
    pub(super) reader: Reader,
    /// None: an answer is awaited, which decides; or there is nothing more to do.
    pub(super) step: Option<Step>,
    /// The last step that was sent.
    asked: Option<Step>,
    /// The stored state at the beginning of the turn.
    pub(super) stored: SessionState,
    /// The server's conversation, once there is one.
    pub(super) conversation: Option<String>,
    /// The tools that this request declared, if they are kept.
    pub(super) tools: Option<Vec<Json>>,
    /// The turn can be taken only with the history.
    pub(super) needs_history: bool,
    /// The request names something that the server has to remember.
    pub(super) goes_on: bool,
    polls: u32,
    resumes: u32,
    /// The number of progress reports at the last poll.
    reports: u64,
    /// The number of the last event when the answer was taken up last.
    progress: Option<u64>,
}

impl ResponsesTurn {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        options: Arc<UpstreamOptions>,
        body: Extra,
        reader: Reader,
        stored: SessionState,
    ) -> Self {
        let makes_one = options.chain == Chain::Conversation;
        Self {
            endpoint,
            options,
            body,
            reader,
            step: Some(if makes_one { Step::Conversation } else { Step::Ask }),
            asked: None,
            stored,
            conversation: None,
            tools: None,
            needs_history: false,
            goes_on: false,
            polls: 0,
            resumes: 0,
            reports: 0,
            progress: None,
        }
    }

    fn send(&mut self, step: Step) -> Result<Next, Fault> {
        self.asked = Some(step);
        Ok(match step {
            Step::Conversation => Next::Send(HttpRequest::post(self.endpoint.conversations(), b"{}".to_vec())),
            Step::Ask => {
                if let Some(conversation) = &self.conversation {
                    self.body.set("conversation", Json::from_serialize(conversation));
                }
                let body = serde_json::to_vec(&self.body).map_err(|error| {
                    Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
                })?;
                Next::Send(HttpRequest::post(self.endpoint.url(), body))
            }
            Step::Pause(pause) => {
                let streams = self.options.background == Background::Stream && self.resumes <= MAX_RESUMES;
                let cut = self.resumes > 0 && streams && self.reader.sequence.is_some();
                self.step = Some(if cut { Step::Resume } else { Step::Poll });
                Next::Wait(pause)
            }
            Step::Resume => {
                self.reader.repeated = self.reader.sequence;
                let after = self.reader.sequence.unwrap_or_default();
                self.get(&format!("stream=true&starting_after={after}"), "text/event-stream")
            }
            Step::Poll => self.get("", "application/json"),
        })
    }

    fn get(&self, query: &str, accept: &'static str) -> Next {
        let Some(id) = &self.reader.response_id else { return Next::Finished };
        let mut request = HttpRequest::lookup(self.endpoint.response(id, "", query));
        request.purpose = Purpose::Ask;
        request.headers = vec![("accept".into(), accept.to_owned())];
        Next::Send(request)
    }

    /// True if the server works on, whatever becomes of a connection.
    fn runs_in_background(&self) -> bool {
        self.options.background != Background::Off
            && self.reader.progress == Progress::Working
            && self.reader.response_id.is_some()
    }

    /// Takes the answer up again after a while.
    fn resume(&mut self, after: Option<Duration>) {
        if self.reader.sequence > self.progress {
            self.progress = self.reader.sequence;
            self.resumes = 0;
        }
        let pause = self.backoff(self.resumes).max(after.unwrap_or_default());
        self.resumes += 1;
        self.step = Some(Step::Pause(pause));
    }

    /// Pauses grow by half from one to the next.
    fn backoff(&self, number: u32) -> Duration {
        let longest = self.options.max_poll_interval.0;
        (0..number.min(32)).fold(self.options.poll_interval.0, |pause, _| (pause + pause / 2).min(longest))
    }

    fn read_conversation(&mut self, body: &[u8]) -> Result<(), Fault> {
        let id = serde_json::from_slice(body).ok().and_then(super::wire::Object::parse);
        let id = id.and_then(|fields| fields.text("id")).filter(|id| !id.is_empty() && id.len() <= 1024);
        let Some(id) = id else { return Err(garbage(body)) };
        self.conversation = Some(id.into_owned());
        self.step = Some(Step::Ask);
        Ok(())
    }

    /// Continues the answer after a request beside it was answered.
    fn after_answer(&mut self) {
        let has_ended = self.reader.progress == Progress::Ended;
        if self.step.is_some() || has_ended || !self.runs_in_background() {
            return;
        }

        if self.asked == Some(Step::Resume) || (self.asked == Some(Step::Ask) && self.streams()) {
            return self.resume(None);
        }
        // A server that answers without progress must not be polled without limit.
        if self.reader.reports == self.reports {
            self.resumes += 1;
            if self.resumes > 2 * MAX_RESUMES {
                return;
            }
        } else {
            self.reports = self.reader.reports;
            self.resumes = 0;
        }
        let pause = self.backoff(self.polls);
        self.polls += 1;
        self.step = Some(Step::Pause(pause));
    }

    fn streams(&self) -> bool {
        self.options.background == Background::Stream && self.reader.sequence.is_some()
    }

    /// The state after an answer that ended well enough to be continued.
    fn learned(&self) -> SessionState {
        let mut state = self.stored.clone();
        if let Some(tools) = &self.tools {
            state.tools.clone_from(tools);
        }
        match self.options.chain {
            Chain::PreviousResponseId => {
                let goes_on = matches!(self.reader.end, Some(End::Completed | End::Incomplete));
                if goes_on && self.reader.response_id.is_some() {
                    state.response.clone_from(&self.reader.response_id);
                    state.open_calls.clone_from(&self.reader.open_calls);
                }
            }
            Chain::Conversation => {
                if self.conversation.is_some() {
                    state.conversation.clone_from(&self.conversation);
                }
                if matches!(self.reader.end, Some(End::Completed | End::Incomplete)) {
                    state.open_calls.clone_from(&self.reader.open_calls);
                }
            }
            Chain::Full => {}
        }
        state
    }
}

impl AgentTurn for ResponsesTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        match self.step.take() {
            Some(step) => self.send(step),
            None => Ok(Next::Finished),
        }
    }

    #[inline]
    fn on_frame(&mut self, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // The end mark ends nothing: without an event that does, the answer has broken off.
        if self.reader.progress == Progress::Ended || frame.is_done() || frame.data.trim_ascii().is_empty() {
            return Ok(());
        }
        self.reader.read(frame.data, frame.event, sink)
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if self.asked == Some(Step::Conversation) {
            return self.read_conversation(visible);
        }
        if visible.first() != Some(&b'{') {
            return mislabeled::read_stream(self, body, sink);
        }

        if Event::parse(visible).is_some_and(|event| text(event.kind).is_some_and(|kind| kind == "message")) {
            let message = "the agent's answer is in another protocol: set protocol = \"anthropic-messages\"";
            return Err(Fault::new(FaultKind::UpstreamGarbage, message));
        }
        self.reader.read(visible, None, sink)
    }

    fn on_end(&mut self, _: &mut dyn EventSink) -> Result<(), Fault> {
        self.after_answer();
        Ok(())
    }

    fn on_failure(&mut self, mut fault: Fault) -> Result<(), Fault> {
        if fault.code.as_deref() == Some(FORGOTTEN) && self.asked == Some(Step::Ask) && self.goes_on {
            self.needs_history = true;
            // To clients of this very protocol the code says that *they* named a response that is unknown.
            fault.code = None;
            return Err(fault);
        }

        let is_passing = matches!(
            fault.kind,
            FaultKind::UpstreamUnreachable
                | FaultKind::UpstreamTimeout
                | FaultKind::UpstreamTruncated
                | FaultKind::UpstreamOverloaded
                | FaultKind::UpstreamRateLimited
        );
        let is_passing = is_passing || matches!(fault.upstream_status, Some(500 | 502));
        // A stream that cannot be taken up: the answer itself can still be asked for.
        let was_refused =
            self.asked == Some(Step::Resume) && matches!(fault.upstream_status, Some(400 | 404 | 405 | 501));
        if self.runs_in_background() && self.resumes < 2 * MAX_RESUMES && (is_passing || was_refused) {
            let after = fault.retry_after;
            self.resume(after);
            if was_refused {
                self.resumes = self.resumes.max(MAX_RESUMES + 1);
            }
            return Ok(());
        }

        if self.asked == Some(Step::Poll) && fault.upstream_status == Some(404) {
            let message = "the agent has forgotten the answer that it works on";
            return Err(Fault { message: message.to_owned(), kind: FaultKind::UpstreamTruncated, code: None, ..fault });
        }
        Err(fault)
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        let mut fault = map_refusal(refusal);
        if self.goes_on && self.asked == Some(Step::Ask) && is_forgotten(refusal) {
            fault.code = Some(FORGOTTEN.to_owned());
            "the agent has forgotten what was said before".clone_into(&mut fault.message);
        }
        fault
    }

    fn cancel(&self) -> Option<HttpRequest> {
        if !self.runs_in_background() {
            return None;
        }
        let id = self.reader.response_id.as_deref()?;
        Some(HttpRequest::post(self.endpoint.response(id, "/cancel", ""), Vec::new()))
    }

    fn cancels_once_known(&self) -> bool {
        self.options.background != Background::Off && self.reader.response_id.is_none()
    }

    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        match status {
            200..=299 => None,
            404 | 405 | 501 => Some(format!("the server cannot cancel a response ({status})")),
            status => {
                let (_, message) = super::errors::complaint(body);
                Some(format!("the server refuses to cancel its response ({status}): {message}"))
            }
        }
    }

    fn needs_history(&self) -> bool {
        self.needs_history
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses.as_slice()
    }

    fn session_state(&self) -> Option<Json> {
        let state = self.learned();
        (state != self.stored).then(|| state.to_json())
    }
}
