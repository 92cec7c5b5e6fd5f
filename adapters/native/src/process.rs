//! AskPolicy an agent (`POST /process`) and coming back to a run (`GET /runs/{id}/events`): the streams.
//!
//! Not here: what a frame says (`frames`).

use std::sync::Arc;

use interlingua_core::call::{Call, Delivery, Reply, RunCall, RunView, Target, Thread};
use interlingua_core::event::Step;
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, FaultKind, Out, Request};

use crate::frames::{self, Frames, Shown};
use crate::{Route, body, fault, runs};

/// The call in a request body, with the answer delivered as is said.
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
        Self { route: Arc::clone(route), frames: Frames::new(route.options.terminal, Shown::All) }
    }
}

impl Exchange for Process {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let object = body::object(request)?;
        let asked = AgentRequest::parse(&object)?;
        // No server honours `stream: false`; the field's meaning is plain all the same (rule 13.7).
        let streamed = object.boolean("stream")?.unwrap_or(true);
        let delivery = if streamed { Delivery::Stream } else { Delivery::Collect };
        Ok(run_call(&self.route, asked, delivery))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) => frames::write_response(self.route.options.terminal, view, out),
            Reply::Waiting(view) => fault::write_waiting(view, out),
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

    fn heartbeat(&mut self, out: &mut Out) {
        heartbeat(&self.route, out);
    }
}

/// `GET /runs/{id}/events`: an extension, the runtime has no resume.
pub(crate) struct Events {
    route: Arc<Route>,
    frames: Frames,
}

impl Events {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), frames: Frames::new(route.options.terminal, Shown::After(None)) }
    }
}

impl Exchange for Events {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = runs::run_id(request)?;
        // A browser that connects again sends the header beside the query it began with: the header is newer.
        let header = request.header("last-event-id").filter(|id| !id.is_empty());
        let after = header.map(Into::into).or_else(|| request.query("after")).filter(|after| !after.is_empty());
        let after = after
            .map(|after| {
                let number = after.trim().parse::<u64>();
                number.map_err(|_| Fault::invalid("?after", format!("'{after}' is no sequence number")))
            })
            .transpose()?;
        self.frames.show(Shown::After(after));
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

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.frames.pause(run, out)
    }

    // No frame at an interruption: the reader comes back for the rest, and the number would belong to another frame.

    fn heartbeat(&mut self, out: &mut Out) {
        heartbeat(&self.route, out);
    }
}

fn heartbeat(route: &Route, out: &mut Out) {
    if route.options.heartbeat {
        out.comment("keep-alive");
    }
}

/// A fault for a run whose id cannot be one.
pub(crate) fn no_such_run(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("run '{id}' not found"))
}
