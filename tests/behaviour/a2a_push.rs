//! A2A push notifications through the running gateway: which events of a task reach a receiver, how long delivery is
//! retried, and which addresses are refused. Not here: name resolution (`crates/upstream/src/push`) and the encoding of
//! one event (`interlingua_a2a`).

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{
    approval_request, busy_and_asking, frames, text_reply, text_reply_then_hang, text_reply_until,
};
use crate::support::callers::{AUTH, key_of, write_keys};
use crate::support::gateway::{Gateway, JSON, agent};
use crate::support::http::Exchange;
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::upstream::{Reply, Upstream};

const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
const MEMORY: &str = "[store]\nkind = \"memory\"\n";
const ALLOWED: &str = "push_allow = [\"127.0.0.1\"], push_allow_http = true";

fn config(store: &str, upstream: &Upstream, options: &str) -> String {
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    format!("{store}{agent}[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\noptions = {{ {options} }}\n")
}

async fn before(store: &str, upstream: &Upstream) -> Gateway {
    Gateway::with_config(&config(store, upstream, ALLOWED)).await
}

async fn within(folder: &Path, upstream: &Upstream) -> Gateway {
    Gateway::in_folder(&config(FILE, upstream, ALLOWED), folder.to_owned()).await
}

fn receiver() -> Upstream {
    Upstream::always(Reply::complete(200, &[], "{}"))
}

async fn rpc(gateway: &Gateway, version: &str, method: &str, params: Value) -> Value {
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", version));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    gateway.open("POST", "/a2a/demo", &headers, body.as_bytes()).await.response().await.json()
}

async fn ask(gateway: &Gateway, method: &str, params: Value) -> Value {
    let answer = rpc(gateway, "1.0", method, params).await;
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

/// Sends a message and returns its task.
async fn send(gateway: &Gateway, part: Value, task: Option<&Value>, configuration: Value) -> Value {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.clone();
    }
    ask(gateway, "SendMessage", json!({ "message": message, "configuration": configuration })).await["task"].clone()
}

fn write_config(folder: &Path, upstream: &Upstream) {
    let source = format!("[server]\nlisten = \"127.0.0.1:0\"\n{}", config(FILE, upstream, ALLOWED));
    std::fs::write(folder.join("gateway.toml"), source).expect("a file");
}

/// Sends a message to a process and returns its task.
async fn post(process: &Process, part: Value, task: Option<&Value>, configuration: Value) -> Value {
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", "1.0"));
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.clone();
    }
    let body = json!({ "message": message, "configuration": configuration }).to_string();
    let made = process.open("POST", "/a2a/demo/message:send", &headers, body.as_bytes()).await.response().await;
    assert_eq!(made.status, 200, "{}", made.text());
    made.json()["task"].clone()
}

/// Creates a task that waits for approval and returns its id.
async fn waiting(gateway: &Gateway, configuration: Value) -> Value {
    let task = send(gateway, json!({ "text": "hi" }), None, configuration).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    task["id"].clone()
}

/// Accepts an interrupt of [`approval_request`].
async fn accept(gateway: &Gateway, id: &str, task: &Value, configuration: Value) -> Value {
    send(gateway, json!({ "data": { "interrupt_id": id, "decision": "accept" } }), Some(task), configuration).await
}

/// A message configuration with a push receiver.
fn to(receiver: &Upstream) -> Value {
    json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } })
}

async fn create(gateway: &Gateway, task: &Value, id: &str, url: &str) -> Value {
    let params = json!({ "taskId": task, "id": id, "url": url });
    rpc(gateway, "1.0", "CreateTaskPushNotificationConfig", params).await
}

/// The notifications of a receiver, abbreviated.
fn notifications(receiver: &Upstream) -> Vec<String> {
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
    receiver.requests().iter().map(|request| short(request.json())).collect()
}

/// Waits until the last notification of a receiver is this one.
async fn wait_for_last(receiver: &Upstream, last: &str) -> Vec<String> {
    poll_until(last, async || {
        Some(notifications(receiver)).filter(|events| events.last().is_some_and(|event| event == last))
    })
    .await
}

#[tokio::test]
async fn a_config_sent_with_an_answer_receives_that_whole_turn() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::in_order([approval_request("ask_1"), text_reply(&["done"])]);
        let gateway = before(store, &upstream).await;
        let task = waiting(&gateway, json!({})).await;
        let receiver = receiver();
        accept(&gateway, "ask_1", &task, to(&receiver)).await;
        assert_eq!(wait_for_last(&receiver, "COMPLETED").await, ["WORKING", "done", "COMPLETED"], "{store}");
    }
}

