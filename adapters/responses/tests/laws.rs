//! Properties that hold for every response, checked with the scripts of the test kit and with random upstreams.

mod support;

use interlingua_core::call::{Reply, RunInfo, RunView};
use interlingua_core::exchange::Exchange;
use interlingua_core::json::Json;
use interlingua_core::{Call, Record};
use interlingua_core_testkit::{self as testkit, laws, wild};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{SentRequest, route, strict};

/// Options that change the output.
const OPTIONS: &[&str] = &[
    "{}",
    r#"{"tool_items":"hide","reasoning":"hide","data":"hide"}"#,
    r#"{"tool_items":"pair","reasoning":"both","tool_output":"raw","custom_items":"extension"}"#,
    r#"{"reasoning":"text","done_frame":false}"#,
];

/// A request that declares what the scripts' agents call.
fn request(stream: bool) -> String {
    json!({
        "model": "demo", "input": "hi", "stream": stream,
        "tools": [{"type": "function", "name": "get_weather"}, {"type": "function", "name": "get_time"}],
    })
    .to_string()
}

fn send(options: &str) -> SentRequest {
    route(options).send("POST", "/responses", &request(true))
}

fn about(record: &Record, sent: &SentRequest) -> RunInfo {
    let labels = match &sent.outcome {
        Ok(Call::Run(call)) => call.labels.clone(),
        _ => Json::null(),
    };
    RunInfo { labels, ..testkit::run_info(record) }
}

fn streamed(options: &str, record: &Record) -> String {
    let mut sent = send(options);
    let about = about(record, &sent);
    sent.stream_as(record, &about).body
}

/// The same response, retrieved by its id.
fn retrieved(options: &str, target: &str, record: &Record) -> Result<String, SentRequest> {
    let about = about(record, &send(options));
    let id = record.run().id.to_prefixed("resp_");
    let sent = route(options).send("GET", &format!("/responses/{id}{target}"), "");
    let view = RunView { record, info: &about, pending: &[] };
    sent.reply_with(Reply::Run(view)).map(|answer| answer.body)
}

fn followed(options: &str, target: &str, record: &Record) -> String {
    let about = about(record, &send(options));
    let mut sent = retrieved(options, target, record).expect_err("a stream");
    assert!(matches!(&sent.outcome, Ok(Call::Follow(_))));
    sent.stream_as(record, &about).body
}

/// Checks every property for one record.
fn check(options: &str, record: &Record) -> Result<(), TestCaseError> {
    let stream = streamed(options, record);
    let events = support::events(&stream);

    let last = strict::read(&events);
    let done = !options.contains("done_frame");
    prop_assert_eq!(stream.ends_with("\n\ndata: [DONE]\n\n"), done);
    prop_assert_eq!(stream.matches("[DONE]\n\n").count(), usize::from(done));

    // Streaming and retrieving give the same object.
    let object = retrieved(options, "", record).expect("an object");
    prop_assert_eq!(&serde_json::from_str::<Value>(&object).expect("JSON"), &last);

    // A resumed stream is the rest of the stream, byte for byte.
    let frames: Vec<&str> = stream.split_inclusive("\n\n").collect();
    for after in [0, events.len() / 2, events.len() - 1, events.len() + 5] {
        let rest = followed(options, &format!("?stream=true&starting_after={after}"), record);
        let expected: String = match frames.get(after + 1..events.len()) {
            Some(rest) => rest.concat(),
            // A client that resumes after the last event still receives the end.
            None => frames[events.len() - 1].to_owned(),
        };
        let expected = if done { expected + "data: [DONE]\n\n" } else { expected };
        prop_assert_eq!(rest, expected, "after {}", after);
    }
    Ok(())
}

#[test]
fn every_script_becomes_its_golden_transcript() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let events = support::transcript(&streamed("{}", &script.record()));
        let events = events.replace(&testkit::RUN.to_prefixed(""), "RUN");
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
            let labels = about(&script.record(), &send(options)).labels;
            let open = || -> Box<dyn Exchange> { send(options).exchange };
            laws::replay_equals_live_as(open, &script, |record| RunInfo {
                labels: labels.clone(),
                ..testkit::run_info(record)
            });
        }
    }
}

#[test]
fn an_unfinished_response_shows_its_current_output() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let mut listener = testkit::Recorder::new(script.input.clone());
        for frame in &script.frames {
            listener.emit(&script.event(frame));
            let record = listener.record();
            // Between two turns the response is that of the last turn.
            if record.is_finished() || !record.in_turn() {
                continue;
            }

            let object: Value = serde_json::from_str(&retrieved("{}", "", record).expect("an object")).expect("JSON");
            assert_eq!((&object["status"], &object["usage"]), (&json!("in_progress"), &Value::Null), "{}", script.name);
            for item in object["output"].as_array().expect("a list") {
                assert!(item["id"].is_string() && item["type"].is_string(), "{}: {item}", script.name);
            }
        }
    }
}

#[test]
fn a_websocket_receives_the_same_events() {
    let frame = |options| {
        let body: Value = serde_json::from_str(&request(true)).expect("JSON");
        let mut frame = body.clone();
        frame["type"] = json!("response.create");
        route(options).send("WEBSOCKET", "/responses", &frame.to_string())
    };
    for script in testkit::scripts() {
        let record = script.record();
        let mut sent = frame("{}");
        let about = about(&record, &sent);
        let messages = sent.stream_as(&record, &about).body;
        let messages: Vec<Value> = messages.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();

        let streamed: Vec<Value> =
            support::events(&streamed("{}", &record)).into_iter().map(|(_, event)| event).collect();
        assert_eq!(messages, streamed, "{}", script.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_upstream_gives_a_well_formed_stream(record in wild::records(), dialect in 0..OPTIONS.len()) {
        check(OPTIONS[dialect], &record)?;
    }

    /// Every body is accepted or refused with an error, and never panics.
    #[test]
    fn no_body_causes_a_panic(body in body()) {
        let sent = route("{}").send("POST", "/responses", &body);
        if sent.outcome.is_err() {
            let reply = sent.error_reply();
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
    "call_id",
    "name",
    "arguments",
    "output",
    "id",
    "image_url",
    "format",
    "tools",
    "summary",
];
const WORDS: &[&str] = &["input_text", "function_call", "user"];

/// Requests with a random value in a known field.
fn body() -> impl Strategy<Value = String> {
    let fields =
        ["input", "tools", "tool_choice", "text", "reasoning", "metadata", "conversation", "include", "stream_options"];
    (prop::sample::select(fields.to_vec()), wild::json_values(NAMES, WORDS)).prop_map(|(field, value)| {
        let mut body = json!({"model": "demo"});
        body[field] = value;
        body.to_string()
    })
}
