//! The operators' view of gateways that share a database, while it is there, while it is away, and after it was:
//! `/readyz`, metrics and log lines. Not here: runs meanwhile (`main`, and `cargo xtask faults`).

use std::collections::HashMap;
use std::path::Path;

use interlingua_testing_postgres::Proxy;
use serde_json::Value;

use super::cluster;
use super::support::agent::{text_reply, text_reply_until};
use super::support::cluster::Cluster;
use super::support::gateway::{JSON, user_turn_in};
use super::support::http::Response;
use super::support::poll_until;
use super::support::process::{self, Process};
use super::support::upstream::Upstream;

/// A folder with the configuration of a gateway that reaches its database at this URL.
fn folder(stand: &Cluster, url: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nallowed_hosts = [\"gateway\", \"x\"]\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{}",
        stand.config(folder.path())
    );
    std::fs::write(folder.path().join("gateway.toml"), config).unwrap();
    std::fs::write(folder.path().join("url"), url).unwrap();
    folder
}

async fn ready(process: &Process) -> Response {
    process.open("GET", "/readyz", &[], b"").await.response().await
}

/// Waits until `/readyz` says this of the lease. Returns the status and the body.
async fn until_lease(process: &Process, lease: &str) -> (u16, Value) {
    poll_until(&format!("a lease that is {lease}"), async || {
        let ready = ready(process).await;
        (ready.json()["lease"] == lease).then(|| (ready.status, ready.json()))
    })
    .await
}

async fn turn(process: &Process, session: &str) -> Response {
    let body = user_turn_in(session, "hi").to_string();
    process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await
}

/// The figures of the store.
async fn figures(process: &Process) -> HashMap<String, f64> {
    let response = process.operate("GET", "/metrics", &[], b"").await;
    let text = response.text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("interlingua_store_")?.split_once(' '));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

async fn until_figure(process: &Process, name: &str, least: f64) {
    poll_until(name, async || {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        figures(process).await.get(name).is_some_and(|value| *value >= least).then_some(())
    })
    .await;
}

/// The number of log lines with this message.
fn logged(folder: &Path, message: &str) -> usize {
    std::fs::read_to_string(folder.join("log")).unwrap().matches(message).count()
}

#[tokio::test]
async fn a_gateway_that_starts_before_its_database_waits_for_it() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = cluster(&upstream, "", "");
    let proxy = Proxy::start(stand.database().server().address()).unwrap();
    proxy.refuse();
    let folder = folder(&stand, &stand.database().url_at(proxy.address));
    let gateway = Process::start_logging(folder.path());

    let (status, body) = until_lease(&gateway, "joining").await;
    assert_eq!((status, &body["status"], &body["store"]), (503, &"not ready".into(), &"unavailable".into()), "{body}");
    let refused = turn(&gateway, "s").await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let listed = gateway.open("GET", "/agents/friday/runs", &[], b"").await.response().await;
    assert_eq!(listed.status, 503, "{}", listed.text());
    let operated = poll_until("the reason", async || {
        let ready = gateway.operate("GET", "/readyz", &[], b"").await;
        ready.json()["reasons"][0]["detail"].is_string().then_some(ready)
    })
    .await;
    assert_eq!((operated.status, &operated.json()["reasons"][0]["what"]), (503, &"store".into()));
    let checked = process::run(folder.path(), &["check"]);
    let text = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.code() == Some(1) && text.contains("the store cannot be reached"), "{text}");
    assert_eq!(figures(&gateway).await["joined"], 0.0);

    proxy.accept();
    let (status, body) = until_lease(&gateway, "held").await;
    assert_eq!((status, &body["store"]), (200, &"available".into()), "{body}");
    let answer = turn(&gateway, "s").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for message in ["cannot join the gateways of the database", "joined the gateways of the database"] {
        poll_until(message, async || (logged(folder.path(), message) == 1).then_some(())).await;
    }
}

