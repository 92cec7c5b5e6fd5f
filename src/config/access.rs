//! The tables about callers, as written: `[auth]`, `[callers.X]`, the `auth` of routes, and limits.
//!
//! Not here: their checks (`auth.rs`, `callers.rs`).

use std::fmt;

use interlingua_core::rate::Rate;
use interlingua_core::size::Size;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::located::{Located, Table};
use super::settings::{CallerKind, CertificateName, ConsoleRole};

/// How callers prove who they are. Without any of these, everyone is anonymous.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthTable {
    /// The file with the hashes of API keys, relative to the folder of this file. `interlingua key new` writes it.
    pub(super) keys: Option<Located<String>>,
    /// The issuers whose JSON Web Tokens are accepted.
    pub(super) jwt: Vec<Located<Table<JwtTable>>>,
    /// Accepts client certificates.
    pub(super) certificates: Option<Located<Table<CertificatesTable>>>,
    /// Whether the open streams of a caller end when its key is revoked or its token expires. Requests that follow are
    /// refused in any case.
    pub(super) revoke_streams: bool,
}

/// An issuer of JSON Web Tokens.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtTable {
    /// The `iss` of its tokens, exactly. Required.
    pub(super) issuer: Option<Located<String>>,
    /// The `aud` of tokens for this gateway; of several, one suffices. Required.
    pub(super) audience: Option<Located<Texts>>,
    /// The signature algorithms it uses, such as "RS256" or "ES256". Required.
    pub(super) algorithms: Option<Located<Vec<Located<String>>>>,
    /// The claim that names the caller; by default "sub".
    pub(super) caller: Option<Located<String>>,
    /// The claim that lists the caller's scopes; by default "scope".
    pub(super) scopes: Option<Located<String>>,
    /// Where its public keys are; by default as its OpenID Connect discovery document says.
    pub(super) jwks: Option<Located<Table<JwksTable>>>,
}

/// Where the public keys of an issuer are: at a URL or in a file.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwksTable {
    /// The URL of a JSON Web Key Set.
    pub(super) url: Option<Located<String>>,
    /// A file with a JSON Web Key Set, relative to the folder of this file.
    pub(super) file: Option<Located<String>>,
}

/// How client certificates name their caller.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CertificatesTable {
    /// The alternative name of the certificate that is the caller's name: "san_uri" or "san_dns". Required.
    pub(super) caller: Option<Located<CertificateName>>,
    /// The header in which a trusted proxy passes this name on, if the proxy checks the certificates.
    pub(super) header: Option<Located<String>>,
}

/// What some callers may do.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerTable {
    /// For all callers whose tokens have these scopes, instead of the caller of this name.
    pub(super) scopes: Vec<Located<String>>,
    /// Only for callers who prove their name with credentials of this kind; by default with any.
    pub(super) kind: Option<Located<CallerKind>>,
    /// Only for callers with tokens of this issuer in `[auth]`; by default of any.
    pub(super) issuer: Option<Located<String>>,
    /// The agents they may use; by default all.
    pub(super) agents: Option<Vec<Located<String>>>,
    /// The protocols they may use; by default all.
    pub(super) protocols: Option<Vec<Located<String>>>,
    /// What they may do in the console of the admin listener: `view` everything, or also `act`. Nothing by default.
    pub(super) console: Option<ConsoleRole>,
    /// How much each of them may use.
    pub(super) limits: Table<CallerLimitsTable>,
}

/// How much a caller may use.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerLimitsTable {
    /// Requests; by default any number.
    pub(super) rate: Option<Located<Rate>>,
    /// Requests at once; by default as many as fit into a second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<Located<u64>>,
    /// Runs at the same time; by default 10000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) runs: Option<Located<u64>>,
    /// Answers at the same time, streamed or not; by default 20000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) streams: Option<Located<u64>>,
    /// Turns that wait for another one of their session; by default 1024.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) queued: Option<Located<u64>>,
    /// WebSockets at the same time; by default 4096.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) sockets: Option<Located<u64>>,
    /// Bytes of stored runs. Beyond that, the caller's own oldest are deleted.
    pub(super) stored: Option<Located<Size>>,
    /// Stored runs. Beyond that, the caller's own oldest are deleted.
    #[schemars(range(min = 1))]
    pub(super) stored_runs: Option<Located<u64>>,
    /// Tasks of A2A routes. Beyond that, the caller's own oldest are deleted.
    #[schemars(range(min = 1))]
    pub(super) tasks: Option<Located<u64>>,
    /// Conversations. Beyond that, the caller's own oldest are deleted.
    #[schemars(range(min = 1))]
    pub(super) conversations: Option<Located<u64>>,
    /// Push receivers; by default 1000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) receivers: Option<Located<u64>>,
    /// Push notifications; by default "6000/m". Those beyond it wait.
    pub(super) pushes: Option<Located<Rate>>,
    /// Tokens per day (UTC), of agents that report them.
    #[schemars(range(min = 1))]
    pub(super) tokens_per_day: Option<Located<u64>>,
}

/// How many runs an agent takes from all callers together.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AgentLimitsTable {
    /// Runs to begin; by default any number.
    pub(super) rate: Option<Located<Rate>>,
    /// Runs to begin at once; by default as many as fit into a second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<Located<u64>>,
    /// Runs at the same time; by default any number.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) runs: Option<Located<u64>>,
}

/// How many requests a route takes from all callers together.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteLimitsTable {
    /// Requests; by default any number.
    pub(super) rate: Option<Located<Rate>>,
    /// Requests at once; by default as many as fit into a second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<Located<u64>>,
}

/// One text, or a list of texts.
pub(super) enum Texts {
    One(String),
    List(Vec<Located<String>>),
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts::List(texts))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

impl JsonSchema for Texts {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Texts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

/// The schema of a route's `auth`.
pub(super) fn route_auth_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "const": "none" },
        { "type": "array", "minItems": 1, "items": { "enum": ["keys", "jwt", "certificates"] } }
    ] })
}
