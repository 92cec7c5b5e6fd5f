//! The beginning of a text that is not in memory: its length and its hash, which is enough to compare texts with it.
//!
//! Not here: evicting and restoring a record's texts ([`super::Record::evict`]).

use std::hash::{DefaultHasher, Hasher};

/// The evicted beginning of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictedText {
    /// Its length in bytes.
    pub(super) len: usize,
    hasher: DefaultHasher,
}

impl PartialEq for EvictedText {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.hasher.finish() == other.hasher.finish()
    }
}

impl Eq for EvictedText {}

impl EvictedText {
    /// Adds the text that follows.
    pub(super) fn push(&mut self, text: &str) {
        self.len += text.len();
        self.hasher.write(text.as_bytes());
    }

    /// The part of `text` after this one, if `text` begins with it.
    pub(super) fn rest_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (start, rest) = text.split_at_checked(self.len)?;
        (text_hash(start) == self.hasher.finish()).then_some(rest)
    }

    /// The hash of this text followed by another one.
    pub(super) fn hash_with(&self, rest: &str) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(rest.as_bytes());
        hasher.finish()
    }
}

/// The hash of a text. The same for a text that is hashed in pieces.
pub(crate) fn text_hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_text_is_independent_of_its_chunks() {
        let text = "It was the best of times, it was the worst of times: ä, 𝄞 and so on.";
        let boundaries = (0..=text.len()).filter(|&at| text.is_char_boundary(at));
        for at in boundaries {
            let mut evicted = EvictedText::default();
            for piece in text[..at].split_inclusive(' ') {
                evicted.push(piece);
            }
            assert_eq!(evicted.hash_with(&text[at..]), text_hash(text));
            assert_eq!(evicted.rest_of(text), Some(&text[at..]));
            assert_eq!(evicted.rest_of(&text[..at]), Some(""));
        }
    }

    #[test]
    fn another_text_has_no_rest() {
        let mut evicted = EvictedText::default();
        evicted.push("Hello");
        assert_eq!(evicted.rest_of("Hallo, world"), None);
        assert_eq!(evicted.rest_of("Hell"), None);
        assert_eq!(evicted.rest_of("Hellö"), None, "the position is no boundary of characters");
    }
}
