//! One line of an event stream and what it says. Where lines end and what becomes of them is the decoder's matter.

use std::time::Duration;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line without its end. Values are suffixes of the line they were parsed from; the decoder relies on it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Nothing: the event is over.
    Blank,
    /// A line beginning with a colon, nearly always a heartbeat.
    Comment,
    Data(&'a [u8]),
    Event(&'a str),
    Id(&'a str),
    Retry(Duration),
    /// A field no one knows, or one whose value is not allowed.
    Ignored,
}

impl<'a> Line<'a> {
    /// Parses a line. `first` says whether it is the first of the stream, which may carry a byte order mark.
    #[inline]
    pub(super) fn parse(line: &'a [u8], first: bool) -> Self {
        let line = match first {
            true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            return Line::Blank;
        }
        let (name, value): (&[u8], &[u8]) = match memchr::memchr(b':', line) {
            Some(0) => return Line::Comment,
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => Line::Data(value),
            b"event" => str::from_utf8(value).map_or(Line::Ignored, Line::Event),
            b"id" if value.contains(&0) => Line::Ignored,
            b"id" => str::from_utf8(value).map_or(Line::Ignored, Line::Id),
            b"retry" => milliseconds(value).map_or(Line::Ignored, Line::Retry),
            _ => Line::Ignored,
        }
    }
}

/// Digits and nothing else; a sign, which `parse` would take, is not allowed.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = str::from_utf8(value).ok()?;
    digits.parse().ok().map(Duration::from_millis)
}
