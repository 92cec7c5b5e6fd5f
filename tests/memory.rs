//! Memory that a request body uses: at most a fixed multiple of its size, whatever its shape and protocol, in the
//! adapter alone and in the whole gateway. And memory of a run that no one reads.
//!
//! The global allocator counts every byte, so these tests are a separate binary and run one at a time. The limit on the
//! number of JSON values belongs to the server; the bodies here contain as many values as it allows.

use std::collections::BTreeSet;

use interlingua_testing_support as support;

use interlingua_core::call::{AgentCard, Call};
use interlingua_core::exchange::{Caller, Request};
use interlingua_core::owner::Owner;
use interlingua_core::seal::Sealer;
use interlingua_core::tree::{self, Bounds};
use interlingua_core::{Fault, FaultKind, RunId};
use interlingua_testing_protocols::served;
use peak_alloc::PeakAlloc;
use support::gateway::{DEMO, Gateway, JSON, ROUTE, agent as agent_config, user_turn};
use support::http::{Exchange, request};
use support::upstream::{Reply, Upstream};
use support::{agent, poll_until};
use tokio::sync::Mutex;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Maximum memory as a multiple of the body size.
const MAX_FACTOR: usize = 8;
/// Maximum memory for small bodies with many values, in bytes: as much as a body of 3 MiB may use.
const MAX_SMALL: usize = 24 << 20;
/// Size of a large body in bytes.
const LARGE: usize = 4 << 20;

/// Held by the test that currently measures.
static COUNTING: Mutex<()> = Mutex::const_new(());

/// Peak memory during `work`, minus the memory in use before.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let done = work();
    (MEMORY.peak_usage().saturating_sub(before), done)
}

fn allowed(body: &str) -> usize {
    (MAX_FACTOR * body.len()).max(MAX_SMALL)
}

/// The protocol of a shape.
fn name(shape: &str) -> &str {
    shape.split(' ').next().expect("a name")
}

/// Decodes a body with a protocol that is mounted with default options: at the endpoint that is named after the
/// protocol, or at that of its sample request.
fn decode(protocol: &str, body: &str) -> Result<Call, Fault> {
    let (_, serves) = served().find(|(known, _)| known.name == name(protocol)).expect("a protocol");
    let mounted = serves.mounted(AgentCard { name: "demo".into(), ..AgentCard::default() });
    let path = match protocol.split_once(' ') {
        Some((_, path)) => path,
        None => serves.sample("demo", "hi").expect("a sample request").endpoint,
    };
    let endpoint =
        mounted.endpoints.iter().find(|endpoint| endpoint.path == path && endpoint.method.as_str() == "POST");
    let mut exchange = (endpoint.unwrap_or_else(|| panic!("{protocol} has no {path}")).open)();
    let caller = Caller { owner: Owner::anonymous(), authenticated: false };
    let params = serves.path.contains("{agent}").then(|| ("agent".to_owned(), "demo".to_owned()));
    exchange.decode(&Request {
        method: "POST",
        path,
        params: params.as_slice(),
        query: "",
        headers: &[("content-type", "application/json"), ("a2a-version", "1.0")],
        body: body.as_bytes(),
        base_url: "http://127.0.0.1",
        caller: &caller,
        now: 0,
        new_id: RunId(uuid::Uuid::nil()),
        sealer: &Sealer::default(),
    })
}

/// A list of as many elements as the limits allow, between `head` and `tail`. `values` is the number of JSON values per
/// element. White space pads the elements so that the body has about `size` bytes.
fn list(head: &str, element: impl Fn(usize) -> String, tail: &str, values: usize, size: usize) -> String {
    let count = (Bounds::DEFAULT.values - 100) / values;
    let room = size / count;
    let mut body = String::with_capacity(size + (1 << 20));
    body.push_str(head);
    for number in 0..count {
        if number > 0 {
            body.push(',');
        }
        let from = body.len();
        body.push_str(&element(number));
        while body.len() + 1 < from + room {
            body.push(' ');
        }
    }

    body.push_str(tail);
    assert_eq!(tree::check(body.as_bytes(), Bounds::DEFAULT).map_err(|fault| fault.message), Ok(()));
    body
}

/// Protocol, name of the shape, body, and the expected fault. The protocol may be followed by an endpoint.
type Shape = (&'static str, &'static str, String, Option<FaultKind>);

