//! Rejected requests: the order of checks, the named fields, and the message texts per version
//! (docs/protocols/a2a.md#errors). Not here: accepted requests (`requests`), and tests that need a server
//! (`tests/behaviour`).

mod support;

use interlingua_a2a::A2a;
use interlingua_core::answer::{NOT_TAKEN, UNDECIDED};
use interlingua_core::exchange::Mount;
use interlingua_core::{Call, Fault, FaultKind, Out, ProtocolAdapter};
use interlingua_core_testkit as testkit;
use serde_json::{Value, json};
use support::{Answer, ClientRequest, host, user, user_v03, with};

const TASK: &str = "01930000-0000-7000-8000-000000000001";

/// The response of the fallback exchange, called as the server calls it.
fn fallback(mount: &str, options: Value, method: &str, path: &str, headers: &[(&str, &str)], fault: &Fault) -> Answer {
    let mount =
        Mount { path: mount.to_owned(), agents: vec![support::card("demo")], public_url: None, schemes: Vec::new() };
    let options = serde_json::from_value(options).expect("options");
    let mut exchange = (A2a::mount(&mount, options).expect("mounts").fallback)();
    let request =
        testkit::ClientRequest { headers, base_url: "https://gw.example", ..testkit::ClientRequest::new(method, path) };
    request.decode(&mut *exchange).expect_err("an unknown path");
    let mut out = Out::new();
    exchange.fail(fault, &mut out);
    Answer::from_out(out)
}

fn not_allowed(allow: &[&'static str]) -> Fault {
    let mut fault = Fault::new(FaultKind::MethodNotAllowed, "not a method of this path");
    fault.allow = allow.to_vec();
    fault
}

/// Paths of all invalid fields in an error of any version and binding.
fn fields(error: &Value) -> Vec<String> {
    let lists = ["/error/data", "/error/details"].into_iter().filter_map(|at| error.pointer(at)?.as_array()).flatten();
    let violations = lists.filter_map(|detail| detail.get("fieldViolations"));
    let old = ["/error/data/fieldViolations", "/data/fieldViolations"].into_iter().filter_map(|at| error.pointer(at));
    let violations = violations.chain(old).filter_map(Value::as_array).flatten();
    violations.map(|violation| violation["field"].as_str().expect("a path").to_owned()).collect()
}

/// Error code and invalid fields of a rejection, over JSON-RPC or REST.
fn rejection(request: &ClientRequest<'_>, options: Value) -> (i64, Vec<String>) {
    let answer = with(options).send(request).rejected().json();
    let code = answer.pointer("/error/code").or_else(|| answer.get("code")).and_then(Value::as_i64);
    (code.expect("a code"), fields(&answer))
}

#[test]
fn unknown_paths_are_rejected_in_the_dialect_of_the_path() {
    let unknown = Fault::new(FaultKind::NoSuchPath, "no endpoint");
    for (mount, path, old) in [
        ("/api/v1/x", "/api/v1/x/nonsense", false),
        ("/api/v1/x", "/api/v1/x/v1/nonsense", true),
        ("/v1", "/v1/nonsense", false),
        ("/v1", "/v1/v1/nonsense", true),
        ("", "/v1/nonsense", true),
        ("", "/nonsense", false),
        ("/demo", "/demo/x/v1/nonsense", false),
    ] {
        let answer = fallback(mount, json!({}), "GET", path, &[], &unknown);
        assert_eq!((answer.status, answer.json().get("type").is_some()), (404, old), "{mount} {path}: {}", answer.body);
    }
    let get = not_allowed(&["GET", "HEAD"]);
    let answer = fallback("/demo", json!({}), "POST", "/demo/agent/authenticatedExtendedCard", &[], &get);
    assert_eq!((answer.status, answer.head.get("allow")), (405, Some("GET, HEAD")));
    assert_eq!(answer.json()["type"], "MethodNotFoundError");

    let only_new = json!({ "versions": ["1.0"] });
    let answer = fallback("/demo", only_new, "GET", "/demo/v1/nonsense", &[], &unknown);
    assert_eq!(answer.json()["error"]["status"], "NOT_FOUND");
}

#[test]
fn the_json_rpc_endpoint_rejects_other_http_methods_as_json_rpc() {
    let post = not_allowed(&["POST"]);
    for (mount, path) in [("/demo", "/demo"), ("/demo", "/demo/"), ("", "/")] {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = fallback(mount, json!({}), method, path, &[("a2a-version", "1.0")], &post);
            assert_eq!((answer.status, answer.head.get("allow")), (405, Some("POST")), "{method} {path}");
            let body = answer.json();
            assert_eq!((&body["id"], &body["error"]["code"]), (&Value::Null, &json!(-32601)), "{body}");
            assert_eq!((&body["jsonrpc"], &body["error"]["message"]), (&json!("2.0"), &json!("Method not allowed")));
        }
    }
    let old = fallback("/demo", json!({}), "GET", "/demo", &[], &post).json();
    assert_eq!(old["error"]["message"], "Method not found", "clients of 0.3 match this text");
    assert_eq!(old["error"]["data"]["detail"], "Method not allowed");

    // If that binding is not served, it is an unknown path.
    let rest = json!({ "bindings": ["HTTP+JSON"] });
    let answer = fallback("/demo", rest, "GET", "/demo", &[], &Fault::new(FaultKind::NoSuchPath, "no endpoint"));
    assert_eq!((answer.status, &answer.json()["error"]["status"]), (404, &json!("NOT_FOUND")));
}

