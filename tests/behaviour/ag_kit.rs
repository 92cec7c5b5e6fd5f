//! AG-Kit through the running gateway: the four scenarios of its page, and what goes wrong on the way.

use serde_json::{Value, json};

use crate::support::agent::{approval, frames, saying, saying_and_hanging, saying_until};
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::http::Answer;
use crate::support::upstream::{self, Upstream, nobody};

const ROUTE: &str = "[[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n";

async fn demo() -> Gateway {
    Gateway::start(&format!("{DEMO}{ROUTE}")).await
}

async fn before(upstream: &Upstream, options: &str) -> Gateway {
    let agent = agent("friday", &upstream.url("/process"), "", "retries = 0");
    Gateway::start(&format!("{agent}{ROUTE}{options}")).await
}

async fn send(gateway: &Gateway, agent: &str, body: &Value) -> Answer {
    gateway.post(&format!("/kit/{agent}/send-message"), body).await
}

/// The events of a stream that ends as it should.
async fn events(gateway: &Gateway, agent: &str, body: &Value) -> Vec<Value> {
    let answer = send(gateway, agent, body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream; charset=utf-8")));
    read(answer.text())
}

fn read(stream: &str) -> Vec<Value> {
    let frames = stream.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    let mut frames: Vec<&str> = frames.collect();
    assert_eq!(frames.pop(), Some("[DONE]"), "{stream}");
    frames.iter().map(|frame| serde_json::from_str(frame).expect("JSON")).collect()
}

fn says(conversation: &str, text: &str) -> Value {
    json!({ "conversationId": conversation, "messages": [{ "role": "user", "content": text }] })
}

fn resumes(conversation: &str, id: &Value, payload: Value) -> Value {
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
    let upstream = Upstream::always(saying(&["Hello", " there!"]));
    let gateway = before(&upstream, "").await;
    let told = events(&gateway, "friday", &says("c1", "hi")).await;
    assert_eq!(told, [json!({ "type": "text", "content": "Hello" }), json!({ "type": "text", "content": " there!" })]);
    let asked = upstream.asked().pop().expect("a question").json();
    assert_eq!((&asked["session_id"], &asked["input"][0]["content"][0]["text"]), (&json!("c1"), &json!("hi")));
    // The cloud form of the path takes any name where there is one agent.
    let cloud = gateway.post("/kit/friday/v1/aibot/bots/anything/send-message", &says("c1", "again")).await;
    assert_eq!(text(&read(cloud.text())), "Hello there!");
    assert_eq!(gateway.get("/kit/friday/healthz").await.json()["status"], "healthy");
}

#[tokio::test]
async fn a_client_tool_is_called_and_its_result_goes_on() {
    let gateway = demo().await;
    let parameters = r#"{"type":"object","properties":{"color":{"type":"string"}}}"#;
    let mut body = says("c2", "client tool");
    body["tools"] = json!([{ "name": "set_bg", "description": "the background", "parameters": parameters }]);
    let told = events(&gateway, "demo", &body).await;
    assert_eq!(kinds(&told), ["tool-call-start", "tool-call-args", "tool-call-end"]);
    assert_eq!(told[0]["toolCallName"], "set_bg");
    let result = json!({
        "conversationId": "c2",
        "messages": [{ "role": "tool", "toolCallId": told[0]["toolCallId"], "content": "it is blue" }],
    });
    let told = events(&gateway, "demo", &result).await;
    assert!(text(&told).contains("it is blue"), "{told:?}");
    assert_eq!(send(&gateway, "demo", &result).await.status, 409, "a result is given once");
}

#[tokio::test]
async fn client_tools_are_told_again_with_their_result() {
    let call = [
        r#"{"object":"response","status":"created","id":"r"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"function_call","role":"assistant","content":[{"type":"data","data":{"call_id":"k1","name":"set_bg","arguments":"{}"}}]}"#,
        r#"{"object":"response","status":"completed","id":"r"}"#,
    ];
    let upstream = Upstream::answering([upstream::Answer::frames(call).done(), saying(&["done"])]);
    let gateway = before(&upstream, "").await;
    let mut body = says("c", "blue");
    body["tools"] = json!([{ "name": "set_bg", "description": "d", "parameters": { "type": "object" } }]);
    events(&gateway, "friday", &body).await;
    let result = json!({ "conversationId": "c", "messages": [{ "role": "tool", "toolCallId": "k1", "content": "x" }] });
    events(&gateway, "friday", &result).await;
    let asked = upstream.asked();
    assert_eq!(asked[0].json()["tools"], asked[1].json()["tools"]);
    assert_eq!(asked[1].json()["input"][0]["content"][0]["data"], json!({ "call_id": "k1", "output": "x" }));
}

#[tokio::test]
async fn a_tool_of_the_agent_s_comes_with_its_result() {
    let gateway = demo().await;
    let told = events(&gateway, "demo", &says("c3", "tool")).await;
    assert_eq!(kinds(&told), ["tool-call-start", "tool-call-args", "tool-call-end", "tool-result", "text"]);
}

#[tokio::test]
async fn an_interrupt_is_answered_once_and_by_nothing_but_an_answer() {
    let gateway = demo().await;
    let told = events(&gateway, "demo", &says("c4", "approval")).await;
    let interrupt = told.last().expect("an interrupt").clone();
    assert_eq!(
        (&interrupt["type"], &interrupt["payload"]["action_request"]["action"]),
        (&json!("interrupt"), &json!("send_mail"))
    );
    let id = &interrupt["id"];
    // New messages get it again; so does the next one.
    assert_eq!(events(&gateway, "demo", &says("c4", "yes")).await, std::slice::from_ref(&interrupt));
    for nothing in [json!("perhaps"), json!({}), json!(null), json!({ "approved": "yes" })] {
        let told = events(&gateway, "demo", &resumes("c4", id, nothing)).await;
        assert_eq!(kinds(&told), ["error"]);
    }
    let unknown = send(&gateway, "demo", &resumes("c4", &json!("another"), json!(true))).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (409, &json!("not_waiting")));
    assert_eq!(
        events(&gateway, "demo", &says("c4", "hello?")).await,
        std::slice::from_ref(&interrupt),
        "it is still open"
    );
    let edit = json!(r#"{"type":"edit","args":{"to":"grace@example.com"}}"#);
    let told = events(&gateway, "demo", &resumes("c4", id, edit)).await;
    assert!(text(&told).contains("grace@example.com"), "{told:?}");
    assert_eq!(send(&gateway, "demo", &resumes("c4", id, json!(true))).await.status, 409);
    let told = events(&gateway, "demo", &says("c4", "echo go on")).await;
    assert_eq!(text(&told), "go on");
}

#[tokio::test]
async fn an_edit_is_refused_where_the_agent_cannot_take_one() {
    let upstream = Upstream::answering([approval("appr-1"), saying(&["done"])]);
    let gateway = before(&upstream, "").await;
    let told = events(&gateway, "friday", &says("c", "remove it")).await;
    assert_eq!(told.last().expect("an interrupt")["payload"]["config"]["allow_edit"], false);
    let edit = json!({ "approved": true, "editedArgs": { "path": "/" } });
    assert_eq!(kinds(&events(&gateway, "friday", &resumes("c", &json!("appr-1"), edit)).await), ["error"]);
    assert_eq!(upstream.asked().len(), 1, "nothing ran");
    assert_eq!(text(&events(&gateway, "friday", &resumes("c", &json!("appr-1"), json!(true))).await), "done");
}

#[tokio::test]
async fn a_tool_message_for_an_approval_is_read_as_its_answer() {
    let upstream = Upstream::answering([approval("appr-1"), saying(&["done"])]);
    let gateway = before(&upstream, "").await;
    events(&gateway, "friday", &says("c", "remove it")).await;
    let answer = |text: &str| json!({ "conversationId": "c", "messages": [{ "role": "tool", "toolCallId": "appr-1", "content": text }] });
    assert_eq!(kinds(&events(&gateway, "friday", &answer("I cannot say")).await), ["error"]);
    assert_eq!(text(&events(&gateway, "friday", &answer("no")).await), "done");
    let told = upstream.asked().pop().expect("the answer").json();
    assert_eq!(told["input"][1]["content"][0]["data"]["approve"], false);
}

#[tokio::test]
async fn an_open_interrupt_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{DEMO}{ROUTE}");
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let asked = events(&gateway, "demo", &says("c", "approval")).await.pop().expect("an interrupt");
    gateway.stop().await;
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    assert_eq!(events(&gateway, "demo", &says("c", "hello?")).await, std::slice::from_ref(&asked));
    let told = events(&gateway, "demo", &resumes("c", &asked["id"], json!("{\"approved\":true}"))).await;
    assert!(text(&told).contains("was sent"), "{told:?}");
}

