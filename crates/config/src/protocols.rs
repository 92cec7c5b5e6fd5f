//! The protocols that a configuration may name, as declared by the binary.
//!
//! The configuration module knows no particular protocol: only its name, the type of its options and its endpoints. All
//! else belongs to the adapter.

use std::fmt;
use std::sync::Arc;

use interlingua_core::capability::{ClientCapabilities, UpstreamCapabilities};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::options::{Options, ReadOptions, read_options};
use super::settings::{Mount, Route};
use crate::routing::EndpointPattern;

type TryMount = Arc<dyn Fn(&Mount) -> Result<Vec<EndpointPattern>, String> + Send + Sync>;
type TryConnect = Arc<dyn Fn(Option<&Url>, &Options) -> Result<ConnectorCheck, String> + Send + Sync>;
type ReadCapabilities = Arc<dyn Fn(&Options) -> ClientCapabilities + Send + Sync>;

/// The result of creating a connector. No request was sent.
#[derive(Clone, Debug, Default)]
pub struct ConnectorCheck {
    /// The agent's capabilities.
    pub capabilities: UpstreamCapabilities,
    /// Warnings about the options: sentences that name the setting, with the remedy in a second line.
    pub warnings: Vec<String>,
}

/// A protocol that routes can serve to clients.
#[derive(Clone)]
pub struct ClientProtocol {
    pub(super) name: String,
    pub(super) read: ReadOptions,
    pub(super) try_mount: Option<TryMount>,
    pub(super) capabilities: Option<ReadCapabilities>,
    pub(super) schema: Option<Value>,
}

impl ClientProtocol {
    /// Declares a protocol whose options have the type `O`.
    ///
    /// `O` should deny unknown fields. If an error message of its `Deserialize` has a second line, it is shown next to
    /// the value as a suggestion.
    pub fn new<O: DeserializeOwned>(name: impl Into<String>) -> Self {
        Self { name: name.into(), read: read_options::<O>, try_mount: None, capabilities: None, schema: None }
    }

    /// Sets the function that tries a mount. It returns the mount's endpoints, which are used to find conflicts between
    /// routes, or the reason why it cannot be mounted, as a sentence for the operator. Without it, the protocol has no
    /// endpoints.
    #[must_use]
    pub fn try_mount(
        mut self,
        try_mount: impl Fn(&Mount) -> Result<Vec<EndpointPattern>, String> + Send + Sync + 'static,
    ) -> Self {
        self.try_mount = Some(Arc::new(try_mount));
        self
    }

    /// Sets the function that returns the protocol's capabilities with the given options. Without it, no check is made.
    #[must_use]
    pub fn capabilities(
        mut self,
        capabilities: impl Fn(&Options) -> ClientCapabilities + Send + Sync + 'static,
    ) -> Self {
        self.capabilities = Some(Arc::new(capabilities));
        self
    }

    /// Sets the JSON Schema of the options.
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
    pub(super) try_connect: Option<TryConnect>,
    pub(super) built_in: bool,
    pub(super) schema: Option<Value>,
    products: &'static [&'static str],
}

impl UpstreamProtocol {
    /// Declares a protocol whose options have the type `O`; see [`ClientProtocol::new`].
    pub fn new<O: DeserializeOwned>(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            read: read_options::<O>,
            try_connect: None,
            built_in: false,
            schema: None,
            products: &[],
        }
    }

    /// Sets the function that tries to create a connector, without any request. The error is the reason why it cannot
    /// be created, as a sentence for the operator. The URL is `None` for [built-in](Self::built_in) protocols.
    #[must_use]
    pub fn try_connect(
        mut self,
        try_connect: impl Fn(Option<&Url>, &Options) -> Result<ConnectorCheck, String> + Send + Sync + 'static,
    ) -> Self {
        self.try_connect = Some(Arc::new(try_connect));
        self
    }

    /// The JSON Schema of the options.
    pub fn options_schema(&self) -> Option<&Value> {
        self.schema.as_ref()
    }

    /// Sets names of vendors and products that people write for the protocol, in lower case and with `_` for `-`.
    #[must_use]
    pub fn products(mut self, products: &'static [&'static str]) -> Self {
        self.products = products;
        self
    }

    /// Marks the protocol's agents as part of the gateway itself: they have no URL.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.built_in = true;
        self
    }

    /// Sets the JSON Schema of the options.
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
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a protocol for routes, replacing one of the same name.
    #[must_use]
    pub fn client(mut self, protocol: ClientProtocol) -> Self {
        self.clients.retain(|known| known.name != protocol.name);
        self.clients.push(protocol);
        self
    }

    /// Adds a protocol for upstreams, replacing one of the same name.
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

    /// The protocols that servers of this vendor or product speak.
    pub(super) fn of_product(&self, product: &str) -> Vec<&str> {
        let speak = self.upstreams.iter().filter(|protocol| protocol.products.contains(&product));
        speak.map(|protocol| protocol.name.as_str()).collect()
    }

    /// The capabilities of a route with its options. `None`: its protocol declares none.
    pub fn carried_on(&self, route: &Route) -> Option<ClientCapabilities> {
        let declared = self.clients.iter().find(|client| client.name == route.protocol)?;
        declared.capabilities.as_ref().map(|capabilities| capabilities(&route.options))
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
    use crate::diagnostics::Diagnostic;
    use toml::Spanned;
    use toml::de::DeValue;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct TestOptions {
        size: u8,
        #[serde(default)]
        name: String,
    }

    fn read(source: &str) -> (Option<Options>, Vec<Diagnostic>) {
        let mut found = Vec::new();
        let raw: Spanned<DeValue<'_>> = DeValue::parse(source).expect("a TOML value");
        let options = read_options::<TestOptions>(raw, &mut found);
        (options, found)
    }

    #[test]
    fn options_have_the_type_they_were_declared_with() {
        let (options, found) = read("{ size = 3, name = \"x\" }");
        let options = options.expect("valid options");
        assert!(found.is_empty());

        let expected = TestOptions { size: 3, name: "x".to_owned() };
        assert_eq!(options.copy::<TestOptions>(), Some(expected));
        assert!(options.copy::<String>().is_none());
        assert_eq!(format!("{options:?}"), "{\"size\", \"name\"}");
    }

    #[test]
    fn several_errors_in_options_are_reported_at_once() {
        let (options, found) = read("{ size = 300, nam = \"x\" }");
        assert!(options.is_none());
        let messages: Vec<_> = found.iter().map(Diagnostic::message).collect();
        // "size" is missing only because it was rejected: not a third error.
        assert_eq!(messages, ["\"size\" must be a whole number from 0 to 255", "unknown key \"nam\""]);
    }
}
