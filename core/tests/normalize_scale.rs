//! The time is linear in the input, whatever an upstream sends: an input that is four times as large may take up to ten
//! times as long. Quadratic code would take sixteen times as long.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use interlingua_core::agent_api::Frame;
use interlingua_core::run::Record;
use interlingua_core_testkit::{Recorder, grammar, started};

/// More than any input here needs, in bytes.
const MAX_RECORD_BYTES: usize = 4 << 30;

fn timed(frames: &[String]) -> (Record, Duration) {
    let mut recorder = Recorder::with_limit(started(), MAX_RECORD_BYTES);
    let start = Instant::now();
    for frame in frames {
        recorder.emit(&Frame::parse(frame.as_bytes()).expect("an object").event());
    }

    let record = recorder.finish();
    (record, start.elapsed())
}

/// Normalizes `input(n)` and `input(4 * n)`; returns the larger record.
fn linear(what: &str, n: usize, input: impl Fn(usize) -> Vec<String>) -> Record {
    let (small, large) = (input(n), input(4 * n));

    // Other processes can slow down a measurement, so the best of five counts.
    let mut ratios = Vec::new();
    loop {
        let (_, once) = timed(&small);
        let (record, four_times) = timed(&large);

        let ratio = four_times.as_secs_f64() / once.as_secs_f64().max(1e-4);
        if ratio < 10.0 {
            assert_eq!(grammar(&record), Ok(()), "{what}");
            return record;
        }
        ratios.push(ratio);
        assert!(ratios.len() < 5, "{what}: four times the input takes {ratios:.1?} times as long");
    }
}

