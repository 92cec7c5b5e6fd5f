//! One turn: a call, and after a broken connection the requests for its status.

use std::time::Duration;

use interlingua_core::connector::{AgentTurn, EventSink, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model_error::{garbage, map_refusal};
use interlingua_core::sse::Frame;
use interlingua_core::{Fault, FaultKind, Json};

use super::options::UpstreamOptions;
use super::reader;
use super::request::Outgoing;
use super::state::SessionState;
use super::wire::{AgentResponse, SessionStatus};

/// Failed status requests after which the turn fails.
const MAX_FAILURES: u32 = 5;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Send,
    Pause(Duration),
    Poll,
    Done,
}

/// A turn with the service.
pub(super) struct HitlTurn {
    options: UpstreamOptions,
    outgoing: Outgoing,
    stored: SessionState,
    state: SessionState,
    losses: Losses,
    step: Step,
    is_polling: bool,
    polls: u32,
    failures: u32,
    /// The error that the service, or a proxy before it, answered the call with.
    reported: Option<Fault>,
}

impl HitlTurn {
    /// # Errors
    /// If the input has neither a query nor an answer.
    pub(super) fn new(base: &str, options: &UpstreamOptions, turn: &TurnRequest<'_>) -> Result<Self, Fault> {
        let stored = SessionState::parse(turn.session_state);
        let mut losses = Losses::new();
        let outgoing = Outgoing::new(base, options, turn, stored.session_id.as_deref(), &mut losses)?;
        let mut state = stored.clone();
        if outgoing.query.is_some() {
            state.shown = 0;
        }
        Ok(Self {
            options: options.clone(),
            outgoing,
            stored,
            state,
            losses,
            step: Step::Send,
            is_polling: false,
            polls: 0,
            failures: 0,
            reported: None,
        })
    }

    /// Pauses grow by half from one to the next.
    fn pause(&mut self) {
        let (first, longest) = (self.options.poll_interval.0, self.options.max_poll_interval.0);
        let grown = (0..self.polls.min(32)).fold(first, |pause, _| (pause + pause / 2).min(longest));
        self.polls += 1;
        self.step = Step::Pause(grown);
    }

    /// Reads the status of the session after a broken connection.
    fn status(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let status: SessionStatus<'_> = serde_json::from_slice(body).map_err(|_| garbage(body))?;
        if status.status == "running" {
            self.pause();
            return Ok(());
        }
        let answer = status.last_response.filter(|answer| self.is_new(answer, status.last_query.as_deref()));
        // The call is not repeated: the agent may have executed it.
        let Some(answer) = answer else { return Err(self.reported.take().unwrap_or_else(truncated)) };
        reader::read(&answer, body, &mut self.state, sink)
    }

    /// True for the answer to this turn. Times are compared with those of the service itself: its clock is not ours.
    fn is_new(&self, answer: &AgentResponse<'_>, last_query: Option<&str>) -> bool {
        let is_own = self.outgoing.query.as_deref().is_none_or(|query| last_query.is_none_or(|last| last == query));
        match (self.stored.timestamp, answer.timestamp) {
            (Some(known), Some(found)) => is_own && found > known,
            _ => is_own,
        }
    }
}

fn truncated() -> Fault {
    Fault::new(FaultKind::UpstreamTruncated, "the agent broke off its answer, and the service does not have it")
}

/// True if the call may have arrived, and its answer may come to be known.
fn may_have_arrived(fault: &Fault) -> bool {
    match fault.kind {
        FaultKind::UpstreamTruncated => true,
        // A proxy gave up waiting; the agent may still be working.
        FaultKind::UpstreamTimeout | FaultKind::AgentFailed => matches!(fault.upstream_status, Some(502 | 504)),
        _ => false,
    }
}

impl AgentTurn for HitlTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(match std::mem::replace(&mut self.step, Step::Done) {
            Step::Send => Next::Send(self.outgoing.request.clone()),
            Step::Pause(pause) => {
                self.step = Step::Poll;
                Next::Wait(pause)
            }
            Step::Poll => {
                self.is_polling = true;
                Next::Send(self.outgoing.status.clone())
            }
            Step::Done => Next::Finished,
        })
    }

    fn on_frame(&mut self, frame: Frame<'_>, _: &mut dyn EventSink) -> Result<(), Fault> {
        // The service has no event streams.
        if frame.data.trim_ascii().is_empty() { Ok(()) } else { Err(garbage(frame.data)) }
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        self.failures = 0;
        if self.is_polling {
            return self.status(body, sink);
        }
        let response = AgentResponse::parse(body).ok_or_else(|| garbage(body))?;
        reader::read(&response, body, &mut self.state, sink)
    }

    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        let is_poll = self.is_polling;
        let may_pass = is_poll && !matches!(fault.upstream_status, Some(400..=499));
        if !may_pass && (is_poll || !may_have_arrived(&fault)) {
            return Err(self.reported.take().unwrap_or(fault));
        }
        if !is_poll && fault.upstream_status.is_some() {
            self.reported = Some(fault.clone());
        }
        self.failures += 1;
        if self.failures > MAX_FAILURES {
            return Err(self.reported.take().unwrap_or_else(|| truncated().with_detail(fault)));
        }
        self.pause();
        Ok(())
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        let is_resume = self.outgoing.query.is_none();
        let mut fault = map_refusal(refusal);
        match refusal.status {
            409 => {
                fault.kind = FaultKind::Busy;
                "the agent is still busy with this session".clone_into(&mut fault.message);
            }
            404 if is_resume && !self.is_polling => {
                fault.kind = FaultKind::Conflict;
                "the agent has forgotten the question".clone_into(&mut fault.message);
            }
            _ => {}
        }
        fault
    }

    fn session_state(&self) -> Option<Json> {
        (self.state != self.stored).then(|| self.state.to_json())
    }

    fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }
}
