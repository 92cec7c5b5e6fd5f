//! The primary dies, and its synchronous standby takes over: gateways have both in their URL, and find the one that
//! accepts writes. Committed data is there.
//!
//! Not here: a standby that is behind, which may lose commits.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::Options;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::random::Random;
use super::{LOST, interrupted, oracle};
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 24, words: (20, 120), pace: Duration::from_millis(100) };
/// Time until the failure of the primary is detected.
const NOTICED: Duration = Duration::from_secs(2);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let mut cluster = Cluster::start(rig, 0, &Options::durable())?;
    let standby = cluster.server.standby(&Options::durable(), true)?;
    cluster.standby = Some(standby.address());
    for _ in 0..3 {
        cluster.add()?;
    }
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    thread::sleep(Duration::from_secs(5));

    cluster.server.crash()?;
    // Someone has to decide it, as a managed database does.
    thread::sleep(NOTICED);
    standby.promote()?;
    let primary = std::mem::replace(&mut cluster.server, standby);
    let promoted = Instant::now();
    cluster.all_serve()?;
    let ready = promoted.elapsed();
    thread::sleep(LEASE + Duration::from_secs(4));
    drop(primary);

    let all = load.stop()?;
    let mut checks = vec![
        Check::at_most("promotion to all gateways ready", ready.as_secs_f64(), 5.0, "s"),
        Check::at_most("gateways that lost their runs", cluster.log_lines(LOST).len() as f64, 0.0, ""),
        Check::at_most("runs that failed with GATEWAY_RESTARTED", interrupted(&all) as f64, 0.0, ""),
    ];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
