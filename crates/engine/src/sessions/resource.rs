//! A session as a resource: its state as its owner sees it, and the changes of its owner.
//!
//! Not here: serving such calls ([`crate::operator`]), and the states of runs.

use interlingua_core::call::SessionView;
use interlingua_core::model::Message;
use interlingua_core::{Extra, Fault, RunId};

use super::session::Session;

impl Session {
    /// Its state, without items and without the state of its latest run.
    pub(crate) fn view(&self) -> SessionView {
        self.doc().view()
    }

    /// Adds messages: all of them, or none if there is no room.
    pub(crate) fn append(&self, messages: &[Message]) -> Result<(), Fault> {
        self.doc().append(messages)
    }

    /// Makes it a resource of its own, a conversation. Nothing changes if there is no room for the messages.
    pub(crate) fn begin_conversation(&self, messages: &[Message], labels: &Extra) -> Result<(), Fault> {
        let mut doc = self.doc();
        doc.append(messages)?;
        doc.is_conversation = true;
        doc.set_labels(labels);
        Ok(())
    }

    /// Sets labels. Others stay as they are.
    pub(crate) fn set_labels(&self, labels: &Extra) {
        self.doc().set_labels(labels);
    }

    pub(crate) fn is_conversation(&self) -> bool {
        self.doc().is_conversation
    }

    /// The latest run, also if no entry names it.
    pub(crate) fn latest(&self) -> Option<RunId> {
        self.doc().latest
    }

    /// The run of the last entry, if that is a turn.
    pub(crate) fn last_run(&self) -> Option<RunId> {
        self.doc().last
    }

    /// False if clients named another user for it than this one.
    pub(crate) fn is_of_user(&self, user: Option<&str>) -> bool {
        let doc = self.doc();
        doc.named_user().zip(user).is_none_or(|(known, user)| known == user)
    }

    /// True if items of turns were removed.
    pub(crate) fn has_removed_items(&self) -> bool {
        !self.doc().removed.is_empty()
    }

    /// True if the item of a turn was removed.
    pub(crate) fn is_removed(&self, item: &str) -> bool {
        self.doc().removed.contains(item)
    }

    /// The ids of removed items of the turns of a run.
    pub(crate) fn removed_items_of(&self, run: RunId) -> Vec<String> {
        let doc = self.doc();
        if doc.removed.is_empty() {
            return Vec::new();
        }
        // The ids of the items of a turn contain the id of its run.
        let run = run.0.simple().to_string();
        doc.removed.iter().filter(|id| id.contains(&run)).cloned().collect()
    }

    /// Hides items of turns that the session gets from another one, where they were removed.
    pub(crate) fn hide_items(&self, items: Vec<String>) {
        self.doc().removed.extend(items);
    }

    /// Hides an item of a turn. False: it was removed before.
    pub(crate) fn remove_turn_item(&self, item: &str) -> bool {
        let mut doc = self.doc();
        let is_new = doc.removed.insert(item.to_owned());
        doc.removals += u64::from(is_new);
        doc.stale |= is_new;
        is_new
    }
}
