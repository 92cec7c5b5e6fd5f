//! The laws of every adapter, for the Agent API and every script of the testkit: golden streams, replay equals live,
//! exactly one end, and no loss if a second gateway reads what the first one writes.

mod support;

use interlingua_core::connector::{AgentTurn, TurnRequest, UpstreamAdapter};
use interlingua_core::model::AgentRequest;
use interlingua_core::run::Message;
use interlingua_core::{Exchange, Json, Record};
use interlingua_core_testkit::{self as testkit, laws, render, scripts, wild};
use interlingua_native::{NativeUpstream, UpstreamOptions};
use proptest::prelude::*;
use serde_json::Value;
use support::{HELLO, Native, check_stream, collected, frames, process, process_with};

const ALL_OPTIONS: &[&str] = &["{}", r#"{"terminal":"failed"}"#];

fn process_exchange(options: &str) -> Box<dyn Exchange> {
    let (exchange, call) = Native::new(options).open("POST", "/process", HELLO, "");
    call.expect("a request");
    exchange
}

fn events_exchange(query: &str) -> Box<dyn Exchange> {
    let (exchange, call) = Native::new("{}").open("GET", "/runs/{id}/events", b"", query);
    call.expect("a valid query");
    exchange
}

/// A new turn: each one reads one answer.
fn turn() -> Box<dyn AgentTurn> {
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    let request = AgentRequest::default();
    let state = Json::null();
    let request = TurnRequest::new(&request, &state, &[]);
    connector.turn(&request).expect("a turn")
}

fn recorded(bytes: &[u8]) -> Record {
    testkit::drive_stream(turn().as_mut(), [bytes])
}

#[test]
fn every_script_matches_its_golden_stream() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        insta::assert_snapshot!(format!("script_{}", script.name), process(&script.record()));
    }
}

#[test]
fn every_script_is_encoded_well_formed_and_ends_once() {
    for script in scripts() {
        for options in ALL_OPTIONS {
            let written = process_with(&script.record(), options);
            check_stream(&frames(&written)).unwrap_or_else(|broken| panic!("{}: {broken}\n{written}", script.name));

            laws::ends_once(&written, |frame| {
                let frame: Value = serde_json::from_str(&frame.data).expect("JSON");
                frame["object"] == "response" && !matches!(frame["status"].as_str(), Some("created" | "in_progress"))
            });
        }
    }
}

#[test]
fn the_replay_of_every_script_equals_the_live_stream() {
    for script in scripts() {
        for options in ALL_OPTIONS {
            laws::replay_equals_live(|| process_exchange(options), &script);
        }
        laws::replay_equals_live(|| events_exchange(""), &script);
        laws::replay_equals_live(|| events_exchange("after=3"), &script);
    }
}

#[test]
fn the_record_does_not_depend_on_how_upstream_bytes_are_split() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        // Splitting every script at every byte would take minutes without optimizations; the decoder's tests do that.
        let bytes = script.bytes();
        let expected = render(&recorded(&bytes));
        for seed in 1..=8 {
            let split = testkit::drive_stream(turn().as_mut(), laws::random_pieces(&bytes, seed));
            laws::assert_same(&render(&split), &expected, script.name);
        }
    }

    for name in ["greeting", "streamed_arguments", "broken_off", "refused"] {
        let bytes = testkit::script(name).bytes();
        laws::cut_anywhere(&bytes, |pieces| render(&testkit::drive_stream(turn().as_mut(), pieces.iter().copied())));
    }
}

/// Checks what a chain of gateways must keep: every message with its contents, the end, the error and the usage.
fn same(written: &Record, read_back: &Record) -> Result<(), TestCaseError> {
    let output = |record: &Record| {
        let mut output = collected(record)["output"].clone();
        for message in output.as_array_mut().into_iter().flatten() {
            // Sequence numbers belong to the frames, not to the message.
            for content in message["content"].as_array_mut().into_iter().flatten() {
                content["sequence_number"] = Value::Null;
            }
            message["sequence_number"] = Value::Null;
            // An error without a code is written with a general code, which the reader takes for the agent's code.
            message["code"] = message["error"]["code"].clone();
        }
        output
    };

    let (left, right) = (render(written), render(read_back));
    prop_assert_eq!(output(read_back), output(written), "written\n{}read back\n{}", left, right);
    prop_assert_eq!(read_back.run().end, written.run().end);
    prop_assert_eq!(read_back.run().error(), written.run().error());
    prop_assert_eq!(read_back.run().usage(), written.run().usage());
    Ok(())
}

#[test]
fn every_script_survives_encoding_and_reading_back() {
    for script in scripts() {
        let written = script.record();
        let read_back = recorded(process(&written).as_bytes());
        same(&written, &read_back).unwrap_or_else(|broken| panic!("{}: {broken}", script.name));

        let body = serde_json::to_vec(&collected(&written)).expect("JSON");
        same(&written, &testkit::drive_body(turn().as_mut(), &body))
            .unwrap_or_else(|broken| panic!("{} collected: {broken}", script.name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_upstream_is_encoded_well_formed_and_can_be_read_back(upstream in wild::frames()) {
        let record = wild::record(&upstream);
        let written = process(&record);
        check_stream(&frames(&written)).map_err(|broken| TestCaseError::fail(format!("{broken}\n{written}")))?;
        prop_assert_eq!(testkit::grammar(&recorded(written.as_bytes())), Ok(()));

        // Heartbeats are not read back, even if they have contents. A message whose type changed is read back with its
        // last type.
        let differs = |message: &Message| message.kind.as_str() == "heartbeat" || message.kind != message.announced;
        if !record.run().messages.iter().any(differs) {
            // By the reader alone: the connector drops outputs of calls that it does not know.
            same(&record, &testkit::record([written.as_bytes()]))?;
        }
    }
}
