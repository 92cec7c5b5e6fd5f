//! Artifacts while they are read: which contents an artifact has, so that what an agent repeats in a task, or says again
//! after a cut, is emitted once.
//!
//! Of a text only its length and digest are kept; that suffices to emit what is new of a longer one, and to notice that
//! it is another one.

use std::borrow::Cow;
use std::collections::HashMap;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Extra, Fault, FaultKind, Json};

use super::content::{self, PartKind};
use super::digest::Digest;
use super::slots::{Group, Slot, groups, unmarked};
use super::wire::{self, filled};
use crate::dialect::WireFormat;
use crate::wire::Content;

/// More artifacts than any task has.
const MAX_ARTIFACTS: usize = 100_000;

/// How the parts of an artifact relate to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are added.
    Append,
    /// They are all there are.
    Replace,
    /// They are all there were when the task was read.
    Snapshot,
}

#[derive(Debug)]
struct Artifact {
    id: String,
    slots: Vec<Slot>,
    /// The canonical message's id.
    message: String,
    /// Messages it had before this one.
    earlier: u32,
    announced: bool,
    finished: bool,
    /// The last piece of the text in a snapshot. The stream that follows may begin with it.
    last_piece: Option<Digest>,
}

/// The artifacts of a task.
#[derive(Debug, Default)]
pub(super) struct Artifacts {
    all: Vec<Artifact>,
    by_id: HashMap<String, usize>,
    /// Events that were emitted of them in this turn.
    pub(super) emitted: u64,
    /// The one that was read last: nearly always the next one, too.
    latest: usize,
}

impl Artifacts {
    /// The artifacts of a task that goes on, as far as an earlier turn emitted them.
    pub(super) fn resumed(known: Vec<(String, Vec<Slot>)>) -> Self {
        let mut artifacts = Self::default();
        for (id, slots) in known {
            let place = artifacts.open(&id);
            artifacts.all[place].slots = slots;
        }
        artifacts
    }

    /// What has to be remembered of them.
    pub(super) fn known(&self) -> impl DoubleEndedIterator<Item = (&str, &[Slot])> {
        self.all.iter().map(|artifact| (artifact.id.as_str(), artifact.slots.as_slice()))
    }

    /// True if a text says just what one of the artifacts says, or all of them together.
    pub(super) fn have_text(&self, text: &str) -> bool {
        fn consume<'s, 't>(mut text: &'t str, slots: impl Iterator<Item = &'s Slot>) -> Option<&'t str> {
            for slot in slots.filter(|slot| slot.text) {
                let end = usize::try_from(slot.len).ok()?;
                let piece = text.get(..end)?;
                if Digest::of(piece.as_bytes()) != slot.digest {
                    return None;
                }
                text = &text[end..];
            }
            Some(text)
        }
        let whole = |slots: &mut dyn Iterator<Item = &Slot>| consume(text, slots) == Some("");
        let is_one = self.all.iter().any(|artifact| !artifact.slots.is_empty() && whole(&mut artifact.slots.iter()));
        is_one || (!self.all.is_empty() && whole(&mut self.all.iter().flat_map(|artifact| &artifact.slots)))
    }

    fn open(&mut self, id: &str) -> usize {
        let (id, message) = (id.to_owned(), id.to_owned());
        self.by_id.insert(id.clone(), self.all.len());
        let artifact = Artifact {
            id,
            message,
            slots: Vec::new(),
            earlier: 0,
            announced: false,
            finished: false,
            last_piece: None,
        };
        self.all.push(artifact);
        self.all.len() - 1
    }

    /// The hot path: one more fragment of the text that an artifact ends with. False if it is anything else; then nothing
    /// was done.
    pub(super) fn append_text(&mut self, id: &str, text: &str, sink: &mut dyn EventSink) -> Result<bool, Fault> {
        if self.all.get(self.latest).is_none_or(|artifact| artifact.id != id) {
            let Some(place) = self.by_id.get(id) else { return Ok(false) };
            self.latest = *place;
        }
        self.append_to_latest(text, sink)
    }

    /// The same for the artifact that was read last by [`Self::append_text`].
    #[inline]
    pub(super) fn append_to_latest(&mut self, text: &str, sink: &mut dyn EventSink) -> Result<bool, Fault> {
        let Some(artifact) = self.all.get_mut(self.latest) else { return Ok(false) };
        if !artifact.announced || artifact.finished || text.is_empty() {
            return Ok(false);
        }
        let place = u32::try_from(artifact.slots.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let Some(slot) = artifact.slots.last_mut().filter(|slot| slot.text && slot.mark == unmarked()) else {
            return Ok(false);
        };
        let value = ContentValue::Text(Cow::Borrowed(text));
        let event = ContentEvent::new(&artifact.message, ContentUpdate::Append, value).at(place);
        sink.emit(&AgentEvent::Content(event))?;
        slot.len += text.len() as u64;
        slot.digest.update(text.as_bytes());
        self.emitted += 1;
        Ok(true)
    }

    /// Reads an artifact, or more of it.
    pub(super) fn read(
        &mut self,
        artifact: &mut wire::Artifact<'_>,
        mode: Mode,
        form: WireFormat,
        task: Option<&str>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let parts = artifact.take_parts(form);
        let id = filled(&artifact.artifact_id).unwrap_or_default();
        let place = match self.by_id.get(id) {
            Some(place) => *place,
            // Without parts there is nothing to emit yet.
            None if parts.is_empty() => return Ok(()),
            None if self.all.len() >= MAX_ARTIFACTS => {
                return Err(Fault::new(FaultKind::UpstreamTooLarge, "the agent's task has too many artifacts"));
            }
            None => self.open(id),
        };

        self.all[place].last_piece = match parts.last().map(|part| &part.content) {
            Some(Content::Text(text)) if mode == Mode::Snapshot => Some(Digest::of(text.as_bytes())),
            _ => None,
        };
        let mut writer = Writer { artifact: &mut self.all[place], head: artifact, task, sink, emitted: 0 };
        let groups = groups(&parts);
        let written = match mode {
            Mode::Append => writer.append(&groups),
            Mode::Replace | Mode::Snapshot => writer.compare(&groups, mode),
        };
        self.emitted += writer.emitted;
        written
    }

    /// True for a piece that a snapshot ended with, if it comes first behind it.
    pub(super) fn is_repeated(&mut self, id: &str, text: &str) -> bool {
        let artifact = self.by_id.get(id).map(|place| &mut self.all[*place]);
        let last = artifact.and_then(|artifact| artifact.last_piece.take());
        last.is_some_and(|last| last == Digest::of(text.as_bytes()))
    }

    /// No more of an artifact is expected.
    pub(super) fn finish(&mut self, id: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(artifact) = self.by_id.get(id).map(|place| &mut self.all[*place]) else { return Ok(()) };
        if !artifact.announced || artifact.finished {
            return Ok(());
        }
        artifact.finished = true;
        sink.emit(&AgentEvent::message_finished(&artifact.message, End::Completed))
    }
}

