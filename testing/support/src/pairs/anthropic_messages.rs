//! Clients of Anthropic Messages, which send all of their conversation with each request and name their session.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, frames, stateless_answer};
use crate::endings::{Ending, Failure, joined, only_end, text_in};
use crate::gateway::{Gateway, JSON};
use crate::http::Response;

const PATH: &str = "/anthropic/v1/messages";

/// A request with these messages. Reasoning is shown to those who ask for it.
fn request(session: &str, messages: &Value, streamed: bool) -> Turn {
    let thinking = json!({ "type": "enabled", "budget_tokens": 1024 });
    let body =
        json!({ "model": "demo", "max_tokens": 2000, "messages": messages, "stream": streamed, "thinking": thinking });
    let headers = [JSON, &[("anthropic-version", "2023-06-01")]].concat();
    Turn::new(PATH, body).with_headers(&headers).with_header("x-session-id", session)
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "anthropic-messages",
        streams: true,
        resends: true,
        outlasts_clients: false,
        fails_with_success: false,
        end: "message_stop",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[(
                "",
                r#"{"type":"error","request_id":$REQUEST,"error":{"type":"authentication_error","message":"valid credentials are required","details":{"error_code":"auth_failed"}}}"#,
            )],
            rate: "\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"",
            runs: ("/error/type", "rate_limit_error"),
            limited_agent: (429, "/error/type", "rate_limit_error"),
            away: "/error/type",
            overloaded: (529, "overloaded_error"),
            unreachable: (502, "api_error"),
            draining: 529,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "image", "source": { "type": "url", "url": url } })));
        request(session, &json!([{ "role": "user", "content": content }]), false).send(gateway).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let text = stateless_answer(decision);
        let result = json!({ "type": "tool_result", "tool_use_id": interrupt.item, "content": text });
        Some(request(&interrupt.session, &json!([{ "role": "user", "content": [result] }]), false).send(gateway).await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        LongRun::Open(Self::turn(session, LONG, true).open(gateway).await)
    }

    fn turn(session: &str, words: &str, streamed: bool) -> Turn {
        request(session, &json!([{ "role": "user", "content": words }]), streamed)
    }

    fn resend(session: &str, _: &str, messages: &Value, streamed: bool) -> Option<Turn> {
        Some(request(session, messages, streamed))
    }

    /// With the line `event:`, without which clients skip a frame.
    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        for frame in answer.text().split("\n\n").filter(|frame| !frame.is_empty()) {
            let event = frame.lines().next().and_then(|line| line.strip_prefix("event: "));
            let data = frame.lines().nth(1).and_then(|line| line.strip_prefix("data: ")).expect("an event has data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(event, data["type"].as_str(), "{frame}");
        }
        let last =
            only_end(&received, |event| ["message_stop", "error"].contains(&event["type"].as_str().expect("a type")));
        if last["type"] == "message_stop" {
            let reasons = received.iter().filter(|event| event["delta"]["stop_reason"].is_string()).count();
            assert_eq!(reasons, 1, "{}", answer.text());
            return Ending::Completed;
        }
        assert_eq!(last["error"]["type"], failure.anthropic, "{last}");
        assert_eq!(last["error"]["details"]["error_code"], failure.code.to_lowercase(), "{last}");
        Ending::Failed
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        let body = answer.json();
        assert_eq!(answer.header("x-should-retry"), Some("false"), "the agent may have begun to work");
        assert_eq!(body["error"]["details"]["error_code"], failure.code.to_lowercase(), "{body}");
        (body["error"]["type"].clone(), (failure.status, failure.anthropic.to_owned()))
    }

    fn expect_no_call(frames: &[Value]) {
        let has_end = frames.iter().any(|frame| frame["type"] == "message_delta");
        assert!(!has_end, "a reason to stop lets clients run their tools: {frames:#?}");
    }

    fn text(answer: &Response) -> String {
        joined(answer, |event| text_in(&event["delta"]["text"]))
    }
}
