//! A small client driver for each of the served protocols: start, answer, read, follow and cancel a run. A driver
//! returns `None` for an operation that its protocol does not have. Each protocol has a file.
//!
//! Not here: the expected results (`tests/behaviour/pairs.rs`).

mod a2a;
mod ag_kit;
mod ag_ui;
mod agent_api;
mod anthropic_messages;
mod chat_completions;
mod decision;
mod driver;
mod hitl;
mod mcp;
mod responses;
mod turn;

use std::collections::HashMap;
use std::sync::LazyLock;

use driver::{Driver, LongRun};
use interlingua_testing_protocols::{Protocol as Known, Serves, served};
use serde_json::{Value, json};

use super::endings::{Ending, Failure};
use super::gateway::Gateway;
use super::http::{Exchange, Response};
use super::poll_until;

pub use super::endings::frames;
pub use super::paths::{MOUNTS, ROUTES, routes_with};
pub use a2a::{message, subscribe, task};
pub use decision::{ALL_DECISIONS, Decision, Interrupt};
pub use driver::{ErrorWords, Facts};
pub use mcp::answer_items;
pub use turn::Turn;

/// Declares the protocols, and calls the driver of each.
macro_rules! drivers {
    ($($variant:ident: $module:ident,)+) => {
        /// A client protocol. What the tests do over every protocol, they do over [`ALL_PROTOCOLS`]; a test compares
        /// that list with the registry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            $($variant,)+
        }

        pub const ALL_PROTOCOLS: [Protocol; [$(Protocol::$variant),+].len()] = [$(Protocol::$variant),+];

        impl Protocol {
            /// The expectations of tests over all protocols.
            pub const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$variant => &$module::Client::FACTS,)+
                }
            }

            /// Says something, with a picture by its URL where the protocol can send one, and waits for the whole
            /// answer.
            pub async fn say(self, gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response {
                match self {
                    $(Self::$variant => $module::Client::say(gateway, session, words, picture).await,)+
                }
            }

            /// Answers a pending item. `None` if the protocol cannot express the decision.
            pub async fn answer(self, gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
                match self {
                    $(Self::$variant => $module::Client::answer(gateway, interrupt, decision).await,)+
                }
            }

            /// The state of a run in the terms of the protocol. `None` if the protocol cannot read runs.
            pub async fn status(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
                match self {
                    $(Self::$variant => $module::Client::status(gateway, interrupt).await,)+
                }
            }

            /// Follows a run. `None` if the protocol cannot.
            pub async fn follow(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
                match self {
                    $(Self::$variant => $module::Client::follow(gateway, interrupt).await,)+
                }
            }

            /// Cancels a run, also one that waits for input. `None` if the protocol cannot.
            pub async fn cancel(self, gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
                match self {
                    $(Self::$variant => $module::Client::cancel(gateway, interrupt).await,)+
                }
            }

            /// Says something in a session, if a client can name one. `streamed`: where the protocol has both.
            pub fn turn(self, session: &str, words: &str, streamed: bool) -> Turn {
                match self {
                    $(Self::$variant => $module::Client::turn(session, words, streamed),)+
                }
            }

            fn resend_turn(self, session: &str, run: &str, messages: &Value, streamed: bool) -> Option<Turn> {
                match self {
                    $(Self::$variant => $module::Client::resend(session, run, messages, streamed),)+
                }
            }

            async fn session_of(self, gateway: &Gateway, answer: &Response, session: &str) -> String {
                match self {
                    $(Self::$variant => $module::Client::session_of(gateway, answer, session).await,)+
                }
            }

            async fn begin_long(self, gateway: &Gateway, session: &str) -> LongRun {
                match self {
                    $(Self::$variant => $module::Client::begin_long(gateway, session).await,)+
                }
            }

            pub(crate) fn ending(self, answer: &Response, failure: &Failure) -> Ending {
                match self {
                    $(Self::$variant => $module::Client::ending(answer, failure),)+
                }
            }

            pub(crate) fn refusal(self, answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
                match self {
                    $(Self::$variant => $module::Client::refusal(answer, failure),)+
                }
            }

            /// Checks the frames of an answer that failed.
            ///
            /// # Panics
            /// If they let a client run a call of its tool which was cut.
            pub fn expect_no_call(self, frames: &[Value]) {
                match self {
                    $(Self::$variant => $module::Client::expect_no_call(frames),)+
                }
            }

            pub(crate) fn text(self, answer: &Response) -> String {
                match self {
                    $(Self::$variant => $module::Client::text(answer),)+
                }
            }
        }
    };
}

