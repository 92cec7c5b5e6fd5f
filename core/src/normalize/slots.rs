//! The contents of one message while they are heard: which of them is being told, what waits, what is held back.
//!
//! Contents of one message are told one after the other. A text gives way as soon as another content has something to
//! say; a call holds its place until its arguments are complete, and what comes meanwhile waits.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::slot::ContentState;
use super::{default_role, same};
use crate::agent_event::{CallPart, ContentEvent, ContentValue, MessageEvent, empty_body, to_extra};
use crate::json::{Extra, Json};
use crate::model::{ContentType, MessageType, Role};
use crate::run::{Record, reserve_one};

/// A late content is compared with at most this many pieces of what was told in its place.
const MAX_PIECES: usize = 64;

/// The data of a call, parsed.
pub(super) struct CallData<'a> {
    pub(super) part: CallPart<'a>,
    /// Fields it holds besides.
    pub(super) rest: Extra,
}

impl<'a> CallData<'a> {
    /// None if the data is no object.
    fn of(event: &ContentEvent<'a>) -> Option<Self> {
        match &event.value {
            ContentValue::Call(part) => Some(Self { part: part.clone(), rest: Extra::new() }),
            ContentValue::Data(Some(raw)) => {
                let (part, rest) = CallPart::parse(raw)?;
                Some(Self { part, rest: to_extra(&rest) })
            }
            _ => None,
        }
    }
}

/// A message while it is heard.
#[derive(Debug)]
pub(super) struct Told {
    /// The upstream's id. Empty where it gave none.
    pub(super) id: String,
    pub(super) kind: MessageType,
    pub(super) role: Role,
    pub(super) metadata: Option<Json>,
    pub(super) usage: Option<Json>,
    pub(super) extra: Extra,
    /// Its place in the run, once it has begun there.
    pub(super) at: Option<u32>,
    pub(super) finished: bool,
    /// Its own frame came.
    pub(super) announced: bool,
    /// It ended because another message began, not because anybody said so.
    pub(super) closed_for_next: bool,
    /// The message of the same id that was closed so, where this one goes on from it.
    pub(super) goes_on: Option<usize>,
    pub(super) slots: Slots,
}

