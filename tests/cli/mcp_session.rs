//! `interlingua mcp` with the revisions that have sessions: handshake, stream of the session, questions, resumed answers,
//! and sessions that the server lost.

use std::time::Duration;

use serde_json::{Value, json};

use super::mcp_host::{Host, accepted, document, header, kind, method, result};
use super::support::upstream::{ReceivedRequest, Reply, Upstream};

fn initialize() -> Value {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "host" } });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

fn call(id: impl Into<Value>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": { "name": "helper" } })
}

/// The answer to `initialize`, with a session.
fn session(request: &ReceivedRequest, id: &str) -> Reply {
    let version = "2025-06-18";
    let body = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": { "protocolVersion": version } });
    Reply::complete(200, &[("content-type", "application/json"), ("mcp-session-id", id)], body.to_string())
}

/// A server with sessions `s1`, `s2`, … that offers no stream of the session. `answer` answers all other messages.
fn server(mut answer: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static) -> Upstream {
    let mut sessions = 0;
    Upstream::with_handler(move |request| match (request.method.as_str(), method(request).as_str()) {
        ("POST", "initialize") => {
            sessions += 1;
            session(request, &format!("s{sessions}"))
        }
        ("POST", "notifications/initialized") => accepted(),
        ("GET", _) if header(request, "last-event-id").is_none() => Reply::complete(405, &[], ""),
        ("DELETE", _) => Reply::complete(204, &[], ""),
        _ => answer(request),
    })
}

/// A host that has a session.
async fn host_with_session(upstream: &Upstream) -> Host {
    let mut host = Host::start(&upstream.url("/mcp"));
    host.send(&initialize());
    assert_eq!(host.message().await["result"]["protocolVersion"], "2025-06-18");
    host.send(&initialized());
    host
}

fn kinds(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().map(kind).collect()
}

#[tokio::test]
async fn session_and_negotiated_version_are_sent_and_the_stream_of_the_session_is_read() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let upstream = Upstream::with_handler(move |request| match request.method.as_str() {
        "GET" => Reply::events().frame(changed).hang(),
        "DELETE" => Reply::complete(204, &[], ""),
        _ if method(request) == "initialize" => session(request, "s1").behind("gate"),
        _ if method(request) == "notifications/initialized" => accepted(),
        _ => document(&result(request, "yes")),
    });
    let mut host = Host::start(&upstream.url("/mcp"));
    // All at once: only the order of the handshake is kept.
    host.send(&initialize());
    host.send(&initialized());
    host.send(&call("c"));
    upstream.wait_for_requests(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(kinds(&upstream), ["POST initialize"]);
    upstream.open("gate");
    assert_eq!(host.message().await["result"]["protocolVersion"], "2025-06-18");
    let mut others = [host.message().await, host.message().await];
    others.sort_by_key(|message| message["id"].is_null());
    assert_eq!((&others[0]["id"], &others[1]["method"]), (&json!("c"), &json!("notifications/tools/list_changed")));
    host.end().await.expect_silence();

    let requests = upstream.requests();
    let mut found = kinds(&upstream);
    assert_eq!((found[0].as_str(), found[1].as_str()), ("POST initialize", "POST notifications/initialized"));
    assert_eq!(found.pop().as_deref(), Some("DELETE"));
    assert!(found.contains(&"GET".to_owned()) && found.contains(&"POST tools/call".to_owned()), "{found:?}");
    assert_eq!((header(&requests[0], "mcp-session-id"), header(&requests[0], "mcp-protocol-version")), (None, None));
    for request in &requests[1..] {
        let headers = ["mcp-session-id", "mcp-protocol-version", "mcp-method"].map(|name| header(request, name));
        assert_eq!(headers, [Some("s1"), Some("2025-06-18"), None], "{}", kind(request));
    }
    let get = requests.iter().find(|request| request.method == "GET").expect("a stream");
    assert_eq!(header(get, "accept"), Some("text/event-stream"));
}

