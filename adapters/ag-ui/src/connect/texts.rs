//! Texts and reasoning of an answer as messages: which are open, and how they end.
//!
//! Not here: calls ([`super::calls`]).

use std::borrow::Cow;

use interlingua_adapter_kit::text_ledger::TextDigest;
use interlingua_core::agent_event::{AgentEvent, MessageEvent};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Extra, Fault, Json};

use super::context::{Context, HeldEnd, to_metadata};
use super::frame::{Fields, text_or_json};
use super::ids::key;

/// At most this many texts are open at once. Beyond that, the oldest is taken to have ended.
const MAX_OPEN: usize = 64;
/// Texts of snapshots that are compared with later streams, in bytes.
const MAX_AHEAD: usize = 1 << 20;

/// A text that has not ended.
#[derive(Debug)]
struct OpenText {
    /// The agent's id. Empty for reasoning of the time before it had ids.
    key: String,
    /// The message's id in the run. Empty: the message has not begun, since it has no text yet.
    id: String,
    kind: MessageType,
    role: Role,
    metadata: Extra,
    /// It came in chunks, which have no end of their own.
    is_chunked: bool,
    /// Digest of the emitted text.
    digest: TextDigest,
    /// Text that is held back: it repeats the whole text before it, which is no message if a call follows, or it
    /// repeats the beginning of a text that a snapshot had before.
    repetition: Option<String>,
    /// The whole text, from a snapshot that was ahead of the stream.
    expected: Option<String>,
}

/// The texts of an answer.
#[derive(Debug, Default)]
pub(super) struct Texts {
    open: Vec<OpenText>,
    /// Digest of the text that ended last, if nothing has arrived since.
    latest: Option<TextDigest>,
    /// Texts that a snapshot had before the stream: the stream may repeat each of them once.
    ahead: Vec<(MessageType, String)>,
    /// Bytes of these texts.
    ahead_bytes: usize,
}

/// The beginning of a text.
pub(super) struct Opening<'a> {
    pub(super) kind: MessageType,
    /// The agent's id. Empty: it gave none.
    pub(super) id: Cow<'a, str>,
    pub(super) role: Role,
    /// The other fields of the event.
    pub(super) metadata: Extra,
    pub(super) is_chunked: bool,
}

impl<'a> Opening<'a> {
    /// The opening that an event says.
    pub(super) fn from_event(kind: MessageType, event: &Fields<'a>) -> Self {
        let mut metadata = Extra::new();
        for (field, name) in [("name", "name"), ("subagentRunId", "subagent_run_id"), ("metadata", "metadata")] {
            if let Some(value) = event.get(field) {
                metadata.push(name, Json::from_raw(value));
            }
        }

        let role = match (&kind, event.text("role").as_deref()) {
            (MessageType::Message, Some("user")) => Role::User,
            (MessageType::Message, Some("system" | "developer")) => Role::System,
            _ => Role::Assistant,
        };
        Self { kind, id: event.text("messageId").unwrap_or_default(), role, metadata, is_chunked: false }
    }

    /// The opening of a text that a snapshot has.
    pub(super) fn from_snapshot(kind: MessageType, role: Role, id: &'a str) -> Self {
        Self { role, ..Self::unannounced(kind, id) }
    }

    /// A text that nothing announced.
    fn unannounced(kind: MessageType, id: &'a str) -> Self {
        Self { kind, id: id.into(), role: Role::Assistant, metadata: Extra::new(), is_chunked: false }
    }
}

impl Texts {
    /// The place of an open text. Without an id, the last one of its kind.
    fn find(&self, kind: &MessageType, id: &str) -> Option<usize> {
        self.open.iter().rposition(|open| open.kind == *kind && (id.is_empty() || is_key_of(&open.key, id)))
    }

    /// A text begins. Its message begins with its first piece: many servers announce texts that never come.
    pub(super) fn start(&mut self, opening: Opening<'_>, context: &mut Context<'_>) -> Result<(), Fault> {
        if !opening.id.is_empty() && self.find(&opening.kind, &opening.id).is_some() {
            return context.sink.emit(&AgentEvent::Ignored);
        }

        if self.open.len() >= MAX_OPEN {
            self.close(0, context)?;
        }

        self.open.push(OpenText {
            key: key(&opening.id),
            id: String::new(),
            kind: opening.kind,
            role: opening.role,
            metadata: opening.metadata,
            is_chunked: opening.is_chunked,
            digest: TextDigest::default(),
            repetition: None,
            expected: None,
        });
        Ok(())
    }

