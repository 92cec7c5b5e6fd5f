//! What holds for every answer, whatever the agent said: scripts of the test kit, and upstreams nobody would want.

mod support;

use interlingua_core::call::{Reply, RunInfo, RunView};
use interlingua_core::exchange::Exchange;
use interlingua_core::json::Json;
use interlingua_core::testkit::{self, laws, wild};
use interlingua_core::{Call, Record};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{Asked, route, strict};

/// Options that change what is told.
const DIALECTS: &[&str] = &[
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

fn asked(options: &str) -> Asked {
    route(options).ask("POST", "/responses", &request(true))
}

fn about(record: &Record, asked: &Asked) -> RunInfo {
    let labels = match &asked.outcome {
        Ok(Call::Run(call)) => call.labels.clone(),
        _ => Json::null(),
    };
    RunInfo { labels, ..testkit::about(record) }
}

fn streamed(options: &str, record: &Record) -> String {
    let mut asked = asked(options);
    let about = about(record, &asked);
    asked.stream_as(record, &about).body
}

/// The same response, asked for by its id.
fn retrieved(options: &str, target: &str, record: &Record) -> Result<String, Asked> {
    let about = about(record, &asked(options));
    let id = record.run().id.to_prefixed("resp_");
    let asked = route(options).ask("GET", &format!("/responses/{id}{target}"), "");
    let view = RunView { record, about: &about, pending: &[] };
    asked.answered(Reply::Run(view)).map(|answer| answer.body)
}

fn followed(options: &str, target: &str, record: &Record) -> String {
    let about = about(record, &asked(options));
    let mut asked = retrieved(options, target, record).expect_err("a stream");
    assert!(matches!(&asked.outcome, Ok(Call::Follow(_))));
    asked.stream_as(record, &about).body
}

/// Every law for one record.
fn lawful(options: &str, record: &Record) -> Result<(), TestCaseError> {
    let whole = streamed(options, record);
    let events = support::events(&whole);
    let last = strict::read(&events);
    let done = !options.contains("done_frame");
    prop_assert_eq!(whole.ends_with("\n\ndata: [DONE]\n\n"), done);
    prop_assert_eq!(whole.matches("[DONE]\n\n").count(), usize::from(done));

    // The object is the same, however it is asked for.
    let object = retrieved(options, "", record).expect("an object");
    prop_assert_eq!(&serde_json::from_str::<Value>(&object).expect("JSON"), &last);

    // A resumed stream is the rest of the stream, byte for byte.
    let frames: Vec<&str> = whole.split_inclusive("\n\n").collect();
    for after in [0, events.len() / 2, events.len() - 1, events.len() + 5] {
        let rest = followed(options, &format!("?stream=true&starting_after={after}"), record);
        let wanted: String = match frames.get(after + 1..events.len()) {
            Some(rest) => rest.concat(),
            // Whoever has counted further than the run came is told its end.
            None => frames[events.len() - 1].to_owned(),
        };
        let wanted = if done { wanted + "data: [DONE]\n\n" } else { wanted };
        prop_assert_eq!(rest, wanted, "after {}", after);
    }
    Ok(())
}

#[test]
fn every_script_becomes_its_golden_transcript() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let told = support::tale(&streamed("{}", &script.record()));
        let told = told.replace(&testkit::RUN.to_prefixed(""), "RUN");
        insta::with_settings!({ description => script.shows, omit_expression => true }, {
            insta::assert_snapshot!(format!("script_{}", script.name), told);
        });
    }
}

#[test]
fn every_script_is_told_lawfully_in_every_dialect() {
    for script in testkit::scripts() {
        for options in DIALECTS {
            lawful(options, &script.record()).unwrap_or_else(|error| panic!("{} with {options}: {error}", script.name));
        }
    }
}

#[test]
fn who_listens_hears_what_is_replayed() {
    for script in testkit::scripts() {
        for options in DIALECTS {
            let labels = about(&script.record(), &asked(options)).labels;
            let open = || -> Box<dyn Exchange> { asked(options).exchange };
            laws::replay_equals_live_as(open, &script, |record| RunInfo {
                labels: labels.clone(),
                ..testkit::about(record)
            });
        }
    }
}

#[test]
fn a_response_under_way_shows_what_is_there() {
    for script in testkit::scripts().iter().filter(|script| !script.is_large()) {
        let mut listener = testkit::Recorder::new(script.input.clone());
        for frame in &script.frames {
            listener.emit(&script.event(frame));
            let record = listener.record();
            // Between two turns it is shown as the last one left it.
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
fn a_socket_is_told_the_same() {
    let frame = |options| {
        let body: Value = serde_json::from_str(&request(true)).expect("JSON");
        let mut frame = body.clone();
        frame["type"] = json!("response.create");
        route(options).ask("WEBSOCKET", "/responses", &frame.to_string())
    };
    for script in testkit::scripts() {
        let record = script.record();
        let mut asked = frame("{}");
        let about = about(&record, &asked);
        let told = asked.stream_as(&record, &about).body;
        let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let streamed: Vec<Value> =
            support::events(&streamed("{}", &record)).into_iter().map(|(_, event)| event).collect();
        assert_eq!(told, streamed, "{}", script.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_upstream_does_the_stream_is_well_formed(record in wild::records(), dialect in 0..DIALECTS.len()) {
        lawful(DIALECTS[dialect], &record)?;
    }

    /// Untrusted bytes are refused or read, and never panic.
    #[test]
    fn no_body_is_too_strange(body in body()) {
        let asked = route("{}").ask("POST", "/responses", &body);
        if asked.outcome.is_err() {
            let refusal = asked.refusal();
            prop_assert!((400..500).contains(&refusal.status), "{}", refusal.line());
            let error = &refusal.json()["error"];
            let keys: Vec<&str> = error.as_object().expect("an object").keys().map(String::as_str).collect();
            prop_assert_eq!(keys, ["code", "message", "param", "type"]);
        }
    }
}

/// Requests with something at random in the place of something known.
fn body() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z_]{0,12}".prop_map(Value::from),
        Just(json!("input_text")),
        Just(json!("function_call")),
        Just(json!("user")),
    ];
    let name = prop_oneof![
        Just("type"),
        Just("role"),
        Just("content"),
        Just("text"),
        Just("call_id"),
        Just("name"),
        Just("arguments"),
        Just("output"),
        Just("id"),
        Just("image_url"),
        Just("format"),
        Just("tools"),
        Just("summary"),
    ];
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..4).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    });
    let field = prop_oneof![
        Just("input"),
        Just("tools"),
        Just("tool_choice"),
        Just("text"),
        Just("reasoning"),
        Just("metadata"),
        Just("conversation"),
        Just("include"),
        Just("stream_options"),
    ];
    (field, value).prop_map(|(field, value)| {
        let mut body = json!({"model": "demo"});
        body[field] = value;
        body.to_string()
    })
}
