//! The configuration as written: every key the file may have, its type, its default, its place.
//!
//! Nothing is checked here that takes more than one value to judge. The documentation of these
//! types is that of the file: it becomes the descriptions of the JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use toml::Spanned;

use super::duration::Period;
use super::headers::HeaderValue;
use super::settings::{Forwarded, History, OnDisconnect, ParallelTurns, RouteAuth, StoreKind};
use super::size::Size;

/// A value and where it stands; defaults stand nowhere, in an empty range.
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) place: Range<usize>,
}

impl<T> From<T> for Located<T> {
    fn from(value: T) -> Self {
        Self { value, place: 0..0 }
    }
}

impl<T: Default> Default for Located<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { place: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: Serialize> Serialize for Located<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// A table that really has to be one: derived types would take an array for their fields in turn.
#[derive(Default)]
pub(super) struct Table<T>(T);

impl<T> Deref for Table<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Written<T> {
            type Value = Table<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }
        deserializer.deserialize_map(Written(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Table<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// A table whose keys are names of the operator's choosing, in the order of the file.
pub(super) struct Entries<T>(Vec<(Located<String>, Located<T>)>);

impl<T> Entries<T> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Located<String>, Located<T>)> {
        self.0.iter()
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Written<T> {
            type Value = Entries<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Written(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Entries_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}

/// Stands where a protocol's own options stood, which only the protocol can read: the number
/// under which they wait.
pub(super) struct Slot(pub(super) usize);

impl<'de> Deserialize<'de> for Slot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = String::deserialize(deserializer)?;
        number.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Slot {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Options".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// Configuration of the Interlingua gateway.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Interlingua")]
pub(super) struct Document {
    /// How the gateway itself is reached.
    pub(super) server: Table<ServerTable>,
    /// Where runs and sessions are kept.
    pub(super) store: Table<StoreTable>,
    /// The agents behind the gateway, by name.
    pub(super) agents: Entries<Table<AgentTable>>,
    /// Where agents are mounted, and in which protocol they are served.
    pub(super) routes: Vec<Located<Table<RouteTable>>>,
}

/// How the gateway itself is reached.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTable {
    /// Address and port to listen on.
    pub(super) listen: Located<String>,
    /// The URL clients reach the gateway at, where a proxy stands in front of it.
    pub(super) public_url: Option<Located<String>>,
    /// Threads that serve requests; by default one for each core.
    #[schemars(range(min = 1, max = 1024))]
    pub(super) workers: Option<Located<u64>>,
    /// The largest body of a request.
    pub(super) max_body: Located<Size>,
    /// How long the gateway waits for a client.
    pub(super) timeouts: Table<ServerTimeoutsTable>,
    /// How much clients may use at once.
    pub(super) limits: Table<ServerLimitsTable>,
    /// How long runs may go on after the gateway was told to stop.
    pub(super) drain: Located<Period>,
    /// How long a stream may be silent before a comment is sent, which keeps the connection open
    /// and shows whether the client is still there.
    pub(super) heartbeat: Located<Period>,
    /// Addresses or networks of proxies whose word on a client's address is taken.
    pub(super) trusted_proxies: Vec<Located<String>>,
    /// Which headers trusted proxies write: X-Forwarded-For, -Proto, -Host, -Port and -Prefix, or Forwarded. The others
    /// are not looked at, since a client may have written them.
    pub(super) forwarded: Forwarded,
    /// The hosts that requests may name, with a port if only that one is meant. By default the host of public_url, or
    /// the address that is listened on; where that is every address of the machine, any address. This machine's own
    /// names, localhost and loopback addresses, always may be.
    pub(super) allowed_hosts: Option<Vec<Located<String>>>,
}

impl Default for ServerTable {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned().into(),
            public_url: None,
            workers: None,
            max_body: Size::mebibytes(8).into(),
            timeouts: Table::default(),
            limits: Table::default(),
            drain: Period::seconds(30).into(),
            heartbeat: Period::seconds(15).into(),
            trusted_proxies: Vec::new(),
            forwarded: Forwarded::XForwarded,
            allowed_hosts: None,
        }
    }
}