#[tokio::test]
async fn a_busy_conversation_refuses_or_queues() {
    for (options, status) in [("", 409), ("options = { busy = \"queue\" }\n", 200)] {
        let upstream = Upstream::answering([saying_until(&["first"], "go"), saying(&["second"])]);
        let gateway = before(&upstream, options).await;
        let mut first = gateway.posting("/kit/friday/send-message", &says("c", "one")).await;
        assert_eq!(first.status().await, 200);
        let second = async { send(&gateway, "friday", &says("c", "two")).await };
        let release = async {
            if status == 409 {
                return;
            }
            upstream.open("go");
        };
        let (second, ()) = tokio::join!(second, release);
        assert_eq!(second.status, status, "{}", second.text());
        upstream.open("go");
        assert_eq!(text(&read(first.answer().await.text())), "first");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_a_status_before_the_stream_and_an_error_in_it() {
    let away = agent("friday", &format!("http://{}/process", nobody()), "", "retries = 0");
    let gateway = Gateway::start(&format!("{away}{ROUTE}")).await;
    let refused = send(&gateway, "friday", &says("c", "hi")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (502, &json!("upstream_unreachable")));

    let limited = Upstream::always(upstream::Answer::whole(429, &[("retry-after", "7")], "slow down"));
    let gateway = before(&limited, "").await;
    let refused = send(&gateway, "friday", &says("c", "hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("7")));

    let half: Vec<String> = frames(&["half"]).into_iter().take(4).collect();
    let broken = Upstream::always(upstream::Answer::frames(half).done());
    let gateway = before(&broken, "").await;
    let told = events(&gateway, "friday", &says("c", "hi")).await;
    assert_eq!((kinds(&told), text(&told)), (vec!["text", "error"], "half".to_owned()));
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_agent() {
    let upstream = Upstream::always(saying_and_hanging(&["half"]));
    let gateway = before(&upstream, "").await;
    let mut stream = gateway.posting("/kit/friday/send-message", &says("c", "hi")).await;
    stream.until("half").await;
    drop(stream);
    upstream.wait_left(1).await;
}

#[tokio::test]
async fn bad_requests_never_reach_the_agent() {
    let upstream = Upstream::always(saying(&["hi"]));
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
        let answer = gateway.open(method, path, headers, body.as_bytes()).await.answer().await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.json()["error"]["code"].is_string());
    }
    assert_eq!(gateway.get("/kit/friday/nothing").await.status, 404);
    assert!(upstream.asked().is_empty());
}
