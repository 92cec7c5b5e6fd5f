//! `POST`: one message of a client, in either style. Reads it, checks its session, and dispatches it to its operation.

use std::sync::Arc;

use interlingua_core::call::{Notice, Reply};
use interlingua_core::event::Millis;
use interlingua_core::loss::Loss;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Flow, Head, Next, Out, Request, RunView, Step};

use super::cancel::Cancel;
use super::lookup::LookupStep;
use super::operation::Operation;
use super::question::{self, QuestionAnswer};
use super::refusal::Refusal;
use super::route::Route;
use super::shared::SharedState;
use super::writer::{Accepts, Writer};
use super::{challenge, methods, session};
use crate::envelope::rpc_error::{INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_VERSION};
use crate::envelope::{ClientAbilities, Era, Message, MessageKind, RpcError, check_modern, era};
use crate::revision::Revision;
use crate::tasks::TaskStep;

/// The exchange of one message.
pub(crate) struct Post {
    shared: SharedState,
    head: challenge::RequestHead,
    operation: Operation,
    /// The first call of the operation, while the session is checked.
    held: Option<Call>,
}

impl Post {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            shared: SharedState::new(route),
            head: challenge::RequestHead::default(),
            operation: Operation::Accept,
            held: None,
        }
    }

    fn read(&mut self, request: &Request<'_>) -> Result<Call, Refusal> {
        self.shared.writer.accepts = Accepts::read(request.headers);
        let accepts = self.shared.writer.accepts;
        let version = request.header("mcp-protocol-version");
        let message = match Message::read(request.body) {
            Ok(message) => message,
            Err((id, error)) => {
                self.shared.writer.id = id;
                return Err(error.into());
            }
        };
        if let MessageKind::Request(id) = &message.kind {
            self.shared.writer.id = Some(id.clone());
        }
        if !accepts.json && !accepts.events {
            let message = "the client accepts neither application/json nor text/event-stream";
            return Err(Fault::new(FaultKind::NotAcceptable, message).into());
        }

        match era(Some(&message), version) {
            Era::Modern => self.read_modern(&message, request),
            Era::Legacy(revision) => self.read_legacy(&message, revision, request),
        }
    }

    fn read_modern(&mut self, message: &Message, request: &Request<'_>) -> Result<Call, Refusal> {
        self.shared.writer.revision = Revision::July2026;
        match &message.kind {
            MessageKind::Response(..) => {
                Err(RpcError::bad(INVALID_REQUEST, "clients of this revision send no responses").into())
            }
            MessageKind::Notification => {
                let version = request.header("mcp-protocol-version").map(str::trim);
                match version.filter(|version| Revision::parse(version).is_none()) {
                    Some(version) => {
                        let message = format!("revision {version} is not served");
                        let data = serde_json::json!({ "supported": Revision::ALL, "requested": version });
                        Err(RpcError::bad(UNSUPPORTED_VERSION, message).with_data(data).into())
                    }
                    None => Ok(Call::Nothing),
                }
            }
            MessageKind::Request(_) => {
                let header = |name: &str| request.header(name).map(str::to_owned);
                let capabilities = check_modern(message, &header)?;
                self.shared.client = ClientAbilities::read(capabilities, Revision::July2026);
                self.dispatch(message)
            }
        }
    }

    fn read_legacy(
        &mut self,
        message: &Message,
        revision: Option<Revision>,
        request: &Request<'_>,
    ) -> Result<Call, Refusal> {
        self.shared.writer.revision = revision.unwrap_or(Revision::March2025);
        if matches!(message.kind, MessageKind::Request(_)) && message.method == "initialize" {
            return self.dispatch(message);
        }
        if let Some(session) = session::read(&self.shared, request)? {
            self.shared.writer.revision = session.revision;
            self.shared.client = ClientAbilities { modes: session.modes, tasks: false };
            self.shared.session = Some(session);
        }

        let call = match (&message.kind, &self.shared.session) {
            (MessageKind::Request(_), _) => self.dispatch(message)?,
            (MessageKind::Response(id, result), Some(session)) => {
                let (answer, call) = QuestionAnswer::decode(&self.shared, session, id, result.clone())?;
                self.operation = Operation::Answer(Box::new(answer));
                call
            }
            (MessageKind::Response(..), None) => return Err(question::not_open().into()),
            (MessageKind::Notification, Some(session)) if message.method == "notifications/cancelled" => {
                match Cancel::decode(session, &message.params) {
                    Some((cancel, call)) => {
                        self.operation = Operation::Cancel(cancel);
                        call
                    }
                    None => Call::Nothing,
                }
            }
            (MessageKind::Notification, _) => Call::Nothing,
        };
        Ok(match &self.shared.session {
            Some(session) => {
                self.held = Some(call);
                session::check(session)
            }
            None => call,
        })
    }

    fn dispatch(&mut self, message: &Message) -> Result<Call, Refusal> {
        let Some((operation, call)) = methods::dispatch(&mut self.shared, message)? else {
            let error = RpcError::new(METHOD_NOT_FOUND, format!("Method not found: {}", message.method));
            let status = if self.shared.writer.revision.is_modern() { 404 } else { 200 };
            return Err(RpcError { status, ..error }.into());
        };
        self.operation = operation;
        Ok(call)
    }

    /// Writes the answer to a notification or a response.
    fn accept(out: &mut Out) -> Next {
        out.status(202);
        Next::Done
    }

    fn continue_operation(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Refusal> {
        let Self { shared, operation, .. } = self;
        match operation {
            Operation::Accept => Ok(Self::accept(out)),
            Operation::Result(result) => {
                if let Some(session) = shared.session.as_ref().filter(|_| shared.is_new_session) {
                    out.header(session::HEADER, session.seal(shared.seals())?);
                }
                shared.writer.result(std::mem::take(result), 0, out);
                Ok(Next::Done)
            }
            Operation::List(listed) => {
                let result = listed.result(shared, &reply)?;
                shared.writer.result(result, 0, out);
                Ok(Next::Done)
            }
            Operation::Lookup(lookup) => Ok(match lookup.reply(shared, &reply)? {
                LookupStep::Call(call) => Next::Call(call),
                LookupStep::Result(result) => {
                    shared.writer.result(result, 0, out);
                    Next::Done
                }
            }),
            Operation::Call(call) => Ok(call.reply(reply, shared, out)?),
            Operation::Task(task) => Ok(match task.reply(reply, &shared.result_context())? {
                TaskStep::Call(call) => Next::Call(call),
                TaskStep::Result(result) => {
                    shared.writer.result(result, 0, out);
                    Next::Done
                }
            }),
            Operation::Listen(subscription) => {
                let mut messages = Vec::new();
                let call = subscription.reply(reply, &shared.result_context(), &mut messages)?;
                write_all(&shared.writer, &messages, out);
                Ok(Next::Call(call))
            }
            Operation::Cancel(cancel) => Ok(cancel.reply(&reply).map_or_else(|| Self::accept(out), Next::Call)),
            Operation::Answer(answer) => Ok(answer.reply(reply, shared)?.map_or_else(|| Self::accept(out), Next::Call)),
        }
    }
}