#[tokio::test]
async fn a_server_without_sessions_is_asked_for_no_stream_and_no_end() {
    let upstream = Upstream::with_handler(|request| match method(request).as_str() {
        "initialize" => {
            let result = json!({ "protocolVersion": "2025-03-26" });
            Reply::frames([json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result }).to_string()])
        }
        "notifications/initialized" => accepted(),
        _ => document(&result(request, "yes")),
    });
    let mut host = Host::start(&upstream.url("/mcp"));
    host.send(&initialize());
    assert_eq!(host.message().await["id"], 0);
    host.send(&initialized());
    host.send(&call(1));
    assert_eq!(host.message().await["id"], 1);
    host.end().await.expect_silence();
    assert_eq!(kinds(&upstream), ["POST initialize", "POST notifications/initialized", "POST tools/call"]);
    assert_eq!(header(&upstream.requests()[2], "mcp-protocol-version"), Some("2025-03-26"));
}

#[tokio::test]
async fn a_question_of_the_server_and_its_answer_pass() {
    let question =
        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": { "message": "Sure?" } });
    let asked = question.to_string();
    let upstream = server(move |request| match method(request).as_str() {
        "tools/call" => {
            Reply::events().frame(&asked).wait("answered").frame(&result(request, "sure").to_string()).done()
        }
        _ => accepted(),
    });
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    assert_eq!(host.message().await, question);
    let answer = json!({ "jsonrpc": "2.0", "id": "q", "result": { "action": "decline" } });
    host.send(&answer);
    upstream.wait_for_requests(5).await;
    let requests = upstream.requests();
    let sent =
        requests.iter().find(|request| request.method == "POST" && method(request).is_empty()).expect("the answer");
    assert_eq!((sent.json(), header(sent, "mcp-session-id")), (answer, Some("s1")));
    upstream.open("answered");
    assert_eq!(host.message().await["result"]["ok"], "sure");
    host.end().await.expect_silence();
}

#[tokio::test]
async fn a_refused_notification_is_a_problem_and_no_message() {
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no such question"}}"#;
    let upstream = server(move |_| Reply::complete(400, &[("content-type", "application/json")], body));
    let mut host = host_with_session(&upstream).await;
    host.send(&json!({ "jsonrpc": "2.0", "id": "q", "result": {} }));
    let problem = host.problem().await;
    assert!(problem.contains("a response was not delivered") && problem.contains("no such question"), "{problem}");
    host.end().await.expect_silence();
}

/// The stream of a cancelled request ends without a response.
#[tokio::test]
async fn a_cancellation_is_sent_on_and_the_request_gets_no_error() {
    let upstream = server(|request| match method(request).as_str() {
        "tools/call" => Reply::events().chunk("id: 1\ndata:\n\n").wait("cancelled").done(),
        _ => accepted(),
    });
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }));
    upstream.wait_for_requests(5).await;
    assert_eq!(upstream.requests().iter().filter(|request| kind(request) == "POST notifications/cancelled").count(), 1);
    upstream.open("cancelled");
    host.end().await.expect_silence();
    assert!(!upstream.requests().iter().any(|request| header(request, "last-event-id").is_some()), "it was resumed");
}

