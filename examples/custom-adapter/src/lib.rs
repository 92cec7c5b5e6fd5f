//! `plain`: an invented text protocol for terminals, served from a separate crate. Meant to be copied.
//!
//! ```text
//! POST /ask            a question as text, or as {"question": …, "session": …}; the answer is streamed as text.
//!                      With "answers": ID it answers what the agent has asked
//! GET  /answers/{id}   the answer again; 202 while it is incomplete
//! ```
//!
//! This file has the parts of every adapter, in the order in which to write them: a name and options, a table of
//! endpoints, an exchange for each of them, and an encoder for answers ([`encoder`]). It needs `interlingua-core`
//! alone.
//!
//! Deliberately absent: sockets, threads, clocks, random numbers, state that outlives a request. The gateway provides
//! all that: each request comes with the time and a new id, so the adapter can be tested without a server.

mod encoder;

use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::call::{RunView, Target};
use interlingua_core::capability::ClientCapabilities;
use interlingua_core::exchange::{MediaTypes, Mounted};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::out::Head;
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Endpoint, Exchange, Fault, FaultKind, Flow, Mount, Next, Out, ProtocolAdapter, Reply, Request, RunCall,
    RunId, RunPolicy, Step, Thread,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::encoder::Encoder;

/// The protocol adapter. A binary serves it with `Gateway::builtin().serve::<Plain>()`.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// The options of a route: `options = { thoughts = true }`.
///
/// Unknown keys are denied, so that the operator gets an error with the line and column of a misspelled key. The doc
/// comments appear in `interlingua schema`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Sends the agent's reasoning too, in paragraphs that begin with `(thinking)`.
    pub thoughts: bool,
}

impl ProtocolAdapter for Plain {
    const NAME: &'static str = "plain";
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        // A question does not name an agent, so the path must: `interlingua check` suggests `{agent}`.
        let [agent] = mount.agents.as_slice() else {
            return Err("a route of this protocol serves one agent".to_owned());
        };

        let agent = agent.name.clone();
        let endpoints = vec![
            Endpoint {
                reads: MediaTypes { exact: &["text/plain", "application/json"], json_suffix: false },
                ..Endpoint::post("/ask", move || Ask { agent: agent.clone(), id: None, encoder: Encoder::new(options) })
            },
            Endpoint::get("/answers/{id}", move || FetchAnswer { options }),
        ];

        // The fallback for unknown paths: only its `fail` is called, so any exchange will do.
        let mut mounted = Mounted::new(endpoints, Box::new(move || Box::new(FetchAnswer { options })));
        mounted.console.curl = vec!["curl -N {url}/ask -H 'content-type: text/plain' -d 'hello'".to_owned()];
        Ok(mounted)
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.reasoning = options.thoughts;
        capabilities
    }
}

/// The exchange of `POST /ask`.
struct Ask {
    agent: String,
    /// Id of the run, for the response header.
    id: Option<RunId>,
    encoder: Encoder,
}

impl Exchange for Ask {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let Question { text, session, answers } = question(request)?;
        // The run uses the request's new id. An id chosen by the engine would not be known when the head is written.
        self.id = Some(request.new_id);
        let mut call = RunCall::new(self.agent.clone(), AgentRequest::default());
        call.id = self.id;
        call.thread = session.map_or(Thread::New, Thread::Session);
        // A turn that leaves questions does not end the run: the stream ends in `pause`.
        call.policy = RunPolicy::attached().pausing_on(&[]);
        match answers {
            // The gateway decides what the words mean for the item: "yes" accepts an approval.
            Some(item) => call.answers = vec![Answer::new(item, AnswerBody::Text(text))],
            None => call.request.input = vec![Message::user(text)].into(),
        }
        Ok(Call::Run(Box::new(call)))
    }

    fn head(&mut self, head: &mut Head) {
        plain_text(head);
        if let Some(id) = self.id {
            head.set("answer-id", answer_id(id));
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.step(step, out)
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.encoder.questions(run, out);
        Flow::Close
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.encoder.interrupt(fault, out);
    }

    fn heartbeat(&mut self, _: &mut Out) {
        // Plain text has no comments: every byte would be part of the answer.
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write_fault(fault, out);
    }
}

/// A request to `POST /ask`.
struct Question {
    text: String,
    session: Option<String>,
    /// The id of the agent's question that the text answers.
    answers: Option<String>,
}

/// Parses a request.
fn question(request: &Request<'_>) -> Result<Question, Fault> {
    let (text, session, answers) = match request.media_type().as_str() {
        "text/plain" => {
            let text = std::str::from_utf8(request.body);
            let text =
                text.map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}")))?;
            (text.to_owned(), request.query("session"), request.query("answers"))
        }
        "application/json" => {
            // Parsed field by field, so that a fault names the invalid one.
            let object = Node::parse_object(request.body)?;
            let text = object.required("question")?.string()?.into_owned();
            (text, object.string("session")?, object.string("answers")?)
        }
        other => {
            let message = format!("content-type must be 'text/plain' or 'application/json', not '{other}'");
            return Err(Fault::new(FaultKind::UnsupportedMedia, message));
        }
    };

    if text.trim().is_empty() {
        return Err(Fault::invalid("question", "must not be empty"));
    }
    if answers.is_some() && session.is_none() {
        return Err(Fault::invalid("session", "an answer needs the session of the question"));
    }
    Ok(Question { text, session: session.map(Into::into), answers: answers.map(Into::into) })
}

/// The exchange of `GET /answers/{id}`.
struct FetchAnswer {
    options: Options,
}

impl Exchange for FetchAnswer {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = request.param("id");
        let id = RunId::parse(id).ok_or_else(|| Fault::not_found(format_args!("answer '{id}'")))?;
        // With `Call::Follow`, the reply would be a stream: `encode` would get all steps from the first one on.
        Ok(Call::Fetch(Target::Run(id)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(Fault::unexpected_reply()) };

        out.status(if view.run().end.is_some() { 200 } else { 202 });
        plain_text(&mut out.head);
        // The same steps produce the same text, live or from the record, so one encoder serves both.
        let mut encoder = Encoder::new(self.options);
        for step in view.record.steps(0) {
            encoder.step(step, out);
        }
        encoder.questions(view, out);

        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write_fault(fault, out);
    }
}

/// The form of run ids in this protocol. `RunId::parse` accepts any prefix.
fn answer_id(id: RunId) -> String {
    id.to_prefixed("answer_")
}

fn plain_text(head: &mut Head) {
    head.set("content-type", "text/plain; charset=utf-8");
    head.set("cache-control", "no-cache");
    // Tells proxies not to buffer the response.
    head.set("x-accel-buffering", "no");
}

/// Writes a fault in this protocol's format: one line of text, with the status that the core suggests.
fn write_fault(fault: &Fault, out: &mut Out) {
    out.status(fault.kind.status());
    plain_text(&mut out.head);

    let field = fault.field.as_ref().map(|field| format!(" (at {field})")).unwrap_or_default();
    out.write_raw(format!("error: {}: {}{field}\n", fault.code(), fault.message).as_bytes());
}
