//! The streams: starting a run (`POST /process`) and following one (`GET /runs/{id}/events`).
//!
//! Not here: the content of the frames (`frames`).

use std::sync::Arc;

use interlingua_core::call::{Call, Delivery, Reply, RunCall, RunView, Target, Thread};
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::loss::Loss;
use interlingua_core::model::AgentRequest;
use interlingua_core::step::Step;
use interlingua_core::{Fault, Out, Request};

use crate::Route;
use crate::decode::body;
use crate::decode::run_id::run_id;
use crate::encode::frames::{Frames, WriteFrames};
use crate::serve::fault;

/// The call that runs a request, with this delivery of the answer.
pub(crate) fn run_call(route: &Route, request: AgentRequest, delivery: Delivery) -> Call {
    let session = request.session_id.clone().filter(|session| !session.is_empty());
    Call::Run(Box::new(RunCall {
        delivery,
        thread: session.map_or(Thread::New, Thread::Session),
        ..RunCall::new(route.agent.clone(), request)
    }))
}

/// `POST /process`
pub(crate) struct Process {
    route: Arc<Route>,
    frames: Frames,
}

impl Process {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), frames: Frames::new(route.form(), WriteFrames::All) }
    }
}

impl Exchange for Process {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.frames.set_form(self.route.form_of(request)?);
        let object = body::object(request)?;
        let agent_request = AgentRequest::parse(&object)?;

        // No server supports `stream: false`, but its meaning is clear (docs/protocols/agent-api.md#writer-7).
        let streamed = object.boolean("stream")?.unwrap_or(true);
        let delivery = if streamed { Delivery::Stream } else { Delivery::Collect };
        Ok(run_call(&self.route, agent_request, delivery))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => self.frames.respond(view, out),
            Reply::Waiting(view, _) => fault::write_waiting(view, out),
            reply => return Err(fault::unexpected(&reply)),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.frames.step(step, out)
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.frames.interrupt(fault, out);
    }

    fn losses(&self) -> &[Loss] {
        self.frames.losses()
    }

    fn heartbeat(&mut self, out: &mut Out) {
        heartbeat(&self.route, out);
    }
}

/// `GET /runs/{id}/events`: an extension; the runtime cannot resume a stream.
pub(crate) struct Events {
    route: Arc<Route>,
    frames: Frames,
}

impl Events {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), frames: Frames::new(route.form(), WriteFrames::After(None)) }
    }
}

impl Exchange for Events {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = run_id(request)?;
        self.frames.set_form(self.route.form_of(request)?);

        // A browser that reconnects sends the header in addition to its original query: the header is newer.
        let header = request.header("last-event-id").filter(|id| !id.is_empty());
        let after = header.map(Into::into).or_else(|| request.query("after")).filter(|after| !after.is_empty());
        let after = after
            .map(|after| {
                let number = after.trim().parse::<u64>();
                number.map_err(|_| Fault::invalid("?after", format!("'{after}' is not a sequence number")))
            })
            .transpose()?;

        self.frames.select(WriteFrames::After(after));
        Ok(Call::Follow(Target::Run(id)))
    }

    fn reply(&mut self, reply: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(fault::unexpected(&reply))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.frames.step(step, out)
    }

    fn resumes(&self) -> bool {
        self.frames.resumes()
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.frames.pause(run, out)
    }

    // An interruption writes no frame: the client reconnects for the rest, and the number belongs to another frame.

    fn heartbeat(&mut self, out: &mut Out) {
        heartbeat(&self.route, out);
    }
}

fn heartbeat(route: &Route, out: &mut Out) {
    if route.options.heartbeat {
        out.comment("keep-alive");
    }
}
