//! Texts and reasoning: which messages are open, and what was sent of them.
//!
//! A message begins with its first piece of text: many agents announce texts that never come. Not here: media and data
//! in a message ([`super::contents`]).

use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::Message;
use interlingua_core::{End, Event as RunEvent, Out, Step};

use super::super::events::Event;
use super::super::options::ReasoningForm;
use super::super::thread::Labels;
use super::super::writer::{Template, Writer};
use super::origin::{origin_of, sealed};

/// The type of fragments of texts.
const TEXT: &str = "TEXT_MESSAGE_CONTENT";

/// The texts of a stream.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) reasoning: ReasoningForm,
    /// The client knows what version 1.0 added.
    pub(super) is_v1: bool,
    open: Vec<OpenText>,
    /// The last text of the agent, if only calls have arrived since: calls belong to its message.
    latest: Option<String>,
    /// A text or reasoning has begun since it was last asked.
    has_begun: bool,
    /// Reasoning in the form before it had ids, of which one can be open.
    thinking: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            reasoning: ReasoningForm::Events,
            is_v1: false,
            open: Vec::new(),
            latest: None,
            has_begun: false,
            thinking: 0,
        }
    }
}

/// A message of the agent that has not ended.
#[derive(Debug)]
struct OpenText {
    message: u32,
    /// The id that the client knows.
    id: String,
    template: Template,
    is_started: bool,
    /// It ended badly, so it is half: it is closed only if the run ends well.
    is_half: bool,
    has_text: bool,
    /// The part of the growing content that was sent.
    emitted: EmittedText,
}

impl Texts {
    /// The message that calls belong to, if it is a text.
    pub(super) fn latest(&self) -> Option<&str> {
        self.latest.as_deref()
    }

    /// Handles an event that is neither a text nor a call.
    pub(super) fn forget_latest(&mut self) {
        self.latest = None;
    }

    /// True once after a text has begun.
    pub(super) const fn take_began(&mut self) -> bool {
        std::mem::replace(&mut self.has_begun, false)
    }

