//! Invariants of the frame writers: the bytes match the protocols, nothing breaks out of its frame, and the decoder
//! reads back what was written.

use std::{io, io::Write, time::Duration};

use bytes::BytesMut;
use interlingua_core::sse::{Decoder, encode, separators};
use proptest::prelude::*;
use serde_json::{json, value::RawValue};

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).expect("written from str")
}

/// Event name, id and data of every frame in `stream`.
fn read(stream: &str) -> Vec<(Option<String>, Option<String>, String)> {
    let mut decoder = Decoder::new(1 << 20);
    let mut input = stream.as_bytes();
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(&mut input).expect("within the limit") {
        let data = String::from_utf8(frame.data.to_vec()).expect("written from str");
        frames.push((frame.event.map(str::to_owned), frame.id.map(str::to_owned), data));
    }
    frames
}

#[test]
fn a_json_frame_is_one_line_of_data() {
    let value = json!({"text": "two\nlines"});
    let bare = written(|out| encode::json(out, None, None, &value).expect("plain JSON"));
    assert_eq!(bare, "data: {\"text\":\"two\\nlines\"}\n\n");
    let full = written(|out| encode::json(out, Some("delta"), Some("7"), &value).expect("plain JSON"));
    assert_eq!(full, format!("event: delta\nid: 7\n{bare}"));
}

#[test]
fn line_breaks_in_raw_json_become_spaces() {
    let raw = RawValue::from_string("{\r\n  \"a\": [1,\n2]\n}".to_owned()).expect("valid JSON");
    let frame = written(|out| encode::json(out, None, None, &raw).expect("plain JSON"));
    assert_eq!(frame, "data: {    \"a\": [1, 2] }\n\n");
}

#[test]
fn data_cannot_break_out_of_its_frame() {
    let frame = written(|out| {
        encode::frame(out, None, None, |data| data.write_all(b"a\n\nevent: forged\r\r\nb\n"))
            .expect("a buffer takes all");
    });
    assert_eq!(frame, "data: a\ndata: \ndata: event: forged\ndata: \ndata: b\ndata: \n\n");

    let forged = written(|out| encode::text(out, Some("x\ndata: y\n\n"), Some("1\r\n\0event: z"), "ok"));
    assert_eq!(forged, "event: xdata: y\nid: 1event: z\ndata: ok\n\n");
}

#[test]
fn a_reader_that_splits_at_unicode_separators_sees_no_forged_line() {
    for separator in ["\u{85}", "\u{2028}", "\u{2029}"] {
        let forged = format!("a{separator}{separator}event: forged{separator}b é“");
        let stream = written(|out| {
            encode::text(out, Some(&forged), Some(&forged), &forged);
            encode::frame(out, None, None, |data| data.write_all(forged.as_bytes())).expect("a buffer takes all");
            encode::comment(out, &forged);
            encode::json(out, None, None, &forged).expect("plain JSON");
        });

        let field = "aevent: forgedb é“";
        let data = "data: a\ndata: \ndata: event: forged\ndata: b é“\n\n";
        let quoted = serde_json::to_string(&forged).expect("plain JSON");
        let quoted =
            quoted.replace(separator, &format!("\\u{:04x}", u32::from(separator.chars().next().expect("one"))));
        let comment = ": a\n: \n: event: forged\n: b é“\n\n";
        assert_eq!(stream, format!("event: {field}\nid: {field}\n{data}{data}{comment}data: {quoted}\n\n"));
    }
}

#[test]
fn a_failed_frame_leaves_nothing_behind() {
    let mut out = BytesMut::from("data: before\n\n");
    let failed = encode::frame(&mut out, Some("x"), None, |data| {
        data.write_all(b"half")?;
        Err(io::Error::other("no more"))
    });
    assert_eq!(failed.map_err(|error| error.to_string()), Err("no more".to_owned()));

    let unserializable = std::collections::HashMap::from([((1, 2), 3)]);
    assert!(encode::json(&mut out, None, None, &unserializable).is_err());
    assert_eq!(&out[..], b"data: before\n\n");
}

#[test]
fn comments_and_retry_times_are_not_frames() {
    assert_eq!(written(|out| encode::comment(out, "")), ": \n\n");
    assert_eq!(written(|out| encode::comment(out, "still\nhere")), ": still\n: here\n\n");
    assert_eq!(written(|out| encode::retry(out, Duration::from_secs(3))), "retry: 3000\n\n");

    let quiet = written(|out| {
        encode::comment(out, "a\r\n\ndata: b");
        encode::retry(out, Duration::from_secs(3));
    });
    assert_eq!(read(&quiet), []);
}

proptest! {
    #[test]
    fn written_frames_are_read_back(
        event in prop::option::of("[^\n\r\0\u{85}\u{2028}\u{2029}]{1,8}"),
        id in prop::option::of("[^\n\r\0\u{85}\u{2028}\u{2029}]{0,8}"),
        text in "(a|é|:| |\n|\r|\r\n|data: |\u{feff}|\u{85}|\u{2028}|\u{2029}){0,12}",
    ) {
        let stream = written(|out| {
            encode::text(out, event.as_deref(), id.as_deref(), &text);
            encode::frame(out, event.as_deref(), id.as_deref(), |data| data.write_all(text.as_bytes()))
                .expect("a buffer takes all");
            encode::json(out, event.as_deref(), id.as_deref(), &text).expect("plain JSON");
        });

        let lines = text.replace("\r\n", "\n").replace(['\r', '\u{85}', '\u{2028}', '\u{2029}'], "\n");
        let quoted = separators::escape(serde_json::to_vec(&text).expect("plain JSON"));
        let quoted = String::from_utf8(quoted).expect("written from str");
        let expected = [lines.clone(), lines, quoted].map(|data| (event.clone(), id.clone(), data));
        prop_assert_eq!(read(&stream), expected);
    }
}
