//! Tasks that wait, and what is answered to them.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::{Next, TurnRequest};
use interlingua_core::model::{Content, Message, MessageType, Role};
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core_testkit::DrivenTurn;
use serde_json::{Value, json};

use super::agent::{
    ALL, Dialect, Session, V1, V1_REST, decided, end, fixed, request, request_text, status, status_with, submitted,
    task, text, texts, transcript,
};

/// An agent that wants a mail approved, after it said something.
fn approval_request() -> Vec<Value> {
    let parts = json!([
        { "text": "Send this mail?" },
        { "data": { "interrupt": {
            "id": "appr_1", "kind": "approval", "name": "send_mail", "arguments": "{\"to\":\"a@b.c\"}",
            "decisions": ["accept", "edit", "reject"], "payload": { "x": 1 }
        } } }
    ]);
    vec![submitted(), text("a-1", "Writing.", false), status_with("INPUT_REQUIRED", "q-1", &parts)]
}

fn waiting(dialect: Dialect, items: &[Value]) -> (Session, DrivenTurn) {
    let mut session = Session::new(&fixed(dialect));
    let driven = session.send_text("Send it", [dialect.stream(1, items)]);
    (session, driven)
}

#[test]
fn an_approval_goes_round() {
    for dialect in ALL {
        let (mut session, first) = waiting(dialect, &approval_request());
        let stored = session.state.text().to_owned();
        // The task as it was before the answer reached it, and the artifact of the turn before.
        let mut stale = task("INPUT_REQUIRED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "Writing." }] }]));
        stale["status"]["message"] = approval_request()[2]["statusUpdate"]["status"]["message"].clone();
        let items = [
            json!({ "task": stale }),
            status("WORKING"),
            text("a-1", " Done.", true),
            text("a-2", "Sent.", false),
            status("COMPLETED"),
        ];
        let second = session.decide(&first, &CheckedDecision::new(Decision::Accept), [dialect.stream(1, &items)]);
        assert_eq!(texts(&second), [("message".into(), " Done.".into()), ("message".into(), "Sent.".into())]);
        let name = format!("approval_{}_{}", dialect.version, dialect.binding);
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name, format!("{}stored {stored}\n\n{}stored {}\n", transcript(&first), transcript(&second), session.state.text()));
        });
    }
}

/// The requests for decisions about two approvals, the second one first. `ids`: the agent's ids of the approvals.
fn two_decided(ids: [Value; 2], decided: [Decision; 2]) -> Result<Value, String> {
    let ask =
        |id: &Value, name: &str| json!({ "data": { "interrupt": { "id": id, "kind": "approval", "name": name } } });
    let parts = json!([{ "text": "May I?" }, ask(&ids[0], "a"), ask(&ids[1], "b")]);
    let (session, first) = waiting(V1_REST, &[submitted(), status_with("INPUT_REQUIRED", "q-1", &parts)]);
    let items = first.record.run().pending();
    let answer = |place: usize| CheckedDecision::new(decided[place]).message(&items[place], true);
    let request = request(vec![answer(1), answer(0)]);
    let turn = TurnRequest::new(&request, &session.state, &items);
    let mut turn = session.connector.turn(&turn).map_err(|fault| fault.message)?;
    let Ok(Next::Send(sent)) = turn.next(0) else { panic!("a request") };
    let body: Value = serde_json::from_slice(&sent.body).expect("JSON");
    Ok(body["message"]["parts"].clone())
}

#[test]
fn decisions_about_several_calls_have_their_order_and_no_text_that_means_yes_for_all() {
    let sent = two_decided([json!("one"), json!("two")], [Decision::Accept, Decision::Reject]).expect("a request");
    let data = |id: &str, decision: &str, approved: bool| json!({ "data": { "interrupt_id": id, "decision": decision, "approved": approved } });
    let text = |text: &str| json!({ "text": text });
    let expected = [data("one", "accept", true), text("see data"), data("two", "reject", false), text("rejected")];
    assert_eq!(sent, json!(expected));

    // Without ids, the agent cannot know which one is accepted.
    let refused = two_decided([Value::Null, Value::Null], [Decision::Accept, Decision::Reject]).expect_err("mixed");
    assert!(refused.contains("no ids"), "{refused}");
    for alike in [Decision::Accept, Decision::Reject] {
        assert!(two_decided([Value::Null, Value::Null], [alike, alike]).is_ok(), "{alike:?}");
    }
}

