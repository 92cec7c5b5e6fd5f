//! Streams that break, and tasks that are taken up again.

use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::json;

use super::agent::{
    ALL, Session, V1, V1_REST, V03, artifact, body, broken, end, fixed, message, refusal, request, status, submitted,
    task, text, texts, transcript,
};

#[test]
fn a_cut_stream_is_taken_up_and_nothing_is_repeated() {
    for dialect in ALL {
        let known =
            task("WORKING", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is " }, { "text": "18" }] }]));
        let state = if dialect.version == "0.3" { "COMPLETED" } else { "WORKING" };
        let whole = task(state, &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is 18 C." }] }]));
        let mut session = Session::new(&json!({}));
        let driven = session.send_text(
            "Paris?",
            [
                dialect.card(true),
                dialect.cut(1, &[submitted(), text("a-1", "It ", false), text("a-1", "is ", true)]),
                // A task of 0.3 is never subscribed to: its server would store each piece twice.
                if dialect.version == "0.3" {
                    dialect.task(2, &known)
                } else {
                    dialect.cut(2, &[json!({ "task": known }), text("a-1", " C", true)])
                },
                if dialect.version == "0.3" {
                    dialect.task(3, &whole)
                } else {
                    dialect.stream(3, &[json!({ "task": whole }), status("COMPLETED")])
                },
                // What a task says at its end is right: a piece may have been in the snapshot and in the stream.
                dialect.task(
                    4,
                    &task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is 18 C." }] }])),
                ),
            ],
        );
        let name = format!("resume_{}_{}", dialect.version, dialect.binding);
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, transcript(&driven)) });
        assert_eq!(texts(&driven), [("message".to_owned(), "It is 18 C.".to_owned())]);
    }
}

#[test]
fn a_stream_that_ends_early_is_taken_up_too() {
    let driven = Session::new(&fixed(V1)).send_text(
        "Paris?",
        [
            V1.stream(1, &[submitted(), status("WORKING")]),
            V1.stream(2, &[json!({ "task": task("WORKING", &json!([])) })]),
            V1.stream(3, &[]),
            V1.task(4, &task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "18 C." }] }]))),
        ],
    );
    assert_eq!(texts(&driven), [("message".to_owned(), "18 C.".to_owned())]);
    assert_eq!(driven.requests.len(), 4, "twice by subscribing, then by asking for the task");
}

#[test]
fn where_a_task_cannot_be_subscribed_to_it_is_polled() {
    let done = task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is 18 C." }] }]));
    let begun = [submitted(), text("a-1", "It is ", false)];
    for refused in [V1.error(2, -32004, "not here"), V1.error(2, -32601, "no such method")] {
        let driven = Session::new(&fixed(V1)).send_text("Paris?", [V1.cut(1, &begun), refused, V1.task(3, &done)]);
        assert_eq!(texts(&driven), [("message".to_owned(), "It is 18 C.".to_owned())]);
    }

    // Over REST some servers subscribe by GET only.
    let session = Session::new(&fixed(V1_REST));
    let turn = session.turn(&request(Vec::new()), &[]);
    let refused = refusal(turn.as_ref(), 405, "");
    let mut session = Session::new(&fixed(V1_REST));
    let driven =
        session.send_text("Paris?", [V1_REST.cut(1, &begun), refused, V1_REST.stream(3, &[json!({ "task": done })])]);
    let methods: Vec<&str> = driven.requests.iter().map(|request| request.method).collect();
    assert_eq!((methods.as_slice(), end(&driven).as_str()), (&["POST", "POST", "GET"][..], "completed"));
}

#[test]
fn an_error_within_a_stream_does_not_end_the_task() {
    let slow = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "subscriber too slow" } });
    let frames = format!("{}data: {slow}\n\n", V1.frames(1, &[submitted()]));
    let driven = Session::new(&fixed(V1)).send_text(
        "Paris?",
        [Answer::stream(&frames), V1.stream(2, &[json!({ "task": task("COMPLETED", &json!([])) })])],
    );
    assert_eq!((end(&driven).as_str(), driven.requests.len()), ("completed", 2));

    let slow = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"shutting down"}}"#;
    let frames = format!("{}event: error\ndata: {slow}\n\n", V1_REST.frames(1, &[submitted()]));
    let driven = Session::new(&fixed(V1_REST)).send_text(
        "Paris?",
        [Answer::stream(&frames), V1_REST.stream(2, &[json!({ "task": task("COMPLETED", &json!([])) })])],
    );
    assert_eq!((end(&driven).as_str(), driven.requests.len()), ("completed", 2));
}

