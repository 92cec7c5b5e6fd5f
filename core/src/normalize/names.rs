//! The ids of emitted messages: the upstream's if it gave one, made unique in the run, over all its turns.

use std::collections::{HashMap, HashSet};

use crate::run::Record;

/// The ids in use.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// The number of copies of each id.
    copies: HashMap<String, u32>,
    begun: bool,
}

impl Names {
    /// An unused id for the next message of a record: the upstream's if possible. That may be empty.
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
