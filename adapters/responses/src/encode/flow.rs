//! A text on its way: what was told of it, and that what was told stands (section 9, rule 6; section 16).

use interlingua_core::Out;
use interlingua_core::event::Span;
use interlingua_core::run::Slot;

use super::frames::{Frames, Template};

/// One text under way. At most one in a message, since contents of a message do not overlap.
#[derive(Debug)]
pub(super) struct Flow {
    told: Told,
    /// The latest version in which the agent contradicts itself: what was told stands, it adds nothing. Another one may.
    contradicts: Option<u32>,
    first: Template,
    /// Thoughts may be told in two ways at once.
    second: Option<Template>,
}

/// What was told of a slot's text: the beginning of one of its versions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    version: u32,
    length: u32,
}

impl Told {
    /// The text.
    pub(super) fn text(self, slot: &Slot) -> &str {
        slot.span(Span { version: self.version, start: 0, end: self.length })
    }
}

impl Flow {
    /// A text of which nothing was told yet.
    pub(super) const fn new(first: Template, second: Option<Template>) -> Self {
        Self { told: Told { version: 0, length: 0 }, contradicts: None, first, second }
    }

    /// Tells what was added.
    #[inline]
    pub(super) fn delta(&mut self, slot: &Slot, span: Span, frames: &mut Frames, out: &mut Out) {
        if span.version != self.told.version {
            return self.anew(slot, Told { version: span.version, length: span.end }, frames, out);
        }
        self.told.length = span.end;
        self.write(slot.span(span), frames, out);
    }

    /// Tells what another text has more, if it continues what was told.
    pub(super) fn replaced(&mut self, slot: &Slot, version: u32, text: &str, frames: &mut Frames, out: &mut Out) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.anew(slot, Told { version, length }, frames, out);
    }

    /// Tells what a text that is told anew has more, as far as it is there. It is compared once, when it is long enough.
    #[cold]
    fn anew(&mut self, slot: &Slot, now: Told, frames: &mut Frames, out: &mut Out) {
        if self.contradicts == Some(now.version) || now.length < self.told.length {
            return;
        }
        let Some(more) = now.text(slot).strip_prefix(self.told.text(slot)) else {
            self.contradicts = Some(now.version);
            return;
        };
        self.told = now;
        if !more.is_empty() {
            self.write(more, frames, out);
        }
    }

    /// Writes a piece of text.
    pub(super) fn write(&self, text: &str, frames: &mut Frames, out: &mut Out) {
        frames.delta(&self.first, text, out);
        if let Some(second) = &self.second {
            frames.delta(second, text, out);
        }
    }

    /// What was told.
    pub(super) const fn told(&self) -> Told {
        self.told
    }
}
