//! Texts that are shown to people: the beginning of a long one, and arguments.

use std::borrow::Cow;

use interlingua_core::Json;

/// The beginning of a text: at most `max` bytes, cut between two characters.
pub(crate) fn beginning(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// The arguments of a call for people: JSON without white space between its parts, any other text as it is.
pub(super) fn shown(arguments: &str) -> Cow<'_, str> {
    match Json::parse(arguments) {
        Some(json) => Cow::Owned(json.text().to_owned()),
        None => Cow::Borrowed(arguments),
    }
}
