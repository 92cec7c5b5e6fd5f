//! Writing SSE frames: stateless functions that append to the output buffer.
//!
//! Nothing written here can break out of its frame: line breaks in data become further `data` lines; line breaks and
//! NUL in names and ids are dropped. The Unicode line separators count as line breaks, because some readers take them
//! for such; in JSON they are escaped.

use std::{io, time::Duration};

use bytes::BytesMut;
use serde::Serialize;

use super::separators;

/// Writes an event whose data is `value` as JSON, in one `data` line.
///
/// Line breaks between tokens, which only a `RawValue` can contain, become spaces.
///
/// # Errors
///
/// The serialization errors of `value`. `out` is then unchanged.
pub fn json<T: Serialize + ?Sized>(
    out: &mut BytesMut,
    event: Option<&str>,
    id: Option<&str>,
    value: &T,
) -> serde_json::Result<()> {
    let from = begin(out, event, id, |out| serde_json::to_writer(out, value))?;

    // Line breaks in JSON strings are escaped, so any other line break is whitespace and can be a space.
    let mut rest = &mut out[from..];
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        rest[at] = b' ';
        rest = &mut rest[at + 1..];
    }

    separators::escape_from(out, from);
    end_frame(out);
    Ok(())
}

/// Writes an event whose data is what `write` writes. Line breaks in it become further `data` lines. For data that is
/// not JSON: a text in JSON may contain a line separator, which [`json`] escapes and this does not.
///
/// # Errors
///
/// The errors of `write`. `out` is then unchanged.
pub fn frame<E>(
    out: &mut BytesMut,
    event: Option<&str>,
    id: Option<&str>,
    write: impl FnOnce(&mut DataWriter<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let from = begin(out, event, id, |mut out| write(&mut out))?;

    let data = &out[from..];
    if memchr::memchr2(b'\n', b'\r', data).is_some() || separators::find(data).is_some() {
        let data = out[from..].to_vec();
        out.truncate(from);
        lines(out, b"\ndata: ", &data);
    }

    end_frame(out);
    Ok(())
}

/// Writes an event whose data is `text`, with one `data` line per line. Readers join the lines with LF, whatever the
/// original line breaks. For data that is not JSON, as [`frame`].
pub fn text(out: &mut BytesMut, event: Option<&str>, id: Option<&str>, text: &str) {
    begin_frame(out, event, id);
    lines(out, b"\ndata: ", text.as_bytes());
    end_frame(out);
}

/// Writes a comment, the usual keep-alive: readers skip it, and the server notices disconnected clients.
pub fn comment(out: &mut BytesMut, text: &str) {
    out.extend_from_slice(b": ");
    lines(out, b"\n: ", text.as_bytes());
    end_frame(out);
}

/// Tells the client how long to wait before it reconnects, in whole milliseconds.
pub fn retry(out: &mut BytesMut, time: Duration) {
    out.extend_from_slice(format!("retry: {}\n\n", time.as_millis()).as_bytes());
}

/// Writes the data of a frame; see [`frame`].
#[derive(Debug)]
pub struct DataWriter<'a> {
    out: &'a mut BytesMut,
}

impl io::Write for DataWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a frame without its end and returns the start of its data.
#[inline]
fn begin<E>(
    out: &mut BytesMut,
    event: Option<&str>,
    id: Option<&str>,
    write: impl FnOnce(DataWriter<'_>) -> Result<(), E>,
) -> Result<usize, E> {
    let before = out.len();
    begin_frame(out, event, id);
    let from = out.len();

    if let Err(error) = write(DataWriter { out }) {
        out.truncate(before);
        return Err(error);
    }
    Ok(from)
}

/// Begins a frame that the caller writes piece by piece, as hot paths do: the data follows, on one line, then
/// [`end_frame`].
#[inline]
pub fn begin_frame(out: &mut BytesMut, event: Option<&str>, id: Option<&str>) {
    if let Some(event) = event {
        field(out, b"event: ", event);
    }
    if let Some(id) = id {
        field(out, b"id: ", id);
    }
    out.extend_from_slice(b"data: ");
}

/// Ends a frame.
#[inline]
pub fn end_frame(out: &mut BytesMut) {
    out.extend_from_slice(b"\n\n");
}

/// Writes a field without line breaks and NUL. Names and ids may come from outside: a line break would start another
/// field, and clients ignore an id with a NUL.
fn field(out: &mut BytesMut, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    let mut value = value.as_bytes();
    while let Some(at) = memchr::memchr3(b'\n', b'\r', 0, value) {
        replace_line_separators(out, &value[..at], &[]);
        value = &value[at + 1..];
    }
    replace_line_separators(out, value, &[]);
    out.extend_from_slice(b"\n");
}

/// Writes `text` with `line_break` between its lines, leaving the last line open.
fn lines(out: &mut BytesMut, line_break: &[u8], mut text: &[u8]) {
    while let Some(at) = memchr::memchr2(b'\n', b'\r', text) {
        replace_line_separators(out, &text[..at], line_break);
        out.extend_from_slice(line_break);
        text = match &text[at..] {
            [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
            [] => &[],
        };
    }
    replace_line_separators(out, text, line_break);
}

/// Writes a line, with `replacement` for each of its Unicode line separators. Empty: they are removed.
#[inline]
fn replace_line_separators(out: &mut BytesMut, mut line: &[u8], replacement: &[u8]) {
    while let Some((at, len)) = separators::find(line) {
        out.extend_from_slice(&line[..at]);
        out.extend_from_slice(replacement);
        line = &line[at + len..];
    }
    out.extend_from_slice(line);
}
