//! Server-sent-event frames, both ways: [`Decoder`] for what an upstream says, the functions of [`encode`] for what a
//! client is told. Follows "Server-sent events", chapter 9.2 of the WHATWG HTML standard.
//!
//! What a frame's data means, `[DONE]` included, is for the readers and writers of each protocol to say; when a stream
//! has been silent for too long, for those who have a clock.

mod decode;
pub mod encode;
mod line;
pub mod separators;

pub use decode::{DecodeError, Decoder, Leftover};

use std::time::Duration;

/// One event of an event stream, borrowed from the chunk it came in or, if several chunks or several `data` lines had
/// to be put together, from the decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The `event` field. `None` where it is missing, empty or not UTF-8: browsers then say `message`.
    pub event: Option<&'a str>,
    /// The `id` field of this very event. `Some("")` takes the stream's id back; `None` leaves it as it was, see
    /// [`Decoder::last_event_id`]. An id that is not UTF-8 or contains NUL is no id.
    pub id: Option<&'a str>,
    /// The `retry` field of this event, given in milliseconds on the wire.
    pub retry: Option<Duration>,
    /// The values of the `data` lines, joined by `\n`. Bytes, because whoever parses them checks UTF-8 anyway, and
    /// checking twice would be the dearest thing a decoder does; what is not UTF-8 arrives as it was sent.
    pub data: &'a [u8],
}

impl Frame<'_> {
    /// Whether this is the `[DONE]` with which some protocols end a stream: it is not JSON, and says nothing more.
    pub fn is_done(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }
}
