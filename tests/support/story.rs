//! The rules of the strict writer, as a reader holds the gateway to them (Agent API, section 13): whatever an agent
//! did, its client sees a row of frames that keeps them. Written against the protocol's page, not against the code.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use serde_json::Value;

/// A stream from its first frame to its last, found to be in order.
#[derive(Clone, Debug)]
pub struct Story {
    /// The response's id.
    pub id: String,
    /// The session's id.
    pub session: String,
    /// How it ended.
    pub status: String,
    /// The last frame.
    pub last: Value,
    /// The messages, as their last frames show them.
    pub messages: Vec<Value>,
}

struct Open {
    message: String,
    /// Index, type and text so far of the content that is open.
    content: Option<(u64, String, String)>,
    contents: Vec<Value>,
}

impl Story {
    /// Reads a whole stream; panics with the rule that was broken.
    pub fn read(frames: &[Value]) -> Self {
        let told = || frames.iter().map(|frame| format!("\n  {frame}")).collect::<String>();
        assert!(frames.len() >= 3, "a stream has a beginning and an end:{}", told());
        for (place, frame) in frames.iter().enumerate() {
            assert_eq!(frame["sequence_number"], place, "numbers have no gaps:{}", told());
            assert!(frame.get("error").is_some() && frame.get("status").is_some(), "nulls are present: {frame}");
        }
        for (frame, status) in frames.iter().zip(["created", "in_progress"]) {
            assert_eq!(
                (word(frame, "object"), word(frame, "status")),
                ("response", status),
                "the beginning:{}",
                told()
            );
        }
        let (last, middle) = frames[2..].split_last().expect("there are three frames");
        let mut messages: Vec<Value> = Vec::new();
        let mut open: Option<Open> = None;
        for frame in middle {
            match word(frame, "object") {
                "message" => message(frame, &mut open, &mut messages),
                "content" => content(frame, open.as_mut()),
                other => panic!("{other:?} has no place in the middle:{}", told()),
            }
        }
        assert!(open.is_none(), "a message is left open:{}", told());
        assert_eq!(word(last, "object"), "response", "the last frame is the response:{}", told());
        let status = word(last, "status");
        assert!(["completed", "failed", "canceled", "incomplete", "rejected"].contains(&status), "no end:{}", told());
        assert_eq!(last["output"], Value::Array(messages.clone()), "the end holds all messages:{}", told());
        assert_eq!(last["error"].is_null(), status == "completed" || last["error"].is_null(), "{last}");
        if status == "failed" {
            let error = &last["error"];
            assert!(!word(error, "code").is_empty() && !word(error, "message").is_empty(), "why it failed: {last}");
        }
        assert_eq!(last["completed_at"].is_u64(), status == "completed", "{last}");
        for frame in [&frames[0], &frames[1], last] {
            for name in ["id", "session_id", "created_at"] {
                assert_eq!(frame[name], frames[0][name], "{name} does not change:{}", told());
            }
        }
        Self {
            id: word(last, "id").to_owned(),
            session: word(last, "session_id").to_owned(),
            status: status.to_owned(),
            last: last.clone(),
            messages,
        }
    }

    /// The code of the error it ended with; empty if there is none.
    pub fn code(&self) -> &str {
        word(&self.last["error"], "code")
    }

    /// What the error says.
    pub fn complaint(&self) -> &str {
        word(&self.last["error"], "message")
    }

    /// All text of ordinary messages, one behind the other.
    pub fn text(&self) -> String {
        let messages = self.messages.iter().filter(|message| word(message, "type") == "message");
        let contents = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        contents.map(|content| word(content, "text")).collect()
    }

    /// Panics unless it completed.
    pub fn completed(self) -> Self {
        assert_eq!(self.status, "completed", "{}", self.last);
        self
    }

    /// Panics unless it failed with this code.
    pub fn failed(self, code: &str) -> Self {
        assert_eq!((self.status.as_str(), self.code()), ("failed", code), "{}", self.last);
        self
    }
}

fn word<'a>(frame: &'a Value, name: &str) -> &'a str {
    frame[name].as_str().unwrap_or("")
}

fn message(frame: &Value, open: &mut Option<Open>, messages: &mut Vec<Value>) {
    if word(frame, "status") == "in_progress" {
        assert!(open.is_none(), "one message at a time: {frame}");
        assert!(!word(frame, "id").is_empty() && frame["content"].is_null(), "an announcement: {frame}");
        assert!(messages.iter().all(|known| known["id"] != frame["id"]), "an id is used once: {frame}");
        *open = Some(Open { message: word(frame, "id").to_owned(), content: None, contents: Vec::new() });
        return;
    }
    let ending = open.take().unwrap_or_else(|| panic!("announced first: {frame}"));
    assert_eq!(word(frame, "id"), ending.message, "the message that is open ends: {frame}");
    assert!(ending.content.is_none(), "contents end before their message: {frame}");
    assert_eq!(frame["content"], Value::Array(ending.contents), "its end holds what was told: {frame}");
    messages.push(frame.clone());
}

fn content(frame: &Value, open: Option<&mut Open>) {
    let open = open.unwrap_or_else(|| panic!("a message is announced before its content: {frame}"));
    assert_eq!(word(frame, "msg_id"), open.message, "content of the message that is open: {frame}");
    let index = frame["index"].as_u64().unwrap_or_else(|| panic!("an index: {frame}"));
    let kind = word(frame, "type");
    let streaming = open.content.get_or_insert_with(|| (index, kind.to_owned(), String::new()));
    assert_eq!((index, kind), (streaming.0, streaming.1.as_str()), "one content at a time: {frame}");
    assert_eq!(index, open.contents.len() as u64, "contents come in their order: {frame}");
    match (word(frame, "status"), frame["delta"].as_bool()) {
        ("in_progress", Some(true)) => {
            assert_eq!(kind, "text", "only text comes in pieces: {frame}");
            streaming.2.push_str(word(frame, "text"));
        }
        ("in_progress", _) => streaming.2 = word(frame, "text").to_owned(),
        ("completed", None | Some(false)) => {
            if kind == "text" {
                assert_eq!(word(frame, "text"), streaming.2, "the whole is what its pieces make: {frame}");
            }
            open.content = None;
            open.contents.push(frame.clone());
        }
        other => panic!("{other:?} is no status of a content: {frame}"),
    }
}
