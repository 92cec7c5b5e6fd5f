//! A digest that is the same however a text is cut, and the same in every version: FNV-1a with 64 bits.
//!
//! Two texts of an agent that have one digest are taken for the same: only that agent could be misled by it.

use serde::{Deserialize, Serialize};

/// Digest of the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(bytes);
        digest
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(super) const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_cuts() {
        let mut pieces = Digest::default();
        for piece in ["foo", "", "bar"] {
            pieces.update(piece.as_bytes());
        }
        assert_eq!(pieces, Digest::from_bytes(b"foobar"));
        assert_eq!(pieces.value(), 0x8594_4171_f739_67e8);
    }
}
