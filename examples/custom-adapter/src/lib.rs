//! `plain`: an invented text protocol for terminals, served from a separate crate. Meant to be copied.
//!
//! `POST /ask` has a question as its body; the answer is streamed as text. `?session=NAME` continues a conversation, and
//! `&answers=ID` answers a question of the agent. `GET /answers/{id}` is the answer again; 202 while it is incomplete.
//!
//! An adapter has no sockets, threads, clocks, random numbers, and no state that outlives a request: each request comes
//! with the time and a new id, so the adapter can be tested without a server.

mod encoder;

use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::call::{RunView, Target};
use interlingua_core::capability::ClientCapabilities;
use interlingua_core::exchange::{MediaTypes, Mounted};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::out::Head;
use interlingua_core::{
    Call, Endpoint, Exchange, Fault, FaultKind, Flow, Mount, Next, Out, ProtocolAdapter, Reply, Request, RunCall,
    RunId, RunPolicy, Step, Thread,
};

use crate::encoder::Encoder;

/// The protocol adapter. A binary serves it with `Gateway::builtin().serve::<Plain>()`.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// The options of a route: `options = { thoughts = true }`. Unknown keys are errors with the line and column.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, schemars::JsonSchema)]
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
        let ask = move || Ask { agent: agent.clone(), id: None, encoder: Encoder::new(options) };
        let reads = MediaTypes { exact: &["text/plain"], json_suffix: false };
        let fetch = move || FetchAnswer(Encoder::new(options));
        let endpoints = vec![Endpoint { reads, ..Endpoint::post("/ask", ask) }, Endpoint::get("/answers/{id}", fetch)];
        // For unknown paths: only `fail` is called, so any exchange will do.
        let mut mounted = Mounted::new(endpoints, Box::new(move || Box::new(fetch())));
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
        let invalid = |error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}"));
        let text = std::str::from_utf8(request.body).map_err(invalid)?;
        if text.trim().is_empty() {
            return Err(Fault::invalid("question", "must not be empty"));
        }

        let mut call = RunCall::new(self.agent.clone(), AgentRequest::default());
        // The request's new id: an id chosen by the engine would not be known when the head is written.
        (self.id, call.id) = (Some(request.new_id), Some(request.new_id));
        call.thread = request.query("session").map_or(Thread::New, |session| Thread::Session(session.into()));
        // A turn that leaves questions does not end the run: the stream ends in `pause`.
        call.policy = RunPolicy::attached().pausing_on(&[]);
        match request.query("answers") {
            Some(_) if call.thread == Thread::New => {
                return Err(Fault::invalid("session", "an answer needs the session of the question"));
            }
            // The gateway decides what the words mean for the item: "yes" accepts an approval.
            Some(item) => call.answers = vec![Answer::new(item.into_owned(), AnswerBody::Text(text.to_owned()))],
            None => call.request.input = vec![Message::user(text)].into(),
        }
        Ok(Call::Run(Box::new(call)))
    }

    fn head(&mut self, head: &mut Head) {
        plain_text(head);
        if let Some(id) = self.id {
            head.set("answer-id", id.to_prefixed("answer_"));
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

/// The exchange of `GET /answers/{id}`. The same steps produce the same text, live or from the record.
struct FetchAnswer(Encoder);

impl Exchange for FetchAnswer {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = request.param("id");
        let id = RunId::parse(id).ok_or_else(|| Fault::not_found(format_args!("answer '{id}'")))?;
        Ok(Call::Fetch(Target::Run(id)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(Fault::unexpected_reply()) };
        out.status(if view.run().end.is_some() { 200 } else { 202 });
        plain_text(&mut out.head);
        for step in view.record.steps(0) {
            self.0.step(step, out);
        }
        self.0.questions(view, out);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write_fault(fault, out);
    }
}

fn plain_text(head: &mut Head) {
    head.set("content-type", "text/plain; charset=utf-8");
    head.set("cache-control", "no-cache");
    // Proxies must not buffer the stream.
    head.set("x-accel-buffering", "no");
}

/// Writes a fault as one line of text, with the status that the core suggests.
fn write_fault(fault: &Fault, out: &mut Out) {
    out.status(fault.kind.status());
    plain_text(&mut out.head);
    let field = fault.field.as_ref().map(|field| format!(" (at {field})")).unwrap_or_default();
    out.write_raw(format!("error: {}: {}{field}\n", fault.code(), fault.message).as_bytes());
}
