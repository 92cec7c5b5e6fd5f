//! The cost of a text delta from an agent that speaks the Agent API.
//!
//! Not here: the measurement (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_core::connector::UpstreamAdapter;
use interlingua_native::{NativeUpstream, UpstreamOptions};
use interlingua_testing_agents::delta_cost;

fn main() {
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    delta_cost::bench("agent-api", &*connector);
}
