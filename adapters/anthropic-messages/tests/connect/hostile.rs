//! Bytes cut anywhere, bodies in the wrong form, connections that break, and servers that mean harm.

use interlingua_core::connector::Refusal;
use interlingua_core::{End, Fault, FaultKind};
use interlingua_core_testkit::{self as testkit, Answer, Hostile};
use proptest::prelude::*;

use crate::support::{driven, event, events, lines, stream, turn};

/// An answer of every sort.
const ANSWER: &[&str] = &[
    ": connected",
    "start",
    r#"{"type":"ping"}"#,
    "0 thinking",
    "0 ~ Zwei Städte",
    "0 $ c2ln",
    "0 .",
    "1 text",
    "1 + Ich schaue 👀 \n nach",
    "1 .",
    "2 tool a f",
    r#"2 > {"x":"#,
    r#"2 > "ü"}"#,
    "2 .",
    "end tool_use",
    "stop",
];

fn read(pieces: Vec<Vec<u8>>) -> String {
    lines(&driven("{}", Answer::Stream(pieces)))
}

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let bytes = events(ANSWER).into_bytes();
    let whole = read(vec![bytes.clone()]);
    assert!(whole.contains("usage"), "{whole}");
    for at in 0..=bytes.len() {
        assert_eq!(read(vec![bytes[..at].to_vec(), bytes[at..].to_vec()]), whole, "cut at {at}");
    }
    assert_eq!(read(bytes.iter().map(|byte| vec![*byte]).collect()), whole);
}

#[test]
fn the_framing_of_careless_servers_is_read() {
    let answer = events(ANSWER);
    let whole = read(vec![answer.clone().into_bytes()]);
    let unnamed: String =
        answer.lines().filter(|line| !line.starts_with("event:")).map(|line| format!("{line}\n")).collect();
    for bytes in [
        answer.replace('\n', "\r\n"),
        answer.replace("data: ", "data:"),
        format!("\u{feff}id: 1\n{answer}"),
        answer.trim_end().to_owned(),
        unnamed,
        format!("{answer}data: [DONE]\n\n"),
        format!(":{}\n{answer}", " ".repeat(64 << 10)),
    ] {
        assert_eq!(read(vec![bytes.into_bytes()]), whole);
    }
}

#[test]
fn a_truncated_answer_with_a_stop_reason_is_complete() {
    let cut = |short: &[&str]| {
        let (record, _) = driven("{}", Answer::Cut(vec![events(short).into_bytes()]));
        let run = record.run();
        (run.end, run.messages.iter().map(|message| message.text()).collect::<String>())
    };
    assert_eq!(cut(&["start", "0 + a", "end end_turn"]), (Some(End::Completed), "a".to_owned()));
    assert_eq!(cut(&["start", "0 + a", "end end_turn", "stop"]), (Some(End::Completed), "a".to_owned()));
    assert_eq!(cut(&["start", "0 + a"]), (Some(End::Failed), "a".to_owned()));
    assert_eq!(cut(&["start"]), (Some(End::Failed), String::new()));
}

#[test]
fn an_answer_can_end_at_each_frame_and_inside_of_each() {
    let bytes = events(ANSWER).into_bytes();
    let reason = events(&ANSWER[..ANSWER.len() - 1]).len();
    for at in 0..bytes.len() {
        for answer in [Answer::Stream(vec![bytes[..at].to_vec()]), Answer::Cut(vec![bytes[..at].to_vec()])] {
            let (record, _) = driven("{}", answer);
            let end = record.run().end;
            // The last frame may lack its blank line.
            if at < reason - 2 {
                assert_eq!(end, Some(End::Failed), "after {at} of {reason} bytes");
            } else if at >= reason {
                assert_eq!(end, Some(End::Completed), "after {at} of {reason} bytes");
            }
        }
    }
}

