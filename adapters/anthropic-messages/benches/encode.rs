//! Cost of a delta to a client, in nanoseconds and allocations, and cost of a whole message.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_anthropic_messages::{AnthropicMessages, Options};
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

/// A run with [`DELTAS`] deltas after a first one, which opens the block.
fn record(text: &str) -> Record {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for _ in 0..=DELTAS {
        record.push(message, content, text);
    }
    record
}

fn exchange(body: &str) -> Box<dyn Exchange> {
    let mounted = AnthropicMessages::mount(&testkit::mount("/anthropic", &["demo"]), Options::default())
        .expect("the options are valid");
    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == "/v1/messages").expect("an endpoint");
    let mut exchange = (endpoint.open)();

    let request =
        testkit::ClientRequest { body: body.as_bytes(), ..testkit::ClientRequest::new("POST", "/v1/messages") };
    request.decode(&mut *exchange).expect("a request");
    exchange
}

fn deltas(bencher: Bencher<'_, '_>, text: &str, body: &str) {
    let record = record(text);
    let first = record.len() - DELTAS;
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            let mut out = Out::new();
            let mut exchange = exchange(body);
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
    deltas(
        bencher,
        text,
        r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}"#,
    );
}

#[divan::bench]
fn whole(bencher: Bencher<'_, '_>) {
    let mut record = record(" token");
    record.finish_content(0, 0, None, Extra::new());
    record.finish_message(0, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);
    let shown = TestRun::new(&record);
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            (exchange(r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#), Out::new())
        })
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("a message"));
}
