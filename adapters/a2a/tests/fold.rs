//! A client that puts together what a stream said has what a poll shows, whatever the route's options.

mod support;

use interlingua_core::agent_api::Frame;
use interlingua_core::testkit::{self, Feature};
use interlingua_core::{Record, Reply};
use serde_json::{Value, json};
use support::{Ask, Host, about, user, with};

const TASK: &str = "/tasks/01930000-0000-7000-8000-000000000001";

/// The artifacts as a client has them that heard the stream so far.
fn heard(host: &Host, record: &Record) -> Vec<Value> {
    let answer = host.ask(&Ask::rest("POST", "/message:stream").body(&user("hi"))).streamed(record, about(record));
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
            (None, true) => panic!("more of an artifact that never began: {frame}"),
        }
    }
    artifacts
}

/// The artifacts as a poll shows them.
fn polled(host: &Host, record: &Record) -> Vec<Value> {
    let shown = testkit::Shown::known(record, about(record));
    let task = host.ask(&Ask::rest("GET", TASK)).answered(Reply::Run(shown.view())).json();
    task["artifacts"].as_array().cloned().unwrap_or_default()
}

/// Artifacts with texts that follow one another joined: a stream does not tell where one content ends. The end of an
/// artifact brings an empty text.
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

/// For messages that take turns in one artifact: a poll shows each of them whole, so the same letters in another order.
fn is_interleaved(heard: &[Value], polled: &[Value]) -> bool {
    let texts = |artifacts: &[Value]| -> Vec<String> {
        let parts = artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().cloned().unwrap_or_default());
        parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
    };
    let ids = |artifacts: &[Value]| -> Vec<Value> {
        artifacts.iter().map(|artifact| json!([artifact["artifactId"], artifact["name"]])).collect()
    };
    let letters = |texts: &[String]| {
        let mut letters: Vec<char> = texts.concat().chars().collect();
        letters.sort_unstable();
        letters
    };
    let (heard_texts, polled_texts) = (texts(heard), texts(polled));
    let all = heard_texts.concat();
    let within = |text: &String| {
        let mut rest = all.chars();
        text.chars().all(|letter| rest.any(|other| other == letter))
    };
    ids(heard) == ids(polled) && letters(&heard_texts) == letters(&polled_texts) && polled_texts.iter().all(within)
}

/// Texts said anew, in the second message of a turn too.
const ANEW: &str = r#"{"object":"message","status":"completed","id":"m1","type":"message","content":"First."}
{"object":"message","status":"completed","id":"t","type":"reasoning","content":"Hm."}
{"object":"content","index":0,"delta":true,"msg_id":"m2","text":"Searching"}
{"object":"content","index":0,"status":"in_progress","msg_id":"m2","text":"Found"}
{"object":"content","index":0,"delta":true,"msg_id":"m2","text":" it"}
{"object":"content","index":1,"status":"completed","msg_id":"m2","type":"image","image_url":"https://a/b.png"}
{"object":"message","status":"completed","id":"m2","type":"message","content":null}
{"object":"response","status":"completed","id":"r","output":null}"#;

/// Everything frames make of a run, from the first one on.
fn moments(frames: &str) -> Vec<Record> {
    let mut listener = testkit::Recorder::new(vec![interlingua_core::model::Message::user("hi")]);
    let mut moments = Vec::new();
    for frame in frames.lines() {
        listener.emit(&Frame::parse(frame.as_bytes()).expect("a frame").event());
        moments.push(listener.record().clone());
    }
    moments.push(listener.finish());
    moments
}

#[test]
fn what_a_stream_told_is_what_a_poll_shows_at_every_moment() {
    let scripts = testkit::scripts().into_iter().filter(|script| !script.is_large());
    let scripts = scripts.map(|script| (script.name, script.carries(Feature::Overlap), script.frames.join("\n")));
    let all: Vec<(&str, bool, Vec<Record>)> = scripts
        .chain([("anew", false, ANEW.to_owned())])
        .map(|(name, overlaps, frames)| (name, overlaps, moments(&frames)))
        .collect();
    for reasoning in ["status", "stream", "artifact", "drop"] {
        for artifacts in ["message", "turn"] {
            for last_chunk in [true, false] {
                let options = json!({ "reasoning": reasoning, "artifacts": artifacts, "last_chunk": last_chunk });
                let host = with(options.clone());
                for (name, overlaps, moments) in &all {
                    let takes_turns = artifacts == "turn" && *overlaps;
                    for (moment, record) in moments.iter().enumerate() {
                        let (heard, shown) = (joined(heard(&host, record)), polled(&host, record));
                        let interleaved = takes_turns && is_interleaved(&heard, &shown);
                        let polled = joined(shown);
                        let same = heard == polled || interleaved;
                        assert!(
                            same,
                            "{name}, after {moment} frames, {options}\nheard  {}\npolled {}",
                            Value::from(heard),
                            Value::from(polled)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn reasoning_is_an_artifact_of_its_own_where_the_answers_of_a_turn_are_one() {
    let host = with(json!({ "reasoning": "artifact", "artifacts": "turn" }));
    let record = testkit::script("reasoning_before").record();
    let names = |artifacts: Vec<Value>| -> Vec<Option<String>> {
        artifacts.iter().map(|artifact| artifact["name"].as_str().map(str::to_owned)).collect()
    };
    let wanted = [None, Some("reasoning".to_owned())];
    assert_eq!(names(heard(&host, &record)), wanted);
    assert_eq!(names(polled(&host, &record)), wanted);
}
