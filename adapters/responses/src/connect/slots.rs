//! The items of an answer while they arrive, and which of them an event is about.
//!
//! Servers label events in many ways: with the item's place and id, with a place alone, with an id that is another one
//! than the item's, with the same place for all, or not at all.

use std::collections::HashMap;

use super::wire::{Event, index, text};

/// An answer with more items than this has gone wrong.
pub(super) const MAX_ITEMS: usize = 4096;
/// Ids of servers are used up to this length, in bytes.
const MAX_ID: usize = 256;

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    Message,
    Reasoning,
    FunctionCall,
    /// A call with free text instead of arguments.
    CustomCall,
    McpCall,
    /// A call of a tool that the server runs, or knows well.
    Hosted,
    /// Shown once it is whole.
    Whole,
}

impl SlotKind {
    /// By the word in `type`.
    pub(super) fn from_word(word: &str) -> Self {
        match word {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::FunctionCall,
            "custom_tool_call" => Self::CustomCall,
            "mcp_call" => Self::McpCall,
            _ if word.ends_with("_call") => Self::Hosted,
            _ => Self::Whole,
        }
    }

    /// True for calls, whose arguments may come in pieces.
    pub(super) const fn is_call(self) -> bool {
        matches!(self, Self::FunctionCall | Self::CustomCall | Self::McpCall | Self::Hosted)
    }
}

/// An item.
#[derive(Debug)]
pub(super) struct Slot {
    /// The id of its message in the run.
    pub(super) id: String,
    pub(super) kind: SlotKind,
    /// The message was announced.
    pub(super) is_open: bool,
    /// Its end came.
    pub(super) is_closed: bool,
    /// Pieces of its arguments, or of its code, came.
    pub(super) has_arguments: bool,
    /// It is a call whose message has ended, and whose output is still to come.
    pub(super) has_called: bool,
    /// It is a message or reasoning that said something.
    pub(super) has_spoken: bool,
    output_index: Option<u32>,
}

/// The items of an answer.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) all: Vec<Slot>,
    /// The latest item at each place.
    by_index: HashMap<u32, usize>,
    /// The latest item with each id.
    by_id: HashMap<String, usize>,
    /// Items that the list at the end of the answer has repeated.
    settled: Vec<usize>,
    /// Kinds of which that list has as many items as came before.
    paired: Vec<SlotKind>,
    /// The item of the last event: nearly always that of the next one too.
    current: Option<usize>,
    /// The prefix of generated message ids. A number follows it.
    fallback: String,
}

impl Slots {
    /// `fallback`: the prefix of generated message ids.
    pub(super) fn new(fallback: String) -> Self {
        Self { fallback, ..Self::default() }
    }

    /// The open item that an event is about. `fits`: kinds that it can be about.
    pub(super) fn find(&mut self, event: &Event<'_>, fits: fn(SlotKind) -> bool) -> Option<usize> {
        let place = index(event.output_index);
        let is_right = |slot: &Slot| !slot.is_closed && fits(slot.kind);
        if let Some(current) = self.current
            && let slot = &self.all[current]
            && is_right(slot)
            && place.is_some()
            && slot.output_index == place
            && self.by_index.len() == self.all.len()
        {
            return Some(current);
        }

        let wire_id = text(event.item_id).unwrap_or_default();
        let right = |found: Option<&usize>| found.copied().filter(|&found| is_right(&self.all[found]));
        let by_id = right(self.by_id.get(wire_id.as_ref()));
        let found = by_id
            .filter(|&found| place.is_none() || self.all[found].output_index == place)
            .or_else(|| right(place.and_then(|place| self.by_index.get(&place))))
            .or(by_id)
            // Without a label, an event belongs to the last item.
            .or_else(|| {
                let is_unlabelled = place.is_none() && !self.by_id.contains_key(wire_id.as_ref());
                is_unlabelled.then(|| self.all.iter().rposition(is_right)).flatten()
            });
        self.current = found.or(self.current);
        found
    }

