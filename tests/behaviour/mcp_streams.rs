//! Streams of MCP sessions: resuming, cancelling, long calls, and shutdown.

use serde_json::{Value, json};

use crate::mcp_support::{Client, MCP, deltas, run_of, texts};
use crate::support::agent::text_reply_until;
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::http::data;
use crate::support::poll_until;
use crate::support::upstream::Upstream;

async fn slow(options: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::always(text_reply_until(&["begun ", "and "], "go"));
    let config = agent("slow", &upstream.url("/process"), "", "");
    let gateway = Gateway::start(&format!("{config}{MCP}[routes.options]\n{options}")).await;
    (upstream, gateway)
}

fn call(progress: bool) -> Value {
    let meta = if progress { json!({ "progressToken": "p" }) } else { json!({}) };
    json!({ "name": "slow", "arguments": { "message": "hi" }, "_meta": meta })
}

fn id_of(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("id: "))
}

#[tokio::test]
async fn a_stream_that_was_cut_anywhere_is_resumed_without_gap_or_repetition() {
    let gateway = Gateway::start(&format!("{DEMO}{MCP}[routes.options]\nprogress_interval = \"1ms\"\n")).await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let params = json!({ "name": "demo", "arguments": { "message": "long 12 20" }, "_meta": { "progressToken": "p" } });
    let mut whole = client.send(client.id(), "tools/call", params).await;
    let mut events = Vec::new();
    while let Some(event) = whole.event().await {
        if id_of(&event).is_some() {
            events.push(event);
        }
    }
    let messages: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
    let result = messages.last().expect("a result").clone();
    assert_eq!(events.iter().position(|event| data(event) == Some("")), Some(0), "the stream begins with an id");

    for (cut, event) in events.iter().enumerate() {
        let mut rest = client.listen(id_of(event)).await;
        assert_eq!(rest.status().await, 200);
        let rest = rest.frames().await;
        let before: Vec<Value> =
            events[..=cut].iter().filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
        let joined: Vec<Value> = before.into_iter().chain(rest.clone()).collect();
        assert_eq!(deltas(&joined), texts(&result["result"])[0], "cut behind event {cut}");
        assert_eq!(rest.last(), Some(&result));
    }
}

#[tokio::test]
async fn unknown_and_malformed_events_are_refused() {
    let gateway = Gateway::start(&format!("{DEMO}{MCP}")).await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    for (event, status) in [("nonsense", 400), ("0198f2a0-7b1c-7aaa-bbbb-0123456789ab.1.MQ", 404)] {
        assert_eq!(client.listen(Some(event)).await.response().await.status, status, "{event}");
    }
}

#[tokio::test]
async fn a_running_call_is_resumed_and_its_response_has_its_id() {
    let (upstream, gateway) = slow("").await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let id = client.id();
    let mut exchange = client.send(id, "tools/call", call(true)).await;
    let mut last = String::new();
    while !last.contains("begun") {
        last = exchange.event().await.expect("it goes on");
    }
    let event = id_of(&last).expect("an id").to_owned();
    drop(exchange);
    let mut rest = client.listen(Some(&event)).await;
    assert_eq!(rest.status().await, 200);
    upstream.open("go");
    let rest = rest.frames().await;
    let result = rest.last().expect("a result");
    assert_eq!((&result["id"], texts(&result["result"])[0]), (&json!(id), "begun and "));
}

#[tokio::test]
async fn a_cancelled_call_gets_no_response_and_its_run_ends() {
    let (_upstream, gateway) = slow("").await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let other = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let id = client.id();
    let mut exchange = client.send(id, "tools/call", call(true)).await;
    let begun = exchange.read_until("begun").await;
    let run = begun[0]["params"]["_meta"]["interlingua/run"].as_str().expect("a run").to_owned();

    assert_eq!(other.notify("notifications/cancelled", json!({ "requestId": id })).await.status, 202);
    assert_eq!(gateway.run("slow", &run).await["status"], "in_progress", "a call of another session");
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": 999 })).await.status, 202);
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": id })).await.status, 202);
    assert!(exchange.frames().await.iter().all(|message| message.get("result").is_none()));
    assert_eq!(gateway.run("slow", &run).await["status"], "canceled");
}