#[tokio::test]
async fn a_config_created_while_a_task_works_receives_only_later_events() {
    let upstream = Upstream::in_order([text_reply_until(&["one"], "go"), text_reply(&["two"])]);
    let gateway = before(MEMORY, &upstream).await;
    let at_once = json!({ "returnImmediately": true });
    let task = send(&gateway, json!({ "text": "hi" }), None, at_once.clone()).await["id"].clone();
    let shown = async || {
        let task = ask(&gateway, "GetTask", json!({ "id": task })).await;
        (task["artifacts"][0]["parts"][0]["text"] == "one").then_some(())
    };
    poll_until("the first word", shown).await;
    let receiver = receiver();
    let mut configuration = to(&receiver);
    configuration["returnImmediately"] = true.into();
    send(&gateway, json!({ "text": "and then" }), Some(&task), configuration).await;
    upstream.open("go");
    let received = wait_for_last(&receiver, "COMPLETED").await;
    assert_eq!(received[received.len() - 3..], ["WORKING", "two", "COMPLETED"], "{received:?}");
    assert!(!received.contains(&"one".to_owned()), "it was sent before the config existed: {received:?}");
}

#[tokio::test]
async fn a_config_created_on_a_waiting_task_receives_its_next_turn() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::in_order([approval_request("ask_1"), text_reply(&["done"])]);
        let gateway = before(store, &upstream).await;
        let task = waiting(&gateway, json!({})).await;
        let receiver = receiver();
        let made = create(&gateway, &task, "c", &receiver.url("/hook")).await;
        assert_eq!(made["result"]["id"], "c", "{made}");
        accept(&gateway, "ask_1", &task, json!({})).await;
        assert_eq!(wait_for_last(&receiver, "COMPLETED").await, ["WORKING", "done", "COMPLETED"], "{store}");
    }
}

