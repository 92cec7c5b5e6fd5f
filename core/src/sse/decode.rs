//! The decoder: chunks of bytes in, frames out, in linear time and bounded memory.
//!
//! An event that lies whole in a chunk and has one `data` line, as nearly all do, is borrowed from the chunk. Only an
//! event that goes on in the next chunk, or whose data has to be joined, is copied, once, into the decoder. No byte
//! is looked at twice for line ends, however the stream is cut.

use std::{ops::Range, time::Duration};

use serde::de::IgnoredAny;

use super::{Frame, line::Line};

/// Buffers up to this many bytes are kept for the next event that needs one; larger ones are given back, so that a
/// stream that once carried an image does not hold its megabytes while it is silent.
const KEPT_CAPACITY: usize = 1024;

/// Why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// An event, or a single line, is larger than allowed.
    #[error("an event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// The limit the decoder was made with.
        limit: usize,
    },
}

/// Reads an event stream from chunks cut anywhere.
///
/// ```
/// # use interlingua_core::sse::Decoder;
/// let mut decoder = Decoder::new(1 << 20);
/// let mut heard = Vec::new();
/// for chunk in ["data: hel", "lo\n\nevent: end\nda", "ta: {}\n\n"] {
///     let mut input = chunk.as_bytes();
///     while let Some(frame) = decoder.decode(&mut input)? {
///         heard.push(frame.data.to_vec());
///     }
/// }
/// assert_eq!(heard, [b"hello".as_slice(), b"{}"]);
/// # Ok::<(), interlingua_core::sse::DecodeError>(())
/// ```
///
/// A new decoder owns no heap memory, nor does one that has seen nothing but whole events without ids.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    state: State,
    /// The last chunk ended in CR: a LF at the beginning of the next one belongs to it.
    after_carriage_return: bool,
    carried: Carried,
    last_event_id: String,
    retry: Option<Duration>,
    lines: u64,
    comments: u64,
    #[cfg(test)]
    scanned: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of the next event has come yet.
    Between,
    /// `carried` holds the beginning of an event, or of a line.
    Carrying,
    /// `carried` holds the event that was handed out last.
    Delivered,
    Failed,
}

