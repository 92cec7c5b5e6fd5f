//! The decoder: byte chunks in, frames out, in linear time and bounded memory.
//!
//! An event that lies in one chunk and has one `data` line, as nearly all do, is borrowed from the chunk. Only an event
//! that continues in the next chunk, or whose data must be joined, is copied once into the decoder. No byte is scanned
//! for line ends twice, however the stream is split into chunks.

use std::{ops::Range, time::Duration};

use serde::de::IgnoredAny;

use super::{Frame, line::Line};

/// Buffers up to this capacity are reused for later events. Larger ones are freed, so that a stream that once had an
/// image does not keep its megabytes while it is idle.
const MAX_KEPT_CAPACITY: usize = 1024;

/// The name that an event has whose data came in a field `error`.
const ERROR_EVENT: &str = "error";

/// Why a stream cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// An event, or a single line, exceeds the limit.
    #[error("an event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// The decoder's limit in bytes.
        limit: usize,
    },
}

/// Decodes an event stream from chunks split anywhere.
///
/// ```
/// # use interlingua_core::sse::Decoder;
/// let mut decoder = Decoder::new(1 << 20);
/// let mut received = Vec::new();
/// for chunk in ["data: hel", "lo\n\nevent: end\nda", "ta: {}\n\n"] {
///     let mut input = chunk.as_bytes();
///     while let Some(frame) = decoder.decode(&mut input)? {
///         received.push(frame.data.to_vec());
///     }
/// }
/// assert_eq!(received, [b"hello".as_slice(), b"{}"]);
/// # Ok::<(), interlingua_core::sse::DecodeError>(())
/// ```
///
/// A new decoder owns no heap memory. Neither does one that has seen only complete events without ids.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    state: LineState,
    /// The last chunk ended in CR, so a LF at the start of the next one belongs to it.
    after_carriage_return: bool,
    buffered: BufferedEvent,
    last_event_id: String,
    retry: Option<Duration>,
    lines: u64,
    comments: u64,
    #[cfg(test)]
    scanned: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// Between two events.
    Between,
    /// `buffered` holds the beginning of an event or of a line.
    Buffering,
    /// `buffered` holds the event that was returned last.
    Delivered,
    Failed,
}

