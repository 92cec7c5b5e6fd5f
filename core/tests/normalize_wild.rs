//! Upstreams nobody specified: whatever is heard, the grammar holds, every fragment is told once, and what a step tells
//! never changes. And upstreams that deviate as real ones do: what they mean is what is told, nothing more or less.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::agent_api::Frame;
use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::call::{Call, Reply};
use interlingua_core::exchange::{Exchange, Flow, Next, Request};
use interlingua_core::model::{ContentType, Message};
use interlingua_core::run::Record;
use interlingua_core::testkit::{
    Recorder, Script, begun, grammar, laws, record as recorded, script, scripts, tale, wild,
};
use interlingua_core::{End, Event, Fault, Json, Out, Step};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

fn lawful(record: &Record) -> Result<(), TestCaseError> {
    grammar(record).map_err(|broken| TestCaseError::fail(format!("{broken}\n{}", tale(record))))
}

/// Everything an encoder may use of a step, and nothing else ([`interlingua_core::event`]).
struct Stable;

impl Exchange for Stable {
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

/// Tokens of fragments that a message under way took in, by message and type.
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
    fn whatever_is_heard_the_grammar_holds(frames in wild::frames()) {
        lawful(&wild::record(&frames))?;
    }

    #[test]
    fn what_a_step_tells_never_changes(frames in wild::frames()) {
        laws::replay_equals_live(|| Box::new(Stable), &script_of(frames));
    }

    #[test]
    fn every_fragment_is_told_once_and_in_order(frames in wild::fragments()) {
        let record = wild::record(&frames);
        lawful(&record)?;
        let heard = emitted_tokens(&frames);
        let told: String = record.steps(0).map(|step| step.delta().to_owned()).collect();
        for (_, token) in &heard {
            prop_assert_eq!(told.matches(token.as_str()).count(), 1, "{} in\n{}", token, tale(&record));
        }
        // Of one message and type they stay in order: tokens are counted up.
        for message in &record.run().messages {
            for kind in [ContentType::Text, ContentType::Refusal] {
                let slots = message.slots.iter().filter(|slot| slot.kind == kind);
                let text: String = slots.map(|slot| slot.text()).collect();
                let numbers: Vec<u32> = text
                    .split(['⟨', '⟩'])
                    .filter(|number| !number.is_empty())
                    .map(|number| number.parse().expect("a token"))
                    .collect();
                let within_one_place = frames.iter().all(|frame| !frame.contains("\"index\":1") && !frame.contains("\"index\":2"));
                prop_assert!(!within_one_place || numbers.is_sorted(), "{:?} in\n{}", numbers, tale(&record));
            }
        }
    }

    #[test]
    fn a_record_that_may_not_grow_ends_well_formed(frames in wild::frames(), limit in 0_usize..20_000) {
        let mut recorder = Recorder::of(begun(), limit);
        let mut refused = false;
        for frame in &frames {
            if let Some(frame) = Frame::parse(frame.as_bytes()) {
                refused |= recorder.try_emit(&frame.event()).is_err();
            }
        }
        let record = recorder.finish();
        lawful(&record)?;
        prop_assert!(!refused || record.run().end == Some(End::Failed));
    }

    #[test]
    fn a_second_turn_is_as_well_formed_as_the_first(first in wild::frames(), second in wild::frames()) {
        let mut record = begun();
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
        lawful(&record)?;
    }

    #[test]
    fn broken_bytes_keep_the_grammar_and_every_cut_tells_the_same(
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
        lawful(&record)?;
        prop_assert_eq!(recorded(laws::randomly(&bytes, seed)), record);
    }

