//! What a text delta costs from an agent that speaks the Agent API, beside the same texts from one of the Agent API.
//!
//! Not here: how it is measured (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_core::connector::UpstreamAdapter;
use interlingua_native::{NativeUpstream, UpstreamOptions};
use interlingua_testing_agents::delta_cost;

fn main() {
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    delta_cost::bench("agent-api", &*connector);
}
