//! Repairing what upstreams really send: from the events of connectors to events that keep the grammar.
//!
//! The rules are those of the Agent API page, section 12. Where an upstream deviates from the specification, nothing it
//! said is lost, nothing is told twice, and every message, content and turn that begins also ends. `slots` decides
//! about the contents of one message, `slot` about one of them, `merge` about fragments of data, `same` which
//! message of the final output was told under another id, `names` which ids messages have.
//!
//! Of a text, precisely: every fragment that comes for a message before its end is told once, in order, as long as the
//! upstream does not say the text anew; a text said anew, whole, takes the place of what was told of it, at once as long
//! as that does not happen all the time. What comes for a message after its end, and for a turn after its end, is not
//! told ([`Normalizer::ignored`] counts it).
//!
//! Everything takes time in proportion to the bytes that were heard, and whatever is kept counts towards the limit.
//!
//! Not here: reading frames (the connectors), keeping the grammar ([`crate::run::Record`] does), waiting and giving
//! up on a silent upstream (the engine).

mod merge;
mod names;
mod same;
mod slot;
mod slots;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use self::names::Names;
use self::same::Comparison;
use self::slot::is_media;
use self::slots::{Slots, Told};
use crate::agent_event::{
    AgentError, AgentEvent, Awaits, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
    to_extra,
};
use crate::event::End;
use crate::fault::{Fault, FaultKind};
use crate::filter;
use crate::json::{Extra, Json};
use crate::model::{ContentType, MessageType, Role};
use crate::run::{MessageEnd, MessageStart, Record, RunError, reserve_one};

/// Messages nobody ended that are compared with those of the final output that have other ids.
const MAX_OPEN: usize = 16;
/// Unknown fields of responses that are kept, over the whole turn.
const MAX_NOTED: usize = 256;

/// Of what a record may grow to, this part may be texts told anew before they are final.
const ANEW: usize = 16;

/// What a turn's error says where the agent rejected the request and gave no reason of its own: whatever it said before
/// that is the better one.
pub const REJECTED: &str = "the agent rejected the request";

/// What a frame meant for the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The turn goes on.
    More,
    /// The turn has ended; whatever comes after this is not heard.
    Ended,
}

/// Listens to one turn of a run.
#[derive(Debug)]
pub struct Normalizer {
    messages: Vec<Told>,
    /// Where the message of an upstream's id stands in `messages`. The latest one, where an id was used again.
    by_id: HashMap<String, usize>,
    /// The message the last content belonged to: nearly always that of the next one too.
    current: Option<usize>,
    /// A complete data content of a message that was not announced: its message's own frame, which says what it is,
    /// nearly always comes next (section 14.7).
    stash: Option<usize>,
    response_id: Option<String>,
    /// A message whose last content is a picture, sound, film or file that nobody has ended. Some agents never do.
    unclosed: Option<usize>,
    /// What finished messages hold, for comparing it with the final output.
    told: same::Told,
    names: Names,
    /// How many unknown fields of responses were kept.
    turn_updated_at: usize,
    /// The end of a response that is not this one (rule 13): it counts if nothing better comes.
    foreign_end: Option<(End, Option<RunError>)>,
    /// That end says the agent rejected the request, and it said nothing since.
    rejected: bool,
    /// The most memory a record may take, in bytes.
    limit: usize,
    /// Bytes held back: they count towards the limit too.
    held: usize,
    /// How many bytes may still be told in the place of others before they are final.
    anew: usize,
    ended: bool,
    begun: bool,
    ignored: u64,
    heartbeats: u64,
    complaint: Option<String>,
    awaits: Option<Awaits>,
    mask: Mask,
}

/// Takes known secrets out of a text of an upstream's.
pub type Mask = fn(&str) -> Cow<'_, str>;

