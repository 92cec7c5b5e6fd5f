//! The name of a call, and the arguments of a call that has a text instead.

use std::borrow::Cow;

use interlingua_adapter_kit::wire_names::OriginalNames;
use interlingua_core::agent_event::CallPart;
use interlingua_core::client_tool::{FREE_TEXT_END, FREE_TEXT_START, push_escaped};

use super::slots::SlotKind;
use super::wire::{Object, json_text};

/// The JSON before a text that arrives in pieces and becomes the only argument of a call.
pub(super) const fn opening(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Hosted => "{\"code\":\"",
        _ => FREE_TEXT_START,
    }
}

/// A text as the only argument of a call.
pub(super) fn text_argument(kind: SlotKind, text: &str) -> String {
    let mut arguments = opening(kind).to_owned();
    push_escaped(text, &mut arguments);
    arguments.push_str(FREE_TEXT_END);
    arguments
}

/// The name of a call, and the arguments of the announced item. A text may arrive in pieces.
/// `names`: the client's names of tools that the request had to rename.
pub(super) fn head<'a>(kind: SlotKind, item: &Object<'a>, names: &OriginalNames) -> CallPart<'a> {
    let id = item.word("id");
    let call_id = item.text("call_id").filter(|call_id| !call_id.is_empty()).unwrap_or(id);
    let (name, arguments) = match kind {
        SlotKind::Hosted => {
            let word = item.word("type");
            let name = word.strip_suffix("_call").unwrap_or(&word).to_owned();
            (name.into(), hosted_arguments(item, false))
        }
        SlotKind::CustomCall => (names.restore(item.word("name")), Cow::Borrowed("")),
        SlotKind::FunctionCall => {
            (names.restore(item.word("name")), json_text(item.get("arguments")).unwrap_or_default())
        }
        _ => (item.word("name"), json_text(item.get("arguments")).unwrap_or_default()),
    };
    CallPart { call_id, name, arguments, server_label: item.text("server_label") }
}

/// The arguments of a call of the server's own tools, as a JSON object. `is_whole`: the text is complete.
pub(super) fn hosted_arguments<'a>(item: &Object<'a>, is_whole: bool) -> Cow<'a, str> {
    if let Some(arguments) = json_text(item.get("arguments")) {
        return arguments;
    }
    if let Some(code) = item.text("code") {
        return if is_whole { text_argument(SlotKind::Hosted, &code).into() } else { Cow::Borrowed("") };
    }

    let found = ["action", "queries", "operation", "input"].iter().find_map(|field| Some((field, item.get(field)?)));
    match found {
        Some((_, value)) if value.get().starts_with('{') => Cow::Borrowed(value.get()),
        Some((field, value)) => format!("{{\"{field}\":{}}}", value.get()).into(),
        None => Cow::Borrowed(""),
    }
}
