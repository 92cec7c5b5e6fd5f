//! How the pieces of an answer come: one by one, or many at once. Followers are woken once for pieces that come
//! together.
//!
//! Not here: waking them ([`super::listen`]).

use interlingua_core::event::Millis;

/// Tells pieces that come one by one, as tokens do, from those that come together. For the former nothing is gained by
/// looking whether more is on its way.
pub(super) struct Coalescer {
    /// How many of the last pieces came alone.
    alone: u8,
    /// Pieces since the last pause.
    pieces: u32,
    last: Millis,
}

impl Coalescer {
    /// So many pieces have to come alone in a row before the next one is expected to.
    const MIN_ALONE: u8 = 3;
    /// A piece that comes within this time after the one before, in milliseconds, came together with it.
    const MAX_GAP: Millis = 1;

    /// The first piece is expected to come alone.
    pub(crate) const fn new() -> Self {
        Self { alone: Self::MIN_ALONE, pieces: 0, last: 0 }
    }

    /// A piece has come. True if no other is expected to come with it.
    pub(super) fn is_alone(&mut self, now: Millis) -> bool {
        if now.saturating_sub(self.last) <= Self::MAX_GAP {
            self.alone = 0;
        }
        self.last = now;
        self.pieces = self.pieces.saturating_add(1);
        self.alone >= Self::MIN_ALONE
    }

    /// Nothing more has come for now.
    pub(super) fn pause(&mut self) {
        self.alone = if self.pieces == 1 { self.alone.saturating_add(1) } else { 0 };
        self.pieces = 0;
    }
}
