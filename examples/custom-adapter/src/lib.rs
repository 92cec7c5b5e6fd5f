//! `plain`: an invented text protocol for terminals, served from a separate crate. Meant to be copied.
//!
//! `POST /ask` has a question as its body; the answer is streamed as text. `?session=NAME` continues a conversation, and
//! `&answers=ID` answers a question of the agent. `GET /answers/{id}` is the answer again; 202 while it is incomplete.

use interlingua_adapter_kit::{emitted_text::EmittedText, sequencer::MessageSequencer};
use interlingua_core::model::{AgentRequest, ContentType, Message, MessageType};
use interlingua_core::{
    Answer, AnswerBody, Call, ClientCapabilities, End, Endpoint, Event, Exchange, Fault, Flow, Head, Mount, Mounted,
    Next, Out, ProtocolAdapter, Reply, Request, RunCall, RunId, RunPolicy, RunView, Step, Target, Thread,
};
use interlingua_core::{capability::AskKinds, pending::Decision};

/// The protocol adapter. A binary serves it with `Gateway::builtin().serve::<Plain>()`.
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
        let agent = mount.only_agent().ok_or("a route of this protocol serves one agent")?.name.clone();
        let ask = move || PlainExchange { agent: Some(agent.clone()), options, ..PlainExchange::default() };
        let fetch = move || PlainExchange { agent: None, options, ..PlainExchange::default() };
        let endpoints = vec![Endpoint::post_text("/ask", ask), Endpoint::get("/answers/{id}", fetch)];
        // For unknown paths: only `fail` is called, so any exchange will do.
        let mut mounted = Mounted::new(endpoints, Box::new(move || Box::new(fetch())));
        mounted.console.curl = vec!["curl -N {url}/ask -H 'content-type: text/plain' -d 'hello'".to_owned()];
        Ok(mounted)
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        // A client answers every kind of item with words, and words can accept or reject.
        (capabilities.reasoning, capabilities.asks) = (options.thoughts, AskKinds::ALL);
        capabilities.decisions = &[Decision::Accept, Decision::Reject];
        capabilities
    }
}

/// A request and its answer. The same steps produce the same text, so both endpoints share the exchange.
#[derive(Default)]
struct PlainExchange {
    /// The agent of `POST /ask`. `None`: the request is `GET /answers/{id}`.
    agent: Option<String>,
    options: Options,
    /// Id of the new run, for the response header.
    id: Option<RunId>,
    /// Agents may send several messages at the same time; text can only have one open message.
    sequencer: MessageSequencer,
    /// The part of the open content that was written.
    sent: EmittedText,
    /// True while a paragraph can be continued.
    in_paragraph: bool,
    /// Separates the next paragraph from the text before it.
    gap: &'static str,
}

impl Exchange for PlainExchange {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let Some(agent) = &self.agent else {
            let id = request.param("id");
            let id = RunId::parse(id).ok_or_else(|| Fault::not_found(format_args!("answer '{id}'")))?;
            return Ok(Call::Fetch(Target::Run(id)));
        };

        let text = request.text()?;
        if text.trim().is_empty() {
            return Err(Fault::invalid("question", "must not be empty"));
        }

