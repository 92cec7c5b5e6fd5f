//! Agents that speak Chat Completions, behind routes of other protocols: their texts, their calls, and their failures.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, user_turn, user_turn_in};
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

/// A gateway with a Chat Completions server behind an `agent-api` and a `responses` route.
async fn gateway(upstream: &Upstream) -> Gateway {
    let url = upstream.url("/v1");
    Gateway::with_config(&format!(
        "[store]\nkind = \"memory\"\n\
         [agents.chat.upstream]\nprotocol = \"chat-completions\"\nurl = \"{url}\"\nretries = 0\noptions = {{ model = \"m\" }}\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n"
    ))
    .await
}

/// A chunk with one choice.
fn chunk(delta: &Value, reason: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice] }).to_string()
}

const USAGE: &str =
    r#"{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;

/// A server that streams this text.
fn text_reply(words: &[&str]) -> Reply {
    let words = words.iter().map(|word| chunk(&json!({ "content": word }), None));
    let end = [chunk(&json!({}), Some("stop")), USAGE.to_owned(), "[DONE]".to_owned()];
    Reply::frames(words.chain(end))
}

/// A server that calls a tool of the client.
fn call_reply() -> Reply {
    let head =
        json!([{ "index": 0, "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "" } }]);
    let rest = json!([{ "index": 0, "function": { "arguments": "{\"city\":\"Paris\"}" } }]);
    Reply::frames([
        chunk(&json!({ "reasoning_content": "I need it" }), None),
        chunk(&json!({ "content": "Let me look." }), None),
        chunk(&json!({ "tool_calls": head }), None),
        chunk(&json!({ "tool_calls": rest }), None),
        chunk(&json!({}), Some("tool_calls")),
        "[DONE]".to_owned(),
    ])
}

fn tools() -> Value {
    json!([{ "type": "function", "function": { "name": "weather", "description": "", "parameters": { "type": "object" } } }])
}

/// The messages of the last request that reached the server.
fn last_messages(upstream: &Upstream) -> Value {
    upstream.requests().pop().expect("a request").json()["messages"].clone()
}

/// The server's expected request after the tool of [`call_reply`] was run.
fn expected_round_trip(user: &str) -> Value {
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":\"Paris\"}" } });
    json!([
        { "role": "user", "content": user },
        { "role": "assistant", "content": "Let me look.", "reasoning_content": "I need it", "tool_calls": [call] },
        { "role": "tool", "content": "18 C", "tool_call_id": "call_1" }
    ])
}

#[tokio::test]
async fn text_is_streamed_while_the_server_is_still_writing() {
    let reply = Reply::events()
        .frame(&chunk(&json!({ "role": "assistant", "content": "" }), None))
        .frame(&chunk(&json!({ "content": "first" }), None))
        .wait("on")
        .frame(&chunk(&json!({ "content": " second" }), Some("stop")))
        .frame(USAGE)
        .frame("[DONE]")
        .done();
    let upstream = Upstream::always(reply);
    let gateway = gateway(&upstream).await;

    let mut stream = gateway.start_turn("chat", &user_turn("hi")).await;
    let mut seen = stream.read_until("first").await;
    upstream.open("on");
    seen.extend(stream.frames().await);
    let transcript = Transcript::parse(&seen).expect_completed();
    assert_eq!(transcript.text(), "first second");
    assert_eq!(transcript.last["usage"]["input_tokens"], 3);

    let request = upstream.requests().pop().expect("a request");
    assert_eq!(request.path, "/v1/chat/completions");
    let body = request.json();
    assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
    assert_eq!(body["messages"], json!([{ "role": "user", "content": "hi" }]));
}

#[tokio::test]
async fn the_whole_conversation_is_sent_each_time() {
    let upstream = Upstream::in_order([text_reply(&["one"]), text_reply(&["two"])]);
    let gateway = gateway(&upstream).await;
    gateway.run_turn("chat", &user_turn_in("s", "first")).await.expect_completed();
    gateway.run_turn("chat", &user_turn_in("s", "second")).await.expect_completed();
    assert_eq!(
        last_messages(&upstream),
        json!([
            { "role": "user", "content": "first" },
            { "role": "assistant", "content": "one" },
            { "role": "user", "content": "second" }
        ])
    );
}

