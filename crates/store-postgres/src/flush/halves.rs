//! Halves of a flush, to find what the database refuses in it. Not here: sending them ([`super::super::writer`]).

use std::collections::HashSet;

use uuid::Uuid;

use super::super::tracked::RunWrites;
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

        let writes = std::mem::take(&mut self.runs);
        let (new, other_new) = writes.new.into_iter().partition(|row| is_first(row.head.id));
        let (segments, other_segments) = writes.segments.into_iter().partition(|segment| is_first(segment.run));
        let (heads, other_heads) = writes.heads.into_iter().partition(|head| is_first(head.id));
        // Of a run without rows something is in the log, which is in the first half.
        let (durable, other_durable) =
            writes.durable.into_iter().partition(|durable| !other_runs.contains(&durable.run.id().0));
        let (claims, other_claims) = self.claims.into_iter().partition(|claim| is_first(claim.run.id().0));
        let (waiting, other_waiting) =
            self.waiting.into_iter().partition(|(run, _)| run.is_some_and(|run| is_first(run.0)));
        let other_documents = self.documents.split_off(first_documents);
        let other_queueing = self.queueing.split_off(first_queueing);

        let first = Self {
            replica: self.replica,
            number: self.number,
            runs: RunWrites {
                new,
                segments,
                heads,
                log: writes.log,
                followed: writes.followed,
                changes_followed: writes.changes_followed,
                durable,
            },
            // The log is deleted when all of its lines are in rows.
            trims: false,
            claims,
            removes: Vec::new(),
            documents: self.documents,
            queueing: self.queueing,
            leaving: (Vec::new(), Vec::new()),
            signals: Vec::new(),
            waiting,
            closing: None,
        };
        let second = Self {
            runs: RunWrites {
                new: other_new,
                segments: other_segments,
                heads: other_heads,
                log: Vec::new(),
                followed: Vec::new(),
                changes_followed: writes.changes_followed,
                durable: other_durable,
            },
            claims: other_claims,
            documents: other_documents,
            queueing: other_queueing,
            waiting: other_waiting,
            ..self
        };
        Ok((first, second))
    }

    /// One flush that gives up half of the places, and one that does all else. Who waits is answered after both.
    fn halve_leaving(mut self) -> (Self, Self) {
        let middle = self.leaving.0.len() / 2;
        let other = (self.leaving.0.split_off(middle), self.leaving.1.split_off(middle));
        let leaving = std::mem::replace(&mut self.leaving, other);
        let first = Self {
            replica: self.replica,
            number: self.number,
            runs: RunWrites::default(),
            trims: false,
            claims: Vec::new(),
            removes: Vec::new(),
            documents: Vec::new(),
            queueing: Vec::new(),
            leaving,
            signals: Vec::new(),
            waiting: Vec::new(),
            closing: None,
        };
        (first, self)
    }
}