impl Told {
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
            goes_on: None,
            slots: Slots::default(),
        }
    }

    /// Takes over what the message's own frame says. What was told already keeps its kind (section 12, rule 6).
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

    /// Guesses what a message is by its first content (section 12, rule 6).
    pub(super) fn guess(&mut self, event: &ContentEvent<'_>) {
        let fields = match &event.value {
            ContentValue::Call(_) => {
                self.kind = MessageType::PluginCall;
                return;
            }
            ContentValue::Data(Some(raw)) => Json::from_raw(raw).decode::<Extra>().unwrap_or_default(),
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

    /// True if there is anything to tell, or something was told.
    pub(super) fn has_something(&self) -> bool {
        self.at.is_some() || !self.slots.is_empty()
    }

    /// Roughly the memory it takes besides its contents, in bytes, once for the id's place in the table of ids.
    pub(super) fn held(&self) -> usize {
        let kept = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
        size_of::<Self>() + 2 * self.id.len() + kept(&self.metadata) + kept(&self.usage) + self.extra.size()
    }

    /// The text that is being told, if this fragment plainly continues it.
    #[inline]
    pub(super) fn streaming_text(&self, index: Option<u32>) -> Option<(u32, u32)> {
        let slot = self.slots.open.map(|open| &self.slots.all[open])?;
        let same = slot.kind == ContentType::Text
            && slot.snapshot.is_none()
            && !slot.complete
            && index.is_none_or(|index| index == slot.index);
        same.then_some((self.at?, slot.at?))
    }

    /// Takes in a content, whole or a fragment.
    pub(super) fn take(&mut self, record: &Record, event: &ContentEvent<'_>, index: u32, complete: bool) {
        let kind = event.content_type();
        let latest = self.slots.latest(index, &kind);
        // Parsed once, for all that asks about the call below.
        let call = if self.tells_calls(record) && kind == ContentType::Data { CallData::of(event) } else { None };
        let place = if self.tells_calls(record) && kind == ContentType::Data {
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

    /// True if its data are bodies of calls: what it was announced as counts, whatever it turns out to be.
    fn tells_calls(&self, record: &Record) -> bool {
        let announced = self.at.map(|at| &record.run().messages[at as usize].announced);
        announced.unwrap_or(&self.kind).is_call()
    }

    /// Takes in a content of the finished message, which may not say where it belongs.
    pub(super) fn take_final(&mut self, record: &Record, event: &ContentEvent<'_>, place: u32) {
        let kind = event.content_type();
        let is_text = matches!(kind, ContentType::Text | ContentType::Refusal);
        let is_call = self.tells_calls(record) && kind == ContentType::Data;
        // An index that says nothing is as good as none.
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

    /// Takes in a value of the finished message that does not say where it belongs: there, where it was heard.
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
        // It was never heard so: it is the end of one that is still growing, or it is new.
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
            let index = if taken { self.slots.review.fresh } else { own };
            self.slots.add(record, self.at, index, kind.clone())
        });
        self.slots.review.matched.insert(place);
        self.slots.review.seen.insert((self.slots.all[place].index, kind));
        let call = if self.tells_calls(record) && event.content_type() == ContentType::Data {
            CallData::of(event)
        } else {
            None
        };
        self.take_at(record, event, call.as_ref(), place, true);
    }

    /// What the values heard so far are, by their digests.
    fn digests(&mut self, record: &Record) -> HashMap<u64, VecDeque<usize>> {
        let told = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let mut digests: HashMap<u64, VecDeque<usize>> = HashMap::new();
        for (place, slot) in self.slots.all.iter_mut().enumerate() {
            let digest = match slot.at.and_then(|at| told.get(at as usize)?.value.as_ref()) {
                Some(value) => Some(same::of_body(&value.body)),
                None => slot.value().map(same::of_body),
            };
            if let Some(digest) = digest {
                digests.entry(digest).or_default().push_back(place);
            }
        }
        digests
    }

    /// True if a whole text goes on from what was heard of a content.
    fn agrees(&self, record: &Record, place: usize, text: &str) -> bool {
        let slot = &self.slots.all[place];
        let told = if self.at.is_some() { self.beyond(record, place, text) } else { Some(text) };
        match (&slot.snapshot, told) {
            (Some(snapshot), _) => text.starts_with(snapshot.as_str()),
            (None, Some(rest)) => rest.starts_with(slot.waiting.as_str()),
            (None, None) => false,
        }
    }

    /// The content of a place that a frame is about: the latest one, or an older one that says just this. None for
    /// another picture, sound, film or file than were heard there: it is a further content, and the one before is over.
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
        let told = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let says_it = |place: &usize| {
            let slot = &self.slots.all[*place];
            let final_value = slot.at.and_then(|at| told.get(at as usize)?.value.as_ref());
            final_value.map(|value| &value.body).or(slot.heard_value()).is_some_and(|had| same::same_body(had, &body))
        };
        std::iter::successors(Some(latest), |&place| self.slots.all[place].before).take(MAX_PIECES).find(says_it)
    }

    /// True if what was heard last is a picture, sound, film or file that nobody has ended.
    pub(super) fn ends_with_open_media(&self) -> bool {
        self.slots.all.last().is_some_and(|slot| slot.is_media() && !slot.complete && !slot.finished)
    }

    /// The content a call's body belongs to: calls are known by their id, wherever they are told.
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
                // One call's body in the place of another's: the other one is over.
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
        let is_call = self.tells_calls(record) && slot.kind == ContentType::Data;
        let whole = event.as_text();
        let whole = match slot.before {
            // What was told of it in other places is not told again.
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

    /// Something comes for a content that is final already: what it adds is told as a content of its own, what it
    /// repeats is not.
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
            if self.was_told(record, event, place) {
                return;
            }
            let place = self.slots.add(record, self.at, index, kind);
            self.slots.change(place, |slot| {
                slot.value_part(event, fragment);
                slot.complete = complete;
            });
        }
    }

    /// The contents told in one place, the latest first.
    fn pieces(&self, place: usize) -> impl Iterator<Item = &ContentState> {
        let before = |slot: &&ContentState| slot.before.map(|before| &self.slots.all[before]);
        std::iter::successors(Some(&self.slots.all[place]), before).take(MAX_PIECES)
    }

    /// True if a value says nothing that was not told in its place.
    fn was_told(&self, record: &Record, event: &ContentEvent<'_>, place: usize) -> bool {
        let body = event.to_content().body;
        let nothing = empty_body(&body.kind());
        let told = self.at.map_or(&[][..], |at| &record.run().messages[at as usize].slots);
        let mut values = self.pieces(place).filter_map(|slot| told.get(slot.at? as usize)?.value.as_ref());
        body == nothing || values.any(|value| same::same_body(&value.body, &body))
    }

    /// What a text says beyond what was told of it up to a place. None if it contradicts that.
    fn beyond<'t>(&self, record: &Record, place: usize, text: &'t str) -> Option<&'t str> {
        let told = &record.run().messages[self.at? as usize].slots;
        let pieces: Vec<&ContentState> = self.pieces(place).collect();
        // What lies further back is taken on trust: comparing all of it each time would take ever longer.
        let rest = text.get(pieces.last()?.told_before..)?;
        pieces
            .into_iter()
            .rev()
            .try_fold(rest, |rest, slot| rest.strip_prefix(slot.at.map_or("", |at| told[at as usize].text())))
    }

    /// Tells whatever can be told now. `anew`: how many bytes may still be told in the place of others before they are
    /// final.
    pub(super) fn tell(&mut self, record: &mut Record, anew: &mut usize) {
        loop {
            if let Some(open) = self.slots.open {
                let slot = &self.slots.all[open];
                if slot.complete || (slot.call.is_none() && !self.slots.wanting.is_empty()) {
                    self.close(record, open);
                    continue;
                }
                self.go_on(record, open, anew);
                return;
            }
            let Some(place) = self.slots.wanting.pop_first() else { return };
            self.open(record, place);
        }
    }

    /// Tells more of the content that is being told.
    fn go_on(&mut self, record: &mut Record, open: usize, anew: &mut usize) {
        let Some(message) = self.at else { return };
        self.slots.change(open, |slot| {
            let Some(content) = slot.at else { return };
            // A text said anew that goes on from what was told is a fragment; another one takes its place, or is held
            // back until it is final where that was done too much: every version of a text is kept. Arguments said
            // anew do not grow as prefixes (section 6): they always are held back.
            match &slot.snapshot {
                Some(snapshot) if slot.call.is_none() => {
                    let told = record.run().messages[message as usize].slots[content as usize].text();
                    if let Some(rest) = snapshot.strip_prefix(told).map(str::to_owned) {
                        slot.snapshot = None;
                        record.push(message, content, &rest);
                    } else if let Some(left) = anew.checked_sub(snapshot.len()) {
                        *anew = left;
                        record.replace(message, content, snapshot);
                        slot.snapshot = None;
                    }
                }
                Some(_) => {}
                None => record.push(message, content, &std::mem::take(&mut slot.waiting)),
            }
        });
    }

    /// Tells all that is left: the message ends.
    pub(super) fn finish_slots(&mut self, record: &mut Record, anew: &mut usize) {
        for place in 0..self.slots.all.len() {
            if !self.slots.all[place].finished {
                self.slots.change(place, |slot| slot.complete = true);
            }
        }
        self.tell(record, anew);
    }

    fn open(&mut self, record: &mut Record, place: usize) {
        let Some(message) = self.at else { return };
        let is_call = self.tells_calls(record);
        self.slots.change(place, |slot| {
            if is_call && slot.kind == ContentType::Data {
                slot.become_call();
                let told = &record.run().messages[message as usize];
                if let Some(head) = slot.call.as_mut().filter(|head| head.call_id.is_empty()) {
                    let count = told.slots.len();
                    head.call_id = if count == 0 { told.id.clone() } else { format!("{}_{count}", told.id) };
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
                let told = record.run().messages[message as usize].slots[content as usize].text();
                match snapshot.strip_prefix(told).map(str::to_owned) {
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

/// The contents of a message, in the order they were first heard of.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<ContentState>,
    /// The latest content of an upstream's index and a type.
    latest: HashMap<(u32, ContentType), usize>,
    /// The bodies of calls by their ids.
    calls: HashMap<String, usize>,
    last: Option<u32>,
    open: Option<usize>,
    /// Contents that have not begun and have something to say.
    wanting: BTreeSet<usize>,
    /// How many bytes are held, this table included.
    held: usize,
    review: Review,
}

/// What was looked at when the message's end was compared with what was told.
#[derive(Debug, Default)]
struct Review {
    seen: HashSet<(u32, ContentType)>,
    /// Places in [`Slots::all`] before which every content of a type was looked at.
    passed: HashMap<ContentType, usize>,
    /// The same for contents looked at one by one.
    values: HashMap<ContentType, usize>,
    /// Places in [`Slots::all`] of contents that were looked at one by one.
    matched: HashSet<usize>,
    /// Contents that are no text by what they hold, once that is asked for.
    by_value: Option<HashMap<u64, VecDeque<usize>>>,
    /// Past the highest index.
    fresh: u32,
}

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The upstream's index of the content heard of last.
    pub(super) const fn last_index(&self) -> Option<u32> {
        self.last
    }

    /// How many bytes are held back.
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
            let told = message.map(|message| &record.run().messages[message as usize].slots);
            let told = told.zip(self.all[before].at).map_or(0, |(told, at)| told[at as usize].text().len());
            slot.before = Some(before);
            slot.told_before = self.all[before].told_before + told;
        }
        self.last = Some(index);
        self.review.fresh = self.review.fresh.max(index.saturating_add(1));
        reserve_one(&mut self.all);
        self.all.push(slot);
        self.change(place, |_| {});
        place
    }

    /// Changes a content, and keeps the books.
    fn change(&mut self, place: usize, change: impl FnOnce(&mut ContentState)) {
        let slot = &mut self.all[place];
        change(slot);
        let held = slot.held();
        self.held = self.held.saturating_sub(slot.counted) + held;
        slot.counted = held;
        if slot.at.is_none() && slot.wants() {
            self.wanting.insert(place);
        }
    }

    fn was_reviewed(&self, index: u32, kind: &ContentType) -> bool {
        self.review.seen.contains(&(index, kind.clone()))
    }

    /// The next content of a type, in the order they were first heard of; with `unplaced`, of those only that came
    /// without an index.
    fn next_value(&mut self, kind: &ContentType, unplaced: bool) -> Option<usize> {
        let from = self.review.values.entry(kind.clone()).or_default();
        let fits = |slot: &ContentState| slot.kind == *kind && !(unplaced && slot.placed);
        let next = (*from..self.all.len()).find(|&place| fits(&self.all[place]));
        *from = next.map_or(self.all.len(), |place| place + 1);
        next
    }

    /// The latest content of the next index of a type that was not reviewed; with `unplaced`, of an index that the
    /// upstream did not tell.
    fn next_place(&mut self, kind: &ContentType, unplaced: bool) -> Option<usize> {
        let seen = |index: u32| self.review.seen.contains(&(index, kind.clone()));
        let fits = |slot: &ContentState| slot.kind == *kind && !(unplaced && slot.placed) && !seen(slot.index);
        let from = self.review.passed.get(kind).copied().unwrap_or(0);
        let next = (from..self.all.len()).find(|&place| fits(&self.all[place]));
        self.review.passed.insert(kind.clone(), next.unwrap_or(self.all.len()));
        self.latest(self.all[next?].index, kind)
    }

    /// The index to compare a text or a call of the finished message with: its own; without one its place; where that
    /// was taken or never heard of, that of the next one it goes on from; else a fresh one.
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
            .unwrap_or(self.review.fresh);
        self.review.seen.insert((wanted, kind.clone()));
        self.review.fresh = self.review.fresh.max(wanted.saturating_add(1));
        wanted
    }
}