#[tokio::test]
async fn a_cut_answer_is_resumed_behind_its_last_event() {
    let progress = |number: u32| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress":{number}}}}}"#)
    };
    let mut failures = 0;
    let upstream = server(move |request| match header(request, "last-event-id") {
        None => Reply::events()
            .chunk("id: e0\nretry: 10\ndata:\n\n")
            .chunk(format!("id: e1\ndata: {}\n\nid: e2\ndata: {{\"jsonrpc\"", progress(1)))
            .close(),
        // A regular end, as of a server that closes long streams.
        Some("e1") => Reply::events().chunk(format!("id: e2\ndata: {}\n\n", progress(2))).done(),
        Some("e2") if failures < 2 => {
            failures += 1;
            Reply::complete(503, &[], "")
        }
        Some("e2") => {
            let response = r#"{"jsonrpc":"2.0","id":"c","result":{}}"#;
            Reply::events().chunk(format!("id: e3\ndata: {response}\n\n")).done()
        }
        Some(_) => Reply::complete(400, &[], ""),
    });
    let mut host = host_with_session(&upstream).await;
    host.send(&call("c"));
    assert_eq!(host.message().await["params"]["progress"], 1);
    assert_eq!(host.message().await["params"]["progress"], 2);
    assert_eq!(host.message().await["id"], "c");
    host.end().await.expect_silence();
    let requests = upstream.requests();
    let resumed: Vec<_> = requests.iter().filter_map(|request| header(request, "last-event-id")).collect();
    assert_eq!(resumed, ["e1", "e2", "e2", "e2"]);
    for request in requests.iter().filter(|request| header(request, "last-event-id").is_some()) {
        assert_eq!((request.method.as_str(), header(request, "mcp-session-id")), ("GET", Some("s1")));
    }
}

#[tokio::test]
async fn an_answer_is_resumed_three_times_and_then_fails() {
    let upstream = server(|request| match header(request, "last-event-id") {
        None => Reply::events().chunk("id: e0\nretry: 10\ndata:\n\n").close(),
        Some(_) => Reply::complete(503, &[], ""),
    });
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    let answer = host.message().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)));
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("503")), "{answer}");
    let end = host.end().await;
    assert_eq!((end.status.code(), end.problems.len()), (Some(0), 1), "{:?}", end.problems);
    let resumed = upstream.requests().iter().filter(|request| header(request, "last-event-id").is_some()).count();
    assert_eq!(resumed, 3);
}

/// A server that knows only its latest session, and loses the first one.
fn forgetful_server() -> Upstream {
    server(|request| match header(request, "mcp-session-id") {
        Some("s1") => Reply::complete(404, &[("content-type", "application/json")], r#"{"detail":"unknown session"}"#),
        _ if method(request) == "tools/call" => document(&result(request, "again")),
        _ => accepted(),
    })
}

#[tokio::test]
async fn a_lost_session_is_initialized_again_once_and_all_messages_are_repeated() {
    let upstream = forgetful_server();
    let mut host = host_with_session(&upstream).await;
    for id in 1..=5 {
        host.send(&call(id));
    }
    for _ in 1..=5 {
        assert_eq!(host.message().await["result"]["ok"], "again");
    }
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    host.end().await.expect_silence();

    let requests = upstream.requests();
    let handshakes: Vec<_> = requests.iter().filter(|request| method(request) == "initialize").collect();
    assert_eq!((handshakes.len(), &handshakes[1].json()["params"]), (2, &initialize()["params"]));
    assert_eq!((header(handshakes[1], "mcp-session-id"), header(handshakes[1], "mcp-protocol-version")), (None, None));
    let notifications = requests.iter().filter(|request| method(request) == "notifications/initialized");
    let sessions: Vec<_> = notifications.map(|request| header(request, "mcp-session-id")).collect();
    assert_eq!(sessions, [Some("s1"), Some("s2")]);
    let repeated = requests.iter().filter(|request| method(request) == "tools/call").collect::<Vec<_>>();
    let in_session = |id: &str| repeated.iter().filter(|request| header(request, "mcp-session-id") == Some(id)).count();
    assert_eq!((in_session("s2"), repeated.len()), (5, 5 + in_session("s1")));
    assert_eq!(requests.last().map(kind).as_deref(), Some("DELETE"));
    assert_eq!(header(requests.last().expect("a request"), "mcp-session-id"), Some("s2"));
}

#[tokio::test]
async fn a_notification_is_repeated_in_a_new_session_too() {
    let upstream = forgetful_server();
    let mut host = host_with_session(&upstream).await;
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    host.end().await.expect_silence();
    let requests = upstream.requests();
    let sent = requests.iter().filter(|request| method(request) == "notifications/roots/list_changed");
    let sessions: Vec<_> = sent.map(|request| header(request, "mcp-session-id")).collect();
    assert_eq!(sessions, [Some("s1"), Some("s2")]);
}

#[tokio::test]
async fn a_message_is_repeated_only_once() {
    let upstream = server(|_| Reply::complete(404, &[], ""));
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    let answer = host.message().await;
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("404")), "{answer}");
    assert_eq!(kinds(&upstream).iter().filter(|kind| *kind == "POST tools/call").count(), 2);
}