#[tokio::test]
async fn a_tool_of_an_agent_api_client_goes_round() {
    let upstream = Upstream::in_order([call_reply(), text_reply(&["18 degrees"])]);
    let gateway = gateway(&upstream).await;
    let mut body = user_turn_in("s", "weather?");
    body["tools"] = tools();
    let called = gateway.run_turn("chat", &body).await.expect_completed();
    let call = &called.messages.last().expect("a call");
    assert_eq!((&call["type"], &call["content"][0]["data"]["call_id"]), (&json!("function_call"), &json!("call_1")));
    assert_eq!(upstream.requests()[0].json()["tools"], tools());

    let output = json!({ "call_id": "call_1", "output": "18 C" });
    let answer = json!({ "session_id": "s", "input": [
        { "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": output }] }
    ] });
    assert_eq!(gateway.run_turn("chat", &answer).await.expect_completed().text(), "18 degrees");
    assert_eq!(last_messages(&upstream), expected_round_trip("weather?"));
    assert_eq!(upstream.requests()[1].json()["tools"], tools(), "declared once, in force for the session");
}

#[tokio::test]
async fn a_tool_of_a_responses_client_goes_round() {
    let upstream = Upstream::in_order([call_reply(), text_reply(&["18 ", "degrees"])]);
    let gateway = gateway(&upstream).await;
    let flat = json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let first = json!({ "model": "chat", "input": "weather?", "tools": flat });
    let called = gateway.post("/v1/responses", &first).await;
    assert_eq!(called.status, 200, "{}", called.text());
    let called = called.json();
    let kinds: Vec<&str> =
        called["output"].as_array().expect("items").iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(called["output"][2]["call_id"], "call_1");

    let second = json!({ "model": "chat", "previous_response_id": called["id"], "stream": true, "tools": flat, "input": [
        { "type": "function_call_output", "call_id": "call_1", "output": "18 C" }
    ] });
    let answered = gateway.post("/v1/responses", &second).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    assert!(
        answered.text().contains(r#""delta":"18 ""#) && answered.text().contains("response.completed"),
        "{}",
        answered.text()
    );
    assert_eq!(last_messages(&upstream), expected_round_trip("weather?"));
}

#[tokio::test]
async fn a_server_gets_no_tools_of_the_session_if_none_may_be_called() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = gateway(&upstream).await;
    let flat = json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let mut body = json!({ "model": "chat", "input": "weather?", "tools": flat });
    let first = gateway.post("/v1/responses", &body).await.json();
    assert_eq!(upstream.requests()[0].json()["tools"], tools());

    (body["previous_response_id"], body["tool_choice"]) = (first["id"].clone(), json!("none"));
    assert_eq!(gateway.post("/v1/responses", &body).await.status, 200);
    let sent = upstream.requests()[1].json();
    assert_eq!((&sent["tools"], &sent["tool_choice"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_refusal_is_answered_in_the_clients_protocol() {
    let error = json!({ "error": { "message": "8192 tokens at most", "code": "context_length_exceeded" } }).to_string();
    let json_type = [("content-type", "application/json")];
    let upstream = Upstream::always(Reply::complete(400, &json_type, &error));
    let gateway = gateway(&upstream).await;

    let refused = gateway.post("/agents/chat/process", &user_turn("hi")).await;
    let body = refused.json();
    assert_eq!((refused.status, &body["code"]), (400, &json!("MODEL_CONTEXT_LENGTH_EXCEEDED")), "{body}");
    assert!(body["detail"].to_string().contains("8192 tokens at most"), "{body}");
    let refused = gateway.post("/v1/responses", &json!({ "model": "chat", "input": "hi" })).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(refused.text().contains("8192 tokens"), "{}", refused.text());
}

#[tokio::test]
async fn text_of_a_broken_server_is_kept_and_the_run_fails() {
    let begun = || Reply::events().frame(&chunk(&json!({ "content": "half" }), None));
    let ends = [
        ("the connection is closed", begun().close()),
        ("the body ends", begun().done()),
        ("an error", begun().frame(r#"{"error":{"message":"out of memory"}}"#).done()),
        ("no JSON", begun().frame("<html>").done()),
    ];
    for (what, reply) in ends {
        let upstream = Upstream::always(reply);
        let gateway = gateway(&upstream).await;
        let mut stream = gateway.start_turn("chat", &user_turn("hi")).await;
        let transcript = Transcript::parse(&stream.frames().await);
        assert_eq!(
            (transcript.last["status"].as_str(), transcript.text().as_str()),
            (Some("failed"), "half"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_server_that_keeps_its_connection_open_is_not_waited_for() {
    let reply = Reply::events().frame(&chunk(&json!({ "content": "all" }), Some("stop"))).frame("[DONE]").hang();
    let upstream = Upstream::always(reply);
    let gateway = gateway(&upstream).await;
    assert_eq!(gateway.run_turn("chat", &user_turn("hi")).await.expect_completed().text(), "all");
}
