//! The agent gets the W3C trace context of a client's request in every protocol, with a span of the gateway as the
//! parent; it gets no other header. Not here: validation of the trace headers (`crates/upstream/src/trace.rs`).

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::gateway::{Gateway, agent, last_input_text, user_turn, user_turn_in};
use crate::support::poll_until;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "vendor=00f067aa0ba902b7,other=x";
const JSON: (&str, &str) = ("content-type", "application/json");
const TRACED: [(&str, &str); 2] = [("traceparent", PARENT), ("tracestate", STATE)];

const ROUTES: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
    [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n\
    [[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n";

/// A gateway in front of an agent, with a route of each protocol.
async fn before(upstream: &Upstream, further: &str) -> Gateway {
    let agent = agent("friday", &upstream.url("/process"), "", further);
    Gateway::start(&format!("{agent}{ROUTES}")).await
}

/// The trace headers of a request that the agent received.
fn trace(request: &ReceivedRequest) -> (Option<&str>, Option<&str>) {
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    (header("traceparent"), header("tracestate"))
}

/// The span in a request that the agent received. Panics unless it is a new one of the client's trace.
fn own_span(request: &ReceivedRequest, client: &str) -> String {
    let received = trace(request).0.expect("a trace");
    let fields: Vec<&str> = received.split('-').collect();
    let sent: Vec<&str> = client.split('-').collect();
    assert_eq!((fields.len(), fields[0], fields[1], fields[3]), (4, "00", sent[1], sent[3]), "{received}");

    let span = fields[2];
    assert!(span.len() == 16 && span.bytes().all(|digit| digit.is_ascii_hexdigit()), "{received}");
    assert!(span != sent[2] && span != "0000000000000000", "{received}");
    span.to_owned()
}

async fn post(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) {
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([JSON]).collect();
    let response = gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.response().await;
    assert_eq!(response.status, 200, "{path}: {}", response.text());
}

fn a2a(context: &str, text: &str) -> Value {
    let message = json!({ "messageId": text, "contextId": context, "role": "ROLE_USER", "parts": [{ "text": text }] });
    json!({ "message": message })
}

#[tokio::test]
async fn the_trace_context_reaches_the_agent_over_every_protocol() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = before(&upstream, "").await;
    let [parent, state] = TRACED;
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": a2a("rpc", "m-2") });
    let version = ("a2a-version", "1.0");
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    type Ask<'a> = (&'a str, &'a [(&'a str, &'a str)], Value);
    let request_body: [Ask<'_>; 6] = [
        ("/agents/friday/process", &[parent, state], user_turn("hi")),
        ("/v1/responses", &[parent, state], json!({ "model": "friday", "input": "hi" })),
        ("/v1/responses", &[parent, state], json!({ "model": "friday", "input": "hi", "stream": true })),
        ("/a2a/friday/message:stream", &[parent, state, version], a2a("rest", "m-1")),
        ("/a2a/friday", &[parent, state, version], rpc),
        ("/kit/friday/send-message", &[parent, state], chat),
    ];

    let mut spans = HashSet::new();
    for (number, (path, headers, body)) in request_body.iter().enumerate() {
        post(&gateway, path, headers, body).await;
        upstream.wait_for_requests(number + 1).await;
        let request = &upstream.requests()[number];
        assert!(spans.insert(own_span(request, PARENT)), "{path}: each turn has a span of its own");
        assert_eq!(trace(request).1, Some(STATE), "{path}");
    }
}

#[tokio::test]
async fn all_requests_of_a_turn_carry_the_same_span() {
    let unavailable = Reply::complete(503, &[("retry-after", "0")], "starting");
    let upstream = Upstream::in_order([unavailable.clone(), unavailable, text_reply(&["hi"])]);
    let gateway = before(&upstream, "retries = 2").await;
    post(&gateway, "/agents/friday/process", &TRACED, &user_turn("hi")).await;
    let spans: Vec<String> = upstream.requests().iter().map(|request| own_span(request, PARENT)).collect();
    assert_eq!((spans.len(), spans.iter().collect::<HashSet<_>>().len()), (3, 1), "{spans:?}");
}

#[tokio::test]
async fn each_turn_carries_its_own_trace_context_even_if_it_was_queued() {
    let upstream = Upstream::with_handler(|request| {
        let input = last_input_text(&request.json());
        if input.starts_with("hold") { text_reply_until(&["hi"], "on") } else { text_reply(&["hi"]) }
    });
    let gateway = before(&upstream, "").await;

    let started = async |text: &str, parent: &str| {
        let headers = [("traceparent", parent), JSON];
        let body = user_turn_in("s", text).to_string();
        gateway.open("POST", "/agents/friday/process", &headers, body.as_bytes()).await
    };
    let mut first = started("hold", PARENT).await;
    upstream.wait_for_requests(1).await;
    let mut second = started("two", OTHER).await;
    poll_until("the second turn in the queue", async || {
        let runs = gateway.get("/agents/friday/runs?session_id=s").await.json();
        (runs["total"] == 2).then_some(())
    })
    .await;
    upstream.open("on");
    first.frames().await;
    second.frames().await;

    // A third turn without a trace.
    gateway.run_turn("friday", &user_turn_in("s", "three")).await.expect_completed();
    let requests = upstream.requests();
    assert_ne!(own_span(&requests[0], PARENT), own_span(&requests[1], OTHER));
    assert_eq!((requests.len(), trace(&requests[2])), (3, (None, None)));
}

#[tokio::test]
async fn a_message_to_a_working_task_carries_its_own_trace_context() {
    let upstream = Upstream::with_handler(|request| {
        let input = last_input_text(&request.json());
        if input.starts_with("hold") { text_reply_until(&["hi"], "on") } else { text_reply(&["hi"]) }
    });
    let gateway = before(&upstream, "").await;

    let send = async |parent: &str, body: &Value| {
        let headers = [("a2a-version", "1.0"), ("traceparent", parent), JSON];
        gateway.open("POST", "/a2a/friday/message:stream", &headers, body.to_string().as_bytes()).await
    };
    let mut first = send(PARENT, &a2a("c", "hold")).await;
    let task = first.frame().await.expect("the task")["task"]["id"].clone();
    upstream.wait_for_requests(1).await;
    let mut body = a2a("c", "two");
    body["message"]["taskId"] = task;
    let mut second = send(OTHER, &body).await;
    second.frame().await.expect("it is taken");
    upstream.open("on");
    second.frames().await;
    let request = &upstream.requests()[1];
    own_span(request, OTHER);
    assert_eq!(trace(request).1, None);
}

#[tokio::test]
async fn invalid_trace_headers_and_credentials_are_not_forwarded() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = before(&upstream, "").await;
    let long = format!("a={}", "b".repeat(600));
    let received = [
        ("00-nonsense", STATE, false),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", STATE, false),
        (PARENT, long.as_str(), true),
    ];

    for (number, (parent, state, is_trace)) in received.into_iter().enumerate() {
        let secret = [("authorization", "Bearer client"), ("cookie", "a=b"), ("baggage", "a=b")];
        let headers: Vec<_> = [("traceparent", parent), ("tracestate", state)].into_iter().chain(secret).collect();
        post(&gateway, "/agents/friday/process", &headers, &user_turn("hi")).await;
        upstream.wait_for_requests(number + 1).await;
        let request = &upstream.requests()[number];
        let (parent_received, state_received) = trace(request);
        assert_eq!((parent_received.is_some(), state_received), (is_trace, None), "{parent}");

        for (name, _) in secret {
            assert!(!request.headers.contains_key(name), "{name}");
        }
    }
}

#[tokio::test]
async fn configured_headers_take_precedence() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = before(&upstream, &format!("headers = {{ traceparent = \"{OTHER}\" }}")).await;
    post(&gateway, "/agents/friday/process", &[("traceparent", PARENT)], &user_turn("hi")).await;
    assert_eq!(trace(&upstream.requests()[0]).0, Some(OTHER));
}
