//! The cost of a text delta from an agent of AgentScope 2.0, beside the cost of the same text from an agent of the
//! Agent API.
//!
//! Not here: the measurement (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_core::connector::UpstreamAdapter;
use interlingua_testing_agents::delta_cost;

fn main() {
    let options = UpstreamOptions { agent_id: "a".to_owned(), ..UpstreamOptions::default() };
    let connector = AgentscopeUpstream::connect("http://service", options).expect("a URL");
    delta_cost::bench("agentscope", &*connector);
}
