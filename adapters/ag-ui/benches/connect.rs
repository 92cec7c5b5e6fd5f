//! Cost of a delta from an agent that speaks AG-UI, in nanoseconds and allocations, beside the same texts from an agent of
//! the Agent API: decoding the stream, reading, normalizing, recording.
//!
//! Not here: the path through a socket, which `cargo xtask bench load` measures.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_ag_ui::{AgUiUpstream, UpstreamOptions};
use interlingua_core::Json;
use interlingua_core::agent_api::Frame;
use interlingua_core::connector::{AgentTurn, TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::sse::Decoder;
use interlingua_core::testkit::Recorder;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const DELTAS: usize = 10_000;
/// How much of a stream arrives at once, in bytes.
const CHUNK: usize = 16 * 1024;
const TEXTS: [&str; 3] = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""];

fn main() {
    divan::main();
}

/// Deltas as the official encoder frames them. `more`: further fields of each, such as raw events of a framework.
fn ag_ui_stream(text: &str, more: &str) -> Vec<u8> {
    let text = Json::from_serialize(text);
    let mut bytes = String::from(
        "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n\
         data: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"3f30a8e6-a67d-4cfa-bcd0-29da63b9711b\",\"role\":\"assistant\"}\n\n",
    );
    for _ in 0..DELTAS {
        bytes.push_str(&format!(
            "data: {{\"type\":\"TEXT_MESSAGE_CONTENT\",{more}\"messageId\":\"3f30a8e6-a67d-4cfa-bcd0-29da63b9711b\",\"delta\":{}}}\n\n",
            text.text()
        ));
    }
    bytes.into_bytes()
}

/// The same as AgentScope Runtime frames them.
fn agent_api_stream(text: &str) -> Vec<u8> {
    let text = Json::from_serialize(text);
    let mut bytes = String::from(
        "data: {\"sequence_number\":2,\"object\":\"message\",\"status\":\"in_progress\",\"error\":null,\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":null,\"code\":null,\"message\":null,\"usage\":null,\"metadata\":{}}\n\n",
    );
    for number in 0..DELTAS {
        bytes.push_str(&format!(
            "data: {{\"sequence_number\":{number},\"object\":\"content\",\"status\":\"in_progress\",\"error\":null,\"type\":\"text\",\"index\":0,\"delta\":true,\"msg_id\":\"msg_1\",\"text\":{}}}\n\n",
            text.text()
        ));
    }
    bytes.into_bytes()
}

fn turn() -> Box<dyn AgentTurn> {
    let connector = AgUiUpstream::connect("http://agent/", UpstreamOptions::default()).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed")
}

fn read(bencher: Bencher<'_, '_>, bytes: &[u8]) {
    bencher.counter(ItemsCount::new(DELTAS)).with_inputs(|| (turn(), Recorder::new(Vec::new()))).bench_local_values(
        |(mut turn, mut recorder)| {
            let mut decoder = Decoder::new(1 << 20);
            for mut chunk in bytes.chunks(CHUNK) {
                while let Ok(Some(frame)) = decoder.decode(&mut chunk) {
                    turn.on_frame(frame, &mut recorder).expect("a delta");
                }
            }
            (turn, recorder)
        },
    );
}

#[divan::bench(args = TEXTS)]
fn ag_ui(bencher: Bencher<'_, '_>, text: &str) {
    read(bencher, &ag_ui_stream(text, ""));
}

/// LangGraph's integration sends the event of its framework with each of its own, by default.
#[divan::bench]
fn with_raw_event(bencher: Bencher<'_, '_>) {
    let raw =
        format!("\"rawEvent\":{{\"event\":\"on_chat_model_stream\",\"data\":{{\"x\":\"{}\"}}}},", "y".repeat(1000));
    read(bencher, &ag_ui_stream(" token", &raw));
}

#[divan::bench(args = TEXTS)]
fn agent_api(bencher: Bencher<'_, '_>, text: &str) {
    let bytes = agent_api_stream(text);
    bencher.counter(ItemsCount::new(DELTAS)).with_inputs(|| Recorder::new(Vec::new())).bench_local_values(
        |mut recorder| {
            let mut decoder = Decoder::new(1 << 20);
            for mut chunk in bytes.chunks(CHUNK) {
                while let Ok(Some(frame)) = decoder.decode(&mut chunk) {
                    recorder.emit(&Frame::parse(frame.data).expect("a frame").event());
                }
            }
            recorder
        },
    );
}
