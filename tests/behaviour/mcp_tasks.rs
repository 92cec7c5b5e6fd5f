//! Runs as tasks of MCP through the running gateway, the tool `wait`, and subscriptions.

use serde_json::{Value, json};

use super::mcp_calls::{
    Legacy, Modern, accept, approval, asking, config, gateway, keys, next, question, result, texts,
};
use crate::support::agent::{approval_request, text_reply, text_reply_then_hang, text_reply_until};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{Gateway, ROUTE, user_turn};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

fn hello() -> Value {
    json!({ "message": "hello" })
}

async fn get(client: &Modern<'_>, task: &str) -> Value {
    client.send("tasks/get", json!({ "taskId": task })).await.result().clone()
}

async fn update(client: &Modern<'_>, task: &str, responses: Value) -> Value {
    client.send("tasks/update", json!({ "taskId": task, "inputResponses": responses })).await.last
}

async fn get_when(client: &Modern<'_>, task: &str, status: &str) -> Value {
    poll_until(status, async || {
        let found = get(client, task).await;
        (found["status"] == status).then_some(found)
    })
    .await
}

/// Starts a call that is answered with a task.
async fn begin(client: &Modern<'_>) -> String {
    let created = client.call("helper", hello()).await;
    let task = created.result();
    assert_eq!(task["resultType"], "task", "{created:?}");
    for name in ["result", "error", "inputRequests", "requestState", "task"] {
        assert!(task.get(name).is_none(), "{task}");
    }
    assert_eq!(task["ttlMs"], json!(86_400_000));
    assert!(task["pollIntervalMs"].is_u64(), "{task}");
    task["taskId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_task_works_asks_and_completes() {
    let upstream = asking(vec![approval("one"), question("two")]);
    let gateway = gateway(&upstream, "tasks = \"always\"").await;
    let client = Modern::new(&gateway);
    let task = begin(&client).await;
    let asks = get_when(&client, &task, "input_required").await;
    assert_eq!((&asks["resultType"], keys(&asks)), (&json!("complete"), vec!["one", "two"]));

    let yes = accept(json!({"decision": "accept"}));
    let wrong = update(&client, &task, json!({"one": yes, "two": {"action": "accept"}})).await;
    assert_eq!((&wrong["error"]["code"], &wrong["error"]["data"]["key"]), (&json!(-32602), &json!("two")));
    assert_eq!(wrong["error"]["data"]["code"], "ANSWER_UNDECIDED");
    assert_eq!(keys(&get(&client, &task).await), ["one", "two"], "nothing of it was taken");

    let taken = update(&client, &task, json!({"one": yes, "other": yes})).await;
    assert_eq!(taken["result"]["resultType"], "complete");
    assert_eq!(keys(&get(&client, &task).await), ["two"]);
    for expected in ["two#2", "two#3"] {
        let key = keys(&get(&client, &task).await)[0].to_owned();
        let closed = update(&client, &task, json!({ key: {"action": "cancel"} })).await;
        assert_eq!(closed["result"]["resultType"], "complete");
        assert_eq!(keys(&get(&client, &task).await), [expected]);
    }
    update(&client, &task, json!({"two": accept(json!({"size": "s"})), "one": {"action": "decline"}})).await;
    assert_eq!(upstream.requests().len(), 1, "old keys decide nothing");
    update(&client, &task, json!({"two#3": accept(json!({"size": "m"}))})).await;
    let done = get_when(&client, &task, "completed").await;
    assert_eq!(texts(&done["result"]), ["One moment.", "done: one accept, two respond {\"size\":\"m\"}"]);
    assert_eq!(done["result"]["isError"], false);
    let late = update(&client, &task, json!({"two#3": {"action": "decline"}})).await;
    assert_eq!(late["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_task_shows_its_progress_and_can_be_cancelled() {
    let upstream = Upstream::always(text_reply_then_hang(&["Looking ", "around."]));
    let gateway = gateway(&upstream, "tasks = \"always\"").await;
    let client = Modern::new(&gateway);
    let task = begin(&client).await;
    poll_until("the text", async || {
        let found = get(&client, &task).await;
        assert_eq!(found["status"], "working");
        (found["statusMessage"] == "Looking around.").then_some(())
    })
    .await;
    for _ in 0..2 {
        let cancelled = client.send("tasks/cancel", json!({ "taskId": task })).await;
        assert_eq!(cancelled.result()["resultType"], "complete");
        let found = get(&client, &task).await;
        assert_eq!(found["status"], "cancelled");
        assert!(found.get("result").is_none() && found.get("error").is_none(), "{found}");
    }
}

#[tokio::test]
async fn a_failed_task_has_its_error_where_it_belongs() {
    for (reply, status) in
        [(Reply::complete(500, &[], "down"), "completed"), (Reply::frames(["{\"object\":"]), "failed")]
    {
        let upstream = Upstream::always(reply);
        let gateway = gateway(&upstream, "tasks = \"always\"").await;
        let client = Modern::new(&gateway);
        let created = client.call("helper", hello()).await;
        // An agent that refuses at once may have ended the run before the response.
        let task = created.result()["taskId"].as_str().expect("an id").to_owned();
        let ended = get_when(&client, &task, status).await;
        if status == "completed" {
            assert_eq!(ended["result"]["isError"], true, "{ended}");
        } else {
            assert_eq!(ended["error"]["code"], -32603, "{ended}");
            assert!(ended["statusMessage"].is_string() && ended.get("result").is_none(), "{ended}");
        }
    }
}

#[tokio::test]
async fn a_call_becomes_a_task_when_it_takes_long() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "go"));
    let gateway = gateway(&upstream, "task_after = \"100ms\"").await;
    let client = Modern::new(&gateway);
    let task = begin(&client).await;
    assert_eq!(get(&client, &task).await["status"], "working", "the closed connection did not cancel it");
    upstream.open("go");
    assert_eq!(texts(&get_when(&client, &task, "completed").await["result"]), ["hi"]);

    let quick = Upstream::always(text_reply(&["hi"]));
    let gateway = super::mcp_calls::gateway(&quick, "").await;
    let client = Modern::new(&gateway);
    assert_eq!(client.call("helper", hello()).await.texts(), ["hi"], "a call that ends sooner is an ordinary one");
}

