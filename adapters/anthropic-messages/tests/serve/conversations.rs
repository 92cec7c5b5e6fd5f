//! The conversation of a request (docs/protocols/anthropic-messages.md#conversations).

use interlingua_core::answer::AnswerBody;
use interlingua_core::call::{Resent, RunInfo, Target};
use interlingua_core::model::MessageType;
use interlingua_core::{Call, End, Fault, FaultKind, Next, Out, Record, Reply, RunCall, Thread};
use interlingua_core_testkit::{self as testkit, TestRun};
use serde_json::{Value, json};

use crate::support::{RunBuilder, SentRequest, route};

fn body(messages: Value, more: Value) -> String {
    let mut body = json!({ "model": "demo", "max_tokens": 10, "messages": messages });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body.to_string()
}

fn resent(call: &RunCall) -> &Resent {
    match &call.thread {
        Thread::Resent(resent) => resent,
        other => panic!("{other:?}"),
    }
}

fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

fn assistant(content: Value) -> Value {
    json!({ "role": "assistant", "content": content })
}

#[test]
fn messages_after_the_assistant_are_new() {
    for (messages, history, input) in [
        (json!([user("a")]), 0, 1),
        (json!([user("a"), assistant(json!("b")), user("c"), { "role": "system", "content": "d" }]), 2, 2),
        (json!([user("a"), assistant(json!("b"))]), 2, 0),
        (json!([user("a"), assistant(json!("b")), assistant(json!("c")), user("d"), user("e")]), 3, 2),
    ] {
        let sent = route("{}").create(&body(messages.clone(), json!({})));
        let call = sent.run_call();
        assert_eq!((resent(call).history.len(), call.request.input.len()), (history, input), "{messages}");
    }
}

