//! A small server of this protocol writes the scripts of the testkit as events; the connector reads the same content
//! back. Also whole answers.

use interlingua_core::model::{Body, MessageType, ToolCall};
use interlingua_core::{End, Record};
use interlingua_core_testkit::{self as testkit, Answer, Feature};
use serde_json::json;

use crate::support::{driven, events, lines, record, stream};

/// The features that this protocol carries without loss.
const CARRIED: &[Feature] = &[Feature::Text, Feature::Reasoning, Feature::ClientTool, Feature::Usage, Feature::Pending];

/// Something said: its sort, and the text or the call.
#[derive(Clone, Debug, PartialEq)]
enum Utterance {
    Text(&'static str, String),
    Call(ToolCall),
}

/// The content of a record, in order. There are no empty blocks.
fn said(record: &Record) -> Vec<Utterance> {
    let mut all: Vec<Utterance> = Vec::new();
    for message in record.run().messages.iter().map(|message| message.to_model()) {
        all.extend(message.calls().map(Utterance::Call));
        for content in &message.content {
            let sort = if message.kind == MessageType::Reasoning { "thinking" } else { "text" };
            match &content.body {
                Body::Text(text) if !text.is_empty() => all.push(Utterance::Text(sort, text.clone())),
                _ => {}
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
    let mut frames = vec![json!({ "type": "message_start", "message": { "id": "msg_1", "usage": {} } })];
    let mut has_calls = false;
    for (index, said) in said.iter().enumerate() {
        let (block, kind, field, text) = match said {
            Utterance::Text("thinking", text) => {
                (json!({ "type": "thinking", "thinking": "" }), "thinking_delta", "thinking", text)
            }
            Utterance::Text(_, text) => (json!({ "type": "text", "text": "" }), "text_delta", "text", text),
            Utterance::Call(call) => {
                has_calls = true;
                let block = json!({ "type": "tool_use", "id": call.call_id, "name": call.name, "input": {} });
                (block, "input_json_delta", "partial_json", &call.arguments)
            }
        };
        frames.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        for piece in halves(text) {
            let mut delta = json!({ "type": kind });
            delta[field] = piece.into();
            frames.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        frames.push(json!({ "type": "content_block_stop", "index": index }));
    }

    let usage: serde_json::Value = usage.map_or(json!({}), |usage| serde_json::from_str(usage).expect("JSON"));
    let reason = if has_calls { "tool_use" } else { "end_turn" };
    frames.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage }));
    frames.push(json!({ "type": "message_stop" }));
    let frames: Vec<String> = frames.iter().map(ToString::to_string).collect();
    stream(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn scripts_round_trip() {
    let mut tried = Vec::new();
    for script in testkit::scripts() {
        // Tools whose outputs come within the answer are the agent's own.
        let has_outputs = script.record().run().messages.iter().any(|message| message.kind.is_output());
        if script.end != End::Completed
            || has_outputs
            || !script.carries.iter().all(|feature| CARRIED.contains(feature))
        {
            continue;
        }
        let record = script.record();
        let usage = record.run().usage().map(|usage| usage.text().to_owned());
        let (read, _) = driven("{}", Answer::stream(&written(&said(&record), usage.as_deref())));

        assert_eq!(said(&read), said(&record), "{}", script.name);
        assert_eq!(read.run().end, Some(End::Completed), "{}", script.name);
        let ids = |record: &Record| record.run().pending().into_iter().map(|item| item.id).collect::<Vec<_>>();
        assert_eq!(ids(&read), ids(&record), "{}", script.name);
        tried.push(script.name);
    }
    for name in ["greeting", "reasoning_before", "client_tools_parallel", "unicode", "very_long"] {
        assert!(tried.contains(&name), "{name} is not among {tried:?}");
    }
}

#[test]
fn a_whole_message_is_read_where_a_stream_was_asked_for() {
    let body = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"text","text":"hi","citations":[{"type":"web_search_result_location","url":"https://a","title":"A","cited_text":"x"}]},
        {"type":"tool_use","id":"a","name":"f","input":{"x":1}}],
        "stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":5}}"#;
    let whole = lines(&driven("{}", Answer::body(body)));
    insta::assert_snapshot!(whole);
    assert_eq!(lines(&driven("{}", Answer::body(&format!("\u{feff}\n{body}")))), whole);
    assert_eq!(lines(&driven("{}", Answer::body(&body.replace(r#""type":"message","#, "")))), whole);
    let as_frame = format!("data: {}\n\n", body.replace('\n', " "));
    assert_eq!(lines(&driven("{}", Answer::stream(&as_frame))), whole);
}

#[test]
fn an_open_block_is_incomplete_if_the_answer_is() {
    let record = record(&["start", "0 text", "0 + a", "1 tool c f", "1 > {", "end max_tokens", "stop"]);
    let ends: Vec<Option<End>> = record.run().messages.iter().map(|message| message.end).collect();
    assert_eq!(ends, [Some(End::Completed), Some(End::Incomplete)]);
    assert_eq!(record.run().end, Some(End::Incomplete));
    assert_eq!(record.run().error().map(|error| error.code.as_str()), Some("max_output_tokens"));
}

#[test]
fn a_stream_under_the_type_of_json_is_read() {
    let text = events(&["start", "0 text", "0 + a", "0 .", "end end_turn", "stop"]);
    assert_eq!(lines(&driven("{}", Answer::body(&text))), lines(&driven("{}", Answer::stream(&text))));
}
