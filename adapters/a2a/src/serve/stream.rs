//! A streamed answer: first the task, then what it is told, until the stream may close (section 9).

use std::sync::Arc;

use interlingua_core::Out;
use interlingua_core::call::RunView;
use interlingua_core::event::{Event, Step};
use interlingua_core::exchange::Flow;

use super::write::Writer;
use crate::Route;
use crate::direct::{self, Mode};
use crate::task::{self, Shown};
use crate::updates::{Change, Piece, Update, Updates};
use crate::wire::{ArtifactUpdate, Item, Message, State, Status, StatusUpdate, Task};

/// A stream on one task.
pub(super) struct Streaming {
    updates: Updates,
    opening: Opening,
    history: Option<usize>,
    /// Steps before this one are in the snapshot.
    next: u64,
    /// The turn whose end may close the stream.
    turn: u32,
    task: String,
    /// What was written while it is open whether the answer is a task at all.
    held: Option<(Mode, Out)>,
    /// What stands around the text of a piece, for the content that is growing.
    frame: Option<Frame>,
}

/// An item of running text without its text: most items of a stream differ by nothing else.
struct Frame {
    message: u32,
    content: u32,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Frame {
    /// Made of an item whose only text is empty. None if its text cannot be found.
    fn of(message: u32, content: u32, item: &Item<'_>, write: &Writer) -> Option<Self> {
        const EMPTY: &[u8] = br#""text":"""#;
        let mut out = Out::new();
        write.item(item, &mut out);
        let at = out.body.windows(EMPTY.len()).rposition(|window| window == EMPTY)? + EMPTY.len() - 2;
        Some(Self { message, content, before: out.body[..at].to_vec(), after: out.body[at + 2..].to_vec() })
    }
}

/// What the stream begins with.
enum Opening {
    /// The task as it was made, holding this message.
    Made(Message<'static>),
    /// The task as it stands; the turn that this message begins closes the stream.
    Continued(String),
    /// The task as it stands; its end closes the stream.
    Subscribed,
}

impl Streaming {
    /// The stream of a message that makes a task.
    pub(super) fn sent(
        route: &Arc<Route>,
        message: Message<'static>,
        history: Option<usize>,
        direct: Option<Mode>,
    ) -> Self {
        let mut streaming = Self::new(route, Opening::Made(message));
        streaming.history = history;
        streaming.held = direct.map(|mode| (mode, Out::new()));
        streaming
    }

    /// The stream of a message on a task: its turn is this one or a later one.
    pub(super) fn continued(route: &Arc<Route>, message: String, turn: u32, history: Option<usize>) -> Self {
        let mut streaming = Self::new(route, Opening::Continued(message));
        streaming.history = history;
        streaming.turn = turn;
        streaming
    }

    /// The stream of a subscriber.
    pub(super) fn subscribed(route: &Arc<Route>) -> Self {
        Self::new(route, Opening::Subscribed)
    }

    fn new(route: &Arc<Route>, opening: Opening) -> Self {
        Self {
            updates: Updates::new(route),
            opening,
            history: None,
            next: 0,
            turn: 0,
            task: String::new(),
            held: None,
            frame: None,
        }
    }

    /// Writes the task as it stands. A task that was just made is written at its first step.
    pub(super) fn begin(&mut self, route: &Route, view: RunView<'_>, write: &Writer, out: &mut Out) {
        self.task = view.run().id.to_string();
        if matches!(self.opening, Opening::Made(_)) {
            return;
        }
        let task = task::task(&mut self.updates, route, view, Shown::all(self.history));
        write.item(&Item::Task(task), out);
        self.next = view.record.len();
        for turn in 0..view.run().turns.len() {
            self.settle_turn(view.run(), u32::try_from(turn).unwrap_or(u32::MAX));
        }
    }

    /// Finds out which turn is the one that was asked for: messages that wait in front of it have turns of their own.
    fn settle_turn(&mut self, run: &interlingua_core::Run, turn: u32) {
        let Opening::Continued(message) = &self.opening else { return };
        if turn < self.turn {
            return;
        }
        let input = run.turns.get(turn as usize).map_or(&[][..], |turn| &turn.input);
        let known = |id: &Option<String>| id.as_ref().is_some_and(|id| id == message);
        // An answer alone has no message of its own in the input.
        if turn > self.turn && input.iter().any(|said| known(&said.id)) {
            self.turn = turn;
        }
    }