    #[test]
    fn what_deviating_upstreams_mean_is_what_is_told(meant in conversation()) {
        let frames = meant.frames();
        let record = wild::record(&frames);
        lawful(&record)?;
        let told: Vec<(String, Vec<Value>)> = meant.messages.iter().map(|message| {
            // One that ends with a picture is closed by the next message, and goes on under an id of its own.
            let told = record.run().messages.iter().filter(|told| told.id.split('_').next() == Some(&message.id));
            let slots = told.flat_map(|told| &told.slots);
            // What nobody completes is told when its message ends, behind what was told meanwhile.
            (message.id.clone(), sorted(slots.map(|slot| read(&Json::from_serialize(&slot.content())))))
        }).collect();
        let said: Vec<(String, Vec<Value>)> = meant.messages.iter().map(|message| {
            (message.id.clone(), sorted(message.contents.iter().map(Meant::whole)))
        }).collect();
        prop_assert_eq!(told, said, "{}\n{}", frames.join("\n"), tale(&record));
        let own = record.run().messages.iter().filter(|told| !told.id.contains('_')).count();
        prop_assert_eq!(own, meant.messages.len(), "{}\n{}", frames.join("\n"), tale(&record));
        for message in meant.messages.iter().filter(|message| message.says_its_kind()) {
            let told = record.run().messages.iter().find(|told| told.id == message.id).expect("it was told");
            prop_assert_eq!(told.kind.as_str(), message.kind);
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

/// What an upstream means to say, and how it deviates from saying so.
#[derive(Clone, Debug)]
struct Conversation {
    messages: Vec<Said>,
    /// In which order the messages' frames are mixed.
    mixing: u64,
    /// The final output holds the messages that want to be there.
    output: bool,
}

#[derive(Clone, Debug)]
struct Said {
    id: String,
    kind: &'static str,
    contents: Vec<Meant>,
    announced: bool,
    /// The message's end is told: without contents, with them, or with them and their indexes.
    closed: Option<Closing>,
    in_output: bool,
    /// The output has it under another id.
    renamed: bool,
    /// Contents come without an index.
    indexless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Empty,
    Whole,
    Indexed,
}

#[derive(Clone, Debug)]
struct Meant {
    what: What,
    streamed: Streamed,
    /// Its own end is told.
    completed: bool,
}

#[derive(Clone, Debug)]
enum What {
    Text(Vec<String>),
    Refusal(Vec<String>),
    Image(String),
    Data(Value),
    Call { id: String, arguments: Vec<String> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streamed {
    Fragments,
    Snapshots,
    Not,
}

impl Meant {
    /// The content as it is in the end.
    fn whole(&self) -> Value {
        match &self.what {
            What::Text(pieces) => json!({ "type": "text", "text": pieces.concat() }),
            What::Refusal(pieces) => json!({ "type": "refusal", "refusal": pieces.concat() }),
            What::Image(url) => json!({ "type": "image", "image_url": url }),
            What::Data(data) => json!({ "type": "data", "data": data }),
            What::Call { id, arguments } => {
                json!({ "type": "data", "data": { "call_id": id, "name": "f", "arguments": arguments.concat() } })
            }
        }
    }

    /// Its frames, without the envelope: whether a fragment, and what.
    fn frames(&self) -> Vec<(bool, Value)> {
        let texts = |pieces: &[String], kind: &str| match self.streamed {
            Streamed::Fragments => pieces.iter().map(|piece| (true, json!({ "type": kind, kind: piece }))).collect(),
            Streamed::Snapshots => {
                let ends = 1..=pieces.len();
                ends.map(|end| (false, json!({ "type": kind, kind: pieces[..end].concat() }))).collect()
            }
            Streamed::Not => Vec::new(),
        };
        let call = |id: &str, arguments: &str| json!({ "type": "data", "data": { "call_id": id, "name": "f", "arguments": arguments } });
        match &self.what {
            What::Text(pieces) => texts(pieces, "text"),
            What::Refusal(pieces) => texts(pieces, "refusal"),
            What::Call { id, arguments } => match self.streamed {
                Streamed::Fragments => arguments.iter().map(|piece| (true, call(id, piece))).collect(),
                // What has been parsed so far, closed: no prefix of what follows.
                Streamed::Snapshots => {
                    let partly = [String::new(), "{}".to_owned(), format!("{}}}", arguments[0]), arguments.concat()];
                    partly.iter().map(|arguments| (false, call(id, arguments))).collect()
                }
                Streamed::Not => Vec::new(),
            },
            What::Image(_) | What::Data(_) => match self.streamed {
                Streamed::Fragments => vec![(true, self.whole())],
                Streamed::Snapshots => vec![(false, self.whole()), (false, self.whole())],
                Streamed::Not => Vec::new(),
            },
        }
    }
}

impl Said {
    fn says_its_kind(&self) -> bool {
        self.announced || self.closed.is_some()
    }

    fn model(&self, id: &str, indexed: bool, with_contents: bool) -> Value {
        let contents = self.contents.iter().enumerate().map(|(index, content)| {
            let mut content = content.whole();
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
                frames.push(envelope(content.whole(), "completed", Value::Null));
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
        let mut bits = self.mixing;
        while rows.iter().any(|row| !row.is_empty()) {
            bits = bits.rotate_right(3).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
            let waiting: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row].is_empty()).collect();
            // Most upstreams tell one message after the other.
            let row =
                if self.mixing.is_multiple_of(3) { waiting[0] } else { waiting[(bits >> 40) as usize % waiting.len()] };
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
    let messages = prop::collection::vec(said(), 0..5);
    (messages, any::<u64>(), any::<bool>()).prop_map(|(mut messages, mixing, output)| {
        for (number, message) in messages.iter_mut().enumerate() {
            message.id = format!("m{number}");
            // What is said must be said somewhere, under its own id if nowhere else.
            for (place, content) in message.contents.iter_mut().enumerate() {
                mark(content, number, place);
                let closed = matches!(message.closed, Some(Closing::Whole | Closing::Indexed));
                if content.streamed == Streamed::Not && !content.completed && !closed {
                    content.completed = true;
                }
            }
            if message.contents.is_empty() {
                message.announced = true;
                message.closed = Some(Closing::Empty);
                message.renamed = false;
            }
        }
        Conversation { messages, mixing, output }
    })
}

/// Makes what a content says its own, so that no two say the same by chance.
fn mark(content: &mut Meant, message: usize, place: usize) {
    match &mut content.what {
        What::Text(pieces) | What::Refusal(pieces) => pieces[0] = format!("{message}.{place}:{}", pieces[0]),
        What::Image(url) => *url = format!("https://example.com/{message}/{place}"),
        What::Data(data) => data["at"] = json!([message, place]),
        What::Call { id, .. } => *id = format!("call_{message}_{place}"),
    }
}

fn said() -> impl Strategy<Value = Said> {
    let closed = select(vec![None, Some(Closing::Empty), Some(Closing::Whole), Some(Closing::Indexed)]);
    let calls = prop::collection::vec(call(), 1..3);
    let spoken = prop::collection::vec(spoken(), 0..4);
    let said = prop_oneof![
        3 => (select(vec!["message", "reasoning"]), spoken),
        1 => (select(vec!["function_call", "plugin_call", "mcp_call"]), calls),
    ];
    (said, any::<(bool, bool, bool, bool)>(), closed).prop_map(
        |((kind, contents), (announced, in_output, renamed, indexless), closed)| {
            let is_call = kind.ends_with("call");
            let kinds: std::collections::HashSet<_> =
                contents.iter().map(|content| std::mem::discriminant(&content.what)).collect();
            // Without an index a content belongs to the last one (rule 5): only if that is plain can it be left out.
            let plain = kinds.len() == contents.len()
                && contents
                    .iter()
                    .all(|content| matches!(content.what, What::Text(_) | What::Refusal(_)) || content.completed);
            Said {
                id: String::new(),
                kind,
                // A call nobody announces is guessed to be one by its data.
                announced: announced || is_call,
                closed,
                in_output,
                renamed: renamed && closed.is_some(),
                indexless: indexless && plain,
                contents,
            }
        },
    )
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(select(vec!["a", "b ", "é", "👩‍👧", "\n", "a"]), 1..5)
        .prop_map(|pieces| pieces.into_iter().map(str::to_owned).collect())
}

fn spoken() -> impl Strategy<Value = Meant> {
    let what = prop_oneof![
        4 => pieces().prop_map(What::Text),
        1 => pieces().prop_map(What::Refusal),
        1 => Just(What::Image(String::new())),
        1 => Just(What::Data(json!({ "rows": [1], "note": "a" }))),
    ];
    (what, streamed(), any::<bool>()).prop_map(|(what, streamed, completed)| Meant { what, streamed, completed })
}

fn call() -> impl Strategy<Value = Meant> {
    let arguments = select(vec![vec!["{\"a\":", "1", "}"], vec!["{\"a\": \"x\"", "}"]]);
    (arguments, streamed(), any::<bool>()).prop_map(|(arguments, streamed, completed)| Meant {
        what: What::Call { id: String::new(), arguments: arguments.into_iter().map(str::to_owned).collect() },
        streamed,
        completed,
    })
}

fn streamed() -> impl Strategy<Value = Streamed> {
    select(vec![Streamed::Fragments, Streamed::Fragments, Streamed::Snapshots, Streamed::Not])
}
