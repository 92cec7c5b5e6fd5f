//! Converts the steps of a run to A2A updates: status changes and artifact chunks
//! (docs/protocols/a2a.md#what-a-client-receives).
//!
//! One state machine serves three consumers: streams write its updates, tasks are folded from them, and push
//! notifications are built from them. Invariant: it reads only what the current step has made final in the run, so the
//! same steps always produce the same updates. Not here: the content of messages and parts (`render`), and task and
//! context ids, which the consumer fills in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use interlingua_adapter_kit::answer_parts::MessageShape;
use interlingua_core::RunId;
use interlingua_core::event::{End, Event, Span};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::step::Step;

use crate::Route;
use crate::encode::render::{self, AgentApi, Hint};
use crate::options::{ArtifactPer, Reasoning, StatusText, Tools};
use crate::wire::{self, Artifact, Part, Raw, TaskState};

/// An update for an A2A client.
#[derive(Debug)]
pub(crate) enum Update<'r> {
    /// A turn started with the client's input.
    TurnStarted(u32),
    /// The input of the turn did not reach the agent: the status from before the turn applies again.
    TurnWithdrawn {
        /// False: the client received an error (docs/protocols/a2a.md#errors), so the input is not part of the history.
        keep_input: bool,
    },
    /// The status or its message changed.
    Status(Change<'r>),
    /// An artifact grew.
    Artifact(Piece<'r>),
}

/// A new status.
#[derive(Debug)]
pub(crate) struct Change<'r> {
    pub(crate) state: TaskState,
    pub(crate) message: Option<wire::Message<'r>>,
    pub(crate) metadata: Option<Raw<'static>>,
}

/// A chunk of an artifact.
#[derive(Debug)]
pub(crate) struct Piece<'r> {
    pub(crate) artifact: Artifact<'r>,
    pub(crate) append: bool,
    pub(crate) last_chunk: bool,
    /// True for text deltas; push notifications join them.
    pub(crate) is_delta: bool,
}

impl Piece<'_> {
    /// True if the chunk only marks the end of the artifact.
    pub(crate) fn closes(&self) -> bool {
        let is_empty = |part: &Part<'_>| matches!(&part.content, wire::Content::Text(text) if text.is_empty());
        self.last_chunk && self.append && matches!(self.artifact.parts.as_slice(), [part] if is_empty(part))
    }
}

/// Receives the updates.
pub(crate) type Emit<'t, 'r> = &'t mut dyn FnMut(Update<'r>);

/// The state machine: the updates that were emitted so far.
pub(crate) struct Updates {
    route: Arc<Route>,
    turn: Turn,
    artifacts: Vec<EmittedArtifact>,
    /// Index in `artifacts`, by the message that started the artifact.
    artifact_by_message: HashMap<u32, usize>,
    /// True while text deltas are not emitted: a fold reads the text from the run instead.
    skip_deltas: bool,
}

/// State of the current turn.
#[derive(Default)]
struct Turn {
    number: u32,
    /// True once WORKING was emitted.
    working_sent: bool,
    /// Messages with function calls without an output so far: the task may be going to wait for it.
    unanswered_calls: BTreeSet<u32>,
    /// Message index by call id, for these calls.
    calls: HashMap<String, u32>,
    /// Reasoning messages held back until the answer has started.
    held_reasoning: Vec<u32>,
    /// Message announced as the question that the task will wait on.
    question: Option<u32>,
    /// True once an answer artifact has started.
    answered: bool,
    /// The artifact shared by all answers, with one artifact per turn.
    artifact: Option<usize>,
    /// Number of reasoning deltas sent as statuses; makes their ids unique.
    reasoning_chunks: u32,
    /// True if the end of the turn left the task waiting.
    is_waiting: bool,
}

/// The emitted part of an artifact.
struct EmittedArtifact {
    /// The message that started it.
    message: u32,
    is_answer: bool,
    slots: Vec<EmittedContent>,
    /// Index in `slots` by (message, content). Only filled with one artifact per turn, where messages may overlap.
    index_of: HashMap<(u32, u32), usize>,
}

/// The emitted part of a content.
#[derive(Clone, Copy)]
struct EmittedContent {
    message: u32,
    content: u32,
    /// Emitted range of its text; empty for other contents.
    span: Span,
}

