//! Behaviour that every client protocol shares, each in its own words: refusals, runs whose client disconnects or reads
//! slowly, and the end after an agent's silence. And the list of protocols that all such tests use.
//!
//! Not here: agents that break off (`cuts.rs`), rates (`rates.rs`), one protocol with another (`pairs.rs`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{text_reply_then_hang, text_reply_until};
use crate::support::callers::{AUTH, write_keys};
use crate::support::endings::{Ending, REVOKED, SILENT, TRUNCATED};
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::http::{Exchange, Response, with_timeout};
use crate::support::pairs::{
    ALL_PROTOCOLS, MOUNTS, Protocol, ROUTES, ending, last_body, latest, resending, routes_with, streaming, text_of,
};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};
use interlingua_testing_protocols::PROTOCOLS;

const MEMORY: &str = "[store]\nkind = \"memory\"\n";
/// A demo agent that pauses between deltas.
const SLOW: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 20 } }\n";

/// A protocol that is added to the gateway is in the list, and so in every test that goes over it.
#[test]
fn the_list_of_protocols_is_that_of_the_gateway_and_of_the_shipped_file() {
    let names: Vec<&str> = ALL_PROTOCOLS.map(Protocol::name).to_vec();
    let mounted: Vec<&str> = MOUNTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, mounted, "testing/support/src/pairs.rs");
    let gateway = interlingua::Gateway::builtin();
    let served: BTreeSet<&str> = gateway.client_capabilities().iter().map(|(name, _)| *name).collect();
    let registered = PROTOCOLS.iter().filter(|protocol| protocol.serves.is_some());
    assert_eq!(registered.map(|protocol| protocol.name).collect::<BTreeSet<_>>(), served, "testing/protocols");

    let shipped: toml::Value = include_str!("../../gateway.toml").parse::<toml::Table>().expect("TOML").into();
    let shipped: BTreeSet<(&str, &str)> = shipped["routes"]
        .as_array()
        .expect("routes")
        .iter()
        .map(|route| (route["protocol"].as_str().expect("a name"), route["path"].as_str().expect("a path")))
        .collect();
    assert_eq!(shipped, MOUNTS.iter().copied().collect(), "testing/protocols has the paths of gateway.toml");
}

#[tokio::test]
async fn a_caller_with_a_wrong_key_reads_that_in_its_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann"]);
    let gateway = Gateway::in_folder(&format!("{AUTH}{MEMORY}{DEMO}{ROUTES}"), folder.path().to_owned()).await;
    for client in ALL_PROTOCOLS {
        for key in ["il_xxxxxxxxxxxx_0000", "sk-from-elsewhere"] {
            let refused = client.turn("s", "hi", true).with_header("x-api-key", key).send(&gateway).await;
            assert_eq!(refused.status, 401, "{client:?}: {}", refused.text());
            let (body, request) = (refused.json(), json!(refused.header("request-id")).to_string());
            for (place, expected) in client.facts().errors.wrong_key {
                let expected: Value = serde_json::from_str(&expected.replace("$REQUEST", &request)).expect("JSON");
                assert_eq!(body.pointer(place), Some(&expected), "{client:?}: {body}");
            }
            assert!(!refused.text().contains(key), "{client:?}: {}", refused.text());
        }
    }
}

/// Starts a long answer in a session, and returns the connection once the run has begun to answer.
async fn begin(gateway: &Gateway, client: Protocol, session: &str, words: &str) -> Exchange {
    let mut open = client.turn(session, words, true).open(gateway).await;
    if client.facts().streams {
        assert_eq!(open.status().await, 200, "{client:?}");
        for _ in 0..4 {
            open.event().await.expect("an event");
        }
    } else {
        latest(gateway, session).await;
    }
    open
}

/// The id of the only run of a gateway.
async fn only_run(gateway: &Gateway) -> String {
    let runs = gateway.get("/agents/demo/runs").await.json();
    assert_eq!(runs["total"], 1, "{runs}");
    runs["data"][0]["id"].as_str().expect("an id").to_owned()
}

async fn wait_for_status(gateway: &Gateway, run: &str, what: &str, status: &str) -> Value {
    let state = poll_until(what, async || {
        let run = gateway.run("demo", run).await;
        (!["in_progress", "queued"].contains(&run["status"].as_str().expect("a status"))).then_some(run)
    });
    let run = state.await;
    assert_eq!(run["status"], status, "{what}: {run}");
    run
}

