//! TLS and proxy of connections to an agent, as written in the file.
//!
//! Not here: their checks ([`super::upstream_connection`]).

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::located::WithSpan;
use super::secret::SecretTable;

/// TLS towards the agent's servers.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamTlsTable {
    /// The file with the authorities that sign the certificates of the servers, in PEM, instead of those of the system.
    pub(super) ca: Option<WithSpan<String>>,
    /// The file with the certificate that the gateway presents, then its issuers, in PEM.
    pub(super) cert: Option<WithSpan<String>>,
    /// The file with the private key of the certificate, in PEM.
    pub(super) key: Option<WithSpan<String>>,
    /// The name in the certificates of the servers, if it differs from the host of their URL.
    pub(super) server_name: Option<WithSpan<String>>,
}

/// A proxy with credentials.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxyTable {
    /// The URL of the proxy, which begins with `http://`. Required.
    pub(super) url: Option<WithSpan<String>>,
    /// The user name for the proxy.
    pub(super) user: Option<WithSpan<String>>,
    /// The password of the user.
    pub(super) password: Option<WithSpan<SecretTable>>,
}

/// A proxy in the file: its URL, or a table with credentials.
pub(super) enum ProxyValue {
    Url(String),
    Table(ProxyTable),
}

impl<'de> Deserialize<'de> for ProxyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ProxyVisitor;
        impl<'de> Visitor<'de> for ProxyVisitor {
            type Value = ProxyValue;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a URL or { url = \"…\", user = \"…\", password = { env = \"NAME\" } }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ProxyValue, E> {
                Ok(ProxyValue::Url(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProxyValue, A::Error> {
                ProxyTable::deserialize(MapAccessDeserializer::new(map)).map(ProxyValue::Table)
            }
        }
        deserializer.deserialize_any(ProxyVisitor)
    }
}

impl JsonSchema for ProxyValue {
    fn schema_name() -> Cow<'static, str> {
        "ProxyValue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<ProxyTable>();
        json_schema!({
            "description": "A proxy: its URL, or a table with credentials.",
            "anyOf": [{ "type": "string", "pattern": "^http://" }, table],
        })
    }
}
