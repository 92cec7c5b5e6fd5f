//! Artifacts while they are read: which contents an artifact has, so that what an agent repeats in a task, or says
//! again after a cut, is emitted once.
//!
//! Of a text only its length and digest are kept; that suffices to emit what is new of a longer one, and to notice that
//! it is another one. Not here: the messages that the contents of an artifact become (`written`).

use std::borrow::Cow;
use std::collections::HashMap;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::{Fault, FaultKind};

use super::content::Scope;
use super::digest::Digest;
use super::slots::{Group, Slot, groups, unmarked};
use super::wire;
use super::written::{Messages, Mode, Writer};
use crate::wire::{Content, Part};

/// More artifacts than any task has.
const MAX_ARTIFACTS: usize = 100_000;

#[derive(Debug)]
struct Artifact {
    id: String,
    slots: Vec<Slot>,
    messages: Messages,
    /// Its own metadata say that its texts are reasoning.
    scope: Scope,
    /// Events that brought parts of it.
    pieces: u32,
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
    /// The artifacts of a continued task that an earlier turn emitted.
    pub(super) fn resumed(known: Vec<(String, Vec<Slot>)>) -> Self {
        let mut artifacts = Self::default();
        for (id, slots) in known {
            let place = artifacts.open(&id);
            artifacts.all[place].slots = slots;
        }
        artifacts
    }

    /// The artifacts to store.
    pub(super) fn known(&self) -> impl DoubleEndedIterator<Item = (&str, &[Slot])> {
        self.all.iter().map(|artifact| (artifact.id.as_str(), artifact.slots.as_slice()))
    }

    /// True if a text says just what one of the artifacts says, or all of them together.
    pub(super) fn have_text(&self, text: &str) -> bool {
        let all = || self.all.iter();
        all().any(|artifact| artifact.says(text))
            || (!self.all.is_empty() && says(text, all().flat_map(Artifact::texts)))
    }

    /// True if something of an artifact was read.
    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// True for the text of a new artifact that came in pieces before. `is_listed`: artifacts that the same snapshot
    /// has beside it.
    pub(super) fn repeats_pieces(&self, text: &str, is_listed: impl Fn(&str) -> bool) -> bool {
        if text.is_empty() {
            return false;
        }
        let mut others = self.all.iter().filter(|artifact| !is_listed(&artifact.id) && !artifact.slots.is_empty());
        let pieces: u32 = others.clone().map(|artifact| artifact.pieces).sum();
        let is_one = others.any(|artifact| artifact.pieces > 1 && artifact.says(text));
        let all = self.all.iter().filter(|artifact| !is_listed(&artifact.id));
        is_one || (pieces > 1 && says(text, all.flat_map(Artifact::texts)))
    }

    /// Notes an artifact whose text was emitted before, under another id.
    pub(super) fn add_known(&mut self, id: &str, parts: &[Part<'_>]) {
        if self.all.len() < MAX_ARTIFACTS {
            let place = self.open(id);
            self.all[place].slots = groups(parts, Scope::Plain).iter().map(Group::slot).collect();
        }
    }

    fn open(&mut self, id: &str) -> usize {
        self.by_id.insert(id.to_owned(), self.all.len());
        self.all.push(Artifact {
            id: id.to_owned(),
            slots: Vec::new(),
            messages: Messages::new(id),
            scope: Scope::Plain,
            pieces: 0,
            last_piece: None,
        });
        self.all.len() - 1
    }

    /// The hot path: one more fragment of the text that an artifact ends with. False if it is anything else; then
    /// nothing was done.
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
        if text.is_empty() || artifact.scope == Scope::Reasoning {
            return Ok(false);
        }
        let place = artifact.slots.len().wrapping_sub(1);
        let Some((message, index)) = artifact.messages.open_place(place) else { return Ok(false) };
        let Some(slot) = artifact.slots.last_mut().filter(|slot| slot.text && slot.mark == unmarked()) else {
            return Ok(false);
        };
        let value = ContentValue::Text(Cow::Borrowed(text));
        let event = ContentEvent::new(message, ContentUpdate::Append, value).at(index);
        sink.emit(&AgentEvent::Content(event))?;
        slot.len += text.len() as u64;
        slot.digest.update(text.as_bytes());
        artifact.pieces = artifact.pieces.saturating_add(1);
        self.emitted += 1;
        Ok(true)
    }

    /// Reads an artifact, or more of it. `parts`: those of the artifact.
    pub(super) fn read(
        &mut self,
        id: &str,
        artifact: &wire::Artifact<'_>,
        parts: &[Part<'_>],
        mode: Mode,
        task: Option<&str>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let place = match self.by_id.get(id) {
            Some(place) => *place,
            // Without parts there is nothing to emit yet.
            None if parts.is_empty() => return Ok(()),
            None if self.all.len() >= MAX_ARTIFACTS => {
                return Err(Fault::new(FaultKind::UpstreamTooLarge, "the agent's task has too many artifacts"));
            }
            None => self.open(id),
        };

        let known = &mut self.all[place];
        if artifact.metadata.is_some() && known.scope == Scope::Plain {
            known.scope = Scope::read(artifact.metadata);
        }
        known.pieces = known.pieces.saturating_add(u32::from(!parts.is_empty()));
        known.last_piece = match parts.last().map(|part| &part.content) {
            Some(Content::Text(text)) if mode == Mode::Snapshot => Some(Digest::from_bytes(text.as_bytes())),
            _ => None,
        };
        let groups = groups(parts, known.scope);
        let Artifact { id, slots, messages, .. } = known;
        let mut writer = Writer { id, slots, messages, head: artifact, task, sink, emitted: 0 };
        let written = match mode {
            Mode::Append => writer.append(&groups),
            Mode::Replace | Mode::Snapshot => writer.compare(&groups, mode),
        };
        self.emitted += writer.emitted;
        written
    }

    /// Whether a piece repeats the end of a snapshot, as the first piece after it.
    pub(super) fn skip_repeated(&mut self, id: &str, text: &str) -> bool {
        let artifact = self.by_id.get(id).map(|place| &mut self.all[*place]);
        let last = artifact.and_then(|artifact| artifact.last_piece.take());
        last.is_some_and(|last| last == Digest::from_bytes(text.as_bytes()))
    }

    /// No more of an artifact is expected.
    pub(super) fn finish(&mut self, id: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(artifact) = self.by_id.get(id).map(|place| &mut self.all[*place]) else { return Ok(()) };
        artifact.messages.finish(sink)
    }
}

impl Artifact {
    fn texts(&self) -> impl Iterator<Item = &Slot> + '_ {
        self.slots.iter().filter(|slot| slot.is_answer())
    }

    /// True if a text is all that this artifact says.
    fn says(&self, text: &str) -> bool {
        self.texts().next().is_some() && says(text, self.texts())
    }
}

/// True if a text consists of these slots.
fn says<'s>(mut text: &str, slots: impl Iterator<Item = &'s Slot>) -> bool {
    for slot in slots {
        let Some((piece, rest)) = usize::try_from(slot.len).ok().and_then(|end| text.split_at_checked(end)) else {
            return false;
        };
        if Digest::from_bytes(piece.as_bytes()) != slot.digest {
            return false;
        }
        text = rest;
    }
    text.is_empty()
}
