//! The bytes of all messages that the bridge holds, with a common limit.

use std::cell::Cell;
use std::rc::Rc;

/// The limit of all shares together, in bytes: four messages of the largest size.
const MAX_BYTES: usize = 256 << 20;

/// Counts the bytes that are held. Clones are the same budget.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Rc<Cell<usize>>);

/// The bytes of one message. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    /// An empty share.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// Changes the size of the share. False, without a change, if the budget has no room for it.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        let others = self.budget.0.get() - self.bytes;
        let fits = bytes <= self.bytes || others + bytes <= MAX_BYTES;
        if fits {
            self.budget.0.set(others + bytes);
            self.bytes = bytes;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_a_common_limit_and_are_released_by_drop() {
        let budget = Budget::default();
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.resize(MAX_BYTES - 1) && second.resize(1) && !second.resize(2));
        assert!(first.resize(0) && second.resize(2));
        drop(second);
        assert!(first.resize(MAX_BYTES) && !budget.share().resize(1));
        drop(first);
        assert_eq!(budget.0.get(), 0);
    }
}
