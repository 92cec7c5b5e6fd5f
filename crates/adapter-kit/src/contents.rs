//! The contents of a run's last turn, by kind. A client protocol iterates over them once, at the end of its response,
//! and records those it did not show ([`interlingua_core::exchange::Exchange::losses`]).
//!
//! Not here: the display of a protocol. Content that was evicted from the run keeps its kind.

use interlingua_core::event::End;
use interlingua_core::json::Json;
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::model::{Body, ContentType, MessageType, Role};
use interlingua_core::pending::PendingKind;
use interlingua_core::run::{Message, Run, Slot};

use crate::answer_parts::late_annotations;

/// The change of a kind of content in a protocol, with its description. `None`: it is shown unchanged.
pub type ContentChange = Option<(Change, &'static str)>;

/// A content of a turn.
#[derive(Clone, Copy, Debug)]
pub struct FoundContent<'a> {
    /// The kind of the content.
    pub kind: ContentKind,
    /// The message of the content. `None`: it belongs to the turn as a whole.
    pub message: Option<&'a Message>,
    /// Its place in the message, if it is a content of its own.
    pub slot: Option<&'a Slot>,
}

impl FoundContent<'_> {
    /// True if it is media with its bytes inline, not by a URL.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        let Some(value) = self.slot.and_then(|slot| slot.value.as_ref()) else { return false };
        let url = match &value.body {
            Body::Image(url) | Body::Video(url) => url.as_deref(),
            Body::Audio { data, .. } => data.as_deref(),
            Body::File(file) => file.url.as_deref(),
            _ => return false,
        };
        !url.is_some_and(|url| url.starts_with("https://") || url.starts_with("http://"))
    }
}

/// The part of an answer that its client receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossScope {
    /// To its end.
    Whole,
    /// A stream that ended with an error.
    UntilError,
    /// An error instead of an answer.
    ErrorOnly,
}

impl LossScope {
    /// The part for an answer that failed or not, and was streamed or not.
    #[must_use]
    pub const fn new(has_failed: bool, is_streamed: bool) -> Self {
        match (has_failed, is_streamed) {
            (false, _) => Self::Whole,
            (true, true) => Self::UntilError,
            (true, false) => Self::ErrorOnly,
        }
    }

    /// The change of a kind of content beyond this part. `None`: the part contains it.
    #[must_use]
    pub const fn fate(self, kind: ContentKind) -> ContentChange {
        match (self, kind) {
            (Self::Whole, _) | (_, ContentKind::ErrorCode) => None,
            (Self::UntilError, ContentKind::Usage) => Some((Change::Lost, "an answer that failed has no usage")),
            (Self::UntilError, _) => None,
            (Self::ErrorOnly, _) => Some((Change::Lost, "an answer that failed has its error only")),
        }
    }
}

/// Records the change of each content of the last turn.
pub fn note(run: &Run, losses: &mut Losses, fate: impl Fn(&FoundContent<'_>) -> ContentChange) {
    each(run, |found| match fate(&found) {
        Some((Change::Lost, how)) => losses.lost(found.kind, how),
        Some((Change::Changed, how)) => losses.changed(found.kind, how),
        None => {}
    });
}

/// Goes through the contents of the last turn.
pub fn each<'r>(run: &'r Run, mut found: impl FnMut(FoundContent<'r>)) {
    let Some(turn) = run.turns.len().checked_sub(1) else { return };
    let mut texts = 0;
    for message in run.messages_of(turn) {
        let mut has_text = false;
        for slot in &message.slots {
            if let Some(kind) = kind_of(message, slot) {
                has_text |= kind == ContentKind::Text;
                found(FoundContent { kind, message: Some(message), slot: Some(slot) });
            }
            if has_annotations(slot, message) {
                found(FoundContent { kind: ContentKind::Annotation, message: Some(message), slot: Some(slot) });
            }
        }
        texts += usize::from(has_text);
        if has_text && texts > 1 {
            found(FoundContent { kind: ContentKind::Structure, message: Some(message), slot: None });
        }
    }

    let mut whole = |kind| found(FoundContent { kind, message: None, slot: None });
    for item in run.pending() {
        match item.kind {
            PendingKind::Tool => {}
            PendingKind::Approval => whole(ContentKind::Approval),
            PendingKind::Auth => whole(ContentKind::Login),
            PendingKind::Input => {
                whole(ContentKind::Question);
                if item.response_schema.is_some() {
                    whole(ContentKind::Schema);
                }
            }
        }
    }
    let turn = &run.turns[turn];
    if turn.usage.is_some() {
        whole(ContentKind::Usage);
    }
    if turn.error.is_some() {
        whole(if turn.end == Some(End::Incomplete) { ContentKind::EndReason } else { ContentKind::ErrorCode });
    }
}

/// The kind of one content. `None`: nothing that is shown.
fn kind_of(message: &Message, slot: &Slot) -> Option<ContentKind> {
    use ContentKind as K;
    Some(match &message.kind {
        MessageType::Reasoning => K::Reasoning,
        MessageType::FunctionCall => K::ClientCall,
        MessageType::ProtocolEvent => K::ProtocolEvent,
        kind if kind.is_call() => K::AgentCall,
        kind if kind.is_output() => K::AgentOutput,
        MessageType::Message if matches!(message.role, Role::Assistant | Role::Tool) => match &slot.kind {
            ContentType::Text if slot.text_len() == 0 => return None,
            ContentType::Text => K::Text,
            ContentType::Refusal => K::Refusal,
            ContentType::Image => K::ImageOut,
            ContentType::Audio => K::AudioOut,
            ContentType::Video => K::VideoOut,
            ContentType::File => K::FileOut,
            ContentType::Data => K::DataOut,
            ContentType::Other(_) => return None,
        },
        _ => return None,
    })
}

/// Whether a text has citations: of its own, or its message's if it is the last.
fn has_annotations(slot: &Slot, message: &Message) -> bool {
    let is_full = |list: &Json| list.decode::<Vec<serde::de::IgnoredAny>>().is_some_and(|list| !list.is_empty());
    let own = slot.extra.get("annotations").is_some_and(is_full);
    let is_last = message.slots.last().is_some_and(|last| std::ptr::eq(last, slot));
    slot.kind == ContentType::Text && (own || (is_last && !late_annotations(message).is_empty()))
}