/// The decisions that an item lists, of an agent that asks so.
fn listed(interrupt: &Value) -> (Vec<Decision>, Value) {
    let parts = json!([{ "text": "Send this mail?" }, { "data": { "interrupt": interrupt } }]);
    let (_, first) = waiting(V1_REST, &[submitted(), status_with("INPUT_REQUIRED", "q-1", &parts)]);
    let item = first.record.run().pending().remove(0);
    let extension = serde_json::from_str(item.extension.expect("an extension").text()).expect("JSON");
    (item.decisions, extension)
}

#[test]
fn an_item_lists_the_decisions_of_its_agent() {
    use Decision::{Accept, Cancel, Edit, Reject, Respond};
    let list = |kind: &str, decisions: Value| listed(&json!({ "id": "a", "kind": kind, "decisions": decisions }));
    for none in [Value::Null, json!([])] {
        assert_eq!(list("approval", none.clone()).0, [Accept, Reject]);
        assert_eq!(list("other", none.clone()).0, [Accept, Reject], "whatever is not known is an approval");
        assert_eq!(list("input", none.clone()).0, [Accept, Respond, Reject]);
        assert_eq!(list("auth", none).0, [Accept, Reject]);
    }
    assert_eq!(list("approval", json!(["perhaps"])).0, [Reject]);
    let (decisions, extension) = list("approval", json!(["accept", "edit", "cancel"]));
    assert_eq!(decisions, [Accept, Edit, Cancel, Reject]);
    assert_eq!(extension["agent_decisions"], json!(["accept", "edit", "cancel"]));
}

