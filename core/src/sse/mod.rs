//! Server-sent events in both directions: [`Decoder`] parses an upstream's stream, the functions of [`encode`] write
//! frames for clients. Follows "Server-sent events", chapter 9.2 of the WHATWG HTML standard.
//!
//! Not here: the meaning of a frame's data, including `[DONE]` (each protocol's reader and writer), and idle timeouts,
//! which need a clock.

mod decode;
pub mod encode;
mod line;
pub mod separators;

pub use decode::{DecodeError, Decoder, IncompleteEvent};

use std::time::Duration;

/// One event of an event stream. Borrowed from its chunk or, if it was joined from several chunks or `data` lines, from
/// the decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The `event` field. `None` if it is missing, empty or not UTF-8; browsers then use `message`. `error` if the data
    /// came in a field of that name, which the standard does not know: servers of models report a failed stream so.
    pub event: Option<&'a str>,
    /// The `id` field of this event. `Some("")` resets the stream's id, `None` leaves it unchanged, see
    /// [`Decoder::last_event_id`]. An id that is not UTF-8 or contains NUL is ignored.
    pub id: Option<&'a str>,
    /// The `retry` field of this event, in milliseconds on the wire.
    pub retry: Option<Duration>,
    /// The values of the `data` lines, joined by `\n`. Not checked for UTF-8, because a JSON parser checks it anyway,
    /// and a second check would be the most expensive part of decoding.
    pub data: &'a [u8],
}

impl Frame<'_> {
    /// True for the `[DONE]` that ends a stream in some protocols. It is not JSON.
    pub fn is_done(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }
}
