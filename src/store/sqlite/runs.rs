//! What is written of runs, and how much of each is written already. Lines go to the log while a turn runs, and to
//! segments when a run's state changes, when somebody waits for it, and every few seconds. Not here: transactions and
//! what becomes of failures ([`super::writer`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use interlingua_core::journal::{self, Written};
use interlingua_core::run::Record;
use rusqlite::{Connection, OptionalExtension, params};

use super::health::Debt;
use super::log;
use super::queue::Task;
use super::reader::{Failed, int};
use super::writer::Writing;
use crate::store::{Journal, StoreError};

/// A run that is looked at, and how far it is written.
#[derive(Clone)]
struct Track {
    /// The table's number.
    number: i64,
    journal: Arc<dyn Journal>,
    /// How many events stand in segments.
    kept: u64,
    /// How many events stand in segments or in the log.
    logged: u64,
    /// The state as the table has it, and since when.
    state: (RunState, Millis),
    /// The edition that is written. What is of another one is written anew.
    edition: u64,
}

/// The runs that are looked at. What changes is taken back if the transaction comes to nothing.
#[derive(Default)]
pub(super) struct Tracks {
    by_id: HashMap<RunId, Track>,
    before: Vec<(RunId, Option<Track>)>,
}

impl Tracks {
    fn set(&mut self, id: RunId, track: Option<Track>) {
        let before = match track {
            Some(track) => self.by_id.insert(id, track),
            None => self.by_id.remove(&id),
        };
        self.before.push((id, before));
    }

    pub(super) fn commit(&mut self) {
        self.before.clear();
    }

    pub(super) fn roll_back(&mut self) {
        for (id, before) in std::mem::take(&mut self.before).into_iter().rev() {
            match before {
                Some(track) => self.by_id.insert(id, track),
                None => self.by_id.remove(&id),
            };
        }
    }
}

/// A look at a run: its lines from somewhere on, and what is known besides.
struct Look {
    lines: Vec<u8>,
    /// The event they begin with.
    from: u64,
    /// How many events the run has.
    length: u64,
    about: Vec<u8>,
    /// What lists show of it.
    head: Vec<u8>,
    state: (RunState, Millis),
    ended: bool,
    /// It has ended and shall not be found.
    hidden: bool,
    in_turn: bool,
    edition: u64,
}

impl Look {
    fn at(journal: &dyn Journal, from: impl Fn(&Record) -> u64) -> Result<Self, Failed> {
        let mut look = None;
        journal.with(&mut |record, about| {
            let (from, mut lines) = (from(record), Vec::new());
            journal::write(record, from, &mut lines);
            let mut head = Vec::new();
            journal::write(&record.head(), 0, &mut head);
            look = Some(Self {
                lines,
                head,
                from,
                length: record.len(),
                about: serde_json::to_vec(&Written(about)).unwrap_or_default(),
                state: state(about),
                ended: matches!(about.state, RunState::Ended(_)),
                hidden: matches!(about.state, RunState::Ended(_)) && !about.stored,
                in_turn: record.in_turn(),
                edition: journal.mark().edition(),
            });
        });
        look.ok_or_else(|| {
            Failed::Store(StoreError::corrupt(format_args!("run {}", journal.id()), "it does not show itself"))
        })
    }
}

const fn state(about: &RunInfo) -> (RunState, Millis) {
    (about.state, about.changed_at)
}

