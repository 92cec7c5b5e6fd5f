//! The connectors whose agents answer in deltas.

use interlingua_core::connector::{AgentTurn, Connector, EventSink};
use interlingua_core::sse::Decoder;
use interlingua_testing_agents::delta_cost::{listening, read};
use interlingua_testing_agents::deltas::deltas;
use interlingua_testing_protocols::connected;

/// The maximum size of a frame, in bytes.
const MAX_FRAME: usize = 1 << 20;

/// The connector of each protocol whose agents answer in deltas.
///
/// # Panics
/// If a connector refuses its options.
#[must_use]
pub fn all() -> Vec<(&'static str, Box<dyn Connector>)> {
    let in_deltas = connected().filter(|(protocol, _)| deltas(protocol.name, "").is_some());
    let made = in_deltas.map(|(protocol, connects)| {
        let connector = (connects.connect)(&format!("http://agent{}", connects.path), connects.options);
        (protocol.name, connector.expect("a connector"))
    });
    made.collect()
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
