//! The queues of sessions' turns. Not here: the waiting callers (`store`).

use std::collections::HashMap;

use interlingua::store::Ticket;
use interlingua_core::RunId;

#[derive(Default)]
pub(super) struct Lines {
    by_session: HashMap<String, Vec<QueuePlace>>,
    last: u64,
}

struct QueuePlace {
    number: u64,
    member: u64,
    continues: Option<RunId>,
}

impl Lines {
    pub(super) fn join(&mut self, session: &str, member: u64, continues: Option<RunId>, most: usize) -> Option<Ticket> {
        let line = self.by_session.entry(session.to_owned()).or_default();
        if line.len() > most {
            return None;
        }

        self.last += 1;
        let (number, is_first) = (self.last, line.is_empty());
        line.push(QueuePlace { number, member, continues });
        Some(Ticket { session: session.to_owned(), number, is_first })
    }

    pub(super) fn is_continued(&self, run: RunId) -> bool {
        self.by_session.values().any(|line| line.iter().skip(1).any(|place| place.continues == Some(run)))
    }

    /// The number of places before this one. `None`: it is not queued.
    pub(super) fn before(&self, ticket: &Ticket) -> Option<usize> {
        self.by_session.get(&ticket.session)?.iter().position(|place| place.number == ticket.number)
    }

    pub(super) fn leave(&mut self, ticket: &Ticket) {
        self.retain(|session, place| session != ticket.session || place.number != ticket.number);
    }

    /// Gives up all places of a replica.
    pub(super) fn remove_member(&mut self, member: u64) {
        self.retain(|_, place| place.member != member);
    }

    fn retain(&mut self, mut keeps: impl FnMut(&str, &QueuePlace) -> bool) {
        self.by_session.retain(|session, line| {
            line.retain(|place| keeps(session, place));
            !line.is_empty()
        });
    }
}
