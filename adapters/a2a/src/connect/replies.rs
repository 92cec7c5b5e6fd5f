//! Messages that an agent streams: the whole answer, or pieces of it.
//!
//! By the specification a message is all of a stream. Agents send several: each with a piece of the text and the same
//! id, with reasoning under another id, and with no part at all. The pieces of one id are one text; a message without
//! parts adds nothing. Not here: messages of statuses, and a message that is a whole body (`messages`).

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Fault, FaultKind};
use serde_json::value::RawValue;

use super::content::{self, PartKind, Scope};
use super::labels::{message_type, metadata};
use super::texts::MessagePosition;
use super::wire::{Message, filled};
use crate::wire::{Content, Part};
use interlingua_adapter_kit::text_ledger::TextDigest;

/// More messages than any answer has.
const MAX_REPLIES: usize = 10_000;

/// A message of the run that pieces are appended to.
#[derive(Debug)]
struct Reply {
    /// The agent's id.
    own: String,
    /// The id in the run.
    id: String,
    kind: MessageType,
    /// The place of the last content, and whether it is a plain text.
    last: Option<(u32, PartKind)>,
    text: TextDigest,
    is_open: bool,
    /// A snapshot has its text, too.
    is_repeated: bool,
}

/// The messages of a stream.
#[derive(Debug, Default)]
pub(super) struct Replies {
    all: Vec<Reply>,
    were_read: bool,
    /// Events that were emitted.
    pub(super) emitted: u64,
    usage: Option<Box<RawValue>>,
}

impl Replies {
    /// True if a message was read, be it without a part.
    pub(super) const fn were_read(&self) -> bool {
        self.were_read
    }

    /// The metadata of the last message that has some.
    pub(super) fn usage(&mut self) -> Option<Box<RawValue>> {
        self.usage.take()
    }

    /// True for a text that is that of one message, or of all together.
    pub(super) fn repeat(&mut self, text: &str) -> bool {
        if text.is_empty() {
            return false;
        }
        let is_answer = |reply: &&mut Reply| reply.kind == MessageType::Message && !reply.is_repeated;
        let digest = TextDigest::from_text(text);
        if let Some(reply) = self.all.iter_mut().filter(is_answer).find(|reply| reply.text == digest) {
            reply.is_repeated = true;
            return true;
        }

        let mut rest = text;
        for reply in self.all.iter_mut().filter(is_answer) {
            let Some(next) = reply.text.rest_of(rest) else { return false };
            rest = next;
        }
        let is_repeated = rest.is_empty() && !self.all.is_empty();
        if is_repeated {
            self.all.iter_mut().for_each(|reply| reply.is_repeated = true);
        }
        is_repeated
    }

    /// Reads a message. True if something of the answer was emitted.
    pub(super) fn read(
        &mut self,
        message: &Message<'_>,
        parts: &[Part<'_>],
        sink: &mut dyn EventSink,
    ) -> Result<bool, Fault> {
        self.were_read = true;
        if let Some(metadata) = message.metadata {
            self.usage = Some(metadata.to_owned());
        }
        if parts.is_empty() {
            sink.emit(&AgentEvent::KeepAlive)?;
        }

        let scope = Scope::read(message.metadata);
        let mut is_answered = false;
        for part in parts {
            let kind = content::kind_in(part, scope);
            let message_kind = message_type(&kind, part, MessagePosition::Reply);
            is_answered |= message_kind == MessageType::Message;
            let place = self.place(message, &message_kind, sink)?;
            self.part(place, part, kind, sink)?;
        }
        Ok(is_answered)
    }

    /// The open message for a part: that of its id and kind, else a new one.
    fn place(&mut self, message: &Message<'_>, kind: &MessageType, sink: &mut dyn EventSink) -> Result<usize, Fault> {
        let own = filled(&message.message_id).unwrap_or_default();
        // Nearly always the last one.
        let known = self.all.iter().rposition(|reply| reply.is_open && reply.own == own && reply.kind == *kind);
        // What stands between two texts parts them, unless it has an id of its own.
        self.close(|reply| reply.kind != *kind && (reply.own == own || reply.kind != MessageType::Message), sink)?;
        if let Some(place) = known.filter(|place| self.all[*place].is_open) {
            return Ok(place);
        }

        if self.all.len() >= MAX_REPLIES {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the agent's answer has too many messages"));
        }
        let earlier = self.all.iter().filter(|reply| reply.own == own).count();
        let id = match (own, earlier) {
            ("", _) => format!("reply-{}", self.all.len() + 1),
            (own, 0) => own.to_owned(),
            (own, earlier) => format!("{own}-{}", earlier + 1),
        };
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(kind.clone()),
            role: Some(if kind.is_output() { Role::Tool } else { Role::Assistant }),
            metadata: metadata(message, MessagePosition::Reply),
            ..MessageEvent::default()
        }))?;
        self.all.push(Reply {
            own: own.to_owned(),
            id,
            kind: kind.clone(),
            last: None,
            text: TextDigest::default(),
            is_open: true,
            is_repeated: false,
        });
        Ok(self.all.len() - 1)
    }

    fn part(&mut self, place: usize, part: &Part<'_>, kind: PartKind, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let reply = &mut self.all[place];
        let is_text = matches!(part.content, Content::Text(_));
        let next = reply.last.as_ref().map_or(0, |(index, _)| index + 1);
        let index = match &reply.last {
            Some((index, last)) if is_text && *last == kind => *index,
            _ => next,
        };
        if let Content::Text(text) = &part.content {
            if text.is_empty() {
                return Ok(());
            }
            reply.text.push(text);
        }
        // Another kind than any text, so that no text is appended to it.
        let last = if is_text { kind.clone() } else { PartKind::Typed(MessageType::Other("part".into())) };
        reply.last = Some((index, last));

        self.emitted += 1;
        let update = if is_text { ContentUpdate::Append } else { ContentUpdate::Final };
        let event = ContentEvent::new(&reply.id, update, content::value(part, &kind)).at(index);
        sink.emit(&AgentEvent::Content(event))?;
        if reply.kind.is_call() || reply.kind.is_output() {
            self.close(|reply| reply.kind.is_call() || reply.kind.is_output(), sink)
        } else {
            Ok(())
        }
    }

    fn close(&mut self, is_over: impl Fn(&Reply) -> bool, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for reply in self.all.iter_mut().filter(|reply| reply.is_open && is_over(reply)) {
            reply.is_open = false;
            sink.emit(&AgentEvent::message_finished(&reply.id, End::Completed))?;
        }
        Ok(())
    }
}
