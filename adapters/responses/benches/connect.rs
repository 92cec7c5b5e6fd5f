//! The cost of a text delta from an agent that speaks Responses, beside the cost of the same text from an agent of the
//! Agent API.
//!
//! Not here: the measurement (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_core::connector::UpstreamAdapter;
use interlingua_responses::{ResponsesUpstream, UpstreamOptions};
use interlingua_testing_agents::delta_cost;

fn main() {
    let connector = ResponsesUpstream::connect("http://agent/v1", UpstreamOptions::default()).expect("a URL");
    delta_cost::bench("responses", &*connector);
}
