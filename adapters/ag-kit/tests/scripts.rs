//! Every script of the testkit, and what real servers sent, as an AG-Kit client is told it.

mod support;

use interlingua_core::call::RunInfo;
use interlingua_core::run::Record;
use interlingua_core::testkit::{self, Feature, Shown, laws, scripts};
use interlingua_core::{Exchange, Json, ProtocolAdapter};
use proptest::prelude::*;
use support::*;

const ALL: &[&str] =
    &["{}", r#"{"reasoning":"text","unwrap_tool_output":true}"#, r#"{"reasoning":"event","separator":"off"}"#];

fn asked(options: &str) -> Box<dyn Exchange> {
    let mut exchange = open("/send-message", options);
    decode(exchange.as_mut(), r#"{"messages":[{"role":"user","content":"hi"}]}"#).expect("a request");
    exchange
}

fn known(record: &Record) -> RunInfo {
    RunInfo { protocol: interlingua_ag_kit::AgKit::NAME.into(), ..testkit::about(record) }
}

fn told(record: &Record, options: &str) -> String {
    laws::encode(asked(options).as_mut(), Shown::known(record, known(record)).view())
}

#[test]
fn every_script_has_its_transcript() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        insta::assert_snapshot!(format!("script_{}", script.name), told(&script.record(), "{}"));
    }
}

#[test]
fn every_script_is_replayed_as_it_was_told() {
    for script in scripts() {
        for options in ALL {
            laws::replay_equals_live_as(|| asked(options), &script, known);
        }
    }
}

#[test]
fn every_script_keeps_the_order_rules_and_ends_once() {
    for script in scripts() {
        let record = script.record();
        let told = told(&record, "{}");
        laws::ends_once(&told, |frame| frame.data == "[DONE]");
        keeps_the_order_rules(&told, &record);
        let is_text = |feature: &Feature| {
            matches!(feature, Feature::Text | Feature::Usage | Feature::Overlap | Feature::Reasoning)
        };
        if script.carries.iter().all(is_text) {
            nothing_is_lost(&told, &record);
        }
    }
}

#[test]
fn what_real_servers_sent_keeps_the_order_rules() {
    for (_, bytes) in testkit::transcripts() {
        let record = testkit::record([*bytes]);
        let told = told(&record, "{}");
        laws::ends_once(&told, |frame| frame.data == "[DONE]");
        keeps_the_order_rules(&told, &record);
    }
}

proptest! {
    #[test]
    fn whatever_an_agent_does_the_order_rules_hold(record in testkit::wild::records()) {
        for options in ALL {
            let told = told(&record, options);
            laws::ends_once(&told, |frame| frame.data == "[DONE]");
            if *options == "{}" {
                keeps_the_order_rules(&told, &record);
            }
        }
    }
}

#[test]
fn a_script_s_calls_are_remembered_for_the_next_stream() {
    let record = testkit::script("client_tool").record();
    let view = Shown::known(&record, known(&record));
    let mut exchange = open("/send-message", "{}");
    decode(exchange.as_mut(), r#"{"conversationId":"c","messages":[{"role":"user","content":"hi"}]}"#)
        .expect("a request");
    let reply = exchange.reply(interlingua_core::Reply::Run(view.view()), &mut interlingua_core::Out::new());
    let Ok(interlingua_core::Next::Call(interlingua_core::Call::Run(run))) = reply else { panic!("{reply:?}") };
    assert!(!run.labels.is_null() && run.labels != Json::from_serialize(""), "{:?}", run.labels);
    let again = Shown::known(&record, known(&record)).labels(run.labels);
    assert_eq!(laws::encode(asked("{}").as_mut(), again.view()), "data: [DONE]\n\n", "told once in a conversation");
}
