//! The laws every adapter keeps, for the native one and over every script of the test kit: golden streams, replay equals
//! live, one ending, and what one gateway says another one hears.

mod support;

use interlingua_core::connector::{AgentTurn, TurnRequest, UpstreamAdapter};
use interlingua_core::model::AgentRequest;
use interlingua_core::run::Message;
use interlingua_core::testkit::{self, laws, scripts, tale, wild};
use interlingua_core::{Exchange, Json, Record};
use interlingua_native::{NativeUpstream, UpstreamOptions};
use proptest::prelude::*;
use serde_json::Value;
use support::{HELLO, Native, frames, lawful, process, process_with, whole};

const ALL: &[&str] = &["{}", r#"{"terminal":"failed"}"#];

fn attached(options: &str) -> Box<dyn Exchange> {
    let (exchange, call) = Native::new(options).open("POST", "/process", HELLO, "");
    call.expect("a request");
    exchange
}

fn followed(query: &str) -> Box<dyn Exchange> {
    let (exchange, call) = Native::new("{}").open("GET", "/runs/{id}/events", b"", query);
    call.expect("it can be followed");
    exchange
}

/// A reader as the gateway gets it, for each answer a fresh one.
fn turn() -> Box<dyn AgentTurn> {
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    let request = AgentRequest::default();
    let request = TurnRequest { request: &request, session_state: &Json::null(), answered: &[] };
    connector.turn(&request).expect("it can be expressed")
}

fn recorded(bytes: &[u8]) -> Record {
    testkit::drive_stream(turn().as_mut(), [bytes])
}

#[test]
fn every_script_has_its_stream() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        insta::assert_snapshot!(format!("script_{}", script.name), process(&script.record()));
    }
}

#[test]
fn every_script_becomes_a_well_formed_stream_that_ends_once() {
    for script in scripts() {
        for options in ALL {
            let told = process_with(&script.record(), options);
            lawful(&frames(&told)).unwrap_or_else(|broken| panic!("{}: {broken}\n{told}", script.name));
            laws::ends_once(&told, |frame| {
                let frame: Value = serde_json::from_str(&frame.data).expect("JSON");
                frame["object"] == "response" && !matches!(frame["status"].as_str(), Some("created" | "in_progress"))
            });
        }
    }
}

#[test]
fn every_script_is_replayed_as_it_was_told() {
    for script in scripts() {
        for options in ALL {
            laws::replay_equals_live(|| attached(options), &script);
        }
        laws::replay_equals_live(|| followed(""), &script);
        laws::replay_equals_live(|| followed("after=3"), &script);
    }
}

#[test]
fn every_cut_of_an_upstreams_bytes_is_heard_the_same() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        // One script of each kind at every byte would take minutes without optimisation; the decoder's tests do that.
        let bytes = script.bytes();
        let whole = tale(&recorded(&bytes));
        for seed in 1..=8 {
            let told = testkit::drive_stream(turn().as_mut(), laws::randomly(&bytes, seed));
            laws::same(&tale(&told), &whole, script.name);
        }
    }
    for name in ["greeting", "streamed_arguments", "broken_off", "refused"] {
        let bytes = testkit::script(name).bytes();
        laws::cut_anywhere(&bytes, |pieces| tale(&testkit::drive_stream(turn().as_mut(), pieces.iter().copied())));
    }
}

/// What a chain of gateways keeps: every message with its contents, the end, the error and the cost.
fn same(said: &Record, heard: &Record) -> Result<(), TestCaseError> {
    let output = |record: &Record| {
        let mut output = whole(record)["output"].clone();
        for message in output.as_array_mut().into_iter().flatten() {
            // Of the frames a message was told with, not of the message.
            for content in message["content"].as_array_mut().into_iter().flatten() {
                content["sequence_number"] = Value::Null;
            }
            message["sequence_number"] = Value::Null;
            // An error without a code is told with the general one, which is then heard as its own.
            message["code"] = message["error"]["code"].clone();
        }
        output
    };
    prop_assert_eq!(output(heard), output(said), "said\n{}heard\n{}", tale(said), tale(heard));
    prop_assert_eq!(heard.run().end, said.run().end);
    prop_assert_eq!(heard.run().error(), said.run().error());
    prop_assert_eq!(heard.run().usage(), said.run().usage());
    Ok(())
}

#[test]
fn what_is_said_is_recorded() {
    for script in scripts() {
        let said = script.record();
        same(&said, &recorded(process(&said).as_bytes())).unwrap_or_else(|broken| panic!("{}: {broken}", script.name));
        let body = serde_json::to_vec(&whole(&said)).expect("JSON");
        same(&said, &testkit::drive_body(turn().as_mut(), &body))
            .unwrap_or_else(|broken| panic!("{} whole: {broken}", script.name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_upstream_does_the_stream_is_well_formed_and_heard_again(frames_heard in wild::frames()) {
        let record = wild::record(&frames_heard);
        let told = process(&record);
        lawful(&frames(&told)).map_err(|broken| TestCaseError::fail(format!("{broken}\n{told}")))?;
        prop_assert_eq!(testkit::grammar(&recorded(told.as_bytes())), Ok(()));
        // Signs of life are not heard, even if somebody gave them contents; and what turned out to be something else
        // than it was announced as is heard as what it turned out to be.
        let odd = |message: &Message| message.kind.as_str() == "heartbeat" || message.kind != message.announced;
        if !record.run().messages.iter().any(odd) {
            same(&record, &recorded(told.as_bytes()))?;
        }
    }
}
