//! MCP without affinity: sessions, questions, states, streams and tasks that began on one gateway continue on another.

use std::sync::atomic::AtomicI64;

use serde_json::{Value, json};

use crate::mcp_support::{Client, MCP, deltas, run_of, session_of, texts};
use crate::support::agent::{approval_request, response, text_reply, text_reply_until};
use crate::support::cluster::Cluster;
use crate::support::gateway::{Gateway, last_input_text};
use crate::support::http::data;
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};
use crate::{LEASE, cluster};

/// An agent that asks for an approval, and thanks for the answer.
fn asking() -> Upstream {
    Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
        "" => text_reply(&["thank ", "you"]),
        _ => approval_request("ask-1"),
    })
}

/// A reply that asks for two approvals.
fn two_approvals() -> Reply {
    let mut frames = vec![response("created"), response("in_progress")];
    for path in ["one", "two"] {
        let id = format!("msg-{path}");
        let data =
            json!({ "id": format!("ask-{path}"), "name": "rm", "arguments": json!({ "path": path }).to_string() });
        let content = json!({
            "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": id,
            "data": data,
        });
        let message = json!({
            "object": "message", "status": "completed", "id": id, "type": "mcp_approval_request", "role": "assistant",
            "content": [content],
        });
        frames.extend([content.to_string(), message.to_string()]);
    }
    frames.push(response("completed"));
    Reply::frames(frames)
}

fn stand(upstream: &Upstream, options: &str) -> Cluster {
    cluster(upstream, "retries = 0", &format!("{MCP}[routes.options]\n{options}\n"))
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn call(message: &str) -> Value {
    json!({ "name": "friday", "arguments": { "message": message }, "_meta": { "progressToken": "p" } })
}

fn decide(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

/// The same client at another gateway.
fn at<'g>(client: &Client<'_>, gateway: &'g Gateway) -> Client<'g> {
    Client {
        gateway,
        session: client.session.clone(),
        revision: client.revision.clone(),
        capabilities: client.capabilities.clone(),
        next_id: AtomicI64::new(client.id()),
    }
}

fn id_of(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("id: "))
}

#[tokio::test]
async fn a_question_on_a_stream_is_answered_through_another_gateway() {
    let upstream = asking();
    let stand = stand(&upstream, "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    for revision in ["2025-06-18", "2025-11-25"] {
        let client = Client::legacy(&here, revision, json!({ "elicitation": {} })).await;
        let elsewhere = at(&client, &there);
        let id = client.id();
        let mut stream = client.send(id, "tools/call", call("remove it")).await;
        let question = stream.read_until("elicitation/create").await.pop().unwrap();

        assert_eq!(elsewhere.respond(&question, decide("perhaps")).await.status, 202);
        let again = stream.read_until("elicitation/create").await.pop().unwrap();
        assert_ne!(again["id"], question["id"], "asked again on the stream of the call");
        assert_eq!(elsewhere.respond(&again, decide("accept")).await.status, 202);
        let result = stream.frames().await.pop().unwrap();
        assert_eq!((&result["id"], texts(&result["result"])[0]), (&json!(id), "thank you"), "{result}");
        for client in [&client, &elsewhere] {
            assert_eq!(client.respond(&again, decide("accept")).await.status, 400, "answered once");
        }
    }
}

#[tokio::test]
async fn items_of_one_question_are_answered_one_by_one_through_another_gateway() {
    let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
        "" => text_reply(&["thank ", "you"]),
        _ => two_approvals(),
    });
    let stand = stand(&upstream, "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let client = Client::legacy(&here, "2025-11-25", json!({ "elicitation": {} })).await;
    let elsewhere = at(&client, &there);
    let mut stream = client.send(client.id(), "tools/call", call("remove both")).await;
    for path in ["one", "two"] {
        let question = stream.read_until("elicitation/create").await.pop().unwrap();
        assert!(question["params"]["message"].as_str().unwrap().contains(path), "{question}");
        assert_eq!(elsewhere.respond(&question, decide("accept")).await.status, 202);
    }
    let result = stream.frames().await.pop().unwrap();
    assert_eq!(texts(&result["result"])[0], "thank you", "{result}");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_call_is_repeated_with_its_answers_at_another_gateway() {
    let upstream = asking();
    let stand = stand(&upstream, "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let client = Client::modern(&here, forms());
    let asked = client.result("tools/call", call("remove it")).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let mut again = call("remove it");
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: decide("accept") });
    let done = at(&client, &there).result("tools/call", again.clone()).await;
    assert_eq!(texts(&done)[0], "thank you", "{done}");

    let requests = upstream.requests().len();
    let repeated = client.result("tools/call", again).await;
    assert_eq!((&repeated["content"], upstream.requests().len()), (&done["content"], requests));
    let next = client.call("friday", json!({ "message": "go on", "session": session_of(&done) })).await;
    assert_eq!(next["_meta"]["interlingua/status"], Value::Null, "it asks again: {next}");
}

