//! Repeated `kill -9` under load, with clients that resume by sequence number: everything that a client received is
//! still there, each frame exactly once, and every run has an end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::stream::{self, Frame};
use crate::{Rig, http};

const KILLS: usize = 200;
/// Concurrent streams.
const CLIENTS: usize = 24;

/// A stream of a client, until its connection ended.
struct ObservedStream {
    responses: bool,
    frames: Vec<Frame>,
}

#[derive(Default)]
struct Totals {
    /// Runs that a client saw and that differ afterwards: missing, other frames, a gap.
    lost: usize,
    /// Frames that were received twice.
    duplicated: usize,
    /// Runs without an end.
    endless: usize,
    streams: usize,
    cut: usize,
    frames: usize,
    slowest: Duration,
    first: Option<String>,
}

impl Totals {
    fn record_first(&mut self, what: String) {
        self.first.get_or_insert(what);
    }
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let server = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"sqlite\"\npath = \"gateway.db\"\n";
    let mut gateway = Gateway::start(rig, &format!("{server}{ROUTES}"))?;
    let mut totals = Totals::default();
    for kill in 0..KILLS {
        let address = gateway.address;
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| std::thread::spawn(move || stream_until_killed(address, kill, client))).collect();
        // Vary the moment: during the first deltas, and after some streams have ended.
        std::thread::sleep(Duration::from_millis(30 + (kill as u64 * 37) % 270));
        gateway.kill();
        let received: Vec<ObservedStream> =
            clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
        let started = Instant::now();
        gateway.restart()?;
        totals.slowest = totals.slowest.max(started.elapsed());
        for received in &received {
            check_resume(gateway.address, received, &mut totals)?;
        }
    }
    if let Some(first) = &totals.first {
        eprintln!("first difference: {first}");
    }

    let memory = gateway.memory()? as f64 / f64::from(1 << 20);
    Ok(vec![
        Check::at_least("kills", KILLS as f64, KILLS as f64, ""),
        Check::at_least("streams with at least one frame", totals.streams as f64, (KILLS * CLIENTS / 2) as f64, ""),
        Check::at_least("… of them cut", totals.cut as f64, (KILLS * CLIENTS / 4) as f64, ""),
        Check::info("frames received before the kill", totals.frames as f64, ""),
        Check::at_most("lost", totals.lost as f64, 0.0, ""),
        Check::at_most("duplicated", totals.duplicated as f64, 0.0, ""),
        Check::at_most("without an end", totals.endless as f64, 0.0, ""),
        Check::at_most("slowest start after a kill", totals.slowest.as_secs_f64(), 5.0, "s"),
        Check::info("memory after the last start", memory, "MiB"),
    ])
}

/// Opens one stream after another until the process dies.
fn stream_until_killed(address: SocketAddr, kill: usize, client: usize) -> Vec<ObservedStream> {
    let mut all = Vec::new();
    loop {
        let responses = client % 2 == 1;
        let pace = 1 + (kill + client * 2) % 50;

        // Half of the clients request short replies repeatedly.
        let words = if client % 4 < 2 { "long 4000" } else { "long 12" };
        let pace = if client % 4 < 2 { pace } else { 1 + pace % 4 };
        let text = format!("{words} {pace}");
        let request = if responses {
            let body = format!(r#"{{"model":"demo","input":"{text}","stream":true}}"#);
            http::request("POST", "/v1/responses", &[], &body)
        } else {
            let body = format!(r#"{{"input":[{{"role":"user","content":"{text}"}}]}}"#);
            http::request("POST", "/agents/demo/process", &[], &body)
        };
        let Ok((200, frames)) = stream::read(address, &request) else { return all };
        let ended = frames.last().is_some_and(Frame::is_end);
        if !frames.is_empty() {
            all.push(ObservedStream { responses, frames });
        }
        if !ended {
            return all;
        }
    }
}

/// Resumes a cut stream by sequence number and compares the result with a full replay.
fn check_resume(address: SocketAddr, received: &ObservedStream, totals: &mut Totals) -> Result<()> {
    let last = received.frames.last().map_or(0, |frame| frame.number);
    let first = &received.frames[0].data;
    let (full, rest) = if received.responses {
        let id = stream::id(first, "resp_").unwrap_or_default();
        let path = format!("/v1/responses/{id}?stream=true");
        (path.clone(), format!("{path}&starting_after={last}"))
    } else {
        let id = stream::id(first, "response_").unwrap_or_default();
        let path = format!("/agents/demo/runs/{id}/events");
        (path.clone(), format!("{path}?after={last}"))
    };
    let (status, full) = stream::read(address, &http::request("GET", &full, &[], ""))?;
    let (_, rest) = stream::read(address, &http::request("GET", &rest, &[], ""))?;
    totals.streams += 1;
    totals.frames += received.frames.len();
    totals.cut += usize::from(!received.frames.last().is_some_and(Frame::is_end));
    let all: Vec<&Frame> = received.frames.iter().chain(&rest).collect();
    let duplicated = all.windows(2).filter(|pair| pair[1].number <= pair[0].number).count();
    totals.duplicated += duplicated;
    let ends = all.iter().filter(|frame| frame.is_end()).count();
    totals.endless += usize::from(ends != 1 || !all.last().is_some_and(|frame| frame.is_end()));
    let same =
        status == 200 && all.len() == full.len() && all.iter().zip(&full).all(|(received, stored)| *received == stored);
    totals.lost += usize::from(!same);
    if !same || duplicated > 0 || ends != 1 {
        let (received, rest, full) = (received.frames.len(), rest.len(), full.len());
        totals.record_first(format!(
            "status {status}, {received} frames received and {rest} resumed of {full}, {ends} ends: {first}"
        ));
    }
    Ok(())
}
