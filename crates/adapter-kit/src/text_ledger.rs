//! Texts that a turn emitted: a snapshot of the conversation repeats none of them, whatever ids it gives them.
//!
//! Agents that stream a text under one id list it under another one in a snapshot, join the texts of several messages,
//! or split one. The ledger compares lengths and digests, so it needs no copy of the texts.
//!
//! Not here: reading snapshots (the connectors), and repeated messages of a final output (`normalize`).

use std::collections::{HashMap, HashSet};

use interlingua_core::model::MessageType;

/// Texts that the ledger remembers. Later ones are not compared.
const MAX_ENTRIES: usize = 10_000;
/// Places that are tried as the beginning of a joined or split text.
const MAX_STARTS: usize = 16;

/// Length and digest of a text, independent of how the text was cut (FNV-1a, 64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextDigest {
    len: usize,
    hash: u64,
}

impl Default for TextDigest {
    fn default() -> Self {
        Self { len: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl TextDigest {
    /// The digest of a whole text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut digest = Self::default();
        digest.push(text);
        digest
    }

    /// Appends a piece.
    #[inline]
    pub fn push(&mut self, piece: &str) {
        self.len += piece.len();
        self.hash = piece.bytes().fold(self.hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// Length of the text in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// True for the empty text.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The rest of a text that begins with this one. `None`: it begins with another text.
    #[must_use]
    pub fn rest_of(self, text: &str) -> Option<&str> {
        let (start, rest) = text.split_at_checked(self.len)?;
        (Self::from_text(start) == self).then_some(rest)
    }
}

/// A text of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotText<'t> {
    /// The agent's id of the message. Empty: it has none.
    pub id: &'t str,
    /// The type of the message: a text and the same reasoning differ.
    pub kind: &'t MessageType,
    /// The whole text.
    pub text: &'t str,
}

#[derive(Debug)]
struct Entry {
    kind: MessageType,
    digest: TextDigest,
}

/// The texts of one turn.
///
/// ```
/// use interlingua_core::model::MessageType;
/// use interlingua_adapter_kit::text_ledger::{SnapshotText, TextDigest, TextLedger};
///
/// let mut ledger = TextLedger::default();
/// ledger.add("run-1", MessageType::Message, TextDigest::from_text("Hello"));
///
/// let kind = &MessageType::Message;
/// let snapshot = [SnapshotText { id: "m1", kind, text: "Hello" }, SnapshotText { id: "m2", kind, text: "Bye" }];
/// assert_eq!(ledger.compare(&snapshot), [true, false]);
/// ```
#[derive(Debug, Default)]
pub struct TextLedger {
    entries: Vec<Entry>,
    by_digest: HashMap<TextDigest, Vec<usize>>,
    /// The entries under each id: those of the agent, and those of earlier snapshots.
    by_id: HashMap<String, Vec<usize>>,
}

impl TextLedger {
    /// Adds an emitted text. Empty texts are ignored.
    pub fn add(&mut self, id: &str, kind: MessageType, digest: TextDigest) {
        if digest.is_empty() || self.entries.len() >= MAX_ENTRIES {
            return;
        }

        let place = self.entries.len();
        self.by_digest.entry(digest).or_default().push(place);
        self.name(id, place);
        self.entries.push(Entry { kind, digest });
    }

    /// True if a text was emitted under this id, or an earlier snapshot gave it this id.
    #[must_use]
    pub fn has_id(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    fn name(&mut self, id: &str, place: usize) {
        if id.is_empty() {
            return;
        }
        let places = self.by_id.entry(id.to_owned()).or_default();
        if places.last() != Some(&place) {
            places.push(place);
        }
    }

    /// Whether each text of a snapshot was emitted. An emitted text matches one text of the snapshot, so that a second
    /// message with the same text is new.
    pub fn compare(&mut self, snapshot: &[SnapshotText<'_>]) -> Vec<bool> {
        let mut comparison = Comparison { taken: HashSet::new(), found: vec![false; snapshot.len()] };
        for is_same_id in [true, false] {
            for (place, text) in snapshot.iter().enumerate() {
                self.match_whole(place, text, is_same_id, &mut comparison);
            }
        }
        if comparison.found.contains(&false) {
            let mut free: Vec<usize> =
                (0..self.entries.len()).filter(|entry| !comparison.taken.contains(entry)).collect();
            self.match_joined(snapshot, &mut free, &mut comparison);
            self.match_split(snapshot, &free, &mut comparison);
        }

        // A known id with another text: an older or newer state of an emitted text.
        for (place, text) in snapshot.iter().enumerate() {
            let entries = self.by_id.get(text.id).map(Vec::as_slice).unwrap_or_default();
            let mut own = entries.iter().filter(|entry| self.entries[**entry].kind == *text.kind);
            let own = own.find(|entry| !comparison.taken.contains(*entry)).copied();
            // An empty text under a known id has nothing to emit.
            comparison.found[place] |= text.text.is_empty() && !entries.is_empty();
            if let Some(entry) = own.filter(|_| !comparison.found[place]) {
                comparison.take(place, entry);
            }
        }
        comparison.found
    }

    /// A text that equals an emitted one.
    fn match_whole(&mut self, place: usize, text: &SnapshotText<'_>, is_same_id: bool, comparison: &mut Comparison) {
        if comparison.found[place] || text.text.is_empty() {
            return;
        }
        let own = self.by_id.get(text.id).map(Vec::as_slice).unwrap_or_default();
        let same = self.by_digest.get(&TextDigest::from_text(text.text)).map(Vec::as_slice).unwrap_or_default();
        let fits = |entry: &&usize| {
            !comparison.taken.contains(*entry)
                && self.entries[**entry].kind == *text.kind
                && (!is_same_id || own.contains(entry))
        };
        if let Some(entry) = same.iter().find(fits).copied() {
            comparison.take(place, entry);
            self.name(text.id, entry);
        }
    }

    /// Texts that join several emitted ones. `free`: entries without a text so far, in order.
    fn match_joined(&mut self, snapshot: &[SnapshotText<'_>], free: &mut Vec<usize>, comparison: &mut Comparison) {
        for (place, text) in snapshot.iter().enumerate() {
            if comparison.found[place] || text.text.is_empty() {
                continue;
            }
            let of_kind = |place: &usize| self.entries[free[*place]].kind == *text.kind;
            let starts = (0..free.len()).filter(of_kind).take(MAX_STARTS);
            let joined = starts.into_iter().find_map(|start| {
                let mut rest = text.text;
                let mut places = Vec::new();
                for next in (start..free.len()).filter(of_kind) {
                    rest = self.entries[free[next]].digest.rest_of(rest)?;
                    places.push(next);
                    if rest.is_empty() {
                        return Some(places);
                    }
                }
                None
            });
            for next in joined.into_iter().flatten().rev() {
                let entry = free.remove(next);
                comparison.take(place, entry);
                self.name(text.id, entry);
            }
        }
    }

    /// Consecutive texts that are pieces of one emitted text.
    fn match_split(&mut self, snapshot: &[SnapshotText<'_>], free: &[usize], comparison: &mut Comparison) {
        let mut open: Vec<usize> = (0..snapshot.len())
            .filter(|place| !comparison.found[*place] && !snapshot[*place].text.is_empty())
            .collect();
        for entry in free.iter().take(MAX_STARTS).copied() {
            let Entry { kind, digest } = &self.entries[entry];
            let of_kind = |place: &usize| snapshot[*place].kind == kind;
            let starts = (0..open.len()).filter(|start| of_kind(&open[*start])).take(MAX_STARTS);
            let pieces = starts.into_iter().find_map(|start| {
                let mut joined = TextDigest::default();
                let mut places = Vec::new();
                for place in open[start..].iter().copied().filter(of_kind) {
                    joined.push(snapshot[place].text);
                    places.push(place);
                    if joined.len() >= digest.len() {
                        break;
                    }
                }
                (joined == *digest).then_some(places)
            });
            for place in pieces.into_iter().flatten() {
                comparison.take(place, entry);
                self.name(snapshot[place].id, entry);
            }
            open.retain(|place| !comparison.found[*place]);
        }
    }
}

/// One comparison with a snapshot.
struct Comparison {
    /// Entries that a text of the snapshot was matched with.
    taken: HashSet<usize>,
    found: Vec<bool>,
}

impl Comparison {
    fn take(&mut self, place: usize, entry: usize) {
        self.found[place] = true;
        self.taken.insert(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: MessageType = MessageType::Message;
    const THOUGHT: MessageType = MessageType::Reasoning;

    fn ledger(emitted: &[(&str, MessageType, &str)]) -> TextLedger {
        let mut ledger = TextLedger::default();
        for (id, kind, text) in emitted {
            ledger.add(id, kind.clone(), TextDigest::from_text(text));
        }
        ledger
    }

    fn compare(ledger: &mut TextLedger, snapshot: &[(&str, MessageType, &str)]) -> Vec<bool> {
        let texts: Vec<SnapshotText<'_>> =
            snapshot.iter().map(|(id, kind, text)| SnapshotText { id, kind, text }).collect();
        ledger.compare(&texts)
    }

    #[test]
    fn an_emitted_text_is_found_under_any_id_once() {
        let mut known = ledger(&[("a", TEXT, "yes"), ("b", THOUGHT, "hm")]);
        let snapshot = [("x", TEXT, "yes"), ("y", TEXT, "yes"), ("z", THOUGHT, "hm"), ("w", TEXT, "hm")];
        assert_eq!(compare(&mut known, &snapshot), [true, false, true, false]);
        // A later snapshot keeps the ids of the earlier one.
        assert_eq!(compare(&mut known, &[("x", TEXT, "yes, of course")]), [true]);
        assert!(known.has_id("x") && !known.has_id("y"));
    }

    #[test]
    fn an_id_that_is_given_to_another_text_hides_neither() {
        let mut known = ledger(&[("a", TEXT, "one")]);
        assert_eq!(compare(&mut known, &[("a", TEXT, "two"), ("b", TEXT, "one")]), [false, true]);
        assert_eq!(compare(&mut known, &[("a", TEXT, "an older state")]), [true]);
        // The empty content of a call's message is no text.
        assert_eq!(compare(&mut known, &[("a", TEXT, ""), ("c", TEXT, "one")]), [true, true]);
    }

    #[test]
    fn joined_and_split_texts_are_found() {
        let mut known = ledger(&[("a", TEXT, "one, "), ("b", TEXT, "two"), ("c", TEXT, "three, four")]);
        let snapshot = [("x", TEXT, "one, two"), ("y", TEXT, "three"), ("z", TEXT, ", four"), ("w", TEXT, "five")];
        assert_eq!(compare(&mut known, &snapshot), [true, true, true, false]);
    }

    #[test]
    fn a_digest_does_not_depend_on_cuts() {
        let mut pieces = TextDigest::default();
        for piece in ["fo", "", "é", "bar"] {
            pieces.push(piece);
        }
        assert_eq!(pieces, TextDigest::from_text("foébar"));
        assert_eq!(pieces.rest_of("foébar!"), Some("!"));
        assert_eq!((pieces.rest_of("foéba"), pieces.rest_of("foébaz!")), (None, None));
        assert_eq!(TextDigest::from_text("fo\u{c3}").rest_of("foé"), None, "not at the boundary of a character");
    }
}
