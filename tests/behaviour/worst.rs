//! Hostile agents, one after the other, against one process: whatever they send, memory stays bounded, the process
//! survives, and other clients are served meanwhile.

use std::io::Write as _;
use std::time::Duration;

use crate::support::agent::{frames, opening_frames, response, text_delta};
use crate::support::gateway::{DEMO, JSON, ROUTE, agent, last_input_text, user_turn};
use crate::support::http::with_timeout;
use crate::support::process::Process;
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

/// Maximum peak memory in bytes: the unoptimised process itself and a few runs at their limit.
const MAX_PEAK: usize = 160 << 20;

fn chunk(bytes: &str) -> String {
    format!("{:x}\r\n{bytes}\r\n", bytes.len())
}

fn reply_for(name: &str) -> Reply {
    let started = || opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let data = |frame: &str| format!("data: {frame}\n\n");
    match name {
        "a line without end" => started().chunk("data: ").flood(chunk(&"x".repeat(16 << 10))),
        "fields without end" => started().flood(chunk(&"event: x\n".repeat(2000))),
        "a text without end" => started().flood(chunk(&data(&text_delta(&"x".repeat(1000))).repeat(16))),
        "a million tiny texts" => {
            let row = data(&text_delta("x")).repeat(1000);
            then_end((0..1000).fold(started(), |reply, _| reply.chunk(&row)))
        }
        "a million frames of nothing" => {
            let row = data("{\"object\":\"none\"}").repeat(1000);
            then_end((0..1000).fold(started(), |reply, _| reply.chunk(&row)))
        }
        "comments without end" => started().flood(chunk(&": still here\n\n".repeat(1000))),
        "a head without end" => Reply::raw("HTTP/1.1 200 OK\r\n").flood("x-more: and more\r\n".repeat(100)),
        "a header of a mebibyte" => Reply::raw(format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "x".repeat(1 << 20))).hang(),
        "JSON without end" => Reply::head(200, &[("content-type", "application/json")])
            .chunk("{\"object\":\"")
            .flood(chunk(&"x".repeat(16 << 10))),
        "JSON without bottom" => then_end(
            Reply::events().frame(&response("created")).frame(&format!("{{\"object\":{}", "[".repeat(1 << 20))),
        ),
        "a refusal without end" => Reply::head(500, &[]).flood(chunk(&"x".repeat(16 << 10))),
        "a bomb" => {
            let packed = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
            Reply::head(200, &packed).chunk(bomb()).done()
        }
        other => panic!("what is {other:?}?"),
    }
}

/// A few kilobytes that decompress to a gigabyte: one compressed mebibyte of spaces, repeated a thousand times.
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

fn then_end(answer: Reply) -> Reply {
    frames(&["the end"]).split_off(3).iter().fold(answer, |reply, frame| reply.frame(frame)).done()
}

/// Peak memory of a process, in bytes.
fn peak(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the system reports it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[tokio::test]
async fn hostile_agents_use_bounded_memory_and_do_not_slow_others() {
    let upstream = Upstream::with_handler(|request| reply_for(&last_input_text(&request.json())));
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
        ("a refusal without end", &["AGENT_ERROR"]),
        ("a bomb", &["UPSTREAM_PROTOCOL_ERROR", "UPSTREAM_TOO_LARGE"]),
    ];
    for (name, codes) in cases {
        let body = user_turn(name).to_string();

        // Comments reset the idle timeout: an agent that sends nothing else meets the total timeout.
        let agent = if name == "comments without end" { "hasty" } else { "friday" };
        let mut stream = process.open("POST", &format!("/agents/{agent}/process"), JSON, body.as_bytes()).await;
        let code = with_timeout(name, async {
            if stream.status().await == 200 {
                let transcript = Transcript::parse(&stream.frames().await);
                transcript.code().to_owned()
            } else {
                stream.read_response().await.json()["code"].as_str().expect("a code").to_owned()
            }
        })
        .await;
        assert!(codes.contains(&code.as_str()), "{name}: {code}");

        let quick =
            process.open("POST", "/agents/demo/process", JSON, user_turn("echo hi").to_string().as_bytes()).await;
        let answered = tokio::time::timeout(Duration::from_secs(2), quick.response()).await;
        assert_eq!(answered.expect("others are served").status, 200);
        assert!(peak(&process) < MAX_PEAK, "{name}: {} bytes at the peak", peak(&process));
    }
}
