//! State that all parts of the reader share: the ids of a turn, buffered values, losses.

use std::borrow::Cow;
use std::collections::HashMap;

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_adapter_kit::text_ledger::{TextDigest, TextLedger};
use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::Losses;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Extra, Fault, FaultKind, Json, opaque};

use super::ids::Ids;

/// At most so much of an answer is held back, in bytes.
const MAX_HELD: usize = 8 << 20;

/// The end of a message, or a message, that waits for the next event.
#[derive(Debug)]
pub(super) enum HeldEnd {
    /// The end of a message: a value that only the agent can read may come for it.
    End {
        /// The agent's id.
        entity: String,
        /// The message's id in the run.
        id: String,
        metadata: Extra,
        end: End,
        /// It is the output of a call.
        is_output: bool,
    },
    /// A text that repeats the one before it. Agno says a text again before a call that waits for a person.
    Repetition { key: String, role: Role, metadata: Extra, text: String },
}

/// State with the lifetime of the turn.
#[derive(Debug, Default)]
pub(super) struct TurnState {
    pub(super) ids: Ids,
    pub(super) losses: Losses,
    held: Option<HeldEnd>,
    pub(super) call_ids: CallIds,
    /// The texts of this turn that have ended.
    pub(super) emitted: TextLedger,
    /// The agent's ids of messages that were read, or that it was sent; true once there was text of it.
    known: HashMap<String, bool>,
    /// The agent's id of the message that began last.
    latest_message: Option<String>,
    /// The protocol and the agent's name: the author of what only the agent can read.
    origin: String,
    /// Bytes that are held back.
    held_bytes: usize,
}

impl TurnState {
    /// State of a turn with an agent that knows messages of these ids.
    pub(super) fn new(origin: String, known: impl IntoIterator<Item = String>) -> Self {
        let known = known.into_iter().map(|key| (key, true)).collect();
        Self { origin, known, ..Self::default() }
    }

    /// True if text of a message of this id was read, or it was sent.
    pub(super) fn has_text_of(&self, key: &str) -> bool {
        self.known.get(key) == Some(&true)
    }

    /// Notes an id of a message whose text was read under another one.
    pub(super) fn add_alias(&mut self, key: &str) {
        self.known.insert(key.to_owned(), true);
    }

    pub(super) fn latest_message(&self) -> Option<&str> {
        self.latest_message.as_deref()
    }

    /// Counts what is held back.
    ///
    /// # Errors
    /// If it is too much.
    pub(super) fn count_held(&mut self, bytes: usize) -> Result<(), Fault> {
        self.held_bytes += bytes;
        if self.held_bytes <= MAX_HELD {
            return Ok(());
        }
        Err(Fault::new(FaultKind::UpstreamTooLarge, "the agent's calls are larger than the gateway holds back")
            .with_detail(format!("more than {MAX_HELD} bytes")))
    }
}

/// The context for reading one event.
pub(super) struct Context<'a> {
    pub(super) sink: &'a mut dyn EventSink,
    pub(super) shared: &'a mut TurnState,
}

