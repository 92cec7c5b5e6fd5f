//! Properties that hold for every answer, checked with the scripts of the test kit and with random agents.

use interlingua_core::Record;
use interlingua_core_testkit::{self as testkit, laws, wild};
use proptest::prelude::*;
use serde_json::json;

use crate::strict;
use crate::support::{SentRequest, route, transcript};

/// Options that change the output.
const OPTIONS: &[&str] = &[
    "{}",
    r#"{"tool_items":"text","reasoning":"always","inline_images":"markdown"}"#,
    r#"{"tool_items":"hide","reasoning":"hide","data":"hide","citations":"off"}"#,
    r#"{"approvals":"tool"}"#,
    r#"{"approvals":"refuse"}"#,
];

/// A request that declares what the scripts' agents call.
fn request(stream: bool) -> String {
    json!({
        "model": "demo", "max_tokens": 100, "stream": stream,
        "messages": [{ "role": "user", "content": "hi" }],
        "thinking": { "type": "enabled", "budget_tokens": 1024 },
        "tools": [
            { "name": "get_weather", "input_schema": { "type": "object" } },
            { "name": "get_location", "input_schema": { "type": "object" } },
            { "name": "send_mail", "input_schema": { "type": "object" } },
        ],
    })
    .to_string()
}

fn send(options: &str, stream: bool) -> SentRequest {
    route(options).create(&request(stream))
}

/// Checks every property for one record.
fn check(options: &str, record: &Record) -> Result<(), TestCaseError> {
    let streamed = strict::read(&send(options, true).stream(record).body);
    let whole = send(options, false).whole(record);
    if whole.status != 200 {
        prop_assert_eq!(&whole.json()["error"], &streamed.error);
        return Ok(());
    }
    // Streaming and waiting give the same answer.
    prop_assert_eq!(&whole.json(), &streamed.message);
    Ok(())
}

#[test]
fn every_script_becomes_its_golden_transcript() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let events = transcript(&send("{}", true).stream(&script.record()).body);
        insta::with_settings!({ description => script.description, omit_expression => true }, {
            insta::assert_snapshot!(format!("script_{}", script.name), events);
        });
    }
}

#[test]
fn every_script_has_the_properties_with_all_options() {
    for script in testkit::scripts() {
        for options in OPTIONS {
            check(options, &script.record()).unwrap_or_else(|error| panic!("{} with {options}: {error}", script.name));
        }
    }
}

#[test]
fn a_live_stream_equals_its_replay() {
    for options in OPTIONS {
        laws::replays_equal_live(|| send(options, true));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_agent_gives_a_well_formed_answer(record in wild::records(), options in 0..OPTIONS.len()) {
        check(OPTIONS[options], &record)?;
    }

    /// Every body is accepted or refused with an error, and never panics.
    #[test]
    fn no_body_causes_a_panic(body in body()) {
        let mut sent = route("{}").create(&body);
        if sent.outcome.is_err() {
            let reply = sent.fail(None);
            prop_assert!((400..500).contains(&reply.status), "{}", reply.line());
            let error = reply.json();
            prop_assert_eq!(&error["type"], "error");
            prop_assert!(error["error"]["message"].is_string() && error["request_id"].is_string());
        }
    }
}

/// Names of fields, and values that mean something.
const NAMES: &[&str] = &[
    "type",
    "role",
    "content",
    "text",
    "tool_use_id",
    "id",
    "name",
    "input",
    "source",
    "media_type",
    "data",
    "url",
    "thinking",
    "signature",
    "title",
    "tool",
    "definition",
    "is_error",
    "input_schema",
    "format",
    "schema",
    "effort",
    "previous_message_id",
    "user_id",
    "defer_loading",
];
const WORDS: &[&str] = &["tool_use", "tool_result", "image", "text", "assistant", "user", "system"];

/// Requests with a random value in a known field.
fn body() -> impl Strategy<Value = String> {
    let fields = [
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "thread",
        "stop_sequences",
        "mcp_servers",
        "max_tokens",
    ];
    (prop::sample::select(fields.to_vec()), wild::json_values(NAMES, WORDS)).prop_map(|(field, value)| {
        let mut body = json!({ "model": "demo", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
        body[field] = value;
        body.to_string()
    })
}
