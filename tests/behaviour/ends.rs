//! Every way an agent can fail gives its client one clear end: a status before the stream has begun, a last frame
//! after, always with a stable code and never with the agent's insides.

use std::io::Write as _;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::agent::{beginning, frames, response, saying, saying_and_hanging, word};
use crate::support::gateway::{Gateway, ROUTE, agent, last_said, says};
use crate::support::http;
use crate::support::story::Story;
use crate::support::upstream::{Answer, Deaf, Upstream, nobody};

async fn before(upstream: &Upstream, settings: &str) -> Gateway {
    Gateway::start(&agent("friday", &upstream.url("/process"), "", settings)).await
}

/// What a client gets from an agent that always answers so.
async fn refused(answer: Answer, settings: &str) -> http::Answer {
    let upstream = Upstream::always(answer);
    let gateway = before(&upstream, settings).await;
    let answer = gateway.post("/agents/friday/process", &says("hi")).await;
    let run = gateway.get("/agents/friday/runs").await.json();
    assert_eq!(run["total"], 1, "a run that was refused is a run: {run}");
    assert_eq!(run["data"][0]["status"], "failed");
    answer
}

/// What a client sees of an agent that always answers so.
async fn story(answer: Answer, settings: &str) -> Story {
    let upstream = Upstream::always(answer);
    let gateway = before(&upstream, settings).await;
    let story = gateway.story("friday", &says("hi")).await;
    assert_eq!(gateway.run("friday", &story.id).await, story.last, "what is kept is what was told");
    story
}