#[test]
fn a_task_that_stays_lost_is_a_broken_answer() {
    let begun = || V1.cut(1, &[submitted(), text("a-1", "It is ", false)]);
    let mut answers = vec![begun()];
    answers.extend((0..5).map(|_| broken()));
    let driven = Session::new(&fixed(V1)).send_text("Paris?", answers);
    assert_eq!(
        end(&driven),
        "failed UPSTREAM_TRUNCATED: the agent broke off its answer and could not be asked for the rest"
    );
    let paths: Vec<String> = driven
        .requests
        .iter()
        .map(|request| serde_json::from_slice::<serde_json::Value>(&request.body).expect("JSON")["method"].to_string())
        .collect();
    let (subscribe, get) = ("\"SubscribeToTask\"", "\"GetTask\"");
    assert_eq!(paths[1..], [subscribe, subscribe, get, get, get]);
    assert_eq!(driven.waited.as_millis(), 500 + 750 + 1125 + 1687 + 2531);

    let driven = Session::new(&fixed(V1))
        .send_text("Paris?", [begun(), V1.error(2, -32001, "Task not found"), V1.error(3, -32001, "Task not found")]);
    assert!(end(&driven).starts_with("failed UPSTREAM_TRUNCATED"));
}

#[test]
fn polling_survives_a_failure_and_slows_down() {
    let mut options = fixed(V03);
    options["streaming"] = json!(false);
    let mut answers = vec![V03.body(1, &submitted()), broken()];
    answers.extend((3..12).map(|call| V03.task(call, &task("WORKING", &json!([])))));
    answers.push(V03.task(12, &task("COMPLETED", &json!([]))));
    let driven = Session::new(&options).send_text("Paris?", answers);
    assert_eq!((end(&driven).as_str(), driven.requests.len()), ("completed", 12));
    assert!(driven.waited.as_secs() < 12 * 5, "{:?}", driven.waited);
}

#[test]
fn without_a_task_there_is_nothing_to_take_up() {
    let driven = Session::new(&fixed(V1)).send_text("Paris?", [V1.stream(1, &[])]);
    assert_eq!(end(&driven), "failed UPSTREAM_TRUNCATED: the agent broke off its answer");
    let driven = Session::new(&fixed(V1)).send_text("Paris?", [broken()]);
    assert_eq!(end(&driven), "failed UPSTREAM_UNREACHABLE: the agent could not be reached");
    let driven = Session::new(&fixed(V1)).send_text(
        "Paris?",
        [body(&json!({ "jsonrpc": "2.0", "id": 9, "result": { "task": task("COMPLETED", &json!([])) } }))],
    );
    assert!(end(&driven).starts_with("failed UPSTREAM_PROTOCOL_ERROR"), "another call's answer");
}

