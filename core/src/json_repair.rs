//! JSON text that parsers refuse for one broken character: half of a surrogate pair in an escape, or invalid UTF-8.
//!
//! Models cut emojis between two tokens, and servers send each half in a frame of its own. Both kinds become U+FFFD
//! here, so that the rest of the text survives. Called only after a parser refused a text: valid frames cost nothing.
//!
//! Not here: any other syntax error.

use crate::connector::{AgentTurn, EventSink};
use crate::fault::{Fault, FaultKind};
use crate::sse::Frame;

/// The note of a connector or client protocol that repaired a text.
pub const LOSS: &str = "bytes and escapes that are no characters are replaced by U+FFFD";

/// The same JSON with U+FFFD in place of bytes and escapes that are no characters. `None`: the JSON contains only
/// characters.
///
/// ```
/// use interlingua_core::json_repair::repaired;
///
/// assert_eq!(repaired(br#"{"t":"a\ud83d"}"#).as_deref(), Some(r#"{"t":"a\ufffd"}"#));
/// assert_eq!(repaired(br#"{"t":"\ud83d\ude00"}"#), None);
/// ```
#[must_use]
pub fn repaired(json: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(json);
    let is_lossy = matches!(text, std::borrow::Cow::Owned(_));
    match without_halves(&text) {
        Some(repaired) => Some(repaired),
        None if is_lossy => Some(text.into_owned()),
        None => None,
    }
}

/// Passes a frame to a turn, and once more with its broken characters replaced if the turn cannot read it. Returns true
/// if characters were replaced.
///
/// # Errors
/// The fault of the turn.
#[inline]
pub fn read_frame(turn: &mut dyn AgentTurn, frame: Frame<'_>, sink: &mut dyn EventSink) -> Result<bool, Fault> {
    match turn.on_frame(frame, sink) {
        Ok(()) => Ok(false),
        Err(fault) => {
            let Some(repaired) = replacement(&fault, frame.data) else { return Err(fault) };
            turn.on_frame(Frame { data: repaired.as_bytes(), ..frame }, sink).map(|()| true)
        }
    }
}

/// The same for an answer that came as one body.
///
/// # Errors
/// The fault of the turn.
pub fn read_body(turn: &mut dyn AgentTurn, body: &[u8], sink: &mut dyn EventSink) -> Result<bool, Fault> {
    match turn.on_body(body, sink) {
        Ok(()) => Ok(false),
        Err(fault) => {
            let Some(repaired) = replacement(&fault, body) else { return Err(fault) };
            turn.on_body(repaired.as_bytes(), sink).map(|()| true)
        }
    }
}

#[cold]
fn replacement(fault: &Fault, data: &[u8]) -> Option<String> {
    if fault.kind == FaultKind::UpstreamGarbage { repaired(data) } else { None }
}

/// Replaces the escapes of unpaired surrogates. `None`: the text has none.
fn without_halves(text: &str) -> Option<String> {
    let mut repaired: Option<String> = None;
    // Up to here the text was copied.
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        let start = at + found;
        let Some(unit) = unit_at(text, start) else {
            // Another escape, which may be that of a backslash.
            at = (start + 2).min(text.len());
            continue;
        };

        at = start + 6;
        match unit {
            0xD800..0xDC00 if unit_at(text, at).is_some_and(|low| (0xDC00..0xE000).contains(&low)) => at += 6,
            0xD800..0xE000 => {
                let into = repaired.get_or_insert_default();
                into.push_str(&text[copied..start]);
                into.push_str("\\ufffd");
                copied = at;
            }
            _ => {}
        }
    }

    let mut repaired = repaired?;
    repaired.push_str(&text[copied..]);
    Some(repaired)
}

/// The unit of UTF-16 in an escape at this place.
fn unit_at(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_pairs_are_not() {
        for (json, wanted) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00\ud83d""#, Some(r#""\ufffd\ufffd""#)),
            (r#""\uD83D\uD83D\uDE00x""#, Some(r#""\ufffd\uD83D\uDE00x""#)),
            (r#""\ud83d\u0041""#, Some(r#""\ufffd\u0041""#)),
            (r#""\ud83d\ude00 \u00e9""#, None),
            (r#""\\ud83d""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufffd""#)),
            (r#""\ud8""#, None),
            (r#""\ud83d"#, Some(r#""\ufffd"#)),
            ("\"\\", None),
            ("\"\\é", None),
        ] {
            assert_eq!(repaired(json.as_bytes()).as_deref(), wanted, "{json}");
            if let Some(wanted) = wanted {
                assert_eq!(repaired(wanted.as_bytes()), None, "{json}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_characters_are_replaced() {
        assert_eq!(repaired(b"\"a\xff\"").as_deref(), Some("\"a\u{fffd}\""));
        assert_eq!(repaired(b"\"\xf0\x9f\\ud83d\"").as_deref(), Some("\"\u{fffd}\\ufffd\""));
        assert_eq!(repaired("\"ä\"".as_bytes()), None);
    }
}
