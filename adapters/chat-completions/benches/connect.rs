//! Cost of a delta from an agent that speaks Chat Completions, in nanoseconds and allocations, beside the same texts from an
//! agent of the Agent API: decoding the stream, reading, normalizing, recording.
//!
//! Not here: encoding for clients (`encode`), and the path through a socket, which `cargo xtask bench load` measures.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_chat_completions::{ChatCompletionsUpstream, UpstreamOptions};
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

/// Deltas as OpenAI frames them.
fn chat_completions_stream(text: &str) -> Vec<u8> {
    let text = Json::from_serialize(text);
    let mut bytes = String::from(
        "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    );
    for _ in 0..DELTAS {
        bytes.push_str(&format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"system_fingerprint\":\"fp_1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{}}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
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
    let connector = ChatCompletionsUpstream::connect("http://agent/v1", UpstreamOptions::default()).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed")
}

#[divan::bench(args = TEXTS)]
fn chat_completions(bencher: Bencher<'_, '_>, text: &str) {
    let bytes = chat_completions_stream(text);
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
