//! Clients that disconnect or read slowly: which runs continue, which are cancelled, and how back pressure works.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::agent::{opening_frames, text_delta, text_reply_then_hang, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::http::{Exchange, request};
use crate::support::poll_until;
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

/// A disconnect is noticed at once, not when the next heartbeat is due.
const MAX_NOTICE_TIME: Duration = Duration::from_secs(1);

/// Waits until the only run of the agent has this status.
async fn wait_for_status(gateway: &Gateway, agent: &str, status: &str) -> serde_json::Value {
    poll_until(&format!("a run that is {status}"), async || {
        let runs = gateway.get(&format!("/agents/{agent}/runs")).await.json();
        (runs["data"][0]["status"] == status).then(|| runs["data"][0].clone())
    })
    .await
}

/// Disconnects once the agent has received the request, or once the text `seen` has arrived. The agent has to notice
/// at once.
async fn disconnect_when(answer: Reply, seen: Option<&str>, reset: bool) -> (Gateway, Upstream) {
    let upstream = Upstream::always(answer);
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    upstream.wait_for_requests(1).await;
    if let Some(text) = seen {
        stream.read_until(text).await;
    }

    let left = Instant::now();
    if reset {
        stream.reset()
    } else {
        drop(stream)
    }

    upstream.wait_for_disconnects(1).await;
    assert!(left.elapsed() < MAX_NOTICE_TIME, "noticed after {:?}", left.elapsed());
    wait_for_status(&gateway, "friday", "canceled").await;
    (gateway, upstream)
}

#[tokio::test]
async fn a_client_that_disconnects_before_the_response_head_cancels_the_agent() {
    disconnect_when(Reply::silence(), None, false).await;
}

#[tokio::test]
async fn a_client_that_disconnects_before_the_first_byte_cancels_the_agent() {
    disconnect_when(Reply::events().hang(), None, false).await;
}

