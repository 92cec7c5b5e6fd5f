//! Strings in JSON as they are written, and without their escapes: borrowed, or unescaped into memory that a reader
//! uses again for each piece of a text.
//!
//! A parser has no memory from one frame to the next: it allocates for every text with an escape. Not here: any other
//! value ([`crate::lenient`]).

use std::borrow::Cow;

use serde_json::value::RawValue;

/// The characters between the quotes of a string. `None`: the JSON is another value.
#[must_use]
pub fn quoted(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

/// A string. None: the JSON is another value.
#[must_use]
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = quoted(raw.get())?;
    if !has_escapes(raw) {
        return Some(Cow::Borrowed(inner));
    }

    let mut plain = String::with_capacity(inner.len());
    unescape(inner, &mut plain);
    Some(Cow::Owned(plain))
}

/// A string, borrowed if it has no escapes, else written to `scratch`. None: the JSON is another value.
///
/// ```
/// use interlingua_core::json_string::lent;
/// use serde_json::value::RawValue;
///
/// let mut scratch = String::new();
/// let raw: &RawValue = serde_json::from_str(r#""a\tb""#)?;
/// assert_eq!(lent(raw, &mut scratch), Some("a\tb"));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn lent<'t>(raw: &'t RawValue, scratch: &'t mut String) -> Option<&'t str> {
    let inner = quoted(raw.get())?;
    if !has_escapes(raw) {
        return Some(inner);
    }

    scratch.clear();
    unescape(inner, scratch);
    Some(scratch)
}

/// True if a string has escapes.
#[must_use]
pub fn has_escapes(raw: &RawValue) -> bool {
    memchr::memchr(b'\\', raw.get().as_bytes()).is_some()
}

/// Appends a string without its escapes (RFC 8259, section 7). Half of a surrogate pair becomes U+FFFD: other parsers
/// refuse the whole frame for it, which would lose an answer for one broken character.
///
/// False: something is no escape of JSON, or half of a pair. `into` has what could be read.
pub fn unescape(inner: &str, into: &mut String) -> bool {
    let (mut rest, mut is_valid) = (inner, true);
    while let Some(place) = memchr::memchr(b'\\', rest.as_bytes()) {
        into.push_str(&rest[..place]);
        let mut after = rest[place + 1..].chars();
        let escape = after.next();
        rest = after.as_str();
        match escape {
            Some('n') => into.push('\n'),
            Some('t') => into.push('\t'),
            Some('r') => into.push('\r'),
            Some('b') => into.push('\u{8}'),
            Some('f') => into.push('\u{c}'),
            Some('u') => is_valid &= unescape_unit(&mut rest, into),
            Some(other) => {
                is_valid &= matches!(other, '"' | '\\' | '/');
                into.push(other);
            }
            None => is_valid = false,
        }
    }
    into.push_str(rest);
    is_valid
}

/// Reads what follows `\u`: a unit of UTF-16, or two that are a pair. False: it is neither.
fn unescape_unit(rest: &mut &str, into: &mut String) -> bool {
    let unit = |text: &str| {
        let digits = text.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(rest) else { return false };
    *rest = &rest[4..];
    if let Some(char) = char::from_u32(u32::from(first)) {
        into.push(char);
        return true;
    }

    let second = rest.strip_prefix("\\u").and_then(unit);
    if let Some(second) = second
        && let Some(Ok(pair)) = char::decode_utf16([first, second]).next()
    {
        into.push(pair);
        *rest = &rest[6..];
        return true;
    }
    into.push(char::REPLACEMENT_CHARACTER);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn strings_are_read_as_other_parsers_read_them() {
        for json in [
            r#""plain""#,
            r#""a\"b\\c\/d\b\f\n\r\t""#,
            r#""\u00e9\u4f60\uD83D\ude00x""#,
            r#""é你😀""#,
            r#""\\u0041""#,
            r#""ends with a backslash \\""#,
            r#""""#,
        ] {
            let expected: String = serde_json::from_str(json).expect("JSON");
            let mut scratch = String::from("before");
            assert_eq!(lent(raw(json), &mut scratch), Some(expected.as_str()));
            assert_eq!(text(raw(json)).as_deref(), Some(expected.as_str()));
            assert!(unescape(quoted(json).expect("a string"), &mut String::new()), "{json}");
        }
        assert_eq!(text(raw("7")), None);
        assert_eq!(lent(raw("null"), &mut String::new()), None);
    }

    #[test]
    fn half_a_surrogate_pair_costs_one_character() {
        for (json, expected) in [
            (r#""a\ud83db""#, "a\u{fffd}b"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(text(raw(json)).as_deref(), Some(expected), "{json}");
            assert!(!unescape(quoted(json).expect("a string"), &mut String::new()), "{json}");
        }
    }

    #[test]
    fn invalid_escapes_are_reported() {
        for inner in ["\\", "\\x", "\\u", "\\u12", "\\u+123", "\\u12é", "a\\é"] {
            assert!(!unescape(inner, &mut String::new()), "{inner}");
        }
    }
}