#[test]
fn a_body_that_is_no_answer_fails_the_turn() {
    for (body, code) in [
        (r#"{"type":"error","error":{"type":"api_error","message":"no"}}"#, "api_error"),
        (r#"{"error":{"message":"no"}}"#, "AGENT_ERROR"),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#, "UPSTREAM_OVERLOADED"),
        ("<html>", "UPSTREAM_PROTOCOL_ERROR"),
        ("{\"content\":", "UPSTREAM_PROTOCOL_ERROR"),
        ("[1]", "UPSTREAM_PROTOCOL_ERROR"),
        ("", "UPSTREAM_PROTOCOL_ERROR"),
        (r#"{"type":"ping"}"#, "UPSTREAM_TRUNCATED"),
        (r#"{"choices":[]}"#, "UPSTREAM_PROTOCOL_ERROR"),
    ] {
        let (record, _) = driven("{}", Answer::body(body));
        let run = record.run();
        assert_eq!((run.end, run.error().map(|error| error.code.as_str())), (Some(End::Failed), Some(code)), "{body}");
    }
}

#[test]
fn each_refusal_has_its_blame() {
    let refused = |status: u16, body: &str| {
        let refusal = Refusal { status, body: body.as_bytes(), retry_after: None };
        turn("{}").map_refusal(&refusal)
    };
    let error = |kind: &str, message: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"req_1"}}"#)
    };
    use FaultKind as K;
    for (status, body, kind, code) in [
        (307, String::new(), K::UpstreamMisconfigured, "UPSTREAM_MISCONFIGURED"),
        (400, error("invalid_request_error", "bad"), K::UpstreamRefused, "UPSTREAM_REFUSED"),
        (
            400,
            error("invalid_request_error", "prompt is too long: 9 > 8"),
            K::UpstreamContextTooLong,
            "MODEL_CONTEXT_LENGTH_EXCEEDED",
        ),
        (401, error("authentication_error", "key sk-ant-1"), K::UpstreamCredentials, "UPSTREAM_AUTH_FAILED"),
        (402, error("billing_error", "pay"), K::UpstreamQuota, "MODEL_QUOTA_EXCEEDED"),
        (403, error("permission_error", "no"), K::UpstreamCredentials, "UPSTREAM_AUTH_FAILED"),
        (404, error("not_found_error", "model: claude-9"), K::UpstreamNoSuchModel, "MODEL_NOT_FOUND"),
        (404, "<html>".to_owned(), K::UpstreamMisconfigured, "UPSTREAM_MISCONFIGURED"),
        (413, error("request_too_large", "big"), K::UpstreamInputTooLarge, "UPSTREAM_INPUT_TOO_LARGE"),
        (429, error("rate_limit_error", "slow"), K::UpstreamRateLimited, "UPSTREAM_RATE_LIMITED"),
        (500, error("api_error", "secret"), K::AgentFailed, "AGENT_ERROR"),
        (503, String::new(), K::UpstreamOverloaded, "UPSTREAM_OVERLOADED"),
        (529, error("overloaded_error", "busy"), K::UpstreamOverloaded, "UPSTREAM_OVERLOADED"),
    ] {
        let fault = refused(status, &body);
        assert_eq!((fault.kind, fault.code()), (kind, code), "{status} {body}");
        let shows = fault.message.contains("sk-ant") || fault.message.contains("secret");
        assert!(!shows, "{}", fault.message);
    }
}

#[test]
fn a_turn_that_fails_before_it_began_is_a_fault() {
    let fault = Fault::new(FaultKind::UpstreamRefused, "no");
    let driven = testkit::drive(&mut *turn("{}"), [Answer::Fault(fault)]);
    assert_eq!(driven.record.run().end, Some(End::Failed));
}

#[test]
fn many_open_blocks_and_large_inputs_are_bounded() {
    // None of them is ever stopped.
    let mut short: Vec<String> = (0..2000).map(|index| format!("{index} tool c{index} f")).collect();
    short.extend(["end tool_use".to_owned(), "stop".to_owned()]);
    let short: Vec<&str> = short.iter().map(String::as_str).collect();
    let (record, _) = driven("{}", Answer::stream(&events(&short)));
    assert_eq!(record.run().messages.len(), 2000);
    assert_eq!(record.run().end, Some(End::Completed));

    // The input of a server's tool is gathered: up to a bound.
    let piece = event(&format!("0 > {}", "x".repeat(1 << 20)));
    let mut lines = vec![event(r#"0 {"type":"server_tool_use","id":"s","name":"f","input":{}}"#)];
    lines.extend(std::iter::repeat_n(piece, 33));
    let text = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let (record, _) = driven("{}", Answer::stream(&text));
    assert_eq!(record.run().error().map(|error| error.code.as_str()), Some("UPSTREAM_TOO_LARGE"));
}

#[test]
fn a_megabyte_of_arguments_is_taken() {
    let input = format!("0 > {{\"x\":\"{}\"}}", "y".repeat(1 << 20));
    let (record, _) =
        driven("{}", Answer::stream(&events(&["start", "0 tool a f", &input, "0 .", "end tool_use", "stop"])));
    assert_eq!(record.run().pending()[0].arguments.len(), (1 << 20) + 8);
}

#[test]
fn bytes_that_are_no_text_fail_the_turn() {
    let mut bytes = events(&["start"]).into_bytes();
    bytes.extend(b"data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"\xff\"}}\n\n");
    let (record, _) = driven("{}", Answer::Stream(vec![bytes]));
    assert_eq!(record.run().end, Some(End::Failed));
}

/// A JSON value of any sort.
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
        "{\"type\":{}}",
        "{\"type\":\"text\",\"text\":7}",
        "{\"type\":\"tool_use\",\"id\":[],\"name\":1,\"input\":\"{\"}",
        "{\"type\":\"mcp_tool_result\",\"content\":{\"type\":[]}}",
        "{\"type\":\"heartbeat\"}",
    ])
    .prop_map(str::to_owned)
}

