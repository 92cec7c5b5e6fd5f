//! Push notifications of A2A through the running gateway, to receivers that are there, fail, or must not be reached:
//! which events of a task arrive, for how long is tried, and what is never a receiver. Not here: names that resolve to
//! this and that (`src/upstream/push`), and how one event is written (`interlingua_a2a`).

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{approval, frames, saying, saying_and_hanging, saying_until};
use crate::support::gateway::{Gateway, JSON, agent};
use crate::support::process::Process;
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
const MEMORY: &str = "[store]\nkind = \"memory\"\n";
const ALLOWED: &str = "push_allow = [\"127.0.0.1\"], push_allow_http = true";

fn config(store: &str, upstream: &Upstream, options: &str) -> String {
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    format!("{store}{agent}[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\noptions = {{ {options} }}\n")
}

async fn before(store: &str, upstream: &Upstream) -> Gateway {
    Gateway::with(&config(store, upstream, ALLOWED)).await
}

async fn within(folder: &Path, upstream: &Upstream) -> Gateway {
    Gateway::within(&config(FILE, upstream, ALLOWED), folder.to_owned()).await
}

fn receiver() -> Upstream {
    Upstream::always(Answer::whole(200, &[], "{}"))
}

async fn rpc(gateway: &Gateway, version: &str, method: &str, params: Value) -> Value {
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", version));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    gateway.open("POST", "/a2a/demo", &headers, body.as_bytes()).await.answer().await.json()
}

async fn ask(gateway: &Gateway, method: &str, params: Value) -> Value {
    let answer = rpc(gateway, "1.0", method, params).await;
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

/// Sends a message, and answers the task it belongs to.
async fn send(gateway: &Gateway, part: Value, task: Option<&Value>, configuration: Value) -> Value {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.clone();
    }
    ask(gateway, "SendMessage", json!({ "message": message, "configuration": configuration })).await["task"].clone()
}

/// A task that waits for approval.
async fn waiting(gateway: &Gateway, configuration: Value) -> Value {
    let task = send(gateway, json!({ "text": "hi" }), None, configuration).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    task["id"].clone()
}

/// Answers a question that [`approval`] asks.
async fn accept(gateway: &Gateway, id: &str, task: &Value, configuration: Value) -> Value {
    send(gateway, json!({ "data": { "interrupt_id": id, "decision": "accept" } }), Some(task), configuration).await
}

/// The configuration of a message that names a receiver.
fn to(receiver: &Upstream) -> Value {
    json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } })
}

async fn create(gateway: &Gateway, task: &Value, id: &str, url: &str) -> Value {
    let params = json!({ "taskId": task, "id": id, "url": url });
    rpc(gateway, "1.0", "CreateTaskPushNotificationConfig", params).await
}

/// What a receiver was told, in short.
fn told(receiver: &Upstream) -> Vec<String> {
    let short = |body: Value| {
        let state = |status: &Value| status["state"].as_str().unwrap_or("?").replace("TASK_STATE_", "");
        if let Some(task) = body.get("task") {
            format!("task {}", state(&task["status"]))
        } else if let Some(update) = body.get("statusUpdate") {
            state(&update["status"])
        } else {
            body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or("?").to_owned()
        }
    };
    receiver.asked().iter().map(|asked| short(asked.json())).collect()
}

/// Waits until a receiver was told this last.
async fn until_told(receiver: &Upstream, last: &str) -> Vec<String> {
    until(last, async || Some(told(receiver)).filter(|told| told.last().is_some_and(|told| told == last))).await
}

#[tokio::test]
async fn a_config_that_comes_with_an_answer_is_told_all_of_that_turn() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::answering([approval("ask_1"), saying(&["done"])]);
        let gateway = before(store, &upstream).await;
        let task = waiting(&gateway, json!({})).await;
        let receiver = receiver();
        accept(&gateway, "ask_1", &task, to(&receiver)).await;
        assert_eq!(until_told(&receiver, "COMPLETED").await, ["WORKING", "done", "COMPLETED"], "{store}");
    }
}

