//! The contents of one message while they arrive: the open content, the waiting ones, and the buffered data.
//!
//! Contents of one message are emitted one after the other. A text is closed as soon as another content has something
//! to emit; a call stays open until its arguments are complete, and contents that arrive meanwhile wait.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::same;
use super::slot::{CallData, ContentState};
use crate::agent_event::{ContentEvent, ContentValue, MessageEvent, empty_body, to_extra};
use crate::json::{Extra, Json};
use crate::model::{ContentType, MessageType, Role};
use crate::run::{Record, reserve_one};

/// A late content is compared with at most this many earlier contents of its index.
const MAX_PIECES: usize = 64;

/// A message while it arrives.
#[derive(Debug)]
pub(super) struct MessageState {
    /// The upstream's id. Empty if it gave none.
    pub(super) id: String,
    pub(super) kind: MessageType,
    pub(super) role: Role,
    pub(super) metadata: Option<Json>,
    pub(super) usage: Option<Json>,
    pub(super) extra: Extra,
    /// Its index in the run, once it has begun there.
    pub(super) at: Option<u32>,
    pub(super) finished: bool,
    /// True if the message's own event has arrived.
    pub(super) announced: bool,
    /// True if the message was closed because another one began, not by the upstream.
    pub(super) closed_for_next: bool,
    /// The message of the same id that was closed this way and that this one continues.
    pub(super) continues: Option<usize>,
    pub(super) slots: Slots,
}

