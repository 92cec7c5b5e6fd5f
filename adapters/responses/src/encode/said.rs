//! Messages and thoughts: items made of texts (section 10 a, c, d).

use interlingua_core::event::{End, Event};
use interlingua_core::model::ContentType;
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out, RunId, Step};
use serde::Serialize;

use super::flow::{Flow, Told};
use super::frames::Frames;
use super::{Encoder, Shape, render};
use crate::ids;
use crate::options::{Reasoning, Shown};
use crate::wire::{Empty, Item, Part, ReasoningText, SummaryText};

/// An item of texts that has begun.
#[derive(Debug)]
pub(super) struct Said {
    index: usize,
    id: String,
    form: Form,
    parts: Vec<Given>,
}

/// How it is told.
#[derive(Clone, Debug)]
enum Form {
    Message { phase: Option<String> },
    Thought { summary: bool, text: bool },
}

/// A part that has begun.
#[derive(Debug)]
struct Given {
    refusal: bool,
    text: Text,
    annotations: Vec<Json>,
}

#[derive(Debug)]
enum Text {
    /// Told as it came.
    Slot { content: usize, told: Told },
    /// Made of a content that has no part of its own.
    Made(String),
}

impl Text {
    fn read<'a>(&'a self, message: &'a Message) -> &'a str {
        match self {
            Self::Made(text) => text,
            Self::Slot { content, told } => message.slots.get(*content).map_or("", |slot| told.text(slot)),
        }
    }
}

/// Where a part stands, as its events say it.
#[derive(Serialize)]
struct PartPlace<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
}

/// Where a part of a summary stands.
#[derive(Serialize)]
struct SummaryPlace<'a> {
    item_id: &'a str,
    output_index: usize,
    summary_index: usize,
}

impl Said {
    fn place(&self) -> PartPlace<'_> {
        PartPlace { item_id: &self.id, output_index: self.index, content_index: self.parts.len().saturating_sub(1) }
    }

    fn summary_place(&self) -> SummaryPlace<'_> {
        SummaryPlace { item_id: &self.id, output_index: self.index, summary_index: self.parts.len().saturating_sub(1) }
    }

    /// The item as it stands. `status` is left out of thoughts that are whole, as OpenAI does.
    fn item<R>(&self, message: &Message, status: &'static str, then: impl FnOnce(&Item<'_>) -> R) -> R {
        match &self.form {
            Form::Message { phase } => {
                let parts: Vec<Part<'_>> = self
                    .parts
                    .iter()
                    .map(|part| part_of(part.refusal, part.text.read(message), &part.annotations))
                    .collect();
                let phase = phase.as_deref();
                then(&Item::Message { id: &self.id, status, role: "assistant", content: &parts, phase })
            }
            Form::Thought { summary, text } => {
                let texts = || self.parts.iter().map(|part| part.text.read(message));
                let summaries: Vec<_> = texts().filter(|_| *summary).map(SummaryText::new).collect();
                let thoughts: Vec<_> = texts().filter(|_| *text).map(ReasoningText::new).collect();
                let status = (status == "incomplete").then_some(status);
                then(&Item::Reasoning {
                    id: &self.id,
                    summary: &summaries,
                    content: &thoughts,
                    encrypted_content: None,
                    status,
                })
            }
        }
    }

    /// Opens a part that will hold this text, and makes what stands around its deltas.
    fn open_part(&mut self, refusal: bool, text: Text, frames: &mut Frames, out: &mut Out) -> Flow {
        self.parts.push(Given { refusal, text, annotations: Vec::new() });
        let place = self.place();
        match &self.form {
            Form::Message { .. } => {
                part_event(frames, "response.content_part.added", &place, &part_of(refusal, "", &[]), out);
                let name = if refusal { "response.refusal.delta" } else { "response.output_text.delta" };
                Flow::new(frames.template(name, &place, if refusal { "" } else { "logprobs" }), None)
            }
            Form::Thought { summary, text } => {
                let mut templates = Vec::with_capacity(2);
                if *summary {
                    let place = self.summary_place();
                    let name = "response.reasoning_summary_part.added";
                    summary_event(frames, name, &place, "part", &SummaryText::new(""), out);
                    templates.push(frames.template("response.reasoning_summary_text.delta", &place, ""));
                }
                if *text {
                    part_event(frames, "response.content_part.added", &place, &ReasoningText::new(""), out);
                    templates.push(frames.template("response.reasoning_text.delta", &place, ""));
                }
                let second = if templates.len() > 1 { templates.pop() } else { None };
                let first = templates.pop().expect("a thought is told in at least one way, or hidden");
                Flow::new(first, second)
            }
        }
    }

    /// Closes the part that was opened last.
    fn close_part(&self, message: &Message, frames: &mut Frames, out: &mut Out) {
        let Some(part) = self.parts.last() else { return };
        let text = part.text.read(message);
        let place = self.place();
        match &self.form {
            Form::Message { .. } if part.refusal => {
                if let Some(frame) = frames.event("response.refusal.done", out) {
                    located(frame, &place).with("refusal", text).end();
                }
                part_event(frames, "response.content_part.done", &place, &part_of(true, text, &[]), out);
            }
            Form::Message { .. } => {
                for (index, annotation) in part.annotations.iter().enumerate() {
                    annotation_event(frames, &place, index, annotation, out);
                }
                if let Some(frame) = frames.event("response.output_text.done", out) {
                    located(frame, &place).with("text", text).with("logprobs", &Empty).end();
                }
                let whole = part_of(false, text, &part.annotations);
                part_event(frames, "response.content_part.done", &place, &whole, out);
            }
            Form::Thought { summary, text: shown } => {
                if *summary {
                    let place = self.summary_place();
                    summary_event(frames, "response.reasoning_summary_text.done", &place, "text", text, out);
                    let part = SummaryText::new(text);
                    summary_event(frames, "response.reasoning_summary_part.done", &place, "part", &part, out);
                }
                if *shown {
                    if let Some(frame) = frames.event("response.reasoning_text.done", out) {
                        located(frame, &place).with("text", text).end();
                    }
                    part_event(frames, "response.content_part.done", &place, &ReasoningText::new(text), out);
                }
            }
        }
    }
}

