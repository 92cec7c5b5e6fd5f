//! What a WebSocket client sends: bytes in, whole messages out (RFC 6455, section 5).
//!
//! A frame that will be too large is refused by its head, before its payload is kept; a message has to be whole in
//! time. Not here: what is sent to the client, and what messages mean ([`super::websocket`]).

use std::time::Duration;

use actix_web::web::{Bytes, BytesMut, Payload};
use actix_ws::CloseCode;
use bytes::Buf as _;
use futures_util::StreamExt as _;
use interlingua_core::Fault;
use tokio::time::Instant;

use super::bodies::Taken;

/// From its first byte on, a message has to be whole within this time.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest payload of a control frame, in bytes (section 5.5).
const MAX_CONTROL: usize = 125;

/// The messages of one client.
pub(super) struct Messages<S = Payload> {
    payload: S,
    /// The largest message, in bytes.
    limit: usize,
    /// How long a message may take.
    timeout: Duration,
    /// What has come and was not looked at.
    unread: BytesMut,
    frame: Option<Frame>,
    /// The message under way.
    message: Option<Vec<u8>>,
    control: Vec<u8>,
    /// Begins to take room for a message. None: its room is not counted.
    room: Option<Box<dyn Fn() -> Result<Taken, Fault>>>,
    /// The room that what is here takes.
    taken: Option<Taken>,
    /// Since when half a message is here.
    began: Option<Instant>,
}

/// The frame under way.
#[derive(Clone, Copy)]
struct Frame {
    opcode: u8,
    is_final: bool,
    mask: [u8; 4],
    /// How much of the payload is still to come.
    left: usize,
    /// How much of it has come.
    taken: usize,
}

/// Something whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A text.
    Text(String),
    /// Wants to be answered with the same bytes.
    Ping(Vec<u8>),
    /// An answer to a ping.
    Pong,
}

/// Nothing more will be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The connection is gone.
    Gone,
    /// The client closes it, for this reason.
    ByClient(Option<u16>),
    /// The client made a mistake: it is told which.
    For(u16, &'static str),
}

impl Closed {
    fn because(code: CloseCode, why: &'static str) -> Self {
        Self::For(code.into(), why)
    }

    fn protocol(why: &'static str) -> Self {
        Self::because(CloseCode::Protocol, why)
    }
}

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

impl<S, E> Messages<S>
where
    S: futures_util::Stream<Item = Result<Bytes, E>> + Unpin,
{
    pub(super) fn new(payload: S, limit: usize) -> Self {
        Self {
            payload,
            limit,
            timeout: MESSAGE_TIMEOUT,
            unread: BytesMut::new(),
            frame: None,
            message: None,
            control: Vec::new(),
            room: None,
            taken: None,
            began: None,
        }
    }

    /// Counts the room that messages take.
    pub(super) fn within(self, room: impl Fn() -> Result<Taken, Fault> + 'static) -> Self {
        Self { room: Some(Box::new(room)), ..self }
    }

    /// The room of the message that was received last: it is free when this is dropped.
    pub(super) fn taken(&mut self) -> Option<Taken> {
        self.taken.take()
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Fault> {
        let Some(room) = &self.room else { return Ok(()) };
        if self.taken.is_none() {
            self.taken = Some(room()?);
        }
        self.taken.as_mut().map_or(Ok(()), |taken| taken.grow(bytes))
    }

    /// The next thing that is whole. May be dropped while it waits: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Received, Closed> {
        loop {
            if let Some(received) = self.take()? {
                return Ok(received);
            }
            let half = !self.unread.is_empty() || self.frame.is_some() || self.message.is_some();
            self.began = if half { self.began.or_else(|| Some(Instant::now())) } else { None };
            if !half {
                self.taken = None;
            }
            let chunk = match self.began {
                Some(began) => tokio::time::timeout_at(began + self.timeout, self.payload.next())
                    .await
                    .map_err(|_| Closed::because(CloseCode::Policy, "a message took too long"))?,
                None => self.payload.next().await,
            };
            match chunk {
                Some(Ok(chunk)) => {
                    let room = self.take_room(chunk.len());
                    room.map_err(|_| Closed::because(CloseCode::Again, "too many bodies are being read"))?;
                    self.unread.extend_from_slice(&chunk);
                }
                Some(Err(_)) | None => return Err(Closed::Gone),
            }
        }
    }

    /// Looks at what has come.
    fn take(&mut self) -> Result<Option<Received>, Closed> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.head()? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let length = frame.left.min(self.unread.len());
            let bytes = if is_control(frame.opcode) { &mut self.control } else { self.message.get_or_insert_default() };
            let payload = &self.unread[..length];
            bytes.extend(payload.iter().zip(frame.taken..).map(|(byte, place)| byte ^ frame.mask[place % 4]));
            self.unread.advance(length);
            frame.left -= length;
            frame.taken += length;
            if frame.left > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if let Some(received) = self.ended(frame)? {
                return Ok(Some(received));
            }
        }
    }

    /// A frame's head, once it is whole (section 5.2). What is wrong with the frame is known by it.
    fn head(&mut self) -> Result<Option<Frame>, Closed> {
        let bytes = &self.unread[..];
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (is_final, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(Closed::protocol("a frame uses an extension nobody agreed on"));
        }
        if second & 0x80 == 0 {
            return Err(Closed::protocol("a frame is not masked"));
        }
        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [a, b, c, d, e, f, g, h, rest @ ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest),
            (126 | 127, _) => return Ok(None),
            (length, rest) => (u64::from(length), rest),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match opcode {
            CLOSE | PING | PONG if !is_final || length > MAX_CONTROL => {
                return Err(Closed::protocol("a control frame is short and whole"));
            }
            CLOSE | PING | PONG => {}
            CONTINUATION if self.message.is_none() => {
                return Err(Closed::protocol("a message goes on that has not begun"));
            }
            TEXT | BINARY if self.message.is_some() => {
                return Err(Closed::protocol("a message begins within another one"));
            }
            CONTINUATION | TEXT => {
                let so_far = self.message.as_ref().map_or(0, Vec::len);
                if length > self.limit - so_far {
                    return Err(Closed::because(CloseCode::Size, "the message is too large"));
                }
            }
            BINARY => return Err(Closed::because(CloseCode::Unsupported, "messages are text here")),
            _ => return Err(Closed::protocol("a frame is of no known kind")),
        }
        let [a, b, c, d, rest @ ..] = rest else { return Ok(None) };
        let frame = Frame { opcode, is_final, mask: [*a, *b, *c, *d], left: length, taken: 0 };
        let head = bytes.len() - rest.len();
        self.unread.advance(head);
        Ok(Some(frame))
    }

    /// What a whole frame comes to. None: the message goes on.
    fn ended(&mut self, frame: Frame) -> Result<Option<Received>, Closed> {
        if is_control(frame.opcode) {
            let payload = std::mem::take(&mut self.control);
            return match frame.opcode {
                PING => Ok(Some(Received::Ping(payload))),
                PONG => Ok(Some(Received::Pong)),
                _ => Err(closed(&payload)),
            };
        }
        let Some(message) = self.message.take_if(|_| frame.is_final) else { return Ok(None) };
        self.began = None;
        let text = String::from_utf8(message);
        text.map(|text| Some(Received::Text(text)))
            .map_err(|_| Closed::because(CloseCode::Invalid, "a text is not UTF-8"))
    }
}

