//! The runs that this replica owns, the part of each that is in the database, and the part that a flush writes.
//!
//! During a turn its lines are written to the log: one row for all runs and each flush. Lines of runs that other
//! replicas follow are written a second time, for the followers. Lines move to the run's own rows when its state
//! changes, when a caller waits for that, and every second. Not here: sending the flush ([`super::flush`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, SerializedValue};
use uuid::Uuid;

use super::text;
use interlingua_store::{Journal, log};

/// A run that this replica holds.
pub(super) struct TrackedRun {
    pub(super) journal: Arc<dyn Journal>,
    /// Number of events in the run's own rows.
    stored: u64,
    /// Bytes of them that the size in the run's row does not have yet.
    uncounted: i64,
    /// Number of events in those or in the log.
    logged: u64,
    /// The state in its row.
    state: (RunState, Millis),
}

impl TrackedRun {
    /// A run whose first events are stored.
    pub(super) fn new(journal: &Arc<dyn Journal>, stored: u64) -> Self {
        let mut state = (RunState::Queued, 0);
        journal.with(&mut |_, info| state = (info.state, info.changed_at));
        Self { journal: Arc::clone(journal), stored, uncounted: 0, logged: stored, state }
    }
}

/// The runs of a replica.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) by_id: HashMap<RunId, TrackedRun>,
    /// The runs that other replicas follow.
    pub(super) followed: HashSet<RunId>,
    /// Journals of runs that were lost and are still in memory: nothing of them is written any more.
    lost: HashMap<RunId, Weak<dyn Journal>>,
    /// Number of those at which the ones that are gone are removed next.
    sweep_at: usize,
}

/// A new run as its row has it; texts as they are kept.
pub(super) struct NewRow {
    pub(super) head: Head,
    pub(super) agent: String,
    pub(super) owner: String,
    pub(super) session: String,
    pub(super) protocol: String,
    pub(super) created_at: i64,
    pub(super) route: Option<String>,
    pub(super) remembered: bool,
    pub(super) preview: String,
}

impl NewRow {
    /// The row of a run with all of its lines. `has_holder`: a replica executes the run. False if it waits or has ended.
    pub(super) fn new(record: &interlingua_core::Record, info: &RunInfo, lines: &[u8], has_holder: bool) -> Self {
        Self {
            head: head(record, info, size_of(lines), has_holder),
            agent: text::kept(&record.run().agent).into_owned(),
            owner: text::kept(&info.owner).into_owned(),
            session: text::kept(&record.run().session_id).into_owned(),
            protocol: text::kept(&info.protocol).into_owned(),
            created_at: int(record.run().created_at),
            route: info.retention.as_ref().map(|retention| text::kept(&retention.route).into_owned()),
            remembered: info.retention.as_ref().is_some_and(|retention| retention.remembered),
            preview: text::kept(&record.run().preview()).into_owned(),
        }
    }
}

/// The changes of a run's row.
pub(super) struct Head {
    pub(super) id: Uuid,
    pub(super) state: &'static str,
    pub(super) ended: bool,
    pub(super) hidden: bool,
    pub(super) changed_at: i64,
    pub(super) upto: i64,
    /// By how many bytes it has grown.
    pub(super) added: i64,
    pub(super) about: Vec<u8>,
    pub(super) head: Vec<u8>,
    /// Its tags in the form of [`all_tags`].
    pub(super) tags: String,
    /// True if a replica executes the run. False removes the holder from the row.
    pub(super) has_holder: bool,
}

/// Lines of a run for a row of their own.
pub(super) struct Segment {
    pub(super) run: Uuid,
    pub(super) first: i64,
    pub(super) events: i32,
    pub(super) bytes: Vec<u8>,
}

/// The durable part of a run after a flush.
pub(super) struct Durable {
    pub(super) run: Arc<dyn Journal>,
    pub(super) events: u64,
    /// The number of events that any replica can load.
    pub(super) archived: u64,
}

