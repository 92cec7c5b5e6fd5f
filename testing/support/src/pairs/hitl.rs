//! Clients of the human-in-the-loop agent service.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, state};
use crate::endings::{Ending, Failure};
use crate::gateway::{Gateway, JSON};
use crate::http::Response;

fn query(session: &str, words: &str) -> Value {
    json!({ "user_id": "pat", "session_id": session, "query": words })
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "hitl",
        streams: false,
        resends: false,
        outlasts_clients: true,
        fails_with_success: true,
        end: "completed",
        errors: ErrorWords {
            message: "/detail",
            wrong_key: &[("", r#"{"detail":"valid credentials are required"}"#)],
            rate: "{\"detail\":\"too many requests",
            runs: ("/detail", "too many runs are under way: the limit is 1"),
            limited_agent: (200, "/status", "error"),
            away: "/status",
            overloaded: (200, "error"),
            unreachable: (200, "error"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, session: &str, words: &str, _: Option<&str>) -> Response {
        gateway.post("/hitl/demo/agent/invoke", &query(session, words)).await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let (response_type, args) = match decision {
            Decision::Accept | Decision::Done => ("accept", Value::Null),
            Decision::Edit => ("edit", json!({ "args": { "to": "grace@example.com" } })),
            Decision::Respond => ("response", json!({ "args": "later" })),
            Decision::Reject => ("reject", Value::Null),
            Decision::Output => ("response", json!({ "args": "Paris" })),
            Decision::Value => ("response", json!({ "args": { "colour": "blue" } })),
            Decision::Words => ("response", json!({ "args": "blue" })),
        };
        let body = json!({
            "user_id": "pat", "session_id": interrupt.session, "response_type": response_type, "args": args,
        });
        Some(gateway.post("/hitl/demo/agent/resume", &body).await)
    }

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun {
        LongRun::Open(gateway.start_post("/hitl/demo/agent/invoke", &query(session, LONG)).await)
    }

    async fn status(gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        state(gateway.get(&format!("/hitl/demo/agent/status/pat/{}", interrupt.session)).await, "/status")
    }

    async fn cancel(gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        let path = format!("/hitl/demo/agent/session/pat/{}", interrupt.session);
        Some(gateway.open("DELETE", &path, &[], b"").await.response().await)
    }

    fn turn(session: &str, words: &str, _: bool) -> Turn {
        Turn::new("/hitl/demo/agent/invoke", query(session, words)).with_headers(JSON)
    }

    fn ending(answer: &Response, _: &Failure) -> Ending {
        let body = answer.json();
        if body["status"] == "completed" {
            return Ending::Completed;
        }
        assert_eq!((&body["status"], &body["result"]), (&json!("error"), &Value::Null), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| message.contains("the agent")), "{body}");
        Ending::Failed
    }

    fn refusal(answer: &Response, _: &Failure) -> (Value, (u16, String)) {
        panic!("errors of the agent are regular answers there: {}", answer.text())
    }

    fn text(answer: &Response) -> String {
        super::texts_of(answer.json()["result"].to_string().as_str())
    }
}
