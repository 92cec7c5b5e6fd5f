//! The checks of an opened store: its runs are shown as they were, its open items take every answer over every
//! protocol, its conversations continue, and its documents still count.

use serde_json::{Value, json};

use crate::contents::{Waiting, protocol};
use crate::demo::{a2a, day_of_today, message, texts_of_run, total, turn};
use crate::support::gateway::{Gateway, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{ALL_PROTOCOLS, Decision, Protocol, answer_items, native, runs, task, texts_of};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};
use crate::{OpenedCopy, all_stores, played};

/// Asserts that an answer is a success and has a text.
fn assert_text(answer: &Response, text: &str, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let texts = texts_of(answer.text()).replace("\\\"", "\"");
    assert!(texts.contains(text), "{what}: {text:?} is not in {}", answer.text());
}

#[tokio::test]
async fn every_run_is_shown_followed_and_listed_as_it_was() {
    for files in all_stores() {
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, contents, what) = (opened.stand.ann(), &opened.contents, &opened.what);
        assert_eq!(total(&ann).await, contents.documents.runs, "{what}");

        for ended in &contents.ended {
            let what = format!("{what}: {} over {}", ended.command, ended.protocol);
            let run = ann.run("demo", &ended.run).await;
            assert_eq!(run["status"], ended.status, "{what}");
            assert_eq!(run["error"]["code"].as_str().unwrap_or_default(), ended.code, "{what}");
            assert_eq!(texts_of_run(&run), ended.texts, "{what}");
            assert!(runs(&ann, &ended.session).await.contains(&ended.run), "{what}: the session lists the run");
            assert_eq!(ann.final_frame("demo", &ended.run).await["status"], ended.status, "{what}");
        }
        for waiting in &contents.waiting {
            assert_waits(&ann, waiting, what).await;
        }
        for turn in &contents.played {
            let run = ann.run(&turn.agent, &turn.run).await;
            assert_eq!(run["status"], "completed", "{what}: {run}");
            assert!(turn.items.iter().all(|item| run.to_string().contains(item)), "{what}: {run}");
        }

        let foreign = format!("/agents/demo/runs/{}", contents.documents.foreign);
        assert_eq!(ann.get(&foreign).await.status, 404, "{what}: another owner's run");
        assert_eq!(opened.stand.caller("bob").get(&foreign).await.status, 200, "{what}: the owner's run");
    }
}

/// A waiting run is readable and can be followed over every protocol that can.
pub(crate) async fn assert_waits(ann: &Gateway, waiting: &Waiting, what: &str) {
    let what = format!("{what}: {} over {}", waiting.command, waiting.protocol);
    let interrupt = waiting.interrupt(0);
    for reader in ALL_PROTOCOLS {
        // A HITL user has one session at a time, and only that protocol names its users.
        if reader == Protocol::Hitl && waiting.asker() != Protocol::Hitl {
            continue;
        }
        if let Some(status) = reader.status(ann, &interrupt).await {
            let expected: &[&str] = match reader {
                Protocol::A2a if waiting.asker() == Protocol::A2a => &["input_required", "auth_required"],
                Protocol::A2a => &["input_required", "auth_required", "completed"],
                Protocol::Hitl => &["interrupted"],
                Protocol::Mcp => &["input_required"],
                _ => &["completed"],
            };
            assert!(expected.contains(&status.as_str()), "{what}: {status} over {reader:?}");
        }
    }
    for reader in [Protocol::AgentApi, Protocol::Responses] {
        let followed = reader.follow(ann, &interrupt).await.unwrap().response().await;
        assert!(waiting.items.iter().all(|item| followed.text().contains(item)), "{what}: {}", followed.text());
    }
}

/// The decisions on an item of a command.
fn decisions(command: &str) -> &'static [Decision] {
    match command {
        "approval" => &[Decision::Accept, Decision::Reject, Decision::Edit, Decision::Respond],
        "question" => &[Decision::Value],
        "login" => &[Decision::Done],
        "client tool" => &[Decision::Output],
        other => panic!("{other:?} asks for nothing"),
    }
}

