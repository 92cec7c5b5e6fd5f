//! Drivers for the protocols of models, whose clients send all of their conversation with each request. They name their
//! session, and answer what was asked over another protocol without knowing what was said there.
//!
//! Not here: the other protocols, AG-UI among them ([`super::pairs`]), and the expected results (`tests/behaviour/stateless.rs`).

#![allow(dead_code, unreachable_pub, reason = "each test binary uses only part of it")]

use serde_json::{Value, json};

use super::gateway::{Gateway, JSON};
use super::http::{Exchange, Response};
use super::pairs::{Decision, Interrupt, decision_fields, interrupt_of};

/// A route of each of these protocols for the agent `demo`.
pub const STATELESS_ROUTES: &str = "[[routes]]\nprotocol = \"anthropic-messages\"\npath = \"/anthropic\"\n\
                                    [[routes]]\nprotocol = \"chat-completions\"\npath = \"/v1\"\n";

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stateless {
    AnthropicMessages,
    ChatCompletions,
}

pub const ALL_STATELESS: [Stateless; 2] = [Stateless::AnthropicMessages, Stateless::ChatCompletions];

impl Stateless {
    /// Says something in a session, and waits for the whole answer.
    pub async fn say(self, gateway: &Gateway, session: &str, words: &str) -> Response {
        let message = json!({ "role": "user", "content": words });
        self.post(gateway, session, &json!({ "messages": [message] })).await.response().await
    }

    /// Sends a demo command that interrupts, and waits until the run is interrupted.
    pub async fn ask(self, gateway: &Gateway, session: &str, word: &str) -> Interrupt {
        let answer = self.say(gateway, session, word).await;
        assert_eq!(answer.status, 200, "{self:?}: {}", answer.text());
        interrupt_of(gateway, session).await
    }

    /// Answers a pending item.
    pub async fn answer(self, gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Response {
        let item = &interrupt.item;
        let text = match decision {
            Decision::Output => "Paris".to_owned(),
            Decision::Words => "blue".to_owned(),
            _ => decision_fields(decision).to_string(),
        };
        let fields = match self {
            Self::ChatCompletions => {
                json!({ "messages": [{ "role": "tool", "tool_call_id": item, "content": text }] })
            }
            Self::AnthropicMessages => {
                let result = json!({ "type": "tool_result", "tool_use_id": item, "content": text });
                json!({ "messages": [{ "role": "user", "content": [result] }] })
            }
        };
        self.post(gateway, &interrupt.session, &fields).await.response().await
    }

    async fn post(self, gateway: &Gateway, session: &str, fields: &Value) -> Exchange {
        let (path, mut body) = match self {
            Self::ChatCompletions => ("/v1/chat/completions", json!({ "model": "demo" })),
            Self::AnthropicMessages => ("/anthropic/v1/messages", json!({ "model": "demo", "max_tokens": 1000 })),
        };
        let fields = fields.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        let headers = [JSON, &[("x-session-id", session), ("anthropic-version", "2023-06-01")]].concat();
        gateway.open("POST", path, &headers, body.to_string().as_bytes()).await
    }
}
