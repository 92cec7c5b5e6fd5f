//! Every protocol combined with every other: interrupts raised over one and answered over the other with every decision
//! that both support, and runs started over one and read, followed and cancelled over the other. With one agent, caller
//! and session, the protocol makes no difference to the result.

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{
    ALL_DECISIONS, ALL_PROTOCOLS, Decision, Interrupt, Protocol, ROUTES, frames, message, native, runs, subscribe,
    task, texts_of,
};
use crate::support::poll_until;

const MEMORY: &str = "[store]\nkind = \"memory\"\n";
const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
/// A demo agent that pauses between deltas.
const SLOW: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 20 } }\n";

/// The state of a task and the run that answered it.
fn outcome(task: &Value) -> (&str, Option<&str>) {
    let state = task["status"]["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_");
    (state, task["metadata"]["agent_api"]["answered_by"].as_str())
}

/// Asserts that the response contains the expected text.
fn assert_reply(protocol: Protocol, answer: &Response, decision: Decision) {
    assert_eq!(answer.status, 200, "{protocol:?} {decision:?}: {}", answer.text());
    // Some protocols put JSON into strings.
    let received = texts_of(answer.text()).replace("\\\"", "\"");
    assert!(received.contains(decision.expected_text()), "{protocol:?} {decision:?}: {}", answer.text());
}

/// Asserts that nothing is pending in a session and that it accepts a new turn.
async fn is_free(gateway: &Gateway, interrupt: &Interrupt, what: &str) {
    let status = gateway.get(&format!("/hitl/demo/agent/status/pat/{}", interrupt.session)).await.json();
    assert_ne!(status["status"], "interrupted", "{what}: {status}");
    let mut body = user_turn_in(&interrupt.session, "echo free");
    body["stream"] = false.into();
    let free = gateway.post("/agents/demo/process", &body).await;
    assert!(free.status == 200 && free.text().contains("free"), "{what}: {}", free.text());
}

/// Asserts that a second answer is refused with the item id and starts no turn.
async fn is_closed(gateway: &Gateway, interrupt: &Interrupt, what: &str) {
    let before = runs(gateway, &interrupt.session).await.len();
    let body = json!({ "session_id": interrupt.session, "input": [native(&interrupt.item, Decision::Reject)] });
    let again = gateway.post("/agents/demo/process", &body).await;
    assert_eq!(again.status, 409, "{what}: {}", again.text());
    assert!(again.text().contains(&interrupt.item), "{what}: {}", again.text());
    assert_eq!(runs(gateway, &interrupt.session).await.len(), before, "{what}: no turn was started");
}

#[tokio::test]
async fn an_interrupt_raised_over_one_protocol_is_answered_over_any_other() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    let mut received = 0;
    for asker in ALL_PROTOCOLS {
        for answerer in ALL_PROTOCOLS {
            for decision in ALL_DECISIONS {
                let what = format!("{asker:?} asks, {answerer:?} answers {decision:?}");
                let session = format!("{asker:?}-{answerer:?}-{decision:?}");
                let interrupt = asker.ask(&gateway, &session, decision.demo_command()).await;
                let Some(answer) = answerer.answer(&gateway, &interrupt, decision).await else { continue };
                received += 1;
                assert_reply(answerer, &answer, decision);
                if asker == Protocol::A2a {
                    let runs = runs(&gateway, &interrupt.session).await;
                    let answering = runs.iter().find(|run| **run != interrupt.run).expect("a run that answered");
                    let answering = answering.trim_start_matches("response_");
                    let found = task(&gateway, interrupt.id()).await.json();
                    assert_eq!(outcome(&found), ("COMPLETED", Some(answering)), "{what}: {found}");
                }
                if decision != Decision::Output {
                    is_closed(&gateway, &interrupt, &what).await;
                }
                is_free(&gateway, &interrupt, &what).await;
            }
        }
    }
    // Responses has neither edits nor results.
    assert_eq!(received, ALL_PROTOCOLS.len() * (ALL_PROTOCOLS.len() * ALL_DECISIONS.len() - 2));
}

