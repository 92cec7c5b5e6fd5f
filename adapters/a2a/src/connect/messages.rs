//! Messages of an agent: status messages while it works, the final message, and replies without a task.

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Fault};
use serde_json::value::RawValue;

use super::content::{self, PartKind, Scope};
use super::events::ItemReader;
use super::labels::{message_type, metadata};
use super::options::UpstreamStatusText;
use super::texts::{MessagePosition, is_no_text, message_digest};
use super::wire::{self, Message, filled};
use crate::wire::{Content, Part};

/// Maximum number of remembered status messages, which are not emitted again. Beyond it, older messages may be
/// repeated.
const MAX_MESSAGES: usize = 100_000;
/// Plain text of statuses that is kept in case it turns out to be the answer, in bytes.
const MAX_STATUS_TEXT: usize = 1 << 20;

impl ItemReader {
    /// True for a status message that was not read before.
    pub(super) fn mark_read(&mut self, raw: &RawValue) -> bool {
        self.mark_digest_read(message_digest(raw))
    }

    /// True for a digest that was not read before.
    pub(super) fn mark_digest_read(&mut self, digest: u64) -> bool {
        if self.messages.len() >= MAX_MESSAGES {
            self.messages.clear();
        }
        self.messages.insert(digest)
    }

    /// Reads a status message of a working agent. `is_held`: an artifact may repeat it.
    pub(super) fn status_message(
        &mut self,
        raw: &RawValue,
        is_held: bool,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let Some(mut message) = wire::message(raw).filter(|_| self.mark_read(raw)) else { return Ok(()) };
        self.start(sink)?;
        let mut parts = message.take_parts(self.form);
        let count = parts.len();
        self.take_long_running_calls(&mut parts);
        let scope = Scope::read(message.metadata);
        for part in &parts {
            if let (Content::Text(text), PartKind::Plain) = (&part.content, content::kind_in(part, scope))
                && self.plain.len() + text.len() <= MAX_STATUS_TEXT
            {
                self.plain.push_str(text);
            }
        }
        if is_held && parts.len() == count && self.hold_status(raw, &parts, scope) {
            return sink.emit(&AgentEvent::KeepAlive);
        }
        self.release_statuses(sink)?;
        self.emit_parts(&message, &parts, MessagePosition::Status(self.status_text), sink)
    }

    /// A status message that people have to see.
    pub(super) fn shown_message(&mut self, raw: &RawValue, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(mut message) = wire::message(raw).filter(|_| self.mark_read(raw)) else { return Ok(()) };
        let parts = message.take_parts(self.form);
        self.emit_parts(&message, &parts, MessagePosition::Answer, sink)
    }

    /// Emits the parts of a message: adjacent ones of one type are one canonical message.
    pub(super) fn emit_parts(
        &mut self,
        message: &Message<'_>,
        parts: &[Part<'_>],
        place: MessagePosition,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let scope = Scope::read(message.metadata);
        let kinds: Vec<(PartKind, MessageType)> = parts
            .iter()
            .map(|part| {
                let kind = content::kind_in(part, scope);
                let message = message_type(&kind, part, place);
                (kind, message)
            })
            .collect();
        let own_id = filled(&message.message_id).unwrap_or_default();
        let (mut start, mut number) = (0, 1_u32);
        while start < parts.len() {
            let kind = &kinds[start].1;
            let end = (start..parts.len()).find(|place| kinds[*place].1 != *kind).unwrap_or(parts.len());
            let range = start..end;
            start = end;
            let is_dropped =
                place == MessagePosition::Status(UpstreamStatusText::Drop) && kinds[range.start].0 == PartKind::Plain;
            if is_dropped && !parts[range.clone()].iter().any(is_no_text) {
                continue;
            }

            let id = match (own_id, number) {
                ("", _) => Cow::Borrowed(""),
                (id, 1) => Cow::Borrowed(id),
                (id, number) => Cow::Owned(format!("{id}-{number}")),
            };
            number += 1;
            self.answered |= *kind == MessageType::Message;
            let contents = parts[range.clone()].iter().zip(&kinds[range]).zip(0..).map(|((part, (kind, _)), index)| {
                ContentEvent::new(&id, ContentUpdate::Final, content::value(part, kind)).at(index)
            });
            sink.emit(&AgentEvent::Message(MessageEvent {
                id: Some(Cow::Borrowed(&id)),
                kind: Some(kind.clone()),
                role: Some(if kind.is_output() { Role::Tool } else { Role::Assistant }),
                end: Some(End::Completed),
                contents: contents.collect(),
                metadata: metadata(message, place),
                ..MessageEvent::default()
            }))?;
        }
        Ok(())
    }
}
