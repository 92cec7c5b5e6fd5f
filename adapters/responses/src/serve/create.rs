//! `POST /responses`, and the same over a WebSocket (docs/protocols/responses.md#request).
//!
//! Over a WebSocket every text frame is a separate request, with method `WEBSOCKET` and the frame as its body. The
//! output is JSON, one value per line: each line is one message to the client. A value never contains a line break,
//! since JSON escapes it.

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::answer;
use interlingua_core::call::{Busy, RunView};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::out::Head;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Delivery, Fault, FaultKind, Json, Next, Out, Reply, Request, RunCall, RunId, Step, Thread,
};

use super::MountedRoute;
use super::context::Context;
use crate::decode::{self, Purpose};
use crate::encode::{Encoder, FrameTarget, Frames};
use crate::fault::{self, ErrorEvent, input_conflict, previous_not_found};
use crate::options::Disconnect;

/// The method of a request that came as a WebSocket frame.
const WEBSOCKET_METHOD: &str = "WEBSOCKET";

/// Creates a response.
pub(crate) struct Create {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    /// True if the request came over a WebSocket.
    socket: bool,
    /// The client's name for this stream. Only over a WebSocket.
    stream_id: Option<String>,
    /// `generate: false` over a WebSocket: the agent is not called.
    warm_up: bool,
    /// Id of the new run.
    run_id: Option<RunId>,
    request: Option<decode::CreateRequest>,
    context: Option<Context>,
    encoder: Option<Encoder>,
    /// The losses of an answer that is not streamed.
    losses: Losses,
}

impl Create {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self {
            shared,
            headers: ResponseHeaders::default(),
            socket: false,
            stream_id: None,
            warm_up: false,
            run_id: None,
            request: None,
            context: None,
            encoder: None,
            losses: Losses::new(),
        }
    }

    fn target(&self) -> FrameTarget {
        if self.socket {
            FrameTarget::Socket { stream_id: self.stream_id.clone() }
        } else {
            FrameTarget::Sse { done: self.shared.options.done_frame }
        }
    }

    /// The next lookup, or the run itself.
    fn next_call(&mut self) -> Result<Call, Fault> {
        let Some(context) = &mut self.context else { return Err(Fault::unexpected_reply()) };
        if let Some(call) = context.next() {
            return Ok(call);
        }
        let resolved = self.context.take().map(Context::finish).transpose()?.unwrap_or_default();
        let Some(create) = &mut self.request else { return Err(Fault::unexpected_reply()) };

        let mut request = std::mem::take(&mut create.request);
        request.input = resolved.input.into();
        // A warm-up does not call the agent, so it cannot deliver a decision.
        if self.warm_up && resolved.has_decision {
            return Err(input_conflict("a pending item cannot be answered with 'generate': false"));
        }

        let agent = self.shared.names.agent(&create.echo.model)?;
        let background = create.echo.background;
        let mut call = RunCall::new(agent, request);
        call.id = self.run_id;
        call.preamble = std::mem::take(&mut create.preamble);
        call.answers = resolved.answers;

        call.delivery = match (create.stream || self.socket, background) {
            (true, _) => Delivery::Stream,
            (false, true) => Delivery::Background,
            (false, false) => Delivery::Collect,
        };
        let preset = match (background, self.warm_up) {
            (true, false) => RunPolicy::background(),
            (true, true) => RunPolicy::record_only().with_first_response(FirstResponse::Immediate),
            (false, true) => RunPolicy::record_only(),
            (false, false) => RunPolicy::attached(),
        };

        // A second concurrent run in a conversation is refused (docs/protocols/responses.md#state). Elsewhere the other
        // run has just ended and its session is about to become free, so a chain continues without delay.
        let busy = if resolved.busy { Busy::Refuse } else { Busy::Queue };
        let detached = background || self.shared.options.disconnect == Disconnect::Detach;
        call.policy = preset.with_detached(detached).with_stored(create.echo.store).with_busy(busy);
        call.thread = match (&create.previous, &create.conversation, self.run_id) {
            (Some((run, _)), _, _) => Thread::After(*run),
            (None, Some(session), _) => Thread::Session(session.clone()),
            // A complete history with tool outputs starts a new session. If it decides a pending item, it belongs to
            // the session of that item, which the engine finds by the decision.
            (None, None, Some(run_id)) if resolved.has_tool_output && !resolved.has_decision => {
                Thread::Session(run_id.to_string())
            }
            (None, None, _) => Thread::New,
        };

        call.labels = Json::from_serialize(&create.echo);
        Ok(Call::Run(Box::new(call)))
    }

    /// Maps a fault of the engine to one of this endpoint.
    fn map_fault(&self, fault: &Fault) -> Fault {
        if let Some(context) = &self.context {
            return context.map_fault(fault);
        }
        let about_answers = [answer::UNDECIDED, answer::NOT_TAKEN, answer::NOT_WAITING];
        if fault.code.as_deref().is_some_and(|code| about_answers.contains(&code)) {
            return input_conflict(fault.message.clone());
        }

        match (fault.kind, &self.request) {
            (FaultKind::NotFound, Some(create)) if fault.code.is_none() => match &create.previous {
                Some((_, id)) if fault.field.as_deref().is_none_or(|field| field == "thread") => previous_not_found(id),
                // The answered item is not pending.
                _ => input_conflict(fault.message.clone()),
            },
            (FaultKind::Conflict, Some(_)) => input_conflict(fault.message.clone()),
            _ => fault.clone(),
        }
    }
}

