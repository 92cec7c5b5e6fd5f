//! Arguments of a call while they arrive: the part that may be sent, so that all pieces joined are a JSON object,
//! whatever the agent sends (docs/protocols/anthropic-messages.md#arguments).
//!
//! A small parser follows the text byte by byte. Text that cannot begin an object is not sent, and neither is the last
//! brace. At the end the object is completed; if the result differs from the agent's text, that text is added as a
//! field.

use interlingua_core::event::{Event, Span};
use interlingua_core::run::Slot;
use interlingua_core::{Json, Step};
use serde_json::value::RawValue;

/// The field with arguments that are no JSON object.
pub(crate) const ARGUMENTS: &str = "_arguments";
/// Deeper values are not followed: clients do not parse them.
const MAX_DEPTH: usize = 100;

/// The arguments of a call that is sent while it grows.
#[derive(Debug, Default)]
pub(super) struct CallStream {
    text: ArgumentStream,
    version: u32,
    /// So much of that version was sent, in bytes.
    sent: u32,
}

impl CallStream {
    /// The text that a step adds.
    #[inline]
    pub(super) fn extend<'a>(&mut self, step: &Step<'a>, slot: &'a Slot) -> &'a str {
        match step.event {
            Event::ContentDelta { span, .. } if span.version == self.version => {
                let piece = self.text.push(step.delta());
                self.sent += u32::try_from(piece.len()).unwrap_or(u32::MAX);
                piece
            }
            Event::ContentDelta { span, .. } => self.replace(Span { start: 0, ..span }, slot),
            Event::ContentReplaced { version, .. } => {
                let end = u32::try_from(step.delta().len()).unwrap_or(u32::MAX);
                self.replace(Span { version, start: 0, end }, slot)
            }
            _ => "",
        }
    }

    /// Goes on with another version of the text, if that begins with what was sent.
    #[cold]
    fn replace<'a>(&mut self, now: Span, slot: &'a Slot) -> &'a str {
        let sent = slot.span(Span { version: self.version, start: 0, end: self.sent });
        if !slot.span(now).starts_with(sent) {
            return "";
        }
        let mut text = ArgumentStream::default();
        let all = text.push(slot.span(now));
        let more = all.get(sent.len()..).unwrap_or("");
        *self = Self { text, version: now.version, sent: u32::try_from(all.len()).unwrap_or(u32::MAX) };
        more
    }

    /// The rest that completes the object, once the arguments are final.
    pub(super) fn finish(&mut self, slot: &Slot) -> String {
        let end = u32::try_from(slot.text().len()).unwrap_or(u32::MAX);
        // The agent may have taken back what was sent.
        let is_current = slot.span(Span { version: self.version, start: 0, end }) == slot.text();
        self.text.finish(slot.text(), is_current)
    }
}

/// The parser.
#[derive(Debug, Default)]
struct ArgumentStream {
    state: ScanState,
    /// The open containers: true for an object.
    open: Vec<bool>,
    /// The sent part of the object has a field.
    has_fields: bool,
    /// The rest does not continue an object.
    is_broken: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Before the object.
    #[default]
    Start,
    /// Behind `{`.
    KeyOrEnd,
    /// Behind a comma in an object.
    Key,
    InKey(Text),
    Colon,
    Value,
    /// Behind `[`.
    ValueOrEnd,
    InText(Text),
    Number(Number),
    /// Within `true`, `false` or `null`: the missing characters.
    Word(&'static [u8]),
    AfterValue,
    /// Behind the object.
    Done,
}

/// Where in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    Escape,
    /// Within `\uXXXX`: the number of missing digits.
    Hex(u8),
}

