//! The unreported news of a call: new text, new reasoning, and labels of calls.

use interlingua_core::event::Millis;
use interlingua_core::filter::truncated;
use serde_json::{Map, Value, json};

/// Length of a message for people, in characters.
const MAX_MESSAGE: usize = 200;

/// The news since the last notification.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The new text, or the whole new text after a replacement.
    delta: String,
    is_replaced: bool,
    reasoning: String,
    /// The message for people: the labels, or the end of the text.
    message: String,
    has_labels: bool,
    is_urgent: bool,
    arrived_at: Option<Millis>,
}

impl News {
    /// True if there is nothing to report.
    pub(super) fn is_empty(&self) -> bool {
        self.message.is_empty() && self.delta.is_empty() && self.reasoning.is_empty() && !self.is_replaced
    }

    pub(super) fn delta_len(&self) -> usize {
        self.delta.len() + self.reasoning.len()
    }

    /// Sets the time of the first of the news.
    pub(super) fn has_arrived(&mut self, now: Millis) {
        if self.arrived_at.is_none() && !self.is_empty() {
            self.arrived_at = Some(now);
        }
    }

    pub(super) const fn arrived_at(&self) -> Option<Millis> {
        self.arrived_at
    }

    /// True if the news wait for nothing but the rate.
    pub(super) const fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    pub(super) const fn make_urgent(&mut self) {
        self.is_urgent = true;
    }

    /// Adds new text. `tail`: the end of its message.
    pub(super) fn say(&mut self, delta: &str, tail: &str) {
        self.delta.push_str(delta);
        self.show(tail);
    }

    /// Replaces the text of a content.
    pub(super) fn replace(&mut self, text: &str, tail: &str) {
        self.is_replaced = true;
        text.clone_into(&mut self.delta);
        self.show(tail);
    }

    fn show(&mut self, tail: &str) {
        self.has_labels = false;
        tail.clone_into(&mut self.message);
    }

    /// Adds reasoning. False: it is not urgent.
    pub(super) fn think(&mut self, delta: &str) -> bool {
        self.reasoning.push_str(delta);
        if self.message.is_empty() {
            "Thinking…".clone_into(&mut self.message);
        }
        false
    }

    /// Adds a label. True: it is urgent.
    pub(super) fn label(&mut self, label: String) -> bool {
        if self.has_labels && self.message.len() + label.len() < MAX_MESSAGE {
            self.message.push('\n');
            self.message.push_str(&label);
        } else {
            self.message = label;
        }
        self.has_labels = true;
        true
    }

    /// The message, and `_meta` of each notification: more than one if the text is longer than `max` bytes.
    pub(super) fn into_parts(self, max: usize) -> (String, Vec<Option<Value>>) {
        let name = if self.is_replaced { "interlingua/replaced" } else { "interlingua/delta" };
        let mut metas: Vec<Option<Value>> = Vec::new();
        let mut fields = Map::new();
        if !self.reasoning.is_empty() {
            let mut pieces = pieces(&self.reasoning, max).peekable();
            while let Some(piece) = pieces.next() {
                fields.insert("interlingua/reasoning".to_owned(), json!(piece));
                if pieces.peek().is_some() {
                    metas.push(Some(Value::Object(std::mem::take(&mut fields))));
                }
            }
        }
        if !self.delta.is_empty() || self.is_replaced {
            let mut pieces = pieces(&self.delta, max).peekable();
            let mut name = name;
            while let Some(piece) = pieces.next() {
                fields.insert(name.to_owned(), json!(piece));
                // Only the first piece replaces.
                name = "interlingua/delta";
                if pieces.peek().is_some() {
                    metas.push(Some(Value::Object(std::mem::take(&mut fields))));
                }
            }
        }
        metas.push((!fields.is_empty()).then_some(Value::Object(fields)));
        (self.message, metas)
    }
}

/// A text in pieces of at most `max` bytes. At least one piece.
fn pieces(text: &str, max: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let piece = truncated(text, max);
        let after = &text[piece.len()..];
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// The ends of the texts of open messages.
#[derive(Debug, Default)]
pub(super) struct Tails(Vec<(usize, String)>);

impl Tails {
    /// Appends to the text of a message. True if it is the message's first text.
    pub(super) fn append(&mut self, message: usize, delta: &str) -> bool {
        let (is_first, tail) = self.entry(message);
        tail.push_str(delta);
        trim(tail);
        is_first
    }

    /// Replaces the text of a message.
    pub(super) fn replace(&mut self, message: usize, text: &str) {
        let (_, tail) = self.entry(message);
        text.clone_into(tail);
        trim(tail);
    }

    pub(super) fn get(&self, message: usize) -> &str {
        self.0.iter().find(|(index, _)| *index == message).map_or("", |(_, tail)| tail)
    }

    pub(super) fn remove(&mut self, message: usize) {
        self.0.retain(|(index, _)| *index != message);
    }

    fn entry(&mut self, message: usize) -> (bool, &mut String) {
        let known = self.0.iter().position(|(index, _)| *index == message);
        let place = known.unwrap_or_else(|| {
            self.0.push((message, String::new()));
            self.0.len() - 1
        });
        (known.is_none(), &mut self.0[place].1)
    }
}

/// Keeps the last characters of a text.
fn trim(text: &mut String) {
    let start = text.len() - tail(text).len();
    text.drain(..start);
}

/// The last characters of a text, as many as a message for people has.
pub(super) fn tail(text: &str) -> &str {
    let start = text.char_indices().rev().nth(MAX_MESSAGE - 1).map_or(0, |(place, _)| place);
    &text[start..]
}
