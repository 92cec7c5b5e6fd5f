//! The stored document of a session: a small one that counts the session's entries. In memory it also has the entries
//! that are not written yet.
//!
//! Some fields have older names in the store. Not here: sessions in memory ([`super::session`]), and reading and
//! writing entries ([`super::entries`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use interlingua_core::answer::Waiting;
use interlingua_core::call::SessionView;
use interlingua_core::event::Millis;
use interlingua_core::model::Message;
use interlingua_core::{End, Extra, Fault, FaultKind, Json, Owner, RunId};
use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryList, KnownEntries, LateChanges, Replacement, unreadable};
use super::{unknown_fields, upstream_ids};
use interlingua_base::clock;
use interlingua_upstream::pool::EndpointKey;

/// Maximum size in bytes of the messages that clients add to one session.
const MAX_BYTES: u64 = 32 << 20;
/// Maximum number of messages that a session begins with. The newest ones are kept.
const MAX_FIRST_MESSAGES: usize = 4096;

/// The document of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionDoc {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    /// True if a client created the session as a resource of its own, a conversation. Its owner may change its items.
    #[serde(default, rename = "kept")]
    pub(super) is_conversation: bool,
    /// The index of the first entry.
    #[serde(default)]
    pub(super) first: u64,
    /// The index after the last entry. Entries between the two indices may have been removed.
    #[serde(default)]
    pub(super) next: u64,
    /// The run of the last entry, if that is a turn.
    #[serde(default)]
    pub(super) last: Option<RunId>,
    /// The size in bytes of all messages that clients added.
    #[serde(default)]
    pub(super) bytes: u64,
    /// The index after the messages of an earlier conversation that the client sent as the session's beginning.
    #[serde(default)]
    pub(super) begun: u64,
    /// True if the client sent more messages as the beginning than are stored.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_cut: bool,
    /// Entries that are not written yet, by index.
    #[serde(skip)]
    pub(super) unsaved: BTreeMap<u64, Entry>,
    /// The indices of replaced entries that the store still has. The next write deletes them.
    #[serde(skip)]
    pub(super) replaced: Range<u64>,
    /// All entries, in documents of an earlier version.
    #[serde(default, rename = "entries", skip_serializing_if = "Vec::is_empty")]
    pub(super) inline_entries: Vec<Entry>,
    /// Ids of removed items that were part of runs.
    #[serde(default)]
    pub(super) removed: BTreeSet<String>,
    /// The number of removals of items since the session was loaded, as far as this process knows of them.
    #[serde(skip)]
    pub(super) removals: u64,
    /// `None`: no replacement of the entries is prepared.
    #[serde(skip)]
    pub(super) late: Option<LateChanges>,
    /// The session's id at the agent, if it differs from `id`. `None` also for sessions that were stored before the
    /// gateway gave agents other ids: the agent keeps the client's id for them.
    #[serde(default)]
    pub(super) upstream_id: Option<String>,
    /// The endpoint that remembers the session. `None`: no endpoint does, or the gateway does not know which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) home: Option<EndpointKey>,
    /// The user that the first turn named, or the session's own user. `None`: no turn has begun.
    #[serde(default)]
    pub(super) user_id: Option<String>,
    /// The agent has received all entries before this index.
    #[serde(default)]
    pub(super) seen: u64,
    /// True if the agent's memory of the session differs from the entries: its next request has the whole history,
    /// under a new id.
    #[serde(default)]
    pub(super) stale: bool,
    /// State of the connector, for its next turn.
    #[serde(default = "Json::null", rename = "memory")]
    pub(super) connector_state: Json,
    /// The user at the agent of the turn that set `connector_state`. Turns of other users do not get that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connector_user: Option<String>,
    #[serde(default)]
    pub(super) latest: Option<RunId>,
    /// The open items, and the answers to items.
    #[serde(default)]
    pub(super) waiting: Waiting,
    /// Runs between a turn that has ended and the next one, which is in the session's queue: each with its end if that
    /// turn is not taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "ends")]
    pub(super) handed_over: BTreeMap<RunId, End>,
    /// True if the list of open items has the session.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_listed: bool,
    /// Labels that adapters set.
    #[serde(default)]
    pub(super) labels: Extra,
    /// Ids of the last writes to a store that other processes write: a replica whose write failed without a clear
    /// result looks for the id here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) writes: Vec<RunId>,
    /// Fields of a newer version, kept as they were written, because gateways of both versions may write the document.
    /// [`SessionDoc::parse`] sets them.
    #[serde(flatten, skip_deserializing)]
    pub(super) unknown: BTreeMap<String, Json>,
}

/// Maximum number of writes that a document names.
const MAX_NAMED_WRITES: usize = 4;

