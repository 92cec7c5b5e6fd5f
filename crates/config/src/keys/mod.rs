//! API keys: `il_<id>_<secret>`, and the file with their hashes.
//!
//! The secret has 256 random bits, so a plain hash protects it as well as a slow one. Not here: rights of callers
//! (`callers`), and the command line.

mod edit;
mod file;

use std::fmt::Write as _;

use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

pub use self::edit::{append, revoke};
pub use self::file::{KeyEntry, KeyState, MAX_FILE_LEN, parse};

/// The beginning of every key.
const PREFIX: &str = "il_";
/// The length of an id, in characters.
const ID_LEN: usize = 12;
/// The length of a secret, in hexadecimal digits.
const SECRET_LEN: usize = 64;
/// The longest name of a caller, in bytes.
pub const MAX_CALLER_LEN: usize = 256;

/// The id of a key: 12 characters of `[a-z0-9]`. It is no secret.
pub type KeyId = [u8; ID_LEN];
/// The SHA-256 of a complete key.
pub type KeyHash = [u8; 32];

/// A key that was just made. It is shown once, and not kept.
pub struct NewKey {
    /// Its id.
    pub id: String,
    /// The complete key.
    pub text: String,
}

impl NewKey {
    /// Makes a key.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, String> {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let random = SystemRandom::new();
        let mut bytes = [0_u8; ID_LEN + SECRET_LEN / 2];
        random.fill(&mut bytes).map_err(|_| "the system has no random numbers".to_owned())?;

        // The id only has to be distinct, so a slight preference for some letters does not matter.
        let (id, secret) = bytes.split_at(ID_LEN);
        let id: String = id.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect();
        Ok(Self { text: format!("{PREFIX}{id}_{}", hex(secret)), id })
    }
}

/// True if a text claims to be a key.
#[must_use]
pub fn looks_like_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The id in a key. `None` if the text does not have the form of one.
#[must_use]
pub fn id_of(key: &str) -> Option<KeyId> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let has_form = secret.len() == SECRET_LEN && secret.bytes().all(is_digit);
    parse_id(id).filter(|_| has_form)
}

/// The hash of a complete key, as the file holds it.
#[must_use]
pub fn hash(key: &str) -> KeyHash {
    Sha256::digest(key.as_bytes()).into()
}

fn parse_id(text: &str) -> Option<KeyId> {
    let id: KeyId = text.as_bytes().try_into().ok()?;
    id.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z')).then_some(id)
}

/// True if a key may be made for a caller of this name: it can be written as `[callers.NAME]`.
#[must_use]
pub fn is_caller_name(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    letters && !name.is_empty() && name.len() <= MAX_CALLER_LEN && !matches!(name, "anonymous" | "default")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_the_form_of_a_key_and_is_never_made_twice() {
        let (one, other) = (NewKey::generate().expect("a key"), NewKey::generate().expect("a key"));
        assert_ne!(one.text, other.text);
        assert_eq!(one.text.len(), 3 + 12 + 1 + 64);
        assert_eq!(id_of(&one.text).map(|id| id.to_vec()), Some(one.id.clone().into_bytes()));
    }

    #[test]
    fn other_texts_are_no_keys() {
        let key = format!("il_abcdefgh0123_{}", "0a".repeat(32));
        assert!(id_of(&key).is_some());
        for wrong in [
            "".to_owned(),
            "il_".to_owned(),
            key[..key.len() - 1].to_owned(),
            format!("{key}0"),
            format!(" {key}"),
            key.to_uppercase(),
            key.replace("il_a", "il_A"),
            key.replace("0a0a", "0g0a"),
            key.replacen('_', "-", 1),
            key.replace("il_abcdefgh0123", "il_abcdefgh012"),
            format!("il_äbcdefgh012_{}", "0a".repeat(32)),
        ] {
            assert!(id_of(&wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn names_of_callers_can_be_keys_of_a_table() {
        for (name, expected) in [
            ("team-a", true),
            ("A.b_c-1", true),
            ("", false),
            ("anonymous", false),
            ("default", false),
            ("a b", false),
            ("ä", false),
            ("a/b", false),
        ] {
            assert_eq!(is_caller_name(name), expected, "{name}");
        }
    }
}
