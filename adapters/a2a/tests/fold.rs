//! A client that assembles a stream gets the same artifacts as a poll, for all route options.

mod support;

use interlingua_core::agent_api::Frame;
use interlingua_core::{Record, Reply};
use interlingua_core_testkit::{self as testkit, Feature};
use serde_json::{Value, json};
use support::{ClientRequest, Host, about, user, with};

const TASK: &str = "/tasks/01930000-0000-7000-8000-000000000001";

/// The artifacts that a client has assembled from the stream so far.
fn streamed(host: &Host, record: &Record) -> Vec<Value> {
    let answer =
        host.send(&ClientRequest::rest("POST", "/message:stream").body(&user("hi"))).streamed(record, about(record));
    let mut artifacts: Vec<Value> = Vec::new();
    for frame in answer.frames() {
        let Some(update) = frame.get("artifactUpdate") else { continue };

        let artifact = &update["artifact"];
        let known = artifacts.iter_mut().find(|known| known["artifactId"] == artifact["artifactId"]);
        match (known, update["append"] == true) {
            (Some(known), true) => {
                let more = artifact["parts"].as_array().expect("parts").clone();
                known["parts"].as_array_mut().expect("parts").extend(more);
            }
            (Some(known), false) => *known = artifact.clone(),
            (None, false) => artifacts.push(artifact.clone()),
            (None, true) => panic!("a chunk of an artifact that never started: {frame}"),
        }
    }
    artifacts
}

/// The artifacts that a poll returns.
fn polled(host: &Host, record: &Record) -> Vec<Value> {
    let shown = testkit::TestRun::with_info(record, about(record));
    let task = host.send(&ClientRequest::rest("GET", TASK)).final_answer(Reply::Run(shown.view())).json();
    task["artifacts"].as_array().cloned().unwrap_or_default()
}

/// Joins consecutive texts of artifacts: a stream does not show where a content ends. The end of an artifact is an
/// empty text.
fn joined(artifacts: Vec<Value>) -> Vec<Value> {
    let join = |mut artifact: Value| {
        let mut parts: Vec<Value> = Vec::new();
        for part in artifact["parts"].as_array().expect("parts") {
            let Some(text) = part["text"].as_str() else {
                parts.push(part.clone());
                continue;
            };
            match parts.last_mut() {
                _ if text.is_empty() => {}
                Some(last) if last["text"].is_string() && last["metadata"] == part["metadata"] => {
                    last["text"] = (last["text"].as_str().unwrap_or_default().to_owned() + text).into();
                }
                _ => parts.push(part.clone()),
            }
        }

        artifact["parts"] = parts.into();
        artifact
    };
    artifacts.into_iter().map(join).collect()
}

/// For messages that interleave in one artifact: a poll returns each one complete, so the same characters in another
/// order.
fn is_interleaved(streamed: &[Value], polled: &[Value]) -> bool {
    let texts = |artifacts: &[Value]| -> Vec<String> {
        let parts = artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().cloned().unwrap_or_default());
        parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
    };
    let ids = |artifacts: &[Value]| -> Vec<Value> {
        artifacts.iter().map(|artifact| json!([artifact["artifactId"], artifact["name"]])).collect()
    };

    let characters = |texts: &[String]| {
        let mut characters: Vec<char> = texts.concat().chars().collect();
        characters.sort_unstable();
        characters
    };
    let (streamed_texts, polled_texts) = (texts(streamed), texts(polled));
    let all = streamed_texts.concat();

    let within = |text: &String| {
        let mut rest = all.chars();
        text.chars().all(|character| rest.any(|other| other == character))
    };
    ids(streamed) == ids(polled)
        && characters(&streamed_texts) == characters(&polled_texts)
        && polled_texts.iter().all(within)
}

/// Replaced texts, also in the second message of a turn.
const REPLACED: &str = r#"{"object":"message","status":"completed","id":"m1","type":"message","content":"First."}
{"object":"message","status":"completed","id":"t","type":"reasoning","content":"Hm."}
{"object":"content","index":0,"delta":true,"msg_id":"m2","text":"Searching"}
{"object":"content","index":0,"status":"in_progress","msg_id":"m2","text":"Found"}
{"object":"content","index":0,"delta":true,"msg_id":"m2","text":" it"}
{"object":"content","index":1,"status":"completed","msg_id":"m2","type":"image","image_url":"https://a/b.png"}
{"object":"message","status":"completed","id":"m2","type":"message","content":null}
{"object":"response","status":"completed","id":"r","output":null}"#;

/// The record after each frame.
fn records(frames: &str) -> Vec<Record> {
    let mut recorder = testkit::Recorder::new(vec![interlingua_core::model::Message::user("hi")]);

    let mut records = Vec::new();
    for frame in frames.lines() {
        recorder.emit(&Frame::parse(frame.as_bytes()).expect("a frame").event());
        records.push(recorder.record().clone());
    }
    records.push(recorder.finish());
    records
}

#[test]
fn a_stream_and_a_poll_agree_after_every_frame() {
    let scripts = testkit::scripts().into_iter().filter(|script| !script.is_large());
    let scripts = scripts.map(|script| (script.name, script.carries(Feature::Overlap), script.frames.join("\n")));
    let all: Vec<(&str, bool, Vec<Record>)> = scripts
        .chain([("replaced", false, REPLACED.to_owned())])
        .map(|(name, overlaps, frames)| (name, overlaps, records(&frames)))
        .collect();
    for reasoning in ["status", "stream", "artifact", "drop"] {
        for artifacts in ["message", "turn"] {
            for last_chunk in [true, false] {
                let options = json!({ "reasoning": reasoning, "artifacts": artifacts, "last_chunk": last_chunk });
                let host = with(options.clone());
                for (name, overlaps, records) in &all {
                    let takes_turns = artifacts == "turn" && *overlaps;
                    for (moment, record) in records.iter().enumerate() {
                        let (streamed, shown) = (joined(streamed(&host, record)), polled(&host, record));
                        let interleaved = takes_turns && is_interleaved(&streamed, &shown);
                        let polled = joined(shown);
                        let same = streamed == polled || interleaved;
                        assert!(
                            same,
                            "{name}, after {moment} frames, {options}\nheard  {}\npolled {}",
                            Value::from(streamed),
                            Value::from(polled)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn reasoning_is_a_separate_artifact_with_one_artifact_per_turn() {
    let host = with(json!({ "reasoning": "artifact", "artifacts": "turn" }));
    let record = testkit::script("reasoning_before").record();

    let names = |artifacts: Vec<Value>| -> Vec<Option<String>> {
        artifacts.iter().map(|artifact| artifact["name"].as_str().map(str::to_owned)).collect()
    };

    let expected = [None, Some("reasoning".to_owned())];
    assert_eq!(names(streamed(&host, &record)), expected);
    assert_eq!(names(polled(&host, &record)), expected);
}