fn write_all(writer: &Writer, messages: &[serde_json::Value], out: &mut Out) {
    for message in messages {
        writer.message(message, 0, out);
    }
}

impl Exchange for Post {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.head.read(request);
        self.shared.read(request);
        self.read(request).map_err(|refusal| refusal.into_fault(&mut self.shared))
    }

    fn read_head(&mut self, request: &Request<'_>) {
        self.head.refused(request);
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Some(call) = self.held.take() {
            return match reply {
                Reply::Documents([]) => Ok(Next::Call(call)),
                Reply::Documents(_) => Err(Refusal::from(session::unknown()).into_fault(&mut self.shared)),
                _ => Err(Fault::unexpected_reply()),
            };
        }
        self.continue_operation(reply, out).map_err(|refusal| refusal.into_fault(&mut self.shared))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        match &mut self.operation {
            Operation::Call(call) => call.on_not_found(),
            Operation::Task(task) => task.on_not_found(),
            Operation::Listen(subscription) => subscription.on_not_found(),
            Operation::Lookup(lookup) => lookup.on_not_found(),
            // A run that was deleted meanwhile.
            Operation::Cancel(_) => Some(Call::Nothing),
            _ => None,
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if self.shared.refusal.is_none() {
            let answered = match &self.operation {
                Operation::Call(call) => call.on_fault(fault, &self.shared),
                Operation::Task(task) => task.on_fault(fault),
                Operation::Answer(answer) => answer.on_fault(fault),
                _ => None,
            };
            match answered {
                Some(Ok(result)) if self.shared.writer.id.is_some() => {
                    out.status(200);
                    return self.shared.writer.result(result, 0, out);
                }
                Some(Ok(_)) => return out.status(202),
                Some(Err(error)) => self.shared.refusal = Some(error),
                None => {}
            }
        }
        challenge::fail(&self.shared, &self.head, fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.shared.writer.begin_stream(head);
    }

    fn begin(&mut self, run: RunView<'_>, out: &mut Out) {
        if let Operation::Call(call) = &mut self.operation {
            call.begin(run, &mut self.shared, out);
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match &mut self.operation {
            Operation::Call(call) => call.encode(step, &mut self.shared, out),
            _ => Flow::Close,
        }
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        match &mut self.operation {
            Operation::Call(call) => call.pause(run, &mut self.shared, out),
            _ => Flow::Close,
        }
    }

    fn next_call(&mut self) -> Option<Call> {
        match &mut self.operation {
            Operation::Call(call) => call.next_call(),
            Operation::Listen(subscription) => Some(subscription.next_call()),
            _ => None,
        }
    }

    fn on_notice(&mut self, notice: Notice, out: &mut Out) -> Flow {
        if let Operation::Listen(subscription) = &mut self.operation {
            let mut messages = Vec::new();
            subscription.on_notice(notice, &mut messages);
            write_all(&self.shared.writer, &messages, out);
        }
        Flow::More
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        match &mut self.operation {
            Operation::Call(call) => call.interrupt(fault, &self.shared, out),
            Operation::Listen(subscription) if fault.kind == FaultKind::ShuttingDown => {
                self.shared.writer.result(subscription.result(), 0, out);
            }
            _ => self.shared.writer.error(&challenge::error(fault), 0, out),
        }
    }

    fn is_resumed_elsewhere(&self) -> bool {
        self.shared.writer.numbered_by.is_some()
    }

    fn heartbeat(&mut self, out: &mut Out) {
        self.shared.writer.heartbeat(out);
    }

    fn wake_at(&self) -> Option<Millis> {
        match &self.operation {
            Operation::Call(call) => call.wake_at(),
            Operation::Listen(subscription) => subscription.wake_at(),
            _ => None,
        }
    }

    fn on_time(&mut self, now: Millis, out: &mut Out) -> Flow {
        self.shared.now = now;
        match &mut self.operation {
            Operation::Call(call) => call.on_time(now, &mut self.shared, out),
            Operation::Listen(subscription) => {
                if subscription.on_time(now) {
                    Flow::Next
                } else {
                    Flow::More
                }
            }
            _ => Flow::More,
        }
    }

    fn losses(&self) -> &[Loss] {
        match &self.operation {
            Operation::Call(call) => call.losses(),
            _ => &[],
        }
    }
}
