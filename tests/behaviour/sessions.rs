//! Sessions: whose they are, whose turn it is, and who remembers what was said.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::agent::{frames, response, saying, saying_until};
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, last_said, says, says_in};
use crate::support::story::Story;
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

/// An agent that answers what it was told; what begins with "hold" waits for the gate of that name.
fn parrot() -> Upstream {
    Upstream::deciding(|asked| {
        let said = last_said(&asked.json());
        if said.starts_with("hold") {
            saying_until(&["you said ", &said], &said)
        } else {
            saying(&["you said ", &said])
        }
    })
}

/// Waits until a session has so many runs.
async fn runs_of(gateway: &Gateway, session: &str, count: u64) {
    until("the session's runs", async || {
        let runs = gateway.get(&format!("/agents/friday/runs?session_id={session}")).await.json();
        (runs["total"].as_u64() >= Some(count)).then_some(())
    })
    .await;
}

/// What stands in a request, one line a message.
fn told(body: &Value) -> Vec<String> {
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
async fn anonymous_clients_never_collide() {
    let upstream = Upstream::deciding(|_| saying_until(&["hi"], "on"));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut asking = Vec::new();
    for _ in 0..8 {
        asking.push(gateway.ask("friday", &says("hello")).await);
    }
    upstream.wait_asked(8).await;
    let pairs: HashSet<(String, String)> = upstream
        .asked()
        .iter()
        .map(|asked| {
            let body = asked.json();
            let id = |name: &str| body[name].as_str().expect("an id, since none is a lock that all share").to_owned();
            (id("user_id"), id("session_id"))
        })
        .collect();
    assert_eq!(pairs.len(), 8, "{pairs:?}");
    upstream.open("on");
    let mut sessions = HashSet::new();
    for mut stream in asking {
        sessions.insert(Story::read(&stream.frames().await).completed().session);
    }
    assert_eq!(sessions.len(), 8);
}

#[tokio::test]
async fn what_a_client_calls_itself_goes_upstream() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = says_in("s-1", "hi");
    body["user_id"] = json!("u-1");
    body["biz_params"] = json!({ "x": 1 });
    gateway.story("friday", &body).await.completed();
    let asked = upstream.asked()[0].json();
    assert_eq!((&asked["user_id"], &asked["session_id"]), (&json!("u-1"), &json!("s-1")));
    assert_eq!(asked["biz_params"], json!({ "x": 1 }));
}

#[tokio::test]
async fn parallel_turns_of_a_session_wait_in_the_order_they_came() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut streams = Vec::new();
    for (place, text) in ["hold 1", "hold 2", "three", "four"].into_iter().enumerate() {
        streams.push(gateway.ask("friday", &says_in("s", text)).await);
        runs_of(&gateway, "s", place as u64 + 1).await;
    }
    upstream.wait_asked(1).await;
    // Another session does not wait.
    gateway.story("friday", &says_in("other", "quick")).await.completed();
    assert_eq!(upstream.asked().len(), 2, "one turn of a session at a time");
    for gate in ["hold 1", "hold 2"] {
        upstream.open(gate);
    }
    for (stream, text) in streams.iter_mut().zip(["hold 1", "hold 2", "three", "four"]) {
        assert_eq!(Story::read(&stream.frames().await).completed().text(), format!("you said {text}"));
    }
    let order: Vec<String> = upstream.asked().iter().map(|asked| last_said(&asked.json())).collect();
    assert_eq!(order, ["hold 1", "quick", "hold 2", "three", "four"]);
}

