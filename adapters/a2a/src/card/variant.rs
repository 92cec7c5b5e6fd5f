//! Formats of a card.

use crate::dialect::Generation;

/// Formats of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    V1,
    V03,
    Hybrid,
}

impl Variant {
    pub(super) const fn has(self, generation: Generation) -> bool {
        match generation {
            Generation::V1 => !matches!(self, Self::V03),
            Generation::V03 => !matches!(self, Self::V1),
        }
    }
}
