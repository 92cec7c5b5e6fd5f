//! Field parsers: strings, values of a closed set, numbers in a range, metadata.

use interlingua_core::tree::Object;
use interlingua_core::{Extra, Fault};

/// An optional string, owned.
pub(super) fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(std::borrow::Cow::into_owned))
}

/// An optional string out of a closed set.
pub(super) fn choice(object: &Object<'_>, name: &str, words: &[&str]) -> Result<Option<String>, Fault> {
    let Some(node) = object.get(name) else { return Ok(None) };
    let word = node.string()?;
    if words.contains(&word.as_ref()) {
        return Ok(Some(word.into_owned()));
    }

    Err(node.invalid(format!("unknown value '{}': must be one of {}", truncate(&word), quoted_list(words))))
}

/// Formats as `'a', 'b'`.
pub(super) fn quoted_list(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

/// At most 64 characters of a client's text, for use in an error message.
pub(super) fn truncate(text: &str) -> &str {
    match text.char_indices().nth(64) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// An optional number in a range.
pub(super) fn number_in_range(object: &Object<'_>, name: &str, min: f64, max: f64) -> Result<Option<f64>, Fault> {
    let number = object.number(name)?;
    match (number, object.get(name)) {
        (Some(number), Some(node)) if !(min..=max).contains(&number) => {
            Err(node.invalid(format!("must be between {min} and {max}")))
        }
        _ => Ok(number),
    }
}

/// Parses `metadata`: at most 16 string pairs, keys of at most 64 and values of at most 512 characters (section 3).
pub(crate) fn metadata(object: &Object<'_>) -> Result<Extra, Fault> {
    let Some(node) = object.get("metadata") else { return Ok(Extra::new()) };
    let pairs = node.object()?;
    if pairs.iter().count() > 16 {
        return Err(node.invalid("must have at most 16 pairs"));
    }

    let mut metadata = Extra::new();
    for (name, value) in pairs.iter() {
        if name.chars().count() > 64 {
            return Err(node.invalid("must have keys of at most 64 characters"));
        }
        if value.string()?.chars().count() > 512 {
            return Err(value.invalid("must have at most 512 characters"));
        }
        metadata.set(name, value.to_json());
    }
    Ok(metadata)
}
