//! One story in each dialect: a card, a message, a tool, a text in pieces, the end.

use interlingua_core::loss::ContentKind;
use interlingua_core::model::Message;
use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::{Value, json};

use super::agent::{
    ALL, Session, V1, V1_REST, V03, artifact, end, fixed, message, request, request_text, status, status_with,
    submitted, task, text, texts, transcript,
};

fn story() -> Vec<Value> {
    let call = json!([{
        "data": { "id": "call_1", "name": "get_weather", "args": { "city": "Paris" } },
        "metadata": { "type": "function_call" }
    }]);
    let output = json!([{
        "data": { "id": "call_1", "name": "get_weather", "response": { "output": "18 C" } },
        "metadata": { "type": "function_response" }
    }]);
    let thought = json!([{ "text": "Let me think.", "metadata": { "thought": true } }]);
    let mut end = status("COMPLETED");
    end["statusUpdate"]["metadata"] = json!({ "agent_api": { "usage": { "input_tokens": 11, "output_tokens": 5 } } });
    vec![
        submitted(),
        status("WORKING"),
        status_with("WORKING", "m-1", &thought),
        status_with("WORKING", "m-2", &call),
        status_with("WORKING", "m-3", &output),
        text("a-1", "It is ", false),
        text("a-1", "18 C.", true),
        artifact("a-1", &json!([{ "text": "" }]), true, true),
        end,
    ]
}

#[test]
fn a_streamed_task_is_the_same_in_every_dialect() {
    let mut tales = Vec::new();
    for dialect in ALL {
        let mut session = Session::new(&json!({}));
        let driven = session.send_text("Paris?", [dialect.card(true), dialect.stream(1, &story())]);
        let name = format!("stream_{}_{}", dialect.version, dialect.binding);
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name, format!("{}state {}\n", transcript(&driven), session.state.text()));
        });
        tales.push(testkit::render(&driven.record));
    }
    assert!(tales.iter().all(|tale| *tale == tales[0]), "{tales:#?}");
}

#[test]
fn bytes_may_be_cut_anywhere() {
    for dialect in ALL {
        let frames = dialect.frames(1, &story());
        let read = |pieces: Vec<Vec<u8>>| {
            let mut session = Session::new(&fixed(dialect));
            testkit::render(&session.send_text("Paris?", [Answer::Stream(pieces)]).record)
        };
        let whole = read(vec![frames.clone().into_bytes()]);
        for size in [1, 2, 3, 7, 64, 333] {
            assert_eq!(read(frames.as_bytes().chunks(size).map(<[u8]>::to_vec).collect()), whole);
        }
    }
}

#[test]
fn a_message_is_the_whole_answer() {
    for dialect in ALL {
        let mut reply = message("m-9", &json!([{ "text": "18 C." }]));
        reply.as_object_mut().expect("an object").remove("taskId");
        let reply = json!({ "message": reply });

        let mut session = Session::new(&fixed(dialect));
        let streamed = session.send_text("Paris?", [dialect.stream(1, std::slice::from_ref(&reply))]);
        assert_eq!(texts(&streamed), [("message".to_owned(), "18 C.".to_owned())]);
        assert_eq!(session.state.text(), r#"{"context_id":"C"}"#);

        let mut options = fixed(dialect);
        options["streaming"] = json!(false);
        let sent = Session::new(&options).send_text("Paris?", [dialect.body(1, &reply)]);
        assert_eq!(testkit::render(&sent.record), testkit::render(&streamed.record));
    }
}

#[test]
fn a_task_is_polled_where_the_agent_does_not_stream() {
    for dialect in ALL {
        let part = |text: &str| json!([{ "artifactId": "a-1", "parts": [{ "text": text }] }]);
        let mut working = task("WORKING", &part("It is "));
        let thought = json!([{ "text": "Let me think.", "metadata": { "thought": true } }]);
        working["history"].as_array_mut().expect("a list").push(message("m-1", &thought));
        let mut done = task("COMPLETED", &part("It is 18 C."));
        done["history"] = working["history"].clone();
        done["history"].as_array_mut().expect("a list").push(message("m-2", &json!([{ "text": "looking" }])));

        let mut session = Session::new(&json!({}));
        let driven = session.send_text(
            "Paris?",
            [
                dialect.card(false),
                dialect.body(1, &json!({ "task": task("SUBMITTED", &json!([])) })),
                dialect.task(2, &working),
                dialect.task(3, &working),
                dialect.task(4, &done),
            ],
        );
        let name = format!("poll_{}_{}", dialect.version, dialect.binding);
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, transcript(&driven)) });
    }
}

