//! A2A requests whose handling involves the server around the adapter: routing of paths, headers, unknown paths and
//! bodies that are too large. Not here: tasks (`a2a`), and what needs no server (the adapter's own tests).

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway};
use crate::support::http::{Exchange, Response};

const V1: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");
const A2A_JSON: (&str, &str) = ("accept", "application/a2a+json");

/// A gateway with an A2A route for its demo agent at this path, with these options.
async fn at(path: &str, options: &str) -> Gateway {
    let route = format!("[[routes]]\nprotocol = \"a2a\"\npath = \"{path}\"\noptions = {{ {options} }}\n");
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{DEMO}{route}")).await
}

async fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    gateway.open(method, path, headers, body.as_bytes()).await.response().await
}

fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// Runs a task to its end and returns its id.
async fn task(gateway: &Gateway, path: &str) -> String {
    let sent = ask(gateway, "POST", &format!("{path}/message:send"), &[V1, JSON], &message("echo hi")).await;
    sent.json()["task"]["id"].as_str().unwrap_or_else(|| panic!("no task: {}", sent.text())).to_owned()
}

#[tokio::test]
async fn path_segments_are_percent_decoded_exactly_once() {
    let gateway = at("/a", "push_allow = [\"127.0.0.1\"]").await;
    let id = task(&gateway, "/a").await;
    let configs = format!("/a/tasks/{id}/pushNotificationConfigs");
    for (name, encoded) in
        [("a+b", "a+b"), ("a+b", "a%2Bb"), ("a%b", "a%25b"), ("a%2Fb", "a%252Fb"), ("ü x", "%C3%BC%20x")]
    {
        let config = json!({ "id": name, "url": "https://127.0.0.1/" });
        let made = ask(&gateway, "POST", &configs, &[V1, JSON], &config).await;
        assert_eq!((made.status, &made.json()["id"]), (200, &json!(name)), "{}", made.text());

        let one = format!("{configs}/{encoded}");
        let found = ask(&gateway, "GET", &one, &[V1], &Value::Null).await;
        assert_eq!((found.status, &found.json()["id"]), (200, &json!(name)), "{encoded}: {}", found.text());
        ask(&gateway, "DELETE", &one, &[V1], &Value::Null).await;
        assert_eq!(ask(&gateway, "GET", &one, &[V1], &Value::Null).await.status, 404, "{encoded}");
    }

    for (tenant, encoded) in [("a/b", "a%2Fb"), ("a+b", "a%2bb"), ("50%", "50%25"), ("v 1", "v%201")] {
        let mut body = message("echo hi");
        body["tenant"] = json!(tenant);
        let sent = ask(&gateway, "POST", &format!("/a/{encoded}/message:send"), &[V1, JSON], &body).await;
        assert_eq!(sent.status, 200, "path and body name the same tenant: {}", sent.text());
        let listed = ask(&gateway, "GET", &format!("/a/tasks?tenant={encoded}"), &[V1], &Value::Null).await;
        assert_eq!(listed.json()["totalSize"], 1, "{tenant}: {}", listed.text());
    }
    let id = id.replace('-', "%2D");
    assert_eq!(ask(&gateway, "GET", &format!("/a/tasks/{id}"), &[V1], &Value::Null).await.status, 200);
}

