//! Frames of a stream that differ in nothing but one text: the shape of the last such frame is kept, and the next one
//! of the same shape is read without parsing it again.
//!
//! Not here: frames that are also numbered ([`crate::delta_template`]), and what a frame means. A reader learns a shape
//! from a frame that it has parsed and that has no other effect.

use interlingua_core::json_string::unescape;

use crate::delta_template::{MAX_SHAPE, place_of_text};

/// The bytes before and after the text of a frame.
///
/// ```
/// use interlingua_adapter_kit::template::TextTemplate;
///
/// let mut template = TextTemplate::default();
/// let frame = br#"{"index":0,"text":"Hel"}"#;
/// let text = std::str::from_utf8(&frame[19..22]).unwrap();
/// template.learn(frame, text);
///
/// assert_eq!(template.text(br#"{"index":0,"text":"lo!"}"#), Some("lo!"));
/// assert_eq!(template.text(br#"{"index":0,"text":"\n"}"#), Some("\n"));
/// assert_eq!(template.text(br#"{"index":1,"text":"lo!"}"#), None, "another shape");
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextTemplate {
    before: Vec<u8>,
    after: Vec<u8>,
    /// The text that was read last, if it has escapes.
    unescaped: String,
}

impl TextTemplate {
    /// The text of a frame of the known shape, borrowed if it has no escapes. None: the frame has to be parsed.
    ///
    /// Costs no allocation: texts with escapes are written to the same memory, one after the other.
    #[inline]
    #[must_use]
    pub fn text<'a>(&'a mut self, frame: &'a [u8]) -> Option<&'a str> {
        if self.before.is_empty() {
            return None;
        }

        let text = frame.strip_prefix(self.before.as_slice())?.strip_suffix(self.after.as_slice())?;
        // With none of these, the text is the whole content of the string.
        let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
        if text.iter().all(is_plain) {
            return std::str::from_utf8(text).ok();
        }
        if !is_one_string(text) {
            return None;
        }
        self.unescaped.clear();
        unescape(std::str::from_utf8(text).ok()?, &mut self.unescaped).then_some(&self.unescaped)
    }

    /// Takes the shape of a frame that was parsed. `text`: the part of it that may differ, borrowed from the frame, or
    /// without the escapes it has there. Anything else is not learned: no shape is known then, because a reader notes
    /// facts of the last frame beside its shape.
    pub fn learn(&mut self, frame: &[u8], text: &str) {
        self.forget();
        if frame.len() > MAX_SHAPE {
            return;
        }
        let Some(place) = place_of_text(frame, text, &mut self.unescaped) else { return };
        self.before.extend_from_slice(&frame[..place.start]);
        self.after.clear();
        self.after.extend_from_slice(&frame[place.end..]);
    }

    /// Forgets the shape: the next frame has to be parsed. Keeps its memory for the next shape.
    pub fn forget(&mut self) {
        self.before.clear();
    }
}

/// True if these bytes can stand between the quotes of one string: otherwise the frame has another shape.
fn is_one_string(text: &[u8]) -> bool {
    let mut is_escaped = false;
    for byte in text {
        match byte {
            0..0x20 => return false,
            b'"' if !is_escaped => return false,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    !is_escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_learned_from_a_text_inside_of_its_frame_alone() {
        let frame = r#"{"a":"x","text":"one"}"#;
        let at = |from: usize, to: usize| &frame[from..to];
        for (text, is_learned) in
            [(at(17, 20), true), ("one", false), (at(16, 20), false), (at(17, 19), false), (at(17, 17), false)]
        {
            let mut template = TextTemplate::default();
            template.learn(frame.as_bytes(), text);
            let is_known = template.text(br#"{"a":"x","text":"two"}"#) == Some("two");
            assert_eq!(is_known, is_learned, "{text:?}");
        }
    }

    #[test]
    fn a_shape_is_learned_from_a_text_with_escapes() {
        for (frame, text, is_learned) in [
            (r#"{"a":"x","text":"\u4f60\"\n"}"#, "你\"\n", true),
            (r#"{"a":"\u4f60","text":"\n"}"#, "\n", true),
            // The two are ambiguous.
            (r#"{"a":"\n","text":"\n"}"#, "\n", false),
            // The text is half a surrogate.
            (r#"{"a":"\ufffd","text":"\ud83d"}"#, "\u{fffd}", false),
            (r#"{"a":"x","text":"one"}"#, "one", false),
            (r#"{"a":"x","text":"\n"#, "\n", false),
            (r#"{"a":"x","text":"\"#, "\n", false),
        ] {
            let mut template = TextTemplate::default();
            template.learn(frame.as_bytes(), text);
            let next = frame.replace(r#""text":"\n""#, r#""text":"a\tb""#).replace(r#"\u4f60\"\n"#, r"a\tb");
            let wanted = is_learned.then_some("a\tb");
            assert_eq!(template.text(next.as_bytes()), wanted, "{frame}");
        }
    }

    #[test]
    fn no_shape_is_known_after_a_frame_that_has_none() {
        let frame = r#"{"text":"one"}"#;
        let mut template = TextTemplate::default();
        template.learn(frame.as_bytes(), &frame[9..12]);
        let long = format!(r#"{{"index":1,"text":"{}"}}"#, "x".repeat(MAX_SHAPE));
        template.learn(long.as_bytes(), &long[19..19 + MAX_SHAPE]);
        assert_eq!(template.text(frame.as_bytes()), None);
    }

    #[test]
    fn a_forgotten_shape_is_not_read() {
        let frame = r#"{"text":"one"}"#;
        let mut template = TextTemplate::default();
        template.learn(frame.as_bytes(), &frame[9..12]);
        template.forget();
        assert_eq!(template.text(frame.as_bytes()), None);
        template.learn(frame.as_bytes(), &frame[9..12]);
        assert_eq!(template.text(frame.as_bytes()), Some("one"));
    }

    #[test]
    fn texts_are_read_and_other_shapes_are_not() {
        let frame = r#"{"text":"one"}"#;
        let mut template = TextTemplate::default();
        assert_eq!(template.text(frame.as_bytes()), None);
        template.learn(frame.as_bytes(), &frame[9..12]);
        for (text, wanted) in [
            ("two", Some("two")),
            ("", Some("")),
            ("zwei Städte 👀", Some("zwei Städte 👀")),
            ("a\\nb", Some("a\nb")),
            ("a\\", None),
            ("a\\\"b", Some("a\"b")),
            ("\\ud83d\\udc40", Some("👀")),
            ("\\x", None),
            ("\\ud83d", None),
            ("a\\\\\\\"b\\\\", Some("a\\\"b\\")),
            ("a\"b", None),
            ("a\nb", None),
            (r#"x","text":"y"#, None),
        ] {
            assert_eq!(template.text(format!(r#"{{"text":"{text}"}}"#).as_bytes()), wanted, "{text}");
        }
        assert_eq!(template.text(b"{\"text\":\"\xff\"}"), None);
        assert_eq!(template.text(br#"{"text":"}"#), None);
    }
}
