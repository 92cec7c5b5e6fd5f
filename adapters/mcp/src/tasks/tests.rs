//! Each row of the table of tasks, updates, and the following of runs that answered over another protocol.

use interlingua_core::call::{DocumentCall, RunInfo, RunState, Thread};
use interlingua_core::model::MessageType;
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::run::{MessageEnd, Record, RunError};
use interlingua_core::{AnswerBody, End, Json};
use interlingua_core_testkit::{NOW, RUN, RunBuilder, run_info};
use serde_json::json;

use super::*;
use crate::options::Options;

const FORM: Modes = Modes { form: true, url: false };
const DAY: u64 = 24 * 60 * 60 * 1000;

/// A run with what the engine knows of it.
struct StoredRun {
    record: Record,
    info: RunInfo,
    pending: Vec<Pending>,
}

impl StoredRun {
    fn new(record: Record) -> Self {
        let info = RunInfo { protocol: crate::revision::NAME.to_owned(), ..run_info(&record) };
        let pending = record.run().pending();
        Self { record, info, pending }
    }

    fn view(&self) -> RunView<'_> {
        RunView { record: &self.record, info: &self.info, pending: &self.pending }
    }
}

fn ask(run: &mut RunBuilder, id: &str) {
    let request = json!({"id": id, "name": "send", "arguments": "{}", "interrupt": {"kind": "approval", "decisions": ["accept"]}});
    run.data(MessageType::McpApprovalRequest, &request.to_string());
}

/// A run that waits for decisions about these calls.
fn waiting(ids: &[&str]) -> StoredRun {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["One moment."]);
    ids.iter().for_each(|id| ask(&mut run, id));
    run.record.finish_turn(End::Completed, None);
    StoredRun::new(run.record)
}

fn ended(end: End) -> StoredRun {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["Hello"]);
    StoredRun::new(run.finish(end))
}

fn failed(code: &str) -> StoredRun {
    let mut run = RunBuilder::begin();
    run.record.close(End::Failed, Some(RunError { code: code.to_owned(), message: "it broke".to_owned() }));
    StoredRun::new(run.record)
}

/// The run of `stored` after another run has answered it.
fn answered_by(mut stored: StoredRun, other: RunId) -> StoredRun {
    stored.record.start_linked_turn(other);
    stored.info.state = RunState::Running;
    stored.pending.clear();
    stored
}

fn context(options: &Options) -> ResultContext<'_> {
    ResultContext { options, revision: Revision::July2026, resources: true }
}

fn request(method: TaskMethod, params: Value) -> Result<(TaskRequest, Call), RpcError> {
    let Value::Object(params) = params else { panic!("an object") };
    TaskRequest::decode(method, &params, FORM, NOW + 5)
}

/// Answers the calls of a request from these runs, and from the document of closed questions. Returns the result, and
/// the other calls that it made.
fn drive(
    method: TaskMethod,
    responses: Option<Value>,
    runs: &[&StoredRun],
    documents: &[(String, Json)],
) -> (Result<Value, RpcError>, Vec<Call>) {
    let options = Options::default();
    let mut params = json!({ "taskId": runs[0].view().run().id.to_string() });
    if let Some(responses) = responses {
        params["inputResponses"] = responses;
    }
    let (mut request, mut call) = match request(method, params) {
        Ok(decoded) => decoded,
        Err(error) => return (Err(error), Vec::new()),
    };
    let mut made = Vec::new();
    loop {
        let reply = match &call {
            Call::Fetch(Target::Run(id)) => match runs.iter().find(|run| run.view().run().id == *id) {
                Some(run) => Reply::Run(run.view()),
                None => match request.on_not_found() {
                    Some(other) => {
                        call = other;
                        continue;
                    }
                    None => panic!("no such run"),
                },
            },
            Call::Document(DocumentCall::Get { .. }) => Reply::Documents(documents),
            Call::Run(_) | Call::Cancel(_) => {
                made.push(call.clone());
                Reply::Run(runs[runs.len() - 1].view())
            }
            Call::Document(_) => {
                made.push(call.clone());
                Reply::Done
            }
            Call::Nothing => Reply::Done,
            other => panic!("{other:?}"),
        };
        match request.reply(reply, &context(&options)) {
            Ok(TaskStep::Call(next)) => call = next,
            Ok(TaskStep::Result(result)) => return (Ok(result), made),
            Err(error) => return (Err(error), made),
        }
    }
}

fn get(runs: &[&StoredRun]) -> Value {
    drive(TaskMethod::Get, None, runs, &[]).0.expect("a task")
}

