//! `POST /send-message`: one request, one stream (docs/protocols/ag-kit.md#endpoints, docs/protocols/ag-kit.md#request,
//! docs/protocols/ag-kit.md#scenarios).
//!
//! Before the agent is called, the conversation's latest run is loaded: it has the tools that the client declared and
//! the calls that the client has seen.

use std::sync::Arc;

use interlingua_core::call::{AgentCard, Busy, RunView, Target};
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::loss::Loss;
use interlingua_core::out::Head;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Reply, Request, RunCall, RunPolicy, Step, Thread};

use crate::decode::request::{SendMessage, take_agent_request};
use crate::encode::Encoder;
use crate::encode::interrupt::write_interrupt;
use crate::serve::fault;
use crate::serve::memory::Memory;
use crate::{Route, wire};

/// One request and its stream.
pub(crate) struct Send {
    route: Arc<Route>,
    encoder: Encoder,
    /// The call to make once the conversation has been loaded.
    run_call: Option<Box<RunCall>>,
    /// True if the request has no content; then the conversation must exist.
    is_empty: bool,
}

impl Send {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), encoder: Encoder::new(route), run_call: None, is_empty: false }
    }

    fn agent(&self, id: &str) -> Result<Arc<AgentCard>, Fault> {
        // The reference implementation accepts any id; it matters only if the route has several agents
        // (docs/protocols/ag-kit.md#endpoints).
        let agent = match (id, self.route.agents.as_slice()) {
            (_, [only]) => Some(only),
            ("", _) => self.route.default_agent.as_ref(),
            (id, _) => self.route.agent(id),
        };

        agent.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.route.agents.iter().map(|agent| agent.name.as_str()).collect();
            let names = names.join(", ");
            let message = match id {
                "" => format!("name the agent in the path, /v1/aibot/bots/{{agentId}}/send-message: {names}"),
                id => format!("unknown agent '{id}': must be one of {names}"),
            };
            Fault::new(FaultKind::NoSuchAgent, message)
        })
    }

    fn empty_request() -> Fault {
        Fault::new(FaultKind::Missing, "either 'messages' or 'resume' must have content").with_field("messages")
    }

    /// Sends the first pending item, possibly again; the request has not reached the agent. `reason`: why the item is
    /// still pending, for a request that says something.
    fn write_pending(&self, view: &RunView<'_>, reason: Option<&str>, out: &mut Out) -> Result<(), Fault> {
        let is_interrupt = |item: &&Pending| item.kind != PendingKind::Tool;
        let run_pending = view.run().pending();
        let item = view.pending.iter().find(is_interrupt).or_else(|| run_pending.iter().find(is_interrupt));

        let Some(item) = item else {
            return Err(Fault::new(FaultKind::Internal, "the run is waiting, but it has no pending item to show"));
        };

        fault::stream_head(&mut out.head);
        out.status(200);
        if let Some(reason) = reason {
            wire::Event::Text { content: reason }.write(out);
        }
        write_interrupt(&self.route, &view.run().agent, item, out);
        wire::done(out);
        Ok(())
    }
}

impl Exchange for Send {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let agent = self.agent(request.param("agentId"))?;
        let mut message = SendMessage::parse(request)?;
        let options = &self.route.options;
        self.is_empty = message.is_empty();
        if self.is_empty && !(options.allow_empty.0 && message.conversation.is_some()) {
            return Err(Self::empty_request());
        }

        let user = options.user_header.as_ref().and_then(|name| request.header(&name.to_ascii_lowercase()));
        let agent_request = take_agent_request(&mut message, user.map(str::to_owned));

        let mut run = RunCall::new(&agent.name, agent_request);
        run.answer_policy = self.route.answer_policy();
        run.answers.extend(message.resume);
        run.policy = RunPolicy::attached().with_busy(match options.busy {
            crate::Busy::Refuse => Busy::Refuse,
            crate::Busy::Queue => Busy::Queue,
        });

        let Some(conversation) = message.conversation else { return Ok(Call::Run(Box::new(run))) };
        run.thread = Thread::Session(conversation.clone());
        self.run_call = Some(Box::new(run));
        Ok(Call::Fetch(Target::Latest(conversation)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => {
                let Some(mut run) = self.run_call.take() else {
                    return Err(Fault::new(
                        FaultKind::Internal,
                        "the engine returned a complete answer instead of a stream",
                    ));
                };
                // A request with a tool's result usually declares no tools (docs/protocols/ag-kit.md#sticky-tools).
                if self.route.options.sticky_tools.0 && run.request.tools.is_none() {
                    run.request.tools.clone_from(&view.info.request.tools);
                }
                run.labels = Memory::after(&view).to_labels();
                Ok(Next::Call(Call::Run(run)))
            }
            Reply::Waiting(view, reason) => self.write_pending(&view, reason, out).map(|()| Next::Done),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        // The conversation is new. A request without content cannot start one.
        if self.is_empty { None } else { self.run_call.take().map(Call::Run) }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if self.is_empty && self.run_call.is_some() && fault.kind == FaultKind::NotFound {
            return fault::fail(&Self::empty_request(), out);
        }
        fault::fail(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        fault::stream_head(head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        self.encoder.begin(run.info.labels.decode().unwrap_or_default());
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.encode(step, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        fault::interrupt(fault, out);
    }

    fn heartbeat(&mut self, out: &mut Out) {
        if self.route.options.heartbeat.0 {
            out.comment("keep-alive");
        }
    }

    fn losses(&self) -> &[Loss] {
        self.encoder.losses()
    }
}
