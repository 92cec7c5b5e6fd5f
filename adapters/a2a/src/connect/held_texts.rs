//! Texts of a held status message, compared with those of an artifact. Not here: when they are compared
//! ([`super::held`]).

use serde_json::value::RawValue;

use super::content::{self, PartKind, Scope};
use crate::wire::{Content, Part};

/// A message of a status, and its texts.
#[derive(Debug)]
pub(super) struct HeldStatus {
    pub(super) raw: Box<RawValue>,
    pub(super) texts: Texts,
}

/// The texts of a message or an artifact: adjacent ones of one kind are joined.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Texts(pub(super) Vec<(bool, String)>);

impl Texts {
    /// `None`: there is something else than texts.
    pub(super) fn from_parts(parts: &[Part<'_>], scope: Scope) -> Option<Self> {
        let mut texts: Vec<(bool, String)> = Vec::new();
        for part in parts {
            let Content::Text(text) = &part.content else { return None };
            let is_reasoning = match content::kind_in(part, scope) {
                PartKind::Reasoning => true,
                PartKind::Plain => false,
                _ => return None,
            };
            match texts.last_mut() {
                Some((last, joined)) if *last == is_reasoning => joined.push_str(text),
                _ => texts.push((is_reasoning, text.clone().into_owned())),
            }
        }
        (!texts.is_empty()).then_some(Self(texts))
    }

    pub(super) fn plain(&self) -> String {
        self.0.iter().filter(|(is_reasoning, _)| !is_reasoning).map(|(_, text)| text.as_str()).collect()
    }

    /// Compares the texts of a held message with those of an artifact.
    pub(super) fn verdict(&self, artifact: &Self) -> Verdict {
        let (own, other) = (self.plain(), artifact.plain());
        if self == artifact {
            Verdict::Repeated
        } else if own.is_empty() || other.is_empty() {
            Verdict::Other
        } else if own == other {
            Verdict::PlainRepeated
        } else if own.starts_with(&other) {
            Verdict::Beginning
        } else {
            Verdict::Other
        }
    }
}

/// The result of comparing a held message with an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The artifact has all of the message.
    Repeated,
    /// The artifact has the plain text, but not the reasoning.
    PlainRepeated,
    /// The artifact has the beginning of the plain text so far.
    Beginning,
    /// The artifact says something else.
    Other,
}