#[tokio::test]
async fn parallel_turns_of_a_session_are_refused_where_the_agent_wants_that() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "parallel_turns = \"refuse\"", "")).await;
    let mut first = gateway.ask("friday", &says_in("s", "hold")).await;
    let mut seen = first.until("you said").await;
    let second = gateway.post("/agents/friday/process", &says_in("s", "me too")).await;
    assert_eq!((second.status, second.json()["code"].as_str()), (409, Some("SESSION_BUSY")));
    let task = gateway.post("/agents/friday/process/task", &says_in("s", "me too")).await;
    assert_eq!(task.status, 409);
    gateway.story("friday", &says_in("other", "quick")).await.completed();
    upstream.open("hold");
    seen.extend(first.frames().await);
    Story::read(&seen).completed();
    gateway.story("friday", &says_in("s", "now")).await.completed();
    assert_eq!(upstream.asked().len(), 3, "what was refused never reached the agent");
}

#[tokio::test]
async fn a_turn_that_waits_can_be_cancelled_and_lets_the_next_one_through() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.ask("friday", &says_in("s", "hold")).await;
    let mut seen = first.until("you said").await;
    let queued = gateway.post("/agents/friday/process/task", &says_in("s", "never mind")).await.json();
    let id = queued["task_id"].as_str().expect("an id");
    assert_eq!(gateway.get(&format!("/agents/friday/process/task/{id}")).await.json(), json!({ "status": "pending" }));
    let mut third = gateway.ask("friday", &says_in("s", "after you")).await;
    runs_of(&gateway, "s", 3).await;
    let stopped = gateway.post(&format!("/agents/friday/runs/{id}/cancel"), &json!({})).await;
    assert_eq!((stopped.status, stopped.json()["status"].as_str()), (200, Some("canceled")));
    upstream.open("hold");
    seen.extend(first.frames().await);
    Story::read(&seen).completed();
    Story::read(&third.frames().await).completed();
    let order: Vec<String> = upstream.asked().iter().map(|asked| last_said(&asked.json())).collect();
    assert_eq!(order, ["hold", "after you"]);
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_not_asked_for() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.ask("friday", &says_in("s", "hold")).await;
    let mut seen = first.until("you said").await;
    let second = gateway.ask("friday", &says_in("s", "never mind")).await;
    runs_of(&gateway, "s", 2).await;
    drop(second);
    until("the run to be canceled", async || {
        let runs = gateway.get("/agents/friday/runs?session_id=s").await.json();
        runs["data"].as_array()?.iter().any(|run| run["status"] == "canceled").then_some(())
    })
    .await;
    upstream.open("hold");
    seen.extend(first.frames().await);
    Story::read(&seen).completed();
    gateway.story("friday", &says_in("s", "next")).await.completed();
    assert_eq!(upstream.asked().len(), 2);
}

#[tokio::test]
async fn an_agent_that_remembers_is_told_new_messages_alone() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"upstream\"", "")).await;
    for text in ["one", "two"] {
        gateway.story("friday", &says_in("s", text)).await.completed();
    }
    let asked = upstream.asked();
    assert_eq!(told(&asked[1].json()), ["user: two"]);
    assert_eq!(asked[0].json()["session_id"], asked[1].json()["session_id"]);
    assert_eq!(asked[0].json()["user_id"], asked[1].json()["user_id"]);
}

#[tokio::test]
async fn an_agent_that_does_not_remember_is_told_all_of_it() {
    let upstream = Upstream::deciding(|asked| {
        let said = last_said(&asked.json());
        match said.as_str() {
            "die" => frames(&["half"])[..4].iter().fold(Answer::events(), |answer, frame| answer.frame(frame)).close(),
            _ => saying(&["you said ", &said]),
        }
    });
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"gateway\"", "")).await;
    for (text, status) in [("one", "completed"), ("die", "failed"), ("two", "completed"), ("three", "completed")] {
        assert_eq!(gateway.story("friday", &says_in("s", text)).await.status, status);
    }
    gateway.story("friday", &says_in("another", "hello")).await.completed();
    let asked = upstream.asked();
    assert_eq!(told(&asked[0].json()), ["user: one"]);
    let all = ["user: one", "assistant: you said one", "user: two", "assistant: you said two", "user: three"];
    assert_eq!(told(&asked[3].json()), all, "what failed is not part of what was said");
    assert_eq!(told(&asked[4].json()), ["user: hello"], "another session knows nothing of it");
}