#[test]
fn a_session_has_the_first_name_that_is_there() {
    let claude = ("x-claude-code-session-id", "c-1");
    let metadata = json!({ "metadata": { "user_id": "{\"session_id\":\"m-1\"}" } });
    let plain = json!({ "metadata": { "user_id": "ada" } });
    for (options, headers, more, expected) in [
        ("{}", vec![], json!({}), None),
        ("{}", vec![claude, ("x-session-id", "s-1")], metadata.clone(), Some("c-1")),
        ("{}", vec![claude, ("x-claude-code-agent-id", "a-1")], json!({}), Some("c-1/a-1")),
        ("{}", vec![("x-session-id", "s-1")], metadata, Some("m-1")),
        ("{}", vec![("x-session-id", "s-1")], plain.clone(), Some("s-1")),
        (r#"{"session":[]}"#, vec![claude], json!({}), None),
        (r#"{"session":["metadata.thread"]}"#, vec![], json!({ "metadata": { "thread": "t-1" } }), Some("t-1")),
        (r#"{"session":["metadata.user_id"]}"#, vec![], plain, None),
    ] {
        let sent = route(options).send("POST", "/v1/messages", &body(json!([user("a")]), more), &headers);
        assert_eq!(resent(sent.run_call()).session.as_deref(), expected, "{headers:?}");
    }
    let long = "x".repeat(500);
    let sent =
        route("{}").send("POST", "/v1/messages", &body(json!([user("a")]), json!({})), &[("x-session-id", &long)]);
    assert_eq!(sent.outcome.expect_err("too long").field.as_deref(), Some("x-session-id"));
}

/// A run, and what it is to the engine.
struct AnsweredRun {
    record: Record,
    info: RunInfo,
}

fn answered(more: Value, build: impl FnOnce(&mut RunBuilder)) -> (AnsweredRun, Vec<Value>) {
    let mut run = RunBuilder::begin();
    build(&mut run);
    let record = run.finish(End::Completed);
    let mut sent = route("{}").create(&body(json!([user("a")]), more));
    let info = sent.info(&record);
    let blocks = sent.whole(&record).json()["content"].as_array().cloned().expect("blocks");
    (AnsweredRun { record, info }, blocks)
}

fn fits(answered: &AnsweredRun, messages: Value) -> bool {
    let sent = route("{}").create(&body(messages, json!({})));
    let run = TestRun::with_info(&answered.record, answered.info.clone());
    resent(sent.run_call()).judge.ends_with(run.view())
}

#[test]
fn a_history_fits_if_it_ends_with_the_latest_answer() {
    let tools = json!({ "tools": [{ "name": "f", "input_schema": {} }] });
    let (run, blocks) = answered(tools, |run| {
        run.say(MessageType::Reasoning, &["hm"]);
        run.say(MessageType::Message, &["Let me ", "look."]);
        run.call(MessageType::FunctionCall, "call_1", "f", &["{\"a\": 1}"]);
    });
    let turn = |content: Value| json!([user("a"), assistant(content), user("b")]);
    assert!(fits(&run, turn(json!(blocks))));
    // Clients drop thoughts, and write JSON and white space their own way.
    let call = json!({ "type": "tool_use", "id": "call_1", "name": "f", "input": { "a": 1 } });
    assert!(fits(&run, turn(json!([{ "type": "text", "text": " Let me look.\n" }, call]))));
    assert!(!fits(&run, turn(json!([{ "type": "text", "text": "Let me see." }, call]))));
    assert!(!fits(&run, turn(json!([{ "type": "text", "text": "Let me look." }]))));
    assert!(!fits(&run, json!([user("a")])));
}

#[test]
fn a_question_that_was_asked_again_fits_too() {
    let (run, blocks) = answered(json!({}), |run| {
        run.say(MessageType::Message, &["Well."]);
        for id in ["appr_1", "appr_2"] {
            run.data(
                MessageType::McpApprovalRequest,
                &json!({ "id": id, "name": "send", "arguments": "{}" }).to_string(),
            );
        }
    });
    assert_eq!(blocks.len(), 2, "the first one is asked: {blocks:?}");
    assert!(fits(&run, json!([user("a"), assistant(json!(blocks)), user("approve")])));

    for reason in [None, Some("not understood as a decision: send one of accept, reject")] {
        let mut out = Out::new();
        let mut sent = route("{}").create(&body(json!([user("a")]), json!({})));
        let view = TestRun::with_info(&run.record, run.info.clone());
        let mut waiting = view.view();
        waiting.pending = &waiting.pending[1..];
        sent.exchange.reply(Reply::Waiting(waiting, reason), &mut out).expect("a question");
        let asked = testkit::HttpResponse::from_out(out).json();
        assert_eq!(asked["stop_reason"], "end_turn");
        let texts: Vec<&str> =
            asked["content"].as_array().expect("content").iter().filter_map(|block| block["text"].as_str()).collect();
        let text = texts.concat();
        assert!(text.ends_with("[approval appr_2]"), "{asked}");
        assert_eq!(text.starts_with("Not decided: not understood"), reason.is_some(), "{asked}");
        assert!(fits(&run, json!([user("a"), assistant(asked["content"].clone()), user("approve")])), "{asked}");
    }
}

#[test]
fn only_a_plain_text_answers_a_question_in_text() {
    let given = |messages: Value| {
        let sent = route("{}").create(&body(messages, json!({})));
        resent(sent.run_call()).in_words.clone().map(|answer| (answer.id, answer.given))
    };
    let asked = assistant(json!([{ "type": "text", "text": "May I?\n[approval appr_1]" }]));
    let text = |text: &str| AnswerBody::Text(text.to_owned());
    let id = || "appr_1".to_owned();
    assert_eq!(given(json!([user("a"), asked, user("yes")])), Some((id(), text("yes"))));
    let reminded = json!({ "role": "user", "content": [
        { "type": "text", "text": "<system-reminder>\nx\n</system-reminder>\n" }, { "type": "text", "text": "no" },
    ] });
    assert_eq!(given(json!([user("a"), asked, reminded])), Some((id(), text("no"))));
    // Nothing is approved by anything else.
    let undecided = Some((id(), AnswerBody::Payload(interlingua_core::Json::null())));
    assert_eq!(given(json!([user("a"), asked, user("yes please do")])), undecided);
    assert_eq!(given(json!([user("a"), asked, user("yes"), user("really")])), None);
    assert_eq!(given(json!([user("a"), asked, user("yes"), assistant(json!("ok")), user("yes")])), None);
    let question = assistant(json!("When?\n[question ask_1]"));
    assert_eq!(given(json!([user("a"), question, user("tomorrow")])), Some(("ask_1".to_owned(), text("tomorrow"))));
}

#[test]
fn a_result_without_its_call_is_no_prefill() {
    let result =
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "call_9", "content": "18 C" }] });
    let messages = json!([user("a"), assistant(json!("I look.")), result]);
    let sent = route(r#"{"prefill":"refuse"}"#).create(&body(messages, json!({})));
    let call = sent.run_call();
    assert_eq!((call.answers.len(), call.request.input.len()), (1, 0));
    assert_eq!(call.answers[0].id, "call_9");
}

