//! Parts of several kinds in one message or artifact, messages in pieces, and repetitions in snapshots.

use interlingua_core_testkit::{self as testkit, DrivenTurn};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::agent::{
    ALL, Session, V1, V03, artifact, body, end, fixed, message, status, status_with, submitted, task, text, texts,
};

const MARKS: &[&str] = &["adk_thought", "thought", "kagent_thought"];

fn thought(mark: &str, text: &str) -> Value {
    json!({ "text": text, "metadata": { mark: true } })
}

fn answer(text: &str) -> Value {
    json!({ "text": text })
}

fn pair(kind: &str, text: &str) -> (String, String) {
    (kind.to_owned(), text.to_owned())
}

fn read(dialect: super::agent::Dialect, items: &[Value]) -> DrivenTurn {
    let mut all = vec![submitted()];
    all.extend_from_slice(items);
    all.push(status("COMPLETED"));
    Session::new(&fixed(dialect)).send_text("Paris?", [dialect.stream(1, &all)])
}

#[test]
fn a_thought_and_an_answer_in_one_place_are_both() {
    let expected = [pair("reasoning", "Let me think."), pair("message", "42 is it.")];
    for dialect in ALL {
        for mark in MARKS {
            let parts = json!([thought(mark, "Let me think."), answer("42 is it.")]);
            let snapshot = json!({ "task": task("WORKING", &json!([{ "artifactId": "a-1", "parts": parts }])) });
            for items in [
                vec![artifact("a-1", &parts, false, false)],
                vec![artifact("a-1", &parts, false, true)],
                vec![artifact("a-1", &parts, false, true), snapshot.clone(), snapshot.clone()],
                vec![snapshot],
                vec![
                    artifact("a-1", &json!([thought(mark, "Let me ")]), false, false),
                    artifact("a-1", &json!([thought(mark, "think."), answer("42 ")]), true, false),
                    text("a-1", "is it.", true),
                    artifact("a-1", &parts, false, true),
                ],
                // The last state of an artifact may leave its thoughts out.
                vec![
                    artifact("a-1", &parts, false, false),
                    artifact("a-1", &json!([answer("42 is it.")]), false, true),
                ],
            ] {
                assert_eq!(texts(&read(dialect, &items)), expected, "{mark}, {items:?}");
            }

            let session = || Session::new(&fixed(dialect));
            let direct = session().send_text("hi", [dialect.stream(1, &[json!({ "message": message("m", &parts) })])]);
            assert_eq!(texts(&direct), expected, "{mark}, a message in a stream");
            let whole = session().send_text("hi", [dialect.body(1, &json!({ "message": message("m", &parts) }))]);
            assert_eq!(texts(&whole), expected, "{mark}, a message as a body");
            let last = status_with("COMPLETED", "m", &parts);
            let ended = session().send_text("hi", [dialect.stream(1, &[submitted(), last])]);
            assert_eq!(texts(&ended), expected, "{mark}, the last status");
        }
    }
}

#[test]
fn an_artifact_or_a_message_may_be_reasoning_as_a_whole() {
    let mut reasoning = text("r", "Hm", false);
    reasoning["artifactUpdate"]["artifact"]["metadata"] = json!({ "agno_content_category": "reasoning" });
    let mut more = text("r", ", well.", true);
    more["artifactUpdate"]["artifact"]["metadata"] = json!({ "agno_content_category": "reasoning" });
    let driven = read(V1, &[reasoning, more, text("a", "42", false)]);
    assert_eq!(texts(&driven), [pair("reasoning", "Hm, well."), pair("message", "42")]);

    let mut thinking = message("r", &json!([answer("Hm")]));
    thinking["metadata"] = json!({ "agno_content_category": "reasoning" });
    let items = [json!({ "message": thinking }), json!({ "message": message("m", &json!([answer("42")])) })];
    let driven = Session::new(&fixed(V1)).send_text("hi", [V1.stream(1, &items)]);
    assert_eq!(texts(&driven), [pair("reasoning", "Hm"), pair("message", "42")]);
}

#[test]
fn calls_of_an_artifact_are_calls() {
    let call = json!({ "data": { "id": "c1", "name": "look", "args": { "q": 1 } },
        "metadata": { "adk_type": "function_call" } });
    let output = json!({ "data": { "id": "c1", "name": "look", "response": { "output": "found" } },
        "metadata": { "adk_type": "function_response" } });
    let parts = json!([thought("adk_thought", "Hm"), call, output, answer("Found.")]);
    for items in [
        vec![artifact("a", &parts, false, true)],
        vec![artifact("a", &parts, false, false), artifact("a", &parts, false, true)],
    ] {
        let driven = read(V1, &items);
        let kinds: Vec<&str> = driven.record.run().messages.iter().map(|message| message.kind.as_str()).collect();
        assert_eq!(kinds, ["reasoning", "plugin_call", "plugin_call_output", "message"]);
        testkit::grammar(&driven.record).expect("the grammar");
    }
}

