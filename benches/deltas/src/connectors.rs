//! The connectors whose agents answer in deltas.

use interlingua_a2a::A2aUpstream;
use interlingua_ag_kit::AgKitUpstream;
use interlingua_ag_ui::AgUiUpstream;
use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_anthropic_messages::AnthropicMessagesUpstream;
use interlingua_chat_completions::ChatCompletionsUpstream;
use interlingua_core::connector::{AgentTurn, Connector, EventSink, UpstreamAdapter};
use interlingua_core::sse::Decoder;
use interlingua_native::NativeUpstream;
use interlingua_responses::ResponsesUpstream;
use interlingua_testing_agents::delta_cost::{listening, read};
use interlingua_testing_agents::deltas::deltas;

/// The maximum size of a frame, in bytes.
const MAX_FRAME: usize = 1 << 20;

/// The connector of each protocol whose answers arrive in deltas. Agents behind the human-in-the-loop service answer with
/// whole messages.
///
/// # Panics
/// If a connector refuses its options.
#[must_use]
pub fn all() -> Vec<(&'static str, Box<dyn Connector>)> {
    fn connected<A: UpstreamAdapter>(options: A::Options) -> Box<dyn Connector> {
        A::connect("http://agent/", options).expect("a connector")
    }

    let a2a = serde_json::from_str(r#"{"binding":"JSONRPC","version":"1.0"}"#).expect("options");
    let agentscope = UpstreamOptions { agent_id: "a".to_owned(), ..UpstreamOptions::default() };
    vec![
        ("agent-api", connected::<NativeUpstream>(Default::default())),
        ("a2a", connected::<A2aUpstream>(a2a)),
        ("ag-kit", connected::<AgKitUpstream>(Default::default())),
        ("ag-ui", connected::<AgUiUpstream>(Default::default())),
        ("agentscope", connected::<AgentscopeUpstream>(agentscope)),
        ("anthropic-messages", connected::<AnthropicMessagesUpstream>(Default::default())),
        ("chat-completions", connected::<ChatCompletionsUpstream>(Default::default())),
        ("responses", connected::<ResponsesUpstream>(Default::default())),
    ]
}

/// A stream that a connector has begun to read, and the deltas that follow.
pub struct Reading {
    turn: Box<dyn AgentTurn>,
    decoder: Decoder,
    rest: Vec<u8>,
}

impl Reading {
    /// Reads the first deltas of a text. `count`: the deltas that follow.
    ///
    /// # Panics
    /// If the protocol has no deltas, or the connector does not understand a frame.
    pub fn begin(
        protocol: &str,
        connector: &dyn Connector,
        text: &str,
        [first, count]: [usize; 2],
        sink: &mut dyn EventSink,
    ) -> Self {
        let deltas = deltas(protocol, text).expect("its answers come in deltas");
        let begin = deltas.stream(first);
        let rest: String = (first..first + count).map(|number| deltas.delta(1, number)).collect();

        let mut turn = listening(connector, deltas.earlier());
        let mut decoder = Decoder::new(MAX_FRAME);
        read(&mut *turn, &mut decoder, &begin, sink);
        Self { turn, decoder, rest: rest.into_bytes() }
    }

    /// Reads the deltas that follow.
    pub fn read_on(&mut self, sink: &mut dyn EventSink) {
        read(&mut *self.turn, &mut self.decoder, &self.rest, sink);
    }
}
