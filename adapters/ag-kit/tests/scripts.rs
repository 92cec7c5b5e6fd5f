//! The streams for every script of the testkit and for recorded server output.

mod support;

use interlingua_core::agent_event::{AgentEvent, CallPart, MessageEvent};
use interlingua_core::call::RunInfo;
use interlingua_core::model::{Message, MessageType};
use interlingua_core::run::Record;
use interlingua_core::{End, Exchange, Json, ProtocolAdapter};
use interlingua_core_testkit::{self as testkit, Feature, TestRun, laws, scripts};
use proptest::prelude::*;
use support::*;

const ALL: &[&str] =
    &["{}", r#"{"reasoning":"text","unwrap_tool_output":true}"#, r#"{"reasoning":"event","separator":"off"}"#];

fn started(options: &str) -> Box<dyn Exchange> {
    let mut exchange = open("/send-message", options);
    decode(exchange.as_mut(), r#"{"messages":[{"role":"user","content":"hi"}]}"#).expect("a request");
    exchange
}

fn run_info(record: &Record) -> RunInfo {
    RunInfo { protocol: interlingua_ag_kit::AgKit::NAME.into(), ..testkit::run_info(record) }
}

fn encode(record: &Record, options: &str) -> String {
    laws::encode(started(options).as_mut(), TestRun::with_info(record, run_info(record)).view())
}

#[test]
fn every_script_has_its_transcript() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        insta::assert_snapshot!(format!("script_{}", script.name), encode(&script.record(), "{}"));
    }
}

#[test]
fn every_replay_equals_the_live_stream() {
    for script in scripts() {
        for options in ALL {
            laws::replay_equals_live_as(|| started(options), &script, run_info);
        }
    }
}

#[test]
fn every_script_keeps_the_order_rules_and_ends_once() {
    for script in scripts() {
        let record = script.record();
        let output = encode(&record, "{}");
        laws::ends_once(&output, |frame| frame.data == "[DONE]");
        keeps_the_order_rules(&output, &record);

        let is_text = |feature: &Feature| {
            matches!(feature, Feature::Text | Feature::Usage | Feature::Overlap | Feature::Reasoning)
        };
        if script.carries.iter().all(is_text) {
            nothing_is_lost(&output, &record);
        }
    }
}

#[test]
fn recorded_server_output_keeps_the_order_rules() {
    for (_, bytes) in testkit::transcripts() {
        let record = testkit::record([*bytes]);
        let output = encode(&record, "{}");
        laws::ends_once(&output, |frame| frame.data == "[DONE]");
        keeps_the_order_rules(&output, &record);
    }
}

proptest! {
    #[test]
    fn random_runs_keep_the_order_rules(record in testkit::wild::records()) {
        for options in ALL {
            let output = encode(&record, options);
            laws::ends_once(&output, |frame| frame.data == "[DONE]");
            if *options == "{}" {
                keeps_the_order_rules(&output, &record);
            }
        }
    }
}

#[test]
fn the_calls_of_a_script_are_remembered_for_the_next_stream() {
    let record = testkit::script("client_tool").record();
    let view = TestRun::with_info(&record, run_info(&record));
    let mut exchange = open("/send-message", "{}");
    decode(exchange.as_mut(), r#"{"conversationId":"c","messages":[{"role":"user","content":"hi"}]}"#)
        .expect("a request");
    let reply = exchange.reply(interlingua_core::Reply::Run(view.view()), &mut interlingua_core::Out::new());
    let Ok(interlingua_core::Next::Call(interlingua_core::Call::Run(run))) = reply else { panic!("{reply:?}") };

    assert!(!run.labels.is_null() && run.labels != Json::from_serialize(""), "{:?}", run.labels);
    let next_stream = TestRun::with_info(&record, run_info(&record)).labels(run.labels);
    assert_eq!(
        laws::encode(started("{}").as_mut(), next_stream.view()),
        "data: [DONE]\n\n",
        "a call is sent once in a conversation"
    );
}

/// Agents that do not say at first whose a call is: one without a result at the end is the client's, and the others are
/// not.
#[test]
fn a_call_that_is_the_clients_after_all_gets_no_result() {
    let end = |id: &'static str, kind: Option<MessageType>| {
        AgentEvent::Message(MessageEvent {
            id: Some(id.into()),
            kind,
            end: Some(End::Completed),
            ..MessageEvent::default()
        })
    };
    let mut recorder = testkit::Recorder::new(vec![Message::user("hi")]);
    for id in ["c1", "c2"] {
        recorder.emit(&AgentEvent::message(id, MessageType::PluginCall));
        let part = CallPart { call_id: id.into(), name: "locate".into(), arguments: "{}".into(), server_label: None };
        recorder.emit(&AgentEvent::call(id, part));
    }
    recorder.emit(&end("c1", Some(MessageType::FunctionCall)));
    recorder.emit(&end("c2", None));
    recorder.emit(&AgentEvent::completed());

    let output = encode(&recorder.finish(), "{}");
    let results: Vec<&str> = output.lines().filter(|line| line.contains("tool-result")).collect();
    assert!(matches!(results.as_slice(), [only] if only.contains("\"c2\"")), "{output}");
}
