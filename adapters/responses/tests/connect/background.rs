//! Answers that the server works on alone: polled, streamed, taken up after a cut, and canceled.

use interlingua_core::capability::Cancel;
use interlingua_core::connector::{AgentTurn, Next};
use interlingua_core::fault::FaultKind;
use interlingua_core::{End, Fault};
use interlingua_core_testkit::Answer;

use crate::support::{body_of, connector, driven, refused, stream, summary, turn};

const POLL: &str = r#"{"background":"poll"}"#;
const STREAM: &str = r#"{"background":"stream"}"#;

fn response(status: &str, output: &str) -> Answer {
    Answer::body(&format!(r#"{{"id":"resp_1","object":"response","status":"{status}","output":[{output}]}}"#))
}

fn text(status: &str, text: &str) -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","status":"{status}","content":[{{"type":"output_text","text":"{text}"}}]}}"#
    )
}

fn gone() -> Fault {
    Fault::new(FaultKind::UpstreamUnreachable, "the agent cannot be reached")
}

#[test]
fn a_background_response_is_polled_to_its_end() {
    let mut turn = turn(POLL);
    let body = body_of(&mut *crate::support::turn(POLL));
    assert_eq!((&body["background"], &body["stream"], &body["store"]), (&true.into(), &false.into(), &true.into()));

    let answers = [
        response("queued", ""),
        response("in_progress", &text("in_progress", "Hel")),
        response("in_progress", &text("in_progress", "Hello the")),
        Answer::Fault(gone()),
        response("completed", &text("completed", "Hello there")),
    ];
    let driven = driven(&mut *turn, answers);
    let urls: Vec<String> =
        driven.requests.iter().map(|request| format!("{} {}", request.method, request.url)).collect();
    assert_eq!(urls[0], "POST http://agent/v1/responses");
    assert!(urls[1..].iter().all(|url| url == "GET http://agent/v1/responses/resp_1"), "{urls:?}");
    let waited = u64::try_from(driven.waited.as_millis()).expect("a short time");
    assert!((2000..10_000).contains(&waited), "{waited} ms for four pauses that grow");
    insta::assert_snapshot!(summary(&driven.record, &*turn), @r#"
    msg_1 assistant message completed
      text "Hello there"
    completed
    state {"response":"resp_1"}
    "#);
}

#[test]
fn a_server_that_does_not_know_the_background_has_answered() {
    for options in [POLL, STREAM] {
        let mut turn = turn(options);
        let driven = driven(&mut *turn, [response("completed", &text("completed", "Hi"))]);
        assert_eq!((driven.requests.len(), driven.record.run().end), (1, Some(End::Completed)));
    }
}

/// The events of an answer in the background.
const EVENTS: &[&str] = &[
    r#"created {"response":{"id":"resp_1","status":"queued"}}"#,
    r#"queued {"response":{"id":"resp_1","status":"queued"}}"#,
    r#"in_progress {"response":{"id":"resp_1","status":"in_progress"}}"#,
    r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant"}}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel"}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo "}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"there"}"#,
    r#"completed {"response":{"id":"resp_1","status":"completed","output":[]}}"#,
];

#[test]
fn a_stream_is_taken_up_after_the_last_event_wherever_it_is_cut() {
    let whole = stream(EVENTS);
    let frames: Vec<&str> = whole.split_inclusive("\n\n").collect();
    for at in 1..EVENTS.len() {
        let mut turn = turn(STREAM);
        let before = frames[..at].concat();
        // Some servers repeat the last events.
        let after = frames[at.saturating_sub(2)..].concat();
        let driven = driven(&mut *turn, [Answer::Cut(vec![before.into_bytes()]), Answer::stream(&after)]);
        let last = at - 1;
        let url = format!("http://agent/v1/responses/resp_1?stream=true&starting_after={last}");
        assert_eq!(driven.requests[1].url, url);
        assert_eq!(driven.record.run().messages[0].text(), "Hello there", "cut after {at}");
        assert_eq!(driven.record.run().end, Some(End::Completed));
    }
}

#[test]
fn a_stream_that_ends_too_early_is_taken_up_too() {
    let mut turn = turn(STREAM);
    let driven = driven(&mut *turn, [Answer::stream(&stream(&EVENTS[..5])), Answer::stream(&stream(EVENTS))]);
    assert_eq!(driven.record.run().messages[0].text(), "Hello there");
}