#[tokio::test]
async fn every_open_item_is_answered_over_its_own_protocol() {
    answer_all(|_, own| own).await;
}

#[tokio::test]
async fn every_open_item_is_answered_over_another_protocol() {
    // Each answers for all others in the course of the items.
    answer_all(|number, own| {
        let own = ALL_PROTOCOLS.iter().position(|protocol| *protocol == own).unwrap();
        ALL_PROTOCOLS[(own + 1 + number % (ALL_PROTOCOLS.len() - 1)) % ALL_PROTOCOLS.len()]
    })
    .await;
}

/// Answers the items of all waiting runs. Each decision needs a store of its own, because an item is answered once.
async fn answer_all(answerer: impl Fn(usize, Protocol) -> Protocol) {
    for number in 0..4 {
        for files in all_stores() {
            let opened = OpenedCopy::start(files, 0).await;
            let ann = opened.stand.ann();
            for (place, waiting) in opened.contents.waiting.iter().enumerate() {
                let answerer = answerer(place + number, waiting.asker());
                let what = format!(
                    "{}: {} over {} answered over {answerer:?}",
                    opened.what, waiting.command, waiting.protocol
                );
                if waiting.command == "approvals" {
                    answer_both(&ann, waiting, answerer, number % 2 == 0, &what).await;
                } else {
                    let decisions = decisions(&waiting.command);
                    let decision = decisions[number % decisions.len()];
                    answer_one(&ann, waiting, answerer, decision, &what).await;
                }
                is_free(&ann, &waiting.session, &what).await;
            }
        }
    }
}

async fn answer_one(ann: &Gateway, waiting: &Waiting, answerer: Protocol, decision: Decision, what: &str) {
    let what = format!("{what} with {decision:?}");
    // Responses has neither edits nor results.
    let Some(answer) = answerer.answer(ann, &waiting.interrupt(0), decision).await else {
        let answer = Protocol::AgentApi.answer(ann, &waiting.interrupt(0), decision).await.unwrap();
        assert_text(&answer, decision.expected_text(), &what);
        return;
    };
    assert_text(&answer, decision.expected_text(), &what);
    if waiting.asker() == Protocol::A2a {
        let shown = task(ann, &waiting.run).await.json();
        assert_eq!(shown["status"]["state"], "TASK_STATE_COMPLETED", "{what}: {shown}");
    }
    if decision != Decision::Output {
        let body = json!({ "session_id": waiting.session, "input": [native(&waiting.items[0], Decision::Reject)] });
        let again = ann.post("/agents/demo/process", &body).await;
        assert_eq!(again.status, 409, "{what}: an item is answered once: {}", again.text());
    }
}

/// Accepts one of two approvals and rejects the other one, in the reverse order where a protocol sends both at once.
async fn answer_both(ann: &Gateway, waiting: &Waiting, answerer: Protocol, is_first: bool, what: &str) {
    let decisions = if is_first { [Decision::Accept, Decision::Reject] } else { [Decision::Reject, Decision::Accept] };
    let text = match answerer {
        // One item at a time.
        Protocol::AgKit | Protocol::Hitl => {
            let mut text = String::new();
            for (item, decision) in decisions.into_iter().enumerate() {
                let answer = answerer.answer(ann, &waiting.interrupt(item), decision).await.unwrap();
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                text = texts_of(answer.text());
            }
            text
        }
        _ => {
            let answer = both_at_once(ann, waiting, answerer, decisions).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            texts_of(answer.text())
        }
    };
    let [sent, kept] = if is_first { ["ada", "bob"] } else { ["bob", "ada"] };
    assert!(text.contains(&format!("The mail was sent to {sent}@example.com.")), "{what}: {text}");
    assert!(!text.contains(&format!("The mail was sent to {kept}@example.com.")), "{what}: {text}");
    assert!(text.contains("I did not send it, because you rejected it"), "{what}: {text}");
}

