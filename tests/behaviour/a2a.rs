//! A2A through the running gateway with an agent that is unreachable or late: tasks that are not created, tasks that
//! keep waiting, and what subscribers see. Not here: the needs of the official clients (`tests/conformance`).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{approval_request, frames, response, text_reply, text_reply_until};
use crate::support::gateway::{Gateway, agent};
use crate::support::http::{Exchange, Response};
use crate::support::upstream::{Reply, Upstream, unused_address};
use crate::support::{gateway, poll_until};

const ROUTES: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
const V1: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway in front of an agent at this URL.
async fn before(url: &str) -> Gateway {
    let agent = agent("demo", url, "", "retries = 0");
    Gateway::start(&format!("{agent}{ROUTES}")).await
}

fn message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A message that accepts the interrupt of [`approval_request`].
fn accept(id: &str, task: &Value) -> Value {
    let part = json!({ "data": { "interrupt_id": "ask_1", "decision": "accept" } });
    json!({ "messageId": id, "taskId": task, "role": "ROLE_USER", "parts": [part] })
}

async fn rest(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[V1, JSON], body.to_string().as_bytes()).await
}

async fn send(gateway: &Gateway, message: &Value) -> Response {
    rest(gateway, "/message:send", &json!({ "message": message })).await.response().await
}

async fn stream(gateway: &Gateway, message: &Value) -> Exchange {
    rest(gateway, "/message:stream", &json!({ "message": message })).await
}

async fn get(gateway: &Gateway, path: &str) -> Response {
    gateway.open("GET", &format!("/a2a/demo{path}"), &[V1], b"").await.response().await
}

async fn task(gateway: &Gateway, id: &Value) -> Value {
    get(gateway, &format!("/tasks/{}", id.as_str().expect("an id"))).await.json()
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_")
}

fn history(task: &Value) -> Vec<&str> {
    let body = task["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    body.iter().map(|message| message["messageId"].as_str().expect("an id")).collect()
}

/// An agent that requests approval, then sends this failure, then completes.
fn asking_then(failure: Reply) -> Upstream {
    Upstream::in_order([approval_request("ask_1"), failure, text_reply(&["done"])])
}

fn unavailable() -> Reply {
    Reply::complete(503, &[("retry-after", "7")], "down")
}

#[tokio::test]
async fn an_unreachable_agent_is_an_error_and_creates_no_task() {
    let gateway = before(&format!("http://{}/process", unused_address())).await;
    let refused = send(&gateway, &message("m1", "hi")).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["status"]),
        (503, &json!("UNAVAILABLE")),
        "{}",
        refused.text()
    );
    assert_eq!(refused.json()["error"]["details"][0]["reason"], "UPSTREAM_UNAVAILABLE");
    let streamed = stream(&gateway, &message("m2", "hi")).await.response().await;
    assert_eq!((streamed.status, streamed.header("content-type")), (503, Some("application/json")));

    let call = |method: &str, message: Value| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "message": message } });
    let rpc = gateway
        .open("POST", "/a2a/demo", &[V1, JSON], call("SendMessage", message("m3", "hi")).to_string().as_bytes())
        .await
        .response()
        .await;
    assert_eq!((&rpc.json()["error"]["code"], &rpc.json()["id"]), (&json!(-32603), &json!(7)), "{}", rpc.text());

    let old =
        json!({ "kind": "message", "messageId": "m4", "role": "user", "parts": [{ "kind": "text", "text": "hi" }] });
    let accept = ("accept", "text/event-stream");
    let old = gateway
        .open("POST", "/a2a/demo", &[JSON, accept], call("message/stream", old).to_string().as_bytes())
        .await
        .response()
        .await;
    assert_eq!(
        old.header("content-type"),
        Some("text/event-stream"),
        "clients of 0.3 read errors only from the stream"
    );
    assert!(old.text().starts_with("data: {") && old.text().contains("\"code\":-32603"), "{}", old.text());

    let listed = get(&gateway, "/tasks").await.json();
    assert_eq!(listed["totalSize"], 0, "no task was created: {listed}");
}