const fn part_of<'a>(refusal: bool, text: &'a str, annotations: &'a [Json]) -> Part<'a> {
    if refusal { Part::Refusal { refusal: text } } else { Part::OutputText { text, annotations, logprobs: Empty } }
}

fn located<'o>(frame: super::frames::Frame<'o>, place: &PartPlace<'_>) -> super::frames::Frame<'o> {
    frame
        .with("item_id", place.item_id)
        .with("output_index", &place.output_index)
        .with("content_index", &place.content_index)
}

fn part_event<T: Serialize>(frames: &mut Frames, name: &str, place: &PartPlace<'_>, part: &T, out: &mut Out) {
    if let Some(frame) = frames.event(name, out) {
        located(frame, place).with("part", part).end();
    }
}

fn summary_event<T: Serialize + ?Sized>(
    frames: &mut Frames,
    name: &str,
    place: &SummaryPlace<'_>,
    field: &str,
    value: &T,
    out: &mut Out,
) {
    if let Some(frame) = frames.event(name, out) {
        frame
            .with("item_id", place.item_id)
            .with("output_index", &place.output_index)
            .with("summary_index", &place.summary_index)
            .with(field, value)
            .end();
    }
}

fn annotation_event(frames: &mut Frames, place: &PartPlace<'_>, index: usize, annotation: &Json, out: &mut Out) {
    if let Some(frame) = frames.event("response.output_text.annotation.added", out) {
        located(frame, place).with("annotation_index", &index).with("annotation", annotation).end();
    }
}

/// A message of one text that is known at once.
pub(super) fn whole(encoder: &mut Encoder, id: &str, text: &str, status: &'static str, out: &mut Out) {
    let item = |status, content| Item::Message { id, status, role: "assistant", content, phase: None };
    let index = encoder.add(&item("in_progress", &[]), out);
    let frames = &mut encoder.frames;
    let place = PartPlace { item_id: id, output_index: index, content_index: 0 };
    part_event(frames, "response.content_part.added", &place, &part_of(false, "", &[]), out);
    if !text.is_empty() {
        let template = frames.template("response.output_text.delta", &place, "logprobs");
        frames.delta(&template, text, out);
    }
    if let Some(frame) = frames.event("response.output_text.done", out) {
        located(frame, &place).with("text", text).with("logprobs", &Empty).end();
    }
    part_event(frames, "response.content_part.done", &place, &part_of(false, text, &[]), out);
    encoder.done(index, &item(status, &[part_of(false, text, &[])]), out);
}

/// The word for how a message ended.
pub(super) const fn status_of(end: Option<End>) -> &'static str {
    match end {
        Some(End::Completed) => "completed",
        _ => "incomplete",
    }
}

/// A list under a name, in what applications may add.
fn listed(fields: Option<&Json>, name: &str) -> Vec<Json> {
    let fields: Option<Extra> = fields.and_then(Json::decode);
    fields.and_then(|fields| fields.get(name)?.decode()).unwrap_or_default()
}

