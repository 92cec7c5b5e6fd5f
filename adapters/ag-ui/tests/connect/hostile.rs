//! Servers that send what they should not: nothing panics, and every run ends as the table in docs/protocols/ag-ui.md
//! says.

use interlingua_core::connector::{Next, Refusal};
use interlingua_core::fault::FaultKind;
use interlingua_core::{End, Event, Record};
use interlingua_core_testkit::{Answer, Hostile};
use proptest::prelude::*;

use crate::support::{Case, driven, stream, whole_stream};

/// An answer with everything in it.
const EVENTS: &[&str] = &[
    r#"STEP_STARTED {"stepName":"a"}"#,
    r#"REASONING_MESSAGE_START {"messageId":"r1","role":"reasoning"}"#,
    r#"REASONING_MESSAGE_CONTENT {"messageId":"r1","delta":"Hm"}"#,
    r#"REASONING_MESSAGE_END {"messageId":"r1"}"#,
    r#"REASONING_ENCRYPTED_VALUE {"subtype":"message","entityId":"r1","encryptedValue":"s"}"#,
    r#"TEXT_MESSAGE_START {"messageId":"m1","role":"assistant"}"#,
    r#"TEXT_MESSAGE_CONTENT {"messageId":"m1","delta":"Zwei Städte 👀"}"#,
    r#"TEXT_MESSAGE_END {"messageId":"m1"}"#,
    r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"f","parentMessageId":"m1"}"#,
    r#"TOOL_CALL_ARGS {"toolCallId":"c1","delta":"{\"a\":1}"}"#,
    r#"TOOL_CALL_END {"toolCallId":"c1"}"#,
    r#"TOOL_CALL_RESULT {"toolCallId":"c1","messageId":"t1","content":"done"}"#,
    r#"STATE_SNAPSHOT {"snapshot":{"a":1}}"#,
    r#"TEXT_MESSAGE_CHUNK {"messageId":"m2","delta":"Ende."}"#,
    r#"MESSAGES_SNAPSHOT {"messages":[{"id":"m2","role":"assistant","content":"Ende."}]}"#,
];

fn record(answer: Answer) -> Record {
    driven(&mut *Case::default().turn(), [answer]).record
}

fn end(record: &Record) -> (Option<End>, String) {
    let turn = &record.run().turns[0];
    (turn.end, turn.error.as_ref().map(|error| error.code.clone()).unwrap_or_default())
}

