//! `POST /responses`, and the same over a WebSocket (sections 3, 12 and 13).
//!
//! Over a WebSocket every text frame is a request of its own, with method `WEBSOCKET` and the frame as its body. What is
//! written then are JSON texts, one a line: each line is one message to the client. A line break never stands inside
//! one, since JSON escapes it.

use std::sync::Arc;

use interlingua_core::answer;
use interlingua_core::call::{Busy, RunView};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::out::Head;
use interlingua_core::policy::{FirstResponse, RunPolicy};
use interlingua_core::tree::Node;
use interlingua_core::{
    Call, Delivery, Fault, FaultKind, Json, Next, Out, Reply, Request, RunCall, RunId, Step, Thread,
};

use super::context::Context;
use super::{Address, Shared, astray};
use crate::decode::{self, Purpose};
use crate::encode::{Encoder, Frames, Target};
use crate::fault::{ErrorEvent, Refusal, about_input, missing, previous_not_found, unsupported};
use crate::options::Disconnect;

/// The method of a request that is a frame of a WebSocket.
const SOCKET: &str = "WEBSOCKET";

/// Makes a response.
pub(crate) struct Create {
    shared: Arc<Shared>,
    address: Address,
    /// Over a WebSocket; and what the client calls this stream.
    socket: bool,
    stream_id: Option<String>,
    /// Over a WebSocket, `generate: false`: the agent is not asked.
    warms_up: bool,
    fresh: Option<RunId>,
    asked: Option<decode::Create>,
    context: Option<Context>,
    encoder: Option<Encoder>,
}

impl Create {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            address: Address::default(),
            socket: false,
            stream_id: None,
            warms_up: false,
            fresh: None,
            asked: None,
            context: None,
            encoder: None,
        }
    }

    fn target(&self) -> Target {
        if self.socket {
            Target::Socket { stream_id: self.stream_id.clone() }
        } else {
            Target::Sse { done: self.shared.options.done_frame }
        }
    }

    /// The next lookup, or the question itself.
    fn go_on(&mut self) -> Result<Call, Fault> {
        let Some(context) = &mut self.context else { return Err(astray()) };
        if let Some(call) = context.next() {
            return Ok(call);
        }
        let resolved = self.context.take().map(Context::finish).transpose()?.unwrap_or_default();
        let Some(asked) = &mut self.asked else { return Err(astray()) };
        let mut request = std::mem::take(&mut asked.request);
        request.input = resolved.input.into();
        if self.warms_up && resolved.decides {
            return Err(about_input("an answer to what the agent asked cannot be given with 'generate': false"));
        }
        let agent = self.shared.agent(&asked.echo.model)?;
        let background = asked.echo.background;
        let mut call = RunCall::new(agent, request);
        call.id = self.fresh;
        call.preamble = std::mem::take(&mut asked.preamble);
        call.answers = resolved.answers;
        call.delivery = match (asked.stream || self.socket, background) {
            (true, _) => Delivery::Stream,
            (false, true) => Delivery::Background,
            (false, false) => Delivery::Collect,
        };
        let preset = match (background, self.warms_up) {
            (true, false) => RunPolicy::background(),
            (true, true) => RunPolicy::record_only().with_first_response(FirstResponse::Immediate),
            (false, true) => RunPolicy::record_only(),
            (false, false) => RunPolicy::attached(),
        };
        // Two runs at once in a conversation are refused (section 12). Elsewhere a run in the way has just ended, and
        // its session is about to be free: a chain goes on at once.
        let busy = if resolved.busy { Busy::Refuse } else { Busy::Queue };
        let detached = background || self.shared.options.disconnect == Disconnect::Detach;
        call.policy = preset.with_detached(detached).with_stored(asked.echo.store).with_busy(busy);
        call.thread = match (&asked.previous, &asked.conversation, self.fresh) {
            (Some((run, _)), _, _) => Thread::After(*run),
            (None, Some(session), _) => Thread::Session(session.clone()),
            // A whole history with outputs of tools in it is a new session; one that answers a question belongs to
            // the session where it was asked, which is found by the answer.
            (None, None, Some(fresh)) if resolved.returns && !resolved.decides => Thread::Session(fresh.to_string()),
            (None, None, _) => Thread::New,
        };
        call.labels = Json::from_serialize(&asked.echo);
        Ok(Call::Run(Box::new(call)))
    }

    /// What a fault of the engine means here.
    fn meant(&self, fault: &Fault) -> Fault {
        if let Some(context) = &self.context {
            return context.lost(fault);
        }
        let about_answers = [answer::UNDECIDED, answer::NOT_TAKEN, answer::NOT_WAITING];
        if fault.code.as_deref().is_some_and(|code| about_answers.contains(&code)) {
            return about_input(fault.message.clone());
        }
        match (fault.kind, &self.asked) {
            (FaultKind::NotFound, Some(asked)) if fault.code.is_none() => match &asked.previous {
                Some((_, id)) if fault.field.as_deref().is_none_or(|field| field == "thread") => previous_not_found(id),
                // An answer to nothing that is open.
                _ => about_input(fault.message.clone()),
            },
            (FaultKind::Conflict, Some(_)) => about_input(fault.message.clone()),
            _ => fault.clone(),
        }
    }
}

