//! Clients of A2A 1.0, over REST.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, decision_fields, frames, plain, state};
use crate::endings::{Ending, Failure, joined, only_end};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

const V1: (&str, &str) = ("a2a-version", "1.0");

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Exchange {
    gateway.open("POST", &format!("/a2a/demo{path}"), &[&[V1], JSON].concat(), body.to_string().as_bytes()).await
}

/// Fetches a task.
pub async fn task(gateway: &Gateway, id: &str) -> Response {
    gateway.open("GET", &format!("/a2a/demo/tasks/{id}"), &[V1], b"").await.response().await
}

/// Subscribes to a task.
pub async fn subscribe(gateway: &Gateway, id: &str) -> Exchange {
    post(gateway, &format!("/tasks/{id}:subscribe"), &json!({})).await
}

/// Sends a message, with or without a task id.
pub async fn message(gateway: &Gateway, session: &str, task: Option<&str>, part: Value) -> Response {
    let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    post(gateway, "/message:send", &json!({ "message": message })).await.response().await
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "a2a",
        streams: true,
        resends: false,
        outlasts_clients: true,
        fails_with_success: true,
        end: "TASK_STATE_COMPLETED",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[("/error/code", r#"401"#), ("/error/status", r#""UNAUTHENTICATED""#)],
            rate: "\"code\":-32012",
            runs: ("/error/status", "RESOURCE_EXHAUSTED"),
            limited_agent: (429, "/error/status", "RESOURCE_EXHAUSTED"),
            away: "/error/details/0/reason",
            overloaded: (503, "UPSTREAM_UNAVAILABLE"),
            unreachable: (503, "UPSTREAM_UNAVAILABLE"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut parts = vec![json!({ "text": words })];
        parts.extend(picture.map(|url| json!({ "url": url, "mediaType": "image/png" })));
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": parts });
        // Statuses such as those of reasoning are part of the stream only.
        let path = if words == "reasoning" { "/message:stream" } else { "/message:send" };
        post(gateway, path, &json!({ "message": message })).await.response().await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let item = &interrupt.item;
        let part = match decision {
            Decision::Output => json!({ "function_call_output": { "call_id": item, "output": "Paris" } }),
            Decision::Words => json!({ "interrupt_id": item, "decision": "respond", "text": "blue" }),
            Decision::Value => json!({ "interrupt_id": item, "colour": "blue" }),
            _ => {
                let mut part = decision_fields(decision);
                part["interrupt_id"] = item.as_str().into();
                part
            }
        };
        Some(message(gateway, &interrupt.session, None, json!({ "data": part })).await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        let message =
            json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": LONG }] });
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        LongRun::Background(post(gateway, "/message:send", &body).await.response().await)
    }

    async fn status(gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        state(task(gateway, &interrupt.run).await, "/status/state")
    }

    async fn follow(gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        Some(subscribe(gateway, &plain(interrupt)).await)
    }

    async fn cancel(gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(post(gateway, &format!("/tasks/{}:cancel", interrupt.run), &json!({})).await.response().await)
    }

    fn turn(session: &str, words: &str, streamed: bool) -> Turn {
        let path = if streamed { "/a2a/demo/message:stream" } else { "/a2a/demo/message:send" };
        let message =
            json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": words }] });
        Turn::new(path, json!({ "message": message })).with_headers(&[JSON, &[V1]].concat())
    }

    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        if failure.interrupts {
            let last = only_end(&received, |frame| frame.get("error").is_some());
            assert_eq!(last["error"]["status"], failure.a2a.1, "{last}");
            return Ending::Failed;
        }
        let last = only_end(&received, |frame| {
            let state = frame["statusUpdate"]["status"]["state"].as_str().unwrap_or("TASK_STATE_WORKING");
            !["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state)
        });
        let status = &last["statusUpdate"]["status"];
        if status["state"] == "TASK_STATE_COMPLETED" {
            return Ending::Completed;
        }
        assert_eq!(status["state"], "TASK_STATE_FAILED");
        assert!(status.to_string().contains("the agent"), "it says why: {status}");
        Ending::Failed
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        let body = answer.json();
        let detail = &body["error"]["details"][0];
        let code = &detail["metadata"]["code"];
        let named = if code.is_null() { &detail["reason"] } else { code };
        (named.clone(), (failure.a2a.0, failure.a2a.1.to_owned()))
    }

    fn text(answer: &Response) -> String {
        joined(answer, |event| {
            let parts = event["artifactUpdate"]["artifact"]["parts"].as_array()?;
            Some(parts.iter().filter_map(|part| part["text"].as_str()).collect())
        })
    }
}
