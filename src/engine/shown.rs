//! How much of a run may be seen: what is safe in the store, and concluded. Numbers of events only; the run and those
//! who follow it are [`super::live`]'s, and when an end is concluded is [`super::driver`]'s matter.

use interlingua_core::Record;

/// What of a run is safe, and what of that may be seen.
#[derive(Debug)]
pub(super) struct Visible {
    /// So many events may be seen.
    visible: u64,
    /// So many are safe in the store.
    safe: u64,
    /// So many may be seen as soon as they are safe: all but an end that is not concluded yet.
    concluded: u64,
    /// So many its followers were woken for.
    announced: u64,
    /// So many it began with: what its own client said.
    first: u64,
    /// The record's size when it had so many events: once they are safe, so much of it is.
    mark: Option<(u64, usize)>,
    /// Roughly how much of the record's size is safe.
    safe_size: usize,
}

impl Visible {
    /// Of a run whose first events are safe.
    pub(super) fn new(record: &Record, safe: u64) -> Self {
        Self {
            visible: safe,
            safe,
            concluded: record.len(),
            announced: safe,
            first: record.len(),
            mark: None,
            safe_size: record.size(),
        }
    }

    /// How many events may be seen by who follows.
    pub(super) const fn visible(&self) -> u64 {
        self.visible
    }

    /// How many events may be seen by who looks at the run as a whole. Of a run that was made this moment that is what
    /// its client said: who has its id is that client.
    pub(super) fn whole(&self) -> u64 {
        self.visible.max(self.first)
    }

    /// True if what is told is as safe at once as it will ever be.
    pub(super) const fn is_safe_at_once(&self) -> bool {
        self.safe == u64::MAX
    }

    /// True if any of it is safe: the store knows it.
    pub(super) const fn is_known(&self) -> bool {
        self.safe > 0
    }

    /// True if all of it is safe.
    pub(super) fn is_safe(&self, record: &Record) -> bool {
        self.safe >= record.len()
    }

    /// True if more than this is not safe yet, in bytes.
    pub(super) fn is_behind(&self, record: &Record, bound: usize) -> bool {
        !self.is_safe_at_once() && record.size().saturating_sub(self.safe_size) >= bound
    }

    /// The record has grown: all of it may be seen once it is safe, but the end of a turn, which is concluded first.
    pub(super) fn grown(&mut self, record: &Record) {
        let len = record.len();
        self.concluded = if record.in_turn() { len } else { self.concluded.max(len.saturating_sub(1)) };
        if self.mark.is_none() && self.safe < len {
            self.mark = Some((len, record.size()));
        }
        self.catch_up();
    }

    /// All of it may be seen once it is safe.
    pub(super) fn conclude(&mut self, record: &Record) {
        self.concluded = record.len();
        self.catch_up();
    }

    /// All of it may be seen, safe or not.
    pub(super) fn uncover(&mut self, record: &Record) {
        (self.concluded, self.visible) = (record.len(), record.len());
    }

    /// So many events are safe.
    pub(super) fn committed(&mut self, events: u64) {
        self.safe = self.safe.max(events);
        if let Some((_, size)) = self.mark.take_if(|(length, _)| *length <= events) {
            self.safe_size = size;
        }
        self.catch_up();
    }

    fn catch_up(&mut self) {
        self.visible = self.visible.max(self.concluded.min(self.safe));
    }

    /// True once for whatever has become visible.
    pub(super) fn take_news(&mut self) -> bool {
        let news = self.announced < self.visible;
        self.announced = self.visible;
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
    fn what_is_not_safe_is_not_seen_and_told_once_when_it_is() {
        let mut record = record();
        let mut shown = Visible::new(&record, 0);
        assert_eq!((shown.visible(), shown.whole()), (0, 2), "its client knows what it said");
        shown.committed(2);
        assert!(shown.take_news() && !shown.take_news());
        record.start_answer();
        shown.grown(&record);
        assert_eq!((shown.visible(), shown.take_news(), shown.is_safe(&record)), (2, false, false));
        shown.committed(3);
        assert_eq!((shown.visible(), shown.take_news(), shown.is_safe(&record)), (3, true, true));
        shown.committed(1);
        assert_eq!(shown.visible(), 3, "what was seen stays");
    }

    #[test]
    fn an_end_is_seen_when_it_is_both_concluded_and_safe() {
        for safe_first in [false, true] {
            let mut record = record();
            let mut shown = Visible::new(&record, 2);
            record.finish_turn(End::Completed, None);
            shown.grown(&record);
            record.finish_run(End::Completed);
            if safe_first {
                shown.committed(4);
                assert_eq!(shown.visible(), 2);
                shown.conclude(&record);
            } else {
                shown.conclude(&record);
                assert_eq!(shown.visible(), 2);
                shown.committed(4);
            }
            assert_eq!(shown.visible(), 4);
        }
    }

    #[test]
    fn a_store_that_loses_all_with_its_process_is_not_waited_for() {
        let mut record = record();
        let mut shown = Visible::new(&record, 0);
        shown.committed(u64::MAX);
        record.start_answer();
        shown.grown(&record);
        assert!(shown.visible() == 3 && shown.is_safe_at_once() && !shown.is_behind(&record, 0));
    }

    #[test]
    fn what_is_not_safe_is_counted() {
        let mut record = record();
        let mut shown = Visible::new(&record, 2);
        assert!(!shown.is_behind(&record, 1));
        record.start_answer();
        shown.grown(&record);
        assert!(shown.is_behind(&record, 1));
        shown.committed(3);
        assert!(!shown.is_behind(&record, 1));
    }
}
