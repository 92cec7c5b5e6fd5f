//! The record of a run: what grows it, and the row of events.
//!
//! [`Record`] is the only place where a run changes, so the grammar of [`crate::event`] is held here. What an
//! upstream's frames mean is decided in [`crate::normalize`]; how a record is written down, in [`crate::journal`].

mod rewind;

use super::{CallHead, Message, Run, RunError, Slot, Turn, Version};
use crate::event::{End, Event, Millis, Span, Step};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, Body, ContentType, MessageType, Role};

/// An event and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    event: Event,
    /// Milliseconds after the run was created.
    after: u32,
}

/// What a message is announced with.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Its id. Empty: one is derived from the run's.
    pub id: String,
    /// What it is.
    pub kind: MessageType,
    /// Who speaks.
    pub role: Role,
    /// Free for applications.
    pub metadata: Option<Json>,
    /// What it cost.
    pub usage: Option<Json>,
    /// Fields this version has no name for.
    pub extra: Extra,
}

impl Announced {
    /// An announcement without extras.
    #[must_use]
    pub fn new(id: impl Into<String>, kind: MessageType, role: Role) -> Self {
        Self { id: id.into(), kind, role, metadata: None, usage: None, extra: Extra::new() }
    }
}

/// What the end of a message adds.
#[derive(Clone, Debug)]
pub struct MessageEnd {
    /// How it ended.
    pub end: End,
    /// What it turned out to be, if not what it was announced as.
    pub kind: Option<MessageType>,
    /// Code of an error.
    pub code: Option<String>,
    /// Text of an error.
    pub message: Option<String>,
    /// What it cost; replaces what was said at the announcement.
    pub usage: Option<Json>,
    /// Free for applications; replaces what was said at the announcement.
    pub metadata: Option<Json>,
    /// Fields this version has no name for.
    pub extra: Extra,
}

impl MessageEnd {
    /// An end without extras.
    #[must_use]
    pub const fn new(end: End) -> Self {
        Self { end, kind: None, code: None, message: None, usage: None, metadata: None, extra: Extra::new() }
    }
}

/// A run and the row of events that made it. Two are equal if they tell the same.
#[derive(Clone, Debug)]
pub struct Record {
    run: Run,
    log: Vec<Entry>,
    now: Millis,
    size: usize,
    noted: u64,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.run == other.run && self.log == other.log
    }
}

impl Record {
    /// Begins the record of a run.
    #[must_use]
    pub fn new(run: Run) -> Self {
        let now = run.created_at;
        let mut record = Self { run, log: Vec::new(), now, size: 0, noted: 0 };
        record.tell(Event::RunStarted);
        record
    }

    /// The run without anything that was said in it: its turns, how they ended and what they cost. What a list shows.
    #[must_use]
    pub fn head(&self) -> Self {
        let run = &self.run;
        let mut head = Self::new(Run::new(run.id, run.agent.clone(), run.session_id.clone(), run.created_at));
        for turn in &run.turns {
            head.at(turn.started_at);
            match turn.answered_by {
                Some(other) => head.start_turn_of(other),
                None => head.start_turn(model::Input::default()),
            }
            if turn.begun {
                head.start_answer();
            }
            head.note(turn.upstream_id.as_deref(), turn.usage.clone(), turn.extra.clone());
            let Some(end) = turn.end else { continue };
            head.at(turn.ended_at.unwrap_or(turn.started_at));
            if turn.withdrawn {
                head.withdraw_turn(turn.error.clone())
            } else {
                head.finish_turn(end, turn.error.clone())
            }
        }
        if let Some(end) = run.end {
            head.at(run.finished_at.unwrap_or(head.now));
            head.finish_run(end);
        }
        head
    }

    /// Sets the time of what is told next. Time never goes back.
    pub fn at(&mut self, now: Millis) {
        self.now = self.now.max(now);
    }

    /// The time of what is told next.
    #[must_use]
    pub const fn now(&self) -> Millis {
        self.now
    }

