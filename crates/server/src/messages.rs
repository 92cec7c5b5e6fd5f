//! Parses the bytes from a WebSocket client into complete messages (RFC 6455, section 5).
//!
//! A frame that is too large is rejected by its header, before its payload is buffered. An incomplete message times
//! out. Not here: frames to the client, and the meaning of messages ([`super::websocket`]).

use std::time::Duration;

use actix_web::web::{Bytes, BytesMut, Payload};
use actix_ws::CloseCode;
use bytes::Buf as _;
use futures_util::StreamExt as _;
use interlingua_core::Fault;
use tokio::time::Instant;

use super::bodies::BodyReservation;

/// The largest payload of a control frame, in bytes (RFC 6455, section 5.5).
const MAX_CONTROL_LEN: usize = 125;

/// The messages of one client.
pub(super) struct MessageReader<S = Payload> {
    payload: S,
    /// The largest message, in bytes.
    limit: usize,
    /// Maximum time from the first byte of a message to its last.
    timeout: Duration,
    /// Received bytes that have not been parsed.
    unread: BytesMut,
    frame: Option<PartialFrame>,
    /// The payload received so far of an incomplete message.
    message: Option<Vec<u8>>,
    /// The payload received so far of a control frame.
    control: Vec<u8>,
    /// Starts a reservation in the budget of bodies. `None` in tests: messages are not counted.
    reserve: Option<Box<dyn Fn() -> Result<BodyReservation, Fault>>>,
    /// The reservation for the buffered bytes.
    reservation: Option<BodyReservation>,
    /// Arrival of the first byte of an incomplete message.
    started: Option<Instant>,
}

/// The header of the current frame, and the progress of its payload.
#[derive(Clone, Copy)]
struct PartialFrame {
    opcode: u8,
    is_final: bool,
    mask: [u8; 4],
    /// Bytes of the payload that are still to be read.
    remaining: usize,
    /// Bytes of the payload read so far: the offset in the mask.
    read: usize,
}

/// A complete message or control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReceivedMessage {
    /// A text message.
    Text(String),
    /// A ping, to be answered by a pong with the same payload.
    Ping(Vec<u8>),
    Pong,
}

/// The reason why the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveEnd {
    /// The connection is lost.
    Lost,
    /// The client closed it, with this status code.
    ByClient(Option<u16>),
    /// The gateway closes it, with this status code and reason.
    ByGateway(u16, &'static str),
}

impl ReceiveEnd {
    fn with(code: CloseCode, reason: &'static str) -> Self {
        Self::ByGateway(code.into(), reason)
    }

    fn protocol_error(reason: &'static str) -> Self {
        Self::with(CloseCode::Protocol, reason)
    }
}

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

