//! Limits of one caller, and of all together: the refusals beyond them, their words, and recovery.
//!
//! Not here: rates and their headers, and deletions of the store (`tests/store/retention.rs`).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_then_hang, text_reply_until};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::http::{Exchange, Response};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

const MEMORY: &str = "[store]\nkind = \"memory\"\n";

/// A gateway for Ann and Bob. `limits` are those of Ann.
async fn gateway(folder: &tempfile::TempDir, store: &str, upstream: &Upstream, limits: &str) -> Gateway {
    write_keys(folder.path(), &["ann", "bob"]);
    let friday = agent("friday", &upstream.url("/process"), "", "retries = 0");
    let a2a = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
               options = { push_allow = [\"127.0.0.1\"], push_allow_http = true }\n";
    let responses = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";
    let config = format!("{AUTH}[callers.ann]\nlimits = {{ {limits} }}\n{store}{friday}{ROUTE}{a2a}{responses}");
    Gateway::in_folder(&config, folder.path().to_owned()).await
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Runs a turn to its end without a stream.
async fn turn(caller: &Gateway, session: &str) -> Response {
    let mut body = user_turn_in(session, "hi");
    body["stream"] = false.into();
    caller.post("/agents/friday/process", &body).await
}

/// Starts a turn that the agent works on, and another one of the same session, which waits for it.
async fn start_and_queue(ann: &Gateway, upstream: &Upstream) -> (Exchange, Exchange) {
    let first = ann.start_turn("friday", &user_turn_in("a", "hi")).await;
    upstream.wait_for_requests(1).await;
    let second = ann.start_turn("friday", &user_turn_in("a", "hi")).await;
    poll_until("the second to be queued", async || {
        let listed = ann.get("/agents/friday/runs?session_id=a").await.json();
        (listed["total"] == 2).then_some(())
    })
    .await;
    (first, second)
}

fn assert_limited(answer: &Response, limit: &str) {
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.json()["code"], "RATE_LIMIT_EXCEEDED", "{}", answer.text());
    assert!(answer.text().contains(limit), "{}", answer.text());
    let seconds: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=86_400).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn runs_at_once_are_bounded_for_each_caller() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let folder = folder();
    let gateway = gateway(&folder, MEMORY, &upstream, "runs = 1").await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let first = ann.start_turn("friday", &user_turn_in("a", "hi")).await;
    upstream.wait_for_requests(1).await;

    assert_limited(&turn(&ann, "b").await, "the limit is 1");
    let answer = ann.post("/v1/responses", &json!({ "model": "friday", "input": "hi" })).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    let _others = bob.start_turn("friday", &user_turn_in("a", "hi")).await;
    upstream.wait_for_requests(2).await;

    upstream.open("end");
    assert_eq!(first.response().await.status, 200);
    assert_eq!(turn(&ann, "b").await.status, 200, "there is room as soon as she sees the end");
}

#[tokio::test]
async fn queued_turns_are_bounded_for_each_caller_and_do_not_count_as_runs() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let folder = folder();
    let gateway = gateway(&folder, MEMORY, &upstream, "runs = 2, queued = 1").await;
    let ann = gateway.as_caller("ann");
    let (first, second) = start_and_queue(&ann, &upstream).await;

    assert_limited(&turn(&ann, "a").await, "turns are queued");
    let third = ann.start_turn("friday", &user_turn_in("b", "hi")).await;
    upstream.wait_for_requests(2).await;
    upstream.open("end");
    for exchange in [first, second, third] {
        let answer = exchange.response().await;
        assert!(answer.status == 200 && answer.text().contains("\"completed\""), "{}", answer.text());
    }
}

