//! Responses over a WebSocket: what is not stored lives as long as its connection, for the requests that come over the
//! same one.
//!
//! Not here: how the connection itself behaves (`websocket`).

use serde_json::{Value, json};

use crate::support::agent::{approval, saying};
use crate::support::gateway::{Gateway, agent};
use crate::support::socket::Socket;
use crate::support::until;
use crate::support::upstream::{Answer, Asked, Upstream};

/// A gateway with one agent on a Responses route.
async fn before(upstream: &Upstream, own: &str) -> Gateway {
    let agents = agent("friday", &upstream.url("/process"), own, "retries = 0");
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n";
    Gateway::with(&format!("[store]\nkind = \"memory\"\n{agents}\n{route}")).await
}

/// The settings of an agent that remembers nothing.
const FORGETFUL: &str = "history = \"gateway\"";

/// An answer that is one call of a client's function.
fn calling(call_id: &str) -> Answer {
    let data = json!({ "call_id": call_id, "name": "look", "arguments": "{}" });
    let message = json!({
        "object": "message", "status": "completed", "id": format!("m_{call_id}"), "type": "function_call",
        "role": "assistant", "content": [{ "type": "data", "data": data }],
    });
    let response = |status: &str| json!({ "object": "response", "status": status, "id": "r" }).to_string();
    Answer::frames([response("created"), response("in_progress"), message.to_string(), response("completed")])
}

/// An agent that calls a function when it is told to, and else counts what it was asked.
fn counting() -> Upstream {
    let mut times = 0;
    Upstream::deciding(move |asked| {
        times += 1;
        match told(asked).last() {
            Some(last) if last == "call" => calling(&format!("call-{times}")),
            Some(last) if last == "ask" => approval("appr-1"),
            Some(last) if last == "fail" => Answer::whole(400, &[("content-type", "application/json")], "{}"),
            _ => saying(&[&format!("answer {times}")]),
        }
    })
}

/// What an agent was told, one word or kind a message.
fn told(asked: &Asked) -> Vec<String> {
    let input = asked.json()["input"].as_array().cloned().unwrap_or_default();
    input
        .iter()
        .map(|message| match message["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => message["type"].as_str().expect("a type").to_owned(),
        })
        .collect()
}

fn last_told(upstream: &Upstream) -> Vec<String> {
    told(upstream.asked().last().expect("the agent was asked"))
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

/// A function the client has.
fn tools() -> Value {
    json!([{ "type": "function", "name": "look", "parameters": {} }])
}

#[tokio::test]
async fn a_chain_of_unstored_responses_goes_on_over_its_socket() {
    for (own, second, third) in [
        ("", &["two"][..], &["three"][..]),
        (FORGETFUL, &["one", "answer 1", "two"], &["one", "answer 1", "two", "answer 2", "three"]),
    ] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let mut last = completed(socket.ask(&json!({ "input": "one" })).await);
        for (input, sees) in [("two", second), ("three", third)] {
            let asks = json!({ "input": input, "previous_response_id": id(&last) });
            last = completed(socket.ask(&asks).await);
            assert_eq!(last_told(&upstream), sees, "{own}");
        }
        let sessions: Vec<Value> = upstream.asked().iter().map(|asked| asked.json()["session_id"].clone()).collect();
        assert!(sessions.windows(2).all(|pair| pair[0] == pair[1]), "one session: {sessions:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_open_is_answered_over_its_socket() {
    for own in ["", FORGETFUL] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let called = completed(socket.ask(&json!({ "input": "call", "tools": tools() })).await);
        assert_eq!(called["response"]["output"][0]["call_id"], "call-1");
        let output = json!([{ "type": "function_call_output", "call_id": "call-1", "output": "18 C" }]);
        let asks = json!({ "input": output, "previous_response_id": id(&called), "tools": tools() });
        completed(socket.ask(&asks).await);
        let told = upstream.asked()[1].json();
        let input = told["input"].as_array().expect("an input");
        let last = input.last().expect("an output");
        assert_eq!(
            (&last["type"], &last["content"][0]["data"]["output"]),
            (&json!("function_call_output"), &json!("18 C"))
        );
        assert_eq!(input.len(), if own.is_empty() { 1 } else { 3 }, "{told}");
    }
}

#[tokio::test]
async fn on_another_socket_and_over_http_it_does_not_exist() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let first = completed(socket.ask(&json!({ "input": "one" })).await);
    let asks = json!({ "input": "two", "previous_response_id": id(&first) });
    let mut other = Socket::open(gateway.address, "/v1/responses").await;
    not_found(&other.ask(&asks).await);
    let mut over_http = asks.clone();
    over_http["model"] = json!("friday");
    let answer = gateway.post("/v1/responses", &over_http).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
    for path in ["", "/input_items", "?stream=true"] {
        assert_eq!(gateway.get(&format!("/v1/responses/{}{path}", id(&first))).await.status, 404, "{path}");
    }
    // What others tried has no effect on it.
    completed(socket.ask(&asks).await);
}

