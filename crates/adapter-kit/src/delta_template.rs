//! Numbered frames of a stream that differ in one text, their number, and perhaps a string without a meaning: the shape
//! of the last such frame is kept, and the next one of the same shape is read without parsing it again.
//!
//! Not here: frames without a number ([`crate::template`]), and what a frame means.

use std::ops::Range;

use interlingua_core::json_string::unescape;
use serde_json::value::RawValue;

/// Shapes of longer frames are not kept, in bytes.
pub(crate) const MAX_SHAPE: usize = 4096;

/// The longest number that is read, in digits.
const MAX_DIGITS: usize = 15;

/// The values of a parsed frame that may differ in the next one, all borrowed from the frame.
#[derive(Clone, Copy, Debug)]
pub struct ChangingValues<'a> {
    /// The text, between its quotes or without its escapes.
    pub text: &'a str,
    /// The number of the frame. `None`: it has none.
    pub number: Option<&'a RawValue>,
    /// A string that has no effect, such as padding against traffic analysis. `None`: the frame has none.
    pub padding: Option<&'a RawValue>,
}

/// The values of a frame that has the known shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// The text, without escapes.
    pub text: &'a str,
    /// The number of the frame. `None`: frames of this shape have none.
    pub number: Option<u64>,
}

/// The bytes of a frame around its changing values.
///
/// ```
/// use interlingua_adapter_kit::delta_template::{ChangingValues, Delta, DeltaTemplate};
/// use serde_json::value::RawValue;
///
/// #[derive(serde::Deserialize)]
/// struct Frame<'a> {
///     text: &'a str,
///     #[serde(borrow)]
///     number: &'a RawValue,
/// }
///
/// let frame = r#"{"number":9,"text":"Hel"}"#;
/// let parsed: Frame = serde_json::from_str(frame)?;
/// let mut template = DeltaTemplate::default();
/// template.learn(frame.as_bytes(), ChangingValues { text: parsed.text, number: Some(parsed.number), padding: None });
///
/// let next = br#"{"number":10,"text":"lo!"}"#;
/// assert_eq!(template.read(next), Some(Delta { text: "lo!", number: Some(10) }));
/// assert_eq!(template.read(br#"{"number":10,"text":1}"#), None, "another shape");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeltaTemplate {
    /// The bytes around the holes, without gaps.
    literal: Vec<u8>,
    /// In the order of the frame. Empty: no shape is known.
    holes: Vec<Hole>,
    /// The values of the frame that is learned. Kept for its memory.
    places: Vec<(HoleKind, Range<usize>)>,
    /// The text that was read last, if it has escapes.
    unescaped: String,
}

/// A value that may differ.
#[derive(Clone, Copy, Debug)]
struct Hole {
    kind: HoleKind,
    /// The number of literal bytes before it.
    literal_before: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleKind {
    Text,
    Number,
    Padding,
}

impl DeltaTemplate {
    /// The values of a frame of the known shape; the text is borrowed if it has no escapes. `None`: the frame has to be
    /// parsed.
    ///
    /// Costs no allocation: texts with escapes are written to the same memory, one after the other.
    #[inline]
    #[must_use]
    pub fn read<'a>(&'a mut self, frame: &'a [u8]) -> Option<Delta<'a>> {
        let (mut rest, mut begin) = (frame, 0);
        let (mut text, mut number) = (None, None);
        for hole in &self.holes {
            rest = rest.strip_prefix(&self.literal[begin..hole.literal_before])?;
            begin = hole.literal_before;
            let length = match hole.kind {
                HoleKind::Number => {
                    let digits = leading_digits(rest)?;
                    number = Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
                    digits.len()
                }
                HoleKind::Text => {
                    let string = StringContent::find(rest)?;
                    text = Some(string);
                    string.inner.len()
                }
                HoleKind::Padding => {
                    let string = StringContent::find(rest)?;
                    if string.has_escapes || !string.inner.is_ascii() {
                        return None;
                    }
                    string.inner.len()
                }
            };
            rest = &rest[length..];
        }

        let text = text?;
        if rest != &self.literal[begin..] {
            return None;
        }
        let inner = std::str::from_utf8(text.inner).ok()?;
        if !text.has_escapes {
            return Some(Delta { text: inner, number });
        }
        self.unescaped.clear();
        unescape(inner, &mut self.unescaped).then_some(Delta { text: &self.unescaped, number })
    }

