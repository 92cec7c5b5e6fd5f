//! Cost of a delta to a Responses client, in nanoseconds and allocations, and cost of a complete object.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::model::MessageType;
use interlingua_core::{Out, Reply};
use interlingua_core_testkit::{self as testkit, DELTA_TEXTS, DeltaRun, TestRun};
use interlingua_responses::{Options, Responses};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn exchange(method: &str, body: &str) -> Box<dyn Exchange> {
    let mounted =
        Responses::mount(&testkit::mount("/v1", &["demo"]), Options::default()).expect("the options are valid");
    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == "/responses").expect("an endpoint");
    let mut exchange = (endpoint.open)();

    let request = testkit::ClientRequest { body: body.as_bytes(), ..testkit::ClientRequest::new(method, "/responses") };
    request.decode(&mut *exchange).expect("a request");
    exchange
}

fn deltas(bencher: Bencher<'_, '_>, text: &str, method: &str, body: &str) {
    let run = DeltaRun::new(MessageType::Message, text);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| {
            let mut exchange = exchange(method, body);
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
    deltas(bencher, text, "POST", r#"{"model":"demo","input":"hi","stream":true}"#);
}

#[divan::bench]
fn socket(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", "WEBSOCKET", r#"{"type":"response.create","model":"demo","input":"hi"}"#);
}

#[divan::bench]
fn object(bencher: Bencher<'_, '_>) {
    let record = DeltaRun::new(MessageType::Message, " token").ended();
    let shown = TestRun::new(&record);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| (exchange("POST", r#"{"model":"demo","input":"hi"}"#), Out::new()))
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("an object"));
}
