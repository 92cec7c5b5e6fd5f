//! Approvals that two people give at the same time on two gateways: the agent gets one decision, and one of them is
//! answered that it was taken.
//!
//! Not here: whether gateways are there at that moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use interlingua_testing_support::cluster::may_refuse;
use interlingua_testing_support::gateway::approval_in;
use serde_json::json;

use super::agent::{asking, decided};
use super::cluster::Cluster;
use super::random::Random;
use crate::check::Check;
use crate::http;
use crate::stream::{Frame, read_while_active};

const SILENCE: Duration = Duration::from_secs(10);
/// Time that a client tries to send a decision.
const LIMIT: Duration = Duration::from_secs(30);

/// Pairs of people at work.
pub(crate) struct Deciders {
    stopping: Arc<AtomicBool>,
    pairs: Vec<JoinHandle<Vec<ApprovalOutcome>>>,
}

struct ApprovalOutcome {
    id: String,
    /// The number of decisions, of the two, that were accepted.
    taken: usize,
    /// Answers that no one must get.
    wrong: Vec<String>,
}

impl Deciders {
    pub(crate) fn start(addresses: &[SocketAddr], pairs: usize, random: &mut Random) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let pairs = (0..pairs).map(|pair| {
            let (stopping, addresses, mut random) = (Arc::clone(&stopping), addresses.to_vec(), random.branch());
            thread::spawn(move || {
                let mut all = Vec::new();
                for number in 0.. {
                    if stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    all.extend(decide(&addresses, &format!("d{pair}-{number}"), &mut random));
                }
                all
            })
        });
        let pairs = pairs.collect();
        Self { stopping, pairs }
    }

    /// Ends the work and compares with what the agent got.
    pub(crate) fn stop(self, cluster: &Cluster) -> Result<Vec<Check>> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for pair in self.pairs {
            all.extend(pair.join().map_err(|_| anyhow!("someone who decides panicked"))?);
        }
        let asked = cluster.agent.asked();
        let reached = |decided_one: &&ApprovalOutcome| asked.contains_key(&decided(&decided_one.id));
        let twice = all.iter().filter(|decided| decided.taken > 1).count();
        let unknown = all.iter().filter(|decided| decided.taken > 0).filter(|one| !reached(one)).count();
        for wrong in all.iter().flat_map(|decided| &decided.wrong).take(3) {
            eprintln!("a decision: {wrong}");
        }
        let wrong = all.iter().map(|decided| decided.wrong.len()).sum::<usize>();
        Ok(vec![
            Check::at_least("decisions taken", all.iter().filter(reached).count() as f64, 1.0, ""),
            Check::at_most("… taken twice", twice as f64, 0.0, ""),
            Check::at_most("… that the agent did not get", unknown as f64, 0.0, ""),
            Check::at_most("… with other answers", wrong as f64, 0.0, ""),
        ])
    }
}

/// Lets the agent ask, and two people answer. `None`: it did not come to a question.
fn decide(addresses: &[SocketAddr], id: &str, random: &mut Random) -> Option<ApprovalOutcome> {
    let body = json!({ "session_id": id, "input": [{ "role": "user", "content": asking(id) }] }).to_string();
    let address = addresses[random.below(addresses.len())];
    let request = http::request("POST", "/agents/demo/process", &[], &body);
    let asked = read_while_active(address, &request, SILENCE).ok()?;
    if !asked.frames().last().is_some_and(Frame::is_completed) {
        thread::sleep(Duration::from_millis(100));
        return None;
    }

    let first = random.below(addresses.len());
    let people: Vec<_> = (0..2)
        .map(|person| {
            let (addresses, id, at) = (addresses.to_vec(), id.to_owned(), first + person);
            thread::spawn(move || answer(&addresses, &id, at))
        })
        .collect();
    let mut decided = ApprovalOutcome { id: id.to_owned(), taken: 0, wrong: Vec::new() };
    for person in people {
        let (taken, wrong) = person.join().ok()?;
        decided.taken += usize::from(taken);
        decided.wrong.extend(wrong);
    }
    Some(decided)
}

/// Gives a decision, on one gateway after the other until one says something about it. Whether it was taken from this
/// person, and a wrong answer.
fn answer(addresses: &[SocketAddr], id: &str, first: usize) -> (bool, Option<String>) {
    let request = http::request("POST", "/agents/demo/process", &[], &approval_in(id, id).to_string());
    let started = Instant::now();
    let mut at = first;
    while started.elapsed() < LIMIT {
        let answer = read_while_active(addresses[at % addresses.len()], &request, SILENCE);
        match answer {
            Ok(answer) if answer.status == 200 => return (!answer.frames().is_empty(), None),
            // Decided already, maybe by an earlier attempt of this person.
            Ok(answer) if matches!(answer.status, 404 | 409) => return (false, None),
            Ok(answer) if !may_refuse(&answer) => return (false, Some(format!("{} {}", answer.status, answer.text))),
            Ok(_) | Err(_) => thread::sleep(Duration::from_millis(100)),
        }
        at += 1;
    }
    (false, None)
}
