//! The contents of an artifact as messages of the run: adjacent contents of one kind are one message, in the order of
//! the parts; each call and each output is a message of its own. An artifact with a thought and an answer is a message
//! of reasoning and an answer.
//!
//! Not here: which contents an artifact has (`artifacts`), and what a part is (`content`).

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Extra, Fault, Json};

use super::content::{self, PartKind};
use super::digest::Digest;
use super::slots::{Group, Slot};
use super::wire::{self, filled};
use crate::wire::Content;

/// The way in which an artifact update changes earlier parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are added.
    Append,
    /// They are all there are.
    Replace,
    /// They are all there were when the task was read.
    Snapshot,
}

/// A message of an artifact.
#[derive(Debug)]
struct Message {
    id: String,
    kind: MessageType,
    contents: u32,
    is_open: bool,
}

/// The messages of an artifact.
#[derive(Debug)]
pub(super) struct Messages {
    artifact: String,
    all: Vec<Message>,
    /// For each slot of the artifact its message, and its place there. None: an earlier turn emitted it.
    places: Vec<Option<(usize, u32)>>,
    /// The agent has ended the artifact, and no message was begun since.
    is_finished: bool,
}

impl Messages {
    pub(super) fn new(artifact: &str) -> Self {
        Self { artifact: artifact.to_owned(), all: Vec::new(), places: Vec::new(), is_finished: false }
    }

    /// The open message of a slot, and the place of the slot there.
    #[inline]
    pub(super) fn open_place(&self, slot: usize) -> Option<(&str, u32)> {
        let (message, index) = (*self.places.get(slot)?)?;
        let message = self.all.get(message).filter(|message| message.is_open)?;
        Some((&message.id, index))
    }

    /// Ends the open messages.
    pub(super) fn finish(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.is_finished |= !self.all.is_empty();
        self.close(sink)
    }

    fn close(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // All but the last have ended.
        let Some(last) = self.all.last_mut().filter(|last| last.is_open) else { return Ok(()) };
        last.is_open = false;
        sink.emit(&AgentEvent::message_finished(&last.id, End::Completed))
    }

    fn set_place(&mut self, slot: usize, place: (usize, u32)) {
        if self.places.len() <= slot {
            self.places.resize(slot + 1, None);
        }
        self.places[slot] = Some(place);
    }
}

/// Emits what is new of one artifact.
pub(super) struct Writer<'w, 'a> {
    pub(super) id: &'w str,
    pub(super) slots: &'w mut Vec<Slot>,
    pub(super) messages: &'w mut Messages,
    pub(super) head: &'w wire::Artifact<'a>,
    pub(super) task: Option<&'w str>,
    pub(super) sink: &'w mut dyn EventSink,
    pub(super) emitted: u64,
}

impl Writer<'_, '_> {
    pub(super) fn append(&mut self, groups: &[Group<'_, '_>]) -> Result<(), Fault> {
        for group in groups {
            let last = self.slots.last();
            let goes_on = last.is_some_and(|last| group.text && last.text && last.mark == group.mark);
            if goes_on {
                self.text(self.slots.len() - 1, group, 0)?;
            } else if group.len() > 0 || !group.text || last.is_none() {
                // An empty text at the end only carries the mark that it is the end.
                self.add(group)?;
            }
        }
        Ok(())
    }

    /// Emits what differs from what was read before.
    pub(super) fn compare(&mut self, groups: &[Group<'_, '_>], mode: Mode) -> Result<(), Fault> {
        if mode == Mode::Replace && self.messages.is_finished {
            let same = groups.len() == self.slots.len()
                && groups.iter().zip(self.slots.iter()).all(|(group, slot)| group.slot() == *slot);
            if same {
                return Ok(());
            }
            // A message that has ended cannot be replaced: its successor has all of it.
            if self.messages.all.len() <= 1 {
                self.slots.clear();
                self.messages.places.clear();
            }
        }

        // Known contents keep their order, but some of them may be missing in the new state.
        let mut next = 0;
        for group in groups {
            let new = group.slot();
            if let Some(same) = (next..self.slots.len()).find(|place| self.slots[*place] == new) {
                next = same + 1;
                continue;
            }
            let is_same_text = |old: &Slot| group.text && old.text && new.mark == old.mark;
            let longer = (next..self.slots.len()).find_map(|place| {
                let old = &self.slots[place];
                let known =
                    group.known_prefix(old).filter(|known| is_same_text(old) && (*known > 0 || place == next))?;
                Some((place, known))
            });
            if let Some((place, known)) = longer {
                next = place + 1;
                self.text(place, group, known)?;
                continue;
            }
            let Some(old) = self.slots.get(next) else {
                next += 1;
                self.add(group)?;
                continue;
            };
            if mode == Mode::Snapshot && is_same_text(old) && new.len < old.len {
                // A server that answers from an older state than it streamed takes nothing back by that.
                next += 1;
            } else if (old.text == group.text && new.mark == old.mark)
                || self.kind_at(next).is_some_and(|kind| *kind == message_type(&group.kind))
            {
                self.replace(next, group, new)?;
                next += 1;
            } else {
                // It stands between what was read before.
                self.add(group)?;
            }
        }
        Ok(())
    }

    /// The type of a slot's message.
    fn kind_at(&self, slot: usize) -> Option<&MessageType> {
        let (message, _) = (*self.messages.places.get(slot)?)?;
        self.messages.all.get(message).map(|message| &message.kind)
    }