#[test]
fn every_decision_is_written_so_that_none_is_taken_for_a_yes() {
    let edit = CheckedDecision { arguments: Some(r#"{"to":"d@e.f"}"#.into()), ..CheckedDecision::new(Decision::Edit) };
    let mut table = String::new();
    for decided in [
        CheckedDecision::new(Decision::Accept),
        edit,
        decided(Decision::Respond, Some("tell her yourself")),
        decided(Decision::Reject, Some("not today")),
        CheckedDecision::new(Decision::Reject),
        CheckedDecision::new(Decision::Cancel),
    ] {
        let (mut session, first) = waiting(V1_REST, &approval_request());
        let done = task(if decided.decision == Decision::Cancel { "CANCELED" } else { "COMPLETED" }, &json!([]));
        let answer = if decided.decision == Decision::Cancel {
            V1_REST.task(1, &done)
        } else {
            V1_REST.stream(1, &[json!({ "task": done })])
        };
        let second = session.decide(&first, &decided, [answer]);
        table.push_str(&format!("{:?} {}\n{}\n\n", decided.decision, end(&second), request_text(&second.requests[0])));
    }
    insta::assert_snapshot!("decisions", table);
}

#[test]
fn a_question_in_plain_text_is_an_item_of_its_own() {
    for (state, kind) in [("INPUT_REQUIRED", PendingKind::Input), ("AUTH_REQUIRED", PendingKind::Auth)] {
        let question =
            |id: &str| status_with(state, id, &json!([{ "text": "Which city?" }, { "data": { "form": "city" } }]));
        let (mut session, first) = waiting(V1, &[submitted(), question("q-1")]);
        let item = first.record.run().pending().remove(0);
        assert_eq!((item.id.as_str(), item.kind), ("T", kind));
        assert_eq!(item.message.as_deref(), Some("Which city?"));
        assert_eq!(item.payload.as_ref().map(interlingua_core::Json::text), Some(r#"{"form":"city"}"#));

        // Asked again, the item has another id: the first one was answered.
        let answer = decided(Decision::Respond, Some("Paris"));
        let second = session.decide(&first, &answer, [V1.stream(1, &[question("q-2")])]);
        let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
        assert_eq!(body["params"]["message"]["taskId"], "T");
        assert_eq!(body["params"]["message"]["parts"], json!([{ "text": "Paris" }]));
        assert_eq!(second.record.run().pending()[0].id, "T-2");
    }
}

#[test]
fn an_answer_that_is_no_text_goes_as_data() {
    let question = status_with("INPUT_REQUIRED", "q-1", &json!([{ "text": "Which city?" }]));
    let payload = interlingua_core::Json::parse(r#"{"city":"Paris"}"#);
    let answer = CheckedDecision { payload, ..CheckedDecision::new(Decision::Respond) };
    let (mut session, first) = waiting(V1_REST, &[submitted(), question]);
    let second = session.decide(&first, &answer, [V1_REST.stream(1, &[status("COMPLETED")])]);
    let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
    assert_eq!(body["message"]["parts"], json!([{ "data": { "city": "Paris" } }, { "text": r#"{"city":"Paris"}"# }]));
}

#[test]
fn a_tool_of_the_client_is_called_and_answered() {
    let call = json!([{ "text": "Please run it." }, { "data": { "function_call": { "call_id": "call_1", "name": "where", "arguments": "{}" } } }]);
    let (mut session, first) = waiting(V1_REST, &[submitted(), status_with("INPUT_REQUIRED", "q-1", &call)]);
    let items = first.record.run().pending();
    assert_eq!((items[0].id.as_str(), items[0].kind, items[0].name.as_str()), ("call_1", PendingKind::Tool, "where"));

    let output = json!({ "call_id": "call_1", "output": "Paris" });
    let output = Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
    let call = first.record.run().messages[0].to_model();
    let input = vec![Message::user("Send it"), call, output];
    let second = session.send(&request(input), &items, [V1_REST.stream(1, &[status("COMPLETED")])]);
    let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
    assert_eq!(body["message"]["taskId"], "T");
    assert_eq!(
        body["message"]["parts"],
        json!([{ "data": { "function_call_output": { "call_id": "call_1", "output": "Paris" } } }]),
        "what was said before the call is not said again"
    );
}

#[test]
fn a_task_that_waits_without_a_question_takes_the_next_message() {
    // The status repeats the answer, as agents do that end every turn so.
    let repeated = status_with("INPUT_REQUIRED", "a-1", &json!([{ "text": "Anything else?" }]));
    for last in [status("INPUT_REQUIRED"), repeated] {
        let (mut session, first) = waiting(V1_REST, &[submitted(), text("a-1", "Anything else?", false), last]);
        assert_eq!(first.record.run().pending(), Vec::new());
        assert_eq!(first.awaits, Some(interlingua_core::agent_event::Awaits::Input));

        let second = session.send_text("No", [V1_REST.stream(1, &[status("COMPLETED")])]);
        let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
        assert_eq!((body["message"]["taskId"].as_str(), end(&second).as_str()), (Some("T"), "completed"));
        assert_eq!(session.state.text(), r#"{"context_id":"C","last_task_id":"T"}"#);
    }
}

#[test]
fn a_login_outside_is_waited_for_where_the_operator_wants_it() {
    let items = [
        submitted(),
        status_with("AUTH_REQUIRED", "q-1", &json!([{ "text": "Sign in at x." }])),
        status("WORKING"),
        text("a-1", "Thanks.", false),
        status("COMPLETED"),
    ];
    let mut options = fixed(V1);
    options["follow_auth"] = json!(true);
    let driven = Session::new(&options).send_text("Send it", [V1.stream(1, &items)]);
    assert_eq!(texts(&driven), [("message".into(), "Sign in at x.".into()), ("message".into(), "Thanks.".into())]);
    assert_eq!(end(&driven), "completed");
}

#[test]
fn an_answer_goes_to_the_task_that_asked_and_to_no_other() {
    let (mut session, first) = waiting(V1, &approval_request());
    session.state = interlingua_core::Json::null();
    let second =
        session.decide(&first, &CheckedDecision::new(Decision::Accept), [V1.error(1, -32001, "Task not found")]);
    let body: Value = serde_json::from_slice(&second.requests[0].body).expect("JSON");
    assert_eq!(body["params"]["message"]["taskId"], "T");
    assert_eq!(
        (second.requests.len(), end(&second).as_str()),
        (1, "failed TASK_NOT_FOUND: the agent refused the request: Task not found")
    );
}
