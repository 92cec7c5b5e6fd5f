//! Bad input: whatever a client sends, it is told what is wrong and where, in bounded memory, and the process lives.

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, says};
use crate::support::http::{Answer, Exchange, data, request};
use crate::support::story::Story;

async fn lives(gateway: &Gateway) {
    gateway.story("demo", &says("echo still here")).await.completed();
}

/// A status, what the complaint says of the field, and the code; what is left empty may be anything.
type Complaint = (u16, Value, String);

/// One complaint about a field, as the native framework spells it.
fn about(kind: &str, loc: Value, code: &str) -> Complaint {
    (422, json!({ "type": kind, "loc": loc }), code.to_owned())
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_with_its_place() {
    let gateway = Gateway::start(DEMO).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_input = format!("{{\"input\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<(&[u8], Complaint)> = vec![
        (b"", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"hello", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"{\"input\":", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"{\"input\":[]} x", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"[1]", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (b"null", about("json_invalid", json!(["body"]), "MALFORMED_REQUEST")),
        (
            b"{\"input\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
            about("json_invalid", json!(["body"]), "MALFORMED_REQUEST"),
        ),
        (deep.as_bytes(), about("value_error", json!(["body"]), "INVALID_PARAMETER")),
        (deep_input.as_bytes(), about("value_error", json!(["body"]), "INVALID_PARAMETER")),
        (b"{}", about("missing", json!(["body", "input"]), "MISSING_PARAMETER")),
        (b"{\"input\":\"hi\"}", about("type_error", json!(["body", "input"]), "PARAMETER_VALIDATION")),
        (b"{\"input\":null}", about("", json!(["body", "input"]), "")),
        (b"{\"input\":[7]}", about("type_error", json!(["body", "input", 0]), "PARAMETER_VALIDATION")),
        (
            br#"{"input":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}"#,
            about("value_error", json!(["body", "input", 1, "role"]), "INVALID_PARAMETER"),
        ),
        (
            br#"{"input":[{"role":"user","content":[{"text":"x"},{"type":"text","text":7}]}]}"#,
            about("type_error", json!(["body", "input", 0, "content", 1, "text"]), "PARAMETER_VALIDATION"),
        ),
        (
            br#"{"input":[{"role":"user","content":7}]}"#,
            about("type_error", json!(["body", "input", 0, "content"]), "PARAMETER_VALIDATION"),
        ),
        (b"{\"input\":[],\"n\":6}", about("value_error", json!(["body", "n"]), "INVALID_PARAMETER")),
        (b"{\"input\":[],\"n\":0}", about("value_error", json!(["body", "n"]), "INVALID_PARAMETER")),
        (b"{\"input\":[],\"n\":\"1\"}", about("type_error", json!(["body", "n"]), "PARAMETER_VALIDATION")),
        (b"{\"input\":[],\"stream\":1}", about("type_error", json!(["body", "stream"]), "PARAMETER_VALIDATION")),
        (
            b"{\"input\":[],\"session_id\":7}",
            about("type_error", json!(["body", "session_id"]), "PARAMETER_VALIDATION"),
        ),
        (
            b"{\"input\":[],\"temperature\":\"hot\"}",
            about("type_error", json!(["body", "temperature"]), "PARAMETER_VALIDATION"),
        ),
        (
            b"{\"input\":[],\"max_tokens\":1.5}",
            about("type_error", json!(["body", "max_tokens"]), "PARAMETER_VALIDATION"),
        ),
    ];
    for path in ["/agents/demo/process", "/agents/demo/process/task"] {
        for (body, (status, entry, code)) in &cases {
            let answer = gateway.open("POST", path, JSON, body).await.answer().await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(100)]);
            assert_eq!(answer.status, *status, "{shown}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some("application/json"), "{shown}");
            let complaint = answer.json();
            let told = &complaint["detail"][0];
            assert!(!told["msg"].as_str().unwrap_or("").is_empty(), "{shown}: {complaint}");
            if !code.is_empty() {
                let expected = (&json!(code), &entry["type"], &entry["loc"]);
                assert_eq!((&complaint["code"], &told["type"], &told["loc"]), expected, "{shown}: {complaint}");
            }
            assert!(answer.body.len() < 1000, "{shown}: a complaint is short");
        }
    }
    lives(&gateway).await;
}

#[tokio::test]
async fn a_session_id_has_a_size() {
    let gateway = Gateway::start(DEMO).await;
    let mut body = says("echo hi");
    body["session_id"] = json!("s".repeat(513));
    let answer = gateway.post("/agents/demo/process", &body).await;
    assert_eq!((answer.status, &answer.json()["detail"][0]["loc"]), (422, &json!(["body", "session_id"])));
    for odd in ["../../etc", "\u{1f}\u{0}", "ß🦀", "a b", "%2e"] {
        body["session_id"] = json!(odd);
        let story = gateway.story("demo", &body).await.completed();
        assert_eq!(story.session, odd);
    }
}

#[tokio::test]
async fn tolerated_input_is_answered() {
    let gateway = Gateway::start(DEMO).await;
    for body in [
        json!({ "input": [] }),
        json!({ "input": [{ "content": "hi" }] }),
        json!({ "input": [{ "role": "developer", "content": [{ "text": "be brief" }] }, { "role": "user", "content": "hi" }] }),
        json!({ "input": [{ "role": "user", "content": "hi", "type": "assistant" }], "response_id": "x", "tools": [{ "odd": 1 }] }),
        json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": "hi", "x": 1 }] }], "stop": ["a"], "n": 5 }),
        json!({ "input": [{ "role": "user", "content": "hi" }], "session_id": null, "user_id": "" }),
    ] {
        let answer = gateway.post("/agents/demo/process", &body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    }
}

#[tokio::test]
async fn wrong_media_types_are_told_apart_from_wrong_bodies() {
    let gateway = Gateway::start(DEMO).await;
    let body = says("echo hi").to_string();
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let answer = gateway.open("POST", "/agents/demo/process", headers, body.as_bytes()).await.answer().await;
        assert_eq!((answer.status, &answer.json()["code"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")), "{headers:?}");
        assert!(answer.json()["detail"].is_string());
    }
    for media in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.agent+json"] {
        let headers = [("content-type", media)];
        let answer = gateway.open("POST", "/agents/demo/process", &headers, body.as_bytes()).await.answer().await;
        assert_eq!(answer.status, 200, "{media}");
    }
}

#[tokio::test]
async fn wrong_methods_are_told_what_would_be_right() {
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
        let answer = gateway.open(method, path, &[], b"").await.answer().await;
        assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
        assert!(
            answer.header("allow").is_some_and(|told| told.contains(allow)),
            "{method} {path}: {:?}",
            answer.headers
        );
        assert_eq!(answer.json()["code"], "METHOD_NOT_ALLOWED", "{method} {path}");
        assert!(answer.json()["detail"].is_string());
    }
}

#[tokio::test]
async fn unknown_paths_are_told_as_such_everywhere() {
    let gateway = Gateway::start(DEMO).await;
    let paths = [
        "/",
        "/nothing",
        "/agents",
        "/agents/",
        "/agents/demo",
        "/agents/demo/",
        "/agents/demo/nothing",
        "/agents/nobody/process",
        // What the runtime has and nobody may reach from here.
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
            let answer = gateway.open(method, path, &[], b"").await.answer().await;
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
            let complaint = answer.json();
            assert_eq!(complaint["code"], "PATH_NOT_FOUND", "{method} {path}: {complaint}");
            assert!(complaint["detail"].is_string(), "{method} {path}: {complaint}");
        }
    }
}

#[tokio::test]
async fn runs_that_cannot_be_are_not_found() {
    let gateway = Gateway::start(DEMO).await;
    for id in
        ["x", "response_", "response_zzz", "00000000-0000-0000-0000-000000000000", "%00", "%ff", &"9".repeat(4000)]
    {
        for (method, tail) in [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", "")] {
            let path = format!("/agents/demo/runs/{id}{tail}");
            let answer = gateway.open(method, &path, &[], b"").await.answer().await;
            let short = &path[..path.len().min(80)];
            assert_eq!(answer.status, 404, "{method} {short}: {}", answer.text());
            assert_eq!(answer.json()["code"], "RESOURCE_NOT_FOUND", "{method} {short}");
        }
    }
    let story = gateway.story("demo", &says("echo hi")).await;
    for (query, place) in [("events?after=x", "after"), ("events?after=-1", "after")] {
        let answer = gateway.get(&format!("/agents/demo/runs/{}/{query}", story.id)).await;
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"]), (422, &json!(["query", place])), "{query}");
    }
    for (query, place) in
        [("limit=0", "limit"), ("limit=many", "limit"), ("cursor=1", "cursor"), ("cursor=a.b", "cursor")]
    {
        let answer = gateway.get(&format!("/agents/demo/runs?{query}")).await;
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"]), (422, &json!(["query", place])), "{query}");
    }
}

async fn small() -> Gateway {
    Gateway::with(&format!("[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"64KiB\"\ndrain = \"1ms\"\n{DEMO}{ROUTE}"))
        .await
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_comes() {
    let gateway = small().await;
    let told = |answer: &Answer| {
        assert_eq!(answer.status, 413, "{}", answer.text());
        assert_eq!(answer.json()["code"], "REQUEST_TOO_LARGE");
    };
    // Announced, and not even sent.
    let head = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n";
    told(&Exchange::send(gateway.address, head.as_bytes()).await.answer().await);
    // Announced, and sent as far as anybody listens.
    let mut sent = Exchange::send(gateway.address, head.as_bytes()).await;
    let piece = vec![b' '; 64 << 10];
    for _ in 0..200 {
        if sent.more(&piece).await.is_err() {
            break;
        }
    }
    // In chunks, without saying how much there will be.
    let head = "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunked = Exchange::send(gateway.address, head.as_bytes()).await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..2 {
        let _ = chunked.more(chunk.as_bytes()).await;
    }
    told(&chunked.answer().await);
    // One that just fits is read.
    let mut body = says("echo hi").to_string();
    body.push_str(&" ".repeat((64 << 10) - body.len()));
    let answer = gateway.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await.answer().await;
    assert_eq!(answer.status, 200);
    body.push(' ');
    told(&gateway.open("POST", "/agents/demo/process", JSON, body.as_bytes()).await.answer().await);
    lives(&gateway).await;
}

#[tokio::test]
async fn what_is_no_http_is_turned_away() {
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
        let _ = sent.more(b"\r\n\r\n").await;
        let said = sent.bytes().await;
        let said = String::from_utf8_lossy(&said);
        let shown = &bytes[..bytes.len().min(60)];
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{shown:?}: {said}");
    }
    lives(&gateway).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_request_costs_nothing() {
    let gateway = small().await;
    let whole = request("POST", "/agents/demo/process", JSON, says("echo hi").to_string().as_bytes());
    for end in (0..whole.len()).step_by(3) {
        drop(Exchange::send(gateway.address, &whole[..end]).await);
    }
    lives(&gateway).await;
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 1, "half a request is none");
}

