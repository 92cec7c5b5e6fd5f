//! Encodes messages and reasoning: items that consist of texts (docs/protocols/responses.md#sequences).

use interlingua_adapter_kit::shown_text;
use interlingua_core::event::{End, Event};
use interlingua_core::model::ContentType;
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out, RunId, Step};

use super::text_item::{Form, PartLocation, PartText, TextItem, annotation_event, part_event, part_of, with_location};
use super::text_stream::SentText;
use super::{ContentPlace, Encoder, Shape};
use crate::ids;
use crate::options::{DataDisplay, Reasoning};
use crate::wire::{Empty, Item};

/// Sends a complete message with one text.
pub(super) fn emit_message(encoder: &mut Encoder, id: &str, text: &str, status: &'static str, out: &mut Out) {
    let item = |status, content| Item::Message { id, status, role: "assistant", content, phase: None };
    let index = encoder.add(&item("in_progress", &[]), out);

    let frames = &mut encoder.frames;
    let location = PartLocation { item_id: id, output_index: index, content_index: 0 };
    part_event(frames, "response.content_part.added", &location, &part_of(false, "", &[]), out);
    if !text.is_empty() {
        let template = frames.template("response.output_text.delta", &location, "logprobs");
        frames.delta(&template, text, out);
    }
    if let Some(frame) = frames.event("response.output_text.done", out) {
        with_location(frame, &location).with("text", text).with("logprobs", &Empty).end();
    }
    part_event(frames, "response.content_part.done", &location, &part_of(false, text, &[]), out);

    encoder.done(index, &item(status, &[part_of(false, text, &[])]), out);
}

/// The item status for the end of a message.
pub(super) const fn status_of(end: Option<End>) -> &'static str {
    match end {
        Some(End::Completed) => "completed",
        _ => "incomplete",
    }
}

/// A list in the metadata of a message; empty if it is absent.
fn metadata_list(fields: Option<&Json>, name: &str) -> Vec<Json> {
    let fields: Option<Extra> = fields.and_then(Json::decode);
    fields.and_then(|fields| fields.get(name)?.decode()).unwrap_or_default()
}

impl Encoder {
    /// Handles the first text of a slot: opens its item and its part.
    pub(super) fn first_delta(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((index, message)), Some((content, slot))) = (step.message(), step.slot()) else { return };

        let shape = self.shape(message);
        let is_text = match (shape, &slot.kind) {
            _ if slot.call.is_some() => false,
            (Shape::Message, kind) => matches!(kind, ContentType::Text | ContentType::Refusal),
            (Shape::Reasoning, kind) => matches!(kind, ContentType::Text | ContentType::Refusal),
            _ => false,
        };
        // An empty replacement opens nothing.
        if !is_text || step.delta().is_empty() {
            return;
        }

        self.open_item(step.id(), index, message, out);
        let refusal = shape == Shape::Message && slot.kind == ContentType::Refusal;
        let Some(open) = self.open_messages.get_mut(index).and_then(Option::as_deref_mut) else { return };
        let Some(item) = open.item.as_mut() else { return };
        let text = PartText::Slot { content, sent: SentText::default() };
        let mut stream = item.open_part(refusal, text, &mut self.frames, out);

