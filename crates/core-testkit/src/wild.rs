//! Upstreams that follow no specification: random frames, and scripts with mutations.
//!
//! For property tests: whatever these strategies produce, the normalizer follows the grammar, and an encoder writes a
//! well-formed stream of the record. Texts are unique tokens `⟨7⟩`, so a test can name what was lost or emitted twice.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::{Recorder, scripts};
use interlingua_core::agent_api::Frame;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::Message;
use interlingua_core::run::Record;

/// Frames that an upstream might send: random ones, mutated scripts, or both mixed.
pub fn frames() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        3 => prop::collection::vec(frame(), 0..40).prop_map(|frames| numbered(&frames)),
        2 => mutated_script(),
        1 => (mutated_script(), prop::collection::vec(frame(), 1..12), any::<u64>()).prop_map(|(script, random, seed)| {
            interleaved(script, numbered(&random), seed)
        }),
    ]
}

/// Nested JSON of a client that follows no specification: objects with these names, and these words among the values.
pub fn json_values(names: &'static [&'static str], words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        2 => select(words).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i32>().prop_map(Value::from),
        1 => "[a-z_]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let object = prop::collection::vec((select(names), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

/// The record of these frames. Lines that are not frames are skipped.
#[must_use]
pub fn record(frames: &[String]) -> Record {
    let mut recorder = Recorder::new(vec![Message::user("hi")]);
    for frame in frames {
        if let Some(frame) = Frame::parse(frame.as_bytes()) {
            recorder.emit(&frame.event());
        }
    }
    recorder.finish()
}

/// Records of [`frames`].
pub fn records() -> impl Strategy<Value = Record> {
    frames().prop_map(|frames| record(&frames))
}

/// Mixed fragments of texts, refusals and arguments in a few messages and slots, with other frames between them. No
/// text is replaced.
pub fn fragments() -> impl Strategy<Value = Vec<String>> {
    let between = prop_oneof![
        3 => (id(), select(TYPES)).prop_map(|(id, kind)| {
            json!({ "object": "message", "status": "in_progress", "id": id, "type": kind })
        }),
        2 => id().prop_map(|id| json!({ "object": "message", "status": "completed", "id": id, "content": null })),
        1 => Just(json!({ "object": "message", "status": "completed", "id": "hb", "type": "heartbeat" })),
        1 => Just(json!({ "object": "response", "status": "in_progress", "id": "r" })),
        1 => (id(), index()).prop_map(|(id, index)| {
            json!({ "object": "content", "status": "completed", "msg_id": id, "index": index,
                "type": "image", "image_url": "u" })
        }),
        1 => (id(), index()).prop_map(|(id, index)| {
            json!({ "object": "content", "status": "in_progress", "msg_id": id, "index": index, "delta": true,
                "type": "data", "data": { "call_id": "c", "name": "f", "arguments": "{" } })
        }),
    ];
    let fragment = (id(), index(), any::<bool>()).prop_map(|(id, index, is_refusal)| {
        let (kind, text) = if is_refusal { ("refusal", "refusal") } else { ("text", "text") };
        json!({ "object": "content", "status": "in_progress", "msg_id": id, "index": index, "delta": true,
            "type": kind, text: "⟨#⟩" })
    });
    prop::collection::vec(prop_oneof![3 => fragment, 1 => between], 0..60).prop_map(|frames| numbered(&frames))
}

const TYPES: &[&str] = &[
    "message",
    "message",
    "reasoning",
    "function_call",
    "plugin_call",
    "plugin_call_output",
    "mcp_call",
    "component_call",
    "mcp_approval_request",
    "error",
    "heartbeat",
    "assistant",
    "odd",
];

fn id() -> impl Strategy<Value = Value> {
    select(vec![json!("a"), json!("a"), json!("b"), json!("c"), json!("a_2"), json!(7), json!(""), Value::Null])
}

fn index() -> impl Strategy<Value = Value> {
    select(vec![json!(0), json!(0), json!(1), json!(2), json!("1"), json!(-1), json!(4_000_000_000_u64), Value::Null])
}

fn status() -> impl Strategy<Value = Value> {
    let words = ["in_progress", "in_progress", "completed", "completed", "created", "failed", "incomplete", "odd"];
    select(words.iter().map(|word| json!(word)).chain([Value::Null]).collect::<Vec<_>>())
}

