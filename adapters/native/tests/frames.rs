//! The frames of runs: a golden stream for each recorded transcript, the strict-writer rules for all of them and for
//! random runs, and the ends that no transcript has.

mod support;

use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, Message, MessageEnd, MessageStart, Record, Run, RunError};
use interlingua_core::{End, Extra, Fault, FaultKind, Json, Out};
use interlingua_core_testkit::{self as testkit, NOW, RUN};
use proptest::prelude::*;
use serde_json::Value;
use support::{Native, check_stream, collected, follow, frames, process, process_with};

/// Every transcript of the real runtime, by name.
macro_rules! transcripts {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../tests/transcripts/agentscope/", $name, ".sse")))),+]
    };
}

const TRANSCRIPTS: &[(&str, &[u8])] = transcripts![
    "agentscope-approval",
    "agentscope-audio",
    "agentscope-builder-data",
    "agentscope-builder-text",
    "agentscope-builder-whole",
    "agentscope-busy",
    "agentscope-captioned",
    "agentscope-client-tool",
    "agentscope-component",
    "agentscope-data",
    "agentscope-empty",
    "agentscope-error",
    "agentscope-file",
    "agentscope-heartbeat",
    "agentscope-image",
    "agentscope-image64",
    "agentscope-late-error",
    "agentscope-long",
    "agentscope-mcp",
    "agentscope-mcp-list",
    "agentscope-metadata",
    "agentscope-open",
    "agentscope-parallel",
    "agentscope-partial-failure",
    "agentscope-picture",
    "agentscope-plain",
    "agentscope-quota",
    "agentscope-reasoning",
    "agentscope-refusal",
    "agentscope-refused-content-string",
    "agentscope-refused-n",
    "agentscope-refused-null-content",
    "agentscope-refused-role",
    "agentscope-stopped",
    "agentscope-text",
    "agentscope-think",
    "agentscope-tool",
    "agentscope-unicode",
    "agentscope-unknown-type",
    "agentscope-usage",
    "agentscope-video",
    "agno-text",
    "agno-tool",
    "builder-without-runner",
    "langgraph-text",
    "langgraph-tool",
    "langgraph-tool-chunks",
    "text-late-error",
    "text-text",
];

#[test]
fn every_recorded_stream_is_encoded_well_formed() {
    for (name, bytes) in TRANSCRIPTS {
        let record = testkit::record([*bytes]);
        let text = process(&record);
        check_stream(&frames(&text)).unwrap_or_else(|broken| panic!("{name}: {broken}\n{text}"));
        insta::assert_snapshot!(*name, text);
    }
}

#[test]
fn frames_round_trip() {
    for (name, bytes) in TRANSCRIPTS {
        let written = testkit::record([*bytes]);
        let read_back = testkit::record([process(&written).as_bytes()]);
        let output = |record: &Record| serde_json::to_string(&collected(record)["output"]).expect("JSON");

        assert_eq!(output(&read_back), output(&written), "{name}");
        assert_eq!(read_back.run().end, written.run().end, "{name}");
        assert_eq!(read_back.run().error(), written.run().error(), "{name}");
        assert_eq!(read_back.run().usage(), written.run().usage(), "{name}");
    }
}

/// This transcript needs no repair: a run recorded from the runtime is encoded as the same bytes.
#[test]
fn a_plain_text_is_written_as_the_runtime_writes_it() {
    let bytes = include_str!("../../../tests/transcripts/agentscope/agentscope-text.sse");
    let expected = frames(bytes);
    let actual = frames(&process(&testkit::record([bytes.as_bytes()])));
    assert_eq!(actual.len(), expected.len());

    for (actual, expected) in actual.into_iter().zip(expected) {
        let without_run_fields = |mut frame: Value| {
            if frame["object"] == "response" {
                for name in ["id", "created_at", "completed_at", "session_id"] {
                    frame[name] = Value::Null;
                }
            }
            frame
        };
        assert_eq!(without_run_fields(actual), without_run_fields(expected));
    }
}

#[test]
fn the_frames_do_not_depend_on_how_upstream_bytes_are_split() {
    for (name, bytes) in TRANSCRIPTS {
        let expected = process(&testkit::record([*bytes]));
        assert_eq!(process(&testkit::record(bytes.chunks(1))), expected, "{name}");
        assert_eq!(process(&testkit::record(bytes.chunks(97))), expected, "{name}");
    }
}

