//! Clients of AG-UI 1.0.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, decision_fields, frames, plain};
use crate::endings::{Ending, Failure, joined, only_end, text_in};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

async fn post(gateway: &Gateway, session: &str, run: &str, fields: Value) -> Exchange {
    let mut body = json!({
        "threadId": session, "runId": run, "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {},
        "protocolVersion": "1.0",
    });
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    gateway.start_post("/ag-ui/demo", &body).await
}

fn request(session: &str, run: &str, messages: &Value) -> Turn {
    let body = json!({ "threadId": session, "runId": run, "protocolVersion": "1.0", "messages": messages });
    Turn::new("/ag-ui/demo", body).with_headers(JSON)
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "ag-ui",
        streams: true,
        resends: true,
        outlasts_clients: false,
        fails_with_success: true,
        end: "RUN_FINISHED",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[("/error", r#"{"code":"AUTH_FAILED","message":"valid credentials are required"}"#)],
            rate: "\"code\":\"RATE_LIMIT_EXCEEDED\"",
            runs: ("/error/code", "RATE_LIMIT_EXCEEDED"),
            // Its streams begin before the agent does.
            limited_agent: (200, "/code", "UPSTREAM_RATE_LIMITED"),
            away: "/code",
            overloaded: (200, "UPSTREAM_OVERLOADED"),
            unreachable: (200, "UPSTREAM_UNREACHABLE"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "image", "source": { "type": "url", "value": url } })));
        let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": content }]);
        post(gateway, session, "asks", json!({ "messages": messages })).await.response().await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let item = &interrupt.item;
        let fields = match decision {
            Decision::Output => {
                let message = json!({ "id": "output", "role": "tool", "toolCallId": item, "content": "Paris" });
                json!({ "messages": [message] })
            }
            _ => {
                let payload = if decision == Decision::Words { json!("blue") } else { decision_fields(decision) };
                json!({ "resume": [{ "interruptId": item, "status": "resolved", "payload": payload }] })
            }
        };
        Some(post(gateway, &interrupt.session, "answers", fields).await.response().await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": LONG }]);
        LongRun::Open(post(gateway, session, "long", json!({ "messages": messages })).await)
    }

    async fn follow(gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        let path = format!("/ag-ui/demo?threadId={}&runId={}", interrupt.session, plain(interrupt));
        Some(gateway.open("GET", &path, &[], b"").await)
    }

    fn turn(session: &str, words: &str, _: bool) -> Turn {
        let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": words }]);
        request(session, &format!("{session}-run"), &messages)
    }

    fn resend(session: &str, run: &str, messages: &Value, _: bool) -> Option<Turn> {
        Some(request(session, run, messages))
    }

    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        let last = only_end(&received, |frame| {
            ["RUN_FINISHED", "RUN_ERROR"].contains(&frame["type"].as_str().expect("events have types"))
        });
        if last["type"] == "RUN_FINISHED" {
            return Ending::Completed;
        }
        assert_eq!(last["code"], failure.code, "{last}");
        Ending::Failed
    }

    fn refusal(answer: &Response, _: &Failure) -> (Value, (u16, String)) {
        panic!("errors of the agent are events there: {}", answer.text())
    }

    fn text(answer: &Response) -> String {
        joined(answer, |event| text_in(&event["delta"]).filter(|_| event["type"] == "TEXT_MESSAGE_CONTENT"))
    }
}
