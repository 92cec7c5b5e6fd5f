//! The cost of a delta in the encoder of the Agent API: nanoseconds and allocations.
//!
//! Not here: reading and normalizing, which core measures, and the path through a socket, which `cargo xtask bench`
//! measures.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_core::exchange::Exchange;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{MessageStart, Record, Run};
use interlingua_core::{Out, ProtocolAdapter, RunId};
use interlingua_core_testkit as testkit;
use interlingua_native::{Native, Options};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const DELTAS: u64 = 1000;

fn main() {
    divan::main();
}

/// A record with [`DELTAS`] deltas of this text.
fn recorded(text: &str) -> Record {
    let mut record = Record::new(Run::new(RunId(uuid::Uuid::from_u128(7)), "demo", "session-1", 0));
    record.start_turn(Vec::new());

    let id = "msg_3f30a8e6-a67d-4cfa-bcd0-29da63b9711b";
    let message = record.start_message(MessageStart::new(id, MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for _ in 0..DELTAS {
        record.push(message, content, text);
    }

    record
}

/// An exchange that has encoded all steps before the first delta, and the sequence number of that delta.
fn opened(record: &Record, path: &str, out: &mut Out) -> (Box<dyn Exchange>, u64) {
    let mounted = Native::mount(&testkit::mount("", &["demo"]), Options::default()).expect("valid options");

    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == path).expect("an endpoint");
    let mut exchange = (endpoint.open)();
    let request = testkit::ClientRequest {
        headers: &[("content-type", "application/json")],
        params: &[("id".into(), record.run().id.to_string())],
        body: br#"{"input":[]}"#,
        new_id: record.run().id,
        ..testkit::ClientRequest::new(endpoint.method.as_str(), path)
    };
    request.decode(&mut *exchange).expect("a request");

    let first = record.len() - DELTAS;
    for sequence in 0..first {
        exchange.encode(record.step(sequence).expect("a step of the record"), out);
    }
    (exchange, first)
}

fn deltas(bencher: Bencher<'_, '_>, text: &str, path: &str) {
    let record = recorded(text);
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            let mut out = Out::new();
            let (exchange, first) = opened(&record, path, &mut out);
            out.body.clear();
            out.body.reserve(1 << 20);
            (exchange, first, out)
        })
        .bench_local_refs(|(exchange, first, out)| {
            for sequence in *first..record.len() {
                exchange.encode(record.step(sequence).expect("a step of the record"), out);
            }
            divan::black_box(&out.body);
        });
}

#[divan::bench(args = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""])]
fn process(bencher: Bencher<'_, '_>, text: &str) {
    deltas(bencher, text, "/process");
}

#[divan::bench]
fn resumed(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", "/runs/{id}/events");
}
