//! The database accepts no writes: it is set to read-only, and the disk of its tables is full. Then it accepts them
//! again. Acknowledged data stays, active runs continue, and all gateways recover by themselves.
//!
//! Not here: SQLite on a full disk (`store.rs`).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interlingua_testing_postgres::Options;

use super::cluster::{Cluster, LEASE};
use super::load::{Load, Mix};
use super::random::Random;
use super::{LOST, oracle};
use crate::Rig;
use crate::check::Check;
use crate::http;

const MIX: Mix = Mix { clients: 24, words: (20, 100), pace: Duration::from_millis(100) };
/// Duration of the outage. Runs that are not written within 10 s may fail.
const OUTAGE: Duration = Duration::from_secs(7);
/// A gateway refuses new runs once the database has failed for two seconds.
const GRACE: Duration = Duration::from_secs(3);
/// Free space of the tables' disk at first, in MiB.
const DISK: u32 = 64;
/// Neither is a write for PostgreSQL.
const READ_ONLY: [&str; 2] = ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"];
const WRITABLE: [&str; 2] = ["ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"];

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    checks.extend(fail(rig, "read-only", &Options::fast(), read_only, writable)?);
    if rustix::process::geteuid().is_root() {
        checks.extend(fail(rig, "full", &Options::fast().small_disk(DISK), fill, free)?);
    } else {
        eprintln!("replicas-full: only root can give a server a small disk, so that part is left out");
    }
    Ok(checks)
}

fn read_only(cluster: &Cluster) -> Result<()> {
    READ_ONLY.iter().try_for_each(|sql| cluster.sql(sql).map(drop))
}

fn writable(cluster: &Cluster) -> Result<()> {
    WRITABLE.iter().try_for_each(|sql| cluster.sql(sql).map(drop))
}

/// Writes until nothing fits any more: large pieces first, then small ones.
fn fill(cluster: &Cluster) -> Result<()> {
    cluster.sql("CREATE TABLE filler (bytes text)")?;
    cluster.sql("ALTER TABLE filler ALTER bytes SET STORAGE EXTERNAL")?;
    for (size, rows) in [(1_000_000, 8), (100_000, 4), (5_000, 4), (5_000, 1)] {
        let insert = format!("INSERT INTO filler SELECT repeat('x', {size}) FROM generate_series(1, {rows})");
        let mut error = None;
        for _ in 0..1000 {
            match cluster.sql(&insert) {
                Ok(_) => {}
                Err(refused) => {
                    error = Some(refused);
                    break;
                }
            }
        }
        let error = error.map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(error.contains("No space left"), "the disk is not full: {error}");
    }
    Ok(())
}

fn free(cluster: &Cluster) -> Result<()> {
    cluster.sql("DROP TABLE filler").map(drop)
}

type Step = fn(&Cluster) -> Result<()>;

fn fail(rig: &Rig, name: &str, options: &Options, fault: Step, repair: Step) -> Result<Vec<Check>> {
    let mut random = Random::seeded();
    let cluster = Cluster::start(rig, 3, options)?;
    thread::sleep(LEASE);
    let load = Load::start(&cluster.addresses(), MIX, &mut random);
    thread::sleep(Duration::from_secs(4));
    fault(&cluster)?;
    thread::sleep(GRACE);
    let refused = cluster.addresses().into_iter().filter(|address| is_refused(*address)).count();
    thread::sleep(OUTAGE.saturating_sub(GRACE));
    repair(&cluster)?;
    let repaired = Instant::now();
    cluster.all_serve()?;
    let recovered = repaired.elapsed();

    thread::sleep(LEASE + Duration::from_secs(2));
    let all = load.stop()?;
    let named = |what: &str| format!("{what} ({name})");
    let mut checks = vec![
        // A full disk has room left in existing pages: some gateway may continue for a while.
        Check::at_least(named("gateways that refuse new runs meanwhile"), refused as f64, 1.0, ""),
        Check::at_most(named("all gateways ready again after"), recovered.as_secs_f64(), 5.0, "s"),
        Check::at_most(named("gateways that lost their runs"), cluster.log_lines(LOST).len() as f64, 0.0, ""),
    ];
    checks.extend(oracle::check(&cluster, &all)?.into_iter().map(|check| check.renamed(named)));
    Ok(checks)
}

/// Whether a gateway refuses a new run with 503.
fn is_refused(address: SocketAddr) -> bool {
    let body = r#"{"stream":false,"input":[{"role":"user","content":"refused 1 0"}]}"#;
    let answer = http::send(address, &http::request("POST", "/agents/demo/process", &[], body));
    answer.is_ok_and(|answer| answer.status == 503)
}