#[tokio::test]
async fn a_task_returned_immediately_fails_visibly() {
    let gateway = before(&format!("http://{}/process", unused_address())).await;
    let body = json!({ "message": message("m1", "hi"), "configuration": { "returnImmediately": true } });
    let shown = rest(&gateway, "/message:send", &body).await.response().await.json();
    let id = &shown["task"]["id"];
    let failed =
        poll_until("the task has failed", async || Some(task(&gateway, id).await).filter(|it| state(it) == "FAILED"));
    let failed = failed.await;
    assert_eq!(failed["status"]["message"]["metadata"]["agent_api"]["error"]["code"], "UPSTREAM_UNREACHABLE");
}

#[tokio::test]
async fn a_slow_agent_does_not_delay_the_task_object() {
    let late = frames(&["late"]).iter().fold(Reply::events().wait("go"), |reply, frame| reply.frame(frame)).done();
    let upstream = Upstream::always(late);
    let gateway = before(&upstream.url("/process")).await;
    let mut streamed = stream(&gateway, &message("m1", "hi")).await;
    let first = streamed.frame().await.expect("a task");
    assert_eq!(state(&first["task"]), "SUBMITTED", "before the agent sends anything");

    upstream.open("go");
    let rest = streamed.frames().await;
    assert_eq!(state(&rest.last().expect("an end")["statusUpdate"]), "COMPLETED");
}

#[tokio::test]
async fn a_task_is_working_as_soon_as_the_agent_reports_it() {
    let thinking = [response("created"), response("in_progress")];
    let thinking = thinking.iter().fold(Reply::events(), |reply, frame| reply.frame(frame)).hang();
    let upstream = Upstream::always(thinking);
    let gateway = before(&upstream.url("/process")).await;

    let mut streamed = stream(&gateway, &message("m1", "hi")).await;
    assert_eq!(state(&streamed.frame().await.expect("a task")["task"]), "SUBMITTED");
    let working = streamed.frame().await.expect("a status");
    assert_eq!(state(&working["statusUpdate"]), "WORKING", "before its first message");
}

#[tokio::test]
async fn a_task_whose_agent_waits_without_a_question_informs_its_stream() {
    let update = |state: &str, message: Value| {
        let status = json!({ "state": format!("TASK_STATE_{state}"), "message": message });
        json!({ "statusUpdate": { "taskId": "T", "contextId": "C", "status": status } }).to_string()
    };
    let answer = json!({ "artifactId": "a-1", "parts": [{ "text": "Anything else?" }] });
    let artifact = json!({ "artifactUpdate": { "taskId": "T", "contextId": "C", "artifact": answer } }).to_string();
    let repeated = json!({ "messageId": "a-1", "role": "ROLE_AGENT", "parts": [{ "text": "Anything else?" }] });

    for (expected, last) in
        [("INPUT_REQUIRED", json!(null)), ("INPUT_REQUIRED", repeated), ("AUTH_REQUIRED", json!(null))]
    {
        let upstream =
            Upstream::always(Reply::frames([update("WORKING", json!(null)), artifact.clone(), update(expected, last)]));
        let options = "options = { binding = \"HTTP+JSON\", version = \"1.0\" }";
        let agent = agent("demo", &upstream.url("/"), "", options).replace("agent-api", "a2a");
        let gateway = Gateway::start(&format!("{agent}{ROUTES}")).await;

        let mut streamed = stream(&gateway, &message("m1", "hi")).await;
        let id = streamed.frame().await.expect("a task")["task"]["id"].clone();
        let waiting = loop {
            let frame = streamed.frame().await.expect("the state that the task waits in");
            if frame["statusUpdate"]["status"]["state"] == format!("TASK_STATE_{expected}") {
                break frame["statusUpdate"].clone();
            }
        };
        assert_eq!(waiting["status"]["message"]["parts"][0]["text"], "Anything else?", "{waiting}");
        if expected == "INPUT_REQUIRED" {
            assert_eq!(streamed.frames().await, Vec::<Value>::new(), "the stream is closed");
        }
        let shown = task(&gateway, &id).await;
        assert_eq!(shown["status"]["state"], waiting["status"]["state"], "{shown}");
        assert_eq!(shown["status"]["message"], waiting["status"]["message"], "{shown}");
    }
}