impl SessionDoc {
    /// `user`: set for a session whose id another user chose first.
    pub(super) fn new(id: &str, agent: &str, owner: &Owner, user: Option<&str>) -> Self {
        let now = clock::now();
        let upstream_id = upstream_ids::session(owner, id, user);
        Self {
            id: id.to_owned(),
            agent: agent.to_owned(),
            created_at: now,
            updated_at: now,
            is_conversation: false,
            first: 0,
            next: 0,
            last: None,
            bytes: 0,
            begun: 0,
            is_cut: false,
            unsaved: BTreeMap::new(),
            replaced: 0..0,
            inline_entries: Vec::new(),
            removed: BTreeSet::new(),
            removals: 0,
            late: None,
            upstream_id: (upstream_id != id).then_some(upstream_id),
            home: None,
            user_id: None,
            seen: 0,
            stale: false,
            connector_state: Json::null(),
            connector_user: None,
            latest: None,
            waiting: Waiting::default(),
            handed_over: BTreeMap::new(),
            is_listed: false,
            labels: Extra::new(),
            writes: Vec::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// The same session as before its first use.
    pub(super) fn blank(&self) -> Self {
        let owner = Owner::from_key("");
        let upstream_id = self.upstream_id.clone();
        Self { created_at: self.created_at, upstream_id, ..Self::new(&self.id, &self.agent, &owner, None) }
    }

    /// Reads a stored document.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let doc = unknown_fields::from_slice(bytes).map(|(doc, unknown)| Self { unknown, ..doc });
        // If the text of an unknown field is not UTF-8, all unknown fields are ignored.
        let doc: Self = doc.or_else(|_| serde_json::from_slice(bytes)).map_err(unreadable)?;
        Ok(doc.with_inline_entries_moved())
    }

    /// Turns the inline entries of an earlier version into new entries, which the next write stores.
    fn with_inline_entries_moved(mut self) -> Self {
        let seen = self.seen;
        for entry in std::mem::take(&mut self.inline_entries) {
            self.push(entry);
        }
        self.seen = seen;
        self
    }

    /// The user that a client named. `None`: no client named one, so that the session has a user made of its id; or the
    /// session is a conversation.
    pub(super) fn named_user(&self) -> Option<&str> {
        let is_own =
            |user: &str| user == self.id || user.strip_suffix(&self.id).is_some_and(|rest| rest.ends_with(':'));
        self.user_id.as_deref().filter(|user| !self.is_conversation && !is_own(user))
    }

    /// The session's id at the agent.
    pub(super) fn known_id(&self) -> &str {
        self.upstream_id.as_deref().unwrap_or(&self.id)
    }

    /// The session for its owner, without items and without the state of its latest run.
    pub(super) fn view(&self) -> SessionView {
        SessionView {
            id: self.id.clone(),
            agent: self.agent.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            items: Vec::new(),
            pending: self.waiting.open().map(|open| open.item.clone()).collect(),
            latest: self.latest,
            state: None,
            user: self.named_user().map(str::to_owned),
            labels: self.labels.clone(),
        }
    }

    pub(super) fn set_labels(&mut self, labels: &Extra) {
        for (name, value) in labels.iter() {
            self.labels.set(name, value.clone());
        }
    }

    /// True if no entry was added since the session began. Removed entries count as added.
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// True if the session is no conversation and has neither a run nor an entry.
    pub(super) fn is_blank(&self) -> bool {
        !self.is_conversation && self.latest.is_none() && self.is_empty()
    }

    pub(super) fn entries(&self) -> EntryList {
        EntryList {
            indices: self.first..self.next,
            removals: self.removals,
            seen: self.seen,
            unsaved: self.unsaved.clone(),
            last_run: self.last,
            is_cut: self.is_cut,
        }
    }

    pub(super) const fn known_entries(&self) -> KnownEntries {
        KnownEntries { end: self.next, removals: self.removals }
    }

    /// True if the session can begin again with other messages: it is no conversation, has only the messages that it
    /// began with, and no open item.
    pub(super) fn has_no_turn(&self) -> bool {
        !self.is_conversation && (self.is_empty() || self.next == self.begun) && self.waiting.open().next().is_none()
    }

    /// Adds an entry, which the next write of the session stores.
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.last = match &entry {
            Entry::Turn { run, .. } => Some(*run),
            Entry::Message { .. } => None,
        };
        self.unsaved.insert(self.next, entry);
        self.next += 1;
    }

    /// Adds messages: all of them, or none if the session would exceed [`MAX_BYTES`].
    pub(super) fn append(&mut self, messages: &[Message]) -> Result<(), Fault> {
        let entries: Vec<Entry> = messages.iter().map(Entry::from_message).collect();
        let bytes = entries.iter().map(Entry::bytes).fold(self.bytes, u64::saturating_add);
        if bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            return Err(Fault::new(FaultKind::TooLarge, format!("a conversation holds at most {most} MiB of items")));
        }

