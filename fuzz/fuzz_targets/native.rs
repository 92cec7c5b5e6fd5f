//! A hostile upstream: bytes through the decoder, the Agent API reader and the normalizer. Whatever it sends, the
//! record follows the grammar, stays within its limit, and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_core::agent_api::Frame;
use interlingua_core::run::Record;
use interlingua_core::sse::Decoder;
use interlingua_core_testkit::{Recorder, started, grammar, scripts, render};
use interlingua_core::{Fault, FaultKind};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let small = scripts().into_iter().filter(|script| !script.is_large());
    // Small scripts: an edit changes a larger part of them.
    small
        .map(|script| script.frames.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>().into())
        .collect()
});

fuzz_target!(|input: &[u8]| {
    let [limit, cut, input @ ..] = input else { return };
    let seeds: Vec<&[u8]> = SEEDS.iter().map(Vec::as_slice).collect();
    let Some(stream) = edited(&seeds, input) else { return };
    let limit = if *limit < 64 { usize::from(*limit) * 256 } else { 64 << 20 };
    let record = read_stream(&stream, stream.len().max(1), limit);
    grammar(&record).unwrap_or_else(|broken| panic!("{broken}\n{}", render(&record)));
    assert!(read_stream(&stream, usize::from(*cut).max(1), limit) == record, "chunk boundaries change the record");
});

fn read_stream(stream: &[u8], cut: usize, limit: usize) -> Record {
    let mut recorder = Recorder::with_limit(started(), limit);
    let mut decoder = Decoder::new(1 << 20);

    // As in the gateway, nothing is read after a fault.
    let mut failed = false;
    for mut piece in stream.chunks(cut) {
        while !failed {
            match decoder.decode(&mut piece) {
                Ok(Some(frame)) => failed |= !emit(&mut recorder, frame.data),
                Ok(None) => break,
                Err(error) => {
                    recorder.fail(&Fault::new(FaultKind::UpstreamTooLarge, error.to_string()));
                    failed = true;
                }
            }
        }
    }

    if let Some(frame) = decoder.finish().frame()
        && !failed
    {
        emit(&mut recorder, frame.data);
    }
    recorder.finish()
}

fn emit(recorder: &mut Recorder, data: &[u8]) -> bool {
    Frame::parse(data).is_none_or(|frame| recorder.try_emit(&frame.event()).is_ok())
}
