//! Clients that disconnect in the first milliseconds of their requests: nothing they started may be left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::{Rig, http};

const REQUESTS: usize = 10_000;
/// Concurrent clients.
const CLIENTS: usize = 16;
/// Longest time between a request and its reset, in microseconds. The steps are 100 µs.
const MAX_DELAY_MICROS: u64 = 4_000;

/// The requests, sent in rotation: background responses, Agent API tasks, A2A streams, and calls without streaming.
fn requests() -> Vec<Vec<u8>> {
    let a2a = r#"{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;
    let native = r#"{"input":[{"role":"user","content":"hello"}]}"#;
    vec![
        http::request("POST", "/v1/responses", &[], r#"{"model":"demo","input":"hello","background":true}"#),
        http::request("POST", "/agents/demo/process/task", &[], native),
        http::request("POST", "/a2a/demo", &[("A2A-Version", "1.0")], a2a),
        http::request("POST", "/agents/demo/process", &[], native),
        http::request("POST", "/v1/responses", &[], r#"{"model":"demo","input":"hello"}"#),
    ]
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for store in ["sqlite", "memory"] {
        let server = "[server]\nlisten = \"{{listen}}\"\ndrain = \"20s\"\n";
        let path = if store == "sqlite" { "\npath = \"gateway.db\"" } else { "" };
        let mut gateway = Gateway::start(rig, &format!("{server}[store]\nkind = \"{store}\"{path}\n{ROUTES}"))?;
        checks.extend(abandon(&mut gateway, store)?);
    }
    Ok(checks)
}

fn abandon(gateway: &mut Gateway, store: &str) -> Result<Vec<Check>> {
    let requests = requests();
    let address = gateway.address;
    let idle_files = gateway.open_files()?;
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let after = Duration::from_micros((number as u64 * 100) % (MAX_DELAY_MICROS + 1));
                    if http::abandon(address, &requests[number % requests.len()], after).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (runs, left) = settle(gateway)?;
    let memory = gateway.memory()? as f64 / f64::from(1 << 20);
    let files = gateway.open_files()?.saturating_sub(idle_files);
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    let panics = gateway.log().matches("panicked").count();
    let name = |what: &str| format!("{what} ({store})");

    Ok(vec![
        Check::at_most(name("requests that could not be sent"), failed.into_inner() as f64, 0.0, ""),
        Check::at_least(name("runs started"), runs as f64, 100.0, ""),
        Check::at_most(name("runs without an end after 5 s"), left as f64, 0.0, ""),
        Check::at_most(name("sockets left open"), files as f64, 16.0, ""),
        Check::at_most(name("panics in the log"), panics as f64, 0.0, ""),
        Check::at_most(name("SIGTERM to exit"), stopped, 1.0, "s"),
        Check::info(name("memory afterwards"), memory, "MiB"),
    ])
}

/// Waits until no run is active. Returns the number of runs and how many are still active after 5 s. Reading the list
/// takes a while, so the result is from a list that was started after that.
fn settle(gateway: &Gateway) -> Result<(usize, usize)> {
    let started = Instant::now();
    loop {
        let late = started.elapsed() > Duration::from_secs(5);
        let (mut runs, mut left) = (0, 0);
        let mut cursor = String::new();
        loop {
            let list = http::get(gateway.address, &format!("/agents/demo/runs?limit=100{cursor}"))?;
            anyhow::ensure!(list.status == 200, "the list of runs was answered {}: {}", list.status, list.body);
            runs += list.body.matches("\"object\":\"response\"").count();
            left += ["queued", "in_progress"]
                .map(|state| list.body.matches(&format!("\"status\":\"{state}\"")).count())
                .iter()
                .sum::<usize>();
            match list.body.split("\"next\":\"").nth(1).and_then(|rest| rest.split('"').next()) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        if left == 0 || late {
            return Ok((runs, left));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
