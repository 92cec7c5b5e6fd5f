//! A gateway is stopped with SIGSTOP while its clients stay: for less than the lease, after which everything continues,
//! and for longer, after which others have ended its runs. After SIGCONT it sends no second end, joins under a new id
//! and serves again.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use interlingua_testing_postgres::Options;
use interlingua_testing_support::cluster::count_no_prefixes;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix, Staying};
use super::oracle;
use super::random::Random;
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 16, words: (5, 60), pace: Duration::from_millis(100) };
/// Clients that stay at the paused gateway, with answers that last longer than the pause.
const STAYING: usize = 8;
const WORDS: usize = 100;
/// From waking to the end of a new run.
const MAX_BACK: Duration = Duration::from_secs(10);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let cluster = Cluster::start(rig, 3, &Options::fast())?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    let paused = &cluster.replicas[0].gateway;

    let short = Staying::start(paused.address, "short", STAYING, WORDS);
    thread::sleep(Duration::from_secs(1));
    let before = cluster.ids()?;
    paused.pause()?;
    thread::sleep(LEASE / 3);
    paused.unpause()?;
    let short = short.join()?;
    let same = cluster.ids()? == before;
    let completed = short.iter().filter(|seen| seen.is_completed()).count();

    let long = Staying::start(paused.address, "long", STAYING, WORDS);
    thread::sleep(Duration::from_secs(1));
    paused.pause()?;
    let taken_over = cluster.wait_settled(2, LEASE * 5);
    // The agent's answers continue meanwhile, and the gateway reads them when it continues.
    thread::sleep(LEASE);
    paused.unpause()?;
    let taken_over = taken_over?;
    let back = cluster.serves(0, MAX_BACK * 2)?;
    let long = long.join()?;
    let settled = cluster.wait_settled(3, LEASE * 5)?;
    let rejoined = cluster.ids()?.iter().filter(|id| !before.contains(id)).count();

    let all = load.stop()?;
    let ended_there = long.iter().filter(|seen| seen.is_ended()).count();
    let second = count_no_prefixes(&cluster.addresses(), &[short, long].concat())?;
    let mut checks = vec![
        Check::at_least("paused < lease: the same gateways are there", f64::from(u8::from(same)), 1.0, ""),
        Check::at_least("… runs of clients that stayed completed", completed as f64, STAYING as f64, ""),
        Check::at_most("paused > lease: taken over after", taken_over.as_secs_f64(), LEASE.as_secs_f64() + 3.0, "s"),
        Check::at_most("… ends that clients which stayed got of it", ended_there as f64, 0.0, ""),
        Check::at_most("… streams that are no beginning of the result", second as f64, 0.0, ""),
        Check::at_least("… gateways that joined under a new id", rejoined as f64, 1.0, ""),
        Check::at_most("… woken, and a new run completed there", back.as_secs_f64(), MAX_BACK.as_secs_f64(), "s"),
        Check::info("… then all runs were held by gateways that are there after", settled.as_secs_f64(), "s"),
    ];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}