#[test]
fn each_kind_of_wrong_answer_has_its_end() {
    let failed = |code: &str| (Some(End::Failed), code.to_owned());
    let completed = || (Some(End::Completed), String::new());
    let whole = whole_stream(EVENTS);
    let text = r#"data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"#;
    let finished = "{\"type\":\"RUN_FINISHED\"}";
    for (name, answer, expected) in [
        ("a page for people", Answer::body("<html><body>502</body></html>"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a page as a stream", Answer::stream("<html>\n<body>\n\n</html>\n\n"), failed("UPSTREAM_TRUNCATED")),
        (
            "an error in a 200",
            Answer::body(r#"{"error":{"code":"overloaded","message":"no"}}"#),
            failed("UPSTREAM_OVERLOADED"),
        ),
        ("an error of FastAPI in a 200", Answer::body(r#"{"detail":"no"}"#), failed("AGENT_ERROR")),
        ("an error as the first frame", Answer::stream("data: {\"error\":{\"code\":\"x\"}}\n\n"), failed("x")),
        ("nothing", Answer::body(""), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("no frames", Answer::stream(""), failed("UPSTREAM_TRUNCATED")),
        ("the end mark alone", Answer::stream("data: [DONE]\n\n"), failed("UPSTREAM_TRUNCATED")),
        ("the start alone", Answer::stream(&stream(&["RUN_STARTED"])), failed("UPSTREAM_TRUNCATED")),
        ("numbers", Answer::body("[1,2]"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a number", Answer::body("7"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a frame that is no JSON", Answer::stream("data: {\"type\":\n\n"), failed("UPSTREAM_PROTOCOL_ERROR")),
        ("a frame that is no object", Answer::stream("data: [1]\n\n"), failed("UPSTREAM_PROTOCOL_ERROR")),
        (
            "a byte that is no UTF-8, without an end",
            Answer::Stream(vec![[text.as_bytes(), b"\"\xff\"}\n\n"].concat()]),
            failed("UPSTREAM_TRUNCATED"),
        ),
        ("a list of events", Answer::body(&format!("[{{\"type\":\"RUN_STARTED\"}},{finished}]")), completed()),
        ("one event as a body", Answer::body(finished), completed()),
        ("a stream under another type", Answer::body(&whole), completed()),
        ("a byte order mark", Answer::stream(&format!("\u{feff}{whole}")), completed()),
        ("CRLF", Answer::stream(&whole.replace('\n', "\r\n")), completed()),
        ("no space after the colon", Answer::stream(&whole.replace("data: ", "data:")), completed()),
        ("comments", Answer::stream(&format!(": {}\n\n{whole}", "x".repeat(64 << 10))), completed()),
        ("event lines", Answer::stream(&format!("event: ping\n\n{whole}")), completed()),
        ("an end twice", Answer::stream(&format!("{whole}{whole}")), completed()),
    ] {
        assert_eq!(end(&record(answer)), expected, "{name}");
    }
}

#[test]
fn each_refusal_has_its_fault() {
    let turn = Case::default().turn();
    for (status, body, kind, message) in [
        (400, r#"{"detail":"bad"}"#, FaultKind::UpstreamRefused, "the agent refused the request: bad"),
        (
            422,
            r#"[{"type":"missing","loc":["threadId"],"msg":"Field required"}]"#,
            FaultKind::UpstreamRefused,
            "the agent refused the request: threadId: Field required",
        ),
        (401, "secret", FaultKind::UpstreamCredentials, "the agent refused the gateway's credentials"),
        (403, "secret", FaultKind::UpstreamCredentials, "the agent refused the gateway's credentials"),
        (404, "", FaultKind::UpstreamMisconfigured, "the agent has nothing at the URL that the gateway asks"),
        (405, "", FaultKind::UpstreamMisconfigured, "the agent has nothing at the URL that the gateway asks"),
        (409, r#"{"error":"busy"}"#, FaultKind::UpstreamRefused, "the agent refused the request: busy"),
        (413, "", FaultKind::UpstreamInputTooLarge, "the request is too large for the agent"),
        (429, "", FaultKind::UpstreamRateLimited, "the agent is rate limited"),
        (500, r#"{"detail":"secret"}"#, FaultKind::AgentFailed, "the agent failed (500)"),
        (503, "", FaultKind::UpstreamOverloaded, "the agent is not available"),
        (504, "", FaultKind::UpstreamTimeout, "the agent took too long"),
        (307, "", FaultKind::UpstreamMisconfigured, "the agent redirects elsewhere, and redirects are not followed"),
    ] {
        let fault = turn.map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
        assert_eq!((fault.kind, fault.message.as_str()), (kind, message), "{status}");
    }
}

#[test]
fn a_truncated_answer_keeps_its_beginning() {
    let whole = whole_stream(EVENTS);
    let bytes = whole.as_bytes();
    let last = whole.rfind("data: ").expect("a frame");
    for at in (0..last).step_by(3) {
        for answer in [Answer::Cut(vec![bytes[..at].to_vec()]), Answer::Stream(vec![bytes[..at].to_vec()])] {
            let record = record(answer);
            assert_eq!(record.run().end, Some(End::Failed), "cut at {at}");
            assert!(record.run().pending().is_empty(), "cut at {at}");
        }
    }
    // What ended before the cut has ended.
    let record = record(Answer::Cut(vec![bytes[..last].to_vec()]));
    let ends: Vec<_> = record.run().messages.iter().map(|message| message.end).collect();
    assert_eq!(ends.iter().filter(|end| **end == Some(End::Completed)).count(), ends.len(), "{ends:?}");
}

#[test]
fn events_in_any_order_keep_the_grammar() {
    let reversed: Vec<&str> = EVENTS.iter().rev().copied().collect();
    let record = record(Answer::stream(&whole_stream(&reversed)));
    assert_eq!(record.run().end, Some(End::Completed));
}

#[test]
fn every_field_of_another_type_is_read() {
    for value in ["null", "7", "true", "[]", "{}", "[[]]", r#""""#, r#"{"type":"x"}"#] {
        let mut events = Vec::new();
        for event in EVENTS {
            let (kind, fields) = event.split_once(' ').expect("fields");
            let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(fields).expect("fields");
            let all: Vec<String> = fields.keys().map(|name| format!("\"{name}\":{value}")).collect();
            events.push(format!("{kind} {{{}}}", all.join(",")));
            for changed in fields.keys() {
                let field = |(name, old): (&String, &serde_json::Value)| {
                    if name == changed { format!("\"{name}\":{value}") } else { format!("\"{name}\":{old}") }
                };
                let fields: Vec<String> = fields.iter().map(field).collect();
                events.push(format!("{kind} {{{}}}", fields.join(",")));
            }
        }
        let lines: Vec<&str> = events.iter().map(String::as_str).collect();
        let record = record(Answer::stream(&whole_stream(&lines)));
        assert_eq!(record.run().end, Some(End::Completed), "{value}");
    }
}

#[test]
fn large_and_many_things_are_bounded() {
    let long = format!(r#"TOOL_CALL_ARGS {{"toolCallId":"c1","delta":"{{\"a\":\"{}\"}}"}}"#, "x".repeat(1 << 20));
    let found =
        record(Answer::stream(&whole_stream(&[r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"f"}"#, &long])));
    let call = found.run().messages[0].to_model().calls().next().expect("a call");
    assert_eq!(call.arguments.len(), (1 << 20) + 8);

    // Held back, they are bounded.
    let held = long.replace("{\\\"a\\\"", "\\\"a\\\"").replace("\\\"}\"", "\\\"\"");
    let many: Vec<&str> = std::iter::once(r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"f"}"#)
        .chain(std::iter::repeat_n(held.as_str(), 9))
        .collect();
    assert_eq!(
        end(&record(Answer::stream(&whole_stream(&many)))),
        (Some(End::Failed), "UPSTREAM_TOO_LARGE".to_owned())
    );

    // Each opens a text that never ends.
    let open: Vec<String> =
        (0..10_000).map(|place| format!(r#"TEXT_MESSAGE_CONTENT {{"messageId":"m{place}","delta":"x"}}"#)).collect();
    let lines: Vec<&str> = open.iter().map(String::as_str).collect();
    let found = record(Answer::stream(&whole_stream(&lines)));
    assert_eq!((found.run().end, found.run().messages.len()), (Some(End::Completed), 10_000));

    let state = format!(r#"STATE_SNAPSHOT {{"snapshot":"{}"}}"#, "x".repeat(300 << 10));
    let small = format!(r#"STATE_SNAPSHOT {{"snapshot":"{}"}}"#, "x".repeat(200 << 10));
    let states = [state.as_str(), small.as_str(), small.as_str()];
    let found = driven(&mut *Case::default().turn(), [Answer::stream(&whole_stream(&states))]);
    assert_eq!((end(&found.record).0, found.record.run().messages.len()), (Some(End::Completed), 2));
    assert_eq!(found.losses[0].to_string(), "protocol_event (it is too large to be kept)");
}

#[test]
fn long_ids_are_remembered_by_a_digest() {
    let id = "x".repeat(100_000);
    let start = format!(r#"TEXT_MESSAGE_START {{"messageId":"{id}","role":"assistant"}}"#);
    let delta = format!(r#"TEXT_MESSAGE_CONTENT {{"messageId":"{id}","delta":"a"}}"#);
    let end = format!(r#"TEXT_MESSAGE_END {{"messageId":"{id}"}}"#);
    let found = record(Answer::stream(&whole_stream(&[&start, &delta, &delta, &end])));
    let [message] = found.run().messages.as_slice() else { panic!("one message") };
    assert_eq!((message.text().as_str(), message.id.len()), ("aa", 19));
}

#[test]
fn no_request_follows_the_end() {
    let mut turn = Case::default().turn();
    let Ok(Next::Send(request)) = turn.next(0) else { panic!("a request") };
    assert_eq!(request.url, "http://agent/");
    let answer = Answer::stream(&whole_stream(EVENTS));
    let driven = driven(&mut *Case::default().turn(), [answer]);
    assert_eq!(driven.requests.len(), 1);
    assert_eq!(turn.next(0).expect("no fault"), Next::Finished);
    assert_eq!(turn.cancel(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any events in any order, with any of their fields left out, keep the grammar.
    #[test]
    fn shuffled_events_keep_the_grammar(places in prop::collection::vec(0..EVENTS.len(), 0..40), cut in any::<prop::sample::Index>()) {
        let events: Vec<&str> = places.iter().map(|place| EVENTS[*place]).collect();
        let whole = whole_stream(&events);
        let bytes = whole.as_bytes();
        let at = cut.index(bytes.len());
        let record = record(Answer::Stream(vec![bytes[..at].to_vec(), bytes[at..].to_vec()]));
        prop_assert_eq!(record.run().end, Some(End::Completed));
    }

    /// Bytes that are no stream at all end a run as failed.
    #[test]
    fn any_bytes_end_a_run(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for answer in [Answer::Stream(vec![bytes.clone()]), Answer::Body(bytes.clone())] {
            prop_assert_eq!(record(answer).run().end, Some(End::Failed));
        }
    }
}

#[test]
fn malformed_output_of_an_agent_does_not_panic() {
    let case = Case { protocol_events: false, ..Case::default() };
    let call = r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"f"}"#;
    let arguments = |text: &str| format!(r#"TOOL_CALL_ARGS {{"toolCallId":"c1","delta":{}}}"#, serde_json::json!(text));
    Hostile {
        open: &|| case.turn(),
        before: Vec::new(),
        whole: Answer::stream(&whole_stream(EVENTS)),
        unknown: Some(r#"{"type":"LATER","x":1}"#),
        huge: &|text| Answer::stream(&whole_stream(&[call, &arguments(text)])),
    }
    .check();
}

#[test]
fn an_output_does_not_wait_for_the_next_message() {
    for next in [
        r#"RAW {"event":{"event":"on_tool_end"}}"#,
        r#"STATE_SNAPSHOT {"snapshot":{"a":1}}"#,
        r#"STEP_FINISHED {"stepName":"tools"}"#,
        r#"CUSTOM {"name":"x","value":1}"#,
    ] {
        let events = [
            r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"f"}"#,
            r#"TOOL_CALL_ARGS {"toolCallId":"c1","delta":"{}"}"#,
            r#"TOOL_CALL_END {"toolCallId":"c1"}"#,
            r#"TOOL_CALL_RESULT {"toolCallId":"c1","messageId":"t1","content":"done"}"#,
            next,
        ];
        let mut turn = Case { options: r#"{"events":"all"}"#, ..Case::default() }.turn();
        let found = driven(&mut *turn, [Answer::Cut(vec![stream(&events).into_bytes()])]).record;
        let step = |wanted: &dyn Fn(&Event) -> bool| found.steps(0).position(|step| wanted(&step.event));
        let ended = step(&|event| matches!(event, Event::MessageFinished { message: 1 }));
        let after = step(&|event| matches!(event, Event::MessageStarted { message: 2 }));
        assert!(ended.zip(after).is_some_and(|(ended, after)| ended < after), "{next}");
    }
}
