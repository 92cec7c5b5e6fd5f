//! From steps to events (sections 7 to 10 and 16): one state machine that tells a run once, the same way every time.
//!
//! Whole answers are made by the same machine over the recorded steps, with nowhere to write: the final object of a
//! stream, of an answer given whole, of `GET` and of a replay cannot differ.
//!
//! Here: the run as a whole and the dispatch. What messages and thoughts become stands in `said`, what calls and
//! outputs become in `calls`, everything else in `others`; framing and numbering in `frames`.

mod calls;
mod flow;
mod frames;
mod others;
pub(crate) mod render;
mod said;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Event, Step};
use interlingua_core::exchange::Flow as Next;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::run::{Message, Run};
use interlingua_core::{Json, Out};

use crate::echo::{Declared, Echo};
use crate::options::{CustomItems, Reasoning};
use crate::serve::Shared;
use crate::wire::{Item, Response, Status, Usage};
use crate::{fault, ids};
use calls::Tracked;
use flow::Flow;
use said::Said;

pub(crate) use frames::{Frames, Target};

/// Tells one run.
pub(crate) struct Encoder {
    shared: Arc<Shared>,
    echo: Echo,
    declared: Declared,
    frames: Frames,
    /// The response's id.
    id: String,
    /// What the agent's tools are said to come from, where it does not say so itself.
    server_label: String,
    status: Status,
    /// What is open, by the message's place in the run.
    live: Vec<Option<Box<ActiveRun>>>,
    /// The items by `output_index`; None until they are done.
    items: Vec<Option<Json>>,
    calls: Vec<Tracked>,
    /// Calls without an output, by their `call_id`.
    unanswered: BTreeMap<String, VecDeque<usize>>,
    /// Whether this agent tells the outputs of its own tools.
    tells_outputs: bool,
    /// Approvals that were asked for: their ids are items' ids, and those are told once.
    asked: BTreeSet<String>,
}

/// What is open of a message.
#[derive(Default)]
struct ActiveRun {
    /// Its item, if it is one of text.
    said: Option<Said>,
    /// The text under way.
    flow: Option<Flow>,
    /// Its calls, as places in [`Encoder::calls`].
    calls: Vec<usize>,
    /// Contents that become items of their own once the message is closed.
    images: Vec<usize>,
}

/// What a message is told as. Decided by what it was announced as, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Said,
    Thought,
    Call,
    Output,
    Tools,
    Approval,
    Error,
    Custom,
    Hidden,
}

impl Encoder {
    /// Begins to tell a run.
    pub(crate) fn new(shared: Arc<Shared>, echo: Echo, run: &Run, frames: Frames) -> Self {
        let declared = echo.declared();
        let server_label = shared.server_label(&run.agent).to_owned();
        let status = if echo.background { Status::Queued } else { Status::InProgress };
        Self {
            shared,
            echo,
            declared,
            frames,
            id: run.id.to_prefixed(ids::RESPONSE),
            server_label,
            status,
            live: Vec::new(),
            items: Vec::new(),
            calls: Vec::new(),
            unanswered: BTreeMap::new(),
            tells_outputs: false,
            asked: BTreeSet::new(),
        }
    }

    /// Tells a run as it stands, whole: writes the response object.
    pub(crate) fn whole(shared: Arc<Shared>, view: RunView<'_>, out: &mut Out) {
        let run = view.run();
        let echo = Echo::of(&view.about.labels, &run.agent);
        let mut encoder = Self::new(shared, echo, run, Frames::new(Target::Nowhere, None));
        for step in view.record.steps(0) {
            encoder.encode(step, out);
        }
        if encoder.pause(view, out) == Next::More && run.end.is_none() {
            encoder.snapshot(run, out);
        }
        let output: Vec<Json> = std::mem::take(&mut encoder.items).into_iter().flatten().collect();
        out.json(&encoder.response(run, &output));
    }

    /// Tells one step.
    #[inline]
    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Next {
        if let Event::ContentDelta { message, content, span } = step.event {
            let open = self.live.get_mut(message as usize).and_then(Option::as_deref_mut);
            match open.and_then(|live| live.flow.as_mut()) {
                Some(flow) => {
                    let slot =
                        step.run.messages.get(message as usize).and_then(|told| told.slots.get(content as usize));
                    if let Some(slot) = slot {
                        flow.delta(slot, span, &mut self.frames, out);
                    }
                }
                None => self.first_delta(step, out),
            }
            return Next::More;
        }
        self.other(step, out)
    }