#[tokio::test]
async fn a_question_may_come_before_the_task() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "tasks = \"always\"\nask_first = \"5s\"").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    assert_eq!((&asked.result()["resultType"], asked.keys()), (&json!("input_required"), vec!["appr"]));
}

#[tokio::test]
async fn a_call_becomes_a_task_after_its_question_was_answered() {
    let mut turns = 0;
    let upstream = Upstream::with_handler(move |_| {
        turns += 1;
        if turns == 1 { approval_request("appr") } else { text_reply_until(&["done"], "go") }
    });
    let gateway = gateway(&upstream, "task_after = \"2s\"").await;
    let client = Modern::new(&gateway);
    let asked = client.call("helper", hello()).await;
    assert_eq!(asked.keys(), ["appr"], "{asked:?}");
    let yes = json!({ "appr": accept(json!({ "decision": "accept" })) });
    let created = client.answer(&asked, "hello", yes).await;
    assert_eq!(created.result()["resultType"], "task", "{created:?}");
    let task = created.result()["taskId"].as_str().expect("an id").to_owned();
    upstream.open("go");
    assert_eq!(texts(&get_when(&client, &task, "completed").await["result"]), ["done"]);
}

#[tokio::test]
async fn a_tool_without_tasks_never_becomes_one() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "go"));
    let never = "task_after = \"50ms\"\nmax_wait = \"200ms\"\n[routes.options.tools.helper]\ntasks = \"never\"";
    let gateway = gateway(&upstream, never).await;
    let waited = Modern::new(&gateway).call("helper", hello()).await;
    assert_eq!(waited.result()["resultType"], "complete", "{waited:?}");
    assert_eq!(waited.result()["_meta"]["interlingua/status"], "working");
}

#[tokio::test]
async fn tasks_may_be_required() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = gateway(&upstream, "tasks = \"required\"").await;
    let client = Modern::with(&gateway, json!({}));
    let refused = client.call("helper", hello()).await;
    assert_eq!((refused.status, refused.error_code()), (400, &json!(-32021)));
    assert!(upstream.requests().is_empty());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = client.send(method, json!({ "taskId": "x" })).await;
        assert_eq!((refused.status, refused.error_code()), (400, &json!(-32021)), "{method}");
        assert!(refused.last["error"]["data"]["requiredCapabilities"].is_object());
    }
    begin(&Modern::new(&gateway)).await;
}

#[tokio::test]
async fn tasks_of_other_callers_are_unknown() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann", "bob"]);
    let source = format!("{AUTH}[store]\nkind = \"memory\"\n{}{ROUTE}", config(&upstream, "tasks = \"always\""));
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let task = begin(&Modern::new(&ann)).await;
    for id in [task.as_str(), "00000000-0000-0000-0000-000000000001", "x"] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({ "taskId": id, "inputResponses": {} });
            let refused = Modern::new(&bob).send(method, params).await;
            assert_eq!((refused.status, refused.error_code()), (200, &json!(-32602)), "{method}");
            assert_eq!(refused.last["error"]["message"], "Unknown task", "the same text");
        }
    }
    assert_eq!(get(&Modern::new(&ann), &task).await["status"], "working");
}

#[tokio::test]
async fn a_run_of_another_protocol_is_a_task_too() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "").await;
    let asked = gateway.run_turn("helper", &user_turn("hi")).await.expect_completed();
    let client = Modern::new(&gateway);
    let task = get(&client, &asked.id).await;
    assert_eq!((&task["status"], keys(&task)), (&json!("input_required"), vec!["appr"]));
    let taken = update(&client, &asked.id, json!({"appr": accept(json!({"decision": "accept"}))})).await;
    assert_eq!(taken["result"]["resultType"], "complete");
    upstream.wait_for_requests(2).await;
    get_when(&client, &asked.id, "completed").await;
}

