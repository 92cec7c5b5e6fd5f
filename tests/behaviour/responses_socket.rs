//! Responses over a WebSocket: an unstored response lives as long as its connection and is visible to requests on that
//! connection only.
//!
//! Not here: the connection itself (`websocket`).

use serde_json::{Value, json};

use crate::connectors::{says, texts};
use crate::conversations::keeping_history;
use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{Gateway, agent};
use crate::support::poll_until;
use crate::support::socket::Socket;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

/// A gateway with one agent on a Responses route.
async fn before(upstream: &Upstream, own: &str) -> Gateway {
    let agents = agent("friday", &upstream.url("/process"), own, "retries = 0");
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n";
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agents}\n{route}")).await
}

/// Settings of an agent that keeps no history.
const GATEWAY_HISTORY: &str = "history = \"gateway\"";

/// A reply that is one call of a client function.
fn function_call(call_id: &str) -> Reply {
    let data = json!({ "call_id": call_id, "name": "look", "arguments": "{}" });
    let message = json!({
        "object": "message", "status": "completed", "id": format!("m_{call_id}"), "type": "function_call",
        "role": "assistant", "content": [{ "type": "data", "data": data }],
    });
    let response = |status: &str| json!({ "object": "response", "status": status, "id": "r" }).to_string();
    Reply::frames([response("created"), response("in_progress"), message.to_string(), response("completed")])
}

/// An agent that obeys the inputs `call`, `ask` and `fail`, and otherwise replies with the number of the request.
fn counting() -> Upstream {
    let mut times = 0;
    Upstream::with_handler(move |request| {
        times += 1;
        match received_input(request).last() {
            Some(last) if last == "call" => function_call(&format!("call-{times}")),
            Some(last) if last == "ask" => approval_request("appr-1"),
            Some(last) if last == "fail" => Reply::complete(400, &[("content-type", "application/json")], "{}"),
            _ => text_reply(&[&format!("answer {times}")]),
        }
    })
}

/// The input that an agent received: text or type of each message.
fn received_input(request: &ReceivedRequest) -> Vec<String> {
    let input = request.json()["input"].as_array().cloned().unwrap_or_default();
    input
        .iter()
        .map(|message| match message["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => message["type"].as_str().expect("a type").to_owned(),
        })
        .collect()
}

fn last_input(upstream: &Upstream) -> Vec<String> {
    received_input(upstream.requests().last().expect("the agent was asked"))
}

fn id(event: &Value) -> &str {
    event["response"]["id"].as_str().unwrap_or_else(|| panic!("a response, not {event}"))
}

fn completed(event: Value) -> Value {
    assert_eq!(event["type"], "response.completed", "{event}");
    event
}

fn not_found(event: &Value) {
    assert_eq!((&event["type"], &event["error"]["code"]), (&json!("error"), &json!("previous_response_not_found")));
}

/// The tools of the client.
fn tools() -> Value {
    json!([{ "type": "function", "name": "look", "parameters": {} }])
}

#[tokio::test]
async fn a_chain_of_unstored_responses_continues_on_the_same_socket() {
    for (own, second, third) in [
        ("", &["two"][..], &["three"][..]),
        (GATEWAY_HISTORY, &["one", "answer 1", "two"], &["one", "answer 1", "two", "answer 2", "three"]),
    ] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let mut last = completed(socket.ask(&json!({ "input": "one" })).await);
        for (input, sees) in [("two", second), ("three", third)] {
            let body = json!({ "input": input, "previous_response_id": id(&last) });
            last = completed(socket.ask(&body).await);
            assert_eq!(last_input(&upstream), sees, "{own}");
        }
        let sessions: Vec<Value> =
            upstream.requests().iter().map(|request| request.json()["session_id"].clone()).collect();
        assert!(sessions.windows(2).all(|pair| pair[0] == pair[1]), "one session: {sessions:?}");
    }
}

#[tokio::test]
async fn a_pending_function_call_is_answered_on_the_same_socket() {
    for own in ["", GATEWAY_HISTORY] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let called = completed(socket.ask(&json!({ "input": "call", "tools": tools() })).await);
        assert_eq!(called["response"]["output"][0]["call_id"], "call-1");

        let output = json!([{ "type": "function_call_output", "call_id": "call-1", "output": "18 C" }]);
        let body = json!({ "input": output, "previous_response_id": id(&called), "tools": tools() });
        completed(socket.ask(&body).await);
        let received = upstream.requests()[1].json();
        let input = received["input"].as_array().expect("an input");
        let last = input.last().expect("an output");
        assert_eq!(
            (&last["type"], &last["content"][0]["data"]["output"]),
            (&json!("function_call_output"), &json!("18 C"))
        );
        assert_eq!(input.len(), if own.is_empty() { 1 } else { 3 }, "{received}");
    }
}

