//! Tasks of several turns: what is answered, what is asked again, history as it was said, streams and snapshots.

mod support;

use interlingua_core::answer::{AnswerPolicy, Asked, Given, Outcome, Waiting};
use interlingua_core::call::{Call, Delivery, Reply, RunInfo, RunState, Target, Thread};
use interlingua_core::model::MessageType;
use interlingua_core::model::{ContentType, Role};
use interlingua_core::run::{Announced, MessageEnd};
use interlingua_core::testkit::{Shown, laws::Telling};
use interlingua_core::{End, Extra, Record, RunCall};
use serde_json::{Value, json};
use support::{Ask, FRESH, Host, about, host, user, with};

/// A run whose first turn left it waiting, as the engine leaves it.
fn asked(host: &Host, script: &str) -> (Record, RunCall) {
    let call = host.ask(&Ask::rpc("SendMessage", &user("do it"))).run().clone();
    let told = support::told(&call, script);
    let mut record = Record::new(interlingua_core::Run::new(FRESH, "demo", "session-1", told.run().created_at));
    record.start_turn(call.request.input.clone());
    for message in &told.run().messages {
        let place =
            record.start_message(Announced::new(message.id.clone(), message.kind.clone(), message.role.clone()));
        for slot in &message.slots {
            let content = record.start_content(place, slot.kind.clone(), slot.call.clone());
            record.push(place, content, slot.text());
            record.finish_content(place, content, slot.value.clone(), Extra::new());
        }
        record.finish_message(
            place,
            MessageEnd { metadata: message.metadata.clone(), ..MessageEnd::new(End::Completed) },
        );
    }
    record.finish_turn(told.run().turns[0].end.expect("it has ended"), None);
    (record, call)
}

fn waiting(record: &Record, call: &RunCall) -> RunInfo {
    RunInfo { state: RunState::Waiting, labels: call.labels.clone(), ..about(record) }
}

/// A message on the task.
fn on_task(parts: Value) -> Value {
    json!({ "message": { "messageId": "m-2", "role": "ROLE_USER", "taskId": FRESH.to_string(), "parts": parts } })
}

