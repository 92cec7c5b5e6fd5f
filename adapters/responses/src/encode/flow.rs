//! A text on its way: what was told of it, and that what was told stands (section 9, rule 6; section 16).

use interlingua_core::Out;
use interlingua_core::event::Span;
use interlingua_core::run::Slot;

use super::frames::{Frames, Template};

/// One text under way. At most one in a message, since contents of a message do not overlap.
#[derive(Debug)]
pub(super) struct Flow {
    told: Told,
    /// The agent contradicted itself: what was told stands, nothing is added.
    stands: bool,
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
        Self { told: Told { version: 0, length: 0 }, stands: false, first, second }
    }

    /// Tells what was added.
    #[inline]
    pub(super) fn delta(&mut self, span: Span, text: &str, frames: &mut Frames, out: &mut Out) {
        if self.stands {
            return;
        }
        if span.version != self.told.version {
            // A later version without a word of how it began: nothing was told of it.
            self.stands = true;
            return;
        }
        self.told.length = span.end;
        self.write(text, frames, out);
    }

    /// Tells what another text has more, if it continues what was told.
    pub(super) fn replaced(&mut self, slot: &Slot, version: u32, text: &str, frames: &mut Frames, out: &mut Out) {
        if self.stands {
            return;
        }
        match text.strip_prefix(self.told.text(slot)) {
            Some(more) => {
                self.told = Told { version, length: u32::try_from(text.len()).unwrap_or(u32::MAX) };
                if !more.is_empty() {
                    self.write(more, frames, out);
                }
            }
            None => self.stands = true,
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
