//! Encodes messages and reasoning, and lines about the agent's own tools
//! (docs/protocols/chat-completions.md#what-a-client-receives).

use interlingua_adapter_kit::answer_parts::{error_text, late_annotations};
use interlingua_adapter_kit::data_url::{is_data_url, normal};
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_adapter_kit::model_options::DataDisplay;
use interlingua_adapter_kit::shown_text::{self, Show};
use interlingua_core::event::Event;
use interlingua_core::model::{Body, Content, ContentType, MessageType};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out, Step};
use serde_json::json;

use super::answer::{Audio, Image};
use super::fields::Field;
use super::{Encoder, Lane};
use crate::options::InlineImages;

/// The most of a call, and of an output, that a line about a tool repeats, in bytes.
const MAX_TOOL_TEXT: usize = 2048;

impl Encoder {
    /// A step of a message that feeds a text.
    pub(super) fn text_step(&mut self, lane: Lane, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { message, content, .. } | Event::ContentReplaced { message, content, .. } => {
                let (Some((_, source)), Some((_, slot))) = (step.message(), step.slot()) else { return };
                let field = match (lane, &slot.kind) {
                    _ if !matches!(source.announced, MessageType::Message | MessageType::Reasoning) => return,
                    (Lane::Text, ContentType::Text) => Field::Content,
                    (Lane::Text, ContentType::Refusal) => Field::Refusal,
                    (Lane::Reasoning, ContentType::Text | ContentType::Refusal) => Field::Reasoning,
                    _ => return,
                };
                let text = self.emitted[lane as usize].extend(&step, slot);
                self.write(field, (message, content), text, out);
            }
            Event::ContentStarted { .. } => self.emitted[lane as usize] = EmittedText::default(),
            Event::ContentFinished { message, content } => {
                let (Some((_, source)), Some((_, slot))) = (step.message(), step.slot()) else { return };
                self.content_finished(lane, (message, content), source, slot, out);
            }
            Event::MessageFinished { message } => {
                let Some((_, source)) = step.message() else { return };
                self.text_finished(lane, message, source, out);
            }
            _ => {}
        }
    }

    fn content_finished(&mut self, lane: Lane, place: (u32, u32), message: &Message, slot: &Slot, out: &mut Out) {
        if message.announced.is_call() {
            if let Some(head) = &slot.call {
                let line = format!("{}({})", head.name, cut(slot.text()));
                self.tool_line(lane, place, &line, out);
            }
            return;
        }
        if message.announced != MessageType::Message {
            return;
        }
        if matches!(slot.kind, ContentType::Text | ContentType::Refusal) {
            let notes = slot.extra.get("annotations").and_then(Json::decode).unwrap_or_default();
            return self.annotate(place, notes);
        }

        let value = slot.content();
        match &value.body {
            Body::Image(Some(url)) if is_data_url(url) => self.inline_image(place, url, out),
            Body::Audio { data: Some(data), .. } if self.echo.audio && !data.contains("://") => {
                let replaced = self.answer.audio.replace(Audio {
                    id: format!("audio_{}", self.envelope.id),
                    data: data.split_once(',').map_or(data.as_str(), |(_, bytes)| bytes).to_owned(),
                    expires_at: self.envelope.created + 3600,
                    transcript: String::new(),
                });
                self.replaced_audios += usize::from(replaced.is_some());
            }
            _ => self.rendered(place, &value, out),
        }
    }

    /// A content without a form of its own, as text in its place.
    fn rendered(&mut self, place: (u32, u32), value: &Content, out: &mut Out) {
        let show = Show { data: self.shared.options.data == DataDisplay::Text, max_inline: 0 };
        if let Some(text) = shown_text::content_text(value, show) {
            self.write(Field::Content, place, &text, out);
        }
    }

    fn inline_image(&mut self, place: (u32, u32), url: &str, out: &mut Out) {
        let url = normal(url);
        match self.shared.options.inline_images {
            InlineImages::Field => {
                let index = self.answer.images.len();
                self.answer.images.push(Image::new(url.into_owned(), index));
            }
            InlineImages::Markdown => self.write(Field::Content, place, &format!("![image]({url})"), out),
            InlineImages::Drop => {}
        }
    }

    fn text_finished(&mut self, lane: Lane, index: u32, message: &Message, out: &mut Out) {
        match &message.announced {
            MessageType::Message => {
                // Annotations that arrive with the end of the message belong to its last text.
                let last = message.slots.len().saturating_sub(1);
                self.annotate((index, u32::try_from(last).unwrap_or(u32::MAX)), late_annotations(message));
            }
            MessageType::Error => self.write(Field::Content, (index, 0), &error_text(message), out),
            kind if kind.is_output() => {
                for (content, slot) in message.slots.iter().enumerate() {
                    let Some(output) = slot.output() else { continue };
                    let line_of = |number: usize| (index, u32::try_from(content * 2 + number).unwrap_or(u32::MAX));
                    let call = self.calls.take_answered(&output.call_id);
                    // The client's own outputs are not repeated to it.
                    if call.is_none() && *kind == MessageType::FunctionCallOutput {
                        continue;
                    }
                    if let Some(call) = &call {
                        let line = format!("{}({})", call.name, cut(&call.arguments));
                        self.tool_line(lane, line_of(0), &line, out);
                    }
                    let name = output.name.or_else(|| call.map(|call| call.name)).unwrap_or_else(|| "tool".to_owned());
                    let line = format!("{name}: {}", cut(&shown_text::unwrap_output(&output.output)));
                    self.tool_line(lane, line_of(1), &line, out);
                }
            }
            kind if kind.is_call() => self.call_finished(message),
            _ => {}
        }
    }

    /// A line about a tool that the agent runs itself.
    fn tool_line(&mut self, lane: Lane, place: (u32, u32), line: &str, out: &mut Out) {
        let field = if lane == Lane::Reasoning { Field::Reasoning } else { Field::Content };
        // Lines of one message stand under each other.
        if self.joined[field as usize].place.is_some_and(|(message, content)| message == place.0 && content != place.1)
        {
            self.write(field, place, "\n", out);
        }
        self.write(field, place, line, out);
    }

    /// Keeps the citations among these notes on a text that begins where the answer's text was then.
    fn annotate(&mut self, place: (u32, u32), notes: Vec<Json>) {
        let joined = self.joined[Field::Content as usize];
        // An empty text has no place in the answer.
        if notes.is_empty() || joined.place.is_none_or(|(message, _)| message != place.0) {
            return;
        }
        self.answer.annotations.extend(notes.iter().filter_map(|note| citation(note, joined.start)));
    }
}

/// A citation of a URL in this protocol's form, `start` characters further. `None`: another kind of note.
fn citation(note: &Json, start: usize) -> Option<Json> {
    let fields: Extra = note.decode()?;
    if fields.get("type").and_then(Json::decode::<String>).as_deref() != Some("url_citation") {
        return None;
    }
    let fields: Extra = fields.get("url_citation").and_then(Json::decode).unwrap_or(fields);
    let text = |name: &str| fields.get(name).and_then(Json::decode::<String>).unwrap_or_default();
    let index = |name: &str| fields.get(name).and_then(Json::decode::<usize>).unwrap_or(0).saturating_add(start);
    Some(Json::from_serialize(&json!({
        "type": "url_citation",
        "url_citation": {
            "url": text("url"),
            "title": text("title"),
            "start_index": index("start_index"),
            "end_index": index("end_index"),
        },
    })))
}

/// At most [`MAX_TOOL_TEXT`] bytes of a text.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TOOL_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TOOL_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}
