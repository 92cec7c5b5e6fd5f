//! A streamed text: the part that was sent. Sent text is never retracted (docs/protocols/responses.md#event-order).

use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::run::Slot;
use interlingua_core::{Out, Step};

use super::frames::{Frames, Template};

/// A text that is being streamed. A message has at most one, since its contents do not overlap.
#[derive(Debug)]
pub(super) struct TextStream {
    sent: EmittedText,
    first: Template,
    /// Set if a reasoning text is sent in two forms.
    second: Option<Template>,
}

impl TextStream {
    /// A text of which nothing was sent yet.
    pub(super) fn new(first: Template, second: Option<Template>) -> Self {
        Self { sent: EmittedText::default(), first, second }
    }

    /// Sends the text that a step adds.
    #[inline]
    pub(super) fn extend(&mut self, step: &Step<'_>, slot: &Slot, frames: &mut Frames, out: &mut Out) {
        if let Some(text) = self.sent.advance(step, slot) {
            self.write(text, frames, out);
        }
    }

    /// Writes a piece of text as a delta.
    pub(super) fn write(&self, text: &str, frames: &mut Frames, out: &mut Out) {
        frames.delta(&self.first, text, out);
        if let Some(second) = &self.second {
            frames.delta(second, text, out);
        }
    }

    /// The text sent so far.
    pub(super) const fn sent(&self) -> EmittedText {
        self.sent
    }
}
