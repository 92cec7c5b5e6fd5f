//! The result by the state of the run, and the division of errors.

use interlingua_core::FaultKind;
use interlingua_core::call::RunInfo;
use interlingua_core::run::RunError;
use interlingua_core_testkit::{RUN, run_info, script, started};

use super::*;

/// A run that said something and ended this way.
fn with_error(end: End, error: Option<(&str, &str)>) -> Record {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["So far"]);
    let mut record = run.record;
    record.close(end, error.map(|(code, message)| RunError { code: code.into(), message: message.into() }));
    record
}

/// Blocks, status word and `isError`.
fn facts(result: &Value) -> (Vec<String>, &str, bool) {
    let status = result["_meta"]["interlingua/status"].as_str().expect("a text");
    (shown(result), status, result["isError"].as_bool().expect("a boolean"))
}

#[test]
fn every_end_has_its_result() {
    let failed = with_error(End::Failed, Some(("AGENT_ERROR", "no luck")));
    let rejected = with_error(End::Rejected, Some(("NOT_ALLOWED", "go away")));
    for (record, blocks, status, is_error) in [
        (with_error(End::Completed, None), &["So far", NOTE][..], "completed", false),
        (with_error(End::Incomplete, None), &["So far", "[the answer was cut off]", NOTE], "incomplete", false),
        (failed, &["AGENT_ERROR: no luck", "So far", NOTE], "failed", true),
        (with_error(End::Failed, None), &["AGENT_ERROR: the agent failed", "So far", NOTE], "failed", true),
        (rejected, &["NOT_ALLOWED: go away", NOTE], "rejected", true),
        (with_error(End::Rejected, None), &["REJECTED: the agent rejected the request", NOTE], "rejected", true),
        (with_error(End::Canceled, None), &["CANCELED: the run was cancelled", "So far", NOTE], "canceled", true),
    ] {
        let result = ended(&record, json!({})).expect("a result");
        assert_eq!(facts(&result), (blocks.iter().map(|text| (*text).to_owned()).collect(), status, is_error));
        assert_eq!(result["_meta"]["interlingua/run"], RUN.to_string());
        assert_eq!(result["_meta"]["interlingua/session"], "session-1");
        assert_eq!(result["_meta"].get("interlingua/error").is_some(), is_error);
    }
}

#[test]
fn errors_are_described_for_programs() {
    let error = |code: &str| {
        let record = with_error(End::Failed, Some((code, "why")));
        ended(&record, json!({ "structured": true })).map(|result| {
            assert_eq!(result["structuredContent"]["error"], result["_meta"]["interlingua/error"]);
            result["_meta"]["interlingua/error"].clone()
        })
    };
    let described = |code: &str, retryable: bool, blame: &str| {
        Ok(json!({ "code": code, "message": "why", "retryable": retryable, "blame": blame }))
    };
    assert_eq!(error("OUT_OF_CHEESE"), described("OUT_OF_CHEESE", false, "upstream"));
    assert_eq!(error("AGENT_ERROR"), described("AGENT_ERROR", false, "upstream"));
    assert_eq!(error("UPSTREAM_RATE_LIMITED"), described("UPSTREAM_RATE_LIMITED", true, "upstream"));
    assert_eq!(error("SESSION_BUSY"), described("SESSION_BUSY", true, "client"));
}

#[test]
fn errors_are_divided_by_who_can_act_on_them() {
    let protocol_errors = [
        "UPSTREAM_PROTOCOL_ERROR",
        "UPSTREAM_TOO_LARGE",
        "GATEWAY_RESTARTED",
        "GATEWAY_SHUTTING_DOWN",
        "GATEWAY_OVERLOADED",
        "GATEWAY_ERROR",
    ];
    for kind in FaultKind::ALL {
        let code = kind.code();
        let result = ended(&with_error(End::Failed, Some((code, "why"))), json!({}));
        match (protocol_errors.contains(&code), result) {
            (true, Err(error)) => {
                assert_eq!((error.status, error.code, error.message.as_str()), (200, -32603, "why"), "{code}");
                let data = error.data.expect("data");
                assert_eq!((&data["code"], &data["run"]), (&json!(code), &json!(RUN.to_string())));
                assert_eq!(data["session"], "session-1");
                assert!(data["retryable"].is_boolean() && data["blame"].is_string(), "{data}");
            }
            (false, Ok(result)) => {
                assert_eq!(shown(&result), [format!("{code}: why"), "So far".into(), NOTE.into()]);
            }
            (_, other) => panic!("{code}: {other:?}"),
        }
    }
}

