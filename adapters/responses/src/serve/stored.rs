//! Responses that are there already: retrieve, resume, cancel, delete, and what was put into them (section 12).

use std::sync::Arc;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::End;
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::out::Head;
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, RunId, Step};

use super::create::{interrupted, stream_head};
use super::items::Showing;
use super::page::Page;
use super::{Address, Shared, astray, run_of, target, told_of};
use crate::echo::Echo;
use crate::encode::{Encoder, Frames, Target};
use crate::fault::not_found;
use crate::ids;
use crate::wire::Deleted;

/// What all of them begin with: the run named by the path, if it may be found.
#[derive(Default)]
struct Named {
    address: Address,
    run: Option<RunId>,
    id: String,
}

impl Named {
    fn read(&mut self, request: &Request<'_>) -> Result<RunId, Fault> {
        self.address = Address::of(request);
        request.param("id").clone_into(&mut self.id);
        let (run, _) = run_of(request)?;
        self.run = Some(run);
        Ok(run)
    }

    fn fetch(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.read(request).map(|run| Call::Fetch(target(run)))
    }

    fn run(&self) -> Result<RunId, Fault> {
        self.run.ok_or_else(astray)
    }

    /// What was not stored is not there, whatever the gateway still remembers.
    fn found<'a>(&self, reply: Reply<'a>) -> Result<RunView<'a>, Fault> {
        match reply {
            Reply::Run(view) if view.about.stored => Ok(view),
            Reply::Run(_) => Err(not_found("Response", &self.id)),
            _ => Err(astray()),
        }
    }

    fn refuse(&self, fault: &Fault, out: &mut Out) {
        self.address.refuse(&told_of(fault, "Response", &self.id), out);
    }
}

/// `GET /responses/{id}`, whole or as a stream from any point.
pub(crate) struct Retrieve {
    shared: Arc<Shared>,
    named: Named,
    stream: bool,
    after: Option<u64>,
    encoder: Option<Encoder>,
}

impl Retrieve {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, named: Named::default(), stream: false, after: None, encoder: None }
    }
}

impl Exchange for Retrieve {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let call = self.named.fetch(request)?;
        self.stream = match request.query("stream").as_deref() {
            None | Some("false" | "") => false,
            Some("true") => true,
            Some(_) => return Err(Fault::invalid("stream", "must be 'true' or 'false'")),
        };
        self.after = request
            .query("starting_after")
            .filter(|number| !number.is_empty())
            .map(|number| {
                number.parse().map_err(|_| {
                    Fault::new(FaultKind::WrongType, "must be the sequence number of an event")
                        .with_field("starting_after")
                })
            })
            .transpose()?;
        Ok(call)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let view = self.named.found(reply)?;
        if self.stream {
            return Ok(Next::Call(Call::Follow(target(self.named.run()?))));
        }
        self.named.address.on(&mut out.head);
        Encoder::whole(Arc::clone(&self.shared), view, out);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.named.refuse(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        stream_head(&self.named.address, head);
    }

    fn begin(&mut self, view: RunView<'_>, _: &mut Out) {
        let run = view.run();
        let echo = Echo::of(&view.about.labels, &run.agent);
        let frames = Frames::new(Target::Sse { done: self.shared.options.done_frame }, self.after);
        self.encoder = Some(Encoder::new(Arc::clone(&self.shared), echo, run, frames));
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.as_mut().map_or(Flow::Close, |encoder| encoder.encode(step, out))
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.encoder.as_mut().map_or(Flow::Close, |encoder| encoder.pause(run, out))
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if let Some(encoder) = &self.encoder {
            interrupted(encoder, fault, out);
        }
    }

    fn heartbeat(&mut self, out: &mut Out) {
        out.comment("ping");
    }
}

/// `DELETE /responses/{id}`
#[derive(Default)]
pub(crate) struct Delete {
    named: Named,
}

impl Exchange for Delete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.named.fetch(request)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Reply::Done = reply {
            self.named.address.on(&mut out.head);
            out.json(&Deleted { id: &self.named.id, object: "response", deleted: true });
            return Ok(Next::Done);
        }
        self.named.found(reply)?;
        Ok(Next::Call(Call::Delete(target(self.named.run()?))))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.named.refuse(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

/// `POST /responses/{id}/cancel`
pub(crate) struct Cancel {
    shared: Arc<Shared>,
    named: Named,
    /// Whether the run is being stopped: the next answer is the last.
    stopping: bool,
}

impl Cancel {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, named: Named::default(), stopping: false }
    }
}

impl Exchange for Cancel {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.named.fetch(request)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let view = self.named.found(reply)?;
        let conflict = |message: &str| Err(Fault::new(FaultKind::Conflict, message));
        if !self.stopping {
            // Only responses are synchronous or not: a run begun over another protocol is told to stop like any other.
            let is_response = view.about.protocol == crate::NAME;
            // What has ended and still asks something is let go of, whatever it was.
            let asks = !view.pending.is_empty();
            if is_response && !asks && !Echo::of(&view.about.labels, &view.run().agent).background {
                return conflict("Cannot cancel a synchronous response.");
            }
            match view.about.state {
                _ if asks => {
                    self.stopping = true;
                    return Ok(Next::Call(Call::Cancel(target(self.named.run()?))));
                }
                RunState::Ended(End::Canceled) => {}
                RunState::Ended(End::Completed) => return conflict("Cannot cancel a completed response."),
                RunState::Ended(_) => return conflict("Cannot cancel a response that has ended."),
                _ => {
                    self.stopping = true;
                    return Ok(Next::Call(Call::Cancel(target(self.named.run()?))));
                }
            }
        }
        self.named.address.on(&mut out.head);
        Encoder::whole(Arc::clone(&self.shared), view, out);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.named.refuse(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

/// `GET /responses/{id}/input_items`
pub(crate) struct InputItems {
    shared: Arc<Shared>,
    named: Named,
    page: Page,
}

impl InputItems {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, named: Named::default(), page: Page::default() }
    }
}

impl Exchange for InputItems {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let call = self.named.fetch(request)?;
        self.page = Page::read(request)?;
        Ok(call)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let view = self.named.found(reply)?;
        let run = view.run();
        let mut messages = Vec::new();
        for (turn, told) in run.turns.iter().enumerate() {
            for (index, message) in told.input.iter().enumerate() {
                messages.push((ids::of_input(message, run.id, turn, index), message.clone()));
            }
        }
        let showing = Showing {
            request_input: &self.shared.options.request_input,
            server_label: self.shared.server_label(&run.agent),
        };
        self.named.address.on(&mut out.head);
        self.page.write(showing.items(&messages), out)?;
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.named.refuse(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
