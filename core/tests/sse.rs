//! Invariants of the event stream decoder: the same frames however the bytes are split, the frames that the standard
//! requires, and bounded memory for any input. The decoder's own tests show that no byte is scanned twice; writing
//! frames is covered by `sse_encode.rs`.

use std::time::Duration;

use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use interlingua_core::sse::{DecodeError, Decoder, Frame, IncompleteEvent};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

/// Streams with every feature and every kind of line end. Tests below pin the meaning of some of them; here they only
/// must mean the same in any split.
const CORPUS: &[&[u8]] = &[
    b"data: one\n\ndata:two\n\ndata:  three\n\n",
    b"event: add\nid: 1\nretry: 250\ndata: {\"a\":1}\n\n: beat\n\nevent: ping\n\ndata: x\n\n",
    b"data: YHOO\r\ndata: +2\r\ndata: 10\r\n\r\ndata: next\r\n\r\n",
    b"data: a\rdata: b\r\rdata: c\r\r",
    b"data: a\r\n\rdata: b\n\r\ndata: c\r\r\ndata: d\n\r",
    b"\xEF\xBB\xBFdata: marked\n\n\xEF\xBB\xBFdata: not a mark\n\ndata: \xEF\xBB\xBFinside\n\n",
    b"data\n\ndata\ndata\n\ndata:\n",
    "data: 早上好 👍\nunknown: field\n:\n: comment\ndata: über\n\n".as_bytes(),
    b"id: 7\n\ndata: silent id before\n\nid\ndata: taken back\n\nid: a\0b\ndata: void\n\n",
    b"event: a\nevent: b\ndata: last name wins\n\nevent:\ndata: no name\n\n",
    b"data: \xFF\xFE broken\n\nevent: \xFF\ndata: x\n\nid: \xC3\ndata: y\n\n",
    b"data: first\n: beat\n: beat\n\nretry: +5\nretry: soon\nretry:\nretry: 99999999999999999999\ndata: z\n\n",
    b"data: [DONE]\n\ndata: cut of",
    b"data: unterminated\n",
    b"data: {\"cut\":false}",
    b"\xEF\xBB\xBF",
    b"\xEF\xBB",
    b"\n\r\n\r\r\n\n",
    b"data: a\n\nerror: {\"message\":\"gone\"}\n\nerror: x\ndata: y\n\ndata: z\nerror: late\n\nerror: cut",
    b"dat: a\ndatax: b\n data: c\ndata : d\n\ndata:\td\n\n",
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReceivedEvent {
    event: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    data: Vec<u8>,
    last_event_id: String,
}

/// The complete outcome of decoding a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    frames: Vec<ReceivedEvent>,
    error: Option<DecodeError>,
    leftover: String,
    lines: u64,
    comments: u64,
    retry: Option<Duration>,
}

fn decode<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Account {
    let mut decoder = Decoder::new(limit);
    let mut account = Account::default();

    'stream: for mut chunk in chunks {
        let largest = chunk.len();
        loop {
            let received = match decoder.decode(&mut chunk) {
                Ok(Some(frame)) => to_received(frame),
                Ok(None) => break,
                Err(error) => {
                    account.error = Some(error);
                    assert_eq!(decoder.decode(&mut &b"data: x\n\n"[..]), Err(error), "every later call fails");
                    break 'stream;
                }
            };
            let last_event_id = decoder.last_event_id().to_owned();
            account.frames.push(ReceivedEvent { last_event_id, ..received });
        }
        assert!(chunk.is_empty(), "a chunk is used up");
        assert!(decoder.memory() <= 3 * limit.max(1024), "{} bytes after {largest}", decoder.memory());
    }

    account.leftover = format!("{:?}", decoder.finish());
    account.lines = decoder.lines();
    account.comments = decoder.comments();
    account.retry = decoder.retry();
    account
}

fn to_received(frame: Frame<'_>) -> ReceivedEvent {
    ReceivedEvent {
        event: frame.event.map(str::to_owned),
        id: frame.id.map(str::to_owned),
        retry: frame.retry,
        data: frame.data.to_vec(),
        last_event_id: String::new(),
    }
}

fn decode_unsplit(input: &[u8]) -> Account {
    decode(LIMIT, [input])
}

fn data(input: &[u8]) -> Vec<String> {
    decode_unsplit(input).frames.into_iter().map(|frame| String::from_utf8_lossy(&frame.data).into_owned()).collect()
}

/// The data of the event that `finish` trusts at the end of `input`.
fn trusted_leftover(input: &[u8]) -> Option<String> {
    let mut decoder = Decoder::new(LIMIT);
    let mut rest = input;
    while decoder.decode(&mut rest).expect("within the limit").is_some() {}
    decoder.finish().frame().map(|frame| String::from_utf8_lossy(frame.data).into_owned())
}