fn shapes(size: usize) -> Vec<Shape> {
    let plain = |text: &'static str| move |_: usize| text.to_owned();
    let padded = format!("\"{}\"", "a".repeat((size / 50_000).saturating_sub(20)));
    let texts = |head: &str, before: &'static str, after: &'static str, tail: &str, values: usize| {
        let element = format!("{before}{padded}{after}");
        list(head, move |_| element.clone(), tail, values, 0)
    };
    let long = "a".repeat(LARGE);
    vec![
        ("agent-api", "zeros", list(r#"{"input":["#, plain("0"), "]}", 1, size), Some(FaultKind::WrongType)),
        ("agent-api", "empty messages", list(r#"{"input":["#, plain(r#"{"content":""}"#), "]}", 2, size), None),
        ("agent-api", "messages", texts(r#"{"input":["#, r#"{"content":"#, "}", "]}", 2), None),
        (
            "agent-api",
            "empty contents",
            list(r#"{"input":[{"content":["#, plain(r#"{"type":"text"}"#), "]}]}", 2, size),
            None,
        ),
        ("agent-api", "texts", list(r#"{"input":[{"content":["#, plain("\"\""), "]}]}", 1, size), None),
        (
            "agent-api",
            "unknown fields",
            list(r#"{"input":[],"#, |number| format!("\"{number}\":0"), "}", 1, size),
            None,
        ),
        ("agent-api", "one long text", format!(r#"{{"input":[{{"content":"{long}"}}]}}"#), None),
        (
            "responses",
            "items",
            texts(r#"{"model":"demo","input":["#, r#"{"role":"user","content":"#, "}", "]}", 3),
            None,
        ),
        (
            "responses",
            "zeros",
            list(r#"{"model":"demo","input":["#, plain("0"), "]}", 1, size),
            Some(FaultKind::WrongType),
        ),
        ("responses", "one long text", format!(r#"{{"model":"demo","input":"{long}"}}"#), None),
        (
            "a2a /message:send",
            "parts",
            texts(r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":["#, r#"{"text":"#, "}", "]}}", 2),
            None,
        ),
        (
            "a2a /message:send",
            "one long text",
            format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{long}"}}]}}}}"#),
            None,
        ),
        (
            "ag-kit",
            "zeros",
            list(r#"{"conversationId":"c","messages":["#, plain("0"), "]}", 1, size),
            Some(FaultKind::WrongType),
        ),
        (
            "ag-kit",
            "messages",
            texts(r#"{"conversationId":"c","messages":["#, r#"{"role":"user","content":"#, "}", "]}", 3),
            None,
        ),
        (
            "ag-ui",
            "zeros",
            list(r#"{"threadId":"t","runId":"r","messages":["#, plain("0"), "]}", 1, size),
            Some(FaultKind::WrongType),
        ),
        (
            "ag-ui",
            "messages",
            texts(r#"{"threadId":"t","runId":"r","messages":["#, r#"{"role":"user","content":"#, "}", "]}", 3),
            None,
        ),
        (
            "chat-completions",
            "messages",
            texts(r#"{"model":"demo","messages":["#, r#"{"role":"user","content":"#, "}", "]}", 3),
            None,
        ),
        ("chat-completions", "one long text", conversation(&long, "hi"), None),
        ("chat-completions", "one long answer", conversation("hi", &long), None),
        (
            "anthropic-messages",
            "zeros",
            list(r#"{"model":"demo","messages":["#, plain("0"), "]}", 1, size),
            Some(FaultKind::WrongType),
        ),
        (
            "anthropic-messages",
            "messages",
            texts(r#"{"model":"demo","messages":["#, r#"{"role":"user","content":"#, "}", "]}", 3),
            None,
        ),
        (
            "anthropic-messages",
            "blocks",
            texts(
                r#"{"model":"demo","messages":[{"role":"user","content":["#,
                r#"{"type":"text","text":"#,
                "}",
                "]}]}",
                3,
            ),
            None,
        ),
        ("anthropic-messages", "one long text", conversation(&long, "hi"), None),
        ("anthropic-messages", "one long answer", conversation("hi", &long), None),
        ("hitl", "one long text", format!(r#"{{"user_id":"u","query":"{long}"}}"#), None),
        (
            "mcp",
            "zeros",
            list(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo","arguments":{"message":"hi","x":["#,
                plain("0"),
                "]}}}",
                1,
                size,
            ),
            None,
        ),
        (
            "mcp",
            "one long text",
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"demo","arguments":{{"message":"{long}"}}}}}}"#
            ),
            None,
        ),
    ]
}

/// A body of a client that sends all of its conversation: a user, the agent's answer, and what is new.
fn conversation(new: &str, answer: &str) -> String {
    format!(
        r#"{{"model":"demo","messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","content":"{answer}"}},{{"role":"user","content":"{new}"}}]}}"#
    )
}

#[test]
fn every_protocol_has_a_shape() {
    let with_shapes: BTreeSet<String> = shapes(0).iter().map(|(protocol, ..)| name(protocol).to_owned()).collect();
    assert_eq!(with_shapes, served().map(|(protocol, _)| protocol.name.to_owned()).collect());
}

#[test]
fn decoding_a_body_uses_at_most_eight_times_its_size_in_every_protocol() {
    let _one = COUNTING.blocking_lock();
    let mut exceeded = Vec::new();

    // Small bodies with the maximum number of values, and large bodies with the same number.
    for size in [0, LARGE] {
        for (protocol, shape, body, refused) in shapes(size) {
            let (peak, call) = peak(|| decode(protocol, &body));
            let kind = call.as_ref().err().map(|fault| fault.kind);
            assert_eq!(kind, refused, "{protocol}: {shape}: {:?}", call.err().map(|fault| fault.to_string()));
            let times = peak as f64 / body.len() as f64;
            println!(
                "{protocol:18} {shape:15} {:>5} KiB cost {:>6} KiB, {times:.1} times",
                body.len() >> 10,
                peak >> 10
            );
            if peak > allowed(&body) {
                exceeded.push(format!("{protocol}: {shape} of {} bytes cost {peak}, {times:.1} times", body.len()));
            }
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}

#[tokio::test]
async fn a_body_uses_at_most_eight_times_its_size_in_the_whole_gateway() {
    let _one = COUNTING.lock().await;
    let gateway = Gateway::start(DEMO).await;

    // The agent answers the last message; everything before it is parsed, stored and forwarded.
    let hello = r#"{"role":"user","content":"hi"}"#;
    let text = "a".repeat(60);
    let message = format!(r#"{{"role":"system","content":"{text}"}}"#);
    let long = "a".repeat(LARGE);
    let stored = r#""stream":false,"session_id":"s""#;

    for (shape, body) in [
        ("messages", list(r#"{"input":["#, |_| message.clone(), &format!(",{hello}],{stored}}}"), 3, 0)),
        ("one long text", format!(r#"{{"input":[{{"role":"system","content":"{long}"}},{hello}],{stored}}}"#)),
        (
            "unknown fields",
            list("{", |number| format!("\"{number}\":0"), &format!(r#","input":[{hello}],{stored}}}"#), 1, LARGE),
        ),
    ] {
        let request = request("POST", "/agents/demo/process", JSON, body.as_bytes());

        // One-time allocations happen before the measurement.
        gateway.run_turn("demo", &user_turn("hi")).await;
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let answer = Exchange::send(gateway.address, &request).await.response().await;
        let peak = MEMORY.peak_usage().saturating_sub(before);
        assert_eq!(answer.status, 200, "{shape}: {}", answer.text());

        let times = peak as f64 / body.len() as f64;
        println!("gateway    {shape:15} {:>5} KiB cost {:>6} KiB, {times:.1} times", body.len() >> 10, peak >> 10);
        assert!(peak <= allowed(&body), "{shape} of {} bytes cost {peak}, {times:.1} times", body.len());
    }
    gateway.stop().await;
}

/// One delta of the long answer, and how many there are: 60 MiB.
const DELTA: usize = 16 << 10;
const DELTAS: usize = 60 << 6;

#[tokio::test]
async fn a_long_run_without_a_reader_leaves_memory() {
    let _one = COUNTING.lock().await;
    let frames = |frames: &[String]| String::from_utf8(agent::bytes(frames)).expect("text");
    let delta = frames(&[agent::text_delta(&"a".repeat(DELTA))]);
    let begin = frames(&agent::opening_frames());
    let more = frames(&[agent::text_delta("the end")]);
    let reply = Reply::events().chunk(begin).repeat(delta, DELTAS).chunk(more).wait("on");
    let upstream =
        Upstream::always(reply.chunk(frames(&[agent::message_completed(), agent::response("completed")])).done());

    let config = format!("{}{ROUTE}", agent_config("friday", &upstream.url("/process"), "", ""));
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{config}")).await;
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();

    // A task: its client has what it wants as soon as the run is accepted.
    let submitted = gateway.post("/agents/friday/process/task", &user_turn("hi")).await.json();
    let task = format!("/agents/friday/process/task/{}", submitted["task_id"].as_str().expect("an id"));
    upstream.wait_for_written(DELTA * DELTAS).await;
    poll_until("the run to leave memory", async || (MEMORY.current_usage() < before + (8 << 20)).then_some(())).await;
    let peak = MEMORY.peak_usage().saturating_sub(before) >> 20;
    println!("a run of {} MiB without a reader: peak {peak} MiB", (DELTA * DELTAS) >> 20);
    // What the store has not written yet, what is on its way into a segment, and no more.
    assert!(peak < 48, "{peak} MiB");

    // A reader finds all of it, while it is under way and once it has ended.
    let status = gateway.get(&task).await.json();
    assert_eq!(status["status"], "running", "{status}");
    upstream.open("on");
    let finished = poll_until("the run to end", async || {
        let status = gateway.get(&task).await.json();
        (status["status"] == "finished").then_some(status)
    })
    .await;
    let text = finished["result"]["output"][0]["content"][0]["text"].as_str().expect("a text");
    assert!(text.len() == DELTA * DELTAS + 7 && text.ends_with("athe end"), "{} bytes", text.len());
    gateway.stop().await;
}

#[test]
fn a_body_with_too_many_values_is_refused_without_allocating() {
    let _one = COUNTING.blocking_lock();
    let body = format!("{{\"input\":[{}0]}}", "0,".repeat(LARGE / 2));
    let (peak, checked) = peak(|| tree::check(body.as_bytes(), Bounds::DEFAULT));
    assert_eq!(checked.expect_err("too many").kind, FaultKind::TooLarge);
    assert!(peak < 1024, "{peak} bytes");
}
