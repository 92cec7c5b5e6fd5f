//! The admin listener's series of the last minutes and hours. Not here: the screen in a browser (the suite `console`).

use serde_json::Value;

use crate::support::agent::text_reply;
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::upstream::{Reply, Upstream};

const KEY: &str = "an-admin-key-of-at-least-32-characters";

fn process(upstream: &Upstream, admin: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\nkey = {{ env = \"ADMIN_KEY\" }}\n{admin}\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let mut command = binary(folder.path());
    command.args(["--log", "error"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
    (folder, Process::spawn(command))
}

async fn status_and_body(process: &Process, query: &str) -> (u16, String) {
    let bearer = format!("Bearer {KEY}");
    let answer = process.operate("GET", &format!("/api/metrics{query}"), &[("authorization", &bearer)], b"").await;
    (answer.status, answer.text().to_owned())
}

fn sum(series: &Value) -> u64 {
    series.as_array().expect("numbers").iter().map(|number| number.as_u64().expect("a count")).sum()
}

#[tokio::test]
async fn runs_that_ended_are_in_both_windows_by_agent_and_protocol() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (_folder, process) = process(&upstream, "");
    // Sampling has begun: what ends now belongs to a step.
    poll_until("the first sample", async || {
        let read: Value = serde_json::from_str(&status_and_body(&process, "").await.1).expect("JSON");
        (!read["times"].as_array()?.is_empty()).then_some(())
    })
    .await;
    for _ in 0..3 {
        let body = user_turn("hello").to_string();
        process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.frames().await;
    }

    for (query, completed) in
        [("agent=friday", 3), ("protocol=agent-api", 3), ("agent=unknown", 0), ("protocol=a2a", 0)]
    {
        let read = poll_until("the runs that were chosen", async || {
            let read: Value =
                serde_json::from_str(&status_and_body(&process, &format!("?{query}")).await.1).expect("JSON");
            // They are in the list of all agents as soon as they are counted.
            (read["by_agent"][0]["ended"] == 3).then_some(read)
        });
        assert_eq!(sum(&read.await["series"]["completed"]), completed, "{query}");
    }

    for (window, step) in [("15m", 1_000), ("24h", 60_000)] {
        let read = poll_until("three runs", async || {
            let (status, body) = status_and_body(&process, &format!("?window={window}")).await;
            assert_eq!(status, 200, "{body}");
            let read: Value = serde_json::from_str(&body).expect("JSON");
            (sum(&read["series"]["completed"]) == 3).then_some(read)
        })
        .await;
        assert_eq!((read["window"].as_str(), read["step_ms"].as_u64()), (Some(window), Some(step)), "{read}");
        let steps = read["times"].as_array().expect("times").len();
        for (name, series) in read["series"].as_object().expect("series") {
            assert_eq!(series.as_array().expect("numbers").len(), steps, "{name}");
        }
        for none in ["failed", "failed_client", "failed_upstream", "failed_gateway"] {
            assert_eq!(sum(&read["series"][none]), 0, "{read}");
        }
        for (list, name) in [("by_agent", "friday"), ("by_protocol", "agent-api")] {
            let row = &read[list][0];
            assert_eq!((row["name"].as_str(), row["ended"].as_u64()), (Some(name), Some(3)), "{read}");
            assert_eq!((row["failed"].as_u64(), row["live"].as_u64()), (Some(0), Some(0)), "{read}");
        }
        for name in ["first_p50", "first_p99", "total_p50", "total_p99"] {
            let measured = read["series"][name].as_array().expect("numbers").iter().any(Value::is_number);
            assert!(measured, "{name}: {read}");
        }
    }
}

#[tokio::test]
async fn an_agent_is_shown_with_recent_runs_and_its_last_error() {
    let upstream = Upstream::in_order([text_reply(&["hi"]), Reply::complete(503, &[], "down")]);
    let (_folder, process) = process(&upstream, "");
    let bearer = format!("Bearer {KEY}");
    let agent = async || {
        let answer = process.operate("GET", "/api/agents", &[("authorization", &bearer)], b"").await;
        answer.json()["data"][0].clone()
    };
    assert_eq!(
        (agent().await["last_fault"].clone(), agent().await["lately"]["ended"].as_u64()),
        (Value::Null, Some(0))
    );
    for _ in 0..2 {
        let body = user_turn("hello").to_string();
        drop(process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await);
    }

    let shown = poll_until("the failed run", async || {
        let agent = agent().await;
        (agent["lately"]["failed"] == 1).then_some(agent)
    });
    let shown = shown.await;
    assert_eq!(shown["lately"]["ended"], 2, "{shown}");
    assert!(shown["lately"]["first_event_p50"].is_number(), "{shown}");
    assert_eq!(shown["last_fault"]["code"], "UPSTREAM_OVERLOADED", "{shown}");
    assert!(shown["last_fault"]["at"].as_u64().is_some_and(|at| at > 0), "{shown}");
}

#[tokio::test]
async fn only_known_windows_are_shown_and_only_to_those_who_may_look() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (_folder, gateway) = process(&upstream, "");
    for query in ["?window=1h", "?window=", "?windows=15m", "?agent=friday&protocol=a2a"] {
        let (status, body) = status_and_body(&gateway, query).await;
        assert_eq!(status, 400, "{query}: {body}");
    }
    assert_eq!(gateway.operate("GET", "/api/metrics", &[], b"").await.status, 401);
    assert_eq!(gateway.operate("POST", "/api/metrics", JSON, b"{}").await.status, 405);

    let (_folder, without) = process(&upstream, "console = false");
    assert_eq!(status_and_body(&without, "").await.0, 404);
}
