//! Every protocol with every other one: asked here and answered there, by every decision both have a form for; begun
//! here, and followed, looked at, stopped and let go of there. One agent, one caller, one session: which protocol somebody
//! speaks makes no difference to what becomes of it.

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, Gateway, says_in};
use crate::support::http::Answer;
use crate::support::pairs::{ALL, Asked, EVERY, Over, ROUTES, Says, frames, message, native, runs, subscribe, task};
use crate::support::until;

const MEMORY: &str = "[store]\nkind = \"memory\"\n";
const FILE: &str = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
/// An agent that takes its time.
const SLOW: &str = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 20 } }\n";

/// The state of a task, and who answered what it asked.
fn outcome(task: &Value) -> (&str, Option<&str>) {
    let state = task["status"]["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_");
    (state, task["metadata"]["agent_api"]["answered_by"].as_str())
}

/// What the agent said to an answer, wherever it stands in it.
fn heard(over: Over, answer: &Answer, says: Says) {
    let text = answer.text().replace("\\\"", "\"").replace("\\\\", "");
    assert_eq!(answer.status, 200, "{over:?} {says:?}: {text}");
    if over == Over::AgKit {
        let told: String =
            frames(answer.text()).iter().filter_map(|event| event["content"].as_str().map(str::to_owned)).collect();
        assert!(told.contains(says.heard()), "{over:?} {says:?}: {}", answer.text());
        return;
    }
    assert!(text.contains(says.heard()), "{over:?} {says:?}: {text}");
}

/// Nothing is open in a session, whoever looks at it, and it goes on.
async fn is_free(gateway: &Gateway, asked: &Asked, what: &str) {
    let status = gateway.get(&format!("/hitl/demo/agent/status/pat/{}", asked.session)).await.json();
    assert_ne!(status["status"], "interrupted", "{what}: {status}");
    let mut body = says_in(&asked.session, "echo free");
    body["stream"] = false.into();
    let free = gateway.post("/agents/demo/process", &body).await;
    assert!(free.status == 200 && free.text().contains("free"), "{what}: {}", free.text());
}

/// The answer once more, by its own protocol: an error that names the item, and no turn.
async fn is_closed(gateway: &Gateway, asked: &Asked, what: &str) {
    let before = runs(gateway, &asked.session).await.len();
    let body = json!({ "session_id": asked.session, "input": [native(&asked.item, Says::Reject)] });
    let again = gateway.post("/agents/demo/process", &body).await;
    assert_eq!(again.status, 409, "{what}: {}", again.text());
    assert!(again.text().contains(&asked.item), "{what}: {}", again.text());
    assert_eq!(runs(gateway, &asked.session).await.len(), before, "{what}: no turn came of it");
}

#[tokio::test]
async fn what_is_asked_over_one_protocol_is_answered_over_any_other() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    let mut told = 0;
    for asker in ALL {
        for answerer in ALL {
            for says in EVERY {
                let what = format!("{asker:?} asks, {answerer:?} answers {says:?}");
                let session = format!("{asker:?}-{answerer:?}-{says:?}");
                let asked = asker.ask(&gateway, &session, says.asked_by()).await;
                let Some(answer) = answerer.answer(&gateway, &asked, says).await else { continue };
                told += 1;
                heard(answerer, &answer, says);
                if asker == Over::A2a {
                    let runs = runs(&gateway, &asked.session).await;
                    let answering = runs.iter().find(|run| **run != asked.run).expect("a run that answered");
                    let answering = answering.trim_start_matches("response_");
                    let found = task(&gateway, asked.id()).await.json();
                    assert_eq!(outcome(&found), ("COMPLETED", Some(answering)), "{what}: {found}");
                }
                if says != Says::Output {
                    is_closed(&gateway, &asked, &what).await;
                }
                is_free(&gateway, &asked, &what).await;
            }
        }
    }
    assert!(told >= 5 * 5 * 7, "{told}");
}

#[tokio::test]
async fn whoever_follows_a_task_sees_that_it_was_answered_elsewhere_and_how_that_ended() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for answerer in ALL {
        for says in [Says::Accept, Says::Output] {
            let asked = Over::A2a.ask(&gateway, &format!("{answerer:?}-{says:?}"), says.asked_by()).await;
            let mut following = subscribe(&gateway, asked.id()).await;
            let first = following.frame().await.expect("the task as it stands");
            assert_eq!(first["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{first}");
            let answer = answerer.answer(&gateway, &asked, says).await.expect("an answer");
            heard(answerer, &answer, says);
            let told = following.frames().await;
            let states: Vec<&str> =
                told.iter().filter_map(|item| item["statusUpdate"]["status"]["state"].as_str()).collect();
            assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"], "{answerer:?}: {told:?}");
            let by = |item: &Value| item["statusUpdate"]["metadata"]["agent_api"]["answered_by"].clone();
            assert!(by(&told[0]).is_string() && by(&told[0]) == by(&told[1]), "{answerer:?}: {told:?}");
            // Words come too late: they are no turn.
            let late = message(&gateway, &asked.session, Some(asked.id()), json!({ "text": "no" })).await;
            assert_eq!(late.status, 400, "{}", late.text());
            assert!(late.text().contains("UNSUPPORTED_OPERATION") && late.text().contains("answered already"));
        }
    }
}