impl Decoder {
    /// A decoder that accepts events of up to `limit` bytes.
    ///
    /// The limit applies to the lines of an event without their line ends. Comments and unknown fields do not add up,
    /// but none may be longer than what is left of the limit. The split into chunks makes no difference.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: LineState::Between,
            after_carriage_return: false,
            buffered: BufferedEvent::default(),
            last_event_id: String::new(),
            retry: None,
            lines: 0,
            comments: 0,
            #[cfg(test)]
            scanned: 0,
        }
    }

    /// Decodes the next frame from the front of `input` and advances `input` past it.
    ///
    /// `None` means that `input` is used up: continue with the next chunk. Events without data are not frames, but
    /// count as activity, see [`lines`](Self::lines).
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooLarge`] as soon as an event exceeds the limit; every later call fails the same way.
    pub fn decode<'d, 'c: 'd>(&'d mut self, input: &mut &'c [u8]) -> Result<Option<Frame<'d>>, DecodeError> {
        match self.state {
            LineState::Between | LineState::Buffering => {}
            LineState::Delivered => self.clear_buffer(),
            LineState::Failed => return Err(DecodeError::TooLarge { limit: self.limit }),
        }

        if self.after_carriage_return && !input.is_empty() {
            self.after_carriage_return = false;
            *input = input.strip_prefix(b"\n").unwrap_or(input);
        }

        loop {
            if self.state == LineState::Buffering {
                if !self.continue_buffered(input)? {
                    return Ok(None);
                }
                if self.buffered.data.is_some() {
                    self.state = LineState::Delivered;
                    return Ok(Some(self.buffered.frame()));
                }
                self.clear_buffer();
            } else if let Some(frame) = self.scan(input)? {
                return Ok(Some(frame));
            }
            if input.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Returns what the end of the body left incomplete. To be called once, after the last [`decode`](Self::decode).
    pub fn finish(&mut self) -> IncompleteEvent<'_> {
        if self.state != LineState::Buffering {
            return IncompleteEvent::Nothing;
        }

        self.state = LineState::Delivered;
        let buffered = &mut self.buffered;
        let line = &buffered.bytes[buffered.line_from..];
        let cut = match Line::parse(line, self.lines == 0) {
            Line::Blank | Line::Comment => false,
            Line::Data(value) => {
                buffered.join(value.len());
                true
            }
            Line::Error(value) if buffered.data.is_none() => {
                let value = value.len();
                ERROR_EVENT.clone_into(&mut buffered.event);
                buffered.join(value);
                true
            }
            // A partial name or number would be wrong, so it is dropped.
            Line::Event(_) | Line::Id(_) | Line::Retry(_) | Line::Error(_) | Line::Ignored => true,
        };

        match cut {
            true => IncompleteEvent::Truncated(self.buffered.frame()),
            false if self.buffered.data.is_some() => IncompleteEvent::Unterminated(self.buffered.frame()),
            false => IncompleteEvent::Nothing,
        }
    }

    /// The stream's last event id, as sent in `Last-Event-ID`, or empty. Set by events that are complete.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// The reconnection delay that the server last asked for.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Number of complete lines so far. Comments and events without data count too, so an idle timer that must not be
    /// reset by single bytes can watch this.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Number of comment lines so far.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Heap memory in use, in bytes. At most the limit for data, the same again for the event's name and id, and the
    /// same again for the last id. At most a few KiB between events.
    pub fn memory(&self) -> usize {
        self.buffered.memory() + self.last_event_id.capacity()
    }

    /// Decodes an event that begins in this chunk. Returns `None` if the chunk is used up or the event had to be
    /// buffered; `input` and `state` then determine how to continue.
    #[inline]
    fn scan<'c>(&mut self, input: &mut &'c [u8]) -> Result<Option<Frame<'c>>, DecodeError> {
        let mut rest = *input;
        let mut open = OpenEvent::default();
        while let Some(length) = self.find_line_end(rest) {
            let line = &rest[..length];
            rest = self.skip_line_end(rest, length);
            self.check(open.size + length)?;

            match self.parse_line(line) {
                Line::Blank => {
                    if let Some(id) = open.id {
                        set(&mut self.last_event_id, id);
                    }
                    if let Some(data) = open.data {
                        *input = rest;
                        return Ok(Some(Frame { event: open.event, id: open.id, retry: open.retry, data }));
                    }
                    open = OpenEvent::default();
                    continue;
                }
                Line::Error(value) if open.data.is_none() => {
                    open.event = Some(ERROR_EVENT);
                    open.data = Some(value);
                }
                Line::Comment | Line::Error(_) | Line::Ignored => continue,
                Line::Data(value) if open.data.is_none() => open.data = Some(value),
                Line::Data(value) => {
                    // A second line of data: from here on the event must be joined in the buffer.
                    self.buffer(&open);
                    self.buffered.extend(line, self.limit);
                    self.buffered.join(value.len());
                    self.buffered.complete_lines += length;
                    *input = rest;
                    return Ok(None);
                }
                Line::Event(name) => open.event = (!name.is_empty()).then_some(name),
                Line::Id(id) => open.id = Some(id),
                Line::Retry(time) => {
                    open.retry = Some(time);
                    self.retry = Some(time);
                }
            }
            open.size += length;
        }

        self.check(open.size + rest.len())?;
        if open.size > 0 || !rest.is_empty() {
            self.buffer(&open);
            self.buffered.extend(rest, self.limit);
        }

        *input = &[];
        Ok(None)
    }

    /// Continues a buffered event. Returns true if it is complete; if not, `input` is used up.
    fn continue_buffered(&mut self, input: &mut &[u8]) -> Result<bool, DecodeError> {
        while let Some(length) = self.find_line_end(input) {
            self.check(self.buffered.size() + length)?;
            self.buffered.extend(&input[..length], self.limit);
            *input = self.skip_line_end(input, length);
            if self.end_buffered_line() {
                return Ok(true);
            }
        }
        self.check(self.buffered.size() + input.len())?;
        self.buffered.extend(input, self.limit);
        *input = &[];
        Ok(false)
    }

    /// Processes the line at the end of `buffered`. Returns true if it ended the event.
    fn end_buffered_line(&mut self) -> bool {
        let first = self.lines == 0;
        self.lines += 1;
        let buffered = &mut self.buffered;
        let line = &buffered.bytes[buffered.line_from..];
        let length = line.len();

        match Line::parse(line, first) {
            Line::Blank => {
                if let Some(id) = &buffered.id {
                    set(&mut self.last_event_id, id);
                }
                return true;
            }
            Line::Comment => {
                self.comments += 1;
                buffered.drop_line();
                return false;
            }
            Line::Error(value) if buffered.data.is_none() => {
                let value = value.len();
                ERROR_EVENT.clone_into(&mut buffered.event);
                buffered.join(value);
            }
            Line::Error(_) | Line::Ignored => {
                buffered.drop_line();
                return false;
            }
            Line::Data(value) => {
                let value = value.len();
                buffered.join(value);
            }
            Line::Event(name) => {
                buffered.event.clear();
                buffered.event.push_str(name);
                buffered.drop_line();
            }
            Line::Id(id) => {
                buffered.id = Some(id.to_owned());
                buffered.drop_line();
            }
            Line::Retry(time) => {
                buffered.retry = Some(time);
                self.retry = Some(time);
                buffered.drop_line();
            }
        }

        buffered.complete_lines += length;
        false
    }

    /// Parses a line that lies within the chunk, and counts it.
    #[inline]
    fn parse_line<'c>(&mut self, line: &'c [u8]) -> Line<'c> {
        let parsed = Line::parse(line, self.lines == 0);
        self.lines += 1;
        self.comments += u64::from(parsed == Line::Comment);
        parsed
    }

    /// The end of the first line of `bytes`. Every input byte passes through here exactly once.
    #[inline]
    fn find_line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = memchr::memchr2(b'\n', b'\r', bytes);
        #[cfg(test)]
        {
            self.scanned += found.map_or(bytes.len(), |length| length + 1);
        }
        found
    }

    /// The bytes after the line of `length` bytes at the front of `bytes` and its line end: CR LF, LF or CR. A CR ends
    /// the line immediately: waiting for a LF would delay the event until the next one.
    #[inline]
    fn skip_line_end<'c>(&mut self, bytes: &'c [u8], length: usize) -> &'c [u8] {
        match &bytes[length..] {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r'] => {
                self.after_carriage_return = true;
                &[]
            }
            [_, rest @ ..] => rest,
            [] => &[],
        }
    }

    /// Fails if an event of `size` bytes exceeds the limit. Called before anything is copied.
    #[inline]
    fn check(&mut self, size: usize) -> Result<(), DecodeError> {
        if size <= self.limit {
            return Ok(());
        }
        self.state = LineState::Failed;
        self.buffered = BufferedEvent::default();
        Err(DecodeError::TooLarge { limit: self.limit })
    }

    fn buffer(&mut self, open: &OpenEvent<'_>) {
        self.state = LineState::Buffering;
        let buffered = &mut self.buffered;
        buffered.event.push_str(open.event.unwrap_or_default());
        buffered.id = open.id.map(str::to_owned);
        buffered.retry = open.retry;
        buffered.complete_lines = open.size;

        if let Some(data) = open.data {
            buffered.extend(data, self.limit);
            buffered.data = Some(0..data.len());
            buffered.line_from = data.len();
        }
    }

    fn clear_buffer(&mut self) {
        self.state = LineState::Between;
        self.buffered.clear();
    }
}

/// An event within one chunk.
#[derive(Default)]
struct OpenEvent<'c> {
    event: Option<&'c str>,
    id: Option<&'c str>,
    retry: Option<Duration>,
    data: Option<&'c [u8]>,
    /// Length of the lines that count towards the limit.
    size: usize,
}

/// An event that cannot be borrowed from a chunk.
#[derive(Debug, Default)]
struct BufferedEvent {
    /// The joined data so far, possibly after its `data:`, followed by the incomplete line.
    bytes: Vec<u8>,
    data: Option<Range<usize>>,
    /// Start of the incomplete line in `bytes`: the end of the data, or 0.
    line_from: usize,
    /// Empty: it has no name.
    event: String,
    id: Option<String>,
    retry: Option<Duration>,
    /// Length of the complete lines that count towards the limit.
    complete_lines: usize,
}

impl BufferedEvent {
    fn frame(&self) -> Frame<'_> {
        Frame {
            event: Some(self.event.as_str()).filter(|name| !name.is_empty()),
            id: self.id.as_deref(),
            retry: self.retry,
            data: self.data.clone().map_or(&[], |range| &self.bytes[range]),
        }
    }

    fn size(&self) -> usize {
        self.complete_lines + self.bytes.len() - self.line_from
    }

    /// Appends to the incomplete line. Grows by doubling, but never past `limit`, which the caller has checked.
    fn extend(&mut self, more: &[u8], limit: usize) {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let capacity = self.bytes.capacity().saturating_mul(2).min(limit).max(needed);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
    }

    /// Makes the last `length` bytes, the value of a `data` line, part of the data. The first value stays in place;
    /// later values move up over their own `data:`, so each byte moves at most once.
    fn join(&mut self, length: usize) {
        let from = self.bytes.len() - length;
        match &mut self.data {
            None => self.data = Some(from..self.bytes.len()),
            Some(data) => {
                self.bytes[data.end] = b'\n';
                self.bytes.copy_within(from.., data.end + 1);
                data.end += 1 + length;
                self.bytes.truncate(data.end);
            }
        }
        self.line_from = self.bytes.len();
    }

    fn drop_line(&mut self) {
        self.bytes.truncate(self.line_from);
    }

    fn clear(&mut self) {
        let (mut bytes, mut event) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.event));
        bytes.clear();
        event.clear();

        *self = Self::default();
        if bytes.capacity() <= MAX_KEPT_CAPACITY {
            self.bytes = bytes;
        }
        if event.capacity() <= MAX_KEPT_CAPACITY {
            self.event = event;
        }
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.event.capacity() + self.id.as_ref().map_or(0, String::capacity)
    }
}

/// Like `clone_from`, but returns excess capacity: most ids have the same length as the one before.
fn set(target: &mut String, id: &str) {
    target.clear();
    target.shrink_to(MAX_KEPT_CAPACITY);
    target.push_str(id);
}

/// The incomplete event at the end of the body.
///
/// The standard discards it: an event without its blank line does not exist. But servers do omit the last blank line,
/// and the event before it is the one that ends the run. [`frame`](Self::frame) decides which parts are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteEvent<'a> {
    /// The body ended between two events.
    Nothing,
    /// An event with data that only lacks its blank line: all of its lines are complete.
    Unterminated(Frame<'a>),
    /// An event truncated inside a line. Holds its complete lines, and the received part of the last one if that is a
    /// `data` line. The data may be empty.
    Truncated(Frame<'a>),
}

impl<'a> IncompleteEvent<'a> {
    /// The event, if it is certainly complete: all lines have ended and the data is UTF-8, or the last line is
    /// truncated but the data is a JSON object. An object delimits itself: no prefix of one is an object. Anything else
    /// is the remains of a broken connection.
    pub fn frame(self) -> Option<Frame<'a>> {
        match self {
            IncompleteEvent::Nothing => None,
            IncompleteEvent::Unterminated(frame) => str::from_utf8(frame.data).is_ok().then_some(frame),
            IncompleteEvent::Truncated(frame) => is_object(frame.data).then_some(frame),
        }
    }
}

/// True if `data` is exactly one JSON object. Takes linear time and no stack, however deep the object is nested.
fn is_object(data: &[u8]) -> bool {
    data.trim_ascii_start().starts_with(b"{")
        && str::from_utf8(data).is_ok()
        && serde_json::from_slice::<IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in chunks of `size` bytes and returns the number of frames.
    fn feed(decoder: &mut Decoder, input: &[u8], size: usize) -> usize {
        let mut frames = 0;
        for mut chunk in input.chunks(size) {
            while decoder.decode(&mut chunk).expect("within the limit").is_some() {
                frames += 1;
            }
        }
        frames
    }

    #[test]
    fn every_byte_is_scanned_once_however_the_stream_is_split() {
        let large = format!("event: e\ndata: {}\n\n", "x".repeat(1 << 20));
        let tiny = "data:1\n\n".repeat(1_000_000);
        let joined = format!("{}\n", "data: ab\n: keep-alive\n".repeat(100_000));
        for (input, frames) in [(large, 1), (tiny, 1_000_000), (joined, 1)] {
            for size in [1, 1024, usize::MAX] {
                let mut decoder = Decoder::new(2 << 20);
                assert_eq!(feed(&mut decoder, input.as_bytes(), size), frames);
                assert_eq!(decoder.scanned, input.len(), "in chunks of {size}");
            }
        }
    }

    #[test]
    fn the_decoder_is_small() {
        assert!(size_of::<Decoder>() <= 256, "{}", size_of::<Decoder>());
    }
}