// In the order of the registry.
drivers! {
    AgentApi: agent_api,
    Responses: responses,
    ChatCompletions: chat_completions,
    AnthropicMessages: anthropic_messages,
    A2a: a2a,
    AgKit: ag_kit,
    AgUi: ag_ui,
    Hitl: hitl,
    Mcp: mcp,
}

/// Reads the only end of an answer in the client's protocol. Panics if the answer has no end, more than one, or another
/// failure than this.
pub fn ending(client: Protocol, answer: &Response, failure: &Failure) -> Ending {
    if answer.status != 200 {
        expect_refusal(client, answer, failure);
        return Ending::Failed;
    }

    client.ending(answer, failure)
}

/// An answer whose status says that it failed.
fn expect_refusal(client: Protocol, answer: &Response, failure: &Failure) {
    let (found, expected) = client.refusal(answer, failure);
    assert_eq!(
        (answer.status, found.as_str()),
        (expected.0, Some(expected.1.as_str())),
        "{client:?}: {}",
        answer.text()
    );
}

/// The text of a streamed answer, or of one that has no stream.
pub fn text_of(client: Protocol, answer: &Response) -> String {
    client.text(answer)
}

/// The body of an answer as a document, or the last frame of a stream.
///
/// # Panics
/// If it is neither.
pub fn last_body(answer: &Response) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| frames(answer.text()).pop().expect("an event"))
}

/// The run ids of a session.
pub async fn runs(gateway: &Gateway, session: &str) -> Vec<String> {
    let listed = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
    let runs = listed["data"].as_array().expect("a list");
    runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

/// The latest run of a session, read over the Agent API.
pub async fn latest(gateway: &Gateway, session: &str) -> Value {
    poll_until("a run in the session", async || {
        let runs = gateway.get(&format!("/agents/demo/runs?session_id={session}")).await.json();
        runs["data"].as_array()?.first().cloned()
    })
    .await
}

/// The pending items of a session's latest run.
pub async fn interrupt_of(gateway: &Gateway, session: &str) -> Interrupt {
    let run = latest(gateway, session).await["id"].as_str().expect("an id").to_owned();
    let full = gateway.run("demo", &run).await;
    let data =
        &full["output"].as_array().and_then(|output| output.last()).expect("it is interrupted")["content"][0]["data"];
    let item = data["id"].as_str().or(data["call_id"].as_str()).expect("an item").to_owned();
    Interrupt { session: session.to_owned(), run, item }
}

/// All texts in an answer, whatever their fields are called, with the pieces of a stream put together.
pub fn texts_of(answer: &str) -> String {
    fn collect(value: &Value, found: &mut String) {
        match value {
            Value::String(text) => found.push_str(text),
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => fields
                .iter()
                .filter(|(name, _)| name.as_str() != "type" && !name.ends_with("id") && !name.ends_with("Id"))
                .for_each(|(_, value)| collect(value, found)),
            _ => {}
        }
    }

    let mut found = String::new();
    match serde_json::from_str::<Value>(answer) {
        Ok(whole) => collect(&whole, &mut found),
        Err(_) => frames(answer).iter().for_each(|frame| collect(frame, &mut found)),
    }
    found
}

/// The response, which has to be a success.
fn ok(answer: Response) -> Response {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

impl Protocol {
    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// An endpoint that takes a body, with agent `demo`.
    ///
    /// # Panics
    /// If the registry has no such protocol, or its adapter no sample request.
    pub fn post(self) -> &'static str {
        post(self.name())
    }

    /// Sends a demo command that interrupts, and waits until the run is interrupted.
    pub async fn ask(self, gateway: &Gateway, session: &str, word: &str) -> Interrupt {
        let answer = ok(self.say(gateway, session, word, None).await);
        interrupt_of(gateway, &self.session_of(gateway, &answer, session).await).await
    }

    /// Starts a long run. Where the protocol has no background runs, the open connection is returned.
    pub async fn start_long(self, gateway: &Gateway, session: &str) -> (Interrupt, Option<Exchange>) {
        let (session, open) = match self.begin_long(gateway, session).await {
            LongRun::Open(open) => (session.to_owned(), Some(open)),
            LongRun::Background(answer) => (self.session_of(gateway, &ok(answer), session).await, None),
        };
        let run = latest(gateway, &session).await["id"].as_str().expect("an id").to_owned();
        (Interrupt { session, run, item: String::new() }, open)
    }

    /// A request of a client that sends all of its conversation each time. `run`: the name of the turn, where clients
    /// choose one. `further`: more fields of the body.
    ///
    /// # Panics
    /// If clients of the protocol do not do that.
    pub fn resend(self, session: &str, run: &str, messages: &Value, further: &Value, streamed: bool) -> Turn {
        let turn = self.resend_turn(session, run, messages, streamed);
        let mut turn = turn.unwrap_or_else(|| panic!("clients of {self:?} do not send all of their conversation"));
        for (name, value) in further.as_object().into_iter().flatten() {
            turn.body[name] = value.clone();
        }
        turn
    }
}

/// The path of a protocol's sample request, with agent `demo`.
fn post(name: &str) -> &'static str {
    static POSTS: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
        let path = |(protocol, serves): (&'static Known, Serves)| {
            let sample = serves.sample("demo", "hi").expect("a sample request");
            (protocol.name, format!("{}{}", serves.path_of("demo"), sample.path()))
        };
        served().map(path).collect()
    });
    &POSTS[name]
}