/// How long the gateway waits for a client, on every request of a connection.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerTimeoutsTable {
    /// For the whole head of a request, from its first byte.
    pub(super) head: Located<Period>,
    /// For the body of a request, and one second more for every 16 KiB of it. After 5 s it has to
    /// have come at 1 KiB a second.
    pub(super) body: Located<Period>,
    /// For a client that has room for none of its answer.
    pub(super) write: Located<Period>,
    /// For the next request of a connection.
    pub(super) idle: Located<Period>,
}

impl Default for ServerTimeoutsTable {
    fn default() -> Self {
        Self {
            head: Period::seconds(10).into(),
            body: Period::seconds(60).into(),
            write: Period::seconds(60).into(),
            idle: Period::seconds(75).into(),
        }
    }
}

/// How much clients may use at once.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerLimitsTable {
    /// Connections in total.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections: Located<u64>,
    /// Connections of one address; trusted proxies are exempt. By default 256, and as many as in
    /// total from the machine itself, where a proxy may stand.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) connections_per_address: Option<Located<u64>>,
    /// Bytes of request bodies that are held at the same time; also bytes of whole answers that
    /// clients have not taken yet.
    pub(super) bodies: Located<Size>,
    /// Levels of a JSON body.
    #[schemars(range(min = 8, max = 128))]
    pub(super) json_depth: Located<u64>,
    /// Values of a JSON body.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub(super) json_values: Located<u64>,
}

impl Default for ServerLimitsTable {
    fn default() -> Self {
        Self {
            connections: 20_000.into(),
            connections_per_address: None,
            bodies: Size::mebibytes(256).into(),
            json_depth: 128.into(),
            json_values: 100_000.into(),
        }
    }
}

/// Where runs and sessions are kept.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StoreTable {
    /// What keeps them: memory, which forgets when the process ends, or a SQLite file.
    pub(super) kind: Located<StoreKind>,
    /// The SQLite file, relative to the folder of this file.
    pub(super) path: Located<String>,
    /// How long finished runs are kept.
    pub(super) retention: Table<RetentionTable>,
}

impl Default for StoreTable {
    fn default() -> Self {
        Self {
            kind: StoreKind::Memory.into(),
            path: "data/interlingua.db".to_owned().into(),
            retention: Table::default(),
        }
    }
}

/// How long finished runs are kept: as long as all bounds allow.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionTable {
    /// The age after which a finished run is forgotten.
    pub(super) age: Located<Period>,
    /// How many runs are kept; beyond, the oldest finished ones of whoever has most are forgotten.
    #[schemars(range(min = 1))]
    pub(super) runs: Located<u64>,
    /// How many bytes are kept; beyond, the same.
    pub(super) bytes: Located<Size>,
}

impl Default for RetentionTable {
    fn default() -> Self {
        Self { age: Period::seconds(30 * 86_400).into(), runs: 100_000.into(), bytes: Size::mebibytes(20 << 10).into() }
    }
}

/// One agent behind the gateway.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AgentTable {
    /// What the agent is for; shown to clients.
    pub(super) description: Option<String>,
    /// The agent's version; shown to clients.
    pub(super) version: Option<String>,
    /// Who remembers what was said before: the upstream, by the session's id, or the gateway, which
    /// then sends the whole history each time.
    pub(super) history: History,
    /// How much history the gateway sends.
    pub(super) history_limit: Table<HistoryLimitTable>,
    /// What becomes of a turn while another one of the same session is under way.
    pub(super) parallel_turns: ParallelTurns,
    /// The label that tool calls of an unlabelled server get.
    pub(super) server_label: Option<String>,
    /// The largest run, in bytes of what the agent said; a larger one fails.
    pub(super) max_run_bytes: Located<Size>,
    /// How the agent is reached. Required.
    pub(super) upstream: Option<Located<Table<UpstreamTable>>>,
}