#[tokio::test]
async fn a_continuation_that_fails_evicts_what_it_was_to_go_on_from() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let wrong = json!([{ "type": "function_call_output", "call_id": "nothing", "output": "x" }]);
    for input in [wrong, json!("fail")] {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one" })).await);
        let failed = socket.ask(&json!({ "input": input, "previous_response_id": id(&first) })).await;
        assert_ne!(failed["type"], "response.completed");
        not_found(&socket.ask(&json!({ "input": "two", "previous_response_id": id(&first) })).await);
        // The connection is none the worse for it.
        completed(socket.ask(&json!({ "input": "anew" })).await);
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
async fn a_warm_up_asks_nothing_and_counts_as_said() {
    for own in ["", FORGETFUL] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let warm = json!({ "generate": false, "stream": true, "input": [{ "role": "developer", "content": "rules" }] });
        socket.create(&warm).await;
        let events = socket.answer().await;
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "response.completed"]);
        let last = events.last().expect("events");
        assert_eq!((&last["response"]["output"], &last["response"]["status"]), (&json!([]), &json!("completed")));
        assert!(upstream.asked().is_empty(), "the agent is asked nothing");

        let first = completed(socket.ask(&json!({ "input": "one", "previous_response_id": id(last) })).await);
        assert_eq!(last_told(&upstream), ["rules", "one"], "{own}");
        // Warmed up in the middle, too; and a warm-up that was gone on from is gone on from again.
        let second = completed(
            socket.ask(&json!({ "generate": false, "input": "more", "previous_response_id": id(&first) })).await,
        );
        completed(socket.ask(&json!({ "input": "two", "previous_response_id": id(&second) })).await);
        let whole = ["rules", "one", "answer 1", "more", "two"];
        assert_eq!(last_told(&upstream), if own.is_empty() { &whole[3..] } else { &whole[..] }, "{own}");
        completed(socket.ask(&json!({ "input": "other", "previous_response_id": id(&second) })).await);
        assert_eq!(last_told(&upstream), ["rules", "one", "answer 1", "more", "other"], "{own}");
    }
}

#[tokio::test]
async fn a_branch_has_all_that_went_before_it_and_keeps_it() {
    for store in [false, true] {
        for own in ["", FORGETFUL] {
            let upstream = counting();
            let gateway = before(&upstream, own).await;
            let mut socket = Socket::open(gateway.address, "/v1/responses").await;
            let first = completed(socket.ask(&json!({ "input": "one", "store": store })).await);
            let on =
                |input: &str, last: &Value| json!({ "input": input, "store": store, "previous_response_id": id(last) });
            completed(socket.ask(&on("two", &first)).await);
            let branch = completed(socket.ask(&on("other", &first)).await);
            assert_eq!(last_told(&upstream), ["one", "answer 1", "other"], "{own}");
            completed(socket.ask(&on("further", &branch)).await);
            let whole = ["one", "answer 1", "other", "answer 3", "further"];
            assert_eq!(last_told(&upstream), if own.is_empty() { &whole[4..] } else { &whole[..] }, "{own}");
        }
    }
}

