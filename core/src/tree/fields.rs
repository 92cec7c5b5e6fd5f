//! Parsers of fields that several protocols have: strings, words of a closed set, numbers in a range.

use super::Object;
use crate::fault::Fault;
use crate::json::Extra;

/// An optional string, owned.
///
/// # Errors
/// [`crate::FaultKind::WrongType`], as for all functions below.
pub fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(std::borrow::Cow::into_owned))
}

/// An optional string out of a closed set.
///
/// # Errors
/// [`crate::FaultKind::Invalid`] with the words of the set.
pub fn choice(object: &Object<'_>, name: &str, words: &[&str]) -> Result<Option<String>, Fault> {
    let Some(node) = object.get(name) else { return Ok(None) };
    let word = node.string()?;
    if words.contains(&word.as_ref()) {
        return Ok(Some(word.into_owned()));
    }

    Err(node.invalid(format!("unknown value '{}': must be one of {}", truncate(&word), quoted_list(words))))
}

/// Formats as `'a', 'b'`.
#[must_use]
pub fn quoted_list(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

/// At most 64 characters of a client's text, for use in an error message.
#[must_use]
pub fn truncate(text: &str) -> &str {
    match text.char_indices().nth(64) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// An optional number in a range.
///
/// # Errors
/// [`crate::FaultKind::Invalid`] beyond the range.
pub fn number_in_range(object: &Object<'_>, name: &str, min: f64, max: f64) -> Result<Option<f64>, Fault> {
    let number = object.number(name)?;
    match (number, object.get(name)) {
        (Some(number), Some(node)) if !(min..=max).contains(&number) => {
            Err(node.invalid(format!("must be between {min} and {max}")))
        }
        _ => Ok(number),
    }
}

/// An optional integer that is not smaller than `min`.
///
/// # Errors
/// [`crate::FaultKind::Invalid`] if it is.
pub fn at_least(object: &Object<'_>, name: &str, min: i64) -> Result<Option<i64>, Fault> {
    let number = object.integer(name)?;
    match (number, object.get(name)) {
        (Some(number), Some(node)) if number < min => Err(node.invalid(format!("must be at least {min}"))),
        _ => Ok(number),
    }
}

/// The field `metadata` of OpenAI's APIs: at most 16 pairs of strings, keys of at most 64 and values of at most 512
/// characters. Empty if it is missing.
///
/// # Errors
/// [`crate::FaultKind::Invalid`] beyond these limits.
pub fn metadata(object: &Object<'_>) -> Result<Extra, Fault> {
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
