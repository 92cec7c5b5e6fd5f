//! Encodes steps as events (docs/protocols/responses.md#events): one deterministic state machine for each run.
//!
//! Response objects come from the same machine over the recorded steps, with its events discarded. So the final object
//! of a stream, of a reply without streaming, of `GET` and of a replay cannot differ.
//!
//! Here: the response and the dispatch of steps. `messages` encodes messages and reasoning, `calls` encodes calls and
//! their outputs, `others` the rest. `frames` frames and numbers events.

mod calls;
mod frames;
mod messages;
mod others;
mod text_item;
mod text_stream;
mod tracked_call;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use interlingua_adapter_kit::shown_text::Show;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Event};
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::run::{Message, Run};
use interlingua_core::step::Step;
use interlingua_core::{Json, Out, RunId};

use crate::echo::{DeclaredTools, Echo};
use crate::losses;
use crate::options::{CustomItems, Reasoning};
use crate::serve::MountedRoute;
use crate::wire::{Item, Response, Status, Usage};
use crate::{fault, ids};
use text_item::TextItem;
use text_stream::TextStream;
use tracked_call::TrackedCall;

pub(crate) use frames::{FrameTarget, Frames};

/// The display of contents without a part type of their own. Longer inline data is replaced by its name and size.
pub(crate) const fn show(data: bool) -> Show {
    Show { data, max_inline: 32 * 1024 }
}

/// Encodes one run.
pub(crate) struct Encoder {
    shared: Arc<MountedRoute>,
    echo: Echo,
    declared: DeclaredTools,
    frames: Frames,
    /// Id of the response.
    id: String,
    /// `server_label` of the agent's tools, unless the agent sends its own.
    server_label: String,
    status: Status,
    /// State of the unfinished messages, by their index in the run.
    open_messages: Vec<Option<Box<OpenMessage>>>,
    /// The items by `output_index`. `None` until they are done.
    items: Vec<Option<Json>>,
    calls: Vec<TrackedCall>,
    /// Calls without an output, by `call_id`.
    unanswered: BTreeMap<String, VecDeque<usize>>,
    /// True once the agent has reported an output of its own tools.
    reports_outputs: bool,
    /// Ids of the pending items already sent. They are item ids, which must be unique.
    sent_pending: BTreeSet<String>,
    losses: Losses,
}

/// State of an unfinished message.
#[derive(Default)]
struct OpenMessage {
    /// Its item, if it consists of text.
    item: Option<TextItem>,
    /// The text that is being streamed.
    stream: Option<TextStream>,
    /// Its calls, as indexes into [`Encoder::calls`].
    calls: Vec<usize>,
    /// Contents that become separate items once the message is closed.
    images: Vec<usize>,
}

/// The encoding of a message. It depends on the announced type, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Message,
    Reasoning,
    Call,
    Output,
    ToolList,
    Approval,
    Error,
    Custom,
    Hidden,
}

/// The place of a content in a run.
#[derive(Clone, Copy)]
struct ContentPlace {
    run: RunId,
    /// Index in [`Run::messages`].
    message: usize,
    /// Index in [`Message::slots`].
    content: usize,
}

impl ContentPlace {
    /// The id of the item that shows the content.
    fn item_id(self, prefix: &str) -> String {
        ids::output_item_id(prefix, self.run, self.message, self.content)
    }
}

impl Encoder {
    pub(crate) fn new(shared: Arc<MountedRoute>, echo: Echo, run: &Run, frames: Frames) -> Self {
        let declared = echo.declared();
        let server_label = shared.names.server_label(&run.agent).to_owned();
        let status = if echo.background { Status::Queued } else { Status::InProgress };
        Self {
            shared,
            echo,
            declared,
            frames,
            id: run.id.to_prefixed(ids::RESPONSE_PREFIX),
            server_label,
            status,
            open_messages: Vec::new(),
            items: Vec::new(),
            calls: Vec::new(),
            unanswered: BTreeMap::new(),
            reports_outputs: false,
            sent_pending: BTreeSet::new(),
            losses: Losses::new(),
        }
    }

    /// The content that the response does not show, once its run has ended.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    /// Writes the response object of a run in its current state. Returns what it does not show.
    pub(crate) fn write_response(shared: Arc<MountedRoute>, view: RunView<'_>, out: &mut Out) -> Losses {
        let run = view.run();
        let echo = Echo::from_labels(&view.info.labels, &run.agent);
        let mut encoder = Self::new(shared, echo, run, Frames::new(FrameTarget::Discard, None));
        for step in view.record.steps(0) {
            encoder.encode(step, out);
        }
        if encoder.pause(view, out) == Flow::More && run.end.is_none() {
            encoder.snapshot(run, out);
        }

        let output: Vec<Json> = std::mem::take(&mut encoder.items).into_iter().flatten().collect();
        out.json(&encoder.response(run, &output));
        encoder.losses
    }

