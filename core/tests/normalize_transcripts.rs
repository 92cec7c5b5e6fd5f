//! Every recorded stream of the real runtime, as it is told (Agent API, sections 5 and 14): one snapshot each, and two
//! checks that need no snapshot.

use std::collections::BTreeMap;

use interlingua_core::testkit::{grammar, laws, record as recorded, tale, transcripts};
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
fn every_recorded_stream_is_told_well() {
    for (name, bytes) in transcripts() {
        let record = recorded([*bytes]);
        assert_eq!(grammar(&record), Ok(()), "{name}");
        insta::assert_snapshot!(*name, tale(&record));
    }
}

/// Of each message and type: what the fragments say, or what the message says in the end.
#[test]
fn nothing_that_was_recorded_is_lost_or_told_twice() {
    for (name, bytes) in transcripts() {
        let mut said: BTreeMap<String, String> = BTreeMap::new();
        for frame in frames(bytes) {
            let text = frame["text"].as_str().unwrap_or("");
            match (frame["object"].as_str(), frame["status"].as_str()) {
                (Some("content"), Some("in_progress")) => {
                    let id = frame["msg_id"].as_str().expect("the runtime names the message").to_owned();
                    let said = said.entry(id).or_default();
                    if frame["delta"] != true {
                        said.clear();
                    }
                    said.push_str(text);
                }
                (Some("message"), Some("completed")) => {
                    let texts =
                        frame["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
                    let texts: String = texts.collect();
                    if !texts.is_empty() {
                        said.insert(frame["id"].as_str().expect("messages have ids").to_owned(), texts);
                    }
                }
                _ => {}
            }
        }
        said.retain(|_, text| !text.is_empty());
        let record = recorded([*bytes]);
        let told = record.run().messages.iter().map(|message| (message.id.clone(), message.text()));
        let told: BTreeMap<String, String> = told.filter(|(_, text)| !text.is_empty()).collect();
        assert_eq!(told, said, "{name}");
    }
}

#[test]
fn every_cut_of_a_recorded_stream_tells_the_same() {
    for (name, bytes) in transcripts() {
        if bytes.len() < 3_000 {
            laws::cut_anywhere(bytes, |pieces| tale(&recorded(pieces.iter().copied())));
        } else {
            let cut = laws::randomly(bytes, 7);
            assert_eq!(recorded(cut), recorded([*bytes]), "{name}");
        }
    }
}
