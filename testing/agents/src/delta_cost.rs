//! The cost of a text delta in a connector, from the bytes of the stream to the record, beside the reader of the Agent
//! API in core: the harness of the benchmarks in `adapters/*/benches/connect.rs`.
//!
//! Both read the same texts, and take turns, so that other load on the machine affects both alike.
//!
//! Not here: allocations, which a test counts (`tests/allocations`), encoding for clients, and the path through a
//! socket, which `cargo xtask bench load` measures.

use std::time::{Duration, Instant};

use interlingua_core::Json;
use interlingua_core::agent_api::Frame;
use interlingua_core::connector::{AgentTurn, Connector, EventSink, Next, Purpose, TurnRequest};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::sse::Decoder;
use interlingua_core_testkit::Recorder;

use crate::deltas::deltas;

/// Texts of deltas: one token, more of them, and what JSON escapes.
pub const TEXTS: [&str; 3] = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""];

/// The size of one read, in bytes.
const CHUNK: usize = 16 * 1024;
/// The maximum size of a frame, in bytes.
const MAX_FRAME: usize = 1 << 20;
/// The number of deltas in a stream.
const DELTAS: usize = 10_000;
/// The number of reads of each stream.
const SAMPLES: usize = 100;

/// A turn whose answer is a stream that has just begun. `earlier`: bodies of the answers before it.
///
/// # Panics
/// If the turn does not ask for the stream after them.
#[must_use]
pub fn listening(connector: &dyn Connector, earlier: &[&str]) -> Box<dyn AgentTurn> {
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed");
    let mut ignored = Recorder::new(Vec::new());
    for body in earlier {
        let Ok(Next::Send(request)) = turn.next(0) else { panic!("there is nothing to send") };
        let body = body.as_bytes();
        let read = match request.purpose {
            Purpose::Ask => turn.on_body(body, &mut ignored),
            Purpose::Lookup | Purpose::Published => turn.on_lookup(Ok(body)),
        };
        read.expect("the answer is understood");
    }
    assert!(matches!(turn.next(0), Ok(Next::Send(_))), "the stream is asked for");
    turn
}

/// Reads a stream in pieces of 16 KiB.
///
/// # Panics
/// If the turn does not understand a frame.
pub fn read(turn: &mut dyn AgentTurn, decoder: &mut Decoder, stream: &[u8], sink: &mut dyn EventSink) {
    for mut piece in stream.chunks(CHUNK) {
        while let Some(frame) = decoder.decode(&mut piece).expect("small frames") {
            turn.on_frame(frame, sink).expect("a delta");
        }
        turn.on_frames_read(sink).expect("deltas");
    }
}

/// The same by the reader in core.
fn read_natively(stream: &[u8], recorder: &mut Recorder) {
    let (mut decoder, mut unescaped) = (Decoder::new(MAX_FRAME), String::new());
    for mut piece in stream.chunks(CHUNK) {
        while let Some(frame) = decoder.decode(&mut piece).expect("small frames") {
            recorder.emit(&Frame::parse_with(frame.data, &mut unescaped).expect("a frame").event());
        }
    }
}

/// Measures a connector of this protocol and prints nanoseconds per delta: medians of 100 streams of 10,000 deltas.
///
/// Reads its command line as benchmarks do: only `cargo bench` measures, otherwise each stream is read once; a further
/// argument is a part of the protocol's name.
///
/// # Panics
/// If the connector's answers do not come in deltas.
pub fn bench(protocol: &str, connector: &dyn Connector) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| !argument.starts_with('-') && !protocol.contains(argument.as_str())) {
        return;
    }
    let samples = if arguments.iter().any(|argument| argument == "--bench") { SAMPLES } else { 1 };

    println!("{protocol}: ns per delta, and of the Agent API's reader");
    for text in TEXTS {
        let [own, native, ratio] = compare(protocol, connector, text, samples);
        println!("  {text:<45} {own:>6.0} {native:>6.0}  {ratio:.2} ×");
    }
}

/// Nanoseconds per delta in the connector and in the reader of core, and their ratio.
fn compare(protocol: &str, connector: &dyn Connector, text: &str, samples: usize) -> [f64; 3] {
    let own = deltas(protocol, text).expect("its answers come in deltas");
    let (earlier, own) = (own.earlier(), own.stream(DELTAS));
    let native = deltas("agent-api", text).expect("its answers come in deltas").stream(DELTAS);

    let mut seen: [Vec<f64>; 3] = Default::default();
    // The first sample warms up.
    for sample in 0..=samples {
        let (mut turn, mut recorder) = (listening(connector, earlier), Recorder::new(Vec::new()));
        let own = timed(|| read(&mut *turn, &mut Decoder::new(MAX_FRAME), &own, &mut recorder));
        let mut recorder = Recorder::new(Vec::new());
        let native = timed(|| read_natively(&native, &mut recorder));
        if sample > 0 {
            let values = [own, native].map(|time| time.as_secs_f64() * 1e9 / DELTAS as f64);
            for (seen, value) in seen.iter_mut().zip([values[0], values[1], values[0] / values[1]]) {
                seen.push(value);
            }
        }
    }
    seen.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}
