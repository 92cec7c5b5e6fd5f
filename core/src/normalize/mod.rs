//! Repairs the answers of real upstreams: turns the events of connectors into events that keep the grammar.
//!
//! The rules are those of docs/protocols/agent-api.md#repairs. If an upstream deviates from the specification, no
//! content is lost, no content is emitted twice, and every message, content and turn that begins also ends. `slots`
//! handles the contents of one message, `slot` one of them, `merge` fragments of data. `same` finds messages of the
//! final output that were emitted under another id, and `names` chooses the ids of messages. `protocol_events` and
//! `room` limit events for which the model has no type. `errors` reads the errors that agents report.
//!
//! Texts: every fragment that arrives before the end of its message is emitted once, in order. A complete text that
//! contradicts the emitted text replaces it: immediately while a budget of such replacements lasts, later when the text
//! is final. An event that arrives after the end of its message or turn is not emitted ([`Normalizer::ignored`] counts
//! it).
//!
//! The time is proportional to the received bytes, and all buffered data counts towards the limit.
//!
//! Not here: reading frames (the connectors), keeping the grammar ([`crate::run::Record`] does), waiting and giving
//! up on a silent upstream (the engine).

mod errors;
mod merge;
mod names;
mod protocol_events;
mod room;
mod same;
mod slot;
mod slots;

use std::borrow::Cow;
use std::collections::HashMap;

use self::errors::ErrorFilter;
use self::names::Names;
use self::protocol_events::ProtocolEvents;
use self::same::Comparison;
use self::slot::is_media;
use self::slots::{MessageState, Slots};
use crate::agent_event::{
    AgentError, AgentEvent, Awaits, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
    to_extra,
};
use crate::event::End;
use crate::fault::{Fault, FaultKind};
use crate::json::Extra;
use crate::model::{ContentType, MessageType};
use crate::run::{FailureCause, MessageEnd, MessageStart, Record, RunError, reserve_one};

/// Number of messages without an end that are compared with messages of the final output that have other ids.
const MAX_OPEN: usize = 16;
/// Maximum number of unknown fields of responses that are stored per turn.
const MAX_NOTED: usize = 256;

/// The limit of a record, divided by this, may be spent on replacing texts before they are final.
const REPLACE_DIVISOR: usize = 16;

/// The error text of a turn that the agent rejected without a reason.
pub const REJECTED: &str = "the agent rejected the request";

/// The effect of an event on the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The turn continues.
    More,
    /// The turn has ended; later events are ignored.
    Ended,
}

/// Normalizes the events of one turn of a run.
#[derive(Debug)]
pub struct Normalizer {
    messages: Vec<MessageState>,
    /// The index in `messages` by the upstream's id. The latest one if an id is reused.
    by_id: HashMap<String, usize>,
    /// The message of the last content, which is nearly always the message of the next one too.
    current: Option<usize>,
    /// A complete data content of a message that was not announced. It waits for the message's own event, which has the
    /// message's type and nearly always comes next (docs/protocols/agent-api.md#example-unannounced-call).
    stash: Option<usize>,
    response_id: Option<String>,
    /// A message whose last content is an image, audio, video or file without an end. Some agents never end them.
    unclosed: Option<usize>,
    /// The contents of finished messages, for comparing them with the final output.
    emitted: same::FinishedMessages,
    names: Names,
    /// Number of unknown fields of responses that are stored so far.
    noted_fields: usize,
    /// The end of a response with another id (docs/protocols/agent-api.md#repair-13): it applies if no other end
    /// arrives.
    foreign_end: Option<(End, Option<RunError>)>,
    /// True if that end is a rejection and no event arrived since.
    rejected: bool,
    /// The most memory a record may take, in bytes.
    limit: usize,
    /// Bytes of buffered data, which count towards the limit too.
    held: usize,
    /// Bytes of replacements that may still be emitted before they are final.
    replace_budget: usize,
    ended: bool,
    begun: bool,
    ignored: u64,
    heartbeats: u64,
    complaint: Option<String>,
    awaits: Option<Awaits>,
    /// True if the run can wait for a further turn.
    may_wait: bool,
    protocol_events: ProtocolEvents,
    mask: Mask,
}