#[test]
fn a_call_is_answered_with_the_bare_task() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["Hello"]);
    let stored = StoredRun::new(run.record);
    assert_eq!(
        created(stored.view(), &Options::default(), NOW),
        json!({"resultType": "task", "taskId": RUN.to_string(), "status": "working", "ttlMs": DAY, "pollIntervalMs": 1000,
            "createdAt": interlingua_core::time::format_rfc3339_millis(NOW),
            "lastUpdatedAt": interlingua_core::time::format_rfc3339_millis(NOW)})
    );
}

#[test]
fn each_state_of_a_run_has_its_status() {
    let mut run = RunBuilder::begin();
    let bare = get(&[&StoredRun::new(RunBuilder::begin().record)]);
    assert_eq!((&bare["status"], &bare["statusMessage"]), (&json!("working"), &json!("demo is working")));
    run.say(MessageType::Message, &["x".repeat(300).as_str(), "end"]);
    let working = get(&[&StoredRun::new(run.record)]);
    assert_eq!(working["resultType"], "complete");
    let said = working["statusMessage"].as_str().expect("a text");
    assert_eq!((said.chars().count(), said.ends_with("xend")), (200, true));

    let asks = get(&[&waiting(&["a", "b c"])]);
    assert_eq!(asks["status"], "input_required");
    let keys: Vec<&String> = asks["inputRequests"].as_object().expect("an object").keys().collect();
    assert_eq!((keys.len(), keys[0].as_str(), keys[1].starts_with("b_c-")), (2, "a", true));
    assert_eq!(asks["inputRequests"]["a"]["params"]["mode"], "form");

    for end in [End::Completed, End::Incomplete] {
        let task = get(&[&ended(end)]);
        assert_eq!(task["status"], "completed", "{end:?}");
        assert_eq!(task["result"]["content"][0]["text"], "Hello");
        assert!(task.get("error").is_none() && task.get("inputRequests").is_none());
    }
    for code in ["AGENT_ERROR", "UPSTREAM_UNREACHABLE", "MY_OWN_CODE"] {
        let task = get(&[&failed(code)]);
        assert_eq!((&task["status"], &task["result"]["isError"]), (&json!("completed"), &json!(true)), "{code}");
    }
    for code in ["UPSTREAM_PROTOCOL_ERROR", "GATEWAY_RESTARTED"] {
        let task = get(&[&failed(code)]);
        assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!(-32603)), "{code}");
        assert_eq!(task["error"]["data"]["code"], code);
        assert!(task["statusMessage"].is_string() && task.get("result").is_none());
    }
    let canceled = get(&[&ended(End::Canceled)]);
    assert_eq!(canceled["status"], "cancelled");
    assert!(canceled.get("result").is_none() && canceled.get("error").is_none());
}

#[test]
fn a_run_of_another_protocol_that_ended_with_its_question_still_asks() {
    let mut run = RunBuilder::begin();
    ask(&mut run, "a");
    let mut stored = StoredRun::new(run.finish(End::Completed));
    stored.info.protocol = "agent-api".to_owned();
    assert_eq!(get(&[&stored])["status"], "input_required");
    stored.pending.clear();
    assert_eq!(get(&[&stored])["status"], "completed");
}

#[test]
fn a_task_lives_a_day_after_its_creation_and_after_its_end() {
    let options = Options::default();
    let ttl = |stored: &StoredRun, now| created(stored.view(), &options, now)["ttlMs"].as_u64().expect("a number");
    let working = waiting(&["a"]);
    assert_eq!(ttl(&working, NOW), DAY);
    assert_eq!(ttl(&working, NOW + DAY - 1), DAY);
    assert_eq!(ttl(&working, NOW + 3 * DAY), 4 * DAY, "not before the end");
    let mut over = ended(End::Completed);
    over.info.changed_at = NOW + 7000;
    assert_eq!(ttl(&over, NOW + 9000), DAY + 7000);
}

#[test]
fn a_client_without_forms_gets_no_requests() {
    let options = Options::default();
    let stored = waiting(&["a"]);
    let task = current(&[stored.view()], &context(&options), Modes::default(), &DismissalCounts::default(), NOW);
    assert_eq!((&task["status"], &task["inputRequests"]), (&json!("input_required"), &json!({})));
    assert!(task["statusMessage"].is_string());
}

