//! One gateway is cut off from the store: its requests are lost, or the answers, or its connections are closed and new
//! ones refused; for less than the lease and for longer. The others continue; it sends no second end, and serves again
//! when the connection works.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use interlingua_testing_postgres::{Direction, Options, Proxy};
use interlingua_testing_support::cluster::{Protocol, RunView, count_no_prefixes, may_refuse};

use super::agent::task;
use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix, Staying};
use super::oracle;
use super::random::Random;
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 16, words: (5, 60), pace: Duration::from_millis(100) };
/// Clients that stay at the isolated gateway, with answers that last longer than the cut.
const STAYING: usize = 4;
const WORDS: usize = 120;
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(9);
/// From the free way to the end of a new run there.
const MAX_BACK: Duration = Duration::from_secs(10);
/// Time after which the gateway knows that it is cut off, and refuses a new run.
const KNOWN: Duration = Duration::from_millis(3500);
const MAX_REFUSAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutKind {
    Requests,
    Answers,
    Connections,
}

impl CutKind {
    fn begin(self, proxy: &Proxy) {
        match self {
            Self::Requests => proxy.stall(Direction::ToServer),
            Self::Answers => proxy.stall(Direction::ToClient),
            Self::Connections => proxy.refuse(),
        }
    }

    fn end(proxy: &Proxy) {
        proxy.flow();
        proxy.accept();
    }
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let cluster = Cluster::start(rig, 3, &Options::fast())?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    let mut checks = Vec::new();
    let mut ended = Ok(());
    for cut in [CutKind::Requests, CutKind::Answers, CutKind::Connections] {
        for time in [SHORT, LONG] {
            ended = ended.and_then(|()| cut_off(&cluster, cut, time).map(|found| checks.extend(found)));
        }
    }

    let all = load.stop()?;
    ended?;
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}

fn cut_off(cluster: &Cluster, cut: CutKind, time: Duration) -> Result<Vec<Check>> {
    let replica = &cluster.replicas[0];
    let name = |what: &str| format!("{cut:?} for {} s: {what}", time.as_secs());
    let key = format!("{cut:?}{}", time.as_secs());
    let (staying, before) = (Staying::start(replica.gateway.address, &key, STAYING, WORDS), cluster.ids()?);
    thread::sleep(Duration::from_secs(1));

    let started = Instant::now();
    cut.begin(&replica.proxy);
    let mut refusal = Duration::ZERO;
    if time > LEASE {
        let task = task(format!("{key}-refused"), 1, Duration::ZERO);
        thread::sleep(KNOWN);
        let asked = Instant::now();
        RunView::begin(replica.gateway.address, Protocol::AgentApi, task, LONG * 2, may_refuse);
        refusal = asked.elapsed();
    }
    thread::sleep(time.saturating_sub(started.elapsed()));
    CutKind::end(&replica.proxy);

    let back = cluster.serves(0, MAX_BACK * 3)?;
    let staying = staying.join()?;
    cluster.wait_settled(3, LEASE * 5)?;
    let same = cluster.ids()? == before;
    let second = count_no_prefixes(&cluster.addresses(), &staying)?;
    let completed = staying.iter().filter(|seen| seen.is_completed()).count();
    let mut checks = vec![
        Check::at_most(name("streams that are no beginning of the result"), second as f64, 0.0, ""),
        Check::at_most(name("a new run completed there after"), back.as_secs_f64(), MAX_BACK.as_secs_f64(), "s"),
    ];
    if time < LEASE {
        checks.push(Check::at_least(name("the same gateways are there"), f64::from(u8::from(same)), 1.0, ""));
        checks.push(Check::at_least(name("runs there completed"), completed as f64, STAYING as f64, ""));
    } else {
        checks.push(Check::at_most(name("the same gateways are there"), f64::from(u8::from(same)), 0.0, ""));
        checks.push(Check::at_most(name("runs there completed"), completed as f64, 0.0, ""));
        let limit = MAX_REFUSAL.as_secs_f64();
        checks.push(Check::at_most(name("a new run was refused after"), refusal.as_secs_f64(), limit, "s"));
    }
    Ok(checks)
}
