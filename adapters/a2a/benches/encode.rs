//! Time and allocations to encode a delta for an A2A client, in each dialect, and to encode a complete task, as every
//! poll does.
//!
//! Only the encoder, with the texts of the native adapter's benchmark, so that one run of `cargo xtask bench` compares
//! the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_a2a::{A2a, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::json::Extra;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{MessageEnd, MessageStart};
use interlingua_core::testkit::{self, TestRun};
use interlingua_core::{End, Out, Record, Reply};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const DELTAS: u64 = 1000;

fn main() {
    divan::main();
}

/// A run with `DELTAS` deltas after the first one, which starts the artifact.
fn record_of(text: &str) -> Record {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);

    for _ in 0..=DELTAS {
        record.push(message, content, text);
    }
    record
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
    let record = record_of(text);
    let first = record.len() - DELTAS;

    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            let mut out = Out::new();
            let mut exchange = open();
            exchange.begin(TestRun::new(&record).view(), &mut out);
            for sequence in 0..first {
                exchange.encode(record.step(sequence).expect("a recorded step"), &mut out);
            }
            out.body.clear();
            out.body.reserve(1 << 20);
            (exchange, out)
        })
        .bench_local_refs(|(exchange, out)| {
            for sequence in first..record.len() {
                exchange.encode(record.step(sequence).expect("a recorded step"), out);
            }
            divan::black_box(&out.body);
        });
}

#[divan::bench(args = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""])]
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
    let mut record = record_of(" token");
    record.finish_content(0, 0, None, Extra::new());
    record.finish_message(0, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);
    let shown = TestRun::new(&record).protocol("a2a");
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| (decoded("/tasks/{id}", "1.0", ""), Out::new()))
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("a task"));
}
