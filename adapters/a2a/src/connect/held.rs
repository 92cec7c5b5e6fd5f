//! Messages of a status that an artifact may repeat.
//!
//! ADK sends each text twice: as the message of a status while the task works, and as an artifact. The message is held
//! back until the next item of the task: an artifact with the same parts replaces it. Any other item releases it, so
//! that it keeps its place. Not here: statuses of other agents, which are emitted at once (`messages`).

use interlingua_core::Fault;
use interlingua_core::connector::EventSink;
use serde_json::value::RawValue;

use super::content::{self, PartKind, Scope};
use super::events::ItemReader;
use super::held_texts::{HeldStatus, Texts, Verdict};
use super::options::UpstreamStatusText;
use super::texts::{MessagePosition, is_no_text};
use super::wire;
use crate::wire::Part;

/// Messages that are held back at most, in bytes.
const MAX_HELD: usize = 1 << 20;

impl ItemReader {
    /// Holds a message back. False if it has something else than texts, or there is no room.
    pub(super) fn hold_status(&mut self, raw: &RawValue, parts: &[Part<'_>], scope: Scope) -> bool {
        let held: usize = self.held.iter().map(|held| held.raw.get().len()).sum();
        if self.status_text == UpstreamStatusText::Drop || held + raw.get().len() > MAX_HELD {
            return false;
        }
        let Some(texts) = Texts::from_parts(parts, scope) else { return false };
        self.held.push(HeldStatus { raw: raw.to_owned(), texts });
        true
    }

    /// Emits the held messages.
    pub(super) fn release_statuses(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().try_for_each(|held| self.emit_status(&held.raw, false, sink))
    }

    /// Compares the held messages with the parts of an artifact, or of the last message. A message that these parts
    /// repeat is dropped, one that they continue stays held, and any other is emitted. A message behind one that stays
    /// held stays, too.
    pub(super) fn compare_held(&mut self, parts: &[Part<'_>], sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.held.is_empty() {
            return Ok(());
        }
        let artifact = Texts::from_parts(parts, Scope::Plain).unwrap_or_default();
        let all: String = self.held.iter().map(|held| held.texts.plain()).collect();
        if !all.is_empty() && all == artifact.plain() && self.held.iter().all(|held| held.texts.0.len() == 1) {
            // The pieces of one text, each in a status.
            self.held.clear();
            return Ok(());
        }

        let held = std::mem::take(&mut self.held);
        let last = held.iter().rposition(|held| held.texts.verdict(&artifact) != Verdict::Other);
        for (place, held) in held.into_iter().enumerate() {
            let verdict = if Some(place) == last { held.texts.verdict(&artifact) } else { Verdict::Other };
            match verdict {
                Verdict::Repeated => {}
                Verdict::PlainRepeated => self.emit_status(&held.raw, true, sink)?,
                Verdict::Beginning => self.held.push(held),
                Verdict::Other if self.held.is_empty() => self.emit_status(&held.raw, false, sink)?,
                // Behind a held message, so that the order of messages is kept.
                Verdict::Other => self.held.push(held),
            }
        }
        Ok(())
    }

    /// The task ends or waits. Held messages that the answer has, or is made of, are dropped.
    pub(super) fn settle_statuses(&mut self, is_answer: bool, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for held in std::mem::take(&mut self.held) {
            let plain = held.texts.plain();
            let is_shown = !plain.is_empty() && (is_answer || self.artifacts.have_text(&plain));
            let has_reasoning = held.texts.0.iter().any(|(is_reasoning, _)| *is_reasoning);
            if !is_shown || has_reasoning {
                self.emit_status(&held.raw, is_shown, sink)?;
            }
        }
        Ok(())
    }

    /// Emits a message of a status. `without_plain`: its plain text is left out.
    fn emit_status(&mut self, raw: &RawValue, without_plain: bool, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(mut message) = wire::message(raw) else { return Ok(()) };
        let scope = Scope::read(message.metadata);
        let mut parts = message.take_parts(self.form);
        if without_plain {
            parts.retain(|part| is_no_text(part) || content::kind_in(part, scope) != PartKind::Plain);
        }
        self.emit_parts(&message, &parts, MessagePosition::Status(self.status_text), sink)
    }
}
