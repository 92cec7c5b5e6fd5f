//! Gateways that start at the same moment on an empty database: two, then five. One of them makes the tables, and all
//! serve. A role that may not make them is refused with a message that says so.
//!
//! Not here: migrations of tables that have rows.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use interlingua_testing_postgres::Options;

use super::cluster::Cluster;
use super::load::{Load, Mix};
use super::oracle;
use super::random::Random;
use crate::Rig;
use crate::check::Check;

const MIX: Mix = Mix { clients: 12, words: (1, 10), pace: Duration::from_millis(20) };
const ROLE: [&str; 2] = ["CREATE ROLE guest LOGIN", "REVOKE CREATE ON DATABASE postgres FROM PUBLIC"];

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for replicas in [2, 5] {
        checks.extend(at_once(rig, replicas)?);
    }
    checks.push(Check::at_least("a role without rights is named as the reason", without_rights(rig)?, 1.0, ""));
    Ok(checks)
}

fn at_once(rig: &Rig, replicas: usize) -> Result<Vec<Check>> {
    let mut cluster = Cluster::start(rig, 0, &Options::fast())?;
    let began = Instant::now();
    let started: Vec<_> = thread::scope(|scope| {
        let starting: Vec<_> = (0..replicas).map(|_| scope.spawn(|| cluster.new_replica(""))).collect();
        starting.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("a panic"))).collect()
    });
    for replica in started {
        cluster.replicas.push(replica?);
    }
    let took = began.elapsed();
    let load = Load::start(&cluster.addresses(), MIX, &mut Random::seeded());
    thread::sleep(Duration::from_secs(3));
    let all = load.stop()?;

    let named = |what: &str| format!("{what} ({replicas})");
    let mut checks = vec![
        Check::at_least(named("gateways that joined"), cluster.active()? as f64, replicas as f64, ""),
        Check::at_most(named("all ready after"), took.as_secs_f64(), 15.0, "s"),
    ];
    checks.extend(oracle::check(&cluster, &all)?.into_iter().map(|check| check.renamed(named)));
    Ok(checks)
}

/// 1 if a gateway whose role may not make the tables ends and says why.
fn without_rights(rig: &Rig) -> Result<f64> {
    let cluster = Cluster::start(rig, 0, &Options::fast())?;
    ROLE.iter().try_for_each(|sql| cluster.sql(sql).map(drop))?;
    let folder = tempfile::tempdir()?;
    let url = cluster.url_at(cluster.server.address()).replace("postgres://postgres@", "postgres://guest@");
    std::fs::write(folder.path().join("url"), url)?;
    let config = cluster.config().replace("{{listen}}", "127.0.0.1:0");
    std::fs::write(folder.path().join("gateway.toml"), config)?;
    let output = Command::new(&rig.gateway).current_dir(folder.path()).output().context("cannot start the gateway")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(line) = said.lines().find(|line| line.starts_with("error")) {
        println!("a role without rights: {line}");
    }
    let names_it = said.contains("the role of the URL may not make the tables of schema interlingua");
    Ok(f64::from(u8::from(!output.status.success() && names_it)))
}
