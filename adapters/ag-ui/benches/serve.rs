//! Cost of a delta to an AG-UI client, in nanoseconds and allocations, as an event stream and as protobuf.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_ag_ui::{AgUi, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::model::MessageType;
use interlingua_core_testkit::{self as testkit, DELTA_TEXTS, DeltaRun};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const INPUT: &[u8] =
    br#"{"threadId":"t","runId":"r","protocolVersion":"1.0","messages":[{"id":"u","role":"user","content":"hi"}]}"#;

fn main() {
    divan::main();
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
    let run = DeltaRun::new(MessageType::Message, text);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| {
            let mut exchange = exchange(accept);
            let out = run.begin(&mut *exchange);
            (exchange, out)
        })
        .bench_local_refs(|(exchange, out)| {
            run.encode(&mut **exchange, out);
            divan::black_box(&out.body);
        });
}

#[divan::bench(args = DELTA_TEXTS)]
fn stream(bencher: Bencher<'_, '_>, text: &str) {
    deltas(bencher, text, "text/event-stream");
}

#[divan::bench]
fn protobuf(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", "application/vnd.ag-ui.event+proto");
}