#[tokio::test]
async fn a_gateway_that_its_database_refuses_does_not_start() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = cluster(&upstream, "", "");
    let (url, name) = (stand.database().url(), "no_such_database");
    let (start, _) = url.rsplit_once('/').unwrap();
    for (url, reason) in [
        (format!("{start}/{name}"), name),
        (url.replace("postgres@", "stranger@"), "stranger"),
        ("postgres://u@h/d?no_such=1".to_owned(), "no_such"),
    ] {
        let folder = folder(&stand, &url);
        let output = process::run(folder.path(), &["serve"]);
        let text = String::from_utf8(output.stderr).unwrap();
        let is_said = text.contains("the store cannot be used") && text.contains(reason);
        assert!(output.status.code() == Some(1) && is_said, "{url}: {text}");
    }
}

#[tokio::test]
async fn a_gateway_that_stops_while_it_waits_for_its_database_stops_at_once() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = cluster(&upstream, "", "");
    let folder = folder(&stand, "postgres://postgres@127.0.0.1:1/interlingua?sslmode=disable");
    let gateway = Process::start_logging(folder.path());
    until_lease(&gateway, "joining").await;
    let began = std::time::Instant::now();
    gateway.terminate();
    assert!(gateway.wait().await.success());
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn operators_see_an_outage_and_a_takeover() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "never"));
    let stand = cluster(&upstream, "", "");
    let proxy = Proxy::start(stand.database().server().address()).unwrap();
    let folder_of_cut = folder(&stand, &stand.database().url_at(proxy.address));
    let folder_of_other = folder(&stand, &stand.database().url());
    let cut = Process::start_logging(folder_of_cut.path());
    let other = Process::start_logging(folder_of_other.path());

    let body = user_turn_in("s", "hi").to_string();
    let mut stream = cut.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    stream.read_until("two").await;
    let (status, body) = until_lease(&cut, "held").await;
    assert_eq!((status, &body["store"]), (200, &"available".into()), "{body}");
    assert!(body["renewed_seconds_ago"].as_u64().unwrap() <= 2, "{body}");
    until_figure(&other, "gateways", 2.0).await;
    let before = figures(&cut).await;
    assert_eq!((before["joined"], before["runs_held"], before["leases_lost_total"]), (1.0, 1.0, 0.0), "{before:?}");
    assert!(before["written_bytes_total"] > 100.0 && before["lag_seconds_count"] >= 1.0, "{before:?}");
    assert!(before["connections"] >= 2.0 && before["connections"] <= 5.0, "{before:?}");

    proxy.refuse();
    let (status, body) = until_lease(&cut, "late").await;
    assert_eq!((status, &body["status"]), (200, &"ready".into()), "{body}");
    let body = poll_until("the outage", async || {
        let ready = ready(&cut).await;
        (ready.status == 200 && ready.json()["store"] == "unavailable").then(|| ready.json())
    })
    .await;
    assert!(body["for_seconds"].as_u64().unwrap() >= 2, "{body}");
    let operated = cut.operate("GET", "/readyz", &[], b"").await;
    assert_eq!((operated.status, &operated.json()["reasons"][0]["what"]), (200, &"store".into()));
    assert_eq!(turn(&cut, "t").await.status, 503);
    until_figure(&other, "runs_taken_over_total", 1.0).await;
    assert_eq!(logged(folder_of_other.path(), "took over unfinished runs of another gateway"), 1);

    proxy.accept();
    until_figure(&cut, "leases_lost_total", 1.0).await;
    until_lease(&cut, "held").await;
    until_figure(&cut, "gateways", 2.0).await;
    let after = figures(&cut).await;
    assert_eq!((after["joined"], after["runs_held"]), (1.0, 0.0), "{after:?}");
    assert!(after["reconnects_total"] >= 1.0, "{after:?}");
    for message in ["the database accepts no writes", "the database accepts writes again", "continues as a new replica"]
    {
        poll_until(message, async || (logged(folder_of_cut.path(), message) == 1).then_some(())).await;
    }
}
