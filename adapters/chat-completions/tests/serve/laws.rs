//! Properties that hold for every answer, checked with the scripts of the test kit and with random agents.

use interlingua_core::Record;
use interlingua_core_testkit::{self as testkit, laws, wild};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::strict;
use crate::support::{SentRequest, route, transcript};

/// Options that change the output.
const OPTIONS: &[&str] = &[
    "{}",
    r#"{"tool_items":"text","reasoning":"both","inline_images":"markdown"}"#,
    r#"{"tool_items":"reasoning","reasoning":"reasoning","data":"hide","inline_images":"drop"}"#,
    r#"{"reasoning":"hide","separator":"","approvals":"tool"}"#,
    r#"{"approvals":"refuse"}"#,
];

/// A request that declares what the scripts' agents call.
fn request(stream: bool, deprecated: bool) -> String {
    let functions = json!([{ "name": "get_weather" }, { "name": "get_time" }]);
    let tools = json!([
        { "type": "function", "function": { "name": "get_weather" } },
        { "type": "custom", "custom": { "name": "get_time" } },
    ]);
    let mut body = json!({
        "model": "demo", "messages": [{ "role": "user", "content": "hi" }], "stream": stream,
        "stream_options": { "include_usage": true }, "modalities": ["text", "audio"],
    });
    if deprecated {
        body["functions"] = functions
    } else {
        body["tools"] = tools
    }
    body.to_string()
}

fn send(options: &str, stream: bool, deprecated: bool) -> SentRequest {
    route(options).create(&request(stream, deprecated))
}

/// Checks every property for one record.
fn check(options: &str, deprecated: bool, record: &Record) -> Result<(), TestCaseError> {
    let streamed = send(options, true, deprecated).stream(record);
    let whole = send(options, false, deprecated).whole(record);
    let read = strict::read(&streamed.body);
    if whole.status != 200 {
        prop_assert_eq!(&whole.json()["error"], &read.error);
        return Ok(());
    }

    // Streaming and waiting give the same answer.
    let whole = whole.json();
    let choice = &whole["choices"][0];
    prop_assert_eq!(&choice["message"], &Value::Object(read.message));
    prop_assert_eq!(&choice["finish_reason"], &json!(read.finish_reason));
    prop_assert_eq!(&whole["usage"], &read.usage);
    Ok(())
}

#[test]
fn every_script_becomes_its_golden_transcript() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let chunks = transcript(&send("{}", true, false).stream(&script.record()).body);
        insta::with_settings!({ description => script.description, omit_expression => true }, {
            insta::assert_snapshot!(format!("script_{}", script.name), chunks);
        });
    }
}

#[test]
fn every_script_has_the_properties_with_all_options() {
    for script in testkit::scripts() {
        for options in OPTIONS {
            for deprecated in [false, true] {
                check(options, deprecated, &script.record())
                    .unwrap_or_else(|error| panic!("{} with {options}: {error}", script.name));
            }
        }
    }
}

#[test]
fn a_live_stream_equals_its_replay() {
    for options in OPTIONS {
        laws::replays_equal_live(|| send(options, true, false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_agent_gives_a_well_formed_answer(record in wild::records(), dialect in 0..OPTIONS.len(), old: bool) {
        check(OPTIONS[dialect], old, &record)?;
    }

    /// Every body is accepted or refused with an error, and never panics.
    #[test]
    fn no_body_causes_a_panic(body in body()) {
        let mut sent = route("{}").create(&body);
        if sent.outcome.is_err() {
            let reply = sent.fail(None);
            prop_assert!((400..500).contains(&reply.status), "{}", reply.line());
            let error = &reply.json()["error"];
            let keys: Vec<&str> = error.as_object().expect("an object").keys().map(String::as_str).collect();
            prop_assert_eq!(keys, ["code", "message", "param", "type"]);
        }
    }
}

/// Names of fields, and values that mean something.
const NAMES: &[&str] = &[
    "type",
    "role",
    "content",
    "text",
    "tool_call_id",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "image_url",
    "url",
    "file",
    "input_audio",
    "function_call",
    "reasoning_details",
    "custom",
    "json_schema",
];
const WORDS: &[&str] = &["function", "image_url", "text", "assistant", "user", "tool"];

/// Requests with a random value in a known field.
fn body() -> impl Strategy<Value = String> {
    let fields = [
        "messages",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "response_format",
        "metadata",
        "stop",
        "modalities",
        "stream_options",
        "n",
        "logit_bias",
        "user",
    ];
    (prop::sample::select(fields.to_vec()), wild::json_values(NAMES, WORDS)).prop_map(|(field, value)| {
        let mut body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "hi" }] });
        body[field] = value;
        body.to_string()
    })
}
