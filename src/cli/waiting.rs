//! Output of `interlingua call` for a waiting run: the question, its arguments, and the commands that answer it.
//!
//! Not here: sending the answer ([`super::call`], [`super::call_foreign`]).

use std::fmt::Write as _;

use interlingua_core::Json;
use interlingua_core::json::Extra;
use interlingua_core::pending::{Decision, Pending, PendingKind};

/// The question, in lines. `command`: the command that sends an answer, without the answer itself.
pub(super) fn question(item: &Pending, command: Option<&str>) -> String {
    let mut lines = String::new();
    let name = printable(&item.name);
    let _ = match item.kind {
        PendingKind::Tool => writeln!(lines, "waiting for the output of {name}"),
        PendingKind::Approval => writeln!(lines, "waiting for approval of {name}"),
        PendingKind::Input => writeln!(lines, "waiting for an answer ({name})"),
        PendingKind::Auth => writeln!(lines, "waiting for a login ({name})"),
    };
    if let Some(message) = &item.message {
        indent(&mut lines, "", message);
    }
    // The payload of a question with words and a form says nothing more.
    if item.message.is_none() || item.response_schema.is_none() || item.kind == PendingKind::Approval {
        arguments(&mut lines, item);
    }
    if let Some(schema) = &item.response_schema {
        indent(&mut lines, "the answer has this form: ", schema.text());
    }
    if let Some(expires) = &item.expires_at {
        indent(&mut lines, "until ", expires);
    }

    let _ = writeln!(lines, "  answer: {}", choices(item));
    if let Some(command) = command {
        let _ = writeln!(lines, "  {command} {}", example(item));
    }
    lines
}

/// The accepted answers.
pub(super) fn choices(item: &Pending) -> String {
    // An agent that lists nothing takes no edits, and everyone can say no.
    let may = |decision| match decision {
        Decision::Reject => true,
        decision if item.decisions.is_empty() => decision != Decision::Edit,
        decision => item.decisions.contains(&decision),
    };
    match item.kind {
        PendingKind::Tool => "the output".to_owned(),
        PendingKind::Auth => "yes once you are logged in, or no".to_owned(),
        PendingKind::Input if item.response_schema.is_some() => "JSON of this form, or a text that fits it".to_owned(),
        PendingKind::Input => "a text".to_owned(),
        PendingKind::Approval => {
            let all = [
                (Decision::Accept, "yes"),
                (Decision::Reject, "no"),
                (Decision::Edit, "edit and other arguments as JSON"),
                (Decision::Respond, "a text that takes the place of the output"),
            ];
            let words: Vec<&str> =
                all.into_iter().filter(|(decision, _)| may(*decision)).map(|(_, words)| words).collect();
            words.join(", ")
        }
    }
}

/// An answer that settles the item.
const fn example(item: &Pending) -> &'static str {
    match item.kind {
        PendingKind::Tool => "OUTPUT",
        PendingKind::Input => "ANSWER",
        PendingKind::Approval | PendingKind::Auth => "yes",
    }
}

/// One line for each argument.
fn arguments(lines: &mut String, item: &Pending) {
    let Ok(whole) = serde_json::from_str::<Json>(&item.arguments) else {
        return indent(lines, "", &item.arguments);
    };
    let Some(fields) = whole.decode::<Extra>() else {
        // An empty value says nothing.
        if !whole.is_null() {
            indent(lines, "", &text(&whole));
        }
        return;
    };
    for (name, value) in fields.iter() {
        let value = text(value);
        // What the message says is not said again.
        if item.message.as_deref() != Some(value.as_str()) {
            indent(lines, &format!("{name}: "), &value);
        }
    }
}

/// A value as people read it: texts without quotes.
fn text(value: &Json) -> String {
    value.decode::<String>().unwrap_or_else(|| value.text().to_owned())
}

/// Adds a text below the headline, each line of it.
fn indent(lines: &mut String, before: &str, text: &str) {
    for (number, line) in text.lines().enumerate() {
        let before = if number == 0 { printable(before) } else { "  ".to_owned() };
        let _ = writeln!(lines, "  {before}{}", printable(line));
    }
}

/// Removes control characters of terminals, so that a question cannot hide its text.
fn printable(text: &str) -> String {
    let is_hidden = |sign: char| {
        sign.is_control() || matches!(sign, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::new(), |mut shown, sign| {
        if is_hidden(sign) {
            shown.extend(sign.escape_unicode());
        } else {
            shown.push(sign);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending_item(data: &str) -> Pending {
        Pending::parse(&serde_json::from_str(data).expect("JSON")).expect("an item")
    }

    #[test]
    fn an_approval_names_the_tool_its_arguments_and_the_answers() {
        let item = pending_item(
            r#"{"id":"a1","name":"send_mail","arguments":"{\"to\":\"ada\",\"lines\":\"one\\ntwo\",\"copies\":[1,2]}",
                "interrupt":{"message":"Send it?","decisions":["accept","reject","edit"]}}"#,
        );
        assert_eq!(
            question(&item, Some("interlingua call URL --answer a1")),
            "waiting for approval of send_mail\n  Send it?\n  to: ada\n  lines: one\n    two\n  copies: [1,2]\n  \
             answer: yes, no, edit and other arguments as JSON\n  interlingua call URL --answer a1 yes\n"
        );
    }

    #[test]
    fn a_question_shows_its_words_once_and_its_form() {
        let item = pending_item(
            r#"{"id":"q1","name":"ask","arguments":"{\"message\":\"Which one?\"}","interrupt":{"kind":"input",
                "message":"Which one?","response_schema":{"type":"string"}}}"#,
        );
        assert_eq!(
            question(&item, None),
            "waiting for an answer (ask)\n  Which one?\n  the answer has this form: {\"type\":\"string\"}\n  \
             answer: JSON of this form, or a text that fits it\n"
        );
        let item = pending_item(
            r#"{"id":"q1","name":"ask","arguments":"{\"message\":\"Which one?\",\"more\":1}",
            "interrupt":{"kind":"input","message":"Which one?"}}"#,
        );
        assert_eq!(question(&item, None), "waiting for an answer (ask)\n  Which one?\n  more: 1\n  answer: a text\n");
    }

    #[test]
    fn control_characters_of_a_question_are_escaped() {
        let item = pending_item(r#"{"id":"a","name":"rm\u001b[2K","arguments":"{\"path\":\"/\\u202e\\r\"}"}"#);
        let shown = question(&item, None);
        assert!(shown.contains("rm\\u{1b}[2K") && shown.contains("path: /\\u{202e}\\u{d}"), "{shown}");
    }
}