#[test]
fn faults_before_a_run_are_divided_likewise() {
    let options = options(json!({}));
    let context = context(&options, Revision::July2026);
    let is_result = |kind: FaultKind| fault_result(&context, &Fault::new(kind, "why"), None).is_some();
    use FaultKind as K;
    for kind in [K::Busy, K::NotFound, K::Waiting, K::Conflict, K::Invalid, K::UpstreamUnreachable, K::UpstreamTimeout]
    {
        assert!(is_result(kind), "{kind:?}");
    }
    for kind in [K::Overloaded, K::ShuttingDown, K::Internal, K::RateLimited, K::Unauthenticated, K::TooLarge] {
        assert!(!is_result(kind), "{kind:?}");
    }
    let fault = Fault::new(K::Busy, "session 'a' is busy").with_code("WORN_OUT");
    let result = fault_result(&context, &fault, None).expect("a result");
    assert_eq!(facts(&result), (vec!["WORN_OUT: session 'a' is busy".to_owned()], "failed", true));
    let expected = json!({ "code": "SESSION_BUSY", "retryable": true, "blame": "client" });
    assert_eq!(fault_data(&Fault::new(K::Busy, "x")), expected);
}

#[test]
fn errors_of_tools_come_first() {
    let options = options(json!({}));
    let context = context(&options, Revision::November2025);
    let error = ToolError::new("NOT_WAITING", "nothing waits");
    let result = tool_error(&context, &error, None);
    assert_eq!(facts(&result), (vec!["NOT_WAITING: nothing waits".to_owned()], "failed", true));
    assert_eq!(result.get("resultType"), None);
    let record = with_error(End::Completed, None);
    let result = tool_error(&context, &error, Some(TestRun::new(&record).view()));
    assert_eq!(shown(&result), ["NOT_WAITING: nothing waits", NOTE]);
    assert_eq!(result["_meta"]["interlingua/run"], RUN.to_string());
}

#[test]
fn a_run_that_waits_says_what_to_do() {
    let question = script("input_question").record();
    let result = waiting(&question, json!({}));
    let (blocks, status, is_error) = facts(&result);
    assert_eq!((status, is_error), ("input_required", false));
    let item = &question.run().pending()[0].id;
    let next = format!("Ask the person; then call answer with run {RUN} and item {item}.");
    assert_eq!(blocks[blocks.len() - 2..], [next.clone(), NOTE.to_owned()]);
    assert!(blocks[blocks.len() - 3].contains(&format!("(item {item}, decisions: ")), "{blocks:?}");

    let structured = waiting(&question, json!({ "structured": true }));
    let object = &structured["structuredContent"];
    assert_eq!((&object["next"], &object["status"]), (&json!(next), &json!("input_required")));
    assert_eq!((&object["pending"][0]["item"], &object["pending"][0]["kind"]), (&json!(item), &json!("input")));
}

#[test]
fn a_model_is_not_asked_to_approve() {
    let approval = script("approval").record();
    let result = waiting(&approval, json!({}));
    let text = shown(&result).join("\n");
    assert!(text.contains("A person has to approve this, in the console or in another client"), "{text}");
    assert!(text.contains(&format!("Afterwards call wait with run {RUN}.")), "{text}");
    let pending = &waiting(&approval, json!({ "structured": true }))["structuredContent"]["pending"][0];
    assert!(pending["name"].is_string() && pending["arguments"].is_object(), "{pending}");
    assert!(pending["decisions"].as_array().is_some_and(|words| words.contains(&json!("reject"))), "{pending}");

    let text = shown(&waiting(&approval, json!({ "answer_tool_approves": true }))).join("\n");
    assert!(text.contains(&format!("Ask the person; then call answer with run {RUN} and item ")), "{text}");
    let text = shown(&waiting(&approval, json!({ "answer_tool": "" }))).join("\n");
    assert!(text.contains("The person has to answer in another client."), "{text}");
    let several =
        shown(&waiting(&script("approvals_parallel").record(), json!({ "answer_tool_approves": true }))).join("\n");
    assert!(several.contains("once for each item"), "{several}");
}