#[test]
fn answers_are_taken_one_by_one_or_all() {
    let stored = waiting(&["a", "b"]);
    let accept = json!({"action": "accept", "content": {"decision": "accept"}});
    for responses in [json!({"a": accept}), json!({"a": accept, "b": {"action": "decline"}, "other": accept})] {
        let count = responses.as_object().expect("an object").keys().filter(|key| *key != "other").count();
        let (result, made) = drive(TaskMethod::Update, Some(responses), &[&stored], &[]);
        assert_eq!(result, Ok(json!({"resultType": "complete"})));
        let [Call::Run(call)] = made.as_slice() else { panic!("{made:?}") };
        assert_eq!(
            (call.answers.len(), &call.thread, call.delivery),
            (count, &Thread::Continue(RUN), Delivery::Background)
        );
        assert!(matches!(call.answers[0].given, AnswerBody::Decided { decision: Decision::Accept, .. }));
        assert!(call.request.input.is_empty() && call.policy.detached);
    }
}

#[test]
fn nothing_is_taken_if_one_answer_decides_nothing() {
    let stored = waiting(&["a", "b"]);
    let responses = json!({"a": {"action": "accept", "content": {"decision": "accept"}}, "b": {"action": "accept"}});
    let (result, made) = drive(TaskMethod::Update, Some(responses), &[&stored], &[]);
    let error = result.expect_err("undecided");
    assert_eq!((error.status, error.code), (200, -32602));
    let data = error.data.expect("details");
    assert_eq!((&data["code"], &data["key"]), (&json!("ANSWER_UNDECIDED"), &json!("b")));
    assert!(made.is_empty());
}

#[test]
fn wrong_responses_are_refused_and_late_ones_acknowledged() {
    let accept = json!({"action": "accept", "content": {"decision": "accept"}});
    for wrong in [json!([]), json!(null), json!({"a": true})] {
        let (result, _) = drive(TaskMethod::Update, Some(wrong), &[&waiting(&["a"])], &[]);
        assert_eq!(result.expect_err("no object").code, -32602);
    }
    for stored in [ended(End::Completed), ended(End::Canceled), StoredRun::new(RunBuilder::begin().record)] {
        let (result, made) = drive(TaskMethod::Update, Some(json!({"a": accept})), &[&stored], &[]);
        assert_eq!((result, made.len()), (Ok(json!({"resultType": "complete"})), 0));
    }
    let (result, made) = drive(TaskMethod::Update, None, &[&waiting(&["a"])], &[]);
    assert_eq!((result, made.len()), (Ok(json!({"resultType": "complete"})), 0));
}

#[test]
fn a_closed_question_comes_back_under_another_key() {
    let stored = waiting(&["a", "b"]);
    let mut documents: Vec<(String, Json)> = Vec::new();
    for (key, next) in [("a", "a#2"), ("a#2", "a#3")] {
        let (result, made) =
            drive(TaskMethod::Update, Some(json!({key: {"action": "cancel"}})), &[&stored], &documents);
        assert_eq!(result, Ok(json!({"resultType": "complete"})));
        let [Call::Document(DocumentCall::Put { key, value, .. })] = made.as_slice() else { panic!("{made:?}") };
        assert!(key.starts_with(&RUN.to_string()), "it is deleted with the run");
        documents = vec![(key.clone(), value.clone())];
        let asks = drive(TaskMethod::Get, None, &[&stored], &documents).0.expect("a task");
        let keys: Vec<&String> = asks["inputRequests"].as_object().expect("an object").keys().collect();
        assert_eq!(keys, [next, "b"]);
    }
    let accept = json!({"action": "accept", "content": {"decision": "accept"}});
    let (result, made) = drive(TaskMethod::Update, Some(json!({"a": accept, "a#2": accept})), &[&stored], &documents);
    assert_eq!((result.is_ok(), made.len()), (true, 0), "old keys decide nothing");
    let both = json!({"a#3": accept, "b": {"action": "cancel"}});
    let (_, made) = drive(TaskMethod::Update, Some(both), &[&stored], &documents);
    assert!(matches!(made.as_slice(), [Call::Run(_), Call::Document(DocumentCall::Put { .. })]), "{made:?}");
}

#[test]
fn a_question_with_an_old_id_gets_a_new_key() {
    let mut run = RunBuilder::begin();
    ask(&mut run, "a");
    run.record.finish_turn(End::Completed, None);
    run.record.start_turn(Vec::new());
    ask(&mut run, "a");
    run.record.finish_turn(End::Completed, None);
    let task = get(&[&StoredRun::new(run.record)]);
    assert_eq!(task["inputRequests"].as_object().expect("an object").keys().collect::<Vec<_>>(), ["a#2"]);
}

