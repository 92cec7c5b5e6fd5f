//! The records of all recorded streams (docs/protocols/agent-api.md#lifecycle, docs/protocols/agent-api.md#examples):
//! one snapshot each, and two properties.

use std::collections::BTreeMap;

use interlingua_core_testkit::{grammar, laws, record as recorded, render, transcripts};
use serde_json::Value;

/// The data of a stream's frames.
fn frames(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).expect("recorded streams are UTF-8");
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

#[test]
fn every_recorded_stream_is_normalized() {
    for (name, bytes) in transcripts() {
        let record = recorded([*bytes]);
        assert_eq!(grammar(&record), Ok(()), "{name}");
        insta::assert_snapshot!(*name, render(&record));
    }
}

/// Compares the text of each message with its fragments, or with the completed message if that has a text.
#[test]
fn nothing_that_was_recorded_is_lost_or_emitted_twice() {
    for (name, bytes) in transcripts() {
        let mut sent: BTreeMap<String, String> = BTreeMap::new();

        for frame in frames(bytes) {
            let text = frame["text"].as_str().unwrap_or("");
            match (frame["object"].as_str(), frame["status"].as_str()) {
                (Some("content"), Some("in_progress")) => {
                    let id = frame["msg_id"].as_str().expect("the runtime names the message").to_owned();
                    let sent = sent.entry(id).or_default();
                    if frame["delta"] != true {
                        sent.clear();
                    }
                    sent.push_str(text);
                }
                (Some("message"), Some("completed")) => {
                    let texts =
                        frame["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
                    let texts: String = texts.collect();
                    if !texts.is_empty() {
                        sent.insert(frame["id"].as_str().expect("messages have ids").to_owned(), texts);
                    }
                }
                _ => {}
            }
        }
        sent.retain(|_, text| !text.is_empty());

        let record = recorded([*bytes]);
        let emitted = record.run().messages.iter().map(|message| (message.id.clone(), message.text()));
        let emitted: BTreeMap<String, String> = emitted.filter(|(_, text)| !text.is_empty()).collect();
        assert_eq!(emitted, sent, "{name}");
    }
}

#[test]
fn the_record_does_not_depend_on_how_a_stream_is_split() {
    for (name, bytes) in transcripts() {
        if bytes.len() < 3_000 {
            laws::cut_anywhere(bytes, |pieces| render(&recorded(pieces.iter().copied())));
        } else {
            let pieces = laws::random_pieces(bytes, 7);
            assert_eq!(recorded(pieces), recorded([*bytes]), "{name}");
        }
    }
}
