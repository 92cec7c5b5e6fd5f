//! Tasks with several turns: answers, repeated questions, history, streams and snapshots.

mod support;

use interlingua_core::answer::{AnswerBody, AnswerPolicy, AskContext, NATIVE_DECISIONS, Outcome, Waiting};
use interlingua_core::call::{Call, Delivery, Reply, RunInfo, RunState, Target, Thread};
use interlingua_core::capability::ToolOutputs;
use interlingua_core::model::{Content, ContentType, MessageType, Role};
use interlingua_core::policy::FirstResponse;
use interlingua_core::run::{MessageEnd, MessageStart};
use interlingua_core::{End, Extra, Record, RunCall};
use interlingua_core_testkit::{TestRun, laws::StreamEncoder};
use serde_json::{Value, json};
use support::{ClientRequest, Host, NEW_ID, about, host, user, with};

/// A run that waits after its first turn, as the engine leaves it.
fn waiting_run(host: &Host, script: &str) -> (Record, RunCall) {
    let call = host.send(&ClientRequest::rpc("SendMessage", &user("do it"))).run().clone();
    let reply = support::record_of(&call, script);

    let mut record = Record::new(interlingua_core::Run::new(NEW_ID, "demo", "session-1", reply.run().created_at));
    record.start_turn(call.request.input.clone());
    for message in &reply.run().messages {
        let index =
            record.start_message(MessageStart::new(message.id.clone(), message.kind.clone(), message.role.clone()));
        for slot in &message.slots {
            let content = record.start_content(index, slot.kind.clone(), slot.call.clone());
            record.push(index, content, slot.text());
            record.finish_content(index, content, slot.value.clone(), Extra::new());
        }
        record.finish_message(
            index,
            MessageEnd { metadata: message.metadata.clone(), ..MessageEnd::new(End::Completed) },
        );
    }
    record.finish_turn(reply.run().turns[0].end.expect("ended"), None);
    (record, call)
}

fn waiting(record: &Record, call: &RunCall) -> RunInfo {
    RunInfo { state: RunState::Waiting, labels: call.labels.clone(), ..about(record) }
}

/// A message to the task.
fn on_task(parts: Value) -> Value {
    json!({ "message": { "messageId": "m-2", "role": "ROLE_USER", "taskId": NEW_ID.to_string(), "parts": parts } })
}

