//! The new messages of a request, the knowledge of its thread, and resumed streams.

use interlingua_core::call::{Page, Reply, RunView, Thread};
use interlingua_core::model::MessageType;
use interlingua_core::pending::Pending;
use interlingua_core::run::Record;
use interlingua_core::{Call, End, Fault, FaultKind, Json, Next, Out, RunCall};
use interlingua_core_testkit::{self as testkit, ClientRequest, HttpResponse, RUN, TestRun, laws};
use serde_json::{Value, json};

use super::support::{JSON, decode, decode_with, events, failure, hello, info, open, started, stream_of};

/// The stream of a run from the event after this one.
pub(crate) fn resumed(record: &Record, after: u64) -> String {
    let labels = started("{}", &hello(Some("1.0"))).1.labels;
    let run = TestRun::with_info(record, info(record, labels));
    let after = after.to_string();
    let mut exchange = open("{}", "GET");
    let request = ClientRequest {
        query: "threadId=t1&runId=r1",
        headers: &[("last-event-id", &after)],
        ..ClientRequest::new("GET", "")
    };
    request.decode(exchange.as_mut()).expect("a request");
    let page = Page { runs: vec![run.view()], total: 1, next: None };
    let found = exchange.reply(Reply::Runs(page), &mut Out::new()).expect("a call");
    assert!(matches!(found, Next::Call(Call::Follow(_))), "{found:?}");
    laws::encode(exchange.as_mut(), run.view())
}

/// The run that this input starts in a thread whose latest run is this.
fn next_run(options: &str, latest: RunView<'_>, input: &Value) -> Box<RunCall> {
    let mut exchange = open(options, "POST");
    let call = decode(exchange.as_mut(), input).expect("a request");
    assert!(matches!(call, Call::Fetch(_)), "{call:?}");
    match exchange.reply(Reply::Run(latest), &mut Out::new()) {
        Ok(Next::Call(Call::Run(run))) => run,
        other => panic!("not a run: {other:?}"),
    }
}

/// The messages of a request as words.
fn words<'m>(messages: impl IntoIterator<Item = &'m interlingua_core::model::Message>) -> Vec<String> {
    let word = |message: &interlingua_core::model::Message| match &message.kind {
        MessageType::Message => format!("{}: {}", message.role.as_ref().expect("a role"), message.text()),
        kind => format!("{kind}"),
    };
    messages.into_iter().map(word).collect()
}

/// History, new input, and whether the thread continues.
fn split(run: &RunCall, latest: RunView<'_>) -> (Vec<String>, Vec<String>, bool) {
    let Thread::Resent(resent) = &run.thread else { panic!("{:?}", run.thread) };
    (words(&resent.history), words(run.request.input.iter()), resent.judge.ends_with(latest))
}

/// The messages that a front end keeps of a stream.
fn kept(output: &str) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for event in events(output) {
        let parent = event["parentMessageId"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("TEXT_MESSAGE_START") => {
                messages.push(json!({ "id": event["messageId"], "role": "assistant", "content": "" }));
            }
            Some("TEXT_MESSAGE_CONTENT") => {
                let message = messages.iter_mut().find(|one| one["id"] == event["messageId"]).expect("a message");
                let text = format!("{}{}", message["content"].as_str().unwrap_or(""), event["delta"].as_str().unwrap_or(""));
                message["content"] = json!(text);
            }
            Some("TOOL_CALL_START") => {
                let call = json!({
                    "id": event["toolCallId"], "type": "function",
                    "function": { "name": event["toolCallName"], "arguments": "{}" },
                });
                match messages.iter_mut().find(|one| one["id"] == parent.as_str()) {
                    Some(message) if message["toolCalls"].is_array() => {
                        message["toolCalls"].as_array_mut().expect("a list").push(call);
                    }
                    Some(message) => message["toolCalls"] = json!([call]),
                    None => messages.push(json!({ "id": parent, "role": "assistant", "toolCalls": [call] })),
                }
            }
            Some("TOOL_CALL_RESULT") => messages.push(json!({
                "id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"],
            })),
            _ => {}
        }
    }
    messages
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

fn input(messages: Vec<Value>) -> Value {
    let mut input = hello(Some("1.0"));
    input["runId"] = json!("r2");
    input["messages"] = json!(messages);
    input
}