impl Encoder {
    /// The first that is told of a text: opens its item and its part.
    pub(super) fn first_delta(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((at, message)), Some((content, slot))) = (step.message(), step.slot()) else { return };
        let shape = self.shape(message);
        let told = match (shape, &slot.kind) {
            _ if slot.call.is_some() => false,
            (Shape::Said, kind) => matches!(kind, ContentType::Text | ContentType::Refusal),
            (Shape::Thought, kind) => matches!(kind, ContentType::Text | ContentType::Refusal),
            _ => false,
        };
        // An empty replacement opens nothing.
        if !told || step.delta().is_empty() {
            return;
        }
        self.open_said(step.id(), at, message, out);
        let refusal = shape == Shape::Said && slot.kind == ContentType::Refusal;
        let Some(live) = self.live.get_mut(at).and_then(Option::as_deref_mut) else { return };
        let Some(said) = live.said.as_mut() else { return };
        let nothing = Told::default();
        let mut flow = said.open_part(refusal, Text::Slot { content, told: nothing }, &mut self.frames, out);
        match step.event {
            Event::ContentReplaced { version, .. } => {
                flow.replaced(slot, version, step.delta(), &mut self.frames, out);
            }
            Event::ContentDelta { span, .. } => flow.delta(slot, span, &mut self.frames, out),
            _ => {}
        }
        live.flow = Some(flow);
    }

    /// Opens the item of a message or a thought, unless it is open.
    fn open_said(&mut self, run: RunId, at: usize, message: &Message, out: &mut Out) {
        if self.live(at).said.is_some() {
            return;
        }
        let (prefix, form) = if self.shape(message) == Shape::Thought {
            let form = self.shared.options.reasoning;
            let summary = matches!(form, Reasoning::Summary | Reasoning::Both);
            let text = matches!(form, Reasoning::Text | Reasoning::Both);
            ("rs_", Form::Thought { summary, text })
        } else {
            let metadata: Option<Extra> = message.announced_metadata.as_ref().and_then(Json::decode);
            let phase = metadata.and_then(|metadata| metadata.get("phase")?.decode());
            ("msg_", Form::Message { phase })
        };
        let mut said = Said { index: 0, id: ids::output(prefix, run, at, 0), form, parts: Vec::new() };
        said.index = said.item(message, "in_progress", |item| self.add(item, out));
        self.live(at).said = Some(said);
    }

    /// A content of a message or a thought is final: its part is closed, or made.
    pub(super) fn said_content_finished(
        &mut self,
        run: RunId,
        at: usize,
        message: &Message,
        content: usize,
        slot: &Slot,
        out: &mut Out,
    ) {
        if matches!(slot.kind, ContentType::Text | ContentType::Refusal) {
            // Without a flow nothing was told of it: an empty text leaves no trace.
            let Some(live) = self.live.get_mut(at).and_then(Option::as_deref_mut) else { return };
            let (Some(flow), Some(said)) = (live.flow.take(), live.said.as_mut()) else { return };
            if let Some(part) = said.parts.last_mut() {
                part.text = Text::Slot { content, told: flow.told() };
                part.annotations = slot.extra.get("annotations").and_then(Json::decode).unwrap_or_default();
            }
            return said.close_part(message, &mut self.frames, out);
        }
        if self.shape(message) == Shape::Thought {
            return;
        }
        let value = slot.content();
        if let interlingua_core::model::Body::Image(Some(url)) = &value.body
            && render::inline_image(url).is_some()
        {
            self.live(at).images.push(content);
            return;
        }
        if let Some(text) = render::content(&value, self.shared.options.data == Shown::Text) {
            self.whole_part(run, at, message, text, out);
        }
    }

    /// A part whose text is known at once.
    pub(super) fn whole_part(&mut self, run: RunId, at: usize, message: &Message, text: String, out: &mut Out) {
        self.open_said(run, at, message, out);
        let Some(said) = self.live.get_mut(at).and_then(Option::as_deref_mut).and_then(|live| live.said.as_mut())
        else {
            return;
        };
        let flow = said.open_part(false, Text::Made(text), &mut self.frames, out);
        if let Some(part) = said.parts.last() {
            let text = part.text.read(message);
            if !text.is_empty() {
                flow.write(text, &mut self.frames, out);
            }
        }
        said.close_part(message, &mut self.frames, out);
    }

    /// A message or a thought is final.
    pub(super) fn said_finished(&mut self, run: RunId, at: usize, message: &Message, out: &mut Out) {
        let Some(mut live) = self.live.get_mut(at).and_then(Option::take) else { return };
        if let Some(mut said) = live.said.take() {
            self.late_annotations(&mut said, message, out);
            said.item(message, status_of(message.end), |item| self.done(said.index, item, out));
        }
        for content in live.images {
            self.image_told(run, at, message, content, out);
        }
    }

    /// Annotations that are told with the end of the message belong to its last text.
    fn late_annotations(&mut self, said: &mut Said, message: &Message, out: &mut Out) {
        let place = said.parts.len().saturating_sub(1);
        let late = listed(message.metadata.as_ref(), "annotations");
        let output_index = said.index;
        let Some(part) = said.parts.last_mut().filter(|part| !part.refusal && part.annotations.is_empty()) else {
            return;
        };
        let place = PartPlace { item_id: &said.id, output_index, content_index: place };
        for (index, annotation) in late.iter().enumerate() {
            annotation_event(&mut self.frames, &place, index, annotation, out);
        }
        part.annotations = late;
    }

    /// The item as it stands in the middle.
    pub(super) fn said_snapshot(&mut self, at: usize, message: &Message, out: &mut Out) {
        let Some(mut live) = self.live.get_mut(at).and_then(Option::take) else { return };
        if let Some(mut said) = live.said.take() {
            if let (Some(flow), Some(part)) = (live.flow.take(), said.parts.last_mut())
                && let Text::Slot { told, .. } = &mut part.text
            {
                *told = flow.told();
            }
            said.item(message, "in_progress", |item| self.done(said.index, item, out));
        }
        self.live[at] = Some(live);
    }
}