#[tokio::test]
async fn tokens_of_a_day_are_counted_over_a_restart() {
    let store = "[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n";
    // Three tokens a run.
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = folder();
    let first = gateway(&folder, store, &upstream, "tokens_per_day = 6").await;
    for _ in 0..2 {
        assert_eq!(turn(&first.as_caller("ann"), "a").await.status, 200);
    }
    assert_limited(&turn(&first.as_caller("ann"), "b").await, "the limit is 6");
    assert_eq!(turn(&first.as_caller("bob"), "a").await.status, 200, "they are Ann's");
    first.stop().await;

    let second = gateway(&folder, store, &upstream, "tokens_per_day = 6").await;
    assert_limited(&turn(&second.as_caller("ann"), "b").await, "the limit is 6");
    let answer = second.as_caller("ann").post("/v1/responses", &json!({ "model": "friday", "input": "hi" })).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    second.stop().await;

    let third = gateway(&folder, store, &upstream, "tokens_per_day = 7").await;
    assert_eq!(turn(&third.as_caller("ann"), "b").await.status, 200);
    assert_eq!(upstream.requests().len(), 4, "what is refused does not reach the agent");
    third.stop().await;
}

/// Names a receiver of a task.
async fn receive(caller: &Gateway, task: &str, id: &str, url: &str) -> Response {
    let path = format!("/a2a/friday/tasks/{task}/pushNotificationConfigs");
    let body = json!({ "url": url, "id": id }).to_string();
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    caller.open("POST", &path, &headers, body.as_bytes()).await.response().await
}

