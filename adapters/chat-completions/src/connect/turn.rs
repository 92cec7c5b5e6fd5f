//! One request and its answer.

use interlingua_adapter_kit::mislabeled;
use interlingua_adapter_kit::sticky::StickyTools;
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, Refusal};
use interlingua_core::event::Millis;
use interlingua_core::sse::Frame;
use interlingua_core::{ContentKind, Fault, Json, Loss, json_repair};
use serde_json::value::RawValue;

use super::chunk::Chunk;
use super::reader::Reader;
use super::state::SessionState;
use interlingua_core::model_error::{Complaint, garbage, map_refusal};

/// A turn with a Chat Completions server.
pub(super) struct ChatTurn {
    pub(super) request: Option<HttpRequest>,
    pub(super) reader: Reader,
    /// The end mark came.
    pub(super) is_done: bool,
    /// The session's state before this turn.
    pub(super) stored: SessionState,
    /// The tools that stay declared after this turn, if they are kept.
    pub(super) tools: Option<StickyTools>,
}

impl ChatTurn {
    fn chunk(&mut self, data: &[u8], is_error: bool, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(mut chunk) = Chunk::parse(data) else {
            if let Some(repaired) = json_repair::repaired(data)
                && Chunk::parse(repaired.as_bytes()).is_some()
            {
                self.reader.losses.changed(ContentKind::Text, json_repair::LOSS);
                return self.chunk(repaired.as_bytes(), is_error, sink);
            }
            if let Some(complaint) = Complaint::parse(data).filter(|_| is_error) {
                return self.reader.fail(complaint, sink);
            }
            self.reader.flush(sink)?;
            return Err(garbage(data));
        };

        if is_error && !chunk.is_error() {
            // The event's name says what the data does not.
            chunk.object = Some("error".into());
        }

        self.reader.read(chunk, data, sink)
    }
}

impl AgentTurn for ChatTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    #[inline]
    fn on_frame(&mut self, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.reader.has_ended() {
            return Ok(());
        }

        if !self.is_done && frame.event != Some("error") && self.reader.read_text(frame.data, sink)? {
            return Ok(());
        }

        if frame.is_done() {
            self.is_done = true;
            return if self.reader.has_usage() { self.reader.finish(sink) } else { Ok(()) };
        }

        if frame.data.trim_ascii().is_empty() {
            return Ok(());
        }

        if self.is_done {
            // Some proxies send the usage behind the end mark. Whatever else comes there is no part of the answer.
            if let Some(chunk) = Chunk::parse(frame.data) {
                self.reader.read_usage(&chunk);
            }
            return Ok(());
        }

        self.chunk(frame.data, frame.event == Some("error"), sink)
    }

    fn on_frames_read(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // The connection may stay open after the end mark.
        if self.is_done { self.reader.finish(sink) } else { Ok(()) }
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let visible = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        match visible.first() {
            Some(b'{') => self.chunk(visible, false, sink)?,
            // Gemini wraps errors, and chunks that were not asked for as events, in a list.
            Some(b'[') => {
                let entries: Vec<&RawValue> = serde_json::from_slice(visible).map_err(|_| garbage(body))?;
                for entry in entries {
                    if !self.reader.has_ended() {
                        self.chunk(entry.get().as_bytes(), false, sink)?;
                    }
                }
            }
            _ => return mislabeled::read_stream(self, body, sink),
        }

        self.is_done = true;
        self.reader.finish(sink)
    }

    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.is_done || self.reader.has_reason() {
            return self.reader.finish(sink);
        }

        // Neither a reason nor the end mark: the server crashed, or the connection to it broke. What came stands.
        self.reader.flush(sink)
    }

    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.is_done || self.reader.has_reason() {
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
        state.reasoning = self.reader.reasoning_field().or(state.reasoning);
        if let Some(tools) = &self.tools {
            state.tools.clone_from(tools);
        }

        (state != self.stored).then(|| state.to_json())
    }
}
