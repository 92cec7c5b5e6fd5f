//! Sessions: ownership, queueing of turns, and conversation history.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::agent::{frames, response, text_reply, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, last_input_text, user_turn, user_turn_in};
use crate::support::poll_until;
use crate::support::transcript::Transcript;
use crate::support::upstream::{Reply, Upstream};

/// An agent that echoes its input. An input that starts with "hold" waits for the gate of the same name.
fn echo_agent() -> Upstream {
    Upstream::with_handler(|request| {
        let input = last_input_text(&request.json());
        if input.starts_with("hold") {
            text_reply_until(&["you said ", &input], &input)
        } else {
            text_reply(&["you said ", &input])
        }
    })
}

/// Waits until a session has this number of runs.
async fn runs_of(gateway: &Gateway, session: &str, count: u64) {
    poll_until("the session's runs", async || {
        let runs = gateway.get(&format!("/agents/friday/runs?session_id={session}")).await.json();
        (runs["total"].as_u64() >= Some(count)).then_some(())
    })
    .await;
}

/// The messages of a request, one line each.
fn messages(body: &Value) -> Vec<String> {
    let messages = body["input"].as_array().expect("an input");
    let line = |message: &Value| {
        let kind = message["type"].as_str().unwrap_or("message");
        let what = match kind {
            "message" => message["content"][0]["text"].as_str().unwrap_or("").to_owned(),
            kind => format!("<{kind} {}>", message["content"][0]["data"]["call_id"].as_str().unwrap_or("")),
        };
        format!("{}: {what}", message["role"].as_str().unwrap_or("-"))
    };
    messages.iter().map(line).collect()
}

#[tokio::test]
async fn anonymous_clients_get_distinct_sessions_and_users() {
    let upstream = Upstream::with_handler(|_| text_reply_until(&["hi"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut asking = Vec::new();
    for _ in 0..8 {
        asking.push(gateway.start_turn("friday", &user_turn("hello")).await);
    }

    upstream.wait_for_requests(8).await;
    let pairs: HashSet<(String, String)> = upstream
        .requests()
        .iter()
        .map(|request| {
            let body = request.json();
            let id = |name: &str| body[name].as_str().expect("an id, since none is a lock that all share").to_owned();
            (id("user_id"), id("session_id"))
        })
        .collect();
    assert_eq!(pairs.len(), 8, "{pairs:?}");

    upstream.open("on");
    let mut sessions = HashSet::new();
    for mut stream in asking {
        sessions.insert(Transcript::parse(&stream.frames().await).expect_completed().session);
    }
    assert_eq!(sessions.len(), 8);
}

#[tokio::test]
async fn the_ids_a_client_sends_are_passed_upstream() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = user_turn_in("s-1", "hi");
    body["user_id"] = json!("u-1");
    body["biz_params"] = json!({ "x": 1 });
    gateway.run_turn("friday", &body).await.expect_completed();
    let request = upstream.requests()[0].json();
    assert_eq!((&request["user_id"], &request["session_id"]), (&json!("u-1"), &json!("s-1")));
    assert_eq!(request["biz_params"], json!({ "x": 1 }));
}

#[tokio::test]
async fn parallel_turns_of_a_session_are_queued_in_order() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut streams = Vec::new();
    for (index, text) in ["hold 1", "hold 2", "three", "four"].into_iter().enumerate() {
        streams.push(gateway.start_turn("friday", &user_turn_in("s", text)).await);
        runs_of(&gateway, "s", index as u64 + 1).await;
    }
    upstream.wait_for_requests(1).await;

    // Other sessions are not blocked.
    gateway.run_turn("friday", &user_turn_in("other", "quick")).await.expect_completed();
    assert_eq!(upstream.requests().len(), 2, "one turn of a session at a time");
    for gate in ["hold 1", "hold 2"] {
        upstream.open(gate);
    }
    for (stream, text) in streams.iter_mut().zip(["hold 1", "hold 2", "three", "four"]) {
        assert_eq!(Transcript::parse(&stream.frames().await).expect_completed().text(), format!("you said {text}"));
    }
    let order: Vec<String> = upstream.requests().iter().map(|request| last_input_text(&request.json())).collect();
    assert_eq!(order, ["hold 1", "quick", "hold 2", "three", "four"]);
}

#[tokio::test]
async fn parallel_turns_of_a_session_are_refused_if_configured() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "parallel_turns = \"refuse\"", "")).await;
    let mut first = gateway.start_turn("friday", &user_turn_in("s", "hold")).await;
    let mut seen = first.read_until("you said").await;
    let second = gateway.post("/agents/friday/process", &user_turn_in("s", "me too")).await;
    assert_eq!((second.status, second.json()["code"].as_str()), (409, Some("SESSION_BUSY")));

    let task = gateway.post("/agents/friday/process/task", &user_turn_in("s", "me too")).await;
    assert_eq!(task.status, 409);
    gateway.run_turn("friday", &user_turn_in("other", "quick")).await.expect_completed();
    upstream.open("hold");
    seen.extend(first.frames().await);
    Transcript::parse(&seen).expect_completed();
    gateway.run_turn("friday", &user_turn_in("s", "now")).await.expect_completed();
    assert_eq!(upstream.requests().len(), 3, "refused turns did not reach the agent");
}