        let mut call = RunCall::new(agent, AgentRequest::default());
        // The request's new id: an id chosen by the engine would not be known when the head is written.
        (self.id, call.id) = (Some(request.new_id), Some(request.new_id));
        // A turn that leaves questions does not end the run: the stream ends in `pause`.
        call.policy = RunPolicy::attached().pausing_on(&[]);
        call.thread = request.query("session").map_or(Thread::New, |session| Thread::Session(session.into()));
        match request.query("answers") {
            None => call.request.input = vec![Message::user(text)].into(),
            Some(_) if call.thread == Thread::New => {
                return Err(Fault::invalid("session", "an answer needs the session of the question"));
            }
            // The gateway decides what the words mean for the item: "yes" accepts an approval.
            Some(item) => call.answers = vec![Answer::new(item.into(), AnswerBody::Text(text.to_owned()))],
        }
        Ok(Call::Run(Box::new(call)))
    }

    fn head(&mut self, head: &mut Head) {
        head.set_stream("text/plain; charset=utf-8");
        if let Some(id) = self.id {
            head.set("answer-id", id.to_prefixed("answer_"));
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let mut sequencer = std::mem::take(&mut self.sequencer);
        sequencer.push(step, |step| self.write(step, out));
        self.sequencer = sequencer;
        if matches!(step.event, Event::RunFinished { .. }) { Flow::Close } else { Flow::More }
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        for item in run.pending {
            let (question, session) = (item.message.as_ref().unwrap_or(&item.name), &run.run().session_id);
            let answer = format!("answer with session={session} answers={}", item.id);
            self.remark(&format!("{question} {} — {answer}", item.arguments), out);
        }
        Flow::Close
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Run(view) = reply else { return Err(reply.to_fault()) };
        out.status(if view.run().end.is_some() { 200 } else { 202 });
        self.head(&mut out.head);
        view.record.steps(0).for_each(|step| _ = self.encode(step, out));
        self.pause(view, out);
        Ok(Next::Done)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.remark(&format!("interrupted: {}: {}", fault.code(), fault.message), out);
    }

    /// Writes nothing: plain text has no comments, so every byte would be part of the answer.
    fn heartbeat(&mut self, _: &mut Out) {}

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        out.status(fault.kind.status());
        out.head.set_stream("text/plain; charset=utf-8");
        let field = fault.field.as_ref().map(|field| format!(" (at {field})")).unwrap_or_default();
        out.write_raw(format!("error: {}: {}{field}\n", fault.code(), fault.message).as_bytes());
    }
}

/// The answer as text: one paragraph per message; remarks of the gateway are in brackets.
impl PlainExchange {
    fn write(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::MessageFinished { .. } => self.in_paragraph = false,
            Event::TurnFinished { turn, end } if end != End::Completed => {
                let error = step.run.turns.get(turn as usize).and_then(|turn| turn.error.as_ref());
                let error = error.map(|error| format!(": {}: {}", error.code, error.message)).unwrap_or_default();
                self.remark(&format!("{}{error}", end.as_str()), out);
            }
            Event::RunFinished { .. } if self.gap == "\n\n" => out.write_raw(b"\n"),
            _ => self.content(step, out),
        }
    }

    /// Writes the text that a step adds to a content.
    fn content(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((_, slot))) = (step.message(), step.slot()) else { return };
        let prefix = match message.announced {
            MessageType::Message => "",
            MessageType::Reasoning if self.options.thoughts => "(thinking) ",
            _ => return, // Tool calls and the like are not shown.
        };
        let added = self.sent.extend(&step, slot);
        let is_text = matches!(slot.kind, ContentType::Text | ContentType::Refusal);
        match step.event {
            Event::ContentFinished { .. } if !is_text => self.remark(slot.kind.as_str(), out),
            Event::ContentFinished { .. } if self.sent.text(slot) != slot.text() => {
                // Sent text cannot be withdrawn: a text that was replaced is written again when it is final.
                self.in_paragraph = false;
                self.paragraph(prefix, slot.text(), out);
            }
            _ => self.paragraph(prefix, added, out),
        }
    }

    /// Continues the paragraph, or starts one with this prefix.
    fn paragraph(&mut self, prefix: &str, text: &str, out: &mut Out) {
        if !self.in_paragraph && !text.is_empty() {
            out.write_raw(self.gap.as_bytes());
            out.write_raw(prefix.as_bytes());
            (self.in_paragraph, self.gap) = (true, "\n\n");
        }
        out.write_raw(text.as_bytes());
    }

    fn remark(&mut self, text: &str, out: &mut Out) {
        out.write_raw(format!("{}[{text}]\n", self.gap).as_bytes());
        (self.in_paragraph, self.gap) = (false, "\n");
    }
}
