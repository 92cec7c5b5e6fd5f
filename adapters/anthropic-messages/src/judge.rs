//! Whether the history that a client sends ends with what a session's latest run answered
//! (docs/protocols/anthropic-messages.md#conversations).
//!
//! Compared are texts, without regard to white space, and calls, by their ids, names and inputs. Thinking, calls of the
//! agent's own and their outputs are passed over: clients drop them.

use std::sync::Arc;

use interlingua_core::answer::chat::{AskedItem, reason_line};
use interlingua_core::call::{HistoryJudge, RunView};
use interlingua_core::{Extra, Json};
use serde_json::Value;

use crate::echo::Echo;
use crate::encode::Encoder;
use crate::serve::MountedRoute;

/// The last message of the assistant in a client's list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LastAnswer {
    /// All texts, without white space.
    letters: String,
    calls: Vec<(String, String, Value)>,
}

impl LastAnswer {
    pub(crate) fn add_text(&mut self, text: &str) {
        self.letters.extend(text.chars().filter(|letter| !letter.is_whitespace()));
    }

    pub(crate) fn add_call(&mut self, id: &str, name: &str, input: &Json) {
        self.calls.push((id.to_owned(), name.to_owned(), input.decode().unwrap_or_default()));
    }

    /// Removes the reason in front of a repeated question.
    fn without_reason(&self, question: &Self) -> Self {
        let reason: String = reason_line("").chars().filter(|letter| !letter.is_whitespace()).collect();
        let lead = self.letters.strip_suffix(question.letters.as_str());
        let is_reason = lead.is_some_and(|lead| lead.starts_with(&reason));
        let letters = if is_reason { question.letters.clone() } else { self.letters.clone() };
        Self { letters, calls: self.calls.clone() }
    }

    /// The digest of blocks.
    fn of_blocks(blocks: &[Json]) -> Self {
        let mut answer = Self::default();
        for block in blocks.iter().filter_map(Json::decode::<Extra>) {
            let word = |name: &str| block.get(name).and_then(Json::decode::<String>).unwrap_or_default();
            match word("type").as_str() {
                "text" => answer.add_text(&word("text")),
                "tool_use" => {
                    let input = block.get("input").cloned().unwrap_or_else(Json::null);
                    answer.add_call(&word("id"), &word("name"), &input);
                }
                _ => {}
            }
        }
        answer
    }
}

/// Judges runs of one route.
#[derive(Debug)]
pub(crate) struct Judge {
    shared: Arc<MountedRoute>,
    /// `None`: the list has no message of the assistant.
    last: Option<LastAnswer>,
}

impl Judge {
    pub(crate) fn new(shared: Arc<MountedRoute>, last: Option<LastAnswer>) -> Self {
        Self { shared, last }
    }
}

impl HistoryJudge for Judge {
    fn ends_with(&self, latest: RunView<'_>) -> bool {
        let Some(last) = &self.last else { return false };
        let blocks = Encoder::last_turn(Arc::clone(&self.shared), latest);
        LastAnswer::of_blocks(&blocks) == *last || self.is_asked_again(last, latest)
    }
}

impl Judge {
    /// Whether an entry contains only a question of the run, as it is repeated.
    fn is_asked_again(&self, last: &LastAnswer, latest: RunView<'_>) -> bool {
        let echo = Echo::from_labels(&latest.info.labels, &latest.run().agent);
        let pending = self.shared.limited(&latest.run().agent, &latest.run().pending());
        let asker = self.shared.options.asker();
        (0..pending.len()).any(|from| {
            let asked = asker.ask(&pending[from..], &|name| echo.declares(name));
            let mut question = LastAnswer::default();
            for item in &asked {
                match item {
                    AskedItem::Text(text) => question.add_text(text),
                    AskedItem::Call { id, name, arguments } => question.add_call(id, name, arguments),
                }
            }
            !asked.is_empty() && (question == *last || question == last.without_reason(&question))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: &[&str]) -> LastAnswer {
        let blocks: Vec<Json> = blocks.iter().map(|block| Json::parse(block).expect("JSON")).collect();
        LastAnswer::of_blocks(&blocks)
    }

    #[test]
    fn spelling_and_thoughts_make_no_difference() {
        let one = of(&[
            r#"{"type":"thinking","thinking":"hm","signature":""}"#,
            r#"{"type":"text","text":"Let me \nlook."}"#,
            r#"{"type":"tool_use","id":"a","name":"f","input":{"x":1.0,"y":[]}}"#,
        ]);
        let same = of(&[
            r#"{"type":"text","text":"Let me"}"#,
            r#"{"type":"text","text":" look. "}"#,
            r#"{"type":"tool_use","id":"a","name":"f","input":{ "y": [], "x": 1.0 },"cache_control":{}}"#,
        ]);
        assert_eq!(one, same);
        assert_ne!(one, of(&[r#"{"type":"text","text":"Let me look."}"#]));
    }
}
