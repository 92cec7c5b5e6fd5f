//! One run of the agent: a request and its answer.

use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::mislabeled;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::model_error::{garbage, map_refusal};
use interlingua_core::pending::PendingKind;
use interlingua_core::sse::Frame;
use interlingua_core::{Fault, opaque};

use super::answers::{Answers, source};
use super::calls::Calls;
use super::context::Shared;
use super::ids::key;
use super::input::Input;
use super::kept::Kept;
use super::options::UpstreamOptions;
use super::reader::{Reader, Rules};
use super::snapshot::Start;
use super::texts::Texts;

/// A turn with an agent that speaks AG-UI.
pub(super) struct AgUiTurn {
    request: Option<HttpRequest>,
    reader: Reader,
}

impl AgUiTurn {
    /// # Errors
    /// If an answer in the request decides nothing.
    pub(super) fn new(url: &str, options: &UpstreamOptions, turn: &TurnRequest<'_>) -> Result<Self, Fault> {
        let origin = opaque::origin(crate::NAME, turn.agent);
        let mut losses = Losses::new();
        let answers = Answers::new(turn, options.resume_style, &mut losses)?;
        let input = Input::new(turn, options, &origin, &answers, &mut losses);
        let request = HttpRequest::post(url, input.body.text().as_bytes().to_vec());

        let mut calls = Calls::new(input.tools);
        for (id, name) in answers.sources.iter().flat_map(|source| &source.calls) {
            calls.add_shown_before(id, name);
        }
        for item in turn.answered {
            let call = if item.kind == PendingKind::Tool { Some(&item.id) } else { item.call_id.as_ref() };
            if let Some(call) = call {
                calls.add_shown_before(&key(call), &item.name);
            }
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
        let mut shared = Shared::new(origin, input.ids);
        shared.losses = losses;
        let reader = Reader {
            rules: Rules::new(options),
            thread: turn.request.session_id.clone().unwrap_or_default(),
            start,
            approved: approved(turn),
            shared,
            calls,
            kept: Kept::new(options.events, turn.protocol_events),
            texts: Texts::default(),
            asked: Vec::new(),
            is_started: false,
            has_ended: false,
            unescaped: String::new(),
        };
        Ok(Self { request: Some(request), reader })
    }
}

/// The calls that people decide about in this turn: id and name.
fn approved(turn: &TurnRequest<'_>) -> Vec<(String, String)> {
    let approvals = turn.answered.iter().filter(|item| item.kind == PendingKind::Approval);
    approvals.filter_map(|item| Some((key(item.call_id.as_deref()?), item.name.clone()))).collect()
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
}
