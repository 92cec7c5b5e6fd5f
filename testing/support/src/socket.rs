//! A small WebSocket client on a plain socket, for tests that misbehave in ways no client library allows.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http::with_timeout;

/// A connection. Dropping it closes the socket without a close frame.
pub struct Socket {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A frame from the gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum SocketFrame {
    Text(Value),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// Code and reason.
    Close(Option<u16>, String),
    /// The connection has ended.
    End,
}

/// Encodes a masked client frame. `first` is the first byte: FIN bit and opcode.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(0x80 | u8::try_from(short).expect("short")),
        length @ 126..65536 => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(length).expect("below 64 KiB").to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }

    // A mask of zeros leaves the payload as it is.
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

impl Socket {
    /// Opens a connection. Panics unless the handshake succeeds.
    pub async fn open(address: SocketAddr, path: &str) -> Self {
        let (status, socket) = Self::try_open(address, path, "").await;
        assert_eq!(status, 101);
        socket
    }

    /// Sends a handshake with further header lines and returns the status.
    pub async fn try_open(address: SocketAddr, path: &str, further: &str) -> (u16, Self) {
        let mut stream = with_timeout("a connection", TcpStream::connect(address)).await.expect("the gateway listens");
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{further}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the head is taken");
        let mut socket = Self { stream, unread: Vec::new() };
        let end = loop {
            if let Some(end) = socket.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(socket.read().await, "no answer to the handshake");
        };
        let head = String::from_utf8(socket.unread.drain(..end + 4).collect()).expect("a head is text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, socket)
    }

    async fn read(&mut self) -> bool {
        matches!(with_timeout("data from the gateway", self.stream.read_buf(&mut self.unread)).await, Ok(1..))
    }

    /// Sends raw bytes.
    pub async fn raw(&mut self, bytes: &[u8]) {
        // The gateway may already have refused and closed.
        let _ = with_timeout("the bytes to be taken", self.stream.write_all(bytes)).await;
    }

    /// Sends a text frame.
    pub async fn text(&mut self, text: &str) {
        self.raw(&frame(0x81, text.as_bytes())).await;
    }

    /// Waits for the next frame.
    pub async fn next(&mut self) -> SocketFrame {
        loop {
            if let Some((opcode, payload)) = self.frame() {
                return match opcode {
                    0x1 => SocketFrame::Text(serde_json::from_slice(&payload).expect("messages are JSON")),
                    0x9 => SocketFrame::Ping(payload),
                    0xa => SocketFrame::Pong(payload),
                    0x8 => {
                        let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                        SocketFrame::Close(
                            code,
                            String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned(),
                        )
                    }
                    other => panic!("a frame of kind {other}"),
                };
            }
            if !self.read().await {
                return SocketFrame::End;
            }
        }
    }

    /// Takes a complete frame from the buffer, if there is one. The gateway sends no fragments.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let [first, second, rest @ ..] = &self.unread[..] else { return None };
        let (length, head) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (usize::from(u16::from_be_bytes([*a, *b])), 4),
            (127, [a, b, c, d, e, f, g, h, ..]) => {
                (usize::try_from(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])).expect("a length"), 10)
            }
            (126 | 127, _) => return None,
            (length, _) => (usize::from(length), 2),
        };
        assert_eq!((first & 0xf0, second & 0x80), (0x80, 0), "not fragmented, not masked");

        let opcode = first & 0x0f;
        if self.unread.len() < head + length {
            return None;
        }

        let payload = self.unread[head..head + length].to_vec();
        self.unread.drain(..head + length);
        Some((opcode, payload))
    }

    /// Waits for the next text frame.
    pub async fn event(&mut self) -> Value {
        match self.next().await {
            SocketFrame::Text(event) => event,
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// Sends a `response.create` with these fields.
    pub async fn create(&mut self, fields: &Value) {
        let mut request = json!({ "type": "response.create", "model": "friday", "store": false });
        for (name, value) in fields.as_object().expect("fields") {
            request[name] = value.clone();
        }
        self.text(&request.to_string()).await;
    }

    /// Reads events up to and including the terminal one.
    pub async fn response(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            let kind = events[events.len() - 1]["type"].as_str().expect("a type");
            if matches!(kind, "response.completed" | "response.failed" | "response.incomplete" | "error") {
                return events;
            }
        }
    }

    /// Sends a request and returns the terminal event.
    pub async fn ask(&mut self, fields: &Value) -> Value {
        self.create(fields).await;
        self.response().await.pop().expect("an answer has events")
    }
}
