//! Arbitrary bytes as input of the event stream decoder. The first byte sets the limit, the second the chunk size.
//! Chunk boundaries do not change the frames, memory is bounded, and an encoded frame decodes to the same frame.
#![no_main]

use bytes::BytesMut;
use interlingua_core::sse::{Decoder, encode};
use libfuzzer_sys::fuzz_target;

type OwnedEvent = (Option<String>, Option<String>, Vec<u8>);

fuzz_target!(|input: &[u8]| {
    let [limit, cut, stream @ ..] = input else { return };
    // Small limits are reached, the largest one is not.
    let limit = if *limit == u8::MAX { usize::MAX / 4 } else { usize::from(*limit) * 4 };
    let expected = decode(limit, [stream]);
    let pieces = stream.chunks(usize::from(*cut).max(1));
    assert_eq!(decode(limit, pieces), expected);
    for (event, id, data) in expected.0 {
        if let Ok(text) = str::from_utf8(&data) {
            read_back(event, id, text);
        }
    }
});

fn decode<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<OwnedEvent>, String) {
    let mut decoder = Decoder::new(limit);
    let mut frames = Vec::new();
    let mut seen = 0;
    for mut piece in pieces {
        seen += piece.len();
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(frame)) => {
                    frames.push((frame.event.map(str::to_owned), frame.id.map(str::to_owned), frame.data.to_vec()));
                }
                Ok(None) => break,
                Err(error) => return (frames, error.to_string()),
            }
        }
        assert!(piece.is_empty());
        assert!(decoder.memory() <= 3 * limit.min(2 * seen).max(1024));
    }

    let state = (decoder.lines(), decoder.comments(), decoder.retry(), decoder.last_event_id().to_owned());
    let leftover = decoder.finish();
    let end = format!("{state:?} {leftover:?} {:?}", leftover.frame());
    (frames, end)
}

fn read_back(event: Option<String>, id: Option<String>, text: &str) {
    // The encoder drops NUL and line separators from names and ids; an id with NUL would be ignored.
    const DROPPED: [char; 4] = ['\0', '\u{85}', '\u{2028}', '\u{2029}'];
    let event = event.map(|name| name.replace(DROPPED, "")).filter(|name| !name.is_empty());
    let id = id.map(|id| id.replace(DROPPED, ""));
    let lines = text.replace(&DROPPED[1..], "\n");
    let mut out = BytesMut::new();
    encode::text(&mut out, event.as_deref(), id.as_deref(), text);
    let (frames, _) = decode(usize::MAX / 4, [&out[..]]);
    assert_eq!(frames, [(event, id, lines.into_bytes())]);
}