#[test]
fn a_result_without_its_call_answers_the_open_item() {
    let result =
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "call_9", "content": "18 C" }] });
    let mut sent = route("{}").create(&body(json!([result]), json!({})));
    let call = sent.run_call();
    assert_eq!((call.answers.len(), call.request.input.len()), (1, 0));
    assert_eq!((call.answers[0].id.as_str(), &call.answers[0].given), ("call_9", &AnswerBody::Text("18 C".to_owned())));

    let refused = Fault::new(FaultKind::Conflict, "no pending item has the id 'call_9'").with_code("NOT_WAITING");
    let reply = sent.fail(Some(&refused));
    let message = reply.json()["error"]["message"].as_str().expect("a text").to_owned();
    assert_eq!(reply.status, 400);
    assert!(message.starts_with("messages.0.content.0.tool_use_id: "), "{message}");
}

/// Sends the reply to the lookup of a thread.
fn continued(sent: &mut SentRequest, answered: &AnsweredRun) -> Result<RunCall, Fault> {
    let run = TestRun::with_info(&answered.record, answered.info.clone());
    match sent.exchange.reply(Reply::Run(run.view()), &mut Out::new())? {
        Next::Call(Call::Run(call)) => Ok(*call),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thread_keeps_its_tools_and_instructions() {
    let first = json!({
        "thread": { "type": "create" }, "system": "Be brief.", "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
    });
    let (mut run, _) = answered(first.clone(), |run| {
        run.call(MessageType::FunctionCall, "call_1", "f", &["{}"]);
    });
    let created = route("{}").create(&body(json!([user("a")]), first));
    assert_eq!(created.run_call().preamble.len(), 1);
    run.info.request = created.run_call().request.clone();

    let id = run.record.run().id.to_prefixed("msg_");
    let thread = json!({ "thread": { "type": "continue", "previous_message_id": id } });
    let result = |id: &str| json!([{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "18 C" }] }]);
    let mut sent = route("{}").create(&body(result("call_1"), thread.clone()));
    assert!(matches!(&sent.outcome, Ok(Call::Fetch(Target::Run(found))) if *found == run.record.run().id));
    let call = continued(&mut sent, &run).expect("it goes on");
    assert_eq!(call.thread, Thread::After(run.record.run().id));
    assert_eq!(call.preamble[0].text(), "Be brief.");
    assert_eq!(call.request.tools.as_ref().map(Vec::len), Some(1));
    assert_eq!((call.request.input.len(), call.answers.len()), (1, 0));

    let unknown = continued(&mut route("{}").create(&body(result("call_2"), thread)), &run).expect_err("no such call");
    assert_eq!(unknown.field.as_deref(), Some("messages[0].content[0].tool_use_id"));
}

