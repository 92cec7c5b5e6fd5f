//! Servers that send wrong data: nothing panics, every run ends as the pages of docs/protocols describe, and nothing is
//! sent to another host.

use interlingua_core::connector::Next;
use interlingua_core::fault::FaultKind;
use interlingua_core::{End, Fault, Record};
use interlingua_core_testkit::{self as testkit, Answer, Hostile};
use proptest::prelude::*;

use crate::support::{driven, refused, stream, turn, turn_of, whole_stream};

/// An answer with everything in it.
const EVENTS: &[&str] = &[
    r#"output_item.added {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
    r#"reasoning_summary_text.delta {"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Hm"}"#,
    r#"output_item.done {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]}}"#,
    r#"output_item.added {"output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Zwei Städte 👀"}"#,
    r#"output_item.done {"output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Zwei Städte 👀"}]}}"#,
    r#"output_item.added {"output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":""}}"#,
    r#"function_call_arguments.delta {"item_id":"fc_1","output_index":2,"delta":"{\"a\":1}"}"#,
    r#"output_item.done {"output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{\"a\":1}"}}"#,
    r#"output_item.done {"output_index":3,"item":{"id":"ws_1","type":"web_search_call","action":{"query":"x"},"status":"completed"}}"#,
];

fn record(answer: Answer) -> Record {
    driven(&mut *turn("{}"), [answer]).record
}

fn end(record: &Record) -> (Option<End>, String) {
    let turn = &record.run().turns[0];
    (turn.end, turn.error.as_ref().map(|error| error.code.clone()).unwrap_or_default())
}

