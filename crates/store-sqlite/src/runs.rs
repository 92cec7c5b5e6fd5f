//! Writes of runs, and how much of each run is already written. Lines go to the log while a turn runs, and to segments
//! when a run's state changes, when a caller waits for it, and every few seconds. Not here: transactions and the
//! handling of failures ([`super::writer`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, SerializedValue};
use interlingua_core::run::Record;
use rusqlite::{Connection, OptionalExtension, params};

use super::health::UnwrittenRun;
use super::reader::{QueryError, int};
use super::tracked::TrackedRun;
use super::transaction::{CommittedRun, Task, WriteTransaction};
use interlingua_store::{Journal, StoreError, log};

/// A copy of a run's state: its lines from some event on, and its metadata.
struct RunSnapshot {
    lines: Vec<u8>,
    /// The first event in `lines`.
    from: u64,
    /// Number of events in the run.
    length: u64,
    info: Vec<u8>,
    /// The tags as a JSON object. `None`: the run has none.
    tags: Option<String>,
    /// The data that lists show, as journal lines.
    head: Vec<u8>,
    state: (RunState, Millis),
    ended: bool,
    /// The run has ended and queries must not return it.
    hidden: bool,
    in_turn: bool,
    generation: u64,
}

impl RunSnapshot {
    fn take(journal: &dyn Journal, from: impl Fn(&Record) -> u64) -> Result<Self, QueryError> {
        let mut snapshot = None;
        journal.with(&mut |record, info| {
            let (from, mut lines) = (from(record), Vec::new());
            journal::write(record, from, &mut lines);
            let mut head = Vec::new();
            journal::write(&record.head(), 0, &mut head);
            snapshot = Some(Self {
                lines,
                head,
                from,
                length: record.len(),
                info: serde_json::to_vec(&SerializedValue(info)).unwrap_or_default(),
                tags: (!info.tags.is_empty()).then(|| serde_json::to_string(&info.tags).unwrap_or_default()),
                state: state(info),
                ended: matches!(info.state, RunState::Ended(_)),
                hidden: matches!(info.state, RunState::Ended(_)) && !info.stored,
                in_turn: record.in_turn(),
                generation: journal.dirty_flag().generation(),
            });
        });
        snapshot.ok_or_else(|| {
            QueryError::Store(StoreError::corrupt(
                format_args!("run {}", journal.id()),
                "its journal did not provide it",
            ))
        })
    }
}

const fn state(info: &RunInfo) -> (RunState, Millis) {
    (info.state, info.changed_at)
}