#[test]
fn a_task_of_0_3_without_progress_after_a_cut_fails() {
    let begun = V03.cut(1, &[submitted(), text("a-1", "It is ", false)]);
    let same = task("WORKING", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is " }] }]));
    let answers = std::iter::once(begun).chain((2..40).map(|call| V03.task(call, &same)));
    let driven = Session::new(&fixed(V03)).send_text("Paris?", answers);
    assert_eq!(end(&driven), "failed UPSTREAM_TRUNCATED: the agent broke off its answer, and its task does not go on");
    // The polls continue as long as the task makes progress.
    let parts: Vec<_> = (0..50).map(|number| json!({ "text": format!("{number} ") })).collect();
    let grown = |count: usize, state: &str| task(state, &json!([{ "artifactId": "a-1", "parts": parts[..count] }]));
    let begun = V03.cut(1, &[submitted(), text("a-1", "0 ", false)]);
    let answers = (2..50).map(|call| V03.task(call, &grown(usize::try_from(call).expect("small"), "WORKING")));
    let answers = std::iter::once(begun).chain(answers).chain([V03.task(50, &grown(50, "COMPLETED"))]);
    let driven = Session::new(&fixed(V03)).send_text("Paris?", answers);
    let whole: String = (0..50).map(|number| format!("{number} ")).collect();
    assert_eq!((end(&driven).as_str(), texts(&driven)), ("completed", vec![("message".to_owned(), whole)]));
}

/// @a2a-js/sdk 1.3.0 lists the message of the last status in the history as well.
#[test]
fn the_message_of_the_last_status_is_read_once() {
    let question = message("ask", &json!([{ "text": "Which?" }]));
    for (state, expected) in [("INPUT_REQUIRED", 1), ("COMPLETED", 0)] {
        let mut asking = task(state, &json!([]));
        asking["status"]["message"] = question.clone();
        asking["history"].as_array_mut().expect("a list").push(question.clone());
        let begun = V1.cut(1, &[submitted()]);
        let polled = [begun.clone(), V1.error(2, -32004, "not here"), V1.task(3, &asking)];
        let subscribed = [begun, V1.stream(2, &[json!({ "task": asking })]), V1.stream(3, &[])];
        for answers in [polled, subscribed] {
            let driven = Session::new(&fixed(V1)).send_text("Paris?", answers);
            let run = driven.record.run();
            assert_eq!(run.pending().len(), expected, "{state}");
            let kinds: Vec<&str> = run.messages.iter().map(|message| message.kind.as_str()).collect();
            let kind = if expected == 1 { "mcp_approval_request" } else { "message" };
            assert_eq!(kinds, [kind], "{state}");
        }
    }
}

/// a2a-sdk 1.3.0 sends a piece twice that arrives during a subscription: in the snapshot and in the stream.
#[test]
fn a_piece_in_the_snapshot_and_in_the_stream_is_emitted_once() {
    let parts = |count: usize| -> Vec<serde_json::Value> {
        (0..count).map(|number| json!({ "text": format!("{number} ") })).collect()
    };
    let known = |count: usize, state: &str| task(state, &json!([{ "artifactId": "a-1", "parts": parts(count) }]));
    let piece = |number: usize| text("a-1", &format!("{number} "), number > 0);
    for twice in [&[3][..], &[2, 3], &[]] {
        let mut rest = vec![json!({ "task": known(4, "WORKING") })];
        rest.extend(twice.iter().map(|number| piece(*number)));
        rest.extend([piece(4), artifact("a-1", &json!([{ "text": "5 " }]), true, true), status("COMPLETED")]);
        let driven = Session::new(&fixed(V1)).send_text(
            "Paris?",
            [V1.cut(1, &[submitted(), piece(0), piece(1)]), V1.stream(2, &rest), V1.task(3, &known(6, "COMPLETED"))],
        );
        let whole = "0 1 2 3 4 5 ".to_owned();
        assert_eq!(
            (end(&driven).as_str(), texts(&driven)),
            ("completed", vec![("message".to_owned(), whole)]),
            "{twice:?}"
        );
        // One repetition is seen at once; what else there is, is corrected at the end.
        let is_corrected = testkit::render(&driven.record).contains("0.0 = ");
        assert_eq!(is_corrected, twice.len() > 1, "{}", testkit::render(&driven.record));
    }
}

#[test]
fn an_output_in_the_status_of_a_snapshot_does_not_interrupt_the_text_beside_it() {
    let mut known = task("WORKING", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It is " }] }]));
    // An output whose call is unknown belongs to no one, so the status has both.
    let part = |data: serde_json::Value, kind: &str| json!({ "data": data, "metadata": { "adk_type": kind } });
    let call = part(json!({ "id": "c-1", "name": "look", "args": {} }), "function_call");
    let output = part(json!({ "id": "c-1", "response": { "output": "18" } }), "function_response");
    known["status"]["message"] = message("s-1", &json!([call, output]));
    let driven = Session::new(&fixed(V1)).send_text(
        "Paris?",
        [V1.stream(1, &[json!({ "task": known }), text("a-1", "18 C.", true), status("COMPLETED")])],
    );
    let kinds: Vec<&str> = driven.record.run().messages.iter().map(|message| message.kind.as_str()).collect();
    assert_eq!(kinds, ["plugin_call", "plugin_call_output", "message"]);
    assert_eq!(driven.record.run().messages[2].text(), "It is 18 C.");
}
