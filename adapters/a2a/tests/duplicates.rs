//! A message that two requests send at the same moment: which of them starts its task. Not here: messages that are sent
//! one after the other (`tests/behaviour`).

mod support;

use interlingua_core::call::{Call, DocumentCall, Page, Replaces, Reply, RunCall, RunInfo, RunState};
use interlingua_core::{Json, Record};
use interlingua_core_testkit::TestRun;
use serde_json::json;
use support::{ClientRequest, DecodedExchange, Host, about, user, with};

fn sent() -> (Host, DecodedExchange) {
    let host = with(json!({ "deduplicate": "context" }));
    let mut body = user("hi");
    body["message"]["contextId"] = json!("session-1");
    let decoded = host.send(&ClientRequest::rpc("SendMessage", &body));
    (host, decoded)
}

/// A task that has the message.
fn task() -> Record {
    let host = support::host();
    let mut body = user("hi");
    body["message"]["contextId"] = json!("session-1");
    support::record_of(host.send(&ClientRequest::rpc("SendMessage", &body)).run(), "plugin")
}

fn none() -> Reply<'static> {
    Reply::Runs(Page { runs: Vec::new(), total: 0, next: None })
}

fn claimed(by: &str) -> Vec<(String, Json)> {
    vec![("key".to_owned(), Json::from_serialize(&by))]
}

/// The key, the value, and what it may replace.
fn put(decoded: &DecodedExchange) -> (String, Json, Replaces) {
    match &decoded.call {
        Ok(Call::Document(DocumentCall::Put { collection, key, value, replaces })) if collection == "claims" => {
            (key.clone(), value.clone(), replaces.clone())
        }
        other => panic!("nothing is claimed: {other:?}"),
    }
}

fn claim_of(run: &RunCall) -> (String, Json) {
    let claim = run.claim.clone().expect("a claim");
    (claim.key, claim.value)
}

#[test]
fn a_task_is_started_with_a_claim_of_its_message() {
    let (_host, decoded) = sent();
    let claiming = decoded.next_call(none());
    let (key, value, replaces) = put(&claiming);
    assert_eq!(replaces, Replaces::Nothing);
    let started = claiming.next_call(Reply::Done).next_call(none());
    assert_eq!(claim_of(started.run()), (key, value));
}

#[test]
fn a_turn_of_a_task_is_started_with_a_claim_of_its_message() {
    let record = task();
    let working = |state| RunInfo { state, ..about(&record) };
    let (first, shown) = (working(RunState::Running), working(RunState::Running));
    let shown = (TestRun::with_info(&record, first), TestRun::with_info(&record, shown));
    let ended = TestRun::with_info(&record, about(&record));
    let send = |id: &str| {
        let mut body = user("more");
        body["message"]["messageId"] = json!(id);
        body["message"]["taskId"] = json!(support::NEW_ID.to_string());
        with(json!({ "deduplicate": "context" })).send(&ClientRequest::rpc("SendMessage", &body))
    };

    let claiming = send("m-2").next_call(Reply::Run(shown.0.view()));
    let (key, value, replaces) = put(&claiming);
    assert_eq!(replaces, Replaces::Nothing);
    let verifying = claiming.next_call(Reply::Done);
    assert!(matches!(verifying.call, Ok(Call::Fetch(_))), "{:?}", verifying.call);
    assert_eq!(claim_of(verifying.next_call(Reply::Run(shown.1.view())).run()), (key, value));

    let verifying = send("m-2").next_call(Reply::Run(shown.0.view())).next_call(Reply::Done);
    let withdrawing = verifying.next_call(Reply::Run(ended.view()));
    assert!(matches!(withdrawing.call, Ok(Call::Document(DocumentCall::Delete { .. }))), "{:?}", withdrawing.call);
    assert_eq!(withdrawing.final_answer(Reply::Done).json()["error"]["code"], -32004, "the task has ended");
}

#[test]
fn a_message_that_is_claimed_is_waited_for_and_answered_with_the_task() {
    let (record, other) = (task(), claimed("other"));
    let shown = TestRun::with_info(&record, about(&record));
    let (_host, decoded) = sent();
    let waiting = decoded.next_call(none()).next_call(Reply::Documents(&other)).next_call(none());
    assert!(matches!(waiting.call, Ok(Call::Wait(_))), "{:?}", waiting.call);
    let again = waiting.next_call(Reply::Done);
    assert_eq!(put(&again).2, Replaces::Nothing);

    let found = Page { runs: vec![shown.view()], total: 1, next: None };
    let answer = again.next_call(Reply::Documents(&other)).final_answer(Reply::Runs(found));
    assert_eq!(answer.json()["result"]["task"]["id"], support::NEW_ID.to_string());
}

#[test]
fn a_claim_is_withdrawn_if_the_task_is_there_by_then() {
    let record = task();
    let shown = TestRun::with_info(&record, about(&record));
    let (_host, decoded) = sent();
    let found = Page { runs: vec![shown.view()], total: 1, next: None };
    let withdrawing = decoded.next_call(none()).next_call(Reply::Done).next_call(Reply::Runs(found));
    assert!(matches!(withdrawing.call, Ok(Call::Document(DocumentCall::Delete { .. }))), "{:?}", withdrawing.call);
    let answer = withdrawing.next_call(Reply::Done).final_answer(Reply::Run(shown.view()));
    assert_eq!(answer.json()["result"]["task"]["id"], support::NEW_ID.to_string());
}

#[test]
fn the_claim_of_a_lost_request_is_taken_over() {
    let lost = claimed("lost");
    let (_host, decoded) = sent();
    let mut claiming = decoded.next_call(none());
    let mut attempts = 0;
    while put(&claiming).2 == Replaces::Nothing {
        attempts += 1;
        assert!(attempts < 100, "it is never taken over");
        claiming = claiming.next_call(Reply::Documents(&lost)).next_call(none()).next_call(Reply::Done);
    }
    let (key, value, replaces) = put(&claiming);
    assert_eq!(replaces, Replaces::Value(lost[0].1.clone()));
    let started = claiming.next_call(Reply::Done).next_call(none());
    assert_eq!(claim_of(started.run()), (key, value));
}

#[test]
fn a_message_that_others_claim_one_after_the_other_is_refused_in_the_end() {
    let (_host, decoded) = sent();
    let mut claiming = decoded.next_call(none());
    for attempt in 0..200 {
        let other = claimed(&attempt.to_string());
        match claiming.next_call(Reply::Documents(&other)).reply(none()) {
            Err(waiting) => claiming = waiting.next_call(Reply::Done),
            Ok(refused) => {
                assert_eq!(refused.json()["error"]["code"], -32603, "{refused:?}");
                return;
            }
        }
    }
    panic!("it waits for ever");
}
