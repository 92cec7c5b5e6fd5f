//! Requests to servers that follow a script.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::{FutureExt as _, StreamExt as _};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use interlingua_core::FaultKind;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpListener;
use tokio::task::yield_now;

use super::socket::{Progress, Socket};
use super::*;
use crate::http::failure;

const CONNECT: Duration = Duration::from_secs(5);
const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nhello";
const OPEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A server, and its address.
struct Server {
    listener: TcpListener,
    authority: Arc<str>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let authority = listener.local_addr().expect("an address").to_string().into();
        Self { listener, authority }
    }

    /// A request on a new connection.
    async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        let request = read_request(&mut stream).await;
        (stream, request)
    }

    /// Sends a request. `attempt` notes whether it needs a new connection.
    fn request(
        &self,
        body: Option<&Bytes>,
        attempt: &Arc<Attempt>,
    ) -> impl Future<Output = Result<(Head, Body), PlainError>> + use<> {
        let mut headers = HeaderMap::new();
        headers.insert("x-token", HeaderValue::from_static("old"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let host = HeaderValue::from_static("agent");
        let extra = (HeaderName::from_static("x-token"), HeaderValue::from_static("new"));
        let request = PlainRequest {
            method: &method,
            authority: &self.authority,
            host: &host,
            path: &Uri::from_static("/process?a=b"),
            headers: &headers,
            extra: Some(&extra),
            body,
        };
        send(&request, CONNECT, Arc::clone(attempt))
    }

    /// Sends a request without a body.
    fn get(&self) -> impl Future<Output = Result<(Head, Body), PlainError>> + use<> {
        self.request(None, &Arc::default())
    }

    /// Sends a request, reads the answer, and returns its connection to the pool. Returns the server's end of it.
    async fn warm_up(&self) -> TcpStream {
        let serve = async {
            let (mut stream, _) = self.accept().await;
            stream.write_all(WHOLE.as_bytes()).await.expect("open");
            stream
        };
        let (stream, answer) = tokio::join!(serve, self.get());
        let (data, error) = read(answer.expect("an answer").1).await;
        assert!(data == "hello" && error.is_none());
        stream
    }

    fn has_unused_connection(&self) -> bool {
        IdlePool::of_thread().take(&self.authority).is_some()
    }
}

/// Reads a request, and returns its head.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let end = loop {
        assert!(stream.read_buf(&mut bytes).await.expect("a request") > 0, "the request is incomplete");
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
    while bytes.len() < end + length {
        assert!(stream.read_buf(&mut bytes).await.expect("a body") > 0, "the body is incomplete");
    }
    head
}

/// Reads a body to its end.
async fn read(mut body: Body) -> (String, Option<hyper::Error>) {
    let mut data = Vec::new();
    let mut failed = None;
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => data.extend_from_slice(&chunk),
            Err(error) => failed = Some(error),
        }
    }
    (String::from_utf8(data).expect("text"), failed)
}

#[tokio::test]
async fn answers_of_each_framing_are_read() {
    for (answer, status, data, is_kept) in [
        (WHOLE, 200, "hello", true),
        (UNTIL_CLOSE, 200, "hello", false),
        (&format!("{OPEN}2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nx-sum: 1\r\n\r\n"), 200, "hello", true),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, "hello", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello", 200, "hello", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello", 200, "hello", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
        // The connection belongs to the other protocol.
        ("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello", 101, "", false),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nlink: </a>\r\n\r\nHTTP/1.1 503 Busy\r\n\r\nno",
            503,
            "no",
            false,
        ),
        // The rest would be taken for the next answer.
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more", 200, "hello", false),
    ] {
        let server = Server::start().await;
        let serve = async {
            let (mut stream, _) = server.accept().await;
            stream.write_all(answer.as_bytes()).await.expect("open");
            if answer == UNTIL_CLOSE || status == 503 {
                stream.shutdown().await.expect("open");
            }
            stream
        };
        let ask = async {
            let (head, body) = server.get().await.expect("an answer");
            (head.status.as_u16(), read(body).await)
        };
        let (_stream, (found, (text, error))) = tokio::join!(serve, ask);
        assert_eq!((found, text.as_str(), error.is_none()), (status, data, true), "{answer}");
        assert_eq!(server.has_unused_connection(), is_kept, "{answer}");
    }
}

#[tokio::test]
async fn an_address_of_version_6_can_be_requested() {
    // Some machines have only version 4.
    let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
    let authority = listener.local_addr().expect("an address").to_string().into();
    let server = Server { listener, authority };
    server.warm_up().await;
    assert!(server.authority.starts_with("[::1]:"));
}