    /// Takes the shape of a frame that was parsed and has no other effect than its text. Forgets the known shape if the
    /// frame has none: a value is not borrowed from it, its number is not written in at most 15 digits, or it is long.
    pub fn learn(&mut self, frame: &[u8], values: ChangingValues<'_>) {
        self.forget();
        if self.find_places(frame, values).is_none() {
            return;
        }
        self.places.sort_unstable_by_key(|(_, place)| place.start);
        // Values of one frame never overlap.
        if self.places.windows(2).any(|pair| pair[0].1.end >= pair[1].1.start) {
            return;
        }

        self.literal.clear();
        let mut from = 0;
        for (kind, place) in self.places.drain(..) {
            self.literal.extend_from_slice(&frame[from..place.start]);
            self.holes.push(Hole { kind, literal_before: self.literal.len() });
            from = place.end;
        }
        self.literal.extend_from_slice(&frame[from..]);
    }

    /// Forgets the shape: the next frame has to be parsed. Keeps its memory for the next shape.
    pub fn forget(&mut self) {
        self.holes.clear();
    }

    /// Fills [`Self::places`]. `None`: the frame has no shape.
    fn find_places(&mut self, frame: &[u8], values: ChangingValues<'_>) -> Option<()> {
        self.places.clear();
        if frame.len() > MAX_SHAPE {
            return None;
        }
        let text = place_of_text(frame, values.text, &mut self.unescaped)?;
        self.places.push((HoleKind::Text, text));
        if let Some(number) = values.number {
            let place = borrowed(frame, number.get())?;
            let is_plain = leading_digits(&frame[place.clone()]).is_some_and(|digits| digits.len() == place.len());
            self.places.push((HoleKind::Number, is_plain.then_some(place)?));
        }
        if let Some(padding) = values.padding {
            let place = borrowed(frame, padding.get()).filter(|_| padding.get().starts_with('"'))?;
            self.places.push((HoleKind::Padding, place.start + 1..place.end - 1));
        }
        Some(())
    }
}

/// The content of a string at the front of some bytes, up to its closing quote.
#[derive(Clone, Copy)]
struct StringContent<'a> {
    inner: &'a [u8],
    has_escapes: bool,
}

impl<'a> StringContent<'a> {
    /// `None`: there is no closing quote, or a control character before it.
    #[inline]
    fn find(bytes: &'a [u8]) -> Option<Self> {
        let (mut end, mut has_escapes) = (0, false);
        loop {
            end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes[end] == b'"' {
                break;
            }
            has_escapes = true;
            end += 2;
        }
        let inner = &bytes[..end];
        inner.iter().all(|byte| *byte >= 0x20).then_some(Self { inner, has_escapes })
    }
}

/// The digits at the front of some bytes, if they can be a number of JSON.
#[inline]
fn leading_digits(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.iter().take(MAX_DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let has_leading_zero = length > 1 && bytes[0] == b'0';
    (1..=MAX_DIGITS).contains(&length).then(|| &bytes[..length]).filter(|_| !has_leading_zero)
}

/// The place of a text between the quotes of a string of the frame. `None`: it is no string of it, or an ambiguous one.
/// `unescaped` is overwritten.
pub(crate) fn place_of_text(frame: &[u8], text: &str, unescaped: &mut String) -> Option<Range<usize>> {
    let is_string =
        |place: &Range<usize>| frame[..place.start].ends_with(b"\"") && frame[place.end..].starts_with(b"\"");
    borrowed(frame, text).filter(is_string).or_else(|| escaped_place(frame, text, unescaped))
}

/// The place of the only string of the frame that has escapes and is this text without them.
fn escaped_place(frame: &[u8], text: &str, unescaped: &mut String) -> Option<Range<usize>> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        // It may replace half a surrogate, which no string without escapes contains: another string could be found.
        return None;
    }
    let (mut found, mut from) = (None, 0);
    while let Some(quote) = memchr::memchr(b'"', &frame[from..]) {
        let start = from + quote + 1;
        let string = StringContent::find(&frame[start..])?;
        let place = start..start + string.inner.len();
        from = place.end + 1;

        if string.has_escapes
            && let Ok(inner) = std::str::from_utf8(string.inner)
        {
            unescaped.clear();
            if unescape(inner, unescaped) && unescaped == text && found.replace(place).is_some() {
                return None;
            }
        }
    }
    found
}

