//! No connector allocates for a text delta: once a stream flows, reading more of it costs no heap memory but that of the
//! record, which grows by doubling. Not here: what is written for clients (`encoders`).

use allocation_counter::measure;
use interlingua_a2a::A2aUpstream;
use interlingua_ag_kit::AgKitUpstream;
use interlingua_ag_ui::AgUiUpstream;
use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_anthropic_messages::AnthropicMessagesUpstream;
use interlingua_chat_completions::ChatCompletionsUpstream;
use interlingua_core::Fault;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{Connector, EventSink, UpstreamAdapter};
use interlingua_core::sse::Decoder;
use interlingua_core::testkit::Recorder;
use interlingua_native::NativeUpstream;
use interlingua_responses::ResponsesUpstream;
use interlingua_testing_agents::delta_cost::{TEXTS, listening, read};
use interlingua_testing_agents::deltas::{deltas, protocols};

use crate::{DELTAS, FIRST};

/// The most allocations of a record for so many deltas: it keeps them in blocks, and its text doubles.
const MAX_OF_RECORD: u64 = 64;
/// The maximum size of a frame, in bytes.
const MAX_FRAME: usize = 1 << 20;

/// The connector of each protocol whose answers come in deltas. An agent behind the human-in-the-loop service answers with
/// whole messages.
fn connectors() -> Vec<(&'static str, Box<dyn Connector>)> {
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

/// Counts texts and keeps nothing.
#[derive(Default)]
struct Counted(usize);

impl EventSink for Counted {
    fn emit(&mut self, _: &AgentEvent<'_>) -> Result<(), Fault> {
        self.0 += 1;
        Ok(())
    }
}

/// Allocations while this connector reads deltas of this text, after the first ones.
fn allocations(protocol: &str, connector: &dyn Connector, text: &str, sink: &mut dyn EventSink) -> u64 {
    let deltas = deltas(protocol, text).expect("its answers come in deltas");
    let first = deltas.stream(FIRST);
    let more: String = (FIRST..FIRST + DELTAS).map(|number| deltas.delta(1, number)).collect();

    let mut turn = listening(connector, deltas.earlier());
    let mut decoder = Decoder::new(MAX_FRAME);
    read(&mut *turn, &mut decoder, &first, sink);
    measure(|| read(&mut *turn, &mut decoder, more.as_bytes(), sink)).count_total
}

#[test]
fn every_protocol_with_deltas_is_tried() {
    let tried: Vec<&str> = connectors().iter().map(|(protocol, _)| *protocol).collect();
    assert_eq!(tried, protocols().collect::<Vec<_>>());
}

#[test]
fn no_reader_allocates_for_a_text_delta() {
    let mut seen = Vec::new();
    for (protocol, connector) in connectors() {
        for text in TEXTS {
            let mut sink = Counted::default();
            let count = allocations(protocol, &*connector, text, &mut sink);
            assert!(sink.0 >= FIRST + DELTAS, "{protocol} has read {} events", sink.0);
            if count > 0 {
                seen.push(format!("{protocol}, {text:?}: {count} for {DELTAS} deltas"));
            }
        }
    }
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn a_record_of_text_deltas_grows_by_doubling() {
    let mut seen = Vec::new();
    for (protocol, connector) in connectors() {
        for text in TEXTS {
            let mut sink = Recorder::new(Vec::new());
            let count = allocations(protocol, &*connector, text, &mut sink);
            if count > MAX_OF_RECORD {
                seen.push(format!("{protocol}, {text:?}: {count} for {DELTAS} deltas"));
            }
        }
    }
    assert!(seen.is_empty(), "{seen:#?}");
}
