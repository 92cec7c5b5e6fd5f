//! A thousand reloads under load, every tenth of a file with an error: no request may fail, and memory may not grow.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES, answers};
use crate::{Rig, http};

const RELOADS: u64 = 1000;
const CLIENTS: usize = 50;
const ADMIN_KEY: &str = "an-admin-key-of-at-least-32-characters";
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// Requests, and reloads after them, before memory is measured first: by then the store and caches are filled, and the
/// allocator has memory for all connections.
const WARM_UP_REQUESTS: u64 = 20_000;
const WARM_UP: u64 = 500;
const WARM_UP_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let head = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"memory\"\nretention = { runs = 500 }\n";
    let file = format!(
        "{head}[admin]\nlisten = \"{admin}\"\nconsole = false\nkey = {{ file = \"admin.key\" }}\n{}",
        ROUTES.replace("\"demo\" }", "\"demo\", options = { pace_ms = 0 } }")
    );
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("admin.key"), ADMIN_KEY)?;
    let gateway = Gateway::start_in(rig, folder, &file, answers)?;

    let (stop, answered, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let body = r#"{"input":[{"role":"user","content":[{"type":"text","text":"hello"}]}],"stream":false}"#;
    // Most of them read, so that what the store keeps does not hide what reloads leave behind.
    let run = http::request("POST", "/agents/demo/process", &[], body);
    let read = http::request("GET", "/agents/demo/runs?limit=1", &[], "");
    let mut results = None;
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let request = if number % 5 == 0 { &run } else { &read };
                    let is_good = http::send(gateway.address, request).is_ok_and(|answer| answer.status == 200);
                    let counter = if is_good { &answered } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            });
        }
        let began = Instant::now();
        while answered.load(Ordering::Relaxed) < WARM_UP_REQUESTS && began.elapsed() < WARM_UP_LIMIT {
            thread::sleep(PAUSE);
        }
        results = Some(reload_many(&gateway, admin));
        stop.store(true, Ordering::Relaxed);
    });

    let Results { refused, grown, took } = results.transpose()?.unwrap_or_default();
    Ok(vec![
        Check::at_most("failed requests", failed.load(Ordering::Relaxed) as f64, 0.0, ""),
        Check::at_least("answered requests", answered.load(Ordering::Relaxed) as f64, WARM_UP_REQUESTS as f64, ""),
        Check::at_least("files that were refused", refused as f64, (RELOADS / 10) as f64, ""),
        Check::at_most("files that were refused", refused as f64, (RELOADS / 10) as f64, ""),
        // The runs of the load leave most of it: without reloads it is as much.
        Check::at_most("memory grown", grown as f64 / 1048576.0, 32.0, "MiB"),
        Check::info("time", took, "s"),
    ])
}

#[derive(Default)]
struct Results {
    refused: u64,
    /// Bytes since the end of the warm-up.
    grown: u64,
    took: f64,
}

/// Reloads by the admin listener. The file changes each time, and every tenth time it has an error.
fn reload_many(gateway: &Gateway, admin: SocketAddr) -> Result<Results> {
    let path = gateway.folder().join("gateway.toml");
    let good = fs::read_to_string(&path)?;
    let bearer = format!("Bearer {ADMIN_KEY}");
    let request = http::request("POST", "/api/reload", &[("authorization", &bearer)], "");
    let (began, mut refused, mut before) = (Instant::now(), 0, 0);
    for number in 0..RELOADS {
        let is_wrong = number % 10 == 9;
        let change = if is_wrong { "\n[agents.wrong]\n".to_owned() } else { format!("\n# {number}\n") };
        let version = format!("{good}[agents.other{}]\nupstream = {{ protocol = \"demo\" }}\n{change}", number % 3);
        fs::write(&path, version)?;
        let answer = http::send(admin, &request)?;
        ensure!(answer.status == if is_wrong { 422 } else { 200 }, "{}: {}", answer.status, answer.body);
        refused += u64::from(is_wrong);
        if number == WARM_UP {
            before = gateway.memory()?;
        }
    }
    let grown = gateway.memory()?.saturating_sub(before);
    Ok(Results { refused, grown, took: began.elapsed().as_secs_f64() })
}
