//! What a run becomes on the wire: a golden stream for each real transcript, the strict-writer rules as laws over all
//! of them and over runs made at random, and the few ends that no transcript shows.

mod support;

use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, Message, MessageEnd, MessageStart, Record, Run, RunError};
use interlingua_core::testkit::{self, NOW, RUN};
use interlingua_core::{End, Extra, Fault, FaultKind, Json, Out};
use proptest::prelude::*;
use serde_json::Value;
use support::{Native, follow, frames, lawful, process, process_with, whole};

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
fn every_real_stream_becomes_a_well_formed_one() {
    for (name, bytes) in TRANSCRIPTS {
        let record = testkit::record([*bytes]);
        let text = process(&record);
        lawful(&frames(&text)).unwrap_or_else(|broken| panic!("{name}: {broken}\n{text}"));
        insta::assert_snapshot!(*name, text);
    }
}

#[test]
fn what_is_told_is_heard_again_as_it_was() {
    for (name, bytes) in TRANSCRIPTS {
        let told = testkit::record([*bytes]);
        let heard = testkit::record([process(&told).as_bytes()]);
        let output = |record: &Record| serde_json::to_string(&whole(record)["output"]).expect("JSON");
        assert_eq!(output(&heard), output(&told), "{name}");
        assert_eq!(heard.run().end, told.run().end, "{name}");
        assert_eq!(heard.run().error(), told.run().error(), "{name}");
        assert_eq!(heard.run().usage(), told.run().usage(), "{name}");
    }
}

/// The one passage that needs no repair: a run recorded as the runtime told it is told in the same bytes.
#[test]
fn a_plain_text_is_told_as_the_runtime_tells_it() {
    let bytes = include_str!("../../../tests/transcripts/agentscope/agentscope-text.sse");
    let theirs = frames(bytes);
    let ours = frames(&process(&testkit::record([bytes.as_bytes()])));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.into_iter().zip(theirs) {
        let neutral = |mut frame: Value| {
            if frame["object"] == "response" {
                for name in ["id", "created_at", "completed_at", "session_id"] {
                    frame[name] = Value::Null;
                }
            }
            frame
        };
        assert_eq!(neutral(ours), neutral(theirs));
    }
}

#[test]
fn however_the_upstreams_bytes_are_cut_the_frames_are_the_same() {
    for (name, bytes) in TRANSCRIPTS {
        let whole = process(&testkit::record([*bytes]));
        assert_eq!(process(&testkit::record(bytes.chunks(1))), whole, "{name}");
        assert_eq!(process(&testkit::record(bytes.chunks(97))), whole, "{name}");
    }
}