#[tokio::test]
async fn a_follow_up_that_fails_upstream_leaves_the_task_waiting() {
    for failure in [unavailable(), Reply::nothing()] {
        let upstream = asking_then(failure);
        let gateway = before(&upstream.url("/process")).await;
        let interrupted = send(&gateway, &message("m1", "hi")).await.json();
        let id = &interrupted["task"]["id"];
        assert_eq!(state(&interrupted["task"]), "INPUT_REQUIRED", "{interrupted}");

        let refused = send(&gateway, &accept("m2", id)).await;
        assert!([502, 503, 500].contains(&refused.status), "{} {}", refused.status, refused.text());
        let waiting = task(&gateway, id).await;
        assert_eq!(waiting["status"]["state"], interrupted["task"]["status"]["state"]);
        assert_eq!(waiting["status"]["message"], interrupted["task"]["status"]["message"], "the same question");
        assert_eq!(history(&waiting), ["m1"], "an undelivered message is not in the history: {waiting}");

        let done = send(&gateway, &accept("m2", id)).await.json();
        assert_eq!(state(&done["task"]), "COMPLETED", "{done}");
        assert_eq!(history(&done["task"]), ["m1", "msg_ask", "m2"], "once: {done}");
        let again = upstream.requests()[2].json();
        assert_eq!(again["input"].as_array().map(Vec::len), Some(2), "the question and its answer: {again}");
    }
}

#[tokio::test]
async fn subscribers_do_not_see_a_failed_attempt() {
    let upstream = asking_then(unavailable());
    let gateway = before(&upstream.url("/process")).await;
    let interrupted = send(&gateway, &message("m1", "hi")).await.json();
    let id = &interrupted["task"]["id"];
    let mut subscribed = rest(&gateway, &format!("/tasks/{}:subscribe", id.as_str().expect("an id")), &json!({})).await;
    assert_eq!(state(&subscribed.frame().await.expect("a task")["task"]), "INPUT_REQUIRED");
    let refused = stream(&gateway, &accept("m2", id)).await.response().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("7")), "{}", refused.text());

    let done = stream(&gateway, &accept("m3", id)).await.frames().await;
    assert_eq!(state(&done.last().expect("an end")["statusUpdate"]), "COMPLETED");
    let rest = subscribed.frames().await;
    let received: Vec<&str> =
        rest.iter().filter(|it| it["statusUpdate"].is_object()).map(|it| state(&it["statusUpdate"])).collect();
    assert_eq!(received, ["WORKING", "COMPLETED"], "{rest:?}");
}

#[tokio::test]
async fn a_task_that_returned_to_its_interrupt_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = asking_then(unavailable());
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let source = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{agent}{}{ROUTES}", gateway::ROUTE);
    let first = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let interrupted = send(&first, &message("m1", "hi")).await.json();
    let id = &interrupted["task"]["id"];
    assert_eq!(send(&first, &accept("m2", id)).await.status, 503);
    let waiting = task(&first, id).await;
    first.stop().await;

    let second = Gateway::in_folder(&source, folder.path().to_owned()).await;
    assert_eq!(task(&second, id).await, waiting);
    assert_eq!(state(&send(&second, &accept("m3", id)).await.json()["task"]), "COMPLETED");
    second.stop().await;
}

#[tokio::test]
async fn a_message_queued_behind_an_interrupting_turn_leaves_the_interrupt_open() {
    let asking = approval_request("ask_1");
    let upstream = Upstream::with_handler(move |request| match String::from_utf8_lossy(&request.body) {
        body if body.contains("ask me") => asking.clone(),
        body if body.contains("approve") => text_reply(&["done"]),
        _ => text_reply_until(&["working"], "go"),
    });
    let gateway = before(&upstream.url("/process")).await;

    let mut first = stream(&gateway, &message("m1", "work")).await;
    let id = first.frame().await.expect("a task")["task"]["id"].clone();
    let on = |message_id: &str, text: &str| {
        let mut sent = message(message_id, text);
        sent["taskId"] = id.clone();
        json!({ "message": sent, "configuration": { "returnImmediately": true } })
    };
    for body in [on("m2", "ask me"), on("m3", "too late")] {
        assert_eq!(rest(&gateway, "/message:send", &body).await.response().await.status, 200);
    }

    upstream.open("go");
    // Of several gateways, the one that has the early message adds it once the other one has ended its turn.
    let waiting = poll_until("the task waits, with the early message in its history", async || {
        let task = task(&gateway, &id).await;
        (state(&task) == "INPUT_REQUIRED" && history(&task) == ["m1", "m2", "m3"]).then_some(task)
    });
    let waiting = waiting.await;
    assert_eq!(waiting["status"]["message"]["messageId"], "msg_ask");

    let done = send(&gateway, &accept("m4", &id)).await.json();
    assert_eq!(state(&done["task"]), "COMPLETED");
    assert_eq!(history(&done["task"]), ["m1", "m2", "msg_ask", "m3", "m4"]);

    // An interrupt is answered only once.
    assert_eq!(
        send(&gateway, &accept("m5", &id)).await.json()["error"]["details"][0]["reason"],
        "UNSUPPORTED_OPERATION"
    );
}