#[test]
fn v1_is_rejected_as_a_tenant_everywhere() {
    let mut params = user("x");
    params["tenant"] = json!("v1");
    let wrong = (-32602, vec!["tenant".to_owned()]);
    assert_eq!(rejection(&ClientRequest::rpc("SendMessage", &params), json!({})), wrong);
    assert_eq!(rejection(&ClientRequest::rpc("ListTasks", &json!({ "tenant": "v1" })), json!({})), wrong);
    let rest = (400, vec!["tenant".to_owned()]);
    assert_eq!(rejection(&ClientRequest::rest("POST", "/message:send").body(&params), json!({})), rest);
    assert_eq!(rejection(&ClientRequest::rest("GET", "/tasks").query("tenant=v1"), json!({})), rest);
    let path = host().send(&ClientRequest::rest("GET", "/v1/extendedAgentCard")).rejected();
    assert_eq!((path.status, &path.json()["type"]), (404, &json!("MethodNotFoundError")));
}

#[test]
fn metadata_must_be_an_object_everywhere() {
    for metadata in [json!(7), json!([]), json!("x"), json!(true)] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask", "ListTasks"] {
            let request = ClientRequest::rpc(method, &json!({ "id": TASK, "metadata": metadata }));
            assert_eq!(rejection(&request, json!({})), (-32602, vec!["metadata".to_owned()]), "{method} {metadata}");
        }
        for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/pushNotificationConfig/get"] {
            let request = ClientRequest::rpc_v03(method, &json!({ "id": TASK, "metadata": metadata }));
            assert_eq!(rejection(&request, json!({})), (-32602, vec!["metadata".to_owned()]), "{method} {metadata}");
        }
        let path = format!("/tasks/{TASK}:cancel");
        let request = ClientRequest::rest("POST", &path).body(&json!({ "metadata": metadata }));
        assert_eq!(rejection(&request, json!({})), (400, vec!["metadata".to_owned()]), "{metadata}");
    }
    let fine = ClientRequest::rpc("CancelTask", &json!({ "id": TASK, "metadata": { "why": 1 } }));
    assert!(matches!(host().send(&fine).call, Ok(Call::Fetch(_))));
}

#[test]
fn capabilities_are_checked_before_parameters() {
    let off = || json!({ "push": false });
    let code = |request: ClientRequest<'_>, options: Value| rejection(&request, options).0;
    for params in [json!([]), json!("x"), json!({ "metadata": 7 })] {
        assert_eq!(code(ClientRequest::rpc("GetExtendedAgentCard", &params), json!({})), -32004, "{params}");
        assert_eq!(code(ClientRequest::rpc("CreateTaskPushNotificationConfig", &params), off()), -32003, "{params}");
        assert_eq!(
            code(ClientRequest::rpc_v03("tasks/pushNotificationConfig/list", &params), off()),
            -32003,
            "{params}"
        );
        assert_eq!(code(ClientRequest::rpc("GetTask", &params), off()), -32602, "{params}");
    }
    let broken = json!({ "message": {}, "configuration": { "taskPushNotificationConfig": { "url": 7 } } });
    assert_eq!(code(ClientRequest::rpc("SendMessage", &broken), off()), -32003);
    assert_eq!(code(ClientRequest::rpc("SendMessage", &broken), json!({})), -32602);
    let broken = json!({ "message": {}, "configuration": { "pushNotification": {} } });
    let rest = with(off()).send(&ClientRequest::new("POST", "/v1/message:send").body(&broken)).rejected();
    assert_eq!((rest.status, &rest.json()["code"]), (501, &json!(-32003)));

    let path = format!("/tasks/{TASK}/pushNotificationConfigs");
    let rest = with(off()).send(&ClientRequest::rest("POST", &path).body(&json!([]))).rejected().json();
    assert_eq!(rest["error"]["details"][0]["reason"], "PUSH_NOTIFICATION_NOT_SUPPORTED");
}