#[tokio::test]
async fn an_unstored_response_is_unknown_on_another_socket_and_over_http() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let first = completed(socket.ask(&json!({ "input": "one" })).await);
    let body = json!({ "input": "two", "previous_response_id": id(&first) });
    let mut other = Socket::open(gateway.address, "/v1/responses").await;
    not_found(&other.ask(&body).await);
    let mut over_http = body.clone();
    over_http["model"] = json!("friday");
    let response = gateway.post("/v1/responses", &over_http).await;
    assert_eq!((response.status, &response.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
    for path in ["", "/input_items", "?stream=true"] {
        assert_eq!(gateway.get(&format!("/v1/responses/{}{path}", id(&first))).await.status, 404, "{path}");
    }

    // The failed attempts have no effect on it.
    completed(socket.ask(&body).await);
}

#[tokio::test]
async fn a_failed_continuation_evicts_the_previous_response() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let wrong = json!([{ "type": "function_call_output", "call_id": "nothing", "output": "x" }]);
    for input in [wrong, json!("fail")] {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one" })).await);
        let failed = socket.ask(&json!({ "input": input, "previous_response_id": id(&first) })).await;
        assert_ne!(failed["type"], "response.completed");
        not_found(&socket.ask(&json!({ "input": "two", "previous_response_id": id(&first) })).await);

        // The connection is still usable.
        completed(socket.ask(&json!({ "input": "again" })).await);
    }
}

#[tokio::test]
async fn a_stored_response_is_not_evicted() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let first = completed(socket.ask(&json!({ "input": "one", "store": true })).await);
    let failed = socket.ask(&json!({ "input": "fail", "previous_response_id": id(&first) })).await;
    assert_ne!(failed["type"], "response.completed");
    completed(socket.ask(&json!({ "input": "two", "previous_response_id": id(&first) })).await);
}

#[tokio::test]
async fn a_warm_up_does_not_call_the_agent_but_becomes_history() {
    for own in ["", GATEWAY_HISTORY] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let warm = json!({ "generate": false, "stream": true, "input": [{ "role": "developer", "content": "rules" }] });
        socket.create(&warm).await;
        let events = socket.response().await;
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "response.completed"]);

        let last = events.last().expect("events");
        assert_eq!((&last["response"]["output"], &last["response"]["status"]), (&json!([]), &json!("completed")));
        assert!(upstream.requests().is_empty(), "the agent is not called");

        let first = completed(socket.ask(&json!({ "input": "one", "previous_response_id": id(last) })).await);
        assert_eq!(last_input(&upstream), ["rules", "one"], "{own}");

        // A warm-up in the middle of a chain works too, and can be continued twice.
        let second = completed(
            socket.ask(&json!({ "generate": false, "input": "more", "previous_response_id": id(&first) })).await,
        );
        completed(socket.ask(&json!({ "input": "two", "previous_response_id": id(&second) })).await);
        let full = ["rules", "one", "answer 1", "more", "two"];
        assert_eq!(last_input(&upstream), if own.is_empty() { &full[3..] } else { &full[..] }, "{own}");
        completed(socket.ask(&json!({ "input": "other", "previous_response_id": id(&second) })).await);
        assert_eq!(last_input(&upstream), ["rules", "one", "answer 1", "more", "other"], "{own}");
    }
}

#[tokio::test]
async fn a_warm_up_of_a_branch_reaches_an_agent_that_cannot_be_sent_the_history() {
    let upstream = Upstream::always(says("hi"));
    let gateway = Gateway::with_config(&keeping_history(&upstream)).await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let on = |input: &str, last: &Value| json!({ "input": input, "store": true, "previous_response_id": id(last) });
    let first = completed(socket.ask(&json!({ "input": "one", "store": true })).await);
    completed(socket.ask(&on("two", &first)).await);

    let mut warm = on("rules", &first);
    warm["generate"] = json!(false);
    let mut last = completed(socket.ask(&warm).await);
    for expected in [&["rules", "next"][..], &["next"]] {
        last = completed(socket.ask(&on("next", &last)).await);
        assert_eq!(texts(&upstream.requests().pop().expect("a request").json()), expected);
    }
}