    /// Writes a step of a text or of reasoning.
    #[inline]
    pub(super) fn encode(&mut self, step: &Step<'_>, labels: &Labels, writer: &mut Writer, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        if message.announced == MessageType::Reasoning && self.reasoning == ReasoningForm::Drop {
            return;
        }
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        match step.event {
            RunEvent::ContentDelta { .. } | RunEvent::ContentReplaced { .. } => self.delta(index, step, writer, out),
            RunEvent::ContentStarted { .. } => {
                let place = self.place(index, message, step, labels);
                self.open[place].emitted = EmittedText::default();
            }
            RunEvent::MessageFinished { .. } => {
                // Encrypted reasoning may have no content at all.
                if message.announced == MessageType::Reasoning && sealed(message).is_some() {
                    self.place(index, message, step, labels);
                }
                self.finish(index, message, writer, out);
            }
            _ => {}
        }
    }

    #[inline]
    fn delta(&mut self, index: u32, step: &Step<'_>, writer: &mut Writer, out: &mut Out) {
        let Some((_, slot)) = step.slot() else { return };
        // The last one is nearly always the one that grows.
        let Some(place) = self.open.iter().rposition(|open| open.message == index) else { return };
        if !matches!(slot.kind, ContentType::Text | ContentType::Refusal) {
            return;
        }
        let text = self.open[place].emitted.extend(step, slot);
        if !text.is_empty() {
            self.write(place, text, step, writer, out);
        }
    }

    #[inline]
    fn write(&mut self, place: usize, text: &str, step: &Step<'_>, writer: &mut Writer, out: &mut Out) {
        if !self.open[place].is_started {
            self.start(place, step, writer, out);
        }
        let open = &mut self.open[place];
        open.has_text = true;
        writer.delta(&open.template, text, out);
    }

    /// Adds a text that no content of the agent is, such as a link, to a message.
    pub(super) fn add(&mut self, step: &Step<'_>, text: &str, labels: &Labels, writer: &mut Writer, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let place = self.place(index, message, step, labels);
        if self.open[place].has_text {
            self.write(place, "\n\n", step, writer, out);
        }
        self.write(place, text, step, writer, out);
    }

    /// The place of a message that is open, or that now is.
    fn place(&mut self, index: u32, message: &Message, step: &Step<'_>, labels: &Labels) -> usize {
        if let Some(place) = self.open.iter().rposition(|open| open.message == index) {
            return place;
        }
        let id = labels.known.shown_id(&message.id, step.run).into_owned();
        let is_reasoning = message.announced == MessageType::Reasoning;
        let template = match (is_reasoning, self.reasoning) {
            (false, _) => Template::new(TEXT, Some("messageId"), &id),
            (true, ReasoningForm::Thinking) => Template::new("THINKING_TEXT_MESSAGE_CONTENT", None, ""),
            (true, _) => Template::new("REASONING_MESSAGE_CONTENT", Some("messageId"), &id),
        };
        self.open.push(OpenText {
            message: index,
            id,
            template,
            is_started: false,
            is_half: false,
            has_text: false,
            emitted: EmittedText::default(),
        });
        self.open.len() - 1
    }

    fn start(&mut self, place: usize, step: &Step<'_>, writer: &mut Writer, out: &mut Out) {
        let Some((_, message)) = step.message() else { return };
        let origin = origin_of(message, self.is_v1);
        let open = &mut self.open[place];
        open.is_started = true;
        self.has_begun = true;
        if message.announced == MessageType::Message {
            let role = match &message.role {
                Role::User => "user",
                Role::System => "system",
                _ => "assistant",
            };
            self.latest = (role == "assistant").then(|| open.id.clone());
            return writer.event(&Event::TextMessageStart { message_id: &open.id, role, origin: &origin }, out);
        }

        self.latest = None;
        if self.reasoning == ReasoningForm::Thinking {
            self.thinking += 1;
            if self.thinking == 1 {
                writer.event(&Event::ThinkingStart, out);
                writer.event(&Event::ThinkingTextMessageStart, out);
            }
            return;
        }
        writer.event(&Event::ReasoningStart { message_id: &open.id }, out);
        let start = Event::ReasoningMessageStart { message_id: &open.id, role: "reasoning", origin: &origin };
        writer.event(&start, out);
    }

    fn finish(&mut self, index: u32, message: &Message, writer: &mut Writer, out: &mut Out) {
        let Some(place) = self.open.iter().rposition(|open| open.message == index) else { return };
        if matches!(message.end, Some(End::Incomplete | End::Failed | End::Rejected)) {
            self.open[place].is_half = true;
            return;
        }
        let is_reasoning = message.announced == MessageType::Reasoning;
        let sealed = sealed(message).filter(|_| is_reasoning && self.reasoning == ReasoningForm::Events);
        let mut open = self.open.remove(place);
        if let Some(value) = &sealed {
            // Encrypted reasoning may have no text at all.
            if !open.is_started {
                open.is_started = true;
                writer.event(&Event::ReasoningStart { message_id: &open.id }, out);
                let origin = origin_of(message, self.is_v1);
                let start = Event::ReasoningMessageStart { message_id: &open.id, role: "reasoning", origin: &origin };
                writer.event(&start, out);
            }
            self.close(&open, is_reasoning, Some(value), writer, out);
        } else {
            self.close(&open, is_reasoning, None, writer, out);
        }
    }

    fn close(&mut self, open: &OpenText, is_reasoning: bool, sealed: Option<&str>, writer: &mut Writer, out: &mut Out) {
        if !open.is_started {
            return;
        }
        let message_id = &open.id;
        if !is_reasoning {
            return writer.event(&Event::TextMessageEnd { message_id }, out);
        }
        if self.reasoning == ReasoningForm::Thinking {
            self.thinking = self.thinking.saturating_sub(1);
            if self.thinking == 0 {
                writer.event(&Event::ThinkingTextMessageEnd, out);
                writer.event(&Event::ThinkingEnd, out);
            }
            return;
        }
        writer.event(&Event::ReasoningMessageEnd { message_id }, out);
        if let Some(encrypted_value) = sealed {
            writer.event(
                &Event::ReasoningEncryptedValue { subtype: "message", entity_id: message_id, encrypted_value },
                out,
            );
        }
        writer.event(&Event::ReasoningEnd { message_id }, out);
    }

    /// True if values that only the agent can read are shown: their event is one of those of reasoning, which clients
    /// before 0.0.47 do not take.
    pub(super) fn shows_sealed(&self) -> bool {
        self.reasoning == ReasoningForm::Events
    }

    /// Closes what ended badly in a run that ends well.
    pub(super) fn close_all(&mut self, writer: &mut Writer, out: &mut Out) {
        for open in std::mem::take(&mut self.open) {
            let is_reasoning = open.template.kind() != TEXT;
            self.close(&open, is_reasoning, None, writer, out);
        }
    }
}
