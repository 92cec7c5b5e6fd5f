//! What a scripted agent says in the native protocol: frames as the runtime writes them, short enough to be read.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use serde_json::json;

use super::upstream::Answer;

/// The frames before an answer's first word.
pub fn beginning() -> Vec<String> {
    vec![response("created"), response("in_progress"), announced()]
}

/// A response without an end.
pub fn response(status: &str) -> String {
    json!({ "object": "response", "status": status, "id": "response_up", "created_at": 1_795_167_918, "error": null, "output": null })
        .to_string()
}

/// A message that begins.
pub fn announced() -> String {
    json!({ "object": "message", "status": "in_progress", "id": "msg_up", "type": "message", "role": "assistant", "content": null })
        .to_string()
}

/// A piece of its text.
pub fn word(text: &str) -> String {
    json!({ "object": "content", "status": "in_progress", "type": "text", "index": 0, "delta": true, "msg_id": "msg_up", "text": text })
        .to_string()
}

/// The frames after an answer's last word.
pub fn ending(text: &str) -> Vec<String> {
    let content = json!({ "object": "content", "status": "completed", "type": "text", "index": 0, "delta": null, "msg_id": "msg_up", "text": text });
    let message = json!({ "object": "message", "status": "completed", "id": "msg_up", "type": "message", "role": "assistant", "content": [content] });
    let response = json!({
        "object": "response", "status": "completed", "id": "response_up", "created_at": 1_795_167_918,
        "completed_at": 1_795_167_919, "error": null, "output": [message], "usage": { "input_tokens": 1, "output_tokens": 2 },
    });
    vec![content.to_string(), message.to_string(), response.to_string()]
}

/// All frames of an answer that says these words.
pub fn frames(words: &[&str]) -> Vec<String> {
    let mut frames = beginning();
    frames.extend(words.iter().map(|text| word(text)));
    frames.extend(ending(&words.concat()));
    frames
}

/// An answer that says these words and ends well.
pub fn saying(words: &[&str]) -> Answer {
    Answer::frames(frames(words))
}

/// An answer that says these words, and whose end waits behind a gate.
pub fn saying_until(words: &[&str], gate: &str) -> Answer {
    let begun = beginning().into_iter().chain(words.iter().map(|text| word(text)));
    let answer = begun.fold(Answer::events(), |answer, frame| answer.frame(&frame)).wait(gate);
    ending(&words.concat()).iter().fold(answer, |answer, frame| answer.frame(frame)).done()
}

/// An answer that says these words, and then nothing more.
pub fn saying_and_hanging(words: &[&str]) -> Answer {
    let begun = beginning().into_iter().chain(words.iter().map(|text| word(text)));
    begun.fold(Answer::events(), |answer, frame| answer.frame(&frame)).hang()
}

/// Frames as bytes of an event stream.
pub fn bytes(frames: &[String]) -> Vec<u8> {
    frames.iter().flat_map(|frame| format!("data: {frame}\n\n").into_bytes()).collect()
}

/// A question for approval, and the end of the response.
pub fn approval(id: &str) -> Answer {
    let data = json!({ "id": id, "name": "rm", "arguments": "{\"path\":\"x\"}", "server_label": "files" });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": "msg_ask", "data": data });
    let message = json!({ "object": "message", "status": "completed", "id": "msg_ask", "type": "mcp_approval_request", "role": "assistant", "content": [content] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [message] });
    Answer::frames([
        response("created"),
        response("in_progress"),
        content.to_string(),
        message.to_string(),
        end.to_string(),
    ])
}
