//! Detects whether the chunks of an answer arrive separately or in bursts. Followers are woken once per burst.
//!
//! Not here: waking followers ([`super::listen`]).

use interlingua_core::event::Millis;

/// Predicts whether more chunks follow immediately. Chunks with a single token usually arrive separately; checking for
/// further chunks would then only cost time.
pub(super) struct Coalescer {
    /// Number of latest chunks that arrived separately.
    separate: u8,
    /// Number of chunks since the last pause.
    chunks: u32,
    /// Time of the last chunk.
    last: Millis,
}

impl Coalescer {
    /// After this many separate chunks in a row, the next one is expected to be separate, too.
    const MIN_SEPARATE: u8 = 3;
    /// Chunks of one burst arrive within this time after each other, in milliseconds.
    const MAX_GAP: Millis = 1;

    /// The first chunk is expected to be separate.
    pub(crate) const fn new() -> Self {
        Self { separate: Self::MIN_SEPARATE, chunks: 0, last: 0 }
    }

    /// Counts a chunk. True if no other chunk is expected to follow immediately.
    pub(super) fn add_chunk(&mut self, now: Millis) -> bool {
        if now.saturating_sub(self.last) <= Self::MAX_GAP {
            self.separate = 0;
        }
        self.last = now;
        self.chunks = self.chunks.saturating_add(1);
        self.separate >= Self::MIN_SEPARATE
    }

    /// Ends a burst: no further chunk was ready.
    pub(super) fn pause(&mut self) {
        self.separate = if self.chunks == 1 { self.separate.saturating_add(1) } else { 0 };
        self.chunks = 0;
    }
}
