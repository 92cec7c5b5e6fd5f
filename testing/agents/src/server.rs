//! A scripted agent: a small HTTP/1.1 server that replies byte for byte as a test specifies. It can
//! stall, truncate at any byte, flood, close and reset.
//!
//! It has its own thread, so that it stays reachable while the runtime of a test is busy. Every wait on it is for an
//! event and has a timeout, so that a stuck test fails.
//!
//! Not here: the content of replies (the writers of this crate, the scripts of `interlingua_core_testkit` and the
//! transcripts).

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// Time that a test waits for an expected event before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The scripted reply to one request.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Raw bytes.
    Raw(Vec<u8>),
    /// Bytes as one HTTP chunk.
    Chunk(Vec<u8>),
    /// Waits until the test opens this gate.
    Wait(String),
    /// Sleeps.
    Pause(Duration),
    /// Stays silent until the client disconnects.
    Hang,
    /// The bytes, repeated, each time as one HTTP chunk.
    Repeat(Vec<u8>, usize),
    /// Repeats the bytes until the client disconnects.
    Flood(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Ends the body and keeps the connection.
    Done,
}

impl Reply {
    /// Starts with raw bytes instead of a head.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { steps: vec![Step::Raw(bytes.into())] }
    }

    /// The head of an event stream.
    pub fn events() -> Self {
        Self::head(200, &[("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")])
    }

    /// A response head; the body follows in chunks.
    pub fn head(status: u16, headers: &[(&str, &str)]) -> Self {
        let mut head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Self::raw(head)
    }

    /// A whole answer.
    pub fn complete(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        Self::head(status, headers).chunk(body).done()
    }

    /// Reads the request and never replies.
    pub fn silence() -> Self {
        Self::default().hang()
    }

    /// Closes the connection without a reply.
    pub fn nothing() -> Self {
        Self::default().close()
    }

    /// A complete event stream with one chunk per frame.
    pub fn frames<S: AsRef<str>>(frames: impl IntoIterator<Item = S>) -> Self {
        frames.into_iter().fold(Self::events(), |reply, data| reply.frame(data.as_ref())).done()
    }

    /// Adds one frame of an event stream as one chunk.
    pub fn frame(self, data: &str) -> Self {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// Adds body bytes as one chunk.
    pub fn chunk(mut self, bytes: impl AsRef<[u8]>) -> Self {
        if !bytes.as_ref().is_empty() {
            self.steps.push(Step::Chunk(bytes.as_ref().to_vec()));
        }
        self
    }

    /// Adds body bytes in chunks of this size.
    pub fn pieces(self, bytes: impl AsRef<[u8]>, size: usize) -> Self {
        bytes.as_ref().chunks(size).fold(self, Self::chunk)
    }

    /// Adds raw bytes.
    pub fn and_raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Raw(bytes.into()))
    }

    /// Waits until the test opens this gate.
    pub fn wait(self, gate: &str) -> Self {
        self.step(Step::Wait(gate.to_owned()))
    }

    /// The same reply, behind this gate.
    #[must_use]
    pub fn behind(mut self, gate: &str) -> Self {
        self.steps.insert(0, Step::Wait(gate.to_owned()));
        self
    }

    /// Sleeps. Only for tests of timing; all others wait for a gate.
    pub fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }

    /// Stays silent until the client disconnects.
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Repeats the bytes until the client disconnects.
    pub fn flood(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Flood(bytes.into()))
    }

    /// The bytes, repeated, each time as one HTTP chunk. Only one copy is in memory.
    pub fn repeat(self, bytes: impl Into<Vec<u8>>, times: usize) -> Self {
        self.step(Step::Repeat(bytes.into(), times))
    }

    /// Closes the connection without ending the body.
    pub fn close(self) -> Self {
        self.step(Step::Close)
    }

    /// Resets the connection.
    pub fn reset(self) -> Self {
        self.step(Step::Reset)
    }

    /// Ends the body; the connection serves the next request.
    pub fn done(self) -> Self {
        self.step(Step::Done)
    }

    /// The number of chunks of the body.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Chunk(_))).count()
    }

    /// The same reply with only this number of chunks of its body. After them the connection is closed, or reset.
    #[must_use]
    pub fn cut_after(mut self, chunks: usize, is_reset: bool) -> Self {
        let mut left = chunks;
        let kept = self.steps.iter().position(|step| {
            let is_chunk = matches!(step, Step::Chunk(_));
            let is_cut = is_chunk && left == 0;
            left -= usize::from(is_chunk && left > 0);
            is_cut
        });
        self.steps.truncate(kept.unwrap_or(self.steps.len()));
        if is_reset { self.reset() } else { self.close() }
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// A request that the agent received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Number of its connection, counted from 0.
    pub connection: usize,
    /// Such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: HashMap<String, String>,
    /// The body as received.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the gateway sends JSON")
    }
}

