//! The field parser that this protocol has alone: metadata.

use interlingua_core::tree::Object;
use interlingua_core::{Extra, Fault};

/// Parses `metadata`: at most 16 string pairs, keys of at most 64 and values of at most 512 characters
/// (docs/protocols/responses.md#request).
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