impl Normalizer {
    /// Listens to a turn of a record that may grow to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            messages: Vec::new(),
            by_id: HashMap::new(),
            current: None,
            stash: None,
            unclosed: None,
            response_id: None,
            told: same::Told::default(),
            names: Names::default(),
            turn_updated_at: 0,
            foreign_end: None,
            rejected: false,
            limit,
            held: 0,
            anew: limit / ANEW,
            ended: false,
            begun: false,
            ignored: 0,
            heartbeats: 0,
            complaint: None,
            awaits: None,
            mask: |text| Cow::Borrowed(text),
        }
    }

    /// Masks what the upstream complains of, before anything else is done with it.
    #[must_use]
    pub fn masking(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// True once the turn has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// True once the upstream has said anything that is no complaint.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// What the upstream complained of last, in its own words: for the log only.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    fn complained(&mut self, error: &AgentError<'_>) -> RunError {
        let text = match error {
            AgentError::Raw { value, .. } => value.get(),
            AgentError::Named { message, .. } => message,
        };
        self.complaint = Some(filter::log_text(&(self.mask)(text)));
        self.read_error(error)
    }

    fn read_error(&self, error: &AgentError<'_>) -> RunError {
        let (code, message) = match error {
            AgentError::Named { code, message } => (code.clone().into_owned(), message.clone().into_owned()),
            AgentError::Raw { value, code: fallback } => {
                let (code, message) = code_and_message(value);
                let unnamed = code == FaultKind::AgentFailed.code();
                let code = fallback.as_deref().filter(|_| unnamed).map_or(code, str::to_owned);
                (code, message)
            }
        };
        RunError { message: self.client_text(&code, &message), code: self.client_code(&code) }
    }

    fn client_text(&self, code: &str, text: &str) -> String {
        filter::client_text(code, &(self.mask)(text))
    }

    fn client_code(&self, code: &str) -> String {
        filter::client_code(&(self.mask)(code)).to_owned()
    }

    /// What the agent said it waits for, besides pending items.
    #[must_use]
    pub const fn awaits(&self) -> Option<Awaits> {
        self.awaits
    }

    /// How many messages said nothing but that the upstream lives. They are no part of the run.
    #[must_use]
    pub const fn heartbeats(&self) -> u64 {
        self.heartbeats
    }

    /// How many frames were passed over because they said nothing that could be told.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Hears one frame.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTooLarge`] if the record may not grow any further. The turn is still to be ended.
    pub fn emit(&mut self, record: &mut Record, event: &AgentEvent<'_>) -> Result<Progress, Fault> {
        if self.ended {
            self.ignored += 1;
            return Ok(Progress::Ended);
        }
        match event {
            AgentEvent::Content(content) => {
                if !self.fragment(record, content) {
                    self.content(record, content);
                }
            }
            AgentEvent::Message(message) => self.message(record, message),
            AgentEvent::Response(response) => self.response(record, response),
            AgentEvent::Error(error) => {
                let error = self.complained(error);
                self.finish(record, End::Failed, Some(error));
            }
            AgentEvent::KeepAlive => self.heartbeats += 1,
            AgentEvent::Ignored => self.ignored += 1,
        }
        // The last frame may be too much; nothing comes after it.
        if !self.ended && record.size() + self.held > self.limit {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the answer is larger than a run may be")
                .with_detail(format!("more than {} bytes", self.limit)));
        }
        Ok(if self.ended { Progress::Ended } else { Progress::More })
    }

    /// The hot path: one more fragment for the text that is being told. True if this was one.
    #[inline]
    fn fragment(&mut self, record: &mut Record, event: &ContentEvent<'_>) -> bool {
        if event.update != ContentUpdate::Append || self.stash.is_some() || !event.extra.is_empty() {
            return false;
        }
        let (Some(current), Some(id), ContentValue::Text(text)) = (self.current, &event.message, &event.value) else {
            return false;
        };
        let told = &self.messages[current];
        if told.id != *id {
            return false;
        }
        let Some((message, content)) = told.streaming_text(event.index) else { return false };
        record.push(message, content, text);
        true
    }

    /// The body ended, or the connection did: without a terminal response the turn failed (rule 10).
    pub fn end_of_body(&mut self, record: &mut Record) {
        if self.ended {
            return;
        }
        if let Some((end, error)) = self.foreign_end.take() {
            return self.finish(record, end, error);
        }
        let fault = Fault::new(FaultKind::UpstreamTruncated, "the agent broke off its answer");
        self.fail(record, &fault);
    }

    /// Something is in the way: the turn failed, what was told stays.
    pub fn fail(&mut self, record: &mut Record, fault: &Fault) {
        let error = RunError { code: fault.code().to_owned(), message: fault.message.clone() };
        self.finish(record, End::Failed, Some(error));
    }

    /// Somebody stopped it.
    pub fn cancel(&mut self, record: &mut Record) {
        self.finish(record, End::Canceled, None);
    }

    /// Closes whatever is open and ends the turn.
    fn finish(&mut self, record: &mut Record, end: End, error: Option<RunError>) {
        if self.ended {
            return;
        }
        self.settle_stash(record);
        let message_end = if end == End::Completed { End::Completed } else { End::Incomplete };
        for index in 0..self.messages.len() {
            // An announced message that never got anything leaves no trace.
            if !self.messages[index].finished && self.messages[index].has_something() {
                self.finish_message(record, index, MessageEnd::new(message_end));
            }
        }
        self.ended = true;
        record.finish_turn(end, error);
    }

    fn response(&mut self, record: &mut Record, event: &ResponseEvent<'_>) {
        let id = event.id.as_deref().filter(|id| !id.is_empty());
        let own = match (&self.response_id, id) {
            (Some(own), Some(id)) => own == id,
            (None, Some(id)) => {
                self.response_id = Some(id.to_owned());
                true
            }
            _ => true,
        };
        let end = event.end;
        let error = event.error.as_ref().map(|error| self.complained(error));
        if own {
            let extra = if self.turn_updated_at + event.extra.len() <= MAX_NOTED {
                to_extra(&event.extra)
            } else {
                Extra::new()
            };
            self.turn_updated_at += extra.len();
            record.update_turn(id, event.usage.as_ref().map(JsonRef::to_json), extra);
            self.awaits = event.awaits.or(self.awaits);
        }
        self.begun |= error.is_none();
        match (end, error) {
            (None, None) => {
                if own && event.started {
                    record.start_answer();
                }
            }
            // A complaint without a status is an end too.
            (None, Some(error)) if own => self.finish(record, End::Failed, Some(error)),
            (None, Some(error)) => {
                self.rejected = false;
                self.foreign_end = Some((End::Failed, Some(error)));
            }
            (Some(end), error) => {
                self.reconcile(record, &event.output, end, own);
                let error = match (end, error) {
                    (End::Failed | End::Rejected, None) => Some(RunError {
                        code: FaultKind::AgentFailed.code().to_owned(),
                        message: if end == End::Rejected { REJECTED } else { "the agent failed" }.to_owned(),
                    }),
                    // What completed well has nothing to complain about, whatever the field says.
                    (End::Completed, _) => None,
                    (_, error) => error,
                };
                if !own {
                    self.rejected = end == End::Rejected;
                    self.foreign_end = Some((end, error));
                    return;
                }
                match self.foreign_end.take() {
                    // The agent rejected the request itself, and the server around it ends as it always does.
                    Some((rejection, reason)) if self.rejected && end == End::Completed => {
                        self.finish(record, rejection, reason);
                    }
                    _ => self.finish(record, end, error),
                }
            }
        }
    }

    /// Compares what was told with the messages of a terminal response: it is authoritative for those that are in it,
    /// what is not in it stays (rule 8).
    fn reconcile(&mut self, record: &mut Record, output: &[MessageEvent<'_>], response_end: End, own: bool) {
        self.settle_stash(record);
        let mut comparison = Comparison::default();
        let known: Vec<Option<usize>> =
            output.iter().map(|event| event.id.as_deref().and_then(|id| self.by_id.get(id).copied())).collect();
        comparison.spoken_for.extend(known.iter().flatten().filter_map(|&index| self.messages[index].at));
        // Only the response itself ends messages that are still open; it comes once.
        let mut open: Vec<usize> = Vec::new();
        if own {
            let unfinished = (0..self.messages.len()).filter(|&index| {
                let told = &self.messages[index];
                !told.finished && told.at.is_some_and(|at| !comparison.spoken_for.contains(&at))
            });
            open.extend(unfinished.take(MAX_OPEN));
        }
        for (event, known) in output.iter().zip(known) {
            if event.kind == Some(MessageType::Heartbeat) {
                continue;
            }
            let broken_off = event.in_progress && response_end != End::Completed;
            let end = event.end.unwrap_or(if broken_off { End::Incomplete } else { End::Completed });
            if let Some(index) = known {
                if !self.messages[index].finished {
                    self.complete(record, index, event, end);
                }
                continue;
            }
            if let Some(at) = self.told.find(record, event, &mut comparison) {
                comparison.spoken_for.insert(at);
                continue;
            }
            let same = open.iter().position(|&index| {
                let at = self.messages[index].at;
                at.is_some_and(|at| same::says_the_same(&record.run().messages[at as usize], event))
            });
            let index = same.map_or_else(|| self.open(event), |place| open.remove(place));
            self.complete(record, index, event, end);
            if let Some(at) = self.messages[index].at {
                comparison.spoken_for.insert(at);
            }
        }
    }

    fn message(&mut self, record: &mut Record, event: &MessageEvent<'_>) {
        self.begun = true;
        let end = event.end;
        let known = match event.id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.by_id.get(id).copied(),
            // Without an id, an end is that of the open message; anything else begins one.
            None => self.current.filter(|&index| {
                let told = &self.messages[index];
                let fits = told.at.is_none() || event.kind.as_ref().is_none_or(|kind| *kind == told.kind);
                end.is_some() && fits && (!told.finished || event.contents.is_empty())
            }),
        };
        if event.kind == Some(MessageType::Heartbeat) && known.is_none() {
            self.heartbeats += 1;
            return;
        }
        record.start_answer();
        let known = known.filter(|&index| {
            let told = &self.messages[index];
            // An id that begins again after its end is another message; an end that comes twice is not.
            !told.finished || end.is_some()
        });
        if self.stash.is_some() && self.stash != known {
            self.settle_stash(record);
        }
        let index = match known {
            Some(index) if self.messages[index].finished => {
                let parts = if self.messages[index].closed_for_next { event.contents.as_slice() } else { &[] };
                if parts.iter().all(|part| self.says_nothing_new(record, index, part)) {
                    self.ignored += 1;
                    return;
                }
                // Its end says more than it was closed with.
                let more = self.open(event);
                self.messages[more].goes_on = Some(index);
                for (place, part) in parts.iter().enumerate() {
                    if !self.says_nothing_new(record, index, part) {
                        self.part(record, more, part, Some(to_u32(place)), true);
                    }
                }
                let end = end.unwrap_or(End::Completed);
                return self.finish_message(record, more, MessageEnd::new(end));
            }
            Some(index) => {
                let told = &mut self.messages[index];
                let held = told.held();
                told.announce(event);
                self.held = (self.held + told.held()).saturating_sub(held);
                index
            }
            None => {
                self.close_media(record);
                self.open(event)
            }
        };
        self.rejected = false;
        self.stash = None;
        self.current = Some(index);
        match end {
            Some(end) => self.complete(record, index, event, end),
            None => {
                for (place, part) in event.contents.iter().enumerate() {
                    self.part(record, index, part, Some(part.index.unwrap_or(to_u32(place))), false);
                }
                let told = &self.messages[index];
                if told.kind == MessageType::Error && (event.code.is_some() || event.text.is_some()) {
                    self.complete(record, index, event, End::Failed);
                } else {
                    self.tell(record, index);
                }
            }
        }
    }

    /// A message's end: it is authoritative. What is missing is told, what was told is not told again (rule 7).
    fn complete(&mut self, record: &mut Record, index: usize, event: &MessageEvent<'_>, end: End) {
        for (place, part) in event.contents.iter().enumerate() {
            if self.says_nothing_new(record, index, part) {
                continue;
            }
            let held = self.messages[index].slots.held();
            self.messages[index].take_final(record, part, to_u32(place));
            self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
            self.tell(record, index);
        }
        let error = event.error.as_ref().map(|error| self.read_error(error));
        let code = event.code.as_deref().map(str::to_owned).or_else(|| error.as_ref().map(|error| error.code.clone()));
        let code = code.map(|code| self.client_code(&code));
        let text = event.text.as_deref().map(|text| self.client_text(code.as_deref().unwrap_or(""), text));
        let message_end = MessageEnd {
            end,
            kind: None,
            code,
            message: text.or_else(|| error.map(|error| error.message)),
            usage: event.usage.as_ref().map(JsonRef::to_json),
            metadata: event.metadata.as_ref().map(JsonRef::to_json),
            extra: to_extra(&event.extra),
        };
        self.finish_message(record, index, message_end);
    }

    fn finish_message(&mut self, record: &mut Record, index: usize, mut end: MessageEnd) {
        self.announced(record, index);
        let told = &mut self.messages[index];
        told.finish_slots(record, &mut self.anew);
        let Some(at) = told.at else { return };
        let held = told.held() + told.slots.held();
        let announced = &record.run().messages[at as usize].announced;
        if *announced != told.kind {
            end.kind = Some(told.kind.clone());
        }
        if end.usage.is_none() {
            end.usage = told.usage.take();
        }
        if end.metadata.is_none() {
            end.metadata = told.metadata.take();
        }
        told.finished = true;
        told.slots = Slots::default();
        self.held = (self.held + told.held()).saturating_sub(held);
        record.finish_message(at, end);
        self.told.finished(at);
    }

    fn content(&mut self, record: &mut Record, event: &ContentEvent<'_>) {
        self.begun = true;
        record.start_answer();
        let known = match event.message.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.by_id.get(id).copied(),
            // Without a message's id it belongs to the last open one (rule 5).
            None => self.current.filter(|&index| !self.messages[index].finished),
        };
        if self.stash.is_some() && self.stash != known {
            self.settle_stash(record);
        }
        let complete = event.update == ContentUpdate::Final;
        // What was closed because nobody else did goes on as a message of its own, if it says anything new.
        if known.is_some_and(|index| self.says_nothing_new(record, index, event)) {
            self.ignored += 1;
            return;
        }
        let closed = known.filter(|&index| self.messages[index].closed_for_next);
        let known = known.filter(|_| closed.is_none());
        self.rejected = false;
        let index = match known {
            Some(index) => index,
            None => {
                self.close_media(record);
                let index = self.open_for(event);
                self.messages[index].goes_on = closed;
                if complete && event.content_type() == ContentType::Data {
                    self.stash = Some(index);
                }
                index
            }
        };
        if self.messages[index].finished {
            self.ignored += 1;
            return;
        }
        self.current = Some(index);
        let slot = event.index.or_else(|| self.messages[index].slots.last_index());
        self.part(record, index, event, slot, complete);
    }

    /// One content, whole or a fragment, for a slot of a message.
    fn part(&mut self, record: &mut Record, index: usize, event: &ContentEvent<'_>, slot: Option<u32>, complete: bool) {
        let held = self.messages[index].slots.held();
        self.messages[index].take(record, event, slot.unwrap_or(0), complete);
        if self.messages[index].ends_with_open_media() {
            self.unclosed = Some(index);
        }
        self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
        if self.stash != Some(index) {
            self.tell(record, index);
        }
    }

    /// Tells whatever of a message can be told now.
    fn tell(&mut self, record: &mut Record, index: usize) {
        if self.messages[index].slots.is_empty() {
            return;
        }
        self.announced(record, index);
        let held = self.messages[index].slots.held();
        self.messages[index].tell(record, &mut self.anew);
        self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
    }

    /// Sees to it that a message has begun.
    fn announced(&mut self, record: &mut Record, index: usize) {
        let told = &mut self.messages[index];
        if told.at.is_some() {
            return;
        }
        let id = self.names.unique(record, &told.id);
        let mut announced = MessageStart::new(id, told.kind.clone(), told.role.clone());
        announced.metadata = told.metadata.clone();
        announced.extra = std::mem::take(&mut told.extra);
        record.start_answer();
        told.at = Some(record.start_message(announced));
    }

    /// Another message begins: one that ends with a picture, sound, film or file that nobody has ended is over. Held open
    /// to the end of the turn, it would hold back the others where one message is told at a time.
    fn close_media(&mut self, record: &mut Record) {
        let Some(index) = self.unclosed.take() else { return };
        let told = &self.messages[index];
        // One whose own frame is still to come may turn out to be something else.
        if !told.finished && told.announced && told.ends_with_open_media() {
            self.finish_message(record, index, MessageEnd::new(End::Completed));
            self.messages[index].closed_for_next = true;
        }
    }

    /// True for a content that was told of a message that was closed for the next one, or of one that goes on from it.
    fn says_nothing_new(&self, record: &Record, index: usize, event: &ContentEvent<'_>) -> bool {
        let told = &self.messages[index];
        let first = if told.closed_for_next { Some(index) } else { told.goes_on };
        // A fragment of a text is new whatever was said before.
        if first.is_none() || (event.is_delta() && !is_media(&event.content_type())) {
            return false;
        }
        let body = event.to_content().body;
        let closed = std::iter::successors(first, |&index| self.messages[index].goes_on).take(MAX_OPEN);
        let mut slots = closed
            .filter_map(|index| self.messages[index].at)
            .flat_map(|at| record.run().messages[at as usize].slots.iter().take(MAX_OPEN));
        slots.any(|slot| same::same_body(&slot.content().body, &body))
    }

    /// A message that was not known, by its own event.
    fn open(&mut self, event: &MessageEvent<'_>) -> usize {
        let mut told = Told::new(event.id.as_deref().unwrap_or(""));
        told.announce(event);
        self.add(told)
    }

    /// A message that was not known, by its first content.
    fn open_for(&mut self, event: &ContentEvent<'_>) -> usize {
        let mut told = Told::new(event.message.as_deref().unwrap_or(""));
        told.guess(event);
        self.add(told)
    }

    fn add(&mut self, told: Told) -> usize {
        let index = self.messages.len();
        if !told.id.is_empty() {
            self.by_id.insert(told.id.clone(), index);
        }

        self.held += told.held();
        reserve_one(&mut self.messages);
        self.messages.push(told);
        self.current = Some(index);
        index
    }

    fn settle_stash(&mut self, record: &mut Record) {
        if let Some(index) = self.stash.take() {
            self.tell(record, index);
        }
    }
}