/// Where in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl ArgumentStream {
    /// The part of a piece that can be sent now.
    fn push<'t>(&mut self, piece: &'t str) -> &'t str {
        if self.is_broken {
            return "";
        }
        let mut end = piece.len();
        for (place, byte) in piece.bytes().enumerate() {
            let is_over = self.state == ScanState::Done;
            if !self.advance(byte) {
                self.is_broken = true;
                end = end.min(place);
                break;
            }
            // The last brace, and white space after it, wait for the end.
            if is_over || self.state == ScanState::Done {
                end = end.min(place);
            }
        }
        &piece[..end]
    }

    /// The rest that completes the object. `whole`: the agent's complete text; `is_current`: it equals the pushed text.
    fn finish(&mut self, whole: &str, is_current: bool) -> String {
        if is_current && !self.is_broken && self.state == ScanState::Done {
            return "}".to_owned();
        }
        if self.state == ScanState::Start && whole.trim().is_empty() {
            return "{}".to_owned();
        }

        let mut rest = String::new();
        self.close_value(&mut rest);
        while self.open.len() > 1 {
            rest.push(if self.open.pop() == Some(true) { '}' } else { ']' });
        }
        let field = format!("\"{ARGUMENTS}\":{}", Json::from_serialize(whole).text());
        let separator = match self.state {
            ScanState::Start => "{",
            // A comma was sent, or nothing yet.
            ScanState::Key if rest.is_empty() => "",
            _ if !self.has_fields => "",
            _ => ",",
        };
        format!("{rest}{separator}{field}}}")
    }

    /// Completes the value that is under way, up to where a container can be closed.
    fn close_value(&mut self, rest: &mut String) {
        let is_nested = self.open.len() > 1;
        match self.state {
            ScanState::Key if is_nested => rest.push_str("\"\":null"),
            ScanState::Start
            | ScanState::KeyOrEnd
            | ScanState::Key
            | ScanState::ValueOrEnd
            | ScanState::AfterValue
            | ScanState::Done => {}
            ScanState::InKey(text) => {
                close_text(text, rest);
                rest.push_str(":null");
            }
            ScanState::Colon => rest.push_str(":null"),
            ScanState::Value => rest.push_str("null"),
            ScanState::InText(text) => close_text(text, rest),
            ScanState::Number(Number::Minus | Number::Point | Number::Exponent | Number::ExponentSign) => {
                rest.push('0')
            }
            ScanState::Number(_) => {}
            ScanState::Word(left) => rest.push_str(&String::from_utf8_lossy(left)),
        }
    }

    /// Takes one byte. False: it cannot stand here.
    fn advance(&mut self, byte: u8) -> bool {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let next = match (self.state, byte) {
            (ScanState::InKey(text), _) => match text.advance(byte) {
                Some(Some(text)) => ScanState::InKey(text),
                Some(None) => ScanState::Colon,
                None => return false,
            },
            (ScanState::InText(text), _) => match text.advance(byte) {
                Some(Some(text)) => ScanState::InText(text),
                Some(None) => ScanState::AfterValue,
                None => return false,
            },
            (ScanState::Word(left), _) => match left.split_first() {
                Some((first, [])) if *first == byte => ScanState::AfterValue,
                Some((first, left)) if *first == byte => ScanState::Word(left),
                _ => return false,
            },
            (ScanState::Number(number), _) => match number.advance(byte) {
                Some(number) => ScanState::Number(number),
                None if number.is_whole() => {
                    self.state = ScanState::AfterValue;
                    return self.advance(byte);
                }
                None => return false,
            },
            (state, _) if is_space => state,
            (ScanState::Start, b'{') => return self.begin(true),
            (ScanState::KeyOrEnd | ScanState::Key, b'"') => {
                self.has_fields = true;
                ScanState::InKey(Text::Plain)
            }
            (ScanState::KeyOrEnd, b'}') | (ScanState::ValueOrEnd, b']') => return self.end(),
            (ScanState::Colon, b':') => ScanState::Value,
            (ScanState::Value | ScanState::ValueOrEnd, _) => return self.value(byte),
            (ScanState::AfterValue, b',') => {
                if self.open.last() == Some(&true) {
                    ScanState::Key
                } else {
                    ScanState::Value
                }
            }
            (ScanState::AfterValue, b'}') if self.open.last() == Some(&true) => return self.end(),
            (ScanState::AfterValue, b']') if self.open.last() == Some(&false) => return self.end(),
            _ => return false,
        };
        self.state = next;
        true
    }

    fn value(&mut self, byte: u8) -> bool {
        self.state = match byte {
            b'{' => return self.begin(true),
            b'[' => return self.begin(false),
            b'"' => ScanState::InText(Text::Plain),
            b'-' => ScanState::Number(Number::Minus),
            b'0' => ScanState::Number(Number::Zero),
            b'1'..=b'9' => ScanState::Number(Number::Digits),
            b't' => ScanState::Word(b"rue"),
            b'f' => ScanState::Word(b"alse"),
            b'n' => ScanState::Word(b"ull"),
            _ => return false,
        };
        true
    }

    fn begin(&mut self, is_object: bool) -> bool {
        if self.open.len() >= MAX_DEPTH {
            return false;
        }
        self.open.push(is_object);
        self.state = if is_object { ScanState::KeyOrEnd } else { ScanState::ValueOrEnd };
        true
    }

    fn end(&mut self) -> bool {
        self.open.pop();
        self.state = if self.open.is_empty() { ScanState::Done } else { ScanState::AfterValue };
        true
    }
}

