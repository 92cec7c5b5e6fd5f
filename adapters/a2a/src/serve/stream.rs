//! A streamed response: first the task, then its updates, until the stream may close (docs/protocols/a2a.md#streams).

use std::sync::Arc;

use interlingua_core::Out;
use interlingua_core::call::RunView;
use interlingua_core::event::Event;
use interlingua_core::exchange::Flow;
use interlingua_core::step::Step;

use super::template::DeltaTemplate;
use super::writer::Writer;
use crate::Route;
use crate::encode::direct::{self, DirectMode};
use crate::encode::task::{self, TaskDetail};
use crate::encode::updates::{Change, Piece, Update, Updates};
use crate::wire::{ArtifactUpdate, Item, Message, Status, StatusUpdate, Task, TaskState};

/// The stream of one task.
pub(super) struct Streaming {
    updates: Updates,
    start: StreamStart,
    history: Option<usize>,
    /// Sequence number of the first step that is not in the snapshot.
    next: u64,
    /// Turn whose end may close the stream.
    turn: u32,
    task: String,
    /// Output buffered until it is decided whether the reply is a task or a message.
    undecided: Option<(DirectMode, Out)>,
    /// Encoded item around the text of the next delta, for the content that is growing.
    template: Option<DeltaTemplate>,
}

/// The first item of the stream.
enum StreamStart {
    /// The new task, with this message.
    NewTask(Message<'static>),
    /// The current task. The stream closes with the turn that this message (by id) starts.
    NextTurn(String),
    /// The current task. The stream closes with the end of the task.
    Subscription,
}

impl Streaming {
    /// The stream of a message that creates a task.
    pub(super) fn for_new_task(
        route: &Arc<Route>,
        message: Message<'static>,
        history: Option<usize>,
        direct: Option<DirectMode>,
    ) -> Self {
        let mut streaming = Self::new(route, StreamStart::NewTask(message));
        streaming.history = history;
        streaming.undecided = direct.map(|mode| (mode, Out::new()));
        streaming
    }

    /// The stream of a message to an existing task. Its turn is `turn` or a later one.
    pub(super) fn for_next_turn(route: &Arc<Route>, message: String, turn: u32, history: Option<usize>) -> Self {
        let mut streaming = Self::new(route, StreamStart::NextTurn(message));
        streaming.history = history;
        streaming.turn = turn;
        streaming
    }

    /// The stream of a subscriber.
    pub(super) fn for_subscriber(route: &Arc<Route>) -> Self {
        Self::new(route, StreamStart::Subscription)
    }

    fn new(route: &Arc<Route>, start: StreamStart) -> Self {
        Self {
            updates: Updates::new(route),
            start,
            history: None,
            next: 0,
            turn: 0,
            task: String::new(),
            undecided: None,
            template: None,
        }
    }

    /// True if it follows a task that another request works on.
    pub(super) const fn is_subscription(&self) -> bool {
        matches!(self.start, StreamStart::Subscription)
    }

    /// Writes the current task. A new task is written at its first step instead.
    pub(super) fn begin(&mut self, route: &Route, view: RunView<'_>, writer: &Writer, out: &mut Out) {
        self.task = view.run().id.to_string();
        if matches!(self.start, StreamStart::NewTask(_)) {
            return;
        }
        for turn in 0..view.run().turns.len() {
            self.find_own_turn(view.run(), u32::try_from(turn).unwrap_or(u32::MAX));
        }

        // How far the agent has worked by now depends on chance, and a snapshot has no order of its contents. The
        // stream has the whole turn of its message as updates, so that every client receives the same.
        let own_turn = matches!(self.start, StreamStart::NextTurn(_)).then_some(self.turn);
        let detail = TaskDetail::full(self.history);
        let (task, next) = task::task_at_turn(&mut self.updates, route, view, detail, own_turn);
        self.next = next;
        writer.stream_item(&Item::Task(task), out);
    }

    /// Determines the turn of this stream's message: messages queued before it have their own turns.
    fn find_own_turn(&mut self, run: &interlingua_core::Run, turn: u32) {
        let StreamStart::NextTurn(message) = &self.start else { return };
        let input = run.turns.get(turn as usize).map_or(&[][..], |turn| &turn.input);
        let is_own = |id: &Option<String>| id.as_ref().is_some_and(|id| id == message);
        // A message that is only an answer may not appear in the input; then `turn` stays.
        if turn > self.turn && input.iter().any(|message| is_own(&message.id)) {
            self.turn = turn;
        }
    }

