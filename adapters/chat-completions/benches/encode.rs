//! Cost of a delta to a Chat Completions client, in nanoseconds and allocations, and cost of a whole answer.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_chat_completions::{ChatCompletions, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::json::Extra;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart};
use interlingua_core::testkit::{self, TestRun};
use interlingua_core::{End, Out, Record, Reply};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const DELTAS: u64 = 1000;

fn main() {
    divan::main();
}

/// A run with [`DELTAS`] deltas after a first one: of a text, or of the arguments of a call.
fn record(kind: MessageType, text: &str) -> Record {
    let mut record = testkit::started();
    let is_call = kind == MessageType::FunctionCall;
    let message = record.start_message(MessageStart::new("", kind, Role::Assistant));
    let head = CallHead { call_id: "call_1".to_owned(), name: "f".to_owned(), server_label: None };
    let content = if is_call { ContentType::Data } else { ContentType::Text };
    let content = record.start_content(message, content, is_call.then_some(head));
    for _ in 0..=DELTAS {
        record.push(message, content, text);
    }
    record
}

fn exchange(stream: bool) -> Box<dyn Exchange> {
    let options = Options::default();
    let mounted = ChatCompletions::mount(&testkit::mount("/v1", &["demo"]), options).expect("the options are valid");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", "/chat/completions").expect("an endpoint");
    let mut exchange = (endpoint.open)();
    let body = format!(
        r#"{{"model":"demo","messages":[{{"role":"user","content":"hi"}}],"stream":{stream},
            "tools":[{{"type":"function","function":{{"name":"f"}}}}]}}"#
    );
    testkit::ClientRequest::post("/chat/completions", body.as_bytes()).decode(&mut *exchange).expect("a request");
    exchange
}

fn deltas(bencher: Bencher<'_, '_>, kind: MessageType, text: &str) {
    let record = record(kind, text);
    let first = record.len() - DELTAS;
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| {
            let mut out = Out::new();
            let mut exchange = exchange(true);
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
    deltas(bencher, MessageType::Message, text);
}

#[divan::bench]
fn reasoning(bencher: Bencher<'_, '_>) {
    deltas(bencher, MessageType::Reasoning, " token");
}

#[divan::bench]
fn arguments(bencher: Bencher<'_, '_>) {
    deltas(bencher, MessageType::FunctionCall, " token");
}

#[divan::bench]
fn whole(bencher: Bencher<'_, '_>) {
    let mut record = record(MessageType::Message, " token");
    record.finish_content(0, 0, None, Extra::new());
    record.finish_message(0, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);
    let shown = TestRun::new(&record);
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| (exchange(false), Out::new()))
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("an answer"));
}
