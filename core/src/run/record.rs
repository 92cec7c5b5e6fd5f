//! The record of a run: the run's state and the sequence of events that built it.
//!
//! [`Record`] is the only code that changes a run, so it enforces the grammar of [`crate::event`]. Not here: the
//! meaning of an upstream's frames ([`crate::normalize`]), and the serialized form of a record ([`crate::journal`]).

mod evict;
mod rewind;

use super::cause::FailureCause;
use super::size::{content_size, json_size, reserve_one};
use super::state::{CallHead, Message, Run, RunError, Slot, Turn, Version};
use crate::agent_event::Awaits;
use crate::event::{End, Event, Millis, Span};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, ContentType, MessageType, Role};
use crate::step::Step;

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimedEvent {
    event: Event,
    /// Milliseconds since the run was created.
    after: u32,
}

/// The most capacity that a finished text keeps beyond its length, in bytes.
const MAX_SPARE_CAPACITY: usize = 64 << 10;

/// The properties of a message when it starts.
#[derive(Clone, Debug)]
pub struct MessageStart {
    /// If empty, an id is derived from the run's.
    pub id: String,
    /// The announced type; the end of the message may change it.
    pub kind: MessageType,
    /// The author.
    pub role: Role,
    /// Application data.
    pub metadata: Option<Json>,
    /// Token usage.
    pub usage: Option<Json>,
    /// Unknown fields.
    pub extra: Extra,
}

impl MessageStart {
    /// A start without extras.
    #[must_use]
    pub fn new(id: impl Into<String>, kind: MessageType, role: Role) -> Self {
        Self { id: id.into(), kind, role, metadata: None, usage: None, extra: Extra::new() }
    }
}

/// The additions and changes of a message's end.
#[derive(Clone, Debug)]
pub struct MessageEnd {
    /// The outcome.
    pub end: End,
    /// The final type, if it differs from the announced one.
    pub kind: Option<MessageType>,
    /// Error code.
    pub code: Option<String>,
    /// Error text.
    pub message: Option<String>,
    /// Token usage; replaces that of the start.
    pub usage: Option<Json>,
    /// Application data; replaces that of the start.
    pub metadata: Option<Json>,
    /// Unknown fields; merged into those of the start.
    pub extra: Extra,
}

impl MessageEnd {
    /// An end without extras.
    #[must_use]
    pub const fn new(end: End) -> Self {
        Self { end, kind: None, code: None, message: None, usage: None, metadata: None, extra: Extra::new() }
    }
}

/// A run and the events that built it. Two records are equal if their runs and events are.
#[derive(Clone, Debug)]
pub struct Record {
    run: Run,
    /// The events after the evicted ones.
    log: Vec<TimedEvent>,
    /// The number of evicted events.
    evicted: u64,
    now: Millis,
    size: usize,
    turn_updated_at: u64,
    /// The number of events when the input of the active turn was last replaced.
    input_set_at: u64,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.run == other.run && self.evicted == other.evicted && self.log == other.log
    }
}

impl Record {
    /// Starts the record of a run.
    #[must_use]
    pub fn new(run: Run) -> Self {
        let now = run.created_at;
        let mut record = Self { run, log: Vec::new(), evicted: 0, now, size: 0, turn_updated_at: 0, input_set_at: 0 };
        record.emit(Event::RunStarted);
        record
    }

    /// The run without inputs and messages: its turns, their outcomes and usage. Lists show this.
    #[must_use]
    pub fn head(&self) -> Self {
        let run = &self.run;
        let mut head = Self::new(Run::new(run.id, run.agent.clone(), run.session_id.clone(), run.created_at));

        for turn in &run.turns {
            head.set_time(turn.started_at);
            match turn.answered_by {
                Some(other) => head.start_linked_turn(other),
                None => head.start_turn(model::Input::default()),
            }
            if turn.answer_started {
                head.start_answer();
            }
            head.update_turn(turn.upstream_id.as_deref(), turn.usage.clone(), turn.extra.clone());
            let Some(end) = turn.end else { continue };
            if let Some(cause) = &turn.cause {
                head.set_cause((**cause).clone());
            }
            if let Some(awaits) = turn.awaits {
                head.set_awaits(awaits);
            }
            head.set_time(turn.ended_at.unwrap_or(turn.started_at));
            if turn.withdrawn {
                head.withdraw_turn(turn.error.clone())
            } else {
                head.finish_turn(end, turn.error.clone())
            }
        }

        if let Some(end) = run.end {
            head.set_time(run.finished_at.unwrap_or(head.now));
            head.finish_run(end);
        }

        head
    }

