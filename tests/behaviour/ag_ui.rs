//! AG-UI through the running gateway: an agent of the same protocol behind it, threads whose history changes, resumed
//! streams, and clients that disconnect.
//!
//! Not here: the behaviour of every protocol (`pairs`, `cuts`, `matrix`), and the official clients
//! (`tests/conformance`).

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway, user_turn};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

const ROUTE: &str = "[[routes]]\nprotocol = \"ag-ui\"\npath = \"/ag-ui/{agent}\"\n";
/// An agent that pauses between words.
const SLOW: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 20 } }\n";

fn input(thread: &str, run: &str, messages: Value) -> Value {
    json!({ "threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": messages })
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

fn text(events: &[Value]) -> String {
    let pieces = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    pieces.filter_map(|event| event["delta"].as_str()).collect()
}

async fn run(gateway: &Gateway, body: &Value) -> Vec<Value> {
    let answer = gateway.post("/ag-ui/demo", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    events(answer.text())
}

/// The messages that a front end keeps of these events: texts only.
fn kept(events: &[Value]) -> Vec<Value> {
    let starts = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_START");
    starts
        .map(|start| {
            let own = events.iter().filter(|event| event["messageId"] == start["messageId"]);
            let text: String = own.filter_map(|event| event["delta"].as_str()).collect();
            json!({ "id": start["messageId"], "role": "assistant", "content": text })
        })
        .collect()
}

/// An agent's answer with every form of this protocol.
fn said() -> Vec<Value> {
    vec![
        json!({ "type": "STATE_SNAPSHOT", "snapshot": { "count": 1, "list": [] } }),
        json!({ "type": "STEP_STARTED", "stepName": "plan" }),
        json!({ "type": "REASONING_START", "messageId": "r1" }),
        json!({ "type": "REASONING_MESSAGE_START", "messageId": "r1", "role": "reasoning" }),
        json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "Let me think." }),
        json!({ "type": "REASONING_MESSAGE_END", "messageId": "r1" }),
        json!({ "type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "r1", "encryptedValue": "sealed" }),
        json!({ "type": "REASONING_END", "messageId": "r1" }),
        json!({ "type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant", "name": "planner" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Let me " }),
        json!({ "type": "STATE_DELTA", "delta": [{ "op": "replace", "path": "/count", "value": 2 }] }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "see." }),
        json!({ "type": "TEXT_MESSAGE_END", "messageId": "m1" }),
        json!({ "type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "look", "parentMessageId": "m1" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"at\":" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "\"sea\"}" }),
        json!({ "type": "TOOL_CALL_END", "toolCallId": "c1" }),
        json!({ "type": "TOOL_CALL_RESULT", "messageId": "t1", "toolCallId": "c1", "content": "blue", "role": "tool" }),
        json!({ "type": "STEP_FINISHED", "stepName": "plan" }),
        json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a1", "activityType": "PLAN", "content": { "done": 0 } }),
        json!({
            "type": "ACTIVITY_DELTA", "messageId": "a1", "activityType": "PLAN",
            "patch": [{ "op": "replace", "path": "/done", "value": 1 }],
        }),
        json!({ "type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "helper" }),
        json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": "s1" }),
        json!({ "type": "CUSTOM", "name": "mood", "value": { "is": "good" } }),
    ]
}

fn agent(upstream: &Upstream) -> String {
    let url = upstream.url("/agent");
    format!(
        "[agents.demo.upstream]\nprotocol = \"ag-ui\"\nurl = \"{url}\"\noptions = {{ protocol_version = \"1.0\", events = \"keep\" }}\n"
    )
}

/// Between a client and an agent of this protocol nothing is lost, and nothing is added. Only a result may come later.
#[tokio::test]
async fn every_event_of_an_agent_of_this_protocol_reaches_its_client_unchanged() {
    let ends = [
        json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": { "ok": true },
            "usage": [{ "inputTokens": 7, "outputTokens": 2, "totalTokens": 9, "reasoningTokens": 1 }] }),
        json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": { "type": "cancelled" } }),
        json!({ "type": "RUN_ERROR", "message": "it broke", "code": "BROKEN" }),
    ];
    for end in ends {
        let mut stream = vec![json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })];
        stream.extend(said());
        stream.push(end.clone());
        let frames: Vec<String> = stream.iter().map(Value::to_string).collect();
        let upstream = Upstream::with_handler(move |_| Reply::frames(frames.clone()));
        let gateway = Gateway::start(&format!("{}{ROUTE}", agent(&upstream))).await;
        let received = run(&gateway, &input("t", "r", json!([user("u1", "hi")]))).await;

        let (last, body) = received.split_last().expect("an end");
        assert_eq!(body[1..], said(), "{body:#?}");
        assert_eq!(*last, end);
    }
}

/// Without an option, an agent's events are kept if some route shows them.
#[tokio::test]
async fn events_reach_clients_of_the_agent_api_whose_route_shows_them() {
    let mut stream = vec![json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })];
    stream.extend(said());
    stream.push(json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }));
    let frames: Vec<String> = stream.iter().map(Value::to_string).collect();
    let upstream = Upstream::with_handler(move |_| Reply::frames(frames.clone()));
    let agent = agent(&upstream).replace(", events = \"keep\"", "");
    for option in [true, false] {
        let route = format!(
            "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\noptions = {{ protocol_events = {option} }}\n"
        );
        let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agent}{route}")).await;
        let answer = gateway.post("/agents/demo/process", &user_turn("hi")).await;
        assert_eq!(answer.text().contains(r#""STATE_SNAPSHOT""#), option, "{}", answer.text());
    }
}

