//! The contents of one message while they are heard: which of them is being told, what waits, what is held back.
//!
//! Contents of one message are told one after the other. A text gives way as soon as another content has something to
//! say; a call holds its place until its arguments are complete, and what comes meanwhile waits.

use std::collections::{BTreeMap, VecDeque};

use super::{merge, role_of};
use crate::heard::Heard;
use crate::json::{Extra, Json};
use crate::model::{Body, Content, ContentType, MessageType, Role, ToolCall};
use crate::run::{CallHead, Record};

/// More contents than this do not wait: the oldest is told as it stands.
const MOST_WAITING: usize = 256;
/// A late text is compared with at most this many pieces of what was told.
const MOST_PIECES: usize = 64;

/// A message while it is heard.
#[derive(Debug)]
pub(super) struct Told {
    /// The upstream's id. Empty where it gave none.
    pub(super) id: String,
    /// The id it is told with. Empty: the record makes one.
    pub(super) unique: String,
    pub(super) kind: MessageType,
    pub(super) role: Role,
    pub(super) metadata: Option<Json>,
    pub(super) usage: Option<Json>,
    pub(super) extra: Extra,
    /// Its place in the run, once it has begun there.
    pub(super) at: Option<u32>,
    pub(super) finished: bool,
    pub(super) slots: Slots,
}

