//! A small HTTP/1.1 client on a plain socket, for tests that misbehave in ways no client library allows: disconnect
//! mid-response, stop reading, send bytes that are not HTTP.
//!
//! Every wait has the same timeout, so that a stuck test fails. Not here: validation of streams
//! ([`super::transcript`]).

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Time that a test waits for an expected event before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the gateway writes UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A request and its response, read incrementally. Dropping it closes the connection.
pub struct Exchange {
    stream: TcpStream,
    unread: Vec<u8>,
    head: Option<Head>,
    /// The decoded body that was received and not yet consumed.
    body: Vec<u8>,
    /// The length of the body prefix that is known to contain no end of an event.
    scanned: usize,
    over: bool,
}

#[derive(Clone, Debug)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    length: Option<usize>,
    chunked: bool,
}

/// Encodes a request.
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
    /// Connects and sends raw bytes.
    pub async fn send(address: SocketAddr, bytes: &[u8]) -> Self {
        let stream = with_timeout("a connection", TcpStream::connect(address)).await.expect("the gateway listens");
        Self::over(stream, bytes).await
    }

    /// The same with the smallest receive buffer that the system allows, for clients that read slowly.
    pub async fn send_with_small_buffer(address: SocketAddr, bytes: &[u8]) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let stream = with_timeout("a connection", socket.connect(address)).await.expect("the gateway listens");
        Self::over(stream, bytes).await
    }

    async fn over(stream: TcpStream, bytes: &[u8]) -> Self {
        let mut exchange = Self { stream, unread: Vec::new(), head: None, body: Vec::new(), scanned: 0, over: false };
        exchange.send_next(bytes).await;
        exchange
    }

    /// Sends the next request on the same connection, after the previous response has been read.
    pub async fn send_next(&mut self, bytes: &[u8]) {
        (self.head, self.over) = (None, false);
        // The server may already have refused and closed; its response is read anyway.
        let _ = with_timeout("the request to be taken", self.stream.write_all(bytes)).await;
    }

    /// Sends more of the same request.
    pub async fn send_more(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        with_timeout("more of the request to be taken", self.stream.write_all(bytes)).await
    }

    /// Waits for the response head and returns the status.
    pub async fn status(&mut self) -> u16 {
        self.head().await.status
    }

    /// Waits for the response head and returns a header.
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
                let content_length = header(&headers, "content-length").and_then(|length| length.parse().ok());
                self.head = Some(Head {
                    status,
                    length: if status == 204 { Some(0) } else { content_length },
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

    /// Reads once from the socket. False if the connection has ended.
    async fn read(&mut self) -> bool {
        let read = with_timeout("the answer to go on", self.stream.read_buf(&mut self.unread)).await;
        matches!(read, Ok(count) if count > 0)
    }

    /// Waits for more of the body. False at its end. Panics if the connection ends before the body does.
    async fn read_more_body(&mut self) -> bool {
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
                let full = head.length.is_none() && !head.chunked;
                assert!(
                    full,
                    "the connection ended in the middle of the body: {:?}",
                    String::from_utf8_lossy(&self.body)
                );
                self.over = true;
            }
        }
    }

    /// Reads the complete response.
    pub async fn response(mut self) -> Response {
        self.read_response().await
    }

    /// Reads the complete response and keeps the connection.
    pub async fn read_response(&mut self) -> Response {
        let head = self.head().await;
        while self.read_more_body().await {}
        Response { status: head.status, headers: head.headers, body: std::mem::take(&mut self.body) }
    }

    /// The next server-sent event with all its lines. `None` at the regular end of the stream.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.body[self.scanned..], b"\n\n") {
                let end = self.scanned + end;
                self.scanned = 0;
                let event = self.body.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8(event).expect("the gateway writes UTF-8"));
            }
            self.scanned = self.body.len().saturating_sub(1);
            if !self.read_more_body().await {
                assert!(self.body.is_empty(), "incomplete event: {:?}", String::from_utf8_lossy(&self.body));
                return None;
            }
        }
    }

    /// The data of the next event as JSON, skipping comments and events without content.
    pub async fn frame(&mut self) -> Option<Value> {
        loop {
            // Events without content have only an id.
            if let Some(data) = data(&self.event().await?).filter(|data| !data.is_empty()) {
                return Some(serde_json::from_str(data).expect("a frame is JSON"));
            }
        }
    }

    /// Reads frames up to the first one that contains the text, and returns them all.
    pub async fn read_until(&mut self, text: &str) -> Vec<Value> {
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

    /// Reads all remaining frames.
    pub async fn frames(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }

    /// Reads raw bytes until the connection ends.
    pub async fn bytes(mut self) -> Vec<u8> {
        while self.read().await {}
        self.unread
    }

    /// Reads and discards up to `max` bytes. False if the connection has ended.
    pub async fn read_some(&mut self, max: usize) -> bool {
        let mut bytes = vec![0; max];
        matches!(with_timeout("some bytes", self.stream.read(&mut bytes)).await, Ok(count) if count > 0)
    }

    /// Resets the connection instead of closing it.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("a socket that can be reset");
    }
}

/// The data of an event. `None` for comments.
pub fn data(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("data: "))
}

/// The position of a byte sequence.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Awaits a future. Panics after [`TEST_TIMEOUT`].
pub async fn with_timeout<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, waiting).await {
        Ok(done) => done,
        Err(_) => panic!("timed out waiting for {what}"),
    }
}
