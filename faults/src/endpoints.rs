//! An agent with three endpoints, of which one fails in every way an endpoint can, and then all are gone: how many runs
//! notice, how soon it is back in use, and whether retries become a storm.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::Check;
use crate::gateway::Gateway;
use crate::{Rig, http};

/// Runs per second while one endpoint fails, and while all are gone.
const RATE: u32 = 1000;
const RATE_WITHOUT_ENDPOINTS: u32 = 200;
/// Duration of the failure of one endpoint, and of all.
const FAILING: Duration = Duration::from_secs(8);
const GONE: Duration = Duration::from_secs(60);
/// The duration of a run at an endpoint.
const WORK: Duration = Duration::from_millis(5);
/// Concurrent clients.
const CLIENTS: usize = 48;

const CONFIGURATION: &str = r#"
[server]
listen = "{{listen}}"

[store]
kind = "memory"
retention = { runs = 1000 }

[agents.friday.upstream]
protocol = "agent-api"
urls = [{urls}]
affinity = "none"
timeouts = { connect = "500ms", first_byte = "500ms" }
limits = { runs = 5 }
eject = { pause = "2s", longest = "2s" }
health = { path = "/health", every = "500ms", timeout = "250ms", healthy = 1, unhealthy = 3 }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;

/// An endpoint's handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Good,
    Hang,
    Reset,
    Unavailable,
    Garbage,
}

impl Mode {
    const FAILURES: [Self; 4] = [Self::Unavailable, Self::Reset, Self::Garbage, Self::Hang];

    fn from_number(number: u8) -> Self {
        [Self::Good, Self::Hang, Self::Reset, Self::Unavailable, Self::Garbage][usize::from(number)]
    }
}

#[derive(Default)]
struct EndpointControl {
    mode: AtomicU8,
    /// Runs it was sent, checks not counted.
    asked: AtomicU64,
    stopping: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// An agent's server. Dropping it closes its port and its connections.
struct Endpoint {
    address: SocketAddr,
    shared: Arc<EndpointControl>,
    accepting: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("an endpoint cannot listen")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(EndpointControl::default());
        let accepted = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if accepted.stopping.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(copy) = connection.try_clone() {
                    accepted.open.lock().expect("no endpoint panics").push(copy);
                }
                let shared = Arc::clone(&accepted);
                std::thread::spawn(move || serve(connection, &shared));
            }
        });
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::Relaxed);
    }

    fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for connection in self.shared.open.lock().expect("no endpoint panics").drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Answers requests until the connection or the endpoint ends.
fn serve(mut connection: TcpStream, shared: &EndpointControl) {
    let _ = connection.set_nodelay(true);
    while let Some(head) = read_request(&mut connection) {
        let is_check = head.starts_with("GET");
        if !is_check {
            shared.asked.fetch_add(1, Ordering::Relaxed);
        }

        let sent = match Mode::from_number(shared.mode.load(Ordering::Relaxed)) {
            Mode::Good if is_check => connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n"),
            Mode::Good => {
                std::thread::sleep(WORK);
                connection.write_all(answer().as_bytes())
            }
            Mode::Hang => {
                // Until the gateway closes the connection.
                let _ = connection.read(&mut [0; 1]);
                return;
            }
            Mode::Reset => {
                let _ = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
                return;
            }
            Mode::Unavailable => connection.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"),
            Mode::Garbage => {
                let _ = connection.write_all(b"SSH-2.0-OpenSSH_9.6\r\n\r\n");
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A complete answer as one JSON body.
fn answer() -> String {
    let content = r#"{"object":"content","status":"completed","type":"text","index":0,"msg_id":"m","text":"hi"}"#;
    let message = format!(
        r#"{{"object":"message","status":"completed","id":"m","type":"message","role":"assistant","content":[{content}]}}"#
    );
    let body = format!(
        r#"{{"object":"response","status":"completed","id":"r","created_at":1795167918,"output":[{message}]}}"#
    );
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Reads a request and returns its head. `None`: the connection ended.
fn read_request(connection: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 8 * 1024]);
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        match connection.read(&mut buffer) {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next()?.trim().parse().ok());
    let mut left = length.unwrap_or(0_usize).saturating_sub(bytes.len() - head);
    while left > 0 {
        match connection.read(&mut buffer) {
            Ok(count @ 1..) => left = left.saturating_sub(count),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&bytes[..head]).into_owned())
}

/// A run: when it began, and whether it completed.
#[derive(Clone, Copy)]
struct Run {
    began: Instant,
    is_good: bool,
}

/// Sends runs at a rate until the time is over.
fn load(gateway: SocketAddr, rate: u32, time: Duration) -> Vec<Run> {
    let body = r#"{"stream":false,"input":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#;
    let request = http::request("POST", "/agents/friday/process", &[], body);
    let (began, next, runs) = (Instant::now(), AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let at = began + Duration::from_secs_f64(number as f64 / f64::from(rate));
                    if at >= began + time {
                        return;
                    }
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    let began = Instant::now();
                    let answer = http::send(gateway, &request);
                    let is_good =
                        answer.is_ok_and(|answer| answer.status == 200 && answer.body.contains("\"completed\""));
                    runs.lock().expect("no client panics").push(Run { began, is_good });
                }
            });
        }
    });
    runs.into_inner().expect("no client panics")
}