/// The writes of a flush for runs.
#[derive(Default)]
pub(super) struct RunWrites {
    pub(super) new: Vec<NewRow>,
    pub(super) segments: Vec<Segment>,
    pub(super) heads: Vec<Head>,
    pub(super) log: Vec<u8>,
    /// The lines for followers on other replicas.
    pub(super) followed: Vec<u8>,
    /// Rows of runs that other replicas follow are written.
    pub(super) changes_followed: bool,
    pub(super) durable: Vec<Durable>,
}

impl Runs {
    /// Adds a run of which this number of events is stored.
    pub(super) fn claim(&mut self, run: &Arc<dyn Journal>, events: u64) {
        run.dirty_flag().clear();
        self.lost.remove(&run.id());
        self.by_id.insert(run.id(), TrackedRun::new(run, events));
    }

    /// Forgets a run that this replica holds no longer, and notifies it.
    pub(super) fn fence_run(&mut self, run: &Arc<dyn Journal>) {
        if self.lost.len() >= self.sweep_at {
            self.lost.retain(|_, journal| journal.strong_count() > 0);
            self.sweep_at = 64 + 2 * self.lost.len();
        }
        self.by_id.remove(&run.id());
        self.followed.remove(&run.id());
        self.lost.insert(run.id(), Arc::downgrade(run));
        run.lost();
    }

    /// The same for all runs.
    pub(super) fn lose_all(&mut self) {
        for tracked in std::mem::take(&mut self.by_id).into_values() {
            self.fence_run(&tracked.journal);
        }
        self.followed.clear();
    }

    /// True if this journal of a run was lost. One that was opened later was not.
    pub(super) fn is_lost(&self, run: &Arc<dyn Journal>) -> bool {
        let lost = self.lost.get(&run.id());
        lost.is_some_and(|lost| std::ptr::addr_eq(Weak::as_ptr(lost), Arc::as_ptr(run)))
    }

    /// Writes the new events of a run: to the log, unless its state has changed.
    pub(super) fn touch(&mut self, run: &Arc<dyn Journal>, writes: &mut RunWrites) {
        run.dirty_flag().clear();
        if self.is_lost(run) {
            return;
        }
        let Some(tracked) = self.by_id.get_mut(&run.id()) else {
            // It was removed, or never opened: its followers do not wait for a commit.
            writes.durable.push(Durable { run: Arc::clone(run), events: u64::MAX, archived: 0 });
            return;
        };

        let mut changed = false;
        run.with(&mut |record, info| {
            changed = (info.state, info.changed_at) != tracked.state;
            if !changed {
                let (from, to) = (tracked.logged, record.len());
                let key = run.id().0.into_bytes();
                let start = writes.log.len();
                log::append(&mut writes.log, key, from, to, |log| journal::write(record, from, log));
                if self.followed.contains(&run.id()) {
                    writes.followed.extend_from_slice(&writes.log[start..]);
                }
                tracked.logged = to;
            }
        });

        if changed {
            self.settle(run, writes);
        } else {
            writes.durable.push(Durable { run: Arc::clone(run), events: tracked.logged, archived: 0 });
        }
    }

    /// Adds a new run.
    pub(super) fn open(&mut self, run: &Arc<dyn Journal>, writes: &mut RunWrites) {
        run.dirty_flag().clear();
        let (mut row, mut lines, mut length) = (None, Vec::new(), 0);
        run.with(&mut |record, info| {
            journal::write(record, 0, &mut lines);
            length = record.len();
            row = Some(NewRow::new(record, info, &lines, true));
        });
        writes.new.extend(row);
        self.lost.remove(&run.id());
        self.by_id.insert(run.id(), TrackedRun::new(run, length));
        writes.push_segment(run.id(), 0, length, lines);
        writes.durable.push(Durable { run: Arc::clone(run), events: length, archived: length });
    }

