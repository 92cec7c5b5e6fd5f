//! Contents of an artifact: which parts are one content, and how much of one was read before.

use serde::{Deserialize, Serialize};

use super::content::{self, PartKind, Scope};
use super::digest::Digest;
use crate::wire::{Content, Part};

/// The read part of an artifact's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// Whether further text continues it.
    pub(super) text: bool,
    /// Digest of what else the part says: texts of another kind or type are other contents.
    pub(super) mark: u64,
    /// In bytes.
    pub(super) len: u64,
    pub(super) digest: Digest,
}

impl Slot {
    /// True for a text that is part of the answer: no reasoning.
    pub(super) fn is_answer(&self) -> bool {
        self.text && self.mark != reasoning()
    }
}

/// Parts that are one content.
pub(super) struct Group<'p, 'a> {
    pub(super) parts: &'p [Part<'a>],
    pub(super) kind: PartKind,
    pub(super) mark: u64,
    pub(super) text: bool,
}

impl Group<'_, '_> {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| match &part.content {
            Content::Text(text) | Content::Bytes(text) | Content::Url(text) => text.as_ref(),
            Content::Data(data) => data.get(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.texts().map(|text| text.len() as u64).sum()
    }

    pub(super) fn slot(&self) -> Slot {
        let mut digest = Digest::default();
        self.texts().for_each(|text| digest.update(text.as_bytes()));
        Slot { text: self.text, mark: self.mark, len: self.len(), digest }
    }

    /// The number of bytes of a text that were read before. `None`: the text does not begin with the earlier one.
    pub(super) fn known_prefix(&self, old: &Slot) -> Option<usize> {
        let mut left = usize::try_from(old.len).ok()?;
        let known = left;
        let mut digest = Digest::default();
        for text in self.texts() {
            let piece = text.get(..left.min(text.len()))?;
            digest.update(piece.as_bytes());
            left -= piece.len();
            if left == 0 {
                break;
            }
        }
        (left == 0 && digest == old.digest).then_some(known)
    }
}

/// Adjacent texts of one kind are one content; everything else is one by itself.
pub(super) fn groups<'p, 'a>(parts: &'p [Part<'a>], scope: Scope) -> Vec<Group<'p, 'a>> {
    let mut groups: Vec<Group<'p, 'a>> = Vec::new();
    let mut start = 0;
    for (place, part) in parts.iter().enumerate() {
        let text = matches!(part.content, Content::Text(_));
        let kind = content::kind_in(part, scope);
        let mark = mark(part, &kind);
        match groups.last_mut() {
            Some(last) if text && last.text && last.mark == mark => last.parts = &parts[start..=place],
            _ => {
                start = place;
                groups.push(Group { parts: &parts[place..=place], kind, mark, text });
            }
        }
    }
    groups
}

/// The mark of a plain text.
pub(super) fn unmarked() -> u64 {
    Digest::default().value()
}

/// The mark of plain reasoning.
fn reasoning() -> u64 {
    Digest::from_bytes(REASONING).value()
}

const REASONING: &[u8] = b"\x01reasoning";

/// Pieces of one text may have different metadata, such as the number of the piece: its kind and type count.
fn mark(part: &Part<'_>, kind: &PartKind) -> u64 {
    let mut digest = Digest::default();
    match (&part.content, kind) {
        (Content::Text(_), PartKind::Plain) => {}
        (Content::Text(_), PartKind::Reasoning) => digest = Digest::from_bytes(REASONING),
        (Content::Text(_), PartKind::Refusal) => digest.update(b"\x01refusal"),
        _ => {
            if let Some(metadata) = &part.metadata {
                digest.update(metadata.get().as_bytes());
            }
        }
    }
    for text in [&part.media_type, &part.filename].into_iter().flatten() {
        digest.update(b"\0");
        digest.update(text.as_bytes());
    }
    digest.value()
}