impl<S, E> MessageReader<S>
where
    S: futures_util::Stream<Item = Result<Bytes, E>> + Unpin,
{
    pub(super) fn new(payload: S, limit: usize, timeout: Duration) -> Self {
        Self {
            payload,
            limit,
            timeout,
            unread: BytesMut::new(),
            frame: None,
            message: None,
            control: Vec::new(),
            reserve: None,
            reservation: None,
            started: None,
        }
    }

    /// Counts the bytes of messages in a budget.
    pub(super) fn with_budget(self, reserve: impl Fn() -> Result<BodyReservation, Fault> + 'static) -> Self {
        Self { reserve: Some(Box::new(reserve)), ..self }
    }

    /// Takes the reservation of the message that was received last.
    pub(super) fn take_reservation(&mut self) -> Option<BodyReservation> {
        self.reservation.take()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if self.reservation.is_none() {
            self.reservation = Some(reserve()?);
        }
        self.reservation.as_mut().map_or(Ok(()), |reservation| reservation.grow(bytes))
    }

    /// The next complete message or control frame. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<ReceivedMessage, ReceiveEnd> {
        loop {
            if let Some(received) = self.parse()? {
                return Ok(received);
            }
            let is_partial = !self.unread.is_empty() || self.frame.is_some() || self.message.is_some();
            self.started = if is_partial { self.started.or_else(|| Some(Instant::now())) } else { None };
            if !is_partial {
                self.reservation = None;
            }
            let chunk = match self.started {
                Some(started) => tokio::time::timeout_at(started + self.timeout, self.payload.next())
                    .await
                    .map_err(|_| ReceiveEnd::with(CloseCode::Policy, "a message took too long"))?,
                None => self.payload.next().await,
            };

            match chunk {
                Some(Ok(chunk)) => {
                    let reserved = self.reserve(chunk.len());
                    reserved
                        .map_err(|_| ReceiveEnd::with(CloseCode::Again, "too many request bodies are being read"))?;
                    self.unread.extend_from_slice(&chunk);
                }
                Some(Err(_)) | None => return Err(ReceiveEnd::Lost),
            }
        }
    }

    /// Parses the received bytes. `None` if more are needed.
    fn parse(&mut self) -> Result<Option<ReceivedMessage>, ReceiveEnd> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.parse_head()? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let length = frame.remaining.min(self.unread.len());
            let bytes = if is_control(frame.opcode) { &mut self.control } else { self.message.get_or_insert_default() };
            let payload = &self.unread[..length];
            bytes.extend(payload.iter().zip(frame.read..).map(|(byte, index)| byte ^ frame.mask[index % 4]));
            self.unread.advance(length);
            frame.remaining -= length;
            frame.read += length;
            if frame.remaining > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }

            if let Some(received) = self.finish_frame(frame)? {
                return Ok(Some(received));
            }
        }
    }

    /// Parses the header of a frame (RFC 6455, section 5.2). `None`: it is incomplete. Rejects invalid frames before
    /// their payload is read.
    fn parse_head(&mut self) -> Result<Option<PartialFrame>, ReceiveEnd> {
        let bytes = &self.unread[..];
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (is_final, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(ReceiveEnd::protocol_error("a frame uses an extension that was not negotiated"));
        }

        if second & 0x80 == 0 {
            return Err(ReceiveEnd::protocol_error("a frame is not masked"));
        }

        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [a, b, c, d, e, f, g, h, rest @ ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest),
            (126 | 127, _) => return Ok(None),
            (length, rest) => (u64::from(length), rest),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match opcode {
            CLOSE | PING | PONG if !is_final || length > MAX_CONTROL_LEN => {
                return Err(ReceiveEnd::protocol_error("a control frame is too long or fragmented"));
            }
            CLOSE | PING | PONG => {}
            CONTINUATION if self.message.is_none() => {
                return Err(ReceiveEnd::protocol_error("a continuation frame has no message to continue"));
            }
            TEXT | BINARY if self.message.is_some() => {
                return Err(ReceiveEnd::protocol_error("a message starts before the previous one is complete"));
            }
            CONTINUATION | TEXT => {
                let so_far = self.message.as_ref().map_or(0, Vec::len);
                if length > self.limit - so_far {
                    return Err(ReceiveEnd::with(CloseCode::Size, "the message is too large"));
                }
            }
            BINARY => return Err(ReceiveEnd::with(CloseCode::Unsupported, "only text messages are supported")),
            _ => return Err(ReceiveEnd::protocol_error("a frame has an unknown opcode")),
        }
        let [a, b, c, d, rest @ ..] = rest else { return Ok(None) };
        let frame = PartialFrame { opcode, is_final, mask: [*a, *b, *c, *d], remaining: length, read: 0 };
        let head = bytes.len() - rest.len();
        self.unread.advance(head);
        Ok(Some(frame))
    }

    /// Handles a complete frame. `None` if its message continues.
    fn finish_frame(&mut self, frame: PartialFrame) -> Result<Option<ReceivedMessage>, ReceiveEnd> {
        if is_control(frame.opcode) {
            let payload = std::mem::take(&mut self.control);
            return match frame.opcode {
                PING => Ok(Some(ReceivedMessage::Ping(payload))),
                PONG => Ok(Some(ReceivedMessage::Pong)),
                _ => Err(parse_close(&payload)),
            };
        }

        let Some(message) = self.message.take_if(|_| frame.is_final) else { return Ok(None) };
        self.started = None;
        let text = String::from_utf8(message);
        text.map(|text| Some(ReceivedMessage::Text(text)))
            .map_err(|_| ReceiveEnd::with(CloseCode::Invalid, "a text message is not UTF-8"))
    }
}

