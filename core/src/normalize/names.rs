//! The ids messages are told with: the upstream's where it gave one, and unique in the run, over all its turns.

use std::collections::{HashMap, HashSet};

use crate::run::Record;

/// The ids that are taken.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// How far copies of an id were counted.
    copies: HashMap<String, u32>,
    begun: bool,
}

impl Names {
    /// An id for the next message of a record, as near as can be to the one the upstream gave, which may be empty.
    pub(super) fn unique(&mut self, record: &Record, given: &str) -> String {
        let run = record.run();
        if !self.begun {
            self.begun = true;
            self.taken.extend(run.messages.iter().map(|message| message.id.clone()));
        }
        let wanted = if given.is_empty() { run.id.message_id(run.messages.len()) } else { given.to_owned() };
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        let copies = self.copies.entry(wanted.clone()).or_insert(1);
        loop {
            *copies += 1;
            let copy = format!("{wanted}_{copies}");
            if self.taken.insert(copy.clone()) {
                return copy;
            }
        }
    }
}