#[tokio::test]
async fn a_task_of_mcp_that_is_answered_elsewhere_has_the_whole_result() {
    let upstream = asking(vec![approval("appr")]);
    let gateway = gateway(&upstream, "tasks = \"always\"").await;
    let client = Modern::new(&gateway);
    let task = begin(&client).await;
    get_when(&client, &task, "input_required").await;
    let run = gateway.run("helper", &task).await;
    let session = run["session_id"].as_str().expect("a session");
    let body = crate::support::gateway::approval_in(session, "appr");
    gateway.run_turn("helper", &body).await.expect_completed();
    let done = get_when(&client, &task, "completed").await;
    assert_eq!(texts(&done["result"]), ["One moment.", "done: appr accept"]);
    assert_eq!(done["result"]["_meta"]["interlingua/run"], task);
}

#[tokio::test]
async fn a_client_without_tasks_waits_with_a_tool() {
    let upstream = Upstream::always(text_reply_until(&["hi"], "go"));
    let gateway = gateway(&upstream, "max_wait = \"100ms\"").await;
    let client = Modern::with(&gateway, json!({}));
    let first = client.call("helper", hello()).await;
    assert_eq!(first.result()["_meta"]["interlingua/status"], "working", "{first:?}");
    assert!(first.texts().join("\n").contains(&first.run()), "{first:?}");
    let again = client.call("wait", json!({ "run": first.run() })).await;
    assert_eq!(again.result()["_meta"]["interlingua/status"], "working");

    let legacy = Legacy::begin(&gateway, "2025-11-25", json!({})).await;
    upstream.open("go");
    let run = first.run();
    poll_until("the end", async || {
        let waited = client.call("wait", json!({ "run": run })).await;
        (waited.result()["_meta"]["interlingua/status"] == "completed").then(|| assert_eq!(waited.texts(), ["hi"]))
    })
    .await;
    let mut stream = legacy.call(1, "wait", json!({ "run": run })).await;
    let ended = if stream.header("content-type").await.is_some_and(|kind| kind.contains("json")) {
        stream.read_response().await.json()["result"].clone()
    } else {
        result(&mut stream).await
    };
    assert_eq!(texts(&ended), ["hi"], "also after the end, and in another session");
    for run in ["x", "00000000-0000-0000-0000-000000000001"] {
        let unknown = client.call("wait", json!({ "run": run })).await;
        assert_eq!(unknown.texts(), ["RESOURCE_NOT_FOUND: no such run"]);
    }
    assert_eq!(client.call("wait", json!({})).await.texts()[0].split(':').next(), Some("MISSING_PARAMETER"));
}

#[tokio::test]
async fn a_subscription_reports_changed_lists_and_tasks() {
    let upstream = asking(vec![approval("appr")]);
    let mut gateway = gateway(&upstream, "tasks = \"always\"\npoll_interval = \"200ms\"").await;
    let task = begin(&Modern::new(&gateway)).await;
    get_when(&Modern::new(&gateway), &task, "input_required").await;
    let client = Modern::new(&gateway);
    let wanted = json!({"toolsListChanged": true, "taskIds": [task, "00000000-0000-0000-0000-000000000001"]});
    let mut stream = client.open("subscriptions/listen", json!({ "notifications": wanted })).await;
    let acknowledged = next(&mut stream).await.expect("an acknowledgement");
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true, "taskIds": [task]}));
    let subscription = json!({"io.modelcontextprotocol/subscriptionId": 7});
    assert_eq!(acknowledged["params"]["_meta"], subscription);
    let first = next(&mut stream).await.expect("the task");
    assert_eq!(
        (&first["method"], &first["params"]["status"]),
        (&json!("notifications/tasks"), &json!("input_required"))
    );
    assert_eq!(first["params"]["_meta"], subscription);

    update(&client, &task, json!({"appr": accept(json!({"decision": "accept"}))})).await;
    loop {
        let notice = next(&mut stream).await.expect("a notice");
        assert_eq!(notice["method"], "notifications/tasks");
        if notice["params"]["status"] == "completed" {
            assert_eq!(texts(&notice["params"]["result"]).last(), Some(&"done: appr accept"));
            break;
        }
    }
    gateway.replace_agents();
    let changed = next(&mut stream).await.expect("a notice");
    assert_eq!(
        (&changed["method"], &changed["params"]["_meta"]),
        (&json!("notifications/tools/list_changed"), &subscription)
    );

    gateway.begin_shutdown();
    let end = next(&mut stream).await.expect("a result");
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(7), &json!("complete")));
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test]
async fn a_subscription_to_tasks_needs_the_extension() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = gateway(&upstream, "").await;
    let client = Modern::with(&gateway, json!({}));
    let refused = client.send("subscriptions/listen", json!({ "notifications": { "taskIds": ["x"] } })).await;
    assert_eq!((refused.status, refused.error_code()), (400, &json!(-32021)));
    let wrong = client.send("subscriptions/listen", json!({})).await;
    assert_eq!(wrong.error_code(), -32602);
}
