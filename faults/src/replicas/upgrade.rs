//! Two gateways behind HAProxy, with the configuration of `examples/replicas`, are replaced one after the other under
//! load, several times. No request fails: open streams end on their gateway, new requests use the other one, and a
//! follower of a run on the stopping gateway continues at the other one.
//!
//! Not here: single clients during the upgrade (`visitors.rs`).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::{Balancer, Options};
use interlingua_testing_support::cluster::RunView;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::oracle;
use super::random::Random;
use super::visitors::Visitors;
use crate::Rig;
use crate::check::Check;

const HAPROXY: &str = include_str!("../../../examples/replicas/haproxy.cfg");
/// Where the gateways of the example are.
const SERVERS: [&str; 2] = ["172.30.77.11:8080", "172.30.77.12:8080"];
const SERVER: &str = "shutdown_delay = \"3s\"\ndrain = \"20s\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                      limits = { connections_per_address = 20000 }";
/// Number of replacements of each gateway.
const ROUNDS: usize = 3;
const MIX: Mix = Mix { clients: 16, words: (5, 60), pace: Duration::from_millis(50) };
/// The delay, the longest run, and the time to close everything.
const LONGEST_STOP: Duration = Duration::from_secs(3 + 15 + 5);
/// Time until the balancer uses a gateway again.
const NOTICED: Duration = Duration::from_secs(2);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let mut cluster = Cluster::start(rig, 0, &Options::fast())?;
    cluster.server_keys = SERVER.to_owned();
    cluster.add()?;
    cluster.add()?;
    let addresses = cluster.addresses();
    let servers: Vec<_> = SERVERS.into_iter().zip(addresses.iter().copied()).collect();
    let balancer = Balancer::start(HAPROXY, &servers)?;
    thread::sleep(LEASE);

    let load = Load::start(&[balancer.address], MIX, &mut random);
    let visitors = Visitors::start(balancer.address, &addresses);
    let (mut slowest, mut still_active) = (Duration::ZERO, 0);
    for _ in 0..ROUNDS {
        for number in 0..SERVERS.len() {
            thread::sleep(NOTICED);
            let gateway = &mut cluster.replicas[number].gateway;
            slowest = slowest.max(gateway.stop(LONGEST_STOP * 2)?);
            // It has left the database: nothing waits for its lease.
            let stopped = Instant::now();
            still_active += cluster.active()? - 1;
            cluster.replicas[number].gateway.restart()?;
            println!("gateway {number} is back after {:.1} s", stopped.elapsed().as_secs_f64());
        }
    }
    thread::sleep(NOTICED);

    let streams = load.stop()?;
    let visited = visitors.stop()?;
    let mut checks = vec![
        Check::at_most("SIGTERM to exit", slowest.as_secs_f64(), LONGEST_STOP.as_secs_f64(), "s"),
        Check::at_most("gateways that had not left the database", still_active as f64, 0.0, ""),
        Check::at_least("streams through the balancer", streams.len() as f64, 200.0, ""),
        Check::at_most("… that failed", failed("stream", &streams), 0.0, ""),
        Check::at_least("whole answers, half of them turns of sessions", visited.answers as f64, 200.0, ""),
        Check::at_most("… that failed", visited.failures.len() as f64, 0.0, ""),
        Check::at_least("long runs followed on both gateways", visited.followed.len() as f64, 6.0, ""),
        Check::at_most("… that failed", failed("followed", &visited.followed), 0.0, ""),
    ];
    for failure in visited.failures.iter().take(5) {
        eprintln!("an answer: {failure}");
    }
    let all: Vec<RunView> = streams.into_iter().chain(visited.followed).collect();
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}

/// The number of runs that did not begin, or did not complete.
fn failed(what: &str, all: &[RunView]) -> f64 {
    let failed: Vec<_> = all.iter().filter(|seen| seen.id.is_none() || !seen.is_completed()).collect();
    for seen in failed.iter().take(3) {
        let last = seen.frames.last().map(|frame| frame.data.as_str()).unwrap_or_default();
        eprintln!("{what} {:?} {:?}: {:?}, last {last}", seen.protocol, seen.id, seen.wrong);
    }
    failed.len() as f64
}
