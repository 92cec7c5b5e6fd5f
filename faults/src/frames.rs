//! Frames of the Agent API that agents of the rig send. Not here: the agents (`server.rs`).

/// The head of an event stream in chunks.
pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// The frames before the first delta.
pub(crate) fn opening() -> String {
    [response("created"), response("in_progress"), message("in_progress")].concat()
}

/// The frames after the last delta. The gateway closes what they leave open.
pub(crate) fn closing() -> String {
    [message("completed"), response("completed")].concat()
}

pub(crate) fn delta(text: &str) -> String {
    data(&format!(
        r#"{{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"m","text":"{text}"}}"#
    ))
}

/// A frame of an event stream.
pub(crate) fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

pub(crate) fn response(status: &str) -> String {
    data(&format!(r#"{{"object":"response","status":"{status}","id":"r","created_at":1795167918,"output":null}}"#))
}

fn message(status: &str) -> String {
    data(&format!(
        r#"{{"object":"message","status":"{status}","id":"m","type":"message","role":"assistant","content":null}}"#
    ))
}

/// A complete answer as one JSON body.
pub(crate) fn whole() -> String {
    let content = r#"{"object":"content","status":"completed","type":"text","index":0,"msg_id":"m","text":"hi"}"#;
    let message = format!(
        r#"{{"object":"message","status":"completed","id":"m","type":"message","role":"assistant","content":[{content}]}}"#
    );
    format!(r#"{{"object":"response","status":"completed","id":"r","created_at":1795167918,"output":[{message}]}}"#)
}