fn response(status: &str, output: &str) -> String {
    format!(r#"{{"object":"response","status":"{status}","id":"r","output":[{output}]}}"#)
}

fn joined(n: usize, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(",")
}

#[test]
fn a_million_tiny_fragments() {
    let record = linear("fragments", 250_000, |n| {
        (0..n).map(|_| r#"{"object":"content","msg_id":"m","delta":true,"text":"a"}"#.to_owned()).collect()
    });
    assert_eq!(record.run().messages[0].text().len(), 1_000_000);
}

#[test]
fn a_hundred_thousand_messages() {
    let message = |number: usize| {
        format!(
            r#"{{"object":"message","id":"m{number}","status":"completed","type":"message","content":"x{number}"}}"#
        )
    };
    let record = linear("messages", 25_000, |n| {
        let mut frames: Vec<String> = (0..n).map(message).collect();
        frames.push(response("completed", &joined(n, message)));
        frames
    });
    assert_eq!(record.run().messages.len(), 100_000);
}

#[test]
fn a_hundred_thousand_messages_of_one_id_or_none() {
    for id in [r#""id":"m","#, ""] {
        let record = linear("messages of one id", 25_000, |n| {
            let begin = format!(r#"{{"object":"message",{id}"status":"in_progress","type":"message"}}"#);
            let end = format!(r#"{{"object":"message",{id}"status":"completed","type":"message","content":"x"}}"#);
            (0..n).flat_map(|_| [begin.clone(), end.clone()]).collect()
        });
        assert_eq!(record.run().messages.len(), 100_000);
    }
}

#[test]
fn a_hundred_thousand_open_messages() {
    let record = linear("messages at once", 25_000, |n| {
        let fragment =
            |number: usize| format!(r#"{{"object":"content","msg_id":"m{number}","delta":true,"index":0,"text":"x"}}"#);
        (0..n).chain(0..n).map(fragment).collect()
    });
    assert_eq!(record.run().messages.len(), 100_000);
}

#[test]
fn a_hundred_thousand_contents_in_one_message() {
    let text = |index: usize| format!(r#"{{"type":"text","index":{index},"text":"x"}}"#);
    let end = |contents: &str| {
        format!(r#"{{"object":"message","id":"m","status":"completed","type":"message","content":[{contents}]}}"#)
    };
    let record = linear("contents, one after the other", 25_000, |n| {
        let fragment =
            |index: usize| format!(r#"{{"object":"content","msg_id":"m","delta":true,"index":{index},"text":"x"}}"#);
        (0..n).map(fragment).chain([end(&joined(n, text))]).collect()
    });
    assert_eq!(record.run().messages[0].slots.len(), 100_000);

    let record = linear("contents without an index", 25_000, |n| {
        let images = joined(n, |number| format!(r#"{{"type":"image","image_url":"{number}"}}"#));
        vec![end(&images)]
    });
    assert_eq!(record.run().messages[0].slots.len(), 100_000);

    let record = linear("contents of one index, backwards", 25_000, |n| {
        vec![end(&joined(n, |number| format!(r#"{{"type":"text","index":{},"text":"x"}}"#, (n - number) / 2)))]
    });
    assert_eq!(record.run().messages[0].slots.len(), 100_000);
}

#[test]
fn a_hundred_thousand_waiting_contents() {
    for open_content in [
        r#"{"object":"content","msg_id":"m","index":0,"data":{"call_id":"c","name":"f","arguments":""}}"#,
        r#"{"object":"content","msg_id":"m","index":0,"delta":true,"text":"open"}"#,
    ] {
        for waiting in [r#""delta":true,"text":"x""#, r#""data":{"a":1}"#] {
            linear("waiting contents", 25_000, |n| {
                let content =
                    |index: usize| format!(r#"{{"object":"content","msg_id":"m","index":{},{waiting}}}"#, index + 1);
                let mut frames = vec![r#"{"object":"message","id":"m","type":"plugin_call"}"#.to_owned()];
                frames.push(open_content.to_owned());
                frames.extend((0..n).map(content));
                frames
            });
        }
    }
}

#[test]
fn a_text_in_a_hundred_thousand_growing_snapshots() {
    let record = linear("pieces", 10_000, |n| {
        let pieces = (0..n).flat_map(|_| {
            [
                r#"{"object":"content","msg_id":"m","delta":true,"index":0,"text":"x"}"#.to_owned(),
                r#"{"object":"content","msg_id":"m","delta":true,"index":1,"refusal":"y"}"#.to_owned(),
                r#"{"object":"content","msg_id":"m","index":0,"text":"z"}"#.to_owned(),
            ]
        });
        pieces.collect()
    });
    assert_eq!(record.run().messages[0].slots.len(), 80_000);
}

#[test]
fn data_in_a_hundred_thousand_fragments() {
    for data in
        [r#"{"s":"x"}"#, r#"{"l":[1]}"#, r#"{"k#":1}"#, r#"{"call_id":"c","name":"f","arguments":"x","odd":"y"}"#]
    {
        linear("fragments of data", 25_000, |n| {
            let fragment = |number: usize| {
                let data = data.replace('#', &number.to_string());
                format!(r#"{{"object":"content","msg_id":"m","delta":true,"index":0,"data":{data}}}"#)
            };
            (0..n).map(fragment).collect()
        });
    }
}

#[test]
fn an_output_of_a_hundred_thousand_new_messages() {
    let numbered = |number: usize| {
        format!(r#"{{"object":"message","id":"m{number}","status":"completed","type":"message","content":"{number}"}}"#)
    };

    // All contents different, all equal, and data instead of texts.
    let contents = [r#""x#""#, r#""x""#, r#"[{"type":"data","data":{"a":#}}]"#];
    for content in contents {
        let record = linear("an output of new messages", 12_500, |n| {
            let unknown = |number: usize| {
                format!(r#"{{"id":"z{number}","content":{}}}"#, content.replace('#', &number.to_string()))
            };
            let mut frames: Vec<String> = (0..n).map(numbered).collect();
            frames.push(response("completed", &joined(n, unknown)));
            frames
        });
        assert_eq!(record.run().messages.len(), 100_000, "{content}");
    }

    let record = linear("an output under other ids", 25_000, |n| {
        let mut frames: Vec<String> = (0..n).map(numbered).collect();
        frames.push(response("completed", &joined(n, |number| numbered(number).replace(r#""id":"m"#, r#""id":"z"#))));
        frames
    });
    assert_eq!(record.run().messages.len(), 100_000);
}

#[test]
fn other_responses_that_end_repeatedly() {
    linear("other responses", 5_000, |n| {
        let frames = (0..n).flat_map(|number| {
            [
                format!(r#"{{"object":"content","msg_id":"m{number}","delta":true,"text":"x"}}"#),
                format!(
                    r#"{{"object":"response","id":"other","status":"completed","output":[{{"id":"z{number}","content":"{number}"}}]}}"#
                ),
            ]
        });
        [r#"{"object":"response","id":"r","status":"created"}"#.to_owned()].into_iter().chain(frames).collect()
    });
}

#[test]
fn very_many_unknown_fields() {
    linear("fields in one frame", 25_000, |n| {
        let mut fields = String::new();
        for number in 0..n {
            let _ = write!(fields, r#","x{number}":1"#);
        }
        vec![
            format!(r#"{{"object":"response","id":"r","status":"in_progress"{fields}}}"#),
            format!(r#"{{"object":"message","id":"m","status":"in_progress"{fields}}}"#),
            format!(r#"{{"object":"content","msg_id":"m","delta":true,"text":"x"{fields}}}"#),
            format!(r#"{{"object":"message","id":"m","status":"completed"{fields}}}"#),
        ]
    });

    linear("fields in many frames", 25_000, |n| {
        let frame = |number: usize| format!(r#"{{"object":"response","id":"r","status":"in_progress","x{number}":1}}"#);
        (0..n).map(frame).collect()
    });

    linear("fields that are kept while more arrives", 25_000, |n| {
        let mut fields = String::new();
        for number in 0..n {
            let _ = write!(fields, r#","x{number}":1"#);
        }
        let first = format!(r#"{{"object":"content","msg_id":"m","data":{{"a":1}}{fields}}}"#);
        let next = r#"{"object":"content","msg_id":"m","data":null}"#.to_owned();
        [first].into_iter().chain(std::iter::repeat_n(next, n)).collect()
    });
}
