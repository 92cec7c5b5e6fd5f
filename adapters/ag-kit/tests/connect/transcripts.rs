//! Recorded answers of real servers, byte for byte: `tests/transcripts/ag-kit`.

use std::fmt::Write as _;
use std::path::Path;

use interlingua_core::Json;
use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::Refusal;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::{self as testkit, Answer, RecordedExchange};
use serde_json::Value;

use crate::support::{answering, driven, sent, tale, turn, turn_of, with_tool};

fn recorded() -> Vec<(String, RecordedExchange)> {
    let folder = "../../tests/transcripts/ag-kit/cloudbase-agent-server-0.1.1";
    testkit::recorded_exchanges(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
}

fn exchange(name: &str) -> RecordedExchange {
    recorded().into_iter().find(|(known, _)| known == name).expect("a recording").1
}

#[test]
fn each_recorded_answer_becomes_a_run() {
    let mut tales = String::new();
    for (name, exchange) in recorded() {
        // Answers to questions need the turn before them: see below. The health check is no turn.
        if name == "health" || name.contains("-answer") {
            continue;
        }
        let mut turn = turn("{}");
        let answer = if exchange.status == 200 {
            exchange.answer()
        } else {
            let refusal = Refusal { status: exchange.status, body: &exchange.body, retry_after: None };
            Answer::Fault(turn.map_refusal(&refusal))
        };
        let (driven, losses) = driven(&mut *turn, answer);
        let _ = writeln!(tales, "## {name}\n{}", tale(&driven.record, &losses));
    }
    insta::assert_snapshot!(tales);
}

/// An approval, its answer in the recorded words, and the answer to that: in both kinds of agents.
#[test]
fn a_recorded_approval_is_answered_as_recorded() {
    let mut tales = String::new();
    for (name, decision) in [("approval", Decision::Accept), ("langgraph-approval", Decision::Accept)] {
        let mut first = turn("{}");
        let (asked, _) = driven(&mut *first, exchange(name).answer());
        let state = first.session_state().unwrap_or_else(Json::null);
        let [item] = asked.record.run().pending().try_into().expect("one question");

        let reply = exchange(&format!("{name}-answer"));
        let mut second = answering("{}", &[(&item, CheckedDecision::new(decision))], &state).expect("an answer");
        let request = sent(&mut *second);
        let recorded: Value = serde_json::from_str(&reply.request).expect("JSON");
        assert_eq!(request["resume"]["interruptId"], recorded["resume"]["interruptId"]);
        let payload = |request: &Value| -> Value {
            serde_json::from_str(request["resume"]["payload"].as_str().expect("a text")).expect("JSON")
        };
        assert_eq!(payload(&request)["type"], payload(&recorded)["type"], "{name}");

        let mut second = answering("{}", &[(&item, CheckedDecision::new(decision))], &state).expect("an answer");
        let (answered, losses) = driven(&mut *second, reply.answer());
        let _ = writeln!(tales, "## {name}\n{}", tale(&answered.record, &losses));
        // The call before the pause was shown with the first answer; only its result is new.
        let state = second.session_state().map(|state| state.text().to_owned()).unwrap_or_default();
        assert!(!state.contains("calls"), "{state}");
    }
    insta::assert_snapshot!(tales);
}

#[test]
fn the_request_has_the_form_that_the_server_took() {
    for (name, word) in [("hello", "hello please"), ("client-tool", "client tool please")] {
        let recorded: Value = serde_json::from_str(&exchange(name).request).expect("JSON");
        let mut sent = sent(&mut *turn_of("{}", &with_tool(word), "null"));
        sent["conversationId"] = recorded["conversationId"].clone();
        sent["messages"][0].as_object_mut().expect("a message").remove("id");
        assert_eq!(sent, recorded, "{name}");
    }
}
