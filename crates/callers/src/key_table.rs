//! The keys that are known, found by their id and compared in constant time. Not here: their file
//! ([`interlingua_config::keys`]).

use std::collections::HashMap;

use interlingua_core::event::Millis;
use subtle::ConstantTimeEq as _;

use super::reason::Reason;
use interlingua_config::keys::{self, KeyEntry, KeyHash, KeyId, KeyState};

/// Compared if no key has the id, so that the answer takes the same time.
const NO_KEY: KeyHash = [0; 32];

/// The keys of a file.
#[derive(Debug, Default)]
pub(super) struct KeyTable(HashMap<KeyId, KeyEntry>);

impl KeyTable {
    pub(super) fn new(entries: Vec<KeyEntry>) -> Self {
        Self(entries.into_iter().map(|entry| (entry.id, entry)).collect())
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entry of a key that is valid now. Takes the same time whatever is wrong.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub(super) fn verify(&self, key: &str, now: Millis) -> Result<&KeyEntry, Reason> {
        let id = keys::id_of(key);
        let entry = id.and_then(|id| self.0.get(&id));
        let expected = entry.map_or(&NO_KEY, |entry| &entry.hash);
        let is_equal = bool::from(keys::hash(key).ct_eq(expected));

        let entry = entry.ok_or(if id.is_some() { Reason::Unknown } else { Reason::Malformed })?;
        if !is_equal {
            return Err(Reason::Unknown);
        }
        refused(entry.state(now)).map_or(Ok(entry), Err)
    }

    /// Whether a key that was verified before is still valid.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn check(&self, id: &KeyId, now: Millis) -> Result<(), Reason> {
        let entry = self.0.get(id).ok_or(Reason::Unknown)?;
        refused(entry.state(now)).map_or(Ok(()), Err)
    }

    /// True if this caller has a valid key.
    pub(super) fn has_caller(&self, name: &str, now: Millis) -> bool {
        self.0.values().any(|entry| entry.caller == name && entry.state(now) == KeyState::Valid)
    }
}

/// Spends the time of [`KeyTable::verify`] on a request without a key.
pub(super) fn spend_time_of_a_key() {
    let hash = keys::hash("il_");
    let _ = std::hint::black_box(bool::from(hash.ct_eq(&NO_KEY)));
}

fn refused(state: KeyState) -> Option<Reason> {
    match state {
        KeyState::Valid => None,
        KeyState::Expired => Some(Reason::Expired),
        KeyState::Revoked => Some(Reason::Revoked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_config::keys::{NewKey, id_of};

    const NOW: Millis = 1_800_000_000_000;

    #[test]
    fn only_a_whole_and_valid_key_is_accepted() {
        let key = NewKey::generate().expect("a key").text;
        let entry = |hash: KeyHash, expires, revoked| KeyEntry {
            id: id_of(&key).expect("the form of a key"),
            caller: "ann".to_owned(),
            hash,
            created: 0,
            expires,
            revoked,
        };
        let verify = |entry, key: &str| KeyTable::new(vec![entry]).verify(key, NOW).map(|entry| entry.caller.clone());
        let right = keys::hash(&key);
        assert_eq!(verify(entry(right, None, None), &key), Ok("ann".to_owned()));
        assert_eq!(verify(entry(right, Some(NOW + 1), None), &key), Ok("ann".to_owned()));
        assert_eq!(verify(entry(right, Some(NOW), None), &key), Err(Reason::Expired));
        assert_eq!(verify(entry(right, None, Some(1)), &key), Err(Reason::Revoked));
        assert_eq!(verify(entry([1; 32], None, None), &key), Err(Reason::Unknown));
        assert_eq!(verify(entry(right, None, None), &NewKey::generate().expect("a key").text), Err(Reason::Unknown));
        assert_eq!(verify(entry(right, None, None), "il_x"), Err(Reason::Malformed));
    }
}