    /// A piece of a text.
    #[inline]
    pub(super) fn push(
        &mut self,
        kind: MessageType,
        id: &str,
        delta: &str,
        context: &mut Context<'_>,
    ) -> Result<(), Fault> {
        if delta.is_empty() {
            return context.sink.emit(&AgentEvent::KeepAlive);
        }

        let place = match self.find(&kind, id) {
            Some(place) => place,
            None => {
                self.start(Opening::unannounced(kind, id), context)?;
                self.open.len() - 1
            }
        };

        if self.open[place].id.is_empty() && self.may_be_repetition(place, delta) {
            context.shared.count_held(delta.len())?;
            self.open[place].repetition.get_or_insert_default().push_str(delta);
            return context.sink.emit(&AgentEvent::KeepAlive);
        }

        self.latest = None;
        let open = &mut self.open[place];
        open.begin(context)?;
        open.digest.push(delta);
        context.sink.emit(&AgentEvent::text(&open.id, delta))
    }

    /// True if a text that has not begun may be a repetition, this piece included.
    fn may_be_repetition(&self, place: usize, delta: &str) -> bool {
        let open = &self.open[place];
        let held = open.repetition.as_deref().unwrap_or_default();
        let is_ahead = |(kind, text): &(MessageType, String)| {
            *kind == open.kind && text.strip_prefix(held).is_some_and(|rest| rest.starts_with(delta))
        };
        open.repeats(self.latest, delta) || self.ahead.iter().any(is_ahead)
    }

    /// Compares a text of a snapshot with the open ones. If one of them is its beginning, the rest arrives with the
    /// stream, or is emitted when the open text ends. Returns the place of that text. `taken`: texts that others of the
    /// snapshot were compared with.
    pub(super) fn expect(&mut self, kind: &MessageType, id: &str, text: &str, taken: &[usize]) -> Option<usize> {
        let is_beginning = |(place, open): &(usize, &OpenText)| {
            let has_text = !open.id.is_empty() || open.repetition.is_some();
            let fits = open.kind == *kind && has_text && open.role == Role::Assistant;
            fits && !taken.contains(place) && (open.key == id || open.rest_of(text).is_some())
        };
        let place = self.open.iter().enumerate().find(is_beginning)?.0;
        let open = &mut self.open[place];
        if open.rest_of(text).is_some() && text.len() <= MAX_AHEAD {
            open.expected = Some(text.to_owned());
        }
        Some(place)
    }

    /// A text has ended.
    pub(super) fn end(&mut self, kind: &MessageType, id: &str, context: &mut Context<'_>) -> Result<(), Fault> {
        match self.find(kind, id) {
            Some(place) => self.close(place, context),
            None => context.sink.emit(&AgentEvent::Ignored),
        }
    }

    /// A piece of a text that no other event begins or ends.
    pub(super) fn chunk(
        &mut self,
        kind: MessageType,
        event: &Fields<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let opening = Opening { is_chunked: true, ..Opening::from_event(kind.clone(), event) };
        let id = opening.id.clone().into_owned();
        if self.find(&kind, &id).is_none() {
            self.start(opening, context)?;
        }
        match event.get("delta") {
            Some(delta) => self.push(kind, &id, &text_or_json(delta), context),
            None => context.sink.emit(&AgentEvent::KeepAlive),
        }
    }

    /// Adds a value that only the agent can read to an open message. Returns whether there was one.
    pub(super) fn seal(&mut self, entity: &str, value: &Json, context: &Context<'_>) -> bool {
        let open = self.open.iter_mut().find(|open| open.key == entity && open.kind == MessageType::Reasoning);
        if let Some(open) = open {
            context.seal(&mut open.metadata, value.clone());
            return true;
        }
        false
    }

    /// Ends the texts that came in chunks, except one: another event has arrived.
    pub(super) fn end_chunks(&mut self, except: Option<&str>, context: &mut Context<'_>) -> Result<(), Fault> {
        let is_over =
            |open: &OpenText| open.is_chunked && except.is_none_or(|id| !id.is_empty() && !is_key_of(&open.key, id));
        while let Some(place) = self.open.iter().position(is_over) {
            self.close(place, context)?;
        }
        Ok(())
    }