#[test]
fn pieces_of_one_message_are_one_text() {
    let piece = |id: &str, text: &str| {
        let parts = if text.is_empty() { json!([]) } else { json!([answer(text)]) };
        json!({ "message": message(id, &parts) })
    };
    for dialect in ALL {
        let items = [piece("m", ""), piece("m", "It is "), piece("m", "18 C."), piece("m", "")];
        let driven = Session::new(&fixed(dialect)).send_text("hi", [dialect.stream(1, &items)]);
        assert_eq!((texts(&driven), end(&driven).as_str()), (vec![pair("message", "It is 18 C.")], "completed"));

        // Within a task, as Agno sends them: the task ends with the whole text in its history, or in an artifact.
        let mut last = task("COMPLETED", &json!([{ "artifactId": "all", "parts": [answer("It is 18 C.")] }]));
        last["history"] = json!([message("m", &json!([answer("It is 18 C.")]))]);
        for end_of_task in [vec![status("COMPLETED"), json!({ "task": last })], vec![json!({ "task": last })]] {
            let mut all = vec![status("WORKING")];
            all.extend(items.iter().cloned());
            all.extend(end_of_task);
            let driven = Session::new(&fixed(dialect)).send_text("hi", [dialect.stream(1, &all)]);
            assert_eq!((texts(&driven), end(&driven).as_str()), (vec![pair("message", "It is 18 C.")], "completed"));
        }
    }

    // Two messages are two texts, however their pieces alternate.
    let items = [piece("a", "one "), piece("b", "red "), piece("a", "two"), piece("b", "blue")];
    let driven = Session::new(&fixed(V1)).send_text("hi", [V1.stream(1, &items)]);
    assert_eq!(texts(&driven), [pair("message", "one two"), pair("message", "red blue")]);
    // Nothing at all is an empty answer.
    let driven = Session::new(&fixed(V1)).send_text("hi", [V1.stream(1, &[piece("m", "")])]);
    assert_eq!((texts(&driven), end(&driven).as_str()), (Vec::new(), "completed"));
    // Some servers repeat the user's message.
    let mut echo = piece("m0", "hi");
    echo["message"]["role"] = json!("ROLE_USER");
    let driven = Session::new(&fixed(V03)).send_text("hi", [V03.stream(1, &[echo, piece("m", "Hello")])]);
    assert_eq!(texts(&driven), [pair("message", "Hello")]);
}

#[test]
fn a_text_that_was_streamed_is_not_repeated_under_another_id() {
    let whole = |id: &str| artifact(id, &json!([answer("It is 18 C.")]), false, true);
    let streamed = [text("a-1", "It is ", false), text("a-1", "18 C.", true)];
    let listed = |artifacts: Value| json!({ "task": task("WORKING", &artifacts) });
    let once = [pair("message", "It is 18 C.")];
    for last in [
        whole("final"),
        listed(json!([{ "artifactId": "final", "parts": [answer("It is 18 C.")] }])),
        status_with("COMPLETED", "m", &json!([answer("It is 18 C.")])),
    ] {
        let items: Vec<Value> = streamed.iter().cloned().chain([last.clone()]).collect();
        assert_eq!(texts(&read(V1, &items)), once, "{last}");
    }
    // Each piece an artifact of its own, then all of it.
    let pieces = [text("p1", "It is ", false), text("p2", "18 C.", false), whole("all")];
    assert_eq!(texts(&read(V1, &pieces)), [pair("message", "It is "), pair("message", "18 C.")]);
    // Two artifacts that say the same are two.
    let both = json!([{ "artifactId": "a", "parts": [answer("ok")] }, { "artifactId": "b", "parts": [answer("ok")] }]);
    let driven = Session::new(&fixed(V1)).send_text("hi", [V1.body(1, &json!({ "task": task("COMPLETED", &both) }))]);
    assert_eq!(texts(&driven), [pair("message", "ok"), pair("message", "ok")]);
}

/// A status of ADK while the task works.
fn adk(id: &str, parts: &Value) -> Value {
    let mut item = status_with("WORKING", id, parts);
    item["statusUpdate"]["metadata"] = json!({ "adk_author": "scripted", "adk_event_id": "e" });
    item
}

