//! MCP after a restart on a store in a file: sessions, states, questions, tasks and cut streams of ended runs continue.
//! Not here: `kill -9` in the middle of a call (`tests/crash`), and several gateways (`tests/replicas`).

use std::sync::atomic::AtomicI64;

use serde_json::{Value, json};

use crate::mcp_calls::{approval, asking, config};
use crate::mcp_support::{Client, MCP, deltas, run_of, session_of, texts};
use crate::support::gateway::{DEMO, Gateway, ROUTE};
use crate::support::http::data;
use crate::support::poll_until;

const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";

/// A client with a session, between two processes.
struct AwayClient {
    session: String,
    revision: String,
    next_id: i64,
}

impl AwayClient {
    fn of(client: &Client<'_>) -> Self {
        Self { session: client.session.clone(), revision: client.revision.clone(), next_id: client.id() }
    }

    fn at(self, gateway: &Gateway) -> Client<'_> {
        let next_id = AtomicI64::new(self.next_id);
        Client { gateway, session: self.session, revision: self.revision, capabilities: json!({}), next_id }
    }
}

fn call(tool: &str, message: &str) -> Value {
    json!({ "name": tool, "arguments": { "message": message }, "_meta": { "progressToken": "p" } })
}

fn accept() -> Value {
    json!({ "action": "accept", "content": { "decision": "accept" } })
}

fn id_of(event: &str) -> Option<&str> {
    event.lines().find_map(|line| line.strip_prefix("id: "))
}

fn message_of(event: &str) -> Option<Value> {
    serde_json::from_str(data(event)?).ok()
}

#[tokio::test]
async fn a_session_and_the_streams_of_its_ended_calls_outlive_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = format!("{FILE}{DEMO}{ROUTE}{MCP}[routes.options]\nprogress_interval = \"1ms\"\n");
    let first = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let client = Client::legacy(&first, "2025-11-25", json!({})).await;
    let ended = Client::legacy(&first, "2025-11-25", json!({})).await;
    let id = client.id();
    let mut whole = client.send(id, "tools/call", call("demo", "long 12 5")).await;
    let mut events = Vec::new();
    while let Some(event) = whole.event().await {
        events.extend(id_of(&event).is_some().then_some(event));
    }
    let result = events.last().and_then(|event| message_of(event)).expect("a result");
    let deleted = first.open("DELETE", "/mcp", &[("mcp-session-id", &ended.session)], b"").await.response().await;
    assert_eq!(deleted.status, 204);
    let [client, ended] = [client, ended].map(|client| AwayClient::of(&client));
    first.stop().await;

    let second = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let [client, ended] = [client, ended].map(|client| client.at(&second));
    for (cut, event) in events.iter().enumerate() {
        let mut rest = client.listen(id_of(event)).await;
        assert_eq!(rest.status().await, 200);
        let before = events[..=cut].iter().filter_map(|event| message_of(event));
        let joined: Vec<Value> = before.chain(rest.frames().await).collect();
        assert_eq!(deltas(&joined), texts(&result["result"])[0], "cut behind event {cut}");
        assert_eq!(joined.last(), Some(&result), "cut behind event {cut}");
    }

    let session = session_of(&result["result"]);
    let next = client.call("demo", json!({ "message": "echo still here", "session": session })).await;
    assert_eq!((texts(&next)[0], session_of(&next)), ("still here", session));
    let waited = client.call("wait", json!({ "run": run_of(&result["result"]) })).await;
    assert_eq!(waited["content"], result["result"]["content"]);
    let refused = ended.send(1, "tools/list", json!({})).await.response().await;
    assert_eq!(refused.status, 404, "a session that its client has ended: {}", refused.text());
    second.stop().await;
}

