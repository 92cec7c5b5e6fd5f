//! 200 clients of three gateways that are killed at random, each started again at once: clients resume elsewhere by
//! number (Agent API, Responses, AG-UI) or subscribe elsewhere (A2A), people decide, and a receiver is notified.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::Options;

use super::cluster::{Cluster, LEASE};
use super::decisions::Deciders;
use super::load::{Load, Mix};
use super::oracle;
use super::random::Random;
use super::tasks::Tasks;
use crate::Rig;
use crate::check::Check;

const DURATION: Duration = Duration::from_secs(120);
/// For a long run: the number of gateways to kill.
const KILLS: &str = "INTERLINGUA_FAULTS_KILLS";
const REPLICAS: usize = 3;
/// Clients that resume by number, clients of A2A, and pairs of people who decide: 200 together.
const MIX: Mix = Mix { clients: 168, words: (3, 16), pace: Duration::from_millis(400) };
const TASKS: usize = 16;
const DECIDERS: usize = 8;

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let mut cluster = Cluster::start(rig, REPLICAS, &Options::fast())?;
    thread::sleep(LEASE);
    let addresses = cluster.addresses();
    let load = Load::start(&addresses, MIX, &mut random);
    let tasks = Tasks::start(&addresses, TASKS, &mut random)?;
    let deciders = Deciders::start(&addresses, DECIDERS, &mut random);

    let (started, mut kills, mut killing) = (Instant::now(), 0_u32, Ok(()));
    let wanted: u32 = std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(0);
    while killing.is_ok() && (started.elapsed() < DURATION || kills < wanted) {
        thread::sleep(random.between(Duration::from_millis(500), Duration::from_secs(5)));
        let gateway = &mut cluster.replicas[random.below(REPLICAS)].gateway;
        gateway.kill();
        killing = gateway.restart();
        kills += 1;
    }

    let all = load.stop()?;
    killing?;
    let mut checks = vec![Check::at_least("kills", f64::from(kills), 20.0, "")];
    checks.extend(tasks.stop(&cluster)?);
    checks.extend(deciders.stop(&cluster)?);
    cluster.wait_settled(REPLICAS, LEASE * 5)?;
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