#[test]
fn a_stream_is_resumed_after_any_frame() {
    for name in ["agentscope-reasoning", "agentscope-tool", "agentscope-late-error"] {
        let (_, bytes) = TRANSCRIPTS.iter().find(|(known, _)| *known == name).expect("it is there");
        let record = testkit::record([*bytes]);
        let all = follow(&record, None);
        let plain: String =
            all.lines().filter(|line| !line.starts_with("id: ")).map(|line| format!("{line}\n")).collect();
        assert_eq!(plain, process(&record), "the same frames, with ids besides");
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
fn the_whole_answer_is_the_last_frame() {
    for (name, bytes) in TRANSCRIPTS {
        let record = testkit::record([*bytes]);
        let last = frames(&process(&record)).pop().expect("a stream has frames");
        assert_eq!(whole(&record), last, "{name}");
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
    let mut record = testkit::begun();
    text_message(&mut record, "m1", "which city?");
    record.finish_turn(End::Completed, None);
    record.start_turn(vec![interlingua_core::model::Message::user("Paris")]);
    text_message(&mut record, "m2", "18 C");
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    let frames = frames(&process(&record));
    lawful(&frames).expect("one well-formed stream");
    let output = frames.last().expect("frames")["output"].as_array().expect("a list").len();
    assert_eq!(output, 2);
}

#[test]
fn a_run_that_never_begins_ends_all_the_same() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.close(End::Canceled, None);
    let frames = frames(&process(&record));
    let statuses: Vec<_> = frames.iter().map(|frame| frame["status"].as_str().expect("a word")).collect();
    assert_eq!(statuses, ["created", "canceled"]);
}

#[test]
fn a_text_that_was_told_wrongly_is_told_anew() {
    let mut record = testkit::begun();
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
fn an_agents_call_is_announced_empty_and_told_when_it_is_whole() {
    let mut record = testkit::begun();
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
fn unknown_fields_and_types_are_passed_on_where_they_stood() {
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
    lawful(&frames(&text)).expect("well formed");
    insta::assert_snapshot!(text);
}

#[test]
fn other_ends_are_precise_or_failed_as_the_operator_has_it() {
    let mut lines = String::new();
    for end in [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled] {
        for error in [None, Some(RunError { code: "AGENT_CODE".into(), message: "its words".into() })] {
            let mut record = testkit::begun();
            record.finish_turn(end, error.clone());
            record.finish_run(end);
            for options in ["{}", r#"{"terminal":"failed"}"#] {
                let last = frames(&process_with(&record, options)).pop().expect("frames");
                let told = error.as_ref().map_or("nothing", |error| error.code.as_str());
                lines += &format!("{} {told} {options}: {} {}\n", end.as_str(), last["status"], last["error"]);
            }
        }
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn a_stream_that_is_interrupted_says_so_and_ends() {
    let record = {
        let mut record = testkit::begun();
        let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
        let content = record.start_content(message, ContentType::Text, None);
        record.push(message, content, "Hel");
        record
    };
    let fault = Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down");
    let native = Native::new("{}");
    let (mut attached, _) = native.open("POST", "/process", support::HELLO, "");
    let mut out = Out::new();
    for step in record.steps(0) {
        attached.encode(step, &mut out);
    }
    attached.interrupt(&fault, &mut out);
    let frames = frames(&support::text(out));
    let last = frames.last().expect("frames");
    assert_eq!((last["sequence_number"].as_u64(), last["status"].as_str()), (Some(4), Some("failed")));
    assert_eq!(last["error"]["code"], "GATEWAY_SHUTTING_DOWN");

    // Who follows by number comes back; a frame here would take the number of another.
    let (mut followed, _) = native.open("GET", "/runs/{id}/events", b"", "");
    let mut out = Out::new();
    followed.interrupt(&fault, &mut out);
    assert!(out.body.is_empty());
}

/// What a made-up agent does next.
#[derive(Clone, Debug)]
enum Act {
    Begin(bool),
    Say(usize, String),
    Replace(usize, String),
    Next(usize),
    End(usize),
    Turn,
}

fn acts() -> impl Strategy<Value = (Vec<Act>, u8)> {
    let act = prop_oneof![
        any::<bool>().prop_map(Act::Begin),
        (any::<usize>(), "[a-z\"\\\\\n\u{1}é🙂]{0,6}").prop_map(|(place, text)| Act::Say(place, text)),
        (any::<usize>(), "[a-z]{0,3}").prop_map(|(place, text)| Act::Replace(place, text)),
        any::<usize>().prop_map(Act::Next),
        any::<usize>().prop_map(Act::End),
        Just(Act::Turn),
    ];
    (prop::collection::vec(act, 0..60), 0_u8..5)
}

/// Lets the agent act, and shows every step to `live` as soon as it is there.
fn acted(acts: &[Act], end: u8, live: &mut support::ActiveRun) -> Record {
    let mut record = testkit::begun();
    let mut seen = 0;
    let mut open: Vec<(u32, Option<u32>)> = Vec::new();
    for act in acts {
        let place = |place: &usize, open: &[(u32, Option<u32>)]| (!open.is_empty()).then(|| place % open.len());
        match act {
            Act::Begin(call) => {
                let kind = if *call { MessageType::PluginCall } else { MessageType::Message };
                let mut announced = MessageStart::new("", kind, Role::Assistant);
                announced.metadata = call.then(|| Json::from_serialize(&[1]));
                let message = record.start_message(announced);
                open.push((message, None));
            }
            Act::Say(at, text) | Act::Replace(at, text) => {
                let Some(at) = place(at, &open) else { continue };
                let (message, content) = open[at];
                let content = content.unwrap_or_else(|| begin_content(&mut record, message));
                open[at].1 = Some(content);
                if matches!(act, Act::Say(..)) {
                    record.push(message, content, text);
                } else {
                    record.replace(message, content, text);
                }
            }
            Act::Next(at) => {
                let Some(at) = place(at, &open) else { continue };
                let (message, content) = open[at];
                if let Some(content) = content {
                    record.finish_content(message, content, None, Extra::new());
                    open[at].1 = Some(begin_content(&mut record, message));
                }
            }
            Act::End(at) => {
                let Some(at) = place(at, &open) else { continue };
                let (message, content) = open.remove(at);
                if let Some(content) = content {
                    record.finish_content(message, content, None, Extra::new());
                }
                let mut end = MessageEnd::new(End::Completed);
                end.kind = (at == 1).then_some(MessageType::Reasoning);
                end.metadata = (at == 2).then(|| Json::from_serialize(&[2]));
                record.finish_message(message, end);
            }
            Act::Turn => {
                record.close_messages(End::Incomplete);
                open.clear();
                record.finish_turn(End::Completed, None);
                record.start_turn(Vec::new());
            }
        }
        live.see(&record, &mut seen);
    }
    let end = [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled][usize::from(end)];
    record.close(end, None);
    live.see(&record, &mut seen);
    record
}

fn begin_content(record: &mut Record, message: u32) -> u32 {
    let told: &Message = &record.run().messages[message as usize];
    let call = told.announced.is_call().then(|| CallHead { call_id: "c".into(), name: "f".into(), server_label: None });
    let kind = if call.is_some() { ContentType::Data } else { ContentType::Text };
    record.start_content(message, kind, call)
}

proptest! {
    #[test]
    fn any_run_is_told_well_formed_and_the_same_each_time((acts, end) in acts()) {
        let mut live = support::ActiveRun::new();
        let record = acted(&acts, end, &mut live);
        let replayed = process(&record);
        prop_assert_eq!(live.text(), &replayed, "replay equals live");
        let frames = frames(&replayed);
        prop_assert!(lawful(&frames).is_ok(), "{:?}\n{}", lawful(&frames), replayed);
        prop_assert_eq!(&whole(&record), frames.last().expect("frames"));
    }
}