#[derive(Clone, Debug, Default)]
struct Stats {
    connections: usize,
    requests: Vec<ReceivedRequest>,
    /// Connections that the client closed or reset before the reply was complete.
    disconnects: usize,
    /// Closed connections, by either side.
    closed: usize,
    /// Bytes accepted by the socket.
    written: usize,
}

type Handler = Box<dyn FnMut(&ReceivedRequest) -> Reply + Send>;

struct Inner {
    handler: Mutex<Handler>,
    stats: watch::Sender<Stats>,
    gates: watch::Sender<Vec<String>>,
}

/// A running scripted agent. It stops when it is dropped.
pub struct Upstream {
    address: SocketAddr,
    inner: Arc<Inner>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Upstream {
    /// Sends these replies in order and repeats the last one.
    pub fn in_order(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: Vec<Reply> = replies.into_iter().collect();
        replies.reverse();
        Self::with_handler(move |_| {
            if replies.len() > 1 { replies.pop() } else { replies.last().cloned() }.expect("a reply")
        })
    }

    /// Sends the same reply to every request.
    pub fn always(reply: Reply) -> Self {
        Self::in_order([reply])
    }

    /// Chooses the reply by the request.
    pub fn with_handler(handler: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let inner = Arc::new(Inner {
            handler: Mutex::new(Box::new(handler)),
            stats: watch::Sender::new(Stats::default()),
            gates: watch::Sender::new(Vec::new()),
        });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let shared = Arc::clone(&inner);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, inner, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.inner.stats.borrow().requests.clone()
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.inner.stats.borrow().connections
    }

    /// The number of clients that disconnected before the reply was complete.
    pub fn disconnects(&self) -> usize {
        self.inner.stats.borrow().disconnects
    }

    /// The number of bytes accepted by the socket so far: read by clients or in flight.
    pub fn written(&self) -> usize {
        self.inner.stats.borrow().written
    }

    /// Opens a gate: replies that wait for it continue.
    pub fn open(&self, gate: &str) {
        self.inner.gates.send_modify(|open| open.push(gate.to_owned()));
    }

    /// Waits for this number of requests.
    pub async fn wait_for_requests(&self, count: usize) {
        self.wait(&format!("{count} requests"), |stats| stats.requests.len() >= count).await;
    }

    /// Waits for this number of disconnects before the end of a reply.
    pub async fn wait_for_disconnects(&self, count: usize) {
        self.wait(&format!("{count} disconnects"), |stats| stats.disconnects >= count).await;
    }

    /// Waits for this number of disconnects before the end of a reply, or until no connection is open: a client that
    /// leaves between two requests ends no reply early.
    pub async fn wait_for_disconnects_or_idle(&self, count: usize) {
        let what = format!("{count} disconnects, or all connections closing");
        self.wait(&what, |stats| stats.disconnects >= count || stats.closed == stats.connections).await;
    }

    /// Waits until this number of bytes was written.
    pub async fn wait_for_written(&self, count: usize) {
        self.wait(&format!("{count} bytes written"), |stats| stats.written >= count).await;
    }

    /// Waits until no connection is open.
    pub async fn wait_for_all_closed(&self) {
        self.wait("all connections closing", |stats| stats.closed == stats.connections).await;
    }

    async fn wait(&self, what: &str, reached: impl Fn(&Stats) -> bool) {
        let mut stats = self.inner.stats.subscribe();
        let outcome = tokio::time::timeout(TEST_TIMEOUT, stats.wait_for(reached)).await;
        assert!(outcome.is_ok(), "timed out waiting for {what}: {:?}", self.inner.stats.borrow());
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address that refuses connections.
pub fn unused_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener has an address")
}

/// A listener whose backlog is full, so that connects time out. Valid as long as the value lives.
pub struct FullBacklog {
    /// Where it would listen.
    pub address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullBacklog {
    /// Fills the backlog.
    pub async fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("a bound listener has an address");
        let mut waiting = Vec::new();

        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            waiting.push(stream);
            assert!(waiting.len() < 1000, "the backlog does not fill up");
        }
        Self { address, _listener: listener, _waiting: waiting }
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let mut connection = 0;
        inner.stats.send_modify(|stats| {
            connection = stats.connections;
            stats.connections += 1;
        });
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            serve(stream, connection, &inner).await;
            inner.stats.send_modify(|stats| stats.closed += 1);
        });
    }
}

