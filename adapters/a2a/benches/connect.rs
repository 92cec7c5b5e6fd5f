//! Cost of a delta from an agent that speaks A2A, in nanoseconds and allocations, beside the same texts from an
//! agent of the Agent API: decoding the stream, reading, normalizing, recording.
//!
//! Not here: encoding for clients, and the path through a socket, which `cargo xtask bench load` measures.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_a2a::{A2aUpstream, UpstreamOptions};
use interlingua_core::Json;
use interlingua_core::agent_api::Frame;
use interlingua_core::connector::{AgentTurn, Next, TurnRequest, UpstreamAdapter};
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

/// Deltas as a2a-sdk 1.3 frames them.
fn stream(text: &str) -> Vec<u8> {
    let text = Json::from_serialize(text);
    let ids =
        r#""taskId": "eddabd59-7db6-43a4-9cc3-12fb22efabb3", "contextId": "b1a46188-9f20-432e-b294-ffdf36100373""#;
    let mut bytes = format!(
        "data: {{\"result\": {{\"statusUpdate\": {{{ids}, \"status\": {{\"state\": \"TASK_STATE_WORKING\"}}}}}}, \"id\": 1, \"jsonrpc\": \"2.0\"}}\r\n\r\n"
    );
    for number in 0..DELTAS {
        let append = if number == 0 { "" } else { ", \"append\": true" };
        bytes.push_str(&format!(
            "data: {{\"result\": {{\"artifactUpdate\": {{{ids}, \"artifact\": {{\"artifactId\": \"answer\", \"parts\": [{{\"text\": {}}}]}}{append}}}}}, \"id\": 1, \"jsonrpc\": \"2.0\"}}\r\n\r\n",
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

/// A turn that has sent its message: answers have the number of its call.
fn turn() -> Box<dyn AgentTurn> {
    let options = r#"{"binding":"JSONRPC","version":"1.0"}"#;
    let options: UpstreamOptions = serde_json::from_str(options).expect("options");
    let connector = A2aUpstream::connect("http://agent/", options).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed");
    assert!(matches!(turn.next(0), Ok(Next::Send(_))));
    turn
}

#[divan::bench(args = TEXTS)]
fn a2a(bencher: Bencher<'_, '_>, text: &str) {
    let bytes = stream(text);
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
