//! Cost of a delta to a Chat Completions client, in nanoseconds and allocations, and cost of a whole answer.
//!
//! Measures only the encoder, with the same texts as the native adapter's benchmark, so that one run of
//! `cargo xtask bench` compares the two.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_chat_completions::{ChatCompletions, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::model::MessageType;
use interlingua_core::{Out, Reply};
use interlingua_core_testkit::{self as testkit, DELTA_TEXTS, DeltaRun, TestRun};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
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
    let run = DeltaRun::new(kind, text);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| {
            let mut exchange = exchange(true);
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
    let record = DeltaRun::new(MessageType::Message, " token").ended();
    let shown = TestRun::new(&record);
    bencher
        .counter(ItemsCount::new(DeltaRun::DELTAS))
        .with_inputs(|| (exchange(false), Out::new()))
        .bench_local_refs(|(exchange, out)| exchange.reply(Reply::Run(shown.view()), out).expect("an answer"));
}
