//! `interlingua mcp` with the stateless revision, and what holds for all revisions: lines, failures, the end.
//!
//! Not here: sessions (`mcp_session`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::mcp_host::{Host, accepted, document, header, kind, result};
use super::stderr;
use super::support::process::binary;
use super::support::upstream::{Reply, Upstream, unused_address};

/// A request of the stateless revision.
fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

fn cancelled(id: impl Into<Value>) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id.into() } })
}

#[tokio::test]
async fn a_modern_request_is_sent_with_its_headers_and_its_messages_arrive_as_they_came() {
    let progress = r#"{"jsonrpc": "2.0", "method":"notifications/progress","params":{"progress":1.0}}"#;
    let upstream = Upstream::in_order([
        document(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [] } })),
        Reply::events()
            .chunk(format!(": comment\n\ndata: {progress}\n\n"))
            .chunk("data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":\"a\",\"result\":{\"resultType\":\"complete\"}}\n\n")
            .done(),
    ]);
    let arguments = ["--key-env", "BRIDGE_TEST_KEY", "--header", "X-Tenant: blue", "--header", "x-other:1"];
    let mut host = Host::start_with(&upstream.url("/mcp?x=1"), &arguments, &[("BRIDGE_TEST_KEY", " k-12345678\n")]);
    let list = modern(1, "tools/list", json!({}));
    host.send(&list);
    assert_eq!(host.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [] } }));
    host.send(&modern("a", "tools/call", json!({ "name": "helper", "arguments": {} })));
    assert_eq!(host.message().await, serde_json::from_str::<Value>(progress).expect("JSON"));
    assert_eq!(host.message().await["result"]["resultType"], "complete");
    host.end().await.expect_silence();

    let requests = upstream.requests();
    assert_eq!((requests.len(), &requests[0].json()), (2, &list));
    for (request, method, name) in [(&requests[0], "tools/list", None), (&requests[1], "tools/call", Some("helper"))] {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/mcp?x=1"));
        for (wanted, value) in [
            ("authorization", Some("Bearer k-12345678")),
            ("x-tenant", Some("blue")),
            ("x-other", Some("1")),
            ("content-type", Some("application/json")),
            ("accept", Some("application/json, text/event-stream")),
            ("mcp-protocol-version", Some("2026-07-28")),
            ("mcp-method", Some(method)),
            ("mcp-name", name),
            ("mcp-session-id", None),
        ] {
            assert_eq!(header(request, wanted), value, "{wanted}");
        }
    }
}

#[tokio::test]
async fn names_that_are_no_header_values_have_their_base64_form() {
    let upstream = Upstream::with_handler(|request| document(&result(request, "yes")));
    let mut host = Host::start(&upstream.url("/mcp"));
    for (method, params, name) in [
        ("tools/call", json!({ "name": "übersetzen" }), "=?base64?w7xiZXJzZXR6ZW4=?="),
        ("resources/read", json!({ "uri": "interlingua://runs/1" }), "interlingua://runs/1"),
        ("tasks/get", json!({ "taskId": " t" }), "=?base64?IHQ=?="),
    ] {
        host.send(&modern(1, method, params));
        assert_eq!(host.message().await["result"]["ok"], "yes");
        assert_eq!(header(upstream.requests().last().expect("a request"), "mcp-name"), Some(name));
    }
}

#[tokio::test]
async fn requests_run_at_the_same_time() {
    let upstream = Upstream::with_handler(|request| {
        let reply = document(&result(request, "late"));
        if request.json()["id"] == 1 { reply.behind("gate") } else { reply }
    });
    let mut host = Host::start(&upstream.url("/mcp"));
    for id in 1..=30 {
        host.send(&modern(id, "tools/call", json!({ "name": "helper" })));
    }
    let mut ids = Vec::new();
    for _ in 2..=30 {
        ids.push(host.message().await["id"].as_u64().expect("a number"));
    }
    ids.sort_unstable();
    assert_eq!(ids, (2..=30).collect::<Vec<_>>());
    upstream.open("gate");
    assert_eq!(host.message().await["id"], 1);
    host.end().await.expect_silence();
}

