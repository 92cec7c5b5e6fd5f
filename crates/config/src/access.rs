//! The tables about callers, as written: `[auth]`, `[callers.X]`, the `auth` of routes, and limits.
//!
//! Not here: their checks (`auth.rs`, `callers.rs`).

use std::fmt;

use interlingua_base::rate::Rate;
use interlingua_core::size::Size;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::located::{Table, WithSpan};
use super::settings::{CallerKind, CertificateName, ConsoleRole};

/// Authentication of callers. Without any of these keys, every caller is anonymous.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthTable {
    /// The file with the hashes of API keys, relative to the folder of this file. `interlingua key new` writes it.
    pub(super) keys: Option<WithSpan<String>>,
    /// The issuers whose JSON Web Tokens are accepted.
    pub(super) jwt: Vec<WithSpan<Table<JwtTable>>>,
    /// Accepts client certificates.
    pub(super) certificates: Option<WithSpan<Table<CertificatesTable>>>,
    /// Whether the open streams of a caller end when its key is revoked or its token expires. Later requests are
    /// refused in any case.
    pub(super) revoke_streams: bool,
}

/// An issuer of JSON Web Tokens.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtTable {
    /// The exact `iss` of the issuer's tokens. Required.
    pub(super) issuer: Option<WithSpan<String>>,
    /// The `aud` of tokens for this gateway. Of several, one suffices. Required.
    pub(super) audience: Option<WithSpan<Texts>>,
    /// The signature algorithms of the issuer, such as "RS256" or "ES256". Required.
    pub(super) algorithms: Option<WithSpan<Vec<WithSpan<String>>>>,
    /// The claim that names the caller; by default "sub".
    pub(super) caller: Option<WithSpan<String>>,
    /// The claim that lists the caller's scopes; by default "scope".
    pub(super) scopes: Option<WithSpan<String>>,
    /// The source of the issuer's public keys. By default the OpenID Connect discovery document names it.
    pub(super) jwks: Option<WithSpan<Table<JwksTable>>>,
}

/// The source of an issuer's public keys: a URL or a file.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwksTable {
    /// The URL of a JSON Web Key Set.
    pub(super) url: Option<WithSpan<String>>,
    /// A file with a JSON Web Key Set, relative to the folder of this file.
    pub(super) file: Option<WithSpan<String>>,
}

/// Client certificates as credentials.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CertificatesTable {
    /// The alternative name of the certificate that names the caller: "san_uri" or "san_dns". Required.
    pub(super) caller: Option<WithSpan<CertificateName>>,
    /// The header in which a trusted proxy passes this name on, if the proxy checks the certificates.
    pub(super) header: Option<WithSpan<String>>,
}

/// Rights and limits of some callers.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerTable {
    /// Scopes: the table applies to all callers whose tokens have them, instead of the caller of this name.
    pub(super) scopes: Vec<WithSpan<String>>,
    /// Kind of the credentials: the table applies only to callers who prove their name with it. By default with any.
    /// `check` warns if `[auth]` accepts several kinds or issuers and a table names none.
    pub(super) kind: Option<WithSpan<CallerKind>>,
    /// Issuer in `[auth]`: the table applies only to callers with tokens of this issuer. By default of any.
    pub(super) issuer: Option<WithSpan<String>>,
    /// The agents that the callers may use; by default all.
    pub(super) agents: Option<Vec<WithSpan<String>>>,
    /// The protocols that the callers may use; by default all.
    pub(super) protocols: Option<Vec<WithSpan<String>>>,
    /// Rights in the console of the admin listener. By default the callers cannot sign in.
    pub(super) console: Option<ConsoleRole>,
    /// Limits of each caller. A request beyond one of them gets 429.
    pub(super) limits: Table<CallerLimitsTable>,
}

/// Limits of a caller. A request beyond one of them gets 429.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerLimitsTable {
    /// Requests per time, such as "50/s"; by default any number.
    pub(super) rate: Option<WithSpan<Rate>>,
    /// Requests at once; by default one second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<WithSpan<u64>>,
    /// Runs at the same time; by default 10000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) runs: Option<WithSpan<u64>>,
    /// Answers at the same time, streamed or not; by default 20000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) streams: Option<WithSpan<u64>>,
    /// Turns that wait for an earlier turn of their session; by default 1024.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) queued: Option<WithSpan<u64>>,
    /// WebSockets at the same time; by default 4096.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) sockets: Option<WithSpan<u64>>,
    /// Bytes of stored runs. Beyond this limit, the caller's own oldest runs are deleted.
    pub(super) stored: Option<WithSpan<Size>>,
    /// Stored runs. Beyond this limit, the caller's own oldest runs are deleted.
    #[schemars(range(min = 1))]
    pub(super) stored_runs: Option<WithSpan<u64>>,
    /// Tasks of A2A routes. Beyond this limit, the caller's own oldest tasks are deleted.
    #[schemars(range(min = 1))]
    pub(super) tasks: Option<WithSpan<u64>>,
    /// Conversations. Beyond this limit, the caller's own oldest conversations are deleted.
    #[schemars(range(min = 1))]
    pub(super) conversations: Option<WithSpan<u64>>,
    /// Push receivers; by default 1000.
    #[schemars(range(max = 1_000_000_000))]
    pub(super) receivers: Option<WithSpan<u64>>,
    /// Push notifications; by default "6000/m". Further notifications wait.
    pub(super) pushes: Option<WithSpan<Rate>>,
    /// Tokens per day (UTC), of agents that report token counts.
    #[schemars(range(min = 1))]
    pub(super) tokens_per_day: Option<WithSpan<u64>>,
}

/// Limits of an agent's runs, of all callers together.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AgentLimitsTable {
    /// Runs that start per time, such as "100/s"; by default any number.
    pub(super) rate: Option<WithSpan<Rate>>,
    /// Runs that start at once; by default one second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<WithSpan<u64>>,
    /// Runs at the same time; by default any number.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) runs: Option<WithSpan<u64>>,
}

/// Limits of a route's requests, of all callers together.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteLimitsTable {
    /// Requests per time, such as "200/s"; by default any number.
    pub(super) rate: Option<WithSpan<Rate>>,
    /// Requests at once; by default one second of the rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) burst: Option<WithSpan<u64>>,
}

/// One text, or a list of texts.
pub(super) enum Texts {
    One(String),
    List(Vec<WithSpan<String>>),
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
