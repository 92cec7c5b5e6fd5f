//! Properties that hold for every answer, checked with the scripts of the test kit and with random agents.

use interlingua_core::Record;
use interlingua_core::call::RunInfo;
use interlingua_core::exchange::Exchange;
use interlingua_core::testkit::{self, laws, wild};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::strict;
use crate::support::{Sent, route, transcript};

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

fn send(options: &str, stream: bool) -> Sent {
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
    for script in testkit::scripts() {
        for options in OPTIONS {
            let labels = send(options, true).run_call().labels.clone();
            let open = || -> Box<dyn Exchange> { send(options, true).exchange };
            laws::replay_equals_live_as(open, &script, |record| RunInfo {
                labels: labels.clone(),
                ..testkit::run_info(record)
            });
        }
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

/// Requests with a random value in a known field.
fn body() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z_]{0,12}".prop_map(Value::from),
        Just(json!("tool_use")),
        Just(json!("tool_result")),
        Just(json!("image")),
        Just(json!("text")),
        Just(json!("assistant")),
        Just(json!("user")),
        Just(json!("system")),
    ];
    let names = [
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
    let name = prop::sample::select(names.to_vec());
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    });

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
    (prop::sample::select(fields.to_vec()), value).prop_map(|(field, value)| {
        let mut body = json!({ "model": "demo", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
        body[field] = value;
        body.to_string()
    })
}
