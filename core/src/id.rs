//! Run ids: one value with several notations. `resp_…`, `response_…` and a bare UUID can name the same run.
//!
//! Not here: random numbers. Callers pass new ids in.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a run: a version 7 UUID, so that ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// The protocol's notation: the prefix, then 32 hexadecimal digits.
    #[must_use]
    pub fn to_prefixed(self, prefix: &str) -> String {
        format!("{prefix}{}", self.0.simple())
    }

    /// Parses any notation: everything up to the last `_` is a prefix. `None` if the rest is not a UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.rsplit_once('_').map_or(text, |(_, digits)| digits);
        // `Uuid` also accepts braces and URNs. Only the simple and the hyphenated form are valid run ids.
        if digits.len() != 32 && digits.len() != 36 {
            return None;
        }

        Uuid::try_parse(digits).ok().map(Self)
    }

    /// The id of a message that has none. Derived from the run's id, so a replay yields the same id.
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
    fn all_notations_of_an_id_parse_to_the_same_value() {
        let id = RunId(Uuid::from_u128(7));
        for text in [id.to_prefixed("resp_"), id.to_prefixed("response_"), id.to_string(), id.to_prefixed("")] {
            assert_eq!(RunId::parse(&text), Some(id), "{text}");
        }
        for text in ["", "resp_", "resp_12", "{00000000-0000-0000-0000-000000000007}"] {
            assert_eq!(RunId::parse(text), None, "{text}");
        }
    }
}