#[test]
fn a_stream_that_cannot_resume_is_polled() {
    let mut turn = turn(STREAM);
    assert!(turn.next(0).is_ok());
    let refusal = refused(&*turn, 400, b"{\"error\":{\"message\":\"not kept\"}}");
    let mut turn = crate::support::turn(STREAM);
    let answers = [
        Answer::Cut(vec![stream(&EVENTS[..5]).into_bytes()]),
        Answer::Fault(refusal),
        response("in_progress", &text("in_progress", "Hello")),
        response("completed", &text("completed", "Hello there")),
    ];
    let driven = driven(&mut *turn, answers);
    assert_eq!(driven.requests[3].url, "http://agent/v1/responses/resp_1");
    assert_eq!(driven.record.run().messages[0].text(), "Hello there");
    assert_eq!(driven.record.run().messages.len(), 1);
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let mut turn = turn(STREAM);
    let mut answers = vec![Answer::Cut(vec![stream(&EVENTS[..5]).into_bytes()])];
    answers.extend((0..20).map(|_| Answer::Fault(gone())));
    let driven = driven(&mut *turn, answers);
    assert!(driven.requests.len() <= 12, "{}", driven.requests.len());
    assert_eq!(driven.record.run().end, Some(End::Failed));
    assert_eq!(driven.record.run().messages[0].text(), "Hel");
}

#[test]
fn a_server_that_never_says_how_far_it_is_is_given_up() {
    for vain in [Answer::stream(""), Answer::stream(&stream(&EVENTS[4..5])), Answer::stream(": ping\n\n")] {
        let mut turn = turn(STREAM);
        let mut answers = vec![Answer::Cut(vec![stream(&EVENTS[..5]).into_bytes()])];
        answers.extend((0..40).map(|_| vain.clone()));
        let driven = driven(&mut *turn, answers);
        assert!(driven.requests.len() < 30, "{}", driven.requests.len());
        assert_eq!(driven.record.run().turns[0].error.as_ref().expect("an error").code, "UPSTREAM_TRUNCATED");
    }
}

#[test]
fn an_answer_that_the_server_has_forgotten_is_truncated() {
    let mut turn = turn(POLL);
    assert!(turn.next(0).is_ok());
    let missing = refused(&*turn, 404, b"{\"error\":{\"message\":\"Response with id 'resp_1' not found.\"}}");
    let mut turn = crate::support::turn(POLL);
    let driven = driven(&mut *turn, [response("queued", ""), Answer::Fault(missing)]);
    assert_eq!(driven.record.run().turns[0].error.as_ref().expect("an error").code, "UPSTREAM_TRUNCATED");
}

#[test]
fn a_cut_without_the_background_is_the_end() {
    let mut turn = turn("{}");
    let driven = driven(&mut *turn, [Answer::Cut(vec![stream(&EVENTS[..5]).into_bytes()])]);
    assert_eq!((driven.requests.len(), driven.record.run().end), (1, Some(End::Failed)));
    assert_eq!(driven.record.run().messages[0].text(), "Hel");
}

/// Reads frames of a stream, as the gateway does while a cancel waits.
fn feed(turn: &mut dyn AgentTurn, events: &[&str]) {
    let mut sink = interlingua_core_testkit::Recorder::new(Vec::new());
    let text = stream(events);
    let mut decoder = interlingua_core::sse::Decoder::new(1 << 20);
    let mut input = text.as_bytes();
    while let Some(frame) = decoder.decode(&mut input).expect("a frame") {
        turn.on_frame(frame, &mut sink).expect("it is read");
    }
}

#[test]
fn an_answer_in_the_background_is_canceled_by_its_id() {
    let mut turn = turn(STREAM);
    assert!(turn.next(0).is_ok());
    assert!(turn.cancels_once_known() && turn.cancel().is_none());
    feed(&mut *turn, &EVENTS[..1]);
    assert!(!turn.cancels_once_known());
    let request = turn.cancel().expect("a request");
    assert_eq!((request.method, request.url.as_str()), ("POST", "http://agent/v1/responses/resp_1/cancel"));

    assert_eq!(turn.cancel_refused(200, b"{}"), None);
    assert!(turn.cancel_refused(501, b"nope").expect("a reason").contains("501"));
    let reason = turn.cancel_refused(400, br#"{"error":{"message":"It has ended."}}"#);
    assert!(reason.expect("a reason").contains("It has ended."));

    feed(&mut *turn, &[r#"completed {"response":{"id":"resp_1","status":"completed"}}"#]);
    assert!(turn.cancel().is_none(), "it has ended");

    // In the foreground, closing the connection stops it.
    let mut turn = crate::support::turn("{}");
    assert!(matches!(turn.next(0), Ok(Next::Send(_))));
    feed(&mut *turn, &EVENTS[..1]);
    assert!(turn.cancel().is_none() && !turn.cancels_once_known());
}

#[test]
fn capabilities_follow_from_the_background() {
    let of = |options: &str| {
        let found = connector(options).capabilities();
        (found.streaming, found.cancel, found.resume)
    };
    assert_eq!(of("{}"), (true, Cancel::CloseConnection, false));
    assert_eq!(of(POLL), (false, Cancel::Request, true));
    assert_eq!(of(STREAM), (true, Cancel::Request, true));
}