#[test]
fn a_stream_resumes_after_any_frame() {
    for name in ["agentscope-reasoning", "agentscope-tool", "agentscope-late-error"] {
        let (_, bytes) = TRANSCRIPTS.iter().find(|(known, _)| *known == name).expect("a known transcript");
        let record = testkit::record([*bytes]);

        let all = follow(&record, None);
        let plain: String =
            all.lines().filter(|line| !line.starts_with("id: ")).map(|line| format!("{line}\n")).collect();
        assert_eq!(plain, process(&record), "the same frames, plus ids");

        let count = frames(&all).len();
        for after in 0..count {
            let rest = follow(&record, Some(after as u64));
            assert!(all.ends_with(&rest), "{name} after {after}");
            assert_eq!(frames(&rest).len(), count - after - 1);
            assert!(rest.is_empty() || rest.starts_with(&format!("id: {}\ndata: ", after + 1)));
        }
    }
}

#[test]
fn the_collected_answer_is_the_last_frame() {
    for (name, bytes) in TRANSCRIPTS {
        let record = testkit::record([*bytes]);
        let last = frames(&process(&record)).pop().expect("a stream has frames");
        assert_eq!(collected(&record), last, "{name}");
    }
}

fn text_message(record: &mut Record, id: &str, text: &str) {
    let message = record.start_message(MessageStart::new(id, MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, text);
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
}

#[test]
fn a_run_of_several_turns_is_one_response() {
    let mut record = testkit::started();
    text_message(&mut record, "m1", "which city?");
    record.finish_turn(End::Completed, None);
    record.start_turn(vec![interlingua_core::model::Message::user("Paris")]);
    text_message(&mut record, "m2", "18 C");
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);

    let frames = frames(&process(&record));
    check_stream(&frames).expect("one well-formed stream");
    let output = frames.last().expect("frames")["output"].as_array().expect("a list").len();
    assert_eq!(output, 2);
}

#[test]
fn a_run_that_never_started_still_ends() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.close(End::Canceled, None);

    let frames = frames(&process(&record));
    let statuses: Vec<_> = frames.iter().map(|frame| frame["status"].as_str().expect("a string")).collect();
    assert_eq!(statuses, ["created", "canceled"]);
}

#[test]
fn a_text_that_the_agent_replaces_is_sent_again() {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);

    record.push(message, content, "Helo");
    record.replace(message, content, "Hello");
    record.push(message, content, " there");
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);

    insta::assert_snapshot!(process(&record));
}

#[test]
fn an_agents_call_is_announced_empty_and_sent_when_it_is_complete() {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("m", MessageType::McpCall, Role::Assistant));
    let head = CallHead { call_id: "c".into(), name: "f".into(), server_label: Some("srv".into()) };
    let content = record.start_content(message, ContentType::Data, Some(head));

    for piece in ["{\"a\"", ":", "\"b\\n\"}"] {
        record.push(message, content, piece);
    }
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);

    insta::assert_snapshot!(process(&record));
}

#[test]
fn unknown_fields_and_types_are_passed_on() {
    let bytes = concat!(
        r#"data: {"object":"response","status":"created","id":"r","trace":"t-1"}"#,
        "\n\n",
        r#"data: {"object":"message","status":"in_progress","id":"m","type":"poem","role":"assistant","metadata":{"k": [1, 2.50]}}"#,
        "\n\n",
        r#"data: {"object":"content","status":"completed","type":"text","index":0,"msg_id":"m","text":"la","lang":"fr"}"#,
        "\n\n",
        r#"data: {"object":"content","status":"completed","type":"hologram","index":1,"msg_id":"m","beam":{"x":1}}"#,
        "\n\n",
        r#"data: {"object":"message","status":"completed","id":"m","type":"poem","role":"assistant","rating":5}"#,
        "\n\n",
        r#"data: {"object":"response","status":"completed","id":"r","region":{"name":"eu"}}"#,
        "\n\n",
    );

    let text = process(&testkit::record([bytes.as_bytes()]));
    check_stream(&frames(&text)).expect("well formed");
    insta::assert_snapshot!(text);
}