#[tokio::test]
async fn a_disconnect_cancels_the_run_unless_the_route_detaches() {
    for client in ALL_PROTOCOLS {
        let gateway = Gateway::with_config(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
        drop(begin(&gateway, client, "s", "long 60 20").await);
        // Tasks, and polled runs, do not depend on a connection.
        let status = if client.facts().outlasts_clients { "completed" } else { "canceled" };
        wait_for_status(&gateway, &only_run(&gateway).await, &format!("{client:?} to leave"), status).await;

        let detached = routes_with("on_disconnect = \"detach\"");
        let gateway = Gateway::with_config(&format!("{MEMORY}{SLOW}{detached}")).await;
        drop(begin(&gateway, client, "s", "long 60 20").await);
        let run = only_run(&gateway).await;
        let whole =
            wait_for_status(&gateway, &run, &format!("{client:?} to be done without its client"), "completed").await;
        assert!(whole.to_string().contains("59 60"), "{client:?}: {whole}");
    }
}

#[tokio::test]
async fn a_client_that_was_cut_off_and_asks_again_gets_a_whole_answer() {
    for client in resending() {
        let gateway = Gateway::with_config(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
        drop(begin(&gateway, client, "s", "long 30 20").await);
        let again = poll_until("the run of the one that left to be stopped", async || {
            let mut turn = client.turn("s", "long 30 20", true);
            if client == Protocol::AgUi {
                turn.body["runId"] = "again".into();
            }
            let again = turn.send(&gateway).await;
            assert!([200, 409].contains(&again.status), "{client:?}: {}", again.text());
            (again.status == 200).then_some(again)
        });
        let again = again.await;
        assert_eq!(ending(client, &again, &TRUNCATED), Ending::Completed, "{client:?}: {}", again.text());
        let whole = client.turn("other", "long 30 20", true).send(&gateway).await;
        assert_eq!(text_of(client, &again), text_of(client, &whole), "{client:?}");

        let runs = gateway.get("/agents/demo/runs").await.json();
        let statuses: Vec<&str> =
            runs["data"].as_array().expect("runs").iter().filter_map(|run| run["status"].as_str()).collect();
        assert_eq!(statuses, ["completed", "completed", "canceled"], "{client:?}: {runs}");
    }
}

#[tokio::test]
async fn an_agent_that_falls_silent_is_a_failure_in_every_protocol() {
    for (timeout, reply) in [
        ("idle", text_reply_then_hang(&["so far"])),
        ("first_byte", Reply::silence()),
        ("idle", Reply::events().hang()),
    ] {
        let upstream = Upstream::always(reply);
        let settings = format!("retries = 0\ntimeouts = {{ {timeout} = \"200ms\" }}");
        let agent = agent("demo", &upstream.url("/process"), "", &settings);
        let gateway = Gateway::with_config(&format!("{MEMORY}{agent}{ROUTES}")).await;
        for client in ALL_PROTOCOLS {
            for streamed in [true, false] {
                let began = Instant::now();
                let session = format!("{}-{streamed}", client.name());
                let answer = client.turn(&session, "hi", streamed).send(&gateway).await;
                let what = format!("{client:?} {timeout} streamed {streamed}: {} {}", answer.status, answer.text());
                assert!(began.elapsed() < Duration::from_secs(5), "{what}");
                if streamed || answer.status != 200 {
                    assert_eq!(ending(client, &answer, &SILENT), Ending::Failed, "{what}");
                } else {
                    assert!(client.facts().fails_with_success, "{what}");
                    assert!(
                        ["failed", "FAILED", "error", "ERROR"].iter().any(|word| answer.text().contains(word)),
                        "{what}"
                    );
                }
            }
        }
        upstream.wait_for_all_closed().await;
    }
}

#[tokio::test]
async fn a_rate_limited_agent_is_reported_with_retry_after() {
    let limited = Reply::complete(429, &[("retry-after", "7"), ("content-type", "text/plain")], "slow down");
    let upstream = Upstream::always(limited);
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let gateway = Gateway::with_config(&format!("{MEMORY}{agent}{ROUTES}")).await;
    for client in ALL_PROTOCOLS {
        let answer = client.turn(client.name(), "hi", true).send(&gateway).await;
        let what = format!("{client:?}: {} {}", answer.status, answer.text());
        // A stream that has begun has status 200; its error says how long to wait.
        let (status, place, word) = client.facts().errors.limited_agent;
        let body = last_body(&answer);
        let found = body.pointer(place).and_then(Value::as_str);
        assert_eq!((answer.status, found), (status, Some(word)), "{what}");
        if answer.status == 429 {
            assert_eq!(answer.header("retry-after"), Some("7"), "{what}");
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_late_gets_all_of_its_answer() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    let words = "long 20000 0";
    let expected = text_of(Protocol::AgentApi, &Protocol::AgentApi.turn("reference", words, true).send(&gateway).await);
    assert!(expected.len() > 100_000, "{} bytes", expected.len());
    for client in ALL_PROTOCOLS {
        let turn = client.turn(client.name(), words, true);
        let mut late = Exchange::send_with_small_buffer(gateway.address, &turn.bytes()).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        let answer = late.read_response().await;
        assert_eq!(ending(client, &answer, &TRUNCATED), Ending::Completed, "{client:?}");
        let text = text_of(client, &answer);
        assert!(
            text.contains(expected.trim()) && text.len() < expected.len() + 100,
            "{client:?}: {} instead of {} bytes",
            text.len(),
            expected.len()
        );
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected_and_its_run_stopped() {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\ntimeouts = { write = \"500ms\" }\n";
    for client in streaming() {
        let gateway = Gateway::with_config(&format!("{server}{MEMORY}{DEMO}{ROUTES}")).await;
        // An answer that the buffers of the connection hold ends it as well.
        let turn = client.turn("s", "long 2000000 0", true).with_header("connection", "close");
        let mut stalled = Exchange::send_with_small_buffer(gateway.address, &turn.bytes()).await;
        assert_eq!(stalled.status().await, 200, "{client:?}");
        let run = only_run(&gateway).await;
        if client.facts().outlasts_clients {
            tokio::time::sleep(Duration::from_secs(2)).await;
        } else {
            wait_for_status(&gateway, &run, &format!("{client:?} to be disconnected"), "canceled").await;
        }
        with_timeout("the connection to end", stalled.bytes()).await;
        if client.facts().outlasts_clients {
            // A task does not depend on a connection.
            assert_ne!(gateway.run("demo", &run).await["status"], "canceled");
        }
    }
}

#[tokio::test]
async fn one_run_more_than_a_caller_may_have_is_refused_in_the_words_of_its_protocol() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann"]);
    let agent = agent("demo", &upstream.url("/process"), "", "");
    let config = format!("{AUTH}[callers.ann]\nlimits = {{ runs = 1 }}\n{MEMORY}{agent}{ROUTES}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let ann = gateway.as_caller("ann");
    let first = Protocol::AgentApi.turn("first", "hi", true).open(&ann).await;
    upstream.wait_for_requests(1).await;
    for client in ALL_PROTOCOLS {
        let refused = client.turn(client.name(), "hi", true).send(&ann).await;
        assert_eq!(refused.status, 429, "{client:?}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{client:?}: {:?}", refused.headers);
        let body = refused.json();
        let (place, word) = client.facts().errors.runs;
        assert_eq!(body.pointer(place).and_then(Value::as_str), Some(word), "{client:?}: {body}");
    }
    assert_eq!(upstream.requests().len(), 1, "the agent is not asked");
    upstream.open("end");
    assert_eq!(first.response().await.status, 200);
}

#[tokio::test]
async fn streams_of_a_revoked_key_end_in_their_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann"]);
    let auth = format!("{AUTH}revoke_streams = true\n");
    let gateway = Gateway::in_folder(&format!("{auth}{MEMORY}{SLOW}{ROUTES}"), folder.path().to_owned()).await;
    let ann = gateway.as_caller("ann");
    let mut open = Vec::new();
    for client in streaming() {
        let mut stream = client.turn(client.name(), "long 2000 20", true).open(&ann).await;
        assert_eq!(stream.status().await, 200, "{client:?}");
        open.push((client, stream));
    }

    write_keys(folder.path(), &["bob"]);
    for (client, mut stream) in open {
        let answer: Response = stream.read_response().await;
        assert_eq!(ending(client, &answer, &REVOKED), Ending::Failed, "{client:?}: {}", answer.text());
    }
}
