//! A protocol of the tests whose clients send all of their conversation with each request, for what the engine promises
//! to every such protocol. Requests and answers are those of the canonical model, so that nothing is translated.
//!
//! Not here: protocols that exist.

use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerBody, AnswerPolicy, AskPolicy};
use interlingua_core::call::{Busy, HistoryJudge, Otherwise, Reply, Resent, RunView};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Endpoint, Mount, Mounted, Request, RunRules};
use interlingua_core::model::{AgentRequest, Message, MessageType};
use interlingua_core::step::Step;
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Delivery, Event, Exchange, Fault, FaultKind, Flow, Next, Out, ProtocolAdapter, RunCall, Thread, json,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The protocol's name.
pub const RESENDER: &str = "resender";

/// The protocol: `POST` to the mount.
pub struct Resender;

/// The options of a route.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Runs continue without their clients, unless the route says otherwise.
    pub detaches: bool,
}

impl ProtocolAdapter for Resender {
    const NAME: &'static str = RESENDER;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let agent: Arc<str> = mount.agents[0].name.as_str().into();
        let open = move || CapturedRequest { agent: Arc::clone(&agent), base_url: String::new(), times: Vec::new() };
        let metadata = Endpoint {
            public: true,
            before_mount: true,
            ..Endpoint::get("/.well-known/metadata", || Metadata { base_url: String::new() })
        };
        let endpoints = vec![Endpoint::post("", open.clone()), metadata];
        let mounted = Mounted::new(endpoints, Box::new(move || Box::new(open())));
        Ok(Mounted { runs: RunRules { detaches: options.detaches, ..RunRules::default() }, ..mounted })
    }
}

/// A request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    session: Option<String>,
    user: Option<String>,
    #[serde(default)]
    instructions: Vec<Value>,
    #[serde(default)]
    history: Vec<Value>,
    #[serde(default)]
    input: Vec<Value>,
    /// The end of the client's history, in the form of [`shown`].
    last: Option<String>,
    #[serde(default)]
    begins_again: bool,
    #[serde(default)]
    queues: bool,
    /// The id of an item, and the words that may be the answer to it.
    in_words: Option<(String, String)>,
    /// The answer is a stream of its deltas.
    #[serde(default)]
    stream: bool,
    /// The milliseconds after the request at which the stream gets a line with the time. The last one ends it.
    #[serde(default)]
    times: Vec<u64>,
}

/// Compares texts and calls.
#[derive(Debug)]
struct Judge(Option<String>);

impl HistoryJudge for Judge {
    fn ends_with(&self, latest: RunView<'_>) -> bool {
        self.0.as_deref() == Some(&*shown(latest))
    }
}

/// The last turn of a run: one line for each message.
fn shown(view: RunView<'_>) -> String {
    let run = view.run();
    let mut lines = Vec::new();
    for message in run.messages_of(run.turns.len().saturating_sub(1)) {
        let message = message.to_model();
        match message.kind {
            MessageType::Message => lines.push(message.text()),
            MessageType::McpApprovalRequest => lines.push("May I?".to_owned()),
            _ => lines.extend(message.calls().map(|call| {
                let arguments = if json::is_same_value(&call.arguments, "") { "" } else { &call.arguments };
                format!("{}:{}({arguments})", call.call_id, call.name)
            })),
        }
    }
    lines.join("\n")
}

fn messages(values: &[Value]) -> Result<Vec<Message>, Fault> {
    values.iter().map(|value| Message::parse(&Node::parse(value.to_string().as_bytes())?)).collect()
}

struct CapturedRequest {
    agent: Arc<str>,
    base_url: String,
    /// When the stream gets a line, the next one last.
    times: Vec<Millis>,
}

impl Exchange for CapturedRequest {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        request.base_url.clone_into(&mut self.base_url);
        let body: Body = serde_json::from_slice(request.body)
            .map_err(|error| Fault::new(FaultKind::Invalid, format!("the body is not valid: {error}")))?;
        self.times = body.times.iter().rev().map(|after| request.now + after).collect();
        let request =
            AgentRequest { input: messages(&body.input)?.into(), user_id: body.user, ..AgentRequest::default() };

        let mut resent = Resent::new(messages(&body.history)?, Arc::new(Judge(body.last)));
        resent.session = body.session;
        resent.in_words = body.in_words.map(|(id, words)| Answer::new(id, AnswerBody::Text(words)));
        if body.begins_again {
            resent.otherwise = Otherwise::BeginAgain;
        }

        let mut call = RunCall::new(&*self.agent, request);
        call.preamble = messages(&body.instructions)?;
        call.delivery = if body.stream { Delivery::Stream } else { Delivery::Collect };
        call.thread = Thread::Resent(Box::new(resent));
        call.answer_policy = AnswerPolicy { asking: AskPolicy::OneByOne, asks_again: true, ..AnswerPolicy::default() };
        call.policy = call.policy.with_busy(if body.queues { Busy::Queue } else { Busy::Refuse });
        Ok(Call::Run(Box::new(call)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let (view, waits, reason) = match reply {
            Reply::Run(view) => (view, false, None),
            Reply::Waiting(view, reason) => (view, true, reason),
            _ => return Err(Fault::new(FaultKind::Internal, "no other reply is expected")),
        };
        out.json(&json!({
            "run": view.run().id.to_string(),
            "session": view.run().session_id,
            "status": view.info.state.as_str(),
            "shown": shown(view),
            "pending": view.pending.iter().map(|item| &item.id).collect::<Vec<_>>(),
            "asked_again": waits,
            "reason": reason,
        }));
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        out.status(fault.kind.status());
        if fault.kind == FaultKind::Unauthenticated {
            out.header(
                "www-authenticate",
                format!("Bearer resource_metadata=\"{}/.well-known/metadata\"", self.base_url),
            );
        }
        out.json(&json!({ "code": fault.code(), "message": fault.message }));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match step.event {
            Event::ContentDelta { .. } => {
                out.write_raw(b"data: ");
                out.write_json(step.delta());
                out.write_raw(b"\n\n");
                Flow::More
            }
            Event::RunFinished { .. } => Flow::Close,
            _ => Flow::More,
        }
    }

    fn wake_at(&self) -> Option<Millis> {
        self.times.last().copied()
    }

    fn on_time(&mut self, now: Millis, out: &mut Out) -> Flow {
        let due = self.times.pop().is_some_and(|time| time <= now);
        out.write_raw(format!("data: {{\"is_due\":{due},\"left\":{}}}\n\n", self.times.len()).as_bytes());
        if self.times.is_empty() { Flow::Close } else { Flow::More }
    }
}

/// A public document about the mount.
struct Metadata {
    base_url: String,
}

impl Exchange for Metadata {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        request.base_url.clone_into(&mut self.base_url);
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        out.json(&json!({ "resource": self.base_url }));
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        out.status(fault.kind.status());
    }
}