/// The protocols whose clients send all of their conversation with each request.
pub fn resending() -> impl Iterator<Item = Protocol> {
    ALL_PROTOCOLS.into_iter().filter(|protocol| protocol.facts().resends)
}

/// The protocols whose clients read a stream.
pub fn streaming() -> impl Iterator<Item = Protocol> {
    ALL_PROTOCOLS.into_iter().filter(|protocol| protocol.facts().streams)
}

/// The id of a run without a prefix and hyphens.
fn plain(interrupt: &Interrupt) -> String {
    interrupt.id().replace('-', "")
}

/// The state of a run, which has to be found.
fn state(answer: Response, pointer: &str) -> Option<String> {
    let body = ok(answer).json();
    let state = body.pointer(pointer).and_then(Value::as_str).expect("a state");
    Some(state.trim_start_matches("TASK_STATE_").to_lowercase())
}

/// The text that starts a long run.
const LONG: &str = "long 5000 20";

/// A decision in the JSON shape that most protocols use.
pub fn decision_fields(decision: Decision) -> Value {
    match decision {
        Decision::Accept | Decision::Done => json!({ "decision": "accept" }),
        Decision::Edit => json!({ "decision": "edit", "args": { "to": "grace@example.com" } }),
        Decision::Respond => json!({ "decision": "respond", "text": "later" }),
        Decision::Reject => json!({ "decision": "reject" }),
        Decision::Output | Decision::Words => panic!("no decision"),
        Decision::Value => json!({ "colour": "blue" }),
    }
}

/// The answer as the output of a call: the only form that clients without words for it have.
fn stateless_answer(decision: Decision) -> String {
    match decision {
        Decision::Output => "Paris".to_owned(),
        Decision::Words => "blue".to_owned(),
        _ => decision_fields(decision).to_string(),
    }
}

/// An endpoint of each protocol that takes a body.
pub fn posts() -> [&'static str; ALL_PROTOCOLS.len()] {
    ALL_PROTOCOLS.map(Protocol::post)
}

/// The answer as a message of the Agent API.
pub fn native(item: &str, decision: Decision) -> Value {
    let (kind, role, data) = match decision {
        Decision::Output => ("function_call_output", "tool", json!({ "call_id": item, "output": "Paris" })),
        _ => {
            let interrupt = match decision {
                Decision::Accept | Decision::Done => json!({ "decision": "accept" }),
                Decision::Edit => json!({ "decision": "edit", "arguments": "{\"to\":\"grace@example.com\"}" }),
                Decision::Respond => json!({ "decision": "respond", "text": "later" }),
                Decision::Reject => json!({ "decision": "reject" }),
                Decision::Value => json!({ "decision": "respond", "payload": { "colour": "blue" } }),
                Decision::Words => json!({ "decision": "respond", "text": "blue" }),
                Decision::Output => Value::Null,
            };
            let approve = !matches!(decision, Decision::Reject | Decision::Respond);
            let data = json!({ "approval_request_id": item, "id": item, "approve": approve, "interrupt": interrupt });
            ("mcp_approval_response", "user", data)
        }
    };
    json!({ "type": kind, "role": role, "content": [{ "type": "data", "data": data }] })
}
