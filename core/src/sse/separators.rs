//! Unicode line separators that are not line ends in an event stream: NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR.
//!
//! Clients that wrongly split a stream at every Unicode line break would see truncated frames, and a text could forge
//! frames for them. In JSON these characters occur only in strings, where an escape is equivalent.

use bytes::BytesMut;

struct Separator {
    bytes: &'static [u8],
    escape: &'static [u8],
}

const SEPARATORS: [Separator; 3] = [
    Separator { bytes: "\u{85}".as_bytes(), escape: br"\u0085" },
    Separator { bytes: "\u{2028}".as_bytes(), escape: br"\u2028" },
    Separator { bytes: "\u{2029}".as_bytes(), escape: br"\u2029" },
];

/// Escapes the separators in JSON at the end of a buffer, from `from` on. Without separators this is one search.
#[inline]
pub fn escape_from(out: &mut BytesMut, from: usize) {
    if let Some((at, _)) = first(&out[from..]) {
        let escaped = escape_rest(&out[from + at..]);
        out.truncate(from + at);
        out.extend_from_slice(&escaped);
    }
}

/// Escapes the separators in JSON or a part of it, for text that adapters write once and copy into many frames.
#[must_use]
pub fn escape(json: Vec<u8>) -> Vec<u8> {
    if first(&json).is_some() { escape_rest(&json) } else { json }
}

#[cold]
fn escape_rest(mut rest: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(rest.len() + 64);
    while let Some((at, separator)) = first(rest) {
        escaped.extend_from_slice(&rest[..at]);
        escaped.extend_from_slice(separator.escape);
        rest = &rest[at + separator.bytes.len()..];
    }
    escaped.extend_from_slice(rest);
    escaped
}

/// The position and the length of the first separator, in bytes.
#[inline]
pub(super) fn find(text: &[u8]) -> Option<(usize, usize)> {
    first(text).map(|(at, separator)| (at, separator.bytes.len()))
}

/// The first separator and its position.
#[inline]
fn first(text: &[u8]) -> Option<(usize, &'static Separator)> {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(0xc2, 0xe2, &text[from..]) {
        let at = from + at;
        if let Some(found) = SEPARATORS.iter().find(|separator| text[at..].starts_with(separator.bytes)) {
            return Some((at, found));
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicode_line_separators_are_escaped_and_nothing_else() {
        let text = "a\u{2028}data: [DONE]\u{2029}\u{85}é“\u{a0}\u{2027}世\u{2028}";
        let json = serde_json::to_vec(text).expect("JSON");
        let escaped = String::from_utf8(escape(json.clone())).expect("text");
        assert_eq!(escaped, "\"a\\u2028data: [DONE]\\u2029\\u0085é“\u{a0}\u{2027}世\\u2028\"");
        assert_eq!(serde_json::from_str::<String>(&escaped).ok().as_deref(), Some(text));

        let mut out = BytesMut::from("\u{2028}: ".as_bytes());
        let from = out.len();
        out.extend_from_slice(&json);
        escape_from(&mut out, from);
        assert_eq!(out, format!("\u{2028}: {escaped}").as_bytes(), "earlier output is unchanged");
    }
}
