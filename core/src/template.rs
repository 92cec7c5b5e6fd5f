//! Frames of a stream that differ in nothing but one text: the shape of the last such frame is kept, and the next one of
//! the same shape is read without parsing it again.
//!
//! Not here: what a frame means. A reader learns a shape from a frame that it has parsed and that has no other effect.

use std::borrow::Cow;

/// Shapes of longer frames are not kept, in bytes.
const MAX_SHAPE: usize = 4096;

/// What stands before and after the text of a frame.
///
/// ```
/// use interlingua_core::template::TextTemplate;
///
/// let mut template = TextTemplate::default();
/// let frame = br#"{"index":0,"text":"Hel"}"#;
/// let text = std::str::from_utf8(&frame[19..22]).unwrap();
/// template.learn(frame, text);
///
/// assert_eq!(template.text(br#"{"index":0,"text":"lo!"}"#).as_deref(), Some("lo!"));
/// assert_eq!(template.text(br#"{"index":0,"text":"\n"}"#).as_deref(), Some("\n"));
/// assert_eq!(template.text(br#"{"index":1,"text":"lo!"}"#), None, "another shape");
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextTemplate {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl TextTemplate {
    /// The text of a frame of the known shape, borrowed if it has no escapes. None: the frame has to be parsed.
    #[inline]
    #[must_use]
    pub fn text<'a>(&self, frame: &'a [u8]) -> Option<Cow<'a, str>> {
        if self.before.is_empty() {
            return None;
        }

        let text = frame.strip_prefix(self.before.as_slice())?.strip_suffix(self.after.as_slice())?;
        // With none of these, the text is the whole content of the string.
        let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
        if text.iter().all(is_plain) {
            return std::str::from_utf8(text).ok().map(Cow::Borrowed);
        }

        // With its quotes it is one string, or the frame has another shape.
        let quoted = frame.get(self.before.len() - 1..=frame.len() - self.after.len())?;
        serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned)
    }

    /// Takes the shape of a frame. `text`: the part of it that may differ, a string without escapes. Anything else is not
    /// learned.
    pub fn learn(&mut self, frame: &[u8], text: &str) {
        let start = (text.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        let Some((before, rest)) = frame.split_at_checked(start) else { return };
        let Some((found, after)) = rest.split_at_checked(text.len()) else { return };
        let is_string = before.last() == Some(&b'"') && after.first() == Some(&b'"');
        if !is_string || found != text.as_bytes() || frame.len() > MAX_SHAPE {
            return;
        }

        self.before.clear();
        self.before.extend_from_slice(before);
        self.after.clear();
        self.after.extend_from_slice(after);
    }
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
            let is_known = template.text(br#"{"a":"x","text":"two"}"#) == Some("two".into());
            assert_eq!(is_known, is_learned, "{text:?}");
        }
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
            ("a\"b", None),
            ("a\nb", None),
            (r#"x","text":"y"#, None),
        ] {
            assert_eq!(template.text(format!(r#"{{"text":"{text}"}}"#).as_bytes()).as_deref(), wanted, "{text}");
        }
        assert_eq!(template.text(b"{\"text\":\"\xff\"}"), None);
        assert_eq!(template.text(br#"{"text":"}"#), None);
    }
}