    /// Encodes a step and returns whether the stream continues.
    pub(super) fn encode(&mut self, step: Step<'_>, writer: &Writer, out: &mut Out) -> Flow {
        if step.sequence < self.next {
            return Flow::More;
        }
        if let Event::ContentDelta { message, content, span } = step.event
            && let Some(template) = self.template.as_mut().filter(|_| self.undecided.is_none())
            && (template.message, template.content) == (message, content)
            && (template.is_status() || self.updates.extends_last_text(message, content, span))
        {
            let number = if template.is_status() { self.updates.next_reasoning_chunk() } else { 0 };
            template.write(step.delta(), number, step.at, out);
            return Flow::More;
        }

        let Some((mode, mut undecided)) = self.undecided.take() else { return self.write_step(step, writer, out) };
        let flow = self.write_step(step, writer, &mut undecided);

        let decided = match step.event {
            Event::MessageStarted { message } if mode == DirectMode::Hinted => {
                (!direct::is_announced(step.run, message)).then_some(false)
            }
            Event::TurnFinished { .. } if self.updates.is_waiting() => Some(false),
            Event::RunFinished { end } => Some(end == interlingua_core::End::Completed),
            _ => None,
        };

        let Some(plain) = decided else {
            self.undecided = Some((mode, undecided));
            return flow;
        };

        if let Some(message) = direct::collect_answer(step.run).filter(|_| plain) {
            writer.stream_item(&Item::Message(message), out);
            return Flow::Forget;
        }

        out.write_raw(&undecided.body);
        flow
    }

    fn write_step(&mut self, step: Step<'_>, writer: &Writer, out: &mut Out) -> Flow {
        let run = step.run;
        if step.event == Event::RunStarted {
            if self.task.is_empty() {
                self.task = run.id.to_string();
            }
            writer.stream_item(&Item::Task(self.new_task(step)), out);
            return Flow::More;
        }

        if let Event::TurnStarted { turn } = step.event {
            self.find_own_turn(run, turn);
        }
        let Self { updates, task, turn, start, template, .. } = self;
        if !matches!(step.event, Event::ContentStarted { .. }) {
            *template = None;
        }

        let own_turn = match step.event {
            Event::TurnFinished { turn: ended, .. } => ended >= *turn && !matches!(start, StreamStart::Subscription),
            _ => false,
        };

        let mut flow = Flow::More;
        updates.process(step, &mut |update| {
            let item = match update {
                Update::TurnStarted(_) | Update::TurnWithdrawn { .. } => return,
                Update::Status(Change { state, message, metadata }) => {
                    let closes = state.is_terminal() || (state == TaskState::InputRequired && own_turn);
                    if closes {
                        flow = Flow::Close;
                    }
                    let message = message.map(|message| message.in_task(task.as_str(), run.session_id.as_str()));
                    let mut item = Item::Status(StatusUpdate {
                        task: task.as_str().into(),
                        context: run.session_id.as_str().into(),
                        status: Status { state, message, at: step.at },
                        metadata,
                        closes,
                    });
                    if let Event::ContentDelta { message, content, .. } = step.event {
                        let id = Updates::reasoning_chunk_id(&run.messages[message as usize]);
                        *template = DeltaTemplate::from_item(message, content, &mut item, &id, writer);
                    }
                    item
                }
                Update::Artifact(Piece { artifact, append, last_chunk, is_delta }) => {
                    let mut item = Item::Artifact(ArtifactUpdate {
                        task: task.as_str().into(),
                        context: run.session_id.as_str().into(),
                        artifact,
                        append,
                        last_chunk,
                    });
                    if let (Event::ContentDelta { message, content, .. }, true, true) = (step.event, is_delta, append) {
                        *template = DeltaTemplate::from_item(message, content, &mut item, "", writer);
                    }
                    item
                }
            };
            writer.stream_item(&item, out);
        });
        flow
    }

    fn new_task<'r>(&'r self, step: Step<'r>) -> Task<'r> {
        let StreamStart::NewTask(message) = &self.start else { return self.submitted_task(step, None) };
        let message = message.clone().in_task(self.task.as_str(), step.run.session_id.as_str());
        self.submitted_task(step, (self.history != Some(0)).then(|| vec![message]))
    }

    fn submitted_task<'r>(&'r self, step: Step<'r>, history: Option<Vec<Message<'r>>>) -> Task<'r> {
        Task {
            id: self.task.as_str().into(),
            context: step.run.session_id.as_str().into(),
            status: Status { state: TaskState::Submitted, message: None, at: step.at },
            artifacts: None,
            history,
            metadata: None,
        }
    }
}
