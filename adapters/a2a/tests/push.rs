//! Push notifications: configs in every format and dialect, and deliveries (docs/protocols/a2a.md#push-notifications).

mod support;

use std::fmt::Write as _;

use interlingua_core::call::{Call, DocumentCall, Reply};
use interlingua_core::push::{PushNotifier, PushRequest};
use interlingua_core::{Json, Record};
use interlingua_core_testkit::TestRun;
use serde_json::{Value, json};
use support::{Answer, ClientRequest, Host, NEW_ID, about, host, user, with};

const TASK: &str = "01930000-0000-7000-8000-000000000001";

fn record(host: &Host) -> Record {
    support::record_of(host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run(), "plugin")
}

/// Sets a config on a task that already has `known`. Returns the stored key and value, and the response.
fn set(host: &Host, request: &ClientRequest<'_>, known: &[(String, Json)]) -> Result<(String, Json, Answer), Answer> {
    let record = record(host);
    let shown = TestRun::with_info(&record, about(&record));
    let decoded = host.send(request);
    if decoded.call.is_err() {
        return Err(decoded.rejected());
    }
    let put = decoded.next_call(Reply::Run(shown.view())).reply(Reply::Documents(known));
    let put = match put {
        Err(put) => put,
        Ok(answer) => return Err(answer),
    };
    let Ok(Call::Document(DocumentCall::Put { collection, key, value, .. })) = &put.call else {
        panic!("no document is stored: {:?}", put.call)
    };
    assert_eq!(collection, "a2a/push");
    let (key, value) = (key.clone(), value.clone());
    Ok((key, value, put.final_answer(Reply::Done)))
}

#[test]
fn every_config_format_is_parsed_and_echoed_in_its_dialect() {
    let host = host();
    let inner = json!({ "id": "c1", "url": "https://hooks.example/a2a", "token": "tok",
        "authentication": { "schemes": ["Bearer"], "credentials": "s3cr3t" } });
    let flat = json!({ "taskId": TASK, "id": "c1", "url": "https://hooks.example/a2a", "token": "tok",
        "authentication": { "scheme": "Bearer", "credentials": "s3cr3t" } });
    let mut bare = inner.clone();
    bare.as_object_mut().expect("an object").remove("id");
    let old_path = format!("/v1/tasks/{TASK}/pushNotificationConfigs");
    let new_path = format!("/tasks/{TASK}/pushNotificationConfigs");
    let name = format!("tasks/{TASK}/pushNotificationConfigs/c1");
    let old = |body: Value| ClientRequest { path: &old_path, ..ClientRequest::new("POST", "") }.body(&body);
    let mut table = String::new();
    for request in [
        ClientRequest::rpc("CreateTaskPushNotificationConfig", &flat),
        ClientRequest::rpc(
            "CreateTaskPushNotificationConfig",
            &json!({ "task_id": TASK, "pushNotificationConfig": inner }),
        ),
        ClientRequest { path: &new_path, ..ClientRequest::rest("POST", "") }.body(&flat),
        ClientRequest::rpc_v03(
            "tasks/pushNotificationConfig/set",
            &json!({ "taskId": TASK, "pushNotificationConfig": inner }),
        ),
        old(
            json!({ "parent": format!("tasks/{TASK}"), "configId": "c1", "config": { "name": name, "pushNotificationConfig": bare } }),
        ),
        old(
            json!({ "parent": format!("tasks/{TASK}"), "config_id": "c1", "config": { "push_notification_config": bare } }),
        ),
        old(json!({ "config": inner })),
        old(json!({ "name": name, "pushNotificationConfig": bare })),
        old(json!({ "taskId": TASK, "pushNotificationConfig": inner })),
    ] {
        let body = request.body.clone();
        let (key, value, answer) = set(&host, &request, &[]).unwrap_or_else(|answer| panic!("{body}: {answer:?}"));
        assert_eq!((key, answer.status), (format!("{TASK}/c1"), 200), "{body}");
        let stored: Value = value.decode().expect("an object");
        assert_eq!(
            (&stored["url"], &stored["scheme"], &stored["credentials"]),
            (&json!("https://hooks.example/a2a"), &json!("Bearer"), &json!("s3cr3t"))
        );
        let _ = writeln!(table, "{body}\n  {}", answer.body.trim_end());
    }
    insta::assert_snapshot!(table.replace(TASK, "TASK"));
}

#[test]
fn a_config_without_an_id_gets_one() {
    let host = host();
    let config = json!({ "taskId": TASK, "pushNotificationConfig": { "url": "https://hooks.example/a2a" } });
    let old = ClientRequest::rpc_v03("tasks/pushNotificationConfig/set", &config);
    let (key, value, _) = set(&host, &old, &[]).expect("accepted");
    assert_eq!(key, format!("{TASK}/default"));
    let (second, ..) = set(&host, &old, &[(key.clone(), value.clone())]).expect("accepted");
    assert_eq!(second, format!("{TASK}/{NEW_ID}"));
    let named =
        json!({ "taskId": TASK, "pushNotificationConfig": { "id": "default", "url": "https://hooks.example/b" } });
    let replaced = ClientRequest::rpc_v03("tasks/pushNotificationConfig/set", &named);
    assert_eq!(set(&host, &replaced, &[(key.clone(), value.clone())]).expect("accepted").0, key);
    let new = ClientRequest::rpc(
        "CreateTaskPushNotificationConfig",
        &json!({ "taskId": TASK, "url": "https://hooks.example/a2a" }),
    );
    assert_eq!(set(&host, &new, &[]).expect("accepted").0, format!("{TASK}/{NEW_ID}"));
    let full: Vec<(String, Json)> = (0..8).map(|number| (format!("{TASK}/{number}"), value.clone())).collect();
    assert_eq!(set(&host, &new, &full).expect_err("too many").json()["error"]["code"], -32004);
}

