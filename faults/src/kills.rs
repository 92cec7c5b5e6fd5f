//! `kill -9` under load, again and again, with clients that go on by number: whatever one was told is there, each frame
//! once, and every run has an end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::stream::{self, Frame};
use crate::{Rig, http};

const KILLS: usize = 200;
/// So many streams at once.
const CLIENTS: usize = 24;

/// What a client asked, and was told until its connection ended.
struct Told {
    responses: bool,
    frames: Vec<Frame>,
}

#[derive(Default)]
struct Found {
    /// Runs of which a client was told something and that are not as they were told: not there, other frames, a gap.
    lost: usize,
    /// Frames that were told twice.
    doubled: usize,
    /// Runs without an end.
    endless: usize,
    streams: usize,
    cut: usize,
    frames: usize,
    slowest: Duration,
    first: Option<String>,
}

impl Found {
    fn note(&mut self, what: String) {
        self.first.get_or_insert(what);
    }
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let server = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"sqlite\"\npath = \"gateway.db\"\n";
    let mut gateway = Gateway::start(rig, &format!("{server}{ROUTES}"))?;
    let mut found = Found::default();
    for kill in 0..KILLS {
        let address = gateway.address;
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| std::thread::spawn(move || talk(address, kill, client))).collect();
        // Sooner and later: in the first words of all, and when some have ended.
        std::thread::sleep(Duration::from_millis(30 + (kill as u64 * 37) % 270));
        gateway.kill();
        let told: Vec<Told> = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
        let began = Instant::now();
        gateway.restart()?;
        found.slowest = found.slowest.max(began.elapsed());
        for told in &told {
            go_on(gateway.address, told, &mut found)?;
        }
    }
    if let Some(first) = &found.first {
        eprintln!("the first one that is wrong: {first}");
    }
    let memory = gateway.memory()? as f64 / f64::from(1 << 20);
    Ok(vec![
        Check::at_least("kills", KILLS as f64, KILLS as f64, ""),
        Check::at_least("streams that were told something", found.streams as f64, (KILLS * CLIENTS / 2) as f64, ""),
        Check::at_least("… of them cut", found.cut as f64, (KILLS * CLIENTS / 4) as f64, ""),
        Check::shown("frames told before", found.frames as f64, ""),
        Check::at_most("lost", found.lost as f64, 0.0, ""),
        Check::at_most("doubled", found.doubled as f64, 0.0, ""),
        Check::at_most("without an end", found.endless as f64, 0.0, ""),
        Check::at_most("slowest start after a kill", found.slowest.as_secs_f64(), 5.0, "s"),
        Check::shown("memory after the last start", memory, "MiB"),
    ])
}

/// Opens one stream after the other until the process dies.
fn talk(address: SocketAddr, kill: usize, client: usize) -> Vec<Told> {
    let mut all = Vec::new();
    loop {
        let responses = client % 2 == 1;
        let pace = 1 + (kill + client * 2) % 50;
        // Every fourth client asks for something short, again and again.
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
            all.push(Told { responses, frames });
        }
        if !ended {
            return all;
        }
    }
}

/// Goes on where the client was cut, by number, and compares it with the whole.
fn go_on(address: SocketAddr, told: &Told, found: &mut Found) -> Result<()> {
    let last = told.frames.last().map_or(0, |frame| frame.number);
    let first = &told.frames[0].data;
    let (whole, rest) = if told.responses {
        let id = stream::id(first, "resp_").unwrap_or_default();
        let path = format!("/v1/responses/{id}?stream=true");
        (path.clone(), format!("{path}&starting_after={last}"))
    } else {
        let id = stream::id(first, "response_").unwrap_or_default();
        let path = format!("/agents/demo/runs/{id}/events");
        (path.clone(), format!("{path}?after={last}"))
    };
    let (status, whole) = stream::read(address, &http::request("GET", &whole, &[], ""))?;
    let (_, rest) = stream::read(address, &http::request("GET", &rest, &[], ""))?;
    found.streams += 1;
    found.frames += told.frames.len();
    found.cut += usize::from(!told.frames.last().is_some_and(Frame::is_end));
    let all: Vec<&Frame> = told.frames.iter().chain(&rest).collect();
    let doubled = all.windows(2).filter(|pair| pair[1].number <= pair[0].number).count();
    found.doubled += doubled;
    let ends = all.iter().filter(|frame| frame.is_end()).count();
    found.endless += usize::from(ends != 1 || !all.last().is_some_and(|frame| frame.is_end()));
    let same = status == 200 && all.len() == whole.len() && all.iter().zip(&whole).all(|(told, kept)| *told == kept);
    found.lost += usize::from(!same);
    if !same || doubled > 0 || ends != 1 {
        let (told, rest, whole) = (told.frames.len(), rest.len(), whole.len());
        found.note(format!(
            "status {status}, {told} frames told and {rest} after them of {whole}, {ends} ends: {first}"
        ));
    }
    Ok(())
}