#[test]
fn each_kind_of_wrong_answer_has_its_end() {
    let failed = |code: &str| (Some(End::Failed), code.to_owned());
    let whole = whole_stream(EVENTS);
    for (name, answer, expected) in [
        ("a page for people", Answer::body("<html><body>502</body></html>"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a page as a stream", Answer::stream("<html>\n<body>\n\n</html>\n\n"), failed("UPSTREAM_TRUNCATED")),
        (
            "an error in a 200",
            Answer::body(r#"{"error":{"code":"server_error","message":"no"}}"#),
            failed("server_error"),
        ),
        (
            "an error as the first frame",
            Answer::stream("data: {\"error\":{\"code\":\"x\",\"message\":\"no\"}}\n\n"),
            failed("x"),
        ),
        ("nothing", Answer::body(""), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("no frames", Answer::stream(""), failed("UPSTREAM_TRUNCATED")),
        ("the end mark alone", Answer::stream("data: [DONE]\n\n"), failed("UPSTREAM_TRUNCATED")),
        ("JSON of no kind", Answer::body("[1,2]"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a number", Answer::body("7"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a frame that is no JSON", Answer::stream("data: {\"type\":\n\n"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a frame that is no object", Answer::stream("data: [1]\n\n"), failed("UPSTREAM_PROTOCOL_ERROR")),
        (
            "a byte that is no UTF-8, without an end",
            Answer::Stream(vec![b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"\xff\"}\n\n".to_vec()]),
            failed("UPSTREAM_TRUNCATED"),
        ),
        ("an end twice", Answer::stream(&format!("{whole}{whole}")), (Some(End::Completed), String::new())),
        (
            "words after the end",
            Answer::stream(&format!("{whole}data: {{\"type\":\"error\",\"message\":\"late\"}}\n\n")),
            (Some(End::Completed), String::new()),
        ),
    ] {
        let record = record(answer);
        assert_eq!(end(&record), expected, "{name}");
    }
}

#[test]
fn a_truncated_answer_keeps_its_beginning() {
    let whole = whole_stream(EVENTS);
    let bytes = whole.as_bytes();
    for at in (0..bytes.len() - 1).step_by(5) {
        let record = record(Answer::Cut(vec![bytes[..at].to_vec()]));
        assert_eq!(record.run().end, Some(End::Failed), "cut at {at}");
        let early = record.run().messages.iter().filter(|message| message.end == Some(End::Completed)).count();
        assert!(early <= 6, "cut at {at}");
    }
}

#[test]
fn events_in_any_order_keep_the_grammar() {
    let reversed: Vec<&str> = EVENTS.iter().rev().copied().collect();
    let record = record(Answer::stream(&whole_stream(&reversed)));
    assert_eq!(record.run().end, Some(End::Completed));
    // Items that have ended do not begin again.
    let texts: Vec<String> = record.run().messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts.iter().filter(|text| text.contains("Städte")).count(), 1, "{texts:?}");
}

#[test]
fn large_and_repeated_things_are_bounded() {
    let arguments = format!("{{\\\"a\\\":\\\"{}\\\"}}", "x".repeat(1 << 20));
    let large = format!(
        r#"output_item.done {{"output_index":0,"item":{{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{arguments}"}}}}"#
    );
    let found = record(Answer::stream(&whole_stream(&[&large])));
    let call = found.run().messages[0].to_model().calls().next().expect("a call");
    assert_eq!(call.arguments.len(), (1 << 20) + 8);

    // An item that is too large to be kept is shown, and not kept.
    let item = format!(
        r#"output_item.done {{"output_index":0,"item":{{"id":"ws_1","type":"web_search_call","results":"{}"}}}}"#,
        "x".repeat(300 << 10)
    );
    let mut kept = turn("{}");
    let found = driven(&mut *kept, [Answer::stream(&whole_stream(&[&item]))]).record;
    assert!(found.run().messages[0].metadata.is_none());
    assert_eq!(kept.losses()[0].to_string(), "opaque (an item of the server is too large to be kept)");

    let many: Vec<String> = (0..5000)
        .map(|place| format!(r#"output_item.done {{"output_index":{place},"item":{{"id":"m{place}","type":"message","content":[{{"type":"output_text","text":"x"}}]}}}}"#))
        .collect();
    let found = record(Answer::stream(&whole_stream(&many.iter().map(String::as_str).collect::<Vec<_>>())));
    assert_eq!(end(&found), (Some(End::Failed), "UPSTREAM_TOO_LARGE".to_owned()));

    // Ids of any length, and indexes of any size.
    let id = "i".repeat(100_000);
    let strange = [
        format!(r#"output_item.added {{"output_index":4294967295,"item":{{"id":"{id}","type":"message"}}}}"#),
        format!(r#"output_text.delta {{"output_index":-1,"content_index":99999999999,"item_id":"{id}","delta":"hi"}}"#),
    ];
    let found = record(Answer::stream(&whole_stream(&strange.iter().map(String::as_str).collect::<Vec<_>>())));
    assert_eq!(found.run().messages[0].text(), "hi");
    assert!(found.run().messages[0].id.len() < 300);
}

#[test]
fn malformed_calls_are_shown_unchanged() {
    let arguments = |text: &str| {
        let event = format!(
            r#"output_item.done {{"output_index":0,"item":{{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":{text}}}}}"#
        );
        let record = record(Answer::stream(&whole_stream(&[&event])));
        record.run().messages[0].to_model().calls().next().expect("a call").arguments
    };
    assert_eq!(arguments(r#""{\"a\":""#), "{\"a\":");
    assert_eq!(arguments("7"), "7");
    assert_eq!(arguments("null"), "{}");

    // One call id twice, at once and in sequence.
    let twice = [
        r#"output_item.done {"output_index":0,"item":{"id":"a","type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#,
        r#"output_item.done {"output_index":1,"item":{"id":"b","type":"function_call","call_id":"c","name":"g","arguments":"{}"}}"#,
    ];
    let found = record(Answer::stream(&whole_stream(&twice)));
    assert_eq!(found.run().messages.len(), 2);

    // A call of nothing.
    let none = [r#"output_item.done {"output_index":0,"item":{"type":"function_call"}}"#];
    assert_eq!(record(Answer::stream(&whole_stream(&none))).run().messages.len(), 0);
}

#[test]
fn every_field_may_be_null_or_of_another_type() {
    let fields =
        ["item", "part", "delta", "text", "response", "item_id", "output_index", "content_index", "arguments", "error"];
    let kinds = [
        "created",
        "in_progress",
        "output_item.added",
        "output_item.done",
        "content_part.done",
        "output_text.delta",
        "output_text.done",
        "refusal.delta",
        "refusal.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "custom_tool_call_input.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_text.delta",
        "audio.delta",
        "completed",
        "incomplete",
        "failed",
        "later",
    ];
    let values = [
        "null",
        "7",
        "\"x\"",
        "[]",
        "{}",
        "[null]",
        "{\"type\":7}",
        "{\"type\":\"message\",\"content\":[null,7]}",
        "true",
        "-1.5e300",
    ];
    for kind in kinds {
        for field in fields {
            for value in values {
                let event = format!("{kind} {{\"{field}\":{value}}}");
                let record = record(Answer::stream(&stream(&[&event])));
                assert!(record.run().end.is_some(), "{event}");
            }
        }
    }
}

#[test]
fn each_refusal_has_its_blame() {
    for (status, body, kind) in [
        (301, "", FaultKind::UpstreamMisconfigured),
        (307, "", FaultKind::UpstreamMisconfigured),
        (400, r#"{"error":{"message":"bad"}}"#, FaultKind::UpstreamRefused),
        (401, r#"{"error":{"message":"key"}}"#, FaultKind::UpstreamCredentials),
        (403, "", FaultKind::UpstreamCredentials),
        (404, "<html>", FaultKind::UpstreamMisconfigured),
        (408, "", FaultKind::UpstreamTimeout),
        (409, r#"{"error":{"message":"busy"}}"#, FaultKind::UpstreamRefused),
        (413, "", FaultKind::UpstreamInputTooLarge),
        (422, r#"{"detail":[{"msg":"bad"}]}"#, FaultKind::UpstreamRefused),
        (429, "", FaultKind::UpstreamRateLimited),
        (402, "", FaultKind::UpstreamQuota),
        (500, "boom", FaultKind::AgentFailed),
        (503, "", FaultKind::UpstreamOverloaded),
        (529, "", FaultKind::UpstreamOverloaded),
        (504, "", FaultKind::UpstreamTimeout),
    ] {
        let fault = refused(&*turn("{}"), status, body.as_bytes());
        assert_eq!((fault.kind, fault.upstream_status), (kind, Some(status)), "{status}");
    }
}

#[test]
fn ids_of_the_server_choose_no_host() {
    for id in ["../../x", "a/b", "http://evil.example/", "..", "?a=b", "#", "x\\u0000y"] {
        let options = r#"{"background":"poll"}"#;
        let mut turn = turn_of(options, r#"{"input":[]}"#, "null");
        let queued = format!(r#"{{"id":"{id}","object":"response","status":"queued"}}"#);
        let done = r#"{"id":"r","object":"response","status":"completed"}"#;
        let driven = driven(&mut *turn, [Answer::body(&queued), Answer::body(done)]);
        let url = &driven.requests[1].url;
        let rest = url.strip_prefix("http://agent/v1/responses/").unwrap_or_else(|| panic!("{url}"));
        assert!(!rest.contains(['/', '?', '#']) && rest != ".." && !rest.is_empty(), "{url}");
    }
}

#[test]
fn a_turn_that_has_ended_asks_for_nothing() {
    let mut turn = turn(r#"{"background":"stream"}"#);
    driven(&mut *turn, [Answer::stream(&whole_stream(EVENTS))]);
    assert!(matches!(turn.next(0), Ok(Next::Finished)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes of an answer that are changed anywhere.
    #[test]
    fn changed_bytes_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        background in any::<bool>(),
    ) {
        let mut bytes = whole_stream(EVENTS).into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let at = cut.index(bytes.len());
        let mut turn = turn(if background { r#"{"background":"stream"}"# } else { "{}" });
        let mut answers = vec![Answer::Cut(vec![bytes[..at].to_vec(), bytes[at..].to_vec()])];
        answers.extend((0..40).map(|_| Answer::Stream(vec![bytes[..at].to_vec()])));
        // A server that reports progress is polled without limit.
        answers.extend((0..40).map(|_| Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "gone"))));
        let driven = testkit::drive(&mut *turn, answers);
        prop_assert_eq!(testkit::grammar(&driven.record), Ok(()));
    }

    /// Events in any order, any number of times.
    #[test]
    fn shuffled_events_never_panic(order in proptest::collection::vec(0..EVENTS.len(), 0..30)) {
        let events: Vec<&str> = order.iter().map(|&place| EVENTS[place]).collect();
        let driven = testkit::drive(&mut *turn("{}"), [Answer::stream(&whole_stream(&events))]);
        prop_assert_eq!(testkit::grammar(&driven.record), Ok(()));
        prop_assert_eq!(driven.record.run().end, Some(End::Completed));
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let call = |text: &str| {
        let arguments = serde_json::json!(text);
        let event = format!(
            r#"output_item.done {{"output_index":0,"item":{{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":{arguments}}}}}"#
        );
        Answer::stream(&whole_stream(&[&event]))
    };
    Hostile {
        open: &|| turn("{}"),
        before: Vec::new(),
        whole: Answer::stream(&whole_stream(EVENTS)),
        unknown: Some(r#"{"type":"response.later","x":1}"#),
        huge: &call,
    }
    .check();
}
