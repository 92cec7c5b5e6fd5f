//! The worst agents there are, one after the other, against one process: whatever they send, it stays small, it lives,
//! and others are served all the while.

use std::io::Write as _;
use std::time::Duration;

use crate::support::agent::{beginning, frames, response, word};
use crate::support::gateway::{DEMO, JSON, ROUTE, agent, last_said, says};
use crate::support::http::bounded;
use crate::support::process::Process;
use crate::support::story::Story;
use crate::support::upstream::{Answer, Upstream};

/// What the process may take at its peak: what it takes by itself, unoptimised as it is, and a few runs at their bound.
const MOST: usize = 160 << 20;

fn chunk(bytes: &str) -> String {
    format!("{:x}\r\n{bytes}\r\n", bytes.len())
}

fn worst(name: &str) -> Answer {
    let begun = || beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let data = |frame: &str| format!("data: {frame}\n\n");
    match name {
        "a line without end" => begun().chunk("data: ").flood(chunk(&"x".repeat(16 << 10))),
        "fields without end" => begun().flood(chunk(&"event: x\n".repeat(2000))),
        "a text without end" => begun().flood(chunk(&data(&word(&"x".repeat(1000))).repeat(16))),
        "a million tiny texts" => {
            let row = data(&word("x")).repeat(1000);
            ending((0..1000).fold(begun(), |answer, _| answer.chunk(&row)))
        }
        "a million frames of nothing" => {
            let row = data("{\"object\":\"none\"}").repeat(1000);
            ending((0..1000).fold(begun(), |answer, _| answer.chunk(&row)))
        }
        "comments without end" => begun().flood(chunk(&": still here\n\n".repeat(1000))),
        "a head without end" => Answer::raw("HTTP/1.1 200 OK\r\n").flood("x-more: and more\r\n".repeat(100)),
        "a header of a mebibyte" => Answer::raw(format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "x".repeat(1 << 20))).hang(),
        "JSON without end" => Answer::head(200, &[("content-type", "application/json")])
            .chunk("{\"object\":\"")
            .flood(chunk(&"x".repeat(16 << 10))),
        "JSON without bottom" => {
            ending(Answer::events().frame(&response("created")).frame(&format!("{{\"object\":{}", "[".repeat(1 << 20))))
        }
        "a refusal without end" => Answer::head(500, &[]).flood(chunk(&"x".repeat(16 << 10))),
        "a bomb" => {
            let packed = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
            Answer::head(200, &packed).chunk(bomb()).done()
        }
        other => panic!("what is {other:?}?"),
    }
}

/// A few kilobytes that unpack to a gigabyte: one mebibyte of spaces, packed once and said a thousand times.
fn bomb() -> Vec<u8> {
    let packed = |bytes: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(bytes).expect("memory");
        packer.finish().expect("memory")
    };
    let mut bomb = packed(b"data: ");
    bomb.extend(packed(&vec![b' '; 1 << 20]).repeat(1000));
    bomb
}

fn ending(answer: Answer) -> Answer {
    frames(&["the end"]).split_off(3).iter().fold(answer, |answer, frame| answer.frame(frame)).done()
}

/// What a process took at its peak, in bytes.
fn peak(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the system tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[tokio::test]
async fn the_worst_agents_cost_bounded_memory_and_nobody_elses_time() {
    let upstream = Upstream::deciding(|asked| worst(&last_said(&asked.json())));
    let folder = tempfile::tempdir().expect("a folder");
    let url = upstream.url("/process");
    let patient = agent("friday", &url, "max_run_bytes = \"1MiB\"", "retries = 0");
    let hasty = agent("hasty", &url, "", "timeouts = { total = \"500ms\" }");
    let config = format!("[server]\nlisten = \"127.0.0.1:0\"\n{DEMO}{patient}{hasty}{ROUTE}");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    let cases: [(&str, &[&str]); 12] = [
        ("a line without end", &["UPSTREAM_TOO_LARGE"]),
        ("fields without end", &["UPSTREAM_TOO_LARGE"]),
        ("a text without end", &["UPSTREAM_TOO_LARGE"]),
        ("a million tiny texts", &["UPSTREAM_TOO_LARGE"]),
        ("a million frames of nothing", &[""]),
        ("comments without end", &["UPSTREAM_TIMEOUT"]),
        ("a head without end", &["UPSTREAM_PROTOCOL_ERROR"]),
        ("a header of a mebibyte", &["UPSTREAM_PROTOCOL_ERROR"]),
        ("JSON without end", &["UPSTREAM_TOO_LARGE"]),
        ("JSON without bottom", &["UPSTREAM_PROTOCOL_ERROR"]),
        ("a refusal without end", &["UPSTREAM_REFUSED"]),
        ("a bomb", &["UPSTREAM_PROTOCOL_ERROR", "UPSTREAM_TOO_LARGE"]),
    ];
    for (name, codes) in cases {
        let body = says(name).to_string();
        // Comments are signs of life: an agent that sends nothing else is given up when its time is over.
        let agent = if name == "comments without end" { "hasty" } else { "friday" };
        let mut stream = process.open("POST", &format!("/agents/{agent}/process"), JSON, body.as_bytes()).await;
        let code = bounded(name, async {
            if stream.status().await == 200 {
                let story = Story::read(&stream.frames().await);
                story.code().to_owned()
            } else {
                stream.answer_here().await.json()["code"].as_str().expect("a code").to_owned()
            }
        })
        .await;
        assert!(codes.contains(&code.as_str()), "{name}: {code}");
        let quick = process.open("POST", "/agents/demo/process", JSON, says("echo hi").to_string().as_bytes()).await;
        let answered = tokio::time::timeout(Duration::from_secs(2), quick.answer()).await;
        assert_eq!(answered.expect("others are served").status, 200);
        assert!(peak(&process) < MOST, "{name}: {} bytes at the peak", peak(&process));
    }
}