#[tokio::test]
async fn a_config_that_comes_while_a_task_works_is_told_what_comes_from_then_on() {
    let upstream = Upstream::answering([saying_until(&["one"], "go"), saying(&["two"])]);
    let gateway = before(MEMORY, &upstream).await;
    let at_once = json!({ "returnImmediately": true });
    let task = send(&gateway, json!({ "text": "hi" }), None, at_once.clone()).await["id"].clone();
    let shown = async || {
        let task = ask(&gateway, "GetTask", json!({ "id": task })).await;
        (task["artifacts"][0]["parts"][0]["text"] == "one").then_some(())
    };
    until("the first word", shown).await;
    let receiver = receiver();
    let mut configuration = to(&receiver);
    configuration["returnImmediately"] = true.into();
    send(&gateway, json!({ "text": "and then" }), Some(&task), configuration).await;
    upstream.open("go");
    let told = until_told(&receiver, "COMPLETED").await;
    assert_eq!(told[told.len() - 3..], ["WORKING", "two", "COMPLETED"], "{told:?}");
    assert!(!told.contains(&"one".to_owned()), "that was before: {told:?}");
}

#[tokio::test]
async fn a_config_on_a_task_that_waits_is_told_all_of_its_next_turn() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::answering([approval("ask_1"), saying(&["done"])]);
        let gateway = before(store, &upstream).await;
        let task = waiting(&gateway, json!({})).await;
        let receiver = receiver();
        let made = create(&gateway, &task, "c", &receiver.url("/hook")).await;
        assert_eq!(made["result"]["id"], "c", "{made}");
        accept(&gateway, "ask_1", &task, json!({})).await;
        assert_eq!(until_told(&receiver, "COMPLETED").await, ["WORKING", "done", "COMPLETED"], "{store}");
    }
}

#[tokio::test]
async fn configs_are_told_all_of_the_next_turn_after_a_restart() {
    let upstream = Upstream::answering([approval("ask_1"), approval("ask_2"), saying(&["done"])]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = within(folder.path(), &upstream).await;
    let first = receiver();
    let task = waiting(&gateway, to(&first)).await;
    until_told(&first, "INPUT_REQUIRED").await;
    gateway.stop().await;

    let gateway = within(folder.path(), &upstream).await;
    let second = receiver();
    create(&gateway, &task, "c", &second.url("/hook")).await;
    accept(&gateway, "ask_1", &task, json!({})).await;
    let begun = ["task SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "INPUT_REQUIRED"];
    until("the first to be told", async || (told(&first) == begun).then_some(())).await;
    assert_eq!(until_told(&second, "INPUT_REQUIRED").await, ["WORKING", "INPUT_REQUIRED"]);
    gateway.stop().await;

    // The end is told too, however it comes.
    let gateway = within(folder.path(), &upstream).await;
    ask(&gateway, "CancelTask", json!({ "id": task })).await;
    assert_eq!(until_told(&first, "CANCELED").await[5..], ["CANCELED"]);
    assert_eq!(until_told(&second, "CANCELED").await[2..], ["CANCELED"]);
}

#[tokio::test]
async fn what_has_happened_is_told_before_the_gateway_stops() {
    let upstream = Upstream::always(saying(&["done"]));
    let gateway = before(MEMORY, &upstream).await;
    let answer = Answer::default().pause(Duration::from_millis(150)).and_raw("HTTP/1.1 204 No Content\r\n\r\n");
    let slow = Upstream::always(answer);
    send(&gateway, json!({ "text": "hi" }), None, to(&slow)).await;
    gateway.stop().await;
    assert_eq!(told(&slow), ["task SUBMITTED", "WORKING", "done", "COMPLETED"]);
}

#[tokio::test]
async fn a_task_that_a_crash_has_ended_is_told_of_when_the_gateway_is_back() {
    let upstream = Upstream::always(saying_and_hanging(&["one"]));
    let receiver = receiver();
    let folder = tempfile::tempdir().expect("a folder");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let source = format!("{server}{}", config(FILE, &upstream, ALLOWED));
    std::fs::write(folder.path().join("gateway.toml"), source).expect("a file");
    let process = Process::start(folder.path());
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", "1.0"));
    let mut configuration = to(&receiver);
    configuration["returnImmediately"] = true.into();
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let body = json!({ "message": message, "configuration": configuration }).to_string();
    let made = process.open("POST", "/a2a/demo/message:send", &headers, body.as_bytes()).await.answer().await;
    assert_eq!(made.status, 200, "{}", made.text());
    until_told(&receiver, "one").await;
    process.kill();
    let _process = Process::start(folder.path());
    let told = until_told(&receiver, "FAILED").await;
    assert_eq!(told[..3], ["task SUBMITTED", "WORKING", "one"], "nothing of it twice: {told:?}");
    assert_eq!(told.iter().filter(|told| *told == "WORKING").count(), 1, "{told:?}");
}

/// An agent's answer with many messages, and a question at its end.
fn busy_and_asking(id: &str) -> Answer {
    let response = |status: &str| json!({ "object": "response", "status": status, "id": "response_up" }).to_string();
    let call = |number: usize| {
        let data = json!({ "call_id": format!("call_{number}"), "name": "look", "arguments": "{}" });
        let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "data": data });
        let message = format!("msg_{number}");
        json!({ "object": "message", "status": "completed", "id": message, "type": "plugin_call", "role": "assistant", "content": [content] })
    };
    let data = json!({ "id": id, "name": "rm", "arguments": "{}", "server_label": "files" });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": "msg_ask", "data": data });
    let asks = json!({ "object": "message", "status": "completed", "id": "msg_ask", "type": "mcp_approval_request", "role": "assistant", "content": [content] });
    let begun = [response("created"), response("in_progress")].into_iter();
    let said = (0..20).map(call).chain([asks]).map(|message| message.to_string());
    Answer::frames(begun.chain(said).chain([response("completed")]))
}

