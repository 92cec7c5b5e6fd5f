//! How long tasks are kept, through the running gateway: gone when their time is over, with all that goes with them;
//! cancelled when nobody answers; no more of them than a route wants.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::saying;
use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, agent, last_said};
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
const MEMORY: &str = "[store]\nkind = \"memory\"\n";

fn route(path: &str, options: &str) -> String {
    format!("[[routes]]\nprotocol = \"a2a\"\npath = \"{path}\"\noptions = {{ {options} }}\n")
}

/// The demo agent behind a route with these options, and the usual one.
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
    gateway.open("POST", path, &headers, body.as_bytes()).await.answer().await.json()
}

async fn ask(gateway: &Gateway, method: &str, params: Value) -> Value {
    ask_at(gateway, "/a2a/demo", method, params).await
}

fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// The task a message makes.
async fn send(gateway: &Gateway, text: &str) -> Value {
    let answer = ask(gateway, "SendMessage", message(text)).await;
    answer["result"]["task"].clone()
}

async fn get(gateway: &Gateway, task: &Value) -> Value {
    ask(gateway, "GetTask", json!({ "id": task["id"] })).await
}

fn is_unknown(answer: &Value) -> bool {
    answer["error"]["code"] == -32001
}

async fn until_gone(gateway: &Gateway, task: &Value) {
    until("a task to be gone", async || is_unknown(&get(gateway, task).await).then_some(())).await;
}

/// How many tasks there are, by the total and by the page. A round of forgetting may come between the two.
async fn count(gateway: &Gateway) -> u64 {
    until("a list that is as long as it says", async || {
        let list = ask(gateway, "ListTasks", json!({})).await;
        let total = list["result"]["totalSize"].as_u64().unwrap_or_else(|| panic!("{list}"));
        (list["result"]["tasks"].as_array().map(Vec::len) == usize::try_from(total).ok()).then_some(total)
    })
    .await
}

/// What is in the file of a gateway that has stopped.
fn rows(folder: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(folder.join("store.db")).expect("a file");
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a number")
}

#[tokio::test]
async fn a_task_is_gone_when_its_time_is_over() {
    for store in [MEMORY, FILE] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = demo(store, "task_ttl = \"2s\", push_allow = [\"127.0.0.1\"]");
        let gateway = Gateway::within(&config, folder.path().to_owned()).await;
        let config = json!({ "url": "https://127.0.0.1:1/hook" });
        let mut params = message("echo hello");
        params["configuration"] = json!({ "taskPushNotificationConfig": config });
        let answer = ask(&gateway, "SendMessage", params).await;
        let task = &answer["result"]["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
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
        assert_eq!(gateway.get(&native).await.status, 404, "nor is it found over another protocol");
        // Another task has its own time.
        let other = send(&gateway, "echo again").await;
        assert_eq!(get(&gateway, &other).await["result"]["id"], other["id"]);
        if store == FILE {
            // What counts as gone is forgotten with the next round at the latest.
            until_gone(&gateway, &other).await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            gateway.stop().await;
            assert_eq!((rows(folder.path(), "runs"), rows(folder.path(), "lines")), (0, 0));
            assert_eq!(rows(folder.path(), "documents WHERE collection = 'a2a/push'"), 0, "its configs went with it");
        }
    }
}

#[tokio::test]
async fn a_task_that_nobody_answers_is_cancelled_and_then_gone() {
    let receiver = Upstream::always(Answer::whole(200, &[], "{}"));
    let options = "task_ttl = \"3s\", interrupted_ttl = \"2s\", push_allow = [\"127.0.0.1\"], push_allow_http = true";
    let gateway = Gateway::with(&demo(MEMORY, options)).await;
    let mut params = message("approval");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } });
    let answer = ask(&gateway, "SendMessage", params).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{answer}");
    let mut headers = JSON.to_vec();
    headers.push(("a2a-version", "1.0"));
    let body = call("SubscribeToTask", &json!({ "id": task["id"] })).to_string();
    let mut events = gateway.open("POST", "/a2a/demo", &headers, body.as_bytes()).await;
    let told = events.frames().await;
    let last = told.last().expect("an event");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{told:?}");

    // Its time as an ended task begins only now.
    assert_eq!(get(&gateway, task).await["result"]["status"]["state"], "TASK_STATE_CANCELED");
    let pushed = || receiver.asked().iter().filter(|asked| asked.json().to_string().contains("_CANCELED")).count();
    until("the push", async || (pushed() == 1).then_some(())).await;
    // The context does not wait for an answer any more.
    let mut params = message("echo on");
    params["message"]["contextId"] = task["contextId"].clone();
    let next = ask(&gateway, "SendMessage", params).await;
    assert_eq!(next["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{next}");
    until_gone(&gateway, task).await;
}

