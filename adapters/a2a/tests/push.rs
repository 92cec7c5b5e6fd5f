//! Push notifications: configs in every shape and dialect, and what is delivered (sections 6, 7, 11 and 20).

mod support;

use std::fmt::Write as _;

use interlingua_core::call::{Call, DocumentCall, Reply};
use interlingua_core::push::{PushNotifier, PushRequest};
use interlingua_core::testkit::Shown;
use interlingua_core::{Json, Record};
use serde_json::{Value, json};
use support::{Answer, Ask, FRESH, Host, about, host, user, with};

const TASK: &str = "01930000-0000-7000-8000-000000000001";

fn record(host: &Host) -> Record {
    support::told(host.ask(&Ask::rpc("SendMessage", &user("hi"))).run(), "plugin")
}

/// Sets a config on a task that has these already; answers what is kept, and the answer.
fn set(host: &Host, ask: &Ask<'_>, known: &[(String, Json)]) -> Result<(String, Json, Answer), Answer> {
    let record = record(host);
    let shown = Shown::known(&record, about(&record));
    let asked = host.ask(ask);
    if asked.call.is_err() {
        return Err(asked.refused());
    }
    let put = asked.goes_on(Reply::Run(shown.view())).reply(Reply::Documents(known));
    let put = match put {
        Err(put) => put,
        Ok(answer) => return Err(answer),
    };
    let Ok(Call::Document(DocumentCall::Put { collection, key, value })) = &put.call else {
        panic!("nothing is put: {:?}", put.call)
    };
    assert_eq!(collection, "a2a/push");
    let (key, value) = (key.clone(), value.clone());
    Ok((key, value, put.answered(Reply::Done)))
}

#[test]
fn every_shape_of_a_config_is_read_and_answered_in_kind() {
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
    let old = |body: Value| Ask { path: &old_path, ..Ask::new("POST", "") }.body(&body);
    let mut table = String::new();
    for ask in [
        Ask::rpc("CreateTaskPushNotificationConfig", &flat),
        Ask::rpc("CreateTaskPushNotificationConfig", &json!({ "task_id": TASK, "pushNotificationConfig": inner })),
        Ask { path: &new_path, ..Ask::rest("POST", "") }.body(&flat),
        Ask::old_rpc("tasks/pushNotificationConfig/set", &json!({ "taskId": TASK, "pushNotificationConfig": inner })),
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
        let body = ask.body.clone();
        let (key, value, answer) = set(&host, &ask, &[]).unwrap_or_else(|answer| panic!("{body}: {answer:?}"));
        assert_eq!((key, answer.status), (format!("{TASK}/c1"), 200), "{body}");
        let kept: Value = value.decode().expect("an object");
        assert_eq!(
            (&kept["url"], &kept["scheme"], &kept["credentials"]),
            (&json!("https://hooks.example/a2a"), &json!("Bearer"), &json!("s3cr3t"))
        );
        let _ = writeln!(table, "{body}\n  {}", answer.body.trim_end());
    }
    insta::assert_snapshot!(table.replace(TASK, "TASK"));
}

#[test]
fn an_id_is_given_where_none_was_told() {
    let host = host();
    let config = json!({ "taskId": TASK, "pushNotificationConfig": { "url": "https://hooks.example/a2a" } });
    let old = Ask::old_rpc("tasks/pushNotificationConfig/set", &config);
    let (key, value, _) = set(&host, &old, &[]).expect("it is taken");
    assert_eq!(key, format!("{TASK}/default"));
    let (second, ..) = set(&host, &old, &[(key.clone(), value.clone())]).expect("it is taken");
    assert_eq!(second, format!("{TASK}/{FRESH}"));
    let named =
        json!({ "taskId": TASK, "pushNotificationConfig": { "id": "default", "url": "https://hooks.example/b" } });
    let replaced = Ask::old_rpc("tasks/pushNotificationConfig/set", &named);
    assert_eq!(set(&host, &replaced, &[(key.clone(), value.clone())]).expect("it is taken").0, key);
    let new =
        Ask::rpc("CreateTaskPushNotificationConfig", &json!({ "taskId": TASK, "url": "https://hooks.example/a2a" }));
    assert_eq!(set(&host, &new, &[]).expect("it is taken").0, format!("{TASK}/{FRESH}"));
    let full: Vec<(String, Json)> = (0..8).map(|number| (format!("{TASK}/{number}"), value.clone())).collect();
    assert_eq!(set(&host, &new, &full).expect_err("too many").json()["error"]["code"], -32004);
}