#[tokio::test]
async fn a_cut_stream_is_resumed_at_another_gateway() {
    let upstream = Upstream::always(text_reply_until(&["begun ", "and ", "done"], "go"));
    let stand = stand(&upstream, "progress_interval = \"1ms\"");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let client = Client::legacy(&here, "2025-11-25", json!({})).await;
    let elsewhere = at(&client, &there);
    let id = client.id();
    let mut stream = client.send(id, "tools/call", call("hi")).await;
    let (mut events, mut seen) = (Vec::new(), Vec::new());
    while !deltas(&seen).ends_with("done") {
        let event = stream.event().await.unwrap();
        seen.extend(data(&event).and_then(|data| serde_json::from_str::<Value>(data).ok()));
        events.extend(id_of(&event).map(|id| (id.to_owned(), seen.len())));
    }
    drop(stream);

    let mut resumed = Vec::new();
    for (event, count) in &events {
        let mut rest = elsewhere.listen(Some(event)).await;
        assert_eq!(rest.status().await, 200);
        resumed.push((rest, seen[..*count].to_vec()));
    }
    upstream.open("go");
    for (mut rest, mut joined) in resumed {
        joined.extend(rest.frames().await);
        let result = joined.last().unwrap();
        assert_eq!((&result["id"], texts(&result["result"])[0]), (&json!(id), "begun and done"), "{result}");
        assert_eq!(deltas(&joined), "begun and done");
    }
    // The run has ended: either gateway has all of it.
    for client in [&client, &elsewhere] {
        let rest = client.listen(Some(&events[0].0)).await.frames().await;
        assert_eq!(texts(&rest.last().unwrap()["result"])[0], "begun and done");
    }
}

#[tokio::test]
async fn a_call_is_cancelled_and_a_session_ended_through_another_gateway() {
    let upstream = Upstream::always(text_reply_until(&["begun"], "never"));
    let stand = stand(&upstream, "");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let client = Client::legacy(&here, "2025-11-25", json!({})).await;
    let elsewhere = at(&client, &there);
    let canceled = async |run: &str| {
        let run = async || (there.run("friday", run).await["status"] == "canceled").then_some(());
        poll_until("the run to be canceled", run).await;
    };
    let begin = async |id: i64| {
        let mut stream = client.send(id, "tools/call", call("hi")).await;
        let begun = stream.read_until("begun").await;
        (stream, begun[0]["params"]["_meta"]["interlingua/run"].as_str().unwrap().to_owned())
    };

    let id = client.id();
    let (mut stream, run) = begin(id).await;
    assert_eq!(elsewhere.notify("notifications/cancelled", json!({ "requestId": id })).await.status, 202);
    assert!(stream.frames().await.iter().all(|message| message.get("result").is_none()));
    canceled(&run).await;

    let (_stream, run) = begin(client.id()).await;
    let headers = [("mcp-session-id", client.session.as_str())];
    assert_eq!(there.open("DELETE", "/mcp", &headers, b"").await.response().await.status, 204);
    canceled(&run).await;
    let refused = client.send(client.id(), "tools/list", json!({})).await.response().await;
    assert_eq!(refused.status, 404, "{}", refused.text());
}

#[tokio::test]
async fn a_task_is_read_answered_and_awaited_at_another_gateway() {
    let upstream = asking();
    let stand = stand(&upstream, "tasks = \"always\"");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let mut capabilities = forms();
    capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    let client = Client::modern(&here, capabilities);
    let elsewhere = at(&client, &there);
    let task = client.result("tools/call", call("remove it")).await["taskId"].clone();
    let when = async |client: &Client<'_>, status: &str| {
        poll_until(status, async || {
            let found = client.result("tasks/get", json!({ "taskId": task })).await;
            (found["status"] == status).then_some(found)
        })
        .await
    };
    let asks = when(&elsewhere, "input_required").await;
    assert_eq!(asks["inputRequests"], when(&client, "input_required").await["inputRequests"]);
    let update = json!({ "taskId": task, "inputResponses": { "ask-1": decide("accept") } });
    elsewhere.result("tasks/update", update).await;
    let [here, there] = [when(&client, "completed").await, when(&elsewhere, "completed").await];
    assert_eq!(texts(&here["result"])[0], "thank you", "{here}");
    assert_eq!(here["result"]["content"], there["result"]["content"]);
    let waited = elsewhere.call("wait", json!({ "run": run_of(&here["result"]) })).await;
    assert_eq!(waited["content"], here["result"]["content"]);
}

#[tokio::test]
async fn a_call_whose_gateway_is_killed_fails_at_the_others() {
    let upstream = Upstream::always(text_reply_until(&["begun"], "never"));
    let stand = stand(&upstream, "");
    let mut killed = stand.process();
    let other = stand.gateway().await;
    let client = Client::legacy(&other, "2025-11-25", json!({})).await;
    // The session is one of both gateways.
    let body = client.message(7, "tools/call", call("hi")).to_string();
    let mut headers = client.headers("", "");
    headers.extend([("content-type", "application/json"), ("accept", "application/json, text/event-stream")]);
    let mut stream = killed.open("POST", "/mcp", &headers, body.as_bytes()).await;
    let mut last = String::new();
    while !last.contains("begun") {
        last = stream.event().await.unwrap();
    }
    let event = id_of(&last).unwrap().to_owned();
    let run = event.split('.').next().unwrap().to_owned();
    let mut rest = client.listen(Some(&event)).await;
    assert_eq!(rest.status().await, 200);

    killed.kill();
    let frames = tokio::time::timeout(LEASE * 10, rest.frames()).await.unwrap();
    let modern = Client::modern(&other, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
    let task = modern.result("tasks/get", json!({ "taskId": run })).await;
    assert_eq!(task["status"], "failed", "{task}");
    for error in [&frames.last().unwrap()["error"], &task["error"]] {
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32603), &json!("GATEWAY_RESTARTED")), "{error}");
    }
    assert_eq!(frames.last().unwrap()["id"], json!(7));
}
