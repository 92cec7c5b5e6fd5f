//! The latest entries of the audit log in memory, for the console.
//!
//! Refusals have a list of their own: strangers cause them, and would push out what operators did.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::audit::AuditEntry;

/// Entries that are kept, of refusals and of all others each.
const MAX_RECENT: usize = 1000;

/// The latest entries, whether they are written to a file or not. Clones are one list.
#[derive(Clone, Default)]
pub(super) struct RecentAudit(Arc<Mutex<Lists>>);

#[derive(Default)]
struct Lists {
    /// The number of the latest entry.
    last: u64,
    /// The latest first, each with its number.
    done: VecDeque<(u64, AuditEntry)>,
    refused: VecDeque<(u64, AuditEntry)>,
}

impl RecentAudit {
    pub(super) fn add(&self, entry: &AuditEntry) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.last += 1;
        let number = lists.last;
        let list = if entry.is_refusal() { &mut lists.refused } else { &mut lists.done };
        if list.len() >= MAX_RECENT {
            list.pop_back();
        }
        list.push_front((number, entry.clone()));
    }

    /// The latest ones first, of those before this number, and the number of the last one if there are more.
    pub(super) fn latest(&self, before: u64, count: usize) -> (Vec<AuditEntry>, Option<u64>) {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let older = |list: &'_ VecDeque<(u64, AuditEntry)>| list.partition_point(|(number, _)| *number >= before);
        let mut done = lists.done.iter().skip(older(&lists.done)).peekable();
        let mut refused = lists.refused.iter().skip(older(&lists.refused)).peekable();
        let mut found: Vec<&(u64, AuditEntry)> = Vec::new();
        while found.len() < count {
            let number = |next: Option<&&(u64, AuditEntry)>| next.map(|(number, _)| *number);
            let next = if number(done.peek()) > number(refused.peek()) { done.next() } else { refused.next() };
            let Some(next) = next else { break };
            found.push(next);
        }
        let has_more = done.peek().is_some() || refused.peek().is_some();
        let next = found.last().filter(|_| has_more).map(|(number, _)| *number);
        (found.into_iter().map(|(_, entry)| entry.clone()).collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::audit::Action;
    use super::*;

    #[test]
    fn refusals_push_out_no_other_entry_and_pages_have_both_in_order() {
        let recent = RecentAudit::default();
        recent.add(&AuditEntry::new(Action::Started));
        for _ in 0..2 * MAX_RECENT {
            recent.add(&AuditEntry::new(Action::CredentialRefused));
        }
        recent.add(&AuditEntry::new(Action::SignIn));
        recent.add(&AuditEntry::new(Action::AdminCall).refused());

        let (mut seen, mut before) = (Vec::new(), u64::MAX);
        loop {
            let (page, next) = recent.latest(before, 7);
            seen.extend(page.iter().map(AuditEntry::action));
            match next {
                Some(next) => before = next,
                None => break,
            }
        }
        assert_eq!(seen.len(), MAX_RECENT + 2);
        assert_eq!((seen[0], seen[1], seen[2]), (Action::AdminCall, Action::SignIn, Action::CredentialRefused));
        assert_eq!(seen.last(), Some(&Action::Started));
    }
}
