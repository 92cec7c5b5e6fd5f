//! Validates the stream that a client receives against the rules for a strict writer
//! (docs/protocols/agent-api.md#writer). The gateway follows them whatever the agent sends. Written from the
//! specification, not from the implementation.

use serde_json::Value;

/// A complete stream that follows the rules.
#[derive(Clone, Debug)]
pub struct Transcript {
    pub id: String,
    pub session: String,
    /// The terminal status.
    pub status: String,
    /// The terminal frame.
    pub last: Value,
    /// The completed messages, each as in its last frame.
    pub messages: Vec<Value>,
}

struct Open {
    message: String,
    /// Index, type and text so far of the open content part.
    content: Option<(u64, String, String)>,
    contents: Vec<Value>,
}

impl Transcript {
    /// Parses a complete stream. Panics with the rule that is broken.
    pub fn parse(frames: &[Value]) -> Self {
        let dump = || frames.iter().map(|frame| format!("\n  {frame}")).collect::<String>();
        assert!(frames.len() >= 3, "a stream has at least three frames:{}", dump());
        for (index, frame) in frames.iter().enumerate() {
            assert_eq!(frame["sequence_number"], index, "sequence numbers have no gaps:{}", dump());
            assert!(frame.get("error").is_some() && frame.get("status").is_some(), "nulls are present: {frame}");
        }

        for (frame, status) in frames.iter().zip(["created", "in_progress"]) {
            assert_eq!(
                (str_field(frame, "object"), str_field(frame, "status")),
                ("response", status),
                "the first two frames:{}",
                dump()
            );
        }

        let (last, middle) = frames[2..].split_last().expect("there are three frames");
        let mut messages: Vec<Value> = Vec::new();
        let mut open: Option<Open> = None;
        for frame in middle {
            match str_field(frame, "object") {
                "message" => message(frame, &mut open, &mut messages),
                "content" => content(frame, open.as_mut()),
                other => panic!("{other:?} is not allowed before the end:{}", dump()),
            }
        }

        assert!(open.is_none(), "a message is not closed:{}", dump());
        assert_eq!(str_field(last, "object"), "response", "the last frame is the response:{}", dump());
        let status = str_field(last, "status");
        assert!(
            ["completed", "failed", "canceled", "incomplete", "rejected"].contains(&status),
            "not a terminal status:{}",
            dump()
        );
        assert_eq!(last["output"], Value::Array(messages.clone()), "the terminal frame holds all messages:{}", dump());
        assert_eq!(last["error"].is_null(), status == "completed" || last["error"].is_null(), "{last}");
        if status == "failed" {
            let error = &last["error"];
            assert!(
                !str_field(error, "code").is_empty() && !str_field(error, "message").is_empty(),
                "a failure has a code and a message: {last}"
            );
        }

        assert_eq!(last["completed_at"].is_u64(), status == "completed", "{last}");
        for frame in [&frames[0], &frames[1], last] {
            for name in ["id", "session_id", "created_at"] {
                assert_eq!(frame[name], frames[0][name], "{name} does not change:{}", dump());
            }
        }

        Self {
            id: str_field(last, "id").to_owned(),
            session: str_field(last, "session_id").to_owned(),
            status: status.to_owned(),
            last: last.clone(),
            messages,
        }
    }

    /// The error code of the terminal frame; empty without an error.
    pub fn code(&self) -> &str {
        str_field(&self.last["error"], "code")
    }

    /// The error message of the terminal frame; empty without an error.
    pub fn error_message(&self) -> &str {
        str_field(&self.last["error"], "message")
    }

    /// The concatenated text of all messages of type `message`.
    pub fn text(&self) -> String {
        let messages = self.messages.iter().filter(|message| str_field(message, "type") == "message");
        let contents = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        contents.map(|content| str_field(content, "text")).collect()
    }

    /// Panics unless it completed.
    pub fn expect_completed(self) -> Self {
        assert_eq!(self.status, "completed", "{}", self.last);
        self
    }

    /// Panics unless it failed with this code.
    pub fn expect_failed(self, code: &str) -> Self {
        assert_eq!((self.status.as_str(), self.code()), ("failed", code), "{}", self.last);
        self
    }
}

fn str_field<'a>(frame: &'a Value, name: &str) -> &'a str {
    frame[name].as_str().unwrap_or("")
}

fn message(frame: &Value, open: &mut Option<Open>, messages: &mut Vec<Value>) {
    if str_field(frame, "status") == "in_progress" {
        assert!(open.is_none(), "one message at a time: {frame}");
        assert!(
            !str_field(frame, "id").is_empty() && frame["content"].is_null(),
            "a message starts with an id and no content: {frame}"
        );
        assert!(messages.iter().all(|known| known["id"] != frame["id"]), "an id is used once: {frame}");
        *open = Some(Open { message: str_field(frame, "id").to_owned(), content: None, contents: Vec::new() });
        return;
    }

    let closing_frames = open.take().unwrap_or_else(|| panic!("a message starts before it ends: {frame}"));
    assert_eq!(str_field(frame, "id"), closing_frames.message, "only the open message ends: {frame}");
    assert!(closing_frames.content.is_none(), "contents end before their message: {frame}");
    assert_eq!(
        frame["content"],
        Value::Array(closing_frames.contents),
        "the last frame of a message holds its contents: {frame}"
    );
    messages.push(frame.clone());
}

fn content(frame: &Value, open: Option<&mut Open>) {
    let open = open.unwrap_or_else(|| panic!("a message starts before its content: {frame}"));
    assert_eq!(str_field(frame, "msg_id"), open.message, "content belongs to the open message: {frame}");
    let index = frame["index"].as_u64().unwrap_or_else(|| panic!("an index: {frame}"));
    let kind = str_field(frame, "type");
    let streaming = open.content.get_or_insert_with(|| (index, kind.to_owned(), String::new()));
    assert_eq!((index, kind), (streaming.0, streaming.1.as_str()), "one content at a time: {frame}");
    assert_eq!(index, open.contents.len() as u64, "contents are in order: {frame}");
    match (str_field(frame, "status"), frame["delta"].as_bool()) {
        ("in_progress", Some(true)) => {
            assert_eq!(kind, "text", "only text has deltas: {frame}");
            streaming.2.push_str(str_field(frame, "text"));
        }
        ("in_progress", _) => streaming.2 = str_field(frame, "text").to_owned(),
        ("completed", None | Some(false)) => {
            if kind == "text" {
                assert_eq!(
                    str_field(frame, "text"),
                    streaming.2,
                    "the full text is the concatenation of its deltas: {frame}"
                );
            }
            open.content = None;
            open.contents.push(frame.clone());
        }
        other => panic!("{other:?} is not a valid content status: {frame}"),
    }
}