    /// Takes a step; says whether the stream goes on.
    pub(super) fn take(&mut self, step: Step<'_>, write: &Writer, out: &mut Out) -> Flow {
        if step.sequence < self.next {
            return Flow::More;
        }
        if let Event::ContentDelta { message, content, span } = step.event
            && let Some(frame) = self.frame.as_ref().filter(|_| self.held.is_none())
            && (frame.message, frame.content) == (message, content)
            && self.updates.goes_on(message, content, span)
        {
            out.write_raw(&frame.before);
            out.write_json(step.delta());
            out.write_raw(&frame.after);
            return Flow::More;
        }
        let Some((mode, mut held)) = self.held.take() else { return self.write(step, write, out) };
        let flow = self.write(step, write, &mut held);
        let decided = match step.event {
            Event::MessageStarted { message } if mode == Mode::Hinted => {
                (!direct::promised(step.run, message)).then_some(false)
            }
            Event::TurnFinished { .. } if self.updates.waits() => Some(false),
            Event::RunFinished { end } => Some(end == interlingua_core::End::Completed),
            _ => None,
        };
        let Some(plain) = decided else {
            self.held = Some((mode, held));
            return flow;
        };
        if let Some(message) = direct::answer(step.run).filter(|_| plain) {
            write.item(&Item::Message(message), out);
            return Flow::Forget;
        }
        out.write_raw(&held.body);
        flow
    }

    fn write(&mut self, step: Step<'_>, write: &Writer, out: &mut Out) -> Flow {
        let run = step.run;
        if step.event == Event::RunStarted {
            if self.task.is_empty() {
                self.task = run.id.to_string();
            }
            write.item(&Item::Task(self.made(step)), out);
            return Flow::More;
        }
        if let Event::TurnStarted { turn } = step.event {
            self.settle_turn(run, turn);
        }
        let Self { updates, task, turn, opening, frame, .. } = self;
        if !matches!(step.event, Event::ContentStarted { .. }) {
            *frame = None;
        }
        let own_turn = match step.event {
            Event::TurnFinished { turn: ended, .. } => ended >= *turn && !matches!(opening, Opening::Subscribed),
            _ => false,
        };
        let mut flow = Flow::More;
        updates.take(step, &mut |update| {
            let item = match update {
                Update::Said(_) | Update::Unasked { .. } => return,
                Update::Status(Change { state, message, metadata }) => {
                    let closes = state.is_terminal() || (state == State::InputRequired && own_turn);
                    if closes {
                        flow = Flow::Close;
                    }
                    let message = message.map(|message| message.on(task.as_str(), run.session_id.as_str()));
                    Item::Status(StatusUpdate {
                        task: task.as_str().into(),
                        context: run.session_id.as_str().into(),
                        status: Status { state, message, at: step.at },
                        metadata,
                        closes,
                    })
                }
                Update::Artifact(Piece { artifact, append, last_chunk, is_delta }) => {
                    let mut update = ArtifactUpdate {
                        task: task.as_str().into(),
                        context: run.session_id.as_str().into(),
                        artifact,
                        append,
                        last_chunk,
                    };
                    if let (Event::ContentDelta { message, content, .. }, true, true) = (step.event, is_delta, append) {
                        let parts = &mut update.artifact.parts;
                        let text = parts
                            .first_mut()
                            .map(|part| std::mem::replace(&mut part.content, crate::wire::Content::Text("".into())));
                        let item = Item::Artifact(update);
                        *frame = Frame::of(message, content, &item, write);
                        let Item::Artifact(mut whole) = item else { return };
                        if let (Some(part), Some(text)) = (whole.artifact.parts.first_mut(), text) {
                            part.content = text;
                        }
                        update = whole;
                    }
                    Item::Artifact(update)
                }
            };
            write.item(&item, out);
        });
        flow
    }

    /// The task as it was made.
    fn made<'r>(&'r self, step: Step<'r>) -> Task<'r> {
        let Opening::Made(message) = &self.opening else { return self.bare(step, None) };
        let message = message.clone().on(self.task.as_str(), step.run.session_id.as_str());
        self.bare(step, (self.history != Some(0)).then(|| vec![message]))
    }

    fn bare<'r>(&'r self, step: Step<'r>, history: Option<Vec<Message<'r>>>) -> Task<'r> {
        Task {
            id: self.task.as_str().into(),
            context: step.run.session_id.as_str().into(),
            status: Status { state: State::Submitted, message: None, at: step.at },
            artifacts: None,
            history,
            metadata: None,
        }
    }
}
