//! Small readers of fields: texts, words of a closed set, numbers in a range, metadata.

use interlingua_core::tree::Object;
use interlingua_core::{Extra, Fault};

/// An optional text, owned.
pub(super) fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(std::borrow::Cow::into_owned))
}

/// An optional word out of a closed set.
pub(super) fn choice(object: &Object<'_>, name: &str, words: &[&str]) -> Result<Option<String>, Fault> {
    let Some(node) = object.get(name) else { return Ok(None) };
    let word = node.string()?;
    if words.contains(&word.as_ref()) {
        return Ok(Some(word.into_owned()));
    }
    Err(node.invalid(format!("unknown value '{}': must be one of {}", cut(&word), listed(words))))
}

/// `'a', 'b'`
pub(super) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

/// The beginning of what a client wrote, for a sentence.
pub(super) fn cut(text: &str) -> &str {
    match text.char_indices().nth(64) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// An optional number in a range.
pub(super) fn ranged(object: &Object<'_>, name: &str, least: f64, most: f64) -> Result<Option<f64>, Fault> {
    let number = object.number(name)?;
    match (number, object.get(name)) {
        (Some(number), Some(node)) if !(least..=most).contains(&number) => {
            Err(node.invalid(format!("must be between {least} and {most}")))
        }
        _ => Ok(number),
    }
}

/// At most 16 pairs of strings, keys of at most 64 and values of at most 512 characters (section 3).
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