#[test]
fn a_task_follows_the_run_that_answered_it() {
    let other_id = RunId::parse("00000000-0000-0000-0000-0000000000aa").expect("an id");
    let first = answered_by(waiting(&["a"]), other_id);
    let run = interlingua_core::run::Run::new(other_id, "demo", "session-1", NOW + 10);
    let mut other = RunBuilder::begin();
    other.record = Record::new(run);
    other.record.start_turn(Vec::new());
    other.say(MessageType::Message, &["Sent."]);

    let working = get(&[&first, &StoredRun::new(other.record.clone())]);
    assert_eq!((&working["taskId"], &working["status"]), (&json!(RUN.to_string()), &json!("working")));
    assert_eq!(working["statusMessage"], "Sent.");

    let mut asks = RunBuilder::begin();
    asks.record = other.record.clone();
    ask(&mut asks, "a");
    asks.record.finish_turn(End::Completed, None);
    let mut asking = StoredRun::new(asks.record);
    asking.info.protocol = "a2a".to_owned();
    let task = get(&[&first, &asking]);
    assert_eq!(task["inputRequests"].as_object().expect("an object").keys().collect::<Vec<_>>(), ["a#2"]);
    let accept = json!({"a#2": {"action": "accept", "content": {"decision": "accept"}}});
    let (_, made) = drive(TaskMethod::Update, Some(accept), &[&first, &asking], &[]);
    let [Call::Run(call)] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(call.thread, Thread::Session("session-1".to_owned()), "a run of its own");

    let done = get(&[&first, &StoredRun::new(other.finish(End::Completed))]);
    assert_eq!((&done["taskId"], &done["status"]), (&json!(RUN.to_string()), &json!("completed")));
    let texts: Vec<&Value> =
        done["result"]["content"].as_array().expect("a list").iter().map(|block| &block["text"]).collect();
    assert_eq!(texts[..2], [&json!("One moment."), &json!("Sent.")]);

    assert_eq!(get(&[&first])["status"], "working", "the other run was deleted");
}

#[test]
fn tasks_are_cancelled_whatever_their_state() {
    for stored in [ended(End::Completed), waiting(&["a"])] {
        let (result, made) = drive(TaskMethod::Cancel, None, &[&stored], &[]);
        assert_eq!(result, Ok(json!({"resultType": "complete"})));
        assert!(matches!(made.as_slice(), [Call::Cancel(Target::Run(RUN))]));
    }
}

#[test]
fn a_task_has_to_be_named_and_known() {
    for params in [json!({}), json!({"taskId": 7}), json!({"taskId": "x"}), json!({"taskId": ""})] {
        for method in [TaskMethod::Get, TaskMethod::Update, TaskMethod::Cancel] {
            let error = request(method, params.clone()).err().expect("refused");
            assert_eq!((error.status, error.code), (200, -32602), "{params}");
        }
    }
    let named = || json!({ "taskId": RUN.to_string() });
    for method in [TaskMethod::Get, TaskMethod::Update, TaskMethod::Cancel] {
        let (request, _) = request(method, named()).expect("a request");
        assert!(request.on_not_found().is_none());
        let answer = request.on_fault(&Fault::not_found("run")).expect("an answer");
        assert_eq!(answer.expect_err("an error"), unknown_task());
        assert!(request.on_fault(&Fault::internal()).is_none());
    }
}

#[test]
fn faults_of_answers_are_answers_of_the_task() {
    let (mut request, _) = request(TaskMethod::Update, json!({ "taskId": RUN.to_string() })).expect("a request");
    let fault = |code: &str| Fault::new(FaultKind::Invalid, "no").with_code(code);
    assert!(request.on_fault(&fault(NOT_WAITING)).is_none());
    request.stage = Stage::Answering(None);
    assert_eq!(request.on_fault(&fault(NOT_WAITING)), Some(Ok(json!({"resultType": "complete"}))));
    for code in [UNDECIDED, NOT_TAKEN] {
        let error = request.on_fault(&fault(code)).expect("an answer").expect_err("an error");
        assert_eq!((error.code, error.data), (-32602, Some(json!({ "code": code }))));
    }
}

#[test]
fn a_message_of_an_unknown_end_does_not_matter() {
    // Only texts of the agent are shown while it works.
    let mut run = RunBuilder::begin();
    let message = run.message(MessageType::Reasoning);
    run.text(message, interlingua_core::model::ContentType::Text, &["thinking"]);
    run.record.finish_message(message, MessageEnd::new(End::Completed));
    assert_eq!(get(&[&StoredRun::new(run.record)])["statusMessage"], "demo is working");
}