#[test]
fn a_plain_body_is_read_where_a_stream_was_asked_for() {
    let done = task("COMPLETED", &json!([{ "artifactId": "a-1", "parts": [{ "text": "18 C." }] }]));
    for dialect in ALL {
        let driven = Session::new(&fixed(dialect)).send_text("Paris?", [dialect.body(1, &json!({ "task": done }))]);
        assert_eq!(texts(&driven), [("message".to_owned(), "18 C.".to_owned())]);
    }
}

#[test]
fn statuses_are_the_answer_where_there_is_no_other() {
    let items = [
        submitted(),
        status_with("WORKING", "m-1", &json!([{ "text": "It is " }])),
        status_with("WORKING", "m-2", &json!([{ "text": "18 C." }])),
        status("COMPLETED"),
    ];
    let read = |option: &str| {
        let mut options = fixed(V1);
        options["status_text"] = json!(option);
        let driven = Session::new(&options).send_text("Paris?", [V1.stream(1, &items)]);
        texts(&driven).into_iter().map(|(kind, text)| format!("{kind} {text}")).collect::<Vec<_>>()
    };
    assert_eq!(read("auto"), ["reasoning It is ", "reasoning 18 C.", "message It is 18 C."]);
    assert_eq!(read("reasoning"), ["reasoning It is ", "reasoning 18 C."]);
    assert_eq!(read("message"), ["message It is ", "message 18 C."]);
    assert_eq!(read("drop"), Vec::<String>::new());
}

#[test]
fn streamed_text_is_not_repeated_at_the_end() {
    let closing = |last: &str| status_with("COMPLETED", "m-9", &json!([{ "text": last }]));
    for (last, messages) in [("It is 18 C.", 1), ("And sunny.", 2)] {
        let items = [submitted(), text("a-1", "It is ", false), text("a-1", "18 C.", true), closing(last)];
        let driven = Session::new(&fixed(V1)).send_text("Paris?", [V1.stream(1, &items)]);
        assert_eq!(driven.record.run().messages.len(), messages, "{last}");
    }
    // Nor is the same status message, nor what comes after the end.
    let again = status_with("WORKING", "m-1", &json!([{ "text": "thinking" }]));
    let items = [submitted(), again.clone(), again, status("COMPLETED"), text("a-1", "late", false)];
    let driven = Session::new(&fixed(V03)).send_text("Paris?", [V03.stream(1, &items)]);
    assert_eq!(texts(&driven), [("reasoning".into(), "thinking".into()), ("message".into(), "thinking".into())]);
}

#[test]
fn a_task_is_canceled_by_the_id_that_was_learned() {
    for dialect in ALL {
        let session = Session::new(&fixed(dialect));
        let request = request(vec![interlingua_core::model::Message::user("Paris?")]);
        let mut turn = session.turn(&request, &[]);
        assert_eq!(turn.cancel(), None, "nothing is known yet");

        let mut recorder = testkit::Recorder::new(request.input.clone());
        let _ = turn.next(0).expect("a request");
        let data = dialect.result(1, &submitted()).to_string();
        let frame = interlingua_core::sse::Frame { data: data.as_bytes(), ..Default::default() };
        turn.on_frame(frame, &mut recorder).expect("a task");
        let cancel = turn.cancel().expect("the task is known");
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(format!("cancel_{}_{}", dialect.version, dialect.binding), request_text(&cancel));
        });

        let data = dialect.result(1, &status("COMPLETED")).to_string();
        let frame = interlingua_core::sse::Frame { data: data.as_bytes(), ..Default::default() };
        turn.on_frame(frame, &mut recorder).expect("the end");
        assert_eq!(turn.cancel(), None, "it has ended");
    }
}

