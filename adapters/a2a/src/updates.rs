//! A run's steps, as what an A2A client is told of them: changes of the status and pieces of artifacts (section 13).
//!
//! One state machine for everybody: streams write what it says, tasks are folded out of it, and push notifications
//! are made of it. Invariant: it reads of a run only what the step has made final, so the same steps always say the
//! same. Not here: how a message or a part looks (`says`), ids of task and context, which the one who writes fills in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use interlingua_core::RunId;
use interlingua_core::event::{End, Event, Span, Step};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core::run::{Message, Run, Slot};

use crate::Route;
use crate::options::{ArtifactPer, Reasoning, StatusText, Tools};
use crate::says::{self, AgentApi, Hint};
use crate::wire::{self, Artifact, Part, Raw, State};

/// Something an A2A client is told.
#[derive(Debug)]
pub(crate) enum Update<'r> {
    /// A turn began with what the client said.
    Said(u32),
    /// What was said in that turn reached nobody: the status is what it was before the turn.
    Unasked {
        /// False: its client was told of an error instead (section 10, last sentence), and it was not said at all.
        said: bool,
    },
    /// The status changed, or says something else.
    Status(Change<'r>),
    /// An artifact grew.
    Artifact(Piece<'r>),
}

/// A change of the status.
#[derive(Debug)]
pub(crate) struct Change<'r> {
    pub(crate) state: State,
    pub(crate) message: Option<wire::Message<'r>>,
    pub(crate) metadata: Option<Raw<'static>>,
}

/// A piece of an artifact.
#[derive(Debug)]
pub(crate) struct Piece<'r> {
    pub(crate) artifact: Artifact<'r>,
    pub(crate) append: bool,
    pub(crate) last_chunk: bool,
    /// True for pieces of running text: pushes join them.
    pub(crate) is_delta: bool,
}

impl Piece<'_> {
    /// True if it brings nothing but the artifact's end.
    pub(crate) fn closes(&self) -> bool {
        let is_empty = |part: &Part<'_>| matches!(&part.content, wire::Content::Text(text) if text.is_empty());
        self.last_chunk && self.append && matches!(self.artifact.parts.as_slice(), [part] if is_empty(part))
    }
}

/// Where what it says goes.
pub(crate) type Tell<'t, 'r> = &'t mut dyn FnMut(Update<'r>);

/// What was told so far, and how the rest is told.
pub(crate) struct Updates {
    route: Arc<Route>,
    turn: Turn,
    artifacts: Vec<Told>,
    /// Which artifact a message began.
    begun: HashMap<u32, usize>,
    /// Nobody wants to hear of running text: a fold reads it off the run.
    quiet: bool,
}

/// The turn under way.
#[derive(Default)]
struct Turn {
    number: u32,
    /// WORKING was told.
    works: bool,
    /// Messages with calls of client tools that have no output yet: they may turn out to be what the task waits for.
    unanswered: BTreeSet<u32>,
    /// The messages of these calls.
    calls: HashMap<String, u32>,
    /// Reasoning that waits for the answer to come first.
    held: Vec<u32>,
    /// A message that was announced as the question the task will wait for.
    question: Option<u32>,
    /// Whether an artifact of the answer has begun.
    answered: bool,
    /// The artifact of the turn, where a turn makes one.
    artifact: Option<usize>,
    /// Pieces of reasoning told as statuses, for their ids.
    thoughts: u32,
    /// That it waits was told.
    waits: bool,
}

/// An artifact as far as it was told.
struct Told {
    /// The message it began with.
    message: u32,
    is_answer: bool,
    slots: Vec<Shown>,
    /// Where contents stand that do not stand last: messages of one turn may overlap.
    places: HashMap<(u32, u32), usize>,
}

/// A content as far as it was told.
#[derive(Clone, Copy)]
struct Shown {
    message: u32,
    content: u32,
    /// What of its text: nothing for other contents.
    span: Span,
}