#[tokio::test]
async fn configs_receive_the_next_turn_after_a_restart() {
    let upstream = Upstream::in_order([approval_request("ask_1"), approval_request("ask_2"), text_reply(&["done"])]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = within(folder.path(), &upstream).await;
    let first = receiver();
    let task = waiting(&gateway, to(&first)).await;
    wait_for_last(&first, "INPUT_REQUIRED").await;
    gateway.stop().await;

    let gateway = within(folder.path(), &upstream).await;
    let second = receiver();
    create(&gateway, &task, "c", &second.url("/hook")).await;
    accept(&gateway, "ask_1", &task, json!({})).await;
    let started = ["task SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "INPUT_REQUIRED"];
    poll_until("all notifications of the first receiver", async || (notifications(&first) == started).then_some(()))
        .await;
    assert_eq!(wait_for_last(&second, "INPUT_REQUIRED").await, ["WORKING", "INPUT_REQUIRED"]);
    gateway.stop().await;

    // A cancellation is notified too.
    let gateway = within(folder.path(), &upstream).await;
    ask(&gateway, "CancelTask", json!({ "id": task })).await;
    assert_eq!(wait_for_last(&first, "CANCELED").await[5..], ["CANCELED"]);
    assert_eq!(wait_for_last(&second, "CANCELED").await[2..], ["CANCELED"]);
}

#[tokio::test]
async fn pending_notifications_are_sent_before_the_gateway_stops() {
    let upstream = Upstream::always(text_reply(&["done"]));
    let gateway = before(MEMORY, &upstream).await;
    let answer = Reply::default().pause(Duration::from_millis(20)).and_raw("HTTP/1.1 204 No Content\r\n\r\n");
    let slow = Upstream::always(answer);
    send(&gateway, json!({ "text": "hi" }), None, to(&slow)).await;
    gateway.stop().await;
    assert_eq!(notifications(&slow), ["task SUBMITTED", "WORKING", "done", "COMPLETED"]);
}

#[tokio::test]
async fn an_idle_process_ends_although_a_receiver_hangs_and_a_client_stalls() {
    let upstream = Upstream::always(text_reply(&["done"]));
    let folder = tempfile::tempdir().expect("a folder");
    write_config(folder.path(), &upstream);
    let process = Process::start(folder.path());
    let hangs = Upstream::always(Reply::default().pause(Duration::from_secs(30)));
    let task = post(&process, json!({ "text": "hi" }), None, to(&hangs)).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    hangs.wait_for_requests(1).await;
    let half =
        "POST /a2a/demo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let _stalls = Exchange::send(process.address, half.as_bytes()).await;

    process.terminate();
    let began = Instant::now();
    assert_eq!(process.wait().await.code(), Some(0));
    // It takes a second. A request to a receiver may take 10 s, and a connection 3 s after the end.
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_task_that_a_crash_ended_is_reported_after_the_restart() {
    let upstream = Upstream::always(text_reply_then_hang(&["one"]));
    let receiver = receiver();
    let folder = tempfile::tempdir().expect("a folder");
    write_config(folder.path(), &upstream);
    let process = Process::start(folder.path());
    let mut configuration = to(&receiver);
    configuration["returnImmediately"] = true.into();
    post(&process, json!({ "text": "hi" }), None, configuration).await;
    wait_for_last(&receiver, "one").await;
    process.kill();
    let _process = Process::start(folder.path());

    let received = wait_for_last(&receiver, "FAILED").await;
    assert_eq!(received[..3], ["task SUBMITTED", "WORKING", "one"], "{received:?}");
    assert_eq!(received.iter().filter(|received| *received == "WORKING").count(), 1, "{received:?}");
}

#[tokio::test]
async fn notifications_lost_in_a_crash_arrive_after_the_restart() {
    for (first, state, expected) in [
        (text_reply(&["one"]), "COMPLETED", &["task SUBMITTED", "WORKING", "one", "COMPLETED"][..]),
        (approval_request("ask"), "INPUT_REQUIRED", &["task SUBMITTED", "WORKING", "INPUT_REQUIRED"]),
    ] {
        let upstream = Upstream::in_order([first, text_reply(&["done"])]);
        let allowed = Arc::new(AtomicBool::new(false));
        let is_allowed = Arc::clone(&allowed);
        let receiver = Upstream::with_handler(move |request| {
            let is_last = request.json()["statusUpdate"]["status"]["state"] == format!("TASK_STATE_{state}");
            let status = if is_last && !is_allowed.load(Ordering::Relaxed) { 503 } else { 200 };
            Reply::complete(status, &[], "{}")
        });

        let folder = tempfile::tempdir().expect("a folder");
        write_config(folder.path(), &upstream);
        let process = Process::start(folder.path());
        let task = post(&process, json!({ "text": "hi" }), None, to(&receiver)).await;
        wait_for_last(&receiver, state).await;
        process.kill();
        let sent = notifications(&receiver).len();
        allowed.store(true, Ordering::Relaxed);
        let process = Process::start(folder.path());
        let mut expected = expected.to_vec();
        if state == "INPUT_REQUIRED" {
            // Perhaps before the rest of the first turn was sent.
            let accepts = json!({ "data": { "interrupt_id": "ask", "decision": "accept" } });
            post(&process, accepts, Some(&task["id"]), json!({})).await;
            expected.extend(["WORKING", "done", "COMPLETED"]);
        } else {
            poll_until("the rest", async || (receiver.requests().len() > sent).then_some(())).await;
        }

        let last = expected.last().expect("something is expected");
        wait_for_last(&receiver, last).await;
        // For longer than it takes to look for what is left.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut before = notifications(&receiver);
        let again = before.split_off(sent);
        before.dedup();
        assert_eq!(expected[..before.len()], before);
        assert_eq!(again.iter().filter(|sent| *sent == state).count(), 1, "accepted once: {again:?}");
        // The gateway may have been killed before it stored that an event was accepted: such an event arrives again.
        assert!(expected.ends_with(&again.iter().map(String::as_str).collect::<Vec<_>>()), "{again:?}");
        assert!(before.len() + again.len() > expected.len(), "{before:?} {again:?}");
    }
}

#[tokio::test]
async fn notifications_lost_in_a_crash_arrive_although_lists_cannot_read_the_run() {
    let upstream = Upstream::always(text_reply(&["one"]));
    let is_up = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_up);
    let receiver = Upstream::with_handler(move |_| {
        let status = if answers.load(Ordering::Relaxed) { 200 } else { 503 };
        Reply::complete(status, &[], "{}")
    });
    let folder = tempfile::tempdir().expect("a folder");
    write_config(folder.path(), &upstream);
    let process = Process::start(folder.path());
    post(&process, json!({ "text": "hi" }), None, to(&receiver)).await;
    receiver.wait_for_requests(1).await;
    process.kill();

    let file = rusqlite::Connection::open(folder.path().join("store.db")).expect("a file");
    let damaged = file.execute("UPDATE runs SET head = substr(head, 10)", []);
    assert_eq!(damaged.expect("it is written"), 1);
    drop(file);
    is_up.store(true, Ordering::Relaxed);
    let _process = Process::start(folder.path());
    let received = wait_for_last(&receiver, "COMPLETED").await;
    assert!(received.ends_with(&["task SUBMITTED", "WORKING", "one", "COMPLETED"].map(str::to_owned)), "{received:?}");
}

#[tokio::test]
async fn a_receiver_is_disabled_after_ten_consecutive_failures_until_it_is_configured_again() {
    let upstream = Upstream::in_order([
        busy_and_asking("ask_1"),
        approval_request("ask_2"),
        approval_request("ask_3"),
        text_reply(&["done"]),
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = within(folder.path(), &upstream).await;

    let failing = Upstream::always(Reply::complete(400, &[], "no"));
    let witness = receiver();
    let named = json!({ "taskPushNotificationConfig": { "id": "c", "url": failing.url("/hook"), "token": "t" } });
    let task = waiting(&gateway, named).await;
    create(&gateway, &task, "w", &witness.url("/hook")).await;
    failing.wait_for_requests(10).await;

    // The owner still sees the configuration.
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
    assert_eq!(wait_for_last(&witness, "INPUT_REQUIRED").await, ["WORKING", "INPUT_REQUIRED"]);

    gateway.stop().await;
    let gateway = within(folder.path(), &upstream).await;
    accept(&gateway, "ask_2", &task, json!({})).await;
    poll_until("all notifications of the witness", async || (notifications(&witness).len() == 4).then_some(())).await;
    assert_eq!(failing.requests().len(), 10, "neither in the next turn nor after a restart");
    shown(&gateway).await;

    let mended = receiver();
    create(&gateway, &task, "c", &mended.url("/hook")).await;
    accept(&gateway, "ask_3", &task, json!({})).await;
    assert_eq!(wait_for_last(&mended, "COMPLETED").await, ["WORKING", "done", "COMPLETED"]);
}

#[tokio::test]
async fn a_config_that_replaces_another_receives_the_undelivered_events() {
    let upstream = Upstream::always(text_reply(&["done"]));
    let gateway = before(MEMORY, &upstream).await;

    // This receiver accepts the first event and never responds.
    let unresponsive = Upstream::always(Reply::silence());
    let named = json!({ "taskPushNotificationConfig": { "id": "c", "url": unresponsive.url("/hook") } });
    let task = send(&gateway, json!({ "text": "hi" }), None, named).await;
    unresponsive.wait_for_requests(1).await;
    let good = receiver();
    create(&gateway, &task["id"], "c", &good.url("/hook")).await;
    assert_eq!(wait_for_last(&good, "COMPLETED").await, ["task SUBMITTED", "WORKING", "done", "COMPLETED"]);
    unresponsive.wait_for_disconnects(1).await;
    assert_eq!(unresponsive.requests().len(), 1);
}

#[tokio::test]
async fn a_slow_receiver_delays_neither_the_run_nor_other_receivers() {
    let words: Vec<String> = (0..2000).map(|number| format!("{number} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let upstream = Upstream::always(Reply::frames(frames(&words)));
    let gateway = before(MEMORY, &upstream).await;

    let answer = Reply::default().wait("go").and_raw("HTTP/1.1 204 No Content\r\n\r\n");
    let slow = Upstream::always(answer);
    let task = send(&gateway, json!({ "text": "hi" }), None, to(&slow)).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    slow.wait_for_requests(1).await;
    slow.open("go");
    let received = wait_for_last(&slow, "COMPLETED").await;
    assert_eq!(received[..2], ["task SUBMITTED", "WORKING"]);
    assert_eq!(received[2..received.len() - 1].concat(), words.concat(), "in order, nothing twice");
}

#[tokio::test]
async fn a_pushed_task_equals_the_task_that_a_client_reads() {
    let upstream = Upstream::always(text_reply(&["done"]));
    let gateway = before(MEMORY, &upstream).await;
    let receiver = receiver();
    let message =
        json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "hi" }] });
    let configuration = json!({ "blocking": true, "pushNotificationConfig": { "url": receiver.url("/hook") } });
    let params = json!({ "message": message, "configuration": configuration });
    let answer = rpc(&gateway, "0.3", "message/send", params).await;
    let id = &answer["result"]["id"];
    let last = async || {
        let last = receiver.requests().last().map(|request| request.json());
        last.filter(|task| task["status"]["state"] == "completed")
    };
    let mut pushed = poll_until("the end", last).await;
    let mut shown = rpc(&gateway, "0.3", "tasks/get", json!({ "id": id })).await["result"].clone();
    assert_eq!(pushed["metadata"]["agent_api"]["usage"]["output_tokens"], 2, "{pushed}");

    for task in [&mut pushed, &mut shown] {
        // One is the time of the event, the other that of the last change of the task.
        task["status"]["timestamp"] = Value::Null;
    }

    assert_eq!(pushed, shown);
    let started = receiver.requests().first().expect("a push").json();
    assert!(started.get("metadata").is_none(), "usage was not known then: {started}");
}

#[tokio::test]
async fn the_gateway_itself_is_never_accepted_as_a_receiver() {
    let upstream = Upstream::always(approval_request("ask_1"));
    let everything = "push_allow = [\"0.0.0.0/0\", \"::/0\", \"localhost\"], push_allow_http = true";
    let machine: Vec<IpAddr> =
        if_addrs::get_if_addrs().expect("the machine has addresses").iter().map(if_addrs::Interface::ip).collect();
    for listens in ["0.0.0.0", "127.0.0.1"] {
        let server = format!("[server]\nlisten = \"{listens}:0\"\ndrain = \"1ms\"\n");
        let config = config(MEMORY, &upstream, everything).replace("[[routes]]", "[[routes]]\nauth = \"none\"");
        let mut gateway = Gateway::with_config(&format!("{server}{config}")).await;
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
async fn a_receiver_learns_that_a_task_was_answered_over_another_protocol_even_after_a_restart() {
    const NATIVE: &str = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\n";
    for restarts in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let upstream = Upstream::in_order([approval_request("ask_1"), text_reply(&["done"])]);
        let config = format!("{}{NATIVE}", config(FILE, &upstream, ALLOWED));
        let mut gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
        let receiver = receiver();
        let task = waiting(&gateway, to(&receiver)).await;
        wait_for_last(&receiver, "INPUT_REQUIRED").await;
        if restarts {
            gateway.stop().await;
            gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
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

        let received = wait_for_last(&receiver, "COMPLETED").await;
        assert_eq!(
            received[received.len() - 3..],
            ["INPUT_REQUIRED", "WORKING", "COMPLETED"],
            "{restarts}: {received:?}"
        );
    }
}

/// `returnImmediately`, with a push receiver.
fn at_once_to(receiver: &Upstream) -> Value {
    let mut configuration = to(receiver);
    configuration["returnImmediately"] = true.into();
    configuration
}

#[tokio::test]
async fn receivers_of_a_removed_caller_get_nothing_more() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::always(text_reply_until(&["one"], "go"));
        let folder = tempfile::tempdir().expect("a folder");
        write_keys(folder.path(), &["ann", "bob"]);
        let source = format!("{AUTH}{}", config(store, &upstream, ALLOWED));
        let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
        let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
        let (hers, his) = (receiver(), receiver());
        for (caller, receiver) in [(&ann, &hers), (&bob, &his)] {
            send(caller, json!({ "text": "hi" }), None, at_once_to(receiver)).await;
            wait_for_last(receiver, "one").await;
        }

        write_keys(folder.path(), &["bob"]);
        poll_until("ann to be refused", async || (ann.get("/a2a/demo/tasks").await.status == 401).then_some(())).await;
        upstream.open("go");
        wait_for_last(&his, "COMPLETED").await;
        // Hers would have come as early as his.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(notifications(&hers), ["task SUBMITTED", "WORKING", "one"], "{store}");
    }
}

#[tokio::test]
async fn receivers_of_a_caller_who_was_removed_meanwhile_get_nothing_after_a_restart() {
    let upstream = Upstream::always(text_reply_then_hang(&["one"]));
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann", "bob"]);
    let server = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let source = format!("{server}{AUTH}{}", config(FILE, &upstream, ALLOWED));
    std::fs::write(folder.path().join("gateway.toml"), source).expect("a file");
    let process = Process::start(folder.path());

    let (hers, his) = (receiver(), receiver());
    for (caller, receiver) in [("ann", &hers), ("bob", &his)] {
        let key = key_of(caller);
        let headers = [JSON, &[("a2a-version", "1.0"), ("x-api-key", key.as_str())]].concat();
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
        let body = json!({ "message": message, "configuration": at_once_to(receiver) }).to_string();
        let made = process.open("POST", "/a2a/demo/message:send", &headers, body.as_bytes()).await.response().await;
        assert_eq!(made.status, 200, "{}", made.text());
        wait_for_last(receiver, "one").await;
    }
    process.kill();
    write_keys(folder.path(), &["bob"]);
    let _process = Process::start(folder.path());

    wait_for_last(&his, "FAILED").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(notifications(&hers), ["task SUBMITTED", "WORKING", "one"]);
}
