//! Clients that leave, stay away, or hardly read: whose run goes on, whose is cancelled, and who pays for it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::agent::{beginning, saying_and_hanging, saying_until, word};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, says, says_in};
use crate::support::http::{Exchange, request};
use crate::support::story::Story;
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

/// A departed client is noticed at once, not when its heartbeat is due.
const PROMPTLY: Duration = Duration::from_secs(1);

/// Waits until the agent's only run stands so.
async fn stands(gateway: &Gateway, agent: &str, status: &str) -> serde_json::Value {
    until(&format!("a run that is {status}"), async || {
        let runs = gateway.get(&format!("/agents/{agent}/runs")).await.json();
        (runs["data"][0]["status"] == status).then(|| runs["data"][0].clone())
    })
    .await
}

/// A client leaves once the agent was asked, or has answered so much; the agent has to notice at once.
async fn leaves(answer: Answer, seen: Option<&str>, reset: bool) -> (Gateway, Upstream) {
    let upstream = Upstream::always(answer);
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    upstream.wait_asked(1).await;
    if let Some(text) = seen {
        stream.until(text).await;
    }
    let left = Instant::now();
    if reset {
        stream.reset()
    } else {
        drop(stream)
    }
    upstream.wait_left(1).await;
    assert!(left.elapsed() < PROMPTLY, "noticed after {:?}", left.elapsed());
    stands(&gateway, "friday", "canceled").await;
    (gateway, upstream)
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_cancels_the_agent() {
    leaves(Answer::silence(), None, false).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_cancels_the_agent() {
    leaves(Answer::events().hang(), None, false).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_cancels_the_agent_and_what_was_said_stays() {
    let (gateway, _upstream) = leaves(saying_and_hanging(&["so ", "far"]), Some("far"), false).await;
    let run = stands(&gateway, "friday", "canceled").await;
    let run = gateway.run("friday", run["id"].as_str().expect("an id")).await;
    assert_eq!(run["output"][0]["content"][0]["text"], "so far");
    assert_eq!(run["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn a_client_whose_connection_is_reset_has_left_too() {
    leaves(saying_and_hanging(&["so far"]), Some("so far"), true).await;
    leaves(Answer::silence(), None, true).await;
}

#[tokio::test]
async fn a_client_that_waits_for_the_whole_answer_can_leave_as_well() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = says("hi");
    body["stream"] = json!(false);
    let waiting = gateway.ask("friday", &body).await;
    upstream.wait_asked(1).await;
    stands(&gateway, "friday", "in_progress").await;
    let left = Instant::now();
    drop(waiting);
    upstream.wait_left(1).await;
    assert!(left.elapsed() < PROMPTLY);
    stands(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn an_agent_with_a_way_to_be_stopped_is_told_when_its_client_leaves() {
    let upstream = Upstream::deciding(|asked| match asked.path.as_str() {
        "/stop" => Answer::whole(200, &[("content-type", "application/json")], "{}"),
        _ => saying_and_hanging(&["so far"]),
    });
    let stop = format!("options = {{ stop_url = \"{}\" }}", upstream.url("/stop"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", &stop)).await;
    let mut stream = gateway.ask("friday", &says_in("s-1", "hi")).await;
    stream.until("so far").await;
    drop(stream);
    upstream.wait_asked(2).await;
    let asked = upstream.asked();
    assert_eq!((asked[1].path.as_str(), &asked[1].json()["session_id"]), ("/stop", &json!("s-1")));
    assert_eq!(asked[1].json()["user_id"], asked[0].json()["user_id"]);
}

#[tokio::test]
async fn a_stop_url_at_another_origin_gets_none_of_the_agents_headers() {
    let upstream = Upstream::deciding(|asked| match asked.path.as_str() {
        "/stop" => Answer::whole(200, &[("content-type", "application/json")], "{}"),
        _ => saying_and_hanging(&["so far"]),
    });
    let elsewhere = Upstream::always(Answer::whole(200, &[("content-type", "application/json")], "{}"));
    for (stops, its_own) in [(&upstream, true), (&elsewhere, false)] {
        let before = stops.asked().len();
        let settings =
            format!("options = {{ stop_url = \"{}\" }}\nheaders = {{ x-team = \"blue\" }}", stops.url("/stop"));
        let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", &settings)).await;
        let mut stream = gateway.ask("friday", &says("hi")).await;
        stream.until("so far").await;
        drop(stream);
        let told = until("the agent to be told to stop", async || {
            stops.asked()[before..].iter().find(|asked| asked.path == "/stop").cloned()
        })
        .await;
        assert_eq!(told.headers.contains_key("x-team"), its_own);
    }
    assert!(upstream.asked().iter().all(|asked| asked.headers.contains_key("x-team")), "it gets them always");
}

#[tokio::test]
async fn where_the_route_says_so_a_run_goes_on_without_its_client() {
    let upstream = Upstream::always(saying_until(&["on and on"], "on"));
    let config = format!("{}{ROUTE}on_disconnect = \"detach\"\n", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with(&config).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let frames = stream.until("on and on").await;
    drop(stream);
    let id = frames[0]["id"].as_str().expect("an id");
    upstream.open("on");
    let outcome = gateway.outcome("friday", id).await;
    assert_eq!(
        (outcome["status"].as_str(), &outcome["output"][0]["content"][0]["text"]),
        (Some("completed"), &json!("on and on"))
    );
    assert_eq!(upstream.left(), 0);
}

#[tokio::test]
async fn a_task_in_the_background_needs_no_client() {
    let upstream = Upstream::always(saying_until(&["done in peace"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = says("hi");
    body["timeout"] = json!(30);
    let submitted = gateway.post("/agents/friday/process/task", &body).await;
    assert_eq!(submitted.status, 200);
    let submitted = submitted.json();
    assert_eq!(submitted["status"], "submitted");
    let task = format!("/agents/friday/process/task/{}", submitted["task_id"].as_str().expect("an id"));
    upstream.wait_asked(1).await;
    assert!(upstream.asked()[0].json().get("timeout").is_none(), "the task's setting is not the agent's");
    let running = until("the task to run", async || {
        let status = gateway.get(&task).await.json();
        (status["status"] == "running").then_some(status)
    })
    .await;
    assert!(running["started_at"].is_u64(), "{running}");
    upstream.open("on");
    let finished = until("the task to finish", async || {
        let status = gateway.get(&task).await.json();
        (status["status"] == "finished").then_some(status)
    })
    .await;
    assert_eq!(finished["result"]["output"][0]["content"][0]["text"], "done in peace");
    let unknown = gateway.get("/agents/friday/process/task/nonsense").await;
    assert_eq!((unknown.status, unknown.json()), (200, json!({ "error": "Task nonsense not found" })));
}

#[tokio::test]
async fn a_run_with_several_followers_ends_with_the_client_it_belongs_to() {
    let upstream = Upstream::always(saying_and_hanging(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let id = stream.until("so far").await[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/events");
    let mut other = gateway.open("GET", &path, &[], b"").await;
    let mut seen = other.until("so far").await;
    // Somebody who only looks may leave.
    let mut third = gateway.open("GET", &path, &[], b"").await;
    third.until("so far").await;
    drop(third);
    assert_eq!(gateway.run("friday", &id).await["status"], "in_progress");
    drop(stream);
    upstream.wait_left(1).await;
    seen.extend(other.frames().await);
    assert_eq!(Story::read(&seen).status, "canceled", "and who looks is told of the end");
}

/// An agent that would say a kilobyte at a time for ever, as fast as it can.
fn torrent() -> Upstream {
    let begun = beginning().iter().fold(Answer::events(), |answer, frame| answer.frame(frame));
    let frame = format!("data: {}\n\n", word(&"x".repeat(1000)));
    Upstream::always(begun.flood(format!("{:x}\r\n{frame}\r\n", frame.len())))
}

#[tokio::test]
async fn a_slow_reader_holds_its_agent_back_and_nobody_else() {
    let upstream = torrent();
    let agents = format!("{}{DEMO}", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::start(&agents).await;
    let body = says("hi").to_string();
    let asked = request("POST", "/agents/friday/process", crate::support::gateway::JSON, body.as_bytes());
    let mut slow = Exchange::send_and_read_slowly(gateway.address, &asked).await;
    assert_eq!(slow.status().await, 200);
    // The gateway reads until its bound is reached, and then no more.
    upstream.wait_written(1 << 20).await;
    let held = until("the agent to be held back", async || {
        let before = upstream.written();
        tokio::time::sleep(Duration::from_millis(200)).await;
        (upstream.written() == before).then_some(before)
    })
    .await;
    // The bound of a run's backlog, and what the buffers of four sockets may hold.
    assert!(held < 24 << 20, "{held} bytes were taken for a client that read none");
    for text in ["echo one", "long 500 0"] {
        gateway.story("demo", &says(text)).await.completed();
    }
    // When it reads on, its agent goes on.
    let until_then = Instant::now() + Duration::from_secs(20);
    while upstream.written() == held {
        assert!(slow.sip(1 << 20).await && Instant::now() < until_then, "the agent is never let go on");
    }
    // And when it leaves, its agent is cancelled, held back or not.
    slow.reset();
    upstream.wait_left(1).await;
    stands(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn a_slow_reader_that_leaves_while_its_agent_is_held_back_is_noticed() {
    let upstream = torrent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut slow = gateway.ask("friday", &says("hi")).await;
    assert_eq!(slow.status().await, 200);
    until("the agent to be held back", async || {
        let before = upstream.written();
        tokio::time::sleep(Duration::from_millis(100)).await;
        (upstream.written() == before && before > 1 << 20).then_some(())
    })
    .await;
    drop(slow);
    upstream.wait_left(1).await;
    stands(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn heartbeats_show_that_a_silent_stream_lives() {
    let upstream = Upstream::always(saying_until(&["hm"], "on"));
    let config = format!("{}{ROUTE}heartbeat = \"30ms\"\n", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with(&config).await;
    let mut stream = gateway.ask("friday", &says("hi")).await;
    let mut seen = stream.until("hm").await;
    for _ in 0..3 {
        assert_eq!(stream.event().await.as_deref(), Some(": keep-alive"));
    }
    upstream.open("on");
    seen.extend(stream.frames().await);
    Story::read(&seen).completed();
}
