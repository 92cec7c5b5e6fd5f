//! A small WebSocket client on a bare socket, for tests that have to be worse than any client library lets them.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http::bounded;

/// A connection. Dropping it closes it without a word.
pub struct Socket {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// What the gateway says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Text(Value),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// The code and the reason.
    Close(Option<u16>, String),
    /// The connection is gone.
    End,
}

/// A client's frame.
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
    // A mask of zeros is one.
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

impl Socket {
    /// Opens one.
    pub async fn open(address: SocketAddr, path: &str) -> Self {
        let (status, socket) = Self::try_open(address, path, "").await;
        assert_eq!(status, 101);
        socket
    }

    /// Asks for one, with further lines of the head; answers the status.
    pub async fn try_open(address: SocketAddr, path: &str, further: &str) -> (u16, Self) {
        let mut stream = bounded("a connection", TcpStream::connect(address)).await.expect("the gateway listens");
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
        matches!(bounded("the gateway to say something", self.stream.read_buf(&mut self.unread)).await, Ok(1..))
    }

    /// Sends bytes as they are.
    pub async fn raw(&mut self, bytes: &[u8]) {
        // A gateway that has heard enough may have closed already.
        let _ = bounded("the bytes to be taken", self.stream.write_all(bytes)).await;
    }

    /// Sends a text.
    pub async fn text(&mut self, text: &str) {
        self.raw(&frame(0x81, text.as_bytes())).await;
    }

    /// What comes next.
    pub async fn next(&mut self) -> Said {
        loop {
            if let Some((opcode, payload)) = self.frame() {
                return match opcode {
                    0x1 => Said::Text(serde_json::from_slice(&payload).expect("messages are JSON")),
                    0x9 => Said::Ping(payload),
                    0xa => Said::Pong(payload),
                    0x8 => {
                        let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                        Said::Close(code, String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned())
                    }
                    other => panic!("a frame of kind {other}"),
                };
            }
            if !self.read().await {
                return Said::End;
            }
        }
    }

    /// A whole frame of the gateway, if it is there. It sends no fragments.
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
        assert_eq!((first & 0xf0, second & 0x80), (0x80, 0), "whole, and not masked");
        let opcode = first & 0x0f;
        if self.unread.len() < head + length {
            return None;
        }
        let payload = self.unread[head..head + length].to_vec();
        self.unread.drain(..head + length);
        Some((opcode, payload))
    }

    /// The next message.
    pub async fn event(&mut self) -> Value {
        match self.next().await {
            Said::Text(event) => event,
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// Sends a request: a `response.create` with these fields.
    pub async fn create(&mut self, fields: &Value) {
        let mut request = json!({ "type": "response.create", "model": "friday", "store": false });
        for (name, value) in fields.as_object().expect("fields") {
            request[name] = value.clone();
        }
        self.text(&request.to_string()).await;
    }

    /// The events of one answer.
    pub async fn answer(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            let kind = events[events.len() - 1]["type"].as_str().expect("a type");
            if matches!(kind, "response.completed" | "response.failed" | "response.incomplete" | "error") {
                return events;
            }
        }
    }

    /// Asks, and answers the last event.
    pub async fn ask(&mut self, fields: &Value) -> Value {
        self.create(fields).await;
        self.answer().await.pop().expect("an answer has events")
    }
}