    /// Brings a run's rows up to date. One that waits or has ended has no holder afterwards.
    pub(super) fn settle(&mut self, run: &Arc<dyn Journal>, writes: &mut RunWrites) {
        run.dirty_flag().clear();
        let Some(tracked) = self.by_id.get_mut(&run.id()) else {
            writes.durable.push(Durable { run: Arc::clone(run), events: u64::MAX, archived: 0 });
            return;
        };

        let (mut lines, mut length, mut has_holder) = (Vec::new(), 0, true);
        let mut state = tracked.state;
        run.with(&mut |record, info| {
            journal::write(record, tracked.stored, &mut lines);
            length = record.len();
            state = (info.state, info.changed_at);
            has_holder = info.state.is_working();
            let added = tracked.uncounted.saturating_add(size_of(&lines));
            writes.heads.push(head(record, info, added, has_holder));
        });
        writes.push_segment(run.id(), tracked.stored, length, lines);
        (tracked.stored, tracked.logged, tracked.state) = (length, length, state);
        tracked.uncounted = 0;
        writes.changes_followed |= self.followed.contains(&run.id());
        writes.durable.push(Durable { run: Arc::clone(run), events: length, archived: length });
        if !has_holder {
            self.by_id.remove(&run.id());
            self.followed.remove(&run.id());
        }
    }

    /// Moves the lines of a run that are in the log, or in neither place, to rows of its own.
    pub(super) fn move_lines(&mut self, id: RunId, writes: &mut RunWrites) {
        let Some(tracked) = self.by_id.get_mut(&id) else { return };
        let (mut lines, mut length) = (Vec::new(), tracked.stored);
        tracked.journal.with(&mut |record, _| {
            journal::write(record, tracked.stored, &mut lines);
            length = record.len();
        });
        tracked.uncounted = tracked.uncounted.saturating_add(size_of(&lines));
        writes.push_segment(id, tracked.stored, length, lines);
        (tracked.stored, tracked.logged) = (length, length);
        writes.changes_followed |= self.followed.contains(&id);
        let run = Arc::clone(&tracked.journal);
        writes.durable.push(Durable { run, events: length, archived: length });
    }

    /// Moves the lines of all runs, so that the log can be emptied.
    pub(super) fn move_all_lines(&mut self, writes: &mut RunWrites) {
        let behind = self.by_id.iter().filter(|(_, tracked)| tracked.logged > tracked.stored);
        for id in behind.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.move_lines(id, writes);
        }
    }
}

impl RunWrites {
    /// The number of bytes of journals to write.
    pub(super) fn bytes(&self) -> usize {
        self.log.len() + self.segments.iter().map(|segment| segment.bytes.len()).sum::<usize>()
    }

    fn push_segment(&mut self, run: RunId, first: u64, length: u64, bytes: Vec<u8>) {
        if length > first {
            let events = i32::try_from(length - first).unwrap_or(i32::MAX);
            self.segments.push(Segment { run: run.0, first: int(first), events, bytes });
        }
    }
}

fn head(record: &interlingua_core::Record, info: &RunInfo, added: i64, has_holder: bool) -> Head {
    let ended = matches!(info.state, RunState::Ended(_));
    let mut lines = Vec::new();
    journal::write(&record.head(), 0, &mut lines);
    Head {
        id: record.run().id.0,
        state: info.state.as_str(),
        ended,
        hidden: ended && !info.stored,
        changed_at: int(info.changed_at),
        upto: int(record.len()),
        added,
        about: serde_json::to_vec(&SerializedValue(info)).unwrap_or_default(),
        head: lines,
        tags: all_tags(info.tags.iter()),
        has_holder,
    }
}

/// Tags as the database gets them, joined by U+001E.
fn all_tags<'a>(tags: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    tags.map(|(name, value)| tag(name, value)).collect::<Vec<_>>().join("\u{1e}")
}

/// A tag as one text.
pub(super) fn tag(name: &str, value: &str) -> String {
    let clean = |text: &str| text.replace(['\0', '\u{1e}', '\u{1f}'], "\u{fffd}");
    format!("{}\u{1f}{}", clean(name), clean(value))
}

fn size_of(lines: &[u8]) -> i64 {
    i64::try_from(lines.len()).unwrap_or(i64::MAX)
}

/// An integer for a column: they are signed. Times and counts stay far below the limit.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