#[test]
fn non_object_params_are_ignored_if_no_field_is_required() {
    for params in [json!([]), json!("x"), json!(7), Value::Null, json!({})] {
        assert!(matches!(host().send(&ClientRequest::rpc("ListTasks", &params)).call, Ok(Call::List(_))), "{params}");
    }

    let options = json!({ "extended_card": { "name": "more" } });
    let request = ClientRequest { authenticated: true, ..ClientRequest::rpc("GetExtendedAgentCard", &json!([])) };
    assert!(support::authenticating(options).send(&request).call.is_ok());
}

#[test]
fn parameters_are_checked_before_the_task_is_loaded() {
    let named = |request: ClientRequest<'_>| rejection(&request, json!({}));
    let invalid = |field: &str| (-32602, vec![field.to_owned()]);
    assert_eq!(
        named(ClientRequest::rpc("GetTask", &json!({ "id": "x", "historyLength": -1 }))),
        invalid("historyLength")
    );
    assert_eq!(named(ClientRequest::rpc("GetTask", &json!({ "id": "x" }))).0, -32001);

    let list = json!({ "taskId": "x", "pageSize": -1 });
    assert_eq!(named(ClientRequest::rpc("ListTaskPushNotificationConfigs", &list)), invalid("pageSize"));
    let set = json!({ "taskId": "x", "url": "ftp://x" });
    assert_eq!(named(ClientRequest::rpc("CreateTaskPushNotificationConfig", &set)), invalid("url"));
    let old = json!({ "configId": "a/b", "config": { "pushNotificationConfig": { "url": "https://hooks.example/" } } });
    let path = format!("/v1/tasks/{TASK}/pushNotificationConfigs");
    assert_eq!(named(ClientRequest::new("POST", &path).body(&old)), invalid("configId"));
}

#[test]
fn every_invalid_field_of_a_configuration_is_named_by_its_path() {
    let configuration = json!({
        "returnImmediately": "soon", "historyLength": -1, "acceptedOutputModes": "text/plain",
        "taskPushNotificationConfig": { "id": "a/b", "url": "ftp://x", "token": "a\nb", "authentication": {} },
    });
    let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER" }, "configuration": configuration });
    let (code, mut named) = rejection(&ClientRequest::rpc("SendMessage", &params), json!({}));
    named.sort_unstable();
    let push = |name: &str| format!("configuration.taskPushNotificationConfig.{name}");
    let mut expected = vec![
        "configuration.acceptedOutputModes".to_owned(),
        "configuration.historyLength".to_owned(),
        "configuration.returnImmediately".to_owned(),
        "message.parts".to_owned(),
        push("authentication.scheme"),
        push("token"),
    ];
    expected.sort_unstable();
    assert_eq!((code, named), (-32602, expected));
    // Id and URL are checked once the rest is valid.
    let mut params = user("x");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "id": "a/b", "url": "ftp://x" } });
    let (_, named) = rejection(&ClientRequest::rpc("SendMessage", &params), json!({}));
    assert_eq!(named, [push("id"), push("url")]);

    let create = ClientRequest::rpc(
        "CreateTaskPushNotificationConfig",
        &json!({ "taskId": TASK, "id": "a/b", "url": "ftp://x" }),
    );
    assert_eq!(rejection(&create, json!({})).1, ["id", "url"]);
    let old = json!({ "taskId": TASK, "pushNotificationConfig": { "id": "a/b", "url": "https://hooks.example/" } });
    let old = ClientRequest::rpc_v03("tasks/pushNotificationConfig/set", &old);
    assert_eq!(rejection(&old, json!({})).1, ["pushNotificationConfig.id"]);
}

