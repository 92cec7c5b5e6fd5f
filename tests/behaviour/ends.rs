//! Upstream failures: each way in which an agent can fail gives its client one clear end. Before the stream has started
//! that is a status, afterwards a terminal frame, always with a stable code and never with internal details.

use std::io::Write as _;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::agent::{frames, opening_frames, response, text_delta, text_reply, text_reply_then_hang};
use crate::support::gateway::{Gateway, ROUTE, agent, last_input_text, user_turn};
use crate::support::http;
use crate::support::transcript::Transcript;
use crate::support::upstream::{FullBacklog, Reply, Upstream, unused_address};

async fn before(upstream: &Upstream, settings: &str) -> Gateway {
    Gateway::start(&agent("friday", &upstream.url("/process"), "", settings)).await
}

/// The error response for an agent that always sends this reply.
async fn refused(response: Reply, settings: &str) -> http::Response {
    let upstream = Upstream::always(response);
    let gateway = before(&upstream, settings).await;
    let response = gateway.post("/agents/friday/process", &user_turn("hi")).await;
    let run = gateway.get("/agents/friday/runs").await.json();
    assert_eq!(run["total"], 1, "a refused run is recorded: {run}");
    assert_eq!(run["data"][0]["status"], "failed");
    response
}

/// The stream of a client whose agent always sends this reply.
async fn transcript(answer: Reply, settings: &str) -> Transcript {
    let upstream = Upstream::always(answer);
    let gateway = before(&upstream, settings).await;
    let transcript = gateway.run_turn("friday", &user_turn("hi")).await;
    assert_eq!(
        gateway.run("friday", &transcript.id).await,
        transcript.last,
        "the stored run equals the terminal frame"
    );
    transcript
}

