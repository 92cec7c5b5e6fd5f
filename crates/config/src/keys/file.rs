//! The key file: its format, and reading it.

use std::collections::HashMap;

use interlingua_core::event::Millis;
use jiff::Timestamp;
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::{KeyHash, KeyId, is_caller_name, parse_id};

/// The largest file accepted, in bytes.
pub const MAX_FILE_LEN: usize = 32 << 20;
/// The maximum number of keys.
const MAX_KEYS: usize = 100_000;

/// A key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The id, which is part of the key.
    pub id: KeyId,
    /// The name of the caller.
    pub caller: String,
    /// The SHA-256 of the key.
    pub hash: KeyHash,
    /// When it was made, in milliseconds since 1970.
    pub created: Millis,
    /// From when on it is no longer valid. `None`: it does not expire.
    pub expires: Option<Millis>,
    /// Since when it is no longer valid. `None`: it is not revoked.
    pub revoked: Option<Millis>,
}

/// Whether a key can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It can.
    Valid,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

impl KeyState {
    /// The word for it in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl KeyEntry {
    /// Whether it can be used at this time, in milliseconds since 1970.
    #[must_use]
    pub fn state(&self, now: Millis) -> KeyState {
        if self.revoked.is_some() {
            KeyState::Revoked
        } else if self.expires.is_some_and(|expires| expires <= now) {
            KeyState::Expired
        } else {
            KeyState::Valid
        }
    }

    /// The id as text.
    #[must_use]
    pub fn id_text(&self) -> String {
        String::from_utf8_lossy(&self.id).into_owned()
    }
}

/// The file as written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeyFile {
    pub(super) keys: Vec<Spanned<WrittenKey>>,
}

/// One entry as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKey {
    pub(super) id: Spanned<String>,
    caller: Spanned<String>,
    sha256: Spanned<String>,
    created: Spanned<Datetime>,
    expires: Option<Spanned<Datetime>>,
    pub(super) revoked: Option<Spanned<Datetime>>,
}

/// Reads the entries of a file.
///
/// # Errors
/// The first problem with the number of its line. It contains no part of a hash.
pub fn parse(text: &str) -> Result<Vec<KeyEntry>, String> {
    let file = read(text)?;
    if file.keys.len() > MAX_KEYS {
        return Err(format!("it holds more than {MAX_KEYS} keys"));
    }

    let at = |start: usize, problem: &str| Err(format!("line {}: {problem}", line(text, start)));
    let mut seen = HashMap::new();
    let mut entries = Vec::with_capacity(file.keys.len());
    for written in &file.keys {
        let key = written.get_ref();
        let start = key.id.span().start;
        let Some(id) = parse_id(key.id.get_ref()) else {
            return at(start, "\"id\" must be 12 lower-case letters and digits");
        };
        if seen.insert(id, ()).is_some() {
            return at(start, &format!("id {:?} is there twice", key.id.get_ref()));
        }
        if !is_caller_name(key.caller.get_ref()) {
            return at(key.caller.span().start, "\"caller\" is not the name of a caller");
        }
        let Some(hash) = parse_hash(key.sha256.get_ref()) else {
            return at(key.sha256.span().start, "\"sha256\" must be 64 hexadecimal digits");
        };

        let time = |time: &Spanned<Datetime>| {
            timestamp(time.get_ref()).ok_or_else(|| {
                let line = line(text, time.span().start);
                format!("line {line}: a time must have an offset, like 2027-02-20T17:00:00Z")
            })
        };
        entries.push(KeyEntry {
            id,
            caller: key.caller.get_ref().clone(),
            hash,
            created: time(&key.created)?,
            expires: key.expires.as_ref().map(time).transpose()?,
            revoked: key.revoked.as_ref().map(time).transpose()?,
        });
    }
    Ok(entries)
}

pub(super) fn read(text: &str) -> Result<KeyFile, String> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        format!("line {}: {}", line(text, start), error.message().lines().next().unwrap_or("invalid TOML"))
    })
}

/// The number of the line at this offset.
fn line(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn parse_hash(text: &str) -> Option<KeyHash> {
    let digits = text.as_bytes();
    let mut hash = KeyHash::default();
    if digits.len() != hash.len() * 2 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

fn timestamp(time: &Datetime) -> Option<Millis> {
    let time = time.to_string().parse::<Timestamp>().ok()?.as_millisecond();
    // All times before 1970 are equally long ago.
    Some(Millis::try_from(time).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(more: &str) -> String {
        let hash = "0a".repeat(32);
        format!(
            "[[keys]]\nid = \"abcdefgh0123\"\ncaller = \"ann\"\nsha256 = \"{hash}\"\ncreated = 2026-11-22T17:00:00Z\n{more}"
        )
    }

    #[test]
    fn a_file_without_keys_is_fine() {
        assert_eq!(parse("# nothing yet\n"), Ok(Vec::new()));
    }

    #[test]
    fn a_key_is_valid_until_it_expires_or_is_revoked() {
        let state = |more: &str| parse(&entry(more)).expect("a key file")[0].state(1_800_000_000_000);
        assert_eq!(state(""), KeyState::Valid);
        assert_eq!(state("expires = 2027-01-15T08:00:00.001Z"), KeyState::Valid);
        assert_eq!(state("expires = 2027-01-15T08:00:00Z"), KeyState::Expired);
        assert_eq!(state("revoked = 2999-01-01T00:00:00Z"), KeyState::Revoked);
    }

    #[test]
    fn errors_name_the_line_and_no_hash() {
        let twice = format!("{}{}", entry(""), entry(""));
        for (text, expected) in [
            (twice.as_str(), "line 7: id \"abcdefgh0123\" is there twice"),
            (&entry("x = 1"), "line 6: unknown field `x`"),
            (&entry("revoked = 2999-01-01"), "line 6: a time must have an offset"),
            (&entry("").replace("0a0a", "0x0a"), "line 4: \"sha256\" must be 64"),
            (&entry("").replace("ann", "default"), "line 3: \"caller\""),
            (&entry("").replace("abc", "AB"), "line 2: \"id\""),
            ("[[keys]]\nid = ", "line 2: "),
        ] {
            let error = parse(text).expect_err("a bad file");
            assert!(error.starts_with(expected) && !error.contains("0a0a"), "{error}");
        }
    }
}
