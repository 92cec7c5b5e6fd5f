//! The clocks of two of three gateways are wrong, by an hour in each direction: no gateway takes runs over for that,
//! and none deletes what the others keep, although runs are kept for half an hour only.
//!
//! Not here: a clock that is set while a gateway runs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use interlingua_testing_postgres::{Options, binaries};

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::random::Random;
use super::{LOST, interrupted, oracle};
use crate::check::Check;
use crate::{Rig, http};

const MIX: Mix = Mix { clients: 24, words: (5, 40), pace: Duration::from_millis(50) };
/// Offsets in the form of libfaketime.
const CLOCKS: [&str; 2] = ["+3600s", "-3600s"];
/// Long enough for a round of the gateway that deletes what is old: a hundred runs bring it forward.
const TIME: Duration = Duration::from_secs(30);
/// More runs than the clients begin, and less time than a clock is wrong.
const RETENTION: &str = "retention = { age = \"30m\", runs = 1000 }";

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let mut cluster = Cluster::start(rig, 0, &Options::fast())?;
    cluster.store_keys = RETENTION.to_owned();
    // The first one deletes what is old: the one that is ahead.
    let folder = tempfile::tempdir()?;
    for clock in CLOCKS {
        let gateway = with_clock(rig, folder.path(), clock)?;
        let replica = cluster.new_replica_of(&Rig { gateway }, "")?;
        cluster.replicas.push(replica);
    }
    cluster.add()?;
    let apart = apart(&cluster)?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    thread::sleep(TIME);

    let all = load.stop()?;
    let mut checks = vec![
        Check::at_least("clocks that are wrong", apart as f64, 2.0, ""),
        Check::at_most("gateways that lost their runs", cluster.log_lines(LOST).len() as f64, 0.0, ""),
        Check::at_most("runs that failed with GATEWAY_RESTARTED", interrupted(&all) as f64, 0.0, ""),
    ];
    checks.extend(oracle::check(&cluster, &all)?);
    Ok(checks)
}

/// A program that starts the gateway with another clock. It becomes the gateway, so that signals reach it.
fn with_clock(rig: &Rig, folder: &Path, clock: &str) -> Result<PathBuf> {
    let path = folder.join(format!("gateway{clock}"));
    let (library, gateway) = (library()?.display().to_string(), rig.gateway.display().to_string());
    let script =
        format!("#!/bin/sh\nFAKETIME='{clock}' DONT_FAKE_MONOTONIC=1 LD_PRELOAD='{library}' exec '{gateway}' \"$@\"\n");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// libfaketime, which is installed with apt if it is missing.
fn library() -> Result<PathBuf> {
    binaries::program("faketime", "faketime")?;
    let folders = std::fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path());
    let mut paths = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    paths.find(|path| path.exists()).context("libfaketime.so.1 was not found below /usr/lib")
}

/// The number of gateways with another hour than this machine, by the header `Date`.
fn apart(cluster: &Cluster) -> Result<usize> {
    let mut dates = Vec::new();
    for address in cluster.addresses() {
        let head = http::head(address, "/healthz")?;
        let date = head.lines().find_map(|line| Some(line.to_lowercase().strip_prefix("date: ")?.to_owned()));
        let date = date.context("no Date")?;
        dates.push(date.split(' ').nth(4).and_then(|time| time.get(..2)).map(str::to_owned).context("no time")?);
    }
    let right = dates.last().cloned().context("no gateway")?;
    Ok(dates.iter().filter(|hour| **hour != right).count())
}