#[tokio::test]
async fn headers_with_invalid_bytes_count_as_present() {
    let gateway = at("/a", "").await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks" });
    let posted = async |path: &str, version: &[u8], media: &[u8], body: &Value| {
        let body = body.to_string();
        let mut bytes = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len()).into_bytes();
        for (name, value) in [("a2a-version", version), ("content-type", media)] {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.as_bytes());
        Exchange::send(gateway.address, &bytes).await.response().await
    };
    let fine = posted("/a", b"1.0", b"application/json", &body).await;
    assert!(fine.json().get("result").is_some(), "{}", fine.text());

    for version in ["١.٠".as_bytes(), b"1.0\xe9", b"\xff"] {
        let response = posted("/a", version, b"application/json", &body).await.json();
        assert_eq!(response["error"]["code"], -32009, "{response}");
        let response = posted("/a/message:send", version, b"application/json", &message("hi")).await.json();
        assert_eq!(response["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{response}");
    }

    for media in ["application/jsön".as_bytes(), b"\xe4"] {
        let response = posted("/a", b"1.0", media, &body).await.json();
        assert_eq!(response["error"]["code"], -32005, "{response}");
        let response = posted("/a/message:send", b"1.0", media, &message("hi")).await.json();
        assert_eq!(response["error"]["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED", "{response}");
    }
}

#[tokio::test]
async fn wrong_methods_are_refused_with_the_allowed_methods() {
    let gateway = at("/api/v1/x", "cors = true").await;
    let base = "/api/v1/x";
    for path in [base.to_owned(), format!("{base}/")] {
        for method in ["GET", "PUT", "DELETE", "PATCH"] {
            let response = ask(&gateway, method, &path, &[V1], &Value::Null).await;
            let body = response.json();
            assert_eq!((response.status, response.header("allow")), (405, Some("POST")), "{method} {path}");
            assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &Value::Null), "{body}");
            assert_eq!(body["error"]["code"], -32601, "{body}");
        }
    }

    for (path, allow, old) in [
        ("/tasks", "GET, HEAD", false),
        ("/v1/tasks", "GET, HEAD", true),
        ("/agent/authenticatedExtendedCard", "GET, HEAD", true),
        ("/.well-known/agent-card.json", "GET, HEAD", false),
    ] {
        let response = ask(&gateway, "POST", &format!("{base}{path}"), &[], &json!({})).await;
        assert_eq!((response.status, response.header("allow")), (405, Some(allow)), "{path}");
        assert_eq!(response.json().get("type").is_some(), old, "{path}: {}", response.text());
    }

    let response = ask(&gateway, "GET", "/api/v1/x/nonsense", &[], &Value::Null).await;
    assert_eq!((response.status, &response.json()["error"]["status"]), (404, &json!("NOT_FOUND")));
    let request =
        ask(&gateway, "OPTIONS", &format!("{base}/tasks"), &[("origin", "https://a.example")], &Value::Null).await;
    assert_eq!(request.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
    let head = gateway.open("HEAD", &format!("{base}/tasks"), &[V1], b"").await.status().await;
    assert_eq!(head, 200, "a method in the Allow header is served");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_the_format_of_the_client() {
    let gateway = at("/a", "max_body = \"1KiB\"").await;
    let large = message(&"x".repeat(4000));
    let call = |method: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": large });
    for (path, headers, media) in [
        ("/a/message:send", vec![V1, JSON], "application/json"),
        ("/a/message:send", vec![V1, JSON, A2A_JSON], "application/a2a+json"),
        ("/a/v1/message:send", vec![JSON, A2A_JSON], "application/json"),
    ] {
        let response = ask(&gateway, "POST", path, &headers, &large).await;
        assert_eq!((response.status, response.header("content-type")), (413, Some(media)), "{path}");
        assert_eq!(response.json().get("type").is_some(), path.contains("/v1/"), "{}", response.text());
    }

    let new = ask(&gateway, "POST", "/a", &[V1, JSON], &call("SendMessage")).await;
    let message = |response: &Response| response.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert_eq!((new.status, &new.json()["id"]), (413, &Value::Null));
    assert!(message(&new).starts_with("Request payload too large"), "{}", new.text());
    let old = ask(&gateway, "POST", "/a", &[JSON], &call("message/send")).await;
    assert_eq!((old.status, message(&old).as_str()), (413, "Request payload validation error"), "{}", old.text());
}

#[tokio::test]
async fn a_route_for_one_protocol_version_refuses_clients_of_the_other() {
    let gateway = at("/a", "versions = [\"0.3\"]").await;
    let response = ask(&gateway, "GET", "/a/tasks", &[V1], &Value::Null).await.json();
    assert_eq!(response["error"]["details"][0]["metadata"]["supportedVersions"], "0.3", "{response}");
    assert_eq!(ask(&gateway, "GET", "/a/v1/tasks", &[], &Value::Null).await.status, 200);

    let gateway = at("/a", "versions = [\"1.0\"]").await;
    let response = ask(&gateway, "GET", "/a/v1/tasks", &[], &Value::Null).await.json();
    assert_eq!(response["error"]["details"][0]["metadata"]["supportedVersions"], "1.0", "{response}");
    assert_eq!(ask(&gateway, "GET", "/a/tasks", &[V1], &Value::Null).await.status, 200);
}

#[tokio::test]
async fn an_answer_without_a_decision_is_refused_with_its_location() {
    let gateway = at("/a", "").await;
    let interrupted = ask(&gateway, "POST", "/a/message:send", &[V1, JSON], &message("approval")).await.json();
    assert_eq!(interrupted["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{interrupted}");
    let id = &interrupted["task"]["id"];
    let parts = interrupted["task"]["status"]["message"]["parts"].as_array().expect("parts").clone();
    let item = parts.iter().find_map(|part| part["data"]["interrupt"]["id"].as_str()).expect("an item");
    let edit = json!({ "data": { "interrupt_id": item, "decision": "edit" } });
    let body = json!({ "message": {
        "messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{ "text": "like so" }, edit],
    } });
    let response = ask(&gateway, "POST", "/a/message:send", &[V1, JSON], &body).await.json();
    let violation = &response["error"]["details"][1]["fieldViolations"][0];
    assert_eq!(violation["field"], "message.parts[1]", "{response}");
}