#[tokio::test]
async fn words_to_a_task_that_is_being_answered_elsewhere_are_refused_and_cancelling_it_stops_the_answer() {
    let gateway = Gateway::with(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
    let asked = Over::A2a.ask(&gateway, "s", "client tool").await;
    // The client goes on without its tool.
    let mut going_on = gateway.posting("/agents/demo/process", &says_in("s", "long 5000 20")).await;
    assert_eq!(going_on.status().await, 200);
    until("the task to work", async || {
        (outcome(&task(&gateway, asked.id()).await.json()).0 == "WORKING").then_some(())
    })
    .await;
    let late = message(&gateway, "s", Some(asked.id()), json!({ "text": "no" })).await;
    assert!(late.status == 400 && late.text().contains("answered already"), "{}", late.text());
    let cancelled = Over::A2a.cancel(&gateway, &asked).await.expect("a way to");
    assert_eq!((cancelled.status, outcome(&cancelled.json()).0), (200, "CANCELED"), "{}", cancelled.text());
    assert_eq!(going_on.frames().await.last().expect("an end")["status"], "canceled");
    is_free(&gateway, &asked, "cancelled").await;
}

#[tokio::test]
async fn a_waiting_task_is_a_completed_response_and_a_stream_of_it_ends() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for word in ["approval", "client tool", "question", "login"] {
        let asked = Over::A2a.ask(&gateway, &word.replace(' ', "-"), word).await;
        for over in [Over::AgentApi, Over::Responses] {
            assert_eq!(over.look(&gateway, &asked).await.as_deref(), Some("completed"), "{over:?} {word}");
            let told = over.follow(&gateway, &asked).await.expect("a way to").answer().await;
            let told = frames(told.text());
            let last = told.last().expect("an end");
            let response = if over == Over::Responses { &last["response"] } else { last };
            assert_eq!(response["status"], "completed", "{over:?} {word}: {last}");
            assert!(response.to_string().contains(&asked.item), "what is open stands in it: {response}");
            assert!(response["completed_at"].is_u64(), "{response}");
        }
        let polled = gateway.get(&format!("/agents/demo/process/task/{}", asked.id())).await.json();
        assert_eq!(polled["status"], "finished", "{polled}");
    }
}

#[tokio::test]
async fn a_run_that_works_is_found_followed_and_cancelled_over_every_protocol_that_can() {
    let gateway = Gateway::with(&format!("{MEMORY}{SLOW}{ROUTES}")).await;
    for beginner in ALL {
        for other in ALL {
            // As OpenAI has it, a response in the foreground is not cancelled: this one is in the background.
            let what = format!("{beginner:?} begins, {other:?} stops");
            let (asked, _open) = beginner.begin(&gateway, &format!("{beginner:?}-{other:?}")).await;
            let Some(answer) = other.cancel(&gateway, &asked).await else {
                Over::AgentApi.cancel(&gateway, &asked).await;
                continue;
            };
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert_eq!(Over::AgentApi.look(&gateway, &asked).await.as_deref(), Some("canceled"), "{what}");
        }
        let (asked, _open) = beginner.begin(&gateway, &format!("{beginner:?}-seen")).await;
        let mut following = Vec::new();
        for other in ALL {
            let what = format!("{beginner:?} begins, {other:?} looks");
            if let Some(state) = other.look(&gateway, &asked).await {
                assert!(
                    ["in_progress", "queued", "working", "submitted", "running"].contains(&state.as_str()),
                    "{what}: {state}"
                );
            }
            if let Some(mut stream) = other.follow(&gateway, &asked).await {
                assert_eq!(stream.status().await, 200, "{what}");
                following.push((other, stream));
            }
        }
        Over::AgentApi.cancel(&gateway, &asked).await.expect("a way to");
        for (other, mut stream) in following {
            let told = frames(stream.answer_here().await.text());
            let last = told.last().unwrap_or_else(|| panic!("{other:?} told nothing")).to_string().to_lowercase();
            assert!(last.contains("cancel"), "{beginner:?} begins, {other:?} follows: {last}");
        }
    }
}