impl Decoder {
    /// A decoder that accepts events of up to `limit` bytes.
    ///
    /// Counted are the lines of an event without their ends. Comments and unknown fields do not add up, but none may
    /// be longer than what the event has left of its limit. How the stream is cut into chunks makes no difference.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: State::Between,
            after_carriage_return: false,
            carried: Carried::default(),
            last_event_id: String::new(),
            retry: None,
            lines: 0,
            comments: 0,
            #[cfg(test)]
            scanned: 0,
        }
    }

    /// Reads the next frame from the front of `input` and moves `input` behind it.
    ///
    /// `None` means that `input` is used up: come back with the next chunk. Events without data are not frames, but
    /// are heard, see [`lines`](Self::lines).
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooLarge`] as soon as more than the limit has come of one event; every later call fails alike.
    pub fn decode<'d, 'c: 'd>(&'d mut self, input: &mut &'c [u8]) -> Result<Option<Frame<'d>>, DecodeError> {
        match self.state {
            State::Between | State::Carrying => {}
            State::Delivered => self.forget(),
            State::Failed => return Err(DecodeError::TooLarge { limit: self.limit }),
        }
        if self.after_carriage_return && !input.is_empty() {
            self.after_carriage_return = false;
            *input = input.strip_prefix(b"\n").unwrap_or(input);
        }
        loop {
            if self.state == State::Carrying {
                if !self.carry_on(input)? {
                    return Ok(None);
                }
                if self.carried.data.is_some() {
                    self.state = State::Delivered;
                    return Ok(Some(self.carried.frame()));
                }
                self.forget();
            } else if let Some(frame) = self.scan(input)? {
                return Ok(Some(frame));
            }
            if input.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Says what the end of the body left behind; to be called once, after the last [`decode`](Self::decode).
    pub fn finish(&mut self) -> Leftover<'_> {
        if self.state != State::Carrying {
            return Leftover::Nothing;
        }
        self.state = State::Delivered;
        let carried = &mut self.carried;
        let line = &carried.bytes[carried.line_from..];
        let cut = match Line::parse(line, self.lines == 0) {
            Line::Blank | Line::Comment => false,
            Line::Data(value) => {
                carried.join(value.len());
                true
            }
            // Half a name, a number without its last digits: better none than a wrong one.
            Line::Event(_) | Line::Id(_) | Line::Retry(_) | Line::Ignored => true,
        };
        match cut {
            true => Leftover::Cut(self.carried.frame()),
            false if self.carried.data.is_some() => Leftover::Unterminated(self.carried.frame()),
            false => Leftover::Nothing,
        }
    }

    /// The stream's id, as last set by an event that is over, or empty: what `Last-Event-ID` would say.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How long the server wishes clients to wait before they connect again, as said last.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// How many whole lines have been heard, whatever they said. It grows with comments and with events that have no
    /// data, so an idle timer that must not be fooled by single bytes trickling in can watch it.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How many comment lines have been heard.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Heap memory owned at this moment, in bytes. At most the limit for data, once more for the event's name and
    /// id, and once more for the last id; nothing or a few KiB between events.
    pub fn memory(&self) -> usize {
        self.carried.memory() + self.last_event_id.capacity()
    }

    /// Reads an event that begins in this chunk. Returns `None` when the chunk is used up or when the event had to be
    /// carried; in both cases `input` and `state` say where to go on.
    #[inline]
    fn scan<'c>(&mut self, input: &mut &'c [u8]) -> Result<Option<Frame<'c>>, DecodeError> {
        let mut rest = *input;
        let mut open = Open::default();
        while let Some(length) = self.find_line_end(rest) {
            let line = &rest[..length];
            rest = self.skip_line_end(rest, length);
            self.check(open.size + length)?;
            match self.hear(line) {
                Line::Blank => {
                    if let Some(id) = open.id {
                        set(&mut self.last_event_id, id);
                    }
                    if let Some(data) = open.data {
                        *input = rest;
                        return Ok(Some(Frame { event: open.event, id: open.id, retry: open.retry, data }));
                    }
                    open = Open::default();
                    continue;
                }
                Line::Comment | Line::Ignored => continue,
                Line::Data(value) if open.data.is_none() => open.data = Some(value),
                Line::Data(value) => {
                    // A second line of data: from here on the event has to be put together.
                    self.carry(&open);
                    self.carried.extend(line, self.limit);
                    self.carried.join(value.len());
                    self.carried.whole_lines += length;
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
            self.carry(&open);
            self.carried.extend(rest, self.limit);
        }
        *input = &[];
        Ok(None)
    }

    /// Goes on with an event that had to be carried. Returns whether it is over; if not, `input` is used up.
    fn carry_on(&mut self, input: &mut &[u8]) -> Result<bool, DecodeError> {
        while let Some(length) = self.find_line_end(input) {
            self.check(self.carried.size() + length)?;
            self.carried.extend(&input[..length], self.limit);
            *input = self.skip_line_end(input, length);
            if self.end_carried_line() {
                return Ok(true);
            }
        }
        self.check(self.carried.size() + input.len())?;
        self.carried.extend(input, self.limit);
        *input = &[];
        Ok(false)
    }

    /// Takes in the line at the end of `carried`. Returns whether it ended the event.
    fn end_carried_line(&mut self) -> bool {
        let first = self.lines == 0;
        self.lines += 1;
        let carried = &mut self.carried;
        let line = &carried.bytes[carried.line_from..];
        let length = line.len();
        match Line::parse(line, first) {
            Line::Blank => {
                if let Some(id) = &carried.id {
                    set(&mut self.last_event_id, id);
                }
                return true;
            }
            Line::Comment => {
                self.comments += 1;
                carried.drop_line();
                return false;
            }
            Line::Ignored => {
                carried.drop_line();
                return false;
            }
            Line::Data(value) => {
                let value = value.len();
                carried.join(value);
            }
            Line::Event(name) => {
                carried.event = (!name.is_empty()).then(|| name.to_owned());
                carried.drop_line();
            }
            Line::Id(id) => {
                carried.id = Some(id.to_owned());
                carried.drop_line();
            }
            Line::Retry(time) => {
                carried.retry = Some(time);
                self.retry = Some(time);
                carried.drop_line();
            }
        }
        carried.whole_lines += length;
        false
    }

    /// Parses a line that lies whole in the chunk, and counts it.
    #[inline]
    fn hear<'c>(&mut self, line: &'c [u8]) -> Line<'c> {
        let heard = Line::parse(line, self.lines == 0);
        self.lines += 1;
        self.comments += u64::from(heard == Line::Comment);
        heard
    }

    /// Where the first line of `bytes` ends. Every byte that comes in passes through here exactly once.
    #[inline]
    fn find_line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = memchr::memchr2(b'\n', b'\r', bytes);
        #[cfg(test)]
        {
            self.scanned += found.map_or(bytes.len(), |length| length + 1);
        }
        found
    }

    /// What follows the line of `length` bytes at the front of `bytes` and its end, which is CR LF, LF or CR. A CR
    /// ends its line at once: who waits for the LF delays the event until the next one.
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

    /// Refuses an event of `size` bytes if that is too much. Asked before anything is copied.
    #[inline]
    fn check(&mut self, size: usize) -> Result<(), DecodeError> {
        if size <= self.limit {
            return Ok(());
        }
        self.state = State::Failed;
        self.carried = Carried::default();
        Err(DecodeError::TooLarge { limit: self.limit })
    }

    fn carry(&mut self, open: &Open<'_>) {
        self.state = State::Carrying;
        let carried = &mut self.carried;
        carried.event = open.event.map(str::to_owned);
        carried.id = open.id.map(str::to_owned);
        carried.retry = open.retry;
        carried.whole_lines = open.size;
        if let Some(data) = open.data {
            carried.extend(data, self.limit);
            carried.data = Some(0..data.len());
            carried.line_from = data.len();
        }
    }

    fn forget(&mut self) {
        self.state = State::Between;
        self.carried.clear();
    }
}

/// An event being read from one chunk.
#[derive(Default)]
struct Open<'c> {
    event: Option<&'c str>,
    id: Option<&'c str>,
    retry: Option<Duration>,
    data: Option<&'c [u8]>,
    /// Length of the lines that count towards the limit.
    size: usize,
}

/// An event that could not be borrowed.
#[derive(Debug, Default)]
struct Carried {
    /// The data joined so far, perhaps behind its `data:`, and then the line that has not ended yet.
    bytes: Vec<u8>,
    data: Option<Range<usize>>,
    /// Where in `bytes` the unfinished line begins: at the end of the data, or at 0.
    line_from: usize,
    event: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    /// Length of the ended lines that count towards the limit.
    whole_lines: usize,
}

impl Carried {
    fn frame(&self) -> Frame<'_> {
        Frame {
            event: self.event.as_deref(),
            id: self.id.as_deref(),
            retry: self.retry,
            data: self.data.clone().map_or(&[], |range| &self.bytes[range]),
        }
    }

    fn size(&self) -> usize {
        self.whole_lines + self.bytes.len() - self.line_from
    }

    /// Appends to the unfinished line. Grows by doubling, but never past `limit`, which the caller has checked.
    fn extend(&mut self, more: &[u8], limit: usize) {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let capacity = self.bytes.capacity().saturating_mul(2).min(limit).max(needed);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
    }

    /// Makes the last `length` bytes, the value of a `data` line, part of the data. The first value stays where it
    /// is; later ones move up, over their own `data:`, so that each byte moves once at most.
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
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self::default();
        if bytes.capacity() <= KEPT_CAPACITY {
            self.bytes = bytes;
        }
    }

    fn memory(&self) -> usize {
        let names = [&self.event, &self.id];
        self.bytes.capacity() + names.into_iter().flatten().map(String::capacity).sum::<usize>()
    }
}

/// `assign` for an id that mostly has the length of the one before it.
fn set(target: &mut String, id: &str) {
    target.clear();
    target.shrink_to(KEPT_CAPACITY);
    target.push_str(id);
}

/// What was left when the body ended.
///
/// The standard throws it away: an event without its blank line never happened. Servers do forget the last blank line,
/// though, and what they forget it after is the event that ends the run; [`frame`](Self::frame) says what we trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover<'a> {
    /// The body ended between events.
    Nothing,
    /// An event with data that lacks only its blank line: every line has its end.
    Unterminated(Frame<'a>),
    /// An event broken off inside a line. Holds what can be told of it: ended lines, and as much of the last one as
    /// came if that is a `data` line. The data may be empty.
    Cut(Frame<'a>),
}

impl<'a> Leftover<'a> {
    /// The event, if it can be trusted to be whole. That is one whose lines have all ended and whose data is UTF-8;
    /// or one cut in its last line whose data is a JSON object nevertheless, because an object ends itself: no shorter
    /// part of it is one. Anything else is the remains of a connection that broke.
    pub fn frame(self) -> Option<Frame<'a>> {
        match self {
            Leftover::Nothing => None,
            Leftover::Unterminated(frame) => str::from_utf8(frame.data).is_ok().then_some(frame),
            Leftover::Cut(frame) => is_object(frame.data).then_some(frame),
        }
    }
}

/// Whether `data` is one JSON object and no more. Takes linear time and no stack, however deep the object is.
fn is_object(data: &[u8]) -> bool {
    data.trim_ascii_start().starts_with(b"{")
        && str::from_utf8(data).is_ok()
        && serde_json::from_slice::<IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in pieces of `size` bytes; returns how many frames came out.
    fn feed(decoder: &mut Decoder, input: &[u8], size: usize) -> usize {
        let mut frames = 0;
        for mut piece in input.chunks(size) {
            while decoder.decode(&mut piece).expect("within the limit").is_some() {
                frames += 1;
            }
        }
        frames
    }

    #[test]
    fn every_byte_is_scanned_once_however_the_stream_is_cut() {
        let large = format!("event: e\ndata: {}\n\n", "x".repeat(1 << 20));
        let tiny = "data:1\n\n".repeat(1_000_000);
        let joined = format!("{}\n", "data: ab\n: beat\n".repeat(100_000));
        for (input, frames) in [(large, 1), (tiny, 1_000_000), (joined, 1)] {
            for size in [1, 1024, usize::MAX] {
                let mut decoder = Decoder::new(2 << 20);
                assert_eq!(feed(&mut decoder, input.as_bytes(), size), frames);
                assert_eq!(decoder.scanned, input.len(), "in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_decoder_is_small() {
        assert!(size_of::<Decoder>() <= 256, "{}", size_of::<Decoder>());
    }
}
