//! Bytes cut anywhere, bodies in the wrong form, connections that break, and servers that mean harm.

mod support;

use interlingua_core::{End, Fault, Record};
use interlingua_core_testkit::{self as testkit, Answer, Hostile, Recorder};
use proptest::prelude::*;
use support::{chunk, chunks, driven, record, stream, trimmed, turn};

/// An answer of every sort.
const ANSWER: &[&str] = &[
    ": OPENROUTER PROCESSING",
    r#""role":"assistant","content":"""#,
    r#""reasoning_content":"Zwei Städte""#,
    r#""content":"Ich schaue 👀 \n nach""#,
    r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]"#,
    r#""tool_calls":[{"index":0,"function":{"arguments":"\"ü\"}"}}]"#,
    r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":1}}"#,
    "=> tool_calls",
    "[DONE]",
];

fn answer() -> String {
    let lines = chunks(ANSWER);
    stream(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read(pieces: Vec<Vec<u8>>) -> Record {
    testkit::drive(&mut *turn("{}"), [Answer::Stream(pieces)]).record
}

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let bytes = answer().into_bytes();
    let whole = trimmed(&read(vec![bytes.clone()]));
    assert!(whole.contains("usage"), "{whole}");
    for at in 0..=bytes.len() {
        assert_eq!(trimmed(&read(vec![bytes[..at].to_vec(), bytes[at..].to_vec()])), whole, "cut at {at}");
    }
    assert_eq!(trimmed(&read(bytes.iter().map(|byte| vec![*byte]).collect())), whole);
}

#[test]
fn the_framing_of_careless_servers_is_read() {
    let whole = trimmed(&read(vec![answer().into_bytes()]));
    let crlf = answer().replace('\n', "\r\n");
    let tight = answer().replace("data: ", "data:");
    let marked = format!("\u{feff}event: message\nid: 1\n{}", answer());
    let unfinished = answer().trim_end().to_owned();
    let blank = answer().replace("data: ", "data:  \n\ndata: ");
    for bytes in [crlf, tight, marked, unfinished, blank] {
        assert_eq!(trimmed(&read(vec![bytes.into_bytes()])), whole);
    }
    // Under the content type of JSON, a stream comes as one body.
    assert_eq!(trimmed(&driven("{}", Answer::body(&answer())).record), whole);
}

#[test]
fn a_whole_completion_is_read_where_a_stream_was_asked_for() {
    let body = r#"{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}"#;
    let tale = trimmed(&driven("{}", Answer::body(body)).record);
    insta::assert_snapshot!(tale);
    assert_eq!(trimmed(&driven("{}", Answer::body(&format!("\u{feff}\n[{body}]"))).record), tale);
}

#[test]
fn a_body_that_is_no_answer_fails_the_turn() {
    for (body, code) in [
        (r#"{"error":{"message":"no"}}"#, "AGENT_ERROR"),
        (r#"[{"error":{"message":"no"}}]"#, "AGENT_ERROR"),
        ("<html>", "UPSTREAM_PROTOCOL_ERROR"),
        ("{\"choices\":", "UPSTREAM_PROTOCOL_ERROR"),
        ("[1]", "UPSTREAM_PROTOCOL_ERROR"),
        ("{}", "UPSTREAM_TRUNCATED"),
        ("[]", "UPSTREAM_TRUNCATED"),
        ("", "UPSTREAM_PROTOCOL_ERROR"),
    ] {
        let run = driven("{}", Answer::body(body)).record;
        let error = run.run().error().expect("an error");
        assert_eq!((run.run().end, error.code.as_str()), (Some(End::Failed), code), "{body}");
    }
}

#[test]
fn answers_of_other_protocols_are_named() {
    for (data, protocol) in [
        (r#"{"type":"message_start","message":{"id":"msg_1"}}"#, "anthropic-messages"),
        (r#"{"type":"message","content":[]}"#, "anthropic-messages"),
        (r#"{"type":"response.created","response":{}}"#, "responses"),
    ] {
        for answer in [Answer::body(data), Answer::stream(&stream(&[data]))] {
            let mut turn = turn("{}");
            let fault = match &answer {
                Answer::Body(body) => turn.on_body(body, &mut Recorder::new(Vec::new())),
                _ => {
                    let frame = interlingua_core::sse::Frame { data: data.as_bytes(), ..Default::default() };
                    turn.on_frame(frame, &mut Recorder::new(Vec::new()))
                }
            };
            let detail = fault.expect_err("another protocol").detail.expect("a remedy");
            assert!(detail.contains(protocol), "{detail}");
        }
    }
}

#[test]
fn a_truncated_answer_with_a_stop_reason_is_complete() {
    let cut = |short: &[&str]| {
        let lines = chunks(short);
        let text = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let run = driven("{}", Answer::Cut(vec![text.into_bytes()])).record;
        (run.run().end, run.run().messages.iter().map(|message| message.text()).collect::<String>())
    };
    assert_eq!(cut(&[r#""content":"a"=> stop"#]), (Some(End::Completed), "a".to_owned()));
    assert_eq!(cut(&[r#""content":"a""#]), (Some(End::Failed), "a".to_owned()));
    assert_eq!(cut(&[r#""content":"<thi""#]), (Some(End::Failed), "<thi".to_owned()));
}

#[test]
fn a_connection_that_stays_open_after_the_end_mark_is_not_waited_for() {
    let mut turn = turn("{}");
    let mut recorder = Recorder::new(Vec::new());
    for data in [chunk(r#""content":"a""#, "stop"), "[DONE]".to_owned()] {
        let frame = interlingua_core::sse::Frame { data: data.as_bytes(), ..Default::default() };
        turn.on_frame(frame, &mut recorder).expect("understood");
    }
    assert!(!recorder.normalizer().has_ended(), "usage may follow");
    turn.on_frames_read(&mut recorder).expect("understood");
    assert!(recorder.normalizer().has_ended());
}

#[test]
fn a_refusal_before_the_answer_is_the_fault_of_the_turn() {
    let fault = Fault::new(interlingua_core::FaultKind::UpstreamUnreachable, "no one there");
    let run = driven("{}", Answer::Fault(fault)).record;
    assert_eq!(run.run().error().map(|error| error.code.as_str()), Some("UPSTREAM_UNREACHABLE"));
}

/// A value where a server should have sent something else.
fn odd() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "null",
        "true",
        "7",
        "-1.5e3",
        "\"\"",
        "\"x\"",
        "\"\\u00e4\\n\"",
        "[]",
        "{}",
        "[null,[],{}]",
        "{\"index\":{}}",
        "[{\"type\":\"text\",\"text\":7}]",
        "\"<think>\"",
        "\"</think>\"",
        "\"{\"",
        "{\"url\":\"data:,\"}",
    ])
    .prop_map(str::to_owned)
}

fn any_chunk() -> impl Strategy<Value = String> {
    let names = vec![
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "tool_calls",
        "function_call",
        "images",
        "audio",
        "annotations",
        "executed_tools",
        "role",
    ];
    let piece =
        ("[0-2]|null|\"1\"", "(\"[ab]?\"|null)", "(\"[fg]?\"|null)", prop_oneof![odd(), Just("\"{}\"".to_owned())])
            .prop_map(|(index, id, name, arguments)| {
                format!(r#"{{"index":{index},"id":{id},"function":{{"name":{name},"arguments":{arguments}}}}}"#)
            });
    let calls = prop::collection::vec(piece, 0..3).prop_map(|pieces| format!(r#""tool_calls":[{}]"#, pieces.join(",")));
    let field = (prop::sample::select(names), odd()).prop_map(|(name, value)| format!(r#""{name}":{value}"#));
    let text = "[a<think>/ ]{0,9}".prop_map(|text| format!(r#""content":"{text}""#));
    let fields = prop::collection::vec(prop_oneof![calls, field, text], 0..4);
    (fields, odd(), odd(), odd()).prop_map(|(fields, index, reason, usage)| {
        format!(
            r#"{{"id":{index},"choices":[{{"index":{index},"delta":{{{}}},"finish_reason":{reason}}}],"usage":{usage}}}"#,
            fields.join(",")
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_server_makes_the_gateway_panic_or_break_its_grammar(
        lines in prop::collection::vec(prop_oneof![
            8 => any_chunk(),
            1 => odd(),
            1 => Just("[DONE]".to_owned()),
            1 => Just(r#"{"choices":[{"index":1},{"index":0,"delta":{"content":"a"}}]}"#.to_owned()),
        ], 0..12),
        tags in prop::sample::select(vec!["auto", "opened", "off"]),
        cut in any::<bool>(),
    ) {
        let text = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let pieces = vec![text.into_bytes()];
        let answer = if cut { Answer::Cut(pieces) } else { Answer::Stream(pieces) };
        let run = driven(&format!(r#"{{"think_tags":"{tags}"}}"#), answer).record;
        prop_assert!(run.run().end.is_some());
    }

    #[test]
    fn text_is_never_lost_or_doubled(pieces in prop::collection::vec("[ab<>/think\n ]{0,8}", 0..10), tags in prop::sample::select(vec!["auto", "off"])) {
        let lines: Vec<String> = pieces
            .iter()
            .map(|piece| format!(r#""content":{}"#, serde_json::to_string(piece).expect("JSON")))
            .chain(["=> stop".to_owned(), "[DONE]".to_owned()])
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let record = record(&format!(r#"{{"think_tags":"{tags}"}}"#), &lines);
        let text: String = record.run().messages.iter().map(|message| message.text()).collect();
        let visible = |text: &str| text.replace("<think>", "").replace("</think>", "").split_whitespace().collect::<String>();
        if tags == "off" {
            prop_assert_eq!(text, pieces.concat());
        } else {
            prop_assert_eq!(visible(&text), visible(&pieces.concat()));
        }
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let whole = |short: &[&str]| {
        let lines = chunks(short);
        Answer::stream(&stream(&lines.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let call = |text: &str| {
        let arguments = serde_json::json!(text);
        let call =
            format!(r#""tool_calls":[{{"index":0,"id":"a","function":{{"name":"f","arguments":{arguments}}}}}]"#);
        whole(&[&call, "=> tool_calls", "[DONE]"])
    };
    Hostile {
        open: &|| turn("{}"),
        before: Vec::new(),
        whole: whole(&[
            r#""content":"Hel""#,
            r#""content":"lo""#,
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
            "=> tool_calls",
            "[DONE]",
        ]),
        unknown: Some(r#"{"type":"later","x":1}"#),
        huge: &call,
    }
    .check();
}
