//! `plain`: a made-up protocol for people with a terminal, served from a crate of its own. To be copied.
//!
//! ```text
//! POST /ask            a question as text, or as {"question": …, "session": …}; answered as text, as it comes
//! GET  /answers/{id}   the answer again; 202 while there is more to come
//! ```
//!
//! This file has what every adapter has, in the order in which to write it: a name and options, a table of endpoints,
//! an exchange for each of them, and how an answer is told ([`telling`]). It needs `interlingua-core` alone.
//!
//! Deliberately absent: sockets, threads, clocks, chance, state that outlives a request. The gateway has all that;
//! what is here is told the time and a fresh id with each request, and can be tested without a server.

mod telling;

use interlingua_core::call::Target;
use interlingua_core::exchange::{MediaTypes, Mounted};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::out::Head;
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Endpoint, Exchange, Fault, FaultKind, Flow, Mount, Next, Out, ProtocolAdapter, Reply, Request, RunCall,
    RunId, Step, Thread,
};
use serde::Deserialize;

use crate::telling::Telling;

/// The protocol. A binary serves it with `Gateway::builtin().serve::<Plain>()`.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// The route's own table: `options = { thoughts = true }`.
///
/// Unknown keys are denied here, so that the operator is told of a misspelled one at its line and column.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whether what the agent thinks is told too, in paragraphs that begin with `(thinking)`.
    pub thoughts: bool,
}

impl ProtocolAdapter for Plain {
    const NAME: &'static str = "plain";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        // A question does not name an agent, so the path has to: `interlingua check` suggests `{agent}`.
        let [agent] = mount.agents.as_slice() else {
            return Err("a route serves one agent".to_owned());
        };
        let agent = agent.name.clone();
        let endpoints = vec![
            Endpoint {
                reads: MediaTypes { exact: &["text/plain", "application/json"], json_suffix: false },
                ..Endpoint::post("/ask", move || Ask { agent: agent.clone(), id: None, telling: Telling::new(options) })
            },
            Endpoint::get("/answers/{id}", move || Again { options }),
        ];
        // Whatever else is asked for below the mount: only `fail` is called, so any exchange does.
        let mut mounted = Mounted::new(endpoints, Box::new(move || Box::new(Again { options })));
        mounted.curl = vec!["curl -N {url}/ask -H 'content-type: text/plain' -d 'hello'".to_owned()];
        Ok(mounted)
    }

    fn options_schema() -> serde_json::Value {
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "thoughts": {
                    "description": "Whether what the agent thinks is told too.",
                    "type": "boolean",
                    "default": false
                }
            }
        })
    }
}

/// `POST /ask`
struct Ask {
    agent: String,
    /// The run's, for the head of the answer.
    id: Option<RunId>,
    telling: Telling,
}

impl Exchange for Ask {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let (question, session) = question(request)?;
        // The run gets the request's fresh id. Left to the engine, it would not be known when the head is written.
        self.id = Some(request.fresh);
        Ok(Call::Run(Box::new(RunCall {
            id: self.id,
            thread: session.map_or(Thread::New, Thread::Session),
            ..RunCall::new(
                self.agent.clone(),
                AgentRequest { input: vec![Message::user(question)].into(), ..AgentRequest::default() },
            )
        })))
    }

    fn head(&mut self, head: &mut Head) {
        plain_text(head);
        if let Some(id) = self.id {
            head.set("answer-id", spelled(id));
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.telling.step(step, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.telling.interrupt(fault, out);
    }

    fn heartbeat(&mut self, _: &mut Out) {
        // Text has no comments: every byte would be part of the answer.
    }

    fn reply(&mut self, reply: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(match reply {
            // An agent has asked something that this protocol cannot answer (see the README).
            Reply::Waiting(_) => {
                Fault::new(FaultKind::Waiting, "the session waits for an answer to what the agent asked")
            }
            reply => unexpected(&reply),
        })
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write_fault(fault, out);
    }
}

/// What is asked, and in which session.
fn question(request: &Request<'_>) -> Result<(String, Option<String>), Fault> {
    let (question, session) = match request.media_type().as_str() {
        "text/plain" => {
            let text = std::str::from_utf8(request.body);
            let text =
                text.map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}")))?;
            (text.to_owned(), request.query("session"))
        }
        "application/json" => {
            // Read field by field, so that a fault names the one that is wrong.
            let object = Node::parse_object(request.body)?;
            (object.required("question")?.string()?.into_owned(), object.string("session")?)
        }
        other => {
            let message = format!("content-type must be 'text/plain' or 'application/json', not '{other}'");
            return Err(Fault::new(FaultKind::UnsupportedMedia, message));
        }
    };
    if question.trim().is_empty() {
        return Err(Fault::invalid("question", "must not be empty"));
    }
    Ok((question, session.map(Into::into)))
}

/// `GET /answers/{id}`
struct Again {
    options: Options,
}

impl Exchange for Again {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = request.param("id");
        let id = RunId::parse(id).ok_or_else(|| Fault::not_found(format_args!("answer '{id}'")))?;
        // `Call::Follow` instead would be answered by a stream: by `encode`, from the first step on.
        Ok(Call::Fetch(Target::Run(id)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(unexpected(&reply)) };
        out.status(if view.run().end.is_some() { 200 } else { 202 });
        plain_text(&mut out.head);
        // The same steps make the same text, told live or read from the record: there is one writer, not two.
        let mut telling = Telling::new(self.options);
        for step in view.record.steps(0) {
            telling.step(step, out);
        }
        Ok(Next::Done)
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write_fault(fault, out);
    }
}

/// How this protocol spells the id of a run. `RunId::parse` understands every prefix.
fn spelled(id: RunId) -> String {
    id.to_prefixed("answer_")
}

fn plain_text(head: &mut Head) {
    head.set("content-type", "text/plain; charset=utf-8");
    head.set("cache-control", "no-cache");
    // Asks proxies to pass on what comes when it comes.
    head.set("x-accel-buffering", "no");
}

/// The one place where a fault becomes this protocol's: one line of text, the status that core suggests.
fn write_fault(fault: &Fault, out: &mut Out) {
    out.status(fault.kind.status());
    plain_text(&mut out.head);
    let field = fault.field.as_ref().map(|field| format!(" (at {field})")).unwrap_or_default();
    out.write_raw(format!("error: {}: {}{field}\n", fault.code(), fault.message).as_bytes());
}

/// A reply to a call that is not made here: a mistake of the gateway.
fn unexpected(reply: &Reply<'_>) -> Fault {
    Fault::new(FaultKind::Internal, "the gateway answered another question").with_detail(format!("{reply:?}"))
}