#[test]
fn invalid_config_fields_are_rejected_by_name() {
    let host = host();
    for (config, field) in [
        (json!({ "url": "https://10.0.0.1/" }), "url"),
        (json!({ "url": "http://hooks.example/" }), "url"),
        (json!({ "url": "https://user@hooks.example/" }), "url"),
        (json!({ "url": "https://0x7f.1/" }), "url"),
        (json!({ "url": "" }), "url"),
        (json!({}), "url"),
        (json!({ "url": "https://hooks.example/", "token": "a\r\nb" }), "token"),
        (
            json!({ "url": "https://hooks.example/", "authentication": { "scheme": "Bea rer" } }),
            "authentication.scheme",
        ),
        (
            json!({ "url": "https://hooks.example/", "authentication": { "scheme": "Bearer", "credentials": "a\nb" } }),
            "authentication.credentials",
        ),
        (json!({ "url": "https://hooks.example/", "authentication": {} }), "authentication.scheme"),
        (json!({ "url": "https://hooks.example/", "id": "a/b" }), "id"),
    ] {
        let mut flat = config.clone();
        flat["taskId"] = json!(TASK);
        let rejected =
            set(&host, &ClientRequest::rpc("CreateTaskPushNotificationConfig", &flat), &[]).expect_err("rejected");
        let field_path = &rejected.json()["error"]["data"][1]["fieldViolations"][0]["field"];
        // Paths refer to the object that was sent.
        assert!(field_path.as_str().is_some_and(|field_path| field_path.ends_with(field)), "{config}: {field_path}");
    }

    let off = with(json!({ "push": false }));
    let rejected =
        set(&off, &ClientRequest::rpc("CreateTaskPushNotificationConfig", &json!({})), &[]).expect_err("push is off");
    assert_eq!(rejected.json()["error"]["code"], -32003);
    let mut params = user("hi");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": "https://10.0.0.1/" } });
    let rejected = host.send(&ClientRequest::rpc("SendMessage", &params)).rejected();
    let field = &rejected.json()["error"]["data"][1]["fieldViolations"][0]["field"];
    assert_eq!(field, "configuration.taskPushNotificationConfig.url");
}

#[test]
fn a_config_in_a_send_is_stored_before_the_task_starts() {
    let host = host();
    let mut params = user("hi");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": "https://hooks.example/a2a" } });
    let decoded = host.send(&ClientRequest::rpc("SendMessage", &params));
    let Ok(Call::Document(DocumentCall::Put { key, .. })) = &decoded.call else { panic!("{:?}", decoded.call) };
    assert_eq!(*key, format!("{NEW_ID}/{NEW_ID}"));
    let run = decoded.next_call(Reply::Done);
    assert_eq!(run.run().id, Some(NEW_ID));
}

