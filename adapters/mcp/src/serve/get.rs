//! `GET` in revisions with sessions: the stream of a session, or the rest of the stream of a call.

use std::sync::Arc;

use interlingua_core::call::{Listen, Notice, Reply};
use interlingua_core::event::Millis;
use interlingua_core::loss::Loss;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Flow, Head, Next, Out, Request, RunView, Step};

use super::call::ToolCall;
use super::events::EventId;
use super::refusal::Refusal;
use super::route::Route;
use super::shared::SharedState;
use super::streams::SessionStream;
use super::writer::{Accepts, Writer};
use super::{challenge, session};
use crate::envelope::rpc_error::INVALID_REQUEST;
use crate::envelope::{ClientAbilities, Era, RpcError, era};
use crate::listen::list_notices;

/// The time between two looks whether the session has a later stream, in milliseconds.
const LOOK: Millis = 1_000;

/// The exchange of one stream.
pub(crate) struct Get {
    shared: SharedState,
    head: challenge::RequestHead,
    stage: Stage,
    resumed: Option<ToolCall>,
    stream: Option<SessionStream>,
    look_at: Option<Millis>,
}

enum Stage {
    /// Checking that the session has not ended.
    Checking(Option<EventId>),
    /// Loading the run of the call that is taken up.
    Loading(EventId),
    /// A stream follows.
    Streaming,
}

impl Get {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            shared: SharedState::new(route),
            head: challenge::RequestHead::default(),
            stage: Stage::Streaming,
            resumed: None,
            stream: None,
            look_at: None,
        }
    }

    fn read(&mut self, request: &Request<'_>) -> Result<Call, Refusal> {
        let Era::Legacy(_) = era(None, request.header("mcp-protocol-version")) else {
            let mut fault = Fault::new(FaultKind::MethodNotAllowed, "this revision has no streams of sessions");
            fault.allow = vec!["POST"];
            return Err(fault.into());
        };
        let accepts = Accepts::read(request.headers);
        if !accepts.events {
            return Err(Fault::new(FaultKind::NotAcceptable, "the client does not accept text/event-stream").into());
        }
        self.shared.writer.accepts = Accepts { json: false, events: true };
        let Some(session) = session::read(&self.shared, request)? else {
            return Err(RpcError::bad(INVALID_REQUEST, "the header Mcp-Session-Id is missing").into());
        };
        let event = match request.header("last-event-id") {
            None => None,
            Some(id) => {
                let malformed = || RpcError::bad(INVALID_REQUEST, "the header Last-Event-ID is malformed");
                Some(EventId::parse(id.trim()).ok_or_else(malformed)?)
            }
        };

        self.shared.writer.revision = session.revision;
        self.shared.client = ClientAbilities { modes: session.modes, tasks: false };
        let call = session::check(&session);
        self.shared.session = Some(session);
        self.stage = Stage::Checking(event);
        Ok(call)
    }

    fn continue_reading(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Refusal> {
        let Some(session) = self.shared.session.clone() else { return Err(Fault::unexpected_reply().into()) };
        match (std::mem::replace(&mut self.stage, Stage::Streaming), reply) {
            (Stage::Checking(None), Reply::Documents([])) => {
                self.stream = Some(self.shared.route.streams.open(&session.id));
                self.look_at = Some(self.shared.now + LOOK);
                Ok(Next::Call(Call::Listen(Listen { session: None, agents: true })))
            }
            (Stage::Checking(Some(event)), Reply::Documents([])) => {
                let (call, first) = ToolCall::take_up(&event, &self.shared);
                self.resumed = Some(call);
                self.stage = Stage::Loading(event);
                Ok(Next::Call(first))
            }
            (Stage::Checking(_), Reply::Documents(_)) => Err(session::unknown().into()),
            (Stage::Loading(event), Reply::Run(view)) => self.take_up(&event, view),
            (_, reply) => match &mut self.resumed {
                Some(call) => call.reply(reply, &mut self.shared, out),
                None => Err(Fault::unexpected_reply().into()),
            },
        }
    }

    /// Takes up the stream of a call.
    fn take_up(&mut self, event: &EventId, view: RunView<'_>) -> Result<Next, Refusal> {
        let is_own = view.info.protocol == crate::revision::NAME;
        let Some(call) = self.resumed.as_mut().filter(|_| is_own) else { return Err(unknown_event().into()) };
        self.shared.writer.id = Some(event.request.clone());
        self.shared.writer.numbered_by = Some(event.run);
        Ok(Next::Call(call.read_labels(event.run, &view.info.labels, &self.shared)))
    }
}

fn unknown_event() -> RpcError {
    RpcError { status: 404, ..RpcError::bad(INVALID_REQUEST, "no stream has an event with this id") }
}

impl Exchange for Get {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.head.read(request);
        self.shared.read(request);
        self.read(request).map_err(|refusal| refusal.into_fault(&mut self.shared))
    }

    fn read_head(&mut self, request: &Request<'_>) {
        self.head.refused(request);
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        self.continue_reading(reply, out).map_err(|refusal| refusal.into_fault(&mut self.shared))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        if matches!(self.stage, Stage::Loading(_)) {
            self.shared.refusal = Some(unknown_event());
            return None;
        }
        self.resumed.as_mut()?.on_not_found()
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        challenge::fail(&self.shared, &self.head, fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.shared.writer.begin_stream(head);
    }

    fn begin(&mut self, run: RunView<'_>, out: &mut Out) {
        if let Some(call) = &mut self.resumed {
            call.begin(run, &mut self.shared, out);
        }
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match &mut self.resumed {
            Some(call) => call.encode(step, &mut self.shared, out),
            None => Flow::Close,
        }
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        match &mut self.resumed {
            Some(call) => call.pause(run, &mut self.shared, out),
            None => Flow::Close,
        }
    }

    fn next_call(&mut self) -> Option<Call> {
        self.resumed.as_mut()?.next_call()
    }

    fn on_notice(&mut self, notice: Notice, out: &mut Out) -> Flow {
        if !self.stream.as_ref().is_some_and(SessionStream::is_latest) {
            return Flow::Close;
        }
        match notice {
            // The client learns that the stream is open.
            Notice::Begin => self.shared.writer.heartbeat(out),
            Notice::Agents => {
                for notice in list_notices(&self.shared.route.options) {
                    self.shared.writer.message(&notice, 0, out);
                }
            }
            Notice::Run(_) => {}
        }
        Flow::More
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        match &mut self.resumed {
            Some(call) => call.interrupt(fault, &self.shared, out),
            None if fault.kind == FaultKind::ShuttingDown => Writer::retry(out),
            None => {}
        }
    }

    fn heartbeat(&mut self, out: &mut Out) {
        self.shared.writer.heartbeat(out);
    }

    fn wake_at(&self) -> Option<Millis> {
        match &self.resumed {
            Some(call) => call.wake_at(),
            None => self.look_at,
        }
    }

    fn on_time(&mut self, now: Millis, out: &mut Out) -> Flow {
        self.shared.now = now;
        if let Some(call) = &mut self.resumed {
            return call.on_time(now, &mut self.shared, out);
        }
        self.look_at = Some(now + LOOK);
        match &self.stream {
            Some(stream) if !stream.is_latest() => Flow::Close,
            _ => Flow::More,
        }
    }

    fn losses(&self) -> &[Loss] {
        self.resumed.as_ref().map_or(&[], |call| call.losses())
    }
}
