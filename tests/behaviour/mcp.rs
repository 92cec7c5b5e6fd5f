//! Agents as tools of an MCP server through the running gateway: both styles of the protocol, calls, and bad input.

use serde_json::{Value, json};

use crate::mcp_support::{Client, MCP, MODERN, deltas, open, run_of, session_of, texts};
use crate::support::agent::text_reply_until;
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::poll_until;
use crate::support::upstream::Upstream;

async fn demo() -> Gateway {
    Gateway::start(&format!("{DEMO}{MCP}")).await
}

const LEGACY: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

#[tokio::test]
async fn every_revision_lists_and_calls_tools() {
    let gateway = demo().await;
    for revision in LEGACY {
        let client = Client::legacy(&gateway, revision, json!({})).await;
        assert_eq!(client.revision, revision);
        assert_eq!(client.result("ping", json!({})).await, json!({}));
        let tools = client.result("tools/list", json!({})).await;
        let names: Vec<&str> =
            tools["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["demo", "answer", "wait"], "{revision}");
        assert!(tools.get("ttlMs").is_none());

        let result = client.call("demo", json!({ "message": "echo hello" })).await;
        assert_eq!((texts(&result)[0], &result["isError"]), ("hello", &json!(false)), "{result}");
        assert!(result.get("resultType").is_none());
        let again = client.call("demo", json!({ "message": "history", "session": session_of(&result) })).await;
        assert!(texts(&again)[0].contains("echo hello"), "{again}");
        assert_eq!(session_of(&again), session_of(&result));
    }

    let client = Client::modern(&gateway, json!({}));
    let discovered = client.result("server/discover", json!({})).await;
    let versions = json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]);
    assert_eq!((&discovered["supportedVersions"], &discovered["resultType"]), (&versions, &json!("complete")));
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "interlingua");
    assert_eq!(discovered["capabilities"]["extensions"], json!({ "io.modelcontextprotocol/tasks": {} }));
    let tools = client.result("tools/list", json!({})).await;
    assert_eq!((&tools["ttlMs"], &tools["cacheScope"]), (&json!(60_000), &json!("public")));
    let result = client.call("demo", json!({ "message": "echo hello" })).await;
    assert_eq!((texts(&result)[0], &result["resultType"]), ("hello", &json!("complete")));
}

#[tokio::test]
async fn a_version_that_is_not_served_is_answered_with_the_latest() {
    let gateway = demo().await;
    for revision in ["2024-11-05", "2030-01-01", MODERN] {
        assert_eq!(Client::legacy(&gateway, revision, json!({})).await.revision, "2025-11-25", "{revision}");
    }
}

#[tokio::test]
async fn progress_reports_the_run_and_every_delta_once() {
    let gateway = demo().await;
    let legacy = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    for client in [&legacy, &Client::modern(&gateway, json!({}))] {
        let params =
            json!({ "name": "demo", "arguments": { "message": "long 40 5" }, "_meta": { "progressToken": "p" } });
        let (messages, status) = client.exchange("tools/call", params).await;
        let (result, progress) = messages.split_last().expect("messages");
        assert_eq!(status, 200);
        assert!(progress.iter().all(|message| message["method"] == "notifications/progress"), "{progress:?}");
        assert!(progress.iter().all(|message| message["params"]["progressToken"] == "p"));
        let values: Vec<f64> = progress.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
        let first = &progress[0]["params"];
        assert_eq!(first["message"], "demo is working");
        assert_eq!(first["_meta"]["interlingua/run"].as_str(), Some(&*run_of(&result["result"])));
        assert_eq!(deltas(progress), texts(&result["result"])[0]);
    }
}

