//! Forwarded client headers: exactly those that the agent's configuration names.

use serde_json::Value;

use crate::support::agent::text_reply_then_hang;
use crate::support::gateway::{Gateway, agent, user_turn};
use crate::support::poll_until;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

const HEADERS: [(&str, &str); 8] = [
    ("content-type", "application/json"),
    ("X-Request-Id", "one"),
    ("x-request-id", "two"),
    ("x-other", "three"),
    ("cookie", "a=b"),
    ("x-admin", "yes"),
    ("keep-alive", "timeout=5"),
    ("x-team", "red"),
];

fn has(request: &ReceivedRequest, name: &str) -> bool {
    request.headers.contains_key(name)
}

#[tokio::test]
async fn an_agent_gets_the_headers_that_its_configuration_names() {
    let stops = || {
        Upstream::with_handler(|request| match request.path.as_str() {
            "/stop" => Reply::complete(200, &[("content-type", "application/json")], "{}"),
            _ => text_reply_then_hang(&["so far"]),
        })
    };
    let (one, two, elsewhere) = (stops(), stops(), stops());
    let own = "options = { stop_url = \"/stop\" }\nforward = [\"x-request-id\"]\nheaders = { x-team = \"blue\" }";
    let foreign = format!("options = {{ stop_url = \"{}\" }}\nforward = [\"x-other\"]", elsewhere.url("/stop"));
    let agents = agent("one", &one.url("/process"), "", own) + &agent("two", &two.url("/process"), "", &foreign);
    let gateway = Gateway::start(&agents).await;

    for name in ["one", "two"] {
        let body: Value = user_turn("hi");
        let path = format!("/agents/{name}/process");
        let mut stream = gateway.open("POST", &path, &HEADERS, body.to_string().as_bytes()).await;
        stream.read_until("so far").await;
    }
    one.wait_for_requests(2).await;
    elsewhere.wait_for_requests(1).await;

    for request in one.requests() {
        let id = request.headers.get("x-request-id").expect("it is forwarded");
        assert!(id.contains("one") || id.contains("two"), "{id}");
        assert_eq!(request.headers.get("x-team").map(String::as_str), Some("blue"));
        assert!(!["x-other", "cookie", "x-admin", "keep-alive"].iter().any(|name| has(&request, name)));
    }
    let request = two.requests().remove(0);
    assert_eq!(request.headers.get("x-other").map(String::as_str), Some("three"));
    assert!(!["x-request-id", "cookie", "x-admin", "x-team"].iter().any(|name| has(&request, name)));
    let stopped = poll_until("the stop request", async || elsewhere.requests().first().cloned()).await;
    assert!(!has(&stopped, "x-other"), "another origin gets nothing of the client");
}