/// Masks known secrets in a text of an upstream.
pub type Mask = fn(&str) -> Cow<'_, str>;

impl Normalizer {
    /// Creates the normalizer of a turn whose record may grow to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            messages: Vec::new(),
            by_id: HashMap::new(),
            current: None,
            stash: None,
            unclosed: None,
            response_id: None,
            emitted: same::FinishedMessages::default(),
            names: Names::default(),
            noted_fields: 0,
            foreign_end: None,
            rejected: false,
            limit,
            held: 0,
            replace_budget: limit / REPLACE_DIVISOR,
            ended: false,
            begun: false,
            ignored: 0,
            heartbeats: 0,
            complaint: None,
            awaits: None,
            may_wait: true,
            protocol_events: ProtocolEvents::new(limit),
            mask: |text| Cow::Borrowed(text),
        }
    }

    /// Sets the mask for error texts of the upstream, applied before anything else.
    #[must_use]
    pub fn masking(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// Sets that the run ends with this turn: it does not wait, even if the agent reports that it does.
    #[must_use]
    pub const fn ending_the_run(mut self) -> Self {
        self.may_wait = false;
        self
    }

    /// True once the turn has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// True once the upstream has sent anything but an error.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// The upstream's last error text, for the log and operators: without secrets, at most 512 bytes and an ellipsis.
    /// `None`: the upstream reported no error.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// `end`: the end of the turn as the agent reports it.
    fn report_error(&mut self, error: &AgentError<'_>, end: Option<End>) -> RunError {
        let filter = ErrorFilter(self.mask);
        self.complaint = Some(filter.log_text(error));
        filter.end(error, end)
    }

    /// The number of heartbeat messages. They are not part of the run.
    #[must_use]
    pub const fn heartbeats(&self) -> u64 {
        self.heartbeats
    }

    /// The number of events without an effect.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Applies one event of the agent to the record.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTooLarge`] if the record exceeds its limit. The caller still has to end the turn.
    pub fn emit(&mut self, record: &mut Record, event: &AgentEvent<'_>) -> Result<Progress, Fault> {
        if self.ended {
            self.ignored += 1;
            return Ok(Progress::Ended);
        }
        match event {
            AgentEvent::Content(content) => {
                if !self.fragment(record, content) && self.reserve_content(record, content) {
                    self.content(record, content);
                }
            }
            AgentEvent::Message(message) => {
                if self.reserve_message(record, message) {
                    self.message(record, message);
                }
            }
            AgentEvent::Response(response) => self.response(record, response),
            AgentEvent::Error(error) => {
                let error = self.report_error(error, Some(End::Failed));
                self.finish(record, End::Failed, Some(error));
            }
            AgentEvent::KeepAlive => self.heartbeats += 1,
            AgentEvent::Ignored => self.ignored += 1,
        }
        // The last event may exceed the limit, since nothing follows it.
        if !self.ended && record.size() + self.held > self.limit {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the answer is larger than a run may be")
                .with_detail(format!("more than {} bytes", self.limit)));
        }
        Ok(if self.ended { Progress::Ended } else { Progress::More })
    }

    /// The hot path: one more fragment of the open text. False: the event is another one.
    #[inline]
    fn fragment(&mut self, record: &mut Record, event: &ContentEvent<'_>) -> bool {
        if event.update != ContentUpdate::Append || self.stash.is_some() || !event.extra.is_empty() {
            return false;
        }
        let (Some(current), Some(id), ContentValue::Text(text)) = (self.current, &event.message, &event.value) else {
            return false;
        };
        let state = &self.messages[current];
        if state.id != *id {
            return false;
        }
        let Some((message, content)) = state.streaming_text(event.index) else { return false };
        self.rejected = false;
        record.push(message, content, text);
        true
    }

    /// Handles the end of the body or the connection. Without a terminal response the turn has failed
    /// (docs/protocols/agent-api.md#repair-10).
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

    /// Ends the turn as failed. Emitted content stays.
    pub fn fail(&mut self, record: &mut Record, fault: &Fault) {
        let error = RunError { code: fault.code().to_owned(), message: fault.message.clone() };
        self.finish_as(record, End::Failed, Some(error), FailureCause::from_fault(fault));
    }

    /// Ends the turn as canceled. Emitted content stays.
    pub fn cancel(&mut self, record: &mut Record) {
        self.finish(record, End::Canceled, None);
    }

    fn finish(&mut self, record: &mut Record, end: End, error: Option<RunError>) {
        self.finish_as(record, end, error, FailureCause::default());
    }

    /// Closes whatever is open and ends the turn. A turn without an error has no cause.
    fn finish_as(&mut self, record: &mut Record, end: End, error: Option<RunError>, mut cause: FailureCause) {
        if self.ended {
            return;
        }
        self.settle_stash(record);
        let message_end = if end == End::Completed { End::Completed } else { End::Incomplete };
        for index in 0..self.messages.len() {
            // A message that was announced but never received a content is left out.
            if !self.messages[index].finished && self.messages[index].has_something() {
                self.finish_message(record, index, MessageEnd::new(message_end));
            }
        }
        self.ended = true;
        if error.is_some() {
            if let Some(complaint) = &self.complaint {
                cause = cause.with_agent_error(complaint);
            }
            record.set_cause(cause);
        }
        if let Some(awaits) = self.awaits.filter(|_| self.may_wait) {
            record.set_awaits(awaits);
        }
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
        let error = event.error.as_ref().map(|error| self.report_error(error, end));
        if own {
            let extra =
                if self.noted_fields + event.extra.len() <= MAX_NOTED { to_extra(&event.extra) } else { Extra::new() };
            self.noted_fields += extra.len();
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
            // An error without a status is an end too.
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
                    // A completed response has no error, independent of the field.
                    (End::Completed, _) => None,
                    (_, error) => error,
                };
                if !own {
                    self.rejected = end == End::Rejected;
                    self.foreign_end = Some((end, error));
                    return;
                }
                match self.foreign_end.take() {
                    // The agent rejected the request, and its server completed the response as it always does.
                    Some((rejection, reason)) if self.rejected && end == End::Completed => {
                        self.finish(record, rejection, reason);
                    }
                    _ => self.finish(record, end, error),
                }
            }
        }
    }

    /// Compares the emitted messages with those of a terminal response, which is authoritative for the messages in it;
    /// others stay (docs/protocols/agent-api.md#repair-8).
    fn reconcile(&mut self, record: &mut Record, output: &[MessageEvent<'_>], response_end: End, own: bool) {
        self.settle_stash(record);
        let mut comparison = Comparison::default();
        let known: Vec<Option<usize>> =
            output.iter().map(|event| event.id.as_deref().and_then(|id| self.by_id.get(id).copied())).collect();
        comparison.taken.extend(known.iter().flatten().filter_map(|&index| self.messages[index].at));
        // Only the response itself ends messages that are still open; it arrives once.
        let mut open: Vec<usize> = Vec::new();
        if own {
            let unfinished = (0..self.messages.len()).filter(|&index| {
                let state = &self.messages[index];
                !state.finished && state.at.is_some_and(|at| !comparison.taken.contains(&at))
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
            if let Some(at) = self.emitted.find(record, event, &mut comparison) {
                comparison.taken.insert(at);
                continue;
            }
            if !self.reserve_message(record, event) {
                continue;
            }
            let same = open.iter().position(|&index| {
                let at = self.messages[index].at;
                at.is_some_and(|at| same::is_same(&record.run().messages[at as usize], event))
            });
            let index = same.map_or_else(|| self.open(event), |place| open.remove(place));
            self.complete(record, index, event, end);
            if let Some(at) = self.messages[index].at {
                comparison.taken.insert(at);
            }
        }
    }

    fn message(&mut self, record: &mut Record, event: &MessageEvent<'_>) {
        self.begun = true;
        let end = event.end;
        let known = match event.id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.by_id.get(id).copied(),
            // Without an id, an end belongs to the open message; anything else begins a message.
            None => self.current.filter(|&index| {
                let state = &self.messages[index];
                let fits = state.at.is_none() || event.kind.as_ref().is_none_or(|kind| *kind == state.kind);
                end.is_some() && fits && (!state.finished || event.contents.is_empty())
            }),
        };
        if event.kind == Some(MessageType::Heartbeat) && known.is_none() {
            self.heartbeats += 1;
            return;
        }
        record.start_answer();
        let known = known.filter(|&index| {
            let state = &self.messages[index];
            // An id that begins again after its end is another message; a repeated end is not.
            !state.finished || end.is_some()
        });
        if self.stash.is_some() && self.stash != known {
            self.settle_stash(record);
        }
        let index = match known {
            Some(index) if self.messages[index].finished => {
                let parts = if self.messages[index].closed_for_next { event.contents.as_slice() } else { &[] };
                if parts.iter().all(|part| self.is_repeated(record, index, part)) {
                    self.ignored += 1;
                    return;
                }
                // The end contains more contents than the message had when it was closed.
                let more = self.open(event);
                self.messages[more].continues = Some(index);
                for (place, part) in parts.iter().enumerate() {
                    if !self.is_repeated(record, index, part) {
                        self.part(record, more, part, Some(to_u32(place)), true);
                    }
                }
                let end = end.unwrap_or(End::Completed);
                return self.finish_message(record, more, MessageEnd::new(end));
            }
            Some(index) => {
                let state = &mut self.messages[index];
                let held = state.held();
                state.announce(event);
                self.held = (self.held + state.held()).saturating_sub(held);
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
                let state = &self.messages[index];
                if state.kind == MessageType::Error && (event.code.is_some() || event.text.is_some()) {
                    self.complete(record, index, event, End::Failed);
                } else {
                    self.emit_message(record, index);
                }
            }
        }
    }

    /// The end of a message is authoritative: missing content is emitted, other content is not repeated
    /// (docs/protocols/agent-api.md#repair-7).
    fn complete(&mut self, record: &mut Record, index: usize, event: &MessageEvent<'_>, end: End) {
        for (place, part) in event.contents.iter().enumerate() {
            if self.is_repeated(record, index, part) {
                continue;
            }
            let held = self.messages[index].slots.held();
            self.messages[index].take_final(record, part, to_u32(place));
            self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
            self.emit_message(record, index);
        }
        let filter = ErrorFilter(self.mask);
        let error = event.error.as_ref().map(|error| filter.error(error));
        let code = event.code.as_deref().map(str::to_owned).or_else(|| error.as_ref().map(|error| error.code.clone()));
        let code = code.map(|code| filter.code(&code));
        let text = event.text.as_deref().map(|text| filter.text(code.as_deref().unwrap_or(""), text));
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
        let state = &mut self.messages[index];
        state.finish_slots(record, &mut self.replace_budget);
        let Some(at) = state.at else { return };
        let held = state.held() + state.slots.held();
        let announced = &record.run().messages[at as usize].announced;
        if *announced != state.kind {
            end.kind = Some(state.kind.clone());
        }
        if end.usage.is_none() {
            end.usage = state.usage.take();
        }
        if end.metadata.is_none() {
            end.metadata = state.metadata.take();
        }
        state.finished = true;
        state.slots = Slots::default();
        self.held = (self.held + state.held()).saturating_sub(held);
        record.finish_message(at, end);
        self.emitted.finished(at);
    }

    fn content(&mut self, record: &mut Record, event: &ContentEvent<'_>) {
        self.begun = true;
        record.start_answer();
        let known = match event.message.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => self.by_id.get(id).copied(),
            // Without a message's id it belongs to the last open one (docs/protocols/agent-api.md#repair-5).
            None => self.current.filter(|&index| !self.messages[index].finished),
        };
        if self.stash.is_some() && self.stash != known {
            self.settle_stash(record);
        }
        let complete = event.update == ContentUpdate::Final;
        // A message that was closed for the next one continues as a message of its own, if the content is new.
        if known.is_some_and(|index| self.is_repeated(record, index, event)) {
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
                self.messages[index].continues = closed;
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

    /// Adds a content, complete or a fragment, to a slot of a message.
    fn part(&mut self, record: &mut Record, index: usize, event: &ContentEvent<'_>, slot: Option<u32>, complete: bool) {
        let held = self.messages[index].slots.held();
        self.messages[index].take(record, event, slot.unwrap_or(0), complete);
        if self.messages[index].ends_with_open_media() {
            self.unclosed = Some(index);
        }
        self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
        if self.stash != Some(index) {
            self.emit_message(record, index);
        }
    }

    /// Emits the part of a message that can be emitted now.
    fn emit_message(&mut self, record: &mut Record, index: usize) {
        if self.messages[index].slots.is_empty() {
            return;
        }
        self.announced(record, index);
        let held = self.messages[index].slots.held();
        self.messages[index].emit(record, &mut self.replace_budget);
        self.held = (self.held + self.messages[index].slots.held()).saturating_sub(held);
    }

    /// Begins a message in the record unless it has begun.
    fn announced(&mut self, record: &mut Record, index: usize) {
        let state = &mut self.messages[index];
        if state.at.is_some() {
            return;
        }
        let id = self.names.unique(record, &state.id);
        let mut announced = MessageStart::new(id, state.kind.clone(), state.role.clone());
        announced.metadata = state.metadata.clone();
        announced.extra = std::mem::take(&mut state.extra);
        record.start_answer();
        state.at = Some(record.start_message(announced));
    }

    /// Another message begins, so a message that ends with unfinished media is closed. Left open until the end of the
    /// turn, it would delay the other messages in protocols that send one message at a time.
    fn close_media(&mut self, record: &mut Record) {
        let Some(index) = self.unclosed.take() else { return };
        let state = &self.messages[index];
        // A message whose own event is still to come may turn out to be something else.
        if !state.finished && state.announced && state.ends_with_open_media() {
            self.finish_message(record, index, MessageEnd::new(End::Completed));
            self.messages[index].closed_for_next = true;
        }
    }

    /// True for a content that was emitted already, in a message that was closed for the next one or in its
    /// continuation.
    fn is_repeated(&self, record: &Record, index: usize, event: &ContentEvent<'_>) -> bool {
        let state = &self.messages[index];
        let first = if state.closed_for_next { Some(index) } else { state.continues };
        // A fragment of a text is always new.
        if first.is_none() || (event.is_delta() && !is_media(&event.content_type())) {
            return false;
        }
        let body = event.to_content().body;
        let closed = std::iter::successors(first, |&index| self.messages[index].continues).take(MAX_OPEN);
        let mut slots = closed
            .filter_map(|index| self.messages[index].at)
            .flat_map(|at| record.run().messages[at as usize].slots.iter().take(MAX_OPEN));
        slots.any(|slot| same::is_content(slot, &body))
    }

    /// Opens an unknown message by its own event.
    fn open(&mut self, event: &MessageEvent<'_>) -> usize {
        let mut state = MessageState::new(event.id.as_deref().unwrap_or(""));
        state.announce(event);
        self.add(state)
    }

    /// Opens an unknown message by its first content.
    fn open_for(&mut self, event: &ContentEvent<'_>) -> usize {
        let mut state = MessageState::new(event.message.as_deref().unwrap_or(""));
        state.guess(event);
        self.add(state)
    }

    fn add(&mut self, state: MessageState) -> usize {
        let index = self.messages.len();
        if !state.id.is_empty() {
            self.by_id.insert(state.id.clone(), index);
        }

        self.held += state.held();
        reserve_one(&mut self.messages);
        self.messages.push(state);
        self.current = Some(index);
        index
    }

    fn settle_stash(&mut self, record: &mut Record) {
        if let Some(index) = self.stash.take() {
            self.emit_message(record, index);
        }
    }
}

fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
