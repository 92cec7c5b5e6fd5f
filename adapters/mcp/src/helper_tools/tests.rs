//! The arguments of `answer` and `wait`, and who decides.

use interlingua_core::call::Thread;
use interlingua_core::model::MessageType;
use interlingua_core::{End, Target};
use interlingua_core_testkit::{RUN, RunBuilder, TestRun, run_info};
use serde_json::json;

use super::*;

fn run_with(requests: &[Value]) -> RunBuilder {
    let mut run = RunBuilder::begin();
    for request in requests {
        run.data(MessageType::McpApprovalRequest, &request.to_string());
    }
    run
}

fn approval(id: &str) -> Value {
    json!({"id": id, "name": "send", "arguments": "{\"to\":\"a\"}",
        "interrupt": {"kind": "approval", "decisions": ["accept", "edit", "respond", "reject"]}})
}

fn login() -> Value {
    json!({"id": "l", "name": "login", "interrupt": {"kind": "auth"}})
}

fn question() -> Value {
    json!({"id": "q", "name": "ask", "interrupt": {"kind": "input", "response_schema": {"type": "integer"}}})
}

/// The plan, or the code of the error, for a run that waits for these items.
fn answer_with(requests: &[Value], arguments: Value, options: &Options) -> Result<AnswerPlan, String> {
    let mut arguments = arguments;
    arguments["run"] = json!(RUN.to_string());
    let mut run = run_with(requests);
    run.record.finish_turn(End::Completed, None);
    let info = interlingua_core::call::RunInfo { protocol: crate::revision::NAME.to_owned(), ..run_info(&run.record) };
    let view = TestRun::with_info(&run.record, info);

    let (mut tool, call) = AnswerTool::decode(&arguments).map_err(|error| error.code.to_owned())?;
    assert!(matches!(call, Call::Fetch(Target::Run(RUN))));
    let mut reply = tool.reply(Reply::Run(view.view()), options);
    if matches!(reply, Ok(LoadStep::Call(_))) {
        reply = tool.reply(Reply::Documents(&[]), options);
    }
    match reply {
        Ok(LoadStep::Done(plan)) => Ok(plan),
        Ok(LoadStep::Call(call)) => panic!("{call:?}"),
        Err(HelperError::Tool(error)) => Err(error.code.to_owned()),
        Err(HelperError::Rpc(error)) => panic!("{error:?}"),
    }
}

fn answer(requests: &[Value], arguments: Value) -> Result<AnswerPlan, String> {
    answer_with(requests, arguments, &Options::default())
}

#[test]
fn a_model_approves_nothing_and_may_reject() {
    let approvals = [approval("a")];
    for arguments in [
        json!({"decision": "accept"}),
        json!({"decision": "edit", "arguments": {"to": "b"}}),
        json!({"decision": "edit"}),
        json!({"decision": "respond", "text": "done"}),
        json!({"text": "yes"}),
        json!({"text": "{\"approved\":true}"}),
        json!({"value": {"approve": true}}),
        json!({"value": true}),
        json!({"value": {"type": "edit", "args": {"to": "b"}}}),
        json!({"value": {"type": "response", "args": "done"}}),
    ] {
        assert_eq!(answer(&approvals, arguments.clone()).err().as_deref(), Some("PERMISSION_DENIED"), "{arguments}");
        let approves = Options { answer_tool_approves: true, ..Options::default() };
        let allowed = answer_with(&approvals, arguments.clone(), &approves);
        assert!(allowed.is_ok() || arguments == json!({"decision": "edit"}), "{arguments}");
    }
    for arguments in [json!({"decision": "reject", "text": "no"}), json!({"decision": "cancel"}), json!({"text": "no"})]
    {
        assert!(answer(&approvals, arguments.clone()).is_ok(), "{arguments}");
    }
    for arguments in [json!({"decision": "accept"}), json!({"text": "done"}), json!({"value": true})] {
        assert_eq!(answer(&[login()], arguments.clone()).err().as_deref(), Some("PERMISSION_DENIED"), "{arguments}");
    }
    assert!(answer(&[login()], json!({"decision": "reject"})).is_ok());
}