    /// Ends every text.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) -> Result<(), Fault> {
        while !self.open.is_empty() {
            self.close(0, context)?;
            context.release()?;
        }
        Ok(())
    }

    /// Handles an event that is not a text.
    pub(super) fn forget_latest(&mut self) {
        self.latest = None;
    }

    fn close(&mut self, place: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        let mut open = self.open.remove(place);
        if let Some(text) = open.repetition.take() {
            let is_ahead = |(kind, ahead): &(MessageType, String)| *kind == open.kind && *ahead == text;
            if let Some(place) = self.ahead.iter().position(is_ahead) {
                self.ahead_bytes -= self.ahead.swap_remove(place).1.len();
                return Ok(());
            }
            if open.kind == MessageType::Message && self.latest == Some(TextDigest::from_text(&text)) {
                // What comes next decides.
                return context.hold(HeldEnd::Repetition {
                    key: open.key,
                    role: open.role,
                    metadata: open.metadata,
                    text,
                });
            }
            open.repetition = Some(text);
            open.begin(context)?;
        }

        if open.id.is_empty() {
            // Pydantic AI opens an empty message for calls to belong to.
            return Ok(());
        }

        let missing = open.expected.take();
        if let Some(rest) =
            missing.as_deref().and_then(|text| open.digest.rest_of(text)).filter(|rest| !rest.is_empty())
        {
            context.sink.emit(&AgentEvent::text(&open.id, rest))?;
            open.digest.push(rest);
        }
        context.shared.emitted.add(&open.key, open.kind.clone(), open.digest);
        if open.kind == MessageType::Message {
            self.latest = Some(open.digest);
            return context.sink.emit(&AgentEvent::message_finished(&open.id, End::Completed));
        }
        // What only the agent can read comes after the end.
        context.hold(HeldEnd::End {
            entity: open.key,
            id: open.id,
            metadata: open.metadata,
            end: End::Completed,
            is_output: false,
        })
    }

    /// A whole text of a snapshot. The stream may have it later.
    pub(super) fn whole(&mut self, opening: Opening<'_>, text: &str, context: &mut Context<'_>) -> Result<(), Fault> {
        let (kind, id) = (opening.kind.clone(), key(&opening.id));
        self.latest = None;
        self.start(opening, context)?;
        // The text is not compared with those of the snapshots before it.
        let ahead = std::mem::take(&mut self.ahead);
        self.push(kind.clone(), &id, text, context)?;
        self.ahead = ahead;
        self.end(&kind, &id, context)?;
        if self.ahead_bytes + text.len() <= MAX_AHEAD {
            self.ahead_bytes += text.len();
            self.ahead.push((kind, text.to_owned()));
        }
        Ok(())
    }
}

impl OpenText {
    /// True if the first piece of this text is all that the text before it said.
    fn repeats(&self, latest: Option<TextDigest>, delta: &str) -> bool {
        let is_answer = self.kind == MessageType::Message && self.role == Role::Assistant;
        is_answer
            && self.repetition.is_none()
            && latest.is_some_and(|latest| latest.len() == delta.len() && latest == TextDigest::from_text(delta))
    }

    /// The rest of a text that begins with this one.
    fn rest_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        match &self.repetition {
            Some(held) => text.strip_prefix(held.as_str()),
            None => self.digest.rest_of(text),
        }
    }

    /// Begins the message, unless it has begun.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), Fault> {
        if !self.id.is_empty() {
            return Ok(());
        }

        self.id = context.begin_message(&self.key, &mut self.metadata);
        context.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&self.id)),
            kind: Some(self.kind.clone()),
            role: Some(self.role.clone()),
            metadata: to_metadata(&self.metadata),
            ..MessageEvent::default()
        }))?;

        if let Some(text) = self.repetition.take() {
            self.digest.push(&text);
            context.sink.emit(&AgentEvent::text(&self.id, &text))?;
        }
        Ok(())
    }
}

/// True if this id of the agent is remembered under this key.
fn is_key_of(known: &str, id: &str) -> bool {
    known == id || (id.len() > known.len() && known == key(id))
}
