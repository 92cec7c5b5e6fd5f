//! Limits of events that the model cannot express: an event beyond them is dropped and reported, and the run continues.

use interlingua_core::End;
use interlingua_core::agent_api::Frame;
use interlingua_core::model::MessageType;
use interlingua_core::normalize::Normalizer;
use interlingua_core::run::Record;
use interlingua_core_testkit::{grammar, render, started};

const KIB: usize = 1 << 10;
const TOO_LARGE: &str = "protocol_event (it is too large to be kept)";
const TOO_MANY: &str = "protocol_event (the run has too many of them)";

/// A datum of this length.
fn data(bytes: usize) -> String {
    let frame = r#"{"protocol":"p","event":""}"#.len();
    format!(r#"{{"protocol":"p","event":"{}"}}"#, "x".repeat(bytes - frame))
}

/// A message with an event of this size.
fn event(id: &str, bytes: usize) -> String {
    let data = data(bytes);
    format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"protocol_event","content":[{{"type":"data","data":{data}}}]}}"#
    )
}

/// The announcement of a message with an event.
fn announced(id: &str) -> String {
    format!(r#"{{"object":"message","status":"in_progress","id":"{id}","type":"protocol_event"}}"#)
}

/// The event itself, as a content.
fn content(id: &str, bytes: usize) -> String {
    let data = data(bytes);
    format!(r#"{{"object":"content","status":"completed","type":"data","index":0,"msg_id":"{id}","data":{data}}}"#)
}

fn text(id: &str) -> String {
    format!(
        r#"{{"object":"message","status":"completed","id":"{id}","type":"message","content":[{{"type":"text","text":"hello"}}]}}"#
    )
}

/// Reads a turn into a record of limited size. Returns the losses.
fn turn(record: &mut Record, limit: usize, lines: &[String]) -> Vec<String> {
    let mut normalizer = Normalizer::new(limit);
    let end = r#"{"object":"response","status":"completed","id":"r","output":[]}"#.to_owned();
    for line in lines.iter().chain([&end]) {
        let frame = Frame::parse(line.as_bytes()).expect("an object");
        normalizer.emit(record, &frame.event()).expect("within the limit");
    }
    assert_eq!(record.run().turn().and_then(|turn| turn.end), Some(End::Completed), "{}", render(record));
    normalizer.losses().iter().map(ToString::to_string).collect()
}

/// A run of one turn: how many events it has, and what was lost.
fn run(limit: usize, lines: &[String]) -> (usize, Vec<String>) {
    let mut record = started();
    let lost = turn(&mut record, limit, lines);
    let events = count(&record);
    record.finish_run(End::Completed);
    assert_eq!(grammar(&record), Ok(()), "{}", render(&record));
    (events, lost)
}

fn count(record: &Record) -> usize {
    let events = record.run().messages.iter().filter(|message| message.kind == MessageType::ProtocolEvent);
    events.filter(|message| message.end == Some(End::Completed)).count()
}

#[test]
fn an_event_that_is_too_large_is_dropped_in_any_chunks() {
    let (small, large) = (256 * KIB, 256 * KIB + 1);
    assert_eq!(run(64 << 20, &[event("a", small)]), (1, Vec::new()));
    for lines in [
        vec![event("a", large)],
        vec![announced("a"), content("a", large), event("a", large)],
        vec![announced("a"), event("a", large)],
        // The content comes before its message says what it is.
        vec![content("a", large), announced("a")],
        vec![content("a", large), event("a", large)],
    ] {
        let shown: Vec<&str> = lines.iter().map(|line| line.get(..80).unwrap_or(line)).collect();
        let lines: Vec<String> = lines.iter().cloned().chain([text("b"), event("c", small)]).collect();
        assert_eq!(run(64 << 20, &lines), (1, vec![TOO_LARGE.to_owned()]), "{shown:?}");
    }
}

#[test]
fn a_response_that_repeats_an_event_at_its_end_does_not_bring_it_back() {
    let mut record = started();
    let mut normalizer = Normalizer::new(64 << 20);
    let large = event("a", 300 * KIB);
    let end = format!(r#"{{"object":"response","status":"completed","id":"r","output":[{large},{}]}}"#, text("b"));
    for line in [&large, &end] {
        normalizer
            .emit(&mut record, &Frame::parse(line.as_bytes()).expect("an object").event())
            .expect("within the limit");
    }
    assert_eq!((count(&record), record.run().messages.len()), (0, 1));
    assert_eq!(normalizer.losses()[0].to_string(), TOO_LARGE, "it is one loss");
}

#[test]
fn together_they_have_a_quarter_of_the_run() {
    let many: Vec<String> = (0..40).map(|number| event(&format!("e{number}"), 10 * KIB)).chain([text("t")]).collect();
    assert_eq!(run(800 * KIB, &many), (20, vec![format!("{TOO_MANY} ×20")]));

    // A value that arrives in pieces is counted once.
    let pieces: Vec<String> = (0..20)
        .map(|number| format!("e{number}"))
        .flat_map(|id| [announced(&id), content(&id, 10 * KIB), event(&id, 10 * KIB)])
        .collect();
    assert_eq!(run(800 * KIB, &pieces), (20, Vec::new()));
}

#[test]
fn earlier_turns_of_the_run_count() {
    let mut record = started();
    let ten: Vec<String> = (0..10).map(|number| event(&format!("a{number}"), 10 * KIB)).collect();
    assert_eq!(turn(&mut record, 600 * KIB, &ten), Vec::<String>::new());
    record.start_turn(Vec::new());
    assert_eq!(turn(&mut record, 600 * KIB, &ten), [format!("{TOO_MANY} ×5")]);
    assert_eq!(count(&record), 15);
}

#[test]
fn texts_in_such_a_message_are_bounded_too() {
    let delta = |id: &str| {
        let text = "x".repeat(100 * KIB);
        format!(r#"{{"object":"content","type":"text","delta":true,"msg_id":"{id}","text":"{text}"}}"#)
    };
    let lines = [announced("a"), delta("a"), delta("a"), delta("a"), delta("a"), text("b")];
    assert_eq!(run(64 << 20, &lines), (0, vec![TOO_LARGE.to_owned()]));
}