    /// Sets the time of the following events. Time never goes back.
    pub fn set_time(&mut self, now: Millis) {
        self.now = self.now.max(now);
    }

    /// The time of the following events.
    #[must_use]
    pub const fn now(&self) -> Millis {
        self.now
    }

    /// The current state of the run.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// Number of events, the evicted ones included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.evicted + self.log.len() as u64
    }

    /// Always false: a record starts with an event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate memory of the whole record in bytes, evicted parts included. Size limits of a run apply to this.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// True after [`Event::RunFinished`].
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.run.end.is_some()
    }

    /// True while a turn is active.
    #[must_use]
    pub fn in_turn(&self) -> bool {
        self.run.turns.last().is_some_and(|turn| turn.end.is_none())
    }

    /// The step with this sequence number. `None`: the step does not exist, or is evicted.
    #[must_use]
    pub fn step(&self, sequence: u64) -> Option<Step<'_>> {
        let entry = self.log.get(usize::try_from(sequence.checked_sub(self.evicted)?).ok()?)?;
        Some(Step { sequence, at: self.run.created_at + u64::from(entry.after), event: entry.event, run: &self.run })
    }

    /// The steps from this sequence number on, without evicted ones.
    pub fn steps(&self, from: u64) -> impl Iterator<Item = Step<'_>> {
        (from.max(self.evicted)..self.len()).filter_map(|sequence| self.step(sequence))
    }

    fn emit(&mut self, event: Event) {
        let after = u32::try_from(self.now.saturating_sub(self.run.created_at)).unwrap_or(u32::MAX);
        self.size += size_of::<TimedEvent>();
        self.log.push(TimedEvent { event, after });
    }

    /// Begins a turn with the client's messages.
    pub fn start_turn(&mut self, input: impl Into<model::Input>) {
        debug_assert!(!self.in_turn() && !self.is_finished(), "a turn begins when the one before has ended");
        let turn = index(self.run.turns.len());

        let first_message = self.run.messages.len();
        reserve_one(&mut self.run.turns);
        self.run.turns.push(Turn { input: input.into(), started_at: self.now, first_message, ..Turn::default() });
        self.emit(Event::TurnStarted { turn });
    }

    /// Begins a turn that represents a turn of another run, which answers this run's pending items.
    pub fn start_linked_turn(&mut self, other: RunId) {
        self.start_turn(model::Input::default());
        if let Some(last) = self.run.turns.last_mut() {
            last.answered_by = Some(other);
        }
    }

    /// Replaces the input of the active turn. Call it only before the agent has begun its answer.
    pub fn set_input(&mut self, input: impl Into<model::Input>) {
        self.input_set_at = self.len();
        if let Some(turn) = self.run.turns.last_mut() {
            turn.input = input.into();
        }
    }

    /// Marks that the agent has started to work on the turn. Later calls have no effect.
    pub fn start_answer(&mut self) {
        let turn = index(self.run.turns.len().saturating_sub(1));
        let Some(last) = self.run.turns.last_mut().filter(|turn| !turn.answer_started && turn.end.is_none()) else {
            return;
        };
        last.answer_started = true;
        self.emit(Event::AnswerStarted { turn });
    }

    /// Begins a message and returns its index.
    pub fn start_message(&mut self, announced: MessageStart) -> u32 {
        let message = index(self.run.messages.len());

        let id = if announced.id.is_empty() { self.run.id.message_id(message as usize) } else { announced.id };
        self.size += 256 + id.len();
        reserve_one(&mut self.run.messages);

        self.run.messages.push(Message {
            id,
            announced: announced.kind.clone(),
            kind: announced.kind,
            role: announced.role,
            slots: Vec::new(),
            end: None,
            code: None,
            message: None,
            usage: announced.usage,
            announced_metadata: announced.metadata.clone(),
            metadata: announced.metadata,
            extra: announced.extra,
        });

        self.size += self.run.messages[message as usize].metadata_size();
        self.emit(Event::MessageStarted { message });
        message
    }

    /// Begins a content and returns its index in the message.
    pub fn start_content(&mut self, message: u32, kind: ContentType, call: Option<CallHead>) -> u32 {
        self.size += 160;
        let slots = &mut self.run.messages[message as usize].slots;

        debug_assert!(slots.last().is_none_or(|slot| slot.finished), "contents of one message do not overlap");
        let content = index(slots.len());

        reserve_one(slots);
        slots.push(Slot { kind, call, value: None, finished: false, extra: Extra::new(), versions: Vec::new() });
        self.emit(Event::ContentStarted { message, content });
        content
    }

    fn slot(&mut self, message: u32, content: u32) -> &mut Slot {
        &mut self.run.messages[message as usize].slots[content as usize]
    }

    /// Appends to a content's text.
    pub fn push(&mut self, message: u32, content: u32, text: &str) {
        if text.is_empty() {
            return;
        }

        self.size += text.len();
        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a finished content does not grow");
        if slot.versions.is_empty() {
            reserve_one(&mut slot.versions);
            slot.versions.push(Version::default());
        }

        let version = index(slot.versions.len() - 1);
        let grown = &mut slot.versions[version as usize];
        let start = index(grown.len());
        grown.text.push_str(text);
        let span = Span { version, start, end: index(grown.len()) };

        self.emit(Event::ContentDelta { message, content, span });
    }

    /// Replaces a content's text.
    pub fn replace(&mut self, message: u32, content: u32, text: &str) {
        self.size += text.len() + size_of::<Version>();
        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a finished content is not replaced");
        if slot.versions.is_empty() {
            slot.versions.push(Version::default());
        }
        let version = index(slot.versions.len());

        slot.versions.push(Version { text: text.to_owned(), initial: text.len(), evicted: None });
        self.emit(Event::ContentReplaced { message, content, version });
    }

    /// Ends a content. `value` is required for all contents but plain texts, and optional for calls.
    pub fn finish_content(&mut self, message: u32, content: u32, value: Option<model::Content>, extra: Extra) {
        self.size += value.as_ref().map_or(0, |value| content_size(value) + value.extra.size()) + extra.size();

        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a content ends once");

        slot.value = value;
        slot.extra = extra;
        slot.finished = true;
        // A text that grew by deltas may have twice the capacity it needs. Short ones are not worth the copy.
        if let Some(Version { text, .. }) = slot.versions.last_mut()
            && text.capacity() - text.len() > MAX_SPARE_CAPACITY
        {
            text.shrink_to_fit();
        }

        self.emit(Event::ContentFinished { message, content });
    }

    /// Ends a message. Its contents must have ended.
    pub fn finish_message(&mut self, message: u32, end: MessageEnd) {
        let state = &mut self.run.messages[message as usize];

        let before = state.metadata_size();
        debug_assert!(
            state.end.is_none() && state.slots.iter().all(|slot| slot.finished),
            "a message ends once, after its contents"
        );

        state.end = Some(end.end);
        if let Some(kind) = end.kind {
            state.kind = kind;
        }

        state.code = end.code;
        state.message = end.message;
        if end.usage.is_some() {
            state.usage = end.usage;
        }
        if end.metadata.is_some() {
            state.metadata = end.metadata;
        }
        state.extra.merge(end.extra);

        self.size = (self.size + state.metadata_size()).saturating_sub(before);
        self.emit(Event::MessageFinished { message });
    }

    /// Updates the data that the upstream reports about the turn as a whole: keeps the first id, replaces the usage,
    /// and merges unknown fields.
    pub fn update_turn(&mut self, upstream_id: Option<&str>, usage: Option<Json>, extra: Extra) {
        self.turn_updated_at = self.len();
        let Some(turn) = self.run.turns.last_mut() else { return };

        if turn.upstream_id.is_none() {
            turn.upstream_id = upstream_id.map(str::to_owned);
        }
        if usage.is_some() {
            self.size = (self.size + json_size(usage.as_ref())).saturating_sub(json_size(turn.usage.as_ref()));
            turn.usage = usage;
        }

        if !extra.is_empty() {
            let before = turn.extra.size();
            turn.extra.merge(extra);
            self.size = (self.size + turn.extra.size()).saturating_sub(before);
        }
    }

    /// [`Self::len`] at the last [`Record::set_input`], which adds no event.
    pub(crate) const fn input_set_at(&self) -> u64 {
        self.input_set_at
    }

    /// [`Self::len`] at the last [`Record::update_turn`], which adds no event.
    pub(crate) const fn turn_updated_at(&self) -> u64 {
        self.turn_updated_at
    }

    /// Sets the cause of the failure that is about to end the turn, so that the event of the end stores it.
    pub fn set_cause(&mut self, cause: FailureCause) {
        debug_assert!(self.in_turn(), "the end of the turn stores the cause");
        let Some(turn) = self.run.turns.last_mut().filter(|_| !cause.is_empty()) else { return };
        self.size += cause.size();
        if let Some(replaced) = turn.cause.replace(Box::new(cause)) {
            self.size = self.size.saturating_sub(replaced.size());
        }
    }

    /// Sets the condition that the agent waits for after the turn that is about to end, so that the event of the end
    /// stores it.
    pub fn set_awaits(&mut self, awaits: Awaits) {
        debug_assert!(self.in_turn(), "the end of the turn stores what the agent waits for");
        if let Some(turn) = self.run.turns.last_mut() {
            turn.awaits = Some(awaits);
        }
    }

    /// Ends the turn. Its messages must have ended.
    pub fn finish_turn(&mut self, end: End, error: Option<RunError>) {
        debug_assert!(self.in_turn(), "a turn ends once");
        let now = self.now;

        let turn = index(self.run.turns.len().saturating_sub(1));
        debug_assert!(self.run.messages_of(turn as usize).iter().all(|message| message.end.is_some()));

        if let Some(last) = self.run.turns.last_mut() {
            last.end = Some(end);
            last.error = error;
            last.ended_at = Some(now);
        }

        self.emit(Event::TurnFinished { turn, end });
    }

    /// Ends a turn that never reached the agent: the run returns to its state before the turn. `error` is the reason;
    /// `None` if the turn was postponed without an error.
    pub fn withdraw_turn(&mut self, error: Option<RunError>) {
        debug_assert!(
            self.run.turns.last().is_some_and(|turn| !turn.answer_started),
            "a started turn cannot be withdrawn"
        );
        if let Some(last) = self.run.turns.last_mut() {
            last.withdrawn = true;
        }
        self.finish_turn(End::Failed, error);
    }

    /// Ends the run. Its last turn must have ended.
    pub fn finish_run(&mut self, end: End) {
        debug_assert!(!self.in_turn() && !self.is_finished(), "a run ends once, after its last turn");
        self.run.end = Some(end);
        self.run.finished_at = Some(self.now);
        self.emit(Event::RunFinished { end });
    }

    /// Ends all open messages, the active turn and the run, in any state of the record. No effect on a finished record.
    /// With an end other than success, open messages are incomplete.
    pub fn close(&mut self, end: End, error: Option<RunError>) {
        if self.is_finished() {
            return;
        }
        if self.in_turn() {
            self.close_messages(if end == End::Completed { End::Completed } else { End::Incomplete });
            self.finish_turn(end, error);
        } else if let (Some(turn), Some(error)) = (self.run.turns.last_mut(), error) {
            turn.error = Some(error);
        }
        self.finish_run(end);
    }

    /// Ends every open message of the turn, in the order they started.
    pub fn close_messages(&mut self, end: End) {
        let first = self.run.turns.last().map_or(0, |turn| turn.first_message);
        for message in first..self.run.messages.len() {
            if self.run.messages[message].end.is_some() {
                continue;
            }
            if let Some(last) = self.run.messages[message].slots.len().checked_sub(1)
                && !self.run.messages[message].slots[last].finished
            {
                self.finish_content(index(message), index(last), None, Extra::new());
            }
            self.finish_message(index(message), MessageEnd::new(end));
        }
    }
}

/// Converts an index to 32 bits. Invariant: the size limits of a run keep every count far below.
fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a run is limited to far fewer than 2^32 messages, contents and bytes of text")
}