pub(crate) async fn both_at_once(
    ann: &Gateway,
    waiting: &Waiting,
    answerer: Protocol,
    decisions: [Decision; 2],
) -> Response {
    let of = |item: usize| (waiting.items[item].as_str(), decisions[item] == Decision::Accept);
    let word = |accept: bool| if accept { "accept" } else { "reject" };
    let answers: Vec<(&str, bool)> = vec![of(1), of(0)];
    let each = |write: &dyn Fn(&str, bool) -> Value| -> Value {
        answers.iter().map(|(item, accept)| write(item, *accept)).collect()
    };
    match answerer {
        Protocol::AgentApi => {
            let input = each(&|item, accept| native(item, if accept { Decision::Accept } else { Decision::Reject }));
            let body = json!({ "session_id": waiting.session, "stream": false, "input": input });
            ann.post("/agents/demo/process", &body).await
        }
        Protocol::Responses => {
            let input = each(
                &|item, accept| json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": accept }),
            );
            let previous = waiting.run.replacen("response_", "resp_", 1).replace('-', "");
            let body = json!({ "model": "demo", "previous_response_id": previous, "input": input });
            ann.post("/v1/responses", &body).await
        }
        Protocol::ChatCompletions => {
            let messages = each(&|item, accept| {
                let content = json!({ "decision": word(accept) }).to_string();
                json!({ "role": "tool", "tool_call_id": item, "content": content })
            });
            answerer.resend(&waiting.session, "answers", &messages, &Value::Null, false).send(ann).await
        }
        Protocol::AnthropicMessages => {
            let results = each(&|item, accept| {
                let content = json!({ "decision": word(accept) }).to_string();
                json!({ "type": "tool_result", "tool_use_id": item, "content": content })
            });
            let messages = json!([{ "role": "user", "content": results }]);
            answerer.resend(&waiting.session, "answers", &messages, &Value::Null, false).send(ann).await
        }
        Protocol::AgUi => {
            let resume = each(
                &|item, accept| json!({ "interruptId": item, "status": "resolved", "payload": { "decision": word(accept) } }),
            );
            let further = json!({ "resume": resume });
            answerer.resend(&waiting.session, "answers", &json!([]), &further, false).send(ann).await
        }
        Protocol::A2a => {
            let parts = each(&|item, accept| json!({ "data": { "interrupt_id": item, "decision": word(accept) } }));
            let message = json!({
                "messageId": "answers", "role": "ROLE_USER", "contextId": waiting.session, "parts": parts,
            });
            let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
            let body = json!({ "message": message }).to_string();
            ann.open("POST", "/a2a/demo/message:send", &headers, body.as_bytes()).await.response().await
        }
        Protocol::Mcp => {
            let response = |(item, accept): &(&str, bool)| {
                let content = json!({ "decision": word(*accept) });
                ((*item).to_owned(), json!({ "action": "accept", "content": content }))
            };
            answer_items(ann, &waiting.interrupt(0), answers.iter().map(response).collect()).await
        }
        Protocol::AgKit | Protocol::Hitl => panic!("{answerer:?} answers one item at a time"),
    }
}

/// The session takes a new turn.
pub(crate) async fn is_free(ann: &Gateway, session: &str, what: &str) {
    let answer = turn(ann, "demo", session, "echo free").await;
    assert!(answer.to_string().contains("free"), "{what}: {answer}");
}

#[tokio::test]
async fn conversations_with_agents_of_every_protocol_continue_and_their_items_are_accepted_and_rejected() {
    for end in [0, 1] {
        for files in all_stores() {
            played::continue_all(&OpenedCopy::start(files, end).await, end).await;
        }
        for files in all_stores() {
            played::answer_all_over_the_agent_api(&OpenedCopy::start(files, end).await, end).await;
        }
    }
}