impl WriteTransaction<'_> {
    /// The tracked state of a run, read from the table if it is not in memory. `None`: the run has no row.
    fn track(&self, run: &Arc<dyn Journal>) -> Result<Option<TrackedRun>, QueryError> {
        if let Some(track) = self.tracked.by_id.get(&run.id()) {
            return Ok(Some(track.clone()));
        }

        let found = self
            .sql
            .prepare_cached("SELECT number, upto, state, changed_at FROM runs WHERE id = ?1")?
            .query_row([run.id().0.as_bytes().as_slice()], |row| {
                let (number, upto, state_name): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok((number, upto, state_name, row.get::<_, i64>(3)?))
            })
            .optional()?;

        Ok(found.map(|(number, upto, state_name, changed_at)| {
            let stored = u64::try_from(upto).unwrap_or(0);
            // A state that cannot be parsed is written again.
            let state = RunState::parse(&state_name).unwrap_or(RunState::Queued);
            let state = (state, u64::try_from(changed_at).unwrap_or(0));
            // Withdrawn events may already be stored; generation 0 makes a run with withdrawn events be rewritten.
            TrackedRun {
                number,
                journal: Arc::clone(run),
                segment_events: stored,
                logged_events: stored,
                state,
                generation: 0,
            }
        }))
    }

    /// Writes the new events of a run to the log, unless its state has changed too.
    pub(super) fn touch(&mut self, run: &Arc<dyn Journal>) -> Result<(), QueryError> {
        run.dirty_flag().clear();
        let Some(mut track) = self.track(run)? else {
            self.release_unknown(run);
            return Ok(());
        };

        let mut changed = false;
        let log = &mut *self.log;
        run.with(&mut |record, info| {
            changed = state(info) != track.state || run.dirty_flag().generation() != track.generation;
            if !changed {
                let (from, to) = (track.logged_events, record.len());
                log::append(log, track.number.to_le_bytes(), from, to, |log| journal::write(record, from, log));
                track.logged_events = to;
            }
        });

        if changed {
            return self.write(run, track);
        }
        self.committed.push(CommittedRun { run: Arc::clone(run), events: track.logged_events, archived: 0 });
        self.tracked.set(run.id(), Some(track));
        Ok(())
    }

    /// Inserts a run with all of its events.
    pub(super) fn open(&mut self, run: &Arc<dyn Journal>) -> Result<(), QueryError> {
        run.dirty_flag().clear();
        if let Some(mut track) = self.track(run)? {
            track.journal = Arc::clone(run);
            if self.unwritten.get(run.id()).is_some() {
                // The events that this journal starts with may never have been written.
                track.generation = u64::MAX;
            }
            return self.write(run, track);
        }

        let snapshot = RunSnapshot::take(&**run, |_| 0)?;
        let (mut agent, mut session, mut created_at) = (String::new(), String::new(), 0);
        let (mut owner, mut protocol, mut preview) = (String::new(), String::new(), String::new());
        let mut retention = None;
        run.with(&mut |record, info| {
            record.run().agent.clone_into(&mut agent);
            record.run().session_id.clone_into(&mut session);
            created_at = record.run().created_at;
            preview = record.run().preview();
            info.owner.clone_into(&mut owner);
            info.protocol.clone_into(&mut protocol);
            retention.clone_from(&info.retention);
        });

        let (route, remembered) = retention.map(|retention| (retention.route, retention.remembered)).unzip();
        self.sql
            .prepare_cached(
                "INSERT INTO runs
                 (id, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at, upto, about,
                  route, remembered, head, tags, preview)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            )?
            .execute(params![
                run.id().0.as_bytes().as_slice(),
                agent,
                owner,
                session,
                protocol,
                snapshot.state.0.as_str(),
                snapshot.ended,
                snapshot.hidden,
                int(created_at),
                int(snapshot.state.1),
                int(snapshot.length),
                snapshot.info,
                route,
                remembered.unwrap_or(false),
                snapshot.head,
                snapshot.tags,
                preview,
            ])?;

        let number = self.sql.last_insert_rowid();
        self.insert_segment(number, 0, &snapshot.lines)?;
        let (stored, journal) = (snapshot.length, Arc::clone(run));
        self.committed.push(CommittedRun { run: Arc::clone(run), events: stored, archived: stored });
        let track = TrackedRun {
            number,
            journal,
            segment_events: stored,
            logged_events: stored,
            state: snapshot.state,
            generation: snapshot.generation,
        };
        self.tracked.set(run.id(), Some(track));
        Ok(())
    }

    /// Writes everything that is new in a run.
    pub(super) fn settle(&mut self, run: &Arc<dyn Journal>) -> Result<(), QueryError> {
        run.dirty_flag().clear();
        match self.track(run)? {
            Some(track) => self.write(run, track),
            // An earlier `open` failed.
            None if self.is_unopened(run) => self.open(run),
            None => {
                self.release_unknown(run);
                Ok(())
            }
        }
    }

    /// True if an earlier `open` of the run failed.
    fn is_unopened(&self, run: &Arc<dyn Journal>) -> bool {
        self.unwritten.get(run.id()).is_some_and(|run| run.open)
    }

    /// A run that was removed or never opened is not written; its followers must not wait for a commit.
    fn release_unknown(&mut self, run: &Arc<dyn Journal>) {
        if !self.is_unopened(run) {
            self.committed.push(CommittedRun { run: Arc::clone(run), events: u64::MAX, archived: 0 });
        }
    }

    /// Brings a run's row and segments up to date. A run that has ended is rewritten as one segment.
    fn write(&mut self, run: &Arc<dyn Journal>, mut track: TrackedRun) -> Result<(), QueryError> {
        let snapshot = RunSnapshot::take(&**run, |record| {
            let (length, stored) = (record.len(), track.segment_events);
            // Starts over if the run has ended, and if this journal has fewer events than the store. Evicted events
            // stay as they are: they end with a segment, and are never withdrawn.
            let rewrite = length < stored || (record.is_finished() && length > stored);
            let starts_over = rewrite || run.dirty_flag().generation() != track.generation;
            if starts_over { record.evicted() } else { stored }
        })?;

        // The log may contain withdrawn events, whose positions now belong to other events.
        self.empty_log |= snapshot.generation != track.generation;
        if snapshot.from < track.segment_events {
            let mut statement = self.sql.prepare_cached("DELETE FROM lines WHERE run = ?1 AND first >= ?2")?;
            statement.execute(params![track.number, int(snapshot.from)])?;
        }

        self.insert_segment(track.number, snapshot.from, &snapshot.lines)?;
        self.sql
            .prepare_cached(
                "UPDATE runs SET state = ?2, ended = ?3, hidden = ?4, changed_at = ?5, upto = ?6, about = ?7, head = ?8,
                 tags = ?9
                 WHERE number = ?1",
            )?
            .execute(params![
                track.number,
                snapshot.state.0.as_str(),
                snapshot.ended,
                snapshot.hidden,
                int(snapshot.state.1),
                int(snapshot.length),
                snapshot.info,
                snapshot.head,
                snapshot.tags,
            ])?;

        (track.segment_events, track.logged_events, track.state) = (snapshot.length, snapshot.length, snapshot.state);
        track.generation = snapshot.generation;
        let events = track.segment_events;
        self.committed.push(CommittedRun { run: Arc::clone(run), events, archived: events });
        // Between turns a run may be idle for days; the next touch loads its state again.
        self.tracked.set(run.id(), snapshot.in_turn.then_some(track));
        Ok(())
    }

    fn insert_segment(&self, number: i64, first: u64, lines: &[u8]) -> Result<(), QueryError> {
        if !lines.is_empty() {
            let mut statement = self.sql.prepare_cached("INSERT INTO lines (run, first, bytes) VALUES (?1, ?2, ?3)")?;
            statement.execute(params![number, int(first), lines])?;
        }
        Ok(())
    }

    /// Moves the lines of all runs from the log to segments, and empties the log.
    pub(super) fn flush_log(&mut self) -> Result<(), QueryError> {
        let with_new_lines = self.tracked.by_id.values().filter(|track| track.logged_events > track.segment_events);
        for track in with_new_lines.cloned().collect::<Vec<_>>() {
            let run = Arc::clone(&track.journal);
            self.write(&run, track)?;
        }

        self.sql.prepare_cached("DELETE FROM log")?.execute([])?;
        Ok(())
    }

    /// Deletes a run. False if there was none.
    pub(super) fn remove(&mut self, id: RunId) -> Result<bool, QueryError> {
        self.tracked.set(id, None);
        self.unwritten.remove(id);
        let found: Option<i64> = self
            .sql
            .prepare_cached("SELECT number FROM runs WHERE id = ?1")?
            .query_row([id.0.as_bytes().as_slice()], |row| row.get(0))
            .optional()?;
        let Some(number) = found else { return Ok(false) };
        self.sql.prepare_cached("DELETE FROM lines WHERE run = ?1")?.execute([number])?;
        self.sql.prepare_cached("DELETE FROM runs WHERE number = ?1")?.execute([number])?;
        Ok(true)
    }
}