#[test]
fn every_split_in_two_gives_the_same_frames() {
    for input in CORPUS {
        let expected = decode_unsplit(input);
        for at in 0..=input.len() {
            let (left, right) = input.split_at(at);
            assert_eq!(decode(LIMIT, [left, right]), expected, "{:?} cut at {at}", input.escape_ascii().to_string());
        }
    }
}

#[test]
fn single_bytes_and_empty_chunks_give_the_same_frames() {
    let joined = CORPUS.concat();

    for input in CORPUS.iter().copied().chain([joined.as_slice()]) {
        let expected = decode_unsplit(input);
        assert_eq!(decode(LIMIT, input.chunks(1)), expected);
        assert_eq!(decode(LIMIT, input.chunks(1).flat_map(|byte| [byte, b""])), expected);
    }
}

#[test]
fn lines_end_with_lf_crlf_or_cr() {
    assert_eq!(data(b"data: a\ndata: b\n\n"), ["a\nb"]);
    assert_eq!(data(b"data: a\r\ndata: b\r\n\r\n"), ["a\nb"]);
    assert_eq!(data(b"data: a\rdata: b\r\r"), ["a\nb"]);
    assert_eq!(data(b"data: a\r\n\rdata: b\n\r\ndata: c\r\r\n"), ["a", "b", "c"]);
}

#[test]
fn a_cr_ends_its_line_without_waiting_for_the_lf() {
    let mut decoder = Decoder::new(LIMIT);
    let mut first: &[u8] = b"data: now\r\n\r";
    assert_eq!(decoder.decode(&mut first).expect("small").map(|frame| frame.data), Some(&b"now"[..]));
    let mut second: &[u8] = b"\ndata: then\n\n";
    assert_eq!(decoder.decode(&mut second).expect("small").map(|frame| frame.data), Some(&b"then"[..]));
}

