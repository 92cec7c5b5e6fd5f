//! Clients of OpenAI Chat Completions, which send all of their conversation with each request and name their session.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, frames, stateless_answer};
use crate::endings::{Ending, Failure, joined, text_in};
use crate::gateway::{Gateway, JSON};
use crate::http::Response;

const PATH: &str = "/v1/chat/completions";

fn request(session: &str, messages: &Value, streamed: bool) -> Turn {
    let mut body = json!({ "model": "demo", "messages": messages });
    if streamed {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    Turn::new(PATH, body).with_headers(JSON).with_header("x-session-id", session)
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "chat-completions",
        streams: true,
        resends: true,
        outlasts_clients: false,
        fails_with_success: false,
        end: "[DONE]",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[(
                "",
                r#"{"error":{"message":"valid credentials are required","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            )],
            rate: "\"code\":\"rate_limit_exceeded\"",
            runs: ("/error/code", "rate_limit_exceeded"),
            limited_agent: (429, "/error/code", "rate_limit_exceeded"),
            away: "/error/code",
            overloaded: (503, "upstream_overloaded"),
            unreachable: (502, "upstream_error"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
        request(session, &json!([{ "role": "user", "content": content }]), false).send(gateway).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let text = stateless_answer(decision);
        let messages = json!([{ "role": "tool", "tool_call_id": interrupt.item, "content": text }]);
        Some(request(&interrupt.session, &messages, false).send(gateway).await)
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

    /// With `[DONE]` only after a reason to stop: some clients take a stream that merely ends for a success.
    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        let text = answer.text();
        let reasons = received.iter().filter(|chunk| chunk["choices"][0]["finish_reason"].is_string()).count();
        let done = text.matches("data: [DONE]\n\n").count();
        let last = received.last().expect("a stream has chunks");
        if last.get("error").is_none() {
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
            assert_eq!((reasons, done), (1, 1), "{text}");
            return Ending::Completed;
        }
        assert_eq!((reasons, done), (0, 0), "{text}");
        let error = &last["error"];
        assert_eq!(
            (error["type"].as_str(), error["code"].as_str()),
            (Some(failure.openai.0), Some(failure.openai.1)),
            "{last}"
        );
        Ending::Failed
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        assert_eq!(answer.header("x-should-retry"), Some("false"), "the agent may have begun to work");
        (answer.json()["error"]["code"].clone(), (failure.status, failure.openai.1.to_owned()))
    }

    fn expect_no_call(frames: &[Value]) {
        let has_reason = |frame: &Value| frame["choices"][0]["finish_reason"].is_string();
        assert!(!frames.iter().any(has_reason), "a reason to stop lets clients run their tools: {frames:#?}");
    }

    fn text(answer: &Response) -> String {
        joined(answer, |chunk| text_in(&chunk["choices"][0]["delta"]["content"]))
    }
}
