//! Parsing one line of an event stream. Splitting a stream into lines is up to the decoder.

use std::time::Duration;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line without its line end. Values are suffixes of the line; the decoder relies on that.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// An empty line, which ends the event.
    Blank,
    /// A line that starts with a colon, usually a keep-alive.
    Comment,
    Data(&'a [u8]),
    Event(&'a str),
    Id(&'a str),
    Retry(Duration),
    /// A field `error`. The standard does not know it; some servers end a stream that fails with it.
    Error(&'a [u8]),
    /// An unknown field, or a field with an invalid value.
    Ignored,
}

impl<'a> Line<'a> {
    /// Parses a line. `first` is true for the first line of the stream, which may have a byte order mark.
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
            b"error" => Line::Error(value),
            _ => Line::Ignored,
        }
    }
}

/// Parses decimal digits. `str::parse` would also accept a sign, which the standard does not allow.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = str::from_utf8(value).ok()?;
    digits.parse().ok().map(Duration::from_millis)
}