#[tokio::test]
async fn a_receiver_that_fails_ten_times_in_a_row_is_given_up_until_it_is_named_again() {
    let upstream =
        Upstream::answering([busy_and_asking("ask_1"), approval("ask_2"), approval("ask_3"), saying(&["done"])]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = within(folder.path(), &upstream).await;
    let failing = Upstream::always(Answer::whole(400, &[], "no"));
    let witness = receiver();
    let named = json!({ "taskPushNotificationConfig": { "id": "c", "url": failing.url("/hook"), "token": "t" } });
    let task = waiting(&gateway, named).await;
    create(&gateway, &task, "w", &witness.url("/hook")).await;
    failing.wait_asked(10).await;

    // The owner sees it as before.
    let shown = async |gateway: &Gateway| {
        let params = json!({ "taskId": task, "id": "c" });
        let config = ask(gateway, "GetTaskPushNotificationConfig", params).await;
        let names = json!({ "taskId": task, "id": "c", "url": failing.url("/hook"), "token": "t" });
        assert_eq!(config, names);
        let list = ask(gateway, "ListTaskPushNotificationConfigs", json!({ "taskId": task })).await;
        assert_eq!(list["configs"].as_array().map(Vec::len), Some(2), "{list}");
    };
    shown(&gateway).await;
    accept(&gateway, "ask_1", &task, json!({})).await;
    assert_eq!(until_told(&witness, "INPUT_REQUIRED").await, ["WORKING", "INPUT_REQUIRED"]);
    gateway.stop().await;
    let gateway = within(folder.path(), &upstream).await;
    accept(&gateway, "ask_2", &task, json!({})).await;
    until("the witness to be told", async || (told(&witness).len() == 4).then_some(())).await;
    assert_eq!(failing.asked().len(), 10, "neither in the next turn nor after a restart");
    shown(&gateway).await;

    let mended = receiver();
    create(&gateway, &task, "c", &mended.url("/hook")).await;
    accept(&gateway, "ask_3", &task, json!({})).await;
    assert_eq!(until_told(&mended, "COMPLETED").await, ["WORKING", "done", "COMPLETED"]);
}

#[tokio::test]
async fn a_config_in_the_place_of_another_is_told_what_that_one_was_not() {
    let upstream = Upstream::always(saying(&["done"]));
    let gateway = before(MEMORY, &upstream).await;
    // It takes the first event, and never says so.
    let deaf = Upstream::always(Answer::silence());
    let named = json!({ "taskPushNotificationConfig": { "id": "c", "url": deaf.url("/hook") } });
    let task = send(&gateway, json!({ "text": "hi" }), None, named).await;
    deaf.wait_asked(1).await;
    let good = receiver();
    create(&gateway, &task["id"], "c", &good.url("/hook")).await;
    assert_eq!(until_told(&good, "COMPLETED").await, ["task SUBMITTED", "WORKING", "done", "COMPLETED"]);
    deaf.wait_left(1).await;
    assert_eq!(deaf.asked().len(), 1);
}

#[tokio::test]
async fn a_slow_receiver_holds_up_neither_the_run_nor_what_others_are_told() {
    let words: Vec<String> = (0..2000).map(|number| format!("{number} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let upstream = Upstream::always(Answer::frames(frames(&words)));
    let gateway = before(MEMORY, &upstream).await;
    let answer = Answer::default().wait("go").and_raw("HTTP/1.1 204 No Content\r\n\r\n");
    let slow = Upstream::always(answer);
    let task = send(&gateway, json!({ "text": "hi" }), None, to(&slow)).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    slow.wait_asked(1).await;
    slow.open("go");
    let told = until_told(&slow, "COMPLETED").await;
    assert_eq!(told[..2], ["task SUBMITTED", "WORKING"]);
    assert_eq!(told[2..told.len() - 1].concat(), words.concat(), "in order, nothing twice");
}

#[tokio::test]
async fn a_task_that_is_pushed_whole_says_of_itself_what_a_look_at_it_says() {
    let upstream = Upstream::always(saying(&["done"]));
    let gateway = before(MEMORY, &upstream).await;
    let receiver = receiver();
    let message =
        json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "hi" }] });
    let configuration = json!({ "blocking": true, "pushNotificationConfig": { "url": receiver.url("/hook") } });
    let params = json!({ "message": message, "configuration": configuration });
    let answer = rpc(&gateway, "0.3", "message/send", params).await;
    let id = &answer["result"]["id"];
    let last = async || {
        let last = receiver.asked().last().map(|asked| asked.json());
        last.filter(|task| task["status"]["state"] == "completed")
    };
    let mut pushed = until("the end", last).await;
    let mut shown = rpc(&gateway, "0.3", "tasks/get", json!({ "id": id })).await["result"].clone();
    assert_eq!(pushed["metadata"]["agent_api"]["usage"]["output_tokens"], 2, "{pushed}");
    for task in [&mut pushed, &mut shown] {
        // One is the time of the event, the other that of the task's last change.
        task["status"]["timestamp"] = Value::Null;
    }
    assert_eq!(pushed, shown);
    let begun = receiver.asked().first().expect("a push").json();
    assert!(begun.get("metadata").is_none(), "it was not known then: {begun}");
}