#[tokio::test]
async fn a_client_that_disconnects_mid_stream_cancels_the_agent_and_the_partial_output_is_kept() {
    let (gateway, _upstream) = disconnect_when(text_reply_then_hang(&["so ", "far"]), Some("far"), false).await;
    let run = wait_for_status(&gateway, "friday", "canceled").await;
    let run = gateway.run("friday", run["id"].as_str().expect("an id")).await;
    assert_eq!(run["output"][0]["content"][0]["text"], "so far");
    assert_eq!(run["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn a_connection_reset_cancels_the_agent_too() {
    disconnect_when(text_reply_then_hang(&["so far"]), Some("so far"), true).await;
    disconnect_when(Reply::silence(), None, true).await;
}

#[tokio::test]
async fn a_client_that_waits_without_streaming_can_disconnect_too() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = user_turn("hi");
    body["stream"] = json!(false);
    let waiting = gateway.start_turn("friday", &body).await;
    upstream.wait_for_requests(1).await;
    wait_for_status(&gateway, "friday", "in_progress").await;
    let left = Instant::now();
    drop(waiting);
    upstream.wait_for_disconnects(1).await;
    assert!(left.elapsed() < MAX_NOTICE_TIME);
    wait_for_status(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn an_agent_with_a_stop_url_is_stopped_when_its_client_disconnects() {
    let upstream = Upstream::with_handler(|request| match request.path.as_str() {
        "/stop" => Reply::complete(200, &[("content-type", "application/json")], "{}"),
        _ => text_reply_then_hang(&["so far"]),
    });
    let stop = format!("options = {{ stop_url = \"{}\" }}", upstream.url("/stop"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", &stop)).await;

    let mut stream = gateway.start_turn("friday", &user_turn_in("s-1", "hi")).await;
    stream.read_until("so far").await;
    drop(stream);
    upstream.wait_for_requests(2).await;
    let request = upstream.requests();
    assert_eq!((request[1].path.as_str(), &request[1].json()["session_id"]), ("/stop", &json!("s-1")));
    assert_eq!(request[1].json()["user_id"], request[0].json()["user_id"]);
}

#[tokio::test]
async fn a_stop_url_at_another_origin_receives_none_of_the_agents_headers() {
    let upstream = Upstream::with_handler(|request| match request.path.as_str() {
        "/stop" => Reply::complete(200, &[("content-type", "application/json")], "{}"),
        _ => text_reply_then_hang(&["so far"]),
    });
    let elsewhere = Upstream::always(Reply::complete(200, &[("content-type", "application/json")], "{}"));

    for (stops, its_own) in [(&upstream, true), (&elsewhere, false)] {
        let before = stops.requests().len();
        let settings =
            format!("options = {{ stop_url = \"{}\" }}\nheaders = {{ x-team = \"blue\" }}", stops.url("/stop"));
        let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", &settings)).await;
        let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
        stream.read_until("so far").await;
        drop(stream);
        let received = poll_until("the stop request", async || {
            stops.requests()[before..].iter().find(|request| request.path == "/stop").cloned()
        })
        .await;
        assert_eq!(received.headers.contains_key("x-team"), its_own);
    }

    assert!(
        upstream.requests().iter().all(|request| request.headers.contains_key("x-team")),
        "the agent itself always gets them"
    );
}

#[tokio::test]
async fn a_run_on_a_detaching_route_continues_without_its_client() {
    let upstream = Upstream::always(text_reply_until(&["on and on"], "on"));
    let config = format!("{}{ROUTE}on_disconnect = \"detach\"\n", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with_config(&config).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let frames = stream.read_until("on and on").await;
    drop(stream);
    let id = frames[0]["id"].as_str().expect("an id");
    upstream.open("on");
    let outcome = gateway.final_frame("friday", id).await;
    assert_eq!(
        (outcome["status"].as_str(), &outcome["output"][0]["content"][0]["text"]),
        (Some("completed"), &json!("on and on"))
    );
    assert_eq!(upstream.disconnects(), 0);
}

#[tokio::test]
async fn a_protocol_decides_what_happens_to_runs_without_clients_unless_the_route_does() {
    for (own, is_canceled) in [("", false), ("on_disconnect = \"cancel\"\n", true)] {
        let upstream = Upstream::always(text_reply_until(&["on and on"], "on"));
        let route = format!(
            "[[routes]]\nprotocol = \"resender\"\npath = \"/resent/{{agent}}\"\noptions = {{ detaches = true }}\n{own}"
        );
        let config = format!("{}{ROUTE}{route}", agent("friday", &upstream.url("/process"), "", ""));
        let gateway = Gateway::with_config(&config).await;
        let message = json!({ "role": "user", "content": [{ "type": "text", "text": "hi" }] });
        let body = json!({ "input": [message], "stream": true });
        let mut stream = gateway.start_post("/resent/friday", &body).await;
        stream.read_until("on and on").await;
        drop(stream);
        if is_canceled {
            upstream.wait_for_disconnects(1).await;
        }
        upstream.open("on");

        wait_for_status(&gateway, "friday", if is_canceled { "canceled" } else { "completed" }).await;
    }
}

#[tokio::test]
async fn a_background_task_needs_no_client() {
    let upstream = Upstream::always(text_reply_until(&["done in peace"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = user_turn("hi");
    body["timeout"] = json!(30);
    let submitted = gateway.post("/agents/friday/process/task", &body).await;
    assert_eq!(submitted.status, 200);

    let submitted = submitted.json();
    assert_eq!(submitted["status"], "submitted");
    let task = format!("/agents/friday/process/task/{}", submitted["task_id"].as_str().expect("an id"));
    upstream.wait_for_requests(1).await;
    assert!(upstream.requests()[0].json().get("timeout").is_none(), "the timeout of the task is not passed on");

    let running = poll_until("the task to run", async || {
        let status = gateway.get(&task).await.json();
        (status["status"] == "running").then_some(status)
    })
    .await;
    assert!(running["started_at"].is_u64(), "{running}");

    upstream.open("on");
    let finished = poll_until("the task to finish", async || {
        let status = gateway.get(&task).await.json();
        (status["status"] == "finished").then_some(status)
    })
    .await;
    assert_eq!(finished["result"]["output"][0]["content"][0]["text"], "done in peace");
    let unknown = gateway.get("/agents/friday/process/task/nonsense").await;
    assert_eq!((unknown.status, unknown.json()), (200, json!({ "error": "Task nonsense not found" })));
}

#[tokio::test]
async fn a_run_with_several_followers_is_cancelled_when_its_owner_disconnects() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let id = stream.read_until("so far").await[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/agents/friday/runs/{id}/events");
    let mut other = gateway.open("GET", &path, &[], b"").await;
    let mut seen = other.read_until("so far").await;

    // A mere follower may disconnect.
    let mut third = gateway.open("GET", &path, &[], b"").await;
    third.read_until("so far").await;
    drop(third);
    assert_eq!(gateway.run("friday", &id).await["status"], "in_progress");

    drop(stream);
    upstream.wait_for_disconnects(1).await;
    seen.extend(other.frames().await);
    assert_eq!(Transcript::parse(&seen).status, "canceled", "followers see the end");
}

/// An agent that sends one-kilobyte deltas without end, as fast as it can.
fn flooding_agent() -> Upstream {
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let frame = format!("data: {}\n\n", text_delta(&"x".repeat(1000)));
    Upstream::always(started.flood(format!("{:x}\r\n{frame}\r\n", frame.len())))
}

#[tokio::test]
async fn a_slow_reader_applies_back_pressure_to_its_own_agent_only() {
    let upstream = flooding_agent();
    let agents = format!("{}{DEMO}", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::start(&agents).await;
    let body = user_turn("hi").to_string();
    let requests = request("POST", "/agents/friday/process", crate::support::gateway::JSON, body.as_bytes());
    let mut slow = Exchange::send_with_small_buffer(gateway.address, &requests).await;
    assert_eq!(slow.status().await, 200);

    // The gateway reads from the agent up to its limit and then stops.
    upstream.wait_for_written(1 << 20).await;
    let held = poll_until("the agent to be held back", async || {
        let before = upstream.written();
        tokio::time::sleep(Duration::from_millis(200)).await;
        (upstream.written() == before).then_some(before)
    })
    .await;

    // The limit of the backlog of a run, plus the buffers of four sockets.
    assert!(held < 24 << 20, "{held} bytes were accepted for a client that read none");
    for text in ["echo one", "long 500 0"] {
        gateway.run_turn("demo", &user_turn(text)).await.expect_completed();
    }

    // When the client reads again, the agent continues.
    let until_then = Instant::now() + Duration::from_secs(20);
    while upstream.written() == held {
        assert!(slow.read_some(1 << 20).await && Instant::now() < until_then, "the agent does not continue");
    }

    // When the client disconnects, the agent is cancelled even under back pressure.
    slow.reset();
    upstream.wait_for_disconnects(1).await;
    wait_for_status(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn a_slow_reader_that_disconnects_under_back_pressure_is_noticed() {
    let upstream = flooding_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut slow = gateway.start_turn("friday", &user_turn("hi")).await;
    assert_eq!(slow.status().await, 200);
    poll_until("the agent to be held back", async || {
        let before = upstream.written();
        tokio::time::sleep(Duration::from_millis(100)).await;
        (upstream.written() == before && before > 1 << 20).then_some(())
    })
    .await;
    drop(slow);
    upstream.wait_for_disconnects(1).await;
    wait_for_status(&gateway, "friday", "canceled").await;
}

#[tokio::test]
async fn heartbeats_keep_a_silent_stream_alive() {
    let upstream = Upstream::always(text_reply_until(&["hm"], "on"));
    let config = format!("{}{ROUTE}heartbeat = \"30ms\"\n", agent("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with_config(&config).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    let mut seen = stream.read_until("hm").await;
    for _ in 0..3 {
        assert_eq!(stream.event().await.as_deref(), Some(": keep-alive"));
    }

    upstream.open("on");
    seen.extend(stream.frames().await);
    Transcript::parse(&seen).expect_completed();
}
