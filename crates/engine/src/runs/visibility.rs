//! The visible part of a run: events that are both safe (written to the store) and concluded.
//!
//! Not here: the run and its followers ([`super::active_run`]) and concluding a turn ([`crate::turns::conclude`]).

use interlingua_core::Record;

/// Counters of the events of a run. Each counts from the first event on.
#[derive(Debug)]
pub(super) struct Visibility {
    /// Events that followers may see.
    visible: u64,
    /// Events in the store. [`u64::MAX`]: the store does not survive this process, so every event is safe immediately.
    safe: u64,
    /// Events that become visible when they are safe: all except the end of a turn that is not concluded yet.
    concluded: u64,
    /// Events for which followers were woken.
    notified: u64,
    /// Events at the creation of this value: the input of a new run.
    initial: u64,
    /// A number of events and the size of the record then, which becomes `safe_size` once these events are safe.
    mark: Option<(u64, usize)>,
    /// Approximate number of safe bytes of the record.
    safe_size: usize,
}

impl Visibility {
    /// For a run whose first `safe` events are in the store.
    pub(crate) fn new(record: &Record, safe: u64) -> Self {
        Self {
            visible: safe,
            safe,
            concluded: record.len(),
            notified: safe,
            initial: record.len(),
            mark: None,
            safe_size: record.size(),
        }
    }

    /// Number of events that followers may see.
    pub(super) const fn visible(&self) -> u64 {
        self.visible
    }

    /// Number of events that a view of the whole run may show. A view shows the input of a new run before it is safe:
    /// only the client that sent it knows the id of the run.
    pub(super) fn visible_in_view(&self) -> u64 {
        self.visible.max(self.initial)
    }

    /// True if events need no write to be safe.
    pub(crate) const fn is_safe_at_once(&self) -> bool {
        self.safe == u64::MAX
    }

    /// True if the store has a part of the run.
    pub(super) const fn is_stored(&self) -> bool {
        self.safe > 0
    }

    /// True if all events are safe.
    pub(super) fn is_safe(&self, record: &Record) -> bool {
        self.safe >= record.len()
    }

    /// True if at least `bound` bytes are not safe yet.
    pub(super) fn is_behind(&self, record: &Record, bound: usize) -> bool {
        !self.is_safe_at_once() && record.size().saturating_sub(self.safe_size) >= bound
    }

    /// Updates the counters after events were added. An end of a turn stays invisible until [`Self::conclude`].
    pub(super) fn record_grew(&mut self, record: &Record) {
        let len = record.len();
        self.concluded = if record.in_turn() { len } else { self.concluded.max(len.saturating_sub(1)) };
        if self.mark.is_none() && self.safe < len {
            self.mark = Some((len, record.size()));
        }
        self.update();
    }

    /// Makes all events visible as soon as they are safe.
    pub(super) fn conclude(&mut self, record: &Record) {
        self.concluded = record.len();
        self.update();
    }

    /// Makes all events visible, even if they are not safe.
    pub(super) fn force(&mut self, record: &Record) {
        (self.concluded, self.visible) = (record.len(), record.len());
    }

    /// Notes that the first `events` events are safe.
    pub(super) fn committed(&mut self, events: u64) {
        self.safe = self.safe.max(events);
        if let Some((_, size)) = self.mark.take_if(|(length, _)| *length <= events) {
            self.safe_size = size;
        }
        self.update();
    }

    fn update(&mut self) {
        self.visible = self.visible.max(self.concluded.min(self.safe));
    }

    /// True if more events became visible since the last call.
    pub(super) fn take_news(&mut self) -> bool {
        let news = self.notified < self.visible;
        self.notified = self.visible;
        news
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::{End, Record, Run, RunId};

    use super::*;

    fn record() -> Record {
        let mut record = Record::new(Run::new(RunId(uuid::Uuid::from_u128(1)), "friday", "s", 0));
        record.start_turn(Vec::new());
        record
    }

    #[test]
    fn events_are_visible_once_they_are_safe_and_followers_are_woken_once() {
        let mut record = record();
        let mut visibility = Visibility::new(&record, 0);
        assert_eq!((visibility.visible(), visibility.visible_in_view()), (0, 2), "its client knows its own input");
        visibility.committed(2);
        assert!(visibility.take_news() && !visibility.take_news());
        record.start_answer();
        visibility.record_grew(&record);
        assert_eq!((visibility.visible(), visibility.take_news(), visibility.is_safe(&record)), (2, false, false));
        visibility.committed(3);
        assert_eq!((visibility.visible(), visibility.take_news(), visibility.is_safe(&record)), (3, true, true));
        visibility.committed(1);
        assert_eq!(visibility.visible(), 3, "visible events stay visible");
    }

    #[test]
    fn an_end_is_visible_when_it_is_both_concluded_and_safe() {
        for safe_first in [false, true] {
            let mut record = record();
            let mut visibility = Visibility::new(&record, 2);
            record.finish_turn(End::Completed, None);
            visibility.record_grew(&record);
            record.finish_run(End::Completed);
            if safe_first {
                visibility.committed(4);
                assert_eq!(visibility.visible(), 2);
                visibility.conclude(&record);
            } else {
                visibility.conclude(&record);
                assert_eq!(visibility.visible(), 2);
                visibility.committed(4);
            }
            assert_eq!(visibility.visible(), 4);
        }
    }

    #[test]
    fn a_store_that_ends_with_its_process_is_not_waited_for() {
        let mut record = record();
        let mut visibility = Visibility::new(&record, 0);
        visibility.committed(u64::MAX);
        record.start_answer();
        visibility.record_grew(&record);
        assert!(visibility.visible() == 3 && visibility.is_safe_at_once() && !visibility.is_behind(&record, 0));
    }

    #[test]
    fn bytes_that_are_not_safe_are_counted() {
        let mut record = record();
        let mut visibility = Visibility::new(&record, 2);
        assert!(!visibility.is_behind(&record, 1));
        record.start_answer();
        visibility.record_grew(&record);
        assert!(visibility.is_behind(&record, 1));
        visibility.committed(3);
        assert!(!visibility.is_behind(&record, 1));
    }
}