#[tokio::test]
async fn requests_of_the_newest_revision_are_checked_in_order() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, json!({}));
    let list = client.message(1, "tools/list", json!({}));
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/list");
    let bare = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let mut future = list.clone();
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let call = client.message(1, "tools/call", json!({ "name": "demo" }));
    let unknown = client.message(1, "initialize", json!({}));
    let task = client.message(1, "tasks/get", json!({ "taskId": "x" }));
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });

    for (headers, body, expected) in [
        (vec![version, method], &bare, (400, -32602)),
        (vec![method], &list, (400, -32020)),
        (vec![("mcp-protocol-version", "2025-11-25"), method], &list, (400, -32020)),
        (vec![("mcp-protocol-version", "2099-01-01"), method], &future, (400, -32022)),
        (vec![version], &list, (400, -32020)),
        (vec![version, ("mcp-method", "tools/call")], &list, (400, -32020)),
        (vec![version, ("mcp-method", "tools/call"), ("mcp-name", "other")], &call, (400, -32020)),
        (vec![version, ("mcp-method", "initialize")], &unknown, (404, -32601)),
        (vec![version, ("mcp-method", "tasks/get"), ("mcp-name", "x")], &task, (400, -32021)),
        (vec![version], &response, (400, -32600)),
    ] {
        let refused = open(&gateway, &headers, body).await.response().await;
        let error = refused.json();
        assert_eq!(
            (refused.status, error["error"]["code"].as_i64()),
            (expected.0, Some(expected.1)),
            "{headers:?} {error}"
        );
        if body.get("method").is_some() {
            assert_eq!(error["id"], json!(1), "{error}");
        }
    }
    let served = open(&gateway, &[version, method], &list).await.response().await;
    assert_eq!(served.status, 200, "{}", served.text());
    let base64 = [version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?ZGVtbw==?=")];
    let called = open(&gateway, &base64, &client.message(1, "tools/call", json!({ "name": "demo" }))).await;
    assert_eq!(called.response().await.status, 200);
    let notified = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    assert_eq!(open(&gateway, &[version], &notified).await.response().await.status, 202);
}

#[tokio::test]
async fn bad_messages_and_bad_parameters_have_their_errors() {
    let gateway = demo().await;
    let post = async |body: &str, type_: &str, accept: &str| {
        let headers = [("content-type", type_), ("accept", accept)];
        gateway.open("POST", "/mcp", &headers, body.as_bytes()).await.response().await
    };
    for (body, expected) in [
        ("{", (400, -32700)),
        ("[]", (400, -32600)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, (400, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, (200, -32601)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo","arguments":[]}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"unknown"}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"?"}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":"q","result":{}}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"x"}}"#, (200, -32002)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}"#, (200, -32602)),
    ] {
        let refused = post(body, "application/json", "*/*").await;
        let code = refused.json()["error"]["code"].as_i64();
        assert_eq!((refused.status, code), (expected.0, Some(expected.1)), "{body} {}", refused.text());
    }

    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(post(ping, "text/plain", "*/*").await.status, 415);
    assert_eq!(post(ping, "application/json", "text/html").await.status, 406);
    assert_eq!(post(ping, "application/vnd.x+json", "application/json").await.status, 200);
    assert_eq!(post(&format!("[{ping}]"), "application/json", "*/*").await.status, 200);
    let put = gateway.open("PUT", "/mcp", &[], b"").await.response().await;
    assert_eq!((put.status, put.header("allow").is_some_and(|allow| allow.contains("POST"))), (405, true));
    let headers = [("mcp-protocol-version", MODERN), ("accept", "text/event-stream")];
    assert_eq!(gateway.open("GET", "/mcp", &headers, b"").await.response().await.status, 405);
    let plain = [("accept", "text/event-stream")];
    assert_eq!(gateway.open("GET", "/mcp", &plain, b"").await.response().await.status, 400);
}

#[tokio::test]
async fn wrong_arguments_are_errors_that_a_model_can_read() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, json!({}));
    for (tool, arguments, code) in [
        ("demo", json!({}), "MISSING_PARAMETER"),
        ("demo", json!({ "message": " " }), "MISSING_PARAMETER"),
        ("demo", json!({ "message": "hi", "color": "red" }), "INVALID_PARAMETER"),
        ("demo", json!({ "message": "hi", "session": 7 }), "PARAMETER_VALIDATION"),
        ("demo", json!({ "message": "hi", "session": "unknown" }), "RESOURCE_NOT_FOUND"),
        ("wait", json!({}), "MISSING_PARAMETER"),
        ("wait", json!({ "run": "unknown" }), "RESOURCE_NOT_FOUND"),
        ("answer", json!({ "decision": "accept" }), "MISSING_PARAMETER"),
        ("answer", json!({ "run": "0198f2a0-7b1c-7aaa-bbbb-0123456789ab" }), "RESOURCE_NOT_FOUND"),
    ] {
        let result = client.call(tool, arguments.clone()).await;
        assert_eq!(result["isError"], json!(true), "{result}");
        assert!(texts(&result)[0].starts_with(&format!("{code}: ")), "{arguments} {result}");
    }
    let bad_session = client.call("demo", json!({ "message": "hi", "session": "unknown" })).await;
    assert!(texts(&bad_session)[0].contains("leave session out"), "{bad_session}");
}

