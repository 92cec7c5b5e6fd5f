//! What bodies of requests may cost: memory for all of them together, the values and levels in each, and no time of
//! those who share a thread with them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, says};
use crate::support::http::{Answer, Exchange};
#[cfg(target_os = "linux")]
use crate::support::process::Process;
use crate::support::until;

/// Routes besides the usual one.
const ROUTES: &str = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n\
                      [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
                      [[routes]]\nprotocol = \"ag-kit\"\npath = \"/ag-kit/{agent}\"\n";

async fn gateway(server: &str) -> Gateway {
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n");
    Gateway::with(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{ROUTE}{ROUTES}")).await
}

fn head(path: &str, length: usize, further: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{further}content-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_that_finds_no_room_is_refused_and_told_when_to_ask_again() {
    let gateway = gateway("max_body = \"1MiB\"\nlimits = { bodies = \"1MiB\" }").await;
    let path = "/agents/demo/process";

    // What is announced and does not come takes nothing.
    let _silent = Exchange::send(gateway.address, head(path, 1 << 20, "").as_bytes()).await;
    let body = says(&"x".repeat(700 << 10)).to_string();
    let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let mut half = Exchange::send(gateway.address, head(path, 900 << 10, "").as_bytes()).await;
    half.more(&vec![b' '; 600 << 10]).await.expect("it is read");
    // Only announced: bytes of this one would be counted beside those of the half body, and perhaps before them.
    let announced = head(path, 700 << 10, "");
    let refused = until("the half body to count", async || {
        let answer = Exchange::send(gateway.address, announced.as_bytes()).await.answer();
        tokio::time::timeout(std::time::Duration::from_millis(200), answer).await.ok()
    })
    .await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()["code"], "GATEWAY_OVERLOADED");
    // Nobody else is kept out.
    assert_eq!(gateway.post(path, &says("hi")).await.status, 200);

    drop(half);
    until("the room to be given back", async || {
        let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.answer().await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_body_of_too_many_values_or_levels_is_refused_on_every_protocol() {
    let gateway = gateway("limits = { json_values = 1000, json_depth = 20 }").await;
    let many = format!("[{}0]", "0,".repeat(2000));
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    for path in [
        "/agents/demo/process",
        "/v1/responses",
        "/v1/conversations",
        "/a2a/demo/message:send",
        "/ag-kit/demo/send-message",
    ] {
        for (what, status) in [(&many, 413), (&deep, 422)] {
            let body = format!("{{\"input\":{what}}}");
            let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.answer().await;
            assert!(
                answer.status == status || (status == 422 && answer.status == 400),
                "{path}: {} {}",
                answer.status,
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_whether_it_may_send_is_refused_before_it_does() {
    let gateway = gateway("max_body = \"64KiB\"").await;
    let expect = "expect: 100-continue\r\n";
    let raw =
        async |bytes: String| -> Answer { Exchange::send(gateway.address, bytes.as_bytes()).await.answer().await };
    for path in ["/agents/demo/process", "/v1/responses"] {
        let length = 100 << 20;
        let answer = raw(head(path, length, expect)).await;
        assert_eq!(answer.status, 413, "{path}: {}", answer.text());
        let answer = raw(head(path, 10, &format!("origin: https://evil.example\r\n{expect}"))).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert!(answer.json().is_object(), "in the protocol's own words");
        let answer = raw(head(path, 10, expect).replace("host: localhost", "host: evil.example")).await;
        assert_eq!(answer.status, 421, "{path}: {}", answer.text());
    }
    let mut fine = Exchange::send(gateway.address, head("/agents/demo/process", 10, expect).as_bytes()).await;
    assert_eq!(fine.status().await, 100);
}

#[tokio::test]
async fn a_long_body_keeps_nobody_waiting() {
    let gateway = gateway("workers = 1").await;
    let filler = "x".repeat(7 << 20);
    let values = "0,".repeat(90_000);
    let bodies = [
        ("/agents/demo/process", format!("{{\"filler\":\"{filler}\",\"input\":[{values}0]}}")),
        ("/v1/responses", format!("{{\"model\":\"demo\",\"filler\":\"{filler}\",\"input\":[{values}0]}}")),
        ("/ag-kit/demo/send-message", format!("{{\"filler\":\"{filler}\",\"messages\":[{values}0]}}")),
    ];
    for (path, body) in bodies {
        let mut asked = Exchange::send(gateway.address, head(path, body.len(), "").as_bytes()).await;
        asked.more(body.as_bytes()).await.expect("it is read");
        let answered = async move { asked.answer().await };
        tokio::pin!(answered);
        let mut longest = Duration::ZERO;
        let answer = loop {
            let began = Instant::now();
            tokio::select! {
                answer = &mut answered => break answer,
                health = gateway.get("/healthz") => assert_eq!(health.status, 200),
            }
            longest = longest.max(began.elapsed());
        };
        assert!(answer.status >= 400, "{path}: {}", answer.status);
        // 50 ms in a build that is optimised; this one is not.
        assert!(longest < Duration::from_millis(500), "{path}: {longest:?}");
    }
    assert_eq!(gateway.post("/agents/demo/process", &json!({ "input": [] })).await.status / 100, 2);
}

/// A figure of a process, in bytes.
#[cfg(target_os = "linux")]
fn memory(process: &Process, figure: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).expect("the figure is told");
    let kibibytes: usize = line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number");
    kibibytes << 10
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_body_costs_at_most_eight_times_its_size() {
    const SIZE: usize = 4 << 20;
    let filled = |open: &str, piece: &str, close: &str, most: usize| {
        let count = (SIZE / (piece.len() + 1)).min(most);
        let body = format!("{open}{}{close},\"filler\":\"", vec![piece; count].join(","));
        let filler = "x".repeat(SIZE.saturating_sub(body.len() + 2));
        format!("{body}{filler}\"}}")
    };
    let (native, a2a, ag_kit) = ("/agents/demo/process", "/a2a/demo/message:send", "/ag-kit/demo/send-message");
    let message = "{\"role\":\"user\",\"content\":[]}";
    let parts = "{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[";
    let contents = "{\"input\":[{\"role\":\"user\",\"content\":[";
    let bodies = [
        // Many more values than are read.
        ("numbers", native, filled("{\"input\":[", "0", "]", usize::MAX)),
        ("messages", native, filled("{\"input\":[", message, "]", usize::MAX)),
        // As many as are.
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
        ("a text", native, says(&"x".repeat(SIZE)).to_string()),
    ];

    let folder = tempfile::tempdir().expect("a folder");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n";
    std::fs::write(folder.path().join("gateway.toml"), format!("{server}{DEMO}{ROUTE}{ROUTES}")).expect("a file");
    let mut told = String::new();
    let mut most = 0;
    for (name, path, body) in bodies {
        // A process for each: memory that was freed is not given back to the system, and would be used again.
        let process = Process::start(folder.path());
        let before = memory(&process, "VmRSS");
        let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
        let answer = process.open("POST", path, &headers, body.as_bytes()).await.answer().await;
        let tenths = (memory(&process, "VmHWM") - before) * 10 / body.len();
        told.push_str(&format!("{name}: {}, {}.{} times\n", answer.status, tenths / 10, tenths % 10));
        most = most.max(tenths);
    }
    println!("{told}");
    assert!(most <= 80, "{told}");
}