impl Told {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            unique: id.to_owned(),
            kind: MessageType::Message,
            role: Role::Assistant,
            metadata: None,
            usage: None,
            extra: Extra::new(),
            at: None,
            finished: false,
            slots: Slots::default(),
        }
    }

    /// Takes over what the message's own frame says. What was told already keeps its kind (section 12, rule 6).
    pub(super) fn announce(&mut self, heard: &Heard<'_>) {
        if let Some(word) = heard.kind.as_deref() {
            self.kind = match word {
                // In the examples of both published texts, in no enum (section 1).
                "assistant" => MessageType::Message,
                word => MessageType::from(word),
            };
        }
        if self.at.is_none() {
            self.role = role_of(heard, &self.kind);
            self.extra = heard.extra();
        }
        if let Some(metadata) = heard.metadata {
            self.metadata = Some(Json::keep(metadata));
        }
        if let Some(usage) = heard.usage {
            self.usage = Some(Json::keep(usage));
        }
    }

    /// Guesses what a message is by its first content (section 12, rule 6).
    pub(super) fn guess(&mut self, heard: &Heard<'_>) {
        let fields = heard.data.and_then(|raw| Json::keep(raw).read::<Extra>()).unwrap_or_default();
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

    /// The text that is being told, if this fragment plainly continues it.
    pub(super) fn streaming_text(&self, heard: &Heard<'_>) -> Option<(u32, u32)> {
        let slot = self.slots.open.map(|open| &self.slots.all[open])?;
        let same = slot.kind == ContentType::Text
            && slot.snapshot.is_none()
            && !slot.complete
            && heard.index.is_none_or(|index| index == slot.index)
            && heard.kind.as_deref().is_none_or(|kind| kind == "text")
            && !matches!(heard.status.as_deref(), Some("completed" | "failed" | "canceled" | "incomplete" | "rejected"));
        same.then_some((self.at?, slot.at?))
    }

    /// True if a message of a final output, under another id, says what this one said.
    pub(super) fn says_the_same(&self, record: &Record, heard: &Heard<'_>) -> bool {
        let Some(at) = self.at else { return false };
        let told = &record.run().messages[at as usize];
        if heard.kind.as_deref().is_some_and(|kind| MessageType::from(kind) != told.kind) {
            return false;
        }
        let parts = Heard::nested(heard.content);
        !parts.is_empty()
            && parts.len() == told.slots.len()
            && parts.iter().zip(&told.slots).all(|(part, slot)| match (&part.body().body, &slot.content().body) {
                (Body::Data(said), Body::Data(had)) => said == had || said.read::<ToolCall>() == had.read(),
                (said, had) => said == had,
            })
    }

    /// Takes in a content, whole or a fragment.
    pub(super) fn take(&mut self, record: &mut Record, heard: &Heard<'_>, index: u32, complete: bool) {
        let kind = heard.content_type();
        let is_call = self.kind.is_call() && kind == ContentType::Data;
        let place = match self.slots.latest.get(&index).copied() {
            Some(place) if self.slots.all[place].kind == kind && !self.slots.all[place].finished => place,
            Some(place) if self.slots.all[place].kind == kind => {
                return self.take_late(record, heard, place, complete);
            }
            _ => self.slots.add(index, kind),
        };
        let open = self.slots.open == Some(place);
        let fragment = heard.delta && !complete;
        let whole = heard.text.as_deref().or(heard.refusal.as_deref()).unwrap_or("");
        let whole = match self.slots.all[place].before {
            // What was told of it in other places is not told again.
            Some(before) if !fragment => self.beyond(record, before, whole).unwrap_or(""),
            _ => whole,
        };
        let slot = &mut self.slots.all[place];
        slot.complete |= complete;
        if is_call {
            slot.call_part(heard, fragment);
        } else if slot.is_text() {
            if fragment {
                slot.grow(whole);
            } else if !whole.is_empty() {
                slot.snapshot = Some(whole.to_owned());
            }
            if !heard.extra.is_empty() {
                slot.extra = heard.extra();
            }
        } else {
            let body = heard.body();
            let silent = matches!(&body.body, Body::Data(data) if data.is_null()) && slot.value.is_some();
            if !silent {
                slot.value = Some(match slot.value.take() {
                    Some(old) if fragment => merge::content(old, body),
                    _ => body,
                });
            }
        }
        if open && !slot.waiting.is_empty() && slot.snapshot.is_none() {
            let waiting = std::mem::take(&mut slot.waiting);
            if let (Some(message), Some(content)) = (self.at, slot.at) {
                record.push(message, content, &waiting);
            }
        }
    }

    /// Something comes for a content that is final already: what it adds is told as a content of its own, what it
    /// repeats is not.
    fn take_late(&mut self, record: &Record, heard: &Heard<'_>, place: usize, complete: bool) {
        let slot = &self.slots.all[place];
        if !slot.is_text() {
            return;
        }
        let text = heard.text.as_deref().or(heard.refusal.as_deref()).unwrap_or("");
        let rest = if heard.delta && !complete { text } else { self.beyond(record, place, text).unwrap_or("") };
        if rest.is_empty() {
            return;
        }
        let rest = rest.to_owned();
        let (index, kind) = (slot.index, slot.kind.clone());
        let place = self.slots.add(index, kind);
        let slot = &mut self.slots.all[place];
        slot.waiting = rest;
        slot.complete = complete;
    }

    /// What a text says beyond what was told of it up to a place. None if it contradicts that.
    fn beyond<'t>(&self, record: &Record, place: usize, text: &'t str) -> Option<&'t str> {
        let mut pieces = Vec::new();
        let mut next = Some(place);
        while let (Some(place), true) = (next, pieces.len() < MOST_PIECES) {
            pieces.push(place);
            next = self.slots.all[place].before;
        }
        let told = &record.run().messages[self.at? as usize].slots;
        pieces.into_iter().rev().try_fold(text, |rest, place| {
            rest.strip_prefix(self.slots.all[place].at.map_or("", |at| told[at as usize].text()))
        })
    }

    /// Tells whatever can be told now.
    pub(super) fn tell(&mut self, record: &mut Record) {
        loop {
            if let Some(open) = self.slots.open {
                let next_wants = self.slots.untold.iter().any(|&place| self.slots.all[place].wants());
                let slot = &mut self.slots.all[open];
                if slot.complete || (slot.call.is_none() && next_wants) {
                    self.close(record, open);
                    continue;
                }
                // A text said anew that goes on from what was told is a fragment; another one is held back until it is
                // final. Arguments said anew do not grow as prefixes (section 6): they always are.
                if slot.call.is_none()
                    && let (Some(message), Some(content), Some(snapshot)) = (self.at, slot.at, &slot.snapshot)
                {
                    let told = record.run().messages[message as usize].slots[content as usize].text();
                    if let Some(rest) = snapshot.strip_prefix(told).map(str::to_owned) {
                        slot.snapshot = None;
                        record.push(message, content, &rest);
                    }
                }
                return;
            }
            let next = self.slots.untold.iter().position(|&place| self.slots.all[place].wants());
            let next = next.or_else(|| (self.slots.untold.len() > MOST_WAITING).then_some(0));
            let Some(place) = next.and_then(|next| self.slots.untold.remove(next)) else { return };
            self.open(record, place);
        }
    }

    /// Tells all that is left: the message ends.
    pub(super) fn finish_slots(&mut self, record: &mut Record) {
        for place in self.slots.untold.clone() {
            self.slots.all[place].complete = true;
        }
        if let Some(open) = self.slots.open {
            self.slots.all[open].complete = true;
        }
        self.tell(record);
    }

    fn open(&mut self, record: &mut Record, place: usize) {
        let Some(message) = self.at else { return };
        let is_call = self.kind.is_call();
        let slot = &mut self.slots.all[place];
        if is_call && slot.kind == ContentType::Data {
            let head = slot.call.get_or_insert_default();
            if head.call_id.is_empty() {
                let id = &record.run().messages[message as usize].id;
                let count = record.run().messages[message as usize].slots.len();
                head.call_id = if count == 0 { id.clone() } else { format!("{id}_{count}") };
            }
        } else {
            slot.call = None;
            if !slot.is_text() {
                // It looked like a call before its message said what it is.
                slot.snapshot = None;
                slot.waiting.clear();
            }
        }
        let content = record.start_content(message, slot.kind.clone(), slot.call.clone());
        slot.at = Some(content);
        if slot.snapshot.is_none() || slot.call.is_none() {
            record.push(message, content, &std::mem::take(&mut slot.waiting));
        }
        self.slots.open = Some(place);
    }

    fn close(&mut self, record: &mut Record, place: usize) {
        self.slots.open = None;
        let slot = &mut self.slots.all[place];
        slot.finished = true;
        let (Some(message), Some(content)) = (self.at, slot.at) else { return };
        record.push(message, content, &std::mem::take(&mut slot.waiting));
        if let Some(snapshot) = slot.snapshot.take() {
            let told = record.run().messages[message as usize].slots[content as usize].text();
            match snapshot.strip_prefix(told) {
                Some(rest) => record.push(message, content, &rest.to_owned()),
                None => record.replace(message, content, &snapshot),
            }
        }
        let mut value = slot.value.take();
        if let Some(head) = &slot.call {
            let arguments = record.run().messages[message as usize].slots[content as usize].text();
            // The data goes on word for word if it says what was told; else it is made from what was told.
            value = value.filter(|value| says(value, head, arguments));
        } else if value.is_none() && !slot.is_text() {
            value = Some(Heard { kind: Some(slot.kind.as_str().into()), ..Heard::default() }.body());
        }
        record.finish_content(message, content, value, std::mem::take(&mut slot.extra));
    }
}