const fn is_control(opcode: u8) -> bool {
    opcode & 0x8 != 0
}

/// Parses a close frame (RFC 6455, section 5.5.1).
fn parse_close(payload: &[u8]) -> ReceiveEnd {
    match payload {
        [] => ReceiveEnd::ByClient(None),
        [a, b, reason @ ..] => {
            let code = u16::from_be_bytes([*a, *b]);
            match (code, std::str::from_utf8(reason)) {
                (_, Err(_)) => ReceiveEnd::with(CloseCode::Invalid, "the close reason is not UTF-8"),
                (1000..=1003 | 1007..=1014 | 3000..=4999, Ok(_)) => ReceiveEnd::ByClient(Some(code)),
                _ => ReceiveEnd::protocol_error("invalid close code"),
            }
        }
        [_] => ReceiveEnd::protocol_error("the close code is truncated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    /// A frame of a client.
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

    /// Everything received from these bytes, read in chunks of `size` bytes.
    async fn received(bytes: &[u8], size: usize) -> (Vec<ReceivedMessage>, ReceiveEnd) {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok::<_, ()>(Bytes::copy_from_slice(piece))).collect();
        let mut messages = MessageReader::new(stream::iter(pieces), 1000, Duration::from_secs(30));
        let mut all = Vec::new();

        loop {
            match messages.next().await {
                Ok(received) => all.push(received),
                Err(closed) => return (all, closed),
            }
        }
    }

    #[tokio::test]
    async fn messages_are_reassembled_from_chunks_of_any_size() {
        let long = "ä".repeat(300);
        let mut bytes = frame(0x81, b"one");
        bytes.extend(frame(0x01, &long.as_bytes()[..301]));
        bytes.extend(frame(0x89, b"there?"));
        bytes.extend(frame(0x00, b""));
        bytes.extend(frame(0x80, &long.as_bytes()[301..]));
        bytes.extend(frame(0x8a, b""));
        bytes.extend(frame(0x88, &[0x03, 0xe8, b'b', b'y', b'e']));
        let expected = vec![
            ReceivedMessage::Text("one".to_owned()),
            ReceivedMessage::Ping(b"there?".to_vec()),
            ReceivedMessage::Text(long),
            ReceivedMessage::Pong,
        ];

        for size in [1, 2, 3, 7, 100, 10_000] {
            assert_eq!(received(&bytes, size).await, (expected.clone(), ReceiveEnd::ByClient(Some(1000))), "{size}");
        }
    }

    #[tokio::test]
    async fn invalid_frames_close_with_the_right_code() {
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
            assert!(matches!(closed, ReceiveEnd::ByGateway(sent, _) if sent == code), "{bytes:?}: {closed:?}");
        }

        assert_eq!(received(&[0x81], 1).await.1, ReceiveEnd::Lost);
    }

    #[tokio::test]
    async fn an_incomplete_message_times_out() {
        let partial = stream::iter([Ok::<_, ()>(Bytes::from_static(&[0x81]))]).chain(stream::pending());
        let mut messages = MessageReader::new(partial, 1000, Duration::from_millis(10));
        assert!(matches!(messages.next().await, Err(ReceiveEnd::ByGateway(1008, _))));
    }
}