/// Before and after the head of the answer.
#[tokio::test]
async fn a_cancelled_modern_request_is_closed_and_the_notification_is_not_sent() {
    let upstream = Upstream::with_handler(|request| match request.json()["id"].as_str() {
        Some("early") => Reply::silence(),
        Some("late") => Reply::events().frame(r#"{"jsonrpc":"2.0","method":"begun"}"#).hang(),
        _ => document(&result(request, "yes")),
    });
    let mut host = Host::start(&upstream.url("/mcp"));
    host.send(&modern("early", "tools/call", json!({ "name": "helper" })));
    upstream.wait_for_requests(1).await;
    host.send(&cancelled("early"));
    upstream.wait_for_disconnects(1).await;
    host.send(&modern("late", "tools/call", json!({ "name": "helper" })));
    assert_eq!(host.message().await["method"], "begun");
    host.send(&cancelled("late"));
    upstream.wait_for_disconnects(2).await;

    // A number is another id than the text, and an answered request cannot be cancelled.
    host.send(&modern(7, "ping", json!({})));
    assert_eq!(host.message().await["id"], 7);
    host.send(&cancelled("7"));
    host.send(&cancelled(7));
    host.send(&modern(8, "ping", json!({})));
    assert_eq!(host.message().await["id"], 8);
    host.end().await.expect_silence();
    let kinds: Vec<String> = upstream.requests().iter().map(kind).collect();
    assert_eq!(kinds, ["POST tools/call", "POST tools/call", "POST ping", "POST ping"]);
}

#[tokio::test]
async fn errors_of_the_server_are_passed_on_and_get_the_id_of_their_request() {
    let error =
        |id: Value| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } });
    let json = [("content-type", "application/json")];
    let upstream = Upstream::in_order([
        Reply::complete(404, &json, error(json!("own")).to_string()),
        Reply::complete(400, &json, error(Value::Null).to_string()),
        Reply::complete(400, &json, r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"no such method"}}"#),
        Reply::complete(200, &json, error(Value::Null).to_string()),
        Reply::frames([error(Value::Null).to_string()]),
    ]);
    let mut host = Host::start(&upstream.url("/mcp"));
    for _ in 0..5 {
        host.send(&modern("own", "what", json!({})));
        assert_eq!(host.message().await, error(json!("own")));
    }
    host.end().await.expect_silence();
}

#[tokio::test]
async fn a_request_without_an_answer_of_the_server_gets_an_error_that_says_why() {
    let text = [("content-type", "text/html")];
    let upstream = Upstream::in_order([
        Reply::complete(502, &text, "<html>\n</html>"),
        Reply::complete(200, &text, "<html>"),
        Reply::complete(308, &[("location", "https://gw.example.com/mcp")], ""),
        accepted(),
        Reply::frames([r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#]),
        Reply::events().close(),
        Reply::nothing(),
    ]);
    let url = upstream.url("/mcp");
    let mut host = Host::start(&url);
    for reason in [
        "answered 502",
        "is no message of JSON-RPC",
        "answered 308 Permanent Redirect, a redirect to https://gw.example.com/mcp",
        "ended without a response",
        "ended without a response",
        "broke off",
        "no answer of",
    ] {
        host.send(&modern(1, "tools/call", json!({ "name": "helper" })));
        let mut answer = host.message().await;
        if answer["method"] == "notifications/progress" {
            answer = host.message().await;
        }
        let message = answer["error"]["message"].as_str().expect("a message");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)), "{answer}");
        assert!(message.contains(reason) && message.contains(&url), "{reason} is not in {message}");
        assert_eq!(host.problem().await, format!("interlingua: {message}"));
    }
    host.end().await.expect_silence();

    let mut host = Host::start(&format!("http://{}/mcp", unused_address()));
    host.send(&modern("x", "ping", json!({})));
    let answer = host.message().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("x"), &json!(-32603)));
    let end = host.end().await;
    assert_eq!((end.status.code(), end.problems.len()), (Some(0), 1), "{:?}", end.problems);
}

#[tokio::test]
async fn a_refused_key_is_named_and_never_shown() {
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no k-secret-1","data":{"code":"AUTH_FAILED"}}}"#;
    let upstream = Upstream::always(Reply::complete(401, &[("content-type", "application/json")], body));
    for arguments in [&[][..], &["--key-env", "BRIDGE_TEST_KEY"]] {
        let variables = [("BRIDGE_TEST_KEY", "k-secret-1")];
        let mut host = Host::start_with(&upstream.url("/mcp"), arguments, &variables);
        host.send(&modern(1, "ping", json!({})));
        let answer = host.message().await;
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("401") && message.contains("--key-env"), "{message}");
        assert_eq!((&answer["id"], &answer["error"]["data"]["code"]), (&json!(1), &json!("AUTH_FAILED")));
        let problem = host.problem().await;
        assert_eq!(problem.contains("k-secret-1"), arguments.is_empty(), "{problem}");
    }
}

#[tokio::test]
async fn lines_that_are_no_messages_get_an_error_and_do_not_end_the_command() {
    let upstream = Upstream::with_handler(|request| document(&result(request, "yes")));
    let mut host = Host::start(&upstream.url("/mcp"));
    for line in [&b"{\"jsonrpc\":"[..], b"hello", b"\"\xff\""] {
        host.send_line(line);
        let answer = host.message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{answer}");
    }
    host.send_line(&vec![b'7'; (64 << 20) + 1]);
    assert_eq!(host.message().await["error"]["code"], -32600);
    host.send_line(b"");
    host.send_line(b"  \r");
    host.send_line(format!("  {}  \r", modern(5, "ping", json!({}))).as_bytes());
    assert_eq!(host.message().await["id"], 5);
    let end = host.end().await;
    assert_eq!((end.status.code(), end.problems.len()), (Some(0), 4), "{:?}", end.problems);
}