#[tokio::test]
async fn a_request_may_come_in_crumbs() {
    let gateway = small().await;
    let whole = request("POST", "/agents/demo/process", JSON, says("echo crumbs").to_string().as_bytes());
    let mut sent = Exchange::send(gateway.address, b"").await;
    for byte in &whole {
        sent.more(&[*byte]).await.expect("the gateway listens");
    }
    assert_eq!(Story::read(&sent.frames().await).completed().text(), "crumbs");
}

#[tokio::test]
async fn a_client_that_asks_whether_it_may_send_is_told() {
    let gateway = small().await;
    let body = says("echo may I").to_string();
    let head = format!(
        "POST /agents/demo/process HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut sent = Exchange::send(gateway.address, head.as_bytes()).await;
    assert_eq!(sent.status().await, 100);
    sent.again(body.as_bytes()).await;
    assert_eq!(Story::read(&sent.frames().await).completed().text(), "may I");
}

#[tokio::test]
async fn a_client_of_the_last_century_reads_to_the_end_of_the_connection() {
    let gateway = small().await;
    let body = says("echo old").to_string();
    let whole = format!(
        "POST /agents/demo/process HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let said = Exchange::send(gateway.address, whole.as_bytes()).await.bytes().await;
    let said = String::from_utf8(said).expect("text");
    let (head, body) = said.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("200 OK") && !head.to_ascii_lowercase().contains("chunked"), "{head}");
    let frames: Vec<Value> = body.split("\n\n").filter_map(|event| serde_json::from_str(data(event)?).ok()).collect();
    assert_eq!(Story::read(&frames).completed().text(), "old");
}

#[tokio::test]
async fn a_connection_survives_a_complaint() {
    let gateway = small().await;
    let mut sent = gateway.open("POST", "/agents/demo/process", JSON, b"{}").await;
    assert_eq!(sent.answer_here().await.status, 422);
    sent.again(&request("GET", "/agents/demo/nothing", &[], b"")).await;
    assert_eq!(sent.answer_here().await.status, 404);
    sent.again(&request("POST", "/agents/demo/process", JSON, says("echo again").to_string().as_bytes())).await;
    assert_eq!(Story::read(&sent.frames().await).completed().text(), "again");
}
