//! Text and reasoning of an answer as messages: which one is open, and what it is closed with.
//!
//! Not here: tool calls ([`super::calls`]).

use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::MessageType;
use interlingua_core::{End, Extra, Fault, Json};

use super::think::{Splitter, TextKind};

/// So much blank reasoning is held back until something visible follows, in bytes.
const MAX_BLANK: usize = 4096;

/// The messages of an answer, besides calls.
#[derive(Debug)]
pub(super) struct Messages {
    open: Option<Open>,
    splitter: Splitter,
    /// Blank reasoning that nothing visible has followed yet.
    blank: String,
    /// Metadata of the text message that is open, or comes next.
    pub(super) of_text: Extra,
    /// Metadata of the reasoning message that is open, or comes next.
    pub(super) of_reasoning: Extra,
    spoke: bool,
}

#[derive(Debug)]
struct Open {
    kind: TextKind,
    id: String,
    /// The number of its images.
    images: u32,
}

impl Messages {
    pub(super) fn new(splitter: Splitter) -> Self {
        Self {
            open: None,
            splitter,
            blank: String::new(),
            of_text: Extra::new(),
            of_reasoning: Extra::new(),
            spoke: false,
        }
    }

    /// True once there was anything to read or to see.
    pub(super) const fn spoke(&self) -> bool {
        self.spoke
    }

    /// Text of the answer, which may hold reasoning between tags.
    pub(super) fn content(&mut self, text: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.splitter.is_outside() {
            return self.text(text, ids, sink);
        }

        for (kind, part) in self.splitter.split(text) {
            self.part(kind, &part, ids, sink)?;
        }
        Ok(())
    }

    /// Emits what was held back as the possible beginning of a tag.
    pub(super) fn flush(&mut self, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.splitter.is_outside() {
            return Ok(());
        }

        let (kind, held) = self.splitter.finish();
        self.part(kind, &held, ids, sink)
    }

    fn part(&mut self, kind: TextKind, part: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        match kind {
            TextKind::Text => self.text(part, ids, sink),
            TextKind::Reasoning => self.reason(part, ids, sink),
        }
    }

    fn text(&mut self, text: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }

        self.blank.clear();
        let open = self.opened(TextKind::Text, ids, sink)?;
        sink.emit(&AgentEvent::text(&open.id, text))
    }

    /// Reasoning that came in a field of its own.
    pub(super) fn reasoning(&mut self, text: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // A server with a parser for reasoning leaves no tags in the text, whatever its template opens.
        self.flush(ids, sink)?;
        self.reason(text, ids, sink)
    }

    fn reason(&mut self, text: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }

        let is_open = self.open.as_ref().is_some_and(|open| open.kind == TextKind::Reasoning);
        if !is_open && text.trim_ascii().is_empty() {
            // Models that think between texts send line breaks where they have no thought.
            if self.blank.len() + text.len() <= MAX_BLANK {
                self.blank.push_str(text);
            }
            return Ok(());
        }

        let blank = std::mem::take(&mut self.blank);
        let open = self.opened(TextKind::Reasoning, ids, sink)?;
        if !blank.is_empty() {
            sink.emit(&AgentEvent::text(&open.id, &blank))?;
        }

        sink.emit(&AgentEvent::text(&open.id, text))
    }

    /// The agent declines, in words.
    pub(super) fn refusal(&mut self, text: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.flush(ids, sink)?;
        let open = self.opened(TextKind::Text, ids, sink)?;
        sink.emit(&AgentEvent::refusal(&open.id, text))
    }

    /// An image in the answer.
    pub(super) fn image(&mut self, url: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let open = self.opened(TextKind::Text, ids, sink)?;
        open.images += 1;
        let image = ContentValue::Image(Some(url.into()));
        let event = ContentEvent::new(&open.id, ContentUpdate::Final, image).at(open.images);
        sink.emit(&AgentEvent::Content(event))
    }

    /// The spoken answer, whole.
    pub(super) fn audio(&mut self, data: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let open = self.opened(TextKind::Text, ids, sink)?;
        let audio = ContentValue::Audio { data: Some(data.into()), format: None };
        sink.emit(&AgentEvent::Content(ContentEvent::new(&open.id, ContentUpdate::Final, audio)))
    }

    /// The open message, if it has this kind; else a new one. The previous message is complete.
    #[inline]
    fn opened(&mut self, kind: TextKind, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<&mut Open, Fault> {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(End::Completed, sink)?;
            self.blank.clear();
            self.spoke = true;
            let id = ids.message();
            let announced = match kind {
                TextKind::Text => MessageType::Message,
                TextKind::Reasoning => MessageType::Reasoning,
            };
            sink.emit(&AgentEvent::message(&id, announced))?;
            self.open = Some(Open { kind, id, images: 0 });
        }

        self.open.as_mut().ok_or_else(|| Fault::new(interlingua_core::FaultKind::Internal, "no message is open"))
    }

    /// Closes the message that is open, with the metadata that came for it.
    pub(super) fn close(&mut self, end: End, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let metadata = match open.kind {
            TextKind::Text => std::mem::take(&mut self.of_text),
            TextKind::Reasoning => std::mem::take(&mut self.of_reasoning),
        };

        let metadata = (!metadata.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(&metadata)));
        let id = Some(open.id.into());
        sink.emit(&AgentEvent::Message(MessageEvent { id, end: Some(end), metadata, ..MessageEvent::default() }))
    }

    /// Closes what is open, and emits metadata that no message was there for: details of hidden reasoning in a message
    /// of their own, so that they can be sent back.
    pub(super) fn finish(&mut self, end: End, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.close(end, sink)?;
        if !self.of_reasoning.is_empty() {
            self.opened(TextKind::Reasoning, ids, sink)?;
            self.close(end, sink)?;
        }
        Ok(())
    }
}
