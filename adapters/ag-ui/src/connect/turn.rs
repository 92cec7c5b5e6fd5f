//! One run of the agent: a request and its answer.

use std::collections::HashSet;

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_adapter_kit::mislabeled;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::model_error::{garbage, map_refusal};
use interlingua_core::pending::PendingKind;
use interlingua_core::sse::Frame;
use interlingua_core::{Fault, Json, opaque};

use super::answers::{Answers, source};
use super::calls::Calls;
use super::context::TurnState;
use super::ids::key;
use super::input::{Input, own_id};
use super::kept::StoredEvents;
use super::options::UpstreamOptions;
use super::reader::{Reader, Rules};
use super::snapshot::Start;
use super::texts::Texts;

/// A turn with an agent that speaks AG-UI.
pub(super) struct AgUiTurn {
    request: Option<HttpRequest>,
    reader: Reader,
    /// The session's call ids before this turn.
    stored: CallIds,
}

impl AgUiTurn {
    /// # Errors
    /// If an answer in the request decides nothing.
    pub(super) fn new(url: &str, options: &UpstreamOptions, turn: &TurnRequest<'_>) -> Result<Self, Fault> {
        let origin = opaque::origin(crate::NAME, turn.agent);
        let mut losses = Losses::new();
        let answers = Answers::new(turn, options.resume_style, &mut losses)?;
        let stored = CallIds::parse(turn.session_state);
        let input = Input::new(turn, options, &origin, &answers, &stored, &mut losses);
        let request = HttpRequest::post(url, input.body.text().as_bytes().to_vec());

        let mut calls = Calls::new(input.tools);
        for (own, name) in answers.sources.iter().flat_map(|source| &source.calls) {
            let id = stored.latest(own);
            calls.add_shown_before(own_id(turn, &stored, id), id, name, false);
        }
        for item in turn.answered {
            let is_tool = item.kind == PendingKind::Tool;
            let call = if is_tool { Some(&item.id) } else { item.call_id.as_ref() };
            if let Some(id) = call {
                calls.add_shown_before(&key(own_id(turn, &stored, id)), id, &item.name, is_tool);
            }
        }
        // Calls of a conversation that is sent as a whole.
        for call in
            turn.request.input.iter().flat_map(|message| message.calls()).filter(|call| !call.call_id.is_empty())
        {
            let own = key(own_id(turn, &stored, &call.call_id));
            calls.add_shown_before(&own, &call.call_id, &call.name, false);
        }
        let earlier = turn.request.input.iter().enumerate().filter(|(place, _)| turn.history.contains(place));
        for output in earlier.flat_map(|(_, message)| message.outputs()) {
            calls.add_shown_before(&key(&output.call_id), &output.call_id, "", true);
        }
        // Outputs that say whether a call may run are not those of the call.
        let decided: HashSet<String> = answers.outputs.iter().map(|(id, _)| key(own_id(turn, &stored, id))).collect();
        for own in input.outputs.difference(&decided) {
            calls.add_shown_before(own, stored.latest(own), "", true);
        }

        let is_from_user = |role: Option<&Role>| !matches!(role, Some(Role::Assistant | Role::System));
        let has_new_words = turn
            .new_messages()
            .any(|(_, message)| message.kind == MessageType::Message && is_from_user(message.role.as_ref()));
        let is_answer = !turn.answered.is_empty() && !has_new_words;
        let start = Start {
            after: turn.answered.iter().rev().find_map(|item| source(item).after),
            outputs: input.outputs,
            is_answer,
        };
        let mut shared = TurnState::new(origin, input.ids);
        shared.losses = losses;
        shared.call_ids = stored.clone();
        let reader = Reader {
            rules: Rules::new(options),
            thread: turn.request.session_id.clone().unwrap_or_default(),
            start,
            approved: approved(turn, &stored),
            shared,
            calls,
            kept: StoredEvents::new(options.events, turn.protocol_events),
            texts: Texts::default(),
            asked: Vec::new(),
            is_started: false,
            has_ended: false,
            unescaped: String::new(),
        };
        Ok(Self { request: Some(request), reader, stored })
    }
}

/// The calls that people decide about in this turn: id and name.
fn approved(turn: &TurnRequest<'_>, call_ids: &CallIds) -> Vec<(String, String)> {
    let approvals = turn.answered.iter().filter(|item| item.kind == PendingKind::Approval);
    let own = |id: &str| key(own_id(turn, call_ids, id));
    approvals.filter_map(|item| Some((own(item.call_id.as_deref()?), item.name.clone()))).collect()
}

impl AgentTurn for AgUiTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    #[inline]
    fn on_frame(&mut self, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // The protocol has no end mark, but servers of other protocols add theirs.
        if frame.is_done() || frame.data.trim_ascii().is_empty() {
            return Ok(());
        }
        self.reader.read(frame.data, sink)
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        match visible.first() {
            Some(b'{') => self.reader.read(visible, sink),
            Some(b'[') => {
                let events: Vec<&serde_json::value::RawValue> =
                    serde_json::from_slice(visible).map_err(|_| garbage(body))?;
                events.into_iter().try_for_each(|event| self.reader.read(event.get().as_bytes(), sink))
            }
            _ => mislabeled::read_stream(self, body, sink),
        }
    }

    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // Without the end of the run, the agent broke off. What came stands.
        self.reader.flush(sink)
    }

    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.reader.flush(sink)?;
        if self.reader.has_ended() { Ok(()) } else { Err(fault) }
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        map_refusal(refusal)
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses()
    }

    fn session_state(&self) -> Option<Json> {
        let call_ids = &self.reader.shared.call_ids;
        (*call_ids != self.stored).then(|| call_ids.to_json())
    }
}
