//! Metrics as a scraper reads them: the values of counters after known requests, and no label that clients choose.

use std::collections::HashMap;
use std::time::Instant;

use crate::support::agent::{text_reply, text_reply_then_hang};
use crate::support::callers::{AUTH, key_of, write_keys};
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::upstream::{Reply, Upstream};

/// A process with two agents, one of which fails, and an admin listener.
fn process(good: &Upstream, bad: &Upstream) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let agents = [agent("good", &good.url("/process"), "", ""), agent("bad", &bad.url("/process"), "", "retries = 0")];
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [store]\nkind = \"sqlite\"\npath = \"store.db\"\n{}{ROUTE}",
        agents.concat()
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    (folder, process)
}

/// The samples of a text, by name with labels.
fn samples(text: &str) -> HashMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name, value.parse().expect("a number"))
        })
        .collect()
}

async fn turn(process: &Process, agent: &str) {
    let path = format!("/agents/{agent}/process");
    process.open("POST", &path, JSON, user_turn("a secret question").to_string().as_bytes()).await.response().await;
}

#[tokio::test]
async fn counters_are_exact() {
    let (good, bad) = (Upstream::always(text_reply(&["hi"])), Upstream::always(Reply::complete(500, &[], "no")));
    let (_folder, process) = process(&good, &bad);
    for _ in 0..3 {
        turn(&process, "good").await;
    }
    for _ in 0..2 {
        turn(&process, "bad").await;
    }
    process.open("GET", "/nothing", &[], b"").await.response().await;

    let completed = "interlingua_runs_total{agent=\"good\",protocol=\"agent-api\",outcome=\"completed\",code=\"\"}";
    let text = poll_until("the runs to be counted", async || {
        let text = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
        (samples(&text).get(completed) == Some(&3.0)).then_some(text)
    })
    .await;

    let samples = samples(&text);
    let failed: Vec<_> = samples.iter().filter(|(name, _)| name.contains("outcome=\"failed\"")).collect();
    let failed_runs: f64 =
        failed.iter().filter(|(name, _)| name.starts_with("interlingua_runs_total")).map(|(_, value)| **value).sum();
    assert_eq!(failed_runs, 2.0, "{text}");
    for (name, expected) in [
        ("interlingua_run_duration_seconds_count{agent=\"good\",outcome=\"completed\"}", 3.0),
        ("interlingua_time_to_first_event_seconds_count{agent=\"good\"}", 3.0),
        ("interlingua_runs_active{agent=\"good\"}", 0.0),
        ("interlingua_streams_open{route=\"/agents/good\",protocol=\"agent-api\"}", 0.0),
        ("interlingua_requests_total{route=\"/agents/good\",protocol=\"agent-api\",code=\"200\"}", 3.0),
        ("interlingua_requests_total{route=\"\",protocol=\"\",code=\"404\"}", 1.0),
        ("interlingua_store_failures_total", 0.0),
        ("interlingua_store_owed", 0.0),
        ("interlingua_config_last_reload_successful", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&expected), "{name} in\n{text}");
    }
    assert!(samples["interlingua_store_seconds_count{operation=\"commit\"}"] >= 5.0, "{text}");
    assert!(samples["interlingua_store_bytes"] > 1000.0 && samples["process_resident_memory_bytes"] > 1e6, "{text}");
    for name in ["secret", "req_", "session", "127.0.0.1:0", "?"] {
        let labels = text.lines().filter(|line| !line.starts_with('#'));
        assert!(!labels.clone().any(|line| line.contains(name)), "{name} is in a label of\n{text}");
    }
}

#[tokio::test]
async fn levels_are_read_at_each_scrape_and_both_formats_are_written() {
    let (good, bad) = (Upstream::always(text_reply_then_hang(&["hi"])), Upstream::always(Reply::silence()));
    let (_folder, process) = process(&good, &bad);
    let mut streams = Vec::new();
    for _ in 0..4 {
        let path = "/agents/good/process";
        let mut stream = process.open("POST", path, JSON, user_turn("go").to_string().as_bytes()).await;
        stream.read_until("hi").await;
        streams.push(stream);
    }

    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let response = process.operate("GET", "/metrics", &accept, b"").await;
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("content-type"), Some(media));
    assert!(response.text().ends_with("# EOF\n"));
    let level = |samples: &HashMap<&str, f64>| {
        [
            samples["interlingua_runs_active{agent=\"good\"}"],
            samples["interlingua_streams_open{route=\"/agents/good\",protocol=\"agent-api\"}"],
            samples["interlingua_followers"],
            samples["interlingua_connections"],
        ]
    };
    assert_eq!(level(&samples(response.text())), [4.0; 4], "{}", response.text());

    drop(streams);
    poll_until("the streams to be gone", async || {
        let response = process.operate("GET", "/metrics", &[], b"").await;
        assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let canceled = "interlingua_runs_total{agent=\"good\",protocol=\"agent-api\",outcome=\"canceled\",code=\"\"}";
        let text = response.text();
        let samples = samples(text);
        (level(&samples) == [0.0; 4] && samples.get(canceled) == Some(&4.0)).then_some(())
    })
    .await;

    let began = Instant::now();
    let length = process.operate("GET", "/metrics", &[], b"").await.body.len();
    assert!(began.elapsed().as_millis() < 500 && length < 1 << 20, "{:?}, {length} bytes", began.elapsed());
}

#[tokio::test]
async fn callers_are_a_label_only_if_the_operator_wants_it() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    for wanted in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nkind = \"memory\"\n[observe]\ncaller_label = {wanted}\n{AUTH}{}{ROUTE}",
            agent("good", &upstream.url("/process"), "", "")
        );
        std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
        write_keys(folder.path(), &["ada"]);
        let process = Process::start(folder.path());
        let bearer = format!("Bearer {}", key_of("ada"));
        let headers = [JSON[0], ("authorization", bearer.as_str())];
        let body = user_turn("hello").to_string();
        process.open("POST", "/agents/good/process", &headers, body.as_bytes()).await.response().await;
        process.open("GET", "/nothing", &[], b"").await.response().await;

        let text = poll_until("the run to be counted", async || {
            let text = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
            text.contains("interlingua_runs_total{").then_some(text)
        })
        .await;
        let counted = |line: &str| text.lines().any(|found| found == line);
        let run = "interlingua_runs_total{agent=\"good\",protocol=\"agent-api\",outcome=\"completed\",code=\"\"";
        let missing = "interlingua_requests_total{route=\"\",protocol=\"\",code=\"404\"";
        let (by_ada, by_no_one) = if wanted { (",caller=\"ada\"", ",caller=\"anonymous\"") } else { ("", "") };
        assert!(counted(&format!("{run}{by_ada}}} 1")), "{text}");
        assert!(counted(&format!("{missing}{by_no_one}}} 1")), "{text}");
    }
}