#[tokio::test]
async fn a_refusal_is_a_status_with_what_the_agent_meant_for_clients() {
    let json = [("content-type", "application/json")];
    let field = r#"{"detail":[{"loc":["body","input"],"msg":"Field required"}]}"#;
    let cases = [
        (
            401,
            r#"{"detail":"bad token sk-123"}"#,
            502,
            "UPSTREAM_REFUSED",
            "the agent refused the gateway's credentials",
        ),
        (403, r#"{"detail":"no"}"#, 502, "UPSTREAM_REFUSED", "the agent refused the gateway's credentials"),
        (
            404,
            r#"{"detail":"Not Found"}"#,
            502,
            "UPSTREAM_REFUSED",
            "the agent has nothing at the URL that the gateway asks",
        ),
        (422, field, 502, "UPSTREAM_REFUSED", "the agent refused the request: input: Field required"),
        (
            500,
            r#"{"detail":"ValueError: /srv/app.py line 3"}"#,
            502,
            "UPSTREAM_REFUSED",
            "the agent refused the request",
        ),
        (302, "", 502, "UPSTREAM_REFUSED", "the agent redirects elsewhere, and redirects are not followed"),
        (503, "overloaded", 502, "UPSTREAM_UNREACHABLE", "the agent is not available"),
        (504, "<html>", 504, "UPSTREAM_TIMEOUT", "the agent took too long"),
    ];
    for (status, body, told, code, detail) in cases {
        let answer = refused(Answer::whole(status, &json, body), "retries = 0").await;
        assert_eq!((answer.status, answer.json()), (told, json!({ "detail": detail, "code": code })), "{status}");
    }
}

#[tokio::test]
async fn an_agent_that_wants_fewer_requests_is_told_on_with_its_pause() {
    let busy = Answer::whole(429, &[("retry-after", "7"), ("content-type", "text/plain")], "slow down");
    let answer = refused(busy, "").await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")));
    assert_eq!(answer.json()["code"], "UPSTREAM_RATE_LIMITED");
}

#[tokio::test]
async fn an_agent_that_says_it_is_not_ready_is_asked_again() {
    let upstream = Upstream::answering([Answer::whole(503, &[], "starting"), saying(&["here I am"])]);
    let gateway = before(&upstream, "").await;
    assert_eq!(gateway.story("friday", &says("hi")).await.completed().text(), "here I am");
    assert_eq!(upstream.asked().len(), 2);
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_told_as_unreachable() {
    let gateway = Gateway::start(&agent("friday", &format!("http://{}/process", nobody()), "", "retries = 0")).await;
    let answer = gateway.post("/agents/friday/process", &says("hi")).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(answer.json(), json!({ "detail": "the agent could not be reached", "code": "UPSTREAM_UNREACHABLE" }));
}

#[tokio::test]
async fn each_timeout_has_its_own_bound() {
    let deaf = Deaf::new().await;
    let connect = agent("a", &format!("http://{}/process", deaf.address), "", "timeouts = { connect = \"100ms\" }");
    let silent = Upstream::always(Answer::silence());
    let first = agent("b", &silent.url("/process"), "", "timeouts = { first_byte = \"100ms\" }");
    let stuck = Upstream::always(saying_and_hanging(&["so far"]));
    let idle = agent("c", &stuck.url("/process"), "", "timeouts = { idle = \"100ms\" }");
    let drops = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let endless = (0..100).fold(drops, |answer, _| answer.frame(&word("drip ")).pause(Duration::from_millis(10)));
    let dripping = Upstream::always(endless.hang());
    let total = agent("d", &dripping.url("/process"), "", "timeouts = { total = \"300ms\", idle = \"250ms\" }");
    let gateway = Gateway::start(&format!("{connect}{first}{idle}{total}")).await;
    for (agent, says_so) in [("a", "did not accept a connection"), ("b", "did not begin to answer")] {
        let began = Instant::now();
        let answer = gateway.post(&format!("/agents/{agent}/process"), &says("hi")).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (504, Some("UPSTREAM_TIMEOUT")));
        assert!(answer.text().contains(says_so), "{}", answer.text());
        assert!(began.elapsed() < Duration::from_secs(3), "{agent}: {:?}", began.elapsed());
    }
    for (agent, text) in [("c", "so far"), ("d", "drip ")] {
        let began = Instant::now();
        let story = gateway.story(agent, &says("hi")).await.failed("UPSTREAM_TIMEOUT");
        assert!(story.text().starts_with(text), "what was said stays: {}", story.last);
        assert!(began.elapsed() < Duration::from_secs(3), "{agent}: {:?}", began.elapsed());
    }
    silent.wait_closed().await;
    stuck.wait_closed().await;
    dripping.wait_closed().await;
}

#[tokio::test]
async fn comments_of_an_agent_that_works_are_signs_of_life() {
    let slow =
        (0..8).fold(Answer::events(), |answer, _| answer.pause(Duration::from_millis(60)).chunk(": working\n\n"));
    let slow = frames(&["done"]).iter().fold(slow, |answer, frame| answer.frame(frame)).done();
    let upstream = Upstream::always(slow);
    let gateway = before(&upstream, "timeouts = { idle = \"300ms\" }").await;
    assert_eq!(gateway.story("friday", &says("hi")).await.completed().text(), "done");
}

#[tokio::test]
async fn what_is_no_answer_at_all_is_told_as_such() {
    let html = Answer::whole(200, &[("content-type", "text/html")], "<html>Bad gateway</html>");
    let lost = Answer::raw("220 mail.example.com ESMTP\r\n").close();
    let json = Answer::whole(200, &[("content-type", "application/json")], "{\"hello\":\"world\"}");
    let huge = "x".repeat(1 << 20);
    let header = Answer::head(200, &[("content-type", "text/event-stream"), ("x-huge", huge.as_str())]).hang();
    let brotli = Answer::whole(200, &[("content-type", "text/event-stream"), ("content-encoding", "br")], "data");
    for (name, answer) in [("html", html), ("smtp", lost), ("json", json), ("header", header), ("brotli", brotli)] {
        let answer = refused(answer, "").await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (502, Some("UPSTREAM_PROTOCOL_ERROR")),
            "{name}: {}",
            answer.text()
        );
    }
    let closed = refused(Answer::nothing(), "retries = 0").await;
    assert_eq!((closed.status, closed.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
    let reset = refused(Answer::default().reset(), "retries = 0").await;
    assert_eq!((reset.status, reset.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
    let nothing = refused(Answer::events().done(), "").await;
    assert_eq!((nothing.status, nothing.json()["code"].as_str()), (502, Some("UPSTREAM_TRUNCATED")));
}

#[tokio::test]
async fn a_refusal_that_comes_late_is_told_in_the_stream() {
    // The client has been given a head by then, so that a departed one is noticed.
    let late = Answer::default().pause(Duration::from_millis(200));
    let refusal = "HTTP/1.1 422 No\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"detail\":\"no\"}";
    let upstream = Upstream::always(late.and_raw(refusal));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"40ms\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    let gateway = Gateway::with(&config).await;
    let story = gateway.story("friday", &says("hi")).await.failed("UPSTREAM_REFUSED");
    assert_eq!(story.complaint(), "the agent refused the request: no");
    // Who waits for all of it gets a status however late it comes.
    let mut whole = says("hi");
    whole["stream"] = json!(false);
    let answer = gateway.post("/agents/friday/process", &whole).await;
    assert_eq!((answer.status, &answer.json()["code"]), (502, &json!("UPSTREAM_REFUSED")));
}

#[tokio::test]
async fn garbage_in_the_middle_ends_the_run_and_keeps_what_was_said() {
    for garbage in ["<html>", "[1,2]", "{\"object\":", "\u{0}\u{1}", "\"text\""] {
        let begun = beginning().into_iter().chain([word("good so far"), garbage.to_owned()]);
        let answer = begun.fold(Answer::events(), |answer, frame| answer.frame(&frame)).hang();
        let story = story(answer, "").await.failed("UPSTREAM_PROTOCOL_ERROR");
        assert_eq!(story.text(), "good so far", "{garbage}");
    }
}

#[tokio::test]
async fn bare_error_frames_are_told_in_order_and_without_insides() {
    let bare = |frames: &[&str]| Answer::frames(frames.iter().map(|frame| (*frame).to_owned()));
    // The only frame of all: nothing has begun, so it can be a status.
    let only = bare(&[r#"{"error": "1 validation error for AgentRequest\ninput.0.role\n  Input should be 'user'"}"#]);
    let answer = refused(only, "").await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (502, Some("AGENT_ERROR")), "{}", answer.text());
    // Behind a beginning it is the end of the stream.
    for (frame, code) in [
        (r#"{"error": "'NoneType' object is not iterable"}"#, "AGENT_ERROR"),
        (r#"{"error": {"code": "MODEL_TIMEOUT", "message": "the model took too long"}}"#, "MODEL_TIMEOUT"),
        (r#"{"code": "MODEL_QUOTA_EXCEEDED", "message": "no more tokens"}"#, "MODEL_QUOTA_EXCEEDED"),
    ] {
        let begun = [response("created"), response("in_progress"), frame.to_owned()];
        let story = story(Answer::frames(begun), "").await;
        assert_eq!((story.status.as_str(), story.code()), ("failed", code), "{}", story.last);
        assert!(!story.complaint().contains("NoneType"), "{}", story.last);
    }
}

#[tokio::test]
async fn an_answer_that_unpacks_without_end_is_refused_in_bounded_time() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for frame in beginning() {
        write!(packer, "data: {frame}\n\n").expect("memory");
    }
    let spaces = vec![b' '; 1 << 20];
    packer.write_all(b"data: ").expect("memory");
    for _ in 0..64 {
        packer.write_all(&spaces).expect("memory");
    }
    let bomb = packer.finish().expect("memory");
    let packed = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    let story = story(Answer::head(200, &packed).pieces(bomb, 4096).done(), "").await;
    assert!(["UPSTREAM_PROTOCOL_ERROR", "UPSTREAM_TOO_LARGE"].contains(&story.code()), "{}", story.last);
}

#[tokio::test]
async fn an_endless_line_is_cut_off_at_its_bound() {
    let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let flood = format!("1000\r\n{}\r\n", "x".repeat(4096));
    let endless = begun.chunk("data: ").flood(flood);
    let upstream = Upstream::always(endless);
    let gateway = before(&upstream, "max_event = \"256KiB\"").await;
    gateway.story("friday", &says("hi")).await.failed("UPSTREAM_TOO_LARGE");
    upstream.wait_left(1).await;
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_its_bound() {
    let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let frame = format!("data: {}\n\n", word("and so on "));
    let many = frame.repeat(100);
    let upstream = Upstream::always(begun.flood(format!("{:x}\r\n{many}\r\n", many.len())));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"1MiB\"", "")).await;
    let story = gateway.story("friday", &says("hi")).await.failed("UPSTREAM_TOO_LARGE");
    assert!(story.text().starts_with("and so on and so on "));
    upstream.wait_left(1).await;
    let run = gateway.run("friday", &story.id).await;
    assert_eq!(run, story.last);
}

#[tokio::test]
async fn frames_of_nothing_do_not_grow_a_run() {
    // Each says something, and nothing that could be told: a run is bounded by what it holds.
    let nothing = [
        json!({ "object": "message", "status": "in_progress", "id": "hb", "type": "heartbeat" }),
        json!({ "object": "response", "status": "in_progress", "id": "response_up" }),
        json!({ "object": "who knows" }),
    ];
    let lines: String = nothing.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>().repeat(20);
    let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let answer = (0..200).fold(begun, |answer, _| answer.chunk(&lines));
    let ended = frames(&["still here"]).split_off(3).iter().fold(answer, |answer, frame| answer.frame(frame)).done();
    let upstream = Upstream::always(ended);
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"64KiB\"", "")).await;
    assert_eq!(gateway.story("friday", &says("hi")).await.completed().text(), "still here");
}

#[tokio::test]
async fn a_million_tiny_frames_meet_the_bound_of_a_run() {
    // A message of its own each time: every one takes room, though it says next to nothing.
    let mut number = 0_u32;
    let mut many = String::new();
    while number < 20_000 {
        number += 1;
        many.push_str(&format!("data: {{\"object\":\"message\",\"status\":\"completed\",\"id\":\"m{number}\",\"type\":\"message\",\"content\":[]}}\n\n"));
    }
    let begun = [response("created")].iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let upstream = Upstream::always(begun.flood(format!("{:x}\r\n{many}\r\n", many.len())));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "max_run_bytes = \"256KiB\"", "")).await;
    gateway.story("friday", &says("hi")).await.failed("UPSTREAM_TOO_LARGE");
    upstream.wait_left(1).await;
}

#[tokio::test]
async fn what_comes_after_the_end_is_not_waited_for_and_not_told() {
    let more = frames(&["once"]).into_iter().chain(frames(&["twice"])).chain(["<html>".to_owned()]);
    let upstream = Upstream::always(more.fold(Answer::events(), |answer, frame| answer.frame(&frame)).hang());
    let gateway = before(&upstream, "").await;
    let story = gateway.story("friday", &says("hi")).await.completed();
    assert_eq!((story.text().as_str(), story.messages.len()), ("once", 1));
    upstream.wait_left(1).await;
}

#[tokio::test]
async fn an_agent_that_is_quick_is_asked_over_the_same_connection_again() {
    let upstream = Upstream::always(saying(&["hi"]));
    let source = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n{}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    let gateway = Gateway::with(&format!("{source}{}", ROUTE)).await;
    for _ in 0..5 {
        gateway.story("friday", &says("hi")).await.completed();
    }
    assert_eq!((upstream.asked().len(), upstream.connections()), (5, 1));
}

#[tokio::test]
async fn a_picture_of_megabytes_comes_through_whole() {
    let picture = format!("data:image/png;base64,{}", "iVBO".repeat(1 << 20));
    let content = json!({ "object": "content", "status": "completed", "type": "image", "index": 0, "msg_id": "m", "image_url": picture });
    let message = json!({ "object": "message", "status": "completed", "id": "m", "type": "message", "role": "assistant", "content": [content] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [] });
    let row = [response("created"), message.to_string(), end.to_string()];
    let story = story(Answer::frames(row), "").await.completed();
    assert_eq!(story.messages[0]["content"][0]["image_url"], picture);
}

/// Where frames of a stream end.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    (2..=bytes.len()).filter(|end| bytes[..*end].ends_with(b"\n\n")).collect()
}

#[tokio::test]
async fn an_agent_that_dies_at_any_byte_fails_its_run_in_order() {
    let whole = include_bytes!("../transcripts/agentscope/agentscope-think.sse");
    let upstream = Upstream::deciding(move |asked| {
        let said = last_said(&asked.json());
        let (how, place) = said.split_once(' ').expect("how and where");
        let begun = Answer::events().chunk(&whole[..place.parse::<usize>().expect("a place")]);
        match how {
            "close" => begun.close(),
            "reset" => begun.reset(),
            _ => begun.done(),
        }
    });
    let gateway = before(&upstream, "retries = 0").await;
    let ends = boundaries(whole);
    let last = *ends.last().expect("a transcript has frames");
    let mut deaths: Vec<(&str, usize)> = (0..=whole.len()).map(|place| ("close", place)).collect();
    deaths.extend(ends.iter().flat_map(|end| [("done", *end), ("done", end - 1), ("done", end - 2), ("reset", *end)]));
    let (gateway, ends) = (&gateway, &ends);
    let tries = deaths.into_iter().map(|(how, place)| async move {
        let mut stream = gateway.ask("friday", &says(&format!("{how} {place}"))).await;
        if stream.status().await != 200 {
            let answer = stream.answer().await;
            assert_eq!(
                (answer.status, answer.json()["code"].as_str()),
                (502, Some("UPSTREAM_TRUNCATED")),
                "{how} {place}"
            );
            // A last frame without its blank line is heard if the body ended as it should; half a frame is none.
            assert!(place < ends[0] || how == "reset", "{how} {place}: the agent had begun");
            return;
        }
        let story = Story::read(&stream.frames().await);
        // The last frame counts without its blank line, or half of it; a reset may overtake what was sent before.
        let complete = place + 2 >= last;
        match story.status.as_str() {
            "completed" => assert!(complete, "{how} {place}: completed too early"),
            "failed" => {
                assert!(!complete || how == "reset", "{how} {place}: {}", story.last);
                assert_eq!(story.code(), "UPSTREAM_TRUNCATED", "{how} {place}");
            }
            other => panic!("{how} {place}: {other}"),
        }
        if how == "close" {
            assert_eq!(gateway.run("friday", &story.id).await, story.last, "{how} {place}");
        }
    });
    let mut tries = futures_util::stream::iter(tries.map(Box::pin)).buffer_unordered(16);
    while tries.next().await.is_some() {}
}

#[tokio::test]
async fn no_way_of_cutting_an_answer_changes_what_its_client_sees() {
    let whole = include_bytes!("../transcripts/agentscope/agentscope-parallel.sse");
    let upstream = Upstream::deciding(move |asked| {
        let size = last_said(&asked.json()).parse().expect("a size");
        Answer::events().pieces(whole, size).done()
    });
    let gateway = before(&upstream, "").await;
    let told = |story: Story| -> Vec<Value> { story.completed().messages };
    let expected = told(gateway.story("friday", &says("100000")).await);
    for size in [1, 2, 3, 7, 64, 1000] {
        assert_eq!(told(gateway.story("friday", &says(&size.to_string())).await), expected, "in pieces of {size}");
    }
}