#[tokio::test]
async fn every_field_of_a_client_reaches_an_agent_of_this_protocol() {
    let upstream = Upstream::with_handler(|_| {
        Reply::frames([
            json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }).to_string(),
            json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }).to_string(),
        ])
    });
    let gateway = Gateway::start(&format!("{}{ROUTE}", agent(&upstream))).await;
    let mut sent = input("t", "r", json!([user("u1", "hi")]));
    sent["state"] = json!({ "count": 1 });
    sent["context"] = json!([{ "description": "page", "value": "cart" }]);
    sent["forwardedProps"] = json!({ "theme": "dark" });
    sent["parentRunId"] = json!("r0");
    sent["tools"] = json!([{
        "name": "locate", "description": "d", "parameters": { "type": "object", "properties": { "x": {} } },
    }]);
    run(&gateway, &sent).await;

    let received = upstream.requests()[0].json();
    assert_eq!(received["messages"][0]["content"], "hi", "{received}");
    for name in ["threadId", "state", "context", "forwardedProps", "parentRunId", "tools", "protocolVersion"] {
        assert_eq!(received[name], sent[name], "{name}: {received}");
    }
}

#[tokio::test]
async fn a_question_of_an_agent_of_this_protocol_and_its_answer_pass_unchanged() {
    let interrupt = json!({
        "id": "i1", "reason": "acme:review", "message": "Publish?", "responseSchema": { "type": "object" },
        "metadata": { "draft": 7 },
    });
    let asked = interrupt.clone();
    let upstream = Upstream::with_handler(move |request| {
        let body = request.json();
        let mut end = json!({ "type": "RUN_FINISHED", "threadId": body["threadId"], "runId": body["runId"] });
        if body["resume"].is_null() {
            end["outcome"] = json!({ "type": "interrupt", "interrupts": [asked] });
        }
        let start = json!({ "type": "RUN_STARTED", "threadId": body["threadId"], "runId": body["runId"] });
        Reply::frames([start.to_string(), end.to_string()])
    });
    let gateway = Gateway::start(&format!("{}{ROUTE}", agent(&upstream))).await;
    let first = run(&gateway, &input("t", "r1", json!([user("u1", "hi")]))).await;
    let mut shown = first.last().expect("an end")["outcome"]["interrupts"][0].clone();
    shown["metadata"].as_object_mut().expect("an object").remove("agentapi");
    assert_eq!(shown, interrupt);

    let mut answer = input("t", "r2", json!([user("u1", "hi")]));
    answer["resume"] = json!([{ "interruptId": "i1", "status": "resolved", "payload": { "publish": true } }]);
    let second = run(&gateway, &answer).await;
    assert_eq!(second.last().expect("an end")["type"], "RUN_FINISHED", "{second:#?}");
    let received = &upstream.requests()[1].json()["resume"][0];
    assert_eq!((&received["interruptId"], &received["payload"]), (&json!("i1"), &json!({ "publish": true })));
}