#[test]
fn the_examples_of_the_standard_are_decoded_as_specified() {
    assert_eq!(data(b"data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
    let stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n";
    assert_eq!(data(stream), ["first event", "second event"]);
    assert_eq!(data(b"data\n\ndata\ndata\n\ndata:\n"), ["", "\n"]);
    assert_eq!(data(b"data:test\n\ndata: test\n\n"), ["test", "test"]);
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    assert_eq!(data(CORPUS[5]), ["marked", "\u{feff}inside"]);
    assert_eq!(data(b"\xEF\xBB\xBF\ndata: x\n\n"), ["x"]);
}

#[test]
fn event_names_ids_and_retry_times_are_decoded() {
    let account = decode_unsplit(b"event: add\nid: 1\nretry: 250\ndata: x\n\nevent:\ndata: y\n\nid:\ndata: z\n\n");
    let [x, y, z] = account.frames.as_slice() else { panic!("{account:?}") };
    assert_eq!((x.event.as_deref(), x.id.as_deref()), (Some("add"), Some("1")));
    assert_eq!(x.retry, Some(Duration::from_millis(250)));
    assert_eq!((y.event.as_deref(), y.id.as_deref(), y.last_event_id.as_str()), (None, None, "1"));
    assert_eq!((z.id.as_deref(), z.last_event_id.as_str()), (Some(""), ""));
    assert_eq!(account.retry, Some(Duration::from_millis(250)));
}

#[test]
fn invalid_values_are_ignored() {
    let account = decode_unsplit(b"id: a\0b\nretry: +5\nretry: 1e3\nretry:\nevent: \xFF\nid: \xFF\ndata: x\n\n");
    assert_eq!(
        account.frames,
        [ReceivedEvent { event: None, id: None, retry: None, data: b"x".to_vec(), last_event_id: String::new() }]
    );
    assert_eq!(account.retry, None);
}

#[test]
fn comments_and_events_without_data_count_as_activity_but_are_not_frames() {
    let mut decoder = Decoder::new(LIMIT);
    let mut input: &[u8] = b": beat\n\n:\nevent: ping\nid: 4\nretry: 9\n\n";
    assert_eq!(decoder.decode(&mut input), Ok(None));
    assert_eq!((decoder.lines(), decoder.comments()), (7, 2));
    assert_eq!((decoder.last_event_id(), decoder.retry()), ("4", Some(Duration::from_millis(9))));
    assert_eq!(decoder.finish(), IncompleteEvent::Nothing);
}

#[test]
fn data_that_is_not_utf8_is_unchanged() {
    assert_eq!(decode_unsplit(b"data: \xFF\xFE\n\n").frames[0].data, b"\xFF\xFE");
}

#[test]
fn the_end_marker_is_recognized() {
    for (data, done) in [("[DONE]", true), (" [DONE] ", true), ("\"[DONE]\"", false), ("", false)] {
        assert_eq!(Frame { data: data.as_bytes(), ..Frame::default() }.is_done(), done, "{data:?}");
    }
}

#[test]
fn an_event_without_its_blank_line_is_trusted_if_its_lines_have_ended() {
    assert_eq!(trusted_leftover(b"data: a\n\ndata: last\n").as_deref(), Some("last"));
    assert_eq!(trusted_leftover(b"data: a\r\ndata: b\r\n").as_deref(), Some("a\nb"));
    assert_eq!(trusted_leftover(b"event: end\ndata: a\r: comm").as_deref(), Some("a"));
    assert_eq!(trusted_leftover(b"data: \xFF\n"), None, "not UTF-8");
    assert_eq!(trusted_leftover(b"data: a\n\n"), None);
    assert_eq!(trusted_leftover(b"event: end\n"), None, "no data");
    assert_eq!(trusted_leftover(b": comment"), None);
}

#[test]
fn an_event_truncated_in_a_line_is_trusted_only_if_it_is_a_complete_json_object() {
    assert_eq!(trusted_leftover(br#"data: {"status":"completed"}"#).as_deref(), Some(r#"{"status":"completed"}"#));
    assert_eq!(trusted_leftover(b"data: {\ndata: }").as_deref(), Some("{\n}"));
    assert_eq!(trusted_leftover(br#"data: {"status":"compl"#), None);
    assert_eq!(trusted_leftover(b"data: 12"), None, "perhaps 123");
    assert_eq!(trusted_leftover(b"data: half a sen"), None);
    assert_eq!(trusted_leftover(b"data: a\nda"), None);
    assert_eq!(trusted_leftover(b"da"), None);

    let deep = format!("data: {{\"a\":{}", "[".repeat(100_000));
    assert_eq!(trusted_leftover(deep.as_bytes()), None);
    let deep = format!("{deep}{}}}", "]".repeat(100_000));
    assert!(trusted_leftover(deep.as_bytes()).is_some());
}

#[test]
fn a_truncated_event_is_available() {
    let mut decoder = Decoder::new(LIMIT);
    let mut input: &[u8] = b"event: delta\ndata: hel";
    assert_eq!(decoder.decode(&mut input), Ok(None));
    let cut = Frame { event: Some("delta"), data: b"hel", ..Frame::default() };
    assert_eq!(decoder.finish(), IncompleteEvent::Truncated(cut));
    assert_eq!(decoder.finish(), IncompleteEvent::Nothing, "returned only once");
}

#[test]
fn a_frame_within_one_chunk_is_borrowed_from_it() {
    let mut decoder = Decoder::new(LIMIT);
    let chunk = b": beat\n\nevent: delta\ndata: {\"text\":\"hello\"}\n\ndata: more\r\n\r\n".as_slice();
    let mut input = chunk;
    for _ in 0..2 {
        let frame = decoder.decode(&mut input).expect("small").expect("two frames");
        assert!(chunk.as_ptr_range().contains(&frame.data.as_ptr()));
    }
    assert_eq!(decoder.memory(), 0);
}

#[test]
fn an_idle_decoder_uses_only_a_few_bytes() {
    let mut decoder = Decoder::new(LIMIT);
    assert_eq!(decoder.memory(), 0);

    let large = format!("id: 1\ndata: {}\n\n", "x".repeat(500_000));
    for mut chunk in large.as_bytes().chunks(1000) {
        while decoder.decode(&mut chunk).expect("within the limit").is_some() {}
        assert!(decoder.memory() <= LIMIT + 64);
    }
    assert!(decoder.memory() <= 64, "{}", decoder.memory());

    // Keep-alives without a blank line are not buffered, and neither are ignored fields.
    let mut comments: &[u8] = &b": beat\nunknown: field\n".repeat(100_000);
    assert_eq!(decoder.decode(&mut comments), Ok(None));
    assert!(decoder.memory() <= 64, "{}", decoder.memory());
}

#[test]
fn the_limit_applies_to_the_lines_of_an_event() {
    let too_large = Some(DecodeError::TooLarge { limit: 16 });
    for (input, error) in [
        (&b"data: 0123456789\n\n"[..], None),
        (b"data: 0123456789A\n\n", too_large),
        (b"data: 0123456789A", too_large),
        (b"data: 01\ndata: 23\n\n", None),
        (b"data: 01\ndata: 234\n\n", too_large),
        (b"event: 1\ndata: 23\n\n", None),
        (b"event: 12\ndata: 34\n\n", too_large),
        (b"data: 1\n: 345678\n: 345678\n\n", None),
        (b"data: 1\n: 345678901\n\n", too_large),
        (b"data: 0123456789\n\ndata: 0123456789\n\n", None),
        (b": 3456789012345678", too_large),
    ] {
        for size in 1..=input.len() {
            let account = decode(16, input.chunks(size));
            assert_eq!(account.error, error, "{:?} by {size}", input.escape_ascii().to_string());
        }
    }
}

#[test]
fn an_endless_line_uses_no_more_than_the_limit() {
    for begin in ["data: ", ": ", "event: ", "", "data: x\n\ndata: x\ndata: "] {
        let mut decoder = Decoder::new(64 * 1024);
        let mut input = begin.as_bytes();
        while decoder.decode(&mut input).expect("small").is_some() {}

        let chunk = [b'x'; 1000];
        let mut sent = 0;
        let error = loop {
            if let Err(error) = decoder.decode(&mut &chunk[..]) {
                break error;
            }
            sent += chunk.len();
            assert!(decoder.memory() <= 64 * 1024, "{}", decoder.memory());
        };

        assert!(sent <= 64 * 1024);
        assert_eq!(error.to_string(), "an event of the stream is larger than 65536 bytes");
        assert_eq!(decoder.memory(), 0, "freed");
        assert_eq!(decoder.finish(), IncompleteEvent::Nothing);
    }
}

#[test]
fn endless_data_lines_use_no_more_than_the_limit() {
    let mut decoder = Decoder::new(64 * 1024);
    let mut lines = 0;
    while decoder.decode(&mut &b"data: x\ndata\n"[..]).is_ok() {
        lines += 2;
        assert!(decoder.memory() <= 64 * 1024);
    }
    assert!(lines < 64 * 1024);
}

/// Decodes `input` with `eventsource-stream`: name, data and last id.
fn oracle(input: &str) -> Vec<(String, String, String)> {
    let events = stream::iter([Ok::<_, std::convert::Infallible>(input.to_owned())]).eventsource();
    let events = events.collect::<Vec<_>>().now_or_never().expect("nothing to wait for");
    events.into_iter().map(|event| event.expect("valid UTF-8")).map(|e| (e.event, e.data, e.id)).collect()
}

/// Lines of every kind, except for three cases that the oracle cannot handle: a byte order mark makes it panic, a CR at
/// the end makes it wait for a LF, and it accepts `retry: +5` (so retry times are not compared).
fn stream_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => prop::sample::select(vec!["\n", "\r", "\r\n", "\n\n", "\r\n\r\n"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec![
            "data: x", "data:", "data", "data:  two spaces", "data: a: b", "data: 早上", "event: add", "event:", "event",
            "id: 1", "id: é", "id", "id: a\0b", "retry: 10", "retry: x", ": beat", ":", "foo: bar", "foo", " data: x",
            "data : x", "datax", "dat",
        ]).prop_map(str::to_owned),
        1 => "[a-z:: é👍]{0,6}",
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat() + "\n")
}

proptest! {
    #[test]
    fn the_decoder_agrees_with_the_oracle(input in stream_text()) {
        let ours: Vec<_> = decode_unsplit(input.as_bytes()).frames.into_iter().map(|frame| {
            let name = frame.event.unwrap_or_else(|| "message".to_owned());
            let data = String::from_utf8(frame.data).expect("the input was UTF-8");
            (name, data, frame.last_event_id)
        }).collect();
        prop_assert_eq!(ours, oracle(&input));
    }

    #[test]
    fn any_split_gives_the_same_frames(
        input in prop_oneof![
            stream_text().prop_map(String::into_bytes),
            prop::sample::select(CORPUS).prop_map(<[u8]>::to_vec),
            prop::collection::vec(prop::sample::select(&b"\n\r: \xEF\xBB\xBFdataeventid0"[..]), 0..200),
        ],
        limit in prop_oneof![Just(LIMIT), 0..40usize],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();

        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&input[from..cut]);
            from = cut;
        }
        chunks.push(&input[from..]);

        let (split, unsplit) = (decode(limit, chunks), decode(limit, [input.as_slice()]));
        prop_assert_eq!(split, unsplit);
    }

    #[test]
    fn random_bytes_do_not_panic(input in prop::collection::vec(any::<u8>(), 0..400), size in 1..40usize) {
        prop_assert_eq!(decode(100, input.chunks(size)), decode(100, [input.as_slice()]));
    }
}
