//! Scenarios with several gateways on one PostgreSQL database: each is a real process that reaches the database through
//! a proxy of its own, in front of one scripted agent that counts its requests.
//!
//! A scenario starts a [`cluster::Cluster`] and a [`load::Load`] of clients that begin runs and resume them elsewhere,
//! injects a fault, ends the load and calls [`oracle::check`], which compares the clients' views with the answers of
//! each gateway afterwards.
//!
//! Not here: the store alone (`tests/store`), and single runs on several gateways (`tests/replicas`).

mod agent;
pub(crate) mod clock;
mod cluster;
pub(crate) mod cut;
mod decisions;
pub(crate) mod failover;
pub(crate) mod first;
pub(crate) mod full;
pub(crate) mod killed;
mod load;
mod oracle;
pub(crate) mod paused;
mod random;
pub(crate) mod restarted;
pub(crate) mod slow;
pub(crate) mod upgrade;
mod visitors;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interlingua_testing_support::cluster::RunView;

use crate::http;

/// The log line of a gateway whose runs others take over.
const LOST: &str = "this gateway gives up its runs";
/// Time that gateways have to write again after the database is back.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// The number of runs that ended because their gateway lost them.
fn interrupted(all: &[RunView]) -> usize {
    let last = all.iter().filter_map(|seen| seen.frames.last());
    last.filter(|frame| frame.data.contains("GATEWAY_RESTARTED")).count()
}

/// Waits until every gateway takes a run and writes it.
fn until_writable(addresses: &[SocketAddr]) -> Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let began = Instant::now();
    for address in addresses {
        loop {
            let text = format!("probe-{} 1 0", NEXT.fetch_add(1, Ordering::Relaxed));
            let body = format!(r#"{{"stream":false,"input":[{{"role":"user","content":"{text}"}}]}}"#);
            let answer = http::send(*address, &http::request("POST", "/agents/demo/process", &[], &body));
            if answer.is_ok_and(|answer| answer.status == 200 && answer.body.contains("\"status\":\"completed\"")) {
                break;
            }
            ensure!(began.elapsed() < RECOVERY_LIMIT, "{address} does not recover");
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
pub(crate) mod storm;
mod tasks;
