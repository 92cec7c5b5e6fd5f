//! Facts about the registered protocols for agents, for the command line.
//!
//! Not here: their connectors, and the settings of agents ([`super::upstreams`]).

use interlingua_core::server_signs::ServerSigns;

use super::Gateway;

impl Gateway {
    /// The JSON Schema of the options of a protocol for agents.
    pub(crate) fn upstream_options(&self, protocol: &str) -> Option<serde_json::Value> {
        self.upstreams.iter().find(|entry| entry.name == protocol)?.declared.options_schema().cloned()
    }

    /// The names of the protocols for agents that are reached over the network.
    pub(crate) fn upstream_names(&self) -> Vec<&'static str> {
        self.upstreams.iter().map(|entry| entry.name).collect()
    }

    /// The signs of servers of each protocol for agents, in the order of registration.
    pub(crate) fn server_signs(&self) -> Vec<(&'static str, ServerSigns)> {
        self.upstreams.iter().map(|entry| (entry.name, entry.signs)).collect()
    }
}
