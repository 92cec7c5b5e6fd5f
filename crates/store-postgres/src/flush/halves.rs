//! Halves of a flush, to find what the database refuses in it. Not here: sending them ([`super::super::writer`]).

use std::collections::HashSet;

use uuid::Uuid;

use super::Flush;

impl Flush {
    /// The number of writes that the database may refuse because of their content.
    pub(in super::super) fn items(&self) -> usize {
        self.written_runs().len() + self.documents.len() + self.queueing.len()
    }

    /// The runs whose rows it writes, each once.
    fn written_runs(&self) -> Vec<Uuid> {
        let writes = &self.runs;
        let rows = writes.new.iter().map(|row| row.head.id).chain(writes.heads.iter().map(|head| head.id));
        let lines = writes.segments.iter().map(|segment| segment.run);
        let claims = self.claims.iter().map(|claim| claim.run.id().0);
        let mut known = HashSet::new();
        rows.chain(lines).chain(claims).filter(|run| known.insert(*run)).collect()
    }

    /// True if it does something besides writing items and the log.
    fn does_more(&self) -> bool {
        self.trims
            || self.closing.is_some()
            || !self.removes.is_empty()
            || !self.leaving.0.is_empty()
            || !self.signals.is_empty()
            || self.waiting.iter().any(|(run, _)| run.is_none())
    }

    /// Two flushes that write the same, one after the other.
    ///
    /// # Errors
    /// This one, if it cannot be divided.
    pub(in super::super) fn halve(mut self) -> Result<(Self, Self), Box<Self>> {
        let first_items = match self.items() {
            0 if self.leaving.0.len() > 1 => return Ok(self.halve_leaving()),
            0 => return Err(Box::new(self)),
            1 if !self.runs.log.is_empty() => 0,
            1 if self.does_more() => 1,
            1 => return Err(Box::new(self)),
            items => items / 2,
        };

        let runs = self.written_runs();
        let first_runs: HashSet<Uuid> = runs.iter().take(first_items).copied().collect();
        let other_runs: HashSet<Uuid> = runs.iter().skip(first_items).copied().collect();
        let is_first = |run: Uuid| first_runs.contains(&run);
        let first_items = first_items.saturating_sub(runs.len());
        let first_documents = first_items.min(self.documents.len());
        let first_queueing = (first_items - first_documents).min(self.queueing.len());

        // The log is deleted by the second half, when all of its lines are in rows.
        let mut first = Self::empty(self.replica, self.number);
        let (runs, writes) = (&mut first.runs, &mut self.runs);
        runs.new = writes.new.extract_if(.., |row| is_first(row.head.id)).collect();
        runs.segments = writes.segments.extract_if(.., |segment| is_first(segment.run)).collect();
        runs.heads = writes.heads.extract_if(.., |head| is_first(head.id)).collect();
        runs.log = std::mem::take(&mut writes.log);
        runs.followed = std::mem::take(&mut writes.followed);
        runs.changes_followed = writes.changes_followed;
        // A run without rows has lines in the log, which is in the first half.
        runs.durable = writes.durable.extract_if(.., |durable| !other_runs.contains(&durable.run.id().0)).collect();

        first.claims = self.claims.extract_if(.., |claim| is_first(claim.run.id().0)).collect();
        first.documents = self.documents.drain(..first_documents).collect();
        first.queueing = self.queueing.drain(..first_queueing).collect();
        first.waiting = self.waiting.extract_if(.., |(run, _)| run.is_some_and(|run| is_first(run.0))).collect();
        Ok((first, self))
    }

    /// One flush that gives up half of the places, and one that does all else. Who waits is answered after both.
    fn halve_leaving(mut self) -> (Self, Self) {
        let middle = self.leaving.0.len() / 2;
        let mut first = Self::empty(self.replica, self.number);
        first.leaving = (self.leaving.0.drain(..middle).collect(), self.leaving.1.drain(..middle).collect());
        (first, self)
    }
}
