//! The scripts of the testkit, written as chunks by a small server of this protocol, are read back as they were.

mod support;

use interlingua_core::model::{Body, MessageType, ToolCall};
use interlingua_core::{End, Record};
use interlingua_core_testkit::{self as testkit, Answer, Feature};
use serde_json::json;
use support::{chunk, driven, stream};

/// The features that this protocol carries without loss.
const CARRIED: &[Feature] =
    &[Feature::Text, Feature::Reasoning, Feature::ClientTool, Feature::Refusal, Feature::Usage, Feature::Pending];

/// Something said: its sort, and the text or the call.
#[derive(Clone, Debug, PartialEq)]
enum Utterance {
    Text(&'static str, String),
    Call(ToolCall),
}

/// The content of a record, in order. This protocol does not separate two texts of one kind.
fn said(record: &Record) -> Vec<Utterance> {
    let mut all: Vec<Utterance> = Vec::new();
    for message in record.run().messages.iter().map(|message| message.to_model()) {
        all.extend(message.calls().map(Utterance::Call));
        for content in &message.content {
            let (sort, text) = match &content.body {
                Body::Text(text) if message.kind == MessageType::Reasoning => ("reasoning_content", text),
                Body::Text(text) => ("content", text),
                Body::Refusal(text) => ("refusal", text),
                _ => continue,
            };
            match all.last_mut() {
                Some(Utterance::Text(last, before)) if *last == sort => before.push_str(text),
                _ if text.is_empty() => {}
                _ => all.push(Utterance::Text(sort, text.clone())),
            }
        }
    }
    all
}

/// The same as a server of this protocol streams it.
fn written(said: &[Utterance], usage: Option<&str>) -> String {
    let halves = |text: &str| {
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        [text[..middle].to_owned(), text[middle..].to_owned()]
    };
    let mut frames = vec![chunk(r#""role":"assistant","content":"","refusal":null"#, "")];
    let mut index = 0;
    for said in said {
        match said {
            Utterance::Text(field, text) => {
                frames.extend(halves(text).map(|piece| chunk(&format!(r#""{field}":{}"#, json!(piece)), "")));
            }
            Utterance::Call(call) => {
                let head = json!([{ "index": index, "id": call.call_id, "type": "function", "function": { "name": call.name, "arguments": "" } }]);
                frames.push(chunk(&format!(r#""tool_calls":{head}"#), ""));
                for piece in halves(&call.arguments) {
                    let more = json!([{ "index": index, "function": { "arguments": piece } }]);
                    frames.push(chunk(&format!(r#""tool_calls":{more}"#), ""));
                }
                index += 1;
            }
        }
    }

    frames.push(chunk("", if index > 0 { "tool_calls" } else { "stop" }));
    frames.extend(usage.map(|usage| {
        let usage = usage.replace("input_tokens", "prompt_tokens").replace("output_tokens", "completion_tokens");
        format!(r#"{{"id":"c1","choices":[],"usage":{usage}}}"#)
    }));
    frames.push("[DONE]".to_owned());
    stream(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn scripts_round_trip() {
    let mut tried = Vec::new();
    for script in testkit::scripts() {
        // Tools whose outputs come within the answer are the agent's own: servers of this protocol have none.
        let has_outputs = script.record().run().messages.iter().any(|message| message.kind.is_output());
        if script.end != End::Completed
            || has_outputs
            || !script.carries.iter().all(|feature| CARRIED.contains(feature))
        {
            continue;
        }
        let record = script.record();
        let usage = record.run().usage().map(|usage| usage.text().to_owned());
        let read = driven("{}", Answer::stream(&written(&said(&record), usage.as_deref()))).record;

        assert_eq!(said(&read), said(&record), "{}", script.name);
        assert_eq!(read.run().end, Some(End::Completed), "{}", script.name);
        assert_eq!(read.run().usage().map(|usage| usage.text().to_owned()), usage, "{}", script.name);
        let ids = |record: &Record| record.run().pending().into_iter().map(|item| item.id).collect::<Vec<_>>();
        assert_eq!(ids(&read), ids(&record), "{}", script.name);
        tried.push(script.name);
    }
    for name in ["greeting", "reasoning_before", "client_tools_parallel", "refusal", "usage", "unicode", "very_long"] {
        assert!(tried.contains(&name), "{name} is not among {tried:?}");
    }
}
