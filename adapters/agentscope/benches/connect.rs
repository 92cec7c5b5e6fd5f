//! What a text delta costs from an agent that speaks the protocol of AgentScope 2.0, beside the same texts from one of the Agent API.
//!
//! Not here: how it is measured (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_core::connector::UpstreamAdapter;
use interlingua_testing_agents::delta_cost;

fn main() {
    let options = UpstreamOptions { agent_id: "a".to_owned(), ..UpstreamOptions::default() };
    let connector = AgentscopeUpstream::connect("http://service", options).expect("a URL");
    delta_cost::bench("agentscope", &*connector);
}
