//! The cost of one delta in the core: decoding the stream, parsing, normalizing, recording. The adapters have their own
//! benchmarks for encoding.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use interlingua_core::agent_api::Frame;
use interlingua_core::id::RunId;
use interlingua_core::model::Message;
use interlingua_core::normalize::Normalizer;
use interlingua_core::run::{Record, Run};
use interlingua_core::sse::Decoder;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const DELTAS: usize = 10_000;
const CHUNK: usize = 16 * 1024;

fn main() {
    divan::main();
}

/// A stream of deltas in the runtime's format.
fn stream() -> Vec<u8> {
    let head = r#"{"sequence_number":2,"object":"message","status":"in_progress","error":null,"id":"msg_1","type":"message","role":"assistant","content":null,"code":null,"message":null,"usage":null,"metadata":{}}"#;
    let mut bytes = format!("data: {head}\n\n").into_bytes();

    for number in 0..DELTAS {
        let delta = format!(
            r#"{{"sequence_number":{number},"object":"content","status":"in_progress","error":null,"type":"text","index":0,"delta":true,"msg_id":"msg_1","text":" token"}}"#
        );
        bytes.extend(format!("data: {delta}\n\n").into_bytes());
    }
    bytes
}

fn record() -> Record {
    let mut record = Record::new(Run::new(RunId(uuid::Uuid::nil()), "agent", "session", 0));
    record.start_turn(vec![Message::user("hi")]);
    record
}

#[divan::bench]
fn decode(bencher: Bencher) {
    let bytes = stream();
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| {
        let mut decoder = Decoder::new(1 << 20);
        let mut frames = 0_usize;

        for mut chunk in bytes.chunks(CHUNK) {
            while let Ok(Some(frame)) = decoder.decode(&mut chunk) {
                frames += frame.data.len();
            }
        }
        frames
    });
}

#[divan::bench]
fn decode_and_read(bencher: Bencher) {
    let bytes = stream();
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| {
        let mut decoder = Decoder::new(1 << 20);
        let mut read = 0_usize;

        for mut chunk in bytes.chunks(CHUNK) {
            while let Ok(Some(frame)) = decoder.decode(&mut chunk) {
                read += usize::from(Frame::parse(frame.data).is_some());
            }
        }
        read
    });
}

#[divan::bench]
fn decode_read_and_normalize(bencher: Bencher) {
    let bytes = stream();
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| {
        let mut decoder = Decoder::new(1 << 20);
        let mut record = record();
        let mut normalizer = Normalizer::new(1 << 30);

        for mut chunk in bytes.chunks(CHUNK) {
            while let Ok(Some(frame)) = decoder.decode(&mut chunk) {
                if let Some(frame) = Frame::parse(frame.data) {
                    normalizer.emit(&mut record, &frame.event()).expect("far below the limit");
                }
            }
        }
        record
    });
}