#[tokio::test]
async fn a_result_of_one_of_two_calls_is_answered_with_the_other_call() {
    let upstream = Upstream::with_handler(|request| {
        let body = request.json();
        let mut frames = vec![json!({ "type": "RUN_STARTED", "threadId": body["threadId"], "runId": body["runId"] })];
        let mut end = json!({ "type": "RUN_FINISHED", "threadId": body["threadId"], "runId": body["runId"] });
        let messages = body["messages"].as_array().expect("a list");
        if !messages.iter().any(|message| message["role"] == "tool") {
            for id in ["c1", "c2"] {
                frames.push(json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "look" }));
                frames.push(json!({ "type": "TOOL_CALL_END", "toolCallId": id }));
            }
            end["outcome"] = json!({ "type": "success", "pendingToolCallIds": ["c1", "c2"] });
        }
        frames.push(end);
        Reply::frames(frames.iter().map(Value::to_string))
    });
    let gateway = Gateway::start(&format!("{}{ROUTE}", agent(&upstream))).await;
    let send = async |run_id: &str, results: &[&str], is_v1: bool| {
        let calls = ["c1", "c2"]
            .map(|id| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } }));
        let mut messages = vec![user("u1", "hi")];
        if !results.is_empty() {
            messages.push(json!({ "id": "a1", "role": "assistant", "toolCalls": calls }));
        }
        messages.extend(results.iter().map(
            |id| json!({ "id": format!("{id}_result"), "role": "tool", "toolCallId": id, "content": format!("saw {id}") }),
        ));
        let mut body = input("t", run_id, json!(messages));
        body["tools"] = json!([{ "name": "look", "description": "", "parameters": { "type": "object" } }]);
        if !is_v1 {
            body.as_object_mut().expect("an object").remove("protocolVersion");
        }
        run(&gateway, &body).await.pop().expect("an end")
    };

    let asked = send("r1", &[], true).await;
    assert_eq!(asked["outcome"]["pendingToolCallIds"], json!(["c1", "c2"]), "{asked}");
    for run_id in ["r2", "r3"] {
        let left = send(run_id, &["c1"], true).await;
        assert_eq!((&left["type"], &left["runId"]), (&json!("RUN_FINISHED"), &json!(run_id)), "{left}");
        assert_eq!(left["outcome"], json!({ "type": "success", "pendingToolCallIds": ["c2"] }));
    }
    let left = send("r4", &["c1"], false).await;
    assert_eq!((&left["type"], &left["outcome"]), (&json!("RUN_FINISHED"), &Value::Null), "{left}");
    assert_eq!(upstream.requests().len(), 1, "the agent waits for both");

    let end = send("r5", &["c2"], true).await;
    assert_eq!((&end["type"], &end["outcome"]), (&json!("RUN_FINISHED"), &Value::Null), "{end}");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    for result in ["saw c1", "saw c2"] {
        assert!(requests[1].json().to_string().contains(result), "{}", requests[1].json());
    }
}

#[tokio::test]
async fn an_interrupt_is_answered_once() {
    let gateway = Gateway::start(&format!("{DEMO}{ROUTE}")).await;
    let asked = run(&gateway, &input("t", "r1", json!([user("u1", "approval")]))).await;
    let interrupt = &asked.last().expect("an end")["outcome"]["interrupts"][0]["id"];

    let mut answer = input("t", "r2", json!([user("u1", "approval")]));
    answer["resume"] = json!([{ "interruptId": interrupt, "status": "resolved", "payload": { "approved": true } }]);
    let first = run(&gateway, &answer).await;
    assert!(text(&first).contains("The mail was sent"), "{first:#?}");

    answer["runId"] = json!("r3");
    let second = run(&gateway, &answer).await;
    let end = second.last().expect("an end");
    assert_eq!((&end["type"], &end["code"]), (&json!("RUN_ERROR"), &json!("INTERRUPT_NOT_FOUND")), "{second:#?}");
    assert_eq!(text(&second), "");
}

#[tokio::test]
async fn a_thread_restarts_with_another_history() {
    let gateway = Gateway::start(&format!("{DEMO}{ROUTE}")).await;
    let mut messages = vec![user("u1", "hello")];
    let first = run(&gateway, &input("t", "r1", json!(messages))).await;
    messages.extend(kept(&first));
    messages.push(user("u2", "history"));
    let second = run(&gateway, &input("t", "r2", json!(messages))).await;
    assert!(text(&second).contains("message 2 of yours"), "{}", text(&second));

    // The second answer is wanted again: the agent has not said it.
    let again = run(&gateway, &input("t", "r3", json!(messages))).await;
    assert!(text(&again).contains("message 2 of yours"), "{}", text(&again));
    let begun = run(&gateway, &input("t", "r4", json!([user("u1", "history")]))).await;
    assert!(text(&begun).contains("message 1 of yours"), "{}", text(&begun));
}

#[tokio::test]
async fn a_client_that_comes_back_gets_the_rest_while_the_agent_works_on() {
    let gateway = Gateway::start(&format!("{SLOW}{ROUTE}on_disconnect = \"detach\"\n")).await;
    let body = input("t", "r1", json!([user("u1", "long 40 20")]));
    let mut open = gateway.start_post("/ag-ui/demo", &body).await;
    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.push(open.frame().await.expect("the agent speaks"));
    }
    drop(open);

    let headers = [("content-type", "application/json"), ("last-event-id", "5")];
    let resumed = gateway.open("POST", "/ag-ui/demo", &headers, body.to_string().as_bytes()).await.response().await;
    seen.extend(events(resumed.text()));
    let whole = gateway.get("/ag-ui/demo?threadId=t&runId=r1").await;
    assert_eq!(seen, events(whole.text()));
    assert_eq!(seen.last().expect("an end")["type"], "RUN_FINISHED");
    // A browser that has the last event asks once more, and stops.
    let last = (seen.len() - 1).to_string();
    let path = "/ag-ui/demo?threadId=t&runId=r1";
    let done = gateway.open("GET", path, &[("last-event-id", last.as_str())], b"").await.response().await;
    assert_eq!((done.status, done.body.len()), (204, 0));
    let missing = gateway.get("/ag-ui/demo?threadId=t&runId=r9").await;
    assert_eq!((missing.status, &missing.json()["error"]["path"]), (404, &json!("runId")));
}

