//! An answer on its good days: it comes through whole, at once, in every form a client may ask for.

use serde_json::json;

use crate::support::agent::{frames, saying, saying_until};
use crate::support::gateway::{DEMO, Gateway, agent, says, says_in};
use crate::support::http::data;
use crate::support::story::Story;
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn a_greeting_comes_through() {
    let upstream = Upstream::always(saying(&["Hello", ", ", "world", "!"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says_in("s-1", "hi")).await;
    assert_eq!(stream.status().await, 200);
    assert_eq!(stream.header("content-type").await.as_deref(), Some("text/event-stream; charset=utf-8"));
    assert_eq!(stream.header("cache-control").await.as_deref(), Some("no-cache"));
    let story = Story::read(&stream.frames().await).completed();
    assert_eq!((story.text().as_str(), story.session.as_str()), ("Hello, world!", "s-1"));
    assert_eq!(story.last["usage"]["output_tokens"], 2);
    let asked = upstream.asked()[0].json();
    assert_eq!(asked["id"], story.id, "the response has the id of the run");
    assert_eq!(asked["session_id"], "s-1");
    assert!(asked["user_id"].is_string(), "without both ids all anonymous clients share one lock");
    assert_eq!(asked["input"][0]["content"][0]["text"], "hi");
}

#[tokio::test]
async fn every_event_arrives_while_the_agent_still_thinks_about_the_next() {
    let upstream = Upstream::always(saying_until(&["first"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut seen = stream.until("first").await;
    upstream.open("on");
    seen.extend(stream.frames().await);
    assert_eq!(Story::read(&seen).completed().text(), "first");
}

#[tokio::test]
async fn an_agent_that_has_said_nothing_yet_does_not_keep_the_response_from_beginning() {
    // The head is there, and no frame: the stream begins once the heartbeat is due.
    let upstream =
        Upstream::always(frames(&["late"]).iter().fold(Answer::events().wait("on"), |all, one| all.frame(one)).done());
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nheartbeat = \"50ms\"\n{}{}",
        agent("friday", &upstream.url("/process"), "", ""),
        crate::support::gateway::ROUTE
    );
    let gateway = Gateway::with(&config).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    assert_eq!(stream.status().await, 200);
    let created = stream.frame().await.expect("the response begins");
    assert_eq!((created["object"].as_str(), created["status"].as_str()), (Some("response"), Some("created")));
    let second = stream.frame().await.expect("and goes on");
    let beat = stream.event().await.expect("a sign of life");
    assert_eq!((beat.as_str(), data(&beat)), (": keep-alive", None));
    upstream.open("on");
    let mut seen = vec![created, second];
    seen.extend(stream.frames().await);
    assert_eq!(Story::read(&seen).completed().text(), "late");
}

#[tokio::test]
async fn an_answer_can_be_had_whole() {
    let upstream = Upstream::always(saying(&["Hel", "lo"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = says_in("s-1", "hi");
    body["stream"] = json!(false);
    let answer = gateway.post("/agents/friday/process", &body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let response = answer.json();
    assert_eq!((response["object"].as_str(), response["status"].as_str()), (Some("response"), Some("completed")));
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    let id = response["id"].as_str().expect("an id");
    assert_eq!(gateway.run("friday", id).await, response, "it is the run as it is kept");
    // And it is the last frame of the stream it would have been.
    assert_eq!(gateway.outcome("friday", id).await, response);
}

#[tokio::test]
async fn whatever_the_demo_agent_shows_keeps_the_rules() {
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
        let story = gateway.story("demo", &says(word)).await;
        assert_eq!(story.status, status, "{word}: {}", story.last);
        assert!(!story.last.to_string().contains("RuntimeError"), "insides stay inside: {}", story.last);
        let run = gateway.run("demo", &story.id).await;
        assert_eq!(run, story.last, "{word}: what is kept is what was told");
    }
}

#[tokio::test]
async fn an_answer_of_a_server_that_does_not_stream_becomes_a_stream() {
    let whole = frames(&["all at once"]).pop().expect("the last frame");
    let upstream = Upstream::always(Answer::whole(200, &[("content-type", "application/json")], whole));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    assert_eq!(gateway.story("friday", &says("hi")).await.completed().text(), "all at once");
}

#[tokio::test]
async fn a_run_is_seen_over_every_route_of_its_agent_and_no_other() {
    let upstream = Upstream::always(saying(&["hi"]));
    let config = format!(
        "{}{}[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/other\"\nagents = [\"friday\"]\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/alone\"\nagents = [\"friday\"]\nshared_sessions = false\n",
        agent("friday", &upstream.url("/process"), "", ""),
        DEMO,
    );
    let gateway = Gateway::with(&config).await;
    let story = gateway.story("friday", &says("hi")).await.completed();
    let there = gateway.get(&format!("/other/runs/{}", story.id)).await;
    assert_eq!((there.status, there.json()), (200, story.last.clone()));
    let mut events = gateway.open("GET", &format!("/other/runs/{}/events", story.id), &[], b"").await;
    assert_eq!(Story::read(&events.frames().await).last, story.last);
    for stranger in ["/agents/demo", "/alone"] {
        let answer = gateway.get(&format!("{stranger}/runs/{}", story.id)).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("RESOURCE_NOT_FOUND")), "{stranger}");
    }
    let own = gateway.post("/alone/process", &says_in("s", "hi")).await;
    assert_eq!(own.status, 200);
    assert_eq!(gateway.get("/alone/runs").await.json()["total"], 1);
    assert_eq!(gateway.get("/other/runs").await.json()["total"], 1);
}

#[tokio::test]
async fn agents_have_a_mount_each() {
    let upstream = Upstream::deciding(|asked| saying(&["I am ", asked.path.trim_start_matches('/')]));
    let agents =
        format!("{}{}", agent("a", &upstream.url("/anna"), "", ""), agent("b", &upstream.url("/bert"), "", ""));
    let gateway = Gateway::start(&agents).await;
    assert_eq!(gateway.story("a", &says("hi")).await.completed().text(), "I am anna");
    assert_eq!(gateway.story("b", &says("hi")).await.completed().text(), "I am bert");
    assert_eq!(gateway.get("/agents/c/runs").await.status, 404);
}

#[tokio::test]
async fn two_requests_over_one_connection_have_an_answer_each() {
    let gateway = Gateway::start(DEMO).await;
    let ask = |text| {
        let body = says(text).to_string();
        crate::support::http::request("POST", "/agents/demo/process", crate::support::gateway::JSON, body.as_bytes())
    };
    let mut stream = gateway.open("GET", "/healthz", &[], b"").await;
    assert_eq!(stream.answer_here().await.json(), json!({ "status": "ok" }));
    for text in ["echo one", "echo two"] {
        stream.again(&ask(text)).await;
        assert_eq!(Story::read(&stream.frames().await).completed().text(), text.trim_start_matches("echo "));
    }
}
