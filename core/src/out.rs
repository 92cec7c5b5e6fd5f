//! The response an exchange writes: a head and a growing body, serialized directly into the output buffer.
//!
//! Not here: sockets and backpressure. The server drains the buffer.

use std::borrow::Cow;
use std::io;

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::duration::seconds_rounded_up;
use crate::fault::Fault;
use crate::sse::{self, separators};

/// Status and headers of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The HTTP status. 0 means unset and is sent as 200.
    pub status: u16,
    /// Headers in order, names in lower case.
    pub headers: Vec<(Cow<'static, str>, String)>,
}

impl Head {
    /// Sets a header, replacing one of the same name.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
    }

    /// Sets the headers of an event stream.
    pub fn set_event_stream(&mut self) {
        self.set_stream("text/event-stream; charset=utf-8");
    }

    /// Sets the headers of a stream of this media type.
    pub fn set_stream(&mut self, media_type: &'static str) {
        self.set("content-type", media_type);
        self.set("cache-control", "no-cache");
        // Proxies must not buffer the stream.
        self.set("x-accel-buffering", "no");
    }

    /// The value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A response in progress.
#[derive(Debug, Default)]
pub struct Out {
    /// Status and headers. Changes have no effect after the first byte of the body was sent.
    pub head: Head,
    /// Bytes written but not yet sent.
    pub body: BytesMut,
    /// Trailers, in order, names in lower case. Sent after the body over HTTP/2, and only if the response ends as the
    /// exchange intends; dropped over HTTP/1.1. If the body is empty, they are part of the head. Written by `reply`,
    /// `fail` and `interrupt`, and by a call that ends a stream.
    pub trailers: Vec<(Cow<'static, str>, String)>,
}

impl Out {
    /// An empty response.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the HTTP status.
    pub fn status(&mut self, status: u16) {
        self.head.status = status;
    }

    /// Sets a header, replacing one of the same name.
    pub fn header(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.head.set(name, value);
    }

    /// Sets a trailer, replacing one of the same name.
    pub fn trailer(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.trailers.retain(|(known, _)| *known != name);
        self.trailers.push((name, value.into()));
    }

    /// Sets the headers that a fault has in every protocol: `allow`, and `retry-after` in seconds. Headers that are
    /// already set stay.
    pub fn fault_headers(&mut self, fault: &Fault) {
        if !fault.allow.is_empty() && self.head.get("allow").is_none() {
            self.header("allow", fault.allow.join(", "));
        }
        if let (Some(pause), None) = (fault.retry_after, self.head.get("retry-after")) {
            self.header("retry-after", seconds_rounded_up(pause).max(1).to_string());
        }
    }

    /// Writes a JSON response body and sets `content-type`, unless that header is already set.
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        if self.head.get("content-type").is_none() {
            self.header("content-type", "application/json");
        }
        self.write_json(value);
    }

    /// Writes an SSE frame whose data is one JSON value, with an optional `event:` line.
    pub fn frame<T: Serialize + ?Sized>(&mut self, event: Option<&str>, data: &T) {
        let written = sse::encode::json(&mut self.body, event, None, data);
        debug_assert!(written.is_ok(), "wire types serialize");
    }

    /// Writes an SSE frame whose data is a text, such as `[DONE]`.
    pub fn text_frame(&mut self, text: &str) {
        sse::encode::text(&mut self.body, None, None, text);
    }

    /// Begins an SSE frame that is written piece by piece, as hot paths do: its data follows, on one line, then
    /// [`Self::end_frame`].
    #[inline]
    pub fn begin_frame(&mut self, event: Option<&str>, id: Option<u64>) {
        if let Some(id) = id {
            self.body.put_slice(b"id: ");
            self.number(id);
            self.body.put_slice(b"\n");
        }
        sse::encode::begin_frame(&mut self.body, event, None);
    }

    /// Ends an SSE frame.
    #[inline]
    pub fn end_frame(&mut self) {
        sse::encode::end_frame(&mut self.body);
    }

    /// Writes an SSE comment, which keeps a quiet stream alive.
    pub fn comment(&mut self, text: &str) {
        sse::encode::comment(&mut self.body, text);
    }

    /// Appends bytes to the body without framing them.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        self.body.put_slice(bytes);
    }

    /// Writes a decimal integer.
    pub fn number(&mut self, number: u64) {
        let mut digits = [0_u8; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            // The remainder is at most nine.
            digits[start] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }

        self.body.put_slice(&digits[start..]);
    }

    /// Writes a JSON value on one line. Opaque JSON may have line breaks between tokens, which would end an SSE frame.
    /// Unicode line separators are escaped as well: clients that split a stream at every Unicode line break would see
    /// truncated or forged frames.
    pub fn write_json<T: Serialize + ?Sized>(&mut self, value: &T) {
        let start = self.body.len();
        let written = serde_json::to_writer(BatchWriter(&mut self.body), value);
        debug_assert!(written.is_ok(), "wire types serialize");

        let mut rest = &mut self.body[start..];
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            rest[at] = b' ';
            rest = &mut rest[at + 1..];
        }

        separators::escape_from(&mut self.body, start);
    }
}

/// `io::Write` for a growing buffer.
struct BatchWriter<'a>(&'a mut BytesMut);

impl io::Write for BatchWriter<'_> {
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
    fn unicode_line_separators_are_escaped_in_frames() {
        let mut out = Out::new();
        out.frame(Some("message"), &"a\u{2028}data: [DONE]\u{85}");
        assert_eq!(out.body, b"event: message\ndata: \"a\\u2028data: [DONE]\\u0085\"\n\n"[..]);
    }

    #[test]
    fn line_breaks_in_opaque_json_do_not_end_a_frame() {
        let mut out = Out::new();
        out.frame(None, &Json::parse("{\n  \"a\": \"b\\n\",\r\n\n\"c\": 1\n}").expect("JSON"));
        assert_eq!(out.body, b"data: {   \"a\": \"b\\n\",   \"c\": 1 }\n\n"[..]);
    }
}
