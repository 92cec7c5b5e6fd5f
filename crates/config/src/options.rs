//! A protocol's own options as written in the file. Not here: the list of protocols ([`super::protocols`]).

use std::fmt;
use std::sync::Arc;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::ValueDeserializer;

use super::diagnostics::Diagnostic;
use super::tree::{self, RejectedEntries, TomlValue};
use interlingua_base::secrets::Masks;

/// A protocol's own options, deserialized and validated.
///
/// They have the type that the protocol was [declared](super::ClientProtocol::new) with.
#[derive(Clone, Default)]
pub struct Options(Arc<toml::Table>);

impl Options {
    /// The options as `O`; `None` if they do not deserialize as `O`.
    pub fn copy<O: DeserializeOwned>(&self) -> Option<O> {
        O::deserialize(toml::Value::Table(toml::Table::clone(&self.0))).ok()
    }

    /// The options as operators see them. `secrets`: the masks of their configuration.
    pub fn shown(&self, secrets: &Masks) -> Value {
        masked(serde_json::to_value(&*self.0).unwrap_or_default(), secrets)
    }
}

fn masked(value: Value, secrets: &Masks) -> Value {
    match value {
        Value::String(text) => secrets.mask(&text).into_owned().into(),
        Value::Array(items) => items.into_iter().map(|item| masked(item, secrets)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, masked(value, secrets))).collect(),
        other => other,
    }
}

impl fmt::Debug for Options {
    /// Prints the keys only, since only the adapter knows which values are secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reads the options of one protocol.
pub(super) type ReadOptions = fn(TomlValue<'_>, &mut Vec<Diagnostic>) -> Option<Options>;

/// Validates options as `O`.
pub(super) fn read_options<O: DeserializeOwned>(raw: TomlValue<'_>, found: &mut Vec<Diagnostic>) -> Option<Options> {
    if !raw.get_ref().is_table() {
        let kind = tree::with_article(raw.get_ref().type_str());
        let message = format!("\"options\" must be a table, not {kind}");
        found.push(Diagnostic::error(message).at(&raw.span()));
        return None;
    }

    let before = found.len();
    tree::read::<O>("options", raw.clone(), &mut RejectedEntries::default(), found)?;
    if found.len() > before {
        return None;
    }
    let table = toml::Table::deserialize(ValueDeserializer::from(raw)).ok()?;
    Some(Options(Arc::new(table)))
}
