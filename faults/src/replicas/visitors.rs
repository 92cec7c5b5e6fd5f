//! Clients of the balancer beside the streams of the load: some take whole answers over connections that stay open,
//! some take turns of sessions, and some follow long runs directly on each gateway in turn.
//!
//! Not here: streams through the balancer (`load.rs`).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use interlingua_testing_support::cluster::{Protocol, RunView};

use super::agent::task;
use crate::stream::{self, Frame};

/// Clients of each kind.
const CLIENTS: usize = 4;
/// A run that outlasts the delay of a gateway that stops.
const LONG: (usize, Duration) = (80, Duration::from_millis(100));
const TIMEOUT: Duration = Duration::from_secs(20);
/// For how long a follower reads a stream without frames.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum time that a long run is followed.
const LIMIT: Duration = Duration::from_secs(60);

/// The answers to the clients.
#[derive(Default)]
pub(crate) struct VisitorAnswers {
    pub(crate) answers: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) followed: Vec<RunView>,
}

/// Clients at work.
pub(crate) struct Visitors {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<VisitorAnswers>>,
}

impl Visitors {
    pub(crate) fn start(balancer: SocketAddr, gateways: &[SocketAddr]) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..CLIENTS * 2 {
            let (is_over, in_session) = (Arc::clone(&stopping), number % 2 == 0);
            threads.push(thread::spawn(move || take_answers(balancer, number, in_session, &is_over)));
        }
        for number in 0..CLIENTS {
            let (is_over, gateways) = (Arc::clone(&stopping), gateways.to_vec());
            threads.push(thread::spawn(move || follow_runs(balancer, &gateways, number, &is_over)));
        }
        Self { stopping, threads }
    }

    /// Lets everyone end what is under way.
    pub(crate) fn stop(self) -> Result<VisitorAnswers> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut all = VisitorAnswers::default();
        for thread in self.threads {
            let one = thread.join().map_err(|_| anyhow!("a client panicked"))?;
            all.answers += one.answers;
            all.failures.extend(one.failures);
            all.followed.extend(one.followed);
        }
        Ok(all)
    }
}

/// Asks for one whole answer after the other.
fn take_answers(balancer: SocketAddr, number: usize, in_session: bool, is_over: &AtomicBool) -> VisitorAnswers {
    let (mut visited, mut connection) = (VisitorAnswers::default(), None);
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("w{number}-{}", visited.answers + visited.failures.len());
        let task = task(key, 3, Duration::from_millis(30));
        let session = if in_session { format!(r#""session_id":"s{number}","#) } else { String::new() };
        let body = format!(r#"{{{session}"stream":false,"input":[{{"role":"user","content":"{}"}}]}}"#, task.text);
        match ask(balancer, &mut connection, &body) {
            Ok((200, answer)) if answer.contains(task.answer.trim_end()) => visited.answers += 1,
            Ok((status, answer)) => visited.failures.push(format!("{status} {answer}")),
            Err(error) => {
                connection = None;
                visited.failures.push(format!("{error:#}"));
            }
        }
    }
    visited
}

/// Sends a request over the connection, or over a new one if the last answer closed it.
fn ask(balancer: SocketAddr, connection: &mut Option<BufReader<TcpStream>>, body: &str) -> Result<(u16, String)> {
    if connection.is_none() {
        let stream = TcpStream::connect_timeout(&balancer, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        *connection = Some(BufReader::new(stream));
    }
    let reader = connection.as_mut().context("a connection")?;
    let head = format!(
        "POST /agents/demo/process HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    reader.get_mut().write_all(format!("{head}{body}").as_bytes())?;

    let (mut status, mut length, mut closes) = (None, None, false);
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "the connection was closed instead of an answer");
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            _ if status.is_none() => status = line.split(' ').nth(1).and_then(|status| status.parse().ok()),
            Some(("content-length", value)) => length = Some(value.parse()?),
            Some(("connection", value)) => closes = value == "close",
            Some(_) => {}
            None if line.is_empty() => break,
            None => bail!("not a head: {line}"),
        }
    }
    let mut answer = vec![0; length.context("an answer without a length")?];
    reader.read_exact(&mut answer)?;
    if closes {
        *connection = None;
    }
    Ok((status.context("no status")?, String::from_utf8_lossy(&answer).into_owned()))
}

/// Begins long runs, leaves, and follows them on the gateways themselves, on another one whenever a stream breaks.
fn follow_runs(balancer: SocketAddr, gateways: &[SocketAddr], number: usize, is_over: &AtomicBool) -> VisitorAnswers {
    let mut visited = VisitorAnswers::default();
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("f{number}-{}", visited.followed.len());
        let protocol = Protocol::ALL[number % Protocol::ALL.len()];
        let mut seen = RunView::new(protocol, task(key, LONG.0, LONG.1));
        match first_frame(balancer, &seen) {
            Ok(first) => {
                seen.take(vec![first]);
                follow(&mut seen, gateways, number + visited.followed.len());
            }
            Err(error) => seen.wrong.push(format!("{error:#}")),
        }
        visited.followed.push(seen);
    }
    visited
}

fn follow(seen: &mut RunView, gateways: &[SocketAddr], start: usize) {
    let began = Instant::now();
    // A gateway that is stopped refuses, or cannot be reached: the client tries the other one.
    for address in gateways.iter().cycle().skip(start % gateways.len()) {
        if seen.id.is_none() || seen.is_ended() || began.elapsed() > LIMIT {
            break;
        }
        seen.resume(*address, SILENCE, |answer| answer.status == 503);
        thread::sleep(Duration::from_millis(50));
    }
}

/// Begins a run and leaves after its first frame.
fn first_frame(balancer: SocketAddr, seen: &RunView) -> Result<Frame> {
    let mut connection = TcpStream::connect_timeout(&balancer, TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.write_all(&seen.start())?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = connection.read(&mut buffer)?;
        ensure!(count > 0, "no frame: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..count]);
        let Ok(answer) = stream::parse(&bytes) else { continue };
        if let Some(first) = answer.frames().into_iter().next() {
            ensure!(answer.status == 200, "status {}", answer.status);
            return Ok(first);
        }
    }
}