#[test]
fn a_text_of_a_status_that_an_artifact_repeats_is_shown_once() {
    let parts = json!([thought("adk_thought", "I look at it."), answer("The answer is 42.")]);
    let whole = [pair("reasoning", "I look at it."), pair("message", "The answer is 42.")];
    let plain = json!([answer("The answer is 42.")]);
    for dialect in ALL {
        let artifact_of = |parts: &Value| artifact("a", parts, false, true);
        let read = |items: &[Value]| texts(&read(dialect, items));
        assert_eq!(read(&[adk("m", &parts), artifact_of(&parts)]), whole);
        assert_eq!(read(&[adk("m", &parts), artifact_of(&plain)]), whole, "the thought is in the status alone");
        assert_eq!(read(&[adk("m", &plain), artifact_of(&plain)]), whole[1..]);
        // The answer in pieces, each in a status, and streamed in the artifact.
        let pieces = [adk("m1", &json!([answer("The answer ")])), adk("m2", &json!([answer("is 42.")]))];
        assert_eq!(read(&[&pieces[..], &[artifact_of(&plain)]].concat()), whole[1..]);
        let streamed = [text("a", "The answer ", false), text("a", "is 42.", true)];
        assert_eq!(read(&[&[adk("m", &plain)][..], &streamed].concat()), whole[1..]);

        // Another text is progress, and stands before what follows it.
        let progress = [adk("m1", &json!([answer("Let me see.")])), adk("m2", &plain), artifact_of(&plain)];
        assert_eq!(read(&progress), [pair("reasoning", "Let me see."), whole[1].clone()]);
        let other = [adk("m1", &plain), artifact_of(&json!([answer("Something else.")]))];
        assert_eq!(read(&other), [pair("reasoning", "The answer is 42."), pair("message", "Something else.")]);
        // Without an artifact, the status has the answer.
        assert_eq!(read(&[adk("m", &plain)]), whole[1..]);

        // The same in a task that is not streamed: in its history.
        let mut task = task("COMPLETED", &json!([{ "artifactId": "a", "parts": parts }]));
        task["history"].as_array_mut().expect("a list").push(message("m", &parts));
        let driven = Session::new(&fixed(dialect)).send_text("Paris?", [dialect.body(1, &json!({ "task": task }))]);
        assert_eq!(texts(&driven), whole);
    }
}

