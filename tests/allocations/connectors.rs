//! No connector allocates for a text delta: once a stream is open, further reads cost no heap memory except that of the
//! record, which grows by doubling. Not here: output for clients (`encoders`).

use std::collections::BTreeSet;

use allocation_counter::measure;
use delta_rig::connectors::{self, Reading};
use interlingua_core::Fault;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{Connector, EventSink};
use interlingua_core_testkit::Recorder;
use interlingua_testing_agents::delta_cost::TEXTS;
use interlingua_testing_agents::deltas::protocols;

use crate::{DELTAS, FIRST};

/// Maximum allocations of a record for this number of deltas: it keeps them in blocks, and its text doubles.
const MAX_OF_RECORD: u64 = 64;

/// Counts texts and keeps nothing.
#[derive(Default)]
struct CountingSink(usize);

impl EventSink for CountingSink {
    fn emit(&mut self, _: &AgentEvent<'_>) -> Result<(), Fault> {
        self.0 += 1;
        Ok(())
    }
}

/// Allocations while this connector reads deltas of this text, after the first ones.
fn allocations(protocol: &str, connector: &dyn Connector, text: &str, sink: &mut dyn EventSink) -> u64 {
    let mut reading = Reading::begin(protocol, connector, text, [FIRST, DELTAS], sink);
    measure(|| reading.read_on(sink)).count_total
}

#[test]
fn every_protocol_with_deltas_is_tried() {
    let tried: BTreeSet<&str> = connectors::all().iter().map(|(protocol, _)| *protocol).collect();
    assert_eq!(tried, protocols().collect());
}

#[test]
fn no_reader_allocates_for_a_text_delta() {
    let mut seen = Vec::new();
    for (protocol, connector) in connectors::all() {
        for text in TEXTS {
            let mut sink = CountingSink::default();
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
    for (protocol, connector) in connectors::all() {
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