#[tokio::test]
async fn each_end_of_a_run_has_its_result() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, json!({}));
    for (message, is_error, status, text) in [
        ("incomplete", false, "incomplete", "[the answer was cut off]"),
        ("fail", true, "failed", ""),
        ("error", true, "failed", ""),
        ("reject", true, "rejected", ""),
        ("empty", false, "completed", ""),
    ] {
        let result = client.call("demo", json!({ "message": message })).await;
        let known = (&result["isError"], result["_meta"]["interlingua/status"].as_str());
        assert_eq!(known, (&json!(is_error), Some(status)), "{message} {result}");
        assert!(texts(&result).iter().any(|found| found.contains(text)), "{message} {result}");
        if is_error {
            let code = result["_meta"]["interlingua/error"]["code"].as_str().expect("a code");
            assert!(texts(&result)[0].starts_with(code), "{result}");
        }
    }
    let image = client.call("demo", json!({ "message": "image" })).await;
    let types: Vec<&str> =
        image["content"].as_array().expect("blocks").iter().filter_map(|block| block["type"].as_str()).collect();
    assert!(types.contains(&"image") || types.contains(&"resource_link"), "{image}");
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_a_tool_error_and_a_broken_answer_an_error() {
    let unreachable = agent("gone", "http://127.0.0.1:9/process", "", "retries = 0");
    let gateway = Gateway::start(&format!("{unreachable}{DEMO}{MCP}")).await;
    let client = Client::modern(&gateway, json!({}));
    let result = client.call("gone", json!({ "message": "hi" })).await;
    assert_eq!(result["isError"], json!(true));
    assert!(texts(&result)[0].starts_with("UPSTREAM_UNREACHABLE: "), "{result}");
    let cut = client.call("demo", json!({ "message": "break" })).await;
    assert!(texts(&cut)[0].starts_with("UPSTREAM_TRUNCATED: "), "{cut}");
}

#[tokio::test]
async fn a_client_that_accepts_one_form_gets_that_one() {
    let gateway = demo().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "demo", "arguments": { "message": "echo hi" }, "_meta": { "progressToken": 1 } } });
    for (accept, type_) in
        [("application/json", "application/json"), ("text/event-stream", "text/event-stream; charset=utf-8")]
    {
        let headers = [("content-type", "application/json"), ("accept", accept)];
        let response = gateway.open("POST", "/mcp", &headers, body.to_string().as_bytes()).await.response().await;
        assert_eq!((response.status, response.header("content-type")), (200, Some(type_)));
        let last = response.text().lines().rfind(|line| !line.is_empty()).expect("a body");
        let value: Value = serde_json::from_str(last.trim_start_matches("data: ")).expect("JSON");
        assert_eq!(texts(&value["result"])[0], "hi");
    }
}

#[tokio::test]
async fn closing_the_connection_cancels_calls_of_the_newest_revision_only() {
    let upstream = Upstream::always(text_reply_until(&["begun"], "go"));
    let config = agent("slow", &upstream.url("/process"), "", "");
    let gateway = Gateway::start(&format!("{config}{MCP}")).await;
    let legacy = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let modern = Client::modern(&gateway, json!({}));
    for (client, expected) in [(&modern, "canceled"), (&legacy, "running")] {
        let params = json!({ "name": "slow", "arguments": { "message": "hi" }, "_meta": { "progressToken": 1 } });
        let mut exchange = client.send(client.id(), "tools/call", params).await;
        let messages = exchange.read_until("begun").await;
        let run = messages[0]["params"]["_meta"]["interlingua/run"].as_str().expect("a run").to_owned();
        drop(exchange);
        if expected == "canceled" {
            poll_until("the run to be canceled", async || {
                (gateway.run("slow", &run).await["status"] == expected).then_some(())
            })
            .await;
            continue;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(gateway.run("slow", &run).await["status"], "in_progress");
        upstream.open("go");
        let waited = client.call("wait", json!({ "run": run })).await;
        assert_eq!(texts(&waited)[0], "begun");
    }
}

#[tokio::test]
async fn a_session_that_was_deleted_or_forged_is_unknown() {
    let gateway = demo().await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    let headers = [("mcp-session-id", client.session.as_str())];
    let forged = format!("{}A", client.session);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!(open(&gateway, &[("mcp-session-id", &forged)], &ping).await.response().await.status, 404);
    assert_eq!(open(&gateway, &headers, &ping).await.response().await.status, 200);

    assert_eq!(gateway.open("DELETE", "/mcp", &headers, b"").await.response().await.status, 204);
    assert_eq!(open(&gateway, &headers, &ping).await.response().await.status, 404);
    assert_eq!(client.listen(None).await.response().await.status, 404);
    assert_eq!(gateway.open("DELETE", "/mcp", &headers, b"").await.response().await.status, 404);
    assert_eq!(gateway.open("DELETE", "/mcp", &[], b"").await.response().await.status, 400);
    let other = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    assert_eq!(other.result("ping", json!({})).await, json!({}), "other sessions go on");
}
