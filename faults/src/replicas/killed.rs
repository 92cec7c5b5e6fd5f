//! A gateway is killed in mid-run, three times, and not started again: clients resume elsewhere and get an end within
//! the lease and a little more.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::Options;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::oracle;
use super::random::Random;
use crate::Rig;
use crate::check::Check;

const KILLS: usize = 3;
const MIX: Mix = Mix { clients: 24, words: (5, 60), pace: Duration::from_millis(100) };
/// Time after the lease until the last run of the killed one has ended.
const TAKEOVER: Duration = Duration::from_secs(2);
/// Added for the time of another busy machine.
const TOLERANCE: Duration = Duration::from_secs(1);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let mut cluster = Cluster::start(rig, 3, &Options::fast())?;
    // A gateway takes over from others once it has been there for a lease itself.
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    let mut slowest = Duration::ZERO;
    for kill in 0..KILLS {
        thread::sleep(random.between(Duration::from_secs(2), Duration::from_secs(4)));
        let killed = Instant::now();
        let replica = &mut cluster.replicas[kill % 3];
        replica.gateway.kill();
        cluster.wait_settled(2, LEASE * 5)?;
        slowest = slowest.max(killed.elapsed());
        cluster.replicas[kill % 3].gateway.restart()?;
    }

    let all = load.stop()?;
    let mut checks = vec![Check::at_most(
        "kill to the last end of its runs",
        slowest.as_secs_f64(),
        (LEASE + TAKEOVER + TOLERANCE).as_secs_f64(),
        "s",
    )];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
