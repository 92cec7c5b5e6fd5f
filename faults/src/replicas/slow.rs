//! The connection to the database is slow for all gateways, then slower, then as before: streams stall and continue,
//! and no gateway takes over another one's runs.
//!
//! Not here: a cut connection (`cut.rs`).

use std::thread;
use std::time::Duration;

use anyhow::Result;
use interlingua_testing_postgres::Options;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::random::Random;
use super::{LOST, oracle};
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 24, words: (5, 40), pace: Duration::from_millis(50) };
/// Delay of all traffic, one way. A statement and its answer take twice as long.
const DELAYS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];
/// Duration of each delay.
const TIME: Duration = Duration::from_secs(12);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let cluster = Cluster::start(rig, 3, &Options::fast())?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    thread::sleep(Duration::from_secs(2));
    let before = load.ended();
    for delay in DELAYS {
        cluster.replicas.iter().for_each(|replica| replica.proxy.slow_down(delay));
        thread::sleep(TIME);
    }
    let meanwhile = load.ended() - before;
    cluster.replicas.iter().for_each(|replica| replica.proxy.slow_down(Duration::ZERO));
    thread::sleep(Duration::from_secs(2));

    let all = load.stop()?;
    let mut checks = vec![
        Check::at_least("runs that ended while it was slow", meanwhile as f64, 20.0, ""),
        Check::at_most("gateways that lost their runs", cluster.log_lines(LOST).len() as f64, 0.0, ""),
    ];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