fn say(record: &mut Record, id: &str, text: &str) {
    let message = record.start_message(Announced::new(id, MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, text);
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
}

#[test]
fn an_answer_is_read_in_the_light_of_what_is_waited_for() {
    let host = host();
    for (script, parts, wanted) in [
        ("approval", json!([{ "text": "approve" }]), Some(Given::Text("approve".into()))),
        ("approval", json!([{ "text": "I wonder" }]), None),
        ("approval", json!([{ "text": "approve" }, { "text": " it" }]), None),
        (
            "approval",
            json!([{ "data": { "interrupt_id": "appr_1", "decision": "accept" } }, { "text": "approved" }]),
            Some(Given::Payload(support::json(r#"{"decision":"accept"}"#))),
        ),
        (
            "approval",
            json!([{ "data": { "approval_request_id": "appr_1", "approved": false } }]),
            Some(Given::Payload(support::json(r#"{"approved":false}"#))),
        ),
        (
            "approval",
            json!([{ "data": { "approved": true } }]),
            Some(Given::Payload(support::json(r#"{"approved":true}"#))),
        ),
        ("approval", json!([{ "url": "https://x/y" }]), None),
    ] {
        let (record, first) = asked(&host, script);
        let shown = Shown::known(&record, waiting(&record, &first));
        let ask = host.ask(&Ask::rpc("SendMessage", &on_task(parts.clone())));
        assert!(matches!(ask.call, Ok(Call::Fetch(Target::Run(FRESH)))), "{:?}", ask.call);
        let next = ask.goes_on(Reply::Run(shown.view()));
        let call = next.run();
        match wanted {
            Some(given) => {
                let [answer] = call.answers.as_slice() else { panic!("one answer: {:?}", call.answers) };
                assert_eq!((answer.id.as_str(), &answer.given), ("appr_1", &given), "{parts}");
                let said = answer.said.as_ref().expect("the message it came in");
                assert_eq!(said.id.as_deref(), Some("m-2"));
                assert!(
                    said.metadata.as_ref().is_some_and(|metadata| metadata.text().contains("\"message_id\":\"m-2\""))
                );
                assert_eq!(
                    (&call.thread, call.respond_immediately, call.multi_turn),
                    (&Thread::Continue(FRESH), false, true)
                );
                assert!(call.request.input.is_empty(), "an answer is said once: {:?}", call.request.input);
            }
            None => {
                // Said in vain, as the engine finds. The task as it is, and the question again.
                assert!(call.answers.is_empty() && call.request.input.len() == 1, "{parts}");
                let answer = next.answered(Reply::Waiting(shown.view()));
                let task = &answer.json()["result"]["task"];
                assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{parts}");
                assert_eq!(task["status"]["message"]["parts"][1]["data"]["interrupt"]["id"], "appr_1");
            }
        }
    }
}

#[test]
fn a_text_is_for_none_of_several_items() {
    let host = host();
    let (record, first) = asked(&host, "approvals_parallel");
    let shown = Shown::known(&record, waiting(&record, &first));
    let next =
        host.ask(&Ask::rpc("SendMessage", &on_task(json!([{ "text": "yes" }])))).goes_on(Reply::Run(shown.view()));
    assert!(next.run().answers.is_empty());
    let answer = next.answered(Reply::Waiting(shown.view()));
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[test]
fn a_tools_output_is_a_native_message_in_either_form() {
    let host = host();
    for parts in [
        json!([{ "data": { "function_call_output": { "call_id": "call_1", "output": "Rome" } } }]),
        json!([{ "data": { "id": "call_1", "name": "get_location", "response": { "output": "Rome" } },
                 "metadata": { "type": "function_response", "adk_type": "function_response" } }]),
    ] {
        let (record, first) = asked(&host, "client_tool");
        let shown = Shown::known(&record, waiting(&record, &first));
        let next = host.ask(&Ask::rpc("SendMessage", &on_task(parts))).goes_on(Reply::Run(shown.view()));
        let input = &next.run().request.input;
        assert_eq!(
            (input.len(), &input[0].kind, input[0].id.as_deref()),
            (1, &MessageType::FunctionCallOutput, Some("m-2"))
        );
        let output = input[0].outputs().next().expect("an output");
        assert_eq!((output.call_id.as_str(), output.output.as_str()), ("call_1", "Rome"));
    }
    // Open tools do not block: a plain message is the next turn.
    let (record, first) = asked(&host, "client_tool");
    let shown = Shown::known(&record, waiting(&record, &first));
    let next = host
        .ask(&Ask::rpc("SendMessage", &on_task(json!([{ "text": "never mind" }]))))
        .goes_on(Reply::Run(shown.view()));
    assert!(next.run().answers.is_empty() && next.run().request.input[0].text() == "never mind");
}

#[test]
fn history_shows_everything_as_it_was_said() {
    let host = host();
    let (mut record, first) = asked(&host, "approval");
    let shown = Shown::known(&record, waiting(&record, &first));
    let parts = json!([{ "data": { "interrupt_id": "appr_1", "decision": "accept" } }, { "text": "go on", "metadata": { "k": 1 } }]);
    let next =
        host.ask(&Ask::rpc("SendMessage", &on_task(parts.clone()))).goes_on(Reply::Run(shown.view())).run().clone();
    // A native message takes the answer's place, as the engine has it made.
    let mut open = Waiting::default();
    let by = Asked { run: FRESH, now: 0, terms: AnswerPolicy::default(), tools: &[], approval_extension: false };
    open.ask(record.run().pending(), &by);
    let taken = open.take(next.request.input.clone(), next.answers.clone(), next.answer_policy, 0);
    let Outcome::Goes { input, .. } = taken else { panic!("the answer goes on: {taken:?}") };
    assert_eq!((input.len(), input[0].id.as_deref()), (1, Some("m-2")), "the native answer keeps the message's id");
    assert!(
        input[0].metadata.as_ref().is_some_and(|metadata| metadata.text().contains("\"k\":1")),
        "and all it brought"
    );
    record.start_turn(input);
    say(&mut record, "msg_done", "Sent.");
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    let about = RunInfo { labels: next.labels.clone(), ..about(&record) };
    let shown = Shown::known(&record, about);
    let get = |query| host.ask(&Ask::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001").query(query));
    let task = get("").answered(Reply::Run(shown.view())).json();
    let history = task["history"].as_array().expect("a list");
    let ids: Vec<&Value> = history.iter().map(|message| &message["messageId"]).collect();
    assert_eq!(ids, ["m-1", "msg_03", "m-2"], "{task}");
    assert_eq!(history[2]["parts"], parts);
    assert_eq!((&history[2]["taskId"], &history[2]["contextId"]), (&json!(FRESH.to_string()), &json!("session-1")));
    assert_eq!(task["artifacts"].as_array().expect("a list").len(), 2);
    // How much of it is shown changes nothing of it.
    let short = get("historyLength=1").answered(Reply::Run(shown.view())).json();
    assert_eq!(
        (short["history"].as_array().map(Vec::len), &short["history"][0]["messageId"]),
        (Some(1), &json!("m-2"))
    );
    let none = get("history_length=0").answered(Reply::Run(shown.view())).json();
    assert!(none.get("history").is_none());
}

#[test]
fn an_ended_task_takes_no_message_and_another_context_is_refused() {
    let host = host();
    let call = host.ask(&Ask::rpc("SendMessage", &user("hi"))).run().clone();
    let record = support::told(&call, "greeting");
    let shown = Shown::known(&record, support::about_call(&record, &call));
    let refused =
        host.ask(&Ask::rpc("SendMessage", &on_task(json!([{ "text": "more" }])))).answered(Reply::Run(shown.view()));
    assert_eq!(refused.json()["error"]["data"][0]["reason"], "UNSUPPORTED_OPERATION");
    let mut other = on_task(json!([{ "text": "more" }]));
    other["message"]["contextId"] = json!("session-2");
    let refused = host.ask(&Ask::rpc("SendMessage", &other)).answered(Reply::Run(shown.view()));
    assert_eq!(refused.json()["error"]["data"][1]["fieldViolations"][0]["field"], "message.contextId");
    let again = host
        .ask(&Ask::rest("POST", "/tasks/01930000-0000-7000-8000-000000000001:cancel"))
        .answered(Reply::Run(shown.view()));
    assert_eq!(again.json()["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
}

#[test]
fn a_working_task_queues_or_refuses() {
    for (option, queued) in [("queue", true), ("reject", false)] {
        let host = with(json!({ "while_working": option }));
        let call = host.ask(&Ask::rpc("SendMessage", &user("hi"))).run().clone();
        let mut record = Record::new(interlingua_core::Run::new(FRESH, "demo", "session-1", 0));
        record.start_turn(call.request.input.clone());
        let shown = Shown::known(&record, about(&record));
        let asked =
            host.ask(&Ask::rpc("SendMessage", &on_task(json!([{ "text": "and" }])))).reply(Reply::Run(shown.view()));
        match asked {
            Err(next) => assert!(queued && next.run().delivery == Delivery::Collect),
            Ok(answer) => assert!(!queued && answer.json()["error"]["code"] == -32004, "{answer:?}"),
        }
    }
}

/// Everything a stream writes over a record, beginning with a view of this many steps.
fn followed(asked: &mut support::Asked, record: &Record, about: RunInfo, seen: &Record) -> Vec<Value> {
    let mut telling = Telling::new(asked.exchange.as_mut());
    telling.begin(Shown::known(seen, about).view());
    record.steps(seen.len()).for_each(|step| telling.step(step));
    let text = telling.text();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_snapshot_and_what_follows_make_the_whole_wherever_it_is_cut() {
    let host = host();
    let call = host.ask(&Ask::rpc("SendMessage", &user("hi"))).run().clone();
    let whole = support::told(&call, "reasoning_between_tools");
    let final_text: String = whole
        .run()
        .messages
        .iter()
        .filter(|it| it.kind == MessageType::Message)
        .map(interlingua_core::run::Message::text)
        .collect();
    // A record grows by its steps alone: every prefix of frames is one.
    let script = interlingua_core::testkit::script("reasoning_between_tools");
    for cut in 0..script.frames.len() {
        let mut listener = interlingua_core::testkit::Recorder::new(call.request.input.clone());
        for frame in &script.frames[..cut] {
            listener.emit(&script.event(frame));
        }
        let seen = listener.record().clone();
        if seen.is_finished() {
            break;
        }
        let shown = Shown::known(&seen, about(&seen));
        let subscribe = Ask::rest("POST", "/tasks/01930000-0000-7000-8000-000000000001:subscribe");
        let mut asked = host.ask(&subscribe).goes_on(Reply::Run(shown.view()));
        assert!(matches!(asked.call, Ok(Call::Attach(Target::Run(FRESH)))));
        let frames = followed(&mut asked, &whole, about(&seen), &seen);
        let text = |value: &Value| -> String {
            value["parts"].as_array().expect("parts").iter().filter_map(|part| part["text"].as_str()).collect()
        };
        let mut heard: String = frames[0]["task"]["artifacts"].as_array().into_iter().flatten().map(text).collect();
        heard.extend(
            frames.iter().filter_map(|frame| frame.get("artifactUpdate")).map(|update| text(&update["artifact"])),
        );
        assert_eq!(heard, final_text, "cut after {cut} frames");
        let mut said: Vec<String> = Vec::new();
        let id = |message: &Value| message["messageId"].as_str().map(str::to_owned);
        said.extend(frames[0]["task"]["history"].as_array().into_iter().flatten().filter_map(id));
        said.extend(id(&frames[0]["task"]["status"]["message"]));
        said.extend(frames.iter().filter_map(|frame| id(&frame["statusUpdate"]["status"]["message"])));
        let mut once = said.clone();
        once.dedup();
        assert_eq!((said.len(), said.len()), (once.len(), 1 + script_messages(&whole)), "cut after {cut}: {said:?}");
        assert_eq!(frames.last().expect("one")["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

/// The messages that are told as statuses.
fn script_messages(record: &Record) -> usize {
    record.run().messages.iter().filter(|message| message.kind != MessageType::Message).count()
}

#[test]
fn a_stream_closes_at_its_own_turn_and_a_subscriber_stays() {
    let host = host();
    let (seen, first) = asked(&host, "approval");
    let shown = Shown::known(&seen, waiting(&seen, &first));
    let answer = on_task(json!([{ "text": "yes" }]));
    let next = host.ask(&Ask::rpc("SendStreamingMessage", &answer)).goes_on(Reply::Run(shown.view()));
    assert_eq!(next.run().delivery, Delivery::Stream);
    // The next turn asks again.
    let mut record = seen.clone();
    record.start_turn(Vec::new());
    let started = record.clone();
    let item = seen.run().messages.iter().find(|it| it.kind == MessageType::McpApprovalRequest).expect("one");
    let message = record.start_message(Announced::new("msg_again", MessageType::McpApprovalRequest, Role::Assistant));
    let content = record.start_content(message, ContentType::Data, None);
    record.finish_content(message, content, item.slots[0].value.clone(), Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);
    let mut sending = next;
    let running = RunInfo { state: RunState::Running, ..about(&started) };
    let frames = followed(&mut sending, &record, running.clone(), &started);
    assert_eq!(frames[0]["result"]["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(frames.last().expect("one")["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");

    let subscribe = Ask::old_rpc("tasks/resubscribe", &json!({ "id": FRESH.to_string() }));
    let shown = Shown::known(&started, running.clone());
    let mut subscribed = host.ask(&subscribe).goes_on(Reply::Run(shown.view()));
    let mut telling = Telling::new(subscribed.exchange.as_mut());
    telling.begin(Shown::known(&started, running).view());
    record.steps(started.len()).for_each(|step| telling.step(step));
    assert!(!telling.is_closed(), "a subscriber stays over what is waited for");
    assert!(telling.text().contains(r#""state":"input-required""#) && telling.text().contains(r#""final":false"#));
    record.finish_run(End::Canceled);
    record.steps(record.len() - 1).for_each(|step| telling.step(step));
    assert!(
        telling.is_closed()
            && telling.text().contains(r#""state":"canceled""#)
            && telling.text().trim_end().ends_with(r#""final":true}}"#)
    );
}

#[test]
fn a_direct_answer_is_a_message_and_its_task_is_forgotten() {
    let hinted = |reply: &str| -> (Host, RunCall, Record) {
        let host = with(json!({ "reply": reply }));
        let call = host.ask(&Ask::rpc("SendMessage", &user("hi"))).run().clone();
        let mut record = Record::new(interlingua_core::Run::new(FRESH, "demo", "session-1", 0));
        record.start_turn(call.request.input.clone());
        let metadata = Some(support::json(r#"{"a2a":{"reply":"message"}}"#));
        let message = record
            .start_message(Announced { metadata, ..Announced::new("msg_1", MessageType::Message, Role::Assistant) });
        let content = record.start_content(message, ContentType::Text, None);
        for piece in ["He", "l", "l", "o"] {
            record.push(message, content, piece);
        }
        record.finish_content(message, content, None, Extra::new());
        record.finish_message(message, MessageEnd::new(End::Completed));
        record.finish_turn(End::Completed, None);
        record.finish_run(End::Completed);
        (host, call, record)
    };
    let (host, call, record) = hinted("task");
    let shown = Shown::known(&record, support::about_call(&record, &call));
    let forgets = host.ask(&Ask::rpc("SendMessage", &user("hi"))).goes_on(Reply::Run(shown.view()));
    assert!(matches!(forgets.call, Ok(Call::Delete(Target::Run(FRESH)))));
    let answer = forgets.answered(Reply::Done).json();
    assert_eq!(answer["result"]["message"]["parts"], json!([{ "text": "Hello" }]));
    assert!(
        answer["result"]["message"].get("taskId").is_none() && answer["result"]["message"]["contextId"] == "session-1"
    );
    // Streams obey the hint only where that is said.
    for (reply, frames) in [("task", 8), ("auto", 1), ("message", 1)] {
        let (host, _, record) = hinted(reply);
        let asked = host.ask(&Ask::rpc("SendStreamingMessage", &user("hi")));
        let about = support::about_call(&record, asked.run());
        let answer = asked.streamed(&record, about);
        assert_eq!(answer.frames().len(), frames, "{reply}: {}", answer.body);
        assert_eq!(answer.frames()[0]["result"].get("message").is_some(), frames == 1, "{reply}");
    }
}

#[test]
fn a_hint_of_the_agent_makes_the_task_wait() {
    let host = host();
    for (state, word) in
        [("input-required", "TASK_STATE_INPUT_REQUIRED"), ("auth-required", "TASK_STATE_AUTH_REQUIRED")]
    {
        for announced in [true, false] {
            let asked = host.ask(&Ask::rpc("SendStreamingMessage", &user("hi")));
            let mut record = Record::new(interlingua_core::Run::new(FRESH, "demo", "session-1", 0));
            record.start_turn(asked.run().request.input.clone());
            let hint = Some(support::json(&format!(r#"{{"a2a":{{"state":"{state}"}}}}"#)));
            let metadata = if announced { hint.clone() } else { None };
            let message = record.start_message(Announced {
                metadata,
                ..Announced::new("msg_1", MessageType::Message, Role::Assistant)
            });
            let content = record.start_content(message, ContentType::Text, None);
            record.push(message, content, "Which city?");
            record.finish_content(message, content, None, Extra::new());
            record.finish_message(message, MessageEnd { metadata: hint, ..MessageEnd::new(End::Completed) });
            record.finish_turn(End::Completed, None);
            let about = RunInfo { state: RunState::Waiting, ..about(&record) };
            let frames = asked.streamed(&record, about).frames();
            let last = &frames.last().expect("one")["result"]["statusUpdate"]["status"];
            assert_eq!((&last["state"], &last["message"]["parts"][0]["text"]), (&json!(word), &json!("Which city?")));
            let artifacts = frames.iter().filter(|frame| frame["result"].get("artifactUpdate").is_some()).count();
            assert_eq!(artifacts == 0, announced, "{frames:?}");
        }
    }
}
