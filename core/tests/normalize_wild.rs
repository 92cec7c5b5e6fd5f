//! Properties of the normalizer. For any frames: the record follows the grammar, every fragment is emitted once, and a
//! step never changes. For upstreams that deviate as real ones do: exactly the intended conversation is emitted.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::agent_api::Frame;
use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::call::{Call, Reply};
use interlingua_core::exchange::{Exchange, Flow, Next, Request};
use interlingua_core::model::{ContentType, Message};
use interlingua_core::run::Record;
use interlingua_core::{End, Event, Fault, Json, Out, Step};
use interlingua_core_testkit::{
    Recorder, Script, grammar, laws, record as recorded, render, script, scripts, started, wild,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

fn follows_grammar(record: &Record) -> Result<(), TestCaseError> {
    grammar(record).map_err(|broken| TestCaseError::fail(format!("{broken}\n{}", render(record))))
}

/// Writes everything that an encoder may use of a step, and nothing else ([`interlingua_core::event`]).
struct StableParts;

impl Exchange for StableParts {
    fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Ok(Next::Done)
    }

    fn fail(&mut self, _: &Fault, _: &mut Out) {}

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let mut line = format!("{} {} {:?} {:?} ", step.sequence, step.at, step.event, step.delta());
        if let Some((_, message)) = step.message() {
            let _ = write!(line, "{} {} {} ", message.id, message.announced, message.role);
            let _ = write!(line, "{:?} ", message.announced_metadata);
            if let Event::MessageFinished { .. } = step.event {
                let _ = write!(line, "{:?} ", message.to_model());
            }
        }

        if let Some((_, slot)) = step.slot() {
            let _ = write!(line, "{} {:?} ", slot.kind, slot.call);
            if let Event::ContentFinished { .. } = step.event {
                let _ = write!(line, "{} {:?} ", slot.text(), slot.content());
            }
        }
        if let Event::TurnFinished { turn, .. } = step.event {
            let turn = &step.run.turns[turn as usize];
            let _ = write!(line, "{:?} {:?} {:?} {:?} ", turn.error, turn.usage, turn.upstream_id, turn.ended_at);
        }
        out.frame(None, &line);
        if matches!(step.event, Event::RunFinished { .. }) { Flow::Close } else { Flow::More }
    }
}

fn script_of(frames: Vec<String>) -> Script {
    let frames = frames.into_iter().filter(|frame| Frame::parse(frame.as_bytes()).is_some());
    Script { name: "wild", frames: frames.map(Cow::Owned).collect(), ..script("greeting") }
}

