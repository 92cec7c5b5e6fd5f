//! A strict client (docs/protocols/chat-completions.md#order): folds the chunks as openai-python does, and fails on
//! everything on which one of the SDKs would fail or show a wrong result.

use serde_json::{Map, Value, json};

#[derive(Debug, Default)]
pub(crate) struct StreamContent {
    /// The message, as a whole answer has it.
    pub(crate) message: Map<String, Value>,
    /// `None`: it ended with an error.
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Value,
    pub(crate) error: Value,
}

/// Reads a stream to its end.
pub(crate) fn read(body: &str) -> StreamContent {
    let frames = interlingua_core_testkit::laws::frames(body);
    let mut read = StreamContent::default();
    let mut envelope = Value::Null;
    let mut is_done = false;
    for (number, frame) in frames.iter().enumerate() {
        assert!(!is_done && read.error.is_null(), "a frame after the end: {}", frame.data);
        assert!(frame.event.is_none() && frame.id.is_none(), "frames have data alone: {frame:?}");
        if frame.data == "[DONE]" {
            assert!(read.finish_reason.is_some(), "`[DONE]` without a reason");
            is_done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(&frame.data).expect("JSON");
        if chunk.get("error").is_some() {
            read.error = chunk["error"].clone();
            let keys: Vec<&str> = read.error.as_object().expect("an object").keys().map(String::as_str).collect();
            assert_eq!(keys, ["code", "message", "param", "type"]);
            continue;
        }

        let named = json!([chunk["id"], chunk["object"], chunk["created"], chunk["model"]]);
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert!(number == 0 || named == envelope, "the envelope stays the same: {chunk}");
        envelope = named;
        match chunk["choices"].as_array().expect("choices").as_slice() {
            [] => {
                assert!(read.finish_reason.is_some() && chunk["usage"].is_object(), "usage comes last: {chunk}");
                read.usage = chunk["usage"].clone();
            }
            [choice] => {
                assert!(read.usage.is_null(), "a choice after the usage");
                choice_of(choice, number, &mut read);
            }
            _ => panic!("one choice: {chunk}"),
        }
    }
    assert_eq!(is_done, read.error.is_null(), "one end: {body}");
    finish(&mut read);
    read
}

fn choice_of(choice: &Value, number: usize, read: &mut StreamContent) {
    assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(0), &Value::Null));
    let delta = choice["delta"].as_object().expect("a delta");
    if let Some(reason) = choice["finish_reason"].as_str() {
        assert!(delta.is_empty() && read.finish_reason.is_none(), "one reason, in a chunk of its own: {choice}");
        read.finish_reason = Some(reason.to_owned());
        return;
    }
    assert!(read.finish_reason.is_none(), "a delta after the reason: {choice}");
    assert_eq!(delta.contains_key("role"), number == 0, "the role stands in the first chunk alone: {choice}");
    fold(&mut read.message, delta);
}

/// As openai-python does: strings are joined, lists are merged by the `index` of their entries.
fn fold(whole: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, value) in delta {
        match (whole.get_mut(name), value) {
            (None | Some(Value::Null), Value::Array(entries)) => {
                let mut list = Value::Array(Vec::new());
                entries.iter().for_each(|entry| fold_entry(&mut list, entry));
                whole.insert(name.clone(), list);
            }
            (None | Some(Value::Null), value) => drop(whole.insert(name.clone(), value.clone())),
            (Some(Value::String(known)), Value::String(more)) => {
                assert!(!more.is_empty(), "an empty piece of {name}");
                known.push_str(more);
            }
            (Some(list @ Value::Array(_)), Value::Array(entries)) => {
                entries.iter().for_each(|entry| fold_entry(list, entry));
            }
            (Some(Value::Object(known)), Value::Object(more)) => fold(known, more),
            (known, value) => panic!("{name} cannot be folded: {known:?} and {value}"),
        }
    }
}

fn fold_entry(list: &mut Value, entry: &Value) {
    let list = list.as_array_mut().expect("a list");
    let index = usize::try_from(entry["index"].as_u64().expect("an index in each entry")).expect("small");
    let mut entry = entry.as_object().expect("an object").clone();
    match list.get_mut(index) {
        Some(known) => {
            entry.remove("index");
            fold(known.as_object_mut().expect("an object"), &entry);
        }
        None => {
            assert_eq!(index, list.len(), "indexes count from 0");
            list.push(Value::Object(entry));
        }
    }
}

/// Brings the folded message into the form of a whole one.
fn finish(read: &mut StreamContent) {
    let message = &mut read.message;
    assert_eq!(message.get("role"), Some(&json!("assistant")));
    for name in ["content", "refusal"] {
        if message.get(name) == Some(&json!("")) {
            message.insert(name.to_owned(), Value::Null);
        }
    }
    for name in ["tool_calls", "annotations"] {
        for entry in message.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            entry.as_object_mut().expect("an object").remove("index");
        }
    }
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        if read.finish_reason.is_some() && call["type"] == "function" {
            assert_ne!(call["function"]["arguments"], "", "clients parse the arguments");
        }
    }
}