impl MessageState {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind: MessageType::Message,
            role: Role::Assistant,
            metadata: None,
            usage: None,
            extra: Extra::new(),
            at: None,
            finished: false,
            announced: false,
            closed_for_next: false,
            continues: None,
            slots: Slots::default(),
        }
    }

    /// Applies the message's own event. A message that has begun keeps its type (docs/protocols/agent-api.md#repair-6).
    pub(super) fn announce(&mut self, event: &MessageEvent<'_>) {
        self.announced = true;
        if let Some(kind) = &event.kind {
            self.kind = kind.clone();
        }
        if self.at.is_none() {
            self.role = event.role.clone().unwrap_or_else(|| default_role(&self.kind));
            self.extra = to_extra(&event.extra);
        }

        if let Some(metadata) = &event.metadata {
            self.metadata = Some(metadata.to_json());
        }
        if let Some(usage) = &event.usage {
            self.usage = Some(usage.to_json());
        }
    }

    /// Derives the type of a message from its first content (docs/protocols/agent-api.md#repair-6).
    pub(super) fn guess(&mut self, event: &ContentEvent<'_>) {
        let fields = match &event.value {
            ContentValue::Call(_) => {
                self.kind = MessageType::PluginCall;
                return;
            }
            ContentValue::Data(Some(raw)) => Json::from_raw(raw).decode::<Extra>().unwrap_or_default(),
            ContentValue::OwnedData(json) => json.decode::<Extra>().unwrap_or_default(),
            _ => return,
        };

        if fields.get("call_id").is_some() {
            if fields.get("output").is_some() {
                self.kind = MessageType::PluginCallOutput;
                self.role = Role::Tool;
            } else if fields.get("arguments").is_some() {
                self.kind = MessageType::PluginCall;
            }
        }
    }

    /// True if the message has begun or has contents.
    pub(super) fn has_something(&self) -> bool {
        self.at.is_some() || !self.slots.is_empty()
    }

    /// The approximate memory of the message without its contents, in bytes. The id counts twice, for the table of ids.
    pub(super) fn held(&self) -> usize {
        let kept = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
        size_of::<Self>() + 2 * self.id.len() + kept(&self.metadata) + kept(&self.usage) + self.extra.size()
    }

    /// Message and content of the open text if this fragment certainly continues it.
    #[inline]
    pub(super) fn streaming_text(&self, index: Option<u32>) -> Option<(u32, u32)> {
        let slot = self.slots.open.map(|open| &self.slots.all[open])?;
        let same = slot.kind == ContentType::Text
            && self.kind != MessageType::ProtocolEvent
            && slot.snapshot.is_none()
            && !slot.complete
            && index.is_none_or(|index| index == slot.index);
        same.then_some((self.at?, slot.at?))
    }

    /// Adds a content, complete or a fragment.
    pub(super) fn take(&mut self, record: &Record, event: &ContentEvent<'_>, index: u32, complete: bool) {
        let kind = event.content_type();
        let latest = self.slots.latest(index, &kind);
        // Parsed once, for every use below.
        let call = if self.has_calls(record) && kind == ContentType::Data { CallData::from_event(event) } else { None };
        let place = if self.has_calls(record) && kind == ContentType::Data {
            let call_id = call.as_ref().map_or("", |call| &call.part.call_id);
            self.place_of_call(record, call_id, index, latest)
        } else {
            let fragment = event.is_delta() && !complete;
            let same = latest.and_then(|latest| self.place_of_value(record, event, latest, fragment));
            same.unwrap_or_else(|| {
                if let Some(latest) = latest {
                    self.slots.change(latest, |slot| slot.complete = true);
                }
                self.slots.add(record, self.at, index, kind)
            })
        };
        self.slots.all[place].placed |= event.index.is_some();
        self.take_at(record, event, call.as_ref(), place, complete);
    }

    /// True if its data contents are bodies of calls: the announced type counts, even if the upstream changes it later.
    fn has_calls(&self, record: &Record) -> bool {
        let announced = self.at.map(|at| &record.run().messages[at as usize].announced);
        announced.unwrap_or(&self.kind).is_call()
    }

    /// Adds a content of the finished message, which may lack an index.
    pub(super) fn take_final(&mut self, record: &Record, event: &ContentEvent<'_>, place: u32) {
        let kind = event.content_type();
        let is_text = matches!(kind, ContentType::Text | ContentType::Refusal);
        let is_call = self.has_calls(record) && kind == ContentType::Data;
        // An index that was used before is ignored.
        let index = event.index.filter(|&index| !self.slots.was_reviewed(index, &kind));
        if !is_text && !is_call {
            let known = index.and_then(|index| self.slots.latest(index, &kind));
            match known.and_then(|latest| self.place_of_value(record, event, latest, false)) {
                Some(place) => self.slots.review.matched.insert(place),
                None => return self.take_value(record, event, index, place),
            };
        }
        let text = event.as_text();
        let next = self.slots.next_place(&kind, event.index.is_some());
        let next = next.filter(|&next| !is_text || self.agrees(record, next, text));
        let index = self.slots.review(event.index, place, next, &kind);
        self.take(record, event, index, true);
    }

    /// Adds a value of the finished message without a usable index: it belongs to the content with the same value.
    fn take_value(&mut self, record: &Record, event: &ContentEvent<'_>, index: Option<u32>, place: u32) {
        let kind = event.content_type();
        let body = event.to_content().body;
        if self.slots.review.by_value.is_none() {
            self.slots.review.by_value = Some(self.digests(record));
        }
        let table = self.slots.review.by_value.get_or_insert_default();
        let candidates = table.entry(same::of_body(&body)).or_default();
        while let Some(candidate) = candidates.pop_front() {
            if self.slots.review.matched.insert(candidate) {
                let slot = &self.slots.all[candidate];
                if !slot.finished && slot.kind == kind {
                    self.slots.change(candidate, |slot| slot.complete = true);
                }
                return;
            }
        }
        // No content has this value: it completes one that is still growing, or it is new.
        let unfinished = |slots: &Slots, place: usize| {
            let slot = &slots.all[place];
            !slot.finished && !slots.review.matched.contains(&place) && !slot.is_another(event, false)
        };
        let own = index.unwrap_or(place);
        let known = self.slots.latest(own, &kind).filter(|&place| unfinished(&self.slots, place));
        let next = known
            .or_else(|| self.slots.next_value(&kind, index.is_some()).filter(|&next| unfinished(&self.slots, next)));
        let place = next.unwrap_or_else(|| {
            let taken = self.slots.latest(own, &kind).is_some();
            let index = if taken { self.slots.review.next_index } else { own };
            self.slots.add(record, self.at, index, kind.clone())
        });
        self.slots.review.matched.insert(place);
        self.slots.review.seen.insert((self.slots.all[place].index, kind));
        let call = if self.has_calls(record) && event.content_type() == ContentType::Data {
            CallData::from_event(event)
        } else {
            None
        };
        self.take_at(record, event, call.as_ref(), place, true);
    }

    /// The contents received so far, by the digests of their values.
    fn digests(&mut self, record: &Record) -> HashMap<u64, VecDeque<usize>> {
        let emitted = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let mut digests: HashMap<u64, VecDeque<usize>> = HashMap::new();
        for (place, slot) in self.slots.all.iter_mut().enumerate() {
            let digest = match slot.at.and_then(|at| emitted.get(at as usize)?.value.as_ref()) {
                Some(value) => Some(same::of_body(&value.body)),
                None => slot.value().map(same::of_body),
            };
            if let Some(digest) = digest {
                digests.entry(digest).or_default().push_back(place);
            }
        }
        digests
    }

    /// True if a complete text continues the received part of a content.
    fn agrees(&self, record: &Record, place: usize, text: &str) -> bool {
        let slot = &self.slots.all[place];
        let emitted = if self.at.is_some() { self.beyond(record, place, text) } else { Some(text) };
        match (&slot.snapshot, emitted) {
            (Some(snapshot), _) => text.starts_with(snapshot.as_str()),
            (None, Some(rest)) => rest.starts_with(slot.waiting.as_str()),
            (None, None) => false,
        }
    }

    /// The content that an event is about: the latest of the index, or an older one with this value. `None` for another
    /// image, audio, video or file than the received ones: it is a new content, and the one before is over.
    fn place_of_value(
        &self,
        record: &Record,
        event: &ContentEvent<'_>,
        latest: usize,
        fragment: bool,
    ) -> Option<usize> {
        if !self.slots.all[latest].is_another(event, fragment) {
            return Some(latest);
        }
        let body = event.to_content().body;
        let emitted = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let is_equal = |place: &usize| {
            let slot = &self.slots.all[*place];
            let final_value = slot.at.and_then(|at| emitted.get(at as usize)?.value.as_ref());
            final_value.map(|value| &value.body).or(slot.latest_value()).is_some_and(|had| same::same_body(had, &body))
        };
        std::iter::successors(Some(latest), |&place| self.slots.all[place].before).take(MAX_PIECES).find(is_equal)
    }

    /// True if the last content is an image, audio, video or file without an end.
    pub(super) fn ends_with_open_media(&self) -> bool {
        self.slots.all.last().is_some_and(|slot| slot.is_media() && !slot.complete && !slot.finished)
    }

    /// The content that a call's body belongs to: calls are identified by their id, whatever their index.
    fn place_of_call(&mut self, record: &Record, call_id: &str, index: u32, latest: Option<usize>) -> usize {
        if let Some(&place) = self.slots.calls.get(call_id) {
            return place;
        }
        let other = |place: usize| {
            let head = self.slots.all[place].call.as_ref();
            !call_id.is_empty() && head.is_some_and(|head| !head.call_id.is_empty())
        };
        let place = match latest {
            Some(place) if other(place) => {
                // The body of another call at the same index: the earlier call is over.
                if !self.slots.all[place].finished {
                    self.slots.change(place, |slot| slot.complete = true);
                }
                self.slots.add(record, self.at, index, ContentType::Data)
            }
            Some(place) => place,
            None => self.slots.add(record, self.at, index, ContentType::Data),
        };
        if !call_id.is_empty() {
            self.slots.calls.insert(call_id.to_owned(), place);
        }
        place
    }

    fn take_at(
        &mut self,
        record: &Record,
        event: &ContentEvent<'_>,
        call: Option<&CallData<'_>>,
        place: usize,
        complete: bool,
    ) {
        let slot = &self.slots.all[place];
        let fragment = event.is_delta() && !complete;
        if slot.finished {
            return self.take_late(record, event, place, fragment, complete);
        }
        let is_call = self.has_calls(record) && slot.kind == ContentType::Data;
        let whole = event.as_text();
        let whole = match slot.before {
            // The part that earlier contents emitted is not repeated.
            Some(before) if slot.is_text() && !fragment => self.beyond(record, before, whole).unwrap_or(""),
            _ => whole,
        };
        self.slots.change(place, |slot| {
            slot.complete |= complete;
            if is_call {
                slot.call_part(event, call, fragment);
            } else if slot.is_text() {
                slot.text_part(event, whole, fragment);
            } else {
                slot.value_part(event, fragment);
            }
        });
    }

    /// Handles an event for a final content: additions become a content of their own, repetitions are dropped.
    fn take_late(&mut self, record: &Record, event: &ContentEvent<'_>, place: usize, fragment: bool, complete: bool) {
        let slot = &self.slots.all[place];
        let (index, kind) = (slot.index, slot.kind.clone());
        if slot.is_text() {
            let text = event.as_text();
            let rest = if fragment { text } else { self.beyond(record, place, text).unwrap_or("") };
            if rest.is_empty() {
                return;
            }
            let rest = rest.to_owned();
            let place = self.slots.add(record, self.at, index, kind);
            self.slots.change(place, |slot| {
                slot.waiting = rest;
                slot.complete = complete;
            });
        } else if slot.call.is_none() {
            let place = self.slots.latest(index, &kind).unwrap_or(place);
            if self.was_emitted(record, event, place) {
                return;
            }
            let place = self.slots.add(record, self.at, index, kind);
            self.slots.change(place, |slot| {
                slot.value_part(event, fragment);
                slot.complete = complete;
            });
        }
    }

    /// The contents of one index, the latest first.
    fn pieces(&self, place: usize) -> impl Iterator<Item = &ContentState> {
        let before = |slot: &&ContentState| slot.before.map(|before| &self.slots.all[before]);
        std::iter::successors(Some(&self.slots.all[place]), before).take(MAX_PIECES)
    }

    /// True if a value is empty or was emitted at its index already.
    fn was_emitted(&self, record: &Record, event: &ContentEvent<'_>, place: usize) -> bool {
        let body = event.to_content().body;
        let nothing = empty_body(&body.kind());
        let emitted = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let mut values = self.pieces(place).filter_map(|slot| emitted.get(slot.at? as usize)?.value.as_ref());
        body == nothing || values.any(|value| same::same_body(&value.body, &body))
    }

    /// The part of a text that follows the emitted part, up to and including a content. `None`: it contradicts the
    /// emitted part.
    fn beyond<'t>(&self, record: &Record, place: usize, text: &'t str) -> Option<&'t str> {
        let emitted = &record.run().messages[self.at? as usize].slots;
        let pieces: Vec<&ContentState> = self.pieces(place).collect();
        // Earlier contents are not compared: comparing all of them each time would take quadratic time.
        let rest = text.get(pieces.last()?.emitted_before..)?;
        pieces
            .into_iter()
            .rev()
            .try_fold(rest, |rest, slot| slot.at.map_or(Some(rest), |at| emitted[at as usize].rest_of(rest)))
    }

    /// Emits the data that can be emitted now. `replace_budget`: the number of bytes of replacements that may still be
    /// emitted before they are final.
    pub(super) fn emit(&mut self, record: &mut Record, replace_budget: &mut usize) {
        loop {
            if let Some(open) = self.slots.open {
                let slot = &self.slots.all[open];
                if slot.complete || (slot.call.is_none() && !self.slots.ready.is_empty()) {
                    self.close(record, open);
                    continue;
                }
                self.emit_more(record, open, replace_budget);
                return;
            }
            let Some(place) = self.slots.ready.pop_first() else { return };
            self.open(record, place);
        }
    }

    /// Emits more of the open content.
    fn emit_more(&mut self, record: &mut Record, open: usize, replace_budget: &mut usize) {
        let Some(message) = self.at else { return };
        self.slots.change(open, |slot| {
            let Some(content) = slot.at else { return };
            // A snapshot that continues the emitted text is a fragment. Another one replaces the text, or is held back
            // until it is final once the budget is spent, since every version of a text is kept. Snapshots of arguments
            // do not grow as prefixes (docs/protocols/agent-api.md#argument-snapshots): they are always held back.
            match &slot.snapshot {
                Some(snapshot) if slot.call.is_none() => {
                    let emitted = &record.run().messages[message as usize].slots[content as usize];
                    if let Some(rest) = emitted.rest_of(snapshot).map(str::to_owned) {
                        slot.snapshot = None;
                        record.push(message, content, &rest);
                    } else if let Some(left) = replace_budget.checked_sub(snapshot.len()) {
                        *replace_budget = left;
                        record.replace(message, content, snapshot);
                        slot.snapshot = None;
                    }
                }
                Some(_) => {}
                None => record.push(message, content, &std::mem::take(&mut slot.waiting)),
            }
        });
    }

    /// Emits all remaining data, because the message ends.
    pub(super) fn finish_slots(&mut self, record: &mut Record, replace_budget: &mut usize) {
        for place in 0..self.slots.all.len() {
            if !self.slots.all[place].finished {
                self.slots.change(place, |slot| slot.complete = true);
            }
        }
        self.emit(record, replace_budget);
    }

    fn open(&mut self, record: &mut Record, place: usize) {
        let Some(message) = self.at else { return };
        let is_call = self.has_calls(record);
        self.slots.change(place, |slot| {
            if is_call && slot.kind == ContentType::Data {
                slot.become_call();
                let begun = &record.run().messages[message as usize];
                if let Some(head) = slot.call.as_mut().filter(|head| head.call_id.is_empty()) {
                    let count = begun.slots.len();
                    head.call_id = if count == 0 { begun.id.clone() } else { format!("{}_{count}", begun.id) };
                }
            } else {
                slot.become_value();
            }
            let content = record.start_content(message, slot.kind.clone(), slot.call.clone());
            slot.at = Some(content);
            record.push(message, content, &std::mem::take(&mut slot.waiting));
        });
        self.slots.open = Some(place);
    }

    fn close(&mut self, record: &mut Record, place: usize) {
        self.slots.open = None;
        let Some(message) = self.at else { return };
        self.slots.change(place, |slot| {
            slot.finished = true;
            let Some(content) = slot.at else { return };
            record.push(message, content, &std::mem::take(&mut slot.waiting));
            if let Some(snapshot) = slot.snapshot.take() {
                let emitted = &record.run().messages[message as usize].slots[content as usize];
                match emitted.rest_of(&snapshot).map(str::to_owned) {
                    Some(rest) => record.push(message, content, &rest),
                    None => record.replace(message, content, &snapshot),
                }
            }
            let text = record.run().messages[message as usize].slots[content as usize].text();
            let head = slot.call.take();
            let (value, extra) = slot.conclude(head.as_ref(), text);
            slot.call = head;
            record.finish_content(message, content, value, extra);
        });
    }
}

