//! `POST /send-message`: one request, one stream (sections 2, 3 and 6).
//!
//! Before the agent is asked, the conversation's latest run is looked at: for the tools its client named, and the
//! calls it was told of.

use std::sync::Arc;

use interlingua_core::answer::{langgraph, offer, taken};
use interlingua_core::call::{AgentCard, Busy, RunView, Target};
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::out::Head;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Reply, Request, RunCall, RunPolicy, Step, Thread};

use crate::encode::Encoder;
use crate::memory::Memory;
use crate::request::{SendMessage, native};
use crate::{Route, fault, wire};

/// One request and its stream.
pub(crate) struct Send {
    route: Arc<Route>,
    encoder: Encoder,
    /// What will be asked, while the conversation is looked up.
    asked: Option<Box<RunCall>>,
    /// Whether nothing is said: then the conversation has to be there.
    is_empty: bool,
}

impl Send {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), encoder: Encoder::new(route), asked: None, is_empty: false }
    }

    fn agent(&self, id: &str) -> Result<Arc<AgentCard>, Fault> {
        // The reference takes any id; it matters only where there is a choice (section 2).
        let agent = match (id, self.route.agents.as_slice()) {
            (_, [only]) => Some(only),
            ("", _) => self.route.plain.as_ref(),
            (id, _) => self.route.agent(id),
        };
        agent.cloned().ok_or_else(|| {
            let known: Vec<&str> = self.route.agents.iter().map(|agent| agent.name.as_str()).collect();
            let known = known.join(", ");
            let message = match id {
                "" => format!("name the agent in the path, /v1/aibot/bots/{{agentId}}/send-message: {known}"),
                id => format!("no agent '{id}' here, only {known}"),
            };
            Fault::new(FaultKind::NoSuchAgent, message)
        })
    }

    fn nothing_said() -> Fault {
        Fault::new(FaultKind::Missing, "messages or resume must say something").with_field("messages")
    }

    /// The first of what waits, again or for the first time; nothing has reached the agent.
    fn show_waiting(&self, view: &RunView<'_>, out: &mut Out) -> Result<(), Fault> {
        let is_shown = |item: &&Pending| item.kind != PendingKind::Tool;
        let of_run = view.run().pending();
        let item = view.pending.iter().find(is_shown).or_else(|| of_run.iter().find(is_shown));
        let Some(item) = item else {
            return Err(Fault::new(FaultKind::Internal, "something waits, but it cannot be told what"));
        };
        fault::stream_head(&mut out.head);
        out.status(200);
        write_interrupt(&self.route, &view.run().agent, item, out);
        wire::done(out);
        Ok(())
    }
}

/// Writes the question (human-in-the-loop page, section 5).
pub(crate) fn write_interrupt(route: &Route, agent: &str, item: &Pending, out: &mut Out) {
    let extension = route.agent(agent).is_some_and(|card| card.approval_extension);
    let payload = langgraph::payload(item, &offer(item, taken(item, extension)));
    let reason = item.reason.as_deref().unwrap_or(match item.kind {
        PendingKind::Approval | PendingKind::Tool => "tool_call",
        // For questions the name is the reason.
        PendingKind::Input | PendingKind::Auth => &item.name,
    });
    wire::Event::Interrupt { id: &item.id, reason, payload: &payload }.write(out);
}

impl Exchange for Send {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let agent = self.agent(request.param("agentId"))?;
        let mut read = SendMessage::read(request)?;
        let options = &self.route.options;
        self.is_empty = read.is_empty();
        if self.is_empty && !(options.allow_empty && read.conversation.is_some()) {
            return Err(Self::nothing_said());
        }
        let user = options.user_header.as_ref().and_then(|name| request.header(&name.to_ascii_lowercase()));
        let native = native(&mut read, user.map(str::to_owned));
        let mut run = RunCall::new(&agent.name, native);
        run.answer_policy = self.route.terms();
        run.answers.extend(read.resume);
        run.policy = RunPolicy::attached().with_busy(match options.busy {
            crate::Busy::Refuse => Busy::Refuse,
            crate::Busy::Queue => Busy::Queue,
        });
        let Some(conversation) = read.conversation else { return Ok(Call::Run(Box::new(run))) };
        run.thread = Thread::Session(conversation.clone());
        self.asked = Some(Box::new(run));
        Ok(Call::Fetch(Target::Latest(conversation)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => {
                let Some(mut run) = self.asked.take() else {
                    return Err(Fault::new(FaultKind::Internal, "an answer came whole that is told as a stream"));
                };
                // The request that brings a tool's result usually names no tools (section 10).
                if self.route.options.sticky_tools && run.request.tools.is_none() {
                    run.request.tools.clone_from(&view.about.request.tools);
                }
                run.labels = Memory::after(&view).to_labels();
                Ok(Next::Call(Call::Run(run)))
            }
            Reply::Waiting(view) => self.show_waiting(&view, out).map(|()| Next::Done),
            _ => Err(Fault::new(FaultKind::Internal, "an answer of another kind than was asked for")),
        }
    }

    fn missed(&mut self, _: &Fault) -> Option<Call> {
        // The conversation is new; one in which nothing was ever said cannot go on by itself.
        if self.is_empty { None } else { self.asked.take().map(Call::Run) }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if self.is_empty && self.asked.is_some() && fault.kind == FaultKind::NotFound {
            return fault::fail(&Self::nothing_said(), out);
        }
        fault::fail(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        fault::stream_head(head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        self.encoder.begin(run.about.labels.decode().unwrap_or_default());
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.encode(step, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        fault::interrupt(fault, out);
    }

    fn heartbeat(&mut self, out: &mut Out) {
        if self.route.options.heartbeat {
            out.comment("keep-alive");
        }
    }
}