#[tokio::test]
async fn large_messages_pass_in_both_directions() {
    let text = "x".repeat(20 << 20);
    let echoed = text.clone();
    let upstream = Upstream::with_handler(move |request| {
        let answer = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": { "text": echoed } });
        if request.json()["id"] == 1 { document(&answer) } else { Reply::frames([answer.to_string()]) }
    });
    let mut host = Host::start(&upstream.url("/mcp"));
    for id in [1, 2] {
        host.send(&modern(id, "tools/call", json!({ "name": "helper", "arguments": { "message": text } })));
        assert_eq!(host.message().await["result"]["text"].as_str().map(str::len), Some(text.len()));
    }
    assert_eq!(upstream.requests()[0].json()["params"]["arguments"]["message"], text.as_str());
    host.end().await.expect_silence();
}

#[tokio::test]
async fn open_answers_are_written_after_the_end_of_the_input() {
    let upstream = Upstream::with_handler(|request| document(&result(request, "late")).behind("gate"));
    let mut host = Host::start(&upstream.url("/mcp"));
    host.send(&modern(1, "ping", json!({})));
    upstream.wait_for_requests(1).await;
    let (end, ()) = tokio::join!(host.end(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        upstream.open("gate");
    });
    assert_eq!((end.status.code(), end.messages.len()), (Some(0), 1));
    assert_eq!(end.messages[0]["result"]["ok"], "late");
}

#[tokio::test]
async fn an_answer_that_does_not_arrive_delays_the_end_by_five_seconds() {
    let upstream = Upstream::always(Reply::silence());
    let mut host = Host::start(&upstream.url("/mcp"));
    host.send(&modern(1, "ping", json!({})));
    upstream.wait_for_requests(1).await;
    let began = Instant::now();
    host.end().await.expect_silence();
    assert!((4..9).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_host_that_reads_nothing_more_ends_the_command() {
    let upstream = Upstream::with_handler(|request| document(&result(request, "yes")));
    let mut host = Host::start(&upstream.url("/mcp"));
    host.close_output();
    // The reading thread ends with the first line, and closes the pipe.
    host.send(&modern(1, "ping", json!({})));
    tokio::time::sleep(Duration::from_millis(500)).await;
    host.send(&modern(2, "ping", json!({})));
    host.wait().await.expect_silence();
}

#[test]
fn wrong_arguments_and_missing_keys_exit_with_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("empty"), "\n").expect("a file");
    let url = ["--url", "http://127.0.0.1:1/mcp"];
    for (arguments, complaint) in [
        (vec![], "--url"),
        (vec!["--url", "127.0.0.1:1/mcp"], "has no scheme"),
        (vec!["--url", "http://user:secret@127.0.0.1/mcp"], "contains credentials"),
        ([&url[..], &["--key-env", "BRIDGE_TEST_UNSET"]].concat(), "--key-env BRIDGE_TEST_UNSET"),
        ([&url[..], &["--key-file", "missing"]].concat(), "--key-file missing"),
        ([&url[..], &["--key-file", "empty"]].concat(), "contains no key"),
        ([&url[..], &["--key-file", "a", "--key-env", "B"]].concat(), "cannot be used with"),
        ([&url[..], &["--header", "x"]].concat(), "write 'name: value'"),
        ([&url[..], &["--header", "Authorization: Bearer secret"]].concat(), "use --key-env"),
        ([&url[..], &["--header", "Mcp-Session-Id: a"]].concat(), "set by the command itself"),
        ([&url[..], &["--header", "a b: c"]].concat(), "invalid header name"),
    ] {
        let output = binary(folder.path()).arg("mcp").args(&arguments).output().expect("it runs");
        let written = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {written}");
        let has_secret = written.contains("Bearer secret") || written.contains("user:secret");
        assert!(written.contains(complaint) && !has_secret, "{arguments:?}: {written}");
    }
}

#[tokio::test]
async fn a_key_can_be_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "k-87654321\n").expect("a file");
    let upstream = Upstream::with_handler(|request| document(&result(request, "yes")));
    let arguments = ["--key-file", file.to_str().expect("text")];
    let mut host = Host::start_with(&upstream.url("/mcp"), &arguments, &[]);
    host.send(&modern(1, "ping", json!({})));
    assert_eq!(host.message().await["id"], 1);
    assert_eq!(header(&upstream.requests()[0], "authorization"), Some("Bearer k-87654321"));
}
