//! The followers of a run in memory: how far each one has read, and how it is woken.

use std::sync::Arc;
use std::task::Waker;

use super::unread::{FREE_BYTES, UnreadBudget, UnreadShare};

/// All followers of a run. Each one has an index for as long as it follows.
#[derive(Default)]
pub(super) struct Followers {
    entries: Vec<Option<Entry>>,
    /// Events that no attached follower has read yet.
    unread: UnreadShare,
}

struct Entry {
    /// The record's size when this follower had read all of it last, in bytes.
    seen: usize,
    waker: Option<Waker>,
    /// True if the run is canceled when the last such follower leaves.
    attached: bool,
}

impl Followers {
    /// Adds one that begins to read at the record's present `size`; returns its index.
    pub(crate) fn add(&mut self, size: usize, attached: bool) -> usize {
        let entry = Entry { seen: size, waker: None, attached };
        if let Some(index) = self.entries.iter().position(Option::is_none) {
            self.entries[index] = Some(entry);
            index
        } else {
            self.entries.push(Some(entry));
            self.entries.len() - 1
        }
    }

    /// Removes one. True if it was attached and no other attached one is left.
    pub(crate) fn remove(&mut self, index: usize) -> bool {
        let was_attached = self.entries[index].take().is_some_and(|entry| entry.attached);
        let has_attached = self.entries.iter().flatten().any(|entry| entry.attached);
        if !has_attached {
            self.unread.release();
        }
        was_attached && !has_attached
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// One has read all of a record of this size.
    pub(super) fn caught_up(&mut self, index: usize, size: usize) {
        if let Some(entry) = &mut self.entries[index] {
            entry.seen = size;
        }
        if self.backlog(size).is_none_or(|backlog| backlog <= FREE_BYTES) {
            self.unread.release();
        }
    }

    /// Wakes one the next time [`Followers::wake`] is called.
    pub(super) fn register(&mut self, index: usize, waker: &Waker) {
        if let Some(entry) = &mut self.entries[index]
            && !entry.waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            entry.waker = Some(waker.clone());
        }
    }

    pub(super) fn wake(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// True unless even the fastest attached one is `bound` bytes behind a record of this size, or the unread bytes of
    /// all runs exceed their budget.
    pub(crate) fn has_room(&mut self, size: usize, bound: usize, budget: &Arc<UnreadBudget>) -> bool {
        match self.backlog(size) {
            Some(backlog) => backlog < bound && self.unread.count(backlog, budget),
            None => true,
        }
    }

    /// How many bytes of a record of this size the fastest attached one has not read. `None`: no one is attached.
    fn backlog(&self, size: usize) -> Option<usize> {
        let attached = self.entries.iter().flatten().filter(|entry| entry.attached);
        attached.map(|entry| size.saturating_sub(entry.seen)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: usize = 1 << 20;

    #[test]
    fn unread_runs_share_a_budget_until_their_readers_catch_up_or_leave() {
        let budget = UnreadBudget::new(BOUND);
        let mut runs: Vec<Followers> = (0..100).map(|_| Followers::default()).collect();
        for run in &mut runs {
            run.add(0, true);
        }
        // Each agent sends pieces of 8 KiB for as long as there is room.
        let mut sizes = vec![0; runs.len()];
        let fill = |runs: &mut Vec<Followers>, sizes: &mut Vec<usize>| {
            for (run, size) in runs.iter_mut().zip(sizes.iter_mut()) {
                while run.has_room(*size, BOUND, &budget) {
                    *size += 8 << 10;
                }
            }
        };
        fill(&mut runs, &mut sizes);
        let held: usize = sizes.iter().sum();
        assert!(held <= BOUND + runs.len() * (FREE_BYTES + (16 << 10)), "{held}");
        assert!(sizes.iter().all(|size| *size > FREE_BYTES), "each run makes progress: {sizes:?}");

        let full = sizes[0];
        runs[0].caught_up(0, full);
        assert!(runs[0].has_room(full + (512 << 10), BOUND, &budget), "its part of the budget is free again");
        runs[0].remove(0);
        let (size, last) = (sizes[99], runs.last_mut().expect("a run"));
        assert!(last.has_room(size + (512 << 10), BOUND, &budget), "and once its reader has left");
    }
}