#[tokio::test]
async fn a_task_that_waited_through_a_restart_is_cancelled_with_its_receivers_told() {
    let receiver = Upstream::always(Answer::whole(200, &[], "{}"));
    let options = "interrupted_ttl = \"3s\", push_allow = [\"127.0.0.1\"], push_allow_http = true";
    let config = demo(FILE, options);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let mut params = message("approval");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": receiver.url("/hook") } });
    let answer = ask(&gateway, "SendMessage", params).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{answer}");
    let done = send(&gateway, "echo done").await;
    gateway.stop().await;

    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    assert_eq!(get(&gateway, task).await["result"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let state = async || {
        let state = get(&gateway, task).await["result"]["status"]["state"].clone();
        (state == "TASK_STATE_CANCELED").then_some(())
    };
    until("the task to be cancelled", state).await;
    let pushed = || receiver.asked().iter().filter(|asked| asked.json().to_string().contains("_CANCELED")).count();
    until("the push", async || (pushed() == 1).then_some(())).await;
    assert_eq!(get(&gateway, &done).await["result"]["status"]["state"], "TASK_STATE_COMPLETED");
    gateway.stop().await;
    // A shorter time counts for tasks that were there before.
    let gateway = Gateway::within(&demo(FILE, "task_ttl = \"1s\""), folder.path().to_owned()).await;
    until_gone(&gateway, &done).await;
    until_gone(&gateway, task).await;
}

#[tokio::test]
async fn a_route_keeps_the_newest_tasks_and_all_that_have_not_ended() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::deciding(|asked| match last_said(&asked.json()).as_str() {
            "work" => Answer::events().hang(),
            said => saying(&[said]),
        });
        let routes = [route("/a2a/{agent}", "max_tasks = 3, interrupted_ttl = \"4s\""), route("/other", "")];
        let agent = agent("demo", &upstream.url("/process"), "", "");
        let gateway = Gateway::with(&format!("{store}{agent}{}", routes.concat())).await;
        let mut params = message("work");
        params["configuration"] = json!({ "returnImmediately": true });
        let working = ask(&gateway, "SendMessage", params).await["result"]["task"].clone();
        upstream.wait_asked(1).await;
        let mut tasks = Vec::new();
        for number in 0..6 {
            tasks.push(send(&gateway, &number.to_string()).await);
        }
        for number in 0..5 {
            ask_at(&gateway, "/other", "SendMessage", message(&format!("other {number}"))).await;
        }
        // Sessions are shared: over each route the tasks of both are seen.
        until("the oldest to be gone", async || (count(&gateway).await == 5 + 3).then_some(())).await;
        for (place, task) in tasks.iter().enumerate() {
            assert_eq!(is_unknown(&get(&gateway, task).await), place < 4, "{place}");
        }
        assert!(!is_unknown(&get(&gateway, &working).await), "what works is not forgotten");
    }
}

#[tokio::test]
async fn a_context_remembers_what_was_said_in_tasks_that_are_gone() {
    for store in [MEMORY, FILE] {
        let upstream = Upstream::always(saying(&["noted"]));
        let agent = agent("demo", &upstream.url("/process"), "history = \"gateway\"", "");
        let gateway = Gateway::with(&format!("{store}{agent}{}", route("/a2a/{agent}", "task_ttl = \"1s\""))).await;
        let task = send(&gateway, "my name is Ada").await;
        until_gone(&gateway, &task).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(count(&gateway).await, 0);
        let mut params = message("who am I?");
        params["message"]["contextId"] = task["contextId"].clone();
        ask(&gateway, "SendMessage", params).await;
        let asked = upstream.asked().pop().expect("a question").json().to_string();
        assert!(asked.contains("my name is Ada") && asked.contains("noted"), "{asked}");
    }
}
