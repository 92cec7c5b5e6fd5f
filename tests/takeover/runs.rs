//! Runs and sessions that several gateways deal with at once: followed, stopped, answered, deleted, queued for, lost.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::stand::Stand;
use crate::support::agent::{
    approval_request, closing_frames, opening_frames, text_delta, text_reply, text_reply_until,
};
use crate::support::cluster::Member;
use crate::support::gateway::{ROUTE, approval_in, last_input_text, user_turn_in};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

async fn start(member: &Member, session: &str, words: &str) -> Client {
    Client::new(member.start_post("/agents/demo/process", &user_turn_in(session, words)).await)
}

async fn follow(member: &Member, run: &str) -> Client {
    Client::new(member.open("GET", &format!("/agents/demo/runs/{run}/events"), &[], b"").await)
}

async fn until_seen(client: &Client, text: &str) -> String {
    poll_until(&format!("{text:?} to be seen"), async || {
        let frames = client.received().frames;
        let seen = frames.iter().any(|frame| frame.to_string().contains(text));
        seen.then(|| frames[0]["id"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

fn last(frames: &[Value]) -> Value {
    frames.last().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_run_that_three_gateways_follow_is_stopped_on_a_fourth() {
    let stand = Stand::new(Upstream::always(text_reply_until(&["one ", "two"], "never")), 4).await;
    let started = start(&stand.members[0], "s", "hi").await;
    let run = until_seen(&started, "two").await;
    let mut followers = Vec::new();
    for member in &stand.members[..3] {
        followers.push(follow(member, &run).await);
    }
    for follower in &followers {
        until_seen(follower, "two").await;
    }

    let stopped = stand.members[3].post(&format!("/agents/demo/runs/{run}/cancel"), &json!({})).await;
    assert_eq!((stopped.status, &stopped.json()["status"]), (200, &json!("canceled")), "{}", stopped.text());
    let frames = started.end().await.frames;
    assert_eq!(last(&frames)["status"], "canceled");
    for follower in followers {
        assert_eq!(follower.end().await.frames, frames);
    }
    for member in &stand.members {
        assert_eq!(member.events(&run).await, frames);
    }
}

/// An agent is not read beyond a limit while the store is unreachable, and its run continues after the outage: with a
/// shared store, a run waits as long as this gateway owns it.
#[tokio::test]
async fn an_agent_that_says_much_during_an_outage_is_waited_for() {
    let piece = "x".repeat(100_000);
    let words: Vec<&str> = std::iter::once("one ").chain(std::iter::repeat_n(&*piece, 40)).collect();
    let reply = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let reply = reply.frame(&text_delta(words[0])).wait("on");
    let reply = words[1..].iter().fold(reply, |reply, word| reply.frame(&text_delta(word)));
    let reply = closing_frames(&words.concat()).iter().fold(reply, |reply, frame| reply.frame(frame)).done();
    let stand = Stand::new(Upstream::always(reply), 2).await;
    let started = start(&stand.members[0], "s", "hi").await;
    let run = until_seen(&started, "one").await;

    stand.members[0].replica.cut_off();
    stand.agent.open("on");
    // Longer than a store that no one shares is waited for.
    tokio::time::sleep(Duration::from_secs(11)).await;
    stand.members[0].replica.reconnect();
    let frames = started.end().await.frames;
    assert_eq!(last(&frames)["status"], "completed", "{}", last(&frames));
    assert!(last(&frames).to_string().len() > 4_000_000, "all of it");
    assert_eq!(stand.members[1].events(&run).await.len(), frames.len());
}

/// A task is stopped on another gateway while its turn pauses: by then any gateway, or none, may own it.
#[tokio::test]
async fn a_task_is_stopped_on_another_gateway_whenever_it_comes_to_a_pause() {
    let agent = Upstream::with_handler(|request| approval_request(&last_input_text(&request.json())));
    let route = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
    let stand = Stand::with(agent, "", &format!("{ROUTE}{route}"), 3).await;
    for number in 0..24 {
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": format!("item-{number}") }] });
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let sent = stand.members[0].post("/a2a/demo/message:send", &body).await;
        let task = sent.json()["task"]["id"].as_str().unwrap_or_else(|| panic!("{}", sent.text())).to_owned();
        tokio::time::sleep(Duration::from_millis(number)).await;

        let begun = std::time::Instant::now();
        let stopped = stand.members[1].post(&format!("/a2a/demo/tasks/{task}:cancel"), &json!({})).await;
        assert_eq!(
            (stopped.status, &stopped.json()["status"]["state"]),
            (200, &json!("TASK_STATE_CANCELED")),
            "{number}"
        );
        assert!(begun.elapsed() < Duration::from_secs(8), "{number}: {:?}", begun.elapsed());
        for member in &stand.members {
            let shown = member.get(&format!("/a2a/demo/tasks/{task}")).await.json();
            assert_eq!(shown["status"]["state"], "TASK_STATE_CANCELED", "{number}: {shown}");
        }
    }
}

/// Each message reaches another gateway, some while an earlier one of the queue has its turn.
#[tokio::test]
async fn messages_to_a_working_task_get_their_turns_in_order_on_any_gateway() {
    let agent = Upstream::with_handler(|request| {
        let text = last_input_text(&request.json());
        text_reply_until(&["ok"], &text)
    });
    let route = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
    let stand = Stand::with(agent, "", &format!("{ROUTE}{route}"), 3).await;
    let send = async |member: usize, text: &str, task: Value| {
        let parts = json!([{ "text": text }]);
        let message = json!({ "messageId": text, "role": "ROLE_USER", "taskId": task, "parts": parts });
        let mut stream =
            stand.members[member].start_post("/a2a/demo/message:stream", &json!({ "message": message })).await;
        let id = stream.frame().await.expect("a task")["task"]["id"].clone();
        assert!(id.is_string(), "{id}");
        (id, stream)
    };
    let reached = async |count: usize| {
        let requests = async || (stand.agent.requests().len() == count).then_some(());
        poll_until(&format!("request {count}"), requests).await;
    };

    let (id, first) = send(0, "one", Value::Null).await;
    let (_, second) = send(1, "two", id.clone()).await;
    stand.agent.open("one");
    reached(2).await;
    let (_, third) = send(2, "three", id.clone()).await;
    let (_, fourth) = send(0, "four", id.clone()).await;
    for (count, text) in [(3, "two"), (4, "three")] {
        stand.agent.open(text);
        reached(count).await;
    }
    stand.agent.open("four");
    for mut stream in [first, second, third, fourth] {
        let frames = stream.frames().await;
        assert_eq!(last(&frames)["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{frames:?}");
    }
    let task = stand.members[1].get(&format!("/a2a/demo/tasks/{}", id.as_str().expect("an id"))).await.json();
    let texts: Vec<_> = task["history"].as_array().into_iter().flatten().map(|said| &said["messageId"]).collect();
    assert_eq!(texts, ["one", "two", "three", "four"], "{task}");
}

/// Answers to approvals, as tasks of A2A that wait for a second at most.
#[tokio::test]
async fn a_run_is_answered_on_one_gateway_or_expires_on_another() {
    let agent = Upstream::with_handler(|request| {
        let text = last_input_text(&request.json());
        if text.is_empty() { text_reply(&["thanks"]) } else { approval_request(&text) }
    });
    let route = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\noptions = { interrupted_ttl = \"1s\" }\n";
    let stand = Stand::with(agent, "", &format!("{ROUTE}{route}"), 3).await;
    let part = |text: &str| json!({ "text": text });
    let send = async |member: &Member, task: Option<&str>, part: Value| {
        let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [part] });
        message["taskId"] = task.map_or(Value::Null, Value::from);
        member.post("/a2a/demo/message:send", &json!({ "message": message })).await
    };

    let mut tasks = Vec::new();
    for number in 0..10 {
        let asked = send(&stand.members[0], None, part(&format!("item-{number}"))).await;
        let task = asked.json()["task"]["id"].as_str().unwrap_or_else(|| panic!("{}", asked.text())).to_owned();
        tasks.push(task);
    }
    let mut completed = 0;
    for (number, task) in tasks.iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let answer = json!({ "data": { "interrupt_id": format!("item-{number}"), "decision": "accept" } });
        let answered = send(&stand.members[1 + number % 2], Some(task), answer).await;
        completed += usize::from(answered.text().contains("TASK_STATE_COMPLETED"));
    }

    let mut states = Vec::new();
    for task in &tasks {
        let state = poll_until("the task to end", async || {
            let shown = stand.members[1].get(&format!("/a2a/demo/tasks/{task}")).await.json();
            let state = shown["status"]["state"].as_str()?.trim_start_matches("TASK_STATE_").to_owned();
            ["COMPLETED", "CANCELED"].contains(&&*state).then_some(state)
        })
        .await;
        for member in &stand.members {
            let shown = member.get(&format!("/a2a/demo/tasks/{task}")).await.json();
            assert_eq!(shown["status"]["state"], format!("TASK_STATE_{state}"));
        }
        states.push(state);
    }
    assert_eq!(states.iter().filter(|state| *state == "COMPLETED").count(), completed, "{states:?}");
    let answers = stand.agent.requests().iter().filter(|request| last_input_text(&request.json()).is_empty()).count();
    assert_eq!(answers, completed, "the agent gets the answers that were taken: {states:?}");
}

#[tokio::test]
async fn a_run_that_waits_outlives_its_gateway() {
    let agent = Upstream::in_order([approval_request("ask"), text_reply(&["done"])]);
    let mut stand = Stand::new(agent, 3).await;
    start(&stand.members[0], "s", "remove x").await.end().await;
    stand.members[0].replica.kill();
    stand.take_over().await;
    let answer = approval_in("s", "ask");
    let answered = Client::new(stand.members[1].start_post("/agents/demo/process", &answer).await).end().await;
    assert_eq!(last(&answered.frames)["status"], "completed", "{answered:?}");
    let again = stand.members[2].post("/agents/demo/process", &answer).await;
    assert_eq!(again.status, 409, "decided once: {}", again.text());
    stand.members.remove(0);
}

#[tokio::test]
async fn a_run_is_deleted_on_one_gateway_while_others_follow_it() {
    let stand = Stand::new(Upstream::always(text_reply_until(&["one ", "two"], "never")), 3).await;
    let started = start(&stand.members[0], "s", "hi").await;
    let run = until_seen(&started, "two").await;
    let followed = follow(&stand.members[1], &run).await;
    until_seen(&followed, "two").await;

    let id = run.replace("response_", "resp_").replace('-', "");
    let deleted = stand.members[2].delete(&format!("/v1/responses/{id}")).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    started.end().await;
    followed.end().await;
    for member in &stand.members {
        let found = member.get(&format!("/v1/responses/{id}")).await;
        assert_eq!(found.status, 404, "{}", found.text());
    }
    stand.agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn a_session_is_deleted_on_one_gateway_while_a_turn_of_it_is_queued_on_another() {
    let agent = Upstream::in_order([text_reply_until(&["first"], "on"), text_reply(&["later"])]);
    let stand = Stand::new(agent, 3).await;
    let query = |words: &str| json!({ "user_id": "pat", "session_id": "s", "query": words });
    let invoke = async |member: &Member, words: &str| {
        Client::new(member.start_post("/hitl/demo/agent/invoke", &query(words)).await)
    };
    let first = invoke(&stand.members[0], "one").await;
    stand.agent.wait_for_requests(1).await;
    let second = invoke(&stand.members[1], "two").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let deleted = stand.members[2].delete("/hitl/demo/agent/session/pat/s").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    first.end().await;
    second.end().await;
    for (number, member) in stand.members.iter().enumerate() {
        let answer = invoke(member, "again").await.end().await;
        assert_eq!(last(&answer.frames)["status"], "completed", "{number}: {answer:?}");
    }
}

#[tokio::test]
async fn queued_turns_of_a_lost_gateway_are_skipped() {
    let agent = Upstream::with_handler(|request| match &*last_input_text(&request.json()) {
        "first" => text_reply_until(&["so far"], "never"),
        other => text_reply(&["you said ", other]),
    });
    let stand = Stand::new(agent, 3).await;
    let lost = &stand.members[0];
    let first = start(lost, "s", "first").await;
    until_seen(&first, "so far").await;
    let skipped = start(lost, "s", "skipped").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let queued = start(&stand.members[1], "s", "queued").await;
    tokio::time::sleep(Duration::from_millis(200)).await;

    lost.replica.pause();
    stand.take_over().await;
    let answer = queued.end().await;
    assert_eq!(last(&answer.frames)["status"], "completed", "{answer:?}");
    lost.replica.resume();
    for broken in [first, skipped] {
        let received = broken.end().await;
        assert_ne!(last(&received.frames)["status"], "completed", "{received:?}");
    }
    let said: Vec<String> = stand.agent.requests().iter().map(|request| last_input_text(&request.json())).collect();
    assert_eq!(said, ["first", "queued"]);
    for member in &stand.members {
        let mut states = Vec::new();
        for run in member.runs().await {
            states.push(member.run(&run).await["status"].clone());
        }
        assert_eq!(states.iter().filter(|state| *state == "completed").count(), 1, "{states:?}");
        assert!(states.iter().all(|state| state == "completed" || state == "failed"), "{states:?}");
    }
}

#[tokio::test]
async fn a_stop_request_is_sent_to_the_agent_of_a_lost_gateway() {
    let agent = Upstream::with_handler(|request| {
        if request.path == "/stop" {
            return Reply::complete(200, &[], "{}");
        }
        match &*last_input_text(&request.json()) {
            "first" => text_reply_until(&["so far"], "never"),
            other => text_reply(&["you said ", other]),
        }
    });
    let own = "options = { stop_url = \"/stop\" }";
    let stand = Stand::with(agent, own, ROUTE, 3).await;
    let first = start(&stand.members[0], "s", "first").await;
    until_seen(&first, "so far").await;

    stand.members[0].replica.pause();
    stand.take_over().await;
    stand.agent.wait_for_requests(2).await;
    let requests = stand.agent.requests();
    assert_eq!((&*requests[1].path, &requests[1].json()["session_id"]), ("/stop", &requests[0].json()["session_id"]));
    assert_eq!(requests[1].json()["user_id"], requests[0].json()["user_id"]);
    let next = start(&stand.members[2], "s", "second").await.end().await;
    assert_eq!(last(&next.frames)["status"], "completed", "{next:?}");
}
