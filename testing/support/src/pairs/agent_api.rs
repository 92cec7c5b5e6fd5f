//! Clients of the Agent API.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, frames, native, plain, post, state};
use crate::endings::{Ending, Failure, only_end};
use crate::gateway::{Gateway, JSON, user_turn_in};
use crate::http::{Exchange, Response};
use crate::transcript::Transcript;

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "agent-api",
        streams: true,
        resends: false,
        outlasts_clients: false,
        fails_with_success: true,
        end: "\"completed\"",
        errors: ErrorWords {
            message: "/detail",
            wrong_key: &[("/code", r#""AUTH_FAILED""#), ("/detail", r#""valid credentials are required""#)],
            rate: "\"code\":\"RATE_LIMIT_EXCEEDED\"",
            runs: ("/code", "RATE_LIMIT_EXCEEDED"),
            limited_agent: (429, "/code", "UPSTREAM_RATE_LIMITED"),
            away: "/code",
            overloaded: (503, "UPSTREAM_OVERLOADED"),
            unreachable: (502, "UPSTREAM_UNREACHABLE"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
        let mut content = vec![json!({ "type": "text", "text": words })];
        content.extend(picture.map(|url| json!({ "type": "image", "image_url": url })));
        let input = json!([{ "role": "user", "type": "message", "content": content }]);
        let body = json!({ "session_id": session, "stream": false, "input": input });
        gateway.post("/agents/demo/process", &body).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let input = [native(&interrupt.item, decision)];
        let body = json!({ "session_id": interrupt.session, "stream": false, "input": input });
        Some(gateway.post("/agents/demo/process", &body).await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        LongRun::Background(gateway.post("/agents/demo/process/task", &user_turn_in(session, LONG)).await)
    }

    async fn status(gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        state(gateway.get(&format!("/agents/demo/runs/{}", interrupt.id())).await, "/status")
    }

    async fn follow(gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        let path = format!("/agents/demo/runs/{}/events", plain(interrupt));
        Some(gateway.open("GET", &path, &[], b"").await)
    }

    async fn cancel(gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(gateway.post(&format!("/agents/demo/runs/{}/cancel", interrupt.id()), &json!({})).await)
    }

    fn turn(session: &str, words: &str, streamed: bool) -> Turn {
        let mut body = user_turn_in(session, words);
        body["stream"] = streamed.into();
        Turn::new(post(Self::FACTS.name), body).with_headers(JSON)
    }

    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = frames(answer.text());
        if failure.interrupts {
            let last = only_end(&received, |frame| frame["status"] == "failed");
            assert_eq!(last["error"]["code"], failure.code, "{last}");
            return Ending::Failed;
        }
        let transcript = Transcript::parse(&received);
        match transcript.status.as_str() {
            "completed" => Ending::Completed,
            status => {
                assert_eq!((status, transcript.code()), ("failed", failure.code));
                Ending::Failed
            }
        }
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        (answer.json()["code"].clone(), (failure.status, failure.code.to_owned()))
    }

    fn text(answer: &Response) -> String {
        Transcript::parse(&frames(answer.text())).text()
    }
}