/// Code and message of `{"code","message"}`, a bare text, or whatever else stands where an error should.
fn code_and_message(raw: &RawValue) -> (String, String) {
    let text = Json::from_raw(raw);
    let (code, message) = if let Some(fields) = text.decode::<Extra>() {
        let word = |name: &str| fields.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty());
        (word("code"), word("message").or_else(|| word("detail")).or_else(|| word("error")))
    } else {
        (None, text.decode::<String>())
    };
    let message = message.unwrap_or_else(|| "the agent failed".to_owned());
    // Servers of the 0.1 line put the whole text where the code belongs.
    let code = code.filter(|code| *code != message && code.len() <= 64 && !code.contains(char::is_whitespace));
    let code = code.unwrap_or_else(|| busy_or(&message, FaultKind::AgentFailed).to_owned());
    (code, message)
}

/// The runtime tells of a busy session in words only (section 10).
fn busy_or(message: &str, kind: FaultKind) -> &'static str {
    let busy = message.starts_with("Task ") && message.contains("already in RUNNING state");
    if busy { FaultKind::Busy.code() } else { kind.code() }
}

fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// The role a message of a type has where the agent names none.
fn default_role(kind: &MessageType) -> Role {
    match kind {
        kind if kind.is_output() => Role::Tool,
        MessageType::McpApprovalResponse => Role::User,
        _ => Role::Assistant,
    }
}
