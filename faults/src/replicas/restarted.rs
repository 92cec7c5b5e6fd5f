//! PostgreSQL is restarted under load: orderly, by a crash, and by a crash after which it is away for longer than a
//! lease. Active runs continue: no gateway takes them over, since all gateways lost the database.
//!
//! Not here: another server that takes over (`failover.rs`).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::{Options, Server};

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::random::Random;
use super::{LOST, interrupted, oracle};
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 24, words: (20, 120), pace: Duration::from_millis(100) };

/// The way the server stops, and the duration of its absence.
struct Outage {
    stop: fn(&Server) -> Result<()>,
    away: Duration,
}

const OUTAGES: [Outage; 3] = [
    Outage { stop: Server::shut_down, away: Duration::ZERO },
    Outage { stop: Server::crash, away: Duration::ZERO },
    Outage { stop: Server::crash, away: LEASE.saturating_mul(2) },
];

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    // Committed data must be there after a crash.
    let cluster = Cluster::start(rig, 3, &Options::durable())?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    let mut slowest = Duration::ZERO;
    for Outage { stop, away } in OUTAGES {
        thread::sleep(Duration::from_secs(4));
        stop(&cluster.server)?;
        thread::sleep(away);
        cluster.server.resume_service()?;
        let resumed = Instant::now();
        cluster.all_serve()?;
        slowest = slowest.max(resumed.elapsed());
        // Long enough for a gateway to take over what it must not take over.
        thread::sleep(LEASE + Duration::from_secs(2));
    }

    let all = load.stop()?;
    let mut checks = vec![
        Check::at_most("database back to all gateways ready", slowest.as_secs_f64(), 5.0, "s"),
        Check::at_most("gateways that lost their runs", cluster.log_lines(LOST).len() as f64, 0.0, ""),
        Check::at_most("runs that failed with GATEWAY_RESTARTED", interrupted(&all) as f64, 0.0, ""),
    ];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
