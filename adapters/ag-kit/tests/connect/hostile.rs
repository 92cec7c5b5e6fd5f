//! Answers that no server should send: nothing panics, the grammar holds, and the turn ends.

use interlingua_core::End;
use interlingua_core_testkit::{self as testkit, Answer, Hostile};
use proptest::prelude::*;

use crate::support::{driven, record, stream, turn};

const WORD: &str = r#"{"type":"text","content":"Hi"}"#;

fn end_and_code(answer: Answer) -> (Option<End>, Option<String>) {
    let (driven, _) = driven(&mut *turn("{}"), answer);
    let run = driven.record.run();
    (run.end, run.turns[0].error.as_ref().map(|error| error.code.clone()))
}

#[test]
fn answers_of_something_else_fail_as_such() {
    for (answer, code) in [
        (Answer::body("<html>no</html>"), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::body(""), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::body("[]"), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::body(r#"{"error":{"message":"away"}}"#), "AGENT_ERROR"),
        (Answer::stream("data: <html>\n\n"), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::stream("data: {\"type\":\n\n"), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::Stream(vec![b"data: {\xff}\n\n".to_vec()]), "UPSTREAM_PROTOCOL_ERROR"),
        (Answer::Cut(vec![b"data: {\"type\":\"te".to_vec()]), "UPSTREAM_TRUNCATED"),
        (Answer::Cut(vec![]), "UPSTREAM_TRUNCATED"),
    ] {
        let found = end_and_code(answer.clone());
        assert_eq!(found, (Some(End::Failed), Some(code.to_owned())), "{answer:?}");
    }
    // An event stream under another content type is one nevertheless.
    let (driven, _) = driven(&mut *turn("{}"), Answer::body(&format!("data: {WORD}\n\ndata: [DONE]\n\n")));
    assert_eq!(driven.record.run().messages[0].text(), "Hi");
}

#[test]
fn frames_in_other_forms_of_the_event_stream_are_read() {
    for text in [
        format!("\u{feff}data:{WORD}\r\n\r\ndata: [DONE]\r\n\r\n"),
        format!(": {}\n\nevent: message\nid: 7\ndata: {WORD}\n\ndata:[DONE]\n\n", "x".repeat(65536)),
        format!("event: ping\n\ndata: {WORD}\n\ndata: [DONE]\n"),
    ] {
        let (driven, _) = driven(&mut *turn("{}"), Answer::stream(&text));
        assert_eq!(
            (driven.record.run().messages[0].text(), driven.record.run().end),
            ("Hi".into(), Some(End::Completed))
        );
    }
}

#[test]
fn nothing_after_the_end_counts() {
    for tail in [&[WORD, "[DONE]"][..], &[r#"{"type":"error","error":"x"}"#], &["<html>"]] {
        let lines: Vec<&str> = [WORD, "[DONE]"].iter().chain(tail).copied().collect();
        let record = record(&lines);
        assert_eq!((record.run().end, record.run().messages.len()), (Some(End::Completed), 1));
    }
}

#[test]
fn huge_arguments_and_many_calls_are_bounded() {
    let long = "x".repeat(1 << 20);
    let start = r#"{"type":"tool-call-start","toolCallId":"c1","toolCallName":"f"}"#;
    let args = format!(r#"{{"type":"tool-call-args","toolCallId":"c1","delta":"{{\"a\":\"{long}\"}}"}}"#);
    let done = record(&[start, &args, r#"{"type":"tool-result","toolCallId":"c1","result":"ok"}"#, "[DONE]"]);
    assert_eq!(done.run().end, Some(End::Completed));

    let second = format!(r#"{{"type":"tool-call-args","toolCallId":"c1","delta":"{{}}{{\"a\":\"{long}"}}"#);
    let more = format!(r#"{{"type":"tool-call-args","toolCallId":"c1","delta":"{long}"}}"#);
    assert_eq!(
        record(&[start, &second, &more]).run().turns[0].error.as_ref().expect("an error").code,
        "UPSTREAM_TOO_LARGE"
    );

    let calls: Vec<String> = (0..10_001)
        .map(|number| format!(r#"{{"type":"tool-call-start","toolCallId":"c{number}","toolCallName":"f"}}"#))
        .collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    assert_eq!(record(&calls).run().turns[0].error.as_ref().expect("an error").code, "UPSTREAM_TOO_LARGE");
}

const FRAMES: &[&str] = &[
    WORD,
    r#"{"type":"tool-call-start","toolCallId":"c1","toolCallName":"f"}"#,
    r#"{"type":"tool-call-start","toolCallId":"c2","toolCallName":"locate"}"#,
    r#"{"type":"tool-call-args","toolCallId":"c1","delta":"{\"a\":1}{"}"#,
    r#"{"type":"tool-call-args","toolCallId":"c2","delta":"{}"}"#,
    r#"{"type":"tool-call-end","toolCallId":"c1"}"#,
    r#"{"type":"tool-call-end","toolCallId":"c2"}"#,
    r#"{"type":"tool-result","toolCallId":"c1","result":"ok"}"#,
    r#"{"type":"tool-result","toolCallId":"c3","result":null}"#,
    r#"{"type":"interrupt","id":"i1","reason":"r","payload":{"action_request":{"action":"f","args":{"a":1}}}}"#,
    r#"{"type":"interrupt","id":7,"payload":"[]"}"#,
    r#"{"type":null,"content":null,"toolCallId":null,"delta":null,"error":null}"#,
    r#"{"type":"text","content":{"a":1}}"#,
    r#"{"type":"error","error":null}"#,
    r#"{"type":5}"#,
    "[]",
    "null",
    "[DONE]",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// In any order, cut anywhere.
    #[test]
    fn any_order_of_frames_keeps_the_grammar(
        order in prop::collection::vec(0..FRAMES.len(), 0..24),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let lines: Vec<&str> = order.iter().map(|place| FRAMES[*place]).collect();
        let Answer::Stream(pieces) = stream(&lines) else { unreachable!("a stream") };
        let bytes = pieces.concat();
        let answer = if is_cut && !bytes.is_empty() {
            Answer::Cut(vec![bytes[..cut.index(bytes.len())].to_vec()])
        } else {
            Answer::Stream(bytes.chunks(7).map(<[u8]>::to_vec).collect())
        };
        let mut turn = turn("{}");
        let driven = testkit::drive(&mut *turn, [answer]);
        prop_assert_eq!(testkit::grammar(&driven.record), Ok(()));
        let _ = turn.session_state();
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let call = r#"{"type":"tool-call-start","toolCallId":"c1","toolCallName":"f"}"#;
    let arguments =
        |text: &str| serde_json::json!({ "type": "tool-call-args", "toolCallId": "c1", "delta": text }).to_string();
    let result = r#"{"type":"tool-result","toolCallId":"c1","result":"ok"}"#;
    Hostile {
        open: &|| turn("{}"),
        before: Vec::new(),
        whole: stream(&[WORD, call, &arguments("{}"), result, WORD, "[DONE]"]),
        unknown: Some(r#"{"type":"later","x":1}"#),
        huge: &|text| stream(&[call, &arguments(text), result, "[DONE]"]),
    }
    .check();
}
