//! Cost of a delta to an AG-UI client, in nanoseconds and allocations, as an event stream and as protobuf.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_ag_ui::{AgUi, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::MessageStart;
use interlingua_core::testkit::{self, TestRun};
use interlingua_core::{Out, Record};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const DELTAS: u64 = 1000;
const INPUT: &[u8] =
    br#"{"threadId":"t","runId":"r","protocolVersion":"1.0","messages":[{"id":"u","role":"user","content":"hi"}]}"#;

fn main() {
    divan::main();
}

/// A run with [`DELTAS`] deltas after a first one, which begins the message.
fn record(text: &str) -> Record {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for _ in 0..=DELTAS {
        record.push(message, content, text);
    }
    record
}

fn exchange(accept: &str) -> Box<dyn Exchange> {
    let mounted = AgUi::mount(&testkit::mount("/ag-ui", &["demo"]), Options::default()).expect("the options are valid");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", "").expect("an endpoint");
    let mut exchange = (endpoint.open)();

    let headers = &[("content-type", "application/json"), ("accept", accept)];
    let request = testkit::ClientRequest { headers, ..testkit::ClientRequest::post("", INPUT) };
    request.decode(&mut *exchange).expect("a request");
    exchange
}

fn deltas(bencher: Bencher<'_, '_>, text: &str, accept: &str) {
    let record = record(text);
    let first = record.len() - DELTAS;
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            let mut out = Out::new();
            let mut exchange = exchange(accept);
            exchange.begin(TestRun::new(&record).view(), &mut out);
            for sequence in 0..first {
                exchange.encode(record.step(sequence).expect("the step exists"), &mut out);
            }

            out.body.clear();
            out.body.reserve(1 << 20);
            (exchange, out)
        })
        .bench_local_refs(|(exchange, out)| {
            for sequence in first..record.len() {
                exchange.encode(record.step(sequence).expect("the step exists"), out);
            }
            divan::black_box(&out.body);
        });
}

#[divan::bench(args = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""])]
fn stream(bencher: Bencher<'_, '_>, text: &str) {
    deltas(bencher, text, "text/event-stream");
}

#[divan::bench]
fn protobuf(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", "application/vnd.ag-ui.event+proto");
}
