//! HTTP/2 for tests: a client on the `h2` library, and a connection whose frames are written by hand.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use super::http::{Response, with_timeout};
use super::tls::{connect, over_http2};

/// An open connection. It ends when this and all of its streams are dropped.
pub struct Http2 {
    requests: SendRequest<Bytes>,
    authority: String,
    driver: JoinHandle<Result<(), h2::Error>>,
}

/// A request whose answer has not been read.
pub struct Stream {
    pub response: ResponseFuture,
    pub body: SendStream<Bytes>,
}

impl Http2 {
    pub async fn connect(address: SocketAddr, client: &ClientConfig) -> Self {
        Self::with(address, client, &Builder::new()).await
    }

    /// The same with settings of its own.
    pub async fn with(address: SocketAddr, client: &ClientConfig, builder: &Builder) -> Self {
        let stream = connect(address, &over_http2(client)).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (requests, connection) = builder.handshake(stream).await.expect("a connection");
        let driver = tokio::spawn(connection);
        Self { requests, authority: format!("localhost:{}", address.port()), driver }
    }

    /// Sends a head, and says whether a body follows.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], has_body: bool) -> Stream {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.authority));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.start(request.body(()).expect("a request"), has_body).await
    }

    pub async fn start(&self, request: Request<()>, has_body: bool) -> Stream {
        let mut requests = with_timeout("room for a stream", self.requests.clone().ready()).await.expect("it is open");
        let (response, body) = requests.send_request(request, !has_body).expect("the request is sent");
        Stream { response, body }
    }

    /// Sends a request and reads its response.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.begin(method, path, headers, body).await.whole().await
    }

    /// Sends a request.
    pub async fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Stream {
        let mut stream = self.open(method, path, headers, !body.is_empty()).await;
        if !body.is_empty() {
            // An early answer may end the stream.
            let _ = stream.body.send_data(Bytes::copy_from_slice(body), true);
        }
        stream
    }

    /// Waits for the end of the connection. Returns the error that the gateway reported.
    pub async fn end(self) -> Option<h2::Reason> {
        let Self { requests, driver, .. } = self;
        drop(requests);
        let ended = with_timeout("the connection to end", driver).await.expect("no panic");
        ended.err().and_then(|error| error.reason())
    }

    /// Drops the connection without a word.
    pub fn cut(self) {
        self.driver.abort();
    }
}

impl Stream {
    /// Reads the response to its end.
    pub async fn whole(self) -> Response {
        let (status, headers, body) = self.head().await;
        Response { status, headers, body: read(body).await.expect("a whole body") }
    }

    /// Waits for the head of the response.
    pub async fn head(self) -> (u16, Vec<(String, String)>, RecvStream) {
        let response = with_timeout("a response", self.response).await.expect("a response");
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.as_str().to_owned(), value.to_str().expect("text").to_owned())).collect();
        (response.status().as_u16(), headers, response.into_body())
    }

    /// Waits until the stream fails. Returns why.
    pub async fn error(self) -> Option<h2::Reason> {
        let response = match with_timeout("an end", self.response).await {
            Ok(response) => response,
            Err(error) => return error.reason(),
        };
        read(response.into_body()).await.expect_err("the response is cut off").reason()
    }

    /// Waits for `100 Continue`.
    pub async fn is_asked_for_its_body(&mut self) -> bool {
        let interim = with_timeout("an interim response", poll_fn(|context| self.response.poll_informational(context)));
        interim.await.is_some_and(|interim| interim.expect("a response").status() == 100)
    }
}

/// Reads a complete body and its trailers.
pub async fn read_with_trailers(mut body: RecvStream) -> Result<(Vec<u8>, Option<http::HeaderMap>), h2::Error> {
    let whole = read_data(&mut body).await?;
    Ok((whole, with_timeout("the trailers", body.trailers()).await?))
}

/// Reads a body to its end.
pub async fn read(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    read_data(&mut body).await
}

async fn read_data(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut whole = Vec::new();
    while let Some(part) = with_timeout("a part of a body", body.data()).await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

/// Reads until this text has arrived.
pub async fn read_until(body: &mut RecvStream, text: &str) {
    let mut whole = String::new();
    while !whole.contains(text) {
        let part = with_timeout(text, body.data()).await.expect("more").expect("a part");
        body.flow_control().release_capacity(part.len()).expect("room");
        whole.push_str(&String::from_utf8_lossy(&part));
    }
}

/// Kinds of frames (RFC 9113, section 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame.
#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The first number of its payload: an error code, in most that have one.
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields in the plainest form of HPACK (RFC 7541, section 6.2.2): not indexed, not compressed.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Lengths of up to 126 take one byte, others more.
            let mut rest = text.len();
            if rest < 127 {
                block.push(u8::try_from(rest).expect("short"));
            } else {
                block.push(127);
                rest -= 127;
                while rest >= 128 {
                    block.push(u8::try_from(rest % 128).expect("short") | 128);
                    rest /= 128;
                }
                block.push(u8::try_from(rest).expect("short"));
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The fields of a request for this path.
pub fn request_fields<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
}

/// The HEADERS frame of a request without a body.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(kind::HEADERS, END_STREAM | END_HEADERS, stream, &fields(&request_fields("GET", path)))
}

/// A connection whose frames are written by hand.
pub struct Raw {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

impl Raw {
    /// Shakes hands and sends the preface and our settings: pairs of an identifier and a value.
    pub async fn connect(address: SocketAddr, client: &Arc<ClientConfig>, settings: &[(u16, u32)]) -> Self {
        let mut raw = Self::silent(address, client).await;
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface");
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()[..]].concat())
            .collect();
        raw.send(&frame(kind::SETTINGS, 0, 0, &payload)).await.expect("our settings");
        raw
    }

    /// Shakes hands and sends nothing.
    pub async fn silent(address: SocketAddr, client: &Arc<ClientConfig>) -> Self {
        let stream = connect(address, &over_http2(client)).await.expect("a handshake");
        Self { stream, unread: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        with_timeout("bytes to be taken", async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        })
        .await
    }

    /// The next frame. `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(header) = self.unread.first_chunk::<9>() {
                let end = 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                if self.unread.len() >= end {
                    let bytes: Vec<u8> = self.unread.drain(..end).collect();
                    let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                    return Some(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() });
                }
            }
            let read = with_timeout("a frame", self.stream.read_buf(&mut self.unread)).await;
            if read.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next frame of this kind. `None` if the connection ends before.
    pub async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The error with which the gateway closes the connection. `None` if it gives none.
    pub async fn closed(&mut self) -> Option<u32> {
        self.next_of(kind::GOAWAY).await.map(|frame| frame.code())
    }
}