#[tokio::test]
async fn a_second_answer_is_refused_while_the_first_is_processed() {
    let upstream = Upstream::in_order([approval_request("ask_1"), text_reply_until(&["done"], "go")]);
    let gateway = before(&upstream.url("/process")).await;
    let interrupted = send(&gateway, &message("m1", "hi")).await.json();
    let id = &interrupted["task"]["id"];
    let mut first = stream(&gateway, &accept("m2", id)).await;
    assert_eq!(state(&first.frame().await.expect("a task")["task"]), "WORKING");

    let second = send(&gateway, &accept("m3", id)).await;
    assert_eq!(second.status, 400, "{}", second.text());
    upstream.open("go");
    let rest = first.frames().await;
    assert_eq!(state(&rest.last().expect("an end")["statusUpdate"]), "COMPLETED", "{rest:?}");
    assert_eq!(history(&task(&gateway, id).await), ["m1", "msg_ask", "m2"]);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_message_without_a_decision_is_recorded_and_the_interrupt_repeated() {
    let upstream = asking_then(text_reply(&["done"]));
    let gateway = before(&upstream.url("/process")).await;
    let interrupted = send(&gateway, &message("m1", "hi")).await.json();
    let id = &interrupted["task"]["id"];
    let mut unclear = message("m2", "perhaps");
    unclear["taskId"] = id.clone();
    let again = send(&gateway, &unclear).await.json();
    let (first, repeated) = (&interrupted["task"]["status"], &again["task"]["status"]);
    assert_eq!((&first["state"], &first["timestamp"]), (&repeated["state"], &repeated["timestamp"]));
    let parts = |status: &Value| status["message"]["parts"].as_array().expect("parts").clone();
    let reason = json!({ "text": "not understood as a decision: send one of accept, respond, reject" });
    assert_eq!(parts(repeated), [vec![reason], parts(first)].concat(), "the same question, behind the reason");
    assert_ne!(first["message"]["messageId"], repeated["message"]["messageId"], "another message has another id");
    assert_eq!(history(&again["task"]), ["m1", "m2"]);

    let streamed = stream(&gateway, &unclear).await.response().await;
    let item: Value = serde_json::from_str(streamed.text().trim().trim_start_matches("data: ")).expect("one item");
    assert_eq!(state(&item["task"]), "INPUT_REQUIRED");
    let done = send(&gateway, &accept("m3", id)).await.json();
    assert_eq!(history(&done["task"]), ["m1", "msg_ask", "m2", "m2", "m3"]);
    assert_eq!(upstream.requests().len(), 2, "a message without a decision does not reach the agent");
}

#[tokio::test]
async fn a_queued_message_that_fails_upstream_does_not_undo_the_completed_turn() {
    let upstream = Upstream::in_order([text_reply_until(&["done"], "go"), unavailable()]);
    let gateway = before(&upstream.url("/process")).await;
    let mut first = stream(&gateway, &message("m1", "hi")).await;
    let id = first.frame().await.expect("a task")["task"]["id"].clone();
    let mut more = message("m2", "more");
    more["taskId"] = id.clone();
    let mut second = rest(&gateway, "/message:send", &json!({ "message": more })).await;

    // The first turn still runs: its gate opens below.
    poll_until("it is queued", async || {
        (task(&gateway, &id).await["status"]["state"] == "TASK_STATE_WORKING").then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    upstream.open("go");
    assert_eq!(second.status().await, 503);
    let over = task(&gateway, &id).await;
    assert_eq!((state(&over), history(&over)), ("COMPLETED", vec!["m1"]), "{over}");
}

#[tokio::test]
async fn a_pending_item_is_dropped_once_the_agent_continues_without_it() {
    let question = |kind: &str, id: &str, data: Value| {
        let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": id, "data": data });
        json!({ "object": "message", "status": "completed", "id": id, "type": kind, "role": "assistant", "content": [content] })
    };
    let call = question("function_call", "msg_call", json!({ "call_id": "c1", "name": "where", "arguments": "{}" }));
    let ask = question("mcp_approval_request", "msg_ask", json!({ "id": "ask_1", "name": "rm", "arguments": "{}" }));
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [] });
    let both = Reply::frames([response("created"), call.to_string(), ask.to_string(), end.to_string()]);
    let upstream = Upstream::in_order([both, text_reply(&["done"])]);
    let gateway = before(&upstream.url("/process")).await;

    let interrupted = send(&gateway, &message("m1", "hi")).await.json();
    assert_eq!(interrupted["task"]["status"]["message"]["parts"].as_array().map(Vec::len), Some(3), "{interrupted}");
    let id = &interrupted["task"]["id"];
    let mut unexpected = message("m2", "");
    unexpected["taskId"] = id.clone();
    unexpected["parts"] = json!([{ "data": { "function_call_output": { "call_id": "unknown", "output": "x" } } }]);
    let refused = send(&gateway, &unexpected).await;
    assert_eq!(
        refused.json()["error"]["details"][1]["fieldViolations"][0]["field"],
        "message.parts[0]",
        "{}",
        refused.text()
    );

    let streamed = stream(&gateway, &accept("m3", id)).await.frames().await;
    assert_eq!(
        state(&streamed.last().expect("an end")["statusUpdate"]),
        "COMPLETED",
        "the stream closes: {streamed:?}"
    );
    assert_eq!(state(&task(&gateway, id).await), "COMPLETED");
}

#[tokio::test]
async fn a_task_that_was_returned_stays_a_task_despite_a_message_hint() {
    let mut hinting = frames(&["word"]);
    let index = hinting.iter().position(|frame| frame.contains("\"object\":\"message\"")).expect("an announcement");
    let mut announced: Value = serde_json::from_str(&hinting[index]).expect("JSON");
    announced["metadata"] = json!({ "a2a": { "reply": "message" } });
    hinting[index] = announced.to_string();
    let direct = Reply::frames(hinting.clone());
    let late = hinting[..index + 2].iter().fold(Reply::events(), |reply, frame| reply.frame(frame)).wait("go");
    let late = hinting[index + 2..].iter().fold(late, |reply, frame| reply.frame(frame)).done();
    let upstream = Upstream::in_order([direct, late]);
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { blocking_timeout = \"300ms\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;

    let message_alone = send(&gateway, &message("m1", "hi")).await.json();
    assert!(message_alone["message"].is_object(), "{message_alone}");
    assert_eq!(get(&gateway, "/tasks").await.json()["totalSize"], 0, "returned as a message and not stored as a task");
    let shown = send(&gateway, &message("m2", "hi")).await.json();
    let id = &shown["task"]["id"];
    upstream.open("go");
    let done =
        poll_until("it is done", async || Some(task(&gateway, id).await).filter(|it| state(it) == "COMPLETED")).await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "word");
}

#[tokio::test]
async fn a_blocking_call_returns_after_its_timeout_if_the_agent_is_silent() {
    let upstream = Upstream::always(Reply::silence());
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { blocking_timeout = \"200ms\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;

    let started = std::time::Instant::now();
    let shown = send(&gateway, &message("m1", "hi")).await.json();
    assert_eq!(state(&shown["task"]), "WORKING", "{shown}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_repeated_message_is_deduplicated_if_configured() {
    let upstream = Upstream::in_order([text_reply(&["one"]), text_reply_until(&["two"], "go"), text_reply(&["three"])]);
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { deduplicate = \"context\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;

    let within = |id: &str| {
        let mut body = message(id, "hi");
        body["contextId"] = json!("c");
        body
    };
    let first = send(&gateway, &within("m1")).await.json();
    let again = send(&gateway, &within("m1")).await.json();
    assert_eq!((&again, upstream.requests().len()), (&first, 1), "the same task, without another upstream request");

    let mut working = stream(&gateway, &within("m2")).await;
    let id = working.frame().await.expect("a task")["task"]["id"].clone();
    let mut joined = stream(&gateway, &within("m2")).await;
    assert_eq!(joined.frame().await.expect("a task")["task"]["id"], id);

    upstream.open("go");
    assert_eq!(state(&joined.frames().await.last().expect("an end")["statusUpdate"]), "COMPLETED");
    let mut on_task = within("m2");
    on_task["taskId"] = id.clone();
    assert_eq!(send(&gateway, &on_task).await.json()["task"]["id"], id, "though it has ended");

    let mut elsewhere = message("m1", "hi");
    elsewhere["contextId"] = json!("d");
    assert_ne!(send(&gateway, &elsewhere).await.json()["task"]["id"], first["task"]["id"], "another context");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn of_messages_repeated_at_the_same_moment_one_starts_a_task() {
    let upstream = Upstream::always(text_reply_until(&["one"], "go"));
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { deduplicate = \"context\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;
    let mut body = message("m1", "hi");
    body["contextId"] = json!("c");

    let sent = futures_util::future::join_all((0..20).map(|_| async {
        let mut stream = stream(&gateway, &body).await;
        let first = stream.frame().await.expect("a task");
        (first["task"]["id"].clone(), stream)
    }))
    .await;
    upstream.open("go");
    let id = sent[0].0.clone();
    assert!(id.is_string());
    for (own, mut stream) in sent {
        assert_eq!(own, id);
        assert_eq!(state(&stream.frames().await.last().expect("an end")["statusUpdate"]), "COMPLETED");
    }
    assert_eq!(upstream.requests().len(), 1, "the agent is called once");
}

#[tokio::test]
async fn of_messages_repeated_to_one_task_at_the_same_moment_one_becomes_a_turn() {
    let upstream = Upstream::in_order([
        approval_request("ask_1"),
        text_reply_until(&["one"], "go"),
        approval_request("ask_2"),
        text_reply(&["never"]),
    ]);
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { deduplicate = \"context\", turn_end = \"input-required\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;
    let id = send(&gateway, &message("m1", "hi")).await.json()["task"]["id"].clone();

    let all_at_once = async |body: &Value| {
        futures_util::future::join_all((0..10).map(|_| async {
            let mut stream = stream(&gateway, body).await;
            assert_eq!(stream.frame().await.expect("a task")["task"]["id"], id);
            stream
        }))
        .await
    };
    let answers = all_at_once(&accept("m2", &id)).await;
    // The task works: these are queued behind the answer.
    let mut more = message("m3", "more");
    more["taskId"] = id.clone();
    let queued = all_at_once(&more).await;
    upstream.open("go");
    for mut stream in answers.into_iter().chain(queued) {
        assert_eq!(state(&stream.frames().await.last().expect("an end")["statusUpdate"]), "INPUT_REQUIRED");
    }
    assert_eq!(upstream.requests().len(), 3, "each message reaches the agent once");
    assert_eq!(history(&task(&gateway, &id).await).iter().filter(|id| ["m2", "m3"].contains(id)).count(), 2);
}

#[tokio::test]
async fn a_message_whose_task_never_started_can_be_sent_again_at_once() {
    let agent = agent("demo", &format!("http://{}/process", unused_address()), "", "retries = 0");
    let routes = ROUTES.replace("path", "options = { deduplicate = \"context\" }\npath");
    let gateway = Gateway::start(&format!("{agent}{routes}")).await;
    let mut body = message("m1", "hi");
    body["contextId"] = json!("c");

    let started = std::time::Instant::now();
    for _ in 0..3 {
        let refused = send(&gateway, &body).await;
        assert!(refused.status >= 500, "{}", refused.text());
    }
    assert!(started.elapsed() < Duration::from_secs(8), "no request waits for the claim of another");
}

#[tokio::test]
async fn a_subscription_to_a_waiting_task_is_closed_with_an_error_on_shutdown() {
    let upstream = asking_then(text_reply(&["done"]));
    let mut gateway = before(&upstream.url("/process")).await;
    let interrupted = send(&gateway, &message("m1", "hi")).await.json();
    let id = interrupted["task"]["id"].as_str().expect("an id");
    let mut subscribed = rest(&gateway, &format!("/tasks/{id}:subscribe"), &json!({})).await;
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "SubscribeToTask", "params": { "id": id } }).to_string();
    let mut called = gateway.open("POST", "/a2a/demo", &[V1, JSON], body.as_bytes()).await;
    assert!(subscribed.frame().await.is_some() && called.frame().await.is_some());

    gateway.begin_shutdown();
    let last = subscribed.event().await.expect("a last event");
    assert!(last.starts_with("event: error\n") && last.contains("\"code\":503"), "{last}");
    let last = called.frame().await.expect("a last event");
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!("s"), &json!(-32603)));
    assert!(subscribed.event().await.is_none() && called.event().await.is_none(), "then the streams end");
}

#[tokio::test]
async fn tenants_with_the_same_context_id_share_no_memory() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = before(&upstream.url("/process")).await;
    for tenant in ["a", "b"] {
        let mut body = message("m1", "hi");
        body["contextId"] = json!("c");
        let sent =
            rest(&gateway, &format!("/{tenant}/message:send"), &json!({ "message": body })).await.response().await;
        assert_eq!(sent.json()["task"]["contextId"], "c");
    }

    let requests: Vec<Value> = upstream.requests().iter().map(|request| request.json()).collect();
    for name in ["session_id", "user_id"] {
        assert_ne!(requests[0][name], requests[1][name]);
        assert_ne!(requests[0][name], "c", "a caller without a tenant cannot address it either");
    }
}

#[tokio::test]
async fn a_task_cancelled_before_the_agent_replies_is_returned_as_cancelled() {
    let upstream = Upstream::in_order([Reply::silence(), approval_request("ask_1"), Reply::silence()]);
    let gateway = before(&upstream.url("/process")).await;
    let cancel = async |id: &Value| {
        let path = format!("/tasks/{}:cancel", id.as_str().expect("an id"));
        let canceled = rest(&gateway, &path, &json!({})).await.response().await.json();
        assert_eq!(state(&canceled), "CANCELED", "{canceled}");
    };

    // First a new task, then a later turn of another task.
    let waiting = rest(&gateway, "/message:send", &json!({ "message": message("m1", "hi") })).await;
    upstream.wait_for_requests(1).await;
    let id = get(&gateway, "/tasks").await.json()["tasks"][0]["id"].clone();
    cancel(&id).await;
    let answered = waiting.response().await;
    assert_eq!(state(&answered.json()["task"]), "CANCELED", "{}", answered.text());
    assert_eq!(state(&task(&gateway, &id).await), "CANCELED", "and it is found");

    let interrupted = send(&gateway, &message("m2", "hi")).await.json();
    let id = &interrupted["task"]["id"];
    let waiting = rest(&gateway, "/message:send", &json!({ "message": accept("m3", id) })).await;
    upstream.wait_for_requests(3).await;
    cancel(id).await;
    let answered = waiting.response().await;
    assert_eq!(state(&answered.json()["task"]), "CANCELED", "{}", answered.text());
}

#[tokio::test]
async fn plain_text_answers_a_question_and_confirms_a_login() {
    let gateway = Gateway::start(&format!("{}{ROUTES}", gateway::DEMO)).await;
    for (asks, says, received) in [
        ("question", "blue", r#"You answered: {"colour":"blue"}"#),
        ("question", r#"{"colour":"red"}"#, r#"You answered: {"colour":"red"}"#),
        ("login", "done", "you are logged in"),
        ("login", "ok", "you are logged in"),
    ] {
        let interrupted = send(&gateway, &message("m1", asks)).await.json()["task"].clone();
        let mut answer = message("m2", says);
        answer["taskId"] = interrupted["id"].clone();
        let done = send(&gateway, &answer).await.json()["task"].clone();
        assert_eq!(state(&done), "COMPLETED", "{asks}: {done}");
        assert!(
            done["artifacts"][0]["parts"][0]["text"].as_str().expect("a text").contains(received),
            "{asks}: {done}"
        );
    }

    let interrupted = send(&gateway, &message("m1", "question")).await.json()["task"].clone();
    let mut wrong = message("m2", "purple");
    wrong["taskId"] = interrupted["id"].clone();
    let refused = send(&gateway, &wrong).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("this would fit"), "{}", refused.text());
    assert_eq!(state(&task(&gateway, &interrupted["id"]).await), "INPUT_REQUIRED", "the interrupt stays open");
}
