//! AG-Kit through the running gateway: the four scenarios of its documentation, and errors.

use serde_json::{Value, json};

use crate::support::agent::{approval_request, frames, text_reply, text_reply_then_hang, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::http::Response;
use crate::support::upstream::{self, Upstream, unused_address};

const ROUTE: &str = "[[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n";

async fn demo() -> Gateway {
    Gateway::start(&format!("{DEMO}{ROUTE}")).await
}

async fn before(upstream: &Upstream, options: &str) -> Gateway {
    let agent = agent("friday", &upstream.url("/process"), "", "retries = 0");
    Gateway::start(&format!("{agent}{ROUTE}{options}")).await
}

async fn send(gateway: &Gateway, agent: &str, body: &Value) -> Response {
    gateway.post(&format!("/kit/{agent}/send-message"), body).await
}

/// Sends a message and returns the events of its stream, which must end with `[DONE]`.
async fn events(gateway: &Gateway, agent: &str, body: &Value) -> Vec<Value> {
    let answer = send(gateway, agent, body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream; charset=utf-8")));
    parse(answer.text())
}

fn parse(stream: &str) -> Vec<Value> {
    let frames = stream.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    let mut frames: Vec<&str> = frames.collect();
    assert_eq!(frames.pop(), Some("[DONE]"), "{stream}");
    frames.iter().map(|frame| serde_json::from_str(frame).expect("JSON")).collect()
}

fn user_message(conversation: &str, text: &str) -> Value {
    json!({ "conversationId": conversation, "messages": [{ "role": "user", "content": text }] })
}

fn resume_body(conversation: &str, id: &Value, payload: Value) -> Value {
    json!({ "conversationId": conversation, "resume": { "interruptId": id, "payload": payload } })
}

fn text(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["content"].as_str()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn a_chat_is_streamed_as_text() {
    let upstream = Upstream::always(text_reply(&["Hello", " there!"]));
    let gateway = before(&upstream, "").await;
    let received = events(&gateway, "friday", &user_message("c1", "hi")).await;
    assert_eq!(
        received,
        [json!({ "type": "text", "content": "Hello" }), json!({ "type": "text", "content": " there!" })]
    );
    let request = upstream.requests().pop().expect("a question").json();
    assert_eq!((&request["session_id"], &request["input"][0]["content"][0]["text"]), (&json!("c1"), &json!("hi")));

    // The cloud form of the path accepts any bot name if there is one agent.
    let cloud = gateway.post("/kit/friday/v1/aibot/bots/anything/send-message", &user_message("c1", "again")).await;
    assert_eq!(text(&parse(cloud.text())), "Hello there!");
    assert_eq!(gateway.get("/kit/friday/healthz").await.json()["status"], "healthy");
}

#[tokio::test]
async fn a_client_tool_is_called_and_its_result_is_passed_on() {
    let gateway = demo().await;
    let parameters = r#"{"type":"object","properties":{"color":{"type":"string"}}}"#;
    let mut body = user_message("c2", "client tool");
    body["tools"] = json!([{ "name": "set_bg", "description": "the background", "parameters": parameters }]);
    let received = events(&gateway, "demo", &body).await;
    assert_eq!(kinds(&received), ["tool-call-start", "tool-call-args", "tool-call-end"]);
    assert_eq!(received[0]["toolCallName"], "set_bg");

    let result = json!({
        "conversationId": "c2",
        "messages": [{ "role": "tool", "toolCallId": received[0]["toolCallId"], "content": "it is blue" }],
    });
    let received = events(&gateway, "demo", &result).await;
    assert!(text(&received).contains("it is blue"), "{received:?}");
    assert_eq!(send(&gateway, "demo", &result).await.status, 409, "a result is accepted once");
}

#[tokio::test]
async fn a_payload_with_a_type_of_its_own_is_the_result_of_a_client_tool() {
    let gateway = demo().await;
    let mut body = user_message("c4", "client tool");
    body["tools"] = json!([{ "name": "set_bg", "description": "the background", "parameters": "{}" }]);
    let received = events(&gateway, "demo", &body).await;
    let report = json!({ "type": "report", "approved": true });
    let received = events(&gateway, "demo", &resume_body("c4", &received[0]["toolCallId"], report)).await;
    assert!(text(&received).contains("report"), "{received:?}");
}

#[tokio::test]
async fn client_tools_are_sent_again_with_their_result() {
    let call = [
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"function_call","role":"assistant","content":[{"type":"data","data":{"call_id":"k1","name":"set_bg","arguments":"{}"}}]}"#,
        r#"{"object":"response","status":"completed","id":"r"}"#,
    ];
    let upstream = Upstream::in_order([upstream::Reply::frames(call).done(), text_reply(&["done"])]);
    let gateway = before(&upstream, "").await;

    let mut body = user_message("c", "blue");
    body["tools"] = json!([{ "name": "set_bg", "description": "d", "parameters": { "type": "object" } }]);
    events(&gateway, "friday", &body).await;
    let result = json!({ "conversationId": "c", "messages": [{ "role": "tool", "toolCallId": "k1", "content": "x" }] });
    events(&gateway, "friday", &result).await;
    let requests = upstream.requests();
    assert_eq!(requests[0].json()["tools"], requests[1].json()["tools"]);
    assert_eq!(requests[1].json()["input"][0]["content"][0]["data"], json!({ "call_id": "k1", "output": "x" }));
}

#[tokio::test]
async fn a_server_side_tool_call_is_streamed_with_its_result() {
    let gateway = demo().await;
    let received = events(&gateway, "demo", &user_message("c3", "tool")).await;
    assert_eq!(kinds(&received), ["tool-call-start", "tool-call-args", "tool-call-end", "tool-result", "text"]);
}

#[tokio::test]
async fn an_interrupt_is_answered_once_and_only_by_a_resume() {
    let gateway = demo().await;
    let received = events(&gateway, "demo", &user_message("c4", "approval")).await;
    let interrupt = received.last().expect("an interrupt").clone();
    assert_eq!(
        (&interrupt["type"], &interrupt["payload"]["action_request"]["action"]),
        (&json!("interrupt"), &json!("send_mail"))
    );
    let id = &interrupt["id"];

    // Every new message gets the same interrupt again, behind the reason.
    let reason = "not understood as a decision: send one of accept, edit, respond, reject";
    let again = [json!({ "type": "text", "content": reason }), interrupt.clone()];
    assert_eq!(events(&gateway, "demo", &user_message("c4", "yes")).await, again);
    for nothing in [json!("perhaps"), json!({}), json!(null), json!({ "approved": "yes" })] {
        let received = events(&gateway, "demo", &resume_body("c4", id, nothing)).await;
        assert_eq!(kinds(&received), ["error"]);
    }

    let unknown = send(&gateway, "demo", &resume_body("c4", &json!("another"), json!(true))).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (409, &json!("not_waiting")));
    assert_eq!(events(&gateway, "demo", &user_message("c4", "hello?")).await, again, "it is still open");

    let edit = json!(r#"{"type":"edit","args":{"to":"grace@example.com"}}"#);
    let received = events(&gateway, "demo", &resume_body("c4", id, edit)).await;
    assert!(text(&received).contains("grace@example.com"), "{received:?}");
    assert_eq!(send(&gateway, "demo", &resume_body("c4", id, json!(true))).await.status, 409);
    let received = events(&gateway, "demo", &user_message("c4", "echo go on")).await;
    assert_eq!(text(&received), "go on");
}

#[tokio::test]
async fn an_edit_is_refused_if_the_agent_does_not_support_edits() {
    let upstream = Upstream::in_order([approval_request("appr-1"), text_reply(&["done"])]);
    let gateway = before(&upstream, "").await;
    let received = events(&gateway, "friday", &user_message("c", "remove it")).await;
    assert_eq!(received.last().expect("an interrupt")["payload"]["config"]["allow_edit"], false);
    let edit = json!({ "approved": true, "editedArgs": { "path": "/" } });
    assert_eq!(kinds(&events(&gateway, "friday", &resume_body("c", &json!("appr-1"), edit)).await), ["error"]);
    assert_eq!(upstream.requests().len(), 1, "the edit did not reach the agent");
    assert_eq!(text(&events(&gateway, "friday", &resume_body("c", &json!("appr-1"), json!(true))).await), "done");
}

#[tokio::test]
async fn a_tool_message_for_an_approval_is_read_as_its_answer() {
    let upstream = Upstream::in_order([approval_request("appr-1"), text_reply(&["done"])]);
    let gateway = before(&upstream, "").await;
    events(&gateway, "friday", &user_message("c", "remove it")).await;
    let answer = |text: &str| json!({ "conversationId": "c", "messages": [{ "role": "tool", "toolCallId": "appr-1", "content": text }] });
    assert_eq!(kinds(&events(&gateway, "friday", &answer("I cannot say")).await), ["error"]);
    assert_eq!(text(&events(&gateway, "friday", &answer("no")).await), "done");
    let received = upstream.requests().pop().expect("the answer").json();
    assert_eq!(received["input"][1]["content"][0]["data"]["approve"], false);
}

#[tokio::test]
async fn an_open_interrupt_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{DEMO}{ROUTE}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let interrupt = events(&gateway, "demo", &user_message("c", "approval")).await.pop().expect("an interrupt");
    gateway.stop().await;
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;

    assert_eq!(events(&gateway, "demo", &user_message("c", "hello?")).await.last(), Some(&interrupt));
    let received = events(&gateway, "demo", &resume_body("c", &interrupt["id"], json!("{\"approved\":true}"))).await;
    assert!(text(&received).contains("was sent"), "{received:?}");
}

#[tokio::test]
async fn a_busy_conversation_refuses_or_queues() {
    for (options, status) in [("", 409), ("options = { busy = \"queue\" }\n", 200)] {
        let upstream = Upstream::in_order([text_reply_until(&["first"], "go"), text_reply(&["second"])]);
        let gateway = before(&upstream, options).await;
        let mut first = gateway.start_post("/kit/friday/send-message", &user_message("c", "one")).await;
        assert_eq!(first.status().await, 200);

        let second = async { send(&gateway, "friday", &user_message("c", "two")).await };
        let release = async {
            if status == 409 {
                return;
            }
            upstream.open("go");
        };
        let (second, ()) = tokio::join!(second, release);
        assert_eq!(second.status, status, "{}", second.text());
        upstream.open("go");
        assert_eq!(text(&parse(first.response().await.text())), "first");
    }
}

#[tokio::test]
async fn an_error_is_a_status_before_the_stream_and_an_event_within_it() {
    let away = agent("friday", &format!("http://{}/process", unused_address()), "", "retries = 0");
    let gateway = Gateway::start(&format!("{away}{ROUTE}")).await;
    let refused = send(&gateway, "friday", &user_message("c", "hi")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (502, &json!("upstream_unreachable")));

    let limited = Upstream::always(upstream::Reply::complete(429, &[("retry-after", "7")], "slow down"));
    let gateway = before(&limited, "").await;
    let refused = send(&gateway, "friday", &user_message("c", "hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("7")));

    let half: Vec<String> = frames(&["half"]).into_iter().take(4).collect();
    let broken = Upstream::always(upstream::Reply::frames(half).done());
    let gateway = before(&broken, "").await;
    let received = events(&gateway, "friday", &user_message("c", "hi")).await;
    assert_eq!((kinds(&received), text(&received)), (vec!["text", "error"], "half".to_owned()));
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_agent() {
    let upstream = Upstream::always(text_reply_then_hang(&["half"]));
    let gateway = before(&upstream, "").await;
    let mut stream = gateway.start_post("/kit/friday/send-message", &user_message("c", "hi")).await;
    stream.read_until("half").await;
    drop(stream);
    upstream.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn bad_requests_never_reach_the_agent() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = before(&upstream, "").await;
    let path = "/kit/friday/send-message";
    let json: &[(&str, &str)] = &[("content-type", "application/json")];
    for (method, headers, body, status) in [
        ("POST", json, "not json", 400),
        ("POST", json, r#"{"conversationId":"c","messages":[{"role":"tool","content":"x"}]}"#, 400),
        ("POST", json, r#"{"conversationId":"c"}"#, 400),
        ("POST", json, r#"{"threadId":"t","runId":"r","messages":[]}"#, 400),
        ("POST", &[("content-type", "text/plain")], r#"{"messages":[{"role":"user","content":"x"}]}"#, 415),
        ("GET", json, "", 405),
    ] {
        let response = gateway.open(method, path, headers, body.as_bytes()).await.response().await;
        assert_eq!(response.status, status, "{body}: {}", response.text());
        assert!(response.json()["error"]["code"].is_string());
    }
    assert_eq!(gateway.get("/kit/friday/nothing").await.status, 404);
    assert!(upstream.requests().is_empty());
}