#[tokio::test]
async fn a_connection_serves_several_requests() {
    let server = Server::start().await;
    let mut stream = server.warm_up().await;
    for (body, length) in
        [(Some(Bytes::from_static(b"body")), Some("4")), (Some(Bytes::new()), Some("0")), (None, None)]
    {
        let serve = async {
            let head = read_request(&mut stream).await;
            stream.write_all(WHOLE.as_bytes()).await.expect("open");
            head
        };
        let attempt = Arc::default();
        let (head, answer) = tokio::join!(serve, server.request(body.as_ref(), &attempt));
        assert_eq!(read(answer.expect("an answer").1).await.0, "hello");
        assert!(!attempt.dialled());

        let method = if body.is_some() { "POST" } else { "GET" };
        assert!(head.starts_with(&format!("{method} /process?a=b HTTP/1.1\r\n")), "{head}");
        assert!(head.contains("\r\nhost: agent\r\n") && head.contains("\r\nx-token: new\r\n"), "{head}");
        let found = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        assert!(found == length && !head.contains("old") && !head.contains("chunked"), "{head}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used_again() {
    let server = Server::start().await;
    let serve = async {
        for _ in 0..2 {
            let (mut stream, _) = server.accept().await;
            stream.write_all(WHOLE.as_bytes()).await.expect("open");
        }
    };
    let ask = async {
        for _ in 0..2 {
            let attempt = Arc::default();
            let (_, body) = server.request(None, &attempt).await.expect("an answer");
            assert_eq!(read(body).await.0, "hello");
            assert!(attempt.dialled());
        }
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn only_a_connection_without_a_byte_of_an_answer_is_disconnected() {
    for (answer, is_disconnect) in [("", true), ("HTTP/1.1 103 Early Hints\r\n\r\n", false), ("HTTP/1.1 20", false)] {
        let server = Server::start().await;
        let mut stream = server.warm_up().await;
        let serve = async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.expect("open");
        };
        let attempt = Arc::default();
        let body = Bytes::from_static(b"body");
        let ((), asked) = tokio::join!(serve, server.request(Some(&body), &attempt));
        let error = asked.expect_err("no answer");
        assert_eq!(error.is_disconnect(), is_disconnect, "{answer}: {error:?}");
        assert!(!attempt.dialled() && !error.is_connect() && !error.is_timeout() && !error.is_parse(), "{error:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_read_although_the_request_is_not() {
    let server = Server::start().await;
    let serve = async {
        let (mut stream, _) = server.listener.accept().await.expect("a connection");
        let mut beginning = [0; 64];
        stream.read_exact(&mut beginning).await.expect("a request");
        let refusal = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nhello";
        stream.write_all(refusal).await.expect("open");
    };
    let body = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
    let ((), answer) = tokio::join!(serve, server.request(Some(&body), &Arc::default()));
    let (head, body) = answer.expect("an answer");
    assert_eq!(head.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(read(body).await.0, "hello");
    assert!(!server.has_unused_connection());
}

#[tokio::test]
async fn data_before_a_fault_is_kept() {
    use FaultKind::{UpstreamGarbage, UpstreamTruncated};
    for (answer, data, kind) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "abc", UpstreamTruncated),
        (&format!("{OPEN}2\r\nab\r\n5\r\nc"), "abc", UpstreamTruncated),
        (&format!("{OPEN}2\r\nab\r\nz\r\n"), "ab", UpstreamGarbage),
        (&format!("{OPEN}2\r\nabc\r\n"), "ab", UpstreamGarbage),
    ] {
        let server = Server::start().await;
        let serve = async {
            let (mut stream, _) = server.accept().await;
            stream.write_all(answer.as_bytes()).await.expect("open");
        };
        let ((), answered) = tokio::join!(serve, server.get());
        let (text, error) = read(answered.expect("an answer").1).await;
        let fault = failure::in_plain_answer(error.expect("a fault"));
        assert_eq!((text.as_str(), fault.kind), (data, kind), "{answer}");
        assert!(!server.has_unused_connection());
    }
}

#[tokio::test]
async fn a_head_has_limits() {
    let fields = |count: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", "a: b\r\n".repeat(count - 1));
    let long = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\na: {}\r\n\r\n", "b".repeat(length));
    for (answer, is_read) in [
        ("SSH-2.0-x\r\n".to_owned(), false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\n".to_owned(), false),
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(), false),
        (fields(100), true),
        (fields(101), false),
        (long(300 * 1024), true),
        (long(1024 * 1024), false),
    ] {
        let server = Server::start().await;
        let serve = async {
            let (mut stream, _) = server.accept().await;
            // The client may have seen enough.
            let _ = stream.write_all(answer.as_bytes()).await;
            stream
        };
        let (_stream, answered) = tokio::join!(serve, server.get());
        let beginning = &answer[..answer.len().min(64)];
        match answered {
            Ok(_) => assert!(is_read, "{beginning}"),
            Err(error) => assert!(!is_read && error.is_parse() && !error.is_disconnect(), "{beginning}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn dropping_a_request_or_a_body_closes_the_connection() {
    let server = Server::start().await;
    let mut sending = Box::pin(server.get());
    let (mut stream, _) = tokio::select! {
        _ = &mut sending => panic!("there is no answer"),
        accepted = server.accept() => accepted,
    };
    drop(sending);
    assert_eq!(stream.read(&mut [0]).await.expect("its end"), 0);

    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(format!("{OPEN}2\r\nab\r\n").as_bytes()).await.expect("open");
        stream
    };
    let (mut stream, answer) = tokio::join!(serve, server.get());
    let (_, mut body) = answer.expect("an answer");
    assert_eq!(body.next().await.expect("data").expect("data"), "ab");
    drop(body);
    assert_eq!(stream.read(&mut [0]).await.expect("its end"), 0);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn one_poll_returns_all_chunks_of_a_packet_and_wakes_no_task() {
    let server = Server::start().await;
    let serve = async {
        let (mut stream, _) = server.accept().await;
        let answer = format!("{OPEN}2\r\nab\r\n1\r\nc\r\n3\r\ndef\r\n");
        stream.write_all(answer.as_bytes()).await.expect("open");
        stream
    };
    let (mut stream, answer) = tokio::join!(serve, server.get());
    let mut body = answer.expect("an answer").1;
    assert_eq!(body.next().now_or_never().flatten().expect("data").expect("data"), "abcdef");

    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    assert!(body.poll_next_unpin(&mut context).is_pending());
    stream.write_all(b"1\r\ng\r\n1\r\nh\r\n").await.expect("open");
    while wakes.0.load(Ordering::Relaxed) == 0 {
        yield_now().await;
    }
    let Poll::Ready(Some(Ok(data))) = body.poll_next_unpin(&mut context) else { panic!("data") };
    assert_eq!(data, "gh");
    assert!(body.poll_next_unpin(&mut context).is_pending());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);

    // The end arrives with the last chunk, and the connection is free before the body is polled again.
    stream.write_all(b"1\r\ni\r\n0\r\n\r\n").await.expect("open");
    assert_eq!(body.next().await.expect("data").expect("data"), "i");
    assert!(server.has_unused_connection());
    assert!(body.next().await.is_none());
}

/// Bytes that note when they are freed.
struct WatchedBytes(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for WatchedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for WatchedBytes {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_request_is_freed_when_it_was_written() {
    let server = Server::start().await;
    let is_freed = Arc::new(AtomicBool::new(false));
    let body = Bytes::from_owner(WatchedBytes(vec![b'x'; 256 * 1024], Arc::clone(&is_freed)));
    let serve = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(OPEN.as_bytes()).await.expect("open");
        stream
    };
    let sending = server.request(Some(&body), &Arc::default());
    drop(body);
    let (_stream, answer) = tokio::join!(serve, sending);
    let (_, mut body) = answer.expect("an answer");
    assert!(body.next().now_or_never().is_none());
    assert!(is_freed.load(Ordering::Relaxed));
}

/// A socket that accepts nothing. Once something is written, it contains an answer and the end.
struct BrokenSocket {
    error: io::ErrorKind,
    answer: &'static [u8],
    is_written: bool,
}

impl AsyncRead for BrokenSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_written {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        buffer.put_slice(std::mem::take(&mut self.answer));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BrokenSocket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!self.is_written, "the rest of a request is discarded");
        self.is_written = true;
        Poll::Ready(Err(self.error.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn the_error_of_a_write_counts_if_there_is_no_answer() {
    let ask = async |error: io::ErrorKind, answer: &'static [u8]| {
        let progress = Arc::new(Progress::default());
        let socket = Socket::new(BrokenSocket { error, answer, is_written: false }, Arc::clone(&progress));
        let (mut sender, connection) = Builder::new().handshake(TokioIo::new(socket)).await.expect("a connection");
        let body = Full::new(Bytes::from_static(b"body"));
        let mut sending = pin!(sender.send_request(Request::post("/").body(body).expect("a request")));
        let answer = tokio::select! {
            answer = &mut sending => answer,
            _ = connection => sending.await,
        };
        assert!(progress.is_write_closed());
        answer
            .map(|answer| answer.status())
            .map_err(|error| PlainError::Http { error, has_answer: progress.has_answer() })
    };
    let error = ask(io::ErrorKind::TimedOut, b"").await.expect_err("no answer");
    assert!(error.is_timeout() && !error.is_connect(), "{error:?}");
    let error = ask(io::ErrorKind::BrokenPipe, b"").await.expect_err("no answer");
    assert!(!error.is_timeout() && error.is_disconnect(), "{error:?}");
    let status = ask(io::ErrorKind::BrokenPipe, b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(status.expect("an answer"), StatusCode::PAYLOAD_TOO_LARGE);
}