#[tokio::test]
async fn a_session_that_cannot_be_renewed_is_an_error_of_the_request() {
    let mut handshakes = 0;
    let upstream = Upstream::with_handler(move |request| match method(request).as_str() {
        "initialize" if handshakes == 0 => {
            handshakes += 1;
            session(request, "s1")
        }
        "initialize" => Reply::complete(503, &[], ""),
        "notifications/initialized" => accepted(),
        _ => Reply::complete(404, &[], ""),
    });
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    let answer = host.message().await;
    let text = answer["error"]["message"].as_str().expect("a message");
    assert!(text.contains("lost the session") && text.contains("503"), "{text}");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)));
}

#[tokio::test]
async fn the_stream_of_the_session_is_opened_again_where_it_ended() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#;
    let upstream =
        Upstream::with_handler(move |request| match (request.method.as_str(), header(request, "last-event-id")) {
            ("GET", None) => Reply::events().chunk("id: g1\nretry: 10\ndata:\n\n").done(),
            ("GET", Some("g1")) if header(request, "mcp-session-id") == Some("s1") => {
                Reply::events().chunk(format!("id: g2\ndata: {changed}\n\n")).close()
            }
            // The server lost the session: a new one begins, and its stream from the start.
            ("GET", _) => Reply::complete(404, &[], ""),
            ("DELETE", _) => Reply::complete(204, &[], ""),
            _ if method(request) == "initialize" && request.json()["id"] == 0 => session(request, "s1"),
            _ if method(request) == "initialize" => session(request, "s2"),
            _ => accepted(),
        });
    let mut host = host_with_session(&upstream).await;
    assert_eq!(host.message().await["method"], "notifications/prompts/list_changed");
    super::support::poll_until("a stream of the new session", async || {
        let requests = upstream.requests();
        let is_new =
            |request: &ReceivedRequest| request.method == "GET" && header(request, "mcp-session-id") == Some("s2");
        requests.iter().any(is_new).then_some(())
    })
    .await;
    host.end().await.expect_silence();
}

#[tokio::test]
async fn a_signal_ends_the_session_at_once() {
    let upstream = server(|_| Reply::silence());
    let mut host = host_with_session(&upstream).await;
    host.send(&call(1));
    upstream.wait_for_requests(4).await;
    let began = std::time::Instant::now();
    host.terminate();
    host.wait().await.expect_silence();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(kinds(&upstream).last().map(String::as_str), Some("DELETE"));
}

#[tokio::test]
async fn a_second_handshake_replaces_the_session() {
    let upstream = server(|request| document(&result(request, "yes")));
    let mut host = host_with_session(&upstream).await;
    host.send(&initialize());
    assert_eq!(host.message().await["id"], 0);
    host.send(&initialized());
    host.send(&call(1));
    assert_eq!(host.message().await["id"], 1);
    host.end().await.expect_silence();
    let requests = upstream.requests();
    let sent = requests.iter().find(|request| method(request) == "tools/call").expect("the call");
    assert_eq!(header(sent, "mcp-session-id"), Some("s2"));
    let ended = requests.iter().filter(|request| request.method == "DELETE");
    let ended: Vec<_> = ended.map(|request| header(request, "mcp-session-id")).collect();
    assert_eq!(ended, [Some("s1"), Some("s2")]);
}
