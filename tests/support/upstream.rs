//! A scripted agent for behaviour tests: a small HTTP/1.1 server that answers byte for byte what a test says, and can
//! be as bad as the worst of them. It stalls, cuts anywhere, floods, hangs up, resets.
//!
//! It runs on a thread of its own, so it serves any kind of test, and stays reachable while a test's own runtime is
//! busy. Every wait on it is for an event, with one bound for a test that is stuck.
//!
//! Not here: what agents say (the scripts of `interlingua_core::testkit` and the transcripts).

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// How long a test waits for something that has to happen.
pub const STUCK: Duration = Duration::from_secs(20);

/// What is done to one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes, as they are.
    Raw(Vec<u8>),
    /// Bytes as one HTTP chunk.
    Chunk(Vec<u8>),
    /// Nothing more until the test opens this gate.
    Wait(String),
    /// Nothing for a while.
    Pause(Duration),
    /// Nothing more until the client leaves.
    Hang,
    /// The same bytes again and again until the client leaves.
    Flood(Vec<u8>),
    /// The connection is closed as it should be.
    Close,
    /// The connection is reset.
    Reset,
    /// The body is over; the connection stays.
    Done,
}

impl Answer {
    /// Nothing at all yet: add raw bytes.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { steps: vec![Step::Raw(bytes.into())] }
    }

    /// The head of an event stream.
    pub fn events() -> Self {
        Self::head(200, &[("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")])
    }

    /// A head; the body follows in chunks.
    pub fn head(status: u16, headers: &[(&str, &str)]) -> Self {
        let mut head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Self::raw(head)
    }

    /// A whole answer.
    pub fn whole(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        Self::head(status, headers).chunk(body).done()
    }

    /// The request is read, and that is all.
    pub fn silence() -> Self {
        Self::default().hang()
    }

    /// The connection is closed, or reset, without an answer.
    pub fn nothing() -> Self {
        Self::default().close()
    }

    /// An event stream that says all this, in one chunk a frame, and ends well.
    pub fn frames<S: AsRef<str>>(frames: impl IntoIterator<Item = S>) -> Self {
        frames.into_iter().fold(Self::events(), |answer, data| answer.frame(data.as_ref())).done()
    }

    /// One frame of an event stream, as one chunk.
    pub fn frame(self, data: &str) -> Self {
        self.chunk(format!("data: {data}\n\n"))
    }

    /// Bytes of the body, as one chunk.
    pub fn chunk(mut self, bytes: impl AsRef<[u8]>) -> Self {
        if !bytes.as_ref().is_empty() {
            self.steps.push(Step::Chunk(bytes.as_ref().to_vec()));
        }
        self
    }

    /// Bytes of the body, in chunks of this size.
    pub fn pieces(self, bytes: impl AsRef<[u8]>, size: usize) -> Self {
        bytes.as_ref().chunks(size).fold(self, Self::chunk)
    }

    /// Bytes as they are, wherever the answer stands.
    pub fn and_raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Raw(bytes.into()))
    }

    /// Waits until the test opens this gate.
    pub fn wait(self, gate: &str) -> Self {
        self.step(Step::Wait(gate.to_owned()))
    }

    /// Says nothing for a while. For tests in which time itself is the matter; all others wait for a gate.
    pub fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }

    /// Says nothing more until the client leaves.
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// Says the same again and again until the client leaves.
    pub fn flood(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Flood(bytes.into()))
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

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The connection it came over, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// Headers, names in small letters.
    pub headers: HashMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Asked {
    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the gateway asks in JSON")
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    connections: usize,
    asked: Vec<Asked>,
    /// Connections the client closed, or reset, before their answer was complete.
    left: usize,
    /// Connections that are gone, whoever closed them.
    gone: usize,
    /// Bytes the system took for clients.
    written: usize,
}

type Choose = Box<dyn FnMut(&Asked) -> Answer + Send>;

struct Inner {
    choose: Mutex<Choose>,
    seen: watch::Sender<Seen>,
    gates: watch::Sender<Vec<String>>,
}

/// A scripted agent. It stops when it is dropped.
pub struct Upstream {
    address: SocketAddr,
    inner: Arc<Inner>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Upstream {
    /// One that answers requests in this order; the last answer holds for all that come after.
    pub fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: Vec<Answer> = answers.into_iter().collect();
        answers.reverse();
        Self::deciding(move |_| {
            if answers.len() > 1 { answers.pop() } else { answers.last().cloned() }.expect("an answer")
        })
    }

    /// One that gives every request this answer.
    pub fn always(answer: Answer) -> Self {
        Self::answering([answer])
    }

