//! The registry of shipped protocols for all rigs: tests of the running gateway, error tests, counts of allocations,
//! benchmarks, faults and fuzzing iterate [`PROTOCOLS`]. `cargo xtask new-protocol` adds a row.
//!
//! A row has what only rigs need. What an adapter declares itself, such as its endpoints and its sample request, is
//! read from the adapter ([`Serves::mounted`]). Not here: scripted clients and agents (`testing/clients`,
//! `testing/agents`), and the drivers of the tests of the running gateway (`testing/support`).

mod routes;
mod rows;

use interlingua_core::ProtocolAdapter;
use interlingua_core::call::AgentCard;
use interlingua_core::connector::{Connector, UpstreamAdapter};
use interlingua_core::exchange::{Mount, Mounted};
use interlingua_core::sample::{SampleInput, SampleRequest};
use interlingua_core::{Method, RunId};
use serde::de::DeserializeOwned;

pub use routes::{MOUNTS, ROUTES};
pub use rows::PROTOCOLS;

/// A protocol that ships with the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The name in `gateway.toml`.
    pub name: &'static str,
    /// False: the adapter is a skeleton. Rigs leave it out; the gateway of a developer serves it.
    pub is_finished: bool,
    /// `None`: it has no clients.
    pub serves: Option<Serves>,
    /// `None`: it has no agents.
    pub connects: Option<Connects>,
}

/// The half of a protocol that serves clients.
#[derive(Clone, Copy, Debug)]
pub struct Serves {
    /// The path of its route in all rigs, and in the shipped `gateway.toml`.
    pub path: &'static str,
    /// Mounts it with options in the syntax of an inline table, without its braces.
    pub mount: fn(&Mount, &str) -> Result<Mounted, String>,
    /// The ways in which a client gets a stream of deltas, for benchmarks and counts of allocations.
    pub streams: &'static [StreamForm],
}

/// Makes a connector for a URL, with options in the syntax of an inline table, without its braces.
pub type Connect = fn(&str, &str) -> Result<Box<dyn Connector>, String>;

/// The half of a protocol that calls agents.
#[derive(Clone, Copy, Debug)]
pub struct Connects {
    /// The path of an agent's URL on its server.
    pub path: &'static str,
    /// The least options with which an agent is called without looking anything up, in the syntax of an inline table,
    /// without its braces.
    pub options: &'static str,
    /// Further options that change how answers are read, for fuzzing. Each is tried beside `options`.
    pub variants: &'static [&'static str],
    /// Makes a connector for a URL, with such options.
    pub connect: Connect,
    /// The event by which an agent reports an error. `None`: its answers have no events.
    pub error: Option<ErrorEvent>,
}

/// An event that reports an error, as agents of a protocol write it.
#[derive(Clone, Copy, Debug)]
pub struct ErrorEvent {
    /// The name of the event in an event stream. `None`: events have no names.
    pub name: Option<&'static str>,
    /// JSON, in which `$WORD` stands for the code, `$MESSAGE` for the text, `$TYPE` and `$CODE` for the fields of
    /// OpenAI's errors, and `$ID` for the id of a JSON-RPC request. Each of them becomes a JSON value.
    pub data: &'static str,
    /// True: the event has a code, which decides the class of the error.
    pub has_code: bool,
}

/// A way in which a client gets a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamForm {
    /// The difference from other streams of the protocol. Empty: the usual stream.
    pub name: &'static str,
    /// The kinds of content that have deltas. Other kinds are sent whole, or not at all.
    pub deltas_of: &'static [DeltaKind],
    /// Options of the route.
    pub options: &'static str,
    /// The endpoint below the path of the route.
    pub endpoint: &'static str,
    /// Headers beside `content-type: application/json`.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: &'static str,
    /// True: the body is a message of a WebSocket.
    pub is_websocket: bool,
    /// True: deltas are gathered for a time, and written as one frame.
    pub gathers: bool,
}

/// A kind of content that may be sent in deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaKind {
    /// The answer.
    Text,
    /// Reasoning.
    Reasoning,
    /// Arguments of a call.
    Arguments,
}

impl Serves {
    /// The row of an adapter.
    const fn with<P: ProtocolAdapter>(path: &'static str, streams: &'static [StreamForm]) -> Self {
        fn mount<P: ProtocolAdapter>(mount: &Mount, options: &str) -> Result<Mounted, String> {
            P::mount(mount, read_options(options)?)
        }
        Self { path, mount: mount::<P>, streams }
    }

    /// The path of the route for an agent.
    #[must_use]
    pub fn path_of(&self, agent: &str) -> String {
        self.path.replace("{agent}", agent)
    }

    /// The mounted protocol for this agent, with default options.
    ///
    /// # Panics
    /// If it refuses them.
    #[must_use]
    pub fn mounted(&self, agent: AgentCard) -> Mounted {
        let path = self.path_of(&agent.name);
        let mount = Mount { path, agents: vec![agent.into()], public_url: None, schemes: Vec::new() };
        (self.mount)(&mount, "").expect("the default options are valid")
    }

    /// The sample request of the console to this agent, if the adapter has one.
    #[must_use]
    pub fn sample(&self, agent: &str, text: &str) -> Option<SampleRequest> {
        let mounted = self.mounted(AgentCard { name: agent.to_owned(), ..AgentCard::default() });
        let input = SampleInput { agent, text, id: RunId(uuid::Uuid::nil()), began: None, thread: None };
        Some(mounted.console.sample?(&input))
    }
}

impl Connects {
    /// The row of an adapter.
    const fn with<U: UpstreamAdapter>(path: &'static str, options: &'static str, error: Option<ErrorEvent>) -> Self {
        fn connect<U: UpstreamAdapter>(url: &str, options: &str) -> Result<Box<dyn Connector>, String> {
            U::connect(url, read_options(options)?)
        }
        Self { path, options, variants: &[], connect: connect::<U>, error }
    }

    /// The same with further options for fuzzing.
    const fn and_fuzzed_with(self, variants: &'static [&'static str]) -> Self {
        Self { variants, ..self }
    }
}

impl StreamForm {
    /// The method of the endpoint.
    #[must_use]
    pub const fn method(&self) -> Method {
        if self.is_websocket { Method::Get } else { Method::Post }
    }
}

/// The row of a protocol.
#[must_use]
pub fn find(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|protocol| protocol.name == name)
}

/// The finished protocols that serve clients.
pub fn served() -> impl Iterator<Item = (&'static Protocol, Serves)> {
    finished().filter_map(|protocol| Some((protocol, protocol.serves?)))
}

/// The finished protocols that call agents.
pub fn connected() -> impl Iterator<Item = (&'static Protocol, Connects)> {
    finished().filter_map(|protocol| Some((protocol, protocol.connects?)))
}

fn finished() -> impl Iterator<Item = &'static Protocol> {
    PROTOCOLS.iter().filter(|protocol| protocol.is_finished)
}

/// Reads options as the configuration does. The error names the wrong one.
fn read_options<O: DeserializeOwned>(options: &str) -> Result<O, String> {
    #[derive(serde::Deserialize)]
    struct Table<O> {
        options: O,
    }
    let table: Table<O> = toml::from_str(&format!("options = {{ {options} }}")).map_err(|error| error.to_string())?;
    Ok(table.options)
}