#[test]
fn an_authentication_without_a_scheme_is_rejected_unless_it_is_empty_in_v03() {
    let url = "https://hooks.example/";
    let path = format!("/v1/tasks/{TASK}/pushNotificationConfigs");
    for (authentication, says_nothing) in [
        (json!({}), true),
        (json!({ "schemes": [] }), true),
        (json!({ "schemes": [""] }), true),
        (json!({ "schemes": [], "credentials": "" }), true),
        (json!({ "credentials": "c" }), false),
        (json!({ "schemes": [], "credentials": "c" }), false),
    ] {
        let config = json!({ "url": url, "authentication": authentication });
        let set = json!({ "taskId": TASK, "pushNotificationConfig": config });
        let old = ClientRequest::rpc_v03("tasks/pushNotificationConfig/set", &set);
        let message = json!({ "kind": "message", "messageId": "m", "role": "user",
            "parts": [{ "kind": "text", "text": "hi" }] });
        let inline = json!({ "message": message, "configuration": { "pushNotificationConfig": config } });
        let inline = ClientRequest::rpc_v03("message/send", &inline);
        let rest = ClientRequest { path: &path, ..ClientRequest::new("POST", "") }
            .body(&json!({ "pushNotificationConfig": config }));
        if says_nothing {
            for request in [&old, &inline, &rest] {
                assert!(host().send(request).call.is_ok(), "{authentication}: {:?}", host().send(request).call);
            }
        } else {
            let location = "pushNotificationConfig.authentication.schemes".to_owned();
            assert_eq!(rejection(&old, json!({})), (-32602, vec![location]), "{authentication}");
            for request in [&inline, &rest] {
                assert!(host().send(request).call.is_err(), "{authentication}");
            }
        }
        let new = json!({ "taskId": TASK, "url": url, "authentication": authentication });
        let new = ClientRequest::rpc("CreateTaskPushNotificationConfig", &new);
        assert_eq!(rejection(&new, json!({})), (-32602, vec!["authentication.scheme".to_owned()]), "{authentication}");
    }
    let config = json!({ "url": url, "authentication": { "schemes": ["", "Bearer"] } });
    let set = json!({ "taskId": TASK, "pushNotificationConfig": config });
    assert!(
        host().send(&ClientRequest::rpc_v03("tasks/pushNotificationConfig/set", &set)).call.is_ok(),
        "one is not empty"
    );
}

#[test]
fn an_unserved_version_is_rejected_with_the_served_ones() {
    let check = |versions: &str, request: ClientRequest<'_>| {
        let answer = with(json!({ "versions": [versions] })).send(&request).rejected();
        let body = answer.json();
        let details = if request.path.is_empty() { &body["error"]["data"][0] } else { &body["error"]["details"][0] };
        assert_eq!(
            details["reason"], "VERSION_NOT_SUPPORTED",
            "{versions} {} {}: {body}",
            request.method, request.path
        );
        assert_eq!(details["metadata"]["supportedVersions"], versions, "{body}");
        let message = body["error"]["message"].as_str().expect("a message");
        assert!(!message.contains("A2A-Version"), "what is not served does not come with a header: {message}");
    };
    let get = format!("/tasks/{TASK}");
    let old_get = format!("/v1/tasks/{TASK}");
    check("0.3", ClientRequest::rest("GET", &get));
    check("0.3", ClientRequest::new("GET", &get));
    check("0.3", ClientRequest::rest("POST", "/message:send").body(&user("x")));
    check("0.3", ClientRequest::rest("GET", "/x/tasks"));
    check("0.3", ClientRequest::rpc("SendMessage", &user("x")));
    check("0.3", ClientRequest::rpc_v03("SendMessage", &user("x")));
    check("1.0", ClientRequest::new("GET", &old_get));
    check("1.0", ClientRequest::rest("GET", &old_get));
    check("1.0", ClientRequest::new("POST", "/v1/message:send").body(&user("x")));
    check("1.0", ClientRequest::new("GET", "/agent/authenticatedExtendedCard"));
    check("1.0", ClientRequest::rpc_v03("message/send", &user_v03("x")));
}

#[test]
fn no_response_names_more_than_a_hundred_fields() {
    let parts: Vec<Value> = (0..5_000).map(|_| json!({})).collect();
    let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": parts } });

    let answer = host().send(&ClientRequest::rpc("SendMessage", &params)).rejected();
    assert_eq!(fields(&answer.json()).len(), 100);
    let message = answer.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("4900 more"), "{message}");
    let old = host().send(&ClientRequest::rpc_v03("message/send", &params)).rejected().json();
    assert_eq!((fields(&old).len(), &old["error"]["message"]), (100, &json!("Invalid parameters")));
    assert!(old["error"]["data"]["detail"].as_str().is_some_and(|detail| detail.contains("4900 more")), "{old}");
}

