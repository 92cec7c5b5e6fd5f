//! What names a call, and the arguments of a call that has a text instead.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::agent_event::CallPart;

use super::slots::Kind;
use super::wire::{Object, json_text};

/// What stands in front of a text in pieces, which becomes the only argument of a call.
pub(super) const fn opening(kind: Kind) -> &'static str {
    match kind {
        Kind::Hosted => "{\"code\":\"",
        _ => "{\"input\":\"",
    }
}

/// A text as the only argument of a call.
pub(super) fn text_argument(kind: Kind, text: &str) -> String {
    let mut arguments = opening(kind).to_owned();
    push_escaped(text, &mut arguments);
    arguments.push_str("\"}");
    arguments
}

/// What names a call, and its arguments as far as an item has them that is announced. A text may come in pieces.
pub(super) fn head<'a>(kind: Kind, item: &Object<'a>) -> CallPart<'a> {
    let id = item.word("id");
    let call_id = item.text("call_id").filter(|call_id| !call_id.is_empty()).unwrap_or(id);
    let (name, arguments) = match kind {
        Kind::Hosted => {
            let word = item.word("type");
            let name = word.strip_suffix("_call").unwrap_or(&word).to_owned();
            (name.into(), hosted_arguments(item, false))
        }
        Kind::CustomCall => (item.word("name"), Cow::Borrowed("")),
        _ => (item.word("name"), json_text(item.get("arguments")).unwrap_or_default()),
    };
    CallPart { call_id, name, arguments, server_label: item.text("server_label") }
}

/// The arguments of a call of the server's own kind, as a JSON object: what the server is asked to do. `is_whole`: a text
/// is not to come in pieces.
pub(super) fn hosted_arguments<'a>(item: &Object<'a>, is_whole: bool) -> Cow<'a, str> {
    if let Some(arguments) = json_text(item.get("arguments")) {
        return arguments;
    }
    if let Some(code) = item.text("code") {
        return if is_whole { text_argument(Kind::Hosted, &code).into() } else { Cow::Borrowed("") };
    }

    let found = ["action", "queries", "operation", "input"].iter().find_map(|field| Some((field, item.get(field)?)));
    match found {
        Some((_, value)) if value.get().starts_with('{') => Cow::Borrowed(value.get()),
        Some((field, value)) => format!("{{\"{field}\":{}}}", value.get()).into(),
        None => Cow::Borrowed(""),
    }
}

/// Appends a text as it stands inside a JSON string. Pieces of a text give what the text as a whole gives.
pub(super) fn push_escaped(text: &str, into: &mut String) {
    for character in text.chars() {
        match character {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(into, "\\u{:04x}", u32::from(control));
            }
            other => into.push(other),
        }
    }
}