#[tokio::test]
async fn a_subscriber_sees_that_its_task_was_answered_elsewhere_and_how_that_ended() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for answerer in ALL_PROTOCOLS {
        for decision in [Decision::Accept, Decision::Output] {
            let interrupt =
                Protocol::A2a.ask(&gateway, &format!("{answerer:?}-{decision:?}"), decision.demo_command()).await;
            let mut following = subscribe(&gateway, interrupt.id()).await;
            let first = following.frame().await.expect("the task as it stands");
            assert_eq!(first["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{first}");
            let answer = answerer.answer(&gateway, &interrupt, decision).await.expect("an answer");
            assert_reply(answerer, &answer, decision);
            let received = following.frames().await;
            let states: Vec<&str> =
                received.iter().filter_map(|item| item["statusUpdate"]["status"]["state"].as_str()).collect();
            assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"], "{answerer:?}: {received:?}");
            let by = |item: &Value| item["statusUpdate"]["metadata"]["agent_api"]["answered_by"].clone();
            assert!(by(&received[0]).is_string() && by(&received[0]) == by(&received[1]), "{answerer:?}: {received:?}");
            // A later message is refused.
            let late = message(&gateway, &interrupt.session, Some(interrupt.id()), json!({ "text": "no" })).await;
            assert_eq!(late.status, 400, "{}", late.text());
            assert!(late.text().contains("UNSUPPORTED_OPERATION") && late.text().contains("already answered"));
        }
    }
}

#[tokio::test]
async fn a_message_to_a_task_answered_elsewhere_is_refused_and_cancelling_it_stops_the_answering_run() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
    let interrupt = Protocol::A2a.ask(&gateway, "s", "client tool").await;

    // The client continues without its tool.
    let mut going_on = gateway.start_post("/agents/demo/process", &user_turn_in("s", "long 5000 20")).await;
    assert_eq!(going_on.status().await, 200);
    poll_until("the task to work", async || {
        (outcome(&task(&gateway, interrupt.id()).await.json()).0 == "WORKING").then_some(())
    })
    .await;
    let late = message(&gateway, "s", Some(interrupt.id()), json!({ "text": "no" })).await;
    assert!(late.status == 400 && late.text().contains("already answered"), "{}", late.text());

    let cancelled = Protocol::A2a.cancel(&gateway, &interrupt).await.expect("supported");
    assert_eq!((cancelled.status, outcome(&cancelled.json()).0), (200, "CANCELED"), "{}", cancelled.text());
    assert_eq!(going_on.frames().await.last().expect("an end")["status"], "canceled");
    is_free(&gateway, &interrupt, "cancelled").await;
}

#[tokio::test]
async fn a_waiting_task_is_a_completed_response_whose_stream_ends() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for word in ["approval", "client tool", "question", "login"] {
        let interrupt = Protocol::A2a.ask(&gateway, &word.replace(' ', "-"), word).await;
        for protocol in [Protocol::AgentApi, Protocol::Responses] {
            assert_eq!(
                protocol.status(&gateway, &interrupt).await.as_deref(),
                Some("completed"),
                "{protocol:?} {word}"
            );
            let received = protocol.follow(&gateway, &interrupt).await.expect("supported").response().await;
            let received = frames(received.text());
            let last = received.last().expect("an end");
            let response = if protocol == Protocol::Responses { &last["response"] } else { last };
            assert_eq!(response["status"], "completed", "{protocol:?} {word}: {last}");
            assert!(
                response.to_string().contains(&interrupt.item),
                "the response contains the pending item: {response}"
            );
            assert!(response["completed_at"].is_u64(), "{response}");
        }
        let polled = gateway.get(&format!("/agents/demo/process/task/{}", interrupt.id())).await.json();
        assert_eq!(polled["status"], "finished", "{polled}");
    }
}