    /// Emits a text from a byte on, piece by piece.
    fn text(&mut self, slot: usize, group: &Group<'_, '_>, mut skip: usize) -> Result<(), Fault> {
        for part in group.parts {
            let Content::Text(text) = &part.content else { continue };
            let Some(rest) = text.get(skip..) else {
                skip = skip.saturating_sub(text.len());
                continue;
            };
            skip = 0;
            if rest.is_empty() {
                continue;
            }
            let value = match group.kind {
                PartKind::Refusal => ContentValue::Refusal(Cow::Borrowed(rest)),
                _ => ContentValue::Text(Cow::Borrowed(rest)),
            };
            self.emit(slot, ContentUpdate::Append, value, &group.kind)?;
            let slot = &mut self.slots[slot];
            slot.len += rest.len() as u64;
            slot.digest.update(rest.as_bytes());
        }
        Ok(())
    }

    /// A content that was not there before.
    fn add(&mut self, group: &Group<'_, '_>) -> Result<(), Fault> {
        let place = self.slots.len();
        self.slots.push(Slot { text: group.text, mark: group.mark, len: 0, digest: Digest::default() });
        if group.text && group.len() > 0 {
            return self.text(place, group, 0);
        }
        let update = if group.text { ContentUpdate::Append } else { ContentUpdate::Final };
        for part in group.parts.iter().take(1) {
            self.emit(place, update, content::value(part, &group.kind), &group.kind)?;
        }
        self.slots[place] = group.slot();
        Ok(())
    }

    fn replace(&mut self, place: usize, group: &Group<'_, '_>, new: Slot) -> Result<(), Fault> {
        if group.text {
            let text: String = group.texts().collect();
            let value = match group.kind {
                PartKind::Refusal => ContentValue::Refusal(Cow::Borrowed(text.as_str())),
                _ => ContentValue::Text(Cow::Borrowed(text.as_str())),
            };
            self.emit(place, ContentUpdate::Snapshot, value, &group.kind)?;
        } else {
            for part in group.parts {
                self.emit(place, ContentUpdate::Final, content::value(part, &group.kind), &group.kind)?;
            }
        }
        self.slots[place] = new;
        Ok(())
    }

    fn emit(
        &mut self,
        slot: usize,
        update: ContentUpdate,
        value: ContentValue<'_>,
        kind: &PartKind,
    ) -> Result<(), Fault> {
        self.emitted += 1;
        let (message, index) = match self.messages.places.get(slot).copied().flatten() {
            Some(place) if self.messages.all[place.0].is_open => place,
            _ => self.place(slot, kind)?,
        };
        let message = &self.messages.all[message];
        let event = ContentEvent::new(&message.id, update, value).at(index);
        self.sink.emit(&AgentEvent::Content(event))?;
        // Each call and each output is a message of its own.
        let is_whole = message.kind.is_call() || message.kind.is_output();
        if is_whole { self.messages.close(self.sink) } else { Ok(()) }
    }

    /// A place for a slot: in the open message if that is of its kind, else in a new one.
    fn place(&mut self, slot: usize, kind: &PartKind) -> Result<(usize, u32), Fault> {
        let kind = message_type(kind);
        let is_open = self.messages.all.last().is_some_and(|last| last.is_open && last.kind == kind);
        if !is_open {
            self.messages.close(self.sink)?;
            self.announce(kind)?;
        }
        let place = self.messages.all.len() - 1;
        let message = &mut self.messages.all[place];
        let index = message.contents;
        message.contents += 1;
        self.messages.set_place(slot, (place, index));
        Ok((place, index))
    }

    /// Announces a message, with what only the artifact's head says.
    fn announce(&mut self, kind: MessageType) -> Result<(), Fault> {
        let messages = &mut *self.messages;
        messages.is_finished = false;
        let id = match messages.all.len() {
            0 => messages.artifact.clone(),
            earlier => format!("{}-{}", messages.artifact, earlier + 1),
        };
        let role = if kind.is_output() { Role::Tool } else { Role::Assistant };
        self.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(kind.clone()),
            role: Some(role),
            metadata: Some(JsonRef::Owned(metadata(self.id, self.head, self.task))),
            ..MessageEvent::default()
        }))?;
        messages.all.push(Message { id, kind, contents: 0, is_open: true });
        Ok(())
    }
}

/// The type of the message that a part goes into.
fn message_type(kind: &PartKind) -> MessageType {
    match kind {
        PartKind::Reasoning => MessageType::Reasoning,
        PartKind::Call(kind) | PartKind::Output(kind) | PartKind::Typed(kind) => kind.clone(),
        PartKind::Plain | PartKind::Refusal => MessageType::Message,
    }
}

/// `metadata.a2a` of a message that is an artifact.
fn metadata(id: &str, head: &wire::Artifact<'_>, task: Option<&str>) -> Json {
    let mut fields = Extra::new();
    fields.push("artifact_id", Json::from_serialize(id));
    for (name, text) in [("name", &head.name), ("description", &head.description)] {
        if let Some(text) = filled(text) {
            fields.push(name, Json::from_serialize(text));
        }
    }
    for (name, raw) in [("metadata", head.metadata), ("extensions", head.extensions)] {
        if let Some(raw) = raw {
            fields.push(name, Json::from_raw(raw));
        }
    }
    if let Some(task) = task {
        fields.push("task_id", Json::from_serialize(task));
    }
    let mut outer = Extra::new();
    outer.push("a2a", Json::from_serialize(&fields));
    Json::from_serialize(&outer)
}
