//! Ids of the calls of a session with an agent that remembers the conversation.
//!
//! Some agents number the calls of each answer, so that a later answer uses an id again. Clients take a call with a
//! known id for the known call. So the second call gets an id of its own, and the answer to it goes back to the agent
//! under the agent's id.
//!
//! A connector keeps [`CallIds`] in the state of its session. Not here: agents that are sent the whole conversation,
//! with the ids that the gateway gave ([`crate::turn_ids`]).

use serde::{Deserialize, Serialize};

use interlingua_core::json::Json;

/// Ids that a session remembers. An agent that uses an id again later than that gets it.
const MAX_USED: usize = 256;
/// New ids that a session remembers for the answers to the calls.
const MAX_RENAMED: usize = 64;
/// The longest id that is kept, in bytes.
const MAX_ID: usize = 512;

/// The ids of a session's calls.
///
/// ```
/// use interlingua_adapter_kit::call_ids::CallIds;
///
/// let mut ids = CallIds::default();
/// assert_eq!(ids.assign("call_0"), "call_0");
/// let second = ids.assign("call_0");
/// assert_eq!(second, "call_0_1");
/// assert_eq!(ids.own(&second), "call_0");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallIds {
    /// Digests of the ids, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    used: Vec<u32>,
    /// Number of new ids that were made.
    #[serde(skip_serializing_if = "is_zero")]
    made: u32,
    /// New ids and those of the agent, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    renamed: Vec<(String, String)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl CallIds {
    /// The stored ids. A state that cannot be read counts as empty.
    #[must_use]
    pub fn parse(stored: &Json) -> Self {
        stored.decode().unwrap_or_default()
    }

    /// The state to store.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }

    /// The id of a new call: the agent's, unless an earlier call of the session has it.
    pub fn assign(&mut self, own: &str) -> String {
        if own.is_empty() || own.len() > MAX_ID || self.use_id(own) {
            return own.to_owned();
        }

        let id = loop {
            self.made = self.made.wrapping_add(1);
            let made = format!("{own}_{}", self.made);
            if self.use_id(&made) {
                break made;
            }
        };
        if self.renamed.len() >= MAX_RENAMED {
            self.renamed.remove(0);
        }
        self.renamed.push((id.clone(), own.to_owned()));
        id
    }

    /// Notes that an id is used. True if it was not.
    fn use_id(&mut self, id: &str) -> bool {
        let digest = digest(id);
        let known = self.used.iter().position(|used| *used == digest);
        if let Some(place) = known {
            self.used.remove(place);
        } else if self.used.len() >= MAX_USED {
            self.used.remove(0);
        }
        self.used.push(digest);
        known.is_none()
    }

    /// True if a call of the session has this id.
    #[must_use]
    pub fn is_used(&self, id: &str) -> bool {
        self.used.contains(&digest(id))
    }

    /// True if some call has another id than the agent's.
    #[must_use]
    pub fn has_renamed(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// The agent's id of a call with this id.
    #[must_use]
    pub fn own<'i>(&'i self, id: &'i str) -> &'i str {
        self.renamed.iter().rev().find(|(made, _)| made == id).map_or(id, |(_, own)| own)
    }

    /// The id of the latest call that has this id of the agent.
    #[must_use]
    pub fn latest<'i>(&'i self, own: &'i str) -> &'i str {
        self.renamed.iter().rev().find(|(_, known)| known == own).map_or(own, |(made, _)| made)
    }
}

/// FNV-1a with 32 bits: two ids with one digest cost a new id, nothing else.
fn digest(id: &str) -> u32 {
    id.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_to_one_call_of_a_session() {
        let mut ids = CallIds::default();
        let given: Vec<String> = ["a", "a", "", "b", "a", "a_2", ""].iter().map(|own| ids.assign(own)).collect();
        assert_eq!(given, ["a", "a_1", "", "b", "a_2", "a_2_3", ""]);
        assert_eq!((ids.own("a_1"), ids.own("a_2"), ids.own("a_2_3"), ids.own("b")), ("a", "a", "a_2", "b"));
        assert_eq!((ids.latest("a"), ids.latest("b")), ("a_2", "b"));

        let mut stored = CallIds::parse(&ids.to_json());
        assert_eq!(stored, ids);
        assert_eq!(stored.assign("b"), "b_4");
        assert_eq!(CallIds::parse(&Json::parse("[7]").expect("JSON")), CallIds::default());
    }

    #[test]
    fn the_stored_size_of_a_session_is_limited() {
        let mut ids = CallIds::default();
        for number in 0..10_000 {
            ids.assign(&format!("call_{}", number % 300));
            ids.assign("same");
        }
        assert!(ids.used.len() <= MAX_USED && ids.renamed.len() <= MAX_RENAMED);
        assert!(ids.to_json().text().len() < 16 << 10);
        let long = "x".repeat(1 << 20);
        assert_eq!(ids.assign(&long), ids.assign(&long), "too long to be kept");
    }
}
