//! Event stream frames: time and allocations of the decoder, compared with `eventsource-stream` on the same bytes, and
//! of the writers. Parsing a frame's JSON is measured elsewhere.

use std::convert::Infallible;

use bytes::BytesMut;
use divan::{AllocProfiler, Bencher, black_box, counter::BytesCount, counter::ItemsCount};
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use interlingua_core::sse::{Decoder, encode};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const EVENTS: usize = 10_000;
const LIMIT: usize = 4 << 20;
/// Size of the output buffer at which it is flushed, in bytes.
const FLUSH_SIZE: usize = 16 << 10;

fn main() {
    divan::main();
}

/// A fast agent: events of 200 bytes.
fn small_events() -> Vec<u8> {
    let event = format!("data: {{\"text\":\"{}\"}}\n\n", "x".repeat(181));
    assert_eq!(event.len(), 200);
    event.repeat(EVENTS).into_bytes()
}

/// An image: one event of 1 MiB.
fn large_event() -> Vec<u8> {
    format!("data: {{\"data\":\"{}\"}}\n\n", "x".repeat(1 << 20)).into_bytes()
}

fn decode(input: &[u8], size: usize) -> usize {
    let mut decoder = Decoder::new(LIMIT);
    let mut bytes = 0;

    for mut chunk in input.chunks(size) {
        while let Some(frame) = decoder.decode(&mut chunk).expect("within the limit") {
            bytes += black_box(frame).data.len();
        }
    }
    bytes
}

fn decode_by_eventsource_stream(input: &[u8], size: usize) -> usize {
    let chunks = stream::iter(input.chunks(size).map(Ok::<_, Infallible>)).eventsource();
    let bytes = chunks.fold(0, async |bytes, event| bytes + black_box(event).expect("valid UTF-8").data.len());
    bytes.now_or_never().expect("nothing to wait for")
}

#[divan::bench_group(name = "10,000 events of 200 bytes in chunks of 16 KiB")]
mod small {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        let input = small_events();
        let bencher = bencher.counter(BytesCount::of_slice(&input)).counter(ItemsCount::new(EVENTS));
        bencher.bench_local(|| decode(&input, 16 << 10));
    }

    #[divan::bench(sample_count = 5, sample_size = 1)]
    fn eventsource_stream(bencher: Bencher<'_, '_>) {
        let input = small_events();
        let bencher = bencher.counter(BytesCount::of_slice(&input)).counter(ItemsCount::new(EVENTS));
        bencher.bench_local(|| decode_by_eventsource_stream(&input, 16 << 10));
    }
}

#[divan::bench_group(name = "10,000 events of 200 bytes, each a chunk of its own")]
mod paced {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        let input = small_events();
        let bencher = bencher.counter(BytesCount::of_slice(&input)).counter(ItemsCount::new(EVENTS));
        bencher.bench_local(|| decode(&input, 200));
    }

    #[divan::bench]
    fn eventsource_stream(bencher: Bencher<'_, '_>) {
        let input = small_events();
        let bencher = bencher.counter(BytesCount::of_slice(&input)).counter(ItemsCount::new(EVENTS));
        bencher.bench_local(|| decode_by_eventsource_stream(&input, 200));
    }
}

#[divan::bench_group(name = "one event of 1 MiB in chunks of 1 KiB")]
mod large {
    use super::*;

    #[divan::bench]
    fn ours(bencher: Bencher<'_, '_>) {
        let input = large_event();
        bencher.counter(BytesCount::of_slice(&input)).bench_local(|| decode(&input, 1 << 10));
    }

    #[divan::bench(sample_count = 3, sample_size = 1)]
    fn eventsource_stream(bencher: Bencher<'_, '_>) {
        let input = large_event();
        bencher.counter(BytesCount::of_slice(&input)).bench_local(|| decode_by_eventsource_stream(&input, 1 << 10));
    }
}

#[divan::bench_group(name = "write 10,000 events of 200 bytes")]
mod write {
    use super::*;

    #[divan::bench]
    fn json(bencher: Bencher<'_, '_>) {
        let text = "x".repeat(181);
        let value = std::collections::BTreeMap::from([("text", text.as_str())]);
        let mut out = BytesMut::with_capacity(FLUSH_SIZE);

        bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
            for _ in 0..EVENTS {
                if out.len() + 200 > FLUSH_SIZE {
                    out.clear();
                }
                encode::json(&mut out, None, None, black_box(&value)).expect("plain JSON");
            }
            out.len()
        });
    }

    /// The same JSON without a frame, for comparison.
    #[divan::bench]
    fn json_alone(bencher: Bencher<'_, '_>) {
        let text = "x".repeat(181);
        let value = std::collections::BTreeMap::from([("text", text.as_str())]);
        let mut out = Vec::with_capacity(FLUSH_SIZE);

        bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
            for _ in 0..EVENTS {
                if out.len() + 200 > FLUSH_SIZE {
                    out.clear();
                }
                serde_json::to_writer(&mut out, black_box(&value)).expect("plain JSON");
            }
            out.len()
        });
    }
}