#[test]
fn values_nested_too_deeply_for_protojson_are_rejected() {
    let nested = |levels: usize| -> String { format!("{}{}", "[".repeat(levels), "]".repeat(levels)) };
    let body = |location: &str, levels: usize| {
        let deep = if location == "data" { nested(levels) } else { format!(r#"{{"d":{}}}"#, nested(levels - 1)) };
        let part = if location == "data" { format!(r#"{{"data":{deep}}}"#) } else { r#"{"text":"]]"}"#.to_owned() };
        let (inner, outer) = match location {
            "message.metadata" => (format!(r#","metadata":{deep}"#), String::new()),
            "metadata" => (String::new(), format!(r#","metadata":{deep}"#)),
            _ => (String::new(), String::new()),
        };
        let part = if location == "part" { format!(r#"{{"text":"x","metadata":{deep}}}"#) } else { part };
        format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]{inner}}}{outer}}}"#)
    };
    for (location, path) in [
        ("data", "message.parts[0].data"),
        ("part", "message.parts[0].metadata"),
        ("message.metadata", "message.metadata"),
        ("metadata", "metadata"),
    ] {
        let request = |levels| ClientRequest::rest("POST", "/message:send").text(&body(location, levels));
        assert!(host().send(&request(100)).call.is_ok(), "{location}");
        assert_eq!(rejection(&request(101), json!({})), (400, vec![path.to_owned()]));
        assert_eq!(rejection(&request(100_000), json!({})), (400, vec![path.to_owned()]));
    }
}

#[test]
fn an_undecided_answer_names_its_part() {
    let named = |parts: Value, fault: &Fault| {
        let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": parts } });
        let mut decoded = host().send(&ClientRequest::rpc("SendMessage", &params));
        assert!(matches!(decoded.call, Ok(Call::Run(_))));
        let mut out = Out::new();
        decoded.exchange.fail(fault, &mut out);
        fields(&Answer::from_out(out).json())
    };
    let undecided = || Fault::new(FaultKind::Invalid, "the answer decides nothing").with_code(UNDECIDED);
    let not_taken = Fault::new(FaultKind::Invalid, "an edit needs the new arguments as an object").with_code(NOT_TAKEN);

    let text = json!({ "text": "perhaps" });
    let data = json!({ "data": { "interrupt_id": "i", "decision": "edit" } });
    assert_eq!(named(json!([text]), &undecided()), ["message.parts[0]"]);
    assert_eq!(named(json!([text, data]), &not_taken), ["message.parts[1]"]);
    assert_eq!(named(json!([data, data]), &not_taken), ["message.parts"]);
    assert_eq!(named(json!([text, text]), &undecided()), ["message.parts"]);
    assert_eq!(named(json!([text]), &undecided().with_field("message.parts[7]")), ["message.parts[7]"]);
}

#[test]
fn v03_clients_get_the_fixed_message_and_the_detail_separately() {
    let unsupported = |message: &str| Fault::new(FaultKind::Unsupported, message);
    for (fault, message, detail) in [
        (unsupported("the task has ended"), "This operation is not supported", Some("the task has ended")),
        (Fault::new(FaultKind::NotFound, "no such task"), "Task not found", None),
        (Fault::new(FaultKind::NoSuchPath, "'x'"), "Method not found", Some("'x'")),
        (
            Fault::new(FaultKind::TooLarge, "the body"),
            "Request payload validation error",
            Some("Request payload too large: the body"),
        ),
        (
            Fault::new(FaultKind::UpstreamUnreachable, "no answer"),
            "Internal error",
            Some("The agent is not available: no answer"),
        ),
        (Fault::new(FaultKind::Internal, "a secret"), "Internal error", None),
        (
            Fault::new(FaultKind::Malformed, "the body is not JSON"),
            "Invalid JSON payload",
            Some("the body is not JSON"),
        ),
        (Fault::new(FaultKind::AgentFailed, "it failed"), "Invalid agent response", Some("it failed")),
    ] {
        for (request, at) in [
            (ClientRequest::rpc_v03("message/send", &user_v03("x")), "/error"),
            (ClientRequest::new("POST", "/v1/message:send").body(&user_v03("x")), ""),
        ] {
            let mut decoded = host().send(&request);
            let mut out = Out::new();
            decoded.exchange.fail(&fault, &mut out);
            let body = Answer::from_out(out).json();
            let error = body.pointer(at).expect("an error");
            assert_eq!(error["message"], message, "{body}");
            assert_eq!(error.pointer("/data/detail").and_then(Value::as_str), detail, "{body}");
        }
    }
    let mut decoded = host().send(&ClientRequest::rpc("SendMessage", &user("x")));
    let mut out = Out::new();
    decoded.exchange.fail(&unsupported("the task has ended"), &mut out);
    let message = &Answer::from_out(out).json()["error"]["message"];
    assert_eq!(message, "This operation is not supported: the task has ended", "1.0 has both in one text");
}
