//! The minimal HTTP/1.1 of the rig: reading a head, decoding chunks, finding events in a body. Not here: sockets.

use anyhow::{Context, Result, bail};
use memchr::memmem;

/// The end of a head in the buffer, after its blank line.
pub(crate) fn end_of_head(buffer: &[u8]) -> Option<usize> {
    memmem::find(buffer, b"\r\n\r\n").map(|at| at + 4)
}

/// The value of a header; `name` is in lower case.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Incremental decoder of `transfer-encoding: chunked`.
#[derive(Debug)]
pub(crate) enum ChunkedDecoder {
    /// In the size line of a chunk, with the bytes read so far.
    Size(Vec<u8>),
    /// In the data of a chunk, with the number of bytes left.
    Data(usize),
    /// In the line break after a chunk, with the number of bytes left.
    LineEnd(usize),
    /// In the line after the last chunk, with the number of bytes left.
    Last(usize),
    /// The body has ended.
    Done,
}

impl ChunkedDecoder {
    pub(crate) fn new() -> Self {
        Self::Size(Vec::new())
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Passes the decoded bytes to `take`.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            match self {
                Self::Size(line) => {
                    let end = memchr::memchr(b'\n', bytes);
                    let (now, later) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
                    line.extend_from_slice(now);
                    bytes = later;
                    if line.len() > 64 {
                        bail!("a chunk's size line is too long");
                    }
                    if end.is_some() {
                        let text = std::str::from_utf8(line)?.trim();
                        let size = usize::from_str_radix(text, 16).with_context(|| format!("chunk size {text:?}"))?;
                        *self = if size == 0 { Self::Last(2) } else { Self::Data(size) };
                    }
                }
                Self::Data(left) => {
                    let (now, later) = bytes.split_at(bytes.len().min(*left));
                    *left -= now.len();
                    bytes = later;
                    take(now)?;
                    if matches!(self, Self::Data(0)) {
                        *self = Self::LineEnd(2);
                    }
                }
                Self::LineEnd(left) | Self::Last(left) => {
                    let skipped = bytes.len().min(*left);
                    *left -= skipped;
                    bytes = &bytes[skipped..];
                    match self {
                        Self::LineEnd(0) => *self = Self::new(),
                        Self::Last(0) => *self = Self::Done,
                        _ => {}
                    }
                }
                Self::Done => bail!("bytes after the end of the body"),
            }
        }
        Ok(())
    }
}

/// Number of bytes of a frame that determine its kind.
const MAX_START: usize = 256;

/// Text in the start of a frame with content, by protocol.
const CONTENTS: &[&str] = &[
    "\"object\":\"content\"",
    "\"artifactUpdate\":",
    "\"response.output_text.delta\"",
    "\"delta\":{\"content\":\"a",
    "\"TEXT_MESSAGE_CONTENT\"",
    "\"text_delta\"",
];

/// Text in the start of the frame that completes an answer, by protocol. In the Agent API it is a status.
const ENDS: &[&str] =
    &["\"TASK_STATE_COMPLETED\"", "\"response.completed\"", "data: [DONE]", "\"RUN_FINISHED\"", "\"message_stop\""];

/// Counters of one event stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    rest: Vec<u8>,
    /// Length of the prefix of `rest` that was already searched.
    searched: usize,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) has_content: bool,
    /// The result in the terminal frame, once received.
    pub(crate) ended: Option<StreamEnd>,
}

/// The end of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StreamEnd {
    Completed,
    Otherwise,
}