/// A value of any JSON type.
fn any_json() -> impl Strategy<Value = Value> {
    select(vec![
        Value::Null,
        json!(true),
        json!(7),
        json!(-1.5),
        json!(""),
        json!("⟨#⟩"),
        json!("completed"),
        json!("text"),
        json!([]),
        json!({}),
        json!([1, "⟨#⟩", { "type": "text", "text": "⟨#⟩" }]),
        json!({ "code": "X", "message": "broken" }),
        json!({ "call_id": "c1", "name": "f", "arguments": "{}" }),
    ])
}

fn call_data() -> impl Strategy<Value = Value> {
    select(vec![
        json!({ "call_id": "c1", "name": "f", "arguments": "{}" }),
        json!({ "call_id": "c1", "name": "f", "arguments": "{\"a\":1}", "server_label": "s" }),
        json!({ "call_id": "c2", "name": "g", "arguments": { "a": 1 } }),
        json!({ "arguments": "x" }),
        json!({ "call_id": "c1", "output": "⟨#⟩" }),
        json!({ "id": "p1", "name": "rm", "arguments": "{}", "interrupt": { "kind": "input" } }),
        json!({ "rows": [1], "n": 1, "s": "a" }),
        json!([1]),
        json!("base64"),
        Value::Null,
    ])
}

/// The fields of a content, without its envelope.
fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!({ "type": "text", "text": "⟨#⟩" })),
        1 => Just(json!({ "text": "⟨#⟩" })),
        1 => Just(json!({ "type": "text", "text": "" })),
        1 => Just(json!({ "type": "refusal", "refusal": "⟨#⟩" })),
        2 => call_data().prop_map(|data| json!({ "type": "data", "data": data })),
        1 => Just(json!({ "type": "image", "image_url": "https://example.com/⟨#⟩" })),
        1 => Just(json!({ "type": "audio", "data": "https://example.com/⟨#⟩", "format": "mp3" })),
        1 => Just(json!({ "type": "file", "file_id": "⟨#⟩", "note": 1 })),
        1 => Just(json!({ "type": "hologram", "beam": [1] })),
    ]
}

fn indexed_part() -> impl Strategy<Value = Value> {
    (part(), index(), status()).prop_map(|(part, index, status)| with(part, &[("index", index), ("status", status)]))
}

fn message() -> impl Strategy<Value = Value> {
    let contents = prop_oneof![
        2 => Just(Value::Null),
        1 => Just(json!("⟨#⟩")),
        3 => prop::collection::vec(indexed_part(), 0..4).prop_map(Value::Array),
    ];
    (id(), status(), select(TYPES), contents, prop::option::of(any_json())).prop_map(
        |(id, status, kind, content, odd)| {
            let message = json!({ "object": "message", "id": id, "status": status, "type": kind, "content": content });
            match odd {
                Some(odd) => with(message, &[("metadata", odd.clone()), ("message", odd.clone()), ("odd", odd)]),
                None => message,
            }
        },
    )
}

fn frame() -> impl Strategy<Value = Value> {
    prop_oneof![
        10 => (indexed_part(), id(), any::<bool>()).prop_map(|(part, id, delta)| {
            with(part, &[("object", json!("content")), ("msg_id", id), ("delta", json!(delta))])
        }),
        6 => message(),
        2 => (status(), prop::collection::vec(message(), 0..4), select(vec!["r", "r", "other", ""])).prop_map(
            |(status, output, id)| {
                json!({ "object": "response", "status": status, "id": id, "output": output })
            }
        ),
        1 => (select(vec!["object", "error", "message", "msg_id", "text"]), any_json())
            .prop_map(|(name, value)| json!({ name: value })),
    ]
}

fn with(mut object: Value, fields: &[(&str, Value)]) -> Value {
    for (name, value) in fields {
        object[*name] = value.clone();
    }
    object
}

/// Serializes frames and replaces each `#` by the next number, which makes their texts unique.
fn numbered(frames: &[Value]) -> Vec<String> {
    let mut count = 0;
    let mut lines = Vec::new();
    for frame in frames {
        let mut line = String::new();
        for (index, piece) in frame.to_string().split('#').enumerate() {
            if index > 0 {
                line.push_str(&count.to_string());
                count += 1;
            }
            line.push_str(piece);
        }
        lines.push(line);
    }
    lines
}

