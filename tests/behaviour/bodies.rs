//! Limits on request bodies: memory for all of them together, JSON values and nesting levels in each, and no blocking
//! of other requests on the same thread.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, user_turn};
use crate::support::http::{Exchange, Response};
use crate::support::pairs::{ROUTES, posts};
use crate::support::poll_until;
#[cfg(target_os = "linux")]
use crate::support::process::Process;

async fn gateway(server: &str) -> Gateway {
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n");
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{ROUTES}")).await
}

fn head(path: &str, length: usize, further: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{further}content-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_beyond_the_memory_limit_is_refused_with_retry_after() {
    let gateway = gateway("max_body = \"1MiB\"\nlimits = { bodies = \"1MiB\" }").await;
    let path = "/agents/demo/process";

    // A body that is announced and not sent reserves nothing.
    let _silent = Exchange::send(gateway.address, head(path, 1 << 20, "").as_bytes()).await;
    let body = user_turn(&"x".repeat(700 << 10)).to_string();
    let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.response().await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let mut half = Exchange::send(gateway.address, head(path, 900 << 10, "").as_bytes()).await;
    half.send_more(&vec![b' '; 600 << 10]).await.expect("it is read");

    // Head only: bytes of this body could be counted before those of the half body.
    let announced = head(path, 700 << 10, "");
    let refused = poll_until("the half body to be counted", async || {
        let answer = Exchange::send(gateway.address, announced.as_bytes()).await.response();
        tokio::time::timeout(std::time::Duration::from_millis(200), answer).await.ok()
    })
    .await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()["code"], "GATEWAY_OVERLOADED");

    // Small bodies are still accepted.
    assert_eq!(gateway.post(path, &user_turn("hi")).await.status, 200);

    drop(half);
    poll_until("the memory to be released", async || {
        let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.response().await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_body_with_too_many_values_or_levels_is_refused_on_every_protocol() {
    let gateway = gateway("limits = { json_values = 1000, json_depth = 20 }").await;
    let many = format!("[{}0]", "0,".repeat(2000));
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    let others = ["/v1/conversations", "/a2a/demo/message:send", "/anthropic/v1/messages/count_tokens"];
    for path in posts().into_iter().chain(others) {
        for (what, status) in [(&many, 413), (&deep, 422)] {
            let body = format!("{{\"input\":{what}}}");
            let response = gateway.open("POST", path, JSON, body.as_bytes()).await.response().await;
            // JSON-RPC reports most errors with status 200.
            let is_rpc_error = path == "/a2a/demo" && response.text().contains("\"error\"");
            assert!(
                response.status == status || (status == 422 && response.status == 400) || is_rpc_error,
                "{path}: {} {}",
                response.status,
                response.text()
            );
        }
    }
}

#[tokio::test]
async fn expect_100_continue_is_refused_before_the_body_is_sent() {
    let gateway = gateway("max_body = \"64KiB\"").await;
    let expect = "expect: 100-continue\r\n";
    let raw =
        async |bytes: String| -> Response { Exchange::send(gateway.address, bytes.as_bytes()).await.response().await };
    for path in posts() {
        let length = 100 << 20;
        let response = raw(head(path, length, expect)).await;
        assert_eq!(response.status, 413, "{path}: {}", response.text());

        let response = raw(head(path, 10, &format!("origin: https://evil.example\r\n{expect}"))).await;
        assert_eq!(response.status, 403, "{path}: {}", response.text());
        assert!(response.json().is_object(), "in the format of the protocol");
        let response = raw(head(path, 10, expect).replace("host: localhost", "host: evil.example")).await;
        assert_eq!(response.status, 421, "{path}: {}", response.text());
    }
    let mut fine = Exchange::send(gateway.address, head("/agents/demo/process", 10, expect).as_bytes()).await;
    assert_eq!(fine.status().await, 100);
}

#[tokio::test]
async fn a_large_body_does_not_block_other_requests() {
    let gateway = gateway("workers = 1").await;
    let filler = "x".repeat(7 << 20);
    let values = "0,".repeat(90_000);
    let bodies = [
        ("/agents/demo/process", format!("{{\"filler\":\"{filler}\",\"input\":[{values}0]}}")),
        ("/v1/responses", format!("{{\"model\":\"demo\",\"filler\":\"{filler}\",\"input\":[{values}0]}}")),
        ("/ag-kit/demo/send-message", format!("{{\"filler\":\"{filler}\",\"messages\":[{values}0]}}")),
        ("/ag-ui/demo", format!("{{\"filler\":\"{filler}\",\"messages\":[{values}0]}}")),
        ("/v1/chat/completions", format!("{{\"model\":\"demo\",\"filler\":\"{filler}\",\"messages\":[{values}0]}}")),
        ("/anthropic/v1/messages", format!("{{\"model\":\"demo\",\"filler\":\"{filler}\",\"messages\":[{values}0]}}")),
    ];

    for (path, body) in bodies {
        let mut exchange = Exchange::send(gateway.address, head(path, body.len(), "").as_bytes()).await;
        exchange.send_more(body.as_bytes()).await.expect("it is read");
        let answered = async move { exchange.response().await };
        tokio::pin!(answered);
        let mut longest = Duration::ZERO;
        let answer = loop {
            let started = Instant::now();
            tokio::select! {
                answer = &mut answered => break answer,
                health = gateway.get("/healthz") => assert_eq!(health.status, 200),
            }
            longest = longest.max(started.elapsed());
        };
        assert!(answer.status >= 400, "{path}: {}", answer.status);

        // 50 ms in an optimised build; tests run unoptimised.
        assert!(longest < Duration::from_millis(500), "{path}: {longest:?}");
    }
    assert_eq!(gateway.post("/agents/demo/process", &json!({ "input": [] })).await.status / 100, 2);
}

/// A field of `/proc/PID/status`, in bytes.
#[cfg(target_os = "linux")]
fn memory(process: &Process, figure: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).expect("the field exists");
    let kibibytes: usize = line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number");
    kibibytes << 10
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_body_uses_at_most_eight_times_its_size_in_memory() {
    const SIZE: usize = 4 << 20;
    let filled = |open: &str, piece: &str, close: &str, max: usize| {
        let count = (SIZE / (piece.len() + 1)).min(max);
        let body = format!("{open}{}{close},\"filler\":\"", vec![piece; count].join(","));
        let filler = "x".repeat(SIZE.saturating_sub(body.len() + 2));
        format!("{body}{filler}\"}}")
    };
    let (native, a2a, ag_kit) = ("/agents/demo/process", "/a2a/demo/message:send", "/ag-kit/demo/send-message");
    let message = "{\"role\":\"user\",\"content\":[]}";
    let (ag_ui, chat) =
        ("{\"threadId\":\"t\",\"runId\":\"r\",\"messages\":[", "{\"model\":\"demo\",\"max_tokens\":9,\"messages\":[");
    let parts = "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[";
    let contents = "{\"input\":[{\"role\":\"user\",\"content\":[";
    let bodies = [
        // Many more values than the limit.
        ("numbers", native, filled("{\"input\":[", "0", "]", usize::MAX)),
        ("messages", native, filled("{\"input\":[", message, "]", usize::MAX)),
        // As many as the limit allows.
        ("numbers", native, filled("{\"input\":[", "0", "]", 99_000)),
        ("messages", native, filled("{\"input\":[", message, "]", 33_000)),
        ("contents", native, filled(contents, "{\"type\":\"text\",\"text\":\"\"}", "]}]", 33_000)),
        ("fields", native, filled("{\"input\":[],\"more\":[", "{\"a\":0,\"b\":0}", "]", 33_000)),
        (
            "items",
            "/v1/responses",
            filled("{\"model\":\"demo\",\"input\":[", "{\"role\":\"user\",\"content\":\"a\"}", "]", 33_000),
        ),
        ("parts", a2a, filled(parts, "{\"text\":\"a\"}", "]}", 49_000)),
        ("ag-kit", ag_kit, filled("{\"messages\":[", "{\"role\":\"user\",\"content\":\"a\"}", "]", 33_000)),
        ("ag-ui", "/ag-ui/demo", filled(ag_ui, "{\"role\":\"user\",\"content\":\"a\"}", "]", 24_000)),
        ("chat", "/v1/chat/completions", filled(chat, "{\"role\":\"user\",\"content\":\"a\"}", "]", 33_000)),
        ("anthropic", "/anthropic/v1/messages", filled(chat, "{\"role\":\"user\",\"content\":\"a\"}", "]", 33_000)),
        ("a text", native, user_turn(&"x".repeat(SIZE)).to_string()),
    ];

    let folder = tempfile::tempdir().expect("a folder");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n";
    std::fs::write(folder.path().join("gateway.toml"), format!("{server}{DEMO}{ROUTES}")).expect("a file");
    let mut received = String::new();
    let mut max = 0;
    for (name, path, body) in bodies {
        // One process per body: freed memory stays with the allocator and would be reused.
        let process = Process::start(folder.path());
        let before = memory(&process, "VmRSS");
        let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
        let response = process.open("POST", path, &headers, body.as_bytes()).await.response().await;
        let tenths = (memory(&process, "VmHWM") - before) * 10 / body.len();
        received.push_str(&format!("{name}: {}, {}.{} times\n", response.status, tenths / 10, tenths % 10));
        max = max.max(tenths);
    }
    println!("{received}");
    assert!(max <= 80, "{received}");
}
