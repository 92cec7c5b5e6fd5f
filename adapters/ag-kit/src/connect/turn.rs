//! One request and its answer.

use interlingua_adapter_kit::mislabeled;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model_error::map_refusal;
use interlingua_core::sse::Frame;
use interlingua_core::{Fault, FaultKind, Json};

use super::asks;
use super::calls::Calls;
use super::options::UpstreamOptions;
use super::reader::Reader;
use super::request::{RequestBody, tool_names};
use super::state::SessionState;

/// A turn with an AG-Kit server.
pub(super) struct AgKitTurn {
    request: Option<HttpRequest>,
    reader: Reader,
    /// The session's state before this turn.
    stored: SessionState,
    /// The same with the tools of this request.
    state: SessionState,
}

impl AgKitTurn {
    /// # Errors
    /// If an answer in the input cannot be sent.
    pub(super) fn new(endpoint: &str, options: &UpstreamOptions, turn: &TurnRequest<'_>) -> Result<Self, Fault> {
        let stored = SessionState::parse(turn.session_state);
        let mut state = stored.clone();
        if let Some(tools) = &turn.request.tools {
            state.keep_tools(tool_names(tools));
        }
        let mut losses = Losses::new();
        let (resume, mut approved) = asks::resume(turn, options.resume_style)?;
        for call in approved.iter_mut().filter_map(|approved| approved.call_id.as_mut()) {
            *call = stored.call_ids.own(call).to_owned();
        }
        // Results of the calls before a pause come in the answer that follows it.
        let earlier = if resume.is_some() { std::mem::take(&mut state.calls) } else { Vec::new() };
        state.calls.clear();
        let calls = Calls::new(state.tools.clone(), earlier, approved, options.unanswered_calls);
        let calls = calls.with_ids(state.call_ids.clone());

        let body = RequestBody::new(turn, resume, options.parameters, &stored.call_ids, &mut losses);
        let body = serde_json::to_vec(&body).map_err(|error| {
            Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
        })?;
        let fallback_id = format!("ask-{}-{}", turn.request.id.as_deref().unwrap_or("run"), turn.turn);
        let reader = Reader::new(calls, losses, fallback_id);
        Ok(Self { request: Some(HttpRequest::post(endpoint, body)), reader, stored, state })
    }
}

impl AgentTurn for AgKitTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    fn on_frame(&mut self, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.reader.ended || frame.data.trim_ascii().is_empty() {
            return Ok(());
        }
        if frame.is_done() {
            return self.reader.finish(sink);
        }
        self.reader.read(frame.data, sink)
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if visible.starts_with(b"{") {
            return self.reader.read(visible, sink);
        }
        mislabeled::read_stream(self, visible, sink)
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        map_refusal(refusal)
    }

    fn session_state(&self) -> Option<Json> {
        let mut state = self.state.clone();
        state.call_ids.clone_from(self.reader.calls.ids());
        if self.reader.interrupt.is_some() {
            state.keep_calls(self.reader.calls.open());
        }
        (state != self.stored).then(|| state.to_json())
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses.as_slice()
    }
}