#[tokio::test]
async fn a_state_and_the_items_of_a_task_are_answered_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = asking(vec![approval("one")]);
    let source = format!("{FILE}{ROUTE}{}", config(&upstream, ""));
    let forms = json!({ "elicitation": { "form": {} } });
    let first = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let asked = Client::modern(&first, forms.clone()).result("tools/call", call("helper", "hi")).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let plain = Client::modern(&first, json!({}));
    let waiting = plain.call("helper", json!({ "message": "hi" })).await;
    assert_eq!(waiting["_meta"]["interlingua/status"], "input_required", "{waiting}");
    first.stop().await;

    let second = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let client = Client::modern(&second, forms);
    let mut again = call("helper", "hi");
    again["requestState"] = asked["requestState"].clone();
    // A state without answers asks the same again.
    let repeated = client.result("tools/call", again.clone()).await;
    assert_eq!(repeated["inputRequests"], asked["inputRequests"]);
    again["inputResponses"] = json!({ "one": accept() });
    let done = client.result("tools/call", again.clone()).await;
    assert_eq!(texts(&done)[..2], ["One moment.", "done: one accept"], "{done}");

    let plain = Client::modern(&second, json!({}));
    let rejected = plain.call("answer", json!({ "run": run_of(&waiting), "decision": "reject" })).await;
    assert!(texts(&rejected).concat().contains("done: one reject"), "{rejected}");
    second.stop().await;

    // The answered call is repeated at a third process: its result is the same, and the agent is not called again.
    let requests = upstream.requests().len();
    let third = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let client = Client::modern(&third, json!({ "elicitation": { "form": {} } }));
    let repeated = client.result("tools/call", again).await;
    assert_eq!((&repeated["content"], upstream.requests().len()), (&done["content"], requests));
    third.stop().await;
}

#[tokio::test]
async fn tasks_are_found_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = asking(vec![approval("one")]);
    let source = format!("{FILE}{ROUTE}{}", config(&upstream, "tasks = \"always\""));
    let capabilities = json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let status = async |client: &Client<'_>, task: &Value, status: &str| {
        poll_until(status, async || {
            let found = client.result("tasks/get", json!({ "taskId": task })).await;
            (found["status"] == status).then_some(found)
        })
        .await
    };
    let first = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let client = Client::modern(&first, capabilities.clone());
    let [waits, ends] = [
        client.result("tools/call", call("helper", "a")).await,
        client.result("tools/call", call("helper", "b")).await,
    ]
    .map(|task| task["taskId"].clone());
    let asks = status(&client, &waits, "input_required").await;
    status(&client, &ends, "input_required").await;
    let update = json!({ "taskId": ends, "inputResponses": { "one": { "action": "decline" } } });
    client.result("tasks/update", update).await;
    let done = status(&client, &ends, "completed").await;
    first.stop().await;

    let second = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let client = Client::modern(&second, capabilities);
    let mut found = client.result("tasks/get", json!({ "taskId": ends })).await;
    found["_meta"] = done["_meta"].clone();
    assert_eq!(found, done);
    let still = client.result("tasks/get", json!({ "taskId": waits })).await;
    assert_eq!((&still["status"], &still["inputRequests"]), (&json!("input_required"), &asks["inputRequests"]));
    let update = json!({ "taskId": waits, "inputResponses": { "one": accept() } });
    client.result("tasks/update", update).await;
    let done = status(&client, &waits, "completed").await;
    assert!(texts(&done["result"]).concat().contains("done: one accept"), "{done}");
    second.stop().await;
}

#[tokio::test]
async fn a_question_on_a_stream_is_answered_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = asking(vec![approval("one")]);
    let source = format!("{FILE}{ROUTE}{}", config(&upstream, ""));
    let forms = json!({ "elicitation": { "form": {} } });
    let first = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let mut cut = Vec::new();
    for _ in 0..2 {
        let client = Client::legacy(&first, "2025-11-25", forms.clone()).await;
        let id = client.id();
        let mut stream = client.send(id, "tools/call", call("helper", "hi")).await;
        let (mut before, mut last) = (String::new(), String::new());
        while !last.contains("elicitation/create") {
            before = std::mem::replace(&mut last, stream.event().await.expect("a question"));
        }
        let ids = [before, last.clone()].map(|event| id_of(&event).expect("an id").to_owned());
        let question = message_of(&last).expect("a message");
        cut.push((AwayClient::of(&client), id, ids, question));
    }
    first.stop().await;

    let second = Gateway::in_folder(&source, folder.path().to_owned()).await;
    for (asks_again, (client, id, [before, asked], question)) in [false, true].into_iter().zip(cut) {
        let client = client.at(&second);
        // The stream was cut before its client had the question, or behind it.
        let mut stream = client.listen(Some(if asks_again { &before } else { &asked })).await;
        assert_eq!(stream.status().await, 200);
        let answered = if asks_again {
            stream.read_until("elicitation/create").await.pop().expect("a question")
        } else {
            question
        };
        assert_eq!(client.respond(&answered, accept()).await.status, 202);
        let result = stream.frames().await.pop().expect("a result");
        assert_eq!(result["id"], json!(id));
        assert!(texts(&result["result"]).concat().contains("done: one accept"), "{result}");
    }
    second.stop().await;
}
