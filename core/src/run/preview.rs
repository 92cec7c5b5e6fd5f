//! The first words of a run, as one line for lists.

use super::state::Run;
use crate::model::{Content, Message, Role};

/// The longest preview, in characters.
const MAX_CHARS: usize = 120;

impl Run {
    /// The beginning of the user's last message in the first turn, on one line: at most 120 characters. If that message
    /// has no text, the name of its type. Empty if the first turn has no input.
    #[must_use]
    pub fn preview(&self) -> String {
        let Some(turn) = self.turns.first() else { return String::new() };
        let is_user = |message: &&Message| message.role.as_ref().is_none_or(|role| *role == Role::User);
        let Some(message) = turn.input.iter().rev().find(is_user).or_else(|| turn.input.last()) else {
            return String::new();
        };

        let texts = message.content.iter().filter_map(Content::as_text);
        let words = texts.flat_map(str::split_whitespace);
        let mut preview = String::new();
        let mut chars = 0;
        for word in words {
            if chars >= MAX_CHARS {
                break;
            }
            if chars > 0 {
                preview.push(' ');
                chars += 1;
            }
            let piece: String = word.chars().take(MAX_CHARS - chars.min(MAX_CHARS)).collect();
            chars += piece.chars().count();
            preview.push_str(&piece);
        }
        if preview.is_empty() { message.kind.as_str().to_owned() } else { preview }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::model::MessageType;
    use crate::run::Record;

    fn preview(input: Vec<Message>) -> String {
        let id = RunId::parse("00000000-0000-0000-0000-000000000001").expect("an id");
        let mut record = Record::new(Run::new(id, "demo", "s", 0));
        record.start_turn(input);
        record.run().preview()
    }

    #[test]
    fn the_latest_words_of_the_user_on_one_line() {
        let input = vec![Message::user("before"), Message::user("book\n me\ta  flight"), Message::system("be brief")];
        assert_eq!(preview(input), "book me a flight");
        assert_eq!(preview(Vec::new()), "");
        assert_eq!(
            preview(vec![Message::new(MessageType::McpApprovalResponse, None, Vec::new())]),
            "mcp_approval_response"
        );
    }

    #[test]
    fn it_is_cut_between_characters() {
        let long = preview(vec![Message::user("é".repeat(1 << 20))]);
        assert_eq!(long.chars().count(), MAX_CHARS);
        let words = preview(vec![Message::user("word ".repeat(100))]);
        assert!(words.chars().count() <= MAX_CHARS + 1 && words.starts_with("word word"), "{words}");
    }
}
