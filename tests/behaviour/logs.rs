//! Failed turns: one log line with all details for the operator, and an error without internal details for the client.

use serde_json::{Value, json};

use crate::support::agent::{message_started, opening_frames, text_delta, text_reply};
use crate::support::gateway::{JSON, ROUTE, agent, last_input_text, user_turn_in};
use crate::support::http::Exchange;
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::upstream::{Reply, Upstream};

/// A behaviour of the agent and the expected result.
struct Case {
    /// The input that selects the behaviour in [`reply_for`].
    input: &'static str,
    code: &'static str,
    /// Error message for clients.
    client_message: &'static str,
    /// Further texts that the log line contains, in any field.
    logged: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        input: "breaks off",
        code: "UPSTREAM_TRUNCATED",
        client_message: "the agent broke off its answer",
        logged: &[],
    },
    Case {
        input: "breaks off at once",
        code: "UPSTREAM_TRUNCATED",
        client_message: "the agent broke off its answer",
        logged: &[],
    },
    Case {
        input: "says that it failed",
        code: "MODEL_DOWN",
        client_message: "the model is down",
        logged: &["the model is down"],
    },
    Case {
        input: "speaks chat completions",
        code: "UPSTREAM_PROTOCOL_ERROR",
        client_message: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/event-stream", "chat.completion.chunk"],
    },
    Case {
        input: "speaks something of its own",
        code: "UPSTREAM_PROTOCOL_ERROR",
        client_message: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/event-stream", "hi there"],
    },
    Case {
        input: "speaks plain text",
        code: "UPSTREAM_PROTOCOL_ERROR",
        client_message: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/plain", "hello, world"],
    },
    Case {
        input: "has no such path",
        code: "UPSTREAM_MISCONFIGURED",
        client_message: "the agent has nothing at the URL that the gateway asks",
        logged: &["/process answered 404", "who-reads-this"],
    },
    Case {
        input: "redirects",
        code: "UPSTREAM_MISCONFIGURED",
        client_message: "the agent redirects elsewhere, and redirects are not followed",
        logged: &["/process answered 307, to http://elsewhere.example/process/"],
    },
    Case {
        input: "crashes",
        code: "AGENT_ERROR",
        client_message: "the agent failed (500)",
        logged: &["/process answered 500", "CUDA out of memory"],
    },
    Case {
        input: "refuses",
        code: "UPSTREAM_REFUSED",
        client_message: "the agent refused the request: the colour is not one",
        logged: &["the colour is not one"],
    },
];

fn reply_for(input: &str) -> Reply {
    const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const BODY: &[(&str, &str)] = &[("content-type", "application/json")];
    match input {
        "breaks off" => {
            let sent = opening_frames().into_iter().chain([super::support::agent::text_delta("so far")]);
            sent.fold(Reply::events(), |reply, frame| reply.frame(&frame)).done()
        }
        "breaks off at once" => Reply::events().done(),
        "says that it failed" => {
            let failed = json!({ "object": "response", "status": "failed", "id": "response_up",
                "error": { "code": "MODEL_DOWN", "message": "the model is down" } });
            let sent = opening_frames().into_iter().chain([failed.to_string()]);
            sent.fold(Reply::events(), |reply, frame| reply.frame(&frame)).done()
        }
        "speaks chat completions" => {
            let chunk =
                json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "delta": { "content": "hi" } }] });
            Reply::frames([chunk.to_string(), "[DONE]".to_owned()])
        }
        "speaks something of its own" => Reply::complete(200, STREAM, "data: {\"text\":\"hi there\"}\n\n"),
        "speaks plain text" => Reply::complete(200, &[("content-type", "text/plain")], "hello, world"),
        "has no such path" => {
            let long = format!(r#"{{"detail":"who-reads-this {}"}}"#, "x".repeat(4000));
            Reply::complete(404, BODY, long)
        }
        "redirects" => {
            let to = "http://user:hidden@elsewhere.example/process/?token=hidden";
            Reply::complete(307, &[("location", to)], "")
        }
        "crashes" => Reply::complete(500, BODY, r#"{"detail":"CUDA out of memory"}"#),
        "refuses" => Reply::complete(422, BODY, r#"{"detail":"the colour is not one"}"#),
        _ => text_reply(&["hello"]),
    }
}

/// The log lines written so far.
fn lines(folder: &std::path::Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("a line of JSON: {line}")));
    // The configuration has a secret in a URL, which is a warning of its own.
    let is_of_configuration =
        |line: &Value| line["message"].as_str().is_some_and(|message| message.starts_with("configuration: "));
    lines.filter(|line| !is_of_configuration(line)).collect()
}