#[test]
fn what_must_not_be_named_is_refused_by_its_field() {
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
        let refused = set(&host, &Ask::rpc("CreateTaskPushNotificationConfig", &flat), &[]).expect_err("it is refused");
        let told = &refused.json()["error"]["data"][1]["fieldViolations"][0]["field"];
        // Paths are those of the object that was sent.
        assert!(told.as_str().is_some_and(|told| told.ends_with(field)), "{config}: {told}");
    }
    let off = with(json!({ "push": false }));
    let refused = set(&off, &Ask::rpc("CreateTaskPushNotificationConfig", &json!({})), &[]).expect_err("it is off");
    assert_eq!(refused.json()["error"]["code"], -32003);
    let mut question = user("hi");
    question["configuration"] = json!({ "taskPushNotificationConfig": { "url": "https://10.0.0.1/" } });
    let refused = host.ask(&Ask::rpc("SendMessage", &question)).refused();
    let field = &refused.json()["error"]["data"][1]["fieldViolations"][0]["field"];
    assert_eq!(field, "configuration.taskPushNotificationConfig.url");
}

#[test]
fn a_config_of_a_send_is_there_before_the_task_is() {
    let host = host();
    let mut question = user("hi");
    question["configuration"] = json!({ "taskPushNotificationConfig": { "url": "https://hooks.example/a2a" } });
    let asked = host.ask(&Ask::rpc("SendMessage", &question));
    let Ok(Call::Document(DocumentCall::Put { key, .. })) = &asked.call else { panic!("{:?}", asked.call) };
    assert_eq!(*key, format!("{FRESH}/{FRESH}"));
    let run = asked.goes_on(Reply::Done);
    assert_eq!(run.run().id, Some(FRESH));
}

#[test]
fn configs_are_got_listed_and_removed_in_every_dialect() {
    let host = host();
    let record = record(&host);
    let shown = Shown::known(&record, about(&record));
    let kept = |id: &str| {
        let config = json!({ "task": TASK, "id": id, "url": "https://hooks.example/a2a" });
        (format!("{TASK}/{id}"), Json::from_serialize(&config))
    };
    let known = [kept("a"), kept("b"), kept("c")];
    let mut table = String::new();
    let path = |path: &str| path.replace("TASK", TASK);
    let ids = json!({ "taskId": TASK, "id": "b" });
    let old_ids = json!({ "id": TASK, "pushNotificationConfigId": "b" });
    let configs = path("/tasks/TASK/pushNotificationConfigs");
    let old_configs = path("/v1/tasks/TASK/pushNotificationConfigs");
    let one = path("/tasks/TASK/pushNotificationConfigs/b");
    let old_one = path("/v1/tasks/TASK/pushNotificationConfigs/b");
    for ask in [
        Ask::rpc("GetTaskPushNotificationConfig", &ids),
        Ask { path: &one, ..Ask::rest("GET", "") },
        Ask::old_rpc("tasks/pushNotificationConfig/get", &old_ids),
        Ask::old_rpc("tasks/pushNotificationConfig/get", &json!({ "id": TASK })),
        Ask { path: &old_one, ..Ask::new("GET", "") },
        Ask::rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": TASK, "pageSize": 2 })),
        Ask::rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": TASK, "pageSize": 2, "pageToken": "Mg" })),
        Ask { path: &configs, query: "pageSize=1", ..Ask::rest("GET", "") },
        Ask::old_rpc("tasks/pushNotificationConfig/list", &json!({ "id": TASK })),
        Ask { path: &old_configs, ..Ask::new("GET", "") },
        Ask::rpc("DeleteTaskPushNotificationConfig", &ids),
        Ask { path: &one, ..Ask::rest("DELETE", "") },
        Ask::old_rpc("tasks/pushNotificationConfig/delete", &old_ids),
        Ask { path: &old_one, ..Ask::new("DELETE", "") },
    ] {
        let _ = writeln!(table, "{} {} {}", ask.method, ask.path, ask.body);
        let next = host.ask(&ask).goes_on(Reply::Run(shown.view()));
        let answer = match next.call {
            Ok(Call::Document(DocumentCall::List { .. })) => next.answered(Reply::Documents(&known)),
            Ok(Call::Document(DocumentCall::Delete { ref key, .. })) => {
                assert_eq!(*key, format!("{TASK}/b"));
                next.answered(Reply::Done)
            }
            other => panic!("{other:?}"),
        };
        let _ = writeln!(table, "  {} {}", answer.status, answer.body.trim_end());
    }
    insta::assert_snapshot!(table.replace(TASK, "TASK"));
    let unknown = Ask::rpc("GetTaskPushNotificationConfig", &json!({ "taskId": TASK, "id": "z" }));
    let answer = host.ask(&unknown).goes_on(Reply::Run(shown.view())).answered(Reply::Documents(&known));
    assert_eq!(answer.json()["error"]["code"], -32001);
}

