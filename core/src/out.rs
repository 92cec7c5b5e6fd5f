//! Where an exchange writes: a head and a growing body. Written once, straight into the buffer that goes out.
//!
//! Not here: sockets and back-pressure. Who drains the buffer, and when, is the server's matter.

use std::borrow::Cow;
use std::io;

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::sse::separators;

/// Status and headers of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The HTTP status. 0 until it is set, then taken as 200.
    pub status: u16,
    /// Headers in order, names in lower case.
    pub headers: Vec<(Cow<'static, str>, String)>,
}

impl Head {
    /// Sets a header, in the place of an older one of that name.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
    }

    /// A header's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An answer being written.
#[derive(Debug, Default)]
pub struct Out {
    /// Status and headers: they count until the first byte of the body went out.
    pub head: Head,
    /// What is written and not yet sent.
    pub body: BytesMut,
}

impl Out {
    /// An empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the status.
    pub fn status(&mut self, status: u16) {
        self.head.status = status;
    }

    /// Sets a header.
    pub fn header(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.head.set(name, value);
    }

    /// Writes an answer that is one JSON value, and says so in the head unless that says something else already.
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        if self.head.get("content-type").is_none() {
            self.header("content-type", "application/json");
        }
        self.write_json(value);
    }

    /// Writes an event-stream frame whose data is one JSON value, with or without an `event:` line.
    pub fn frame<T: Serialize + ?Sized>(&mut self, event: Option<&str>, data: &T) {
        if let Some(event) = event {
            self.body.put_slice(b"event: ");
            self.body.put_slice(event.as_bytes());
            self.body.put_slice(b"\n");
        }
        self.body.put_slice(b"data: ");
        self.write_json(data);
        self.body.put_slice(b"\n\n");
    }

    /// Writes a comment frame: what keeps a quiet stream alive.
    pub fn comment(&mut self, text: &str) {
        self.body.put_slice(b": ");
        self.body.put_slice(text.as_bytes());
        self.body.put_slice(b"\n\n");
    }

    /// Writes bytes as they are.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        self.body.put_slice(bytes);
    }

    /// Writes a whole number.
    pub fn number(&mut self, number: u64) {
        let mut digits = [0_u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            // A remainder of ten fits a byte.
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.body.put_slice(&digits[at..]);
    }

    /// Writes a JSON value in the middle of what is written by hand. On one line: JSON kept from elsewhere may have
    /// line ends between its tokens, and they would end a frame. Separators that only some take for line ends are
    /// escaped: clients that split a stream by every line end of Unicode would see torn frames, or forged ones.
    pub fn write_json<T: Serialize + ?Sized>(&mut self, value: &T) {
        let start = self.body.len();
        let written = serde_json::to_writer(Writer(&mut self.body), value);
        debug_assert!(written.is_ok(), "wire types serialise");
        let mut rest = &mut self.body[start..];
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            rest[at] = b' ';
            rest = &mut rest[at + 1..];
        }
        separators::escape_from(&mut self.body, start);
    }
}

/// A buffer that grows as it is written to.
struct Writer<'a>(&'a mut BytesMut);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn no_separator_of_a_text_stands_in_a_frame_as_it_is() {
        let mut out = Out::new();
        out.frame(Some("message"), &"a\u{2028}data: [DONE]\u{85}");
        assert_eq!(out.body, b"event: message\ndata: \"a\\u2028data: [DONE]\\u0085\"\n\n"[..]);
    }

    #[test]
    fn json_that_was_kept_with_line_ends_does_not_end_a_frame() {
        let mut out = Out::new();
        out.frame(None, &Json::parse("{\n  \"a\": \"b\\n\",\r\n\n\"c\": 1\n}").expect("JSON"));
        assert_eq!(out.body, b"data: {   \"a\": \"b\\n\",   \"c\": 1 }\n\n"[..]);
    }
}