#[tokio::test]
async fn stored_and_unstored_responses_follow_one_another() {
    for own in ["", FORGETFUL] {
        let upstream = counting();
        let gateway = before(&upstream, own).await;
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one", "store": true })).await);
        let second = completed(socket.ask(&json!({ "input": "two", "previous_response_id": id(&first) })).await);
        assert_eq!(last_told(&upstream), ["one", "answer 1", "two"], "{own}");
        let asks = json!({ "input": "three", "previous_response_id": id(&second), "store": true });
        let third = completed(socket.ask(&asks).await);
        drop(socket);
        // What is stored keeps its context when the connection is gone, and what was not stored is gone with it.
        let over_http =
            |input: &str, last: &Value| json!({ "model": "friday", "input": input, "previous_response_id": id(last) });
        let fourth = gateway.post("/v1/responses", &over_http("four", &third)).await;
        assert_eq!(fourth.status, 200, "{}", fourth.text());
        let whole = ["one", "answer 1", "two", "answer 2", "three", "answer 3", "four"];
        assert_eq!(last_told(&upstream), if own.is_empty() { &whole[6..] } else { &whole[..] }, "{own}");
        assert_eq!(gateway.post("/v1/responses", &over_http("x", &second)).await.status, 400);
        // Nor did it come between the stored ones.
        let beside = gateway.post("/v1/responses", &over_http("beside", &first)).await;
        assert_eq!(beside.status, 200, "{}", beside.text());
        assert_eq!(
            last_told(&upstream),
            if own.is_empty() { vec!["beside"] } else { vec!["one", "answer 1", "beside"] }
        );
    }
}

#[tokio::test]
async fn a_question_outlives_the_socket_it_was_asked_over() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let asked = completed(socket.ask(&json!({ "input": "ask" })).await);
    let question = asked["response"]["output"].as_array().expect("output").last().expect("a question").clone();
    assert_eq!(question["type"], "mcp_approval_request");
    drop(socket);
    let mut other = Socket::open(gateway.address, "/v1/responses").await;
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true });
    completed(other.ask(&json!({ "input": [{ "role": "user", "content": "ask" }, question, answer] })).await);
    let sessions: Vec<Value> = upstream.asked().iter().map(|asked| asked.json()["session_id"].clone()).collect();
    assert_eq!(sessions[0], sessions[1], "the answer goes where it was asked");
}

#[tokio::test]
async fn nothing_is_left_of_a_socket_that_is_closed() {
    let upstream = counting();
    let gateway = before(&upstream, FORGETFUL).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut socket = Socket::open(gateway.address, "/v1/responses").await;
        let first = completed(socket.ask(&json!({ "input": "one" })).await);
        let asks = json!({ "input": "two", "previous_response_id": id(&first) });
        ids.push(id(&completed(socket.ask(&asks).await)).to_owned());
    }
    // Over another socket nothing of it is seen at any time; the log of the store has nothing of it either.
    until("the responses to be gone", async || {
        let mut gone = true;
        for id in &ids {
            gone &= gateway.get(&format!("/v1/responses/{id}")).await.status == 404;
        }
        gone.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_long_message_is_answered_like_a_short_one() {
    let upstream = counting();
    let gateway = before(&upstream, "").await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    let long = "long ".repeat(100_000);
    let first = completed(socket.ask(&json!({ "input": long })).await);
    assert_eq!(last_told(&upstream), [long]);
    completed(socket.ask(&json!({ "input": "short", "previous_response_id": id(&first) })).await);
}