impl Exchange for Create {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.run_id = Some(request.new_id);
        self.socket = request.method == WEBSOCKET_METHOD;
        if !self.socket && request.method != "POST" {
            let mut fault =
                Fault::new(FaultKind::MethodNotAllowed, format!("Not allowed to {} on this path", request.method));
            fault.allow = vec!["POST"];
            return Err(fault);
        }

        let object = Node::parse_object(request.body)?;
        if self.socket {
            self.stream_id = object.string("stream_id")?.map(std::borrow::Cow::into_owned);
            match object.string("type")?.as_deref() {
                Some("response.create") => {}
                Some(other) => return Err(Fault::unsupported("type", format!("'{other}' is not supported here"))),
                None => return Err(missing("type")),
            }
            self.warm_up = object.boolean("generate")? == Some(false);
            if object.boolean("background")? == Some(true) {
                return Err(Fault::unsupported("background", "background responses are only available over HTTP"));
            }
        }

        let mut create = decode::CreateRequest::parse(&object, &self.shared.options, Purpose::Run)?;
        // Checked before any lookup: an unknown model is the clearer error.
        self.shared.names.agent(&create.echo.model)?;
        self.context = Some(Context::new(Arc::clone(&self.shared), &mut create, self.socket, false)?);
        self.request = Some(create);
        self.next_call()
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Some(context) = &mut self.context {
            context.accept(&reply)?;
            return self.next_call().map(Next::Call);
        }
        match reply {
            Reply::Run(view) => {
                self.headers.apply(&mut out.head);
                self.losses = Encoder::write_response(Arc::clone(&self.shared), view, out);
                Ok(Next::Done)
            }
            Reply::Waiting(view, _) => {
                let pending: Vec<_> = view.pending.iter().map(|item| format!("'{}'", item.id)).collect();
                let message = format!("pending items must be answered first: {}", pending.join(", "));
                Err(Fault::new(FaultKind::Waiting, message).with_field("input"))
            }
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = self.map_fault(fault);
        if !self.socket {
            return self.headers.write_error(&fault::error(&fault), &fault, out);
        }
        let error = fault::error(&fault);
        let frames = Frames::new(self.target(), None);
        frames.write_standalone("error", &ErrorEvent::new(&error, self.stream_id.as_deref(), None), out);
    }

    fn builds_on(&self) -> Option<RunId> {
        self.request.as_ref()?.previous.as_ref().map(|(run, _)| *run)
    }

    fn head(&mut self, head: &mut Head) {
        stream_head(&self.headers, head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        let echo = self.request.take().map(|create| create.echo).unwrap_or_default();
        let frames = Frames::new(self.target(), None);
        self.encoder = Some(Encoder::new(Arc::clone(&self.shared), echo, run.run(), frames));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.as_mut().map_or(Flow::Close, |encoder| encoder.encode(step, out))
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if let Some(encoder) = &self.encoder {
            write_interruption(encoder, fault, out);
        }
    }

    fn heartbeat(&mut self, out: &mut Out) {
        if !self.socket {
            out.comment("ping");
        }
    }

    fn losses(&self) -> &[Loss] {
        self.encoder.as_ref().map_or(self.losses.as_slice(), Encoder::losses)
    }
}

/// Sets the headers of a streamed response.
pub(super) fn stream_head(headers: &ResponseHeaders, head: &mut Head) {
    headers.apply(head);
    head.set_event_stream();
}

/// The stream ends before the run: sends an `error` event, since the end of the response is unknown.
pub(super) fn write_interruption(encoder: &Encoder, fault: &Fault, out: &mut Out) {
    let error = fault::error(fault);
    let frames = encoder.frames();
    frames.write_standalone("error", &ErrorEvent::new(&error, frames.stream_id(), Some(frames.next())), out);
}