#[test]
fn other_ends_keep_their_status_or_fail_as_configured() {
    let mut lines = String::new();
    for end in [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled] {
        for error in [None, Some(RunError { code: "AGENT_CODE".into(), message: "its words".into() })] {
            let mut record = testkit::started();
            record.finish_turn(end, error.clone());
            record.finish_run(end);

            for options in ["{}", r#"{"terminal":"failed"}"#] {
                let last = frames(&process_with(&record, options)).pop().expect("frames");
                let code = error.as_ref().map_or("nothing", |error| error.code.as_str());
                lines += &format!("{} {code} {options}: {} {}\n", end.as_str(), last["status"], last["error"]);
            }
        }
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn an_interrupted_stream_ends_with_a_failed_response() {
    let record = {
        let mut record = testkit::started();
        let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
        let content = record.start_content(message, ContentType::Text, None);
        record.push(message, content, "Hel");
        record
    };

    let fault = Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down");
    let native = Native::new("{}");
    let (mut exchange, _) = native.open("POST", "/process", support::HELLO, "");
    let mut out = Out::new();
    for step in record.steps(0) {
        exchange.encode(step, &mut out);
    }
    exchange.interrupt(&fault, &mut out);

    let frames = frames(&support::text(out));
    let last = frames.last().expect("frames");
    assert_eq!((last["sequence_number"].as_u64(), last["status"].as_str()), (Some(4), Some("failed")));
    assert_eq!(last["error"]["code"], "GATEWAY_SHUTTING_DOWN");

    // A client that follows by number reconnects: a frame here would take the number of another one.
    let (mut follower, _) = native.open("GET", "/runs/{id}/events", b"", "");
    let mut out = Out::new();
    follower.interrupt(&fault, &mut out);
    assert!(out.body.is_empty());
}

/// An action of a random agent. The numbers select an open message.
#[derive(Clone, Debug)]
enum Action {
    /// Starts a message, or a call if true.
    StartMessage(bool),
    Append(usize, String),
    Replace(usize, String),
    NextContent(usize),
    EndMessage(usize),
    NextTurn,
}

fn actions() -> impl Strategy<Value = (Vec<Action>, u8)> {
    let action = prop_oneof![
        any::<bool>().prop_map(Action::StartMessage),
        (any::<usize>(), "[a-z\"\\\\\n\u{1}é🙂]{0,6}").prop_map(|(open, text)| Action::Append(open, text)),
        (any::<usize>(), "[a-z]{0,3}").prop_map(|(open, text)| Action::Replace(open, text)),
        any::<usize>().prop_map(Action::NextContent),
        any::<usize>().prop_map(Action::EndMessage),
        Just(Action::NextTurn),
    ];
    (prop::collection::vec(action, 0..60), 0_u8..5)
}

/// Performs the actions, and encodes every step with `live` immediately.
fn perform(actions: &[Action], end: u8, live: &mut support::ActiveRun) -> Record {
    let mut record = testkit::started();
    let mut next = 0;
    let mut open: Vec<(u32, Option<u32>)> = Vec::new();

    for action in actions {
        let select = |number: &usize, open: &[(u32, Option<u32>)]| (!open.is_empty()).then(|| number % open.len());
        match action {
            Action::StartMessage(call) => {
                let kind = if *call { MessageType::PluginCall } else { MessageType::Message };
                let mut announced = MessageStart::new("", kind, Role::Assistant);
                announced.metadata = call.then(|| Json::from_serialize(&[1]));
                let message = record.start_message(announced);
                open.push((message, None));
            }
            Action::Append(at, text) | Action::Replace(at, text) => {
                let Some(at) = select(at, &open) else { continue };
                let (message, content) = open[at];
                let content = content.unwrap_or_else(|| content_of(&mut record, message));
                open[at].1 = Some(content);
                if matches!(action, Action::Append(..)) {
                    record.push(message, content, text);
                } else {
                    record.replace(message, content, text);
                }
            }
            Action::NextContent(at) => {
                let Some(at) = select(at, &open) else { continue };
                let (message, content) = open[at];
                if let Some(content) = content {
                    record.finish_content(message, content, None, Extra::new());
                    open[at].1 = Some(content_of(&mut record, message));
                }
            }
            Action::EndMessage(at) => {
                let Some(at) = select(at, &open) else { continue };
                let (message, content) = open.remove(at);
                if let Some(content) = content {
                    record.finish_content(message, content, None, Extra::new());
                }
                let mut end = MessageEnd::new(End::Completed);
                end.kind = (at == 1).then_some(MessageType::Reasoning);
                end.metadata = (at == 2).then(|| Json::from_serialize(&[2]));
                record.finish_message(message, end);
            }
            Action::NextTurn => {
                record.close_messages(End::Incomplete);
                open.clear();
                record.finish_turn(End::Completed, None);
                record.start_turn(Vec::new());
            }
        }
        live.catch_up(&record, &mut next);
    }

    let end = [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled][usize::from(end)];
    record.close(end, None);
    live.catch_up(&record, &mut next);
    record
}

fn content_of(record: &mut Record, message: u32) -> u32 {
    let started: &Message = &record.run().messages[message as usize];
    let call =
        started.announced.is_call().then(|| CallHead { call_id: "c".into(), name: "f".into(), server_label: None });
    let kind = if call.is_some() { ContentType::Data } else { ContentType::Text };
    record.start_content(message, kind, call)
}

proptest! {
    #[test]
    fn any_run_is_written_well_formed_and_the_same_each_time((actions, end) in actions()) {
        let mut live = support::ActiveRun::new();
        let record = perform(&actions, end, &mut live);
        let replayed = process(&record);
        prop_assert_eq!(live.text(), &replayed, "replay equals live");

        let frames = frames(&replayed);
        prop_assert!(check_stream(&frames).is_ok(), "{:?}\n{}", check_stream(&frames), replayed);
        prop_assert_eq!(&collected(&record), frames.last().expect("frames"));
    }
}