#[tokio::test]
async fn a_queued_turn_can_be_cancelled_and_lets_the_next_one_through() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.start_turn("friday", &user_turn_in("s", "hold")).await;
    let mut seen = first.read_until("you said").await;
    let queued = gateway.post("/agents/friday/process/task", &user_turn_in("s", "never mind")).await.json();
    let id = queued["task_id"].as_str().expect("an id");
    assert_eq!(gateway.get(&format!("/agents/friday/process/task/{id}")).await.json(), json!({ "status": "pending" }));

    let mut third = gateway.start_turn("friday", &user_turn_in("s", "after you")).await;
    runs_of(&gateway, "s", 3).await;
    let stopped = gateway.post(&format!("/agents/friday/runs/{id}/cancel"), &json!({})).await;
    assert_eq!((stopped.status, stopped.json()["status"].as_str()), (200, Some("canceled")));

    upstream.open("hold");
    seen.extend(first.frames().await);
    Transcript::parse(&seen).expect_completed();
    Transcript::parse(&third.frames().await).expect_completed();
    let order: Vec<String> = upstream.requests().iter().map(|request| last_input_text(&request.json())).collect();
    assert_eq!(order, ["hold", "after you"]);
}

#[tokio::test]
async fn a_queued_turn_whose_client_disconnects_never_reaches_the_agent() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.start_turn("friday", &user_turn_in("s", "hold")).await;
    let mut seen = first.read_until("you said").await;
    let second = gateway.start_turn("friday", &user_turn_in("s", "never mind")).await;
    runs_of(&gateway, "s", 2).await;
    drop(second);
    poll_until("the run to be canceled", async || {
        let runs = gateway.get("/agents/friday/runs?session_id=s").await.json();
        runs["data"].as_array()?.iter().any(|run| run["status"] == "canceled").then_some(())
    })
    .await;
    upstream.open("hold");
    seen.extend(first.frames().await);
    Transcript::parse(&seen).expect_completed();
    gateway.run_turn("friday", &user_turn_in("s", "next")).await.expect_completed();
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn an_agent_that_keeps_history_receives_only_new_messages() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"upstream\"", "")).await;
    for text in ["one", "two"] {
        gateway.run_turn("friday", &user_turn_in("s", text)).await.expect_completed();
    }

    let requests = upstream.requests();
    assert_eq!(messages(&requests[1].json()), ["user: two"]);
    assert_eq!(requests[0].json()["session_id"], requests[1].json()["session_id"]);
    assert_eq!(requests[0].json()["user_id"], requests[1].json()["user_id"]);
}

#[tokio::test]
async fn an_agent_without_history_receives_the_whole_conversation() {
    let upstream = Upstream::with_handler(|request| {
        let input = last_input_text(&request.json());
        match input.as_str() {
            "die" => frames(&["half"])[..4].iter().fold(Reply::events(), |reply, frame| reply.frame(frame)).close(),
            _ => text_reply(&["you said ", &input]),
        }
    });
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"gateway\"", "")).await;
    for (text, status) in [("one", "completed"), ("die", "failed"), ("two", "completed"), ("three", "completed")] {
        assert_eq!(gateway.run_turn("friday", &user_turn_in("s", text)).await.status, status);
    }

    gateway.run_turn("friday", &user_turn_in("another", "hello")).await.expect_completed();
    let request = upstream.requests();
    assert_eq!(messages(&request[0].json()), ["user: one"]);
    let all = ["user: one", "assistant: you said one", "user: two", "assistant: you said two", "user: three"];
    assert_eq!(messages(&request[3].json()), all, "a failed turn is not part of the history");
    assert_eq!(messages(&request[4].json()), ["user: hello"], "another session has its own history");
}

