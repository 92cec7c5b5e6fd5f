//! Successful replies: delivered completely and without delay, in every form that a client can request.

use serde_json::json;

use crate::support::agent::{frames, text_reply, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, agent, user_turn, user_turn_in};
use crate::support::http::data;
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

#[tokio::test]
async fn a_reply_is_streamed_to_the_client() {
    let upstream = Upstream::always(text_reply(&["Hello", ", ", "world", "!"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn_in("s-1", "hi")).await;
    assert_eq!(stream.status().await, 200);
    assert_eq!(stream.header("content-type").await.as_deref(), Some("text/event-stream; charset=utf-8"));
    assert_eq!(stream.header("cache-control").await.as_deref(), Some("no-cache"));

    let transcript = Transcript::parse(&stream.frames().await).expect_completed();
    assert_eq!((transcript.text().as_str(), transcript.session.as_str()), ("Hello, world!", "s-1"));
    assert_eq!(transcript.last["usage"]["output_tokens"], 2);
    let request = upstream.requests()[0].json();
    assert_eq!(request["id"], transcript.id, "the response has the id of the run");
    assert_eq!(request["session_id"], "s-1");
    assert!(request["user_id"].is_string(), "without both ids all anonymous clients would share one upstream lock");
    assert_eq!(request["input"][0]["content"][0]["text"], "hi");
}

#[tokio::test]
async fn events_are_delivered_before_the_agent_finishes() {
    let upstream = Upstream::always(text_reply_until(&["first"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut seen = stream.read_until("first").await;
    upstream.open("on");
    seen.extend(stream.frames().await);
    assert_eq!(Transcript::parse(&seen).expect_completed().text(), "first");
}

#[tokio::test]
async fn the_response_starts_before_the_agent_sends_its_first_frame() {
    // The agent sent its head and no frame: the stream starts when the first heartbeat is due.
    let upstream =
        Upstream::always(frames(&["late"]).iter().fold(Reply::events().wait("on"), |all, one| all.frame(one)).done());
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"50ms\"\n{}{}",
        agent("friday", &upstream.url("/process"), "", ""),
        crate::support::gateway::ROUTE
    );
    let gateway = Gateway::with_config(&config).await;

    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    assert_eq!(stream.status().await, 200);
    let created = stream.frame().await.expect("the response begins");
    assert_eq!((created["object"].as_str(), created["status"].as_str()), (Some("response"), Some("created")));

    let second = stream.frame().await.expect("and goes on");
    let heartbeat = stream.event().await.expect("a heartbeat");
    assert_eq!((heartbeat.as_str(), data(&heartbeat)), (": keep-alive", None));
    upstream.open("on");
    let mut seen = vec![created, second];
    seen.extend(stream.frames().await);
    assert_eq!(Transcript::parse(&seen).expect_completed().text(), "late");
}

#[tokio::test]
async fn a_response_can_be_requested_without_streaming() {
    let upstream = Upstream::always(text_reply(&["Hel", "lo"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = user_turn_in("s-1", "hi");
    body["stream"] = json!(false);
    let answer = gateway.post("/agents/friday/process", &body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));

    let response = answer.json();
    assert_eq!((response["object"].as_str(), response["status"].as_str()), (Some("response"), Some("completed")));
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    let id = response["id"].as_str().expect("an id");
    assert_eq!(gateway.run("friday", id).await, response, "it equals the stored run");

    // It also equals the terminal frame of the event stream.
    assert_eq!(gateway.final_frame("friday", id).await, response);
}

#[tokio::test]
async fn every_demo_command_produces_a_valid_stream() {
    let gateway = Gateway::start(DEMO).await;
    let shows = [
        ("hello", "completed"),
        ("help", "completed"),
        ("long 200 0", "completed"),
        ("reasoning", "completed"),
        ("overlap", "completed"),
        ("tool", "completed"),
        ("parallel", "completed"),
        ("mcp", "completed"),
        ("component", "completed"),
        ("client tool", "completed"),
        ("approval", "completed"),
        ("question", "completed"),
        ("login", "completed"),
        ("image", "completed"),
        ("audio", "completed"),
        ("video", "completed"),
        ("file", "completed"),
        ("data", "completed"),
        ("refusal", "completed"),
        ("warning", "completed"),
        ("unicode", "completed"),
        ("history", "completed"),
        ("usage", "completed"),
        ("heartbeat", "completed"),
        ("empty", "completed"),
        ("error", "failed"),
        ("fail", "failed"),
        ("incomplete", "incomplete"),
        ("reject", "rejected"),
        ("cancel", "canceled"),
        ("break", "failed"),
    ];

    for (word, status) in shows {
        let transcript = gateway.run_turn("demo", &user_turn(word)).await;
        assert_eq!(transcript.status, status, "{word}: {}", transcript.last);
        assert!(
            !transcript.last.to_string().contains("RuntimeError"),
            "internal details are hidden: {}",
            transcript.last
        );
        let run = gateway.run("demo", &transcript.id).await;
        assert_eq!(run, transcript.last, "{word}: the stored run equals the terminal frame");
    }
}

#[tokio::test]
async fn a_plain_json_reply_of_an_agent_becomes_a_stream() {
    let full = frames(&["all at once"]).pop().expect("the last frame");
    let upstream = Upstream::always(Reply::complete(200, &[("content-type", "application/json")], full));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    assert_eq!(gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text(), "all at once");
}

#[tokio::test]
async fn a_run_is_visible_on_every_route_of_its_agent_and_on_no_other() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let config = format!(
        "{}{}[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/other\"\nagents = [\"friday\"]\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/alone\"\nagents = [\"friday\"]\nshared_sessions = false\n",
        agent("friday", &upstream.url("/process"), "", ""),
        DEMO,
    );
    let gateway = Gateway::with_config(&config).await;

    let transcript = gateway.run_turn("friday", &user_turn("hi")).await.expect_completed();
    let there = gateway.get(&format!("/other/runs/{}", transcript.id)).await;
    assert_eq!((there.status, there.json()), (200, transcript.last.clone()));
    let mut events = gateway.open("GET", &format!("/other/runs/{}/events", transcript.id), &[], b"").await;
    assert_eq!(Transcript::parse(&events.frames().await).last, transcript.last);
    for stranger in ["/agents/demo", "/alone"] {
        let response = gateway.get(&format!("{stranger}/runs/{}", transcript.id)).await;
        assert_eq!(
            (response.status, response.json()["code"].as_str()),
            (404, Some("RESOURCE_NOT_FOUND")),
            "{stranger}"
        );
    }

    let own = gateway.post("/alone/process", &user_turn_in("s", "hi")).await;
    assert_eq!(own.status, 200);
    assert_eq!(gateway.get("/alone/runs").await.json()["total"], 1);
    assert_eq!(gateway.get("/other/runs").await.json()["total"], 1);
}

#[tokio::test]
async fn each_agent_has_its_own_mount() {
    let upstream = Upstream::with_handler(|request| text_reply(&["I am ", request.path.trim_start_matches('/')]));
    let agents =
        format!("{}{}", agent("a", &upstream.url("/anna"), "", ""), agent("b", &upstream.url("/bert"), "", ""));
    let gateway = Gateway::start(&agents).await;
    assert_eq!(gateway.run_turn("a", &user_turn("hi")).await.expect_completed().text(), "I am anna");
    assert_eq!(gateway.run_turn("b", &user_turn("hi")).await.expect_completed().text(), "I am bert");
    assert_eq!(gateway.get("/agents/c/runs").await.status, 404);
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_turn() {
    let gateway = Gateway::start(DEMO).await;
    let ask = |text| {
        let body = user_turn(text).to_string();
        crate::support::http::request("POST", "/agents/demo/process", crate::support::gateway::JSON, body.as_bytes())
    };
    let mut stream = gateway.open("GET", "/healthz", &[], b"").await;
    assert_eq!(stream.read_response().await.json(), json!({ "status": "ok" }));

    for text in ["echo one", "echo two"] {
        stream.send_next(&ask(text)).await;
        assert_eq!(
            Transcript::parse(&stream.frames().await).expect_completed().text(),
            text.trim_start_matches("echo ")
        );
    }
}
