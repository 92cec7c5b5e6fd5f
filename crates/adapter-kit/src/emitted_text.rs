//! The part of a growing text that was sent, for protocols that cannot withdraw text.

use interlingua_core::event::{Event, Span};
use interlingua_core::run::Slot;
use interlingua_core::step::Step;

/// Tracks how much of a growing text was sent. Contents of one message do not overlap, and messages are sent one by
/// one. The start of a content starts a new text.
///
/// Text that was sent cannot be withdrawn. A replaced text adds to the output once it is seen to continue what was
/// sent; one that contradicts it adds nothing, but a later replacement may.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmittedText {
    version: u32,
    end: u32,
    /// The latest version that contradicts the text sent.
    contradicts: Option<u32>,
}

impl EmittedText {
    /// The text that a step adds to what was sent. May be empty.
    #[inline]
    pub fn extend<'a>(&mut self, step: &Step<'a>, slot: &'a Slot) -> &'a str {
        self.advance(step, slot).unwrap_or("")
    }

    /// The text that a step adds to what was sent. `None`: it adds nothing. The text of a delta is empty if it was
    /// evicted, which protocols that number their deltas have to count.
    #[inline]
    pub fn advance<'a>(&mut self, step: &Step<'a>, slot: &'a Slot) -> Option<&'a str> {
        match step.event {
            Event::ContentDelta { span, .. } if span.version == self.version => {
                self.end = span.end;
                Some(slot.span(span))
            }
            Event::ContentDelta { span, .. } => self.extend_to(Span { start: 0, ..span }, slot),
            Event::ContentReplaced { version, .. } => {
                let end = u32::try_from(step.delta().len()).unwrap_or(u32::MAX);
                self.extend_to(Span { version, start: 0, end }, slot)
            }
            Event::ContentStarted { .. } => {
                *self = Self::default();
                None
            }
            _ => None,
        }
    }

    /// The text that was sent.
    #[must_use]
    pub fn text<'a>(&self, slot: &'a Slot) -> &'a str {
        slot.span(Span { version: self.version, start: 0, end: self.end })
    }

    /// The arrived part of the text that a replacement adds. Compared once, when it is long enough.
    #[cold]
    fn extend_to<'a>(&mut self, span: Span, slot: &'a Slot) -> Option<&'a str> {
        if self.contradicts == Some(span.version) || span.end < self.end {
            return None;
        }

        let Some(rest) = slot.span(span).strip_prefix(self.text(slot)) else {
            self.contradicts = Some(span.version);
            return None;
        };

        (self.version, self.end) = (span.version, span.end);
        Some(rest).filter(|rest| !rest.is_empty())
    }
}
