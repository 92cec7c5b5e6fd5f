//! Ids of this protocol as ids of the run's messages.
//!
//! Messages, calls and results have ids of their own here, and servers give one id to several of them. In a run, every
//! message has an id that no other has.

use std::collections::HashSet;

/// Ids of agents are used up to this length, in bytes.
const MAX_ID: usize = 256;

/// Makes ids, each once.
#[derive(Debug, Default)]
pub(super) struct Ids {
    used: HashSet<String>,
    made: u32,
}

impl Ids {
    /// An id for a message: the wanted one, unless it is used.
    pub(super) fn unique(&mut self, wanted: &str) -> String {
        if !wanted.is_empty() && self.used.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }

        let stem = if wanted.is_empty() { "message" } else { wanted };
        loop {
            self.made += 1;
            let made = format!("{stem}_{}", self.made);
            if self.used.insert(made.clone()) {
                return made;
            }
        }
    }
}

/// An id as it is remembered and compared: the agent's, or a digest of one that is too long for that.
pub(super) fn key(id: &str) -> String {
    if id.len() <= MAX_ID { id.to_owned() } else { format!("id-{:016x}", digest([id])) }
}

/// A stable digest of texts (FNV-1a).
pub(crate) fn digest<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain(std::iter::once(0)));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_once() {
        let mut ids = Ids::default();
        let given: Vec<String> = ["a", "a", "", "a", "a_2", "b"].iter().map(|wanted| ids.unique(wanted)).collect();
        assert_eq!(given, ["a", "a_1", "message_2", "a_3", "a_2", "b"]);
    }

    #[test]
    fn long_ids_are_remembered_by_a_digest() {
        assert_eq!(key("call_1"), "call_1");
        assert_eq!(key(&"x".repeat(1 << 20)).len(), "id-0123456789abcdef".len());
        assert_ne!(digest(["a", "bc"]), digest(["ab", "c"]));
    }
}