    /// The run so far.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.log.len() as u64
    }

    /// Never true: a run begins with an event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Roughly the memory it takes, in bytes. What limits on a run count.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// True after [`Event::RunFinished`].
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.run.end.is_some()
    }

    /// True while a turn is under way.
    #[must_use]
    pub fn in_turn(&self) -> bool {
        self.run.turns.last().is_some_and(|turn| turn.end.is_none())
    }

    /// The step at a place in the row.
    #[must_use]
    pub fn step(&self, sequence: u64) -> Option<Step<'_>> {
        let entry = self.log.get(usize::try_from(sequence).ok()?)?;
        Some(Step { sequence, at: self.run.created_at + u64::from(entry.after), event: entry.event, run: &self.run })
    }

    /// The steps from a place on.
    pub fn steps(&self, from: u64) -> impl Iterator<Item = Step<'_>> {
        (from..self.len()).filter_map(|sequence| self.step(sequence))
    }

    fn tell(&mut self, event: Event) {
        let after = u32::try_from(self.now.saturating_sub(self.run.created_at)).unwrap_or(u32::MAX);
        self.size += size_of::<Entry>();
        self.log.push(Entry { event, after });
    }

    /// Begins a turn with what the client said.
    pub fn start_turn(&mut self, input: impl Into<model::Input>) {
        debug_assert!(!self.in_turn() && !self.is_finished(), "a turn begins when the one before has ended");
        let turn = index(self.run.turns.len());
        let first_message = self.run.messages.len();
        room_for_one(&mut self.run.turns);
        self.run.turns.push(Turn { input: input.into(), started_at: self.now, first_message, ..Turn::default() });
        self.tell(Event::TurnStarted { turn });
    }

    /// Begins a turn that stands for one of another run, which answers what this one asked.
    pub fn start_turn_of(&mut self, other: RunId) {
        self.start_turn(model::Input::default());
        if let Some(last) = self.run.turns.last_mut() {
            last.answered_by = Some(other);
        }
    }

    /// Sets the input of the turn under way, once it is known: before anything was answered.
    pub fn amend_input(&mut self, input: impl Into<model::Input>) {
        if let Some(turn) = self.run.turns.last_mut() {
            turn.input = input.into();
        }
    }

    /// The agent works on the turn. Said once; later calls do nothing.
    pub fn start_answer(&mut self) {
        let turn = index(self.run.turns.len().saturating_sub(1));
        let Some(last) = self.run.turns.last_mut().filter(|turn| !turn.begun && turn.end.is_none()) else { return };
        last.begun = true;
        self.tell(Event::AnswerStarted { turn });
    }

    /// Begins a message; answers its place.
    pub fn start_message(&mut self, announced: Announced) -> u32 {
        let message = index(self.run.messages.len());
        let id = if announced.id.is_empty() { self.run.id.message_id(message as usize) } else { announced.id };
        self.size += 256 + id.len();
        room_for_one(&mut self.run.messages);
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
        self.size += self.run.messages[message as usize].besides();
        self.tell(Event::MessageStarted { message });
        message
    }

    /// Begins a content; answers its place.
    pub fn start_content(&mut self, message: u32, kind: ContentType, call: Option<CallHead>) -> u32 {
        self.size += 160;
        let slots = &mut self.run.messages[message as usize].slots;
        debug_assert!(slots.last().is_none_or(|slot| slot.finished), "contents of one message do not overlap");
        let content = index(slots.len());
        room_for_one(slots);
        slots.push(Slot { kind, call, value: None, finished: false, extra: Extra::new(), versions: Vec::new() });
        self.tell(Event::ContentStarted { message, content });
        content
    }

    fn slot(&mut self, message: u32, content: u32) -> &mut Slot {
        &mut self.run.messages[message as usize].slots[content as usize]
    }

    /// Adds to a content's text.
    pub fn push(&mut self, message: u32, content: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        self.size += text.len();
        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a finished content does not grow");
        if slot.versions.is_empty() {
            room_for_one(&mut slot.versions);
            slot.versions.push(Version::default());
        }
        let version = index(slot.versions.len() - 1);
        let grown = &mut slot.versions[version as usize].text;
        let start = index(grown.len());
        grown.push_str(text);
        let span = Span { version, start, end: index(grown.len()) };
        self.tell(Event::ContentDelta { message, content, span });
    }

    /// Puts another text in the place of what was told of a content.
    pub fn replace(&mut self, message: u32, content: u32, text: &str) {
        self.size += text.len() + size_of::<Version>();
        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a finished content is not replaced");
        if slot.versions.is_empty() {
            slot.versions.push(Version::default());
        }
        let version = index(slot.versions.len());
        slot.versions.push(Version { text: text.to_owned(), initial: text.len() });
        self.tell(Event::ContentReplaced { message, content, version });
    }

    /// Ends a content. `value` is its final value for all but plain texts, and may be given for calls.
    pub fn finish_content(&mut self, message: u32, content: u32, value: Option<model::Content>, extra: Extra) {
        self.size += value.as_ref().map_or(0, |value| weight(value) + value.extra.size()) + extra.size();
        let slot = self.slot(message, content);
        debug_assert!(!slot.finished, "a content ends once");
        slot.value = value;
        slot.extra = extra;
        slot.finished = true;
        self.tell(Event::ContentFinished { message, content });
    }

    /// Ends a message. Its contents have ended before.
    pub fn finish_message(&mut self, message: u32, end: MessageEnd) {
        let told = &mut self.run.messages[message as usize];
        let before = told.besides();
        debug_assert!(told.end.is_none() && told.slots.iter().all(|slot| slot.finished), "a message ends once, last");
        told.end = Some(end.end);
        if let Some(kind) = end.kind {
            told.kind = kind;
        }
        told.code = end.code;
        told.message = end.message;
        if end.usage.is_some() {
            told.usage = end.usage;
        }
        if end.metadata.is_some() {
            told.metadata = end.metadata;
        }
        told.extra.merge(end.extra);
        self.size = (self.size + told.besides()).saturating_sub(before);
        self.tell(Event::MessageFinished { message });
    }

    /// What the upstream says of the turn as a whole, as it comes.
    pub fn note(&mut self, upstream_id: Option<&str>, usage: Option<Json>, extra: Extra) {
        self.noted = self.len();
        let Some(turn) = self.run.turns.last_mut() else { return };
        if turn.upstream_id.is_none() {
            turn.upstream_id = upstream_id.map(str::to_owned);
        }
        if usage.is_some() {
            self.size = (self.size + kept(usage.as_ref())).saturating_sub(kept(turn.usage.as_ref()));
            turn.usage = usage;
        }
        if !extra.is_empty() {
            let before = turn.extra.size();
            turn.extra.merge(extra);
            self.size = (self.size + turn.extra.size()).saturating_sub(before);
        }
    }

    /// How many events there were at the last [`Record::note`]: what is told besides the row of events.
    pub(crate) const fn noted(&self) -> u64 {
        self.noted
    }

    /// Ends the turn. Its messages have ended before.
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
        self.tell(Event::TurnFinished { turn, end });
    }

    /// Ends a turn that never reached the agent: the run is where it was before. `error` says what was in the way; none
    /// if nothing was, but that the run waits for something else first.
    pub fn withdraw_turn(&mut self, error: Option<RunError>) {
        debug_assert!(self.run.turns.last().is_some_and(|turn| !turn.begun), "what has begun cannot be withdrawn");
        if let Some(last) = self.run.turns.last_mut() {
            last.withdrawn = true;
        }
        self.finish_turn(End::Failed, error);
    }

    /// Ends the run.
    pub fn finish_run(&mut self, end: End) {
        debug_assert!(!self.in_turn() && !self.is_finished(), "a run ends once, after its last turn");
        self.run.end = Some(end);
        self.run.finished_at = Some(self.now);
        self.tell(Event::RunFinished { end });
    }

    /// Ends whatever is open, wherever the record stands, and the run with it.
    pub fn cut(&mut self, end: End, error: Option<RunError>) {
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

    /// Ends every open message of the turn, in the order they began.
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

/// Roughly the memory a content's value takes, in bytes, its unknown fields left out. Costs nothing to ask.
pub(crate) fn weight(content: &model::Content) -> usize {
    match &content.body {
        Body::Text(text) | Body::Refusal(text) => text.len(),
        Body::Image(url) | Body::Video(url) => url.as_ref().map_or(0, String::len),
        Body::Data(data) => data.text().len(),
        Body::Audio { data, .. } => data.as_ref().map_or(0, String::len),
        Body::File(file) => file.data.as_ref().map_or(0, String::len) + file.url.as_ref().map_or(0, String::len),
        Body::Other(_) => 0,
    }
}

pub(super) fn kept(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.text().len())
}

/// Makes room for the first of a row that nearly always has one. A `Vec` by itself would make room for four, and there are
/// thousands of runs that wait for an agent.
pub(crate) fn room_for_one<T>(row: &mut Vec<T>) {
    if row.is_empty() {
        row.reserve_exact(1);
    }
}

/// Places are counted in 32 bits. Invariant: limits on a run's size keep every count far below.
fn index(place: usize) -> u32 {
    u32::try_from(place).expect("a run is limited to far fewer than 2^32 messages, contents and bytes of text")
}