impl Context<'_> {
    /// An id for a message of the answer that begins, and who made it in its metadata.
    pub(super) fn begin_message(&mut self, key: &str, metadata: &mut Extra) -> String {
        self.begin_part(key, metadata);
        if !key.is_empty() {
            self.shared.known.insert(key.to_owned(), true);
        }
        self.shared.ids.unique(key)
    }

    /// Notes the message of the agent that a part of its answer belongs to: a whole history names it as the agent did.
    pub(super) fn begin_part(&mut self, key: &str, metadata: &mut Extra) {
        let shared = &mut *self.shared;
        if key.is_empty() {
            return;
        }

        metadata.set("id", Json::from_serialize(key));
        metadata.set(opaque::ORIGIN, Json::from_serialize(&shared.origin));
        if !shared.known.contains_key(key) {
            shared.known.insert(key.to_owned(), false);
            shared.latest_message = Some(key.to_owned());
        }
    }

    /// An id for a message with an output. What only the agent can read may come for it.
    pub(super) fn begin_output(&mut self, wanted: &str, metadata: &mut Extra) -> String {
        metadata.set("id", Json::from_serialize(wanted));
        metadata.set(opaque::ORIGIN, Json::from_serialize(&self.shared.origin));
        self.shared.ids.unique(wanted)
    }

    /// Adds a value that only the agent can read.
    pub(super) fn seal(&self, metadata: &mut Extra, value: Json) {
        metadata.set("encrypted_content", value);
        metadata.set(opaque::ORIGIN, Json::from_serialize(&self.shared.origin));
    }

    /// Holds something back until the next event.
    pub(super) fn hold(&mut self, held: HeldEnd) -> Result<(), Fault> {
        self.release()?;
        self.shared.held = Some(held);
        Ok(())
    }

    /// A value that only the agent can read, for the message whose end is held back. False: it is of another message.
    pub(super) fn seal_held(&mut self, entity: &str, value: &Json) -> bool {
        let Some(mut held) = self.shared.held.take() else { return false };
        let is_it = match &mut held {
            HeldEnd::End { entity: known, metadata, .. } if known == entity => {
                self.seal(metadata, value.clone());
                true
            }
            _ => false,
        };
        self.shared.held = Some(held);
        is_it
    }

    /// Drops a text that is held back because it repeats the one before it.
    pub(super) fn drop_repetition(&mut self) {
        if matches!(self.shared.held, Some(HeldEnd::Repetition { .. })) {
            self.shared.held = None;
        }
    }

    /// Emits the end of an output that is held back. A value for it follows it directly, if at all, and many agents
    /// send their state or events of their framework then, and nothing else for a long time.
    pub(super) fn release_output(&mut self) -> Result<(), Fault> {
        if matches!(self.shared.held, Some(HeldEnd::End { is_output: true, .. })) {
            self.release_held()
        } else {
            Ok(())
        }
    }

    /// Emits what is held back.
    #[inline]
    pub(super) fn release(&mut self) -> Result<(), Fault> {
        if self.shared.held.is_some() { self.release_held() } else { Ok(()) }
    }

    fn release_held(&mut self) -> Result<(), Fault> {
        match self.shared.held.take() {
            None => Ok(()),
            Some(HeldEnd::End { id, metadata, end, .. }) => self.sink.emit(&AgentEvent::Message(MessageEvent {
                id: Some(Cow::Owned(id)),
                end: Some(end),
                metadata: to_metadata(&metadata),
                ..MessageEvent::default()
            })),
            Some(HeldEnd::Repetition { key, role, mut metadata, text }) => {
                let id = self.begin_message(&key, &mut metadata);
                self.shared.emitted.add(&key, MessageType::Message, TextDigest::from_text(&text));
                let text = ContentEvent::new(&id, ContentUpdate::Final, ContentValue::Text(Cow::Borrowed(&text)));
                self.sink.emit(&AgentEvent::Message(MessageEvent {
                    id: Some(Cow::Borrowed(&id)),
                    kind: Some(MessageType::Message),
                    role: Some(role),
                    end: Some(End::Completed),
                    contents: vec![text],
                    metadata: to_metadata(&metadata),
                    ..MessageEvent::default()
                }))
            }
        }
    }

    /// A whole message of data.
    pub(super) fn emit_data(&mut self, wanted: &str, kind: MessageType, data: Json) -> Result<(), Fault> {
        let id = self.shared.ids.unique(wanted);
        self.sink.emit(&AgentEvent::whole(&id, kind, Role::Assistant, ContentValue::OwnedData(data)))
    }
}

/// Metadata of a message, if it has any.
pub(super) fn to_metadata(metadata: &Extra) -> Option<JsonRef<'static>> {
    (!metadata.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(metadata)))
}
