//! A streamed text: the part that was sent. Sent text is never retracted (docs/protocols/responses.md#event-order).

use interlingua_core::Out;
use interlingua_core::event::Span;
use interlingua_core::run::Slot;

use super::frames::{Frames, Template};

/// A text that is being streamed. A message has at most one, since its contents do not overlap.
#[derive(Debug)]
pub(super) struct TextStream {
    sent: SentText,
    /// The latest version that contradicts the sent text. Nothing of it is sent; a later version may continue again.
    contradicts: Option<u32>,
    first: Template,
    /// Set if a reasoning text is sent in two forms.
    second: Option<Template>,
}

/// The sent part of a slot's text: a prefix of one of its versions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentText {
    version: u32,
    length: u32,
}

impl SentText {
    pub(super) fn text(self, slot: &Slot) -> &str {
        slot.span(Span { version: self.version, start: 0, end: self.length })
    }
}

impl TextStream {
    /// A text of which nothing was sent yet.
    pub(super) const fn new(first: Template, second: Option<Template>) -> Self {
        Self { sent: SentText { version: 0, length: 0 }, contradicts: None, first, second }
    }

    /// Sends an appended piece of text.
    #[inline]
    pub(super) fn delta(&mut self, slot: &Slot, span: Span, frames: &mut Frames, out: &mut Out) {
        if span.version != self.sent.version {
            return self.switch_version(slot, SentText { version: span.version, length: span.end }, frames, out);
        }

        self.sent.length = span.end;
        self.write(slot.span(span), frames, out);
    }

    /// Handles a replaced text. Sends what it adds, if it continues the sent text.
    pub(super) fn replaced(&mut self, slot: &Slot, version: u32, text: &str, frames: &mut Frames, out: &mut Out) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.switch_version(slot, SentText { version, length }, frames, out);
    }

    /// Continues with another version of the text. It is compared with the sent text once, when it is long enough.
    #[cold]
    fn switch_version(&mut self, slot: &Slot, now: SentText, frames: &mut Frames, out: &mut Out) {
        if self.contradicts == Some(now.version) || now.length < self.sent.length {
            return;
        }
        // The agent contradicts what the client already has: the sent text stays, this version adds nothing.
        let Some(more) = now.text(slot).strip_prefix(self.sent.text(slot)) else {
            self.contradicts = Some(now.version);
            return;
        };

        self.sent = now;
        if !more.is_empty() {
            self.write(more, frames, out);
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
    pub(super) const fn sent(&self) -> SentText {
        self.sent
    }
}