    /// Tells the end of the last turn of a run that waits for its next one: a run begun over another protocol.
    pub(crate) fn pause(&mut self, view: RunView<'_>, out: &mut Out) -> Next {
        let waits = matches!(view.about.state, RunState::Waiting | RunState::WaitingForAuth);
        let Some((end, _)) = view.run().outcome().filter(|_| waits) else { return Next::More };
        self.finished(view.run(), end, out);
        Next::Close
    }

    /// All that is no delta, and so is rare.
    fn other(&mut self, step: Step<'_>, out: &mut Out) -> Next {
        let run = step.run;
        match step.event {
            Event::RunStarted => self.started(run, out),
            Event::TurnStarted { .. } => self.progress(run, out),
            Event::ContentDelta { .. } | Event::AnswerStarted { .. } | Event::TurnFinished { .. } => {}
            Event::MessageStarted { message } => {
                let places = message as usize + 1;
                if self.live.len() < places {
                    self.live.resize_with(places, || None);
                }
            }
            Event::ContentStarted { .. } => {
                let (Some((at, message)), Some((content, slot))) = (step.message(), step.slot()) else {
                    return Next::More;
                };
                if let Some(head) = &slot.call {
                    self.call_started(run.id, at, message, content, head, out);
                }
            }
            Event::ContentReplaced { message, version, .. } => {
                let open = self.live.get_mut(message as usize).and_then(Option::as_deref_mut);
                match (open.and_then(|live| live.flow.as_mut()), step.slot()) {
                    (Some(flow), Some((_, slot))) => {
                        flow.replaced(slot, version, step.delta(), &mut self.frames, out);
                    }
                    _ => self.first_delta(step, out),
                }
            }
            Event::ContentFinished { .. } => self.content_finished(step, out),
            Event::MessageFinished { .. } => self.message_finished(step, out),
            Event::RunFinished { end } => {
                self.finished(run, end, out);
                return Next::Close;
            }
        }
        Next::More
    }

