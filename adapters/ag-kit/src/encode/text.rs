//! The `text` events: texts, refusals, links and data of ordinary messages, and reasoning by option
//! (docs/protocols/ag-kit.md#from-the-agent-to-the-client).

use std::borrow::Cow;

use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_adapter_kit::markdown;
use interlingua_core::model::{Body, ContentType, MessageType};
use interlingua_core::run::Slot;
use interlingua_core::{Event, Out, Step};

use crate::encode::calls::Calls;
use crate::{Data, Media, Options, wire};

/// The text of a stream.
#[derive(Debug, Default)]
pub(crate) struct Text {
    emitted: EmittedText,
    /// Index of the message of the last text sent.
    last: Option<u32>,
    /// Number of call events sent before the last text.
    calls_before: usize,
    is_thinking: bool,
    has_output: bool,
}

impl Text {
    pub(crate) const fn has_output(&self) -> bool {
        self.has_output
    }

    /// Sends a step of a message, or of reasoning that is sent as text.
    pub(crate) fn encode(&mut self, step: &Step<'_>, calls: &Calls, options: &Options, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let is_reasoning = message.announced == MessageType::Reasoning;
        let Some((_, slot)) = step.slot() else {
            if self.is_thinking && matches!(step.event, Event::MessageFinished { .. }) {
                self.is_thinking = false;
                wire::Event::Text { content: "</think>" }.write(out);
            }
            return;
        };

        let addition: Cow<'_, str> = match step.event {
            // Data and media have no deltas: they are sent whole. A text was sent as it grew.
            Event::ContentFinished { .. } => complete_content(slot, options),
            _ => self.emitted.extend(step, slot).into(),
        };
        if addition.is_empty() {
            return;
        }

        // Clients show all text between two calls as one text (docs/protocols/ag-kit.md#order-3).
        let follows = self.last.is_some_and(|last| last != index) && calls.events() == self.calls_before;
        if follows && options.separator.0 {
            wire::Event::Text { content: "\n\n" }.write(out);
        }
        if is_reasoning && !self.is_thinking {
            self.is_thinking = true;
            wire::Event::Text { content: "<think>" }.write(out);
        }

        self.last = Some(index);
        self.calls_before = calls.events();
        self.has_output = true;
        wire::Event::Text { content: &addition }.write(out);
    }

    /// Sends a step of reasoning as an event of its own type, which clients keep apart from the text.
    pub(crate) fn encode_reasoning(&mut self, step: &Step<'_>, out: &mut Out) {
        // Replacements are ignored: reasoning is only shown, so a wrong part does no harm.
        let content = step.delta();
        if !content.is_empty() && matches!(step.event, Event::ContentDelta { .. }) {
            self.has_output = true;
            wire::Event::Reasoning { content }.write(out);
        }
    }
}

/// The text for a content that is sent only when it is complete.
fn complete_content(slot: &Slot, options: &Options) -> Cow<'static, str> {
    let Some(value) = &slot.value else { return "".into() };
    match &value.body {
        Body::Data(data) if options.data == Data::Text && slot.kind == ContentType::Data => {
            data.text().to_owned().into()
        }
        body if options.media == Media::Link => markdown::link(body).unwrap_or_default().into(),
        _ => "".into(),
    }
}