        match step.event {
            Event::ContentReplaced { version, .. } => {
                stream.replaced(slot, version, step.delta(), &mut self.frames, out);
            }
            Event::ContentDelta { span, .. } => stream.delta(slot, span, &mut self.frames, out),
            _ => {}
        }
        open.stream = Some(stream);
    }

    /// Opens the item of a message or of reasoning, unless it is already open.
    fn open_item(&mut self, run: RunId, index: usize, message: &Message, out: &mut Out) {
        if self.open_message(index).item.is_some() {
            return;
        }

        let (prefix, form) = if self.shape(message) == Shape::Reasoning {
            let form = self.shared.options.reasoning;
            let summary = matches!(form, Reasoning::Summary | Reasoning::Both);
            let text = matches!(form, Reasoning::Text | Reasoning::Both);
            ("rs_", Form::Reasoning { summary, text })
        } else {
            let metadata: Option<Extra> = message.announced_metadata.as_ref().and_then(Json::decode);
            let phase = metadata.and_then(|metadata| metadata.get("phase")?.decode());
            ("msg_", Form::Message { phase })
        };

        let id = ids::output_item_id(prefix, run, index, 0);
        let mut item = TextItem { output_index: 0, id, form, parts: Vec::new() };
        item.output_index = item.with_item(message, "in_progress", |item| self.add(item, out));
        self.open_message(index).item = Some(item);
    }

    /// A content of a message or of reasoning is final: closes its part, or writes it in full.
    pub(super) fn text_content_finished(&mut self, place: ContentPlace, message: &Message, slot: &Slot, out: &mut Out) {
        let ContentPlace { run, message: index, content } = place;
        if matches!(slot.kind, ContentType::Text | ContentType::Refusal) {
            // Without a stream nothing of it was sent: an empty text has no part.
            let Some(open) = self.open_messages.get_mut(index).and_then(Option::as_deref_mut) else { return };
            let (Some(stream), Some(item)) = (open.stream.take(), open.item.as_mut()) else { return };
            if let Some(part) = item.parts.last_mut() {
                part.text = PartText::Slot { content, sent: stream.sent() };
                part.annotations = slot.extra.get("annotations").and_then(Json::decode).unwrap_or_default();
            }
            return item.close_part(message, &mut self.frames, out);
        }
        if self.shape(message) == Shape::Reasoning {
            return;
        }

        let value = slot.content();
        if let interlingua_core::model::Body::Image(Some(url)) = &value.body
            && shown_text::inline_image(url).is_some()
        {
            self.open_message(index).images.push(content);
            return;
        }
        let show = super::show(self.shared.options.data == DataDisplay::Text);
        if let Some(text) = shown_text::content_text(&value, show) {
            self.write_part(run, index, message, text, out);
        }
    }

    /// Writes a complete part.
    fn write_part(&mut self, run: RunId, index: usize, message: &Message, text: String, out: &mut Out) {
        self.open_item(run, index, message, out);
        let Some(open) = self.open_messages.get_mut(index).and_then(Option::as_deref_mut) else { return };
        let Some(item) = open.item.as_mut() else { return };

        let stream = item.open_part(false, PartText::Rendered(text), &mut self.frames, out);
        if let Some(part) = item.parts.last() {
            let text = part.text.as_str(message);
            if !text.is_empty() {
                stream.write(text, &mut self.frames, out);
            }
        }
        item.close_part(message, &mut self.frames, out);
    }

    /// A message or reasoning is final.
    pub(super) fn text_finished(&mut self, run: RunId, index: usize, message: &Message, out: &mut Out) {
        let Some(mut open) = self.open_messages.get_mut(index).and_then(Option::take) else { return };
        if let Some(mut item) = open.item.take() {
            self.late_annotations(&mut item, message, out);
            item.with_item(message, status_of(message.end), |wire| self.done(item.output_index, wire, out));
        }
        for content in open.images {
            self.emit_image(ContentPlace { run, message: index, content }, message, out);
        }
    }

    /// Annotations that arrive with the end of the message belong to its last text.
    fn late_annotations(&mut self, item: &mut TextItem, message: &Message, out: &mut Out) {
        let content_index = item.parts.len().saturating_sub(1);
        let late = metadata_list(message.metadata.as_ref(), "annotations");
        let output_index = item.output_index;
        let Some(part) = item.parts.last_mut().filter(|part| !part.refusal && part.annotations.is_empty()) else {
            return;
        };

        let location = PartLocation { item_id: &item.id, output_index, content_index };
        for (index, annotation) in late.iter().enumerate() {
            annotation_event(&mut self.frames, &location, index, annotation, out);
        }
        part.annotations = late;
    }

    /// Closes the item of an unfinished message in its current state.
    pub(super) fn text_snapshot(&mut self, index: usize, message: &Message, out: &mut Out) {
        let Some(mut open) = self.open_messages.get_mut(index).and_then(Option::take) else { return };
        if let Some(mut item) = open.item.take() {
            if let (Some(stream), Some(part)) = (open.stream.take(), item.parts.last_mut())
                && let PartText::Slot { sent, .. } = &mut part.text
            {
                *sent = stream.sent();
            }
            item.with_item(message, "in_progress", |wire| self.done(item.output_index, wire, out));
        }
        self.open_messages[index] = Some(open);
    }
}