/// The contents of a message, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<ContentState>,
    /// The latest content of an upstream's index and a type.
    latest: HashMap<(u32, ContentType), usize>,
    /// The bodies of calls by their ids.
    calls: HashMap<String, usize>,
    last: Option<u32>,
    open: Option<usize>,
    /// Contents that have not begun and have data to emit.
    ready: BTreeSet<usize>,
    /// Bytes held, including this table.
    held: usize,
    review: Review,
}

/// The contents that were compared while the end of a message is applied.
#[derive(Debug, Default)]
struct Review {
    seen: HashSet<(u32, ContentType)>,
    /// By type, the position in [`Slots::all`] up to which every content was compared.
    passed: HashMap<ContentType, usize>,
    /// The same for contents that are compared one by one.
    values: HashMap<ContentType, usize>,
    /// Positions in [`Slots::all`] of contents that were compared one by one.
    matched: HashSet<usize>,
    /// Contents that are not text, by the digest of their value. Built on first use.
    by_value: Option<HashMap<u64, VecDeque<usize>>>,
    /// Past the highest index.
    next_index: u32,
}

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The upstream's index of the last content.
    pub(super) const fn last_index(&self) -> Option<u32> {
        self.last
    }

    /// The number of held bytes.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    fn latest(&self, index: u32, kind: &ContentType) -> Option<usize> {
        self.latest.get(&(index, kind.clone())).copied()
    }

    fn add(&mut self, record: &Record, message: Option<u32>, index: u32, kind: ContentType) -> usize {
        let place = self.all.len();
        let mut slot = ContentState::new(index, kind.clone());
        let is_over = |&before: &usize| self.all[before].finished || self.all[before].complete;
        if let Some(before) = self.latest.insert((index, kind), place).filter(is_over) {
            let emitted = message.map(|message| &record.run().messages[message as usize].slots);
            let emitted = emitted.zip(self.all[before].at).map_or(0, |(emitted, at)| emitted[at as usize].text_len());
            slot.before = Some(before);
            slot.emitted_before = self.all[before].emitted_before + emitted;
        }
        self.last = Some(index);
        self.review.next_index = self.review.next_index.max(index.saturating_add(1));
        reserve_one(&mut self.all);
        self.all.push(slot);
        self.change(place, |_| {});
        place
    }

    /// Changes a content, and updates the tables and counters that depend on it.
    fn change(&mut self, place: usize, change: impl FnOnce(&mut ContentState)) {
        let slot = &mut self.all[place];
        change(slot);
        let held = slot.held();
        self.held = self.held.saturating_sub(slot.counted) + held;
        slot.counted = held;
        if slot.at.is_none() && slot.is_ready() {
            self.ready.insert(place);
        }
    }

    fn was_reviewed(&self, index: u32, kind: &ContentType) -> bool {
        self.review.seen.contains(&(index, kind.clone()))
    }

    /// The next content of a type, in order of arrival; with `unplaced`, only of those without an index.
    fn next_value(&mut self, kind: &ContentType, unplaced: bool) -> Option<usize> {
        let from = self.review.values.entry(kind.clone()).or_default();
        let fits = |slot: &ContentState| slot.kind == *kind && !(unplaced && slot.placed);
        let next = (*from..self.all.len()).find(|&place| fits(&self.all[place]));
        *from = next.map_or(self.all.len(), |place| place + 1);
        next
    }

    /// The latest content of the next index of a type that was not reviewed; with `unplaced`, of an index that the
    /// upstream did not send.
    fn next_place(&mut self, kind: &ContentType, unplaced: bool) -> Option<usize> {
        let seen = |index: u32| self.review.seen.contains(&(index, kind.clone()));
        let fits = |slot: &ContentState| slot.kind == *kind && !(unplaced && slot.placed) && !seen(slot.index);
        let from = self.review.passed.get(kind).copied().unwrap_or(0);
        let next = (from..self.all.len()).find(|&place| fits(&self.all[place]));
        self.review.passed.insert(kind.clone(), next.unwrap_or(self.all.len()));
        self.latest(self.all[next?].index, kind)
    }

    /// The index to compare a text or a call of the finished message with: its own; without an index, its position; if
    /// that is taken or unknown, the index of the next content it continues; else a new one.
    fn review(&mut self, index: Option<u32>, place: u32, next: Option<usize>, kind: &ContentType) -> u32 {
        let free = |index: &u32| !self.was_reviewed(*index, kind);
        let known = |index: &u32| self.latest.contains_key(&(*index, kind.clone()));
        let own = index.filter(free);
        let place = Some(place).filter(free);
        let wanted = own
            .filter(known)
            .or(place.filter(|place| own.is_none() && known(place)))
            .or(next.map(|next| self.all[next].index))
            .or(own)
            .or(place.filter(|_| index.is_none()))
            .unwrap_or(self.review.next_index);
        self.review.seen.insert((wanted, kind.clone()));
        self.review.next_index = self.review.next_index.max(wanted.saturating_add(1));
        wanted
    }
}

/// The role of a message of this type if the agent sends none.
fn default_role(kind: &MessageType) -> Role {
    match kind {
        kind if kind.is_output() => Role::Tool,
        MessageType::McpApprovalResponse => Role::User,
        _ => Role::Assistant,
    }
}