    #[inline]
    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        if let Event::ContentDelta { message, content, span } = step.event {
            let open = self.open_messages.get_mut(message as usize).and_then(Option::as_deref_mut);
            match open.and_then(|open| open.stream.as_mut()) {
                Some(stream) => {
                    let slot =
                        step.run.messages.get(message as usize).and_then(|message| message.slots.get(content as usize));
                    if let Some(slot) = slot {
                        stream.delta(slot, span, &mut self.frames, out);
                    }
                }
                None => self.first_delta(step, out),
            }
            return Flow::More;
        }

        self.other(step, out)
    }

    /// Ends the response of a run that waits for its next turn. Only runs of other protocols do.
    pub(crate) fn pause(&mut self, view: RunView<'_>, out: &mut Out) -> Flow {
        let waits = matches!(view.info.state, RunState::Waiting | RunState::WaitingForAuth);

        let Some((end, _)) = view.run().outcome().filter(|_| waits) else { return Flow::More };
        self.finished(view.run(), end, out);
        Flow::Close
    }

    /// Every step that is not a delta. These are rare.
    fn other(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let run = step.run;
        match step.event {
            Event::RunStarted => self.started(run, out),
            Event::TurnStarted { .. } => self.turn_started(run, out),
            Event::ContentDelta { .. } | Event::AnswerStarted { .. } | Event::TurnFinished { .. } => {}
            Event::MessageStarted { message } => {
                let count = message as usize + 1;
                if self.open_messages.len() < count {
                    self.open_messages.resize_with(count, || None);
                }
            }
            Event::ContentStarted { .. } => {
                let (Some((index, message)), Some((content, slot))) = (step.message(), step.slot()) else {
                    return Flow::More;
                };
                if let Some(head) = &slot.call {
                    self.call_started(run.id, index, message, content, head, out);
                }
            }
            Event::ContentReplaced { message, version, .. } => {
                let open = self.open_messages.get_mut(message as usize).and_then(Option::as_deref_mut);
                match (open.and_then(|open| open.stream.as_mut()), step.slot()) {
                    (Some(stream), Some((_, slot))) => {
                        stream.replaced(slot, version, step.delta(), &mut self.frames, out);
                    }
                    _ => self.first_delta(step, out),
                }
            }
            Event::ContentFinished { .. } => self.content_finished(step, out),
            Event::MessageFinished { .. } => self.message_finished(step, out),
            Event::RunFinished { end } => {
                self.finished(run, end, out);
                return Flow::Close;
            }
        }
        Flow::More
    }

    fn content_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((index, message)), Some((content, slot))) = (step.message(), step.slot()) else { return };
        let place = ContentPlace { run: step.run.id, message: index, content };
        if slot.call.is_some() {
            return self.arguments_finished(place.run, index, slot, out);
        }

        match self.shape(message) {
            Shape::Message | Shape::Reasoning => self.text_content_finished(place, message, slot, out),
            Shape::Call => self.call_without_head(place, message, slot, out),
            Shape::ToolList => self.emit_tool_list(place, slot, out),
            Shape::Approval => self.emit_pending(place, slot, out),
            Shape::Output | Shape::Error | Shape::Custom | Shape::Hidden => {}
        }
    }

    fn message_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        let run = step.run.id;

        self.calls_finished(run, index, message, out);

        match self.shape(message) {
            Shape::Message | Shape::Reasoning => self.text_finished(run, index, message, out),
            Shape::Output => self.emit_outputs(run, index, message, out),
            Shape::Error => self.emit_error(run, index, message, out),
            Shape::Custom => self.emit_custom(run, index, message, out),
            Shape::Call | Shape::ToolList | Shape::Approval | Shape::Hidden => {}
        }
        if let Some(open) = self.open_messages.get_mut(index) {
            *open = None;
        }
    }

    /// The encoding of a message (docs/protocols/responses.md#what-a-client-receives).
    fn shape(&self, message: &Message) -> Shape {
        match &message.announced {
            MessageType::Message => match message.role {
                // An echo of the client's own input must not look like an answer.
                Role::User | Role::System => Shape::Hidden,
                Role::Assistant | Role::Tool | Role::Other(_) => Shape::Message,
            },
            MessageType::Reasoning if self.shared.options.reasoning == Reasoning::Hide => Shape::Hidden,
            MessageType::Reasoning => Shape::Reasoning,
            kind if kind.is_call() => Shape::Call,
            kind if kind.is_output() => Shape::Output,
            MessageType::McpListTools => Shape::ToolList,
            MessageType::McpApprovalRequest => Shape::Approval,
            MessageType::Error => Shape::Error,
            MessageType::McpApprovalResponse | MessageType::Heartbeat | MessageType::ProtocolEvent => Shape::Hidden,
            _ if self.shared.options.custom_items == CustomItems::Extension => Shape::Custom,
            _ => Shape::Hidden,
        }
    }

    /// The state of an unfinished message, created if needed.
    fn open_message(&mut self, index: usize) -> &mut OpenMessage {
        if self.open_messages.len() <= index {
            self.open_messages.resize_with(index + 1, || None);
        }
        self.open_messages[index].get_or_insert_default()
    }

    /// Begins an item. Returns its `output_index`.
    fn add(&mut self, item: &Item<'_>, out: &mut Out) -> usize {
        let index = self.items.len();
        self.items.push(None);
        if let Some(frame) = self.frames.event("response.output_item.added", out) {
            frame.with("output_index", &index).with("item", item).end();
        }
        index
    }

    /// Finishes an item and stores it for the final object.
    fn done(&mut self, index: usize, item: &Item<'_>, out: &mut Out) {
        self.done_json(index, Json::from_serialize(item), out);
    }

    fn done_json(&mut self, index: usize, item: Json, out: &mut Out) {
        if let Some(frame) = self.frames.event("response.output_item.done", out) {
            frame.with("output_index", &index).with("item", &item).end();
        }
        self.items[index] = Some(item);
    }

    /// Sends a progress event of an item that has no further fields.
    fn stage(&mut self, name: &str, id: &str, index: usize, out: &mut Out) {
        if let Some(frame) = self.frames.event(name, out) {
            frame.with("item_id", id).with("output_index", &index).end();
        }
    }

    fn started(&mut self, run: &Run, out: &mut Out) {
        self.emit("response.created", run, &[], out);
        if self.status == Status::Queued {
            self.emit("response.queued", run, &[], out);
        } else {
            self.emit("response.in_progress", run, &[], out);
        }
    }

    fn turn_started(&mut self, run: &Run, out: &mut Out) {
        if self.status == Status::Queued {
            self.status = Status::InProgress;
            self.emit("response.in_progress", run, &[], out);
        }
    }

    /// Closes all open items and sends the end. Invariant: nothing is written after it.
    fn finished(&mut self, run: &Run, end: End, out: &mut Out) {
        self.close_calls(run, end, out);
        losses::note(run, &self.echo.tools, &self.shared.options, &mut self.losses);
        self.status = match end {
            End::Completed => Status::Completed,
            End::Incomplete => Status::Incomplete,
            End::Failed | End::Rejected => Status::Failed,
            End::Canceled => Status::Cancelled,
        };

        let name = match end {
            End::Completed => "response.completed",
            End::Incomplete => "response.incomplete",
            // The specification has no event for a cancelled response, and openai-node fails on unknown events.
            End::Failed | End::Rejected | End::Canceled => "response.failed",
        };

        debug_assert!(self.items.iter().all(Option::is_some), "every item is done when the run is");
        let output: Vec<Json> = std::mem::take(&mut self.items).into_iter().flatten().collect();
        self.frames.mark_last();
        self.emit(name, run, &output, out);
        self.items = output.into_iter().map(Some).collect();
        self.frames.close(out);
    }

    fn emit(&mut self, name: &str, run: &Run, output: &[Json], out: &mut Out) {
        if let Some(frame) = self.frames.event(name, out) {
            frame.with("response", &self.response(run, output)).end();
        }
    }

    /// The response object after the steps encoded so far. Of the run itself only the end is read, and only once it is
    /// encoded.
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
            error: end.and_then(|end| fault::run_error(end, run.error())),
            incomplete,
            output,
            usage: end.and_then(|_| run.usage()).and_then(Usage::from_agent),
            echo: &self.echo,
        }
    }

    /// Closes all open items as they are, for the object of an unfinished response. Nothing can be encoded after it.
    fn snapshot(&mut self, run: &Run, out: &mut Out) {
        for (index, message) in run.messages.iter().enumerate() {
            self.text_snapshot(index, message, out);
        }
        self.calls_snapshot(run, out);
    }

    pub(crate) const fn frames(&self) -> &Frames {
        &self.frames
    }
}

/// Why a response is incomplete: a closed set of two (docs/protocols/responses.md#response-object).
fn incomplete_reason(run: &Run) -> &'static str {
    let filtered = |error: &interlingua_core::run::RunError| {
        let code = error.code.to_ascii_lowercase();
        code.contains("content_filter") || error.message == "content_filter"
    };
    if run.error().is_some_and(filtered) { "content_filter" } else { "max_output_tokens" }
}
