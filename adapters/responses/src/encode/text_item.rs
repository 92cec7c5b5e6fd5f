//! An item that consists of texts, and the events of its parts (docs/protocols/responses.md#sequences).

use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::run::Message;
use interlingua_core::{Json, Out};
use serde::Serialize;

use super::frames::{Frame, Frames};
use super::text_stream::TextStream;
use crate::wire::{Empty, Item, Part, ReasoningText, SummaryText};

/// An open item that consists of texts.
#[derive(Debug)]
pub(super) struct TextItem {
    pub(super) output_index: usize,
    pub(super) id: String,
    pub(super) form: Form,
    pub(super) parts: Vec<TextPart>,
}

/// The encoding of the item.
#[derive(Clone, Debug)]
pub(super) enum Form {
    Message { phase: Option<String> },
    Reasoning { summary: bool, text: bool },
}

/// A part of the item.
#[derive(Debug)]
pub(super) struct TextPart {
    pub(super) refusal: bool,
    pub(super) text: PartText,
    pub(super) annotations: Vec<Json>,
}

#[derive(Debug)]
pub(super) enum PartText {
    /// Streamed from a slot.
    Slot { content: usize, sent: EmittedText },
    /// Rendered from a content that has no part type of its own.
    Rendered(String),
}

impl PartText {
    pub(super) fn as_str<'a>(&'a self, message: &'a Message) -> &'a str {
        match self {
            Self::Rendered(text) => text,
            Self::Slot { content, sent } => message.slots.get(*content).map_or("", |slot| sent.text(slot)),
        }
    }
}

/// The fields that locate a part in its events.
#[derive(Serialize)]
pub(super) struct PartLocation<'a> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    pub(super) content_index: usize,
}

/// The fields that locate a part of a summary in its events.
#[derive(Serialize)]
pub(super) struct SummaryLocation<'a> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    pub(super) summary_index: usize,
}

