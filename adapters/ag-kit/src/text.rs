//! What becomes `text`: texts, refusals, links and data of ordinary messages, and reasoning by option (section 9).

use std::borrow::Cow;

use interlingua_core::event::Span;
use interlingua_core::model::{Body, ContentType, MessageType};
use interlingua_core::run::Slot;
use interlingua_core::{Event, Out, Step};

use crate::calls::Calls;
use crate::{Data, Media, Options, wire};

/// How much of a growing text was told. Contents of one message do not overlap, and messages are told one by one.
///
/// This protocol takes nothing back. A text that is told anew adds to what was told once it is seen to go on from that;
/// one that contradicts it adds nothing, but yet another one may.
#[derive(Debug, Default)]
pub(crate) struct Told {
    version: u32,
    end: u32,
    /// The latest version that contradicts what was told.
    contradicts: Option<u32>,
}

impl Told {
    /// What the step adds to what was told. Empty: nothing.
    pub(crate) fn grow<'a>(&mut self, step: &Step<'a>, slot: &'a Slot) -> &'a str {
        match step.event {
            Event::ContentDelta { span, .. } if span.version == self.version => {
                self.end = span.end;
                step.delta()
            }
            Event::ContentDelta { span, .. } => self.anew(Span { start: 0, ..span }, slot),
            Event::ContentReplaced { version, .. } => {
                let end = u32::try_from(step.delta().len()).unwrap_or(u32::MAX);
                self.anew(Span { version, start: 0, end }, slot)
            }
            _ => "",
        }
    }

    /// What a text that is told anew adds, as far as it is there. It is compared once, when it is long enough.
    fn anew<'a>(&mut self, now: Span, slot: &'a Slot) -> &'a str {
        if self.contradicts == Some(now.version) || now.end < self.end {
            return "";
        }
        let before = slot.span(Span { version: self.version, start: 0, end: self.end });
        let Some(rest) = slot.span(now).strip_prefix(before) else {
            self.contradicts = Some(now.version);
            return "";
        };
        (self.version, self.end) = (now.version, now.end);
        rest
    }
}

/// The text of a stream.
#[derive(Debug, Default)]
pub(crate) struct Text {
    told: Told,
    /// The message of the last text.
    last: Option<u32>,
    /// How many calls had been told by then.
    calls_then: usize,
    is_thinking: bool,
    said_anything: bool,
}

impl Text {
    pub(crate) const fn said_anything(&self) -> bool {
        self.said_anything
    }

    /// Tells a step of a message, or of reasoning that counts as text.
    pub(crate) fn encode(&mut self, step: &Step<'_>, calls: &Calls, options: &Options, out: &mut Out) {
        let Some((at, message)) = step.message() else { return };
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let is_reasoning = message.announced == MessageType::Reasoning;
        let Some((_, slot)) = step.slot() else {
            if self.is_thinking && matches!(step.event, Event::MessageFinished { .. }) {
                self.is_thinking = false;
                wire::Event::Text { content: "</think>" }.write(out);
            }
            return;
        };
        let addition: Cow<'_, str> = match step.event {
            Event::ContentStarted { .. } => {
                self.told = Told::default();
                return;
            }
            Event::ContentFinished { .. } => told_whole(slot, options),
            _ => self.told.grow(step, slot).into(),
        };
        if addition.is_empty() {
            return;
        }
        // Clients show everything between two calls as one text (section 5, rule 3).
        let follows = self.last.is_some_and(|last| last != at) && calls.count() == self.calls_then;
        if follows && options.separator {
            wire::Event::Text { content: "\n\n" }.write(out);
        }
        if is_reasoning && !self.is_thinking {
            self.is_thinking = true;
            wire::Event::Text { content: "<think>" }.write(out);
        }
        self.last = Some(at);
        self.calls_then = calls.count();
        self.said_anything = true;
        wire::Event::Text { content: &addition }.write(out);
    }

    /// Tells a step of reasoning as an event of its own kind. It keeps apart from the text by itself.
    pub(crate) fn encode_reasoning(&mut self, step: &Step<'_>, out: &mut Out) {
        // What is contradicted later has been shown; nobody acts on reasoning.
        let content = step.delta();
        if !content.is_empty() && matches!(step.event, Event::ContentDelta { .. }) {
            self.said_anything = true;
            wire::Event::Reasoning { content }.write(out);
        }
    }
}

/// What a content is told as that was not told while it grew.
fn told_whole(slot: &Slot, options: &Options) -> Cow<'static, str> {
    let Some(value) = &slot.value else { return "".into() };
    let (label, url, mark) = match &value.body {
        Body::Data(data) if options.data == Data::Text && slot.kind == ContentType::Data => {
            return data.text().to_owned().into();
        }
        Body::Image(url) => ("image", url.as_deref(), "!"),
        Body::Video(url) => ("video", url.as_deref(), ""),
        Body::Audio { data, .. } => ("audio", data.as_deref(), ""),
        Body::File(file) => (file.name.as_deref().unwrap_or("file"), file.url.as_deref(), ""),
        _ => return "".into(),
    };
    let is_link = |url: &&str| url.starts_with("https://") || url.starts_with("http://");
    match url.filter(is_link) {
        Some(url) if options.media == Media::Link => {
            format!("{mark}[{}]({})", without(label, &['[', ']', '\\']), escaped(url)).into()
        }
        // Inline data in a text would be of no use to anybody.
        _ => "".into(),
    }
}

fn without(label: &str, letters: &[char]) -> String {
    label.chars().filter(|letter| !letter.is_control() && !letters.contains(letter)).collect()
}

/// A URL that cannot end the link it stands in.
fn escaped(url: &str) -> String {
    let mut escaped = String::with_capacity(url.len());
    for letter in url.chars() {
        match letter {
            '(' => escaped.push_str("%28"),
            ')' => escaped.push_str("%29"),
            '<' => escaped.push_str("%3C"),
            '>' => escaped.push_str("%3E"),
            ' ' => escaped.push_str("%20"),
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}