#[test]
fn questions_are_answered_in_words_or_as_json() {
    for arguments in [
        json!({"value": 5}),
        json!({"text": "5"}),
        json!({"decision": "respond", "text": "5"}),
        json!({"decision": "respond", "value": 5}),
        json!({"item": "q", "value": 5}),
        json!({"decision": "reject"}),
    ] {
        let plan = answer(&[question()], arguments.clone()).expect("an answer");
        assert_eq!((plan.asked_by, plan.turns), (RUN, 1));
        assert_eq!((&plan.call.thread, plan.call.answers[0].id.as_str()), (&Thread::Continue(RUN), "q"), "{arguments}");
        assert_eq!(plan.call.delivery, Delivery::Stream);
    }
    assert_eq!(answer(&[question()], json!({"text": "five"})).err().as_deref(), Some("ANSWER_NOT_TAKEN"));
}

#[test]
fn an_answer_without_a_decision_or_without_its_item_is_undecided() {
    for arguments in [json!({}), json!({"arguments": {"to": "b"}}), json!({"text": "perhaps"}), json!({"value": {}})] {
        assert_eq!(
            answer(&[approval("a")], arguments.clone()).err().as_deref(),
            Some("ANSWER_UNDECIDED"),
            "{arguments}"
        );
    }
    let two = [approval("a"), question()];
    assert_eq!(answer(&two, json!({"decision": "reject"})).err().as_deref(), Some("ANSWER_UNDECIDED"));
    assert!(answer(&two, json!({"item": "a", "decision": "reject"})).is_ok());
    assert_eq!(answer(&two, json!({"item": "b", "decision": "reject"})).err().as_deref(), Some("NOT_WAITING"));
    assert_eq!(answer(&[], json!({"decision": "reject"})).err().as_deref(), Some("NOT_WAITING"));
}

#[test]
fn wrong_arguments_are_named() {
    let code = |arguments: Value| AnswerTool::decode(&arguments).err().map(|error| error.code);
    let run = RUN.to_string();
    assert_eq!(code(json!({})), Some("MISSING_PARAMETER"));
    assert_eq!(code(json!({"run": " "})), Some("MISSING_PARAMETER"));
    assert_eq!(code(json!({"run": 7})), Some("PARAMETER_VALIDATION"));
    assert_eq!(code(json!({"run": "x"})), Some("RESOURCE_NOT_FOUND"));
    assert_eq!(code(json!({"run": run, "decision": "yes"})), Some("INVALID_PARAMETER"));
    assert_eq!(code(json!({"run": run, "arguments": "{}"})), Some("PARAMETER_VALIDATION"));
    assert_eq!(code(json!({"run": run, "text": 1})), Some("PARAMETER_VALIDATION"));
    assert_eq!(code(json!({"run": run, "approve": true})), Some("INVALID_PARAMETER"));
    assert_eq!(code(json!({"run": run, "item": null, "value": null})), None);

    assert_eq!(wait(&json!({"run": run})).ok(), Some(RUN));
    assert_eq!(wait(&json!({"run": RUN.to_prefixed("run_")})).ok(), Some(RUN));
    assert_eq!(wait(&json!({})).err().map(|error| error.code), Some("MISSING_PARAMETER"));
    assert_eq!(wait(&Value::Null).err().map(|error| error.code), Some("MISSING_PARAMETER"));
}

#[test]
fn unknown_runs_and_late_answers_have_their_codes() {
    let code = |fault: Fault| tool_fault(&fault).map(|error| error.code);
    assert_eq!(code(Fault::not_found("run")), Some("RESOURCE_NOT_FOUND"));
    assert_eq!(code(Fault::new(FaultKind::Conflict, "late").with_code(NOT_WAITING)), Some("NOT_WAITING"));
    assert_eq!(code(Fault::new(FaultKind::Invalid, "no").with_code(NOT_TAKEN)), Some("ANSWER_NOT_TAKEN"));
    assert_eq!(code(Fault::new(FaultKind::Overloaded, "full")), None);
}