impl Exchange for Create {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.address = Address::of(request);
        self.fresh = Some(request.fresh);
        self.socket = request.method == SOCKET;
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
                Some(other) => return Err(unsupported("type", format!("'{other}' is not supported here"))),
                None => return Err(missing("type")),
            }
            self.warms_up = object.boolean("generate")? == Some(false);
            if object.boolean("background")? == Some(true) {
                return Err(unsupported("background", "background responses are asked for over HTTP"));
            }
        }
        let mut asked = decode::Create::read(&object, &self.shared.options, Purpose::Ask)?;
        // Before anything is looked up: an unknown model is the clearer complaint.
        self.shared.agent(&asked.echo.model)?;
        self.context = Some(Context::new(Arc::clone(&self.shared), &mut asked, self.socket, false)?);
        self.asked = Some(asked);
        self.go_on()
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Some(context) = &mut self.context {
            context.take(&reply)?;
            return self.go_on().map(Next::Call);
        }
        match reply {
            Reply::Run(view) => {
                self.address.on(&mut out.head);
                Encoder::whole(Arc::clone(&self.shared), view, out);
                Ok(Next::Done)
            }
            Reply::Waiting(view) => {
                let open: Vec<_> = view.pending.iter().map(|item| format!("'{}'", item.id)).collect();
                let message = format!("a decision is open and has to be answered first: {}", open.join(", "));
                Err(Fault::new(FaultKind::Waiting, message).with_field("input"))
            }
            _ => Err(astray()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = self.meant(fault);
        if !self.socket {
            return self.address.refuse(&fault, out);
        }
        let refusal = Refusal::of(&fault);
        let frames = Frames::new(self.target(), None);
        frames.alone("error", &ErrorEvent::new(&refusal, self.stream_id.as_deref(), None), out);
    }

    fn builds_on(&self) -> Option<RunId> {
        self.asked.as_ref()?.previous.as_ref().map(|(run, _)| *run)
    }

    fn head(&mut self, head: &mut Head) {
        stream_head(&self.address, head);
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        let echo = self.asked.take().map(|asked| asked.echo).unwrap_or_default();
        let frames = Frames::new(self.target(), None);
        self.encoder = Some(Encoder::new(Arc::clone(&self.shared), echo, run.run(), frames));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.as_mut().map_or(Flow::Close, |encoder| encoder.encode(step, out))
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if let Some(encoder) = &self.encoder {
            interrupted(encoder, fault, out);
        }
    }

    fn heartbeat(&mut self, out: &mut Out) {
        if !self.socket {
            out.comment("ping");
        }
    }
}

/// The head of a streamed answer.
pub(super) fn stream_head(address: &Address, head: &mut Head) {
    address.on(head);
    head.set("content-type", "text/event-stream; charset=utf-8");
    head.set("cache-control", "no-cache");
    head.set("x-accel-buffering", "no");
}

/// The stream ends before the run does: told as an `error` event, since no end of the response can be told of.
pub(super) fn interrupted(encoder: &Encoder, fault: &Fault, out: &mut Out) {
    let refusal = Refusal::of(fault);
    let frames = encoder.frames();
    frames.alone("error", &ErrorEvent::new(&refusal, frames.stream_id(), Some(frames.next())), out);
}