#[test]
fn a_refused_answer_gives_its_reason() {
    let question = script("input_question").record();
    let run = TestRun::new(&question).state(RunState::Waiting);
    let options = options(json!({}));
    let outcome = Outcome::Waiting { reason: Some("That is no city.") };
    let result = call_result(&context(&options, Revision::July2026), &[run.view()], outcome).expect("a result");
    assert!(shown(&result).iter().any(|text| text.starts_with("That is no city.\n")), "{result}");
}

#[test]
fn a_run_that_continues_says_how_to_wait() {
    let mut record = started();
    let message = record.start_message(interlingua_core::run::MessageStart::new(
        "",
        MessageType::Message,
        interlingua_core::model::Role::Assistant,
    ));
    let content = record.start_content(message, interlingua_core::model::ContentType::Text, None);
    record.push(message, content, "Beginning");
    let run = TestRun::new(&record);
    let result = |options_text: Value| {
        let options = options(options_text);
        call_result(&context(&options, Revision::July2026), &[run.view()], Outcome::of(run.view())).expect("a result")
    };
    let wait = format!("The agent is still working. Call wait with run {RUN} for the rest of its answer.");
    let blocks = vec!["Beginning".to_owned(), wait.clone(), NOTE.to_owned()];
    assert_eq!(facts(&result(json!({}))), (blocks, "working", false));
    assert_eq!(result(json!({ "structured": true }))["structuredContent"]["next"], wait);
    let read = format!("The agent is still working. Read interlingua://runs/{RUN} later.");
    assert!(shown(&result(json!({ "wait_tool": "" }))).contains(&read));
    let neither = shown(&result(json!({ "wait_tool": "", "resources": false })));
    assert!(neither.contains(&format!("The agent is still working. The run is {RUN}.")), "{neither:?}");
}

#[test]
fn a_chain_has_one_result() {
    let mut first = RunBuilder::begin();
    first.say(MessageType::Message, &["May I?"]);
    let mut first = first.record;
    first.finish_turn(End::Completed, None);
    first.start_linked_turn(interlingua_core::RunId(uuid::Uuid::from_u128(9)));
    first.finish_turn(End::Failed, None);
    first.finish_run(End::Failed);

    let mut second =
        Record::new(interlingua_core::Run::new(interlingua_core::RunId(uuid::Uuid::from_u128(9)), "demo", "other", 0));
    second.start_turn(Vec::new());
    second.close(End::Failed, Some(RunError { code: "AGENT_ERROR".into(), message: "too late".into() }));

    let options = options(json!({}));
    let runs = [TestRun::new(&first), TestRun::new(&second)];
    let views = runs.each_ref().map(TestRun::view);
    let result = call_result(&context(&options, Revision::July2026), &views, Outcome::Ended).expect("a result");
    assert_eq!(shown(&result), ["AGENT_ERROR: too late", "May I?", NOTE]);
    assert_eq!(result["_meta"]["interlingua/run"], RUN.to_string());
}

#[test]
fn usage_is_the_sum_of_all_turns_and_never_invented() {
    let one = RunBuilder::begin().finish(End::Completed);
    let two = RunBuilder::begin().finish(End::Completed);
    let options = options(json!({}));
    let runs = [TestRun::new(&one), TestRun::new(&two)];
    let views = runs.each_ref().map(TestRun::view);
    let result = call_result(&context(&options, Revision::July2026), &views, Outcome::Ended).expect("a result");
    let sum = json!({ "input_tokens": 22, "output_tokens": 14, "total_tokens": 36 });
    assert_eq!(result["_meta"]["interlingua/usage"], sum);
    let silent = ended(&with_error(End::Completed, None), json!({})).expect("a result");
    assert_eq!(silent["_meta"].get("interlingua/usage"), None);
}

#[test]
fn the_outcome_follows_from_the_state() {
    let record = with_error(End::Completed, None);
    let of = |state: RunState| {
        let run = TestRun::with_info(&record, RunInfo { state, ..run_info(&record) });
        Outcome::of(run.view())
    };
    assert_eq!([of(RunState::Queued), of(RunState::Running)], [Outcome::Working, Outcome::Working]);
    assert_eq!(of(RunState::WaitingForAuth), Outcome::Waiting { reason: None });
    assert_eq!(of(RunState::Ended(End::Failed)), Outcome::Ended);
    let cut = with_error(End::Incomplete, None);
    let run = TestRun::with_info(&cut, RunInfo { state: RunState::Waiting, ..run_info(&cut) });
    assert_eq!(Outcome::of(run.view()), Outcome::Ended, "an answer that was cut off asks nothing");
}
