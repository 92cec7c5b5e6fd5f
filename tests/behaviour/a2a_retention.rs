//! Retention of A2A tasks in the running gateway: ended tasks are deleted after their TTL together with their push
//! configurations, unanswered tasks are cancelled, and a route keeps a maximum number of tasks.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::text_reply;
use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, agent, last_input_text};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
const MEMORY: &str = "[store]\nkind = \"memory\"\n";

fn route(path: &str, options: &str) -> String {
    format!("[[routes]]\nprotocol = \"a2a\"\npath = \"{path}\"\noptions = {{ {options} }}\n")
}

/// The demo agent behind an A2A route with these options and an Agent API route.
fn demo(store: &str, options: &str) -> String {
    format!("{store}{DEMO}{}{ROUTE}", route("/a2a/{agent}", options))
}

fn call(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

async fn ask_at(gateway: &Gateway, path: &str, method: &str, params: Value) -> Value {
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", "1.0"));
    let body = call(method, &params).to_string();
    gateway.open("POST", path, &headers, body.as_bytes()).await.response().await.json()
}

async fn ask(gateway: &Gateway, method: &str, params: Value) -> Value {
    ask_at(gateway, "/a2a/demo", method, params).await
}

fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// Sends a message and returns the new task.
async fn send(gateway: &Gateway, text: &str) -> Value {
    let response = ask(gateway, "SendMessage", message(text)).await;
    response["result"]["task"].clone()
}

async fn get(gateway: &Gateway, task: &Value) -> Value {
    ask(gateway, "GetTask", json!({ "id": task["id"] })).await
}

fn is_unknown(answer: &Value) -> bool {
    answer["error"]["code"] == -32001
}

async fn until_gone(gateway: &Gateway, task: &Value) {
    poll_until("a task to be gone", async || is_unknown(&get(gateway, task).await).then_some(())).await;
}

/// The number of tasks. Polls until total and page agree, since retention may run between the two.
async fn count(gateway: &Gateway) -> u64 {
    poll_until("a list that is as long as it says", async || {
        let list = ask(gateway, "ListTasks", json!({})).await;
        let total = list["result"]["totalSize"].as_u64().unwrap_or_else(|| panic!("{list}"));
        (list["result"]["tasks"].as_array().map(Vec::len) == usize::try_from(total).ok()).then_some(total)
    })
    .await
}

/// Counts rows in the database of a stopped gateway.
fn rows(folder: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(folder.join("store.db")).expect("a file");
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a number")
}

#[tokio::test]
async fn an_ended_task_is_deleted_after_its_ttl() {
    for store in [MEMORY, FILE] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = demo(store, "task_ttl = \"2s\", push_allow = [\"127.0.0.1\"]");
        let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
        let config = json!({ "url": "https://127.0.0.1:1/hook" });
        let mut params = message("echo hello");
        params["configuration"] = json!({ "taskPushNotificationConfig": config });
        let response = ask(&gateway, "SendMessage", params).await;
        let task = &response["result"]["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{response}");
        assert_eq!(get(&gateway, task).await["result"]["id"], task["id"]);

        let configs = ask(&gateway, "ListTaskPushNotificationConfigs", json!({ "taskId": task["id"] })).await;
        assert_eq!(configs["result"]["configs"].as_array().map(Vec::len), Some(1), "{configs}");
        let native = format!("/agents/demo/runs/{}", task["id"].as_str().expect("an id"));
        assert_eq!(gateway.get(&native).await.status, 200);
        assert_eq!(count(&gateway).await, 1);

        until_gone(&gateway, task).await;
        assert_eq!(count(&gateway).await, 0);
        let configs = ask(&gateway, "ListTaskPushNotificationConfigs", json!({ "taskId": task["id"] })).await;
        assert!(is_unknown(&configs), "{configs}");
        assert!(is_unknown(&ask(&gateway, "CancelTask", json!({ "id": task["id"] })).await));
        assert!(is_unknown(&ask(&gateway, "SubscribeToTask", json!({ "id": task["id"] })).await));
        assert_eq!(gateway.get(&native).await.status, 404, "it is not found over another protocol either");

        // Another task has its own TTL.
        let other = send(&gateway, "echo again").await;
        assert_eq!(get(&gateway, &other).await["result"]["id"], other["id"]);
        if store == FILE {
            // Expired tasks are hidden at once and deleted by the next housekeeping round.
            until_gone(&gateway, &other).await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            gateway.stop().await;
            assert_eq!((rows(folder.path(), "runs"), rows(folder.path(), "lines")), (0, 0));
            assert_eq!(
                rows(folder.path(), "documents WHERE collection = 'a2a/push'"),
                0,
                "its push configs are deleted too"
            );
        }
    }
}