#[tokio::test]
async fn a_resumed_stream_has_the_conversation_of_its_time() {
    let options = "on_disconnect = \"detach\"\noptions = { history = \"gateway\" }\n";
    let gateway = Gateway::start(&format!("{SLOW}{ROUTE}{options}")).await;
    let mut streams = Vec::new();
    for number in 1..4 {
        let text = format!("echo {number}");
        let sent = input("t", &format!("r{number}"), json!([user(&format!("u{number}"), &text)]));
        streams.push((sent.clone(), gateway.post("/ag-ui/demo", &sent).await.text().to_owned()));
    }

    for (sent, whole) in &streams {
        let (messages, last) = {
            let events = events(whole);
            let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
            assert!(kinds.ends_with(&["MESSAGES_SNAPSHOT", "RUN_FINISHED"]), "{kinds:?}");
            (events[events.len() - 2]["messages"].as_array().expect("a list").len(), events.len() - 1)
        };
        let run = sent["runId"].as_str().expect("an id");
        assert_eq!(messages, 2 * run[1..].parse::<usize>().expect("a number"));
        let path = format!("/ag-ui/demo?threadId=t&runId={run}");
        assert_eq!(gateway.get(&path).await.text(), whole);
        let rest: String = whole.split_inclusive("\n\n").skip(last).collect();
        let after = (last - 1).to_string();
        let headers = [("content-type", "application/json"), ("last-event-id", after.as_str())];
        let resumed = gateway.open("POST", "/ag-ui/demo", &headers, sent.to_string().as_bytes()).await.response().await;
        assert_eq!(resumed.text(), rest);
    }

    let sent = input("t", "r4", json!([user("u4", "long 40 20")]));
    let mut open = gateway.start_post("/ag-ui/demo", &sent).await;
    open.frame().await.expect("the agent speaks");
    drop(open);
    let resumed = gateway.get("/ag-ui/demo?threadId=t&runId=r4").await.text().to_owned();
    assert_eq!(gateway.get("/ag-ui/demo?threadId=t&runId=r4").await.text(), resumed);
    let events = events(&resumed);
    assert_eq!(events[events.len() - 2]["messages"].as_array().expect("a list").len(), 8, "{resumed}");
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_run() {
    let gateway = Gateway::start(&format!("{SLOW}{ROUTE}")).await;
    let mut open = gateway.start_post("/ag-ui/demo", &input("t", "r1", json!([user("u1", "long 5000 20")]))).await;
    open.frame().await.expect("it begins");
    drop(open);
    poll_until("the run is canceled", async || {
        let runs = gateway.get("/agents/demo/runs?session_id=t").await.json();
        (runs["data"][0]["status"] == "canceled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_second_run_of_a_busy_thread_is_refused_or_waits() {
    for (option, status) in [("", 409), ("options = { busy = \"queue\" }\n", 200)] {
        let gateway = Gateway::start(&format!("{SLOW}{ROUTE}{option}")).await;
        let mut open = gateway.start_post("/ag-ui/demo", &input("t", "r1", json!([user("u1", "long 20 20")]))).await;
        open.frame().await.expect("it begins");
        let second = gateway.post("/ag-ui/demo", &input("t", "r2", json!([user("u2", "echo two")]))).await;
        assert_eq!(second.status, status, "{}", second.text());
    }
}

#[tokio::test]
async fn an_agent_that_refuses_is_an_error_of_the_run_or_of_http() {
    let upstream = Upstream::with_handler(|_| {
        Reply::complete(429, &[("content-type", "application/json")], r#"{"error":"slow down"}"#)
    });
    let agent =
        format!("[agents.demo.upstream]\nprotocol = \"agent-api\"\nurl = \"{}\"\nretries = 0\n", upstream.url("/"));
    let gateway = Gateway::start(&format!("{agent}{ROUTE}")).await;
    let events = run(&gateway, &input("t", "r", json!([user("u1", "hi")]))).await;
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("RUN_STARTED"), &json!("RUN_ERROR")));

    let gateway = Gateway::start(&format!("{agent}{ROUTE}options = {{ start = \"on_upstream\" }}\n")).await;
    let refused = gateway.post("/ag-ui/demo", &input("t", "r", json!([user("u1", "hi")]))).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
}
