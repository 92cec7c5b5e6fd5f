//! Ids: one value, many spellings. `resp_…`, `response_…` and a bare UUID may be the same run.
//!
//! No randomness here: fresh values are handed in.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a run: a UUID, version 7, so that ids sort by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// The id in a protocol's spelling: the prefix and 32 hexadecimal digits.
    #[must_use]
    pub fn to_prefixed(self, prefix: &str) -> String {
        format!("{prefix}{}", self.0.simple())
    }

    /// Reads any spelling: whatever stands in front of the last `_` is a prefix. None if the rest is no UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.rsplit_once('_').map_or(text, |(_, digits)| digits);
        // Braces and URN forms are refused: an id has many prefixes, but only two ways to write its digits.
        if digits.len() != 32 && digits.len() != 36 {
            return None;
        }
        Uuid::try_parse(digits).ok().map(Self)
    }

    /// The id of a message of this run that came without one: derived, so that a replay makes the same.
    #[must_use]
    pub fn message_id(self, index: usize) -> String {
        format!("msg_{}_{index}", self.0.simple())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_many_spellings() {
        let id = RunId(Uuid::from_u128(7));
        for text in [id.to_prefixed("resp_"), id.to_prefixed("response_"), id.to_string(), id.to_prefixed("")] {
            assert_eq!(RunId::parse(&text), Some(id), "{text}");
        }
        for text in ["", "resp_", "resp_12", "{00000000-0000-0000-0000-000000000007}"] {
            assert_eq!(RunId::parse(text), None, "{text}");
        }
    }
}
