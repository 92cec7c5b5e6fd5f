//! Clients of the Responses API.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, frames, plain, post, state};
use crate::endings::{Ending, Failure, joined, only_end, text_in};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

fn output(item: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": item, "output": output })
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "responses",
        streams: true,
        resends: false,
        outlasts_clients: false,
        fails_with_success: true,
        end: "response.completed",
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

    async fn say(gateway: &Gateway, _: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "input_text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "input_image", "image_url": url })));
        let input = json!([{ "role": "user", "content": content }]);
        gateway.post("/v1/responses", &json!({ "model": "demo", "input": input })).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let item = &interrupt.item;
        let approval =
            |approve: bool| json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": approve });
        let input = match decision {
            // It has a reason for a rejection only, no text as the result.
            Decision::Edit | Decision::Respond => return None,
            Decision::Accept => approval(true),
            Decision::Reject => approval(false),
            Decision::Output => output(item, "Paris"),
            Decision::Value => output(item, r#"{"colour":"blue"}"#),
            Decision::Words => output(item, "blue"),
            Decision::Done => output(item, "done"),
        };
        let previous = format!("resp_{}", interrupt.id().replace('-', ""));
        let body = json!({ "model": "demo", "previous_response_id": previous, "input": [input] });
        Some(gateway.post("/v1/responses", &body).await)
    }

    async fn begin_long(gateway: &Gateway, _: &str) -> LongRun {
        LongRun::Background(
            gateway.post("/v1/responses", &json!({ "model": "demo", "input": LONG, "background": true })).await,
        )
    }

    async fn session_of(gateway: &Gateway, response: &Response, _: &str) -> String {
        let id = response.json()["id"].as_str().expect("an id").to_owned();
        gateway.run("demo", &id).await["session_id"].as_str().expect("a session").to_owned()
    }

    async fn status(gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        state(gateway.get(&format!("/v1/responses/{}", interrupt.run)).await, "/status")
    }

    async fn follow(gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        let path = format!("/v1/responses/{}?stream=true", plain(interrupt));
        Some(gateway.open("GET", &path, &[], b"").await)
    }

    async fn cancel(gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(gateway.post(&format!("/v1/responses/{}/cancel", interrupt.run), &json!({})).await)
    }

    fn turn(_: &str, words: &str, streamed: bool) -> Turn {
        let body = json!({ "model": "demo", "input": words, "stream": streamed });
        Turn::new(post(Self::FACTS.name), body).with_headers(JSON)
    }

    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        let last = only_end(&received, |frame| {
            let kind = frame["type"].as_str().expect("events have types");
            ["response.completed", "response.failed", "response.incomplete", "error"].contains(&kind)
        });
        let response = &last["response"];
        if failure.interrupts {
            assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!(failure.openai.1)), "{last}");
            return Ending::Failed;
        }
        if last["type"] == "response.completed" {
            assert_eq!((&response["status"], &response["error"]), (&json!("completed"), &Value::Null));
            return Ending::Completed;
        }
        let failed = (&last["type"], &response["status"], response["error"]["code"].is_string());
        assert_eq!(failed, (&json!("response.failed"), &json!("failed"), true), "{last}");
        Ending::Failed
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        assert_eq!(answer.header("x-should-retry"), Some("false"), "the agent may have begun to work");
        (answer.json()["error"]["code"].clone(), (failure.status, failure.openai.1.to_owned()))
    }

    fn expect_no_call(frames: &[Value]) {
        let done = frames.iter().filter(|frame| frame["type"] == "response.output_item.done");
        let items = done.map(|frame| &frame["item"]);
        for item in items.filter(|item| item["type"] == "function_call" && item["call_id"] == "call-1") {
            assert_eq!(item["status"], "incomplete", "{item}");
        }
    }

    fn text(answer: &Response) -> String {
        joined(answer, |event| text_in(&event["delta"]).filter(|_| event["type"] == "response.output_text.delta"))
    }
}