/// A thread whose latest run is of this script: what its client keeps, and its labels.
fn thread(script: &str) -> (Record, Vec<Value>, Json) {
    let record = testkit::script(script).record();
    let (_, run) = started("{}", &hello(Some("1.0")));
    let first = hello(Some("1.0"));
    let mut messages = vec![first["messages"][0].clone()];
    messages.extend(kept(&stream_of(&record, "{}", &first)));
    (record, messages, run.labels)
}

#[test]
fn a_thread_continues_with_the_new_messages() {
    for script in ["greeting", "two_messages", "plugin", "parallel_tools", "reasoning_between_tools", "mcp"] {
        let (record, mut messages, labels) = thread(script);
        let run = TestRun::with_info(&record, info(&record, labels));
        let before = messages.len();
        messages.push(user("u2", "and then?"));
        let next = next_run("{}", run.view(), &input(messages.clone()));
        let (history, new, goes_on) = split(&next, run.view());
        assert_eq!((new, goes_on), (vec!["user: and then?".to_owned()], true), "{script}");
        assert!(history.len() >= before, "{script}: {history:?}");

        // A front end that gives messages ids of its own, and trims what it shows.
        for message in &mut messages {
            message["id"] = json!(format!("own-{}", message["id"]));
        }
        messages.iter_mut().for_each(|message| drop(message.as_object_mut().map(|fields| fields.remove("toolCalls"))));
        messages.retain(|message| message["role"] != "tool");
        let next = next_run("{}", run.view(), &input(messages));
        assert!(split(&next, run.view()).2, "{script}");
    }
}

#[test]
fn a_client_that_sends_only_new_messages_continues_its_thread() {
    let (record, _, labels) = thread("greeting");
    let run = TestRun::with_info(&record, info(&record, labels));
    let next = next_run("{}", run.view(), &input(vec![user("u2", "and then?")]));
    assert_eq!(split(&next, run.view()), (vec![], vec!["user: and then?".to_owned()], true));
}

#[test]
fn an_edited_conversation_begins_again() {
    let (record, messages, labels) = thread("greeting");
    let run = TestRun::with_info(&record, info(&record, labels.clone()));
    let mut other = messages.clone();
    other[1] = json!({ "id": "another", "role": "assistant", "content": "something else" });
    other.push(user("u2", "and then?"));
    let next = next_run("{}", run.view(), &input(other));
    assert!(!split(&next, run.view()).2);

    // The answer is wanted again: the second run's request ends where the first run's did.
    let mut second = Record::new(interlingua_core::Run::new(RUN, "demo", "t1", testkit::NOW));
    let mut asked = interlingua_core::model::Message::user("and then?");
    asked.id = Some("u2".to_owned());
    second.start_turn(vec![asked]);
    second.close(End::Completed, None);
    let mut more = messages.clone();
    more.push(user("u2", "and then?"));
    let labels = next_run("{}", run.view(), &input(more)).labels;
    let run = TestRun::with_info(&second, info(&second, labels));
    let next = next_run("{}", run.view(), &input(vec![user("u2", "and then?")]));
    assert!(!split(&next, run.view()).2, "asked again from the beginning");
}

#[test]
fn the_outputs_of_client_tools_are_new_and_those_of_the_agent_are_not() {
    let (record, mut messages, labels) = thread("client_tool");
    let run = TestRun::with_info(&record, info(&record, labels));
    let call = record.run().pending()[0].id.clone();
    messages.push(json!({ "id": "o1", "role": "tool", "toolCallId": call, "content": "Paris" }));
    let next = next_run("{}", run.view(), &input(messages));
    let (_, new, goes_on) = split(&next, run.view());
    assert_eq!((new, goes_on), (vec!["function_call_output".to_owned()], true));
}

#[test]
fn instructions_are_sent_once_and_again_when_they_change() {
    let instructed = |text: &str, rest: Vec<Value>| {
        let mut messages = vec![json!({ "id": "s", "role": "system", "content": text })];
        messages.extend(rest);
        input(messages)
    };
    let (_, first) = started("{}", &instructed("be brief", vec![user("u1", "hi")]));
    assert_eq!(words(first.request.input.iter()), ["system: be brief", "user: hi"]);

    let record = testkit::script("greeting").record();
    let mut messages = vec![user("u1", "hi")];
    messages.extend(kept(&stream_of(&record, "{}", &hello(Some("1.0")))));
    messages.push(user("u2", "more"));
    let run = TestRun::with_info(&record, info(&record, first.labels));
    let same = next_run("{}", run.view(), &instructed("be brief", messages.clone()));
    assert_eq!(words(same.request.input.iter()), ["user: more"]);
    let changed = next_run("{}", run.view(), &instructed("be kind", messages));
    assert_eq!(words(changed.request.input.iter()), ["system: be kind", "user: more"]);
}