impl Events {
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len();
        // Some servers end lines with CR LF. JSON has no CR of its own.
        for line in bytes.split(|byte| *byte == b'\r') {
            self.rest.extend_from_slice(line);
        }
        let mut from = 0;
        while let Some(at) = memmem::find(&self.rest[self.searched..], b"\n\n") {
            let end = self.searched + at;
            let (start, count) = (from, self.count);
            from = end + 2;
            self.searched = from;
            let frame = &self.rest[start..end];
            let fields: [&[u8]; 3] = [b"data: ", b"event: ", b"id: "];
            self.count += usize::from(fields.iter().any(|field| frame.starts_with(field)));
            if self.count > count {
                // A stream of Responses has an end, and then the mark that other protocols end with.
                if self.ended.is_some() && frame != b"data: [DONE]" {
                    bail!("an event follows the terminal one");
                }
                let (has_content, ended) = classify(&frame[..frame.len().min(MAX_START)]);
                self.has_content |= has_content;
                self.ended = self.ended.or(ended);
            }
        }
        self.rest.drain(..from);

        // A blank line may be split between two reads.
        self.searched = self.rest.len().saturating_sub(1);
        Ok(())
    }
}

/// The kind of a frame, by its start: content, or an end. Object and status precede long fields.
fn classify(start: &[u8]) -> (bool, Option<StreamEnd>) {
    let contains = |what: &str| memmem::find(start, what.as_bytes()).is_some();
    let ended = if CONTENTS.iter().any(|content| contains(content)) {
        return (true, None);
    } else if ENDS.iter().any(|end| contains(end)) {
        Some(StreamEnd::Completed)
    } else if contains("\"statusUpdate\":") {
        (!contains("\"TASK_STATE_WORKING\"")).then_some(StreamEnd::Otherwise)
    } else if contains("\"object\":\"response\",") && contains("\"status\":\"completed\"") {
        Some(StreamEnd::Completed)
    } else if contains("\"object\":\"response\",\"status\"") {
        let goes_on = contains("\"status\":\"created\"") || contains("\"status\":\"in_progress\"");
        (!goes_on).then_some(StreamEnd::Otherwise)
    } else {
        None
    };
    (false, ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Frames;

    /// A body of a few frames, each frame a chunk.
    fn body() -> Vec<u8> {
        let mut frames = Frames::new("agent-api", 7).expect("it is known");
        let mut all = frames.begin();
        all.push(": a comment\n\n".to_owned());
        all.push(frames.delta());
        all.extend(frames.end());
        let mut body = Vec::new();

        for frame in all {
            body.extend(format!("{:x}\r\n{frame}\r\n", frame.len()).bytes());
        }
        body.extend(b"0\r\n\r\n");
        body
    }

    #[test]
    fn events_are_found_at_any_chunk_boundary() {
        let body = body();
        for cut in 0..=body.len() {
            let (mut chunked, mut events) = (ChunkedDecoder::new(), Events::default());
            for piece in [&body[..cut], &body[cut..]] {
                chunked.read(piece, |bytes| events.read(bytes)).expect("the body is valid");
            }
            assert!(chunked.is_done());
            assert_eq!((events.count, events.ended, events.has_content), (7, Some(StreamEnd::Completed), true));
        }
    }

    #[test]
    fn an_event_after_the_terminal_one_is_an_error() {
        let mut frames = Frames::new("agent-api", 7).expect("it is known");
        let mut events = Events::default();
        for frame in frames.end() {
            events.read(frame.as_bytes()).expect("the closing frames are valid");
        }
        assert!(events.read(frames.delta().as_bytes()).is_err());
    }

    #[test]
    fn the_end_of_every_protocol_is_seen_and_its_content() {
        for protocol in ["agent-api", "a2a", "ag-ui", "chat-completions", "responses"] {
            let mut frames = Frames::new(protocol, 7).expect("it is known");
            let mut all = frames.begin();
            all.push(frames.delta());
            let mut events = Events::default();
            all.iter().for_each(|frame| events.read(frame.as_bytes()).expect("it is valid"));
            assert!(events.has_content && events.ended.is_none(), "{protocol}");
            frames.end().iter().for_each(|frame| events.read(frame.as_bytes()).expect("it is valid"));
            assert_eq!((events.count, events.ended), (1 + frames.others(), Some(StreamEnd::Completed)), "{protocol}");
        }
    }
}