#[tokio::test]
async fn users_that_name_their_sessions_alike_share_nothing() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "history = \"gateway\"", "")).await;
    let says = |user: &str, text: &str| {
        let mut body: Value = says_in("1", text);
        body["user_id"] = user.into();
        body
    };
    for (user, text) in [("ada", "mine"), ("bob", "hello"), ("ada", "more"), ("bob", "bye")] {
        gateway.story("friday", &says(user, text)).await.completed();
    }
    let asked: Vec<Vec<String>> = upstream.asked().iter().map(|asked| told(&asked.json())).collect();
    assert_eq!(asked[1], ["user: hello"], "another user's session of that name is another session");
    assert_eq!(asked[2], ["user: mine", "assistant: you said mine", "user: more"]);
    assert_eq!(asked[3], ["user: hello", "assistant: you said hello", "user: bye"]);
}

#[tokio::test]
async fn history_is_bounded_in_turns() {
    let upstream = parrot();
    let own = "history = \"gateway\"\nhistory_limit = { turns = 2 }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), own, "")).await;
    for text in ["one", "two", "three", "four"] {
        gateway.story("friday", &says_in("s", text)).await.completed();
    }
    let last = upstream.asked().pop().expect("four were asked").json();
    let expected = ["user: two", "assistant: you said two", "user: three", "assistant: you said three", "user: four"];
    assert_eq!(told(&last), expected);
}

#[tokio::test]
async fn history_is_bounded_in_bytes_and_never_holds_half_a_pair() {
    let call = |id: &str, kind: &str, role: &str, data: Value| {
        json!({ "object": "message", "status": "completed", "id": id, "type": kind, "role": role,
            "content": [{ "object": "content", "type": "data", "data": data }] })
        .to_string()
    };
    let upstream = Upstream::deciding(move |asked| {
        let said = last_said(&asked.json());
        let mut row = vec![
            call(
                "m1",
                "plugin_call",
                "assistant",
                json!({ "call_id": format!("c-{said}"), "name": "look", "arguments": "{}" }),
            ),
            call(
                "m2",
                "plugin_call_output",
                "tool",
                json!({ "call_id": format!("c-{said}"), "output": "x".repeat(1000) }),
            ),
        ];
        row.extend(frames(&["seen ", &said]).split_off(2));
        Answer::frames(row)
    });
    let own = "history = \"gateway\"\nhistory_limit = { bytes = \"4KiB\" }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), own, "")).await;
    for number in 0..6 {
        gateway.story("friday", &says_in("s", &number.to_string())).await.completed();
    }
    for (number, asked) in upstream.asked().iter().enumerate() {
        let lines = told(&asked.json());
        let calls: HashSet<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("assistant: <plugin_call ")).collect();
        let outputs: HashSet<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("tool: <plugin_call_output ")).collect();
        assert_eq!(calls, outputs, "{lines:?}");
        assert!(asked.body.len() < 6000, "{} bytes", asked.body.len());
        assert!(number == 0 || !calls.is_empty(), "the latest turn is in it: {lines:?}");
    }
}

#[tokio::test]
async fn a_client_that_sends_its_whole_history_is_passed_on_as_it_is() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut body = says("and now?");
    let history = json!([
        { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
        { "role": "assistant", "content": [{ "type": "text", "text": "hello" }] },
        { "role": "user", "content": [{ "type": "text", "text": "and now?" }] },
    ]);
    body["input"] = history;
    gateway.story("friday", &body).await.completed();
    assert_eq!(told(&upstream.asked()[0].json()), ["user: hi", "assistant: hello", "user: and now?"]);
}

#[tokio::test]
async fn the_demo_agent_remembers_a_session_and_forgets_nobody_elses() {
    let gateway = Gateway::start(DEMO).await;
    for session in ["a", "b"] {
        gateway.story("demo", &says_in(session, &format!("echo {session}"))).await.completed();
    }
    let story = gateway.story("demo", &says_in("a", "history")).await.completed();
    assert!(story.text().contains("message 2 of yours") && story.text().contains("echo a"), "{}", story.text());
}

