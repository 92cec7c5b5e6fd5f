//! The parts of the contract that no shipped protocol needs yet, each with one exchange through the running server.

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::http::Exchange;
use crate::support::pairs::{Decision, Protocol, ROUTES};
use crate::support::socket::{Socket, SocketFrame};
use crate::support::upstream::Upstream;

const ROUTE: &str = "[[routes]]\nprotocol = \"contract\"\npath = \"/contract\"\nagents = [\"friday\"]\n";

async fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!("{}{ROUTE}", agent("friday", &upstream.url("/process"), "", "retries = 0"))).await
}

async fn run_in(gateway: &Gateway, session: &str, text: &str, busy: &str) -> String {
    let body = json!({ "session": session, "text": text, "busy": busy });
    let response = gateway.post("/contract/runs", &body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["run"].as_str().expect("a run").to_owned()
}

async fn next(stream: &mut Exchange) -> Value {
    stream.frame().await.expect("the stream goes on")
}

/// The deltas up to the end of a run, and its id.
async fn rest_of_run(stream: &mut Exchange) -> (String, String) {
    let mut text = String::new();
    loop {
        let frame = next(stream).await;
        text.push_str(frame["delta"].as_str().unwrap_or_default());
        if let Some(run) = frame["end"].as_str() {
            return (text, run.to_owned());
        }
    }
}

#[tokio::test]
async fn a_stream_follows_the_runs_of_a_session_one_after_the_other() {
    let upstream = Upstream::in_order([text_reply(&["one"]), text_reply(&["two"]), text_reply(&["three"])]);
    let gateway = gateway(&upstream).await;
    // The session does not exist yet.
    let mut stream = gateway.open("GET", "/contract/listen?session=s", &[], b"").await;
    assert_eq!(next(&mut stream).await, json!({ "notice": "begin" }));

    for text in ["one", "two", "three"] {
        let run = run_in(&gateway, "s", "hi", "queue").await;
        assert_eq!(next(&mut stream).await, json!({ "notice": "run", "run": run }));
        assert_eq!(rest_of_run(&mut stream).await, (text.to_owned(), run));
        assert_eq!(next(&mut stream).await, json!({ "notice": "begin" }));
    }
}

#[tokio::test]
async fn a_stream_continues_with_the_run_that_answered_its_question() {
    let route = "[[routes]]\nprotocol = \"contract\"\npath = \"/contract\"\nagents = [\"demo\"]\n";
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTES}{route}")).await;
    let question = Protocol::A2a.ask(&gateway, "s", Decision::Accept.demo_command()).await;
    let mut stream = gateway.open("GET", &format!("/contract/follow?run={}", question.id()), &[], b"").await;
    assert_eq!(stream.status().await, 200);

    let answer = Protocol::ChatCompletions.answer(&gateway, &question, Decision::Accept).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answering = loop {
        if let Some(run) = next(&mut stream).await["answered_by"].as_str() {
            break run.to_owned();
        }
    };
    assert_ne!(answering, question.id());
    let (text, run) = rest_of_run(&mut stream).await;
    assert!(text.contains(Decision::Accept.expected_text()), "{text}");
    assert_eq!(run, answering);
    assert_eq!(stream.frame().await, None);
}

#[tokio::test]
async fn a_stream_that_follows_no_run_reports_reloads_and_ends_with_the_gateway() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let mut gateway = gateway(&upstream).await;
    let mut stream = gateway.open("GET", "/contract/listen", &[], b"").await;
    assert_eq!(next(&mut stream).await, json!({ "notice": "begin" }));

    gateway.replace_agents();
    assert_eq!(next(&mut stream).await, json!({ "notice": "agents" }));

    gateway.begin_shutdown();
    assert_eq!(next(&mut stream).await, json!({ "code": "GATEWAY_SHUTTING_DOWN" }));
    assert_eq!(stream.frame().await, None);
}

#[tokio::test]
async fn a_run_interrupts_the_runs_of_its_session() {
    let upstream = Upstream::in_order([text_reply_until(&["old"], "never"), text_reply(&["new"])]);
    let gateway = gateway(&upstream).await;
    let old = run_in(&gateway, "s", "old", "queue").await;
    upstream.wait_for_requests(1).await;
    let queued = run_in(&gateway, "s", "queued", "queue").await;

    let new = run_in(&gateway, "s", "new", "interrupt").await;
    let ended = |id: String| {
        let gateway = &gateway;
        async move { gateway.final_frame("friday", &id).await["status"].clone() }
    };
    assert_eq!((ended(old).await, ended(queued).await), (json!("canceled"), json!("canceled")));
    assert_eq!(ended(new).await, "completed");
}