/// A change to the frames of a script. The first index selects a frame.
#[derive(Clone, Debug)]
enum Mutation {
    Remove(Index),
    /// Sends the frame again before the frame of the second index.
    Duplicate(Index, Index),
    Swap(Index, Index),
    /// Ends the stream before the frame.
    End(Index),
    RemoveField(Index, Index),
    ReplaceField(Index, Index, Value),
    RenameMessage(Index, &'static str),
    /// Truncates the frame at a character.
    Truncate(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        any::<Index>().prop_map(Mutation::Remove),
        any::<(Index, Index)>().prop_map(|(frame, to)| Mutation::Duplicate(frame, to)),
        any::<(Index, Index)>().prop_map(|(frame, to)| Mutation::Swap(frame, to)),
        any::<Index>().prop_map(Mutation::End),
        any::<(Index, Index)>().prop_map(|(frame, field)| Mutation::RemoveField(frame, field)),
        (any::<(Index, Index)>(), any_json())
            .prop_map(|((frame, field), value)| Mutation::ReplaceField(frame, field, value)),
        (any::<Index>(), select(vec!["msg_02", "msg_03", "msg_9"]))
            .prop_map(|(frame, id)| Mutation::RenameMessage(frame, id)),
        any::<(Index, Index)>().prop_map(|(frame, at)| Mutation::Truncate(frame, at)),
    ]
}

/// A script with some mutations.
fn mutated_script() -> impl Strategy<Value = Vec<String>> {
    let scripts: Vec<Vec<String>> = scripts()
        .into_iter()
        .filter(|script| !script.is_large())
        .map(|script| script.frames.into_iter().map(std::borrow::Cow::into_owned).collect())
        .collect();
    (select(scripts), prop::collection::vec(mutation(), 1..8)).prop_map(|(mut frames, mutations)| {
        for mutation in mutations {
            if frames.is_empty() {
                break;
            }
            apply(mutation, &mut frames);
        }
        frames
    })
}

fn apply(mutation: Mutation, frames: &mut Vec<String>) {
    let count = frames.len();
    match mutation {
        Mutation::Remove(at) => {
            frames.remove(at.index(count));
        }
        Mutation::Duplicate(at, to) => frames.insert(to.index(count), frames[at.index(count)].clone()),
        Mutation::Swap(one, other) => frames.swap(one.index(count), other.index(count)),
        Mutation::End(at) => frames.truncate(at.index(count)),
        Mutation::RemoveField(at, field) => change(&mut frames[at.index(count)], |fields| {
            let names: Vec<String> = fields.iter().map(|(name, _)| name.to_owned()).collect();
            if !names.is_empty() {
                fields.remove(&names[field.index(names.len())]);
            }
        }),
        Mutation::ReplaceField(at, field, value) => change(&mut frames[at.index(count)], |fields| {
            let names: Vec<String> = fields.iter().map(|(name, _)| name.to_owned()).collect();
            if !names.is_empty() {
                fields.set(names[field.index(names.len())].clone(), Json::from_serialize(&value));
            }
        }),
        Mutation::RenameMessage(at, id) => change(&mut frames[at.index(count)], |fields| {
            let is_content = fields.get("msg_id").is_some();
            fields.set(if is_content { "msg_id" } else { "id" }, Json::from_serialize(id));
        }),
        Mutation::Truncate(at, to) => {
            let frame = &mut frames[at.index(count)];
            let kept = to.index(frame.chars().count().max(1));
            *frame = frame.chars().take(kept).collect();
        }
    }
}

fn change(frame: &mut String, change: impl FnOnce(&mut Extra)) {
    if let Some(mut fields) = Json::parse(frame).and_then(|json| json.decode::<Extra>()) {
        change(&mut fields);
        *frame = Json::from_serialize(&fields).text().to_owned();
    }
}

/// Merges two lists of frames; each keeps its order.
fn interleaved(one: Vec<String>, other: Vec<String>, seed: u64) -> Vec<String> {
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    let mut frames = Vec::new();
    let mut bits = seed;
    while one.peek().is_some() || other.peek().is_some() {
        let first = if bits & 1 == 1 { &mut one } else { &mut other };
        bits = bits.rotate_right(1);
        frames.extend(first.next());
    }
    frames
}
