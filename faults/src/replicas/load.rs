//! Many clients that begin one run after the other, until they are asked to stop.
//!
//! Not here: the requests of a single client (`interlingua_testing_support::cluster`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use interlingua_testing_support::cluster::{Protocol, RunView, Task, may_refuse};

use super::agent::task;
use super::random::Random;

/// For how long a client reads a stream without frames.
const SILENCE: Duration = Duration::from_secs(4);
/// Time that a client tries to reach the end of a run.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The requests of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) clients: usize,
    /// Number of deltas of an answer, at least and at most.
    pub(crate) words: (usize, usize),
    /// Time before each delta.
    pub(crate) pace: Duration,
}

/// Clients at work.
pub(crate) struct Load {
    stopping: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<RunView>>>,
}

impl Load {
    /// Starts the clients, each of which uses all of these gateways.
    pub(crate) fn start(addresses: &[SocketAddr], mix: Mix, random: &mut Random) -> Self {
        let (stopping, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..mix.clients).map(|number| {
            let (stopping, ended, mut random) = (Arc::clone(&stopping), Arc::clone(&ended), random.branch());
            let addresses = addresses.to_vec();
            let protocol = Protocol::ALL[number % Protocol::ALL.len()];
            thread::spawn(move || {
                let mut all = Vec::new();
                while !stopping.load(Ordering::Relaxed) {
                    let words = mix.words.0 + random.below(mix.words.1 - mix.words.0 + 1);
                    let task = task(format!("c{number}-{}", all.len()), words, mix.pace);
                    all.push(follow(protocol, task, &addresses, &mut random));
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                all
            })
        });
        let clients = clients.collect();
        Self { stopping, ended, clients }
    }

    /// The number of runs that have ended so far.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Lets every client follow its last run to the end. Returns what they saw.
    pub(crate) fn stop(self) -> Result<Vec<RunView>> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.join().map_err(|_| anyhow!("a client panicked"))?);
        }
        Ok(all)
    }
}

/// Begins a run on one of these gateways and follows it to its end, on another one whenever its stream breaks.
fn follow(protocol: Protocol, task: Task, addresses: &[SocketAddr], random: &mut Random) -> RunView {
    let mut at = random.below(addresses.len());
    let mut seen = RunView::begin(addresses[at], protocol, task, SILENCE, may_refuse);
    if seen.frames.is_empty() {
        thread::sleep(RETRY_INTERVAL);
    }
    let started = Instant::now();
    while seen.id.is_some() && !seen.is_ended() && started.elapsed() < LIMIT {
        // Another one than before.
        at = (at + 1 + random.below(addresses.len().saturating_sub(1).max(1))) % addresses.len();
        if seen.resume(addresses[at], SILENCE, may_refuse) == 0 {
            thread::sleep(RETRY_INTERVAL);
        }
    }
    seen
}

/// Clients that stay at one gateway, whatever happens to it, until it closes their streams.
pub(crate) struct Staying(Vec<JoinHandle<RunView>>);

impl Staying {
    /// Begins this number of runs at the same time, with answers of this number of words.
    pub(crate) fn start(address: SocketAddr, key: &str, clients: usize, words: usize) -> Self {
        let clients = (0..clients).map(|number| {
            let task = task(format!("{key}-{number}"), words, Duration::from_millis(100));
            let protocol = Protocol::ALL[number % Protocol::ALL.len()];
            thread::spawn(move || RunView::begin(address, protocol, task, Duration::from_secs(60), may_refuse))
        });
        Self(clients.collect())
    }

    /// Waits until all streams are closed. Returns what the clients saw.
    pub(crate) fn join(self) -> Result<Vec<RunView>> {
        self.0.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))).collect()
    }
}