#[test]
fn other_histories_are_those_of_the_thread() {
    let (record, mut messages, labels) = thread("greeting");
    let run = TestRun::with_info(&record, info(&record, labels));
    messages.push(user("u2", "and then?"));
    let next = next_run(r#"{"history":"delta"}"#, run.view(), &input(messages));
    assert_eq!(next.thread, Thread::Session("t1".to_owned()));
    assert_eq!(words(next.request.input.iter()), ["user: and then?"]);
}

#[test]
fn ids_and_calls_of_earlier_runs_are_not_used_again() {
    let (record, mut messages, labels) = thread("parallel_tools");
    let run = TestRun::with_info(&record, info(&record, labels));
    messages.push(user("u2", "again"));
    let next = next_run("{}", run.view(), &input(messages.clone()));

    // The agent gives its messages and calls the same ids in every run.
    let before = kept(&stream_of(&record, "{}", &hello(Some("1.0"))));
    let mut exchange = started("{}", &hello(Some("1.0"))).0;
    let repeated = TestRun::with_info(&record, info(&record, next.labels));
    let output = laws::encode(exchange.as_mut(), repeated.view());
    assert!(!output.contains("TOOL_CALL_START") && !output.contains("TOOL_CALL_RESULT"), "{output}");
    let ids = |messages: &[Value]| messages.iter().map(|one| one["id"].to_string()).collect::<Vec<_>>();
    let after = ids(&kept(&output));
    assert!(!after.is_empty() && after.iter().all(|id| !ids(&before).contains(id)), "{after:?}");
}

#[test]
fn a_thread_that_waits_is_shown_its_interrupts_again_or_says_that_it_waits() {
    let (record, mut messages, labels) = thread("approval");
    let run = TestRun::with_info(&record, info(&record, labels));
    let waiting = |messages: &[Value]| {
        let mut exchange = open("{}", "POST");
        decode(exchange.as_mut(), &input(messages.to_vec())).expect("a request");
        exchange.reply(Reply::Run(run.view()), &mut Out::new()).expect("a run");
        let mut out = Out::new();
        let next = exchange.reply(Reply::Waiting(run.view(), None), &mut out).expect("an answer");
        assert!(matches!(next, Next::Done));
        HttpResponse::from_out(out).frames()
    };

    let again = waiting(&messages);
    assert_eq!(again.len(), 2, "{again:?}");
    assert_eq!(again[1]["outcome"]["type"], "interrupt");
    messages.push(user("u2", "never mind"));
    let refused = waiting(&messages);
    assert_eq!((&refused[1]["type"], &refused[1]["code"]), (&json!("RUN_ERROR"), &json!("INTERRUPT_PENDING")));
}

/// The view of a thread that waits has the oldest pending items only.
#[test]
fn a_message_that_an_approval_blocks_is_refused_beside_an_older_call() {
    let record = testkit::script("client_tools_parallel").record();
    let (_, first) = started("{}", &hello(Some("1.0")));
    let open_call = record.run().pending().pop().expect("a call");
    let all = TestRun::with_info(&record, info(&record, first.labels.clone()));
    let waiting = |pending: &[Pending], reason: Option<&str>| {
        let run = TestRun::with_info(&record, info(&record, first.labels.clone())).pending(pending.to_vec());
        let mut exchange = open("{}", "POST");
        decode(exchange.as_mut(), &input(vec![user("u2", "hi")])).expect("a request");
        exchange.reply(Reply::Run(all.view()), &mut Out::new()).expect("a run");
        let mut out = Out::new();
        exchange.reply(Reply::Waiting(run.view(), reason), &mut out).expect("an answer");
        HttpResponse::from_out(out).frames().pop().expect("an end")
    };

    let blocked = waiting(std::slice::from_ref(&open_call), Some("approve or reject"));
    assert_eq!((&blocked["type"], &blocked["code"]), (&json!("RUN_ERROR"), &json!("INTERRUPT_PENDING")));
    let partly = waiting(std::slice::from_ref(&open_call), None);
    assert_eq!(partly["outcome"]["pendingToolCallIds"], json!([open_call.id]), "{partly}");
    // Another request has answered the call in the meantime.
    let answered = waiting(&[], None);
    assert_eq!((&answered["type"], &answered["code"]), (&json!("RUN_ERROR"), &json!("INTERRUPT_PENDING")));
}

#[test]
fn answers_that_cannot_be_taken_are_errors_of_the_run() {
    let (record, messages, labels) = thread("approval");
    let run = TestRun::with_info(&record, info(&record, labels));
    let mut answer = input(messages);
    answer["resume"] = json!([{ "interruptId": "other", "status": "resolved", "payload": { "approved": true } }]);
    let refused = |fault: Fault| {
        let mut exchange = open("{}", "POST");
        decode(exchange.as_mut(), &answer).expect("a request");
        exchange.reply(Reply::Run(run.view()), &mut Out::new()).expect("a run");
        let response = failure(exchange.as_mut(), &fault);
        assert_eq!(
            (response.status, response.head.get("content-type")),
            (200, Some("text/event-stream; charset=utf-8"))
        );
        response.frames()[1]["code"].as_str().expect("a code").to_owned()
    };
    use interlingua_core::answer::{NOT_TAKEN, NOT_WAITING, UNDECIDED};
    let fault = |kind, code: &str| Fault::new(kind, "no").with_code(code);
    assert_eq!(refused(fault(FaultKind::Conflict, NOT_WAITING)), "INTERRUPT_NOT_FOUND");
    assert_eq!(refused(fault(FaultKind::Waiting, NOT_TAKEN)), "INTERRUPT_NOT_COVERED");
    assert_eq!(refused(fault(FaultKind::Invalid, UNDECIDED)), "INTERRUPT_PAYLOAD_INVALID");
    assert_eq!(refused(fault(FaultKind::Invalid, NOT_TAKEN)), "INTERRUPT_PAYLOAD_INVALID");
}

/// Front ends have no message of an agent that asks at once.
#[test]
fn an_answer_does_not_repeat_the_text_before_the_question() {
    let (_, first) = started("{}", &hello(Some("1.0")));
    let mut asked = testkit::started_with(vec![first.request.input[0].clone()]);
    asked.close(End::Completed, None);
    let run = TestRun::with_info(&asked, info(&asked, first.labels));
    let mut answer = hello(Some("1.0"));
    answer["resume"] = json!([{ "interruptId": "i", "status": "resolved", "payload": true }]);
    let next = next_run("{}", run.view(), &answer);
    assert!(next.request.input.is_empty() && next.answers.len() == 1, "{:?}", next.request.input);
}

/// The form of the time before `resume` does not say what it answers.
#[test]
fn an_older_answer_is_that_to_the_only_question() {
    let (record, messages, labels) = thread("approval");
    let run = TestRun::with_info(&record, info(&record, labels));
    let mut answer = input(messages);
    answer["forwardedProps"] = json!({ "command": { "resume": { "approved": true } }, "theme": "dark" });
    let next = next_run("{}", run.view(), &answer);
    assert_eq!(next.answers[0].id, record.run().pending()[0].id);
    let props = next.request.extra.get("forwarded_props").expect("values");
    assert_eq!(props.text(), r#"{"theme":"dark"}"#);
}

#[test]
fn a_run_is_found_by_the_names_that_its_client_gave_it() {
    let record = testkit::script("greeting").record();
    let labels = started("{}", &hello(Some("1.0"))).1.labels;
    let run = TestRun::with_info(&record, info(&record, labels));
    let mut exchange = open("{}", "POST");
    let mut other = hello(Some("1.0"));
    other["runId"] = json!("r9");
    decode_with(exchange.as_mut(), &other, &[JSON, ("last-event-id", "3")]).expect("a request");
    let page = Page { runs: vec![run.view()], total: 1, next: None };
    let fault = exchange.reply(Reply::Runs(page), &mut Out::new()).expect_err("no run of this name");
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::NotFound, Some("runId")));

    let wrong = decode_with(open("{}", "POST").as_mut(), &other, &[JSON, ("last-event-id", "three")]);
    assert_eq!(wrong.expect_err("no number").field.as_deref(), Some("last-event-id"));
    let plain = ClientRequest::new("GET", "").decode(open("{}", "GET").as_mut()).expect_err("no run");
    assert_eq!((plain.kind, plain.allow.as_slice()), (FaultKind::MethodNotAllowed, &["POST"][..]));
}