#[tokio::test]
async fn a_branch_carries_its_full_history() {
    for store in [false, true] {
        for own in ["", GATEWAY_HISTORY] {
            let upstream = counting();
            let gateway = before(&upstream, own).await;
            let mut socket = Socket::open(gateway.address, "/v1/responses").await;
            let first = completed(socket.ask(&json!({ "input": "one", "store": store })).await);
            let on =
                |input: &str, last: &Value| json!({ "input": input, "store": store, "previous_response_id": id(last) });
            completed(socket.ask(&on("two", &first)).await);
            let branch = completed(socket.ask(&on("other", &first)).await);
            assert_eq!(last_input(&upstream), ["one", "answer 1", "other"], "{own}");
            completed(socket.ask(&on("further", &branch)).await);
            let full = ["one", "answer 1", "other", "answer 3", "further"];
            assert_eq!(last_input(&upstream), if own.is_empty() { &full[4..] } else { &full[..] }, "{own}");
        }
    }
}

#[tokio::test]
async fn stored_and_unstored_responses_can_be_chained() {
    for own in ["", GATEWAY_HISTORY] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one", "store": true })).await);
        let second = completed(socket.ask(&json!({ "input": "two", "previous_response_id": id(&first) })).await);
        assert_eq!(last_input(&upstream), ["one", "answer 1", "two"], "{own}");

        let body = json!({ "input": "three", "previous_response_id": id(&second), "store": true });
        let third = completed(socket.ask(&body).await);
        drop(socket);

        // Stored responses keep their context after the connection closes; unstored ones are gone.
        let over_http =
            |input: &str, last: &Value| json!({ "model": "friday", "input": input, "previous_response_id": id(last) });
        let fourth = gateway.post("/v1/responses", &over_http("four", &third)).await;
        assert_eq!(fourth.status, 200, "{}", fourth.text());
        let full = ["one", "answer 1", "two", "answer 2", "three", "answer 3", "four"];
        assert_eq!(last_input(&upstream), if own.is_empty() { &full[6..] } else { &full[..] }, "{own}");
        assert_eq!(gateway.post("/v1/responses", &over_http("x", &second)).await.status, 400);

        // The unstored turn is not in the history of the stored ones.
        let beside = gateway.post("/v1/responses", &over_http("beside", &first)).await;
        assert_eq!(beside.status, 200, "{}", beside.text());
        assert_eq!(
            last_input(&upstream),
            if own.is_empty() { vec!["beside"] } else { vec!["one", "answer 1", "beside"] }
        );
    }
}

#[tokio::test]
async fn an_approval_request_outlives_the_socket_it_was_sent_on() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let interrupted = completed(socket.ask(&json!({ "input": "ask" })).await);
    let question = interrupted["response"]["output"].as_array().expect("output").last().expect("a question").clone();
    assert_eq!(question["type"], "mcp_approval_request");

    drop(socket);
    let mut other = Socket::open(gateway.address, "/v1/responses").await;
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true });
    completed(other.ask(&json!({ "input": [{ "role": "user", "content": "ask" }, question, answer] })).await);
    let sessions: Vec<Value> = upstream.requests().iter().map(|request| request.json()["session_id"].clone()).collect();
    assert_eq!(sessions[0], sessions[1], "the answer goes to the session that asked");
}

#[tokio::test]
async fn a_closed_socket_leaves_nothing_behind() {
    let upstream = counting();
    let gateway = before(&upstream, GATEWAY_HISTORY).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one" })).await);
        let body = json!({ "input": "two", "previous_response_id": id(&first) });
        ids.push(id(&completed(socket.ask(&body).await)).to_owned());
    }

    // Unstored responses are removed when their socket closes.
    poll_until("the responses to be gone", async || {
        let mut gone = true;
        for id in &ids {
            gone &= gateway.get(&format!("/v1/responses/{id}")).await.status == 404;
        }
        gone.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_long_message_is_handled_like_a_short_one() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let long = "long ".repeat(100_000);
    let first = completed(socket.ask(&json!({ "input": long })).await);
    assert_eq!(last_input(&upstream), [long]);
    completed(socket.ask(&json!({ "input": "short", "previous_response_id": id(&first) })).await);
}