/// The place of a value that is borrowed from the frame.
fn borrowed(frame: &[u8], value: &str) -> Option<Range<usize>> {
    let start = (value.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
    let end = start.checked_add(value.len())?;
    (frame.get(start..end)? == value.as_bytes()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Frame<'a> {
        #[serde(borrow)]
        number: Option<&'a RawValue>,
        #[serde(borrow)]
        pad: Option<&'a RawValue>,
        #[serde(borrow)]
        text: &'a RawValue,
    }

    fn learned(frame: &str) -> DeltaTemplate {
        let mut template = DeltaTemplate::default();
        let parsed: Frame<'_> = serde_json::from_str(frame).expect("a frame");
        let text = interlingua_core::json_string::quoted(parsed.text.get()).expect("a string");
        template.learn(frame.as_bytes(), ChangingValues { text, number: parsed.number, padding: parsed.pad });
        template
    }

    fn read(template: &mut DeltaTemplate, frame: &str) -> Option<(String, Option<u64>)> {
        template.read(frame.as_bytes()).map(|delta| (delta.text.to_owned(), delta.number))
    }

    #[test]
    fn frames_that_differ_in_their_values_are_read_in_any_order_of_fields() {
        for (first, next) in [
            (r#"{"number":9,"a":{"b":[]},"text":"x"}"#, r#"{"number":10,"a":{"b":[]},"text":"two"}"#),
            (r#"{"text":"x","number":9}"#, r#"{"text":"two","number":10}"#),
            (r#"{"pad":"abc","text":"x","number":9}"#, r#"{"pad":"","text":"two","number":10}"#),
            (r#"{"text":"\n","number":9 , "pad":"q"}"#, r#"{"text":"two","number":10 , "pad":"longer"}"#),
        ] {
            assert_eq!(read(&mut learned(first), next), Some(("two".to_owned(), Some(10))), "{next}");
        }
        assert_eq!(read(&mut learned(r#"{"text":"x"}"#), r#"{"text":"y"}"#), Some(("y".to_owned(), None)));
    }

    #[test]
    fn other_shapes_have_to_be_parsed() {
        let mut template = learned(r#"{"number":9,"text":"x","pad":"p"}"#);
        for other in [
            r#"{"number":9,"text":"x","pad":"p"} "#,
            r#"{"number":9,"text":"x","pad":"p","more":1}"#,
            r#"{"number":9,"text":"x","pad":"\n"}"#,
            r#"{"number":9,"text":"x","pad":"é"}"#,
            r#"{"number":9,"text":"\x","pad":"p"}"#,
            r#"{"number":9,"text":"\ud83d","pad":"p"}"#,
            r#"{"number":09,"text":"x","pad":"p"}"#,
            r#"{"number":-9,"text":"x","pad":"p"}"#,
            r#"{"number":9.0,"text":"x","pad":"p"}"#,
            r#"{"number":1234567890123456,"text":"x","pad":"p"}"#,
            r#"{"number":,"text":"x","pad":"p"}"#,
            r#"{"number":9,"text":null,"pad":"p"}"#,
            "{\"number\":9,\"text\":\"\u{1}\",\"pad\":\"p\"}",
            r#"{"number":9,"text":"x"#,
            r#"{"number":9,"text":"x\"#,
            "",
        ] {
            assert_eq!(read(&mut template, other), None, "{other}");
        }
        assert_eq!(template.read(b"{\"number\":9,\"text\":\"\xff\",\"pad\":\"p\"}"), None);
        assert_eq!(read(&mut template, r#"{"number":0,"text":"é\"","pad":""}"#), Some(("é\"".to_owned(), Some(0))));

        template.forget();
        assert_eq!(read(&mut template, r#"{"number":9,"text":"x","pad":"p"}"#), None);
    }

    #[test]
    fn a_frame_whose_number_is_no_plain_number_is_not_learned() {
        for number in ["\"3\"", "3.0", "-3", "1e3", "null", "1234567890123456"] {
            let frame = format!(r#"{{"number":{number},"text":"x"}}"#);
            let mut template = DeltaTemplate::default();
            let number: &RawValue = serde_json::from_str(&frame[10..10 + number.len()]).expect("JSON");
            let text = &frame[frame.len() - 3..frame.len() - 2];
            template.learn(frame.as_bytes(), ChangingValues { text, number: Some(number), padding: None });
            assert_eq!(read(&mut template, &frame), None, "{frame}");
        }
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_a_parser_reads_it(
            number in 0..10_u64.pow(15),
            text in "(\\\\(n|t|\"|\\\\|u[0-9a-e]{4})|[ -~éß€😀]){0,12}",
            pad in "[ -~]{0,6}",
        ) {
            let text = text.replace('"', "'");
            let mut template = learned(r#"{"number":1,"text":"x","pad":"p"}"#);
            let frame = format!(r#"{{"number":{number},"text":"{text}","pad":"{}"}}"#, pad.replace(['"', '\\'], ""));
            if let Some((read, counted)) = read(&mut template, &frame) {
                let parsed: serde_json::Value = serde_json::from_str(&frame).expect("JSON");
                prop_assert_eq!(parsed["text"].as_str(), Some(read.as_str()));
                prop_assert_eq!(parsed["number"].as_u64(), counted);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(frame in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut template = learned(r#"{"number":1,"text":"x"}"#);
            let _ = template.read(&frame);
            let whole = [br#"{"number":"#.as_slice(), &frame].concat();
            let _ = template.read(&whole);
        }
    }
}
