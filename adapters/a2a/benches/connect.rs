//! The cost of a text delta from an agent that speaks A2A, beside the cost of the same text from an agent of the Agent
//! API.
//!
//! Not here: the measurement (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_a2a::{A2aUpstream, UpstreamOptions};
use interlingua_core::connector::UpstreamAdapter;
use interlingua_testing_agents::delta_cost;

fn main() {
    let options = r#"{"binding":"JSONRPC","version":"1.0"}"#;
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    let connector = A2aUpstream::connect("http://agent/", options).expect("a URL");
    delta_cost::bench("a2a", &*connector);
}