impl Updates {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            turn: Turn::default(),
            artifacts: Vec::new(),
            artifact_by_message: HashMap::new(),
            skip_deltas: false,
        }
    }

    /// Processes a step without emitting text deltas.
    pub(crate) fn process_without_deltas<'r>(&mut self, step: Step<'r>, emit: Emit<'_, 'r>) {
        self.skip_deltas = true;
        self.process(step, emit);
        self.skip_deltas = false;
    }

    /// Processes a step.
    pub(crate) fn process<'r>(&mut self, step: Step<'r>, emit: Emit<'_, 'r>) {
        match step.event {
            Event::RunStarted => {}
            Event::TurnStarted { turn } => {
                self.turn = Turn { number: turn, ..Turn::default() };
                emit(Update::TurnStarted(turn));
            }
            Event::AnswerStarted { turn } => match step.run.turns[turn as usize].answered_by {
                Some(other) => self.answered_by_other_run(other, emit),
                None => self.emit_working(emit),
            },
            Event::MessageStarted { message } => {
                let source = &step.run.messages[message as usize];
                if source.announced == MessageType::Heartbeat {
                    return;
                }

                self.emit_working(emit);
                if announces_question(source) {
                    self.turn.question = Some(message);
                }
            }
            Event::ContentStarted { .. } => {}
            Event::ContentDelta { message, content, span } => self.delta(step, message, content, span, emit),
            Event::ContentReplaced { message, content, version } => {
                self.replaced(step, message, content, version, emit);
            }
            Event::ContentFinished { message, content } => self.content_finished(step, message, content, emit),
            Event::MessageFinished { message } => self.message_finished(step.run, message, emit),
            Event::TurnFinished { turn, .. } => self.turn_finished(step.run, turn, emit),
            Event::RunFinished { end } => self.run_finished(step.run, end, emit),
        }
    }

    /// True if the end of the last turn left the task waiting.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.turn.is_waiting
    }

    /// Records that the client already knows the task is WORKING.
    pub(crate) fn mark_working(&mut self) {
        self.turn.working_sent = true;
    }

    fn emit_working(&mut self, emit: Emit<'_, '_>) {
        if !self.turn.working_sent {
            self.turn.working_sent = true;
            emit(Update::Status(Change { state: TaskState::Working, message: None, metadata: None }));
        }
    }

    /// Another run answered this task's question; the agent works there.
    fn answered_by_other_run(&mut self, other: RunId, emit: Emit<'_, '_>) {
        self.turn.working_sent = true;
        let metadata = AgentApi { answered_by: Some(other.to_string()), ..AgentApi::default() };
        emit(Update::Status(Change { state: TaskState::Working, message: None, metadata: metadata.to_metadata() }));
    }

    fn emit_working_message<'r>(&mut self, message: wire::Message<'r>, emit: Emit<'_, 'r>) {
        self.turn.working_sent = true;
        emit(Update::Status(Change { state: TaskState::Working, message: Some(message), metadata: None }));
    }

    /// True if a message is streamed as an artifact.
    fn is_answer(&self, index: u32, message: &Message) -> bool {
        MessageShape::from_message(message) == MessageShape::Text && self.turn.question != Some(index)
    }

    fn delta<'r>(&mut self, step: Step<'r>, message: u32, content: u32, span: Span, emit: Emit<'_, 'r>) {
        let source = &step.run.messages[message as usize];
        if self.is_answer(message, source) {
            let slot = &source.slots[content as usize];
            let append = self.track(step.run, message, content, span);
            if self.skip_deltas && self.turn.answered {
                return;
            }
            let part = render::text_part(slot, step.delta());
            self.piece(step.run, message, vec![part], append, true, emit);
        } else if source.announced == MessageType::Reasoning && self.route.options.reasoning == Reasoning::Stream {
            let id = format!("{}{}", Self::reasoning_chunk_id(source), self.next_reasoning_chunk());
            self.emit_working_message(wire::Message::agent(id, vec![render::reasoning_text(step.delta())]), emit);
        }
    }

    fn replaced<'r>(&mut self, step: Step<'r>, message: u32, content: u32, version: u32, emit: Emit<'_, 'r>) {
        let source = &step.run.messages[message as usize];
        if !self.is_answer(message, source) {
            return;
        }

        let end = u32::try_from(step.delta().len()).unwrap_or(u32::MAX);
        self.track(step.run, message, content, Span { version, start: 0, end });
        let artifact = self.artifact_of(message).map(|index| self.parts(&self.artifacts[index], step.run));
        self.piece(step.run, message, artifact.unwrap_or_default(), false, false, emit);
    }

    fn content_finished<'r>(&mut self, step: Step<'r>, message: u32, content: u32, emit: Emit<'_, 'r>) {
        let source = &step.run.messages[message as usize];
        let slot = &source.slots[content as usize];
        let is_ui = matches!(source.announced, MessageType::A2uiResponse | MessageType::A2uiAction);
        if !is_ui && (!self.is_answer(message, source) || render::is_text(slot)) {
            return;
        }

        let Some(part) = render::finished_part(source, slot) else { return };
        let append = self.track(step.run, message, content, Span { version: 0, start: 0, end: 0 });
        self.piece(step.run, message, vec![part], append, false, emit);
    }

    /// True if a text delta continues the last emitted content; it is then recorded as emitted.
    pub(crate) fn extends_last_text(&mut self, message: u32, content: u32, span: Span) -> bool {
        let last = self.artifacts.last_mut().and_then(|artifact| artifact.slots.last_mut());
        match last {
            Some(emitted)
                if (emitted.message, emitted.content, emitted.span.version) == (message, content, span.version) =>
            {
                emitted.span.end = span.end;
                true
            }
            _ => false,
        }
    }

    /// The number of the next delta of reasoning that is a status.
    pub(crate) const fn next_reasoning_chunk(&mut self) -> u32 {
        self.turn.reasoning_chunks += 1;
        self.turn.reasoning_chunks
    }

    /// The id of the messages of such statuses, without the number at its end.
    pub(crate) fn reasoning_chunk_id(message: &Message) -> String {
        format!("{}-chunk-", message.id)
    }

    /// Records that a content was emitted up to `span`. Returns true if its artifact had started before.
    fn track(&mut self, run: &Run, message: u32, content: u32, span: Span) -> bool {
        let source = &run.messages[message as usize];
        let index = self.artifact_of(message);
        let (index, append) = match index {
            Some(index) => (index, true),
            None => {
                let is_answer = source.announced == MessageType::Message;
                let index = self.artifacts.len();
                self.artifacts.push(EmittedArtifact {
                    message,
                    is_answer,
                    slots: Vec::new(),
                    index_of: HashMap::new(),
                });
                self.artifact_by_message.insert(message, index);
                if is_answer && self.per_turn() {
                    self.turn.artifact = Some(index);
                }
                (index, false)
            }
        };

        let span = Span { start: 0, ..span };
        let per_turn = self.per_turn();
        let artifact = &mut self.artifacts[index];

        // Contents of one message are sequential; only contents of different messages may interleave.
        let last = artifact.slots.len().checked_sub(1);
        let last =
            last.filter(|last| (artifact.slots[*last].message, artifact.slots[*last].content) == (message, content));

        match last.or_else(|| artifact.index_of.get(&(message, content)).copied()) {
            Some(known) => artifact.slots[known].span = span,
            None => {
                if per_turn {
                    artifact.index_of.insert((message, content), artifact.slots.len());
                }
                artifact.slots.push(EmittedContent { message, content, span });
            }
        }

        append
    }

    /// Index of the artifact for a message's contents. `None` if it has not started.
    fn artifact_of(&self, message: u32) -> Option<usize> {
        self.artifact_by_message.get(&message).copied().or(self.turn.artifact)
    }

    /// True if all answers of a turn share one artifact.
    fn per_turn(&self) -> bool {
        self.route.options.artifacts == ArtifactPer::Turn
    }

    fn piece<'r>(
        &mut self,
        run: &'r Run,
        message: u32,
        parts: Vec<Part<'r>>,
        append: bool,
        is_delta: bool,
        emit: Emit<'_, 'r>,
    ) {
        if parts.is_empty() {
            return;
        }

        let first = self.artifact_of(message).map_or(message, |index| self.artifacts[index].message);
        let artifact = render::artifact(&run.messages[first as usize], parts);
        emit(Update::Artifact(Piece { artifact, append, last_chunk: false, is_delta }));

        if run.messages[message as usize].announced == MessageType::Message && !self.turn.answered {
            // The answer has started, so its reasoning may follow.
            self.turn.answered = true;
            self.emit_held_reasoning(run, emit);
        }
    }

    /// Emits reasoning that was held back, as artifacts.
    fn emit_held_reasoning<'r>(&mut self, run: &'r Run, emit: Emit<'_, 'r>) {
        for message in std::mem::take(&mut self.turn.held_reasoning) {
            let source = &run.messages[message as usize];
            let emitted = |(content, slot)| {
                let part = render::reasoning_part(slot)?;
                Some((EmittedContent { message, content, span: full_span(slot) }, part))
            };
            let (slots, parts): (Vec<EmittedContent>, Vec<Part<'r>>) =
                (0..).zip(&source.slots).filter_map(emitted).unzip();
            if parts.is_empty() {
                continue;
            }

            // A separate artifact even if the answers of a turn share one.
            self.artifact_by_message.insert(message, self.artifacts.len());
            self.artifacts.push(EmittedArtifact { message, is_answer: false, slots, index_of: HashMap::new() });

            let artifact = render::artifact(source, parts);
            let last_chunk = self.route.options.last_chunk;
            emit(Update::Artifact(Piece { artifact, append: false, last_chunk, is_delta: false }));
        }
    }

    /// Emits the end of an artifact, with an empty text: the list of parts must not be empty
    /// (docs/protocols/a2a.md#what-a-client-receives).
    fn emit_artifact_end<'r>(&self, run: &'r Run, index: usize, emit: Emit<'_, 'r>) {
        if self.route.options.last_chunk {
            let first = &run.messages[self.artifacts[index].message as usize];
            let artifact = render::artifact(first, vec![Part::text("")]);
            emit(Update::Artifact(Piece { artifact, append: true, last_chunk: true, is_delta: false }));
        }
    }

    fn message_finished<'r>(&mut self, run: &'r Run, index: u32, emit: Emit<'_, 'r>) {
        let message = &run.messages[index as usize];
        let shows_tools = self.route.options.tools != Tools::Drop;
        match &message.announced {
            MessageType::Message | MessageType::A2uiResponse | MessageType::A2uiAction => {
                if let Some(artifact) = self.artifact_of(index)
                    && (!self.per_turn() || !self.artifacts[artifact].is_answer)
                {
                    self.emit_artifact_end(run, artifact, emit);
                }
            }
            MessageType::Reasoning => match self.route.options.reasoning {
                Reasoning::Status => {
                    let parts: Vec<Part<'r>> = message.slots.iter().filter_map(render::reasoning_part).collect();
                    if !parts.is_empty() {
                        self.emit_working_message(wire::Message::agent(message.id.as_str(), parts), emit);
                    }
                }
                Reasoning::Artifact => {
                    self.turn.held_reasoning.push(index);
                    if self.turn.answered {
                        self.emit_held_reasoning(run, emit);
                    }
                }
                Reasoning::Stream | Reasoning::Drop => {}
            },
            // Either an output follows, or the end of the turn shows that the call is still open.
            MessageType::FunctionCall => {
                self.turn.unanswered_calls.insert(index);
                let heads = message.slots.iter().filter_map(|slot| slot.call.as_ref());
                self.turn.calls.extend(heads.map(|head| (head.call_id.clone(), index)));
            }
            kind if kind.is_call() && shows_tools => self.emit_parts(message, render::calls(message), emit),
            kind if kind.is_output() => {
                for output in message.slots.iter().filter_map(Slot::output) {
                    let call = self.turn.calls.remove(&output.call_id);
                    if let Some(call) = call.filter(|call| self.turn.unanswered_calls.remove(call))
                        && shows_tools
                    {
                        let call = &run.messages[call as usize];
                        self.emit_parts(call, render::calls(call), emit);
                    }
                }
                if shows_tools {
                    self.emit_parts(message, render::outputs(run, message), emit);
                }
            }
            MessageType::McpListTools if self.route.options.tools == Tools::All => {
                self.emit_parts(message, render::as_data(message), emit);
            }
            MessageType::Error => {
                let text = message.message.as_deref().or(message.code.as_deref()).unwrap_or("");
                if !text.is_empty() {
                    self.emit_working_message(wire::Message::agent(message.id.as_str(), vec![Part::text(text)]), emit);
                }
            }
            MessageType::Other(_) => self.emit_parts(message, render::as_data(message), emit),
            _ => {}
        }
    }

    fn emit_parts<'r>(&mut self, message: &'r Message, parts: Vec<Part<'r>>, emit: Emit<'_, 'r>) {
        if !parts.is_empty() {
            self.emit_working_message(wire::Message::agent(message.id.as_str(), parts), emit);
        }
    }

    fn turn_finished<'r>(&mut self, run: &'r Run, turn: u32, emit: Emit<'_, 'r>) {
        let number = turn as usize;
        if run.turns[number].withdrawn {
            // Input that failed with an error is dropped; input that was accepted without effect is kept.
            emit(Update::TurnWithdrawn { keep_input: run.turns[number].error.is_none() });

            let before = run.turns[..number].iter().rposition(|turn| !turn.withdrawn);
            let waiting_status = before.and_then(|before| self.waiting_status(run, before));
            self.turn.is_waiting = waiting_status.is_some();
            if let Some(change) = waiting_status.filter(|_| self.turn.working_sent) {
                emit(Update::Status(change));
            }
            return;
        }

        self.emit_held_reasoning(run, emit);
        let pending = run.pending_of(number);
        let waited_for: HashSet<&str> = pending.iter().map(|item| item.id.as_str()).collect();

        for call in std::mem::take(&mut self.turn.unanswered_calls) {
            let call = &run.messages[call as usize];
            let mut heads = call.slots.iter().filter_map(|slot| slot.call.as_ref());
            let is_waiting = heads.any(|head| waited_for.contains(head.call_id.as_str()));
            if !is_waiting && self.route.options.tools != Tools::Drop {
                self.emit_parts(call, render::calls(call), emit);
            }
        }

        if let Some(index) = self.turn.artifact {
            self.emit_artifact_end(run, index, emit);
        }

        let waiting_status = self.waiting_status(run, number);
        self.turn.is_waiting = waiting_status.is_some();
        if let Some(change) = waiting_status {
            return emit(Update::Status(change));
        }

        // The final state follows with the end of the run, unless another turn starts.
        if let Some(question) = self.turn.question {
            let source = &run.messages[question as usize];
            self.emit_parts(source, render::contents(source), emit);
        }
    }

    /// The status if a turn leaves the task waiting. `None` otherwise.
    fn waiting_status<'r>(&self, run: &'r Run, number: usize) -> Option<Change<'r>> {
        let end = run.turns[number].end?;
        let pending = run.pending_of(number);

        let hint = run.messages_of(number).last().and_then(|last| Hint::from_metadata(last.metadata.as_ref()).state());
        // Agents that wait without a question say so with the end of their turn.
        let awaited = hint.or_else(|| run.turns[number].awaits.map(TaskState::from_awaits));
        let good = matches!(end, End::Completed | End::Incomplete);
        let is_waiting = good && (!pending.is_empty() || awaited.is_some() || self.route.pausing_ends().contains(&end));
        if !is_waiting {
            return None;
        }

        let auth = pending.iter().any(|item| item.kind == PendingKind::Auth);
        let state = match awaited {
            Some(state) if pending.is_empty() => state,
            _ if auth => TaskState::AuthRequired,
            _ => TaskState::InputRequired,
        };

        let message = if pending.is_empty() {
            question(run, number).or_else(|| self.last_text(run, number, StatusText::Interrupted))
        } else {
            Some(render::question(run, number, &pending, self.route.decisions))
        };

        let incomplete = (end == End::Incomplete).then_some(true);
        let metadata = AgentApi { usage: run.turns[number].usage.as_ref(), incomplete, ..AgentApi::default() };
        Some(Change { state, message, metadata: metadata.to_metadata() })
    }

    /// The last answer's text, if `status_text` is at least `wanted`.
    fn last_text<'r>(&self, run: &'r Run, turn: usize, wanted: StatusText) -> Option<wire::Message<'r>> {
        let option = self.route.options.status_text;
        if option == StatusText::Never || (option != StatusText::Always && option != wanted) {
            return None;
        }

        let answer = run
            .messages_of(turn)
            .iter()
            .rev()
            .find(|message| message.announced == MessageType::Message && message.role == Role::Assistant)?;

        let parts: Vec<Part<'r>> = answer
            .slots
            .iter()
            .filter(|slot| render::is_text(slot))
            .map(|slot| render::text_part(slot, slot.text()))
            .collect();
        (!parts.is_empty()).then(|| wire::Message::agent(answer.id.as_str(), parts))
    }

    fn run_finished<'r>(&mut self, run: &'r Run, end: End, emit: Emit<'_, 'r>) {
        let state = self.route.end_state(end);
        let turn = run.turns.last();
        let number = self.turn.number as usize;
        let first_report = !self.turn.is_waiting;
        let error = turn.and_then(|turn| turn.error.as_ref());

        let error = match end {
            End::Failed | End::Rejected => error,
            // The route reports cut-off answers as failures, so an error is needed.
            End::Incomplete if state == TaskState::Failed => Some(error.unwrap_or(&render::CUT_OFF)),
            _ => None,
        };

        let reason = (end == End::Rejected && error.is_none_or(render::has_no_reason))
            .then(|| self.last_text(run, number, min_status_text(end)))
            .flatten();
        let metadata = AgentApi {
            usage: turn.and_then(|turn| turn.usage.as_ref()).filter(|_| first_report),
            incomplete: (end == End::Incomplete && first_report).then_some(true),
            error,
            answered_by: run.answered_by().map(|other| other.to_string()),
            ..AgentApi::default()
        };

        let message = match error {
            _ if reason.is_some() => reason,
            Some(error) => Some(render::error(run, self.turn.number, error)),
            None if state == TaskState::Completed && first_report => self.last_text(run, number, min_status_text(end)),
            None => None,
        };

        emit(Update::Status(Change { state, message, metadata: metadata.to_metadata() }));
    }

    /// The artifacts as emitted, with the deltas of each text joined (docs/protocols/a2a.md#artifacts).
    pub(crate) fn artifacts<'r>(&self, run: &'r Run) -> Vec<Artifact<'r>> {
        let emitted = self.artifacts.iter();
        emitted
            .map(|artifact| render::artifact(&run.messages[artifact.message as usize], self.parts(artifact, run)))
            .collect()
    }

    fn parts<'r>(&self, artifact: &EmittedArtifact, run: &'r Run) -> Vec<Part<'r>> {
        let parts = artifact.slots.iter().filter_map(|emitted| {
            let message = run.messages.get(emitted.message as usize)?;
            let slot = message.slots.get(emitted.content as usize)?;
            if message.announced == MessageType::Reasoning {
                return render::reasoning_part(slot);
            }
            // Texts of other messages are emitted complete.
            if render::is_text(slot) && message.announced == MessageType::Message {
                Some(render::text_part(slot, slot.span(emitted.span)))
            } else {
                render::finished_part(message, slot)
            }
        });
        parts.collect()
    }
}

/// True if a message was announced as the question that the task will wait on.
fn announces_question(message: &Message) -> bool {
    let speaks = message.announced == MessageType::Message && message.role == Role::Assistant;
    speaks && Hint::from_metadata(message.announced_metadata.as_ref()).state().is_some()
}

/// The message that the agent announced as its question in a turn.
fn question(run: &Run, turn: usize) -> Option<wire::Message<'_>> {
    let message = run.messages_of(turn).iter().rev().find(|message| announces_question(message))?;
    let parts = render::contents(message);
    (!parts.is_empty()).then(|| wire::Message::agent(message.id.as_str(), parts))
}

/// The `status_text` option at which the final status for this end repeats the last text.
const fn min_status_text(end: End) -> StatusText {
    match end {
        // The text is the only place with the reason for the rejection.
        End::Rejected => StatusText::Interrupted,
        _ => StatusText::Always,
    }
}

/// The span of a slot's complete text.
fn full_span(slot: &Slot) -> Span {
    Span { version: u32::MAX, start: 0, end: u32::try_from(slot.text().len()).unwrap_or(u32::MAX) }
}