fn any_event() -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec![
        "start",
        "0 text",
        "0 thinking",
        "1 tool a f",
        "1 tool a g",
        "- text",
        "0 + a",
        "1 + b",
        "- ~ hm",
        "0 $ s",
        "1 > {",
        "2 > }",
        "0 .",
        "1 .",
        "- .",
        "end tool_use",
        "end refusal",
        "stop",
        r#"3 {"type":"server_tool_use","id":"s","name":"n","input":{}}"#,
        r#"4 {"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#,
        r#"4 {"type":"redacted_thinking","data":"x"}"#,
        r#"4 {"type":"later","x":1}"#,
    ])
    .prop_map(event);
    let kinds = vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message",
        "ping",
        "error",
        "later",
    ];
    let fields = vec!["index", "delta", "content_block", "message", "usage", "error", "content", "stop_reason"];
    let strange = (prop::sample::select(kinds), prop::sample::select(fields), odd(), odd())
        .prop_map(|(kind, field, value, index)| format!(r#"{{"type":"{kind}","{field}":{value},"index":{index}}}"#));
    prop_oneof![6 => short, 2 => strange, 1 => odd()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_server_makes_the_gateway_panic_or_break_its_grammar(
        lines in prop::collection::vec(any_event(), 0..16),
        cut in any::<bool>(),
    ) {
        let text = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let pieces = vec![text.into_bytes()];
        let answer = if cut { Answer::Cut(pieces) } else { Answer::Stream(pieces) };
        let (record, _) = driven("{}", answer);
        prop_assert!(record.run().end.is_some());
    }

    #[test]
    fn text_is_never_lost_or_doubled(pieces in prop::collection::vec(("[0-2]", "[ab \n]{1,4}", any::<bool>()), 0..12)) {
        let mut short = vec!["start".to_owned()];
        for (index, text, stops) in &pieces {
            short.push(format!("{index} + {text}"));
            if *stops {
                short.push(format!("{index} ."));
            }
        }
        short.extend(["end end_turn".to_owned(), "stop".to_owned()]);
        let short: Vec<&str> = short.iter().map(String::as_str).collect();
        let (record, _) = driven("{}", Answer::stream(&events(&short)));
        let text: String = record.run().messages.iter().map(|message| message.text()).collect();
        prop_assert_eq!(text, pieces.iter().map(|(_, text, _)| text.as_str()).collect::<String>());
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let call = |text: &str| {
        let input = format!("0 > {text}");
        Answer::stream(&events(&["start", "0 tool a f", &input, "0 .", "end tool_use", "stop"]))
    };
    Hostile {
        open: &|| turn("{}"),
        before: Vec::new(),
        whole: Answer::stream(&events(&[
            "start",
            "0 text",
            "0 + Hel",
            "0 + lo",
            "0 .",
            "1 tool a f",
            "1 > {}",
            "1 .",
            "end tool_use",
            "stop",
        ])),
        unknown: Some(r#"{"type":"later","x":1}"#),
        huge: &call,
    }
    .check();
}