/// True if a call's data says just this, with its arguments as text.
fn says(value: &Content, head: &CallHead, arguments: &str) -> bool {
    let Some(data) = value.as_data() else { return false };
    let told: Option<ToolCall> = data.read();
    let is_text = data.read::<Extra>().is_some_and(|fields| {
        fields.get("arguments").is_some_and(|arguments| arguments.text().starts_with('"'))
            && fields.get("call_id").is_some_and(|id| id.text().starts_with('"'))
    });
    is_text
        && told.is_some_and(|told| {
            told.call_id == head.call_id && told.name == head.name && told.arguments == arguments
        })
}

/// The contents of a message, in the order they were first heard of.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<SlotHeard>,
    /// The upstream's index, and the latest content it was used for.
    latest: BTreeMap<u32, usize>,
    last: Option<u32>,
    open: Option<usize>,
    untold: VecDeque<usize>,
    /// Which were looked at when the message's end was compared with what was told.
    reviewed: Vec<u32>,
}

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The upstream's index of the content heard of last.
    pub(super) const fn last_index(&self) -> Option<u32> {
        self.last
    }

    fn add(&mut self, index: u32, kind: ContentType) -> usize {
        let place = self.all.len();
        let before = self.latest.insert(index, place).filter(|&before| self.all[before].kind == kind);
        self.last = Some(index);
        self.all.push(SlotHeard {
            index,
            kind,
            before,
            at: None,
            finished: false,
            complete: false,
            call: None,
            waiting: String::new(),
            snapshot: None,
            value: None,
            extra: Extra::new(),
        });
        self.untold.push_back(place);
        place
    }

    pub(super) fn begin_review(&mut self) {
        self.reviewed.clear();
    }

    /// The index to compare a content of the finished message with: its own, else its place; a fresh one where that
    /// was taken by a content before it.
    pub(super) fn review(&mut self, index: Option<u32>, place: u32, kind: &ContentType) -> u32 {
        let mut wanted = index.unwrap_or(place);
        if self.reviewed.binary_search(&wanted).is_ok() {
            let matching = self.latest.get(&place).is_some_and(|&slot| self.all[slot].kind == *kind);
            wanted = if matching && self.reviewed.binary_search(&place).is_err() {
                place
            } else {
                self.latest.keys().chain(&self.reviewed).max().map_or(0, |highest| highest.saturating_add(1))
            };
        }
        if let Err(at) = self.reviewed.binary_search(&wanted) {
            self.reviewed.insert(at, wanted);
        }
        wanted
    }

    /// How many bytes are held back.
    pub(super) fn held(&self) -> usize {
        let latest = self.last.and_then(|index| self.latest.get(&index));
        latest.map_or(0, |&place| self.all[place].held())
    }
}