#[tokio::test]
async fn the_gateway_itself_is_never_a_receiver_whatever_it_listens_on_and_whatever_is_allowed() {
    let upstream = Upstream::always(approval("ask_1"));
    let everything = "push_allow = [\"0.0.0.0/0\", \"::/0\", \"localhost\"], push_allow_http = true";
    let machine: Vec<IpAddr> =
        if_addrs::get_if_addrs().expect("the machine has addresses").iter().map(if_addrs::Interface::ip).collect();
    for listens in ["0.0.0.0", "127.0.0.1"] {
        let server = format!("[server]\nlisten = \"{listens}:0\"\ndrain = \"1ms\"\n");
        let config = config(MEMORY, &upstream, everything).replace("[[routes]]", "[[routes]]\nauth = \"none\"");
        let mut gateway = Gateway::with(&format!("{server}{config}")).await;
        let port = gateway.address.port();
        gateway.address = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
        let task = waiting(&gateway, json!({})).await;
        let mut hosts: Vec<String> =
            ["127.0.0.1", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "0", "127.1", "localhost"]
                .map(str::to_owned)
                .to_vec();
        if listens == "0.0.0.0" {
            hosts.extend(["127.0.0.5".to_owned(), "[::1]".to_owned()]);
            hosts.extend(machine.iter().map(|address| match address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            }));
        }
        for host in hosts {
            let refused = create(&gateway, &task, "c", &format!("http://{host}:{port}/healthz")).await;
            assert_eq!(refused["error"]["code"], -32602, "{listens} {host}: {refused}");
        }
        let other = create(&gateway, &task, "c", &receiver().url("/hook")).await;
        assert_eq!(other["result"]["id"], "c", "other ports are not its own: {other}");
    }
}

#[tokio::test]
async fn a_receiver_is_told_that_a_task_was_answered_over_another_protocol_also_after_a_restart() {
    const NATIVE: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n";
    for restarts in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let upstream = Upstream::answering([approval("ask_1"), saying(&["done"])]);
        let config = format!("{}{NATIVE}", config(FILE, &upstream, ALLOWED));
        let mut gateway = Gateway::within(&config, folder.path().to_owned()).await;
        let receiver = receiver();
        let task = waiting(&gateway, to(&receiver)).await;
        until_told(&receiver, "INPUT_REQUIRED").await;
        if restarts {
            gateway.stop().await;
            gateway = Gateway::within(&config, folder.path().to_owned()).await;
        }
        let found = ask(&gateway, "GetTask", json!({ "id": task })).await;
        let data = json!({ "approval_request_id": "ask_1", "id": "ask_1", "approve": false });
        let content = json!([{ "type": "data", "data": data }]);
        let answer = json!({
            "session_id": found["contextId"],
            "input": [{ "type": "mcp_approval_response", "role": "user", "content": content }],
        });
        let answered = gateway.post("/agents/demo/process", &answer).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
        let told = until_told(&receiver, "COMPLETED").await;
        assert_eq!(told[told.len() - 3..], ["INPUT_REQUIRED", "WORKING", "COMPLETED"], "{restarts}: {told:?}");
    }
}