#[test]
fn a_message_of_a_thread_that_may_call_no_tool_leaves_the_tools_to_the_next_one() {
    let first = json!({
        "thread": { "type": "create" }, "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
    });
    let begun = || answered(first.clone(), |run| run.say(MessageType::Message, &["x"])).0;
    let tools_of = |call: &RunCall| call.request.tools.as_ref().map(Vec::len);
    let id = begun().record.run().id.to_prefixed("msg_");
    let thread = json!({ "thread": { "type": "continue", "previous_message_id": id } });
    let mut without = thread.clone();
    without["tool_choice"] = json!({ "type": "none" });
    let goes_on = |before: &AnsweredRun, more: &Value| {
        continued(&mut route("{}").create(&body(json!([user("b")]), more.clone())), before).expect("it goes on")
    };

    let mut before = begun();
    before.info.request = route("{}").create(&body(json!([user("a")]), first.clone())).run_call().request.clone();
    for _ in 0..2 {
        let call = goes_on(&before, &without);
        assert_eq!(tools_of(&call), Some(0));
        before = begun();
        (before.info.request, before.info.labels) = (call.request, call.labels);
    }
    assert_eq!(tools_of(&goes_on(&before, &thread)), Some(1));

    // The same for a thread that begins so.
    let mut none = first;
    none["tool_choice"] = json!({ "type": "none" });
    let (mut before, _) = answered(none.clone(), |run| run.say(MessageType::Message, &["x"]));
    before.info.request = route("{}").create(&body(json!([user("a")]), none)).run_call().request.clone();
    assert_eq!(tools_of(&goes_on(&before, &thread)), Some(1));
}

#[test]
fn a_question_of_a_thread_is_answered_in_text() {
    let (run, _) = answered(json!({ "thread": { "type": "create" } }), |run| {
        run.data(MessageType::McpApprovalRequest, r#"{"id":"appr_1","name":"send","arguments":"{}"}"#);
    });
    let id = run.record.run().id.to_prefixed("msg_");
    let thread = json!({ "thread": { "type": "continue", "previous_message_id": id } });
    let call = continued(&mut route("{}").create(&body(json!([user("yes")]), thread)), &run).expect("it goes on");
    assert_eq!((call.answers.len(), call.request.input.len()), (1, 0));
    assert_eq!(call.answers[0].given, AnswerBody::Text("yes".to_owned()));
}

#[test]
fn clients_learn_that_they_have_to_send_a_lost_thread_again() {
    let error_code = |mut sent: SentRequest, fault: Option<&Fault>| {
        let reply = sent.fail(fault);
        (reply.status, reply.json()["error"]["details"]["error_code"].as_str().unwrap_or_default().to_owned())
    };
    let thread = |id: &str| json!({ "thread": { "type": "continue", "previous_message_id": id } });
    let id = testkit::RUN.to_prefixed("msg_");
    let gone = Fault::not_found("run");
    let sent = || route("{}").create(&body(json!([user("b")]), thread(&id)));
    assert_eq!(error_code(sent(), Some(&gone)), (404, "thread_not_found".to_owned()));
    assert_eq!(error_code(sent(), Some(&gone.with_field("thread"))), (404, "thread_not_found".to_owned()));
    let other = route("{}").create(&body(json!([user("b")]), thread("msg_of_another_server")));
    assert_eq!(error_code(other, None), (404, "thread_not_found".to_owned()));

    // A run that began no thread left no state to continue.
    let (run, _) = answered(json!({}), |run| run.say(MessageType::Message, &["x"]));
    let refused = continued(&mut sent(), &run).expect_err("no thread");
    assert_eq!(error_code(sent(), Some(&refused)), (404, "thread_not_found".to_owned()));

    let off =
        route(r#"{"threads":"off"}"#).create(&body(json!([user("b")]), json!({ "thread": { "type": "create" } })));
    assert_eq!(error_code(off, None), (400, "thread_unsupported_request".to_owned()));
}
