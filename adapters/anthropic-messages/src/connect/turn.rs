//! One request and its answer.

use interlingua_adapter_kit::mislabeled;
use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal};
use interlingua_core::event::Millis;
use interlingua_core::model_error::{Complaint, garbage, map_refusal};
use interlingua_core::sse::Frame;
use interlingua_core::{ContentKind, Fault, Json, Loss, json_repair};

use super::reader::Reader;
use super::state::SessionState;
use super::wire::Event;

/// A turn with a server of this protocol.
pub(super) struct MessagesTurn {
    pub(super) request: Option<HttpRequest>,
    pub(super) reader: Reader,
    /// The session's state before this turn.
    pub(super) stored: SessionState,
    /// The tools that stay declared after this turn, if they are kept.
    pub(super) tools: Option<StickyTools>,
}

impl MessagesTurn {
    fn event(&mut self, data: &[u8], named: Option<&str>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(event) = Event::parse(data) else {
            if let Some(repaired) = json_repair::repaired(data)
                && let Some(event) = Event::parse(repaired.as_bytes())
            {
                self.reader.losses.changed(ContentKind::Text, json_repair::LOSS);
                return self.reader.read(&event, repaired.as_bytes(), named, sink);
            }
            self.reader.flush(sink)?;
            return Err(garbage(data));
        };
        self.reader.read(&event, data, named, sink)
    }
}

impl AgentTurn for MessagesTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    #[inline]
    fn on_frame(&mut self, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.reader.has_ended() {
            return Ok(());
        }
        if self.reader.read_text(frame.data, sink)? {
            return Ok(());
        }
        // Proxies end as other protocols do.
        if frame.is_done() || frame.data.trim_ascii().is_empty() {
            return Ok(());
        }
        self.event(frame.data, frame.event, sink)
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        if visible.first() != Some(&b'{') {
            mislabeled::read_stream(self, body, sink)?;
            return self.on_end(sink);
        }

        let repaired = if Event::parse(visible).is_none() { json_repair::repaired(visible) } else { None };
        if repaired.is_some() {
            self.reader.losses.changed(ContentKind::Text, json_repair::LOSS);
        }
        let visible = repaired.as_ref().map_or(visible, |repaired| repaired.as_bytes());
        let event = Event::parse(visible).ok_or_else(|| garbage(body))?;
        // The type of a whole message is missing at some servers: nothing else stands alone in a body.
        let is_error = event.is_error() || Complaint::from_unknown_object(visible).is_some();
        if event.kind.is_none() && !is_error && !event.has_choices {
            return self.reader.whole(visible, sink);
        }
        self.reader.read(&event, visible, None, sink)
    }

    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.reader.has_reason() {
            return self.reader.finish(sink);
        }
        // Neither a reason nor the end: the server crashed, or a proxy hides that it did. What came stands.
        self.reader.flush(sink)
    }

    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.reader.has_ended() {
            return Ok(());
        }
        if self.reader.has_reason() {
            return self.reader.finish(sink);
        }
        self.reader.flush(sink)?;
        Err(fault)
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        map_refusal(refusal)
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses.as_slice()
    }

    fn session_state(&self) -> Option<Json> {
        let mut state = self.stored.clone();
        if let Some(tools) = &self.tools {
            state.tools.clone_from(tools);
        }
        (state != self.stored).then(|| Json::from_serialize(&state))
    }
}