#[tokio::test]
async fn a_working_run_is_readable_and_cancellable_over_every_protocol_that_supports_it() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
    for beginner in ALL_PROTOCOLS {
        for other in ALL_PROTOCOLS {
            // OpenAI allows cancelling background responses only; this one is in the background.
            let what = format!("{beginner:?} begins, {other:?} stops");
            let (interrupt, _open) = beginner.start_long(&gateway, &format!("{beginner:?}-{other:?}")).await;
            let Some(answer) = other.cancel(&gateway, &interrupt).await else {
                Protocol::AgentApi.cancel(&gateway, &interrupt).await;
                continue;
            };
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert_eq!(Protocol::AgentApi.status(&gateway, &interrupt).await.as_deref(), Some("canceled"), "{what}");
        }
        let (interrupt, _open) = beginner.start_long(&gateway, &format!("{beginner:?}-seen")).await;
        let mut following = Vec::new();
        for other in ALL_PROTOCOLS {
            let what = format!("{beginner:?} begins, {other:?} looks");
            if let Some(state) = other.status(&gateway, &interrupt).await {
                assert!(
                    ["in_progress", "queued", "working", "submitted", "running"].contains(&state.as_str()),
                    "{what}: {state}"
                );
            }
            if let Some(mut stream) = other.follow(&gateway, &interrupt).await {
                assert_eq!(stream.status().await, 200, "{what}");
                following.push((other, stream));
            }
        }
        Protocol::AgentApi.cancel(&gateway, &interrupt).await.expect("supported");
        for (other, mut stream) in following {
            let received = frames(stream.read_response().await.text());
            let last = received.last().unwrap_or_else(|| panic!("{other:?}: no frames")).to_string().to_lowercase();
            assert!(last.contains("cancel"), "{beginner:?} begins, {other:?} follows: {last}");
        }
    }
}

