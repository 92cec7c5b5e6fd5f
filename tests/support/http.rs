//! A small HTTP/1.1 client on a bare socket, for tests that have to be worse than any client library lets them: it
//! leaves in the middle, reads a little and stops, sends what is no HTTP.
//!
//! Every wait has one bound, for a test that is stuck. Not here: what answers mean ([`super::story`]).

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How long a test waits for something that has to happen.
pub const STUCK: Duration = Duration::from_secs(30);

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the gateway writes UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A request, and the answer as it comes. Dropping it closes the connection.
pub struct Exchange {
    stream: TcpStream,
    unread: Vec<u8>,
    head: Option<Head>,
    /// The body, freed of chunks, as far as it was not taken.
    body: Vec<u8>,
    /// How much of the body holds no end of an event.
    looked: usize,
    over: bool,
}

#[derive(Clone, Debug)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    length: Option<usize>,
    chunked: bool,
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

impl Exchange {
    /// Connects and sends these bytes.
    pub async fn send(address: SocketAddr, bytes: &[u8]) -> Self {
        let stream = bounded("a connection", TcpStream::connect(address)).await.expect("the gateway listens");
        Self::over(stream, bytes).await
    }

    /// Sends these bytes over a connection whose receive buffer is as small as the system allows.
    pub async fn send_and_read_slowly(address: SocketAddr, bytes: &[u8]) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let stream = bounded("a connection", socket.connect(address)).await.expect("the gateway listens");
        Self::over(stream, bytes).await
    }

    async fn over(stream: TcpStream, bytes: &[u8]) -> Self {
        let mut exchange = Self { stream, unread: Vec::new(), head: None, body: Vec::new(), looked: 0, over: false };
        exchange.again(bytes).await;
        exchange
    }

    /// Sends these bytes too: the next request, once the answer to the one before is over.
    pub async fn again(&mut self, bytes: &[u8]) {
        (self.head, self.over) = (None, false);
        // A server that has heard enough may have closed already; what it said is read all the same.
        let _ = bounded("the request to be taken", self.stream.write_all(bytes)).await;
    }

    /// Sends more of the same request.
    pub async fn more(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        bounded("more of the request to be taken", self.stream.write_all(bytes)).await
    }

    /// The status, once it has come.
    pub async fn status(&mut self) -> u16 {
        self.head().await.status
    }

    /// A header of the answer.
    pub async fn header(&mut self, name: &str) -> Option<String> {
        header(&self.head().await.headers, name).map(str::to_owned)
    }

    async fn head(&mut self) -> Head {
        loop {
            if let Some(head) = &self.head {
                return head.clone();
            }
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let text = String::from_utf8(self.unread.drain(..end + 4).collect()).expect("a head is text");
                let mut lines = text.trim_end().split("\r\n");
                let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
                let headers: Vec<(String, String)> = lines
                    .filter_map(|line| line.split_once(':'))
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                    .collect();
                let status = status.expect("a status line");
                let told = header(&headers, "content-length").and_then(|length| length.parse().ok());
                self.head = Some(Head {
                    status,
                    length: if status == 204 { Some(0) } else { told },
                    chunked: header(&headers, "transfer-encoding") == Some("chunked"),
                    headers,
                });
                continue;
            }
            assert!(
                self.read().await,
                "the connection ended before the head: {:?}",
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    /// Reads once. False: the connection has ended.
    async fn read(&mut self) -> bool {
        let read = bounded("the answer to go on", self.stream.read_buf(&mut self.unread)).await;
        matches!(read, Ok(count) if count > 0)
    }

    /// Waits for more of the body. False: it is over. Panics if the connection ended before the body did.
    async fn grow(&mut self) -> bool {
        let head = self.head().await;
        loop {
            if self.over {
                return false;
            }
            if head.chunked {
                if let Some(line) = find(&self.unread, b"\r\n") {
                    let size = std::str::from_utf8(&self.unread[..line]).ok();
                    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).expect("the size of a chunk");
                    if self.unread.len() >= line + size + 4 {
                        self.body.extend_from_slice(&self.unread[line + 2..line + 2 + size]);
                        self.unread.drain(..line + size + 4);
                        self.over = size == 0;
                        return !self.over;
                    }
                }
            } else if let Some(length) = head.length {
                let taken = self.unread.len().min(length - self.body.len());
                self.body.extend(self.unread.drain(..taken));
                if self.body.len() == length {
                    self.over = true;
                    return false;
                }
            } else {
                let taken = self.unread.len();
                self.body.append(&mut self.unread);
                if taken > 0 {
                    return true;
                }
            }
            if !self.read().await {
                let whole = head.length.is_none() && !head.chunked;
                assert!(
                    whole,
                    "the connection ended in the middle of the body: {:?}",
                    String::from_utf8_lossy(&self.body)
                );
                self.over = true;
            }
        }
    }

    /// The whole answer.
    pub async fn answer(mut self) -> Answer {
        self.answer_here().await
    }

    /// The whole answer; the connection stays.
    pub async fn answer_here(&mut self) -> Answer {
        let head = self.head().await;
        while self.grow().await {}
        Answer { status: head.status, headers: head.headers, body: std::mem::take(&mut self.body) }
    }

    /// The next event of a stream, as its lines. None: the stream is over, properly.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.body[self.looked..], b"\n\n") {
                let end = self.looked + end;
                self.looked = 0;
                let event = self.body.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8(event).expect("the gateway writes UTF-8"));
            }
            self.looked = self.body.len().saturating_sub(1);
            if !self.grow().await {
                assert!(self.body.is_empty(), "half an event: {:?}", String::from_utf8_lossy(&self.body));
                return None;
            }
        }
    }

    /// The next frame of a stream, without comments.
    pub async fn frame(&mut self) -> Option<Value> {
        loop {
            if let Some(data) = data(&self.event().await?) {
                return Some(serde_json::from_str(data).expect("a frame is JSON"));
            }
        }
    }

    /// Everything up to the frame in which the text stands.
    pub async fn until(&mut self, text: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame().await.unwrap_or_else(|| panic!("the stream ended without {text:?}: {frames:?}"));
            let found = frame.to_string().contains(text);
            frames.push(frame);
            if found {
                return frames;
            }
        }
    }

    /// All frames that are left.
    pub async fn frames(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }

    /// Bytes as they come, however they are meant, up to the end of the connection.
    pub async fn bytes(mut self) -> Vec<u8> {
        while self.read().await {}
        self.unread
    }

    /// Reads at most so many bytes off the socket, and throws them away. False: the connection has ended.
    pub async fn sip(&mut self, most: usize) -> bool {
        let mut bytes = vec![0; most];
        matches!(bounded("a sip", self.stream.read(&mut bytes)).await, Ok(count) if count > 0)
    }

    /// Resets the connection instead of closing it.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("a socket that can be reset");
    }
}

/// What an event says; None for comments.
pub fn data(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("data: "))
}

/// Where a short row of bytes begins.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Waits, but not for ever.
pub async fn bounded<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(STUCK, waiting).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}