const fn is_control(opcode: u8) -> bool {
    opcode & 0x8 != 0
}

/// What a close frame says (section 5.5.1).
fn closed(payload: &[u8]) -> Closed {
    match payload {
        [] => Closed::ByClient(None),
        [a, b, reason @ ..] => {
            let code = u16::from_be_bytes([*a, *b]);
            match (code, std::str::from_utf8(reason)) {
                (_, Err(_)) => Closed::because(CloseCode::Invalid, "the reason is not UTF-8"),
                (1000..=1003 | 1007..=1014 | 3000..=4999, Ok(_)) => Closed::ByClient(Some(code)),
                _ => Closed::protocol("the close code is none"),
            }
        }
        [_] => Closed::protocol("the close code is cut short"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    /// A client's frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..126 => bytes.push(0x80 | u8::try_from(short).expect("short")),
            length => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(length).expect("below 64 KiB").to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// What is received of these bytes, in pieces of a size.
    async fn received(bytes: &[u8], size: usize) -> (Vec<Received>, Closed) {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok::<_, ()>(Bytes::copy_from_slice(piece))).collect();
        let mut messages = Messages::new(stream::iter(pieces), 1000);
        let mut all = Vec::new();
        loop {
            match messages.next().await {
                Ok(received) => all.push(received),
                Err(closed) => return (all, closed),
            }
        }
    }

    #[tokio::test]
    async fn messages_come_whole_however_their_bytes_are_cut() {
        let long = "ä".repeat(300);
        let mut bytes = frame(0x81, b"one");
        bytes.extend(frame(0x01, &long.as_bytes()[..301]));
        bytes.extend(frame(0x89, b"there?"));
        bytes.extend(frame(0x00, b""));
        bytes.extend(frame(0x80, &long.as_bytes()[301..]));
        bytes.extend(frame(0x8a, b""));
        bytes.extend(frame(0x88, &[0x03, 0xe8, b'b', b'y', b'e']));
        let whole = vec![
            Received::Text("one".to_owned()),
            Received::Ping(b"there?".to_vec()),
            Received::Text(long),
            Received::Pong,
        ];
        for size in [1, 2, 3, 7, 100, 10_000] {
            assert_eq!(received(&bytes, size).await, (whole.clone(), Closed::ByClient(Some(1000))), "{size}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused_by_the_code_that_says_so() {
        let mut unmasked = frame(0x81, b"x");
        unmasked[1] &= 0x7f;
        let mut announced = vec![0x81, 0xff];
        announced.extend(u64::MAX.to_be_bytes());
        let twice = [frame(0x01, &[b'x'; 600]), frame(0x80, &[b'x'; 600])].concat();
        for (bytes, code) in [
            (frame(0xc1, b"x"), 1002),
            (unmasked, 1002),
            (frame(0x80, b"x"), 1002),
            ([frame(0x01, b"x"), frame(0x81, b"y")].concat(), 1002),
            (frame(0x83, b"x"), 1002),
            (frame(0x09, b"x"), 1002),
            (frame(0x89, &[0; 126]), 1002),
            (frame(0x88, &[3]), 1002),
            (frame(0x88, &[0, 1]), 1002),
            (frame(0x81, &[0xff]), 1007),
            (frame(0x88, &[3, 0xe8, 0xff]), 1007),
            (frame(0x82, b"x"), 1003),
            (announced, 1009),
            (twice, 1009),
        ] {
            let (_, closed) = received(&bytes, 10).await;
            assert!(matches!(closed, Closed::For(said, _) if said == code), "{bytes:?}: {closed:?}");
        }
        assert_eq!(received(&[0x81], 1).await.1, Closed::Gone);
    }

    #[tokio::test]
    async fn half_a_message_is_not_waited_for_for_long() {
        let half = stream::iter([Ok::<_, ()>(Bytes::from_static(&[0x81]))]).chain(stream::pending());
        let mut messages = Messages::new(half, 1000);
        messages.timeout = Duration::from_millis(10);
        assert!(matches!(messages.next().await, Err(Closed::For(1008, _))));
    }
}