impl TextItem {
    pub(super) fn part_location(&self) -> PartLocation<'_> {
        let content_index = self.parts.len().saturating_sub(1);
        PartLocation { item_id: &self.id, output_index: self.output_index, content_index }
    }

    pub(super) fn summary_location(&self) -> SummaryLocation<'_> {
        let summary_index = self.parts.len().saturating_sub(1);
        SummaryLocation { item_id: &self.id, output_index: self.output_index, summary_index }
    }

    /// Passes the item in its current state to `then`. Complete reasoning has no `status`, as at OpenAI.
    pub(super) fn with_item<R>(&self, message: &Message, status: &'static str, then: impl FnOnce(&Item<'_>) -> R) -> R {
        match &self.form {
            Form::Message { phase } => {
                let parts: Vec<Part<'_>> = self
                    .parts
                    .iter()
                    .map(|part| part_of(part.refusal, part.text.as_str(message), &part.annotations))
                    .collect();
                let phase = phase.as_deref();
                then(&Item::Message { id: &self.id, status, role: "assistant", content: &parts, phase })
            }
            Form::Reasoning { summary, text } => {
                let part_texts = || self.parts.iter().map(|part| part.text.as_str(message));
                let summaries: Vec<_> = part_texts().filter(|_| *summary).map(SummaryText::new).collect();
                let texts: Vec<_> = part_texts().filter(|_| *text).map(ReasoningText::new).collect();

                let status = (status == "incomplete").then_some(status);
                then(&Item::Reasoning {
                    id: &self.id,
                    summary: &summaries,
                    content: &texts,
                    encrypted_content: None,
                    status,
                })
            }
        }
    }

    /// Opens a part and prepares the stream of its deltas.
    pub(super) fn open_part(
        &mut self,
        refusal: bool,
        text: PartText,
        frames: &mut Frames,
        out: &mut Out,
    ) -> TextStream {
        self.parts.push(TextPart { refusal, text, annotations: Vec::new() });
        let location = self.part_location();

        match &self.form {
            Form::Message { .. } => {
                part_event(frames, "response.content_part.added", &location, &part_of(refusal, "", &[]), out);
                let name = if refusal { "response.refusal.delta" } else { "response.output_text.delta" };
                TextStream::new(frames.template(name, &location, if refusal { "" } else { "logprobs" }), None)
            }
            Form::Reasoning { summary, text } => {
                let mut templates = Vec::with_capacity(2);
                if *summary {
                    let location = self.summary_location();
                    let name = "response.reasoning_summary_part.added";
                    summary_event(frames, name, &location, "part", &SummaryText::new(""), out);
                    templates.push(frames.template("response.reasoning_summary_text.delta", &location, ""));
                }
                if *text {
                    part_event(frames, "response.content_part.added", &location, &ReasoningText::new(""), out);
                    templates.push(frames.template("response.reasoning_text.delta", &location, ""));
                }

                let second = if templates.len() > 1 { templates.pop() } else { None };
                let first = templates.pop().expect("reasoning that is not hidden has at least one form");
                TextStream::new(first, second)
            }
        }
    }

    /// Writes a complete part.
    pub(super) fn write_part(&mut self, text: String, message: &Message, frames: &mut Frames, out: &mut Out) {
        let stream = self.open_part(false, PartText::Rendered(text), frames, out);
        let text = self.parts.last().map_or("", |part| part.text.as_str(message));
        if !text.is_empty() {
            stream.write(text, frames, out);
        }
        self.close_part(message, frames, out);
    }

    /// Closes the last part.
    pub(super) fn close_part(&self, message: &Message, frames: &mut Frames, out: &mut Out) {
        let Some(part) = self.parts.last() else { return };
        let text = part.text.as_str(message);
        let location = self.part_location();

        match &self.form {
            Form::Message { .. } if part.refusal => {
                if let Some(frame) = frames.event("response.refusal.done", out) {
                    with_location(frame, &location).with("refusal", text).end();
                }
                part_event(frames, "response.content_part.done", &location, &part_of(true, text, &[]), out);
            }
            Form::Message { .. } => {
                for (index, annotation) in part.annotations.iter().enumerate() {
                    annotation_event(frames, &location, index, annotation, out);
                }
                if let Some(frame) = frames.event("response.output_text.done", out) {
                    with_location(frame, &location).with("text", text).with("logprobs", &Empty).end();
                }
                let complete = part_of(false, text, &part.annotations);
                part_event(frames, "response.content_part.done", &location, &complete, out);
            }
            Form::Reasoning { summary, text: as_text } => {
                if *summary {
                    let location = self.summary_location();
                    summary_event(frames, "response.reasoning_summary_text.done", &location, "text", text, out);
                    let part = SummaryText::new(text);
                    summary_event(frames, "response.reasoning_summary_part.done", &location, "part", &part, out);
                }
                if *as_text {
                    if let Some(frame) = frames.event("response.reasoning_text.done", out) {
                        with_location(frame, &location).with("text", text).end();
                    }
                    part_event(frames, "response.content_part.done", &location, &ReasoningText::new(text), out);
                }
            }
        }
    }
}

const fn part_of<'a>(refusal: bool, text: &'a str, annotations: &'a [Json]) -> Part<'a> {
    if refusal { Part::Refusal { refusal: text } } else { Part::OutputText { text, annotations, logprobs: Empty } }
}

fn with_location<'o>(frame: Frame<'o>, location: &PartLocation<'_>) -> Frame<'o> {
    frame
        .with("item_id", location.item_id)
        .with("output_index", &location.output_index)
        .with("content_index", &location.content_index)
}

fn part_event<T: Serialize>(frames: &mut Frames, name: &str, location: &PartLocation<'_>, part: &T, out: &mut Out) {
    if let Some(frame) = frames.event(name, out) {
        with_location(frame, location).with("part", part).end();
    }
}

fn summary_event<T: Serialize + ?Sized>(
    frames: &mut Frames,
    name: &str,
    location: &SummaryLocation<'_>,
    field: &str,
    value: &T,
    out: &mut Out,
) {
    if let Some(frame) = frames.event(name, out) {
        frame
            .with("item_id", location.item_id)
            .with("output_index", &location.output_index)
            .with("summary_index", &location.summary_index)
            .with(field, value)
            .end();
    }
}

pub(super) fn annotation_event(
    frames: &mut Frames,
    location: &PartLocation<'_>,
    index: usize,
    annotation: &Json,
    out: &mut Out,
) {
    if let Some(frame) = frames.event("response.output_text.annotation.added", out) {
        with_location(frame, location).with("annotation_index", &index).with("annotation", annotation).end();
    }
}