fn failed(runs: &[Run], from: Instant, to: Instant) -> (usize, usize) {
    let among: Vec<_> = runs.iter().filter(|run| (from..to).contains(&run.began)).collect();
    (among.iter().filter(|run| !run.is_good).count(), among.len())
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let endpoints = [Endpoint::start()?, Endpoint::start()?, Endpoint::start()?];
    let urls = endpoints.iter().map(|one| format!("{{ url = \"http://{}/process\" }}", one.address));
    let urls = urls.collect::<Vec<_>>().join(", ");
    let gateway = Gateway::start(rig, &CONFIGURATION.replace("{urls}", &urls))?;
    // Connections and code are warm.
    load(gateway.address, RATE, Duration::from_secs(2));

    let mut checks = Vec::new();
    for mode in Mode::FAILURES {
        checks.extend(one_fails(gateway.address, &endpoints[2], mode)?);
    }
    checks.extend(all_are_gone(&gateway, &endpoints)?);
    Ok(checks)
}

/// One endpoint fails for a while.
fn one_fails(gateway: SocketAddr, endpoint: &Endpoint, mode: Mode) -> Result<Vec<Check>> {
    let whole = FAILING + Duration::from_secs(6);
    let loading = std::thread::spawn(move || load(gateway, RATE, whole));
    std::thread::sleep(Duration::from_secs(1));

    let broke = Instant::now();
    endpoint.set(mode);
    std::thread::sleep(FAILING);
    let asked = endpoint.asked();
    endpoint.set(Mode::Good);
    let repaired = Instant::now();
    // Until it gets many runs again.
    while endpoint.asked() < asked + 20 && repaired.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let back = repaired.elapsed().as_secs_f64();
    let runs = loading.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;

    let second = Duration::from_secs(1);
    let (first, all) = failed(&runs, broke, broke + second);
    let (later, _) = failed(&runs, broke + second, repaired + Duration::from_secs(60));
    let name = |what: &str| format!("one endpoint, {mode:?}: {what}");
    Ok(vec![
        Check::at_most(name("failed in the first second"), 100.0 * first as f64 / all.max(1) as f64, 1.0, "%"),
        Check::at_most(name("failed afterwards"), later as f64, 0.0, ""),
        Check::at_most(name("until it is used again"), back, 3.5, "s"),
    ])
}

/// No endpoint is available for a minute.
fn all_are_gone(gateway: &Gateway, endpoints: &[Endpoint; 3]) -> Result<Vec<Check>> {
    // The budget of retries counts the requests of ten seconds: before, there were five times as many.
    std::thread::sleep(Duration::from_secs(10));
    let before = gateway.memory()?;
    // They answer 503, so that attempts can be counted.
    endpoints.iter().for_each(|endpoint| endpoint.set(Mode::Unavailable));
    let asked = || endpoints.iter().map(Endpoint::asked).sum::<u64>();
    let first = asked();
    let runs = load(gateway.address, RATE_WITHOUT_ENDPOINTS, GONE);
    let (attempts, share) = ((asked() - first) as f64, runs.len().max(1) as f64);
    // Three a second are always allowed, at the beginning too, when a fifth of the runs is less.
    let beyond = (attempts - 1.2 * share).max(0.0);
    let after = gateway.memory()?;

    endpoints.iter().for_each(|endpoint| endpoint.set(Mode::Good));
    let back = Instant::now();
    let runs = load(gateway.address, RATE_WITHOUT_ENDPOINTS, Duration::from_secs(5));
    let first_good = runs.iter().filter(|run| run.is_good).map(|run| run.began).min();
    let recovered = first_good.map_or(60.0, |first| first.saturating_duration_since(back).as_secs_f64());
    let growth = (after as f64 - before as f64) / f64::from(1 << 20);

    Ok(vec![
        Check::info("all endpoints gone: attempts per run", attempts / share, ""),
        Check::at_most("all endpoints gone: attempts beyond 1.2 per run, of 12,000", beyond, 30.0, ""),
        Check::at_most("all endpoints gone: until the first good run", recovered, 1.0, "s"),
        Check::at_most("all endpoints gone: growth of memory", growth, 16.0, "MiB"),
    ])
}
