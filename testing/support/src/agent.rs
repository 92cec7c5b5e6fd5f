//! Replies of a scripted agent in the Agent API: frames as the runtime writes them, kept short for readability.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;

use super::gateway::last_input_text;
use super::upstream::{Reply, Upstream};

/// The frames before the first text delta: response created, response in progress, message started.
pub fn opening_frames() -> Vec<String> {
    vec![response("created"), response("in_progress"), message_started()]
}

/// A response frame with this status and no output.
pub fn response(status: &str) -> String {
    json!({ "object": "response", "status": status, "id": "response_up", "created_at": 1_795_167_918, "error": null, "output": null })
        .to_string()
}

/// The frame that starts the message.
pub fn message_started() -> String {
    json!({ "object": "message", "status": "in_progress", "id": "msg_up", "type": "message", "role": "assistant", "content": null })
        .to_string()
}

/// The frame that ends the message, without repeating its contents.
pub fn message_completed() -> String {
    json!({ "object": "message", "status": "completed", "id": "msg_up", "type": "message", "role": "assistant", "content": null })
        .to_string()
}

/// A text delta of that message.
pub fn text_delta(text: &str) -> String {
    json!({ "object": "content", "status": "in_progress", "type": "text", "index": 0, "delta": true, "msg_id": "msg_up", "text": text })
        .to_string()
}

/// The frames after the last text delta; `text` is the full text.
pub fn closing_frames(text: &str) -> Vec<String> {
    let content = json!({ "object": "content", "status": "completed", "type": "text", "index": 0, "delta": null, "msg_id": "msg_up", "text": text });
    let message = json!({ "object": "message", "status": "completed", "id": "msg_up", "type": "message", "role": "assistant", "content": [content] });
    let response = json!({
        "object": "response", "status": "completed", "id": "response_up", "created_at": 1_795_167_918,
        "completed_at": 1_795_167_919, "error": null, "output": [message], "usage": { "input_tokens": 1, "output_tokens": 2 },
    });
    vec![content.to_string(), message.to_string(), response.to_string()]
}

/// All frames of a reply made of these text deltas.
pub fn frames(words: &[&str]) -> Vec<String> {
    let mut frames = opening_frames();
    frames.extend(words.iter().map(|text| text_delta(text)));
    frames.extend(closing_frames(&words.concat()));
    frames
}

/// A reply made of these text deltas that completes.
pub fn text_reply(words: &[&str]) -> Reply {
    Reply::frames(frames(words))
}

/// The same, with its end held back until the test opens the gate.
pub fn text_reply_until(words: &[&str], gate: &str) -> Reply {
    let started = opening_frames().into_iter().chain(words.iter().map(|text| text_delta(text)));
    let answer = started.fold(Reply::events(), |reply, frame| reply.frame(&frame)).wait(gate);
    closing_frames(&words.concat()).iter().fold(answer, |reply, frame| reply.frame(frame)).done()
}

/// A reply made of these text deltas that completes, with a pause before each delta.
pub fn paced_reply(words: &[String], pace: Duration) -> Reply {
    let started = opening_frames().iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    let paced = words.iter().fold(started, |reply, word| reply.pause(pace).frame(&text_delta(word)));
    closing_frames(&words.concat()).iter().fold(paced, |reply, frame| reply.frame(frame)).done()
}

/// A reply made of these text deltas, after which the connection stays open and silent.
pub fn text_reply_then_hang(words: &[&str]) -> Reply {
    let started = opening_frames().into_iter().chain(words.iter().map(|text| text_delta(text)));
    started.fold(Reply::events(), |reply, frame| reply.frame(&frame)).hang()
}

/// An agent that replies with all earlier inputs of this user in this session.
pub fn remembering() -> Upstream {
    let mut inputs: HashMap<(String, String), Vec<String>> = HashMap::new();
    Upstream::with_handler(move |request| {
        let body = request.json();
        let name = |field: &str| body[field].as_str().expect("a name").to_owned();
        let before = inputs.entry((name("user_id"), name("session_id"))).or_default();
        let received = format!("before: [{}]", before.join(", "));
        before.push(last_input_text(&body));
        text_reply(&[&received])
    })
}

/// Frames encoded as an event stream.
pub fn bytes(frames: &[String]) -> Vec<u8> {
    frames.iter().flat_map(|frame| format!("data: {frame}\n\n").into_bytes()).collect()
}

/// A reply that asks for approval of a tool call and completes.
pub fn approval_request(id: &str) -> Reply {
    let data = json!({ "id": id, "name": "rm", "arguments": "{\"path\":\"x\"}", "server_label": "files" });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": "msg_ask", "data": data });
    let message = json!({ "object": "message", "status": "completed", "id": "msg_ask", "type": "mcp_approval_request", "role": "assistant", "content": [content] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [message] });
    Reply::frames([
        response("created"),
        response("in_progress"),
        content.to_string(),
        message.to_string(),
        end.to_string(),
    ])
}

/// A reply that calls a tool of the client and completes.
pub fn client_call(id: &str, name: &str, arguments: &str) -> Reply {
    let data = json!({ "call_id": id, "name": name, "arguments": arguments });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": "msg_call", "data": data });
    let message = json!({ "object": "message", "status": "completed", "id": "msg_call", "type": "function_call", "role": "assistant", "content": [content] });
    let end = json!({ "object": "response", "status": "completed", "id": "response_up", "output": [message] });
    Reply::frames([
        response("created"),
        response("in_progress"),
        content.to_string(),
        message.to_string(),
        end.to_string(),
    ])
}

/// A reply with 20 tool calls and an approval request at the end.
pub fn busy_and_asking(id: &str) -> Reply {
    let call = |number: usize| {
        let data = json!({ "call_id": format!("call_{number}"), "name": "look", "arguments": "{}" });
        let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "data": data });
        let message = format!("msg_{number}");
        json!({ "object": "message", "status": "completed", "id": message, "type": "plugin_call", "role": "assistant", "content": [content] })
    };
    let data = json!({ "id": id, "name": "rm", "arguments": "{}", "server_label": "files" });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "msg_id": "msg_ask", "data": data });
    let body = json!({ "object": "message", "status": "completed", "id": "msg_ask", "type": "mcp_approval_request", "role": "assistant", "content": [content] });
    let started = [response("created"), response("in_progress")].into_iter();
    let messages = (0..20).map(call).chain([body]).map(|message| message.to_string());
    Reply::frames(started.chain(messages).chain([response("completed")]))
}
