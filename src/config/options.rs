//! A protocol's own options, read and type-erased. Not here: which protocols exist ([`super::protocols`]).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use toml::de::ValueDeserializer;

use super::diagnostics::Diagnostic;
use super::tree::{self, Rejected, TomlValue};

/// A protocol's own options, deserialized and validated.
///
/// They have the type that the protocol was [declared](super::ClientProtocol::new) with.
#[derive(Clone)]
pub struct Options {
    value: Arc<dyn Any + Send + Sync>,
    table: Arc<toml::Table>,
}

impl Options {
    /// The options, shared; `None` if they have another type.
    pub fn get<O: Any + Send + Sync>(&self) -> Option<Arc<O>> {
        Arc::clone(&self.value).downcast().ok()
    }

    /// An owned copy, for types without `Clone`; `None` if they do not deserialize as `O`.
    pub fn copy<O: DeserializeOwned>(&self) -> Option<O> {
        O::deserialize(toml::Value::Table(toml::Table::clone(&self.table))).ok()
    }
}

impl fmt::Debug for Options {
    /// Prints the keys only, since only the adapter knows which values are secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.table.keys()).finish()
    }
}

/// Reads the options of one protocol.
pub(super) type ReadOptions = fn(TomlValue<'_>, &mut Vec<Diagnostic>) -> Option<Options>;

/// Deserializes options as `O` and stores them type-erased.
pub(super) fn read_options<O>(raw: TomlValue<'_>, found: &mut Vec<Diagnostic>) -> Option<Options>
where
    O: DeserializeOwned + Any + Send + Sync,
{
    if !raw.get_ref().is_table() {
        let kind = tree::with_article(raw.get_ref().type_str());
        let message = format!("\"options\" must be a table, not {kind}");
        found.push(Diagnostic::error(message).at(&raw.span()));
        return None;
    }

    let before = found.len();
    let value = tree::read::<O>("options", raw.clone(), &mut Rejected::default(), found)?;
    if found.len() > before {
        return None;
    }
    let table = toml::Table::deserialize(ValueDeserializer::from(raw)).ok()?;
    Some(Options { value: Arc::new(value), table: Arc::new(table) })
}