fn notifier(host: &Host, config: &Value) -> Box<dyn PushNotifier> {
    let notifiers = host.0.push.as_ref().expect("pushes are on");
    (notifiers.open)(&Json::from_serialize(config)).expect("a notifier")
}

/// What a receiver gets if nothing holds it up: pieces of text are joined until something else happens.
fn delivered(host: &Host, config: &Value, record: &Record, from: u64) -> Vec<PushRequest> {
    let mut notifier = notifier(host, config);
    let mut parcels = Vec::new();
    for step in record.steps(0) {
        if step.sequence < from { notifier.skip(step) } else { notifier.take(step, &mut parcels) }
    }
    assert!(!notifier.has_held(), "the end of a run leaves nothing behind");
    parcels
}

fn golden(parcels: &[PushRequest]) -> String {
    let mut table = String::new();
    for parcel in parcels {
        let _ = writeln!(table, "{:?}\n{}", parcel.headers, String::from_utf8_lossy(&parcel.body));
    }
    table.replace(TASK, "TASK").replace("session-1", "CONTEXT")
}

#[test]
fn receivers_of_both_generations_get_their_own_bodies() {
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
    for parcel in delivered(&statuses, &config, &record, 0) {
        assert!(String::from_utf8_lossy(&parcel.body).starts_with(r#"{"statusUpdate""#));
    }
}

#[test]
fn wherever_a_receiver_joins_it_gets_the_rest_once() {
    let host = host();
    let record = record(&host);
    let config = json!({ "task": TASK, "id": "c", "url": "https://hooks.example/a2a" });
    let text = |parcels: &[PushRequest]| -> String {
        let bodies = parcels.iter().map(|parcel| serde_json::from_slice::<Value>(&parcel.body).expect("JSON"));
        let parts = bodies.filter_map(|body| body["artifactUpdate"]["artifact"]["parts"].as_array().cloned()).flatten();
        parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
    };
    let whole = text(&delivered(&host, &config, &record, 0));
    for from in 0..record.len() {
        let parcels = delivered(&host, &config, &record, from);
        assert!(whole.ends_with(&text(&parcels)), "from {from}");
        assert!(String::from_utf8_lossy(&parcels.last().expect("an end").body).contains("TASK_STATE_COMPLETED"));
    }
    // Flushed after every step, nothing is lost and nothing comes twice.
    let mut notifier = notifier(&host, &config);
    let mut parcels = Vec::new();
    for step in record.steps(0) {
        notifier.take(step, &mut parcels);
        if notifier.has_held() {
            notifier.flush(step, &mut parcels);
        }
    }
    assert_eq!(text(&parcels), whole);
    assert!(parcels.len() > delivered(&host, &config, &record, 0).len());
}
