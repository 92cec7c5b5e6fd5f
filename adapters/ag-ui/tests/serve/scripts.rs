//! The streams for every script of the testkit and for recorded server output.

use interlingua_core::run::Record;
use interlingua_core::{End, Exchange, Fault, Out};
use interlingua_core_testkit::{self as testkit, TestRun, laws, scripts};
use proptest::prelude::*;
use serde_json::Value;

use super::support::{JSON, decode_with, events, hello, info, open, started, stream_of};
use super::threads::resumed;
use super::verify::verify;

const ALL: &[&str] = &[
    "{}",
    r#"{"reasoning":"thinking","media":"link","unwrap_tool_output":true}"#,
    r#"{"reasoning":"drop","media":"drop","event_ids":false,"legacy_on_interrupt":true}"#,
    r#"{"history":"gateway","media":"custom"}"#,
];

fn versions() -> [Value; 2] {
    [hello(None), hello(Some("1.0"))]
}

fn is_end(data: &str) -> bool {
    ["RUN_FINISHED", "RUN_ERROR"].iter().any(|kind| data.starts_with(&format!("{{\"type\":\"{kind}\"")))
}

/// The properties of a record's stream, for any options.
fn check(record: &Record, options: &str, input: &Value) -> String {
    let output = stream_of(record, options, input);
    laws::ends_once(&output, |frame| is_end(&frame.data));
    let events = events(&output);
    verify(&events, input.get("protocolVersion").is_some());
    let last = events.last().expect("an end");
    let has_failed = matches!(record.run().end, Some(End::Failed | End::Rejected));
    assert_eq!(last["type"] == "RUN_ERROR", has_failed, "{output}");
    output
}

#[test]
fn every_script_has_its_transcript() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let output = stream_of(&script.record(), "{}", &hello(Some("1.0")));
        insta::assert_snapshot!(format!("script_{}", script.name), output);
    }
}

#[test]
fn every_replay_equals_the_live_stream() {
    for script in scripts() {
        for options in ALL {
            for input in versions() {
                let labels = started(options, &input).1.labels;
                let new = || -> Box<dyn Exchange> { started(options, &input).0 };
                laws::replay_equals_live_as(new, &script, |record| info(record, labels.clone()));
            }
        }
    }
}

#[test]
fn every_script_keeps_the_rules_of_clients_and_ends_once() {
    for script in scripts() {
        let record = script.record();
        for options in ALL {
            for input in versions() {
                check(&record, options, &input);
            }
        }
    }
}

#[test]
fn recorded_server_output_keeps_the_rules_of_clients() {
    for (_, bytes) in testkit::transcripts() {
        let record = testkit::record([*bytes]);
        for input in versions() {
            check(&record, "{}", &input);
        }
    }
}

proptest! {
    #[test]
    fn random_runs_keep_the_rules_of_clients(record in testkit::wild::records(), options in 0..ALL.len()) {
        for input in versions() {
            check(&record, ALL[options], &input);
        }
    }
}

/// A client that lost its connection gets the rest of the stream, byte for byte.
#[test]
fn a_stream_is_taken_up_again_after_every_event() {
    for name in ["greeting", "parallel_tools", "approval", "reasoning_beside", "failure_after_output"] {
        let record = testkit::script(name).record();
        let whole = stream_of(&record, "{}", &hello(Some("1.0")));
        let frames: Vec<&str> = whole.split_inclusive("\n\n").collect();
        for after in 0..frames.len() {
            let rest = resumed(&record, after as u64);
            assert_eq!(rest, frames[after + 1..].concat(), "{name} after {after}");
        }
    }
}

/// The same events as protobuf: as many, each of its length, and texts that can be read in them.
#[test]
fn every_script_is_written_as_protobuf() {
    for script in scripts() {
        let record = script.record();
        let (mut exchange, run) = started("{}", &hello(Some("1.0")));
        let accept = [JSON, ("accept", "application/vnd.ag-ui.event+proto")];
        let mut binary = open("{}", "POST");
        decode_with(binary.as_mut(), &hello(Some("1.0")), &accept).expect("a request");
        binary.on_not_found(&Fault::not_found("the session")).expect("a run");

        let run = TestRun::with_info(&record, info(&record, run.labels));
        let events = events(&laws::encode(exchange.as_mut(), run.view()));
        let mut out = Out::new();
        binary.begin(run.view(), &mut out);
        for step in record.steps(0) {
            binary.encode(step, &mut out);
        }
        let mut rest = &out.body[..];
        let mut lengths = 0;
        while !rest.is_empty() {
            let (length, body) = rest.split_first_chunk::<4>().expect("a length");
            let length = usize::try_from(u32::from_be_bytes(*length)).expect("a length");
            assert!(length > 0, "{}: an empty message ends the run", script.name);
            rest = body.get(length..).expect("a whole message");
            lengths += 1;
        }
        assert_eq!(lengths, events.len(), "{}", script.name);
    }
}
