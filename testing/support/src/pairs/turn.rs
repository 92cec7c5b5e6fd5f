//! A request that says something, in each protocol: the same for every test that sends one over all of them.

use serde_json::{Value, json};

use super::{Protocol, anthropic_messages, chat_completions};
use crate::gateway::{Gateway, JSON, user_turn_in};
use crate::http::{self, Exchange, Response};

const V1: (&str, &str) = ("a2a-version", "1.0");

/// A request with a body of JSON.
#[derive(Clone, Debug)]
pub struct Turn {
    pub path: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
}

impl Turn {
    pub fn new(path: &'static str, body: Value) -> Self {
        Self { path, headers: Vec::new(), body }
    }

    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn with_headers(self, headers: &[(&'static str, &str)]) -> Self {
        headers.iter().fold(self, |turn, (name, value)| turn.with_header(name, value))
    }

    /// The headers as requests take them.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The bytes of the request over HTTP/1.1.
    pub fn bytes(&self) -> Vec<u8> {
        http::request("POST", self.path, &self.headers(), self.body.to_string().as_bytes())
    }

    /// Sends it and returns the connection.
    pub async fn open(&self, gateway: &Gateway) -> Exchange {
        gateway.open("POST", self.path, &self.headers(), self.body.to_string().as_bytes()).await
    }

    /// Sends it and reads the answer.
    pub async fn send(&self, gateway: &Gateway) -> Response {
        self.open(gateway).await.response().await
    }
}

impl Protocol {
    /// Says something in a session, if a client can name one. `streamed`: where the protocol has both.
    pub fn turn(self, session: &str, words: &str, streamed: bool) -> Turn {
        let user = json!([{ "role": "user", "content": words }]);
        match self {
            Self::AgentApi => {
                let mut body = user_turn_in(session, words);
                body["stream"] = streamed.into();
                Turn::new(self.post(), body).with_headers(JSON)
            }
            Self::Responses => {
                let body = json!({ "model": "demo", "input": words, "stream": streamed });
                Turn::new(self.post(), body).with_headers(JSON)
            }
            Self::ChatCompletions => chat_completions::turn(session, words, streamed),
            Self::AnthropicMessages => anthropic_messages::turn(session, words, streamed),
            Self::A2a => {
                let path = if streamed { "/a2a/demo/message:stream" } else { "/a2a/demo/message:send" };
                let message = json!({
                    "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": words }],
                });
                Turn::new(path, json!({ "message": message })).with_headers(&[JSON, &[V1]].concat())
            }
            Self::AgKit => {
                Turn::new(self.post(), json!({ "conversationId": session, "messages": user })).with_headers(JSON)
            }
            Self::AgUi => {
                let messages = json!([{ "id": format!("{session}-1"), "role": "user", "content": words }]);
                let body = json!({
                    "threadId": session, "runId": format!("{session}-run"), "protocolVersion": "1.0", "messages": messages,
                });
                Turn::new(self.post(), body).with_headers(JSON)
            }
            Self::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": words });
                Turn::new(self.post(), body).with_headers(JSON)
            }
        }
    }

    /// A request of a client that sends all of its conversation each time. `run`: the name of the turn, where clients
    /// choose one. `further`: more fields of the body.
    ///
    /// # Panics
    /// If clients of the protocol do not do that.
    pub fn resend(self, session: &str, run: &str, messages: &Value, further: &Value, streamed: bool) -> Turn {
        let mut turn = match self {
            Self::ChatCompletions => chat_completions::request(session, messages, streamed),
            Self::AnthropicMessages => anthropic_messages::request(session, messages, streamed),
            Self::AgUi => {
                let body = json!({ "threadId": session, "runId": run, "protocolVersion": "1.0", "messages": messages });
                Turn::new(self.post(), body).with_headers(JSON)
            }
            other => panic!("clients of {other:?} do not send all of their conversation"),
        };
        for (name, value) in further.as_object().into_iter().flatten() {
            turn.body[name] = value.clone();
        }
        turn
    }
}