    fn content_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((at, message)), Some((content, slot))) = (step.message(), step.slot()) else { return };
        let run = step.run.id;
        if slot.call.is_some() {
            return self.arguments_finished(run, at, slot, out);
        }
        match self.shape(message) {
            Shape::Said | Shape::Thought => self.said_content_finished(run, at, message, content, slot, out),
            Shape::Call => self.call_without_head(run, at, message, content, slot, out),
            Shape::Tools => self.tools_listed(run, at, content, slot, out),
            Shape::Approval => self.approval_asked(run, at, content, slot, out),
            Shape::Output | Shape::Error | Shape::Custom | Shape::Hidden => {}
        }
    }

    fn message_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((at, message)) = step.message() else { return };
        let run = step.run.id;
        self.calls_finished(at, message, out);
        match self.shape(message) {
            Shape::Said | Shape::Thought => self.said_finished(run, at, message, out),
            Shape::Output => self.outputs_told(run, at, message, out),
            Shape::Error => self.error_told(run, at, message, out),
            Shape::Custom => self.custom_told(run, at, message, out),
            Shape::Call | Shape::Tools | Shape::Approval | Shape::Hidden => {}
        }
        if let Some(live) = self.live.get_mut(at) {
            *live = None;
        }
    }

    /// What a message is told as (section 16).
    fn shape(&self, message: &Message) -> Shape {
        match &message.announced {
            MessageType::Message => match message.role {
                // An echo of the question is no answer.
                Role::User | Role::System => Shape::Hidden,
                Role::Assistant | Role::Tool | Role::Other(_) => Shape::Said,
            },
            MessageType::Reasoning if self.shared.options.reasoning == Reasoning::Hide => Shape::Hidden,
            MessageType::Reasoning => Shape::Thought,
            kind if kind.is_call() => Shape::Call,
            kind if kind.is_output() => Shape::Output,
            MessageType::McpListTools => Shape::Tools,
            MessageType::McpApprovalRequest => Shape::Approval,
            MessageType::Error => Shape::Error,
            MessageType::McpApprovalResponse | MessageType::Heartbeat => Shape::Hidden,
            _ if self.shared.options.custom_items == CustomItems::Extension => Shape::Custom,
            _ => Shape::Hidden,
        }
    }

    /// What is open of a message.
    fn live(&mut self, at: usize) -> &mut ActiveRun {
        if self.live.len() <= at {
            self.live.resize_with(at + 1, || None);
        }
        self.live[at].get_or_insert_default()
    }

    /// Tells that an item begins; answers its `output_index`.
    fn add(&mut self, item: &Item<'_>, out: &mut Out) -> usize {
        let index = self.items.len();
        self.items.push(None);
        if let Some(frame) = self.frames.event("response.output_item.added", out) {
            frame.with("output_index", &index).with("item", item).end();
        }
        index
    }

    /// Tells that an item is done, and keeps it for the final object.
    fn done(&mut self, index: usize, item: &Item<'_>, out: &mut Out) {
        self.done_as(index, Json::from_serialize(item), out);
    }

    fn done_as(&mut self, index: usize, item: Json, out: &mut Out) {
        if let Some(frame) = self.frames.event("response.output_item.done", out) {
            frame.with("output_index", &index).with("item", &item).end();
        }
        self.items[index] = Some(item);
    }

    /// Tells a stage of an item that has no fields of its own.
    fn stage(&mut self, name: &str, id: &str, index: usize, out: &mut Out) {
        if let Some(frame) = self.frames.event(name, out) {
            frame.with("item_id", id).with("output_index", &index).end();
        }
    }

    fn started(&mut self, run: &Run, out: &mut Out) {
        self.tell("response.created", run, &[], out);
        if self.status == Status::Queued {
            self.tell("response.queued", run, &[], out);
        } else {
            self.tell("response.in_progress", run, &[], out);
        }
    }

    fn progress(&mut self, run: &Run, out: &mut Out) {
        if self.status == Status::Queued {
            self.status = Status::InProgress;
            self.tell("response.in_progress", run, &[], out);
        }
    }

    /// Closes what is open and tells the end. Invariant: nothing is written after it.
    fn finished(&mut self, run: &Run, end: End, out: &mut Out) {
        self.close_calls(run, end, out);
        self.status = match end {
            End::Completed => Status::Completed,
            End::Incomplete => Status::Incomplete,
            End::Failed | End::Rejected => Status::Failed,
            End::Canceled => Status::Cancelled,
        };
        let name = match end {
            End::Completed => "response.completed",
            End::Incomplete => "response.incomplete",
            // There is no published event for a cancelled response, and an unknown one breaks openai-node.
            End::Failed | End::Rejected | End::Canceled => "response.failed",
        };
        debug_assert!(self.items.iter().all(Option::is_some), "every item is done when the run is");
        let output: Vec<Json> = std::mem::take(&mut self.items).into_iter().flatten().collect();
        self.frames.is_last();
        self.tell(name, run, &output, out);
        self.items = output.into_iter().map(Some).collect();
        self.frames.close(out);
    }

    fn tell(&mut self, name: &str, run: &Run, output: &[Json], out: &mut Out) {
        if let Some(number) = self.frames.event(name, out) {
            number.with("response", &self.response(run, output)).end();
        }
    }

    /// The response object at this point of the telling. Only the end is read off the run, and only at the end.
    fn response<'a>(&'a self, run: &'a Run, output: &'a [Json]) -> Response<'a> {
        let ended = !matches!(self.status, Status::Queued | Status::InProgress);
        let outcome = run.outcome().filter(|_| ended);
        let end = outcome.map(|(end, _)| end);
        let incomplete = (self.status == Status::Incomplete).then(|| incomplete_reason(run));
        Response {
            id: &self.id,
            created_at: run.created_at / 1000,
            completed_at: outcome.filter(|_| self.status == Status::Completed).map(|(_, at)| at / 1000),
            status: self.status,
            error: end.and_then(|end| fault::of_run(end, run.error())),
            incomplete,
            output,
            usage: end.and_then(|_| run.usage()).and_then(Usage::read),
            echo: &self.echo,
        }
    }

    /// Closes what is open as it stands, for a response that is still under way. Nothing can be told after it.
    fn snapshot(&mut self, run: &Run, out: &mut Out) {
        for (at, message) in run.messages.iter().enumerate() {
            self.said_snapshot(at, message, out);
        }
        self.calls_snapshot(run, out);
    }

    /// The number the next event has.
    pub(crate) const fn frames(&self) -> &Frames {
        &self.frames
    }
}

/// Why a response is incomplete: a closed set of two (section 6).
fn incomplete_reason(run: &Run) -> &'static str {
    let filtered = |error: &interlingua_core::run::RunError| {
        let code = error.code.to_ascii_lowercase();
        code.contains("content_filter") || error.message == "content_filter"
    };
    if run.error().is_some_and(filtered) { "content_filter" } else { "max_output_tokens" }
}