#[derive(Debug)]
struct SlotHeard {
    index: u32,
    kind: ContentType,
    /// The content of the same index and kind before this one.
    before: Option<usize>,
    /// Its place in the run's message, once it has begun there.
    at: Option<u32>,
    finished: bool,
    complete: bool,
    /// What is known of the call it is the body of.
    call: Option<CallHead>,
    /// Fragments not told yet.
    waiting: String,
    /// The whole text as it was said last, where it was not told as a fragment.
    snapshot: Option<String>,
    value: Option<Content>,
    extra: Extra,
}

impl SlotHeard {
    const fn is_text(&self) -> bool {
        matches!(self.kind, ContentType::Text | ContentType::Refusal)
    }

    /// True if there is something to tell of it.
    fn wants(&self) -> bool {
        self.complete
            || (self.is_text() && (!self.waiting.is_empty() || self.snapshot.is_some()))
            || self.call.as_ref().is_some_and(|head| !head.name.is_empty() && !head.call_id.is_empty())
    }

    fn grow(&mut self, text: &str) {
        match &mut self.snapshot {
            Some(snapshot) => snapshot.push_str(text),
            None => self.waiting.push_str(text),
        }
    }

    fn call_part(&mut self, heard: &Heard<'_>, fragment: bool) {
        let value = heard.body();
        let Some(call) = value.as_data().and_then(Json::read::<ToolCall>) else { return };
        let head = self.call.get_or_insert_default();
        if !call.call_id.is_empty() {
            head.call_id = call.call_id;
        }
        if !call.name.is_empty() {
            head.name = call.name;
        }
        if call.server_label.is_some() {
            head.server_label = call.server_label;
        }
        if fragment {
            self.grow(&call.arguments);
        } else {
            self.snapshot = Some(call.arguments);
            self.value = Some(value);
        }
    }

    fn held(&self) -> usize {
        self.waiting.len()
            + self.snapshot.as_ref().map_or(0, String::len)
            + self.value.as_ref().and_then(Content::as_data).map_or(0, |data| data.text().len())
    }
}