async fn serve(mut stream: TcpStream, connection: usize, inner: &Inner) {
    let mut unread = Vec::new();
    while let Some(request) = request(&mut stream, &mut unread, connection).await {
        let reply = (inner.handler.lock().expect("no handler panics"))(&request);
        inner.stats.send_modify(|stats| stats.requests.push(request));
        for step in reply.steps {
            match run_step(&mut stream, step, inner).await {
                Next::Continue => {}
                Next::Disconnected => {
                    inner.stats.send_modify(|stats| stats.disconnects += 1);
                    return;
                }
                Next::Closed => return,
                Next::Reset => {
                    // Zero linger: dropping the socket sends a reset.
                    let _ = stream.set_zero_linger();
                    return;
                }
            }
        }
    }
}

enum Next {
    Continue,
    /// The client disconnected before the reply was complete.
    Disconnected,
    Closed,
    Reset,
}

async fn run_step(stream: &mut TcpStream, step: Step, inner: &Inner) -> Next {
    match step {
        Step::Raw(bytes) => send(stream, &bytes, inner).await,
        Step::Chunk(bytes) => send(stream, &chunked(&bytes), inner).await,
        Step::Done => send(stream, b"0\r\n\r\n", inner).await,
        Step::Wait(gate) => {
            let mut gates = inner.gates.subscribe();
            tokio::select! {
                opened = gates.wait_for(|open| open.contains(&gate)) => { opened.expect("the test holds the gates"); Next::Continue }
                () = disconnected(stream) => Next::Disconnected,
            }
        }
        Step::Pause(time) => {
            tokio::select! {
                () = tokio::time::sleep(time) => Next::Continue,
                () = disconnected(stream) => Next::Disconnected,
            }
        }
        Step::Hang => {
            disconnected(stream).await;
            Next::Disconnected
        }
        Step::Repeat(bytes, times) => {
            let chunk = chunked(&bytes);
            for _ in 0..times {
                if let Next::Disconnected = send(stream, &chunk, inner).await {
                    return Next::Disconnected;
                }
            }
            Next::Continue
        }
        Step::Flood(bytes) => loop {
            if let Next::Disconnected = send(stream, &bytes, inner).await {
                return Next::Disconnected;
            }
        },
        Step::Close => {
            let _ = stream.shutdown().await;
            Next::Closed
        }
        Step::Reset => Next::Reset,
    }
}

async fn send(stream: &mut TcpStream, bytes: &[u8], inner: &Inner) -> Next {
    match stream.write_all(bytes).await {
        Ok(()) => {
            inner.stats.send_modify(|stats| stats.written += bytes.len());
            Next::Continue
        }
        Err(_) => Next::Disconnected,
    }
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Waits until the client closes or resets the connection.
async fn disconnected(stream: &mut TcpStream) {
    let mut ignored = [0; 1024];
    loop {
        match stream.read(&mut ignored).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Reads one request. `None` if the client closed the connection.
async fn request(stream: &mut TcpStream, unread: &mut Vec<u8>, connection: usize) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(at) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        read_more(stream, unread).await?;
    };
    let head = String::from_utf8(unread[..head_end].to_vec()).expect("a head is text");
    unread.drain(..head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    // Clients of a proxy send the whole URL. The agent is its own proxy then.
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
    let path = path.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length is a number"));
    while unread.len() < length {
        read_more(stream, unread).await?;
    }
    let body = unread.drain(..length).collect();
    Some(ReceivedRequest { connection, method, path, headers, body })
}

async fn read_more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(unread).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
