//! In what rhythm an answer comes, so that pieces that come together are told together. Not here: telling them
//! ([`super::driver`]).

use interlingua_core::event::Millis;

/// Whether the pieces of an answer come one by one, as tokens do, or many at once. Those that come one by one are told
/// at once, without a look whether more is on its way.
pub(super) struct Coalescer {
    /// So many of the last ones came alone.
    alone: u8,
    /// Pieces since the last pause.
    pieces: u32,
    last: Millis,
}

impl Coalescer {
    /// Pieces that have to come alone in a row before the next one is taken to.
    const SURE: u8 = 3;
    /// What comes within this time of the piece before, in milliseconds, came together with it.
    const SOON: Millis = 1;

    /// The first piece is told at once.
    pub(super) const fn new() -> Self {
        Self { alone: Self::SURE, pieces: 0, last: 0 }
    }

    /// A piece has come. True if nothing is to be expected to come with it.
    pub(super) fn is_alone(&mut self, now: Millis) -> bool {
        if now.saturating_sub(self.last) <= Self::SOON {
            self.alone = 0;
        }
        self.last = now;
        self.pieces = self.pieces.saturating_add(1);
        self.alone >= Self::SURE
    }

    /// Nothing more has come for now.
    pub(super) fn pause(&mut self) {
        self.alone = if self.pieces == 1 { self.alone.saturating_add(1) } else { 0 };
        self.pieces = 0;
    }
}