/// Starts a task over A2A and returns its id.
async fn task(caller: &Gateway, receiver: Option<&str>) -> String {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let mut configuration = json!({ "returnImmediately": true });
    if let Some(url) = receiver {
        configuration["taskPushNotificationConfig"] = json!({ "url": url });
    }
    let body = json!({ "message": message, "configuration": configuration }).to_string();
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let answer = caller.open("POST", "/a2a/friday/message:send", &headers, body.as_bytes()).await.response().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["task"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn receivers_are_bounded_for_each_caller() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let receiver = Upstream::always(Reply::complete(200, &[], "{}"));
    let folder = folder();
    let gateway = gateway(&folder, MEMORY, &upstream, "receivers = 2").await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let hers = [task(&ann, None).await, task(&ann, None).await];
    let url = receiver.url("/hook");
    for task in &hers {
        assert_eq!(receive(&ann, task, "one", &url).await.status, 200);
    }

    let refused = receive(&ann, &hers[0], "two", &url).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(receive(&ann, &hers[0], "one", &url).await.status, 200, "it is there already");
    let his = task(&bob, None).await;
    assert_eq!(receive(&bob, &his, "one", &url).await.status, 200);

    let path = format!("/a2a/friday/tasks/{}/pushNotificationConfigs/one", hers[1]);
    let deleted = ann.open("DELETE", &path, &[("a2a-version", "1.0")], b"").await.response().await;
    assert!(deleted.status < 300, "{}", deleted.text());
    assert_eq!(receive(&ann, &hers[0], "two", &url).await.status, 200, "there is room again");
}

#[tokio::test]
async fn pushes_of_a_caller_wait_for_their_rate() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (hers, his) =
        (Upstream::always(Reply::complete(200, &[], "{}")), Upstream::always(Reply::complete(200, &[], "{}")));
    let folder = folder();
    let gateway = gateway(&folder, MEMORY, &upstream, "pushes = \"1/h\"").await;
    task(&gateway.as_caller("ann"), Some(&hers.url("/hook"))).await;
    task(&gateway.as_caller("bob"), Some(&his.url("/hook"))).await;
    his.wait_for_requests(2).await;
    hers.wait_for_requests(1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(hers.requests().len(), 1, "the next one waits for an hour");
}

#[tokio::test]
async fn who_stores_more_than_the_own_bound_loses_their_own_oldest() {
    let store = "[store]\nkind = \"memory\"\nretention = { age = \"8s\" }\n";
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = folder();
    let gateway = gateway(&folder, store, &upstream, "stored_runs = 2").await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    for number in 0..5 {
        assert_eq!(turn(&bob, &format!("s{number}")).await.status, 200);
        assert_eq!(turn(&ann, &format!("s{number}")).await.status, 200);
    }

    let sessions = poll_until("hers to be deleted", async || {
        let listed = ann.get("/agents/friday/runs").await.json();
        let runs = listed["data"].as_array().expect("a list");
        let sessions: Vec<String> = runs.iter().map(|run| run["session_id"].to_string()).collect();
        (sessions.len() <= 2).then_some(sessions)
    })
    .await;
    assert_eq!(sessions, ["\"s4\"", "\"s3\""], "the newest are kept");
    assert_eq!(bob.get("/agents/friday/runs").await.json()["total"], 5);
}

/// The number of these paths that a caller finds.
async fn found(caller: &Gateway, paths: &[String]) -> usize {
    let mut found = 0;
    for path in paths {
        let answer = caller.open("GET", path, &[("a2a-version", "1.0")], b"").await.response().await;
        found += usize::from(answer.status == 200);
    }
    found
}

#[tokio::test]
async fn tasks_conversations_and_bytes_are_bounded_for_each_caller() {
    let store = "[store]\nkind = \"memory\"\nretention = { age = \"16s\" }\n";
    let upstream = Upstream::always(text_reply(&[&"x".repeat(40_000)]));
    for (limit, kind) in [("tasks = 2", "task"), ("conversations = 2", "conversation"), ("stored = \"100KiB\"", "run")]
    {
        let folder = folder();
        let gateway = gateway(&folder, store, &upstream, limit).await;
        let callers = [gateway.as_caller("ann"), gateway.as_caller("bob")];
        let mut made = [Vec::new(), Vec::new()];
        for number in 0..4 {
            for (caller, made) in callers.iter().zip(&mut made) {
                made.push(match kind {
                    "task" => format!("/a2a/friday/tasks/{}", task(caller, None).await),
                    "conversation" => {
                        let answer = caller.post("/v1/conversations", &json!({})).await;
                        format!("/v1/conversations/{}", answer.json()["id"].as_str().expect("an id"))
                    }
                    _ => {
                        let answer = turn(caller, &format!("s{number}")).await.json();
                        format!("/agents/friday/runs/{}", answer["id"].as_str().expect("an id"))
                    }
                });
            }
        }

        let [hers, his] = made;
        poll_until("hers to be deleted", async || (found(&callers[0], &hers).await == 2).then_some(())).await;
        assert_eq!(found(&callers[0], &hers[2..]).await, 2, "{limit}: the newest are kept");
        assert_eq!(found(&callers[1], &his).await, 4, "{limit}: his are his");
    }
}

#[tokio::test]
async fn runs_of_an_agent_are_bounded_for_all_callers_together() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let folder = folder();
    write_keys(folder.path(), &["ann", "bob"]);
    let friday = agent("friday", &upstream.url("/process"), "limits = { runs = 1 }", "");
    let config = format!("{AUTH}{MEMORY}{friday}{ROUTE}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let first = gateway.as_caller("ann").start_turn("friday", &user_turn("hi")).await;
    upstream.wait_for_requests(1).await;
    assert_limited(&turn(&gateway.as_caller("bob"), "b").await, "runs are under way");
    upstream.open("end");
    assert_eq!(first.response().await.status, 200);
    assert_eq!(turn(&gateway.as_caller("bob"), "b").await.status, 200);
}

#[tokio::test]
async fn a_turn_that_waited_is_judged_by_the_rights_its_caller_has_by_then() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let folder = folder();
    let gateway = gateway(&folder, MEMORY, &upstream, "runs = 9").await;
    let ann = gateway.as_caller("ann");
    let (first, second) = start_and_queue(&ann, &upstream).await;

    write_keys(folder.path(), &["bob"]);
    poll_until("the key to be gone", async || (ann.get("/agents/friday/runs").await.status == 401).then_some(())).await;
    upstream.open("end");
    let first = first.response().await;
    assert!(first.text().contains("\"completed\""), "what was begun goes on: {}", first.text());
    let second = second.response().await;
    assert!(second.status == 401 || second.text().contains("AUTH_FAILED"), "{} {}", second.status, second.text());
    assert_eq!(upstream.requests().len(), 1, "the agent was not asked");
}