#[test]
fn progress_of_agno_is_in_the_metadata_of_a_status() {
    let working = |metadata: Value| {
        let mut item = status("WORKING");
        item["statusUpdate"]["metadata"] = metadata;
        item
    };
    let call = json!({ "agno_event_type": "tool_call_started", "tool_name": "look", "tool_call_id": "c1", "tool_args": "{\"q\":1}" });
    let items = [
        working(json!({ "agno_event_type": "reasoning_started" })),
        working(json!({ "agno_event_type": "reasoning_step", "reasoning_content": "Hm" })),
        working(call.clone()),
        working(call),
        working(json!({ "agno_event_type": "tool_call_completed", "tool_name": "look", "tool_call_id": "c1" })),
        working(json!({ "agno_event_type": 7 })),
        text("a", "Found.", false),
    ];
    let driven = read(V1, &items);
    let messages = &driven.record.run().messages;
    let kinds: Vec<&str> = messages.iter().map(|message| message.kind.as_str()).collect();
    assert_eq!(kinds, ["reasoning", "plugin_call", "message"]);
    let call = messages[1].to_model().calls().next().expect("a call");
    assert_eq!((call.call_id.as_str(), call.name.as_str(), call.arguments.as_str()), ("c1", "look", r#"{"q":1}"#));
}

/// A message or an artifact in parts, cut into pieces anywhere.
fn pieces() -> impl Strategy<Value = Vec<Vec<(bool, String)>>> {
    let part = (any::<bool>(), "[a-z ]{1,4}|ä👀");
    prop::collection::vec(prop::collection::vec(part, 0..4), 1..5)
}

/// Adjacent texts of one kind, joined.
fn joined(pieces: &[Vec<(bool, String)>]) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for (is_thought, text) in pieces.iter().flatten() {
        let kind = if *is_thought { "reasoning" } else { "message" };
        match joined.last_mut() {
            Some((last, whole)) if last == kind => whole.push_str(text),
            _ => joined.push(pair(kind, text)),
        }
    }
    joined
}

proptest! {
    #[test]
    fn parts_in_any_grouping_say_the_same(pieces in pieces(), snapshots in 0_usize..3, is_closed: bool) {
        let part = |(is_thought, text): &(bool, String)| {
            if *is_thought { thought("adk_thought", text) } else { answer(text) }
        };
        let expected = joined(&pieces);
        let of = |pieces: &[(bool, String)]| json!(pieces.iter().map(part).collect::<Vec<Value>>());
        let all: Vec<(bool, String)> = pieces.iter().flatten().cloned().collect();

        let mut items: Vec<Value> =
            pieces.iter().enumerate().map(|(number, piece)| artifact("a", &of(piece), number > 0, false)).collect();
        let snapshot = json!({ "task": task("WORKING", &json!([{ "artifactId": "a", "parts": of(&all) }])) });
        items.extend(std::iter::repeat_n(snapshot, snapshots));
        if is_closed {
            items.push(artifact("a", &of(&all), false, true));
        }
        prop_assert_eq!(texts(&read(V1, &items)), expected.clone(), "{:?}", items);

        let items: Vec<Value> = pieces.iter().map(|piece| json!({ "message": message("m", &of(piece)) })).collect();
        let driven = Session::new(&fixed(V1)).send_text("hi", [V1.stream(1, &items)]);
        prop_assert_eq!(texts(&driven), expected, "{:?}", items);
    }
}

fn confirmation() -> Value {
    json!({
        "data": { "id": "adk-1", "name": "adk_request_confirmation", "args": {
            "originalFunctionCall": { "id": "adk-0", "name": "order", "args": { "tons": 40 } },
            "toolConfirmation": { "hint": "Order 40 tons?", "confirmed": false, "payload": null }
        } },
        "metadata": { "adk_type": "function_call", "adk_is_long_running": true }
    })
}

#[test]
fn a_confirmation_of_adk_is_an_approval_that_takes_yes_and_no() {
    use interlingua_core::pending::{Decision, PendingKind};
    for dialect in [V1, V03] {
        for (decision, reason, expected) in [
            (Decision::Accept, None, true),
            (Decision::Reject, None, false),
            (Decision::Reject, Some("yes, later"), false),
        ] {
            let mut session = Session::new(&fixed(dialect));
            let items = [submitted(), status_with("INPUT_REQUIRED", "m-1", &json!([confirmation()]))];
            let waiting = session.send_text("Order steel", [dialect.stream(1, &items)]);
            let pending = waiting.record.run().pending();
            let [item] = pending.as_slice() else { panic!("one item: {pending:?}") };
            assert_eq!((item.kind, item.name.as_str()), (PendingKind::Approval, "order"));
            assert_eq!((item.arguments.as_str(), item.call_id.as_deref()), (r#"{"tons":40}"#, Some("adk-0")));
            assert_eq!(item.message.as_deref(), Some("Order 40 tons?"));
            assert_eq!(item.decisions, [Decision::Accept, Decision::Reject]);

            let decided = super::agent::decided(decision, reason);
            let driven = session.decide(&waiting, &decided, [dialect.stream(1, &[status("COMPLETED")])]);
            let sent: Value = serde_json::from_slice(&driven.requests[0].body).expect("JSON");
            let parts = sent["params"]["message"]["parts"].as_array().expect("parts");
            assert_eq!(parts.len(), 1, "nothing else that could be taken for an answer: {sent}");
            let response = json!({ "confirmed": expected });
            let data = json!({ "id": "adk-1", "name": "adk_request_confirmation", "response": response });
            assert_eq!((&parts[0]["data"], &parts[0]["metadata"]["adk_type"]), (&data, &json!("function_response")));
            assert_eq!(sent["params"]["message"]["taskId"], "T");
        }
    }
}

#[test]
fn arguments_of_a_confirmation_may_be_missing() {
    for args in [json!(null), json!({}), json!({ "originalFunctionCall": 7 }), json!([1])] {
        let mut part = confirmation();
        part["data"]["args"] = args.clone();
        let items = [submitted(), status_with("INPUT_REQUIRED", "m-1", &json!([part]))];
        let driven = Session::new(&fixed(V1)).send_text("hi", [V1.stream(1, &items)]);
        let pending = driven.record.run().pending();
        let [item] = pending.as_slice() else { panic!("one item: {pending:?}") };
        assert_eq!((item.name.as_str(), item.arguments.as_str()), ("adk_request_confirmation", "{}"), "{args}");
    }
}

#[test]
fn the_body_of_a_message_has_its_metadata() {
    let mut whole = message("m", &json!([answer("42")]));
    whole["metadata"] = json!({ "agent_api": { "usage": { "input_tokens": 1 } } });
    let result = json!({ "jsonrpc": "2.0", "id": 1, "result": { "message": whole } });
    let driven = Session::new(&fixed(V1)).send_text("hi", [body(&result)]);
    let usage = driven.record.run().turns[0].usage.as_ref().map(|usage| usage.text().to_owned());
    assert_eq!(usage.as_deref(), Some(r#"{"input_tokens":1}"#));
}