/// The tokens of the text fragments that had an effect, with their content types.
fn emitted_tokens(frames: &[String]) -> Vec<(String, String)> {
    let mut recorder = Recorder::new(vec![Message::user("hi")]);
    let mut tokens = Vec::new();

    for frame in frames {
        let event = Frame::parse(frame.as_bytes()).expect("an object").event();
        let ignored = recorder.ignored();
        recorder.emit(&event);

        let AgentEvent::Content(content) = &event else { continue };
        if matches!(content.value, ContentValue::Text(_) | ContentValue::Refusal(_)) && recorder.ignored() == ignored {
            tokens.push((content.content_type().to_string(), content.as_text().to_owned()));
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evicting_events_changes_no_record(frames in wild::frames(), every in 1_usize..6) {
        let mut whole = Recorder::new(vec![Message::user("hi")]);
        let mut evicted = Recorder::new(vec![Message::user("hi")]);
        for (number, frame) in frames.iter().enumerate() {
            let Some(frame) = Frame::parse(frame.as_bytes()) else { continue };
            whole.emit(&frame.clone().event());
            evicted.emit(&frame.event());
            if number % every == 0 {
                evicted.evict();
            }
        }

        let (whole, mut evicted) = (whole.finish(), evicted.finish());
        prop_assert_eq!((evicted.len(), evicted.size()), (whole.len(), whole.size()));
        prop_assert!(evicted.restore(&whole));
        prop_assert_eq!(render(&evicted), render(&whole));
        prop_assert_eq!(evicted, whole);
    }

    #[test]
    fn every_record_follows_the_grammar(frames in wild::frames()) {
        follows_grammar(&wild::record(&frames))?;
    }

    #[test]
    fn a_step_never_changes(frames in wild::frames()) {
        laws::replay_equals_live(|| Box::new(StableParts), &script_of(frames));
    }

    #[test]
    fn every_fragment_is_emitted_once_and_in_order(frames in wild::fragments()) {
        let record = wild::record(&frames);
        follows_grammar(&record)?;

        let received = emitted_tokens(&frames);
        let emitted: String = record.steps(0).map(|step| step.delta().to_owned()).collect();
        for (_, token) in &received {
            prop_assert_eq!(emitted.matches(token.as_str()).count(), 1, "{} in\n{}", token, render(&record));
        }

        // The fragments of one message and type stay in order: their tokens are ascending.
        for message in &record.run().messages {
            for kind in [ContentType::Text, ContentType::Refusal] {
                let slots = message.slots.iter().filter(|slot| slot.kind == kind);
                let text: String = slots.map(|slot| slot.text()).collect();
                let numbers: Vec<u32> = text
                    .split(['⟨', '⟩'])
                    .filter(|number| !number.is_empty())
                    .map(|number| number.parse().expect("a token"))
                    .collect();
                let within_one_slot = frames.iter().all(|frame| !frame.contains("\"index\":1") && !frame.contains("\"index\":2"));
                prop_assert!(!within_one_slot || numbers.is_sorted(), "{:?} in\n{}", numbers, render(&record));
            }
        }
    }

    #[test]
    fn a_record_that_reaches_its_limit_ends_well_formed(frames in wild::frames(), limit in 0_usize..20_000) {
        let mut recorder = Recorder::with_limit(started(), limit);
        let mut refused = false;
        for frame in &frames {
            if let Some(frame) = Frame::parse(frame.as_bytes()) {
                refused |= recorder.try_emit(&frame.event()).is_err();
            }
        }

        let record = recorder.finish();
        follows_grammar(&record)?;
        prop_assert!(!refused || record.run().end == Some(End::Failed));
    }

    #[test]
    fn a_second_turn_is_as_well_formed_as_the_first(first in wild::frames(), second in wild::frames()) {
        let mut record = started();
        for frames in [first, second] {
            if !record.in_turn() {
                record.start_turn(Vec::new());
            }
            let mut normalizer = interlingua_core::normalize::Normalizer::new(1 << 20);
            for frame in &frames {
                if let Some(frame) = Frame::parse(frame.as_bytes()) {
                    normalizer.emit(&mut record, &frame.event()).expect("within the limit");
                }
            }
            normalizer.end_of_body(&mut record);
        }

        record.close(End::Completed, None);
        follows_grammar(&record)?;
    }

    #[test]
    fn corrupt_bytes_follow_the_grammar_however_they_are_split(
        which in any::<proptest::sample::Index>(),
        from in any::<proptest::sample::Index>(),
        garbage in prop::collection::vec(any::<u8>(), 0..12),
        seed in any::<u64>(),
    ) {
        let scripts: Vec<Script> = scripts().into_iter().filter(|script| !script.is_large()).collect();
        let mut bytes = scripts[which.index(scripts.len())].bytes();
        let from = from.index(bytes.len());
        let to = (from + garbage.len() / 2).min(bytes.len());
        bytes.splice(from..to, garbage);

        let record = recorded([bytes.as_slice()]);
        follows_grammar(&record)?;
        prop_assert_eq!(recorded(laws::random_pieces(&bytes, seed)), record);
    }

    #[test]
    fn the_intended_conversation_of_a_deviating_upstream_is_emitted(intended in conversation()) {
        let frames = intended.frames();
        let record = wild::record(&frames);
        follows_grammar(&record)?;

        let emitted: Vec<(String, Vec<Value>)> = intended.messages.iter().map(|message| {
            // The next message closes a message that ends with media; later contents go to a message with another id.
            let emitted = record.run().messages.iter().filter(|emitted| emitted.id.split('_').next() == Some(&message.id));
            let slots = emitted.flat_map(|emitted| &emitted.slots);
            // A content without an end is emitted when its message ends, after the contents emitted before that.
            (message.id.clone(), sorted(slots.map(|slot| read(&Json::from_serialize(&slot.content())))))
        }).collect();
        let expected: Vec<(String, Vec<Value>)> = intended.messages.iter().map(|message| {
            (message.id.clone(), sorted(message.contents.iter().map(IntendedContent::complete)))
        }).collect();
        prop_assert_eq!(emitted, expected, "{}\n{}", frames.join("\n"), render(&record));

        let own = record.run().messages.iter().filter(|emitted| !emitted.id.contains('_')).count();
        prop_assert_eq!(own, intended.messages.len(), "{}\n{}", frames.join("\n"), render(&record));
        for message in intended.messages.iter().filter(|message| message.sends_its_kind()) {
            let emitted = record.run().messages.iter().find(|emitted| emitted.id == message.id).expect("it was emitted");
            prop_assert_eq!(emitted.kind.as_str(), message.kind);
        }
    }
}

fn sorted(contents: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut contents: Vec<Value> = contents.collect();
    contents.sort_by_key(Value::to_string);
    contents
}

fn read(json: &Json) -> Value {
    json.decode().expect("JSON")
}

/// An intended conversation, and how the upstream deviates from it.
#[derive(Clone, Debug)]
struct Conversation {
    messages: Vec<IntendedMessage>,
    /// The seed for interleaving the frames of the messages.
    interleaving: u64,
    /// The final response has an output, with the messages that are `in_output`.
    output: bool,
}

#[derive(Clone, Debug)]
struct IntendedMessage {
    id: String,
    kind: &'static str,
    contents: Vec<IntendedContent>,
    announced: bool,
    /// The form of the message's end. `None`: no end is sent.
    closed: Option<Closing>,
    in_output: bool,
    /// The output has the message under another id.
    renamed: bool,
    /// The frames of contents have no index.
    indexless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// Without contents.
    Empty,
    /// With contents.
    Full,
    /// With contents and their indexes.
    Indexed,
}

#[derive(Clone, Debug)]
struct IntendedContent {
    value: IntendedValue,
    streamed: StreamedMessage,
    /// The end of the content is sent.
    completed: bool,
}

#[derive(Clone, Debug)]
enum IntendedValue {
    Text(Vec<String>),
    Refusal(Vec<String>),
    Image(String),
    Data(Value),
    Call { id: String, arguments: Vec<String> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamedMessage {
    Fragments,
    Snapshots,
    Not,
}

impl IntendedContent {
    /// The complete content.
    fn complete(&self) -> Value {
        match &self.value {
            IntendedValue::Text(pieces) => json!({ "type": "text", "text": pieces.concat() }),
            IntendedValue::Refusal(pieces) => json!({ "type": "refusal", "refusal": pieces.concat() }),
            IntendedValue::Image(url) => json!({ "type": "image", "image_url": url }),
            IntendedValue::Data(data) => json!({ "type": "data", "data": data }),
            IntendedValue::Call { id, arguments } => {
                json!({ "type": "data", "data": { "call_id": id, "name": "f", "arguments": arguments.concat() } })
            }
        }
    }

    /// The frames without their envelopes: true for a fragment, and the content.
    fn frames(&self) -> Vec<(bool, Value)> {
        let texts = |pieces: &[String], kind: &str| match self.streamed {
            StreamedMessage::Fragments => {
                pieces.iter().map(|piece| (true, json!({ "type": kind, kind: piece }))).collect()
            }
            StreamedMessage::Snapshots => {
                let ends = 1..=pieces.len();
                ends.map(|end| (false, json!({ "type": kind, kind: pieces[..end].concat() }))).collect()
            }
            StreamedMessage::Not => Vec::new(),
        };
        let call = |id: &str, arguments: &str| json!({ "type": "data", "data": { "call_id": id, "name": "f", "arguments": arguments } });
        match &self.value {
            IntendedValue::Text(pieces) => texts(pieces, "text"),
            IntendedValue::Refusal(pieces) => texts(pieces, "refusal"),
            IntendedValue::Call { id, arguments } => match self.streamed {
                StreamedMessage::Fragments => arguments.iter().map(|piece| (true, call(id, piece))).collect(),
                // Some runtimes send the arguments parsed so far, closed: not a prefix of the next snapshot.
                StreamedMessage::Snapshots => {
                    let partly = [String::new(), "{}".to_owned(), format!("{}}}", arguments[0]), arguments.concat()];
                    partly.iter().map(|arguments| (false, call(id, arguments))).collect()
                }
                StreamedMessage::Not => Vec::new(),
            },
            IntendedValue::Image(_) | IntendedValue::Data(_) => match self.streamed {
                StreamedMessage::Fragments => vec![(true, self.complete())],
                StreamedMessage::Snapshots => vec![(false, self.complete()), (false, self.complete())],
                StreamedMessage::Not => Vec::new(),
            },
        }
    }
}

impl IntendedMessage {
    fn sends_its_kind(&self) -> bool {
        self.announced || self.closed.is_some()
    }

    fn model(&self, id: &str, indexed: bool, with_contents: bool) -> Value {
        let contents = self.contents.iter().enumerate().map(|(index, content)| {
            let mut content = content.complete();
            content["index"] = if indexed { json!(index) } else { Value::Null };
            content
        });
        let contents = if with_contents { contents.collect() } else { Value::Null };
        json!({ "object": "message", "status": "completed", "id": id, "type": self.kind, "content": contents })
    }

    fn frames(&self) -> Vec<Value> {
        let mut frames = Vec::new();
        if self.announced {
            frames.push(json!({ "object": "message", "status": "in_progress", "id": self.id, "type": self.kind }));
        }

        for (index, content) in self.contents.iter().enumerate() {
            let index = if self.indexless { Value::Null } else { json!(index) };
            let envelope = |mut frame: Value, status: &str, delta: Value| {
                frame["object"] = json!("content");
                frame["status"] = json!(status);
                frame["delta"] = delta;
                frame["msg_id"] = json!(self.id);
                frame["index"] = index.clone();
                frame
            };
            for (delta, frame) in content.frames() {
                frames.push(envelope(frame, "in_progress", json!(delta)));
            }
            if content.completed {
                frames.push(envelope(content.complete(), "completed", Value::Null));
            }
        }

        if let Some(closing) = self.closed {
            frames.push(self.model(&self.id, closing == Closing::Indexed, closing != Closing::Empty));
        }
        frames
    }
}

impl Conversation {
    fn frames(&self) -> Vec<String> {
        let mut rows: Vec<std::collections::VecDeque<Value>> =
            self.messages.iter().map(|message| message.frames().into()).collect();
        let mut frames = vec![json!({ "object": "response", "status": "created", "id": "r" })];
        let mut bits = self.interleaving;

        while rows.iter().any(|row| !row.is_empty()) {
            bits = bits.rotate_right(3).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
            let waiting: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row].is_empty()).collect();
            // A third of the cases send one message after the other, as most upstreams do.
            let row = if self.interleaving.is_multiple_of(3) {
                waiting[0]
            } else {
                waiting[(bits >> 40) as usize % waiting.len()]
            };
            frames.extend(rows[row].pop_front());
        }

        let output: Vec<Value> = self
            .messages
            .iter()
            .filter(|message| self.output && message.in_output)
            .map(|message| {
                let id = if message.renamed { format!("final_{}", message.id) } else { message.id.clone() };
                message.model(&id, false, true)
            })
            .collect();
        frames.push(json!({ "object": "response", "status": "completed", "id": "r", "output": output }));
        frames.iter().map(Value::to_string).collect()
    }
}

fn conversation() -> impl Strategy<Value = Conversation> {
    let messages = prop::collection::vec(message(), 0..5);
    (messages, any::<u64>(), any::<bool>()).prop_map(|(mut messages, interleaving, output)| {
        for (number, message) in messages.iter_mut().enumerate() {
            message.id = format!("m{number}");
            // Every content must be sent somewhere: at least as a completed content.
            for (index, content) in message.contents.iter_mut().enumerate() {
                make_unique(content, number, index);
                let closed = matches!(message.closed, Some(Closing::Full | Closing::Indexed));
                if content.streamed == StreamedMessage::Not && !content.completed && !closed {
                    content.completed = true;
                }
            }
            if message.contents.is_empty() {
                message.announced = true;
                message.closed = Some(Closing::Empty);
                message.renamed = false;
            }
        }
        Conversation { messages, interleaving, output }
    })
}

/// Makes the value of a content unique, so that no two contents are equal by chance.
fn make_unique(content: &mut IntendedContent, message: usize, index: usize) {
    match &mut content.value {
        IntendedValue::Text(pieces) | IntendedValue::Refusal(pieces) => {
            pieces[0] = format!("{message}.{index}:{}", pieces[0])
        }
        IntendedValue::Image(url) => *url = format!("https://example.com/{message}/{index}"),
        IntendedValue::Data(data) => data["at"] = json!([message, index]),
        IntendedValue::Call { id, .. } => *id = format!("call_{message}_{index}"),
    }
}

fn message() -> impl Strategy<Value = IntendedMessage> {
    let closed = select(vec![None, Some(Closing::Empty), Some(Closing::Full), Some(Closing::Indexed)]);
    let calls = prop::collection::vec(call(), 1..3);
    let contents = prop::collection::vec(content(), 0..4);
    let parts = prop_oneof![
        3 => (select(vec!["message", "reasoning"]), contents),
        1 => (select(vec!["function_call", "plugin_call", "mcp_call"]), calls),
    ];
    (parts, any::<(bool, bool, bool, bool)>(), closed).prop_map(
        |((kind, contents), (announced, in_output, renamed, indexless), closed)| {
            let is_call = kind.ends_with("call");
            let kinds: std::collections::HashSet<_> =
                contents.iter().map(|content| std::mem::discriminant(&content.value)).collect();
            // A content without an index belongs to the last one (docs/protocols/agent-api.md#repair-5): the index can
            // be left out only if that is unambiguous.
            let unambiguous = kinds.len() == contents.len()
                && contents.iter().all(|content| {
                    matches!(content.value, IntendedValue::Text(_) | IntendedValue::Refusal(_)) || content.completed
                });
            IntendedMessage {
                id: String::new(),
                kind,
                // A call that is not announced is recognized by its data.
                announced: announced || is_call,
                closed,
                in_output,
                renamed: renamed && closed.is_some(),
                indexless: indexless && unambiguous,
                contents,
            }
        },
    )
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(select(vec!["a", "b ", "é", "👩‍👧", "\n", "a"]), 1..5)
        .prop_map(|pieces| pieces.into_iter().map(str::to_owned).collect())
}

fn content() -> impl Strategy<Value = IntendedContent> {
    let value = prop_oneof![
        4 => pieces().prop_map(IntendedValue::Text),
        1 => pieces().prop_map(IntendedValue::Refusal),
        1 => Just(IntendedValue::Image(String::new())),
        1 => Just(IntendedValue::Data(json!({ "rows": [1], "note": "a" }))),
    ];
    (value, streamed(), any::<bool>()).prop_map(|(value, streamed, completed)| IntendedContent {
        value,
        streamed,
        completed,
    })
}

fn call() -> impl Strategy<Value = IntendedContent> {
    let arguments = select(vec![vec!["{\"a\":", "1", "}"], vec!["{\"a\": \"x\"", "}"]]);
    (arguments, streamed(), any::<bool>()).prop_map(|(arguments, streamed, completed)| IntendedContent {
        value: IntendedValue::Call { id: String::new(), arguments: arguments.into_iter().map(str::to_owned).collect() },
        streamed,
        completed,
    })
}

fn streamed() -> impl Strategy<Value = StreamedMessage> {
    select(vec![
        StreamedMessage::Fragments,
        StreamedMessage::Fragments,
        StreamedMessage::Snapshots,
        StreamedMessage::Not,
    ])
}
