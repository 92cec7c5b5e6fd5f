//! The protocols a configuration may name, as the binary hands them in.
//!
//! The configuration knows no protocol. What it has to know about one stands here: its name, the
//! type of its options, and which endpoints it answers. Everything else is the adapter's.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::ValueDeserializer;
use url::Url;

use super::diagnostics::Diagnostic;
use super::endpoint::EndpointName;
use super::settings::Mount;
use super::tree::{self, Cuts, Written};

/// A protocol's own options, read and checked.
///
/// The type inside is the one the protocol was [declared](ClientProtocol::new) with.
#[derive(Clone)]
pub struct Options {
    value: Arc<dyn Any + Send + Sync>,
    table: Arc<toml::Table>,
}

impl Options {
    /// The options, shared; `None` where they are of another type.
    pub fn get<O: Any + Send + Sync>(&self) -> Option<Arc<O>> {
        Arc::clone(&self.value).downcast().ok()
    }

    /// A copy of the options to own, for types that cannot be cloned.
    pub fn copy<O: DeserializeOwned>(&self) -> Option<O> {
        O::deserialize(toml::Value::Table(toml::Table::clone(&self.table))).ok()
    }
}

impl fmt::Debug for Options {
    /// Only the keys: what an adapter holds secret, only the adapter knows.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.table.keys()).finish()
    }
}

type ReadOptions = fn(Written<'_>, &mut Vec<Diagnostic>) -> Option<Options>;
type TryMount = Arc<dyn Fn(&Mount) -> Result<Vec<EndpointName>, String> + Send + Sync>;
type TryConnect = Arc<dyn Fn(Option<&Url>, &Options) -> Result<Vec<String>, String> + Send + Sync>;

/// Reads options as the type `O`, and remembers them untyped.
fn read_options<O>(written: Written<'_>, found: &mut Vec<Diagnostic>) -> Option<Options>
where
    O: DeserializeOwned + Any + Send + Sync,
{
    if !written.get_ref().is_table() {
        let kind = tree::article(written.get_ref().type_str());
        let message = format!("\"options\" must be a table, not {kind}");
        found.push(Diagnostic::error(message).at(&written.span()));
        return None;
    }
    let before = found.len();
    let value = tree::read::<O>("options", written.clone(), &mut Cuts::default(), found)?;
    if found.len() > before {
        return None;
    }
    let table = toml::Table::deserialize(ValueDeserializer::from(written)).ok()?;
    Some(Options { value: Arc::new(value), table: Arc::new(table) })
}

/// A protocol that routes can speak to clients.
#[derive(Clone)]
pub struct ClientProtocol {
    pub(super) name: String,
    pub(super) read: ReadOptions,
    pub(super) mounting: Option<TryMount>,
    pub(super) schema: Option<Value>,
}

impl ClientProtocol {
    /// Declares a protocol whose options are read as `O`.
    ///
    /// Types of options deny unknown keys. A message of theirs may have a second line: it is
    /// shown right beside the value, as a suggestion.
    pub fn new<O: DeserializeOwned + Any + Send + Sync>(name: impl Into<String>) -> Self {
        Self { name: name.into(), read: read_options::<O>, mounting: None, schema: None }
    }

    /// Tries a mount: says which endpoints it answers, so that clashes between routes are found, or
    /// in a sentence for the operator why it cannot be mounted so. Without, the protocol is taken to
    /// answer everything at its path.
    #[must_use]
    pub fn mounting(
        mut self,
        mounting: impl Fn(&Mount) -> Result<Vec<EndpointName>, String> + Send + Sync + 'static,
    ) -> Self {
        self.mounting = Some(Arc::new(mounting));
        self
    }

    /// Gives the JSON Schema of its options.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }
}

/// A protocol the gateway can speak to upstreams.
#[derive(Clone)]
pub struct UpstreamProtocol {
    pub(super) name: String,
    pub(super) read: ReadOptions,
    pub(super) connecting: Option<TryConnect>,
    pub(super) built_in: bool,
    pub(super) schema: Option<Value>,
}

impl UpstreamProtocol {
    /// Declares a protocol whose options are read as `O`; see [`ClientProtocol::new`].
    pub fn new<O: DeserializeOwned + Any + Send + Sync>(name: impl Into<String>) -> Self {
        Self { name: name.into(), read: read_options::<O>, connecting: None, built_in: false, schema: None }
    }

    /// Tries to make a connector, without asking anything yet: says in a sentence for the operator
    /// why it cannot be, or what is worth a look although it can. The URL is `None` for what is [built in](Self::built_in).
    #[must_use]
    pub fn connecting(
        mut self,
        connecting: impl Fn(Option<&Url>, &Options) -> Result<Vec<String>, String> + Send + Sync + 'static,
    ) -> Self {
        self.connecting = Some(Arc::new(connecting));
        self
    }

    /// Says that its agents live in the gateway itself, and so have no URL.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.built_in = true;
        self
    }

    /// Gives the JSON Schema of its options.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }
}

/// All protocols that are compiled in.
#[derive(Clone, Default)]
pub struct Protocols {
    clients: Vec<ClientProtocol>,
    upstreams: Vec<UpstreamProtocol>,
}

impl Protocols {
    /// No protocols yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a protocol for routes; one of the same name is replaced.
    #[must_use]
    pub fn client(mut self, protocol: ClientProtocol) -> Self {
        self.clients.retain(|known| known.name != protocol.name);
        self.clients.push(protocol);
        self
    }

    /// Adds a protocol for upstreams; one of the same name is replaced.
    #[must_use]
    pub fn upstream(mut self, protocol: UpstreamProtocol) -> Self {
        self.upstreams.retain(|known| known.name != protocol.name);
        self.upstreams.push(protocol);
        self
    }

    /// The names routes may use, in the order they were added.
    pub fn client_names(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().map(|protocol| protocol.name.as_str())
    }

    /// The names upstreams may use, in the order they were added.
    pub fn upstream_names(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|protocol| protocol.name.as_str())
    }

    pub(super) fn clients(&self) -> &[ClientProtocol] {
        &self.clients
    }

    pub(super) fn upstreams(&self) -> &[UpstreamProtocol] {
        &self.upstreams
    }
}