#[tokio::test]
async fn a_turn_that_waited_for_one_that_asks_is_refused_like_any_other() {
    let upstream = Upstream::deciding(|asked| match last_said(&asked.json()).as_str() {
        "first" => approval_behind("on"),
        _ => saying(&["done"]),
    });
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.ask("friday", &says_in("s", "first")).await;
    let mut seen = first.until("in_progress").await;
    let second = gateway.ask("friday", &says_in("s", "second")).await;
    runs_of(&gateway, "s", 2).await;
    upstream.open("on");
    seen.extend(first.frames().await);
    Story::read(&seen).completed();
    let refused = second.answer().await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("SESSION_WAITING")), "{}", refused.text());
    assert_eq!(upstream.asked().len(), 1);
}

/// An agent that asks for approval once a gate is opened.
fn approval_behind(gate: &str) -> Answer {
    let data = json!({ "id": "appr-1", "name": "rm", "arguments": "{}", "server_label": "files" });
    let message = json!({ "object": "message", "status": "completed", "id": "m", "type": "mcp_approval_request",
        "role": "assistant", "content": [{ "object": "content", "type": "data", "data": data }] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [message] });
    let begun = Answer::events().frame(&response("created")).wait(gate);
    begun.frame(&message.to_string()).frame(&end.to_string()).done()
}

#[tokio::test]
async fn a_queue_has_an_end() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut refused = 0;
    for _ in 0..80 {
        let answer = gateway.post("/agents/friday/process/task", &says_in("s", "hold")).await;
        match answer.status {
            200 => assert_eq!(refused, 0),
            409 => {
                assert_eq!(answer.json()["code"], "SESSION_BUSY");
                refused += 1;
            }
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert!((1..=20).contains(&refused), "{refused} of 80 were refused");
    upstream.open("hold");
    let turns = 80 - refused;
    until("all turns to be taken", async || (upstream.asked().len() == turns).then_some(())).await;
}

#[tokio::test]
async fn hundreds_of_sessions_are_served_at_once() {
    let upstream = Upstream::deciding(|asked| saying_until(&["for ", &last_said(&asked.json())], "on"));
    // More connections than one address has by default.
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nlimits = { connections_per_address = 1000 }\n";
    let agents = agent("friday", &upstream.url("/process"), "", "");
    let gateway = Gateway::with(&format!("{server}{agents}{ROUTE}")).await;
    let mut streams = Vec::new();
    for number in 0..300 {
        streams.push(gateway.ask("friday", &says(&number.to_string())).await);
    }
    upstream.wait_asked(300).await;
    upstream.open("on");
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_eq!(Story::read(&stream.frames().await).completed().text(), format!("for {number}"));
    }
}

#[tokio::test]
async fn stopping_a_session_stops_what_waits_in_it_too() {
    let upstream = parrot();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let mut first = gateway.ask("friday", &says_in("s", "hold")).await;
    let mut seen = first.until("you said").await;
    let second = gateway.ask("friday", &says_in("s", "second")).await;
    let third = gateway.post("/agents/friday/process/task", &says_in("s", "third")).await.json();
    runs_of(&gateway, "s", 3).await;
    let stopped = gateway.post("/agents/friday/stop", &json!({ "session_id": "s" })).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("success")));
    seen.extend(first.frames().await);
    assert_eq!(Story::read(&seen).status, "canceled");
    assert_eq!(second.answer().await.json()["code"], "CANCELED");
    assert_eq!(gateway.outcome("friday", third["task_id"].as_str().expect("an id")).await["status"], "canceled");
    assert_eq!(upstream.asked().len(), 1, "none of them had its turn");
    gateway.story("friday", &says_in("s", "next")).await.completed();
}