#[tokio::test]
async fn a_forbidden_agent_is_refused_and_an_unknown_one_not_found() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = folder();
    write_keys(folder.path(), &["ann", "bob"]);
    let agents = ["friday", "monday"].map(|name| agent(name, &upstream.url("/process"), "", "")).concat();
    let responses = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";
    let config = format!("{AUTH}[callers.ann]\nagents = [\"friday\"]\n{MEMORY}{agents}{ROUTE}{responses}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let ask = async |caller: &Gateway, model: &str| {
        caller.post("/v1/responses", &json!({ "model": model, "input": "hi" })).await
    };

    for (model, hers, his) in [("friday", 200, 200), ("monday", 403, 200), ("tuesday", 404, 404)] {
        let answers = [ask(&ann, model).await, ask(&bob, model).await];
        let statuses = answers.each_ref().map(|answer| answer.status);
        assert_eq!(statuses, [hers, his], "{model}: {}", answers[0].text());
    }
    assert_eq!(ann.post("/agents/monday/process", &user_turn("hi")).await.status, 403);
    let models = ann.get("/v1/models").await.json();
    let names: Vec<&Value> = models["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["friday"]);
}

/// Bounds of all callers together hold without any way to authenticate.
#[tokio::test]
async fn bounds_of_the_engine_are_settings() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "end"));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let server = |limits: &str| {
        let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nlimits = {{ {limits} }}\n");
        format!("{server}{MEMORY}{friday}{ROUTE}")
    };

    let gateway = Gateway::with_config(&server("runs = 1")).await;
    let _first = gateway.start_turn("friday", &user_turn_in("a", "hi")).await;
    upstream.wait_for_requests(1).await;
    let refused = turn(&gateway, "b").await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("GATEWAY_OVERLOADED")), "{}", refused.text());
    drop(gateway);

    let gateway = Gateway::with_config(&server("queued_turns = 1")).await;
    let _first = gateway.start_turn("friday", &user_turn_in("a", "hi")).await;
    upstream.wait_for_requests(2).await;
    let _second = gateway.start_turn("friday", &user_turn_in("a", "hi")).await;
    poll_until("the second to be queued", async || {
        let listed = gateway.get("/agents/friday/runs?session_id=a").await.json();
        (listed["total"] == 2).then_some(())
    })
    .await;
    let refused = turn(&gateway, "a").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
}

#[tokio::test]
async fn a_page_of_a_list_and_receivers_are_bounded_by_settings() {
    let upstream = Upstream::always(text_reply(&["many words ".repeat(9000).as_str()]));
    let receiver = Upstream::always(Reply::complete(200, &[], "{}"));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nlimits = { page = \"64KiB\", receivers = 1 }\n";
    let a2a = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n\
               options = { push_allow = [\"127.0.0.1\"], push_allow_http = true }\n";
    let gateway = Gateway::with_config(&format!("{server}{MEMORY}{friday}{ROUTE}{a2a}")).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(task(&gateway, None).await);
    }
    poll_until("all to end", async || {
        (gateway.get("/agents/friday/runs").await.text().matches("\"completed\"").count() == 3).then_some(())
    })
    .await;
    let page = gateway.open("GET", "/a2a/friday/tasks?includeArtifacts=true", &[("a2a-version", "1.0")], b"").await;
    let page = page.response().await.json();
    assert_eq!(page["tasks"].as_array().map(Vec::len), Some(1), "{} bytes of each", 9000 * 11);

    assert_eq!(receive(&gateway, &tasks[0], "one", &receiver.url("/hook")).await.status, 200);
    let refused = receive(&gateway, &tasks[1], "one", &receiver.url("/hook")).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
}
