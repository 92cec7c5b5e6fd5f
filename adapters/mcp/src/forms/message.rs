//! The text of a question for people: the reason why it comes again, the prompt, and the call with its arguments.

use std::borrow::Cow;

use interlingua_core::pending::{Pending, PendingKind};

use super::text::{beginning, shown};

/// Maximum length of a message in bytes.
const MAX_BYTES: usize = 8 * 1024;
/// Maximum length of the reason, and of a tool's name.
const MAX_PART_BYTES: usize = 1024;
/// Maximum length of a prompt beside a call.
const MAX_PROMPT_BYTES: usize = 4 * 1024;

/// The message of a question. `page`: where the person logs in, for clients that cannot open it.
pub(super) fn write(item: &Pending, reason: Option<&str>, page: Option<&str>) -> String {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    lines.extend(reason.map(|reason| cut(reason, MAX_PART_BYTES)));
    let has_call = matches!(item.kind, PendingKind::Approval | PendingKind::Tool);
    let max = if has_call || page.is_some() { MAX_PROMPT_BYTES } else { MAX_BYTES - MAX_PART_BYTES - 1 };
    lines.extend(prompt(item).map(|prompt| Cow::Owned(cut(prompt, max).into_owned())));
    lines.extend(page.map(|page| cut(page, MAX_PART_BYTES)));
    let mut message = lines.join("\n");
    if has_call {
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(&cut(&item.name, MAX_PART_BYTES));
        message.push_str(": ");
        let arguments = if item.arguments.trim().is_empty() { Cow::Borrowed("{}") } else { shown(&item.arguments) };
        message.push_str(&cut(&arguments, MAX_BYTES - message.len()));
    }
    message
}

/// True if the message of an item shows all of its call.
pub(super) fn shows_call(item: &Pending) -> bool {
    let prompt = prompt(item).map_or(0, |prompt| prompt.len().min(MAX_PROMPT_BYTES) + 1);
    let name = item.name.len();
    name <= MAX_PART_BYTES && prompt + name + 2 + shown(&item.arguments).len() <= MAX_BYTES
}

fn prompt(item: &Pending) -> Option<&str> {
    let own = item.message.as_deref().filter(|message| !message.trim().is_empty());
    own.or(match item.kind {
        PendingKind::Approval => Some("May the agent run this call?"),
        PendingKind::Input => Some("The agent needs an answer."),
        PendingKind::Auth => Some("The agent needs you to log in."),
        PendingKind::Tool => None,
    })
}

/// The beginning of a text that is too long, with the number of bytes that are missing.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    /// Room for the note, whatever the number.
    const NOTE_BYTES: usize = 40;
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let kept = beginning(text, max.saturating_sub(NOTE_BYTES));
    Cow::Owned(format!("{kept}… ({} bytes more)", text.len() - kept.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_core::Json;

    fn item(data: &str) -> Pending {
        Pending::parse(&Json::parse(data).expect("JSON")).expect("an item")
    }

    #[test]
    fn a_call_stands_on_a_line_of_its_own() {
        let data = r#"{"id":"a","name":"send_mail","arguments":"{\"to\":\"a@example.com\"}",
            "interrupt":{"kind":"approval","message":"Send this mail?"}}"#;
        let call = "Send this mail?\nsend_mail: {\"to\":\"a@example.com\"}";
        assert_eq!(write(&item(data), None, None), call);
        assert_eq!(write(&item(data), Some("Not that."), None), format!("Not that.\n{call}"));

        let bare = item(r#"{"id":"a","name":"drop"}"#);
        assert_eq!(write(&bare, None, None), "May the agent run this call?\ndrop: {}");
        assert!(shows_call(&bare) && shows_call(&item(data)));
        for length in [100, MAX_BYTES - 40, MAX_BYTES] {
            let long = Pending { arguments: "x".repeat(length), ..bare.clone() };
            assert_eq!(shows_call(&long), write(&long, None, None).ends_with('x'), "{length}");
        }
    }

    #[test]
    fn questions_have_no_call_and_logins_may_show_their_page() {
        let input = item(r#"{"id":"a","name":"ask","arguments":"{}","interrupt":{"kind":"input","message":"Size?"}}"#);
        assert_eq!(write(&input, None, None), "Size?");
        let auth = item(r#"{"id":"a","name":"login","interrupt":{"kind":"auth"}}"#);
        let page = Some("https://id.example.com");
        assert_eq!(write(&auth, None, page), "The agent needs you to log in.\nhttps://id.example.com");
    }

    #[test]
    fn a_message_never_exceeds_its_limit_and_names_what_is_missing() {
        let long = "ä".repeat(10_000);
        for kind in ["approval", "input", "auth"] {
            let data = serde_json::json!({"id": "a", "name": long, "arguments": format!("\"{long}\""),
                "interrupt": {"kind": kind, "message": long}});
            let message = write(&item(&data.to_string()), Some(&long), Some(&long));
            assert!(message.len() <= MAX_BYTES, "{kind}: {}", message.len());
            assert!(message.contains(" bytes more)"), "{kind}");
        }
        let data = serde_json::json!({"id": "a", "name": "send", "arguments": format!("\"{}\"", "x".repeat(9000))});
        let message = write(&item(&data.to_string()), None, None);
        let kept = message.matches('x').count();
        assert!(message.ends_with(&format!("… ({} bytes more)", 9002 - 1 - kept)), "{message}");
    }
}