#[tokio::test]
async fn a_session_that_ends_cancels_its_open_calls() {
    let (_upstream, gateway) = slow("").await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let mut exchange = client.send(client.id(), "tools/call", call(true)).await;
    let begun = exchange.read_until("begun").await;
    let run = begun[0]["params"]["_meta"]["interlingua/run"].as_str().expect("a run").to_owned();
    let headers = [("mcp-session-id", client.session.as_str())];
    assert_eq!(gateway.open("DELETE", "/mcp", &headers, b"").await.response().await.status, 204);
    poll_until("the run to be canceled", async || {
        (gateway.run("slow", &run).await["status"] == "canceled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_without_progress_ends_in_time_and_its_run_is_waited_for() {
    for is_modern in [true, false] {
        let (upstream, gateway) = slow("max_wait = \"300ms\"\n").await;
        let client = match is_modern {
            true => Client::modern(&gateway, json!({})),
            false => Client::legacy(&gateway, "2025-11-25", json!({})).await,
        };
        let working = client.result("tools/call", call(false)).await;
        assert_eq!(working["_meta"]["interlingua/status"], "working", "{working}");
        let run = run_of(&working);
        assert!(texts(&working).concat().contains(&run), "{working}");
        // The answered call is not cancelled by its closed connection.
        assert_eq!(gateway.run("slow", &run).await["status"], "in_progress");
        let still = client.call("wait", json!({ "run": run })).await;
        assert_eq!(still["_meta"]["interlingua/status"], "working");
        upstream.open("go");
        let done = client.call("wait", json!({ "run": run })).await;
        assert_eq!((texts(&done)[0], run_of(&done)), ("begun and ", run), "{done}");
    }
}

#[tokio::test]
async fn the_stream_of_a_session_reports_reloads_and_there_is_one() {
    let gateway = Gateway::start(&format!("{DEMO}{MCP}")).await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let mut first = client.listen(None).await;
    assert_eq!(first.status().await, 200);
    let mut second = client.listen(None).await;
    assert_eq!(second.status().await, 200);
    assert_eq!(first.frames().await, Vec::<Value>::new(), "a second stream ends the first");

    gateway.replace_agents();
    let mut methods = Vec::new();
    for _ in 0..3 {
        let notice = second.frame().await.expect("a notice");
        methods.push(notice["method"].as_str().expect("a method").to_owned());
    }
    methods.sort();
    let lists = ["prompts", "resources", "tools"].map(|list| format!("notifications/{list}/list_changed"));
    assert_eq!(methods, lists);
}

#[tokio::test]
async fn streams_end_at_shutdown_with_an_error_or_a_hint_to_resume() {
    let (_upstream, mut gateway) = slow("").await;
    {
        let legacy = Client::legacy(&gateway, "2025-11-25", json!({})).await;
        let modern = Client::modern(&gateway, json!({}));
        let mut resumable = legacy.send(legacy.id(), "tools/call", call(true)).await;
        resumable.read_until("begun").await;
        let id = modern.id();
        let mut plain = modern.send(id, "tools/call", call(true)).await;
        plain.read_until("begun").await;
        drop((legacy, modern));
        gateway.begin_shutdown();
        let mut events = String::new();
        while let Some(event) = resumable.event().await {
            events.push_str(&event);
            events.push('\n');
        }
        let has_end = events.contains("retry: 1000") || events.contains("\"result\"") || events.contains("\"error\"");
        assert!(has_end, "{events}");
        let last = plain.frames().await.pop().expect("an error");
        assert_eq!(last["id"], json!(id));
        assert!(last.get("error").is_some() || last.get("result").is_some(), "{last}");
    }
}