#[tokio::test]
async fn an_upstream_refusal_becomes_a_status_without_internal_details() {
    let json = [("content-type", "application/json")];
    let field = r#"{"detail":[{"loc":["body","input"],"msg":"Field required"}]}"#;
    let cases = [
        (
            401,
            r#"{"detail":"bad token sk-123"}"#,
            502,
            "UPSTREAM_AUTH_FAILED",
            "the agent refused the gateway's credentials",
        ),
        (403, r#"{"detail":"no"}"#, 502, "UPSTREAM_AUTH_FAILED", "the agent refused the gateway's credentials"),
        (
            404,
            r#"{"detail":"Not Found"}"#,
            502,
            "UPSTREAM_MISCONFIGURED",
            "the agent has nothing at the URL that the gateway asks",
        ),
        (422, field, 400, "UPSTREAM_REFUSED", "the agent refused the request: input: Field required"),
        (500, r#"{"detail":"ValueError: /srv/app.py line 3"}"#, 502, "AGENT_ERROR", "the agent failed (500)"),
        (302, "", 502, "UPSTREAM_MISCONFIGURED", "the agent redirects elsewhere, and redirects are not followed"),
        (503, "overloaded", 503, "UPSTREAM_OVERLOADED", "the agent is not available"),
        (504, "<html>", 504, "UPSTREAM_TIMEOUT", "the agent took too long"),
    ];

    for (status, body, received, code, detail) in cases {
        let response = refused(Reply::complete(status, &json, body), "retries = 0").await;
        assert_eq!(
            (response.status, response.json()),
            (received, json!({ "detail": detail, "code": code })),
            "{status}"
        );
    }
}

#[tokio::test]
async fn an_upstream_rate_limit_is_passed_on_with_its_retry_after() {
    let busy = Reply::complete(429, &[("retry-after", "7"), ("content-type", "text/plain")], "slow down");
    let response = refused(busy, "").await;
    assert_eq!((response.status, response.header("retry-after")), (429, Some("7")));
    assert_eq!(response.json()["code"], "UPSTREAM_RATE_LIMITED");
}

#[tokio::test]
async fn an_unavailable_agent_is_retried() {
    let upstream = Upstream::in_order([Reply::complete(503, &[], "starting"), text_reply(&["here I am"])]);
    let gateway = before(&upstream, "").await;
    assert_eq!(gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text(), "here I am");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_refused_connection_is_reported_as_unreachable() {
    let gateway =
        Gateway::start(&agent("friday", &format!("http://{}/process", unused_address()), "", "retries = 0")).await;
    let response = gateway.post("/agents/friday/process", &user_turn("hi")).await;
    assert_eq!(response.status, 502, "{}", response.text());
    assert_eq!(response.json(), json!({ "detail": "the agent could not be reached", "code": "UPSTREAM_UNREACHABLE" }));
}

#[tokio::test]
async fn each_upstream_timeout_is_enforced() {
    let unresponsive = FullBacklog::new().await;
    let connect =
        agent("a", &format!("http://{}/process", unresponsive.address), "", "timeouts = { connect = \"100ms\" }");
    let silent = Upstream::always(Reply::silence());
    let first = agent("b", &silent.url("/process"), "", "timeouts = { first_byte = \"100ms\" }");
    let stuck = Upstream::always(text_reply_then_hang(&["so far"]));
    let idle = agent("c", &stuck.url("/process"), "", "timeouts = { idle = \"500ms\" }");
    let drops = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let endless = (0..100).fold(drops, |reply, _| reply.frame(&text_delta("drip ")).pause(Duration::from_millis(10)));
    let dripping = Upstream::always(endless.hang());
    let total = agent("d", &dripping.url("/process"), "", "timeouts = { total = \"900ms\", idle = \"800ms\" }");
    let gateway = Gateway::start(&format!("{connect}{first}{idle}{total}")).await;

    for (agent, says_so) in [("a", "did not accept a connection"), ("b", "did not begin to answer")] {
        let started = Instant::now();
        let response = gateway.post(&format!("/agents/{agent}/process"), &user_turn("hi")).await;
        assert_eq!((response.status, response.json()["code"].as_str()), (504, Some("UPSTREAM_TIMEOUT")));
        assert!(response.text().contains(says_so), "{}", response.text());
        assert!(started.elapsed() < Duration::from_secs(3), "{agent}: {:?}", started.elapsed());
    }

    for (agent, text) in [("c", "so far"), ("d", "drip ")] {
        let started = Instant::now();
        let transcript = gateway.run_turn(agent, &user_turn("hi")).await.expect_failed("UPSTREAM_TIMEOUT");
        assert!(transcript.text().starts_with(text), "the partial output is kept: {}", transcript.last);
        assert!(started.elapsed() < Duration::from_secs(3), "{agent}: {:?}", started.elapsed());
    }

    silent.wait_for_all_closed().await;
    stuck.wait_for_all_closed().await;
    dripping.wait_for_all_closed().await;
}

#[tokio::test]
async fn comments_from_the_agent_reset_the_idle_timeout() {
    let slow = (0..8).fold(Reply::events(), |reply, _| reply.pause(Duration::from_millis(60)).chunk(": working\n\n"));
    let slow = frames(&["done"]).iter().fold(slow, |reply, frame| reply.frame(frame)).done();
    let upstream = Upstream::always(slow);
    let gateway = before(&upstream, "timeouts = { idle = \"300ms\" }").await;
    assert_eq!(gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text(), "done");
}

#[tokio::test]
async fn an_invalid_upstream_response_is_a_protocol_error() {
    let html = Reply::complete(200, &[("content-type", "text/html")], "<html>Bad gateway</html>");
    let lost = Reply::raw("220 mail.example.com ESMTP\r\n").close();
    let json = Reply::complete(200, &[("content-type", "application/json")], "{\"hello\":\"world\"}");
    let huge = "x".repeat(1 << 20);
    let header = Reply::head(200, &[("content-type", "text/event-stream"), ("x-huge", huge.as_str())]).hang();
    let brotli = Reply::complete(200, &[("content-type", "text/event-stream"), ("content-encoding", "br")], "data");

    for (name, response) in [("html", html), ("smtp", lost), ("json", json), ("header", header), ("brotli", brotli)] {
        let response = refused(response, "").await;
        assert_eq!(
            (response.status, response.json()["code"].as_str()),
            (502, Some("UPSTREAM_PROTOCOL_ERROR")),
            "{name}: {}",
            response.text()
        );
    }

    let closed = refused(Reply::nothing(), "retries = 0").await;
    assert_eq!((closed.status, closed.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
    let reset = refused(Reply::default().reset(), "retries = 0").await;
    assert_eq!((reset.status, reset.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
    let nothing = refused(Reply::events().done(), "").await;
    assert_eq!((nothing.status, nothing.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
}

#[tokio::test]
async fn a_late_refusal_is_reported_in_the_stream() {
    // By then the client has its response head, which is sent so that a disconnect can be noticed.
    let late = Reply::default().pause(Duration::from_millis(200));
    let refusal = "HTTP/1.1 422 No\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"detail\":\"no\"}";
    let upstream = Upstream::always(late.and_raw(refusal));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"40ms\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    let gateway = Gateway::with_config(&config).await;
    let transcript = gateway.run_turn("friday", &user_turn("hi")).await.expect_failed("UPSTREAM_REFUSED");
    assert_eq!(transcript.error_message(), "the agent refused the request: no");

    // A client that does not stream gets a status, however late.
    let mut full = user_turn("hi");
    full["stream"] = json!(false);
    let response = gateway.post("/agents/friday/process", &full).await;
    assert_eq!((response.status, &response.json()["code"]), (400, &json!("UPSTREAM_REFUSED")));
}

#[tokio::test]
async fn garbage_mid_stream_fails_the_run_and_keeps_the_partial_output() {
    for garbage in ["<html>", "[1,2]", "{\"object\":", "\u{0}\u{1}", "\"text\""] {
        let started = opening_frames().into_iter().chain([text_delta("good so far"), garbage.to_owned()]);
        let answer = started.fold(Reply::events(), |reply, frame| reply.frame(&frame)).hang();
        let transcript = transcript(answer, "").await.expect_failed("UPSTREAM_PROTOCOL_ERROR");
        assert_eq!(transcript.text(), "good so far", "{garbage}");
    }
}

#[tokio::test]
async fn bare_error_frames_are_reported_without_internal_details() {
    let bare = |frames: &[&str]| Reply::frames(frames.iter().map(|frame| (*frame).to_owned()));

    // As the first frame it becomes a status: the stream has not started.
    let only = bare(&[r#"{"error": "1 validation error for AgentRequest\ninput.0.role\n  Input should be 'user'"}"#]);
    let answer = refused(only, "").await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (502, Some("AGENT_ERROR")), "{}", answer.text());

    // After the stream has started it ends the stream.
    for (frame, code) in [
        (r#"{"error": "'NoneType' object is not iterable"}"#, "AGENT_ERROR"),
        (r#"{"error": {"code": "MODEL_TIMEOUT", "message": "the model took too long"}}"#, "MODEL_TIMEOUT"),
        (r#"{"code": "MODEL_QUOTA_EXCEEDED", "message": "no more tokens"}"#, "MODEL_QUOTA_EXCEEDED"),
    ] {
        let started = [response("created"), response("in_progress"), frame.to_owned()];
        let transcript = transcript(Reply::frames(started), "").await;
        assert_eq!((transcript.status.as_str(), transcript.code()), ("failed", code), "{}", transcript.last);
        assert!(!transcript.error_message().contains("NoneType"), "{}", transcript.last);
    }
}

#[tokio::test]
async fn a_decompression_bomb_is_refused_in_bounded_time() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for frame in opening_frames() {
        write!(packer, "data: {frame}\n\n").expect("memory");
    }

    let spaces = vec![b' '; 1 << 20];
    packer.write_all(b"data: ").expect("memory");
    for _ in 0..64 {
        packer.write_all(&spaces).expect("memory");
    }

    let bomb = packer.finish().expect("memory");
    let packed = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    let transcript = transcript(Reply::head(200, &packed).pieces(bomb, 4096).done(), "").await;
    assert!(["UPSTREAM_PROTOCOL_ERROR", "UPSTREAM_TOO_LARGE"].contains(&transcript.code()), "{}", transcript.last);
}

#[tokio::test]
async fn an_endless_line_is_cut_off_at_max_event() {
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let flood = format!("1000\r\n{}\r\n", "x".repeat(4096));
    let endless = started.chunk("data: ").flood(flood);
    let upstream = Upstream::always(endless);
    let gateway = before(&upstream, "max_event = \"256KiB\"").await;
    gateway.run_turn("friday", &user_turn("hi")).await.expect_failed("UPSTREAM_TOO_LARGE");
    upstream.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn an_endless_response_is_cut_off_at_max_run_bytes() {
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let frame = format!("data: {}\n\n", text_delta("and so on "));
    let many = frame.repeat(100);
    let upstream = Upstream::always(started.flood(format!("{:x}\r\n{many}\r\n", many.len())));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"1MiB\"", "")).await;

    let transcript = gateway.run_turn("friday", &user_turn("hi")).await.expect_failed("UPSTREAM_TOO_LARGE");
    assert!(transcript.text().starts_with("and so on and so on "));
    upstream.wait_for_disconnects(1).await;
    let run = gateway.run("friday", &transcript.id).await;
    assert_eq!(run, transcript.last);
}

#[tokio::test]
async fn frames_without_content_do_not_count_towards_max_run_bytes() {
    // Valid frames without content: the limit counts what a run holds, not what it receives.
    let nothing = [
        json!({ "object": "message", "status": "in_progress", "id": "hb", "type": "heartbeat" }),
        json!({ "object": "response", "status": "in_progress", "id": "response_up" }),
        json!({ "object": "who knows" }),
    ];
    let lines: String = nothing.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>().repeat(20);
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let answer = (0..200).fold(started, |reply, _| reply.chunk(&lines));
    let ended = frames(&["still here"]).split_off(3).iter().fold(answer, |reply, frame| reply.frame(frame)).done();
    let upstream = Upstream::always(ended);
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"64KiB\"", "")).await;
    assert_eq!(gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text(), "still here");
}

#[tokio::test]
async fn endless_tiny_messages_are_cut_off_at_max_run_bytes() {
    // Each frame is a message of its own and takes memory, though it has no content.
    let mut number = 0_u32;
    let mut many = String::new();
    while number < 20_000 {
        number += 1;
        many.push_str(&format!("data: {{\"object\":\"message\",\"status\":\"completed\",\"id\":\"m{number}\",\"type\":\"message\",\"content\":[]}}\n\n"));
    }

    let started = [response("created")].iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let upstream = Upstream::always(started.flood(format!("{:x}\r\n{many}\r\n", many.len())));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"256KiB\"", "")).await;
    gateway.run_turn("friday", &user_turn("hi")).await.expect_failed("UPSTREAM_TOO_LARGE");
    upstream.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn frames_after_the_terminal_one_are_ignored() {
    let more = frames(&["once"]).into_iter().chain(frames(&["twice"])).chain(["<html>".to_owned()]);
    let upstream = Upstream::always(more.fold(Reply::events(), |reply, frame| reply.frame(&frame)).hang());
    let gateway = before(&upstream, "").await;
    let transcript = gateway.run_turn("friday", &user_turn("hi")).await.expect_completed();
    assert_eq!((transcript.text().as_str(), transcript.messages.len()), ("once", 1));
    upstream.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn upstream_connections_are_reused() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let source = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n{}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    let gateway = Gateway::with_config(&format!("{source}{}", ROUTE)).await;
    for _ in 0..5 {
        gateway.run_turn("friday", &user_turn("hi")).await.expect_completed();
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (5, 1));
}

#[tokio::test]
async fn an_image_of_several_megabytes_is_passed_on_unchanged() {
    let picture = format!("data:image/png;base64,{}", "iVBO".repeat(1 << 20));
    let content = json!({ "object": "content", "status": "completed", "type": "image", "index": 0, "msg_id": "m", "image_url": picture });
    let message = json!({ "object": "message", "status": "completed", "id": "m", "type": "message", "role": "assistant", "content": [content] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [] });
    let row = [response("created"), message.to_string(), end.to_string()];
    let transcript = transcript(Reply::frames(row), "").await.expect_completed();
    assert_eq!(transcript.messages[0]["content"][0]["image_url"], picture);
}

/// The byte offsets at which frames end.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    (2..=bytes.len()).filter(|end| bytes[..*end].ends_with(b"\n\n")).collect()
}

#[tokio::test]
async fn an_agent_that_dies_at_any_byte_fails_its_run() {
    let full = include_bytes!("../transcripts/agentscope/agentscope-think.sse");
    let upstream = Upstream::with_handler(move |request| {
        let input = last_input_text(&request.json());
        let (how, index) = input.split_once(' ').expect("how and where");
        let started = Reply::events().chunk(&full[..index.parse::<usize>().expect("a place")]);
        match how {
            "close" => started.close(),
            "reset" => started.reset(),
            _ => started.done(),
        }
    });
    let gateway = before(&upstream, "retries = 0").await;

    let ends = boundaries(full);
    let last = *ends.last().expect("a transcript has frames");
    let mut deaths: Vec<(&str, usize)> = (0..=full.len()).map(|index| ("close", index)).collect();
    deaths.extend(ends.iter().flat_map(|end| [("done", *end), ("done", end - 1), ("done", end - 2), ("reset", *end)]));
    let (gateway, ends) = (&gateway, &ends);
    let tries = deaths.into_iter().map(|(how, index)| async move {
        let mut stream = gateway.start_turn("friday", &user_turn(&format!("{how} {index}"))).await;
        if stream.status().await != 200 {
            let answer = stream.response().await;
            assert_eq!(
                (answer.status, answer.json()["code"].as_str()),
                (502, Some("UPSTREAM_TRUNCATED")),
                "{how} {index}"
            );
            // A last frame without its blank line counts if the body ended properly; half a frame does not.
            assert!(index < ends[0] || how == "reset", "{how} {index}: the agent had begun");
            return;
        }
        let transcript = Transcript::parse(&stream.frames().await);

        // The last frame counts without its blank line or with half of it. A reset may discard data sent before it.
        let complete = index + 2 >= last;
        match transcript.status.as_str() {
            "completed" => assert!(complete, "{how} {index}: completed too early"),
            "failed" => {
                assert!(!complete || how == "reset", "{how} {index}: {}", transcript.last);
                assert_eq!(transcript.code(), "UPSTREAM_TRUNCATED", "{how} {index}");
            }
            other => panic!("{how} {index}: {other}"),
        }
        if how == "close" {
            assert_eq!(gateway.run("friday", &transcript.id).await, transcript.last, "{how} {index}");
        }
    });
    let mut tries = futures_util::stream::iter(tries.map(Box::pin)).buffer_unordered(16);
    while tries.next().await.is_some() {}
}

#[tokio::test]
async fn chunk_boundaries_do_not_change_the_response() {
    let full = include_bytes!("../transcripts/agentscope/agentscope-parallel.sse");
    let upstream = Upstream::with_handler(move |request| {
        let size = last_input_text(&request.json()).parse().expect("a size");
        Reply::events().pieces(full, size).done()
    });
    let gateway = before(&upstream, "").await;

    let received = |transcript: Transcript| -> Vec<Value> { transcript.expect_completed().messages };
    let expected = received(gateway.run_turn("friday", &user_turn("100000")).await);
    for size in [1, 2, 3, 7, 64, 1000] {
        assert_eq!(
            received(gateway.run_turn("friday", &user_turn(&size.to_string())).await),
            expected,
            "in pieces of {size}"
        );
    }
}