fn add_message(record: &mut Record, id: &str, text: &str) {
    let message = record.start_message(MessageStart::new(id, MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, text);
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
}

#[test]
fn an_answer_is_parsed_for_the_pending_item() {
    let host = host();
    for (script, parts, expected) in [
        ("approval", json!([{ "text": "approve" }]), Some(AnswerBody::Text("approve".into()))),
        ("approval", json!([{ "text": "I wonder" }]), None),
        ("approval", json!([{ "text": "approve" }, { "text": " it" }]), None),
        (
            "approval",
            json!([{ "data": { "interrupt_id": "appr_1", "decision": "accept" } }, { "text": "approved" }]),
            Some(AnswerBody::Payload(support::json(r#"{"decision":"accept"}"#))),
        ),
        (
            "approval",
            json!([{ "data": { "approval_request_id": "appr_1", "approved": false } }]),
            Some(AnswerBody::Payload(support::json(r#"{"approved":false}"#))),
        ),
        (
            "approval",
            json!([{ "data": { "approved": true } }]),
            Some(AnswerBody::Payload(support::json(r#"{"approved":true}"#))),
        ),
        ("approval", json!([{ "url": "https://x/y" }]), None),
    ] {
        let (record, first) = waiting_run(&host, script);
        let shown = TestRun::with_info(&record, waiting(&record, &first));
        let request = host.send(&ClientRequest::rpc("SendMessage", &on_task(parts.clone())));
        assert!(matches!(request.call, Ok(Call::Fetch(Target::Run(NEW_ID)))), "{:?}", request.call);
        let next = request.next_call(Reply::Run(shown.view()));

        let call = next.run();
        match expected {
            Some(given) => {
                let [answer] = call.answers.as_slice() else { panic!("one answer: {:?}", call.answers) };
                assert_eq!((answer.id.as_str(), &answer.given), ("appr_1", &given), "{parts}");
                let message = answer.said.as_ref().expect("the message it came in");
                assert_eq!(message.id.as_deref(), Some("m-2"));
                assert!(
                    message
                        .metadata
                        .as_ref()
                        .is_some_and(|metadata| metadata.text().contains("\"message_id\":\"m-2\""))
                );
                assert_eq!(
                    (
                        &call.thread,
                        call.policy.first_response == FirstResponse::Immediate,
                        call.policy.turns.are_many()
                    ),
                    (&Thread::Continue(NEW_ID), false, true)
                );
                assert!(call.request.input.is_empty(), "an answer is not repeated as input: {:?}", call.request.input);
            }
            None => {
                // The engine finds it undecided: the response is the unchanged task with its question.
                assert!(call.answers.is_empty() && call.request.input.len() == 1, "{parts}");
                let answer = next.final_answer(Reply::Waiting(shown.view(), Some("not understood")));
                let task = &answer.json()["result"]["task"];
                assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{parts}");
                let question = &task["status"]["message"];
                assert_eq!(question["parts"][0]["text"], "not understood");
                assert_eq!(question["parts"][2]["data"]["interrupt"]["id"], "appr_1");
                assert_ne!(question["messageId"], "msg_02", "the first question has another text");
            }
        }
    }
}

#[test]
fn text_answers_none_of_several_items() {
    let host = host();
    let (record, first) = waiting_run(&host, "approvals_parallel");
    let shown = TestRun::with_info(&record, waiting(&record, &first));
    let next = host
        .send(&ClientRequest::rpc("SendMessage", &on_task(json!([{ "text": "yes" }]))))
        .next_call(Reply::Run(shown.view()));
    assert!(next.run().answers.is_empty());
    let answer = next.final_answer(Reply::Waiting(shown.view(), None));
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[test]
fn a_tool_output_is_accepted_in_both_formats() {
    let host = host();
    for parts in [
        json!([{ "data": { "function_call_output": { "call_id": "call_1", "output": "Rome" } } }]),
        json!([{ "data": { "id": "call_1", "name": "get_location", "response": { "output": "Rome" } },
                 "metadata": { "type": "function_response", "adk_type": "function_response" } }]),
    ] {
        let (record, first) = waiting_run(&host, "client_tool");
        let shown = TestRun::with_info(&record, waiting(&record, &first));
        let next = host.send(&ClientRequest::rpc("SendMessage", &on_task(parts))).next_call(Reply::Run(shown.view()));
        let input = &next.run().request.input;
        assert_eq!(
            (input.len(), &input[0].kind, input[0].id.as_deref()),
            (1, &MessageType::FunctionCallOutput, Some("m-2"))
        );
        let output = input[0].outputs().next().expect("an output");
        assert_eq!((output.call_id.as_str(), output.output.as_str()), ("call_1", "Rome"));
    }

    // Pending tool calls do not block: a plain message starts the next turn.
    let (record, first) = waiting_run(&host, "client_tool");
    let shown = TestRun::with_info(&record, waiting(&record, &first));
    let next = host
        .send(&ClientRequest::rpc("SendMessage", &on_task(json!([{ "text": "never mind" }]))))
        .next_call(Reply::Run(shown.view()));
    assert!(next.run().answers.is_empty() && next.run().request.input[0].text() == "never mind");
}

#[test]
fn history_shows_messages_as_they_were_sent() {
    let host = host();
    let (mut record, first) = waiting_run(&host, "approval");
    let shown = TestRun::with_info(&record, waiting(&record, &first));
    let parts = json!([{ "data": { "interrupt_id": "appr_1", "decision": "accept" } }, { "text": "go on", "metadata": { "k": 1 } }]);
    let next = host
        .send(&ClientRequest::rpc("SendMessage", &on_task(parts.clone())))
        .next_call(Reply::Run(shown.view()))
        .run()
        .clone();

    // The engine replaces the answer with a message for the agent.
    let mut open = Waiting::default();
    let by = AskContext {
        run: NEW_ID,
        now: 0,
        terms: AnswerPolicy::default(),
        tools: &[],
        decisions: NATIVE_DECISIONS,
        tool_outputs: ToolOutputs::Each,
    };
    let first = open.take(Vec::new(), Vec::new(), AnswerPolicy::default(), 0);
    let Outcome::Send { taken, .. } = first else { panic!("nothing is open: {first:?}") };
    let sent = open.confirm_sent(taken);
    open.ask(sent, record.run().pending(), &by);
    let outcome = open.take(next.request.input.clone(), next.answers.clone(), next.answer_policy, 0);
    let Outcome::Send { input, .. } = outcome else { panic!("the run continues: {outcome:?}") };
    assert_eq!((input.len(), input[0].id.as_deref()), (1, Some("m-2")), "the answer keeps the message's id");
    assert!(
        input[0].metadata.as_ref().is_some_and(|metadata| metadata.text().contains("\"k\":1")),
        "the answer keeps the metadata"
    );

    record.start_turn(input);
    add_message(&mut record, "msg_done", "Sent.");
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    let about = RunInfo { labels: next.labels.clone(), ..about(&record) };
    let shown = TestRun::with_info(&record, about);
    let get =
        |query| host.send(&ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001").query(query));
    let task = get("").final_answer(Reply::Run(shown.view())).json();

    let history = task["history"].as_array().expect("a list");
    let ids: Vec<&Value> = history.iter().map(|message| &message["messageId"]).collect();
    assert_eq!(ids, ["m-1", "msg_03", "m-2"], "{task}");
    assert_eq!(history[2]["parts"], parts);
    assert_eq!((&history[2]["taskId"], &history[2]["contextId"]), (&json!(NEW_ID.to_string()), &json!("session-1")));
    assert_eq!(task["artifacts"].as_array().expect("a list").len(), 2);
    // A shorter history has the same messages.
    let short = get("historyLength=1").final_answer(Reply::Run(shown.view())).json();
    assert_eq!(
        (short["history"].as_array().map(Vec::len), &short["history"][0]["messageId"]),
        (Some(1), &json!("m-2"))
    );
    let none = get("history_length=0").final_answer(Reply::Run(shown.view())).json();
    assert!(none.get("history").is_none());
}

#[test]
fn an_ended_task_and_another_context_reject_messages() {
    let host = host();
    let call = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run().clone();
    let record = support::record_of(&call, "greeting");
    let shown = TestRun::with_info(&record, support::about_call(&record, &call));
    let rejected = host
        .send(&ClientRequest::rpc("SendMessage", &on_task(json!([{ "text": "more" }]))))
        .final_answer(Reply::Run(shown.view()));
    assert_eq!(rejected.json()["error"]["data"][0]["reason"], "UNSUPPORTED_OPERATION");

    let mut other = on_task(json!([{ "text": "more" }]));
    other["message"]["contextId"] = json!("session-2");
    let rejected = host.send(&ClientRequest::rpc("SendMessage", &other)).final_answer(Reply::Run(shown.view()));
    assert_eq!(rejected.json()["error"]["data"][1]["fieldViolations"][0]["field"], "message.contextId");

    let again = host
        .send(&ClientRequest::rest("POST", "/tasks/01930000-0000-7000-8000-000000000001:cancel"))
        .final_answer(Reply::Run(shown.view()));
    assert_eq!(again.json()["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
}

#[test]
fn a_working_task_queues_or_rejects_messages() {
    for (option, queued) in [("queue", true), ("reject", false)] {
        let host = with(json!({ "while_working": option }));
        let call = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run().clone();
        let mut record = Record::new(interlingua_core::Run::new(NEW_ID, "demo", "session-1", 0));
        record.start_turn(call.request.input.clone());
        let shown = TestRun::with_info(&record, about(&record));
        let decoded = host
            .send(&ClientRequest::rpc("SendMessage", &on_task(json!([{ "text": "and" }]))))
            .reply(Reply::Run(shown.view()));
        match decoded {
            Err(next) => assert!(queued && next.run().delivery == Delivery::Collect),
            Ok(answer) => assert!(!queued && answer.json()["error"]["code"] == -32004, "{answer:?}"),
        }
    }
}

/// The frames of a stream over `record` that starts with the snapshot `seen`.
fn stream_from(decoded: &mut support::DecodedExchange, record: &Record, about: RunInfo, seen: &Record) -> Vec<Value> {
    let mut encoder = StreamEncoder::new(decoded.exchange.as_mut());
    encoder.begin(TestRun::with_info(seen, about).view());
    record.steps(seen.len()).for_each(|step| encoder.step(step));
    let text = encoder.text();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_snapshot_and_its_stream_are_complete_at_every_cut() {
    let host = host();
    let call = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run().clone();
    let full = support::record_of(&call, "reasoning_between_tools");
    let final_text: String = full
        .run()
        .messages
        .iter()
        .filter(|it| it.kind == MessageType::Message)
        .map(interlingua_core::run::Message::text)
        .collect();

    // Every prefix of the frames gives a valid record.
    let script = interlingua_core_testkit::script("reasoning_between_tools");
    for cut in 0..script.frames.len() {
        let mut listener = interlingua_core_testkit::Recorder::new(call.request.input.clone());
        for frame in &script.frames[..cut] {
            listener.emit(&script.event(frame));
        }
        let seen = listener.record().clone();
        if seen.is_finished() {
            break;
        }
        let shown = TestRun::with_info(&seen, about(&seen));
        let subscribe = ClientRequest::rest("POST", "/tasks/01930000-0000-7000-8000-000000000001:subscribe");
        let mut decoded = host.send(&subscribe).next_call(Reply::Run(shown.view()));
        assert!(matches!(decoded.call, Ok(Call::Attach(Target::Run(NEW_ID)))));
        let frames = stream_from(&mut decoded, &full, about(&seen), &seen);
        let text = |value: &Value| -> String {
            value["parts"].as_array().expect("parts").iter().filter_map(|part| part["text"].as_str()).collect()
        };
        let mut text_received: String =
            frames[0]["task"]["artifacts"].as_array().into_iter().flatten().map(text).collect();
        text_received.extend(
            frames.iter().filter_map(|frame| frame.get("artifactUpdate")).map(|update| text(&update["artifact"])),
        );
        assert_eq!(text_received, final_text, "cut after {cut} frames");

        let mut message_ids: Vec<String> = Vec::new();
        let id = |message: &Value| message["messageId"].as_str().map(str::to_owned);
        message_ids.extend(frames[0]["task"]["history"].as_array().into_iter().flatten().filter_map(id));
        message_ids.extend(id(&frames[0]["task"]["status"]["message"]));
        message_ids.extend(frames.iter().filter_map(|frame| id(&frame["statusUpdate"]["status"]["message"])));
        let mut once = message_ids.clone();
        once.dedup();
        assert_eq!(
            (message_ids.len(), message_ids.len()),
            (once.len(), 1 + script_messages(&full)),
            "cut after {cut}: {message_ids:?}"
        );
        assert_eq!(frames.last().expect("one")["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

/// The number of messages that are sent as statuses.
fn script_messages(record: &Record) -> usize {
    record.run().messages.iter().filter(|message| message.kind != MessageType::Message).count()
}

#[test]
fn a_send_stream_closes_after_its_turn_and_a_subscription_stays_open() {
    let host = host();
    let (seen, first) = waiting_run(&host, "approval");
    let shown = TestRun::with_info(&seen, waiting(&seen, &first));
    let answer = on_task(json!([{ "text": "yes" }]));
    let next = host.send(&ClientRequest::rpc("SendStreamingMessage", &answer)).next_call(Reply::Run(shown.view()));
    assert_eq!(next.run().delivery, Delivery::Stream);

    // The next turn asks another question.
    let mut record = seen.clone();
    record.start_turn(Vec::new());
    let started = record.clone();
    let item = seen.run().messages.iter().find(|it| it.kind == MessageType::McpApprovalRequest).expect("one");
    let message =
        record.start_message(MessageStart::new("msg_again", MessageType::McpApprovalRequest, Role::Assistant));
    let content = record.start_content(message, ContentType::Data, None);
    record.finish_content(message, content, item.slots[0].value.clone(), Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);

    let mut sending = next;
    let running = RunInfo { state: RunState::Running, ..about(&started) };
    let frames = stream_from(&mut sending, &record, running.clone(), &started);
    assert_eq!(frames[0]["result"]["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(frames.last().expect("one")["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");

    let subscribe = ClientRequest::rpc_v03("tasks/resubscribe", &json!({ "id": NEW_ID.to_string() }));
    let shown = TestRun::with_info(&started, running.clone());
    let mut subscribed = host.send(&subscribe).next_call(Reply::Run(shown.view()));
    let mut encoder = StreamEncoder::new(subscribed.exchange.as_mut());
    encoder.begin(TestRun::with_info(&started, running).view());
    record.steps(started.len()).for_each(|step| encoder.step(step));
    assert!(!encoder.is_closed(), "a subscription stays open while the task waits");
    assert!(encoder.text().contains(r#""state":"input-required""#) && encoder.text().contains(r#""final":false"#));

    record.finish_run(End::Canceled);
    record.steps(record.len() - 1).for_each(|step| encoder.step(step));
    assert!(
        encoder.is_closed()
            && encoder.text().contains(r#""state":"canceled""#)
            && encoder.text().trim_end().ends_with(r#""final":true}}"#)
    );
}

#[test]
fn the_stream_of_an_answer_does_not_depend_on_how_far_the_agent_is_when_it_begins() {
    let host = host();
    let (seen, first) = waiting_run(&host, "approval");

    // A turn with an output, which becomes a status, and a text in two pieces, which becomes an artifact.
    let mut record = seen.clone();
    let mut stages = Vec::new();
    record.start_turn(Vec::new());
    stages.push(record.clone());
    let output = record.start_message(MessageStart::new("msg_output", MessageType::PluginCallOutput, Role::Tool));
    let content = record.start_content(output, ContentType::Data, None);
    let value = json!({ "call_id": "call_1", "output": "sent" });
    record.finish_content(output, content, Some(Content::data(&value)), Extra::new());
    record.finish_message(output, MessageEnd::new(End::Completed));
    stages.push(record.clone());
    let text = record.start_message(MessageStart::new("msg_text", MessageType::Message, Role::Assistant));
    let content = record.start_content(text, ContentType::Text, None);
    for piece in ["It is ", "sent."] {
        record.push(text, content, piece);
        stages.push(record.clone());
    }
    record.finish_content(text, content, None, Extra::new());
    record.finish_message(text, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);

    let streams = stages.iter().map(|stage| {
        let shown = TestRun::with_info(&seen, waiting(&seen, &first));
        let answer = on_task(json!([{ "text": "yes" }]));
        let mut sending =
            host.send(&ClientRequest::rpc("SendStreamingMessage", &answer)).next_call(Reply::Run(shown.view()));
        let mut encoder = StreamEncoder::new(sending.exchange.as_mut());
        encoder.begin(TestRun::with_info(stage, RunInfo { state: RunState::Running, ..about(stage) }).view());
        record.steps(0).for_each(|step| encoder.step(step));
        assert!(encoder.is_closed());
        encoder.text()
    });
    let streams: Vec<String> = streams.collect();
    for (at, stream) in streams.iter().enumerate() {
        assert_eq!(stream, &streams[0], "begun at stage {at}");
    }
    assert!(!streams[0].lines().next().expect("a task").contains("sent"), "{}", streams[0]);
    let places = ["\"output\":\"sent\"", "It is ", "sent."].map(|part| streams[0].find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {}", streams[0]);
}

#[test]
fn a_direct_reply_is_a_message_and_its_task_is_deleted() {
    let hinted = |reply: &str| -> (Host, RunCall, Record) {
        let host = with(json!({ "reply": reply }));
        let call = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run().clone();
        let mut record = Record::new(interlingua_core::Run::new(NEW_ID, "demo", "session-1", 0));
        record.start_turn(call.request.input.clone());
        let metadata = Some(support::json(r#"{"a2a":{"reply":"message"}}"#));
        let message = record.start_message(MessageStart {
            metadata,
            ..MessageStart::new("msg_1", MessageType::Message, Role::Assistant)
        });
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
    let shown = TestRun::with_info(&record, support::about_call(&record, &call));
    let forgets = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).next_call(Reply::Run(shown.view()));
    assert!(matches!(forgets.call, Ok(Call::Delete(Target::Run(NEW_ID)))));

    let answer = forgets.final_answer(Reply::Done).json();
    assert_eq!(answer["result"]["message"]["parts"], json!([{ "text": "Hello" }]));
    assert!(
        answer["result"]["message"].get("taskId").is_none() && answer["result"]["message"]["contextId"] == "session-1"
    );

    // Streams follow the hint only with the option.
    for (reply, frames) in [("task", 8), ("auto", 1), ("message", 1)] {
        let (host, _, record) = hinted(reply);
        let decoded = host.send(&ClientRequest::rpc("SendStreamingMessage", &user("hi")));
        let about = support::about_call(&record, decoded.run());
        let answer = decoded.streamed(&record, about);
        assert_eq!(answer.frames().len(), frames, "{reply}: {}", answer.body);
        assert_eq!(answer.frames()[0]["result"].get("message").is_some(), frames == 1, "{reply}");
    }
}

#[test]
fn an_agent_hint_makes_the_task_wait() {
    let host = host();
    for (state, word) in
        [("input-required", "TASK_STATE_INPUT_REQUIRED"), ("auth-required", "TASK_STATE_AUTH_REQUIRED")]
    {
        for announced in [true, false] {
            let decoded = host.send(&ClientRequest::rpc("SendStreamingMessage", &user("hi")));
            let mut record = Record::new(interlingua_core::Run::new(NEW_ID, "demo", "session-1", 0));
            record.start_turn(decoded.run().request.input.clone());
            let hint = Some(support::json(&format!(r#"{{"a2a":{{"state":"{state}"}}}}"#)));
            let metadata = if announced { hint.clone() } else { None };
            let message = record.start_message(MessageStart {
                metadata,
                ..MessageStart::new("msg_1", MessageType::Message, Role::Assistant)
            });
            let content = record.start_content(message, ContentType::Text, None);
            record.push(message, content, "Which city?");
            record.finish_content(message, content, None, Extra::new());
            record.finish_message(message, MessageEnd { metadata: hint, ..MessageEnd::new(End::Completed) });
            record.finish_turn(End::Completed, None);
            let about = RunInfo { state: RunState::Waiting, ..about(&record) };
            let frames = decoded.streamed(&record, about).frames();
            let last = &frames.last().expect("one")["result"]["statusUpdate"]["status"];
            assert_eq!((&last["state"], &last["message"]["parts"][0]["text"]), (&json!(word), &json!("Which city?")));
            let artifacts = frames.iter().filter(|frame| frame["result"].get("artifactUpdate").is_some()).count();
            assert_eq!(artifacts == 0, announced, "{frames:?}");
        }
    }
}