#[test]
fn configs_are_fetched_listed_and_deleted_in_every_dialect() {
    let host = host();
    let record = record(&host);
    let shown = TestRun::with_info(&record, about(&record));
    let stored = |id: &str| {
        let config = json!({ "task": TASK, "id": id, "url": "https://hooks.example/a2a" });
        (format!("{TASK}/{id}"), Json::from_serialize(&config))
    };
    let known = [stored("a"), stored("b"), stored("c")];
    let mut table = String::new();
    let path = |path: &str| path.replace("TASK", TASK);
    let ids = json!({ "taskId": TASK, "id": "b" });
    let old_ids = json!({ "id": TASK, "pushNotificationConfigId": "b" });
    let configs = path("/tasks/TASK/pushNotificationConfigs");
    let old_configs = path("/v1/tasks/TASK/pushNotificationConfigs");
    let one = path("/tasks/TASK/pushNotificationConfigs/b");
    let old_one = path("/v1/tasks/TASK/pushNotificationConfigs/b");
    for request in [
        ClientRequest::rpc("GetTaskPushNotificationConfig", &ids),
        ClientRequest { path: &one, ..ClientRequest::rest("GET", "") },
        ClientRequest::rpc_v03("tasks/pushNotificationConfig/get", &old_ids),
        ClientRequest::rpc_v03("tasks/pushNotificationConfig/get", &json!({ "id": TASK })),
        ClientRequest { path: &old_one, ..ClientRequest::new("GET", "") },
        ClientRequest::rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": TASK, "pageSize": 2 })),
        ClientRequest::rpc(
            "ListTaskPushNotificationConfigs",
            &json!({ "taskId": TASK, "pageSize": 2, "pageToken": "Mg" }),
        ),
        ClientRequest { path: &configs, query: "pageSize=1", ..ClientRequest::rest("GET", "") },
        ClientRequest::rpc_v03("tasks/pushNotificationConfig/list", &json!({ "id": TASK })),
        ClientRequest { path: &old_configs, ..ClientRequest::new("GET", "") },
        ClientRequest::rpc("DeleteTaskPushNotificationConfig", &ids),
        ClientRequest { path: &one, ..ClientRequest::rest("DELETE", "") },
        ClientRequest::rpc_v03("tasks/pushNotificationConfig/delete", &old_ids),
        ClientRequest { path: &old_one, ..ClientRequest::new("DELETE", "") },
    ] {
        let _ = writeln!(table, "{} {} {}", request.method, request.path, request.body);
        let next = host.send(&request).next_call(Reply::Run(shown.view()));
        let answer = match next.call {
            Ok(Call::Document(DocumentCall::List { .. })) => next.final_answer(Reply::Documents(&known)),
            Ok(Call::Document(DocumentCall::Delete { ref key, .. })) => {
                assert_eq!(*key, format!("{TASK}/b"));
                next.final_answer(Reply::Done)
            }
            other => panic!("{other:?}"),
        };
        let _ = writeln!(table, "  {} {}", answer.status, answer.body.trim_end());
    }
    insta::assert_snapshot!(table.replace(TASK, "TASK"));

    let unknown = ClientRequest::rpc("GetTaskPushNotificationConfig", &json!({ "taskId": TASK, "id": "z" }));
    let answer = host.send(&unknown).next_call(Reply::Run(shown.view())).final_answer(Reply::Documents(&known));
    assert_eq!(answer.json()["error"]["code"], -32001);
}

fn notifier(host: &Host, config: &Value) -> Box<dyn PushNotifier> {
    let notifiers = host.0.runs.push.as_ref().expect("pushes are on");
    (notifiers.open)(&Json::from_serialize(config)).expect("a notifier")
}

/// The deliveries to a receiver without flushes: text deltas are joined until another event.
fn delivered(host: &Host, config: &Value, record: &Record, from: u64) -> Vec<PushRequest> {
    let mut notifier = notifier(host, config);
    let mut requests = Vec::new();
    for step in record.steps(0) {
        if step.sequence < from { notifier.skip(step) } else { notifier.take(step, &mut requests) }
    }
    assert!(!notifier.has_held(), "the end of a run flushes everything");
    requests
}

fn golden(requests: &[PushRequest]) -> String {
    let mut table = String::new();
    for request in requests {
        let _ = writeln!(table, "{:?}\n{}", request.headers, String::from_utf8_lossy(&request.body));
    }
    table.replace(TASK, "TASK").replace("session-1", "CONTEXT")
}

#[test]
fn receivers_of_both_versions_get_their_own_bodies() {
    let host = host();
    let record = record(&host);
    let config = json!({ "task": TASK, "id": "c", "url": "https://hooks.example/a2a", "token": "tok",
        "scheme": "Bearer", "credentials": "s3cr3t" });
    insta::assert_snapshot!("push_v1", golden(&delivered(&host, &config, &record, 0)));

    let mut old = config.clone();
    old["old"] = json!(true);
    insta::assert_snapshot!("push_v03_task", golden(&delivered(&host, &old, &record, 0)));
    let events = with(json!({ "push_v03": "event" }));
    insta::assert_snapshot!("push_v03_event", golden(&delivered(&events, &old, &record, 0)));

    let statuses = with(json!({ "push_events": "status" }));
    for request in delivered(&statuses, &config, &record, 0) {
        assert!(String::from_utf8_lossy(&request.body).starts_with(r#"{"statusUpdate""#));
    }
}

#[test]
fn a_receiver_that_joins_late_gets_the_rest_exactly_once() {
    let host = host();
    let record = record(&host);
    let config = json!({ "task": TASK, "id": "c", "url": "https://hooks.example/a2a" });
    let text = |requests: &[PushRequest]| -> String {
        let bodies = requests.iter().map(|request| serde_json::from_slice::<Value>(&request.body).expect("JSON"));
        let parts = bodies.filter_map(|body| body["artifactUpdate"]["artifact"]["parts"].as_array().cloned()).flatten();
        parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
    };
    let full_text = text(&delivered(&host, &config, &record, 0));
    for from in 0..record.len() {
        let requests = delivered(&host, &config, &record, from);
        assert!(full_text.ends_with(&text(&requests)), "from {from}");
        assert!(String::from_utf8_lossy(&requests.last().expect("an end").body).contains("TASK_STATE_COMPLETED"));
    }
    // With a flush after every step nothing is lost or duplicated.
    let mut notifier = notifier(&host, &config);
    let mut requests = Vec::new();
    for step in record.steps(0) {
        notifier.take(step, &mut requests);
        if notifier.has_held() {
            notifier.flush(step, &mut requests);
        }
    }
    assert_eq!(text(&requests), full_text);
    assert!(requests.len() > delivered(&host, &config, &record, 0).len());
}