#[tokio::test]
async fn an_unanswered_task_is_cancelled_and_then_deleted() {
    let receiver = Upstream::always(Reply::complete(200, &[], "{}"));
    let options = "task_ttl = \"3s\", interrupted_ttl = \"2s\", push_allow = [\"127.0.0.1\"], push_allow_http = true";
    let gateway = Gateway::with_config(&demo(MEMORY, options)).await;
    let mut params = message("approval");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } });
    let response = ask(&gateway, "SendMessage", params).await;
    let task = &response["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{response}");

    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", "1.0"));
    let body = call("SubscribeToTask", &json!({ "id": task["id"] })).to_string();
    let mut events = gateway.open("POST", "/a2a/demo", &headers, body.as_bytes()).await;
    let received = events.frames().await;
    let last = received.last().expect("an event");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{received:?}");

    // Its TTL as an ended task starts only now.
    assert_eq!(get(&gateway, task).await["result"]["status"]["state"], "TASK_STATE_CANCELED");
    let pushed =
        || receiver.requests().iter().filter(|request| request.json().to_string().contains("_CANCELED")).count();
    poll_until("the push", async || (pushed() == 1).then_some(())).await;

    // The context is no longer blocked.
    let mut params = message("echo on");
    params["message"]["contextId"] = task["contextId"].clone();
    let next = ask(&gateway, "SendMessage", params).await;
    assert_eq!(next["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{next}");
    until_gone(&gateway, task).await;
}

#[tokio::test]
async fn a_task_that_waited_across_a_restart_is_cancelled_and_its_receivers_are_notified() {
    let receiver = Upstream::always(Reply::complete(200, &[], "{}"));
    let options = "interrupted_ttl = \"3s\", push_allow = [\"127.0.0.1\"], push_allow_http = true";
    let config = demo(FILE, options);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;

    let mut params = message("approval");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } });
    let response = ask(&gateway, "SendMessage", params).await;
    let task = &response["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{response}");
    let done = send(&gateway, "echo done").await;
    gateway.stop().await;

    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    assert_eq!(get(&gateway, task).await["result"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let state = async || {
        let state = get(&gateway, task).await["result"]["status"]["state"].clone();
        (state == "TASK_STATE_CANCELED").then_some(())
    };
    poll_until("the task to be cancelled", state).await;
    let pushed =
        || receiver.requests().iter().filter(|request| request.json().to_string().contains("_CANCELED")).count();
    poll_until("the push", async || (pushed() == 1).then_some(())).await;
    assert_eq!(get(&gateway, &done).await["result"]["status"]["state"], "TASK_STATE_COMPLETED");
    gateway.stop().await;

    // A shorter TTL applies to existing tasks too.
    let gateway = Gateway::in_folder(&demo(FILE, "task_ttl = \"1s\""), folder.path().to_owned()).await;
    until_gone(&gateway, &done).await;
    until_gone(&gateway, task).await;
}

#[tokio::test]
async fn a_route_keeps_its_newest_tasks_and_all_unfinished_ones() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
            "work" => Reply::events().hang(),
            said => text_reply(&[said]),
        });
        let routes = [route("/a2a/{agent}", "max_tasks = 3, interrupted_ttl = \"4s\""), route("/other", "")];
        let agent = agent("demo", &upstream.url("/process"), "", "");
        let gateway = Gateway::with_config(&format!("{store}{agent}{}", routes.concat())).await;
        let mut params = message("work");
        params["configuration"] = json!({ "returnImmediately": true });
        let working = ask(&gateway, "SendMessage", params).await["result"]["task"].clone();
        upstream.wait_for_requests(1).await;
        let mut tasks = Vec::new();
        for number in 0..6 {
            tasks.push(send(&gateway, &number.to_string()).await);
        }
        for number in 0..5 {
            ask_at(&gateway, "/other", "SendMessage", message(&format!("other {number}"))).await;
        }

        // Sessions are shared, so each route shows the tasks of both.
        poll_until("the oldest to be gone", async || (count(&gateway).await == 5 + 3).then_some(())).await;
        for (index, task) in tasks.iter().enumerate() {
            assert_eq!(is_unknown(&get(&gateway, task).await), index < 4, "{index}");
        }
        assert!(!is_unknown(&get(&gateway, &working).await), "a working task is not deleted");
    }
}

#[tokio::test]
async fn a_context_keeps_the_history_of_deleted_tasks() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::always(text_reply(&["noted"]));
        let agent = agent("demo", &upstream.url("/process"), "history = \"gateway\"", "");
        let gateway =
            Gateway::with_config(&format!("{store}{agent}{}", route("/a2a/{agent}", "task_ttl = \"1s\""))).await;
        let task = send(&gateway, "my name is Ada").await;
        until_gone(&gateway, &task).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(count(&gateway).await, 0);

        let mut params = message("who am I?");
        params["message"]["contextId"] = task["contextId"].clone();
        ask(&gateway, "SendMessage", params).await;
        let request = upstream.requests().pop().expect("a question").json().to_string();
        assert!(request.contains("my name is Ada") && request.contains("noted"), "{request}");
    }
}