#[tokio::test]
async fn resent_conversations_are_recognised() {
    for files in all_stores() {
        let opened = OpenedCopy::start(files, 0).await;
        let ann = opened.stand.ann();
        for resent in &opened.contents.resent {
            let what = format!("{}: {}", opened.what, resent.protocol);
            let protocol = protocol(&resent.protocol);
            let mut messages = resent.messages.clone();
            messages.push(message(protocol, "user", messages.len(), "echo three"));
            let turn = protocol.resend(&resent.name, "three", &json!(messages), &Value::Null, false);
            assert_text(&turn.send(&ann).await, "three", &what);
            assert_eq!(runs(&ann, &resent.session).await.len(), resent.runs + 1, "{what}: the same session continues");

            // An edited history is another conversation.
            messages[0] = message(protocol, "user", 0, "echo other");
            let turn = protocol.resend(&resent.name, "edited", &json!(messages), &Value::Null, false);
            assert_eq!(turn.send(&ann).await.status, 200, "{what}");
        }
    }
}

#[tokio::test]
async fn a_push_config_is_listed_and_its_receiver_gets_the_answered_task() {
    for files in all_stores() {
        let receiver = Upstream::always(Reply::complete(200, &[], "{}"));
        let contents = files.contents();
        files.move_receivers(&contents.push.receiver, &receiver.url(""));
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what, push) = (opened.stand.ann(), &opened.what, &opened.contents.push);
        let id = push.waiting.run.trim_start_matches("response_");
        let listed = a2a(&ann, "ListTaskPushNotificationConfigs", &json!({ "taskId": id })).await;
        assert_eq!(listed["configs"][0]["id"], push.config, "{what}: {listed}");

        let answer = Protocol::A2a.answer(&ann, &push.waiting.interrupt(0), Decision::Accept).await.unwrap();
        assert_text(&answer, Decision::Accept.expected_text(), what);
        poll_until("the end of the task", async || {
            receiver
                .requests()
                .iter()
                .any(|request| request.json().to_string().contains("TASK_STATE_COMPLETED"))
                .then_some(())
        })
        .await;
        let requests = receiver.requests();
        let token = |request: &crate::support::upstream::ReceivedRequest| {
            request.headers.get("x-a2a-notification-token").cloned()
        };
        assert!(requests.iter().all(|request| token(request).as_deref() == Some("secret")), "{what}: {requests:?}");
    }
}

#[tokio::test]
async fn used_tokens_still_count() {
    for files in all_stores() {
        let contents = files.contents();
        let today = day_of_today();
        files.move_tokens(contents.day, today);
        let opened = OpenedCopy::start(files, 0).await;
        let eve = opened.stand.caller("eve");
        let refused = eve.post("/agents/demo/process", &user_turn_in("more", "echo more")).await;
        // A new day has begun meanwhile.
        if day_of_today() == today {
            assert_eq!(refused.status, 429, "{}: {}", opened.what, refused.text());
        }
        turn(&opened.stand.caller("bob"), "demo", "more", "echo more").await;
    }
}

#[tokio::test]
async fn documents_of_clients_are_read_and_continued() {
    for files in all_stores() {
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what, documents) = (opened.stand.ann(), &opened.what, &opened.contents.documents);

        let path = format!("/v1/conversations/{}/items?order=asc", documents.conversation);
        let page = ann.get(&path).await.json();
        let texts: Vec<&str> =
            page["data"].as_array().unwrap().iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(texts, documents.items, "{what}");
        let body = json!({ "model": "kept", "conversation": documents.conversation, "input": "history" });
        let answer = ann.post("/v1/responses", &body).await;
        assert_text(&answer, "This is message 3 of yours", what);

        let body = json!({ "model": "kept", "previous_response_id": documents.response, "input": "history" });
        assert_text(&ann.post("/v1/responses", &body).await, "This is message 2 of yours", what);

        let completion = ann.get(&format!("/v1/chat/completions/{}", documents.completion)).await;
        assert_text(&completion, "stored", what);
        assert_eq!(completion.json()["metadata"]["topic"], "upgrade", "{what}");

        let answer = turn(&ann, "kept", &documents.kept_session, "history").await;
        assert!(answer.to_string().contains("This is message 3 of yours"), "{what}: {answer}");
        assert!(answer.to_string().contains("The first was: echo one"), "{what}: {answer}");
    }
}
