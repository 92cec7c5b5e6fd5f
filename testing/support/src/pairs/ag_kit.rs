//! Clients of AG-Kit.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, decision_fields, frames};
use crate::endings::{Ending, Failure, joined, text_in};
use crate::gateway::{Gateway, JSON};
use crate::http::Response;

const PATH: &str = "/ag-kit/demo/send-message";

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "ag-kit",
        streams: true,
        resends: false,
        outlasts_clients: false,
        fails_with_success: true,
        end: "[DONE]",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[
                ("/error/code", r#""auth_failed""#),
                ("/error/message", r#""valid credentials are required""#),
            ],
            rate: "\"code\":\"rate_limit_exceeded\"",
            runs: ("/error/code", "rate_limit_exceeded"),
            limited_agent: (429, "/error/code", "upstream_rate_limited"),
            away: "/error/code",
            overloaded: (503, "upstream_overloaded"),
            unreachable: (502, "upstream_unreachable"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
        let messages = json!([{ "role": "user", "content": content }]);
        gateway.post(PATH, &json!({ "conversationId": session, "messages": messages })).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let item = &interrupt.item;
        let mut body = json!({ "conversationId": interrupt.session });
        match decision {
            Decision::Output => {
                body["messages"] = json!([{ "role": "tool", "toolCallId": item, "content": "Paris" }]);
            }
            Decision::Words => body["resume"] = json!({ "interruptId": item, "payload": "blue" }),
            _ => body["resume"] = json!({ "interruptId": item, "payload": decision_fields(decision) }),
        }
        Some(gateway.post(PATH, &body).await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        let body = json!({ "conversationId": session, "messages": [{ "role": "user", "content": LONG }] });
        LongRun::Open(gateway.start_post(PATH, &body).await)
    }

    fn turn(session: &str, words: &str, _: bool) -> Turn {
        let messages = json!([{ "role": "user", "content": words }]);
        Turn::new(PATH, json!({ "conversationId": session, "messages": messages })).with_headers(JSON)
    }

    fn ending(answer: &Response, _: &Failure) -> Ending {
        let received = frames(answer.text());
        let text = answer.text();
        assert!(text.matches("data: [DONE]").count() == 1 && text.ends_with("data: [DONE]\n\n"), "{text}");
        let is_error = |frame: &&Value| frame["type"] == "error";
        let errors = received.iter().filter(is_error).count();
        assert_eq!(usize::from(received.last().is_some_and(|last| is_error(&last))), errors, "{text}");
        if errors == 0 { Ending::Completed } else { Ending::Failed }
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        (answer.json()["error"]["code"].clone(), (failure.status, failure.code.to_lowercase()))
    }

    fn expect_no_call(frames: &[Value]) {
        let count = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
        assert_eq!(count("tool-call-end"), count("tool-result"), "{frames:#?}");
    }

    fn text(answer: &Response) -> String {
        joined(answer, |event| text_in(&event["content"]).filter(|_| event["type"] == "text"))
    }
}
