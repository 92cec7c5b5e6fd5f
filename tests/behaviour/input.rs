//! Invalid input: whatever a client sends, it learns what is wrong and where. Memory is bounded and the process
//! survives.

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, user_turn};
use crate::support::http::{Exchange, Response, data, request};
use crate::support::transcript::Transcript;

async fn assert_alive(gateway: &Gateway) {
    gateway.run_turn("demo", &user_turn("echo still here")).await.expect_completed();
}

/// Status, expected `detail` entry and code. An empty code matches anything.
type ExpectedError = (u16, Value, String);

/// The error for one field in the format of the Agent API.
fn field_error(kind: &str, loc: Value, code: &str) -> ExpectedError {
    (422, json!({ "type": kind, "loc": loc }), code.to_owned())
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_location_of_the_error() {
    let gateway = Gateway::start(DEMO).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_input = format!("{{\"input\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<(&[u8], ExpectedError)> = vec![
        (b"", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"hello", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"{\"input\":", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"{\"input\":[]} x", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"[1]", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"null", field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (
            b"{\"input\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
            field_error("json_invalid", json!(["body"]), "MALFORMED_REQUEST"),
        ),
        (deep.as_bytes(), field_error("value_error", json!(["body"]), "INVALID_PARAMETER")),
        (deep_input.as_bytes(), field_error("value_error", json!(["body"]), "INVALID_PARAMETER")),
        (b"{}", field_error("missing", json!(["body", "input"]), "MISSING_PARAMETER")),
        (b"{\"input\":\"hi\"}", field_error("type_error", json!(["body", "input"]), "PARAMETER_VALIDATION")),
        (b"{\"input\":null}", field_error("", json!(["body", "input"]), "")),
        (b"{\"input\":[7]}", field_error("type_error", json!(["body", "input", 0]), "PARAMETER_VALIDATION")),
        (
            br#"{"input":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}"#,
            field_error("value_error", json!(["body", "input", 1, "role"]), "INVALID_PARAMETER"),
        ),
        (
            br#"{"input":[{"role":"user","content":[{"text":"x"},{"type":"text","text":7}]}]}"#,
            field_error("type_error", json!(["body", "input", 0, "content", 1, "text"]), "PARAMETER_VALIDATION"),
        ),
        (
            br#"{"input":[{"role":"user","content":7}]}"#,
            field_error("type_error", json!(["body", "input", 0, "content"]), "PARAMETER_VALIDATION"),
        ),
        (b"{\"input\":[],\"n\":6}", field_error("value_error", json!(["body", "n"]), "INVALID_PARAMETER")),
        (b"{\"input\":[],\"n\":0}", field_error("value_error", json!(["body", "n"]), "INVALID_PARAMETER")),
        (b"{\"input\":[],\"n\":\"1\"}", field_error("type_error", json!(["body", "n"]), "PARAMETER_VALIDATION")),
        (b"{\"input\":[],\"stream\":1}", field_error("type_error", json!(["body", "stream"]), "PARAMETER_VALIDATION")),
        (
            b"{\"input\":[],\"session_id\":7}",
            field_error("type_error", json!(["body", "session_id"]), "PARAMETER_VALIDATION"),
        ),
        (
            b"{\"input\":[],\"temperature\":\"hot\"}",
            field_error("type_error", json!(["body", "temperature"]), "PARAMETER_VALIDATION"),
        ),
        (
            b"{\"input\":[],\"max_tokens\":1.5}",
            field_error("type_error", json!(["body", "max_tokens"]), "PARAMETER_VALIDATION"),
        ),
    ];

    for path in ["/agents/demo/process", "/agents/demo/process/task"] {
        for (body, (status, entry, code)) in &cases {
            let response = gateway.open("POST", path, JSON, body).await.response().await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(100)]);
            assert_eq!(response.status, *status, "{shown}: {}", response.text());
            assert_eq!(response.header("content-type"), Some("application/json"), "{shown}");
            let error = response.json();
            let received = &error["detail"][0];
            assert!(!received["msg"].as_str().unwrap_or("").is_empty(), "{shown}: {error}");
            if !code.is_empty() {
                let expected = (&json!(code), &entry["type"], &entry["loc"]);
                assert_eq!((&error["code"], &received["type"], &received["loc"]), expected, "{shown}: {error}");
            }
            assert!(response.body.len() < 1000, "{shown}: an error response is short");
        }
    }
    assert_alive(&gateway).await;
}

#[tokio::test]
async fn a_session_id_has_a_maximum_length() {
    let gateway = Gateway::start(DEMO).await;
    let mut body = user_turn("echo hi");
    body["session_id"] = json!("s".repeat(513));
    let response = gateway.post("/agents/demo/process", &body).await;
    assert_eq!((response.status, &response.json()["detail"][0]["loc"]), (422, &json!(["body", "session_id"])));

    for odd in ["../../etc", "\u{1f}\u{0}", "ß🦀", "a b", "%2e"] {
        body["session_id"] = json!(odd);
        let transcript = gateway.run_turn("demo", &body).await.expect_completed();
        assert_eq!(transcript.session, odd);
    }
}

