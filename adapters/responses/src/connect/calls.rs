//! What names a call, and the arguments of a call that has a free text instead.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::agent_event::CallPart;

use super::slots::Kind;
use super::wire::{Object, json_text};

/// What stands before the free text of a call that becomes the only argument of a function.
pub(super) const INPUT_OPENS: &str = "{\"input\":\"";
/// What stands behind it.
pub(super) const INPUT_CLOSES: &str = "\"}";

/// What names a call, and its arguments as far as the item has them.
pub(super) fn head<'a>(kind: Kind, item: &Object<'a>) -> CallPart<'a> {
    let id = item.word("id");
    let call_id = item.text("call_id").filter(|call_id| !call_id.is_empty()).unwrap_or(id);
    match kind {
        Kind::Hosted => {
            let word = item.word("type");
            let name = word.strip_suffix("_call").unwrap_or(&word).to_owned();
            let fields = ["action", "queries", "code", "input", "operation", "arguments"];
            let arguments = fields.iter().find_map(|field| json_text(item.get(field))).unwrap_or_default();
            CallPart { call_id, name: name.into(), arguments, server_label: None }
        }
        // The free text comes in pieces, which begin with what makes it an argument.
        Kind::CustomCall => {
            CallPart { call_id, name: item.word("name"), arguments: Cow::Borrowed(""), server_label: None }
        }
        _ => CallPart {
            call_id,
            name: item.word("name"),
            arguments: json_text(item.get("arguments")).unwrap_or_default(),
            server_label: item.text("server_label"),
        },
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
