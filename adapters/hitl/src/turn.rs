//! What invoke and resume have in common: the agent is asked, and its answer is told whole, with what was said before.

use std::sync::Arc;

use interlingua_core::call::{Busy, Delivery, RunView, SessionCall, SessionItem, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::exchange::Next;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::pending::Pending;
use interlingua_core::run::Run;
use interlingua_core::{Blame, Call, End, Fault, FaultKind, Out, Reply, RunCall, RunId, RunPolicy, Thread};

use crate::conversation::{Teller, interrupt_data};
use crate::{Reasoning, Route, Shown, WhileInterrupted, fault, wire};

/// One question and its answer, once it is known in which session.
pub(crate) struct Turn {
    route: Arc<Route>,
    pub(crate) session: String,
    /// When the client asked.
    now: Millis,
    /// The answer, while the rest of the conversation is looked up.
    answered: Option<Answered>,
    is_asked: bool,
    /// Whether something was answered, not asked.
    is_answer: bool,
}

/// What the agent answered.
struct Answered {
    run: RunId,
    response: wire::AgentResponse,
    /// What was said in this run, in case the session does not have it.
    said: Vec<Message>,
}

impl Turn {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            session: String::new(),
            now: 0,
            answered: None,
            is_asked: false,
            is_answer: false,
        }
    }

    /// The time of the request.
    pub(crate) const fn at(&mut self, now: Millis) {
        self.now = now;
    }

    /// Asks.
    pub(crate) fn ask(&mut self, request: AgentRequest, answer: Option<interlingua_core::answer::Answer>) -> Call {
        self.is_asked = true;
        self.is_answer = answer.is_some();
        let request = AgentRequest { session_id: Some(self.session.clone()), ..request };
        let mut run = RunCall::new(&self.route.agent.name, request);
        run.delivery = Delivery::Collect;
        run.thread = Thread::Session(self.session.clone());
        run.answer_policy = self.route.terms();
        run.answers.extend(answer);
        // Clients of this service hang up and ask for the status later.
        let detached = !self.route.options.cancel_on_disconnect;
        run.policy = RunPolicy::attached().with_detached(detached).with_busy(Busy::Refuse);
        Call::Run(Box::new(run))
    }

    /// True once the agent was asked: what comes back is for this turn.
    pub(crate) const fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub(crate) fn reply(&mut self, reply: &Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => self.answered(view, out),
            Reply::Waiting(view) => {
                // An answer was taken, and more are waited for: that is no query in the wrong place.
                let refuses = self.route.options.invoke_while_interrupted == WhileInterrupted::Conflict;
                if refuses && !self.is_answer {
                    return Err(Fault::new(FaultKind::Conflict, "the session waits for an answer, not for a query"));
                }
                let response = response(&self.route, &self.session, view.run(), view.pending);
                write(&response, out);
                Ok(Next::Done)
            }
            Reply::Session([view]) => self.whole(&view.items, out),
            // The session went away while it was looked at.
            Reply::Done => self.whole(&[], out),
            _ => Err(fault::unexpected()),
        }
    }

    /// Asked when the session was not found.
    pub(crate) fn missed(&self) -> Option<Call> {
        self.answered.is_some().then_some(Call::Nothing)
    }

    /// Writes a refusal of something that was asked. What an agent does wrong is an answer of this service.
    pub(crate) fn fail(&self, fault: &Fault, out: &mut Out) {
        let is_agents = fault.kind.blame() == Blame::Upstream || fault.kind == FaultKind::Canceled;
        if !(self.is_asked && is_agents) {
            return fault::write(fault, out);
        }
        write(
            &wire::AgentResponse {
                session_id: self.session.clone(),
                status: "error",
                timestamp: wire::seconds(self.now),
                message: Some(fault.message.clone()),
                result: None,
                interrupt_data: None,
            },
            out,
        );
    }

    fn answered(&mut self, view: &RunView<'_>, out: &mut Out) -> Result<Next, Fault> {
        let run = view.run();
        let mut response = response(&self.route, &self.session, run, view.pending);
        if response.status != "completed" {
            write(&response, out);
            return Ok(Next::Done);
        }
        let said: Vec<Message> = run.conversation().collect();
        if self.route.options.result == Shown::Turn {
            response.result = Some(conversation(&self.route, &[], &said));
            write(&response, out);
            return Ok(Next::Done);
        }
        self.answered = Some(Answered { run: run.id, response, said });
        Ok(Next::Call(Call::Session(SessionCall::Look { session: self.session.clone() })))
    }

    fn whole(&mut self, items: &[SessionItem], out: &mut Out) -> Result<Next, Fault> {
        let Some(Answered { run, mut response, said }) = self.answered.take() else { return Err(fault::unexpected()) };
        let is_there = items.iter().any(|item| item.run == Some(run));
        response.result = Some(conversation(&self.route, items, if is_there { &[] } else { &said }));
        write(&response, out);
        Ok(Next::Done)
    }
}

/// What was said in a session, and then besides.
pub(crate) fn conversation(route: &Route, items: &[SessionItem], said: &[Message]) -> wire::Conversation {
    let reasoning: Reasoning = route.options.reasoning;
    let mut teller = Teller::new(reasoning);
    items.iter().for_each(|item| teller.tell(Some(&item.id), &item.message));
    said.iter().for_each(|message| teller.tell(None, message));
    teller.finish()
}

/// A run that has come to a stop, without its `result`.
pub(crate) fn response(route: &Route, session: &str, run: &Run, pending: &[Pending]) -> wire::AgentResponse {
    let turn = run.turn();
    let end = turn.and_then(|turn| turn.end).or(run.end);
    let at = turn.and_then(|turn| turn.ended_at).or(run.finished_at).unwrap_or(run.created_at);
    let mut response = wire::AgentResponse {
        session_id: session.to_owned(),
        status: "completed",
        timestamp: wire::seconds(at),
        message: None,
        result: None,
        interrupt_data: None,
    };
    match end {
        Some(End::Completed | End::Incomplete) | None => {
            if let Some(item) = pending.first() {
                response.status = "interrupted";
                response.interrupt_data = Some(interrupt_data(item, route.agent.approval_extension));
            }
        }
        Some(End::Canceled) => {
            response.status = "error";
            response.message = Some("canceled".to_owned());
        }
        Some(End::Failed | End::Rejected) => {
            response.status = "error";
            let message = run.error().map_or("the agent failed", |error| error.message.as_str());
            response.message = Some(message.to_owned());
        }
    }
    response
}

pub(crate) fn write(response: &wire::AgentResponse, out: &mut Out) {
    out.status(200);
    out.json(response);
}

/// The instructions a session goes by now.
pub(crate) fn instructions(view: &SessionView) -> Option<String> {
    use interlingua_core::model::{MessageType, Role};
    let is_system =
        |item: &&SessionItem| item.message.kind == MessageType::Message && item.message.role == Some(Role::System);
    view.items.iter().rev().find(is_system).map(|item| item.message.text())
}
