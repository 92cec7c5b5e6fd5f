//! Reads the events of one answer (docs/protocols/ag-kit.md#events).

use interlingua_adapter_kit::template::TextTemplate;
use interlingua_core::agent_event::{AgentError, AgentEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model_error::{Complaint, garbage};
use interlingua_core::{End, Fault, FaultKind, Json};

use super::asks;
use super::calls::Calls;
use super::frame::Frame;

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) calls: Calls,
    pub(super) losses: Losses,
    /// The open text message.
    text: Option<String>,
    texts: u32,
    /// The shape of a fragment of it.
    template: TextTemplate,
    /// The id for an interrupt without one.
    fallback_id: String,
    /// The interrupt that came.
    pub(super) interrupt: Option<String>,
    started: bool,
    /// The end of the turn was emitted.
    pub(super) ended: bool,
}

impl Reader {
    pub(super) fn new(calls: Calls, losses: Losses, fallback_id: String) -> Self {
        Self {
            calls,
            losses,
            text: None,
            texts: 0,
            template: TextTemplate::default(),
            fallback_id,
            interrupt: None,
            started: false,
            ended: false,
        }
    }

    /// Reads the data of one frame.
    ///
    /// # Errors
    /// If it is no JSON object, or one of another protocol; and those of the sink.
    pub(super) fn read(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        // The hot path: one more fragment of the open text.
        if let Some(id) = &self.text
            && let Some(fragment) = self.template.text(data)
        {
            return sink.emit(&AgentEvent::text(id, fragment));
        }

        let Some(frame) = Frame::parse(data) else { return Err(garbage(data)) };
        if let (Some(id), "text") = (&self.text, frame.kind()) {
            self.template.learn(data, frame.content());
            return sink.emit(&AgentEvent::text(id, frame.content()));
        }
        // An agent that only reports an error has not begun.
        match frame.kind() {
            "error" | "" if frame.error.0.is_some() => return self.fail(data, sink),
            "error" => return self.fail(b"{}", sink),
            kind if Complaint::from_unknown_event(kind, data).is_some() => return self.fail(data, sink),
            _ => {}
        }
        if !std::mem::replace(&mut self.started, true) {
            sink.emit(&AgentEvent::started())?;
        }
        match frame.kind() {
            "text" => self.text(frame.content(), sink),
            "tool-call-start" => {
                self.close_text(sink)?;
                self.calls.start(frame.call_id(), frame.call_name(), sink)
            }
            "tool-call-args" => self.calls.arguments(frame.call_id(), frame.delta(), sink),
            "tool-call-end" => self.calls.end(frame.call_id(), &mut self.losses, sink),
            "tool-result" => {
                self.close_text(sink)?;
                self.calls.result(frame.call_id(), &frame.result_text(), &mut self.losses, sink)
            }
            "interrupt" => self.interrupt(&frame, sink),
            kind if is_newer(kind) => {
                Err(Fault::new(FaultKind::UpstreamGarbage, "the answer is an AG-UI stream: set protocol = \"ag-ui\""))
            }
            _ => sink.emit(&AgentEvent::Ignored),
        }
    }

    fn text(&mut self, delta: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if delta.is_empty() {
            return Ok(());
        }
        self.texts += 1;
        let id = self.text.insert(format!("text-{}", self.texts));
        sink.emit(&AgentEvent::text(id, delta))
    }

    /// Between two texts stands something else: they are two messages.
    fn close_text(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.text.take().map_or(Ok(()), |id| sink.emit(&AgentEvent::message_finished(&id, End::Completed)))
    }

    fn interrupt(&mut self, frame: &Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.close_text(sink)?;
        if self.interrupt.is_some() {
            // A request can answer one: the agent asks the others again.
            self.losses.lost(ContentKind::Question, "a request of this protocol can answer one question");
            return sink.emit(&AgentEvent::Ignored);
        }
        self.calls.finish(true, &mut self.losses, sink)?;
        let id = if frame.id().is_empty() { self.fallback_id.clone() } else { frame.id().to_owned() };
        let payload = frame.payload.0.map_or_else(Json::null, Json::from_raw);
        for mut item in asks::items(&id, frame.reason(), &payload) {
            if item.call_id.is_none() && !item.name.is_empty() {
                item.call_id = self.calls.concerned(&item.name, &item.arguments).map(str::to_owned);
            }
            asks::emit(&id, &item, sink)?;
        }
        self.interrupt = Some(id);
        Ok(())
    }

    fn fail(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.ended = true;
        let (code, message) = Complaint::parse(data).unwrap_or_default().into_error();
        sink.emit(&AgentEvent::Error(AgentError::named(code, message)))
    }

    /// The end mark came.
    pub(super) fn finish(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.close_text(sink)?;
        self.calls.finish(self.interrupt.is_some(), &mut self.losses, sink)?;
        sink.emit(&AgentEvent::completed())
    }
}

/// True for the events of the server's newer generation, such as `RUN_STARTED`.
fn is_newer(kind: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    kind.len() > 2 && kind.bytes().all(is_word)
}