/// A retry of writing a run that could not be written. No caller waits for it.
pub(super) struct Retry(pub(super) UnwrittenRun);

impl Task for Retry {
    fn attempt(&mut self, tx: &mut WriteTransaction<'_>) -> Result<(), QueryError> {
        if self.0.open { tx.open(&self.0.run) } else { tx.settle(&self.0.run) }
    }

    fn respond(self: Box<Self>, _error: Option<&StoreError>) {}

    fn unwritten_run(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        Some((&self.0.run, self.0.open))
    }
}

/// Moves the lines in the log of a crashed process to segments.
pub(super) fn recover_log(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    struct Tail {
        first: u64,
        next: u64,
        lines: Vec<u8>,
    }

    let transaction = connection.transaction()?;
    let mut tails: HashMap<i64, Option<Tail>> = HashMap::new();
    {
        let mut upto = transaction.prepare("SELECT upto FROM runs WHERE number = ?1")?;
        let mut rows = transaction.prepare("SELECT bytes FROM log ORDER BY number")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            for frame in log::frames::<8>(row.get_ref(0)?.as_blob()?) {
                let number = i64::from_le_bytes(frame.run);
                let tail = match tails.entry(number) {
                    MapEntry::Occupied(known) => known.into_mut(),
                    MapEntry::Vacant(new) => {
                        let upto: Option<i64> = upto.query_row([number], |row| row.get(0)).optional()?;
                        let first = upto.and_then(|upto| u64::try_from(upto).ok());
                        new.insert(first.map(|first| Tail { first, next: first, lines: Vec::new() }))
                    }
                };
                // Skips lines of runs that were removed, and lines that are in segments already.
                if let Some(tail) = tail
                    && frame.first == tail.next
                {
                    tail.lines.extend_from_slice(frame.lines);
                    tail.next += u64::from(frame.count);
                }
            }
        }

        let mut segment = transaction.prepare("INSERT INTO lines (run, first, bytes) VALUES (?1, ?2, ?3)")?;
        let mut update = transaction.prepare("UPDATE runs SET upto = ?2 WHERE number = ?1")?;
        for (run, tail) in tails {
            let Some(tail) = tail.filter(|tail| !tail.lines.is_empty()) else { continue };
            segment.execute(params![run, int(tail.first), tail.lines])?;
            update.execute(params![run, int(tail.next)])?;
        }
        transaction.execute("DELETE FROM log", [])?;
    }
    transaction.commit()
}
