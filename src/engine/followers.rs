//! The followers of a run in memory: how far each one has read, and how it is woken.

use std::task::Waker;

/// All followers of a run. Each one has an index for as long as it follows.
#[derive(Default)]
pub(super) struct Followers(Vec<Option<Entry>>);

struct Entry {
    /// The record's size when this follower had read all of it last, in bytes.
    seen: usize,
    waker: Option<Waker>,
    /// True if the run is canceled when the last such follower leaves.
    attached: bool,
}

impl Followers {
    /// Adds one that begins to read at the record's present `size`; returns its index.
    pub(super) fn add(&mut self, size: usize, attached: bool) -> usize {
        let entry = Entry { seen: size, waker: None, attached };
        if let Some(index) = self.0.iter().position(Option::is_none) {
            self.0[index] = Some(entry);
            index
        } else {
            self.0.push(Some(entry));
            self.0.len() - 1
        }
    }

    /// Removes one. True if it was attached and no other attached one is left.
    pub(super) fn remove(&mut self, index: usize) -> bool {
        let was_attached = self.0[index].take().is_some_and(|entry| entry.attached);
        was_attached && !self.0.iter().flatten().any(|entry| entry.attached)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// One has read all of a record of this size.
    pub(super) fn caught_up(&mut self, index: usize, size: usize) {
        if let Some(entry) = &mut self.0[index] {
            entry.seen = size;
        }
    }

    /// Wakes one the next time [`Followers::wake`] is called.
    pub(super) fn register(&mut self, index: usize, waker: &Waker) {
        if let Some(entry) = &mut self.0[index]
            && !entry.waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            entry.waker = Some(waker.clone());
        }
    }

    pub(super) fn wake(&mut self) {
        for entry in self.0.iter_mut().flatten() {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// How many bytes of a record of this size the fastest attached one has not read. `None`: no one is attached.
    pub(super) fn backlog(&self, size: usize) -> Option<usize> {
        let attached = self.0.iter().flatten().filter(|entry| entry.attached);
        attached.map(|entry| size.saturating_sub(entry.seen)).min()
    }
}