#[tokio::test]
async fn unusual_but_valid_input_is_accepted() {
    let gateway = Gateway::start(DEMO).await;
    for body in [
        json!({ "input": [] }),
        json!({ "input": [{ "content": "hi" }] }),
        json!({ "input": [{ "role": "developer", "content": [{ "text": "be brief" }] }, { "role": "user", "content": "hi" }] }),
        json!({ "input": [{ "role": "user", "content": "hi", "type": "assistant" }], "response_id": "x", "tools": [{ "odd": 1 }] }),
        json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": "hi", "x": 1 }] }], "stop": ["a"], "n": 5 }),
        json!({ "input": [{ "role": "user", "content": "hi" }], "session_id": null, "user_id": "" }),
    ] {
        let response = gateway.post("/agents/demo/process", &body).await;
        assert_eq!(response.status, 200, "{body}: {}", response.text());
    }
}

#[tokio::test]
async fn a_wrong_media_type_is_refused_before_the_body_is_read() {
    let gateway = Gateway::start(DEMO).await;
    let body = user_turn("echo hi").to_string();
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let response = gateway.open("POST", "/agents/demo/process", headers, body.as_bytes()).await.response().await;
        assert_eq!((response.status, &response.json()["code"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")), "{headers:?}");
        assert!(response.json()["detail"].is_string());
    }

    for media in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.agent+json"] {
        let headers = [("content-type", media)];
        let response = gateway.open("POST", "/agents/demo/process", &headers, body.as_bytes()).await.response().await;
        assert_eq!(response.status, 200, "{media}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_refused_with_the_allowed_methods() {
    let gateway = Gateway::start(DEMO).await;
    for (method, path, allow) in [
        ("GET", "/agents/demo/process", "POST"),
        ("PUT", "/agents/demo/process", "POST"),
        ("DELETE", "/agents/demo/process/task", "POST"),
        ("POST", "/agents/demo/process/task/x", "GET"),
        ("GET", "/agents/demo/stop", "POST"),
        ("POST", "/agents/demo/runs", "GET"),
        ("PATCH", "/agents/demo/runs/0190", "GET"),
        ("BREW", "/agents/demo/process", "POST"),
    ] {
        let response = gateway.open(method, path, &[], b"").await.response().await;
        assert_eq!(response.status, 405, "{method} {path}: {}", response.text());
        assert!(
            response.header("allow").is_some_and(|received| received.contains(allow)),
            "{method} {path}: {:?}",
            response.headers
        );
        assert_eq!(response.json()["code"], "METHOD_NOT_ALLOWED", "{method} {path}");
        assert!(response.json()["detail"].is_string());
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let gateway = Gateway::start(DEMO).await;
    let paths = [
        "/",
        "/nothing",
        "/agents",
        "/agents/",
        "/agents/demo",
        "/agents/demo/",
        "/agents/demo/nothing",
        "/agents/unknown/process",
        // Paths that the runtime has and that must not be reachable through the gateway.
        "/agents/demo/shutdown",
        "/agents/demo/admin/shutdown",
        "/agents/demo/admin/status",
        "/shutdown",
        "/agents/demo/process/",
        "/agents/demo/runs/x/y",
        "/agents/../healthz",
        "/agents/%2e%2e/healthz",
        "//healthz",
    ];

    for path in paths {
        for method in ["GET", "POST"] {
            let response = gateway.open(method, path, &[], b"").await.response().await;
            assert_eq!(response.status, 404, "{method} {path}: {}", response.text());
            let error = response.json();
            assert_eq!(error["code"], "PATH_NOT_FOUND", "{method} {path}: {error}");
            assert!(error["detail"].is_string(), "{method} {path}: {error}");
        }
    }
}

#[tokio::test]
async fn invalid_run_ids_are_not_found() {
    let gateway = Gateway::start(DEMO).await;
    for id in
        ["x", "response_", "response_zzz", "00000000-0000-0000-0000-000000000000", "%00", "%ff", &"9".repeat(4000)]
    {
        for (method, tail) in [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", "")] {
            let path = format!("/agents/demo/runs/{id}{tail}");
            let response = gateway.open(method, &path, &[], b"").await.response().await;
            let short = &path[..path.len().min(80)];
            assert_eq!(response.status, 404, "{method} {short}: {}", response.text());
            assert_eq!(response.json()["code"], "RESOURCE_NOT_FOUND", "{method} {short}");
        }
    }

    let transcript = gateway.run_turn("demo", &user_turn("echo hi")).await;
    for (query, index) in [("events?after=x", "after"), ("events?after=-1", "after")] {
        let response = gateway.get(&format!("/agents/demo/runs/{}/{query}", transcript.id)).await;
        assert_eq!((response.status, &response.json()["detail"][0]["loc"]), (422, &json!(["query", index])), "{query}");
    }

    for (query, index) in
        [("limit=0", "limit"), ("limit=many", "limit"), ("cursor=1", "cursor"), ("cursor=a.b", "cursor")]
    {
        let response = gateway.get(&format!("/agents/demo/runs?{query}")).await;
        assert_eq!((response.status, &response.json()["detail"][0]["loc"]), (422, &json!(["query", index])), "{query}");
    }
}

async fn small() -> Gateway {
    Gateway::with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"64KiB\"\ndrain = \"1ms\"\n{DEMO}{ROUTE}"
    ))
    .await
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_is_sent() {
    let gateway = small().await;
    let received = |response: &Response| {
        assert_eq!(response.status, 413, "{}", response.text());
        assert_eq!(response.json()["code"], "REQUEST_TOO_LARGE");
    };

    // Announced by content-length and not sent.
    let head = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n";
    received(&Exchange::send(gateway.address, head.as_bytes()).await.response().await);

    // Announced and sent until the gateway closes.
    let mut sent = Exchange::send(gateway.address, head.as_bytes()).await;
    let piece = vec![b' '; 64 << 10];
    for _ in 0..200 {
        if sent.send_more(&piece).await.is_err() {
            break;
        }
    }

    // Chunked, without an announced length.
    let head = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunked = Exchange::send(gateway.address, head.as_bytes()).await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..2 {
        let _ = chunked.send_more(chunk.as_bytes()).await;
    }
    received(&chunked.response().await);

    // A body of exactly the maximum is read.
    let mut body = user_turn("echo hi").to_string();
    body.push_str(&" ".repeat((64 << 10) - body.len()));
    let response = gateway.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await.response().await;
    assert_eq!(response.status, 200);
    body.push(' ');
    received(&gateway.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await.response().await);
    assert_alive(&gateway).await;
}

#[tokio::test]
async fn input_that_is_not_http_is_rejected() {
    let gateway = small().await;
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(1 << 20));
    let header = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{}\r\n", "x-a: b\r\n".repeat(10_000));
    let smuggled = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let sizes = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello";
    let chunk = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";

    for bytes in [
        "\0\0\0\0\r\n\r\n",
        "hello\r\n\r\n",
        "\u{16}\u{3}\u{1}\0\0",
        long.as_str(),
        header.as_str(),
        many.as_str(),
        smuggled,
        sizes,
        chunk,
    ] {
        let mut sent = Exchange::send(gateway.address, bytes.as_bytes()).await;
        let _ = sent.send_more(b"\r\n\r\n").await;
        let output = sent.bytes().await;
        let output = String::from_utf8_lossy(&output);
        let shown = &bytes[..bytes.len().min(60)];
        assert!(output.is_empty() || output.starts_with("HTTP/1.1 4"), "{shown:?}: {output}");
    }
    assert_alive(&gateway).await;
}

#[tokio::test]
async fn a_client_that_disconnects_mid_request_starts_no_run() {
    let gateway = small().await;
    let full = request("POST", "/agents/demo/process", JSON, user_turn("echo hi").to_string().as_bytes());
    for end in (0..full.len()).step_by(3) {
        drop(Exchange::send(gateway.address, &full[..end]).await);
    }
    assert_alive(&gateway).await;
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 1, "a partial request starts no run");
}

#[tokio::test]
async fn a_request_may_arrive_byte_by_byte() {
    let gateway = small().await;
    let full = request("POST", "/agents/demo/process", JSON, user_turn("echo pieces").to_string().as_bytes());
    let mut sent = Exchange::send(gateway.address, b"").await;
    for byte in &full {
        sent.send_more(&[*byte]).await.expect("the gateway listens");
    }
    assert_eq!(Transcript::parse(&sent.frames().await).expect_completed().text(), "pieces");
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let gateway = small().await;
    let body = user_turn("echo may I").to_string();
    let head = format!(
        "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut sent = Exchange::send(gateway.address, head.as_bytes()).await;
    assert_eq!(sent.status().await, 100);
    sent.send_next(body.as_bytes()).await;
    assert_eq!(Transcript::parse(&sent.frames().await).expect_completed().text(), "may I");
}

#[tokio::test]
async fn an_http_1_0_client_reads_until_the_connection_closes() {
    let gateway = small().await;
    let body = user_turn("echo old").to_string();
    let full = format!(
        "POST /agents/demo/process HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let output = Exchange::send(gateway.address, full.as_bytes()).await.bytes().await;
    let output = String::from_utf8(output).expect("text");
    let (head, body) = output.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("200 OK") && !head.to_ascii_lowercase().contains("chunked"), "{head}");
    let frames: Vec<Value> = body.split("\n\n").filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
    assert_eq!(Transcript::parse(&frames).expect_completed().text(), "old");
}

#[tokio::test]
async fn a_connection_survives_an_error_response() {
    let gateway = small().await;
    let mut sent = gateway.open("POST", "/agents/demo/process", JSON, b"{}").await;
    assert_eq!(sent.read_response().await.status, 422);
    sent.send_next(&request("GET", "/agents/demo/nothing", &[], b"")).await;
    assert_eq!(sent.read_response().await.status, 404);
    sent.send_next(&request("POST", "/agents/demo/process", JSON, user_turn("echo again").to_string().as_bytes()))
        .await;
    assert_eq!(Transcript::parse(&sent.frames().await).expect_completed().text(), "again");
}