impl Writing<'_> {
    /// The run as it is known, looked up if nobody has looked at it for a while. None: it is not known.
    fn track(&self, run: &Arc<dyn Journal>) -> Result<Option<Track>, Failed> {
        if let Some(track) = self.tracks.by_id.get(&run.id()) {
            return Ok(Some(track.clone()));
        }
        let found = self
            .sql
            .prepare_cached("SELECT number, upto, state, changed_at FROM runs WHERE id = ?1")?
            .query_row([run.id().0.as_bytes().as_slice()], |row| {
                let (number, upto, word): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok((number, upto, word, row.get::<_, i64>(3)?))
            })
            .optional()?;
        Ok(found.map(|(number, upto, word, changed_at)| {
            let kept = u64::try_from(upto).unwrap_or(0);
            // A word that cannot be read is written again.
            let state = RunState::parse(&word).unwrap_or(RunState::Queued);
            let state = (state, u64::try_from(changed_at).unwrap_or(0));
            // What was taken back may be what is stored: then it is written anew.
            Track { number, journal: Arc::clone(run), kept, logged: kept, state, edition: 0 }
        }))
    }

    /// A run has grown: its new lines go to the log, unless its state has changed too.
    pub(super) fn touch(&mut self, run: &Arc<dyn Journal>) -> Result<(), Failed> {
        run.mark().clear();
        let Some(mut track) = self.track(run)? else {
            self.nothing_to_lose(run);
            return Ok(());
        };
        let mut changed = false;
        let log = &mut *self.log;
        run.with(&mut |record, about| {
            changed = state(about) != track.state || run.mark().edition() != track.edition;
            if !changed {
                let (from, to) = (track.logged, record.len());
                log::append(log, track.number, from, to, |log| journal::write(record, from, log));
                track.logged = to;
            }
        });
        if changed {
            return self.keep(run, track);
        }
        self.safe.push((Arc::clone(run), track.logged));
        self.tracks.set(run.id(), Some(track));
        Ok(())
    }

    /// Makes a run known, with all that was told in it.
    pub(super) fn open(&mut self, run: &Arc<dyn Journal>) -> Result<(), Failed> {
        run.mark().clear();
        if let Some(mut track) = self.track(run)? {
            track.journal = Arc::clone(run);
            if self.owed.get(run.id()).is_some() {
                // What this one begins with may never have been written.
                track.edition = u64::MAX;
            }
            return self.keep(run, track);
        }
        let look = Look::at(&**run, |_| 0)?;
        let (mut agent, mut session, mut created_at) = (String::new(), String::new(), 0);
        let (mut owner, mut protocol) = (String::new(), String::new());
        let mut keeper = None;
        run.with(&mut |record, about| {
            record.run().agent.clone_into(&mut agent);
            record.run().session_id.clone_into(&mut session);
            created_at = record.run().created_at;
            about.owner.clone_into(&mut owner);
            about.protocol.clone_into(&mut protocol);
            keeper.clone_from(&about.retention);
        });
        let (route, remembered) = keeper.map(|keeper| (keeper.route, keeper.remembered)).unzip();
        self.sql
            .prepare_cached(
                "INSERT INTO runs
                 (id, agent, owner, session, protocol, state, ended, hidden, created_at, changed_at, upto, about,
                  route, remembered, head)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?
            .execute(params![
                run.id().0.as_bytes().as_slice(),
                agent,
                owner,
                session,
                protocol,
                look.state.0.as_str(),
                look.ended,
                look.hidden,
                int(created_at),
                int(look.state.1),
                int(look.length),
                look.about,
                route,
                remembered.unwrap_or(false),
                look.head,
            ])?;
        let number = self.sql.last_insert_rowid();
        self.segment(number, 0, &look.lines)?;
        let (kept, journal) = (look.length, Arc::clone(run));
        self.safe.push((Arc::clone(run), kept));
        let track = Track { number, journal, kept, logged: kept, state: look.state, edition: look.edition };
        self.tracks.set(run.id(), Some(track));
        Ok(())
    }

    /// Writes all there is of a run.
    pub(super) fn settle(&mut self, run: &Arc<dyn Journal>) -> Result<(), Failed> {
        run.mark().clear();
        match self.track(run)? {
            Some(track) => self.keep(run, track),
            // It could not be made known before.
            None if self.is_owed(run) => self.open(run),
            None => {
                self.nothing_to_lose(run);
                Ok(())
            }
        }
    }

    /// Whether it is still to be made known.
    fn is_owed(&self, run: &Arc<dyn Journal>) -> bool {
        self.owed.get(run.id()).is_some_and(|debt| debt.open)
    }

    /// A run that was removed, or never made known, is not written: who follows it need not wait for that.
    fn nothing_to_lose(&mut self, run: &Arc<dyn Journal>) {
        if !self.is_owed(run) {
            self.safe.push((Arc::clone(run), u64::MAX));
        }
    }

    /// Brings a run's row and segments up to date. A run that has ended becomes one segment.
    fn keep(&mut self, run: &Arc<dyn Journal>, mut track: Track) -> Result<(), Failed> {
        let look = Look::at(&**run, |record| {
            let (length, kept) = (record.len(), track.kept);
            // From the start again if the run has ended; and if this journal knows less than the store does.
            let anew = length < kept || (record.is_finished() && length > kept);
            if anew || run.mark().edition() != track.edition { 0 } else { kept }
        })?;
        // The log may hold events that were taken back, and that others stand in the place of now.
        self.empty_log |= look.edition != track.edition;
        if look.from < track.kept {
            self.sql.prepare_cached("DELETE FROM lines WHERE run = ?1")?.execute([track.number])?;
        }
        self.segment(track.number, look.from, &look.lines)?;
        self.sql
            .prepare_cached(
                "UPDATE runs SET state = ?2, ended = ?3, hidden = ?4, changed_at = ?5, upto = ?6, about = ?7, head = ?8
                 WHERE number = ?1",
            )?
            .execute(params![
                track.number,
                look.state.0.as_str(),
                look.ended,
                look.hidden,
                int(look.state.1),
                int(look.length),
                look.about,
                look.head,
            ])?;
        (track.kept, track.logged, track.state) = (look.length, look.length, look.state);
        track.edition = look.edition;
        self.safe.push((Arc::clone(run), track.kept));
        // Between turns a run may be silent for days; a touch finds it again.
        self.tracks.set(run.id(), look.in_turn.then_some(track));
        Ok(())
    }

    fn segment(&self, number: i64, first: u64, lines: &[u8]) -> Result<(), Failed> {
        if !lines.is_empty() {
            let mut statement = self.sql.prepare_cached("INSERT INTO lines (run, first, bytes) VALUES (?1, ?2, ?3)")?;
            statement.execute(params![number, int(first), lines])?;
        }
        Ok(())
    }

    /// Puts the lines of all runs where they belong, and empties the log.
    pub(super) fn put_log_away(&mut self) -> Result<(), Failed> {
        let grown = self.tracks.by_id.values().filter(|track| track.logged > track.kept);
        for track in grown.cloned().collect::<Vec<_>>() {
            let run = Arc::clone(&track.journal);
            self.keep(&run, track)?;
        }
        self.sql.prepare_cached("DELETE FROM log")?.execute([])?;
        Ok(())
    }

    /// Forgets a run. False: it was not known.
    pub(super) fn remove(&mut self, id: RunId) -> Result<bool, Failed> {
        self.tracks.set(id, None);
        self.owed.remove(id);
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

/// One more try to write a run that could not be written. Nobody waits for it.
pub(super) struct Again(pub(super) Debt);

impl Task for Again {
    fn attempt(&mut self, writing: &mut Writing<'_>) -> Result<(), Failed> {
        if self.0.open { writing.open(&self.0.run) } else { writing.settle(&self.0.run) }
    }

    fn answer(self: Box<Self>, _error: Option<&StoreError>) {}

    fn owes(&self) -> Option<(&Arc<dyn Journal>, bool)> {
        Some((&self.0.run, self.0.open))
    }
}

/// Puts the lines of a log that a dead process left where they belong.
pub(super) fn fold_log(connection: &mut Connection) -> Result<(), rusqlite::Error> {
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
            for frame in log::frames(row.get_ref(0)?.as_blob()?) {
                let tail = match tails.entry(frame.run) {
                    Slot::Occupied(known) => known.into_mut(),
                    Slot::Vacant(new) => {
                        let upto: Option<i64> = upto.query_row([frame.run], |row| row.get(0)).optional()?;
                        let first = upto.and_then(|upto| u64::try_from(upto).ok());
                        new.insert(first.map(|first| Tail { first, next: first, lines: Vec::new() }))
                    }
                };
                // Lines of runs that were removed, or that were put away since, are passed over.
                if let Some(tail) = tail
                    && frame.first == tail.next
                {
                    tail.lines.extend_from_slice(frame.lines);
                    tail.next += u64::from(frame.count);
                }
            }
        }
        let mut segment = transaction.prepare("INSERT INTO lines (run, first, bytes) VALUES (?1, ?2, ?3)")?;
        let mut grown = transaction.prepare("UPDATE runs SET upto = ?2 WHERE number = ?1")?;
        for (run, tail) in tails {
            let Some(tail) = tail.filter(|tail| !tail.lines.is_empty()) else { continue };
            segment.execute(params![run, int(tail.first), tail.lines])?;
            grown.execute(params![run, int(tail.next)])?;
        }
        transaction.execute("DELETE FROM log", [])?;
    }
    transaction.commit()
}
