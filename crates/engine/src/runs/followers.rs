//! Read positions and wakers of the followers of an active run.

use std::sync::Arc;
use std::task::Waker;

use super::unread::{FREE_BYTES, UnreadBudget, UnreadShare};

/// The followers of a run. Each keeps its index until it is removed.
#[derive(Default)]
pub(super) struct Followers {
    entries: Vec<Option<Entry>>,
    /// The budget for events that no attached follower has read yet.
    unread: UnreadShare,
}

struct Entry {
    /// Size of the record, in bytes, when this follower last caught up.
    seen: usize,
    waker: Option<Waker>,
    /// True if the run is canceled when the last such follower leaves.
    attached: bool,
}

impl Followers {
    /// Adds a follower that starts at the current `size` of the record. Returns its index.
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

    /// Removes a follower. True if it was the last attached one.
    pub(crate) fn remove(&mut self, index: usize) -> bool {
        let was_attached = self.entries[index].take().is_some_and(|entry| entry.attached);
        let has_attached = self.entries.iter().flatten().any(|entry| entry.attached);
        if !has_attached {
            self.unread.release();
        }
        was_attached && !has_attached
    }

    /// The run no longer depends on this follower.
    pub(super) fn detach(&mut self, index: usize) {
        if let Some(entry) = &mut self.entries[index] {
            entry.attached = false;
        }
        if !self.entries.iter().flatten().any(|entry| entry.attached) {
            self.unread.release();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// Notes that a follower has read a record of this size to its end.
    pub(super) fn caught_up(&mut self, index: usize, size: usize) {
        if let Some(entry) = &mut self.entries[index] {
            entry.seen = size;
        }
        if self.backlog(size).is_none_or(|backlog| backlog <= FREE_BYTES) {
            self.unread.release();
        }
    }

    /// Registers a follower for the next call of [`Followers::wake`].
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

    /// False if the fastest attached follower is at least `bound` bytes behind a record of this size, or if the budget
    /// for unread bytes of all runs is used up.
    pub(crate) fn has_room(&mut self, size: usize, bound: usize, budget: &Arc<UnreadBudget>) -> bool {
        match self.backlog(size) {
            Some(backlog) => backlog < bound && self.unread.count(backlog, budget),
            None => true,
        }
    }

    /// Unread bytes of the fastest attached follower for a record of this size. `None`: no follower is attached.
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
