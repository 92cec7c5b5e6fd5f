//! Time and allocations to encode a delta for an A2A client, in each dialect, and to encode a complete task, as every
//! poll does.
//!
//! Only the encoder, with the texts of the native adapter's benchmark, so that one run of `cargo xtask bench` compares
//! the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_a2a::{A2a, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::model::MessageType;
use interlingua_core::{Out, Reply};
use interlingua_core_testkit::{self as testkit, DELTA_TEXTS, DeltaRun, TestRun};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn decoded(path: &str, version: &str, body: &str) -> Box<dyn Exchange> {
    let mounted = A2a::mount(&testkit::mount("/a2a", &["demo"]), Options::default()).expect("mounts");
    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == path).expect("an endpoint");
    let mut exchange = (endpoint.open)();

    let request = testkit::ClientRequest {
        headers: &[("a2a-version", version)],
        params: &[("id".into(), testkit::RUN.to_string())],
        body: body.as_bytes(),
        ..testkit::ClientRequest::new(endpoint.method.as_str(), path)
    };
    request.decode(&mut *exchange).expect("a request");
    exchange
}

const RPC_V1: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
const RPC_V03: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}"#;
const REST: &str = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;

fn deltas(bencher: Bencher<'_, '_>, text: &str, open: impl Fn() -> Box<dyn Exchange>) {
    let run = DeltaRun::new(MessageType::Message, text);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| {
            let mut exchange = open();
            let out = run.begin(&mut *exchange);
            (exchange, out)
        })
        .bench_local_refs(|(exchange, out)| {
            run.encode(&mut **exchange, out);
            divan::black_box(&out.body);
        });
}

#[divan::bench(args = DELTA_TEXTS)]
fn rpc(bencher: Bencher<'_, '_>, text: &str) {
    deltas(bencher, text, || decoded("", "1.0", RPC_V1));
}

#[divan::bench]
fn rpc_v03(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", || decoded("", "0.3", RPC_V03));
}

#[divan::bench]
fn rest(bencher: Bencher<'_, '_>) {
    deltas(bencher, " token", || decoded("/message:stream", "1.0", REST));
}

#[divan::bench]
fn task(bencher: Bencher<'_, '_>) {
    let record = DeltaRun::new(MessageType::Message, " token").ended();
    let shown = TestRun::new(&record).protocol("a2a");
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| (decoded("/tasks/{id}", "1.0", ""), Out::new()))
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("a task"));
}