#[tokio::test]
async fn users_with_the_same_session_id_share_nothing() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"gateway\"", "")).await;
    let user_turn = |user: &str, text: &str| {
        let mut body: Value = user_turn_in("1", text);
        body["user_id"] = user.into();
        body
    };
    for (user, text) in [("ada", "mine"), ("bob", "hello"), ("ada", "more"), ("bob", "bye")] {
        gateway.run_turn("friday", &user_turn(user, text)).await.expect_completed();
    }

    let requests: Vec<Vec<String>> = upstream.requests().iter().map(|requests| messages(&requests.json())).collect();
    assert_eq!(requests[1], ["user: hello"], "the same id of another user is another session");
    assert_eq!(requests[2], ["user: mine", "assistant: you said mine", "user: more"]);
    assert_eq!(requests[3], ["user: hello", "assistant: you said hello", "user: bye"]);
}

#[tokio::test]
async fn history_is_limited_in_turns() {
    let upstream = echo_agent();
    let own = "history = \"gateway\"\nhistory_limit = { turns = 2 }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), own, "")).await;
    for text in ["one", "two", "three", "four"] {
        gateway.run_turn("friday", &user_turn_in("s", text)).await.expect_completed();
    }

    let last = upstream.requests().pop().expect("four were asked").json();
    let expected = ["user: two", "assistant: you said two", "user: three", "assistant: you said three", "user: four"];
    assert_eq!(messages(&last), expected);
}

#[tokio::test]
async fn history_is_limited_in_bytes_and_never_splits_a_call_from_its_output() {
    let call = |id: &str, kind: &str, role: &str, data: Value| {
        json!({ "object": "message", "status": "completed", "id": id, "type": kind, "role": role,
            "content": [{ "object": "content", "type": "data", "data": data }] })
        .to_string()
    };
    let upstream = Upstream::with_handler(move |request| {
        let input = last_input_text(&request.json());
        let mut row = vec![
            call(
                "m1",
                "plugin_call",
                "assistant",
                json!({ "call_id": format!("c-{input}"), "name": "look", "arguments": "{}" }),
            ),
            call(
                "m2",
                "plugin_call_output",
                "tool",
                json!({ "call_id": format!("c-{input}"), "output": "x".repeat(1000) }),
            ),
        ];
        row.extend(frames(&["seen ", &input]).split_off(2));
        Reply::frames(row)
    });
    let own = "history = \"gateway\"\nhistory_limit = { bytes = \"4KiB\" }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), own, "")).await;
    for number in 0..6 {
        gateway.run_turn("friday", &user_turn_in("s", &number.to_string())).await.expect_completed();
    }

    for (number, request) in upstream.requests().iter().enumerate() {
        let lines = messages(&request.json());
        let calls: HashSet<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("assistant: <plugin_call ")).collect();
        let outputs: HashSet<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("tool: <plugin_call_output ")).collect();
        assert_eq!(calls, outputs, "{lines:?}");
        assert!(request.body.len() < 6000, "{} bytes", request.body.len());
        assert!(number == 0 || !calls.is_empty(), "the latest turn is in it: {lines:?}");
    }
}

#[tokio::test]
async fn a_full_history_sent_by_the_client_is_passed_on_unchanged() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = user_turn("and now?");
    let history = json!([
        { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
        { "role": "assistant", "content": [{ "type": "text", "text": "hello" }] },
        { "role": "user", "content": [{ "type": "text", "text": "and now?" }] },
    ]);
    body["input"] = history;
    gateway.run_turn("friday", &body).await.expect_completed();
    assert_eq!(messages(&upstream.requests()[0].json()), ["user: hi", "assistant: hello", "user: and now?"]);
}

