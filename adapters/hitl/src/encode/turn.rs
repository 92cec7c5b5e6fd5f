//! The common part of invoke and resume: call the agent, and send its complete answer together with the conversation so
//! far.

use std::sync::Arc;

use interlingua_core::call::{Busy, Delivery, RunView, SessionCall, SessionItem, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::exchange::Next;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::pending::Pending;
use interlingua_core::run::Run;
use interlingua_core::{Blame, Call, End, Fault, FaultKind, Out, Reply, RunCall, RunId, RunPolicy, Thread};

use crate::encode::conversation::{ConversationBuilder, interrupt_data};
use crate::serve::fault;
use crate::{Reasoning, ResultScope, Route, WhileInterrupted, losses, wire};

/// One call of the agent in a known session.
pub(crate) struct Turn {
    route: Arc<Route>,
    pub(crate) session: String,
    /// Time of the request.
    now: Millis,
    /// The agent's answer, while the rest of the conversation is being loaded.
    answer: Option<AgentAnswer>,
    is_started: bool,
    /// True if the request is an answer to a question, not a query.
    is_resume: bool,
    losses: Losses,
}

struct AgentAnswer {
    run: RunId,
    response: wire::AgentResponse,
    /// The messages of this run, in case the session does not contain them.
    messages: Vec<Message>,
}

impl Turn {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            session: String::new(),
            now: 0,
            answer: None,
            is_started: false,
            is_resume: false,
            losses: Losses::new(),
        }
    }

    /// Sets the time of the request.
    pub(crate) const fn set_time(&mut self, now: Millis) {
        self.now = now;
    }

    /// Starts the turn: the call that sends the request to the agent.
    pub(crate) fn start(&mut self, request: AgentRequest, answer: Option<interlingua_core::answer::Answer>) -> Call {
        self.is_started = true;
        self.is_resume = answer.is_some();
        let request = AgentRequest { session_id: Some(self.session.clone()), ..request };
        let mut run = RunCall::new(&self.route.agent.name, request);

        run.delivery = Delivery::Collect;
        run.thread = Thread::Session(self.session.clone());
        run.answer_policy = self.route.answer_policy();
        run.answers.extend(answer);
        // Clients of this service commonly disconnect and request the status later.
        let detached = !self.route.options.cancel_on_disconnect;
        run.policy = RunPolicy::attached().with_detached(detached).with_busy(Busy::Refuse);
        Call::Run(Box::new(run))
    }

    /// The content that the answer does not show.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    /// True once the turn has started: further replies belong to it.
    pub(crate) const fn is_started(&self) -> bool {
        self.is_started
    }

    pub(crate) fn reply(&mut self, reply: &Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => self.handle_run(view, out),
            Reply::Waiting(view, _) => {
                // After an answer further questions may be open; that is no error of the client, unlike a query.
                let is_conflict = self.route.options.invoke_while_interrupted == WhileInterrupted::Conflict;
                if is_conflict && !self.is_resume {
                    return Err(Fault::new(
                        FaultKind::Conflict,
                        "the session is waiting for an answer, not for a query",
                    ));
                }
                let response = response(&self.route, &self.session, view.run(), view.pending);
                write(&response, out);
                Ok(Next::Done)
            }
            Reply::Session([view]) => self.finish(&view.items, out),
            // The session was deleted while it was being loaded.
            Reply::Done => self.finish(&[], out),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    /// The fallback if the session was not found.
    pub(crate) fn on_not_found(&self) -> Option<Call> {
        self.answer.is_some().then_some(Call::Nothing)
    }

    /// Writes an error. Errors of the agent are regular responses in this service.
    pub(crate) fn fail(&self, fault: &Fault, out: &mut Out) {
        let is_agent_error = fault.kind.blame() == Blame::Upstream || fault.kind == FaultKind::Canceled;
        if !(self.is_started && is_agent_error) {
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

    fn handle_run(&mut self, view: &RunView<'_>, out: &mut Out) -> Result<Next, Fault> {
        let run = view.run();
        losses::note(run, &self.route.options, &mut self.losses);

        let mut response = response(&self.route, &self.session, run, view.pending);
        if response.status != "completed" {
            write(&response, out);
            return Ok(Next::Done);
        }

        let messages: Vec<Message> = run.conversation().collect();
        if self.route.options.result == ResultScope::Turn {
            response.result = Some(conversation(&self.route, &[], &messages));
            write(&response, out);
            return Ok(Next::Done);
        }

        self.answer = Some(AgentAnswer { run: run.id, response, messages });
        Ok(Next::Call(Call::Session(SessionCall::Get { session: self.session.clone() })))
    }

    fn finish(&mut self, items: &[SessionItem], out: &mut Out) -> Result<Next, Fault> {
        let Some(AgentAnswer { run, mut response, messages }) = self.answer.take() else {
            return Err(Fault::unexpected_reply());
        };
        let is_included = items.iter().any(|item| item.run == Some(run));

        response.result = Some(conversation(&self.route, items, if is_included { &[] } else { &messages }));
        write(&response, out);
        Ok(Next::Done)
    }
}

/// Converts the items of a session, followed by further messages.
pub(crate) fn conversation(route: &Route, items: &[SessionItem], messages: &[Message]) -> wire::Conversation {
    let reasoning: Reasoning = route.options.reasoning;
    let mut builder = ConversationBuilder::new(reasoning);
    items.iter().for_each(|item| builder.add(Some(&item.id), &item.message));
    messages.iter().for_each(|message| builder.add(None, message));
    builder.finish()
}

/// The response for a run that has stopped, without its `result`.
pub(crate) fn response(route: &Route, session: &str, run: &Run, pending: &[Pending]) -> wire::AgentResponse {
    let turn = run.turn();
    let end = turn.and_then(|turn| turn.end).or(run.end);
    let timestamp = turn.and_then(|turn| turn.ended_at).or(run.finished_at).unwrap_or(run.created_at);

    let mut response = wire::AgentResponse {
        session_id: session.to_owned(),
        status: "completed",
        timestamp: wire::seconds(timestamp),
        message: None,
        result: None,
        interrupt_data: None,
    };

    match end {
        Some(End::Completed | End::Incomplete) | None => {
            if let Some(item) = pending.first() {
                response.status = "interrupted";
                response.interrupt_data = Some(interrupt_data(item, route.agent.decisions));
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

/// The instructions that are in effect in a session.
pub(crate) fn instructions(view: &SessionView) -> Option<String> {
    use interlingua_core::model::{MessageType, Role};
    let is_system =
        |item: &&SessionItem| item.message.kind == MessageType::Message && item.message.role == Some(Role::System);
    view.items.iter().rev().find(is_system).map(|item| item.message.text())
}