#[tokio::test]
async fn a_session_that_waits_is_let_go_over_every_protocol_that_can() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL {
        for other in ALL {
            for word in ["approval", "question"] {
                let what = format!("{asker:?} asks {word}, {other:?} lets go");
                let asked = asker.ask(&gateway, &format!("{asker:?}-{other:?}-{word}"), word).await;
                let Some(answer) = other.cancel(&gateway, &asked).await else { continue };
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                if other == Over::Hitl {
                    // The session is gone, and with it what was known of its items.
                    let body = json!({ "session_id": asked.session, "input": [native(&asked.item, Says::Accept)] });
                    let late = gateway.post("/agents/demo/process", &body).await;
                    assert!(late.status == 409 && late.text().contains(&asked.item), "{what}: {}", late.text());
                } else {
                    is_closed(&gateway, &asked, &what).await;
                }
                if asker == Over::A2a {
                    let found = task(&gateway, asked.id()).await.json();
                    assert_eq!(outcome(&found).0, "CANCELED", "{what}: {found}");
                }
                is_free(&gateway, &asked, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn stopping_a_session_and_deleting_its_run_withdraw_what_it_asks() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL {
        let asked = asker.ask(&gateway, &format!("{asker:?}-stop"), "approval").await;
        let stopped = gateway.post("/agents/demo/stop", &json!({ "session_id": asked.session })).await;
        assert_eq!(stopped.status, 200, "{asker:?}: {}", stopped.text());
        is_closed(&gateway, &asked, &format!("{asker:?} was stopped")).await;
        is_free(&gateway, &asked, &format!("{asker:?} was stopped")).await;

        for path in ["/agents/demo/runs", "/v1/responses"] {
            let what = format!("{asker:?}, deleted at {path}");
            let asked = asker.ask(&gateway, &format!("{asker:?}{}", path.replace('/', "-")), "approval").await;
            let deleted = gateway.open("DELETE", &format!("{path}/{}", asked.run), &[], b"").await.answer().await;
            assert_eq!(deleted.status, 200, "{what}: {}", deleted.text());
            let body = json!({ "session_id": asked.session, "input": [native(&asked.item, Says::Accept)] });
            let late = gateway.post("/agents/demo/process", &body).await;
            assert!(late.status == 409 && late.text().contains(&asked.item), "{what}: {}", late.text());
            is_free(&gateway, &asked, &what).await;
        }
    }
}

#[tokio::test]
async fn a_message_without_a_task_does_not_vanish_in_a_context_that_waits() {
    let gateway = Gateway::with(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for asker in ALL {
        let asked = asker.ask(&gateway, &format!("{asker:?}"), "approval").await;
        let said =
            json!({ "messageId": "m", "role": "ROLE_USER", "contextId": asked.session, "parts": [{ "text": "yes" }] });
        for (path, now) in [("send", false), ("send", true), ("stream", false)] {
            let body = json!({ "message": said, "configuration": { "returnImmediately": now } });
            let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
            let path = format!("/a2a/demo/message:{path}");
            let refused = gateway.open("POST", &path, &headers, body.to_string().as_bytes()).await.answer().await;
            let what = format!("{asker:?} {path} {now}: {}", refused.text());
            assert_eq!(refused.status, 400, "{what}");
            let error = refused.json()["error"].clone();
            assert_eq!(error["details"][0]["reason"], "UNSUPPORTED_OPERATION", "{what}");
            assert_eq!(error["details"][0]["metadata"]["taskId"], asked.id(), "{what}");
        }
        let done = Over::A2a.answer(&gateway, &asked, Says::Reject).await.expect("an answer");
        heard(Over::A2a, &done, Says::Reject);
    }
}

#[tokio::test]
async fn a_task_that_waits_is_answered_over_any_protocol_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("{FILE}{DEMO}{ROUTES}");
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let mut open = Vec::new();
    for answerer in ALL {
        for says in [Says::Accept, Says::Words, Says::Output] {
            open.push((
                answerer,
                says,
                Over::A2a.ask(&gateway, &format!("{answerer:?}-{says:?}"), says.asked_by()).await,
            ));
        }
    }
    gateway.stop().await;
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    for (answerer, says, asked) in &open {
        let answer = answerer.answer(&gateway, asked, *says).await.expect("an answer");
        heard(*answerer, &answer, *says);
    }
    gateway.stop().await;
    // And who answered is known for good.
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    for (answerer, says, asked) in &open {
        let found = task(&gateway, asked.id()).await.json();
        let (state, by) = outcome(&found);
        assert!(state == "COMPLETED" && by.is_some(), "{answerer:?} {says:?}: {found}");
        is_free(&gateway, asked, "after a restart").await;
    }
}

#[tokio::test]
async fn an_answer_that_does_not_reach_the_agent_leaves_the_task_waiting() {
    use crate::support::agent::{approval, saying};
    use crate::support::upstream::{Answer, Upstream};
    let upstream = Upstream::answering([approval("ask_1"), Answer::whole(500, &[], "down"), saying(&["done"])]);
    let agent = crate::support::gateway::agent("demo", &upstream.url("/process"), "", "retries = 0");
    let gateway = Gateway::with(&format!("{MEMORY}{agent}{ROUTES}")).await;
    let asked = Over::A2a.ask(&gateway, "s", "remove it").await;
    let lost = Over::AgentApi.answer(&gateway, &asked, Says::Reject).await.expect("an answer");
    assert_eq!(lost.status, 502, "{}", lost.text());
    let found = task(&gateway, asked.id()).await.json();
    assert_eq!(outcome(&found), ("INPUT_REQUIRED", None), "{found}");
    assert!(found["status"]["message"].to_string().contains("ask_1"), "it asks what it asked: {found}");
    let done = Over::AgentApi.answer(&gateway, &asked, Says::Reject).await.expect("an answer");
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(outcome(&task(&gateway, asked.id()).await.json()).0, "COMPLETED");
}
