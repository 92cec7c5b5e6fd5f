//! The cost of a text delta from an agent that speaks Anthropic Messages, beside the cost of the same text from an
//! agent of the Agent API.
//!
//! Not here: the measurement (`testing/agents/src/delta_cost.rs`), and encoding for clients.

use interlingua_anthropic_messages::{AnthropicMessagesUpstream, UpstreamOptions};
use interlingua_core::connector::UpstreamAdapter;
use interlingua_testing_agents::delta_cost;

fn main() {
    let connector = AnthropicMessagesUpstream::connect("http://agent", UpstreamOptions::default()).expect("a URL");
    delta_cost::bench("anthropic-messages", &*connector);
}