impl fmt::Debug for Protocols {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Protocols")
            .field("clients", &self.client_names().collect::<Vec<_>>())
            .field("upstreams", &self.upstream_names().collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Spanned;
    use toml::de::DeValue;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Pretend {
        size: u8,
        #[serde(default)]
        name: String,
    }

    fn read(source: &str) -> (Option<Options>, Vec<Diagnostic>) {
        let mut found = Vec::new();
        let written: Spanned<DeValue<'_>> = DeValue::parse(source).expect("a TOML value");
        let options = read_options::<Pretend>(written, &mut found);
        (options, found)
    }

    #[test]
    fn options_come_back_as_the_type_they_were_declared_with() {
        let (options, found) = read("{ size = 3, name = \"x\" }");
        let options = options.expect("options without mistakes");
        assert!(found.is_empty());
        let whole = Pretend { size: 3, name: "x".to_owned() };
        assert_eq!(options.get::<Pretend>().as_deref(), Some(&whole));
        assert_eq!(options.copy::<Pretend>(), Some(whole));
        assert!(options.get::<String>().is_none());
        assert_eq!(format!("{options:?}"), "{\"size\", \"name\"}");
    }

    #[test]
    fn several_mistakes_in_options_are_found_at_once() {
        let (options, found) = read("{ size = 300, nam = \"x\" }");
        assert!(options.is_none());
        let messages: Vec<_> = found.iter().map(Diagnostic::message).collect();
        // That "size" is missing after it was cut out is no third mistake.
        assert_eq!(messages, ["\"size\" must be a whole number from 0 to 255", "unknown key \"nam\""]);
    }
}