/// Emits what is new of one artifact.
struct Writer<'w, 'a> {
    artifact: &'w mut Artifact,
    head: &'w wire::Artifact<'a>,
    task: Option<&'w str>,
    sink: &'w mut dyn EventSink,
    emitted: u64,
}

impl Writer<'_, '_> {
    fn append(&mut self, groups: &[Group<'_, '_>]) -> Result<(), Fault> {
        for group in groups {
            let last = self.artifact.slots.last();
            let goes_on = last.is_some_and(|last| group.text && last.text && last.mark == group.mark);
            if goes_on {
                self.text(self.artifact.slots.len() - 1, group, 0)?;
            } else if group.len() > 0 || !group.text || last.is_none() {
                // An empty text at the end only carries the mark that it is the end.
                self.add(group)?;
            }
        }
        Ok(())
    }

    /// Emits what differs from what was read before.
    fn compare(&mut self, groups: &[Group<'_, '_>], mode: Mode) -> Result<(), Fault> {
        if mode == Mode::Replace && self.artifact.finished {
            let same = groups.len() == self.artifact.slots.len()
                && groups.iter().zip(&self.artifact.slots).all(|(group, slot)| group.slot() == *slot);
            if same {
                return Ok(());
            }
            // A message that has ended cannot be replaced: its successor has all of it.
            self.artifact.slots.clear();
        }

        for (place, group) in groups.iter().enumerate() {
            let Some(old) = self.artifact.slots.get(place) else {
                self.add(group)?;
                continue;
            };
            let new = group.slot();
            if new == *old {
                continue;
            }
            let is_same_text = group.text && old.text && new.mark == old.mark;
            if is_same_text && let Some(known) = group.known_prefix(old) {
                self.text(place, group, known)?;
            } else if mode == Mode::Snapshot && is_same_text && new.len < old.len {
                // A server that answers from an older state than it streamed takes nothing back by that.
            } else {
                self.replace(place, group, new)?;
            }
        }
        Ok(())
    }

    /// Emits a text from a byte on, piece by piece.
    fn text(&mut self, place: usize, group: &Group<'_, '_>, mut skip: usize) -> Result<(), Fault> {
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
            self.emit(place, ContentUpdate::Append, value, &group.kind)?;
            let slot = &mut self.artifact.slots[place];
            slot.len += rest.len() as u64;
            slot.digest.update(rest.as_bytes());
        }
        Ok(())
    }

    /// A content that was not there before.
    fn add(&mut self, group: &Group<'_, '_>) -> Result<(), Fault> {
        let place = self.artifact.slots.len();
        self.artifact.slots.push(Slot { text: group.text, mark: group.mark, len: 0, digest: Digest::default() });
        if group.text && group.len() > 0 {
            return self.text(place, group, 0);
        }
        let update = if group.text { ContentUpdate::Append } else { ContentUpdate::Final };
        for part in group.parts.iter().take(1) {
            self.emit(place, update, content::value(part, &group.kind), &group.kind)?;
        }
        self.artifact.slots[place] = group.slot();
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
        self.artifact.slots[place] = new;
        Ok(())
    }

    fn emit(
        &mut self,
        place: usize,
        update: ContentUpdate,
        value: ContentValue<'_>,
        kind: &PartKind,
    ) -> Result<(), Fault> {
        self.announce(kind)?;
        let index = u32::try_from(place).unwrap_or(u32::MAX);
        let event = ContentEvent::new(&self.artifact.message, update, value).at(index);
        self.sink.emit(&AgentEvent::Content(event))
    }

    /// Announces the message, with what only the artifact's head says.
    fn announce(&mut self, kind: &PartKind) -> Result<(), Fault> {
        self.emitted += 1;
        let artifact = &mut *self.artifact;
        if artifact.announced && !artifact.finished {
            return Ok(());
        }
        // What comes after the end of a message is a message of its own.
        if artifact.finished {
            artifact.earlier += 1;
            artifact.message = format!("{}-{}", artifact.id, artifact.earlier + 1);
            artifact.finished = false;
        }
        artifact.announced = true;

        let kind = match kind {
            PartKind::Reasoning => MessageType::Reasoning,
            PartKind::Typed(kind) => kind.clone(),
            _ => MessageType::Message,
        };
        self.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&artifact.message)),
            kind: Some(kind),
            role: Some(Role::Assistant),
            metadata: Some(JsonRef::Owned(metadata(&artifact.id, self.head, self.task))),
            ..MessageEvent::default()
        }))
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