    /// One that looks at the request first.
    pub fn deciding(choose: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let inner = Arc::new(Inner {
            choose: Mutex::new(Box::new(choose)),
            seen: watch::Sender::new(Seen::default()),
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

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.seen.borrow().asked.clone()
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.inner.seen.borrow().connections
    }

    /// How many clients left before their answer was complete.
    pub fn left(&self) -> usize {
        self.inner.seen.borrow().left
    }

    /// How many bytes the system took for clients so far: what they read, and what is on its way.
    pub fn written(&self) -> usize {
        self.inner.seen.borrow().written
    }

    /// Lets answers go on that wait at this gate.
    pub fn open(&self, gate: &str) {
        self.inner.gates.send_modify(|open| open.push(gate.to_owned()));
    }

    /// Waits until so many requests have come.
    pub async fn wait_asked(&self, count: usize) {
        self.wait(&format!("{count} requests"), |seen| seen.asked.len() >= count).await;
    }

    /// Waits until so many clients have left before their answer was complete.
    pub async fn wait_left(&self, count: usize) {
        self.wait(&format!("{count} clients leaving"), |seen| seen.left >= count).await;
    }

    /// Waits until so many bytes were taken for clients.
    pub async fn wait_written(&self, count: usize) {
        self.wait(&format!("{count} bytes taken"), |seen| seen.written >= count).await;
    }

    /// Waits until no connection is open.
    pub async fn wait_closed(&self) {
        self.wait("all connections closing", |seen| seen.gone == seen.connections).await;
    }

    async fn wait(&self, what: &str, reached: impl Fn(&Seen) -> bool) {
        let mut seen = self.inner.seen.subscribe();
        let outcome = tokio::time::timeout(STUCK, seen.wait_for(reached)).await;
        assert!(outcome.is_ok(), "waited in vain for {what}: {:?}", self.inner.seen.borrow());
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

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener has an address")
}

/// An address where connections are never accepted: its queue is full. It is for as long as the value lives.
pub struct Deaf {
    /// The address.
    pub address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Deaf {
    /// Fills a queue.
    pub async fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("a bound listener has an address");
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            waiting.push(stream);
            assert!(waiting.len() < 1000, "the queue has no end");
        }
        Self { address, _listener: listener, _waiting: waiting }
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let mut connection = 0;
        inner.seen.send_modify(|seen| {
            connection = seen.connections;
            seen.connections += 1;
        });
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            serve(stream, connection, &inner).await;
            inner.seen.send_modify(|seen| seen.gone += 1);
        });
    }
}

async fn serve(mut stream: TcpStream, connection: usize, inner: &Inner) {
    let mut unread = Vec::new();
    while let Some(asked) = request(&mut stream, &mut unread, connection).await {
        let answer = (inner.choose.lock().expect("no test panics while choosing"))(&asked);
        inner.seen.send_modify(|seen| seen.asked.push(asked));
        for step in answer.steps {
            match perform(&mut stream, step, inner).await {
                Next::Go => {}
                Next::Left => {
                    inner.seen.send_modify(|seen| seen.left += 1);
                    return;
                }
                Next::Closed => return,
                Next::Reset => {
                    // Unsent and unread bytes are thrown away, and so is the connection.
                    let _ = stream.set_zero_linger();
                    return;
                }
            }
        }
    }
}

enum Next {
    Go,
    /// The client left in the middle.
    Left,
    Closed,
    Reset,
}

async fn perform(stream: &mut TcpStream, step: Step, inner: &Inner) -> Next {
    match step {
        Step::Raw(bytes) => say(stream, &bytes, inner).await,
        Step::Chunk(bytes) => say(stream, &chunked(&bytes), inner).await,
        Step::Done => say(stream, b"0\r\n\r\n", inner).await,
        Step::Wait(gate) => {
            let mut gates = inner.gates.subscribe();
            tokio::select! {
                opened = gates.wait_for(|open| open.contains(&gate)) => { opened.expect("the test holds the gates"); Next::Go }
                () = departure(stream) => Next::Left,
            }
        }
        Step::Pause(time) => {
            tokio::select! {
                () = tokio::time::sleep(time) => Next::Go,
                () = departure(stream) => Next::Left,
            }
        }
        Step::Hang => {
            departure(stream).await;
            Next::Left
        }
        Step::Flood(bytes) => loop {
            if let Next::Left = say(stream, &bytes, inner).await {
                return Next::Left;
            }
        },
        Step::Close => {
            let _ = stream.shutdown().await;
            Next::Closed
        }
        Step::Reset => Next::Reset,
    }
}

async fn say(stream: &mut TcpStream, bytes: &[u8], inner: &Inner) -> Next {
    match stream.write_all(bytes).await {
        Ok(()) => {
            inner.seen.send_modify(|seen| seen.written += bytes.len());
            Next::Go
        }
        Err(_) => Next::Left,
    }
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Waits until the client closes its side or resets the connection.
async fn departure(stream: &mut TcpStream) {
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

/// Reads one request. None if the client closed the connection instead.
async fn request(stream: &mut TcpStream, unread: &mut Vec<u8>, connection: usize) -> Option<Asked> {
    let head_end = loop {
        if let Some(at) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8(unread[..head_end].to_vec()).expect("a head is text");
    unread.drain(..head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length is a number"));
    while unread.len() < length {
        more(stream, unread).await?;
    }
    let body = unread.drain(..length).collect();
    Some(Asked { connection, method, path, headers, body })
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(unread).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
