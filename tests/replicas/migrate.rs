//! `interlingua store migrate`: two gateways on PostgreSQL continue the data of a gateway with a SQLite file. The real
//! binary, killed in the middle of a run. Not here: the stored data (`tests/store`).

use std::path::Path;
use std::process::Output;

use interlingua_testing_postgres::Database;
use serde_json::{Value, json};

use super::support::agent::{approval_request, text_reply, text_reply_then_hang};
use super::support::gateway::{JSON, ROUTE, agent, last_input_text, user_turn_in};
use super::support::poll_until;
use super::support::process::{self, Process};
use super::support::upstream::{Reply, Upstream};

const ROUTES: &str = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n\
    [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
    options = { push_allow = [\"127.0.0.1\"], push_allow_http = true }\n";
const MIGRATE: [&str; 6] = ["store", "migrate", "--from", "sqlite", "--to", "postgres"];

fn write_config(folder: &Path, upstream: &Upstream, store: &str) {
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nallowed_hosts = [\"gateway\", \"x\"]\n";
    let config = format!("{server}[store]\npath = \"data/old.db\"\n{store}{agent}{ROUTE}{ROUTES}");
    std::fs::write(folder.join("gateway.toml"), config).unwrap();
}

const SQLITE: &str = "kind = \"sqlite\"\n";
const POSTGRES: &str = "kind = \"postgres\"\nurl = { file = \"url\" }\nlease = \"2s\"\nconnections = 3\n";

/// An agent that asks before it removes a file, hangs on request, and otherwise repeats its input.
fn upstream() -> Upstream {
    Upstream::with_handler(|request| {
        let body = request.json();
        if body.to_string().contains("mcp_approval_response") {
            return text_reply(&["removed"]);
        }
        match &*last_input_text(&body) {
            "remove" => approval_request("ask-1"),
            "hang" => text_reply_then_hang(&["cut "]),
            text => text_reply(&[&format!("{text} in {}", body["session_id"])]),
        }
    })
}

async fn call(process: &Process, method: &str, path: &str, body: &Value) -> Value {
    let headers = [JSON, &[("a2a-version", "1.0")]].concat();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = process.open(method, path, &headers, body.as_bytes()).await.response().await;
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.json()
}

async fn get(process: &Process, path: &str) -> Value {
    call(process, "GET", path, &Value::Null).await
}

async fn rpc(process: &Process, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let answer = call(process, "POST", "/a2a/demo", &body).await;
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

async fn listed_task(process: &Process, id: &Value) -> Value {
    let list = rpc(process, "ListTasks", json!({})).await;
    let found = list["tasks"].as_array().unwrap().iter().find(|task| task["id"] == *id);
    found.unwrap_or_else(|| panic!("{list}")).clone()
}

async fn respond(process: &Process, input: &str, previous: &Value) -> Value {
    let body = json!({ "model": "demo", "input": input, "previous_response_id": previous });
    call(process, "POST", "/v1/responses", &body).await
}

/// All ids of a list, page by page.
async fn runs(process: &Process) -> Vec<Value> {
    let (mut runs, mut query) = (Vec::new(), String::new());
    loop {
        let page = get(process, &format!("/agents/demo/runs?limit=2{query}")).await;
        runs.extend(page["data"].as_array().unwrap().iter().map(|run| run["id"].clone()));
        let Some(cursor) = page["next"].as_str() else { return runs };
        query = format!("&cursor={cursor}");
    }
}

fn text(output: &Output) -> String {
    String::from_utf8([&*output.stdout, &output.stderr].concat()).unwrap()
}

fn expect_refusal(folder: &Path, arguments: &[&str], code: i32, message: &str) {
    let output = process::run(folder, arguments);
    assert!(output.status.code() == Some(code) && text(&output).contains(message), "{message}: {}", text(&output));
}

#[tokio::test]
async fn a_migrated_session_continues_in_the_database() {
    let (upstream, receiver) = (upstream(), Upstream::always(Reply::complete(200, &[], "{}")));
    let database: Database<'static> = interlingua_testing_postgres::database();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("url"), database.url()).unwrap();
    write_config(folder, &upstream, SQLITE);
    let old = Process::start_logging(folder);

    let first = respond(&old, "one", &Value::Null).await;
    let second = respond(&old, "two", &first["id"]).await;
    for number in 0..5 {
        let mut turn = user_turn_in("s", &format!("number {number}"));
        turn["stream"] = false.into();
        call(&old, "POST", "/agents/demo/process", &turn).await;
    }
    let message = json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "remove" }] });
    let push = json!({ "taskPushNotificationConfig": { "id": "config-1", "url": receiver.url("/hook") } });
    let task = rpc(&old, "SendMessage", json!({ "message": message, "configuration": push })).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let body = user_turn_in("t", "hang").to_string();
    let mut cut = old.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await;
    let frames = cut.read_until("cut").await;
    let cut = frames[0]["id"].as_str().unwrap().to_owned();
    let listed_before = listed_task(&old, &task["id"]).await;
    let listed = runs(&old).await;
    assert!(listed.len() >= 6, "{listed:?}");

    expect_refusal(folder, &MIGRATE, 2, "write kind = \"postgres\"");
    write_config(folder, &upstream, POSTGRES);
    expect_refusal(folder, &MIGRATE, 1, "another process uses the database");
    old.kill();
    let elsewhere = [&MIGRATE[..], &["--file", "no/such.db"]].concat();
    expect_refusal(folder, &elsewhere, 1, "cannot find the database 'no/such.db'");
    assert!(!folder.join("no").exists(), "nothing is made of a file that is missing");
    expect_refusal(folder, &["store", "migrate", "--from", "memory", "--to", "postgres"], 2, "possible values");

    let migrated = process::run(folder, &MIGRATE);
    let output = text(&migrated);
    assert!(migrated.status.success() && output.contains("1 run under way"), "{output}");
    assert!(output.contains("copied to schema interlingua: ") && output.contains("old.db is as it was"), "{output}");
    expect_refusal(folder, &MIGRATE, 1, "schema interlingua is not empty");

    let (here, there) = (Process::start(folder), Process::start(folder));
    expect_refusal(folder, &MIGRATE, 1, "2 running gateways use schema interlingua");
    poll_until("the end of the run that was cut", async || {
        let run = get(&there, &format!("/agents/demo/runs/{cut}")).await;
        (run["error"]["code"] == "GATEWAY_RESTARTED" && run.to_string().contains("cut ")).then_some(())
    })
    .await;
    for gateway in [&here, &there] {
        let mut found = runs(gateway).await;
        let mut listed = listed.clone();
        // The one that was cut has changed since.
        for list in [&mut found, &mut listed] {
            list.retain(|run| run != &cut);
        }
        assert_eq!(found, listed);
        assert_eq!(get(gateway, &format!("/v1/responses/{}", second["id"].as_str().unwrap())).await, second);
        assert_eq!(listed_task(gateway, &task["id"]).await, listed_before);
        let params = json!({ "taskId": task["id"] });
        let configs = rpc(gateway, "ListTaskPushNotificationConfigs", params).await;
        assert_eq!(configs["configs"][0]["id"], "config-1", "{configs}");
    }

    let third = respond(&there, "three", &second["id"]).await;
    let session = |response: &Value| {
        let text = response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"));
        text.split(" in ").nth(1).unwrap().to_owned()
    };
    assert_eq!(session(&third), session(&first), "the conversation goes on");
    let decision = json!({ "data": { "interrupt_id": "ask-1", "decision": "accept" } });
    let answer = json!({ "messageId": "m2", "role": "ROLE_USER", "taskId": task["id"], "parts": [decision] });
    let done = rpc(&here, "SendMessage", json!({ "message": answer })).await["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    poll_until("the receiver that was named before", async || {
        let last = receiver.requests().last()?.json();
        (last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED").then_some(())
    })
    .await;
    let again = rpc(&there, "GetTask", json!({ "id": task["id"] })).await;
    assert_eq!(again["status"]["state"], "TASK_STATE_COMPLETED", "{again}");
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing_and_can_be_done_again() {
    let upstream = upstream();
    let database: Database<'static> = interlingua_testing_postgres::database();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("url"), database.url()).unwrap();
    write_config(folder, &upstream, SQLITE);
    let old = Process::start_logging(folder);
    for input in ["one", "two"] {
        respond(&old, input, &Value::Null).await;
    }
    old.kill();
    let file = rusqlite::Connection::open(folder.join("data/old.db")).unwrap();
    let damage = "UPDATE runs SET about = x'00' WHERE number = (SELECT max(number) FROM runs)";
    assert_eq!(file.execute(damage, []).unwrap(), 1);
    drop(file);

    write_config(folder, &upstream, POSTGRES);
    expect_refusal(folder, &MIGRATE, 1, "nothing was copied; --skip leaves out");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'interlingua'";
    assert_eq!(database.sql(schemas).unwrap().trim(), "0", "not even the tables are there");
    let migrated = process::run(folder, &[&MIGRATE[..], &["--skip"]].concat());
    let output = text(&migrated);
    assert!(migrated.status.success() && output.contains("left out: "), "{output}");
    assert!(output.contains("1 run with") && output.contains("1 item left out"), "{output}");
}
