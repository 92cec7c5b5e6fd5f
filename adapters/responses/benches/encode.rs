//! What telling a run costs: a long answer, delta by delta, as a stream, over a WebSocket, and as one object.
//!
//! The ratio to the native protocol is measured where both are known, in the gateway's own benchmarks.

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use interlingua_core::call::{AgentCard, RunView};
use interlingua_core::exchange::{Caller, Exchange, Mount, Mounted, ProtocolAdapter};
use interlingua_core::json::Extra;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{Announced, MessageEnd};
use interlingua_core::testkit::{self, Shown};
use interlingua_core::{End, Out, Record, Request};
use interlingua_responses::{Options, Responses};

/// Deltas of an answer.
const DELTAS: u32 = 10_000;

fn main() {
    divan::main();
}

/// An answer of many small pieces.
fn record() -> Record {
    let mut record = testkit::begun();
    let message = record.start_message(Announced::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for _ in 0..DELTAS {
        record.push(message, content, "a few words, ");
    }
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    record
}

fn mounted() -> Mounted {
    let agents = vec![Arc::new(AgentCard { name: "demo".into(), ..AgentCard::default() })];
    let mount = Mount { path: "/v1".into(), agents, public_url: None };
    Responses::mount(&mount, Options::default()).expect("it can be mounted")
}

fn asked(mounted: &Mounted, method: &str, body: &str) -> Box<dyn Exchange> {
    let endpoint = mounted.endpoints.iter().find(|endpoint| endpoint.path == "/responses").expect("it is mounted");
    let mut exchange = (endpoint.open)();
    let caller = Caller { owner: "anonymous".into(), authenticated: false };
    let request = Request {
        method,
        path: "/responses",
        params: &[],
        query: "",
        headers: &[],
        body: body.as_bytes(),
        base_url: "",
        caller: &caller,
        now: testkit::NOW,
        fresh: testkit::RUN,
    };
    exchange.decode(&request).expect("a request");
    exchange
}

fn told(bencher: Bencher<'_, '_>, method: &str, body: &str) {
    let (mounted, record) = (mounted(), record());
    let shown = Shown::new(&record);
    let view: RunView<'_> = shown.view();
    bencher.counter(ItemsCount::new(DELTAS)).with_inputs(|| asked(&mounted, method, body)).bench_local_values(
        |mut exchange| {
            let mut out = Out::new();
            exchange.begin(view, &mut out);
            for step in record.steps(0) {
                black_box(exchange.encode(step, &mut out));
                // As the server drains it.
                if out.body.len() > 16 * 1024 {
                    out.body.clear();
                }
            }
        },
    );
}

#[divan::bench]
fn as_a_stream(bencher: Bencher<'_, '_>) {
    told(bencher, "POST", r#"{"model":"demo","input":"hi","stream":true}"#);
}

#[divan::bench]
fn over_a_socket(bencher: Bencher<'_, '_>) {
    told(bencher, "WEBSOCKET", r#"{"type":"response.create","model":"demo","input":"hi"}"#);
}

#[divan::bench]
fn as_an_object(bencher: Bencher<'_, '_>) {
    let (mounted, record) = (mounted(), record());
    let shown = Shown::new(&record);
    bencher
        .counter(ItemsCount::new(DELTAS))
        .with_inputs(|| asked(&mounted, "POST", r#"{"model":"demo","input":"hi"}"#))
        .bench_local_values(|mut exchange| {
            let mut out = Out::new();
            exchange.reply(interlingua_core::Reply::Run(shown.view()), &mut out).expect("an object");
            out
        });
}
