//! The trace a client's request is part of reaches the agent, whatever the protocol, and nothing else of its headers
//! does. Not here: what counts as a trace (`src/upstream/trace.rs`).

use serde_json::{Value, json};

use crate::support::agent::{saying, saying_until};
use crate::support::gateway::{Gateway, agent, last_said, says, says_in};
use crate::support::until;
use crate::support::upstream::{Asked, Upstream};

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

/// The trace an agent was told of.
fn trace(asked: &Asked) -> (Option<&str>, Option<&str>) {
    let header = |name: &str| asked.headers.get(name).map(String::as_str);
    (header("traceparent"), header("tracestate"))
}

async fn post(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) {
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([JSON]).collect();
    let answer = gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.answer().await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

fn a2a(context: &str, text: &str) -> Value {
    let message = json!({ "messageId": text, "contextId": context, "role": "ROLE_USER", "parts": [{ "text": text }] });
    json!({ "message": message })
}

#[tokio::test]
async fn a_trace_reaches_the_agent_over_every_protocol() {
    let upstream = Upstream::always(saying(&["hi"]));
    let gateway = before(&upstream, "").await;
    let [parent, state] = TRACED;
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": a2a("rpc", "m-2") });
    let version = ("a2a-version", "1.0");
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    type Ask<'a> = (&'a str, &'a [(&'a str, &'a str)], Value);
    let asks: [Ask<'_>; 6] = [
        ("/agents/friday/process", &[parent, state], says("hi")),
        ("/v1/responses", &[parent, state], json!({ "model": "friday", "input": "hi" })),
        ("/v1/responses", &[parent, state], json!({ "model": "friday", "input": "hi", "stream": true })),
        ("/a2a/friday/message:stream", &[parent, state, version], a2a("rest", "m-1")),
        ("/a2a/friday", &[parent, state, version], rpc),
        ("/kit/friday/send-message", &[parent, state], chat),
    ];
    for (number, (path, headers, body)) in asks.iter().enumerate() {
        post(&gateway, path, headers, body).await;
        upstream.wait_asked(number + 1).await;
        assert_eq!(trace(&upstream.asked()[number]), (Some(PARENT), Some(STATE)), "{path}");
    }
}

#[tokio::test]
async fn each_turn_brings_its_own_trace_also_if_it_waited() {
    let upstream = Upstream::deciding(|asked| {
        let said = last_said(&asked.json());
        if said.starts_with("hold") { saying_until(&["hi"], "on") } else { saying(&["hi"]) }
    });
    let gateway = before(&upstream, "").await;
    let started = async |text: &str, parent: &str| {
        let headers = [("traceparent", parent), JSON];
        let body = says_in("s", text).to_string();
        gateway.open("POST", "/agents/friday/process", &headers, body.as_bytes()).await
    };
    let mut first = started("hold", PARENT).await;
    upstream.wait_asked(1).await;
    let mut second = started("two", OTHER).await;
    until("the second turn in the queue", async || {
        let runs = gateway.get("/agents/friday/runs?session_id=s").await.json();
        (runs["total"] == 2).then_some(())
    })
    .await;
    upstream.open("on");
    first.frames().await;
    second.frames().await;
    // A third one without.
    gateway.story("friday", &says_in("s", "three")).await.completed();
    let traces: Vec<Option<String>> = upstream.asked().iter().map(|asked| trace(asked).0.map(str::to_owned)).collect();
    assert_eq!(traces, [Some(PARENT.to_owned()), Some(OTHER.to_owned()), None]);
}

#[tokio::test]
async fn a_message_for_a_task_that_works_brings_its_own_trace() {
    let upstream = Upstream::deciding(|asked| {
        let said = last_said(&asked.json());
        if said.starts_with("hold") { saying_until(&["hi"], "on") } else { saying(&["hi"]) }
    });
    let gateway = before(&upstream, "").await;
    let send = async |parent: &str, body: &Value| {
        let headers = [("a2a-version", "1.0"), ("traceparent", parent), JSON];
        gateway.open("POST", "/a2a/friday/message:stream", &headers, body.to_string().as_bytes()).await
    };
    let mut first = send(PARENT, &a2a("c", "hold")).await;
    let task = first.frame().await.expect("the task")["task"]["id"].clone();
    upstream.wait_asked(1).await;
    let mut body = a2a("c", "two");
    body["message"]["taskId"] = task;
    let mut second = send(OTHER, &body).await;
    second.frame().await.expect("it is taken");
    upstream.open("on");
    second.frames().await;
    assert_eq!(trace(&upstream.asked()[1]), (Some(OTHER), None));
}

#[tokio::test]
async fn what_is_no_trace_stays_here_and_so_do_credentials() {
    let upstream = Upstream::always(saying(&["hi"]));
    let gateway = before(&upstream, "").await;
    let long = format!("a={}", "b".repeat(600));
    let told = [
        ("00-nonsense", STATE, (None, None)),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", STATE, (None, None)),
        (PARENT, long.as_str(), (Some(PARENT), None)),
    ];
    for (number, (parent, state, wanted)) in told.into_iter().enumerate() {
        let secret = [("authorization", "Bearer client"), ("cookie", "a=b"), ("baggage", "a=b")];
        let headers: Vec<_> = [("traceparent", parent), ("tracestate", state)].into_iter().chain(secret).collect();
        post(&gateway, "/agents/friday/process", &headers, &says("hi")).await;
        upstream.wait_asked(number + 1).await;
        let asked = &upstream.asked()[number];
        assert_eq!(trace(asked), wanted, "{parent}");
        for (name, _) in secret {
            assert!(!asked.headers.contains_key(name), "{name}");
        }
    }
}

#[tokio::test]
async fn the_operator_s_headers_win() {
    let upstream = Upstream::always(saying(&["hi"]));
    let gateway = before(&upstream, &format!("headers = {{ traceparent = \"{OTHER}\" }}")).await;
    post(&gateway, "/agents/friday/process", &[("traceparent", PARENT)], &says("hi")).await;
    assert_eq!(trace(&upstream.asked()[0]).0, Some(OTHER));
}