        entries.into_iter().for_each(|entry| self.push(entry));
        Ok(())
    }

    /// Replaces all entries by the newest of these messages that fit. The agent has not received them yet.
    pub(super) fn begin(&mut self, mut messages: Vec<Entry>) {
        let mut bytes = 0_u64;
        let fits = |entry: &&Entry| {
            bytes = bytes.saturating_add(entry.bytes());
            bytes <= MAX_BYTES
        };
        let kept = messages.iter().rev().take(MAX_FIRST_MESSAGES).take_while(fits).count();
        let left_out = messages.len() - kept;
        messages.drain(..left_out);

        self.replace(messages);
        (self.begun, self.is_cut) = (self.next, left_out > 0);
        self.removed.clear();
        (self.seen, self.stale, self.home) = (self.first, true, None);
        (self.connector_state, self.connector_user) = (Json::null(), None);
    }

    /// Adds an id for the write that follows, in a store that other processes write.
    pub(super) fn name_write(&mut self) {
        let surplus = (self.writes.len() + 1).saturating_sub(MAX_NAMED_WRITES);
        self.writes.drain(..surplus);
        self.writes.push(clock::new_id());
    }

    /// True if `stored` names the last write of this document. [`MAX_NAMED_WRITES`] later writes displace its id.
    pub(super) fn is_in(&self, stored: &Self) -> bool {
        self.writes.last().is_some_and(|write| stored.writes.contains(write))
    }

    /// Notes that the store has the entries at these indices, and that it has deleted the replaced ones.
    pub(super) fn note_written(&mut self, indices: &[u64], replaced: Range<u64>) {
        for index in indices {
            if let (Some(entry), Some(late)) = (self.unsaved.remove(index), &mut self.late) {
                late.note_written(*index, entry);
            }
        }
        if self.replaced.start == replaced.start {
            self.replaced.start = replaced.end;
        }
    }

    pub(super) fn replace(&mut self, entries: Vec<Entry>) {
        if self.replaced.is_empty() {
            self.replaced.start = self.first;
        }
        self.replaced.end = self.next;
        self.unsaved.clear();
        (self.first, self.bytes, self.last) = (self.next, 0, None);
        entries.into_iter().for_each(|entry| self.push(entry));
    }

    /// Replaces the entries before a turn is added. They stay if another replica has changed them since the replacement
    /// was prepared. Returns the index after the last entry that the agent has received.
    pub(super) fn replace_before_turn(&mut self, mut replacement: Replacement) -> u64 {
        if let Some(late) = self.late.take() {
            if late.is_outdated {
                return self.seen;
            }
            late.repeat_in(&mut replacement, &self.unsaved);
        }
        let received = replacement.entries.len() as u64;
        replacement.entries.append(&mut replacement.added);
        self.replace(replacement.entries);
        self.first + received
    }

    /// Takes back the entry of a turn that could not be written. The next entry takes its index.
    pub(super) fn take_back(&mut self, id: RunId, number: u32) {
        let is_it = |entry: &Entry| matches!(entry, Entry::Turn { run, turn } if *run == id && *turn == number);
        self.unsaved.retain(|_, entry| !is_it(entry));
        if self.last == Some(id) {
            self.next -= 1;
            self.last = None;
        }
        self.seen = self.seen.min(self.next);
    }
}

/// Ends of runs by their names.
mod ends {
    use std::collections::BTreeMap;

    use interlingua_core::call::RunState;
    use interlingua_core::{End, RunId};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ends: &BTreeMap<RunId, End>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(ends.iter().map(|(run, end)| (run, RunState::Ended(*end).as_str())))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<BTreeMap<RunId, End>, D::Error> {
        let names = BTreeMap::<RunId, String>::deserialize(deserializer)?;
        let end_of = |name: &str| match RunState::parse(name) {
            Some(RunState::Ended(end)) => Ok(end),
            _ => Err(D::Error::custom(format_args!("'{name}' is no end"))),
        };
        names.into_iter().map(|(run, name)| Ok((run, end_of(&name)?))).collect()
    }
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_written_again_as_they_were_whatever_they_hold() {
        let known =
            serde_json::to_string(&SessionDoc::new("s", "friday", &Owner::from_key("ann"), None)).expect("JSON");
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        for value in
            ["1e400", "123456789012345678901234567890", "1.0", r#""\ud800""#, r#"{ "b": 1, "a": [2.50] }"#, &deep]
        {
            let document = format!("{},\"later\":{value}}}", known.strip_suffix('}').expect("an object"));
            let doc = SessionDoc::parse(document.as_bytes()).expect("a session");
            assert_eq!(doc.unknown.get("later").map(Json::text), Some(value));
            let written = serde_json::to_string(&doc).expect("JSON");
            assert_eq!(SessionDoc::parse(written.as_bytes()).expect("a session").unknown, doc.unknown, "{written}");
        }
    }

    #[test]
    fn an_unknown_field_that_cannot_be_kept_is_ignored() {
        let doc = SessionDoc::new("s", "friday", &Owner::from_key("ann"), None);
        let mut document = serde_json::to_vec(&doc).expect("JSON");
        document.pop();
        document.extend_from_slice(b",\"later\":\"\xff\"}");
        let read = SessionDoc::parse(&document).expect("a session");
        assert!(read.unknown.is_empty() && read.id == "s");
    }
}
