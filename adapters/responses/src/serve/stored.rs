//! Stored responses: retrieve, resume, cancel, delete, and list their input (docs/protocols/responses.md#state).

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::End;
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::out::Head;
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, RunId, Step};

use super::create::{stream_head, write_interruption};
use super::items::ItemRenderer;
use super::page::Page;
use super::{MountedRoute, run_from_path, target, with_openai_wording};
use crate::echo::Echo;
use crate::encode::{Encoder, FrameTarget, Frames};
use crate::fault::{self, not_found};
use crate::ids;
use crate::wire::DeletionResponse;

/// Looks up the run in the path. Every exchange here begins with it.
#[derive(Default)]
struct RunLookup {
    headers: ResponseHeaders,
    run: Option<RunId>,
    id: String,
}

impl RunLookup {
    fn parse(&mut self, request: &Request<'_>) -> Result<RunId, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        request.param("id").clone_into(&mut self.id);
        let (run, _) = run_from_path(request)?;
        self.run = Some(run);
        Ok(run)
    }

    fn fetch(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.parse(request).map(|run| Call::Fetch(target(run)))
    }

    fn run(&self) -> Result<RunId, Fault> {
        self.run.ok_or_else(Fault::unexpected_reply)
    }

    /// The run, if it is stored. Unstored runs do not exist for clients, even while the gateway still has them.
    fn found<'a>(&self, reply: Reply<'a>) -> Result<RunView<'a>, Fault> {
        match reply {
            Reply::Run(view) if view.info.stored => Ok(view),
            Reply::Run(_) => Err(not_found("Response", &self.id)),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn write_error(&self, fault: &Fault, out: &mut Out) {
        let fault = with_openai_wording(fault, "Response", &self.id);
        self.headers.write_error(&fault::error(&fault), &fault, out);
    }
}

/// `GET /responses/{id}`, as an object or as a stream from any event.
pub(crate) struct Retrieve {
    shared: Arc<MountedRoute>,
    lookup: RunLookup,
    stream: bool,
    /// Sequence number of the last event the client has.
    after: Option<u64>,
    encoder: Option<Encoder>,
}

impl Retrieve {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, lookup: RunLookup::default(), stream: false, after: None, encoder: None }
    }
}

impl Exchange for Retrieve {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let call = self.lookup.fetch(request)?;
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
        let view = self.lookup.found(reply)?;
        if self.stream {
            return Ok(Next::Call(Call::Follow(target(self.lookup.run()?))));
        }

        self.lookup.headers.apply(&mut out.head);
        Encoder::write_response(Arc::clone(&self.shared), view, out);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.lookup.write_error(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        stream_head(&self.lookup.headers, head);
    }

    fn begin(&mut self, view: RunView<'_>, _: &mut Out) {
        let run = view.run();
        let echo = Echo::from_labels(&view.info.labels, &run.agent);
        let frames = Frames::new(FrameTarget::Sse { done: self.shared.options.done_frame }, self.after);
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
            write_interruption(encoder, fault, out);
        }
    }

    fn heartbeat(&mut self, out: &mut Out) {
        out.comment("ping");
    }
}

/// `DELETE /responses/{id}`
#[derive(Default)]
pub(crate) struct Delete {
    lookup: RunLookup,
}

impl Exchange for Delete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.lookup.fetch(request)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if let Reply::Done = reply {
            self.lookup.headers.apply(&mut out.head);
            out.json(&DeletionResponse { id: &self.lookup.id, object: "response", deleted: true });
            return Ok(Next::Done);
        }
        self.lookup.found(reply)?;
        Ok(Next::Call(Call::Delete(target(self.lookup.run()?))))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.lookup.write_error(fault, out);
    }
}

/// `POST /responses/{id}/cancel`
pub(crate) struct Cancel {
    shared: Arc<MountedRoute>,
    lookup: RunLookup,
    /// True once the engine is cancelling the run: the next reply is the last.
    cancelling: bool,
}

impl Cancel {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, lookup: RunLookup::default(), cancelling: false }
    }
}

impl Exchange for Cancel {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.lookup.fetch(request)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let view = self.lookup.found(reply)?;

        let conflict = |message: &str| Err(Fault::new(FaultKind::Conflict, message));
        if !self.cancelling {
            // Only responses can be synchronous. Runs of other protocols can always be cancelled.
            let is_response = view.info.protocol == ids::NAME;
            // A run that ended with pending items can be cancelled too, which discards them.
            let has_pending = !view.pending.is_empty();
            if is_response && !has_pending && !Echo::from_labels(&view.info.labels, &view.run().agent).background {
                return conflict("Cannot cancel a synchronous response.");
            }
            match view.info.state {
                _ if has_pending => {
                    self.cancelling = true;
                    return Ok(Next::Call(Call::Cancel(target(self.lookup.run()?))));
                }
                RunState::Ended(End::Canceled) => {}
                RunState::Ended(End::Completed) => return conflict("Cannot cancel a completed response."),
                RunState::Ended(_) => return conflict("Cannot cancel a response that has ended."),
                _ => {
                    self.cancelling = true;
                    return Ok(Next::Call(Call::Cancel(target(self.lookup.run()?))));
                }
            }
        }

        self.lookup.headers.apply(&mut out.head);
        Encoder::write_response(Arc::clone(&self.shared), view, out);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.lookup.write_error(fault, out);
    }
}

/// `GET /responses/{id}/input_items`
pub(crate) struct InputItems {
    shared: Arc<MountedRoute>,
    lookup: RunLookup,
    page: Page,
}

impl InputItems {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, lookup: RunLookup::default(), page: Page::default() }
    }
}

impl Exchange for InputItems {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let call = self.lookup.fetch(request)?;
        self.page = Page::parse(request)?;
        Ok(call)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let view = self.lookup.found(reply)?;
        let run = view.run();

        let mut messages = Vec::new();
        for (turn_index, turn) in run.turns.iter().enumerate() {
            for (index, message) in turn.input.iter().enumerate() {
                messages.push((ids::input_item_id(message, run.id, turn_index, index), message.clone()));
            }
        }

        let renderer = ItemRenderer {
            request_input: &self.shared.options.request_input,
            server_label: self.shared.names.server_label(&run.agent),
        };

        self.lookup.headers.apply(&mut out.head);
        self.page.write(renderer.render(&messages), out)?;
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.lookup.write_error(fault, out);
    }
}