#[tokio::test]
async fn a_waiting_session_can_be_cancelled_over_every_protocol_that_supports_it() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL_PROTOCOLS {
        for other in ALL_PROTOCOLS {
            for word in ["approval", "question"] {
                let what = format!("{asker:?} asks {word}, {other:?} lets go");
                let interrupt = asker.ask(&gateway, &format!("{asker:?}-{other:?}-{word}"), word).await;
                let Some(answer) = other.cancel(&gateway, &interrupt).await else { continue };
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                if other == Protocol::Hitl {
                    // The session is deleted together with its items.
                    let body = json!({ "session_id": interrupt.session, "input": [native(&interrupt.item, Decision::Accept)] });
                    let late = gateway.post("/agents/demo/process", &body).await;
                    assert!(late.status == 409 && late.text().contains(&interrupt.item), "{what}: {}", late.text());
                } else {
                    is_closed(&gateway, &interrupt, &what).await;
                }
                if asker == Protocol::A2a {
                    let found = task(&gateway, interrupt.id()).await.json();
                    assert_eq!(outcome(&found).0, "CANCELED", "{what}: {found}");
                }
                is_free(&gateway, &interrupt, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn stopping_a_session_or_deleting_its_run_withdraws_its_pending_item() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL_PROTOCOLS {
        let interrupt = asker.ask(&gateway, &format!("{asker:?}-stop"), "approval").await;
        let stopped = gateway.post("/agents/demo/stop", &json!({ "session_id": interrupt.session })).await;
        assert_eq!(stopped.status, 200, "{asker:?}: {}", stopped.text());
        is_closed(&gateway, &interrupt, &format!("{asker:?} was stopped")).await;
        is_free(&gateway, &interrupt, &format!("{asker:?} was stopped")).await;

        for path in ["/agents/demo/runs", "/v1/responses"] {
            let what = format!("{asker:?}, deleted at {path}");
            let interrupt = asker.ask(&gateway, &format!("{asker:?}{}", path.replace('/', "-")), "approval").await;
            let deleted = gateway.open("DELETE", &format!("{path}/{}", interrupt.run), &[], b"").await.response().await;
            assert_eq!(deleted.status, 200, "{what}: {}", deleted.text());
            let body = json!({ "session_id": interrupt.session, "input": [native(&interrupt.item, Decision::Accept)] });
            let late = gateway.post("/agents/demo/process", &body).await;
            assert!(late.status == 409 && late.text().contains(&interrupt.item), "{what}: {}", late.text());
            is_free(&gateway, &interrupt, &what).await;
        }
    }
}

#[tokio::test]
async fn a_message_without_a_task_is_refused_in_a_waiting_context() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL_PROTOCOLS {
        let interrupt = asker.ask(&gateway, &format!("{asker:?}"), "approval").await;
        let input = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": interrupt.session, "parts": [{ "text": "yes" }] });
        for (path, now) in [("send", false), ("send", true), ("stream", false)] {
            let body = json!({ "message": input, "configuration": { "returnImmediately": now } });
            let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
            let path = format!("/a2a/demo/message:{path}");
            let refused = gateway.open("POST", &path, &headers, body.to_string().as_bytes()).await.response().await;
            let what = format!("{asker:?} {path} {now}: {}", refused.text());
            assert_eq!(refused.status, 400, "{what}");
            let error = refused.json()["error"].clone();
            assert_eq!(error["details"][0]["reason"], "UNSUPPORTED_OPERATION", "{what}");
            assert_eq!(error["details"][0]["metadata"]["taskId"], interrupt.id(), "{what}");
        }
        let done = Protocol::A2a.answer(&gateway, &interrupt, Decision::Reject).await.expect("an answer");
        assert_reply(Protocol::A2a, &done, Decision::Reject);
    }
}

#[tokio::test]
async fn a_waiting_task_is_answered_over_any_protocol_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("{FILE}{DEMO}{ROUTES}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut open = Vec::new();
    for answerer in ALL_PROTOCOLS {
        for decision in [Decision::Accept, Decision::Words, Decision::Output] {
            open.push((
                answerer,
                decision,
                Protocol::A2a.ask(&gateway, &format!("{answerer:?}-{decision:?}"), decision.demo_command()).await,
            ));
        }
    }

    gateway.stop().await;
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    for (answerer, decision, interrupt) in &open {
        let answer = answerer.answer(&gateway, interrupt, *decision).await.expect("an answer");
        assert_reply(*answerer, &answer, *decision);
    }
    gateway.stop().await;

    // The answering run is stored with the task.
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    for (answerer, decision, interrupt) in &open {
        let found = task(&gateway, interrupt.id()).await.json();
        let (state, by) = outcome(&found);
        assert!(state == "COMPLETED" && by.is_some(), "{answerer:?} {decision:?}: {found}");
        is_free(&gateway, interrupt, "after a restart").await;
    }
}

#[tokio::test]
async fn an_answer_that_fails_upstream_leaves_the_task_waiting() {
    use crate::support::agent::{approval_request, text_reply};
    use crate::support::upstream::{Reply, Upstream};
    let upstream =
        Upstream::in_order([approval_request("ask_1"), Reply::complete(500, &[], "down"), text_reply(&["done"])]);
    let agent = crate::support::gateway::agent("demo", &upstream.url("/process"), "", "retries = 0");
    let gateway = Gateway::with_config(&format!("{MEMORY}{agent}{ROUTES}")).await;

    let interrupt = Protocol::A2a.ask(&gateway, "s", "remove it").await;
    let lost = Protocol::AgentApi.answer(&gateway, &interrupt, Decision::Reject).await.expect("an answer");
    assert_eq!(lost.status, 502, "{}", lost.text());
    let found = task(&gateway, interrupt.id()).await.json();
    assert_eq!(outcome(&found), ("INPUT_REQUIRED", None), "{found}");
    assert!(found["status"]["message"].to_string().contains("ask_1"), "the interrupt is unchanged: {found}");

    let done = Protocol::AgentApi.answer(&gateway, &interrupt, Decision::Reject).await.expect("an answer");
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(outcome(&task(&gateway, interrupt.id()).await.json()).0, "COMPLETED");
}

#[tokio::test]
async fn an_answer_of_a_client_that_sends_everything_is_given_once() {
    let gateway = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for answerer in [Protocol::ChatCompletions, Protocol::AnthropicMessages] {
        let interrupt = answerer.ask(&gateway, &format!("{answerer:?}"), "approval").await;
        let first = answerer.answer(&gateway, &interrupt, Decision::Accept).await.expect("an answer");
        assert_reply(answerer, &first, Decision::Accept);
        let second = answerer.answer(&gateway, &interrupt, Decision::Accept).await.expect("an answer");
        assert!(!second.text().contains("The mail was sent"), "{answerer:?}: {}", second.text());
    }
}