    /// The item that an end event belongs to: an open item, or a closed one whose end is repeated. `is_final`: the
    /// event is part of the list at the end of the answer, where servers use other ids than before.
    pub(super) fn known(&self, place: Option<u32>, wire_id: &str, kind: SlotKind, is_final: bool) -> Option<usize> {
        let same = |found: Option<&usize>| found.copied().filter(|&found| self.all[found].kind == kind);
        let by_id = same(self.by_id.get(wire_id)).filter(|_| !wire_id.is_empty());
        let by_index = same(place.and_then(|place| self.by_index.get(&place)));
        let is_open = |found: &usize| !self.all[*found].is_closed;
        let agrees = |found: &usize| {
            let own = self.all[*found].output_index;
            is_final || place.is_none() || own.is_none() || own == place
        };

        by_id
            .filter(agrees)
            .filter(is_open)
            .or(by_index.filter(is_open))
            .or(by_id.filter(is_open))
            .or(by_id.filter(agrees))
            .or(by_index.filter(|_| is_final))
    }

    /// The list at the end of the answer follows, with items of these kinds.
    pub(super) fn begin_final(&mut self, kinds: impl Iterator<Item = SlotKind>) {
        let listed: Vec<SlotKind> = kinds.collect();
        let count =
            |kind: SlotKind, all: &mut dyn Iterator<Item = SlotKind>| all.filter(|other| *other == kind).count();
        self.settled.clear();
        self.paired.clear();
        for kind in [
            SlotKind::Message,
            SlotKind::Reasoning,
            SlotKind::FunctionCall,
            SlotKind::CustomCall,
            SlotKind::McpCall,
            SlotKind::Hosted,
        ] {
            let before = count(kind, &mut self.all.iter().map(|slot| slot.kind));
            if before > 0 && before == count(kind, &mut listed.iter().copied()) {
                self.paired.push(kind);
            }
        }
    }

    /// The item that an entry of that list repeats. `known`: the one that its labels name. Servers that label the list
    /// in another way than the events still list each item once, in the same order.
    pub(super) fn settle(&mut self, known: Option<usize>, kind: SlotKind) -> Option<usize> {
        if self.paired.is_empty() {
            return known;
        }
        let is_paired = self.paired.contains(&kind);
        let in_order = || {
            let mut places = (0..self.all.len()).filter(|place| self.all[*place].kind == kind);
            places.find(|place| !self.settled.contains(place))
        };
        let found = known.filter(|known| !is_paired || !self.settled.contains(known));
        let found = found.or_else(|| if is_paired { in_order() } else { None });
        self.settled.extend(found);
        found
    }

    /// The item of this kind with this id and this place, open or not.
    pub(super) fn labelled(&self, place: Option<u32>, wire_id: &str, kind: SlotKind) -> Option<&Slot> {
        let known = self.by_id.get(wire_id).filter(|_| !wire_id.is_empty()).map(|&known| &self.all[known])?;
        (known.kind == kind && (place.is_none() || known.output_index == place)).then_some(known)
    }

    /// A new item. `None`: there are too many.
    pub(super) fn open(&mut self, place: Option<u32>, wire_id: &str, kind: SlotKind) -> Option<usize> {
        let number = self.all.len();
        if number >= MAX_ITEMS {
            return None;
        }

        let is_usable = !wire_id.is_empty() && wire_id.len() <= MAX_ID && !self.by_id.contains_key(wire_id);
        let id = if is_usable { wire_id.to_owned() } else { format!("{}_{number}", self.fallback) };
        if let Some(place) = place {
            self.by_index.insert(place, number);
        }
        if !wire_id.is_empty() && wire_id.len() <= MAX_ID {
            self.by_id.insert(wire_id.to_owned(), number);
        }

        self.all.push(Slot {
            id,
            kind,
            is_open: false,
            is_closed: false,
            has_arguments: false,
            has_called: false,
            has_spoken: false,
            output_index: place,
        });
        self.current = Some(number);
        Some(number)
    }
}
