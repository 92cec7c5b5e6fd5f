//! No exchange allocates for a delta that it writes for its client, of a text, of reasoning or of a call's arguments. One
//! that gathers deltas allocates for the frames in which it writes them, which are few. Not here: reading answers of
//! agents (`connectors`).

use std::collections::BTreeSet;

use allocation_counter::measure;
use delta_rig::encoders::{self, Kind, StreamedRequest, TAKEN, record};
use interlingua::Gateway;
use interlingua_core::Record;
use interlingua_testing_agents::delta_cost::TEXTS;

use crate::{DELTAS, FIRST};

/// The number of deltas for which an exchange that gathers them may allocate once.
const GATHERED: u64 = 50;

/// Allocations for the last deltas of a record, and the bytes they are written as.
fn allocations(stream: &StreamedRequest, record: &Record) -> (u64, usize) {
    let (mut writing, mut written) = (stream.begin(record, DELTAS as u64), 0);
    let count = measure(|| written = writing.write_on());
    (count.count_total, written)
}

#[test]
fn every_protocol_that_streams_is_tried() {
    let all = Gateway::builtin().client_capabilities();
    let streaming: BTreeSet<&str> = all.iter().filter(|(_, can)| can.streaming).map(|(name, _)| *name).collect();
    assert_eq!(encoders::all().iter().map(|stream| stream.protocol).collect::<BTreeSet<_>>(), streaming);
}

#[test]
fn no_writer_allocates_for_a_delta() {
    let mut seen = Vec::new();
    for stream in encoders::all() {
        for (kind, text) in
            [Kind::Text, Kind::Reasoning, Kind::Arguments].map(|kind| TEXTS.map(|text| (kind, text))).concat()
        {
            let (count, written) = allocations(&stream, &record(kind, text, FIRST + DELTAS));
            let what = format!("{} {}, {kind:?}, {text:?}", stream.protocol, stream.form.name);
            // All of it, or nothing; the connection has not yet taken the last of it.
            let least = if stream.form.deltas_of.contains(&kind) { (DELTAS - TAKEN) * text.len() } else { 0 };
            if stream.form.gathers {
                assert!(written == 0 || least > 0, "{what}: {written} bytes");
            } else {
                assert!(written >= least && (written > 0) == (least > 0), "{what}: {written} bytes");
            }
            let most = if stream.form.gathers && least > 0 { DELTAS as u64 / GATHERED } else { 0 };
            if count > most {
                seen.push(format!("{what}: {count} for {DELTAS} deltas"));
            }
        }
    }
    assert!(seen.is_empty(), "{seen:#?}");
}