#[tokio::test]
async fn a_run_that_rolls_back_deletes_the_run_it_interrupts() {
    let upstream = Upstream::in_order([text_reply_until(&["old"], "never"), text_reply(&["new"])]);
    let gateway = gateway(&upstream).await;
    let old = run_in(&gateway, "s", "old", "queue").await;
    upstream.wait_for_requests(1).await;

    let new = run_in(&gateway, "s", "new", "rollback").await;
    assert_eq!(gateway.final_frame("friday", &new).await["status"], "completed");
    let path = format!("/agents/friday/runs/{old}");
    assert_eq!(gateway.get(&path).await.status, 404);
    assert_eq!(gateway.get("/agents/friday/runs").await.json()["total"], 1);
}

#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = gateway(&upstream).await;
    let ids = ["a", "b", "c", "d", "e"];
    for id in ids {
        let run = run_in(&gateway, id, "hi", "queue").await;
        gateway.final_frame("friday", &run).await;
    }

    for (order, expected) in [("", ids), ("newest&", ["e", "d", "c", "b", "a"])] {
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let page = gateway.get(&format!("/contract/sessions?{order}limit=2{after}")).await.json();
            assert_eq!(page["total"], 5);
            listed.extend(page["sessions"].as_array().expect("a list").iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        // Sessions of one millisecond are sorted by their names, in the same direction.
        assert_eq!(listed, expected);
    }
    assert_eq!(gateway.get("/contract/sessions?agent=other").await.json()["total"], 0);
    assert_eq!(gateway.get("/contract/sessions?limit=x").await.status, 400);
}

#[tokio::test]
async fn a_seal_opens_for_the_same_store_only() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let (gateway, other) = (gateway(&upstream).await, gateway(&upstream).await);
    let text = [("content-type", "text/plain")];
    let post = async |gateway: &Gateway, path: &str, body: &str| {
        gateway.open("POST", path, &text, body.as_bytes()).await.response().await.json()
    };

    let sealed = post(&gateway, "/contract/seal", "run 7").await;
    let sealed = sealed.as_str().expect("a text");
    assert_eq!(post(&gateway, "/contract/open", sealed).await, "run 7");
    assert_eq!(post(&other, "/contract/open", sealed).await, Value::Null);
}

#[tokio::test]
async fn messages_of_a_websocket_are_answered_in_parallel_and_share_a_connection() {
    let upstream = Upstream::in_order([
        text_reply_until(&["a"], "a"),
        text_reply_until(&["b"], "b"),
        text_reply_until(&["c"], "c"),
        text_reply(&["d"]),
    ]);
    let gateway = gateway(&upstream).await;
    let mut socket = Socket::open(gateway.address, "/contract/socket").await;
    let text = async |socket: &mut Socket| match socket.next().await {
        SocketFrame::Text(value) => value,
        other => panic!("{other:?}"),
    };
    for message in 0..3 {
        socket.text(&json!({ "text": "hi", "stream": true }).to_string()).await;
        upstream.wait_for_requests(message + 1).await;
    }
    // One more is queued, and the next one is refused while the others are answered.
    socket.text(&json!({ "text": "queued", "stream": true }).to_string()).await;
    socket.text(&json!({ "text": "refused", "stream": true }).to_string()).await;

    let mut seen = Vec::new();
    loop {
        let value = text(&mut socket).await;
        assert_eq!(value["connection"], 0);
        seen.push(value.clone());
        if value["code"] == "RATE_LIMIT_EXCEEDED" {
            break;
        }
    }
    // The exchange of the queued message is opened when its answer begins.
    assert_eq!(seen.last().expect("a refusal")["message"], 3);

    // The last one ends first, and makes room for the queued one.
    for gate in ["c", "b", "a"] {
        upstream.open(gate);
    }
    let mut ended = Vec::new();
    while ended.len() < 4 {
        let value = text(&mut socket).await;
        if value["end"].is_string() {
            ended.push(value["message"].as_u64().expect("a number"));
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 4]);

    let mut second = Socket::open(gateway.address, "/contract/socket").await;
    second.text("{}").await;
    let refused = text(&mut second).await;
    assert_eq!((&refused["connection"], &refused["message"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn an_endpoint_for_http2_refuses_http1() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let gateway = gateway(&upstream).await;
    let refused = gateway.post("/contract/trailers", &json!({ "text": "hi" })).await;
    assert_eq!((refused.status, refused.text()), (505, ""));
    assert!(upstream.requests().is_empty());
}