impl Updates {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            turn: Turn::default(),
            artifacts: Vec::new(),
            begun: HashMap::new(),
            quiet: false,
        }
    }

    /// Takes a step whose running text is of no interest.
    pub(crate) fn take_quietly<'r>(&mut self, step: Step<'r>, tell: Tell<'_, 'r>) {
        self.quiet = true;
        self.take(step, tell);
        self.quiet = false;
    }

    /// Takes a step.
    pub(crate) fn take<'r>(&mut self, step: Step<'r>, tell: Tell<'_, 'r>) {
        match step.event {
            Event::RunStarted => {}
            Event::TurnStarted { turn } => {
                self.turn = Turn { number: turn, ..Turn::default() };
                tell(Update::Said(turn));
            }
            Event::AnswerStarted { turn } => match step.run.turns[turn as usize].answered_by {
                Some(other) => self.answered_elsewhere(other, tell),
                None => self.work(tell),
            },
            Event::MessageStarted { message } => {
                let told = &step.run.messages[message as usize];
                if told.announced == MessageType::Heartbeat {
                    return;
                }
                self.work(tell);
                if announces_question(told) {
                    self.turn.question = Some(message);
                }
            }
            Event::ContentStarted { .. } => {}
            Event::ContentDelta { message, content, span } => self.delta(step, message, content, span, tell),
            Event::ContentReplaced { message, content, version } => {
                self.replaced(step, message, content, version, tell);
            }
            Event::ContentFinished { message, content } => self.content_finished(step, message, content, tell),
            Event::MessageFinished { message } => self.message_finished(step.run, message, tell),
            Event::TurnFinished { turn, .. } => self.turn_finished(step.run, turn, tell),
            Event::RunFinished { end } => self.run_finished(step.run, end, tell),
        }
    }

    /// Whether the last turn's end left the task waiting.
    pub(crate) const fn waits(&self) -> bool {
        self.turn.waits
    }

    /// WORKING was told another way.
    pub(crate) fn set_working(&mut self) {
        self.turn.works = true;
    }

    fn work(&mut self, tell: Tell<'_, '_>) {
        if !self.turn.works {
            self.turn.works = true;
            tell(Update::Status(Change { state: State::Working, message: None, metadata: None }));
        }
    }

    /// What the task asked was answered by another run: the agent works there.
    fn answered_elsewhere(&mut self, other: RunId, tell: Tell<'_, '_>) {
        self.turn.works = true;
        let metadata = AgentApi { answered_by: Some(other.to_string()), ..AgentApi::default() };
        tell(Update::Status(Change { state: State::Working, message: None, metadata: metadata.written() }));
    }

    /// A status that says something while the agent works.
    fn say<'r>(&mut self, message: wire::Message<'r>, tell: Tell<'_, 'r>) {
        self.turn.works = true;
        tell(Update::Status(Change { state: State::Working, message: Some(message), metadata: None }));
    }

    /// Whether a message is told as an artifact while it grows.
    fn is_answer(&self, index: u32, message: &Message) -> bool {
        message.announced == MessageType::Message
            && matches!(message.role, Role::Assistant | Role::Tool | Role::Other(_))
            && self.turn.question != Some(index)
    }

    fn delta<'r>(&mut self, step: Step<'r>, message: u32, content: u32, span: Span, tell: Tell<'_, 'r>) {
        let told = &step.run.messages[message as usize];
        if self.is_answer(message, told) {
            let slot = &told.slots[content as usize];
            let append = self.note(step.run, message, content, span);
            if self.quiet && self.turn.answered {
                return;
            }
            let part = says::text_part(slot, step.delta());
            self.piece(step.run, message, vec![part], append, true, tell);
        } else if told.announced == MessageType::Reasoning && self.route.options.reasoning == Reasoning::Stream {
            self.turn.thoughts += 1;
            let id = format!("{}-{}", told.id, self.turn.thoughts);
            self.say(wire::Message::agent(id, vec![says::thought(step.delta())]), tell);
        }
    }

    fn replaced<'r>(&mut self, step: Step<'r>, message: u32, content: u32, version: u32, tell: Tell<'_, 'r>) {
        let told = &step.run.messages[message as usize];
        if !self.is_answer(message, told) {
            return;
        }
        let end = u32::try_from(step.delta().len()).unwrap_or(u32::MAX);
        self.note(step.run, message, content, Span { version, start: 0, end });
        let artifact = self.of(message).map(|place| self.parts(&self.artifacts[place], step.run));
        self.piece(step.run, message, artifact.unwrap_or_default(), false, false, tell);
    }

    fn content_finished<'r>(&mut self, step: Step<'r>, message: u32, content: u32, tell: Tell<'_, 'r>) {
        let told = &step.run.messages[message as usize];
        let slot = &told.slots[content as usize];
        let is_ui = matches!(told.announced, MessageType::A2uiResponse | MessageType::A2uiAction);
        if !is_ui && (!self.is_answer(message, told) || says::is_text(slot)) {
            return;
        }
        let Some(part) = says::finished_part(told, slot) else { return };
        let append = self.note(step.run, message, content, Span { version: 0, start: 0, end: 0 });
        self.piece(step.run, message, vec![part], append, false, tell);
    }

    /// Whether a piece of text goes on with what was told last, in which case it is written down as told.
    pub(crate) fn goes_on(&mut self, message: u32, content: u32, span: Span) -> bool {
        let last = self.artifacts.last_mut().and_then(|told| told.slots.last_mut());
        match last {
            Some(shown) if (shown.message, shown.content, shown.span.version) == (message, content, span.version) => {
                shown.span.end = span.end;
                true
            }
            _ => false,
        }
    }

    /// Writes down that a content was told up to here. True if its artifact was told of before.
    fn note(&mut self, run: &Run, message: u32, content: u32, span: Span) -> bool {
        let told = &run.messages[message as usize];
        let place = self.of(message);
        let (place, append) = match place {
            Some(place) => (place, true),
            None => {
                let is_answer = told.announced == MessageType::Message;
                let place = self.artifacts.len();
                self.artifacts.push(Told { message, is_answer, slots: Vec::new(), places: HashMap::new() });
                self.begun.insert(message, place);
                if is_answer && self.per_turn() {
                    self.turn.artifact = Some(place);
                }
                (place, false)
            }
        };
        let span = Span { start: 0, ..span };
        let per_turn = self.per_turn();
        let told = &mut self.artifacts[place];
        // Contents of one message follow one another: only those of different messages take turns.
        let last = told.slots.len().checked_sub(1);
        let last = last.filter(|last| (told.slots[*last].message, told.slots[*last].content) == (message, content));
        match last.or_else(|| told.places.get(&(message, content)).copied()) {
            Some(known) => told.slots[known].span = span,
            None => {
                if per_turn {
                    told.places.insert((message, content), told.slots.len());
                }
                told.slots.push(Shown { message, content, span });
            }
        }
        append
    }

    /// The artifact a message's contents go into, if it was begun.
    fn of(&self, message: u32) -> Option<usize> {
        self.begun.get(&message).copied().or(self.turn.artifact)
    }

    /// Whether all answers of a turn are one artifact.
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
        tell: Tell<'_, 'r>,
    ) {
        if parts.is_empty() {
            return;
        }
        let first = self.of(message).map_or(message, |place| self.artifacts[place].message);
        let artifact = says::artifact(&run.messages[first as usize], parts);
        tell(Update::Artifact(Piece { artifact, append, last_chunk: false, is_delta }));
        if run.messages[message as usize].announced == MessageType::Message && !self.turn.answered {
            // The answer came first; now its reasoning may follow.
            self.turn.answered = true;
            self.release(run, tell);
        }
    }

    /// Tells reasoning that was held back, as artifacts.
    fn release<'r>(&mut self, run: &'r Run, tell: Tell<'_, 'r>) {
        for message in std::mem::take(&mut self.turn.held) {
            let told = &run.messages[message as usize];
            let shown = |(content, slot)| {
                let part = says::reasoning(slot)?;
                Some((Shown { message, content, span: whole(slot) }, part))
            };
            let (slots, parts): (Vec<Shown>, Vec<Part<'r>>) = (0..).zip(&told.slots).filter_map(shown).unzip();
            if parts.is_empty() {
                continue;
            }
            // An artifact of its own also where the answers of a turn share one.
            self.begun.insert(message, self.artifacts.len());
            self.artifacts.push(Told { message, is_answer: false, slots, places: HashMap::new() });
            let artifact = says::artifact(told, parts);
            let last_chunk = self.route.options.last_chunk;
            tell(Update::Artifact(Piece { artifact, append: false, last_chunk, is_delta: false }));
        }
    }

    /// The end of an artifact. The list of parts may not be empty (section 13).
    fn close<'r>(&self, run: &'r Run, place: usize, tell: Tell<'_, 'r>) {
        if self.route.options.last_chunk {
            let first = &run.messages[self.artifacts[place].message as usize];
            let artifact = says::artifact(first, vec![Part::text("")]);
            tell(Update::Artifact(Piece { artifact, append: true, last_chunk: true, is_delta: false }));
        }
    }

    fn message_finished<'r>(&mut self, run: &'r Run, index: u32, tell: Tell<'_, 'r>) {
        let message = &run.messages[index as usize];
        let shows_tools = self.route.options.tools != Tools::Drop;
        match &message.announced {
            MessageType::Message | MessageType::A2uiResponse | MessageType::A2uiAction => {
                if let Some(place) = self.of(index)
                    && (!self.per_turn() || !self.artifacts[place].is_answer)
                {
                    self.close(run, place, tell);
                }
            }
            MessageType::Reasoning => match self.route.options.reasoning {
                Reasoning::Status => {
                    let parts: Vec<Part<'r>> = message.slots.iter().filter_map(says::reasoning).collect();
                    if !parts.is_empty() {
                        self.say(wire::Message::agent(message.id.as_str(), parts), tell);
                    }
                }
                Reasoning::Artifact => {
                    self.turn.held.push(index);
                    if self.turn.answered {
                        self.release(run, tell);
                    }
                }
                Reasoning::Stream | Reasoning::Drop => {}
            },
            // Whether somebody else answers it, its output will tell; or the turn's end that nobody has.
            MessageType::FunctionCall => {
                self.turn.unanswered.insert(index);
                let heads = message.slots.iter().filter_map(|slot| slot.call.as_ref());
                self.turn.calls.extend(heads.map(|head| (head.call_id.clone(), index)));
            }
            kind if kind.is_call() && shows_tools => self.tell_parts(message, says::calls(message), tell),
            kind if kind.is_output() => {
                for output in message.slots.iter().filter_map(Slot::output) {
                    let call = self.turn.calls.remove(&output.call_id);
                    if let Some(call) = call.filter(|call| self.turn.unanswered.remove(call))
                        && shows_tools
                    {
                        let call = &run.messages[call as usize];
                        self.tell_parts(call, says::calls(call), tell);
                    }
                }
                if shows_tools {
                    self.tell_parts(message, says::outputs(run, message), tell);
                }
            }
            MessageType::McpListTools if self.route.options.tools == Tools::All => {
                self.tell_parts(message, says::unknown(message), tell);
            }
            MessageType::Error => {
                let text = message.message.as_deref().or(message.code.as_deref()).unwrap_or("");
                if !text.is_empty() {
                    self.say(wire::Message::agent(message.id.as_str(), vec![Part::text(text)]), tell);
                }
            }
            MessageType::Other(_) => self.tell_parts(message, says::unknown(message), tell),
            _ => {}
        }
    }

    fn tell_parts<'r>(&mut self, message: &'r Message, parts: Vec<Part<'r>>, tell: Tell<'_, 'r>) {
        if !parts.is_empty() {
            self.say(wire::Message::agent(message.id.as_str(), parts), tell);
        }
    }

    fn turn_finished<'r>(&mut self, run: &'r Run, turn: u32, tell: Tell<'_, 'r>) {
        let number = turn as usize;
        if run.turns[number].withdrawn {
            // What its client was told of as an error was not said; what came in vain was.
            tell(Update::Unasked { said: run.turns[number].error.is_none() });
            let before = run.turns[..number].iter().rposition(|turn| !turn.withdrawn);
            let asked = before.and_then(|before| self.asked(run, before));
            self.turn.waits = asked.is_some();
            if let Some(change) = asked.filter(|_| self.turn.works) {
                tell(Update::Status(change));
            }
            return;
        }
        self.release(run, tell);
        let pending = run.pending_of(number);
        let waited_for: HashSet<&str> = pending.iter().map(|item| item.id.as_str()).collect();
        for call in std::mem::take(&mut self.turn.unanswered) {
            let call = &run.messages[call as usize];
            let mut heads = call.slots.iter().filter_map(|slot| slot.call.as_ref());
            let waits = heads.any(|head| waited_for.contains(head.call_id.as_str()));
            if !waits && self.route.options.tools != Tools::Drop {
                self.tell_parts(call, says::calls(call), tell);
            }
        }
        if let Some(place) = self.turn.artifact {
            self.close(run, place, tell);
        }
        let asked = self.asked(run, number);
        self.turn.waits = asked.is_some();
        if let Some(change) = asked {
            return tell(Update::Status(change));
        }
        // What comes of the run is told with its end; or its next turn begins.
        if let Some(question) = self.turn.question {
            let told = &run.messages[question as usize];
            self.tell_parts(told, says::contents(told), tell);
        }
    }

    /// The status a turn leaves a task waiting in. None: it does not wait.
    fn asked<'r>(&self, run: &'r Run, number: usize) -> Option<Change<'r>> {
        let end = run.turns[number].end?;
        let pending = run.pending_of(number);
        let hint = run.messages_of(number).last().and_then(|last| Hint::of(last.metadata.as_ref()).state());
        let good = matches!(end, End::Completed | End::Incomplete);
        let waits = good && (!pending.is_empty() || hint.is_some() || self.route.waits_after().contains(&end));
        if !waits {
            return None;
        }
        let auth = pending.iter().any(|item| item.kind == PendingKind::Auth);
        let state = match hint {
            Some(state) if pending.is_empty() => state,
            _ if auth => State::AuthRequired,
            _ => State::InputRequired,
        };
        let message = if pending.is_empty() {
            question(run, number).or_else(|| self.last_text(run, number, StatusText::Interrupted))
        } else {
            Some(says::asks(run, number, &pending, self.route.edits))
        };
        let incomplete = (end == End::Incomplete).then_some(true);
        let metadata = AgentApi { usage: run.turns[number].usage.as_ref(), incomplete, ..AgentApi::default() };
        Some(Change { state, message, metadata: metadata.written() })
    }

    /// The last answer's text, if it is repeated in such a status.
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
            .filter(|slot| says::is_text(slot))
            .map(|slot| says::text_part(slot, slot.text()))
            .collect();
        (!parts.is_empty()).then(|| wire::Message::agent(answer.id.as_str(), parts))
    }

    fn run_finished<'r>(&mut self, run: &'r Run, end: End, tell: Tell<'_, 'r>) {
        let state = self.route.ended(end);
        let turn = run.turns.last();
        let number = self.turn.number as usize;
        let fresh = !self.turn.waits;
        let error = turn.and_then(|turn| turn.error.as_ref());
        let error = match end {
            End::Failed | End::Rejected => error,
            // Nothing went wrong but for a client that has to be told so.
            End::Incomplete if state == State::Failed => Some(error.unwrap_or(&says::CUT_OFF)),
            _ => None,
        };
        let reason = (end == End::Rejected && error.is_none_or(says::gives_no_reason))
            .then(|| self.last_text(run, number, option_of(end)))
            .flatten();
        let metadata = AgentApi {
            usage: turn.and_then(|turn| turn.usage.as_ref()).filter(|_| fresh),
            incomplete: (end == End::Incomplete && fresh).then_some(true),
            error,
            answered_by: run.answered_by().map(|other| other.to_string()),
            ..AgentApi::default()
        };
        let message = match error {
            _ if reason.is_some() => reason,
            Some(error) => Some(says::error(run, self.turn.number, error)),
            None if state == State::Completed && fresh => self.last_text(run, number, option_of(end)),
            None => None,
        };
        tell(Update::Status(Change { state, message, metadata: metadata.written() }));
    }

    /// The artifacts as they were told, the pieces of one text joined (section 13, rule 4).
    pub(crate) fn artifacts<'r>(&self, run: &'r Run) -> Vec<Artifact<'r>> {
        let told = self.artifacts.iter();
        told.map(|told| says::artifact(&run.messages[told.message as usize], self.parts(told, run))).collect()
    }

    fn parts<'r>(&self, told: &Told, run: &'r Run) -> Vec<Part<'r>> {
        let parts = told.slots.iter().filter_map(|shown| {
            let message = run.messages.get(shown.message as usize)?;
            let slot = message.slots.get(shown.content as usize)?;
            if message.announced == MessageType::Reasoning {
                return says::reasoning(slot);
            }
            // Texts of other messages are told whole.
            if says::is_text(slot) && message.announced == MessageType::Message {
                Some(says::text_part(slot, slot.span(shown.span)))
            } else {
                says::finished_part(message, slot)
            }
        });
        parts.collect()
    }
}

/// Whether a message is announced as the question the task will wait for.
fn announces_question(message: &Message) -> bool {
    let speaks = message.announced == MessageType::Message && message.role == Role::Assistant;
    speaks && Hint::of(message.announced_metadata.as_ref()).state().is_some()
}

/// What the agent announced as its question in a turn.
fn question(run: &Run, turn: usize) -> Option<wire::Message<'_>> {
    let message = run.messages_of(turn).iter().rev().find(|message| announces_question(message))?;
    let parts = says::contents(message);
    (!parts.is_empty()).then(|| wire::Message::agent(message.id.as_str(), parts))
}

/// No closing status but an interrupted one repeats text by default.
const fn option_of(end: End) -> StatusText {
    match end {
        // The reason it was turned away, which is nowhere else.
        End::Rejected => StatusText::Interrupted,
        _ => StatusText::Always,
    }
}

/// All of a slot's text.
fn whole(slot: &Slot) -> Span {
    Span { version: u32::MAX, start: 0, end: u32::try_from(slot.text().len()).unwrap_or(u32::MAX) }
}