#[test]
fn ends_are_told_apart() {
    let mut failed = status_with("FAILED", "m-9", &json!([{ "text": "RuntimeError: the model exploded" }]));
    failed["statusUpdate"]["metadata"] = json!({ "agent_api": { "error": { "code": "MODEL_TIMEOUT" } } });
    let mut cut = status("COMPLETED");
    cut["statusUpdate"]["metadata"] = json!({ "agent_api": { "incomplete": true } });
    for (last, end) in [
        (status("COMPLETED"), "completed"),
        (cut, "incomplete"),
        (status("CANCELED"), "canceled"),
        (status("FAILED"), "failed AGENT_ERROR: the agent failed"),
        (status_with("FAILED", "m-9", &json!([{ "text": "no luck" }])), "failed A2A_TASK_FAILED: no luck"),
        (failed, "failed MODEL_TIMEOUT: the model exploded"),
        (status("REJECTED"), "rejected AGENT_ERROR: the agent rejected the request"),
        (status_with("REJECTED", "m-9", &json!([{ "text": "not for you" }])), "rejected AGENT_ERROR: not for you"),
    ] {
        let driven = Session::new(&fixed(V1_REST)).send_text("Paris?", [V1_REST.stream(1, &[submitted(), last])]);
        assert_eq!(super::agent::end(&driven), end);
    }
}

#[test]
fn an_item_of_a_version_to_come_is_left_out_and_reported() {
    for dialect in ALL {
        let unknown = json!({ "weatherUpdate": { "sky": "blue" } });
        let is_rpc = dialect.binding == "JSONRPC";
        let unknown = if is_rpc { json!({ "jsonrpc": "2.0", "id": 1, "result": unknown }) } else { unknown };
        let mut frames = dialect.frames(1, &[submitted()]);
        frames.push_str(&format!("data: {unknown}\n\n"));
        frames.push_str(&dialect.frames(1, &[text("a-1", "18 C.", false), status("COMPLETED")]));
        let session = Session::new(&fixed(dialect));
        let mut turn = session.turn(&request(vec![Message::user("Paris?")]), &[]);
        let driven = testkit::drive(turn.as_mut(), [Answer::stream(&frames)]);
        assert_eq!((end(&driven).as_str(), texts(&driven)), ("completed", vec![("message".into(), "18 C.".into())]));
        let kinds: Vec<ContentKind> = turn.losses().iter().map(|loss| loss.kind).collect();
        assert_eq!(kinds, [ContentKind::ProtocolEvent], "{dialect:?}");

        // As the first item it is another protocol.
        let driven =
            Session::new(&fixed(dialect)).send_text("Paris?", [Answer::stream(&format!("data: {unknown}\n\n"))]);
        assert!(end(&driven).starts_with("failed UPSTREAM_PROTOCOL_ERROR"), "{}", end(&driven));
    }
}

#[test]
fn a_stream_under_the_content_type_of_a_body_is_read() {
    for dialect in ALL {
        let frames =
            dialect.frames(1, &[submitted(), text("a-1", "18 ", false), text("a-1", "C.", true), status("COMPLETED")]);
        let driven = Session::new(&fixed(dialect)).send_text("Paris?", [Answer::body(&format!("\u{feff}{frames}"))]);
        assert_eq!((end(&driven).as_str(), texts(&driven)), ("completed", vec![("message".into(), "18 C.".into())]));
    }
}
