//! Reasoning that comes inside the text, between `<think>` and `</think>`, cut anywhere.
//!
//! See `docs/protocols/chat-completions.md#reasoning`.

use super::options::ThinkTags;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The kind of a piece of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Reasoning,
}

/// Splits the content of an answer.
#[derive(Debug)]
pub(super) struct Splitter {
    place: TagState,
    /// Text that may be the beginning of a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagState {
    /// Nothing visible has arrived.
    Start,
    Inside,
    /// Whatever comes is text.
    Outside,
}

impl Splitter {
    pub(super) fn new(tags: ThinkTags) -> Self {
        let place = match tags {
            ThinkTags::Auto => TagState::Start,
            ThinkTags::Opened => TagState::Inside,
            ThinkTags::Off => TagState::Outside,
        };

        Self { place, held: String::new() }
    }

    /// True if pieces pass as they are.
    pub(super) fn is_outside(&self) -> bool {
        self.place == TagState::Outside
    }

    /// The parts of a piece, in order. Empty ones say nothing.
    pub(super) fn split(&mut self, piece: &str) -> [(TextKind, String); 2] {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let mut reasoning = String::new();

        if self.place == TagState::Start {
            let visible = text.trim_start();
            if OPEN.starts_with(visible) {
                self.held = text;
                return [(TextKind::Reasoning, reasoning), (TextKind::Text, String::new())];
            }
            match visible.strip_prefix(OPEN) {
                Some(rest) => {
                    self.place = TagState::Inside;
                    text = rest.to_owned();
                }
                None => self.place = TagState::Outside,
            }
        }

        if self.place == TagState::Inside {
            if let Some(at) = text.find(CLOSE) {
                self.place = TagState::Outside;
                reasoning = text[..at].to_owned();
                text = text[at + CLOSE.len()..].to_owned();
            } else {
                let may_close = |length: &usize| text.ends_with(&CLOSE[..*length]);
                let held = (1..CLOSE.len()).rev().find(may_close).unwrap_or(0);
                self.held = text.split_off(text.len() - held);
                reasoning = std::mem::take(&mut text);
            }
        }

        [(TextKind::Reasoning, reasoning), (TextKind::Text, text)]
    }

    /// The buffered text. It is plain text: the content has ended, or reasoning arrived in a field of its own.
    pub(super) fn finish(&mut self) -> (TextKind, String) {
        let kind = if self.place == TagState::Inside { TextKind::Reasoning } else { TextKind::Text };
        self.place = TagState::Outside;
        (kind, std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(tags: ThinkTags, pieces: &[&str]) -> (String, String) {
        let mut splitter = Splitter::new(tags);
        let mut all: Vec<(TextKind, String)> = pieces.iter().flat_map(|piece| splitter.split(piece)).collect();
        all.push(splitter.finish());
        let of =
            |wanted: TextKind| all.iter().filter(|(kind, _)| *kind == wanted).map(|(_, text)| text.as_str()).collect();
        (of(TextKind::Reasoning), of(TextKind::Text))
    }

    #[test]
    fn tags_are_found_wherever_the_text_is_cut() {
        for (tags, text, reasoning, rest) in [
            (ThinkTags::Auto, "\n<think>a<b</think>c<think>d", "a<b", "c<think>d"),
            (ThinkTags::Auto, "<think>never closed </thin", "never closed </thin", ""),
            (ThinkTags::Auto, "<thin", "", "<thin"),
            (ThinkTags::Auto, " \n", "", " \n"),
            (ThinkTags::Auto, "see <think>", "", "see <think>"),
            (ThinkTags::Opened, "ä b</think>c", "ä b", "c"),
            (ThinkTags::Off, "<think>a</think>", "", "<think>a</think>"),
        ] {
            let wanted = (reasoning.to_owned(), rest.to_owned());
            assert_eq!(split(tags, &[text]), wanted, "{text}");
            let single: Vec<&str> = text.split_inclusive(|_| true).collect();
            assert_eq!(split(tags, &single), wanted, "{text}");
            for (at, _) in text.char_indices() {
                assert_eq!(split(tags, &[&text[..at], &text[at..]]), wanted, "{text} cut at {at}");
            }
        }
    }
}
