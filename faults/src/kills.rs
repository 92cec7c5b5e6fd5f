//! Repeated `kill -9` under load, with clients that resume by sequence number: everything that a client received is
//! still there, each frame exactly once, and every run has an end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use interlingua_testing_support::cluster::{Oracle, Protocol, RunView, Task, Violation};

use crate::Rig;
use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};

const KILLS: usize = 200;
/// Concurrent streams.
const CLIENTS: usize = 24;
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let server = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"sqlite\"\npath = \"gateway.db\"\n";
    let mut gateway = Gateway::start(rig, &format!("{server}{ROUTES}"))?;
    let (oracle, mut slowest) = (Oracle::default(), Duration::ZERO);
    let (mut streams, mut cut, mut frames) = (0, 0, 0);
    for kill in 0..KILLS {
        let address = gateway.address;
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| std::thread::spawn(move || stream_until_killed(address, kill, client))).collect();
        // Vary the moment: during the first deltas, and after some streams have ended.
        std::thread::sleep(Duration::from_millis(30 + (kill as u64 * 37) % 270));
        gateway.kill();
        let received: Vec<RunView> = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
        gateway.restart()?;
        slowest = slowest.max(gateway.took);
        for mut seen in received {
            streams += 1;
            frames += seen.frames.len();
            let is_ended = seen.is_ended();
            cut += usize::from(!is_ended);
            // 204: the run has ended, and no frame follows.
            seen.resume(address, SILENCE, |answer| is_ended && answer.status == 204);
            oracle.check_view(&seen);
            oracle.compare(&seen, address)?;
        }
    }

    let found = |violation| oracle.found(violation).len() as f64;
    for first in Violation::ALL.into_iter().filter_map(|violation| oracle.found(violation).into_iter().next()) {
        eprintln!("first difference: {first}");
    }
    let memory = gateway.memory()? as f64 / f64::from(1 << 20);
    Ok(vec![
        Check::at_least("kills", KILLS as f64, KILLS as f64, ""),
        Check::at_least("streams with at least one frame", f64::from(streams), (KILLS * CLIENTS / 2) as f64, ""),
        Check::at_least("… of them cut", cut as f64, (KILLS * CLIENTS / 4) as f64, ""),
        Check::info("frames received before the kill", frames as f64, ""),
        Check::at_most("lost", found(Violation::Differing), 0.0, ""),
        Check::at_most("duplicated", found(Violation::Broken), 0.0, ""),
        Check::at_most("without an end", found(Violation::Endless), 0.0, ""),
        Check::at_most("other answers", found(Violation::WrongAnswer), 0.0, ""),
        Check::at_most("slowest start after a kill", slowest.as_secs_f64(), 5.0, "s"),
        Check::info("memory after the last start", memory, "MiB"),
    ])
}

/// Opens one stream after another until the process dies.
fn stream_until_killed(address: SocketAddr, kill: usize, client: usize) -> Vec<RunView> {
    let mut all = Vec::new();
    loop {
        let protocol = if client % 2 == 1 { Protocol::Responses } else { Protocol::AgentApi };
        let pace = 1 + (kill + client * 2) % 50;

        // Half of the clients request short replies repeatedly.
        let words = if client % 4 < 2 { "long 4000" } else { "long 12" };
        let pace = if client % 4 < 2 { pace } else { 1 + pace % 4 };
        let seen = RunView::begin(address, protocol, Task::new("demo", format!("{words} {pace}")), SILENCE, |_| true);
        let is_ended = seen.is_ended();
        if !seen.frames.is_empty() {
            all.push(seen);
        }
        if !is_ended {
            return all;
        }
    }
}