#[tokio::test]
async fn the_demo_agent_remembers_each_session_separately() {
    let gateway = Gateway::start(DEMO).await;
    for session in ["a", "b"] {
        gateway.run_turn("demo", &user_turn_in(session, &format!("echo {session}"))).await.expect_completed();
    }

    let transcript = gateway.run_turn("demo", &user_turn_in("a", "history")).await.expect_completed();
    assert!(
        transcript.text().contains("message 2 of yours") && transcript.text().contains("echo a"),
        "{}",
        transcript.text()
    );
}

#[tokio::test]
async fn a_queued_turn_is_refused_if_the_turn_before_it_waits_for_input() {
    let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
        "first" => approval_request_after("on"),
        _ => text_reply(&["done"]),
    });
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;

    let mut first = gateway.start_turn("friday", &user_turn_in("s", "first")).await;
    let mut seen = first.read_until("in_progress").await;
    let second = gateway.start_turn("friday", &user_turn_in("s", "second")).await;
    runs_of(&gateway, "s", 2).await;
    upstream.open("on");
    seen.extend(first.frames().await);
    Transcript::parse(&seen).expect_completed();
    let refused = second.response().await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("SESSION_WAITING")), "{}", refused.text());
    assert_eq!(upstream.requests().len(), 1);
}

/// A reply that requests approval once a gate is opened.
pub(crate) fn approval_request_after(gate: &str) -> Reply {
    let data = json!({ "id": "appr-1", "name": "rm", "arguments": "{}", "server_label": "files" });
    let message = json!({ "object": "message", "status": "completed", "id": "m", "type": "mcp_approval_request",
        "role": "assistant", "content": [{ "object": "content", "type": "data", "data": data }] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [message] });
    let started = Reply::events().frame(&response("created")).wait(gate);
    started.frame(&message.to_string()).frame(&end.to_string()).done()
}

#[tokio::test]
async fn a_session_queue_has_a_maximum_length() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut refused = 0;
    for _ in 0..80 {
        let response = gateway.post("/agents/friday/process/task", &user_turn_in("s", "hold")).await;
        match response.status {
            200 => assert_eq!(refused, 0),
            409 => {
                assert_eq!(response.json()["code"], "SESSION_BUSY");
                refused += 1;
            }
            other => panic!("{other}: {}", response.text()),
        }
    }

    assert!((1..=20).contains(&refused), "{refused} of 80 were refused");
    upstream.open("hold");
    let turns = 80 - refused;
    poll_until("all turns to be taken", async || (upstream.requests().len() == turns).then_some(())).await;
}

#[tokio::test]
async fn hundreds_of_sessions_are_served_concurrently() {
    let upstream =
        Upstream::with_handler(|request| text_reply_until(&["for ", &last_input_text(&request.json())], "on"));
    // More connections than one address is allowed by default.
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nlimits = { connections_per_address = 1000 }\n";
    let agents = agent("friday", &upstream.url("/process"), "", "");
    let gateway = Gateway::with_config(&format!("{server}{agents}{ROUTE}")).await;

    let mut streams = Vec::new();
    for number in 0..300 {
        streams.push(gateway.start_turn("friday", &user_turn(&number.to_string())).await);
    }

    upstream.wait_for_requests(300).await;
    upstream.open("on");
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_eq!(Transcript::parse(&stream.frames().await).expect_completed().text(), format!("for {number}"));
    }
}

#[tokio::test]
async fn stopping_a_session_cancels_its_queued_turns_too() {
    let upstream = echo_agent();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.start_turn("friday", &user_turn_in("s", "hold")).await;
    let mut seen = first.read_until("you said").await;
    let second = gateway.start_turn("friday", &user_turn_in("s", "second")).await;
    let third = gateway.post("/agents/friday/process/task", &user_turn_in("s", "third")).await.json();
    runs_of(&gateway, "s", 3).await;
    let stopped = gateway.post("/agents/friday/stop", &json!({ "session_id": "s" })).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("success")));
    seen.extend(first.frames().await);
    assert_eq!(Transcript::parse(&seen).status, "canceled");
    assert_eq!(second.response().await.json()["code"], "CANCELED");
    assert_eq!(gateway.final_frame("friday", third["task_id"].as_str().expect("an id")).await["status"], "canceled");
    assert_eq!(upstream.requests().len(), 1, "the queued turns did not reach the agent");
    gateway.run_turn("friday", &user_turn_in("s", "next")).await.expect_completed();
}