impl Text {
    /// The state after a byte. `Some(None)`: the string ends with it. `None`: the byte is not allowed here.
    fn advance(self, byte: u8) -> Option<Option<Self>> {
        Some(match (self, byte) {
            (Self::Plain, b'"') => None,
            (Self::Plain, b'\\') => Some(Self::Escape),
            (Self::Plain, 0..=0x1f) => return None,
            (Self::Plain, _) => Some(Self::Plain),
            (Self::Escape, b'u') => Some(Self::Hex(4)),
            (Self::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Some(Self::Plain),
            (Self::Hex(1), byte) if byte.is_ascii_hexdigit() => Some(Self::Plain),
            (Self::Hex(left), byte) if byte.is_ascii_hexdigit() => Some(Self::Hex(left - 1)),
            (Self::Escape | Self::Hex(_), _) => return None,
        })
    }
}

fn close_text(text: Text, rest: &mut String) {
    match text {
        Text::Plain => {}
        Text::Escape => rest.push('\\'),
        Text::Hex(left) => rest.extend(std::iter::repeat_n('0', left.into())),
    }
    rest.push('"');
}

impl Number {
    fn advance(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Self::ExponentDigits,
            _ => return None,
        })
    }

    const fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits)
    }
}

/// Complete arguments as an object.
pub(super) fn whole(arguments: &str) -> Json {
    let mut stream = ArgumentStream::default();
    let sent = stream.push(arguments);
    let is_object = !stream.is_broken && stream.state == ScanState::Done;
    let object = is_object.then(|| serde_json::from_str::<&RawValue>(arguments).ok()).flatten();
    match object {
        Some(object) => Json::from_raw(object),
        None => {
            let rest = stream.finish(arguments, true);
            Json::parse(&format!("{sent}{rest}")).unwrap_or_else(Json::null)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn joined(pieces: &[&str]) -> String {
        let mut stream = ArgumentStream::default();
        let mut sent: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        sent.push_str(&stream.finish(&pieces.concat(), true));
        sent
    }

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn an_object_is_sent_unchanged() {
        for text in [
            "{}",
            " {\"a\" : [1, -0.5e+3, true,false ,null, \"x\\u00e4\\n\"], \"b\":{\"c\":[]}}",
            "{\"a\":{}}",
            "{\"a\":0}",
        ] {
            assert_eq!(object(&joined(&[text])), object(text), "{text}");
            let bytes: Vec<&str> = text.split("").collect();
            assert_eq!(joined(&bytes), joined(&[text]), "{text}");
        }
        assert_eq!(joined(&["{\"a\":1} \n"]), "{\"a\":1}");
        assert_eq!(joined(&[""]), "{}");
        assert_eq!(joined(&[" ", "\n"]).trim(), "{}");
    }

    #[test]
    fn the_last_brace_waits_for_the_end() {
        let mut stream = ArgumentStream::default();
        assert_eq!(stream.push("{\"a\":{}"), "{\"a\":{}");
        assert_eq!(stream.push("} "), "");
        assert_eq!(stream.finish("{\"a\":{}} ", true), "}");
    }

    #[test]
    fn arguments_that_are_no_object_become_text() {
        for text in [
            "not JSON",
            "[1]",
            "\"text\"",
            "{\"to\": \"a@b",
            "{\"to\": \"a\\",
            "{\"to\": \"a\\u00",
            "{\"to\":",
            "{\"to\"",
            "{\"to",
            "{\"a\":[{\"b\":tr",
            "{\"a\":[1,",
            "{\"a\":{\"b\":1,",
            "{\"a\":-",
            "{\"a\":1.",
            "{\"a\":1e",
            "{\"a\":1,",
            "{,}",
            "{\"a\":1} and more",
            "{} x",
            "{\"a\":1}}",
            "{'a':1}",
            "{\"a\":\"\u{1}\"}",
            "{\"ä\":\"ö",
        ] {
            let read = object(&joined(&[text]));
            assert_eq!(read.get(ARGUMENTS), Some(&json!(text)), "{text}: {read:?}");
            assert_eq!(whole(text).decode::<Map<String, Value>>(), Some(read), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(object(&joined(&[&deep])).get(ARGUMENTS), Some(&json!(deep)));
    }

    proptest! {
        #[test]
        fn pieces_joined_are_an_object(text in "[\\{\\}\\[\\]\",:a0.e+\\\\tnu -]{0,40}", cut in 0usize..40) {
            let cut = cut.min(text.len());
            let all = joined(&[&text[..cut], &text[cut..]]);
            let read = object(&all);
            let is_object = serde_json::from_str::<Map<String, Value>>(&text).is_ok();
            prop_assert_eq!(read.contains_key(ARGUMENTS), !is_object && !text.trim().is_empty());
            prop_assert_eq!(joined(&[&text]), all);
        }
    }
}
