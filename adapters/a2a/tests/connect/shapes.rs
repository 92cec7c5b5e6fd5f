//! Pieces of text that are read by the shape of their frame become the same events as those that are parsed.
//!
//! Each stream is read twice: as it is, and with a number in every frame, so that no two frames have one shape.

use interlingua_core::connector::{AgentTurn, HttpRequest, Next};
use interlingua_core::model::Message;
use interlingua_core::sse::Frame;
use interlingua_core::{Fault, FaultKind};
use interlingua_core_testkit::{Answer, EventTexts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::agent::{ALL, Dialect, Session, artifact, fixed, request, status, status_with, submitted, task, text};

/// Texts as JSON writes them. The last two are invalid.
const TEXTS: [&str; 12] = [
    " token",
    "x",
    "",
    "say \\\"yes\\\"",
    "\\n",
    "a\\/b \\u4f60",
    "\\ud83d\\udc40",
    "你好 👀",
    "$TEXT",
    "\\\\",
    "\\ud83d",
    "x\",\"text\":\"y",
];

/// Where the text of a frame goes.
const TEXT: &str = "$TEXT";

/// More requests than any turn of this test sends.
const MAX_REQUESTS: usize = 20;

/// A frame: an item with placeholders for texts, and the number of the call that it answers.
#[derive(Clone, Debug)]
struct Piece {
    item: Item,
    text: &'static str,
    /// Answers the call before this one.
    is_late: bool,
}

#[derive(Clone, Debug)]
enum Item {
    Json(Value),
    /// Data that are no item.
    Raw(&'static str),
    /// An item whose frame is an event of this name.
    Named(&'static str, Value),
}

/// The same artifact of another task, or of another context.
fn from(task: Option<&str>, context: &str) -> Value {
    let mut item = text("a", TEXT, true);
    let update = &mut item["artifactUpdate"];
    update["contextId"] = json!(context);
    match task {
        Some(task) => update["taskId"] = json!(task),
        None => drop(update.as_object_mut().and_then(|fields| fields.remove("taskId"))),
    }
    item
}

/// Items with an effect on what an appended text means.
fn others() -> Vec<Item> {
    let plain = json!([{ "text": TEXT }]);
    let two = json!([{ "text": TEXT }, { "text": "end" }]);
    let marked = json!([{ "text": TEXT, "metadata": { "thought": true } }]);
    let data = json!([{ "data": { "n": 1 } }]);
    let snapshot = |parts: &Value| json!({ "task": task("WORKING", &json!([{ "artifactId": "a", "parts": parts }])) });
    let mut all: Vec<Item> = [
        artifact("a", &plain, true, true),
        artifact("b", &plain, true, true),
        artifact("a", &two, true, false),
        artifact("a", &marked, true, false),
        artifact("a", &data, true, false),
        artifact("a", &two, false, false),
        from(Some("U"), "C"),
        from(None, "C"),
        from(Some("T"), "D"),
        text("\u{1}", TEXT, true),
        snapshot(&plain),
        snapshot(&two),
        snapshot(&json!([{ "text": " token token" }])),
        submitted(),
        status("WORKING"),
        status_with("WORKING", "m", &plain),
        status_with("INPUT_REQUIRED", "q", &plain),
        status_with("COMPLETED", "m", &plain),
        status("FAILED"),
        json!({ "weatherUpdate": { "sky": TEXT } }),
    ]
    .into_iter()
    .map(Item::Json)
    .collect();
    all.extend(["", " ", "{", "[DONE]", r#"{"error":{"code":-32603,"message":"$TEXT"}}"#].map(Item::Raw));
    all.extend(["error", "message"].map(|name| Item::Named(name, text("a", TEXT, true))));
    all
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let append = select(vec!["a", "a", "a", "b"]).prop_map(|id| Item::Json(text(id, TEXT, true)));
    let begin = select(vec!["a", "b"]).prop_map(|id| Item::Json(text(id, TEXT, false)));
    let item = prop_oneof![12 => append, 3 => begin, 3 => select(others())];
    // The last two end the turn.
    let text = prop_oneof![30 => select(&TEXTS[..10]), 1 => select(&TEXTS[10..])];
    let is_late = prop::bool::weighted(0.01);
    vec((item, text, is_late).prop_map(|(item, text, is_late)| Piece { item, text, is_late }), 0..24)
}

impl Piece {
    /// The data of its frame. `number` makes it unlike all others.
    fn data(&self, dialect: Dialect, call: u64, number: Option<usize>) -> String {
        let call = if self.is_late { call.saturating_sub(1) } else { call };
        let data = match &self.item {
            Item::Json(item) | Item::Named(_, item) => dialect.result(call, item).to_string(),
            Item::Raw(data) => (*data).to_owned(),
        };
        let data = data.replace(TEXT, self.text);
        match (number, data.strip_prefix("{\"")) {
            (Some(number), Some(rest)) => format!("{{\"frame\":{number},\"{rest}"),
            _ => data,
        }
    }

    const fn event(&self) -> Option<&'static str> {
        match self.item {
            Item::Named(name, _) => Some(name),
            _ => None,
        }
    }
}

/// Everything a turn does.
#[derive(Debug, Default, PartialEq)]
struct TurnTrace {
    events: EventTexts,
    requests: Vec<(String, Vec<u8>)>,
    fault: Option<(FaultKind, String)>,
    losses: String,
    state: Option<String>,
}

/// Reads streams one after the other, each cut at its end, and then the whole task.
fn seen(dialect: Dialect, streams: &[Vec<Piece>], is_numbered: bool) -> TurnTrace {
    let mut seen = TurnTrace::default();
    let session = Session::new(&fixed(dialect));
    let mut turn = session.turn(&request(vec![Message::user("hi")]), &[]);
    let result = turn_through(turn.as_mut(), dialect, streams, is_numbered, &mut seen);
    seen.fault = result.err().map(|fault| (fault.kind, fault.message.to_string()));
    seen.losses = format!("{:?}", turn.losses());
    seen.state = turn.session_state().map(|state| state.text().to_owned());
    seen
}

fn turn_through(
    turn: &mut dyn AgentTurn,
    dialect: Dialect,
    streams: &[Vec<Piece>],
    is_numbered: bool,
    seen: &mut TurnTrace,
) -> Result<(), Fault> {
    let (mut streams, mut number) = (streams.iter(), 0);
    while seen.requests.len() < MAX_REQUESTS {
        let sent = match turn.next(seen.requests.len() as u64)? {
            Next::Send(sent) => sent,
            Next::Wait(_) => continue,
            _ => break,
        };
        let is_stream = is_stream(&sent);
        seen.requests.push((sent.url, sent.body));
        let call = seen.requests.len() as u64;
        if !is_stream {
            let over = json!([{ "artifactId": "a", "parts": [{ "text": "x x" }] }]);
            let Answer::Body(body) = dialect.task(call, &task("COMPLETED", &over)) else { break };
            turn.on_body(&body, &mut seen.events)?;
            turn.on_end(&mut seen.events)?;
            continue;
        }
        for piece in streams.next().into_iter().flatten() {
            number += 1;
            let data = piece.data(dialect, call, is_numbered.then_some(number));
            let frame = Frame { event: piece.event(), data: data.as_bytes(), ..Frame::default() };
            turn.on_frame(frame, &mut seen.events)?;
        }
        turn.on_end(&mut seen.events)?;
    }
    Ok(())
}

fn is_stream(sent: &HttpRequest) -> bool {
    sent.headers.iter().any(|(name, value)| name == "accept" && value.contains("event-stream"))
}

proptest! {
    #[test]
    fn a_shape_changes_no_event(streams in vec(pieces(), 1..4)) {
        // A stream whose first item is no task ends in many ways at once.
        let begun = Piece { item: Item::Json(submitted()), text: "x", is_late: false };
        let streams: Vec<Vec<Piece>> = streams
            .into_iter()
            .map(|pieces| std::iter::once(begun.clone()).chain(pieces).collect())
            .collect();

        for dialect in ALL {
            prop_assert_eq!(seen(dialect, &streams, false), seen(dialect, &streams, true), "{:?}", dialect);
        }
    }
}