#[tokio::test]
async fn a_failed_turn_logs_one_warning_with_its_cause() {
    let upstream = Upstream::with_handler(|request| reply_for(&last_input_text(&request.json())));
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("{}?key=in-the-query", upstream.url("/process"));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("friday", &url, "", "retries = 0")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());

    for (number, case) in CASES.iter().enumerate() {
        let session = format!("s-{number}");
        let mut body = user_turn_in(&session, case.input);
        body["stream"] = json!(false);
        let body = body.to_string();
        let response = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
        let received = response.text();
        assert!(received.contains(case.code) && received.contains(case.client_message), "{}: {received}", case.input);

        for hidden in ["who-reads-this", "hidden", "in-the-query", "elsewhere.example"] {
            assert!(!received.contains(hidden), "{}: {received}", case.input);
        }
        let ended = poll_until("the turn to be logged", async || {
            let of_turn = |line: &Value| line["session"] == session.as_str();
            let lines = lines(folder.path());
            lines.iter().any(of_turn).then_some(lines)
        })
        .await;
        let warnings: Vec<&Value> =
            ended.iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").collect();
        assert_eq!(warnings.len(), number + 1, "{}: one warning for one fault: {warnings:#?}", case.input);

        let line = warnings[number];
        assert_eq!(line["message"], "turn failed", "{}", case.input);
        let fields = ["code", "session", "agent", "route", "protocol", "blame"].map(|name| line[name].as_str());
        let blame = "upstream";
        let expected = [case.code, session.as_str(), "friday", "/agents/friday", "agent-api", blame].map(Some);
        assert_eq!(fields, expected, "{}: {line}", case.input);
        assert!(line["run"].is_string() && line["cause"].is_string(), "{}: {line}", case.input);

        let text = line.to_string();
        for logged in case.logged {
            assert!(text.contains(logged), "{}: {logged} is missing in {line}", case.input);
        }
        assert!(!text.contains("hidden") && !text.contains("in-the-query"), "{}: {line}", case.input);
        assert!(text.len() < 2048, "{}: a line has {} bytes", case.input, text.len());
    }

    // A successful turn is logged too, not as a warning. Each line names the trace, and the span that the agent got.
    let body = user_turn_in("good", "hello").to_string();
    let headers = [JSON[0], ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    let response = process.open("POST", "/agents/friday/process", &headers, body.as_bytes()).await.response().await;
    assert_eq!(response.status, 200);

    let lines = poll_until("the good turn to be logged", async || {
        let lines = lines(folder.path());
        lines.iter().any(|line| line["session"] == "good").then_some(lines)
    })
    .await;
    let good = lines.iter().find(|line| line["session"] == "good").expect("it is there");
    let received = upstream.requests().pop().expect("a request").headers["traceparent"].clone();
    let logged = ["trace", "span"].map(|name| good[name].as_str().unwrap_or_else(|| panic!("no {name}: {good}")));
    assert_eq!(received, format!("00-{}-{}-01", logged[0], logged[1]));
    assert_eq!(lines.iter().filter(|line| line["level"] == "WARN").count(), CASES.len());
}

#[tokio::test]
async fn an_unknown_frame_is_shown_in_the_log_line_of_its_turn() {
    let upstream = Upstream::with_handler(|_| {
        let frames = opening_frames().into_iter().chain([json!({ "object": "chunk", "text": "odd one" }).to_string()]);
        let frames = frames.chain([message_started(), text_delta("so far")]);
        frames.fold(Reply::events(), |reply, frame| reply.frame(&frame)).done()
    });
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());

    let body = user_turn_in("s", "hi").to_string();
    let response = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await;
    assert!(response.text().contains("UPSTREAM_TRUNCATED"), "{}", response.text());
    let line = poll_until("the turn to be logged", async || {
        lines(folder.path()).into_iter().find(|line| line["session"] == "s")
    })
    .await;
    assert_eq!(line["ignored_frames"], 1, "{line}");
    assert!(line["first_ignored"].as_str().is_some_and(|frame| frame.contains("odd one")), "{line}");
}

#[tokio::test]
async fn clients_that_do_not_speak_http_write_no_errors_into_the_log_unless_its_filter_names_them() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("demo", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    for (filter, is_logged) in [("info", false), ("info,actix_http::h1=error", true)] {
        let mut command = binary(folder.path());
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        command.args(["--log", filter, "--log-format", "json"]).stderr(log);
        let process = Process::spawn(command);
        let sent = [&b"GARBAGE\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"];
        for bytes in sent {
            assert_eq!(Exchange::send(process.address, bytes).await.response().await.status, 400);
        }
        process.terminate();
        assert_eq!(process.wait().await.code(), Some(0));
        let loud: Vec<Value> = lines(folder.path()).into_iter().filter(|line| line["level"] != "INFO").collect();
        let of_http = |line: &Value| line["target"].as_str().is_some_and(|target| target.starts_with("actix_http::h1"));
        assert!(loud.iter().all(of_http), "{filter}: {loud:#?}");
        assert_eq!(loud.len() >= sent.len(), is_logged, "{filter}: {loud:#?}");
        assert!(is_logged || loud.is_empty(), "{loud:#?}");
    }
}