impl Default for AgentTable {
    fn default() -> Self {
        Self {
            description: None,
            version: None,
            history: History::Upstream,
            history_limit: Table::default(),
            parallel_turns: ParallelTurns::Queue,
            server_label: None,
            max_run_bytes: Size::mebibytes(64).into(),
            upstream: None,
        }
    }
}

/// How much history the gateway sends: as much as both bounds allow.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistoryLimitTable {
    /// At most so many turns, the latest ones.
    #[schemars(range(min = 1))]
    pub(super) turns: Located<u32>,
    /// At most so many bytes.
    pub(super) bytes: Located<Size>,
}

impl Default for HistoryLimitTable {
    fn default() -> Self {
        Self { turns: 50.into(), bytes: Size::mebibytes(1).into() }
    }
}

/// How an agent is reached.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamTable {
    /// The protocol the agent speaks. Required.
    pub(super) protocol: Option<Located<String>>,
    /// Where it is asked.
    pub(super) url: Option<Located<String>>,
    /// Headers sent along. Secrets by `{ env = "NAME" }` or `{ file = "path" }`.
    pub(super) headers: Entries<HeaderValue>,
    /// How long the gateway waits for what.
    pub(super) timeouts: Table<TimeoutsTable>,
    /// How often a request is sent again that surely was not worked on: no connection was made, or
    /// the upstream answered 503 before anything else.
    #[schemars(range(max = 10))]
    pub(super) retries: Located<u32>,
    /// The largest event accepted from the upstream.
    pub(super) max_event: Located<Size>,
    /// Whether requests for approval, and answers to them, are passed on as an extension of the
    /// native protocol.
    pub(super) approval_extension: bool,
    /// The protocol's own options.
    pub(super) options: Option<Slot>,
}

impl Default for UpstreamTable {
    fn default() -> Self {
        Self {
            protocol: None,
            url: None,
            headers: Entries::default(),
            timeouts: Table::default(),
            retries: 2.into(),
            max_event: Size::mebibytes(8).into(),
            approval_extension: false,
            options: None,
        }
    }
}

/// How long the gateway waits for an upstream.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TimeoutsTable {
    /// For a connection.
    pub(super) connect: Located<Period>,
    /// For the first byte of the answer, once the request is sent.
    pub(super) first_byte: Located<Period>,
    /// For the next bytes, once some have come.
    pub(super) idle: Located<Period>,
    /// For all of the answer.
    pub(super) total: Located<Period>,
}

impl Default for TimeoutsTable {
    fn default() -> Self {
        Self {
            connect: Period::seconds(5).into(),
            first_byte: Period::seconds(60).into(),
            idle: Period::seconds(120).into(),
            total: Period::seconds(3600).into(),
        }
    }
}

/// Mounts agents at a path, to be served in one protocol.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteTable {
    /// The protocol clients speak here. Required.
    pub(super) protocol: Option<Located<String>>,
    /// The path below which the protocol's endpoints lie; `{agent}` mounts one for each agent.
    /// Required.
    #[schemars(regex(pattern = r"^/(.*[^/])?$"))]
    pub(super) path: Option<Located<String>>,
    /// The agents that are served; by default every one.
    pub(super) agents: Option<Located<Vec<Located<String>>>>,
    /// How long a stream may be silent before a comment is sent; by default as the server says.
    pub(super) heartbeat: Option<Located<Period>>,
    /// Who may use the route. Required where the gateway listens beyond loopback.
    pub(super) auth: Option<RouteAuth>,
    /// What becomes of a run in the foreground when its client leaves.
    pub(super) on_disconnect: OnDisconnect,
    /// Whether sessions of this route are those of all other routes of the agent.
    pub(super) shared_sessions: bool,
    /// The origins of web pages that may use the route, such as "https://app.example.com", or "*" for all. By default
    /// none may.
    pub(super) cors: Option<Located<Vec<Located<String>>>>,
    /// The protocol's own options.
    pub(super) options: Option<Slot>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self {
            protocol: None,
            path: None,
            agents: None,
            heartbeat: None,
            auth: None,
            on_disconnect: OnDisconnect::Cancel,
            shared_sessions: true,
            cors: None,
            options: None,
        }
    }
}
